//! The columns of each window by how many entries they have, and which of them make tiles that are full enough: Libra's
//! distribution of sampled products.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::THREADS;
use crate::kernel::Kernel;
use crate::preprocess::item;
use crate::spmm::tile_stream::{STEP_COLUMNS, WINDOW_ROWS};
use crate::variant::Variant;

const WARPS: u32 = THREADS / WARP;

/// Arguments of [`RankVectors`].
///
/// # Obligations
/// - `window_vectors`, `vectors` and `masks`: those of [`ListVectors`](crate::preprocess::ListVectors) and
///   [`MergeColumns`](crate::preprocess::MergeColumns); the grid has a block for each window;
/// - `order` and `taken` have an element for each vector, `kept` and `window_entries` for each window; nothing overlaps
///   what is written.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct RankVectorsParams {
    /// Columns of the windows before each.
    pub window_vectors: GlobalPtr<u32>,
    /// `[column, first position]` of each column of each window.
    pub vectors: GlobalPtr<[u32; 2]>,
    /// At the first position of a column: the slots that have it.
    pub masks: GlobalPtr<u32>,
    /// From the first vector of a window on, those of them that are in tiles, the fullest first, of equals the lower
    /// column: `[vector, entries of those before]`.
    pub order: GlobalPtr<[u32; 2]>,
    /// Whether each vector is in a tile.
    pub taken: GlobalPtr<u32>,
    /// Vectors of each window that are in tiles.
    pub kept: GlobalPtr<u32>,
    /// Entries of each window that are in tiles.
    pub window_entries: GlobalPtr<u32>,
    /// Entries that a tile has at least.
    pub threshold: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The columns of a window in descending order of their entries, of equals the lower first, and how many of them are in
/// tiles: sixteen make a tile, as long as these have `threshold` entries; a block for each window.
///
/// ```text
/// 1. count   vectors of 1, 2, … 8 entries     votes of warps, added in shared memory
/// 2. decide  the last tile that is full enough: tiles have fewer and fewer entries, a binary search
/// 3. rank    vectors of more entries, and those of as many before it: votes again, 256 vectors at a time
/// ```
pub struct RankVectors;

impl Kernel for RankVectors {
    type Params = RankVectorsParams;
    const FILE: &'static str = "patterns";
    const VARIANT: Variant = Variant::RankVectors;
    const BLOCK_THREADS: u32 = THREADS;
    // Left to itself, `ptxas` spills a few registers to fit one more block.
    const MIN_BLOCKS: u32 = 1;
    const SHARED_BYTES: u32 = 4 * WARPS * WINDOW_ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &RankVectorsParams) {
        let window = s.block_idx();
        // SAFETY: the obligations of the params; the bounds of loops around collectives are the block's, or the warp's
        // where only it takes part.
        unsafe {
            let begin = s.load_readonly(p.window_vectors.at(window));
            let end = s.load_readonly(p.window_vectors.at(window + 1));
            let counted = Counted::new(s, p, begin, end);
            let kept = counted.kept(s, end - begin, p.threshold);
            let entries = counted.entries_of(s, kept);
            if s.thread_idx() == 0 {
                s.store(p.kept.at(window), kept);
                s.store(p.window_entries.at(window), entries);
            }
            // Of lane i: vectors of i + 1 entries before this chunk.
            let mut before = 0;
            let mut first = begin;
            while first < end {
                let vector = first + s.thread_idx();
                let count = entries_of(s, p, vector, end);
                let (votes, of_lane) = vote(s, count);
                s.sync_block(); // WAR: counts of an earlier chunk read -> written
                store_counts(s, of_lane);
                s.sync_block(); // RAW: counts written -> added
                let (below, all) = add_counts(s);
                // All lanes take part; what a lane without a vector finds is not used.
                let class = count.wrapping_sub(1) % WINDOW_ROWS;
                let of_equals =
                    s.shuffle(before + below, class) + (votes & ((1 << s.lane()) - 1)).count_ones();
                let rank = s.shuffle(counted.more, class) + of_equals;
                let upto = s.shuffle(counted.more_entries, class) + of_equals * count;
                if vector < end {
                    let taken = rank < kept;
                    s.store(p.taken.at(vector), u32::from(taken));
                    if taken {
                        s.store(p.order.at(begin + rank), [vector, upto]);
                    }
                }
                before += all;
                first += THREADS;
            }
        }
    }
}

/// Entries of a vector; 0 beyond the last.
///
/// # Safety
/// The obligations of the params.
#[inline(always)]
unsafe fn entries_of<S: Simt>(s: &S, p: &RankVectorsParams, vector: u32, end: u32) -> u32 {
    if vector >= end {
        return 0;
    }
    // SAFETY: the vector is one of a window's, and leads to its first position, by the obligations of the params.
    unsafe {
        let [_, position] = s.load_readonly(p.vectors.at(vector));
        s.load_readonly(p.masks.at(position)).count_ones()
    }
}

/// The lanes of the warp whose vector has as many entries; and of lane `i < 8` how many vectors have `i + 1`.
///
/// # Safety
/// The full warp.
#[inline(always)]
unsafe fn vote<S: Simt>(s: &S, count: u32) -> (u32, u32) {
    let (mut votes, mut of_lane) = (0, 0);
    let mut i = 0;
    while i < WINDOW_ROWS {
        // SAFETY: the caller's promise.
        let of_class = unsafe { s.ballot(count == i + 1) };
        votes = if count == i + 1 { of_class } else { votes };
        of_lane = if s.lane() == i { of_class.count_ones() } else { of_lane };
        i += 1;
    }
    (votes, of_lane)
}

/// # Safety
/// A barrier of the block lies between this and what others read before.
#[inline(always)]
unsafe fn store_counts<S: Simt>(s: &S, of_lane: u32) {
    if s.lane() < WINDOW_ROWS {
        // SAFETY: a word of each of eight lanes of each warp.
        unsafe { s.store_shared(4 * (s.warp() * WINDOW_ROWS + s.lane()), of_lane) }; // (WARPS, 8)
    }
}

/// Of lane `i`, modulo 8: vectors of `i + 1` entries of the warps before, and of all.
///
/// # Safety
/// All warps have stored theirs.
#[inline(always)]
unsafe fn add_counts<S: Simt>(s: &S) -> (u32, u32) {
    let (mut below, mut all) = (0, 0);
    let mut warp = 0;
    while warp < WARPS {
        // SAFETY: the caller's promise.
        let of_warp: u32 = unsafe { s.load_shared(4 * (warp * WINDOW_ROWS + s.lane() % WINDOW_ROWS)) };
        below += if warp < s.warp() { of_warp } else { 0 };
        all += of_warp;
        warp += 1;
    }
    (below, all)
}

/// How many vectors of a window have how many entries; lane `i`, modulo 8, has what is said of those of `i + 1`.
struct Counted {
    vectors: u32,
    /// Vectors that have more entries, and how many entries those have.
    more: u32,
    more_entries: u32,
}

impl Counted {
    /// # Safety
    /// The obligations of the params; the full block.
    #[inline(always)]
    unsafe fn new<S: Simt>(s: &S, p: &RankVectorsParams, begin: u32, end: u32) -> Self {
        // SAFETY: the caller's promise; a warp's loop has the warp's bounds.
        unsafe {
            let mut of_lane = 0;
            let mut first = begin + s.warp() * WARP;
            while first < end {
                of_lane += vote(s, entries_of(s, p, first + s.lane(), end)).1;
                first += THREADS;
            }
            store_counts(s, of_lane);
            s.sync_block(); // RAW: counts written -> added
            let (_, vectors) = add_counts(s);
            let (mut more, mut more_entries) = (0, 0);
            let mut i = WINDOW_ROWS - 1;
            while i > 0 {
                let of_more = s.shuffle(vectors, i);
                if s.lane() % WINDOW_ROWS < i {
                    more += of_more;
                    more_entries += of_more * (i + 1);
                }
                i -= 1;
            }
            Self { vectors, more, more_entries }
        }
    }

    /// Entries of the `count` fullest vectors.
    ///
    /// # Safety
    /// The full warp, all lanes with the same count.
    #[inline(always)]
    unsafe fn entries_of<S: Simt>(&self, s: &S, count: u32) -> u32 {
        let (mut left, mut entries) = (count, 0);
        let mut i = WINDOW_ROWS;
        while i > 0 {
            // SAFETY: the caller's promise.
            let vectors = unsafe { s.shuffle(self.vectors, i - 1) };
            let taken = if vectors < left { vectors } else { left };
            entries += taken * i;
            left -= taken;
            i -= 1;
        }
        entries
    }

    /// How many of `count` vectors are in tiles of at least `threshold` entries.
    ///
    /// # Safety
    /// The full warp.
    #[inline(always)]
    unsafe fn kept<S: Simt>(&self, s: &S, count: u32, threshold: u32) -> u32 {
        let upto = |tiles: u32| if tiles * STEP_COLUMNS < count { tiles * STEP_COLUMNS } else { count };
        let (mut low, mut high) = (0, count.div_ceil(STEP_COLUMNS));
        while low < high {
            let tile = low + (high - low) / 2;
            // SAFETY: the caller's promise; all lanes search alike.
            let entries = unsafe { self.entries_of(s, upto(tile + 1)) - self.entries_of(s, upto(tile)) };
            match entries >= threshold {
                true => low = tile + 1,
                false => high = tile,
            }
        }
        upto(low)
    }
}

/// Arguments of [`MarkRest`] and [`ListRest`].
///
/// # Obligations
/// - `entries ≤` [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS); `sources`, `masks` and `ranks`: those of
///   [`MergeColumns`](crate::preprocess::MergeColumns) and [`ListVectors`](crate::preprocess::ListVectors); `taken`:
///   that of [`RankVectors`];
/// - `rest` has an element for each entry; for [`ListRest`] one more, and they are the exclusive sums of what
///   [`MarkRest`] wrote; then `rest_places` and `rest_cols` have as many elements as the last says.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct RestParams {
    /// Column of each entry of the pattern.
    pub col_indices: GlobalPtr<u32>,
    /// Entry of the pattern at each position.
    pub sources: GlobalPtr<u32>,
    /// Not 0 where a column begins.
    pub masks: GlobalPtr<u32>,
    /// Columns that begin before each position.
    pub ranks: GlobalPtr<u32>,
    /// Whether each vector is in a tile.
    pub taken: GlobalPtr<u32>,
    /// Whether each entry of the pattern is in none, then how many before it are.
    pub rest: GlobalPtr<u32>,
    /// The entries that are in no tile.
    pub rest_places: GlobalPtr<u32>,
    /// Column of each of these.
    pub rest_cols: GlobalPtr<u32>,
    /// Number of entries of the pattern.
    pub entries: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Whether each entry is in no tile, a thread for each position.
pub struct MarkRest;

impl Kernel for MarkRest {
    type Params = RestParams;
    const FILE: &'static str = "patterns";
    const VARIANT: Variant = Variant::MarkRest;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &RestParams) {
        let i = item(s);
        // SAFETY: the obligations of the params: a column begins at the first position, so that one has begun at any
        // other; every entry has one position.
        unsafe {
            if i < p.entries {
                let begins = s.load_readonly(p.masks.at(i)) != 0;
                let vector = s.load_readonly(p.ranks.at(i)) - u32::from(!begins);
                let taken = s.load_readonly(p.taken.at(vector));
                s.store(p.rest.at(s.load_readonly(p.sources.at(i))), 1 - taken);
            }
        }
    }
}

/// The entries that are in no tile, in the order of the pattern: a thread for each entry.
pub struct ListRest;

impl Kernel for ListRest {
    type Params = RestParams;
    const FILE: &'static str = "patterns";
    const VARIANT: Variant = Variant::ListRest;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &RestParams) {
        let i = item(s);
        // SAFETY: the obligations of the params: a sum rises where there is an entry.
        unsafe {
            if i < p.entries {
                let at = s.load_readonly(p.rest.at(i));
                if s.load_readonly(p.rest.at(i + 1)) > at {
                    s.store(p.rest_places.at(at), i);
                    s.store(p.rest_cols.at(at), s.load_readonly(p.col_indices.at(i)));
                }
            }
        }
    }
}

//! The division by column vectors, Libra's 2D-aware distribution: which vectors of each window go to the tiles.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::{THREADS, WINDOW_ROWS, item};
use crate::NO_ROW;
use crate::kernel::Kernel;
use crate::spmm::tile_stream::STEP_COLUMNS;
use crate::variant::Variant;

/// Marks a window without rows that have entries in tiles.
pub const NO_WINDOW: u32 = u32::MAX;

/// Arguments of [`DistributeVectors`].
///
/// # Obligations
/// - `window_vectors`, `vectors` and `masks`: those of [`ListVectors`](super::ListVectors) and
///   [`MergeColumns`](super::MergeColumns); the grid has a block for each window, `taken_masks` an element for each
///   vector, `distributed` for each window;
/// - `1 ≤ threshold ≤ 8`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct DistributeVectorsParams {
    /// Columns of the windows before each.
    pub window_vectors: GlobalPtr<u32>,
    /// `[column, first position]` of each column of each window.
    pub vectors: GlobalPtr<[u32; 2]>,
    /// At the first position of a column: the slots that have it.
    pub masks: GlobalPtr<u32>,
    /// Of each vector in tiles, the rows that have it, counted among the rows of its window that have entries in tiles;
    /// 0 of others.
    pub taken_masks: GlobalPtr<u32>,
    /// `[slots that have entries in tiles, vectors in tiles]` of each window.
    pub distributed: GlobalPtr<[u32; 2]>,
    /// Entries that a vector in tiles has at least.
    pub threshold: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Takes the vectors of at least `threshold` entries, and to fill the last step of sixteen the fullest others, of
/// equals the first; a block for each window, 256 vectors at a time.
///
/// ```text
/// 1. count     vectors of 1, 2, … 8 entries           votes of warps, added in shared memory
/// 2. decide    least entries of a vector that is taken, and how many of one fewer: every thread the same
/// 3. take      in the order of the columns: how many with one fewer are before this one, by votes again
/// 4. renumber  the slots without an entry in tiles are left out of the masks
/// ```
pub struct DistributeVectors;

const WARPS: u32 = THREADS / WARP;
/// In shared memory: vectors of each count and warp, later the votes of each warp.
const COUNTS_AT: u32 = 0;
/// The slots of each warp's vectors, and how many are taken.
const SLOTS_AT: u32 = COUNTS_AT + 4 * WARPS * WINDOW_ROWS;
const TAKEN_AT: u32 = SLOTS_AT + 4 * WARPS;

impl Kernel for DistributeVectors {
    type Params = DistributeVectorsParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::DistributeVectors;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = TAKEN_AT + 4 * WARPS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &DistributeVectorsParams) {
        let window = s.block_idx();
        // SAFETY: the obligations of the params; the bounds of loops around collectives are the block's, or the warp's
        // where only it takes part.
        unsafe {
            let begin = s.load_readonly(p.window_vectors.at(window));
            let end = s.load_readonly(p.window_vectors.at(window + 1));
            let (least, more) = decide(s, p, begin, end);
            s.sync_block(); // WAR: counts read -> votes written
            let (mut slots, mut taken, mut fillers) = (0, 0, 0);
            let mut first = begin;
            while first < end {
                let vector = first + s.thread_idx();
                let mask = mask_of(s, p, vector, end);
                let count = mask.count_ones();
                let fills = vector < end && count + 1 == least;
                let mut before = fillers;
                if more > 0 {
                    let votes = s.ballot(fills);
                    if s.lane() == 0 {
                        s.store_shared(COUNTS_AT + 4 * s.warp(), votes.count_ones()); // (WARPS)
                    }
                    s.sync_block(); // RAW: votes written -> added
                    before += (votes & ((1 << s.lane()) - 1)).count_ones();
                    let mut warp = 0;
                    while warp < WARPS {
                        let of_warp: u32 = s.load_shared(COUNTS_AT + 4 * warp);
                        before += if warp < s.warp() { of_warp } else { 0 };
                        fillers += of_warp;
                        warp += 1;
                    }
                    s.sync_block(); // WAR: votes added -> next votes
                }
                let is_taken = count >= least || (fills && before < more);
                if vector < end {
                    s.store(p.taken_masks.at(vector), if is_taken { mask } else { 0 });
                }
                slots |= if is_taken { mask } else { 0 };
                taken += u32::from(is_taken && vector < end);
                first += THREADS;
            }
            let (slots, taken) = combine(s, slots, taken);
            renumber(s, p, slots, (begin, end));
            if s.thread_idx() == 0 {
                s.store(p.distributed.at(window), [slots, taken]);
            }
        }
    }
}

/// The slots that have a vector; 0 beyond the last.
///
/// # Safety
/// The obligations of the params.
#[inline(always)]
unsafe fn mask_of<S: Simt>(s: &S, p: &DistributeVectorsParams, vector: u32, end: u32) -> u32 {
    if vector >= end {
        return 0;
    }
    // SAFETY: the vector is one of a window's, and leads to its first position, by the obligations of the params.
    unsafe {
        let [_, position] = s.load_readonly(p.vectors.at(vector));
        s.load_readonly(p.masks.at(position))
    }
}

/// Entries of the least vector that is taken, and how many of one fewer are taken. If there is no vector of as many as
/// the threshold, none is taken.
///
/// # Safety
/// The obligations of the params; the full block.
#[inline(always)]
unsafe fn decide<S: Simt>(s: &S, p: &DistributeVectorsParams, begin: u32, end: u32) -> (u32, u32) {
    // SAFETY: the caller's promise; a warp's loop has the warp's bounds.
    unsafe {
        let mut counts = [0; WINDOW_ROWS as usize]; // vectors of i + 1 entries
        let mut first = begin + s.warp() * WARP;
        while first < end {
            let count = mask_of(s, p, first + s.lane(), end).count_ones();
            let mut i = 0;
            while i < WINDOW_ROWS {
                counts[i as usize] += s.ballot(count == i + 1).count_ones();
                i += 1;
            }
            first += THREADS;
        }
        let mut i = 0;
        while i < WINDOW_ROWS {
            if s.lane() == i {
                s.store_shared(COUNTS_AT + 4 * (s.warp() * WINDOW_ROWS + i), counts[i as usize]); // (WARPS, 8)
            }
            i += 1;
        }
        s.sync_block(); // RAW: counts written -> added
        let mut sum = 0;
        let mut warp = 0;
        while warp < WARPS {
            sum += s.load_shared::<u32>(COUNTS_AT + 4 * (warp * WINDOW_ROWS + s.lane() % WINDOW_ROWS));
            warp += 1;
        }
        // Lane i has the vectors of i + 1 entries.
        let mut full = 0;
        let mut i = 0;
        while i < WINDOW_ROWS {
            let vectors = s.shuffle(sum, i);
            full += if i + 1 >= p.threshold { vectors } else { 0 };
            i += 1;
        }
        let (mut least, mut more) = (p.threshold, 0);
        let mut room = full.next_multiple_of(STEP_COLUMNS) - full;
        let mut entries = WINDOW_ROWS - 1;
        while entries >= 1 {
            let vectors = s.shuffle(sum, entries - 1);
            if entries + 1 == least && room > 0 && more == 0 {
                if vectors > room {
                    more = room;
                } else {
                    room -= vectors;
                    least = entries;
                }
            }
            entries -= 1;
        }
        (least, more)
    }
}

/// The slots and the numbers of all threads of the block.
///
/// # Safety
/// The full block.
#[inline(always)]
unsafe fn combine<S: Simt>(s: &S, slots: u32, taken: u32) -> (u32, u32) {
    // SAFETY: the caller's promise; each word is written by one thread.
    unsafe {
        let (mut slots, mut taken) = (slots, taken);
        let mut half = WARP / 2;
        while half >= 1 {
            slots |= s.shuffle_xor(slots, half);
            taken += s.shuffle_xor(taken, half);
            half /= 2;
        }
        if s.lane() == 0 {
            s.store_shared(SLOTS_AT + 4 * s.warp(), slots); // (WARPS)
            s.store_shared(TAKEN_AT + 4 * s.warp(), taken); // (WARPS)
        }
        s.sync_block(); // RAW: results of warps written -> combined
        let (mut slots, mut taken) = (0, 0);
        let mut warp = 0;
        while warp < WARPS {
            slots |= s.load_shared::<u32>(SLOTS_AT + 4 * warp);
            taken += s.load_shared::<u32>(TAKEN_AT + 4 * warp);
            warp += 1;
        }
        (slots, taken)
    }
}

/// Leaves slots out of the masks of a window's vectors. Each thread reads what it wrote.
///
/// # Safety
/// The obligations of the params.
#[inline(always)]
unsafe fn renumber<S: Simt>(s: &S, p: &DistributeVectorsParams, slots: u32, (begin, end): (u32, u32)) {
    let mut vector = begin + s.thread_idx();
    while vector < end {
        let to = p.taken_masks.at(vector);
        // SAFETY: the vectors `begin..end` are those of the block's window, each in one thread's hands.
        unsafe {
            let mask: u32 = s.load(to);
            let (mut renumbered, mut at, mut slot) = (0, 0, 0);
            while slot < WINDOW_ROWS {
                renumbered |= (mask >> slot & 1) << at;
                at += slots >> slot & 1;
                slot += 1;
            }
            s.store(to, renumbered);
        }
        vector += THREADS;
    }
}

/// Arguments of [`DistributeEntries`] and [`KeepEntries`].
///
/// # Obligations
/// - `entries`, `rows ≤` [`MOST_ITEMS`](super::MOST_ITEMS); `sources`, `masks` and `ranks`: those of
///   [`MergeColumns`](super::MergeColumns) and [`ListVectors`](super::ListVectors); `taken_masks`: that of
///   [`DistributeVectors`];
/// - for [`DistributeEntries`], `kept` and `rest` have an element for each entry;
/// - for [`KeepEntries`], they have one more and are the exclusive sums of what that kernel wrote; `kept_sources` and
///   `kept_masks` have `kept[entries]` elements, `rest_sources` and `rest_cols` have `rest[entries]`, `rest_offsets`
///   has `rows + 1`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct DistributeEntriesParams {
    /// Offsets of all rows of the matrix.
    pub row_offsets: GlobalPtr<u32>,
    /// Column of each entry of the matrix.
    pub col_indices: GlobalPtr<u32>,
    /// Entry of the matrix at each position.
    pub sources: GlobalPtr<u32>,
    /// Not 0 where a column begins.
    pub masks: GlobalPtr<u32>,
    /// Columns that begin before each position.
    pub ranks: GlobalPtr<u32>,
    /// Not 0 of vectors in tiles.
    pub taken_masks: GlobalPtr<u32>,
    /// Whether the entry at each position is in tiles.
    pub kept: GlobalPtr<u32>,
    /// Whether each entry of the matrix is not.
    pub rest: GlobalPtr<u32>,
    /// Entry of the matrix at each position of the tiles.
    pub kept_sources: GlobalPtr<u32>,
    /// The rows of a vector where it begins.
    pub kept_masks: GlobalPtr<u32>,
    /// The other entries of the matrix.
    pub rest_sources: GlobalPtr<u32>,
    /// Column of each of the other entries.
    pub rest_cols: GlobalPtr<u32>,
    /// Where the other entries of each row begin.
    pub rest_offsets: GlobalPtr<u32>,
    /// Number of entries of the matrix.
    pub entries: u32,
    /// Number of rows of the matrix.
    pub rows: u32,
}

impl DistributeEntriesParams {
    /// The mask in tiles of the vector that the entry at a position belongs to, and whether it begins there.
    ///
    /// # Safety
    /// The obligations of the params, and `position < entries`.
    #[inline(always)]
    unsafe fn vector<S: Simt>(&self, s: &S, position: u32) -> (u32, bool) {
        // SAFETY: the caller's promise: a column begins at the first position, so that one has begun at any other.
        unsafe {
            let begins = s.load_readonly(self.masks.at(position)) != 0;
            let vector = s.load_readonly(self.ranks.at(position)) - u32::from(!begins);
            (s.load_readonly(self.taken_masks.at(vector)), begins)
        }
    }
}

/// Whether each entry goes to the tiles, told by its position and, the other way round, by its place in the matrix: a
/// thread for each.
pub struct DistributeEntries;

impl Kernel for DistributeEntries {
    type Params = DistributeEntriesParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::DistributeEntries;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &DistributeEntriesParams) {
        let i = item(s);
        // SAFETY: the obligations of the params; every entry has one position.
        unsafe {
            if i < p.entries {
                let (mask, _) = p.vector(s, i);
                s.store(p.kept.at(i), u32::from(mask != 0));
                s.store(p.rest.at(s.load_readonly(p.sources.at(i))), u32::from(mask == 0));
            }
        }
    }
}

/// The entries of the tiles by position, the others in the order of the matrix, and where those of each row begin: a
/// thread for each entry and row, and one more for the end.
pub struct KeepEntries;

impl Kernel for KeepEntries {
    type Params = DistributeEntriesParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::KeepEntries;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &DistributeEntriesParams) {
        let i = item(s);
        // SAFETY: the obligations of the params: a sum rises where there is an entry.
        unsafe {
            if i < p.entries {
                let at = s.load_readonly(p.kept.at(i));
                if s.load_readonly(p.kept.at(i + 1)) > at {
                    let (mask, begins) = p.vector(s, i);
                    s.store(p.kept_sources.at(at), s.load_readonly(p.sources.at(i)));
                    s.store(p.kept_masks.at(at), if begins { mask } else { 0 });
                }
                let at = s.load_readonly(p.rest.at(i));
                if s.load_readonly(p.rest.at(i + 1)) > at {
                    s.store(p.rest_sources.at(at), i);
                    s.store(p.rest_cols.at(at), s.load_readonly(p.col_indices.at(i)));
                }
            }
            if i <= p.rows {
                let begin = s.load_readonly(p.row_offsets.at(i));
                s.store(p.rest_offsets.at(i), s.load_readonly(p.rest.at(begin)));
            }
        }
    }
}

/// Arguments of [`PlaceWindows`].
///
/// # Obligations
/// - `slots` is 8 times the number of windows, of which `origins` has an element each: [`NO_WINDOW`], or a window of
///   `window_rows` and `distributed`, which is that of [`DistributeVectors`];
/// - `placed_rows` has `slots` elements.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct PlaceWindowsParams {
    /// For each window, the one among those of all rows with entries that it was.
    pub origins: GlobalPtr<u32>,
    /// Rows of the windows of all rows with entries.
    pub window_rows: GlobalPtr<u32>,
    /// `[slots that have entries in tiles, vectors in tiles]` of these.
    pub distributed: GlobalPtr<[u32; 2]>,
    /// Rows of the windows with entries in tiles.
    pub placed_rows: GlobalPtr<u32>,
    /// Slots of `placed_rows`, 8 for each window.
    pub slots: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The rows of windows that have entries in tiles, without a gap between them: a thread for each slot.
pub struct PlaceWindows;

impl Kernel for PlaceWindows {
    type Params = PlaceWindowsParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::PlaceWindows;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &PlaceWindowsParams) {
        let i = item(s);
        // SAFETY: the obligations of the params.
        unsafe {
            if i < p.slots {
                let origin = s.load_readonly(p.origins.at(i / WINDOW_ROWS));
                if origin != NO_WINDOW {
                    let [mut left, _] = s.load_readonly(p.distributed.at(origin));
                    let mut skip = i % WINDOW_ROWS;
                    while skip > 0 {
                        left &= left.wrapping_sub(1);
                        skip -= 1;
                    }
                    let row = if left == 0 {
                        NO_ROW
                    } else {
                        s.load_readonly(p.window_rows.at(origin * WINDOW_ROWS + left.trailing_zeros()))
                    };
                    s.store(p.placed_rows.at(i), row);
                }
            }
        }
    }
}

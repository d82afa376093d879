//! The transpose of a matrix with few entries, in one launch.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::{
    COLUMNS, Columns, EACH, ENTRIES, OF_THREAD, RANGE_TILE, SHARED_BYTES, SUMS, THREADS, Tile, TransposeOut,
    WARP_ENTRIES, WARPS, columns_of_thread, count_columns, least, place_tile,
};
use crate::csr::read::index;
use crate::kernel::Kernel;
use crate::sums::before_in_block;
use crate::unroll::each;
use crate::variant::Variant;

/// Arguments of [`TransposeFew`].
///
/// # Obligations
/// - `columns` has `entries` elements of `column_words` words, 1 or 2, of which the first counts; `offsets` has
///   `rows + 1`, of 8 bytes if `wide_offsets` is not 0 and of 4 otherwise; `values`, unless `out.values` is null, has
///   `entries` of `value_bytes` bytes, 2, 4 or 8; any content, but there is a row if there are entries;
/// - `range_columns` is 1 to 2 to the power [`MOST_RANGE_BITS`](super::MOST_RANGE_BITS); the grid has the fewest blocks
///   of as many columns that take `cols`, and one at least; no column of the grid exceeds 32 bits;
/// - `entries` and `rows` are at most [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS).
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct TransposeFewParams {
    /// First entry of each row, and the end.
    pub offsets: GlobalPtr<u32>,
    /// Column of each entry.
    pub columns: GlobalPtr<u32>,
    /// Value of each entry.
    pub values: GlobalPtr<u32>,
    /// Where the transpose goes.
    pub out: TransposeOut,
    /// Rows of the matrix.
    pub rows: u32,
    /// Columns of the matrix.
    pub cols: u32,
    /// Entries of the matrix.
    pub entries: u32,
    /// Columns of a block.
    pub range_columns: u32,
    /// Words from one column to the next.
    pub column_words: u32,
    /// Whether offsets have 8 bytes.
    pub wide_offsets: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl TransposeFewParams {
    /// The warp's first entry, and the end of its own.
    #[inline(always)]
    fn of_warp<S: Simt>(&self, s: &S) -> (u32, u32) {
        let of_warp = self.entries.div_ceil(WARPS * WARP_ENTRIES) * WARP_ENTRIES;
        let begin = least(s.warp() * of_warp, self.entries);
        (begin, least(begin + of_warp, self.entries))
    }

    /// The rows of some entries that there are, all looked for at a time: the last that begins at or before each.
    #[inline(always)]
    unsafe fn rows_of<S: Simt>(&self, s: &S, entries: [u32; EACH], len: u32) -> [u32; EACH] {
        let mut rows = [0; EACH];
        let mut step = 1 << (u32::BITS - self.rows.leading_zeros());
        while step > 1 {
            step /= 2;
            each::<EACH>(|i| {
                let row = rows[i] + step;
                if Tile::at(s, i) < len && row < self.rows {
                    // SAFETY: the obligations of the params.
                    let begin = unsafe { index(s, self.offsets, row, self.wide_offsets != 0) } as u32;
                    rows[i] = if begin <= entries[i] { row } else { rows[i] };
                }
            });
        }
        rows
    }

    /// The columns of some of the warp's entries, a warp's width apart; the greatest number for what is behind the end.
    #[inline(always)]
    unsafe fn load<S: Simt>(&self, s: &S, first: u32, end: u32) -> [u32; EACH] {
        let mut columns = [u32::MAX; EACH];
        each::<EACH>(|i| {
            let at = first + i as u32 * WARP + s.lane();
            if at < end {
                // SAFETY: the obligations of the params; `at < entries`.
                columns[i] = unsafe {
                    s.load_readonly(self.columns.at_wide(u64::from(at) * u64::from(self.column_words)))
                };
            }
        });
        columns
    }
}

// Shared memory beside that of a tile: what each thread has of its columns, for which there are no registers left.
/// Entries of all tiles.
const ALL: u32 = SHARED_BYTES.next_multiple_of(16); // (THREADS, OF_THREAD)
/// Entries of the tiles before.
const SEEN: u32 = ALL + 4 * OF_THREAD as u32 * THREADS; // (THREADS, OF_THREAD)
/// What [`Kept`] is, of each thread.
const KEPT: u32 = SEEN + 4 * OF_THREAD as u32 * THREADS; // (THREADS, 4)

/// What is wanted once a tile: entries of the range, those of them in the warps before, and the first place of the
/// range in the output.
type Kept = [u32; 4];

/// The transpose of a matrix with few entries in one launch: every block reads all columns, twice, and takes the
/// entries of a range of them, more than a tile in turns.
pub struct TransposeFew;

impl Kernel for TransposeFew {
    type Params = TransposeFewParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::TransposeFew;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = KEPT + 16 * THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &TransposeFewParams) {
        // 1. Locate: successive entries for each warp, a range of columns for the block.
        let (begin, end) = p.of_warp(s);
        let range = s.block_idx() * p.range_columns;
        let bits = u32::BITS - (p.range_columns - 1).leading_zeros();
        // SAFETY: the obligations of the params; loops depend on what is the same for a warp, or for the block where
        // its threads meet. Places of the range's entries are those behind all of smaller columns.
        unsafe {
            // 2. How many entries are the range's, and how many come before.
            let (mut inside, mut below) = (0, 0);
            let mut at = begin;
            while at < end {
                let columns = p.load(s, at, end);
                each::<EACH>(|i| {
                    inside += u32::from(columns[i].wrapping_sub(range) < p.range_columns);
                    below += u32::from(columns[i] < range);
                });
                at += WARP_ENTRIES;
            }
            let ([before, _], [total, output]) = before_in_block::<S, 2, WARPS>(s, [inside, below], SUMS);
            let kept: Kept = [total, s.shuffle(before, 0), output, 0];
            s.store_shared(KEPT + 16 * s.thread_idx(), kept);
            s.sync_block(); // WAR: totals read -> other sums
            let of_thread = 4 * OF_THREAD as u32 * s.thread_idx();
            // Entries of one tile are counted where they are placed; of more, all are counted first.
            let (mut is_counted, mut first) = (total <= RANGE_TILE, 0);
            loop {
                let [total, ..]: Kept = s.load_shared(KEPT + 16 * s.thread_idx());
                let len = least(total - first, RANGE_TILE);
                collect(s, p, range, first);
                let (columns, entries) = collected(s, len);
                // Before there are more numbers to be kept in registers.
                let rows = if is_counted { p.rows_of(s, entries, len) } else { [0; EACH] };
                let places = count_columns(s, columns, len, bits);
                let own = columns_of_thread(s, bits);
                let [total, _, begin, _]: Kept = s.load_shared(KEPT + 16 * s.thread_idx());
                if is_counted {
                    let all = if total <= RANGE_TILE { own } else { s.load_shared(ALL + of_thread) };
                    let count =
                        if first == 0 && range < p.cols { least(p.cols - range, p.range_columns) } else { 0 };
                    let facts = Columns { all, before: seen(s, first), begin, first: range, count };
                    let tile = Tile { columns, entries, rows, len };
                    place_tile(s, (&p.out, p.values, p.value_bytes), (tile, places, bits), own, &facts);
                } else {
                    s.sync_block(); // WAR: counters read -> another tile
                }
                let [total, ..]: Kept = s.load_shared(KEPT + 16 * s.thread_idx());
                let is_last = total - first <= RANGE_TILE;
                if total > RANGE_TILE {
                    let mut seen = seen(s, first);
                    each::<OF_THREAD>(|i| seen[i] += own[i]);
                    s.store_shared(if is_last && !is_counted { ALL } else { SEEN } + of_thread, seen);
                }
                match (is_last, is_counted) {
                    (true, true) => break,
                    (true, false) => (is_counted, first) = (true, 0),
                    (false, _) => first += RANGE_TILE,
                }
            }
            if s.block_idx() == 0 && s.thread_idx() == 0 {
                s.store(p.out.offsets.at(p.cols), u64::from(p.entries));
            }
        }
    }
}

/// Entries of the thread's columns in the tiles before the one that begins with entry `first` of the range.
#[inline(always)]
unsafe fn seen<S: Simt>(s: &S, first: u32) -> [u32; OF_THREAD] {
    match first {
        0 => [0; OF_THREAD],
        // SAFETY: the thread's own, written with the tile before.
        _ => unsafe { s.load_shared(SEEN + 4 * OF_THREAD as u32 * s.thread_idx()) },
    }
}

/// Puts the numbers and columns of a tile of the range's entries to shared memory, in their order: those from the
/// entry of number `first` in the range on.
#[inline(always)]
unsafe fn collect<S: Simt>(s: &S, p: &TransposeFewParams, range: u32, first: u32) {
    // SAFETY: the caller has all threads here, between barriers; each place of the tile is one entry's.
    unsafe {
        let [_, mut number, ..]: Kept = s.load_shared(KEPT + 16 * s.thread_idx());
        let (mut at, end) = p.of_warp(s);
        while at < end {
            let columns = p.load(s, at, end);
            each::<EACH>(|i| {
                let column = columns[i].wrapping_sub(range);
                let is_inside = column < p.range_columns && at + i as u32 * WARP + s.lane() < end;
                let inside = s.ballot(is_inside);
                let place = (number + (inside & ((1 << s.lane()) - 1)).count_ones()).wrapping_sub(first);
                if is_inside && place < RANGE_TILE {
                    s.store_shared(ENTRIES + 4 * place, at + i as u32 * WARP + s.lane());
                    s.store_shared(COLUMNS + 2 * place, column as u16);
                }
                number += inside.count_ones();
            });
            at += WARP_ENTRIES;
        }
        s.sync_block(); // RAW: collected -> read
    }
}

/// The thread's entries of what was collected: columns and numbers.
#[inline(always)]
unsafe fn collected<S: Simt>(s: &S, len: u32) -> ([u32; EACH], [u32; EACH]) {
    let (mut columns, mut entries) = ([0; EACH], [0; EACH]);
    // SAFETY: the caller has all threads here, after `collect` of as many.
    unsafe {
        each::<EACH>(|i| {
            let at = Tile::at(s, i);
            if at < len {
                let column: u16 = s.load_shared(COLUMNS + 2 * at);
                columns[i] = u32::from(column);
                entries[i] = s.load_shared(ENTRIES + 4 * at);
            }
        });
        s.sync_block(); // WAR: collected entries read -> counters in their place
    }
    (columns, entries)
}

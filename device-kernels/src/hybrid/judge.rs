//! Algorithm 1 of RSH-SpMM: which rows leave the tiles.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::kernel::Kernel;
use crate::variant::Variant;

/// Rows with entries that a warp decides, one window after the other: windows start afresh in every chunk, as on the
/// host.
pub const CHUNK_ROWS: u32 = 1 << 13;
/// Rows of a window.
const WINDOW_ROWS: u32 = 8;
/// Columns of a row that are looked for at once, each in all rows of the window.
const COLUMNS: u32 = WARP / WINDOW_ROWS;

/// Arguments of [`JudgeRows`].
///
/// # Obligations
/// - `rows` has `count` elements, each a row with entries of a valid matrix, which `row_offsets` and `col_indices`
///   are of; `count ≤` [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS);
/// - `in_tiles` has an element for each row of the matrix.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct JudgeRowsParams {
    /// The rows with entries, in the order in which windows take them.
    pub rows: GlobalPtr<u32>,
    /// Offsets of all rows of the matrix.
    pub row_offsets: GlobalPtr<u32>,
    /// Column of each entry.
    pub col_indices: GlobalPtr<u32>,
    /// Whether each row with entries stays in tiles.
    pub in_tiles: GlobalPtr<u32>,
    /// Number of rows with entries.
    pub count: u32,
    /// Longer rows stay.
    pub max_entries: u32,
    /// As printed: a row leaves that alone brings fewer columns. Else a row leaves that shares at most so many per
    /// cent of its columns, and not all.
    pub limit: u32,
    /// Unless 0, as printed: the first row of each window alone is judged.
    pub printed: u32,
}

impl JudgeRowsParams {
    /// Whether a row of `length` entries leaves that alone brings `own` columns.
    #[inline(always)]
    fn leaves(&self, length: u32, own: u32) -> bool {
        if self.printed != 0 {
            return own < self.limit;
        }
        own > 0 && 100 * u64::from(length - own) <= u64::from(self.limit) * u64::from(length)
    }
}

/// Fills windows row by row, and lets rows leave; a warp for each chunk of rows. Lane `i < 8` keeps row `i` of the
/// window.
///
/// ```text
/// 1. fill     the window up to 8 rows: the next ones, in the end those of the next chunk, which are decided there
/// 2. judge    columns of short rows, four at a time, looked for in the window's other rows, a lane for each pair
/// 3. leave    all that are to, together; then fill again. If none leaves, the window is closed and all stay
/// ```
///
/// The host keeps count of what it has judged; here a row is judged whenever the window has changed. That is the same:
/// rows that come can only share more with those that stayed.
pub struct JudgeRows;

/// A row of the window, in the lane that keeps it.
#[derive(Clone, Copy)]
struct Slot {
    row: u32,
    begin: u32,
    end: u32,
    /// Whether it is decided in this chunk.
    own: bool,
}

impl Kernel for JudgeRows {
    type Params = JudgeRowsParams;
    const FILE: &'static str = "hybrid";
    const VARIANT: Variant = Variant::JudgeRows;
    const BLOCK_THREADS: u32 = WARP;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &JudgeRowsParams) {
        let mut next = s.block_idx() * CHUNK_ROWS;
        let own_end = if p.count - next < CHUNK_ROWS { p.count } else { next + CHUNK_ROWS };
        let mut slot = Slot { row: 0, begin: 0, end: 0, own: false };
        let mut filled = 0;
        // SAFETY: the obligations of the params; what loops and branches around collectives depend on is the same in
        // all lanes; the rows of a chunk are told by its warp alone.
        unsafe {
            while next < own_end || s.ballot(s.lane() < filled && slot.own) != 0 {
                // 1. Fill.
                let room = WINDOW_ROWS - filled;
                let taken = if p.count - next < room { p.count - next } else { room };
                if s.lane() >= filled && s.lane() < filled + taken {
                    let at = next + (s.lane() - filled);
                    let row = s.load_readonly(p.rows.at(at));
                    let begin = s.load_readonly(p.row_offsets.at(row));
                    let end = s.load_readonly(p.row_offsets.at(row + 1));
                    slot = Slot { row, begin, end, own: at < own_end };
                }
                (filled, next) = (filled + taken, next + taken);
                // 2. Judge.
                let judged = if p.printed != 0 { 1 } else { filled };
                let is_short = s.lane() < filled && slot.own && slot.end - slot.begin <= p.max_entries;
                let mut left = s.ballot(is_short && s.lane() < judged);
                let mut own_columns = 0;
                while left != 0 {
                    let of = left.trailing_zeros();
                    let found = columns_of_its_own(s, p, slot, (of, filled));
                    own_columns = if s.lane() == of { found } else { own_columns };
                    left &= left - 1;
                }
                let leaves = is_short && s.lane() < judged && p.leaves(slot.end - slot.begin, own_columns);
                // 3. Leave.
                let leaving = s.ballot(leaves);
                if s.lane() < filled && slot.own && (leaves || leaving == 0) {
                    s.store(p.in_tiles.at(slot.row), u32::from(!leaves));
                }
                if leaving == 0 {
                    filled = 0;
                } else {
                    slot = without(s, slot, (leaving, filled));
                    filled -= leaving.count_ones();
                }
            }
        }
    }
}

/// Columns of row `of` of a window that none of its `filled` rows has beside it. Group: warp.
///
/// # Safety
/// The obligations of the params; the slots below `filled` are rows of the matrix.
#[inline(always)]
unsafe fn columns_of_its_own<S: Simt>(
    s: &S,
    p: &JudgeRowsParams,
    slot: Slot,
    (of, filled): (u32, u32),
) -> u32 {
    let other = s.lane() % WINDOW_ROWS;
    // SAFETY: the caller's promise; the bounds are the same in all lanes.
    unsafe {
        let (begin, end) = (s.shuffle(slot.begin, of), s.shuffle(slot.end, of));
        let (other_begin, other_end) = (s.shuffle(slot.begin, other), s.shuffle(slot.end, other));
        let (mut at, mut own) = (begin, 0);
        while at < end {
            let entry = at + s.lane() / WINDOW_ROWS;
            let is_found = entry < end
                && other < filled
                && other != of
                && has(s, p, (other_begin, other_end), s.load_readonly(p.col_indices.at(entry)));
            let votes = s.ballot(is_found);
            let mut i = 0;
            while i < COLUMNS {
                let of_column = votes >> (WINDOW_ROWS * i) & 0xff;
                own += u32::from(of_column == 0 && end - at > i);
                i += 1;
            }
            at += COLUMNS;
        }
        own
    }
}

/// Whether entries `begin..end` of a row have a column.
///
/// # Safety
/// The obligations of the params: the columns ascend.
#[inline(always)]
unsafe fn has<S: Simt>(s: &S, p: &JudgeRowsParams, (mut begin, mut end): (u32, u32), column: u32) -> bool {
    while begin < end {
        let middle = begin + (end - begin) / 2;
        // SAFETY: the entry is one of the row.
        let found = unsafe { s.load_readonly(p.col_indices.at(middle)) };
        if found == column {
            return true;
        }
        (begin, end) = if found < column { (middle + 1, end) } else { (begin, middle) };
    }
    false
}

/// The window without the rows `leaving`, the others in their order. Group: warp.
///
/// # Safety
/// The full warp.
#[inline(always)]
unsafe fn without<S: Simt>(s: &S, slot: Slot, (leaving, filled): (u32, u32)) -> Slot {
    let staying = !leaving & ((1 << filled) - 1);
    // The slot with as many that stay before it as the lane's number.
    let (mut source, mut i) = (0, 0);
    while i < WINDOW_ROWS {
        let before = (staying & ((1 << i) - 1)).count_ones();
        source = if staying >> i & 1 != 0 && before == s.lane() { i } else { source };
        i += 1;
    }
    // SAFETY: the caller's promise.
    unsafe {
        Slot {
            row: s.shuffle(slot.row, source),
            begin: s.shuffle(slot.begin, source),
            end: s.shuffle(slot.end, source),
            own: s.shuffle(u32::from(slot.own), source) != 0,
        }
    }
}

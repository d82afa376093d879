//! The entries of each window merged by column, and the list of its columns.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::{THREADS, WINDOW_ROWS, item, part_of};
use crate::kernel::Kernel;
use crate::variant::Variant;

/// Arguments of [`MergeColumns`].
///
/// # Obligations
/// - `entries ≤` [`MOST_ITEMS`](super::MOST_ITEMS), `slots` is a multiple of 8, `slot_begins` has one element more and
///   ascends from 0 to `entries`: slot `i` has the entries of row `window_rows[i]`, all of them, or none;
/// - `row_offsets` and `col_indices` are those of a valid CSR: columns strictly ascend in a row;
/// - `sources` and `masks` have `entries` elements and overlap nothing else.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct MergeColumnsParams {
    /// Row in each slot, 8 slots to a window.
    pub window_rows: GlobalPtr<u32>,
    /// Entries of the slots before each.
    pub slot_begins: GlobalPtr<u32>,
    /// Offsets of all rows of the matrix.
    pub row_offsets: GlobalPtr<u32>,
    /// Column of each entry of the matrix.
    pub col_indices: GlobalPtr<u32>,
    /// Entry of the matrix at each position.
    pub sources: GlobalPtr<u32>,
    /// Bit `r` where a column begins: slot `r` has an entry in it. 0 elsewhere.
    pub masks: GlobalPtr<u32>,
    /// Number of slots, 8 for each window.
    pub slots: u32,
    /// Number of entries in all slots.
    pub entries: u32,
}

/// Sorts the entries of each window by column, of equal ones by slot, by ranking: a thread for each entry counts what
/// comes before it.
///
/// An entry of column `c` in slot `r` of a window that begins at position `b` goes to
///
/// ```text
/// b + Σ_t |{entries of slot t in columns < c}| + |{t < r : slot t has an entry in c}|
/// ```
///
/// whose terms are a binary search in each of the eight rows, which are sorted. So a thread's work is logarithmic in
/// the longest row of its window, and windows of any length need neither room in shared memory nor a path of their own.
pub struct MergeColumns;

impl Kernel for MergeColumns {
    type Params = MergeColumnsParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::MergeColumns;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &MergeColumnsParams) {
        // 1. Locate: entry `i` of the slots laid end to end.
        let i = item(s);
        if i >= p.entries {
            return;
        }
        // SAFETY: the obligations of the params: slots have rows where they have entries. No two entries have the same
        // rank.
        unsafe {
            let own = part_of(s, p.slot_begins, p.slots, i);
            let first = own / WINDOW_ROWS * WINDOW_ROWS;
            let own_row = s.load_readonly(p.window_rows.at(own));
            let within = i - s.load_readonly(p.slot_begins.at(own));
            let source = s.load_readonly(p.row_offsets.at(own_row)) + within;
            let column = s.load_readonly(p.col_indices.at(source));
            // 2. to 4. Search the column in each slot.
            let mut begin = s.load_readonly(p.slot_begins.at(first));
            let mut position = begin;
            let mut mask = 0;
            let mut slot = first;
            while slot < first + WINDOW_ROWS {
                let end = s.load_readonly(p.slot_begins.at(slot + 1));
                let (below, found) = if slot == own {
                    (within, true)
                } else if end > begin {
                    let row = s.load_readonly(p.window_rows.at(slot));
                    let from = s.load_readonly(p.row_offsets.at(row));
                    search(s, p.col_indices.at(from), end - begin, column)
                } else {
                    (0, false)
                };
                mask |= u32::from(found) << (slot - first);
                position += below + u32::from(found && slot < own);
                begin = end;
                slot += 1;
            }
            // 5. Registers -> global.
            let leads = mask & ((1 << (own - first)) - 1) == 0;
            s.store(p.sources.at(position), source);
            s.store(p.masks.at(position), if leads { mask } else { 0 });
        }
    }
}

/// How many of `count` ascending columns are below `column`, and whether it is one of them.
///
/// # Safety
/// There are so many columns, and nothing writes them.
#[inline(always)]
unsafe fn search<S: Simt>(s: &S, columns: GlobalPtr<u32>, count: u32, column: u32) -> (u32, bool) {
    let (mut low, mut high) = (0, count);
    let mut found = false;
    while low < high {
        let middle = low + (high - low) / 2;
        // SAFETY: `middle < count`.
        let here = unsafe { s.load_readonly(columns.at(middle)) };
        found |= here == column;
        match here < column {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    (low, found)
}

/// Arguments of [`ListVectors`].
///
/// # Obligations
/// - `entries ≤` [`MOST_ITEMS`](super::MOST_ITEMS); `ranks[i]`, for `i ≤ entries`, is the number of columns that begin
///   before position `i`;
/// - `slot_begins` has an element for each 8 slots of `windows` windows and one more; `window_vectors` has
///   `windows + 1`;
/// - unless `vectors` is null: `sources` and `masks` are those of [`MergeColumns`], `vectors` has
///   `ranks[entries] + 1` elements, and `columns`, unless it is null, `ranks[entries]`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ListVectorsParams {
    /// Columns that begin before each position.
    pub ranks: GlobalPtr<u32>,
    /// Entries of the slots before each.
    pub slot_begins: GlobalPtr<u32>,
    /// Columns of the windows before each, and of all.
    pub window_vectors: GlobalPtr<u32>,
    /// Column of each entry of the matrix.
    pub col_indices: GlobalPtr<u32>,
    /// Entry of the matrix at each position.
    pub sources: GlobalPtr<u32>,
    /// Not 0 where a column begins.
    pub masks: GlobalPtr<u32>,
    /// `[column, first position]` of each column of each window; behind the last, the number of positions. Null: not
    /// yet.
    pub vectors: GlobalPtr<[u32; 2]>,
    /// The columns alone; null: not wanted.
    pub columns: GlobalPtr<u32>,
    /// Number of entries in all windows.
    pub entries: u32,
    /// Number of windows, of 8 slots each.
    pub windows: u32,
}

/// Where the columns of each window begin in the list of all, and the list: a thread for each position and window, and
/// one more for the end of either.
pub struct ListVectors;

impl Kernel for ListVectors {
    type Params = ListVectorsParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::ListVectors;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ListVectorsParams) {
        let i = item(s);
        // SAFETY: the obligations of the params; each column begins at one position.
        unsafe {
            if p.vectors == GlobalPtr::NULL {
                if i <= p.windows {
                    let begin = s.load_readonly(p.slot_begins.at(i * WINDOW_ROWS));
                    s.store(p.window_vectors.at(i), s.load_readonly(p.ranks.at(begin)));
                }
            } else if i < p.entries {
                if s.load_readonly(p.masks.at(i)) != 0 {
                    let column = s.load_readonly(p.col_indices.at(s.load_readonly(p.sources.at(i))));
                    let rank = s.load_readonly(p.ranks.at(i));
                    s.store(p.vectors.at(rank), [column, i]);
                    if p.columns != GlobalPtr::NULL {
                        s.store(p.columns.at(rank), column);
                    }
                }
            } else if i == p.entries {
                s.store(p.vectors.at(s.load_readonly(p.ranks.at(i))), [crate::NO_COLUMN, i]);
            }
        }
    }
}

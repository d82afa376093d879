//! Rows put into windows of eight slots: lengths, and the slot of each row.

use core::num::NonZeroU64;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::{THREADS, WINDOW_ROWS, item};
use crate::NO_ROW;
use crate::kernel::Kernel;
use crate::variant::Variant;

/// Arguments of [`RowLengths`].
///
/// # Obligations
/// - `count ≤` [`MOST_ITEMS`](super::MOST_ITEMS); `lengths` has `count` elements, and `rows` unless it is null;
/// - each row is [`NO_ROW`] or has offsets: `row_offsets` ascend.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct RowLengthsParams {
    /// The rows; null for rows `0..count`.
    pub rows: GlobalPtr<u32>,
    /// Offsets of all rows of the matrix.
    pub row_offsets: GlobalPtr<u32>,
    /// Entries of each, 0 for [`NO_ROW`].
    pub lengths: GlobalPtr<u32>,
    /// Number of rows, those of [`NO_ROW`] included.
    pub count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// `lengths[i] = row_offsets[rows[i] + 1] − row_offsets[rows[i]]`, a thread for each.
pub struct RowLengths;

impl Kernel for RowLengths {
    type Params = RowLengthsParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::RowLengths;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &RowLengthsParams) {
        let i = item(s);
        // SAFETY: the obligations of the params; `i < count` where it is used.
        unsafe {
            if i < p.count {
                let row = if p.rows == GlobalPtr::NULL { i } else { s.load_readonly(p.rows.at(i)) };
                let length = if row == NO_ROW {
                    0
                } else {
                    let begin = s.load_readonly(p.row_offsets.at(row));
                    s.load_readonly(p.row_offsets.at(row + 1)) - begin
                };
                s.store(p.lengths.at(i), length);
            }
        }
    }
}

/// Arguments of [`PlaceRows`].
///
/// # Obligations
/// - `count ≤` [`MOST_ITEMS`](super::MOST_ITEMS); `rows`: as for [`RowLengthsParams`], each once;
/// - `ranks[i]`, for `i ≤ count`, is the number of rows before `i` that are to have a place among the rows with
///   entries;
/// - with `f` of these and `e` others of a matrix, `full = ⌈f / 8⌉` and `empty = ⌈e / 8⌉`; `window_rows` has
///   `8·(full + empty)` elements.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct PlaceRowsParams {
    /// The rows, in the order of the plan; null for rows `0..count`.
    pub rows: GlobalPtr<u32>,
    /// How many rows before each have entries.
    pub ranks: GlobalPtr<u32>,
    /// Row in each slot.
    pub window_rows: GlobalPtr<u32>,
    /// Number of rows, each with a rank.
    pub count: u32,
    /// Windows of rows with entries.
    pub full: u32,
    /// Windows of rows without.
    pub empty: u32,
    /// [`FULL`](Self::FULL), [`EMPTY`](Self::EMPTY) or both: the rows to place.
    pub kinds: u32,
}

impl PlaceRowsParams {
    /// In [`kinds`](Self::kinds): rows with entries.
    pub const FULL: u32 = 1;
    /// In [`kinds`](Self::kinds): rows without.
    pub const EMPTY: u32 = 2;
    /// Threads beyond the rows: one for each slot that the last window of either kind may have too many.
    pub const PADS: u32 = 2 * WINDOW_ROWS;

    /// Windows of a kind. By arithmetic: a choice between two words of the params would be one between their addresses,
    /// on the stack.
    #[inline(always)]
    fn windows(&self, is_full: bool) -> u32 {
        self.empty.wrapping_add(u32::from(is_full).wrapping_mul(self.full.wrapping_sub(self.empty)))
    }

    /// Slot of the `number`-th row of a kind. Of `W` windows, window `w` is one of rows without entries if
    /// `⌊(w + 1)·e / W⌋ > ⌊w·e / W⌋` (Bresenham's line): so the `g`-th of these is the least `w` with
    /// `(w + 1)·e ≥ (g + 1)·W`, and the `g`-th of the others the greatest with `w·f ≤ g·W`, for `e + f = W` windows.
    #[inline(always)]
    fn slot(&self, is_full: bool, number: u32) -> u32 {
        let windows = u64::from(self.full) + u64::from(self.empty);
        let group = u64::from(number / WINDOW_ROWS);
        let of_kind = u64::from(self.windows(is_full));
        // There is a row of the kind, so there is a window of it.
        let of_kind = NonZeroU64::new(of_kind).unwrap_or(NonZeroU64::MIN);
        let window = match is_full {
            true => group * windows / of_kind,
            false => ((group + 1) * windows + (of_kind.get() - 1)) / of_kind - 1,
        };
        window as u32 * WINDOW_ROWS + number % WINDOW_ROWS
    }
}

/// The slot of each row: rows with entries in their order, 8 to a window; those without, 8 to a window too, dealt out
/// evenly among these. A thread for each row, and [`PADS`](PlaceRowsParams::PADS) more for slots without a row.
pub struct PlaceRows;

impl Kernel for PlaceRows {
    type Params = PlaceRowsParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::PlaceRows;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &PlaceRowsParams) {
        let i = item(s);
        // SAFETY: the obligations of the params; every slot is one row's or one pad's.
        unsafe {
            let (row, is_full, number) = if i < p.count {
                let row = if p.rows == GlobalPtr::NULL { i } else { s.load_readonly(p.rows.at(i)) };
                let rank = s.load_readonly(p.ranks.at(i));
                let is_full = s.load_readonly(p.ranks.at(i + 1)) > rank;
                (row, is_full, if is_full { rank } else { i - rank })
            } else {
                let pad = i - p.count;
                let full_rows = s.load_readonly(p.ranks.at(p.count));
                let is_full = pad < WINDOW_ROWS;
                let rows = if is_full { full_rows } else { p.count - full_rows };
                (NO_ROW, is_full, rows + pad % WINDOW_ROWS)
            };
            let kind = if is_full { PlaceRowsParams::FULL } else { PlaceRowsParams::EMPTY };
            let exists = i < p.count + PlaceRowsParams::PADS && number / WINDOW_ROWS < p.windows(is_full);
            if exists && p.kinds & kind != 0 {
                s.store(p.window_rows.at(p.slot(is_full, number)), row);
            }
        }
    }
}

/// Arguments of [`PlaceAllRows`].
///
/// # Obligations
/// - `row_offsets` has `rows + 1` elements; `slots` is `rows` or more, at most [`MOST_ITEMS`](super::MOST_ITEMS);
/// - `window_rows` has `slots` elements, `slot_begins` one more.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct PlaceAllRowsParams {
    /// Offsets of all rows of the matrix.
    pub row_offsets: GlobalPtr<u32>,
    /// Row in each slot.
    pub window_rows: GlobalPtr<u32>,
    /// Entries of the slots before each.
    pub slot_begins: GlobalPtr<u32>,
    /// Rows of the matrix.
    pub rows: u32,
    /// Number of slots, whole windows of them.
    pub slots: u32,
}

/// All rows in their own order: slots are rows, and begin where these do. Where all rows have entries, that is what
/// [`PlaceRows`] and a scan of [`RowLengths`] make of them. A thread for each slot and the end.
pub struct PlaceAllRows;

impl Kernel for PlaceAllRows {
    type Params = PlaceAllRowsParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::PlaceAllRows;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &PlaceAllRowsParams) {
        let slot = item(s);
        // SAFETY: the obligations of the params; each element is one thread's.
        unsafe {
            if slot <= p.slots {
                let row = if slot < p.rows { slot } else { p.rows };
                s.store(p.slot_begins.at(slot), s.load_readonly(p.row_offsets.at(row)));
            }
            if slot < p.slots {
                s.store(p.window_rows.at(slot), if slot < p.rows { slot } else { NO_ROW });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_without_entries_are_dealt_out_as_bresenham_draws_a_line() {
        for (full, empty) in (0..20).flat_map(|full| (0..20).map(move |empty| (full, empty))) {
            let params = PlaceRowsParams { full, empty, ..PlaceRowsParams::zeroed() };
            let (windows, mut groups) = (full + empty, [0, 0]);
            for window in 0..windows {
                let is_full = (window + 1) * empty / windows == window * empty / windows;
                let group = &mut groups[usize::from(is_full)];
                assert_eq!(params.slot(is_full, 8 * *group + 5), 8 * window + 5, "{full} and {empty}");
                *group += 1;
            }
            assert_eq!(groups, [empty, full]);
        }
    }
}

//! What is left of a transposition when the entries are sorted by column: rows, values and offsets.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::THREADS;
use super::read::index;
use crate::kernel::Kernel;
use crate::variant::Variant;

/// Successive entries of a thread of [`ExpandRows`].
const RUN: u32 = 8;
/// Entries, and columns, of a thread of [`TransposeEntries`], a block's threads side by side.
const EACH: u32 = 4;

/// Arguments of [`ExpandRows`].
///
/// # Obligations
/// - `offsets` has `rows + 1` elements, of 8 bytes if `wide_offsets` is not 0 and of 4 otherwise; any content, but
///   there is a row if there are entries;
/// - `labels` has `rows` elements, or is null;
/// - `out` has `entries` elements, which nothing overlaps; both counts are at most
///   [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS).
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ExpandRowsParams {
    /// First entry of each row, and the end.
    pub offsets: GlobalPtr<u32>,
    /// What each row is called; null: its number.
    pub labels: GlobalPtr<u32>,
    /// Row of each entry.
    pub out: GlobalPtr<u32>,
    /// Rows of the matrix.
    pub rows: u32,
    /// Entries of the matrix.
    pub entries: u32,
    /// Whether offsets have 8 bytes.
    pub wide_offsets: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl ExpandRowsParams {
    /// Offset `row`, which is at most `rows`.
    #[inline(always)]
    unsafe fn offset<S: Simt>(&self, s: &S, row: u32) -> u64 {
        // SAFETY: the obligations of the params.
        unsafe { index(s, self.offsets, row, self.wide_offsets != 0) }
    }

    /// The last row from `first` on that begins at or before an entry; `first` if none does.
    #[inline(always)]
    unsafe fn row_of<S: Simt>(&self, s: &S, first: u32, entry: u32) -> u32 {
        let (mut low, mut high) = (first, self.rows);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            // SAFETY: `middle < rows`.
            match unsafe { self.offset(s, middle) } <= u64::from(entry) {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }
}

/// The row of every entry, or what it is called: a thread looks for that of the first of eight, and goes on from
/// there, to the next row where that has the next entry, else by another search.
pub struct ExpandRows;

impl ExpandRows {
    /// Entries of a block.
    pub const PER_BLOCK: u32 = THREADS * RUN;
}

impl Kernel for ExpandRows {
    type Params = ExpandRowsParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::ExpandRows;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = Self::PER_BLOCK;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ExpandRowsParams) {
        // 1. Locate.
        let first = s.block_idx() * Self::PER_BLOCK + s.thread_idx() * RUN;
        if first >= p.entries {
            return; // there is no collective
        }
        let end = if p.entries - first < RUN { p.entries } else { first + RUN };
        // SAFETY: the obligations of the params; rows that are looked at are below `rows`, and the entries are the
        // thread's.
        unsafe {
            // 2. to 5. Row after row.
            let mut row = p.row_of(s, 0, first);
            let mut row_end = p.offset(s, row + 1);
            let mut entry = first;
            while entry < end {
                if u64::from(entry) >= row_end && row + 1 < p.rows {
                    row += 1;
                    row_end = p.offset(s, row + 1);
                    if u64::from(entry) >= row_end {
                        row = p.row_of(s, row, entry);
                        row_end = p.offset(s, row + 1);
                    }
                }
                let is_number = p.labels == GlobalPtr::NULL;
                s.store(p.out.at(entry), if is_number { row } else { s.load_readonly(p.labels.at(row)) });
                entry += 1;
            }
        }
    }
}

/// Arguments of [`TransposeEntries`].
///
/// # Obligations
/// - `order` has `entries` elements below their number, `rows` and `values` have `entries`, values of `value_bytes`
///   bytes, 2, 4 or 8;
/// - `columns` has `entries` elements in ascending order; those that are not below `cols` are in no column;
/// - `out_offsets` has `cols + 1` elements, `out_rows` and `out_values` have `entries`; null where they are not wanted,
///   and what they are made of is then not read; nothing overlaps them;
/// - `entries` and `cols` are at most 2³² less two blocks ([`PER_BLOCK`]).
///
/// [`PER_BLOCK`]: TransposeEntries::PER_BLOCK
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct TransposeEntriesParams {
    /// Which entry comes at each place.
    pub order: GlobalPtr<u32>,
    /// Column of each, in that order.
    pub columns: GlobalPtr<u32>,
    /// Row of each entry of the matrix, in its own order.
    pub rows: GlobalPtr<u32>,
    /// Value of each, likewise.
    pub values: GlobalPtr<u32>,
    /// Where each column begins, and the end.
    pub out_offsets: GlobalPtr<u64>,
    /// Row of each entry, in the new order.
    pub out_rows: GlobalPtr<u32>,
    /// Value of each, likewise.
    pub out_values: GlobalPtr<u32>,
    /// Entries of the matrix.
    pub entries: u32,
    /// Columns of the matrix.
    pub cols: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Rows and values in the order of columns, and where each column begins: threads take entries and columns alike.
pub struct TransposeEntries;

impl TransposeEntries {
    /// Entries, and columns, of a block.
    pub const PER_BLOCK: u32 = THREADS * EACH;
}

impl Kernel for TransposeEntries {
    type Params = TransposeEntriesParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::TransposeEntries;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = Self::PER_BLOCK;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &TransposeEntriesParams) {
        // 1. Locate.
        let first = s.block_idx() * Self::PER_BLOCK + s.thread_idx();
        let mut i = 0;
        // SAFETY: the obligations of the params; each entry and each column is one thread's.
        unsafe {
            // 2. to 5. Entries and columns, one after the other.
            while i < EACH {
                let at = first + i * THREADS;
                if at < p.entries {
                    bring(s, p, at);
                }
                if at <= p.cols && p.out_offsets != GlobalPtr::NULL {
                    s.store(p.out_offsets.at(at), u64::from(begin_of(s, p, at)));
                }
                i += 1;
            }
        }
    }
}

/// Brings row and value of an entry to a place.
#[inline(always)]
unsafe fn bring<S: Simt>(s: &S, p: &TransposeEntriesParams, place: u32) {
    // SAFETY: the obligations of the params; `place < entries`.
    unsafe {
        let entry = s.load_readonly(p.order.at(place));
        if p.out_rows != GlobalPtr::NULL {
            s.store(p.out_rows.at(place), s.load_readonly(p.rows.at(entry)));
        }
        if p.out_values != GlobalPtr::NULL {
            copy_value(s, p.value_bytes, (p.values, entry), (p.out_values, place));
        }
    }
}

/// Copies the value of an entry, of 2, 4 or 8 bytes, to a place.
///
/// # Safety
/// Both arrays have such an element, of which nothing writes the first in this launch.
#[inline(always)]
pub(super) unsafe fn copy_value<S: Simt>(
    s: &S,
    bytes: u32,
    (from, entry): (GlobalPtr<u32>, u32),
    (to, place): (GlobalPtr<u32>, u32),
) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            2 => {
                let value = s.load_readonly(from.cast::<u16>().at(entry));
                s.store(to.cast::<u16>().at(place), value);
            }
            4 => s.store(to.at(place), s.load_readonly(from.at(entry))),
            _ => {
                let value = s.load_readonly(from.cast::<u64>().at(entry));
                s.store(to.cast::<u64>().at(place), value);
            }
        }
    }
}

/// The first place whose column is not below `column`.
#[inline(always)]
unsafe fn begin_of<S: Simt>(s: &S, p: &TransposeEntriesParams, column: u32) -> u32 {
    let (mut low, mut high) = (0, p.entries);
    while low < high {
        let middle = low + (high - low) / 2;
        // SAFETY: `middle < entries`.
        match unsafe { s.load_readonly(p.columns.at(middle)) } < column {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

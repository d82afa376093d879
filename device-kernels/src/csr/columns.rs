//! How many distinct columns some rows have.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::THREADS;
use super::read::{ReadCsrParams, index};
use crate::kernel::Kernel;
use crate::variant::Variant;

/// Arguments of [`MarkColumns`].
///
/// # Obligations
/// - `columns` has `entries` elements, `row_offsets` more than `end_row`, with `first_row ≤ end_row`, of 8 bytes where
///   `wide_indices` says so, as for [`ReadCsr`](super::ReadCsr), of 4 otherwise; any content;
/// - `marks` was zeroed and has `cols` elements; nothing overlaps `marks` and `count`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct MarkColumnsParams {
    /// First entry of each row, and the end.
    pub row_offsets: GlobalPtr<u32>,
    /// Column of each entry.
    pub columns: GlobalPtr<u32>,
    /// How many entries of the rows each column has.
    pub marks: GlobalPtr<u32>,
    /// What the number of columns that have one is added to.
    pub count: GlobalPtr<u32>,
    /// Entries of the matrix.
    pub entries: u32,
    /// The first row that is looked at.
    pub first_row: u32,
    /// The row behind the last that is looked at.
    pub end_row: u32,
    /// Columns of the matrix.
    pub cols: u32,
    /// Which indices have 8 bytes.
    pub wide_indices: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Counts the distinct columns of successive rows: a thread for each entry of the matrix.
pub struct MarkColumns;

impl Kernel for MarkColumns {
    type Params = MarkColumnsParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::MarkColumns;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &MarkColumnsParams) {
        let entry = s.block_idx() * THREADS + s.thread_idx();
        // SAFETY: the obligations of the params; marks and count are added to atomically.
        unsafe {
            let mut is_first = false;
            let offset =
                |row| index(s, p.row_offsets, row, p.wide_indices & ReadCsrParams::WIDE_OFFSETS != 0);
            let (begin, end) = (offset(p.first_row), offset(p.end_row));
            if entry < p.entries && (begin..end).contains(&u64::from(entry)) {
                let wide = p.wide_indices & ReadCsrParams::WIDE_COLUMNS != 0;
                let column = index(s, p.columns, entry, wide);
                is_first = column < u64::from(p.cols) && s.atomic_add_u32(p.marks.at(column as u32), 1) == 0;
            }
            let firsts = s.ballot(is_first).count_ones();
            if s.lane() == 0 && firsts > 0 {
                s.atomic_add_u32(p.count, firsts);
            }
        }
    }
}

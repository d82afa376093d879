//! How elements of `B` come: two rows of eight columns, which become words of two.

use windrow_simt::Simt;

use crate::spmm::dense::Dense;
use crate::unroll::each;

/// How `B` lies in memory and is read.
pub trait Layout {
    /// Whether columns are contiguous.
    const COLUMN_MAJOR: bool;
    /// Whether eight elements of a row are read at once.
    const VECTORS: bool;
    /// Eight columns of two rows, as they were read.
    type Raw: Copy;

    /// Columns `column..column + 8` of two rows; zeros for rows that are not there, and beyond the width for all but
    /// vectors.
    ///
    /// # Safety
    /// The rows exist; `column` is a multiple of 8.
    unsafe fn fetch<S: Simt>(s: &S, dense: &Dense, rows: [Option<u32>; 2], column: u32) -> Self::Raw;

    /// Column `i` of both, the first row's in the low half.
    fn word<S: Simt>(s: &S, raw: &Self::Raw, i: usize) -> u32;
}

/// Rows of `B` are contiguous and aligned to 16 bytes.
pub struct RowMajor;

/// Rows of `B` are contiguous.
pub struct RowMajorElements;

/// Columns of `B` are contiguous, as in the paper.
pub struct ColumnMajor;

impl Layout for RowMajor {
    const COLUMN_MAJOR: bool = false;
    const VECTORS: bool = true;
    type Raw = [[u32; 4]; 2];

    #[inline(always)]
    unsafe fn fetch<S: Simt>(s: &S, dense: &Dense, rows: [Option<u32>; 2], column: u32) -> Self::Raw {
        rows.map(|row| match row {
            Some(row) if column < dense.n() => {
                let at = u64::from(row) * u64::from(dense.ldb) + u64::from(column);
                // SAFETY: the row exists and is readable up to its leading dimension, a multiple of 8.
                unsafe { s.load_readonly(dense.b.cast::<u16>().at_wide(at).cast::<[u32; 4]>()) }
            }
            _ => [0; 4],
        })
    }

    #[inline(always)]
    fn word<S: Simt>(s: &S, [x, y]: &Self::Raw, i: usize) -> u32 {
        let halves = if i.is_multiple_of(2) { 0x5410 } else { 0x7632 };
        s.permute_bytes(x[i / 2], y[i / 2], halves)
    }
}

impl Layout for RowMajorElements {
    const COLUMN_MAJOR: bool = false;
    const VECTORS: bool = false;
    type Raw = [[u16; 8]; 2];

    #[inline(always)]
    unsafe fn fetch<S: Simt>(s: &S, dense: &Dense, rows: [Option<u32>; 2], column: u32) -> Self::Raw {
        // SAFETY: the caller's rows exist; the strides are those of a row-major `B`.
        unsafe { elements(s, dense, [u64::from(dense.ldb), 1], rows, column) }
    }

    #[inline(always)]
    fn word<S: Simt>(_: &S, [x, y]: &Self::Raw, i: usize) -> u32 {
        u32::from(x[i]) | u32::from(y[i]) << 16
    }
}

impl Layout for ColumnMajor {
    const COLUMN_MAJOR: bool = true;
    const VECTORS: bool = false;
    type Raw = [[u16; 8]; 2];

    #[inline(always)]
    unsafe fn fetch<S: Simt>(s: &S, dense: &Dense, rows: [Option<u32>; 2], column: u32) -> Self::Raw {
        // SAFETY: the caller's rows exist; the strides are those of a column-major `B`.
        unsafe { elements(s, dense, [1, u64::from(dense.ldb)], rows, column) }
    }

    #[inline(always)]
    fn word<S: Simt>(s: &S, raw: &Self::Raw, i: usize) -> u32 {
        RowMajorElements::word(s, raw, i)
    }
}

/// [`Layout::fetch`], element by element, with so many elements from row to row and from column to column.
#[inline(always)]
unsafe fn elements<S: Simt>(
    s: &S,
    dense: &Dense,
    strides: [u64; 2],
    rows: [Option<u32>; 2],
    column: u32,
) -> [[u16; 8]; 2] {
    rows.map(|row| {
        let mut elements = [0; 8];
        if let Some(row) = row {
            let from = u64::from(row) * strides[0] + u64::from(column) * strides[1];
            let from = dense.b.cast::<u16>().at_wide(from);
            each::<8>(|i| {
                if column + (i as u32) < dense.n() {
                    // SAFETY: the row exists, the column is below the width.
                    elements[i] = unsafe { s.load_readonly(from.at_wide(i as u64 * strides[1])) };
                }
            });
        }
        elements
    })
}

//! Where the entries of a matrix are, without their values.

use std::ops::Range;
use std::sync::Arc;

use super::build;
use crate::FormatError;
use crate::memory::{ByteSizes, bytes_of, dimension, index};

/// Where a sparse matrix has entries: the indices of a [`Csr`](crate::Csr), shared by every matrix with entries in the
/// same places.
///
/// A clone shares the arrays and costs one count, so other values on the same pattern copy no index: an epoch's new
/// weights, the same matrix in f16, the result of a sampled product.
///
/// Invariants, with `m = rows`, `k = cols`, `nnz = |col_indices|`:
/// - `m ≤ 2³² − 1`, `k ≤ 2³² − 1`
/// - `|row_offsets| = m + 1`, `row_offsets[0] = 0`, `row_offsets[m] = nnz`,
///   `∀ r < m: row_offsets[r] ≤ row_offsets[r + 1]`
/// - `∀ e < nnz: col_indices[e] < k`
/// - columns strictly ascend in each row, so there are no duplicates:
///   `∀ r, ∀ e ∈ [row_offsets[r], row_offsets[r + 1] − 1): col_indices[e] < col_indices[e + 1]`
/// - nobody changes the arrays while they are shared
///
/// Two patterns are equal if sizes and arrays are, shared or not; if they are shared, that costs nothing.
///
/// # Examples
/// ```
/// use windrow_formats::{Csr, Pattern};
///
/// let pattern = Pattern::try_new(2, 4, vec![0, 2, 3], vec![0, 2, 1])?;
/// let first = Csr::from_pattern(pattern.clone(), vec![5.0f32, 3.0, 7.0])?;
/// let second = first.with_values(vec![0.5f64, 0.25, 0.125])?;
/// assert!(second.pattern().is_shared_with(&pattern));
/// assert_eq!(second.col_indices().as_ptr(), pattern.col_indices().as_ptr());
/// assert_eq!(pattern.row(0), [0, 2]);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pattern {
    rows: u32,
    cols: u32,
    arrays: Arc<Arrays>,
}

/// What is shared. The vectors are kept as they came, so that the last holder can have them back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Arrays {
    row_offsets: Vec<u64>,
    col_indices: Vec<u32>,
}

impl Pattern {
    /// The pattern of a `rows × cols` matrix whose row `r` has entries in the columns
    /// `col_indices[row_offsets[r] .. row_offsets[r + 1]]`.
    ///
    /// Columns must ascend in each row: to sort them here would part them from their values.
    /// [`Csr::try_from_parts`](crate::Csr::try_from_parts) takes both, and rows in any order.
    ///
    /// # Cost
    /// Two parallel passes over the arrays, which are kept, not copied.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] if `rows` or `cols` exceeds 2³² − 1;
    /// - [`FormatError::LengthMismatch`] unless there are `rows + 1` offsets;
    /// - [`FormatError::FirstOffset`], [`FormatError::OffsetsDecrease`], [`FormatError::LastOffset`] if the
    ///   offsets do not rise from 0 to the number of column indices;
    /// - [`FormatError::ColumnOutOfRange`] for the first column index that is not below `cols`;
    /// - [`FormatError::ColumnsNotAscending`] for the first that is not above the one before it in its row.
    pub fn try_new(
        rows: usize,
        cols: usize,
        row_offsets: Vec<u64>,
        col_indices: Vec<u32>,
    ) -> Result<Self, FormatError> {
        let (rows, cols) = (dimension(rows, "rows")?, dimension(cols, "columns")?);
        build::check_pattern((rows, cols), &row_offsets, &col_indices)?;
        Ok(Self::of_checked((rows, cols), row_offsets, col_indices))
    }

    /// Shares arrays that satisfy the invariants.
    pub(super) fn of_checked((rows, cols): (u32, u32), row_offsets: Vec<u64>, col_indices: Vec<u32>) -> Self {
        debug_assert_eq!(row_offsets.len(), rows as usize + 1);
        Self { rows, cols, arrays: Arc::new(Arrays { row_offsets, col_indices }) }
    }

    /// Number of rows `m`.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Number of columns `k`.
    pub fn cols(&self) -> usize {
        self.cols as usize
    }

    /// Number of entries, stored zeros included.
    pub fn nnz(&self) -> usize {
        self.arrays.col_indices.len()
    }

    /// `m + 1` offsets: row `r` has entries `row_offsets[r] .. row_offsets[r + 1]`.
    pub fn row_offsets(&self) -> &[u64] {
        &self.arrays.row_offsets
    }

    /// Column of each entry, ascending in each row.
    pub fn col_indices(&self) -> &[u32] {
        &self.arrays.col_indices
    }

    /// Positions of the entries of row `r`.
    ///
    /// # Panics
    /// If `r` is not below [`rows`](Self::rows), like an index into a slice.
    pub fn row_range(&self, r: usize) -> Range<usize> {
        let offsets = self.row_offsets();
        index(offsets[r])..index(offsets[r + 1])
    }

    /// Columns of row `r`.
    ///
    /// # Panics
    /// If `r` is not below [`rows`](Self::rows), like an index into a slice.
    pub fn row(&self, r: usize) -> &[u32] {
        &self.col_indices()[self.row_range(r)]
    }

    /// Whether both hold the same arrays, not only equal ones: one is a clone of the other.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.arrays, &other.arrays)
    }

    /// Size of each array in bytes, counted in full by each holder.
    pub fn byte_sizes(&self) -> ByteSizes {
        ByteSizes::new(vec![
            ("row_offsets", bytes_of(self.row_offsets())),
            ("col_indices", bytes_of(self.col_indices())),
        ])
    }

    /// The arrays: row offsets, column indices.
    ///
    /// # Cost
    /// Nothing for the last holder, who gets the arrays themselves; a copy of both while others share them.
    pub fn into_parts(self) -> (Vec<u64>, Vec<u32>) {
        let Arrays { row_offsets, col_indices } = Arc::unwrap_or_clone(self.arrays);
        (row_offsets, col_indices)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        (self.rows, self.cols) == (other.rows, other.cols)
            && (self.is_shared_with(other) || self.arrays == other.arrays)
    }
}

impl Eq for Pattern {}

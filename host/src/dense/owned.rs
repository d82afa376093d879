//! Dense matrices of their own, in host memory.

use windrow_formats::memory::try_zeroed;
use windrow_formats::{OutOfMemory, Value};

use super::{DenseMut, DenseRef, MatRef};
use crate::error::PlanError;

/// A row-major matrix in host memory without padding: what [`SpmmPlan::run_dense`](crate::SpmmPlan::run_dense) returns.
///
/// Invariant: `|data| = rows · cols`.
///
/// # Examples
/// ```
/// use windrow::{Dense, MatRef};
///
/// let turned = Dense::try_from(MatRef::col_major(&[1.0f32, 2.0, 3.0, 4.0], 2, 2)?)?;
/// assert_eq!(turned.row(0), [1.0, 3.0]);
/// assert!(Dense::try_new(vec![1.0f32; 3], 2, 2).is_err());
/// # Ok::<(), windrow::PlanError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Dense<T> {
    data: Vec<T>,
    rows: usize,
    cols: usize,
}

impl<T> Dense<T> {
    /// The `rows × cols` matrix of these elements, row after row.
    ///
    /// # Errors
    /// [`PlanError::PackedCount`] unless there are `rows · cols` elements.
    pub fn try_new(data: Vec<T>, rows: usize, cols: usize) -> Result<Self, PlanError> {
        if rows.checked_mul(cols) != Some(data.len()) {
            return Err(PlanError::PackedCount { operand: "the matrix", len: data.len(), rows, cols });
        }
        Ok(Self { data, rows, cols })
    }

    /// Rows of the matrix, each of [`cols`](Self::cols) elements.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the matrix: elements of a row.
    #[must_use]
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// The elements, row after row.
    #[must_use]
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// The elements, row after row.
    #[must_use]
    pub fn into_data(self) -> Vec<T> {
        self.data
    }

    /// The elements of row `r`.
    ///
    /// # Panics
    /// If `r` is not below [`rows`](Self::rows), like an index into a slice.
    #[must_use]
    pub fn row(&self, r: usize) -> &[T] {
        self.view().row(r)
    }

    /// The matrix as an operand.
    #[must_use]
    pub fn view(&self) -> DenseRef<'_, T> {
        DenseRef { data: &self.data, rows: self.rows, cols: self.cols, ld: self.cols }
    }

    /// The matrix as a result.
    #[must_use]
    pub fn view_mut(&mut self) -> DenseMut<'_, T> {
        DenseMut { data: &mut self.data, rows: self.rows, cols: self.cols, ld: self.cols }
    }
}

impl<T: Value> Dense<T> {
    /// A matrix of zeros.
    ///
    /// # Errors
    /// [`PlanError::Format`] if there is no memory for it.
    pub fn zeros(rows: usize, cols: usize) -> Result<Self, PlanError> {
        let what = "a dense matrix";
        let bytes = u64::MAX;
        let len = rows.checked_mul(cols).ok_or(OutOfMemory { what, bytes })?;
        Ok(Self { data: try_zeroed(len, what)?, rows, cols })
    }
}

/// A copy, in rows.
///
/// # Errors
/// [`PlanError::Format`] if there is no memory for it.
impl<T: Value> TryFrom<MatRef<'_, T>> for Dense<T> {
    type Error = PlanError;

    fn try_from(matrix: MatRef<'_, T>) -> Result<Self, PlanError> {
        let mut copy = Self::zeros(matrix.rows(), matrix.cols())?;
        matrix.copy_rows(0, copy.cols, &mut copy.data, |x| x);
        Ok(copy)
    }
}

impl<'a, T> From<&'a Dense<T>> for MatRef<'a, T> {
    fn from(matrix: &'a Dense<T>) -> Self {
        matrix.view().into()
    }
}

//! The arrays of a matrix with vector-wise N:M sparsity, to take apart and to put together.

use super::check::check;
use super::{NmPattern, VectorNm};
use crate::memory::dimension;
use crate::{FormatError, Value};

/// The arrays of a [`VectorNm`], unchecked: input of [`VectorNm::try_from_parts`].
#[derive(Debug, Clone, PartialEq)]
pub struct VectorNmParts<T> {
    /// `k`: rows of the matrix.
    pub rows: usize,
    /// `n`: columns of the matrix.
    pub cols: usize,
    /// `N`, `M` and `L`.
    pub pattern: NmPattern,
    /// What is kept, `w × n`.
    pub values: Vec<T>,
    /// Positions in the groups, `w × q`.
    pub indices: Vec<u8>,
}

impl<T: Value> VectorNm<T> {
    /// The matrix that `parts` describes, all invariants checked.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] if rows or columns exceed 2³² − 1;
    /// - [`FormatError::LengthMismatch`] unless there are `w·n` values and `w·q` indices;
    /// - [`FormatError::NmIndexRange`], [`FormatError::NmIndexOrder`] for the first index, in the order of the groups,
    ///   that names no row of its group, or does not come after the one before it.
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::{NmPattern, VectorNm, VectorNmParts};
    ///
    /// let pattern = NmPattern::new(2, 4, 2)?;
    /// let parts = |indices| VectorNmParts { rows: 4, cols: 2, pattern, values: vec![1.0f32; 4], indices };
    /// let weights = VectorNm::try_from_parts(parts(vec![1, 3]))?;
    /// assert_eq!(weights.to_dense()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
    /// let error = VectorNm::try_from_parts(parts(vec![1, 4])).unwrap_err().to_string();
    /// assert!(error.starts_with("kept row 1, vector 0: index 4 is not below the 4 rows of group 0"));
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn try_from_parts(parts: VectorNmParts<T>) -> Result<Self, FormatError> {
        let (k, n) = (dimension(parts.rows, "rows")?, dimension(parts.cols, "columns")?);
        check(&parts)?;
        Ok(Self { k, n, pattern: parts.pattern, values: parts.values, indices: parts.indices })
    }
}

impl VectorNm<()> {
    /// The places of weights whose values are elsewhere: `w × q` indices, all invariants checked.
    ///
    /// # Errors
    /// Those of [`try_from_parts`](VectorNm::try_from_parts).
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::{NmPattern, VectorNm};
    ///
    /// let places = VectorNm::try_from_indices(4, 2, NmPattern::new(2, 4, 2)?, vec![1, 3])?;
    /// assert_eq!(places.source_row(1, 0), 3);
    /// assert_eq!(places.with_values(vec![2.0f32; 4])?.to_dense()?[6..], [2.0, 2.0]);
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn try_from_indices(
        rows: usize,
        cols: usize,
        pattern: NmPattern,
        indices: Vec<u8>,
    ) -> Result<Self, FormatError> {
        let (k, n) = (dimension(rows, "rows")?, dimension(cols, "columns")?);
        let kept = pattern.kept_rows(rows).checked_mul(cols);
        let values =
            vec![(); kept.ok_or(FormatError::DimensionTooLarge { what: "kept values", found: cols })?];
        let parts = VectorNmParts { rows, cols, pattern, values, indices };
        check(&parts)?;
        Ok(Self { k, n, pattern, values: parts.values, indices: parts.indices })
    }
}

impl<T> VectorNm<T> {
    /// Takes the weights apart; [`try_from_parts`](Self::try_from_parts) puts them together again.
    pub fn into_parts(self) -> VectorNmParts<T> {
        let (rows, cols) = (self.rows(), self.cols());
        VectorNmParts { rows, cols, pattern: self.pattern, values: self.values, indices: self.indices }
    }
}

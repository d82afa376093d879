//! `nalgebra-sparse`: compressed rows, compressed columns, lists of coordinates.

use nalgebra_sparse::{CooMatrix, CscMatrix, CsrMatrix};

use super::{from_columns, from_rows, narrowed, refused, to_wide, wide};
use crate::memory::{try_collect, try_copy};
use crate::{Coo, Csr, FormatError, Value};

const LIBRARY: &str = "nalgebra-sparse";

/// A copy with indices of 32 bits.
///
/// # Errors
/// [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
impl<V: Value> TryFrom<&CsrMatrix<V>> for Csr<V> {
    type Error = FormatError;

    fn try_from(matrix: &CsrMatrix<V>) -> Result<Self, FormatError> {
        let (offsets, columns, values) = matrix.csr_data();
        let shape = (matrix.nrows(), matrix.ncols());
        from_rows(shape, offsets.iter().copied(), columns.iter().copied(), values)
    }
}

/// A copy with indices of 32 bits.
///
/// # Errors
/// [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
impl<V: Value> TryFrom<&CscMatrix<V>> for Csr<V> {
    type Error = FormatError;

    fn try_from(matrix: &CscMatrix<V>) -> Result<Self, FormatError> {
        let (offsets, rows, values) = matrix.csc_data();
        let shape = (matrix.nrows(), matrix.ncols());
        from_columns(shape, offsets.iter().copied(), rows.iter().copied(), values)
    }
}

/// Duplicates stay.
///
/// # Errors
/// [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
impl<V: Value> TryFrom<&CooMatrix<V>> for Coo<V> {
    type Error = FormatError;

    fn try_from(matrix: &CooMatrix<V>) -> Result<Self, FormatError> {
        let indices = |of: &[usize], what| try_collect(of.iter().map(|&index| narrowed(index)), what);
        let rows = indices(matrix.row_indices(), "row_indices")?;
        let cols = indices(matrix.col_indices(), "col_indices")?;
        Self::try_new(matrix.nrows(), matrix.ncols(), rows, cols, try_copy(matrix.values(), "values")?)
    }
}

/// A copy with indices of 64 bits.
///
/// # Errors
/// [`FormatError::OutOfMemory`].
impl<V: Value> TryFrom<&Csr<V>> for CsrMatrix<V> {
    type Error = FormatError;

    fn try_from(a: &Csr<V>) -> Result<Self, FormatError> {
        let (offsets, columns, values) = to_wide(a)?;
        Self::try_from_csr_data(a.rows(), a.cols(), offsets, columns, values)
            .map_err(|error| refused(LIBRARY, error))
    }
}

/// A copy with indices of 64 bits.
///
/// # Errors
/// [`FormatError::OutOfMemory`].
impl<V: Value> TryFrom<&Csr<V>> for CscMatrix<V> {
    type Error = FormatError;

    fn try_from(a: &Csr<V>) -> Result<Self, FormatError> {
        let (offsets, rows, values) = to_wide(&a.transpose()?)?;
        Self::try_from_csc_data(a.rows(), a.cols(), offsets, rows, values)
            .map_err(|error| refused(LIBRARY, error))
    }
}

/// A copy with indices of 64 bits.
///
/// # Errors
/// [`FormatError::OutOfMemory`].
impl<V: Value> TryFrom<&Coo<V>> for CooMatrix<V> {
    type Error = FormatError;

    fn try_from(list: &Coo<V>) -> Result<Self, FormatError> {
        let (rows, cols) =
            (wide(list.row_indices(), "row_indices")?, wide(list.col_indices(), "col_indices")?);
        let values = try_copy(list.values(), "values")?;
        Self::try_from_triplets(list.rows(), list.cols(), rows, cols, values)
            .map_err(|error| refused(LIBRARY, error))
    }
}

macro_rules! by_value {
    ($($from:ident => $to:ident),+) => {$(
        /// As of a reference to it.
        ///
        /// # Errors
        /// [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
        impl<V: Value> TryFrom<$from<V>> for $to<V> {
            type Error = FormatError;

            fn try_from(matrix: $from<V>) -> Result<Self, FormatError> {
                Self::try_from(&matrix)
            }
        }
    )+};
}
by_value!(CsrMatrix => Csr, CscMatrix => Csr, CooMatrix => Coo);

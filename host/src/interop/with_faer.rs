//! `faer`: dense matrices as operands and results. Sparse ones are converted in windrow-formats.

use faer::{Mat, MatRef};
use windrow_formats::Value;

use crate::dense::Dense;
use crate::error::PlanError;

/// A copy, in rows: faer's matrices are column-major, with memory between the columns that nobody has written.
///
/// # Errors
/// [`PlanError::Format`] if there is no memory for it.
impl<T: Value> TryFrom<MatRef<'_, T>> for Dense<T> {
    type Error = PlanError;

    fn try_from(matrix: MatRef<'_, T>) -> Result<Self, PlanError> {
        let cols = matrix.ncols();
        let mut copy = Self::zeros(matrix.nrows(), cols)?;
        let elements = copy.view_mut().into_data();
        for c in 0..cols {
            let places = elements.iter_mut().skip(c).step_by(cols);
            places.zip(matrix.col(c).iter()).for_each(|(to, from)| *to = *from);
        }
        Ok(copy)
    }
}

/// As of a view of it.
///
/// # Errors
/// [`PlanError::Format`] if there is no memory for it.
impl<T: Value> TryFrom<&Mat<T>> for Dense<T> {
    type Error = PlanError;

    fn try_from(matrix: &Mat<T>) -> Result<Self, PlanError> {
        Self::try_from(matrix.as_ref())
    }
}

/// A copy, in columns.
impl<T: Value> From<&Dense<T>> for Mat<T> {
    fn from(matrix: &Dense<T>) -> Self {
        let (cols, data) = (matrix.cols(), matrix.data());
        Self::from_fn(matrix.rows(), cols, |r, c| data[r * cols + c])
    }
}

/// A copy, in columns.
impl<T: Value> From<Dense<T>> for Mat<T> {
    fn from(matrix: Dense<T>) -> Self {
        Self::from(&matrix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (rows, cols) in [(0, 0), (0, 3), (3, 0), (1, 1), (5, 3), (3, 17)] {
            let mat = Mat::from_fn(rows, cols, |r, c| (10 * r + c) as f32);
            let dense = Dense::try_from(&mat).unwrap();
            assert_eq!((dense.rows(), dense.cols()), (rows, cols));
            assert!((0..rows).all(|r| (0..cols).all(|c| dense.row(r)[c] == mat[(r, c)])));
            assert_eq!(Mat::from(&dense), mat);
            assert_eq!(Mat::from(Dense::try_from(mat.transpose()).unwrap()), mat.transpose().to_owned());
        }
        // Backwards, too.
        let mat = Mat::from_fn(2, 2, |r, c| (10 * r + c) as f64);
        assert_eq!(Dense::try_from(mat.as_ref().reverse_rows()).unwrap().data(), [10.0, 11.0, 0.0, 1.0]);
    }
}

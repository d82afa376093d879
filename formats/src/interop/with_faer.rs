//! `faer`: sparse matrices by columns and by rows.

use faer::Index;
use faer::sparse::{
    SparseColMat, SparseColMatRef, SparseRowMat, SparseRowMatRef, SymbolicSparseColMat, SymbolicSparseRowMat,
};

use super::{Wide, from_columns, from_rows, to_wide};
use crate::memory::{try_with_room, try_zeroed};
use crate::{Csr, FormatError, OutOfMemory, Value};

/// What holds entries: rows, or columns.
struct Compressed<'a, I, V> {
    offsets: &'a [I],
    /// How many entries of each are used, if not all between two offsets.
    used: Option<&'a [I]>,
    indices: &'a [I],
    values: &'a [V],
}

impl<I: Index, V: Value> Compressed<'_, I, V> {
    /// Offsets, indices and values without what is not used.
    fn packed(&self) -> Result<Wide<V>, OutOfMemory> {
        let lanes = self.offsets.len().saturating_sub(1);
        let mut offsets = try_zeroed(lanes + 1, "row_offsets")?;
        let mut indices = try_with_room(self.indices.len(), "col_indices")?;
        let mut values = try_with_room(self.values.len(), "values")?;
        for lane in 0..lanes {
            let start = self.offsets[lane].zx();
            let end = self.used.map_or(self.offsets[lane + 1].zx(), |used| start + used[lane].zx());
            indices.extend(self.indices[start..end].iter().map(|index| index.zx()));
            values.extend_from_slice(&self.values[start..end]);
            offsets[lane + 1] = values.len();
        }
        Ok((offsets, indices, values))
    }
}

/// A copy with indices of 32 bits.
///
/// # Errors
/// [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
impl<I: Index, V: Value> TryFrom<SparseColMatRef<'_, I, V>> for Csr<V> {
    type Error = FormatError;

    fn try_from(matrix: SparseColMatRef<'_, I, V>) -> Result<Self, FormatError> {
        let (rows, cols, offsets, used, indices) = matrix.symbolic().parts();
        let columns = Compressed { offsets, used, indices, values: matrix.val() };
        let (offsets, indices, values) = columns.packed()?;
        from_columns((rows, cols), offsets.into_iter(), indices.into_iter(), &values)
    }
}

/// A copy with indices of 32 bits.
///
/// # Errors
/// [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
impl<I: Index, V: Value> TryFrom<SparseRowMatRef<'_, I, V>> for Csr<V> {
    type Error = FormatError;

    fn try_from(matrix: SparseRowMatRef<'_, I, V>) -> Result<Self, FormatError> {
        let (rows, cols, offsets, used, indices) = matrix.symbolic().parts();
        let compressed = Compressed { offsets, used, indices, values: matrix.val() };
        let (offsets, indices, values) = compressed.packed()?;
        from_rows((rows, cols), offsets.into_iter(), indices.into_iter(), &values)
    }
}

/// A copy with indices of 64 bits.
///
/// # Errors
/// [`FormatError::OutOfMemory`].
impl<V: Value> TryFrom<&Csr<V>> for SparseColMat<usize, V> {
    type Error = FormatError;

    fn try_from(a: &Csr<V>) -> Result<Self, FormatError> {
        let (offsets, rows, values) = to_wide(&a.transpose()?)?;
        Ok(Self::new(SymbolicSparseColMat::new_checked(a.rows(), a.cols(), offsets, None, rows), values))
    }
}

/// A copy with indices of 64 bits.
///
/// # Errors
/// [`FormatError::OutOfMemory`].
impl<V: Value> TryFrom<&Csr<V>> for SparseRowMat<usize, V> {
    type Error = FormatError;

    fn try_from(a: &Csr<V>) -> Result<Self, FormatError> {
        let (offsets, columns, values) = to_wide(a)?;
        Ok(Self::new(SymbolicSparseRowMat::new_checked(a.rows(), a.cols(), offsets, None, columns), values))
    }
}

macro_rules! owned {
    ($($matrix:ident),+) => {$(
        /// As of a view of it.
        ///
        /// # Errors
        /// [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
        impl<I: Index, V: Value> TryFrom<&$matrix<I, V>> for Csr<V> {
            type Error = FormatError;

            fn try_from(matrix: &$matrix<I, V>) -> Result<Self, FormatError> {
                Self::try_from(matrix.as_ref())
            }
        }

        /// As of a view of it.
        ///
        /// # Errors
        /// [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
        impl<I: Index, V: Value> TryFrom<$matrix<I, V>> for Csr<V> {
            type Error = FormatError;

            fn try_from(matrix: $matrix<I, V>) -> Result<Self, FormatError> {
                Self::try_from(matrix.as_ref())
            }
        }
    )+};
}
owned!(SparseColMat, SparseRowMat);

//! `sprs`: [`CsMatBase`] in either storage order, and lists of triplets.

use std::ops::Deref;

use sprs::{CsMat, CsMatBase, SpIndex, TriMatBase};

use super::{from_columns, from_rows, narrowed, refused, to_wide};
use crate::memory::{try_collect, try_copy};
use crate::{Coo, Csr, FormatError, Value};

/// A matrix of `sprs`, owned or a view, compressed by rows or by columns, with indices of any type.
///
/// # Errors
/// [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
impl<V: Value, I: SpIndex, Iptr: SpIndex, P, J, D> TryFrom<&CsMatBase<V, I, P, J, D, Iptr>> for Csr<V>
where
    P: Deref<Target = [Iptr]>,
    J: Deref<Target = [I]>,
    D: Deref<Target = [V]>,
{
    type Error = FormatError;

    fn try_from(matrix: &CsMatBase<V, I, P, J, D, Iptr>) -> Result<Self, FormatError> {
        // The offsets of a view of some rows do not begin at 0.
        let offsets = matrix.indptr();
        let first = offsets.raw_storage().first().map_or(0, |first| first.index());
        let offsets = offsets.raw_storage().iter().map(|offset| offset.index() - first);
        let indices = matrix.indices().iter().map(|index| index.index());
        match matrix.is_csr() {
            true => from_rows(matrix.shape(), offsets, indices, matrix.data()),
            false => from_columns(matrix.shape(), offsets, indices, matrix.data()),
        }
    }
}

/// A matrix of `sprs`, as of a reference to it.
///
/// # Errors
/// [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
impl<V: Value, I: SpIndex, Iptr: SpIndex, P, J, D> TryFrom<CsMatBase<V, I, P, J, D, Iptr>> for Csr<V>
where
    P: Deref<Target = [Iptr]>,
    J: Deref<Target = [I]>,
    D: Deref<Target = [V]>,
{
    type Error = FormatError;

    fn try_from(matrix: CsMatBase<V, I, P, J, D, Iptr>) -> Result<Self, FormatError> {
        Self::try_from(&matrix)
    }
}

/// A list of triplets of `sprs`; duplicates stay.
///
/// # Errors
/// [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
impl<V: Value, I: SpIndex, J, D> TryFrom<&TriMatBase<J, D>> for Coo<V>
where
    J: Deref<Target = [I]>,
    D: Deref<Target = [V]>,
{
    type Error = FormatError;

    fn try_from(list: &TriMatBase<J, D>) -> Result<Self, FormatError> {
        let indices = |of: &[I], what| try_collect(of.iter().map(|index| narrowed(index.index())), what);
        let rows = indices(list.row_inds(), "row_indices")?;
        let cols = indices(list.col_inds(), "col_indices")?;
        Self::try_new(list.rows(), list.cols(), rows, cols, try_copy(list.data(), "values")?)
    }
}

/// Compressed rows; [`CsMat::to_csc`] makes compressed columns of them.
///
/// # Errors
/// [`FormatError::OutOfMemory`].
impl<V: Value> TryFrom<&Csr<V>> for CsMat<V> {
    type Error = FormatError;

    fn try_from(a: &Csr<V>) -> Result<Self, FormatError> {
        let (offsets, columns, values) = to_wide(a)?;
        Self::try_new((a.rows(), a.cols()), offsets, columns, values)
            .map_err(|(.., error)| refused("sprs", error))
    }
}

//! Conversions from and to sparse matrices of other crates, each behind the feature that has the crate's name.
//!
//! All of them copy: indices here are 32 bits wide, rows are sorted and have no duplicates.

#[cfg(test)]
mod tests;
#[cfg(feature = "faer")]
mod with_faer;
#[cfg(feature = "nalgebra-sparse")]
mod with_nalgebra;
#[cfg(feature = "sprs")]
mod with_sprs;

use crate::memory::{try_collect, try_copy};
use crate::{Csr, FormatError, OutOfMemory, Value};

/// The matrix of `shape` in compressed rows whose offsets and columns are of another type.
fn from_rows<V: Value>(
    shape: (usize, usize),
    offsets: impl ExactSizeIterator<Item = usize>,
    columns: impl ExactSizeIterator<Item = usize>,
    values: &[V],
) -> Result<Csr<V>, FormatError> {
    let offsets = try_collect(offsets.map(|offset| offset as u64), "row_offsets")?;
    let columns = try_collect(columns.map(narrowed), "col_indices")?;
    Csr::try_from_parts(shape.0, shape.1, offsets, columns, try_copy(values, "values")?)
}

/// As [`from_rows`], of compressed columns.
fn from_columns<V: Value>(
    (rows, cols): (usize, usize),
    offsets: impl ExactSizeIterator<Item = usize>,
    rows_of_entries: impl ExactSizeIterator<Item = usize>,
    values: &[V],
) -> Result<Csr<V>, FormatError> {
    from_rows((cols, rows), offsets, rows_of_entries, values)?.transpose()
}

/// An index of 32 bits; one that has more is beyond every matrix, and so is what it becomes.
fn narrowed(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Offsets, indices and values in the widths of the other crates.
type Wide<V> = (Vec<usize>, Vec<usize>, Vec<V>);

fn to_wide<V: Value>(a: &Csr<V>) -> Result<Wide<V>, OutOfMemory> {
    Ok((
        try_collect(a.row_offsets().iter().map(|&offset| crate::memory::index(offset)), "row_offsets")?,
        wide(a.col_indices(), "col_indices")?,
        try_copy(a.values(), "values")?,
    ))
}

fn wide(indices: &[u32], what: &'static str) -> Result<Vec<usize>, OutOfMemory> {
    try_collect(indices.iter().map(|&index| index as usize), what)
}

/// For a valid matrix that the other crate does not take.
#[cfg(any(feature = "sprs", feature = "nalgebra-sparse"))]
fn refused(library: &'static str, detail: impl ToString) -> FormatError {
    FormatError::Refused { library, detail: detail.to_string() }
}

//! Reads the Matrix Market exchange format (Boisvert, Pozo, Remington, "The Matrix Market Exchange Formats:
//! Initial Design", NISTIR 5935, 1996).

mod array;
mod coordinate;
mod header;

use super::blocks::TextSource;
use super::report::{Layout, Symmetry};
use super::{Loaded, ReadError, ReadOptions};
use crate::Value;
use header::MatrixHeader;

pub(super) use header::BANNER;

/// Reads the matrix in `source`.
pub(super) fn read<V: Value>(
    mut source: TextSource<'_>,
    options: &ReadOptions<'_>,
) -> Result<Loaded<V>, ReadError> {
    let header = header::read(&mut source, options)?;
    match header.layout {
        Layout::Coordinate => coordinate::read(header, source, options),
        Layout::Array => array::read(header, source, options),
    }
}

/// Rows, columns and values of the dense matrix in `source`, column by column.
pub(super) fn read_dense(
    mut source: TextSource<'_>,
    options: &ReadOptions<'_>,
) -> Result<(usize, usize, Vec<Vec<f64>>), ReadError> {
    let header = dense_header(&mut source, options)?;
    let values = array::values(&header, source)?;
    Ok((header.rows as usize, header.cols as usize, values))
}

/// Rows and columns alone.
pub(super) fn dense_shape(
    mut source: TextSource<'_>,
    options: &ReadOptions<'_>,
) -> Result<(usize, usize), ReadError> {
    let header = dense_header(&mut source, options)?;
    Ok((header.rows as usize, header.cols as usize))
}

/// The header of an array that lists every value.
fn dense_header(source: &mut TextSource<'_>, options: &ReadOptions<'_>) -> Result<MatrixHeader, ReadError> {
    let header = header::read(source, options)?;
    let (what, remedy) = match (header.layout, header.symmetry) {
        (Layout::Array, Symmetry::General) => {
            options.limits.check_nnz("the size line", header.entries)?;
            return Ok(header);
        }
        (Layout::Array, _) => ("a triangle where a dense matrix is read", "write the array as general"),
        (Layout::Coordinate, _) => ("a sparse matrix where a dense one is read", "write it as an array"),
    };
    Err(ReadError::Unsupported { place: "the header".to_owned(), what: what.to_owned(), remedy })
}

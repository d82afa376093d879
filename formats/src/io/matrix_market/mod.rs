//! Reads the Matrix Market exchange format (Boisvert, Pozo, Remington, "The Matrix Market Exchange Formats:
//! Initial Design", NISTIR 5935, 1996).

mod array;
mod coordinate;
mod header;

use super::blocks::TextSource;
use super::report::Layout;
use super::{Loaded, ReadError, ReadOptions};
use crate::Value;

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

//! Reads NumPy's `.npz` archives: matrices of `scipy.sparse`, graphs of TC-GNN, and weights with N:M sparsity.
//!
//! Nothing is unpickled, and no size that an archive declares is trusted: members are read up to the limit,
//! whatever their headers say, and an array is as long as its bytes.

mod archive;
mod array;
mod scipy;
mod tc_gnn;
mod vector_nm;

use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::path::Path;

use super::source::read_all;
use super::{Format, Loaded, ReadError, ReadOptions, Stage};
use crate::{Value, ValueType, VectorNm};
use archive::Archive;

/// The format of an archive, from the names of its members.
pub(super) fn sniff(archive: impl Read + Seek) -> Result<Format, ReadError> {
    Archive::open(archive, u64::MAX)?.format()
}

/// Reads the matrix in `reader`; `format` if the caller asked for one.
pub(super) fn read<V: Value>(
    reader: Box<dyn Read + Send + '_>,
    options: &ReadOptions<'_>,
) -> Result<Loaded<V>, ReadError> {
    let bytes = read_all(reader, &options.limits)?;
    let mut archive = Archive::open(Cursor::new(bytes), options.limits.max_bytes)?;
    let format = match options.format {
        Some(format) => format,
        None => archive.format()?,
    };
    options.tell(Stage::Assembling, 0, None);
    let mut loaded = match format {
        Format::TcGnnNpz => tc_gnn::read(&mut archive, options)?,
        _ => scipy::read(&mut archive, options)?,
    };
    loaded.report.content_bytes = archive.bytes_read();
    Ok(loaded)
}

/// Reads the weights with N:M sparsity in `content`.
pub(super) fn read_vector_nm<V: Value>(
    content: Vec<u8>,
    options: &ReadOptions<'_>,
) -> Result<VectorNm<V>, ReadError> {
    let mut archive = Archive::open(Cursor::new(content), options.limits.max_bytes)?;
    vector_nm::read(&mut archive, options)
}

/// The type of the values of the weights in the archive at `path`.
pub(super) fn vector_nm_type(path: &Path, options: &ReadOptions<'_>) -> Result<ValueType, ReadError> {
    let content = read_all(File::open(path)?, &options.limits)?;
    let mut archive = Archive::open(Cursor::new(content), options.limits.max_bytes)?;
    Ok(archive.array("values")?.value_type().unwrap_or(ValueType::F32))
}

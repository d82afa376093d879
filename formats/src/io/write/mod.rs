//! Writers: a matrix to a file, in a format that the file's name tells or the caller names; orders of rows;
//! tensors.

mod dense;
mod folder;
mod header;
mod model;
mod npz;
mod permutation;
mod replacement;
mod text;
mod tns;
mod vector_nm;

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Format, Progress, ProgressFn, Stage, WriteError};
use crate::memory::try_with_room;
use crate::{Csr, OutOfMemory, Value};

pub use dense::{DenseFormat, write_dense, write_dense_to};
pub use folder::check_new_folder;
pub use model::{NmSink, Rewrite, write_model};
pub use npz::write_scipy_npz;
pub use permutation::{write_permutation, write_permutation_to};
pub use replacement::{Unfinished, check_target, remove_unfinished, replace_file};
pub use text::{write_edge_list, write_matrix_market, write_smtx};
pub use tns::{write_tns, write_tns_to};
pub use vector_nm::{
    NmFormat, NmIndices, write_tensors, write_vector_nm, write_vector_nm_npz, write_vector_nm_safetensors,
};

/// How a matrix is written: format, compression, and who is told about the progress.
#[derive(Clone, Copy, Default)]
pub struct WriteOptions<'a> {
    /// The format; `None` to take it from the file's name: `.mtx` or `.mm`, `.smtx`, `.npz` (SciPy), `.txt`,
    /// `.el` or `.edges` (edge list), each also with `.gz` behind it.
    pub format: Option<Format>,
    /// Whether to compress with gzip; `None` to do so if the file's name ends in `.gz`.
    pub gzip: Option<bool>,
    /// Told about the progress.
    pub progress: Option<ProgressFn<'a>>,
}

impl std::fmt::Debug for WriteOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteOptions")
            .field("format", &self.format)
            .field("gzip", &self.gzip)
            .field("progress", &self.progress.map(|_| "Fn(Progress)"))
            .finish()
    }
}

impl WriteOptions<'_> {
    /// The same options, format and compression as the name of the file tells unless they are set.
    ///
    /// # Errors
    /// [`WriteError::UnknownExtension`] if neither name nor options tell the format.
    pub fn for_name(&self, path: impl AsRef<Path>) -> Result<Self, WriteError> {
        let (format, gzip) = by_name(path.as_ref());
        let format = self.format.or(format).ok_or(WriteError::UnknownExtension)?;
        Ok(Self { format: Some(format), gzip: Some(self.gzip.unwrap_or(gzip)), ..*self })
    }
}

/// What was written, and what the format had no place for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteReport {
    /// The format that was asked for, or that the file's name told.
    pub format: Format,
    /// Whether the content was compressed with gzip.
    pub gzip: bool,
    /// How many entries were written.
    pub entries: u64,
    /// Values that are not 1 and were left out because the format holds none.
    pub values_dropped: u64,
}

/// Tells about entries written, as bytes of the matrix.
pub(super) struct Told<'a> {
    progress: Option<ProgressFn<'a>>,
    bytes_an_entry: u64,
    total: u64,
}

impl<'a> Told<'a> {
    fn new<V: Value>(csr: &Csr<V>, progress: Option<ProgressFn<'a>>) -> Self {
        let bytes_an_entry = 4 + size_of::<V>() as u64;
        Self { progress, bytes_an_entry, total: csr.nnz() as u64 * bytes_an_entry }
    }

    fn entries(&self, entries: usize) {
        if let Some(progress) = self.progress {
            let done_bytes = entries as u64 * self.bytes_an_entry;
            progress(Progress { stage: Stage::Writing, done_bytes, total_bytes: Some(self.total) });
        }
    }
}

/// Writes `csr` to the file at `path`, which is replaced if there is one.
///
/// What [`read_csr`](super::read_csr) makes of the file is the same matrix, bit by bit but for the payloads of
/// NaN in text; `.smtx` holds no values, so they come back as 1.
///
/// # Errors
/// [`WriteError::InFile`] around any of
/// - [`WriteError::UnknownExtension`] if neither name nor options tell the format;
/// - [`WriteError::NotRepresentable`] if the format cannot hold the matrix; nothing is written then;
/// - [`WriteError::Io`].
///
/// # Examples
/// ```
/// use windrow_formats::{Csr, io};
///
/// let path = std::env::temp_dir().join("windrow-write-csr-example.mtx.gz");
/// let a = Csr::<f64>::identity(3)?;
/// io::write_csr(&path, &a, &io::WriteOptions::default())?;
/// assert_eq!(io::read_csr::<f64>(&path)?, a);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_csr<V: Value>(
    path: impl AsRef<Path>,
    csr: &Csr<V>,
    options: &WriteOptions<'_>,
) -> Result<WriteReport, WriteError> {
    let path = path.as_ref();
    let options = options.for_name(path).map_err(|error| error.in_file(path))?;
    replacement::replace(path, |file| write_csr_to(file, csr, &options)).map_err(|error| error.in_file(path))
}

/// Writes `csr` to `writer`, in the format of `options`, which must name one; plain unless they ask for gzip.
///
/// # Errors
/// As [`write_csr`] has them, without the name of a file.
///
/// # Examples
/// ```
/// use windrow_formats::{Csr, io};
///
/// let mut text = Vec::new();
/// let options = io::WriteOptions { format: Some(io::Format::Smtx), ..Default::default() };
/// io::write_csr_to(&mut text, &Csr::<f32>::identity(2)?, &options)?;
/// assert_eq!(text, b"2, 2, 2\n0 1 2 \n0 1 \n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_csr_to<V: Value>(
    mut writer: impl Write + Send,
    csr: &Csr<V>,
    options: &WriteOptions<'_>,
) -> Result<WriteReport, WriteError> {
    let format = options.format.ok_or(WriteError::UnknownExtension)?;
    let gzip = options.gzip.unwrap_or(false);
    check(format, csr)?;
    let told = Told::new(csr, options.progress);
    compressed(&mut writer, gzip, |mut writer| write_format(format, &mut writer, csr, &told))?;
    let ones = |&&value: &&V| value == V::ONE;
    let values_dropped =
        if format == Format::Smtx { csr.nnz() - csr.values().iter().filter(ones).count() } else { 0 };
    Ok(WriteReport { format, gzip, entries: csr.nnz() as u64, values_dropped: values_dropped as u64 })
}

/// Makes the file at `path` of what `write` writes, whole or not at all.
fn create(
    path: &Path,
    gzip: bool,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    replacement::replace(path, |file| compressed(file, gzip, write))
}

/// Writes what `write` writes to `writer`, behind gzip if it is to be.
fn compressed(
    writer: &mut (dyn Write + Send),
    gzip: bool,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    if !gzip {
        return write(writer);
    }
    room_for_deflate()?;
    let mut encoder = GzEncoder::new(writer, Compression::default());
    write(&mut encoder)?;
    encoder.finish()?;
    Ok(())
}

/// Whether there is memory for the state of an encoder, about a third of a megabyte whatever is written. The crate that
/// deflates ends the process without it, and cannot be asked: if another thread takes it in between, it still does.
pub(super) fn room_for_deflate() -> Result<(), OutOfMemory> {
    /// Bytes of it, and some more.
    const DEFLATE_BYTES: usize = 1 << 20;
    try_with_room::<u8>(DEFLATE_BYTES, "the encoder of deflate").map(drop)
}

/// What the file's name says: the format, if it says one, and whether to compress.
fn by_name(path: &Path) -> (Option<Format>, bool) {
    let extension = |path: &Path| path.extension().map(|text| text.to_string_lossy().to_ascii_lowercase());
    let gzip = extension(path).as_deref() == Some("gz");
    let stem = if gzip { path.with_extension("") } else { path.to_owned() };
    let format = match extension(&stem).as_deref() {
        Some("mtx" | "mm") => Some(Format::MatrixMarket),
        Some("smtx") => Some(Format::Smtx),
        Some("npz") => Some(Format::ScipyNpz),
        Some("txt" | "el" | "edges") => Some(Format::EdgeList),
        _ => None,
    };
    (format, gzip)
}

fn check<V: Value>(format: Format, csr: &Csr<V>) -> Result<(), WriteError> {
    match format {
        Format::EdgeList => text::check_edge_list(csr),
        Format::TcGnnNpz | Format::Safetensors => Err(WriteError::NotRepresentable {
            format,
            why: "there is no writer for it".to_owned(),
            remedy: "write a scipy.sparse .npz or Matrix Market",
        }),
        _ => Ok(()),
    }
}

fn write_format<V: Value>(
    format: Format,
    writer: &mut (impl Write + Send),
    csr: &Csr<V>,
    told: &Told<'_>,
) -> Result<(), WriteError> {
    match format {
        Format::MatrixMarket => text::matrix_market(writer, csr, told),
        Format::Smtx => text::smtx(writer, csr, told),
        Format::EdgeList => text::edge_list(writer, csr, told),
        Format::ScipyNpz | Format::TcGnnNpz | Format::Safetensors => npz::scipy(writer, csr, told),
    }
}

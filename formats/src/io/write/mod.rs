//! Writers: a matrix to a file, in a format that the file's name tells or the caller names; orders of rows;
//! tensors.

mod npz;
mod permutation;
mod text;
mod tns;
mod vector_nm;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Format, Progress, ProgressFn, Stage, WriteError};
use crate::{Csr, Value};

pub use npz::write_scipy_npz;
pub use permutation::write_permutation;
pub use text::{write_edge_list, write_matrix_market, write_smtx};
pub use tns::{write_tns, write_tns_to};
pub use vector_nm::{
    NmIndices, write_tensors, write_vector_nm, write_vector_nm_npz, write_vector_nm_safetensors,
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
    write_file(path, csr, options).map_err(|error| error.in_file(path))
}

fn write_file<V: Value>(
    path: &Path,
    csr: &Csr<V>,
    options: &WriteOptions<'_>,
) -> Result<WriteReport, WriteError> {
    let (named_format, named_gzip) = by_name(path);
    let format = options.format.or(named_format).ok_or(WriteError::UnknownExtension)?;
    let gzip = options.gzip.unwrap_or(named_gzip);
    check(format, csr)?;
    let told = Told::new(csr, options.progress);
    create(path, gzip, |mut writer| write_format(format, &mut writer, csr, &told))?;
    let ones = |&&value: &&V| value == V::ONE;
    let values_dropped =
        if format == Format::Smtx { csr.nnz() - csr.values().iter().filter(ones).count() } else { 0 };
    Ok(WriteReport { format, gzip, entries: csr.nnz() as u64, values_dropped: values_dropped as u64 })
}

/// Makes the file at `path` of what `write` writes.
fn create(
    path: &Path,
    gzip: bool,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let mut file = BufWriter::with_capacity(1 << 18, File::create(path)?);
    if gzip {
        let mut encoder = GzEncoder::new(file, Compression::default());
        write(&mut encoder)?;
        encoder.finish()?.flush()?;
    } else {
        write(&mut file)?;
        file.flush()?;
    }
    Ok(())
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
        Format::TcGnnNpz => Err(WriteError::NotRepresentable {
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
        Format::ScipyNpz | Format::TcGnnNpz => npz::scipy(writer, csr, told),
    }
}

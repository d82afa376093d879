//! Readers and writers of sparse-matrix files, of orders of rows, of weights with N:M sparsity, and of tensors.
//!
//! | format | [`Format`] | read | written |
//! |---|---|---|---|
//! | Matrix Market, coordinate and array, real, integer and pattern, general, symmetric and skew-symmetric | [`MatrixMarket`](Format::MatrixMarket) | yes | coordinate general |
//! | SNAP edge list, `#` comments, ids from 0, optional values | [`EdgeList`](Format::EdgeList) | yes | yes |
//! | DLMC `.smtx` | [`Smtx`](Format::Smtx) | yes | yes, without values |
//! | `scipy.sparse.save_npz`: CSR, CSC, COO | [`ScipyNpz`](Format::ScipyNpz) | yes | CSR |
//! | TC-GNN `.npz` | [`TcGnnNpz`](Format::TcGnnNpz) | yes | no |
//! | a dense tensor in safetensors, [by name](ReadOptions::tensor): what is not zero | [`Safetensors`](Format::Safetensors) | yes | no |
//!
//! An order of rows is a text of its own: [`write_permutation`], [`read_permutation`].
//!
//! Weights with vector-wise N:M sparsity are files of their own, safetensors or `.npz`: [`write_vector_nm`],
//! [`read_vector_nm`]. Dense ones are read from safetensors files by name: [`read_tensor`]. A [`Model`] is a file of
//! these or several with an index; [`write_model`] writes it again with some of its tensors as such weights.
//!
//! Dense matrices are `.npy` files or Matrix Market arrays: [`read_dense`], [`write_dense`].
//!
//! Tensors of three modes are FROSTT `.tns` files: [`read_tns`], [`write_tns`]. They are never read as matrices.
//!
//! The format is found out from the content, never from the name; gzip is seen through. Files that hold a
//! pattern get the value 1 for each entry; duplicates are summed; a [`ReadReport`] tells what was done.
//!
//! ```
//! use windrow_formats::io;
//!
//! let text = b"%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 1 4.0\n2 1 -1.5\n";
//! let (a, report) = io::read_csr_from::<f32>(&text[..], &io::ReadOptions::default())?;
//! assert_eq!(a.row(0), (&[0, 1][..], &[4.0, -1.5][..]));
//! assert_eq!(report.mirrored, 1);
//! # Ok::<(), io::ReadError>(())
//! ```
//!
//! # What a file can do
//! Files are not trusted. Numbers in them are compared with [`Limits`] before anything is allocated; the
//! memory for entries follows the entries that were really read, not a header's promise. Whatever is wrong
//! is a [`ReadError`] that names line and column, or the array and position, and what was expected there.
//!
//! # How text is read
//! In blocks of whole lines that all threads of rayon's current pool parse together, while one of them reads
//! or decompresses the next block. Numbers come out as `str::parse::<f64>` makes them, bit by bit, then
//! rounded to the value type.

mod blocks;
mod dense;
mod edge_list;
mod elements;
mod entries;
mod error;
mod foreign;
mod line;
mod matrix_market;
mod metis;
mod model;
mod npy;
mod npz;
mod number;
mod options;
mod permutation;
mod printable;
mod records;
mod report;
mod safetensors;
mod scan;
mod smtx;
mod sniff;
mod source;
mod tns;
mod vector_nm;
mod write;

use std::io::Read;
use std::path::Path;

use crate::{Csr, Value};
use blocks::TextSource;
use sniff::{Sniffed, sniff_prefix};
use source::Source;

pub use dense::{DenseArray, dense_shape, read_dense, read_dense_from};
pub use error::{ReadError, WriteError};
pub use model::{BitmaskWeights, Model, ModelIndex, ModelTensor, NmTensor, vector_nm_type};
pub use options::{Format, Limits, Progress, ProgressFn, ReadOptions, Stage};
pub use permutation::{read_permutation, read_permutation_from};
pub use printable::printable;
pub use report::{Field, Header, Layout, ReadReport, Storage, Symmetry};
pub use safetensors::{DenseTensor, read_tensor, read_tensor_from, tensor_type};
pub use sniff::sniff;
pub use tns::{read_tns, read_tns_from};
pub use vector_nm::{read_vector_nm, read_vector_nm_from};
pub use write::{
    DenseFormat, NmFormat, NmIndices, NmSink, Rewrite, Unfinished, WriteOptions, WriteReport,
    check_new_folder, check_target, remove_unfinished, replace_file, write_csr, write_csr_to, write_dense,
    write_dense_to, write_edge_list, write_matrix_market, write_model, write_permutation,
    write_permutation_to, write_scipy_npz, write_smtx, write_tensors, write_tns, write_tns_to,
    write_vector_nm, write_vector_nm_npz, write_vector_nm_safetensors,
};

/// A matrix and how it was read.
struct Loaded<V> {
    csr: Csr<V>,
    report: ReadReport,
}

/// Reads the matrix in the file at `path`, in any supported format, with default options.
///
/// # Errors
/// [`ReadError::InFile`] around any of the others.
pub fn read_csr<V: Value>(path: impl AsRef<Path>) -> Result<Csr<V>, ReadError> {
    read_csr_with_report(path, &ReadOptions::default()).map(|(csr, _)| csr)
}

/// Reads the matrix in the file at `path` and tells what was found.
///
/// # Cost
/// For text, about one pass over the file on all threads; in memory at a time: the entries, 8 bytes and a
/// value each, and the matrix made of them. Archives and `.smtx` are read into memory whole.
///
/// # Errors
/// [`ReadError::InFile`] around any of the others.
pub fn read_csr_with_report<V: Value>(
    path: impl AsRef<Path>,
    options: &ReadOptions<'_>,
) -> Result<(Csr<V>, ReadReport), ReadError> {
    let path = path.as_ref();
    let loaded = Source::open(path, options).and_then(|source| load(source, options));
    loaded.map_err(|error| error.in_file(path))
}

/// Reads the matrix in the content that `reader` returns, for example a byte slice.
///
/// `reader` must not start parallel work with rayon, since other threads wait for it.
///
/// # Errors
/// - [`ReadError::Io`] if reading fails;
/// - [`ReadError::UnknownFormat`] if the content is in no format known here;
/// - [`ReadError::Malformed`] or [`ReadError::Archive`] if it breaks the format's rules, also if it ends early
///   or goes on where it should end;
/// - [`ReadError::Unsupported`] if it is legal but cannot be held, for example complex values;
/// - [`ReadError::Limit`] if it exceeds `options.limits`;
/// - [`ReadError::Matrix`] if there is not enough memory.
pub fn read_csr_from<V: Value>(
    reader: impl Read + Send,
    options: &ReadOptions<'_>,
) -> Result<(Csr<V>, ReadReport), ReadError> {
    load(Source::new(reader, None, options)?, options)
}

fn load<V: Value>(source: Source<'_>, options: &ReadOptions<'_>) -> Result<(Csr<V>, ReadReport), ReadError> {
    let format = match options.format {
        Some(format) => format,
        None => match sniff_prefix(&source.prefix)? {
            Sniffed::Text(format) => format,
            // The members tell which of the two it is.
            Sniffed::Archive => Format::ScipyNpz,
        },
    };
    if options.tensor.is_some() && format != Format::Safetensors {
        let (place, what) = ("content".to_owned(), format!("the name of a tensor of {format}"));
        return Err(ReadError::Unsupported {
            place,
            what,
            remedy: "leave it out; only safetensors have names",
        });
    }
    let Source { reader, gzip, .. } = source;
    let text = |reader| TextSource::new(reader, options.limits);
    let Loaded { csr, mut report } = match format {
        Format::MatrixMarket => matrix_market::read(text(reader), options)?,
        Format::EdgeList => edge_list::read(text(reader), options)?,
        Format::Smtx => smtx::read(reader, options)?,
        Format::ScipyNpz | Format::TcGnnNpz => npz::read(reader, options)?,
        Format::Safetensors => safetensors::read_sparse(reader, options)?,
    };
    report.gzip = gzip;
    report.duplicates_summed = csr.canonicalised().summed_duplicates;
    Ok((csr, report))
}

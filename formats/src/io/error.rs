//! Why a file could not be read or written.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::Format;
use super::printable::{bounded, printable};
use crate::{FormatError, OutOfMemory};

/// Why a matrix or an order of rows could not be read.
///
/// Lines and columns count from 1, columns in bytes; rows, columns and positions inside of an array count
/// from 0 unless the file's own format counts them from 1.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be opened or read, or its compressed data is damaged.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// The content is in no format that is known here.
    #[error("unknown format: {found}; readable are {}", Format::LIST)]
    UnknownFormat {
        /// What the content looks like.
        found: String,
    },
    /// Text that breaks the rules of its format.
    #[error("line {line}, column {column}: expected {expected}, found {found}")]
    Malformed {
        /// Number of the line, from 1.
        line: u64,
        /// Column in bytes, from 1.
        column: u64,
        /// What the format asks for at this place.
        expected: String,
        /// What the text has at this place.
        found: String,
    },
    /// A `.npz` archive or a safetensors file, or one of its arrays, that breaks the rules.
    #[error("{member}: expected {expected}, found {found}")]
    Archive {
        /// Name of the array, `archive`, or which part of a file.
        member: String,
        /// What the format asks for.
        expected: String,
        /// What the archive has instead.
        found: String,
    },
    /// Legal content that cannot be made a matrix of the types here.
    #[error("{place}: {what} is not supported; {remedy}")]
    Unsupported {
        /// The line or the array where it is found.
        place: String,
        /// What is not supported.
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// More than [`Limits`](super::Limits) allows.
    #[error(
        "{place}: {found} {what} are more than the limit of {limit}; if the file can be trusted, raise Limits::{field}"
    )]
    Limit {
        /// Line, array or file.
        place: String,
        /// What is counted, for example `"rows"`.
        what: &'static str,
        /// How many there are, or how many were read when reading stopped.
        found: u64,
        /// How many the limit allows.
        limit: u64,
        /// Name of the limit.
        field: &'static str,
    },
    /// The parts were read but are no matrix, or there is not enough memory for it.
    #[error(transparent)]
    Matrix(#[from] FormatError),
    /// Any of the above, with the file's name.
    #[error("{}: {source}", printable(path))]
    InFile {
        /// The file as it was named.
        path: PathBuf,
        /// The error without the file's name.
        source: Box<ReadError>,
    },
}

impl From<OutOfMemory> for ReadError {
    fn from(error: OutOfMemory) -> Self {
        Self::Matrix(error.into())
    }
}

impl ReadError {
    pub(super) fn in_file(self, path: &Path) -> Self {
        Self::InFile { path: path.to_owned(), source: Box::new(self) }
    }

    /// The error with the file's name around it, if it has none yet.
    pub(super) fn unless_in_file(self, path: &Path) -> Self {
        match self {
            named @ Self::InFile { .. } => named,
            other => other.in_file(path),
        }
    }

    /// The error without the file's name around it.
    pub fn cause(&self) -> &ReadError {
        match self {
            Self::InFile { source, .. } => source.cause(),
            other => other,
        }
    }

    pub(super) fn archive(
        member: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        let [member, expected, found] = [member.into(), expected.into(), found.into()].map(bounded);
        Self::Archive { member, expected, found }
    }
}

/// Why a matrix or an order of rows could not be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file could not be created or written.
    #[error("cannot write: {0}")]
    Io(#[from] io::Error),
    /// There is not enough memory for what is written at a time.
    #[error("cannot write: {0}")]
    OutOfMemory(#[from] OutOfMemory),
    /// The file name does not tell the format.
    #[error(
        "the name does not tell the format; end it in .mtx, .smtx, .npz, .txt, .el or .edges, .gz behind it \
         if you like, or set WriteOptions::format"
    )]
    UnknownExtension,
    /// The file name does not tell the format of weights with N:M sparsity.
    #[error("the name does not tell the format; end it in .safetensors or .npz")]
    UnknownNmExtension,
    /// The file name does not tell the format of a dense matrix.
    #[error("the name does not tell the format; end it in .npy or .mtx, .gz behind it if you like")]
    UnknownDenseExtension,
    /// The parts are no matrix.
    #[error(transparent)]
    Matrix(#[from] FormatError),
    /// The format cannot hold this matrix.
    #[error("{format} cannot hold this matrix: {why}; {remedy}")]
    NotRepresentable {
        /// The format asked for.
        format: Format,
        /// What does not fit.
        why: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// What is to be written could not be read.
    #[error(transparent)]
    Read(#[from] Box<ReadError>),
    /// Any of the above, with the file's name.
    #[error("{}: {source}", printable(path))]
    InFile {
        /// The file as it was named.
        path: PathBuf,
        /// The error without the file's name.
        source: Box<WriteError>,
    },
}

impl From<ReadError> for WriteError {
    fn from(error: ReadError) -> Self {
        Self::Read(Box::new(error))
    }
}

impl WriteError {
    /// The error with the file's name around it.
    #[must_use]
    pub fn in_file(self, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        Self::InFile { path: path.to_owned(), source: Box::new(self) }
    }

    /// The error without the file's name around it.
    pub fn cause(&self) -> &WriteError {
        match self {
            Self::InFile { source, .. } => source.cause(),
            other => other,
        }
    }
}

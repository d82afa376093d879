//! What to read, how much of it at most, and who is told how far it is.

use std::fmt;

use super::ReadError;
use crate::FormatError;
use crate::memory::index;

/// A file format that matrices are read from and written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Matrix Market exchange format, `.mtx`.
    MatrixMarket,
    /// One edge a line, ids from 0, `#` comments, as in the SNAP collection, `.txt`.
    EdgeList,
    /// Pattern in compressed rows, as in the Deep Learning Matrix Collection, `.smtx`.
    Smtx,
    /// What `scipy.sparse.save_npz` writes, `.npz`.
    ScipyNpz,
    /// Arrays `src_li`, `dst_li` and `num_nodes`, as TC-GNN keeps its graphs, `.npz`.
    TcGnnNpz,
    /// A dense tensor with zeros, such as a pruned layer, `.safetensors`.
    Safetensors,
}

impl Format {
    /// Every format that can be read; lists of names keep this order.
    pub const ALL: [Self; 6] =
        [Self::MatrixMarket, Self::EdgeList, Self::Smtx, Self::ScipyNpz, Self::TcGnnNpz, Self::Safetensors];

    pub(super) const LIST: &str = "Matrix Market, SNAP edge lists, DLMC .smtx, scipy.sparse and TC-GNN .npz, and safetensors, each also behind gzip";

    /// The format's name in one word, for options.
    pub fn name(self) -> &'static str {
        match self {
            Self::MatrixMarket => "matrix-market",
            Self::EdgeList => "edge-list",
            Self::Smtx => "smtx",
            Self::ScipyNpz => "scipy-npz",
            Self::TcGnnNpz => "tc-gnn-npz",
            Self::Safetensors => "safetensors",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MatrixMarket => "Matrix Market",
            Self::EdgeList => "an edge list",
            Self::Smtx => "DLMC .smtx",
            Self::ScipyNpz => "scipy.sparse .npz",
            Self::TcGnnNpz => "TC-GNN .npz",
            Self::Safetensors => "safetensors",
        })
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    /// The format that [`Format::name`] names; the error lists the names.
    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no format is called {name:?}; there are {names}")
        })
    }
}

/// The most that a reader takes from a file.
///
/// A number in a file is compared with its limit before anything is allocated for it. Memory beyond that
/// follows what was really read: entries cost a few times the bytes that spell them, whatever the header
/// promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most rows; there are 8 bytes of offsets for each, also for empty ones. By default 2²⁸.
    pub max_rows: u64,
    /// Most columns. By default 2³² − 1, the most that a matrix can have.
    pub max_cols: u64,
    /// Most entries, both halves of a symmetric matrix counted. By default 2³¹.
    pub max_nnz: u64,
    /// Most bytes after decompression. By default 16 GiB.
    pub max_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_rows: 1 << 28, max_cols: u64::from(u32::MAX), max_nnz: 1 << 31, max_bytes: 16 << 30 }
    }
}

/// Bytes of memory for each row that is allowed: offsets take a sixteenth of it, what is made of them some more.
const MEMORY_A_ROW: u64 = 128;

impl Limits {
    /// Limits for a machine with so many bytes of memory, so that a small file cannot ask for all of it: content of
    /// half the memory, a row for each 128 bytes, and no more rows, columns and entries than by default.
    pub fn of_memory(bytes: u64) -> Self {
        let default = Self::default();
        Self { max_rows: default.max_rows.min(bytes / MEMORY_A_ROW), max_bytes: bytes / 2, ..default }
    }

    /// Limits for the memory that this process may use, see [`machine_memory`](crate::machine_memory); the default ones
    /// where the system does not tell it.
    pub fn of_machine() -> Self {
        crate::machine_memory().map_or_else(Self::default, Self::of_memory)
    }

    /// `rows` and `cols` as dimensions if they are within the limits and 32 bits.
    pub(super) fn check_shape(&self, place: &str, rows: u64, cols: u64) -> Result<(u32, u32), ReadError> {
        let check = |found: u64, limit: u64, what, field| {
            if found > limit {
                return Err(ReadError::Limit { place: place.to_owned(), what, found, limit, field });
            }
            let too_large = |_| FormatError::DimensionTooLarge { what, found: index(found) };
            Ok(u32::try_from(found).map_err(too_large)?)
        };
        Ok((
            check(rows, self.max_rows, "rows", "max_rows")?,
            check(cols, self.max_cols, "columns", "max_cols")?,
        ))
    }

    pub(super) fn check_nnz(&self, place: &str, found: u64) -> Result<(), ReadError> {
        if found <= self.max_nnz {
            return Ok(());
        }
        Err(ReadError::Limit {
            place: place.to_owned(),
            what: "entries",
            found,
            limit: self.max_nnz,
            field: "max_nnz",
        })
    }

    pub(super) fn too_many_bytes(&self, found: u64) -> ReadError {
        ReadError::Limit {
            place: "content".to_owned(),
            what: "bytes (decompressed)",
            found,
            limit: self.max_bytes,
            field: "max_bytes",
        }
    }
}

/// What a reader or writer is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Reading, decompressing and parsing, which go on together.
    Reading,
    /// Building compressed rows of the entries.
    Assembling,
    /// The text or archive is being written.
    Writing,
}

/// How far a reader or writer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Bytes done: of the file as it is stored while [`Stage::Reading`], of the matrix in memory while
    /// [`Stage::Assembling`] and [`Stage::Writing`].
    pub done_bytes: u64,
    /// Bytes to do, if known.
    pub total_bytes: Option<u64>,
}

/// Called now and then with the progress, also from other threads, one call at a time.
///
/// It should return soon and must not start parallel work of its own with rayon, since other threads wait.
pub type ProgressFn<'a> = &'a (dyn Fn(Progress) + Sync);

/// How a matrix is read: limits, format, and who is told about the progress.
#[derive(Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// The most that is taken from the file.
    pub limits: Limits,
    /// Told about the progress.
    pub progress: Option<ProgressFn<'a>>,
    /// The format; `None` to find it out from the content. Gzip is always found out.
    pub format: Option<Format>,
    /// Of safetensors the tensor to read; `None` for the only one.
    pub tensor: Option<&'a str>,
}

impl ReadOptions<'_> {
    pub(super) fn tell(&self, stage: Stage, done_bytes: u64, total_bytes: Option<u64>) {
        if let Some(progress) = self.progress {
            progress(Progress { stage, done_bytes, total_bytes });
        }
    }
}

impl fmt::Debug for ReadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOptions")
            .field("limits", &self.limits)
            .field("progress", &self.progress.map(|_| "Fn(Progress)"))
            .field("format", &self.format)
            .field("tensor", &self.tensor)
            .finish()
    }
}

//! What a reader found.

use std::fmt;

use super::Format;

/// What a reader found in a file and did with it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadReport {
    /// The format that the content has.
    pub format: Format,
    /// Whether the content was behind gzip.
    pub gzip: bool,
    /// What the file says about itself.
    pub header: Header,
    /// Bytes of content, decompressed; for archives, of the arrays that were read.
    pub content_bytes: u64,
    /// Entries that the file spells out.
    pub entries_read: u64,
    /// Entries that a comment of an edge list says there are, where one does. Another number than was read may mean
    /// that the file was cut off; the file of a graph may count otherwise.
    pub entries_stated: Option<u64>,
    /// Entries added because the file holds one triangle of a symmetric or skew-symmetric matrix.
    pub mirrored: u64,
    /// Entries added to another entry of the same row and column.
    pub duplicates_summed: u64,
    /// Entries that got the value 1 because the file holds none.
    pub pattern_values: u64,
    /// Zeros of a dense array, which are not kept. Zeros that a sparse file spells out are.
    pub zeros_dropped: u64,
}

impl ReadReport {
    pub(super) fn new(header: Header) -> Self {
        Self {
            format: header.format(),
            gzip: false,
            header,
            content_bytes: 0,
            entries_read: 0,
            entries_stated: None,
            mirrored: 0,
            duplicates_summed: 0,
            pattern_values: 0,
            zeros_dropped: 0,
        }
    }
}

/// Matrix Market: how the entries are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Row, column and value of each entry.
    Coordinate,
    /// Every value, column by column.
    Array,
}

/// Matrix Market: what the values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// `real`, or `double` as some programs write.
    Real,
    /// `integer`, or `unsigned-integer` as SciPy writes.
    Integer,
    /// No values; each entry is 1.
    Pattern,
}

/// Matrix Market: which entries stand for two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symmetry {
    /// Every entry is listed.
    General,
    /// `a(j, i) = a(i, j)`: one triangle and the diagonal are listed.
    Symmetric,
    /// `a(j, i) = −a(i, j)`: one triangle is listed, the diagonal is zero.
    SkewSymmetric,
}

/// SciPy: which of its classes was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// Compressed sparse rows: `csr_matrix` or `csr_array`.
    Csr,
    /// Compressed sparse columns: `csc_matrix` or `csc_array`.
    Csc,
    /// A list of coordinates: `coo_matrix` or `coo_array`.
    Coo,
}

/// What a file says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Header {
    /// The three words of a Matrix Market header.
    MatrixMarket {
        /// How the entries are listed.
        layout: Layout,
        /// What the values are.
        field: Field,
        /// Which entries stand for two.
        symmetry: Symmetry,
    },
    /// Lines of two vertices, and perhaps a value.
    EdgeList {
        /// Whether there is a third column of values.
        weighted: bool,
    },
    /// DLMC's `.smtx`: a pattern without values.
    Smtx,
    /// An archive of `scipy.sparse.save_npz`.
    ScipyNpz {
        /// Which class was saved.
        storage: Storage,
        /// NumPy's name of the value type, for example `<f8`.
        dtype: String,
    },
    /// An archive of TC-GNN: a pattern without values.
    TcGnnNpz,
    /// A dense tensor of a safetensors file.
    Safetensors {
        /// Name of the tensor.
        tensor: String,
        /// Type of its elements, for example `bf16`.
        element: &'static str,
    },
}

impl Header {
    /// The format with such a header.
    pub fn format(&self) -> Format {
        match self {
            Self::MatrixMarket { .. } => Format::MatrixMarket,
            Self::EdgeList { .. } => Format::EdgeList,
            Self::Smtx => Format::Smtx,
            Self::ScipyNpz { .. } => Format::ScipyNpz,
            Self::TcGnnNpz => Format::TcGnnNpz,
            Self::Safetensors { .. } => Format::Safetensors,
        }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MatrixMarket { layout, field, symmetry } => {
                let layout = match layout {
                    Layout::Coordinate => "coordinate",
                    Layout::Array => "array",
                };
                let field = match field {
                    Field::Real => "real",
                    Field::Integer => "integer",
                    Field::Pattern => "pattern",
                };
                let symmetry = match symmetry {
                    Symmetry::General => "general",
                    Symmetry::Symmetric => "symmetric",
                    Symmetry::SkewSymmetric => "skew-symmetric",
                };
                write!(f, "Matrix Market {layout} {field} {symmetry}")
            }
            Self::EdgeList { weighted: true } => f.write_str("edge list with values"),
            Self::EdgeList { weighted: false } => f.write_str("edge list"),
            Self::Smtx => f.write_str("DLMC .smtx"),
            Self::ScipyNpz { storage, dtype } => {
                let storage = match storage {
                    Storage::Csr => "CSR",
                    Storage::Csc => "CSC",
                    Storage::Coo => "COO",
                };
                write!(f, "scipy.sparse {storage} of {dtype}")
            }
            Self::TcGnnNpz => f.write_str("TC-GNN graph"),
            Self::Safetensors { tensor, element } => {
                write!(f, "safetensors tensor {} of {element}", tensor.escape_debug())
            }
        }
    }
}

impl fmt::Display for ReadReport {
    /// One line: the header, then whatever was done to the entries.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}: {} entries", self.header, if self.gzip { ", gzip" } else { "" }, self.entries_read)?;
        for (count, what) in [
            (self.mirrored, "mirrored"),
            (self.duplicates_summed, "duplicates summed"),
            (self.pattern_values, "without a value, made 1"),
            (self.zeros_dropped, "zeros dropped"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        match self.entries_stated {
            Some(stated) if stated != self.entries_read => write!(f, ", {stated} stated"),
            _ => Ok(()),
        }
    }
}

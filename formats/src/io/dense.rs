//! Dense matrices: NumPy's `.npy`, and arrays in Matrix Market format.

use std::io::Read;
use std::path::Path;

use super::blocks::TextSource;
use super::elements::{Decoder, skip};
use super::line::excerpt;
use super::npy::{Header, Kind};
use super::source::Source;
use super::{ReadError, ReadOptions, matrix_market};
use crate::Value;
use crate::memory::make_room;

/// First bytes of a `.npy` file.
const NPY_MAGIC: &[u8] = b"\x93NUMPY";
/// What messages call the array of a `.npy` file.
const ARRAY: &str = "array";

/// A dense matrix that was read, in the order in which the file has it.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseArray<V> {
    rows: usize,
    cols: usize,
    values: Vec<V>,
    column_major: bool,
    element: &'static str,
    overflowed: u64,
}

impl<V> DenseArray<V> {
    /// Number of rows, the length of an array of one dimension.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns; 1 if the array has one dimension.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The elements, row after row without padding, or column after column.
    pub fn values(&self) -> &[V] {
        &self.values
    }

    /// Whether the elements lie column after column: NumPy's Fortran order, and that of Matrix Market.
    pub fn is_column_major(&self) -> bool {
        self.column_major
    }

    /// Type of the elements in the file, such as `f64`; numbers of text are f64.
    pub fn element(&self) -> &'static str {
        self.element
    }

    /// Finite elements of the file that are infinite in `V`.
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }
}

/// Reads the dense matrix in the file at `path`: a `.npy` array of one dimension (a column) or two, in C's or Fortran's
/// order, or a general array in Matrix Market format. Elements are rounded to `V`.
///
/// # Cost
/// A pass over the file; in memory at a time: the elements as `V`, and a megabyte. Numbers of text are in memory as
/// f64, too.
///
/// # Errors
/// [`ReadError::InFile`] around any of those of [`read_dense_from`].
pub fn read_dense<V: Value>(
    path: impl AsRef<Path>,
    options: &ReadOptions<'_>,
) -> Result<DenseArray<V>, ReadError> {
    let path = path.as_ref();
    let read = Source::open(path, options).and_then(|source| read(source, options));
    read.map_err(|error| error.in_file(path))
}

/// As [`read_dense`], of the content that `reader` returns, for example a byte slice.
///
/// # Errors
/// - [`ReadError::Io`] if reading fails;
/// - [`ReadError::Archive`] if the content is neither, or a `.npy` that breaks the rules;
///   [`ReadError::Malformed`] for text that does;
/// - [`ReadError::Unsupported`] for complex elements, and for arrays of which only a triangle is listed;
/// - [`ReadError::Limit`] if it exceeds `options.limits`; elements count as entries;
/// - [`ReadError::Matrix`] if there is not enough memory.
///
/// # Examples
/// ```
/// use windrow_formats::io;
///
/// let text = b"%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n";
/// let b = io::read_dense_from::<f32>(&text[..], &io::ReadOptions::default())?;
/// assert_eq!((b.rows(), b.values(), b.is_column_major()), (2, &[1.0, 2.0, 3.0, 4.0][..], true));
/// # Ok::<(), io::ReadError>(())
/// ```
pub fn read_dense_from<V: Value>(
    reader: impl Read + Send,
    options: &ReadOptions<'_>,
) -> Result<DenseArray<V>, ReadError> {
    read(Source::new(reader, None, options)?, options)
}

/// Rows and columns of the dense matrix in the file at `path`, without its elements.
///
/// # Errors
/// As [`read_dense`], as far as the beginning of the file tells.
pub fn dense_shape(path: impl AsRef<Path>, options: &ReadOptions<'_>) -> Result<(usize, usize), ReadError> {
    let path = path.as_ref();
    let shape = Source::open(path, options).and_then(|source| match kind(&source)? {
        Content::Npy => Npy::parse(&source.prefix, options).map(|npy| npy.shape),
        Content::MatrixMarket => {
            matrix_market::dense_shape(TextSource::new(source.reader, options.limits), options)
        }
    });
    shape.map_err(|error| error.in_file(path))
}

enum Content {
    Npy,
    MatrixMarket,
}

fn kind(source: &Source<'_>) -> Result<Content, ReadError> {
    let prefix = &source.prefix;
    if prefix.starts_with(NPY_MAGIC) {
        return Ok(Content::Npy);
    }
    let banner = prefix.get(..matrix_market::BANNER.len());
    if banner.is_some_and(|start| start.eq_ignore_ascii_case(matrix_market::BANNER)) {
        return Ok(Content::MatrixMarket);
    }
    let found = match prefix.len() {
        0 => "nothing".to_owned(),
        len => format!("what begins with {}", excerpt(&prefix[..len.min(16)])),
    };
    Err(ReadError::archive("content", "a NumPy array (.npy) or a Matrix Market array", found))
}

fn read<V: Value>(mut source: Source<'_>, options: &ReadOptions<'_>) -> Result<DenseArray<V>, ReadError> {
    match kind(&source)? {
        Content::Npy => {
            let npy = Npy::parse(&source.prefix, options)?;
            npy.read(&mut source.reader)
        }
        Content::MatrixMarket => {
            let text = TextSource::new(source.reader, options.limits);
            let (rows, cols, blocks) = matrix_market::read_dense(text, options)?;
            let mut elements = Elements::default();
            for block in blocks {
                elements.take(&mut block.iter().copied(), block.len())?;
            }
            Ok(elements.finish((rows, cols), true, "f64"))
        }
    }
}

/// What the header of a `.npy` file says.
struct Npy {
    header: Header,
    /// Where the elements start.
    start: usize,
    shape: (usize, usize),
    count: u64,
    decoder: Decoder,
}

impl Npy {
    fn parse(prefix: &[u8], options: &ReadOptions<'_>) -> Result<Self, ReadError> {
        let (header, start) =
            Header::parse(prefix).map_err(|found| ReadError::archive(ARRAY, "a NumPy array", found))?;
        let (rows, cols) = match header.shape[..] {
            [len] => (len, 1),
            [rows, cols] => (rows, cols),
            _ => {
                let found = format!("shape {:?}", header.shape);
                return Err(ReadError::archive(ARRAY, "one dimension or two", found));
            }
        };
        let (m, n) = options.limits.check_shape(ARRAY, rows, cols)?;
        let count = rows.saturating_mul(cols);
        options.limits.check_nnz(ARRAY, count)?;
        let element = &header.element;
        let Some(decoder) = Decoder::of_numpy(element) else {
            let what = format!("the element type {}", element.name());
            let remedy = match element.kind {
                Kind::Complex => "in Python, save a.real and a.imag as two matrices",
                _ => "in Python, save a.astype('f4'), 'f8' or 'f2'",
            };
            return Err(ReadError::Unsupported { place: ARRAY.to_owned(), what, remedy });
        };
        let bytes = count.saturating_mul(decoder.bytes as u64).saturating_add(start as u64);
        if bytes > options.limits.max_bytes {
            return Err(options.limits.too_many_bytes(bytes));
        }
        Ok(Self { shape: (m as usize, n as usize), start, count, decoder, header })
    }

    fn read<V: Value>(self, reader: &mut dyn Read) -> Result<DenseArray<V>, ReadError> {
        skip(reader, self.start as u64)?;
        let mut elements = Elements::default();
        let found = self.decoder.read(reader, self.count, |numbers, len| elements.take(numbers, len))?;
        let needed = self.count.saturating_mul(self.decoder.bytes as u64);
        let more = skip(reader, 1)?;
        if found < needed || more > 0 {
            let expected =
                format!("{needed} bytes for shape {:?} of {}", self.header.shape, self.header.element.name());
            let found = if more > 0 { "more".to_owned() } else { format!("{found} bytes") };
            return Err(ReadError::archive(ARRAY, expected, found));
        }
        Ok(elements.finish(self.shape, self.header.fortran_order, self.decoder.name))
    }
}

/// Elements that are being read.
struct Elements<V> {
    values: Vec<V>,
    overflowed: u64,
}

impl<V> Default for Elements<V> {
    fn default() -> Self {
        Self { values: Vec::new(), overflowed: 0 }
    }
}

impl<V: Value> Elements<V> {
    fn take(&mut self, numbers: &mut dyn Iterator<Item = f64>, len: usize) -> Result<(), ReadError> {
        make_room(&mut self.values, len, "a dense matrix")?;
        for x in numbers {
            let value = V::from_f64(x);
            self.overflowed += u64::from(x.is_finite() && !value.to_f64().is_finite());
            self.values.push(value);
        }
        Ok(())
    }

    fn finish(
        self,
        (rows, cols): (usize, usize),
        column_major: bool,
        element: &'static str,
    ) -> DenseArray<V> {
        let Self { values, overflowed } = self;
        DenseArray { rows, cols, values, column_major, element, overflowed }
    }
}

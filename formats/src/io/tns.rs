//! Reads tensors of three modes in the format of the FROSTT collection (Smith et al., "FROSTT: The Formidable
//! Repository of Open Sparse Tensors and Tools", 2017): `i j k value` in each line, indices from 1, `#` comments.

use std::io::Read;
use std::marker::PhantomData;
use std::path::Path;

use rayon::prelude::*;

use super::blocks::{End, TextSource};
use super::edge_list::OWN_MARK;
use super::line::{Fault, Line};
use super::number::{parse_unsigned, scan_f64, scan_index};
use super::records::{Records, parse_records};
use super::scan::{blank, line_end};
use super::source::Source;
use super::{ReadError, ReadOptions, Stage};
use crate::coo3::mode_dimensions;
use crate::memory::{make_room, try_collect, try_copy, try_with_room, try_zeroed};
use crate::{Coo3, OutOfMemory, Value};

/// What comment lines start with.
const COMMENT: u8 = b'#';
/// What the first words of a line are.
const INDICES: [&str; 3] = ["the first index", "the second index", "the third index"];

/// Reads the tensor in the FROSTT `.tns` file at `path`, as [`write_tns`](super::write_tns) writes it.
///
/// The format does not hold dimensions: without `dims`, each is the largest index of its mode. Gzip is seen through,
/// whatever the file's name.
///
/// # Errors
/// [`ReadError::InFile`] around any of those of [`read_tns_from`].
///
/// # Examples
/// ```no_run
/// use windrow_formats::io;
///
/// let tensor = io::read_tns::<f32>("nell-2.tns.gz", None, &io::ReadOptions::default())?;
/// let fibers = tensor.to_csf([0, 1, 2])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_tns<V: Value>(
    path: impl AsRef<Path>,
    dims: Option<[usize; 3]>,
    options: &ReadOptions<'_>,
) -> Result<Coo3<V>, ReadError> {
    let path = path.as_ref();
    let tensor = Source::open(path, options).and_then(|source| read(source, dims, options));
    tensor.map_err(|error| error.in_file(path))
}

/// Reads the tensor in the content that `reader` returns, for example a byte slice.
///
/// Lines are `i j k value`, indices from 1, separated by blanks or tabs; blank lines and `#` comments are skipped.
/// Values are decimal numbers, `inf` or `nan`. Entries keep the order of the file, duplicates included. Without
/// `dims`, each dimension is the largest index of its mode. A file that [`write_tns`](super::write_tns) wrote says how
/// many entries it has, and must have them.
///
/// `options.format` does not matter, and neither do the limits of rows and columns: nothing here is as long as a
/// mode. `reader` must not start parallel work with rayon, since other threads wait for it.
///
/// # Cost
/// About one pass over the text on all threads; memory follows what was really read.
///
/// # Errors
/// - [`ReadError::Io`] if reading or decompressing fails;
/// - [`ReadError::Malformed`] for a line without exactly three indices and a value, for an index that is no number
///   from 1 to its dimension, or to 2³² − 1 without `dims`, for content that is empty or blank, and for a file of
///   [`write_tns`](super::write_tns) that was cut off;
/// - [`ReadError::Limit`] if there are more entries or bytes than `options.limits` allows;
/// - [`ReadError::Matrix`] if one of `dims` exceeds 2³² − 1, or there is not enough memory.
///
/// # Examples
/// ```
/// use windrow_formats::io;
///
/// let text = b"# a comment\n1 1 2 1.5\n2 3 1 -4\n";
/// let tensor = io::read_tns_from::<f32>(&text[..], None, &io::ReadOptions::default())?;
/// assert_eq!(tensor.dims(), [2, 3, 2]);
/// assert!(tensor.entries().eq([([0, 0, 1], 1.5), ([1, 2, 0], -4.0)]));
/// # Ok::<(), io::ReadError>(())
/// ```
pub fn read_tns_from<V: Value>(
    reader: impl Read + Send,
    dims: Option<[usize; 3]>,
    options: &ReadOptions<'_>,
) -> Result<Coo3<V>, ReadError> {
    read(Source::new(reader, None, options)?, dims, options)
}

fn read<V: Value>(
    source: Source<'_>,
    dims: Option<[usize; 3]>,
    options: &ReadOptions<'_>,
) -> Result<Coo3<V>, ReadError> {
    let largest = dims.map(mode_dimensions).transpose()?.unwrap_or([u32::MAX; 3]);
    let limits = options.limits;
    let mut text = TextSource::new(source.reader, limits);
    let stated = look_ahead(&mut text)?;
    let too_many = |line| {
        let nnz = limits.max_nnz.saturating_add(1);
        let error = limits.check_nnz(&format!("line {line}"), nnz).err();
        error.unwrap_or_else(|| limits.too_many_bytes(nnz))
    };
    let records = parse_records(text, &Entries { largest, value: PhantomData }, limits.max_nnz, too_many)?;
    if let Some(stated) = stated {
        stated.check(records.count, (records.lines, records.end))?;
    }
    options.tell(Stage::Assembling, 0, None);
    assemble(records.blocks, dims)
}

/// What the comment of a file that was written here says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stated {
    line: u64,
    entries: u64,
}

impl Stated {
    /// Of a comment such as `# Dims: 2 3 2 Entries: 1 (windrow)`; comments of others may count otherwise.
    fn parse(text: &[u8], line: u64) -> Option<Self> {
        let mut words = Line::new(text);
        let words: Vec<&[u8]> = std::iter::from_fn(|| words.token()).map(|word| word.bytes).collect();
        match words[..] {
            [.., b"Entries:", entries, mark] if mark == OWN_MARK.as_bytes() => {
                Some(Self { line, entries: parse_unsigned(entries)? })
            }
            _ => None,
        }
    }

    /// An error if a file has not all that it says.
    fn check(self, entries: u64, (lines, end): (u64, End)) -> Result<(), ReadError> {
        // A number whose last digits are missing is a number too.
        if entries == self.entries && !end.within_line {
            return Ok(());
        }
        let expected = format!("{} entries in all, as line {} says", self.entries, self.line);
        let within = if end.within_line { ", within a line" } else { "" };
        let found = format!(
            "the end of the file after {entries} entries{within}; it was cut off, or edited: then correct that line"
        );
        Err(Fault::new(1, expected, found).at_line(lines + 1))
    }
}

/// Takes what comes before the first entry, and returns what comments there say.
fn look_ahead(text: &mut TextSource<'_>) -> Result<Option<Stated>, ReadError> {
    let (mut commented, mut stated) = (false, None);
    loop {
        let number = text.lines_taken() + 1;
        let Some(line) = text.peek_line()? else { break };
        match Line::new(line).token() {
            Some(token) if token.bytes[0] != COMMENT => return Ok(stated),
            token => commented |= token.is_some(),
        }
        stated = stated.or_else(|| Stated::parse(line, number));
        text.take_line()?;
    }
    match commented {
        true => Ok(stated),
        false => {
            Err(Fault::new(1, "an entry or a comment", "the end of the file").at_line(text.lines_taken() + 1))
        }
    }
}

/// The entries of a block, indices from 0.
#[derive(Clone)]
struct Block<V> {
    indices: [Vec<u32>; 3],
    values: Vec<V>,
}

impl<V> Default for Block<V> {
    fn default() -> Self {
        Self { indices: [const { Vec::new() }; 3], values: Vec::new() }
    }
}

impl<V: Value> Block<V> {
    /// Adds an entry with indices from 1.
    #[inline]
    fn push(&mut self, index: [u32; 3], value: f64) {
        self.indices.iter_mut().zip(index).for_each(|(of_mode, index)| of_mode.push(index - 1));
        self.values.push(V::from_f64(value));
    }
}

struct Entries<V> {
    /// The largest index of each mode, from 1.
    largest: [u32; 3],
    value: PhantomData<fn() -> V>,
}

impl<V: Value> Records for Entries<V> {
    type Block = Block<V>;
    type Closed = Block<V>;
    const COMMENT: u8 = COMMENT;

    #[inline]
    fn plain(&self, text: &[u8], at: usize, block: &mut Block<V>) -> Option<usize> {
        let (i, at) = scan_index(text, at)?;
        let (j, at) = scan_index(text, blank(text, at)?)?;
        let (k, at) = scan_index(text, blank(text, at)?)?;
        let (value, at) = scan_f64(text, blank(text, at)?)?;
        let next = line_end(text, at)?;
        let [i_largest, j_largest, k_largest] = self.largest;
        let index = |number: u64, largest: u32| {
            u32::try_from(number).ok().filter(|number| (1..=largest).contains(number))
        };
        block.push([index(i, i_largest)?, index(j, j_largest)?, index(k, k_largest)?], value);
        Some(next)
    }

    fn careful(&self, mut line: Line<'_>, block: &mut Block<V>) -> Result<(), Fault> {
        let mut words = line.clone();
        let count = std::iter::from_fn(|| words.token()).count();
        if count != 4 {
            let expected = "4 columns (three indices and a value; only tensors of three modes are read)";
            return Err(Fault::new(1, expected, count.to_string()));
        }
        let mut index = [0; 3];
        for ((index, what), largest) in index.iter_mut().zip(INDICES).zip(self.largest) {
            let number = line.unsigned(what, 1..=u64::from(largest))?;
            *index = u32::try_from(number).unwrap_or(u32::MAX);
        }
        block.push(index, line.real()?);
        line.end()
    }

    fn make_room(&self, block: &mut Block<V>, bytes: usize) -> Result<(), OutOfMemory> {
        // The shortest line is `1 1 1 1` and its end.
        let records = bytes / 8 + 1;
        block.indices.iter_mut().try_for_each(|of_mode| make_room(of_mode, records, "indices"))?;
        make_room(&mut block.values, records, "values")
    }

    fn close(&self, block: &mut Block<V>) -> Result<Block<V>, OutOfMemory> {
        let mut closed = Block { values: try_copy(&block.values, "values")?, ..Block::default() };
        for (closed, of_mode) in closed.indices.iter_mut().zip(&mut block.indices) {
            *closed = try_copy(of_mode, "indices")?;
            of_mode.clear();
        }
        block.values.clear();
        Ok(closed)
    }
}

/// The tensor of all entries of `blocks`, in order.
fn assemble<V: Value>(mut blocks: Vec<Block<V>>, dims: Option<[usize; 3]>) -> Result<Coo3<V>, ReadError> {
    let mut indices = [const { Vec::new() }; 3];
    for (mode, of_mode) in indices.iter_mut().enumerate() {
        let pieces = blocks.iter_mut().map(|block| std::mem::take(&mut block.indices[mode]));
        *of_mode = concatenated(try_collect(pieces, "indices")?, "indices")?;
    }
    let values = try_collect(blocks.into_iter().map(|block| block.values), "values")?;
    let values = concatenated(values, "values")?;
    let implied =
        || indices.each_ref().map(|of_mode| of_mode.par_iter().max().map_or(0, |&i| i as usize + 1));
    let dims = dims.unwrap_or_else(implied);
    Ok(Coo3::try_new(dims, indices, values)?)
}

/// All of `pieces` one after the other; each is dropped as soon as it is copied.
fn concatenated<T>(pieces: Vec<Vec<T>>, what: &'static str) -> Result<Vec<T>, OutOfMemory>
where
    T: bytemuck::Zeroable + Copy + Send + Sync,
{
    let mut all = try_zeroed(pieces.iter().map(Vec::len).sum(), what)?;
    let mut targets = try_with_room(pieces.len(), what)?;
    let mut rest = all.as_mut_slice();
    for piece in &pieces {
        let (target, tail) = rest.split_at_mut(piece.len());
        targets.push(target);
        rest = tail;
    }
    pieces.into_par_iter().zip(targets).for_each(|(piece, target)| target.copy_from_slice(&piece));
    Ok(all)
}

//! Reads orders of rows: `# windrow-permutation 1 <rows>` in the first line, then the old row of each new one,
//! from 0, one a line; blank lines and `#` comments are skipped. `numpy.loadtxt` reads it too.

use std::io::Read;
use std::path::Path;

use super::blocks::TextSource;
use super::line::{Fault, Line};
use super::number::{parse_unsigned, scan_index};
use super::records::{AllRecords, Records, parse_records};
use super::scan::line_end;
use super::source::Source;
use super::{ReadError, ReadOptions};
use crate::memory::{make_room, try_concat, try_copy};
use crate::{FormatError, OutOfMemory, Permutation};

/// What comment lines start with, also the first one.
const COMMENT: u8 = b'#';
/// The second word of the first line.
pub(super) const MAGIC: &str = "windrow-permutation";
/// The version that is written, and the only one that is read.
pub(super) const VERSION: u64 = 1;

/// Reads the order in the file at `path`, as [`write_permutation`](super::write_permutation) writes it.
///
/// Gzip is seen through, whatever the file's name.
///
/// # Errors
/// [`ReadError::InFile`] around any of those of [`read_permutation_from`].
///
/// # Examples
/// ```no_run
/// use windrow_formats::io;
///
/// let a = io::read_csr::<f32>("a.mtx")?;
/// let reordered = a.permute_rows(&io::read_permutation("a.order.gz")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_permutation(path: impl AsRef<Path>) -> Result<Permutation, ReadError> {
    let (path, options) = (path.as_ref(), ReadOptions::default());
    let read = Source::open(path, &options).and_then(|source| read(source, &options));
    read.map_err(|error| error.in_file(path))
}

/// Reads the order in the content that `reader` returns, for example a byte slice.
///
/// `options.format` does not matter. `reader` must not start parallel work with rayon, since other threads
/// wait for it.
///
/// # Cost
/// About one pass over the text on all threads; memory follows what was really read.
///
/// # Errors
/// - [`ReadError::Io`] if reading or decompressing fails;
/// - [`ReadError::Malformed`] for a first line that is another one, a row that is no number, not below the number
///   of rows or came before, and for more or fewer rows than the first line says;
/// - [`ReadError::Unsupported`] for another version of the format;
/// - [`ReadError::Limit`] if there are more rows or bytes than `options.limits` allows.
///
/// # Examples
/// ```
/// use windrow_formats::io;
///
/// let text = b"# windrow-permutation 1 3\n2\n0\n1\n";
/// let order = io::read_permutation_from(&text[..], &io::ReadOptions::default())?;
/// assert_eq!(order.new_to_old(), [2, 0, 1]);
/// # Ok::<(), io::ReadError>(())
/// ```
pub fn read_permutation_from(
    reader: impl Read + Send,
    options: &ReadOptions<'_>,
) -> Result<Permutation, ReadError> {
    read(Source::new(reader, None, options)?, options)
}

fn read(source: Source<'_>, options: &ReadOptions<'_>) -> Result<Permutation, ReadError> {
    let mut text = TextSource::new(source.reader, options.limits);
    let first = text.take_line()?.unwrap_or_default();
    let (version, rows) = header(Line::new(&first)).map_err(|fault| fault.at_line(1))?;
    if version != VERSION {
        return Err(ReadError::Unsupported {
            place: "line 1".to_owned(),
            what: format!("version {version} of the format"),
            remedy: "make the file again with this version of windrow",
        });
    }
    let (rows, _) = options.limits.check_shape("line 1", rows, 0)?;
    let promised = || format!("{rows} rows, as line 1 says");
    let too_many = |line| Fault::new(1, promised(), "one more").at_line(line);
    let records = parse_records(text, &OldRows { rows }, u64::from(rows), too_many)?;
    if records.count < u64::from(rows) {
        let found = format!("the end of the file after {}", records.count);
        return Err(Fault::new(1, promised(), found).at_line(records.lines + 1));
    }
    let permutation = Permutation::try_from_new_to_old(try_concat(&records.blocks, "an order")?);
    permutation.map_err(|error| match error {
        FormatError::PermutationDuplicate { position, found, first } => {
            let expected = format!("a row that is not in line {}", line_of(&records, first));
            Fault::new(1, expected, format!("`{found}`")).at_line(line_of(&records, position))
        }
        other => other.into(),
    })
}

/// Version and number of rows in the first line.
fn header(mut line: Line<'_>) -> Result<(u64, u64), Fault> {
    let expected = || format!("`# {MAGIC} {VERSION}` and the number of rows");
    for want in ["#", MAGIC] {
        let token = line.expect(expected)?;
        if token.bytes != want.as_bytes() {
            return Err(token.fault(expected()));
        }
    }
    let version = line.unsigned("the format's version", 0..=u64::MAX - 1)?;
    if version != VERSION {
        return Ok((version, 0));
    }
    let rows = line.unsigned("the number of rows", 0..=u64::from(u32::MAX))?;
    line.end()?;
    Ok((version, rows))
}

/// Line of the row at `position`, from 1.
fn line_of(records: &AllRecords<Vec<u32>>, mut position: usize) -> u64 {
    for (number, block) in records.blocks.iter().enumerate() {
        if position < block.len() {
            return records.line_in_block(number, position as u64);
        }
        position -= block.len();
    }
    records.lines
}

struct OldRows {
    rows: u32,
}

impl Records for OldRows {
    type Block = Vec<u32>;
    type Closed = Vec<u32>;
    const COMMENT: u8 = COMMENT;

    #[inline]
    fn plain(&self, text: &[u8], at: usize, block: &mut Vec<u32>) -> Option<usize> {
        let (row, at) = scan_index(text, at)?;
        let next = line_end(text, at)?;
        block.push(u32::try_from(row).ok().filter(|&row| row < self.rows)?);
        Some(next)
    }

    fn careful(&self, mut line: Line<'_>, block: &mut Vec<u32>) -> Result<(), Fault> {
        let expected = || match self.rows {
            0 => "the end of the file, since there are 0 rows".to_owned(),
            rows => format!("an old row from 0 to {}", rows - 1),
        };
        let token = line.expect(expected)?;
        let row = parse_unsigned(token.bytes).and_then(|row| u32::try_from(row).ok());
        let row = row.filter(|&row| row < self.rows).ok_or_else(|| token.fault(expected()))?;
        line.end()?;
        block.push(row);
        Ok(())
    }

    fn make_room(&self, block: &mut Vec<u32>, bytes: usize) -> Result<(), OutOfMemory> {
        // The shortest line is `0` and its end.
        make_room(block, bytes / 2 + 1, "entries")
    }

    fn close(&self, block: &mut Vec<u32>) -> Result<Vec<u32>, OutOfMemory> {
        let closed = try_copy(block, "entries")?;
        block.clear();
        Ok(closed)
    }
}

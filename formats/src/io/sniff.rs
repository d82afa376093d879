//! Finds out a format from the content.

use std::io::{Cursor, Read};

use flate2::bufread::MultiGzDecoder;

use super::line::{Line, excerpt};
use super::metis::is_metis;
use super::number::{parse_f64, parse_unsigned};
use super::source::{BYTE_ORDER_MARK, GZIP_MAGIC, read_all, room_for_inflate};
use super::{Format, Limits, ReadError, foreign, matrix_market, npz, safetensors};

/// First bytes of a zip archive that has members.
pub(super) const ZIP_MAGIC: &[u8] = b"PK\x03\x04";
/// Most bytes decompressed to look at.
const SNIFFED_BYTES: u64 = 1 << 16;
/// The same, of text that is there already.
const BEGINNING_BYTES: usize = 1 << 16;
const METIS: &str = "it is a METIS graph, whose lines list the neighbours of a vertex, from 1; write it as Matrix Market or \
                     with an edge a line, ids from 0. If these lines are edges all the same, set ReadOptions::format";

/// The format of a file with this content.
///
/// `content` is the whole file for archives; for text its beginning is enough. Gzip is seen through: of text the first
/// 64 KiB are decompressed, of an archive as much as [`Limits::of_machine`] allows.
/// File names do not matter.
///
/// # Errors
/// [`ReadError::UnknownFormat`], which says what the content looks like; for gzip [`ReadError::Io`] if it is damaged,
/// [`ReadError::Limit`] for an archive beyond the limits, and [`FormatError::OutOfMemory`](crate::FormatError).
///
/// # Examples
/// ```
/// use windrow_formats::io::{Format, sniff};
///
/// assert_eq!(sniff(b"%%matrixmarket matrix coordinate real general\n1 1 0\n")?, Format::MatrixMarket);
/// assert_eq!(sniff(b"# a graph\n0\t1\n")?, Format::EdgeList);
/// assert_eq!(sniff(b"2, 3, 1\n0 1 1\n2\n")?, Format::Smtx);
/// # Ok::<(), windrow_formats::io::ReadError>(())
/// ```
pub fn sniff(content: &[u8]) -> Result<Format, ReadError> {
    sniff_within(content, &Limits::of_machine())
}

fn sniff_within(content: &[u8], limits: &Limits) -> Result<Format, ReadError> {
    if !content.starts_with(GZIP_MAGIC) {
        return match sniff_prefix(content)? {
            Sniffed::Archive => npz::sniff(Cursor::new(content)),
            Sniffed::Text(format) => Ok(format),
        };
    }
    room_for_inflate()?;
    let mut reader = MultiGzDecoder::new(content);
    let mut prefix = Vec::new();
    reader.by_ref().take(SNIFFED_BYTES).read_to_end(&mut prefix)?;
    match sniff_prefix(&prefix)? {
        Sniffed::Archive => {
            let content = read_all(prefix.chain(reader), limits)?;
            npz::sniff(Cursor::new(&content))
        }
        Sniffed::Text(format) => Ok(format),
    }
}

/// What the first bytes tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sniffed {
    /// A zip archive; its members tell the format.
    Archive,
    /// Text, or tensors behind a header of text.
    Text(Format),
}

/// What the first bytes of decompressed content tell.
pub(super) fn sniff_prefix(prefix: &[u8]) -> Result<Sniffed, ReadError> {
    if prefix.starts_with(ZIP_MAGIC) {
        return Ok(Sniffed::Archive);
    }
    if safetensors::begins(prefix) {
        return Ok(Sniffed::Text(Format::Safetensors));
    }
    let unknown = |found: String| Err(ReadError::UnknownFormat { found });
    let text = prefix.strip_prefix(BYTE_ORDER_MARK).unwrap_or(prefix);
    let banner = text.get(..matrix_market::BANNER.len());
    if banner.is_some_and(|start| start.eq_ignore_ascii_case(matrix_market::BANNER)) {
        return Ok(Sniffed::Text(Format::MatrixMarket));
    }
    for (magic, what) in [
        (&b"\x93NUMPY"[..], "it is one NumPy array; save a sparse matrix with scipy.sparse.save_npz"),
        (b"\x89HDF\r\n", "it is an HDF5 file; in Python, write it with scipy.sparse.save_npz"),
        (b"MATLAB 5.0", "it is a MATLAB file; in Python, load it with scipy.io.loadmat and write a .mtx"),
        (b"PK\x05\x06", "it is a zip archive without members"),
        (GZIP_MAGIC, "it is gzip inside of gzip; decompress it once"),
        (b"BZh", "it is compressed with bzip2; decompress it first"),
        (b"\xfd7zXZ", "it is compressed with xz; decompress it first"),
        (b"\x28\xb5\x2f\xfd", "it is compressed with zstd; decompress it first"),
    ] {
        if prefix.starts_with(magic) {
            return unknown(what.to_owned());
        }
    }
    if let Some(what) = foreign::by_beginning(prefix) {
        return unknown(format!("it is {what}"));
    }
    if text.trim_ascii_start().starts_with(b"{") {
        let what = "it is JSON; if it is the index of a model, name one of the files that it names";
        return unknown(what.to_owned());
    }

    let is_whole = (prefix.len() as u64) < SNIFFED_BYTES;
    let beginning = &text[..text.len().min(BEGINNING_BYTES)];
    let mut comments = false;
    for (number, text) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let mut line = Line::new(text);
        let first = match line.token() {
            None => continue,
            Some(token) if token.bytes[0] == b'#' => {
                comments = true;
                continue;
            }
            Some(token) => token,
        };
        if first.bytes.eq_ignore_ascii_case(matrix_market::BANNER) {
            return Ok(Sniffed::Text(Format::MatrixMarket));
        }
        if !comments && is_metis(beginning, is_whole) {
            return unknown(METIS.to_owned());
        }
        if let Some(modes) = tensor_modes(text) {
            return unknown(format!(
                "line {} has {modes} indices and a value, like a FROSTT tensor and unlike a matrix; io::read_tns \
                 reads those with three",
                number + 1
            ));
        }
        return match numbers(text) {
            Some((3, true)) => Ok(Sniffed::Text(Format::Smtx)),
            Some((2.., false)) => Ok(Sniffed::Text(Format::EdgeList)),
            _ => unknown(format!("line {} starts with {}", number + 1, excerpt(first.bytes))),
        };
    }
    match (comments, prefix.is_empty()) {
        (true, _) => Ok(Sniffed::Text(Format::EdgeList)),
        (false, true) => unknown("it is empty".to_owned()),
        (false, false) => unknown("it has no text but blank lines".to_owned()),
    }
}

/// How many numbers the line holds and whether there are commas between them; `None` unless it starts with
/// two unsigned integers.
fn numbers(text: &[u8]) -> Option<(usize, bool)> {
    let mut words = Line::with_commas(text);
    parse_unsigned(words.token()?.bytes)?;
    parse_unsigned(words.token()?.bytes)?;
    let more = std::iter::from_fn(|| words.token()).count();
    Some((2 + more, text.contains(&b',')))
}

/// How many modes a tensor has whose entry this line is; `None` for fewer than three, as edges have a value too.
fn tensor_modes(text: &[u8]) -> Option<usize> {
    let mut words = Line::new(text);
    // A word is an index if another follows. The line may be all of a file, so no list is made of it.
    let (mut last, mut indices) = (words.token()?, 0);
    while let Some(next) = words.token() {
        parse_unsigned(last.bytes)?;
        (last, indices) = (next, indices + 1);
    }
    parse_f64(last.bytes)?;
    (indices >= 3).then_some(indices)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    /// What is compressed a thousandfold is not decompressed to the end.
    #[test]
    fn gzip_is_seen_through_within_limits() {
        let limits = Limits { max_bytes: 1 << 20, ..Limits::default() };
        let after = |beginning: &[u8]| gzip(&[beginning, &[0; 4 << 20]].concat());
        assert_eq!(sniff_within(&after(b"0 1\n"), &limits).unwrap(), Format::EdgeList);
        match sniff_within(&after(ZIP_MAGIC), &limits).unwrap_err() {
            ReadError::Limit { found, limit, field, .. } => {
                assert_eq!((found, limit, field), ((1 << 20) + 1, 1 << 20, "max_bytes"));
            }
            error => panic!("{error}"),
        }
    }

    #[test]
    fn a_tensor_has_indices_and_a_value() {
        let modes = |text: &str| tensor_modes(text.as_bytes());
        assert_eq!([modes("1 2 3 0.5"), modes("1 2 3 4 5 6"), modes("1 2 0.5")], [Some(3), Some(5), None]);
        assert_eq!([modes("1 2.5 3 4"), modes("1 2 3 x"), modes("1"), modes("")], [None; 4]);
    }
}

//! Where bytes come from: files and readers, gzip seen through, progress told.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::{Limits, ReadError, ReadOptions, Stage};
use crate::OutOfMemory;
use crate::memory::{try_copy, try_with_room};

/// Bytes looked at to find out the format.
const SNIFFED_BYTES: u64 = 1 << 16;
/// First bytes of gzip (RFC 1952, section 2.3.1).
pub(super) const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// What some editors put in front of a text; it is no part of it.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Bytes read between two calls of the progress function.
const PROGRESS_BYTES: u64 = 1 << 20;
/// Buffer between the file and the decompression.
const GZIP_BUFFER: usize = 1 << 17;

/// The content of a file or reader, seen through gzip and counted against the limit.
pub(super) struct Source<'a> {
    pub(super) reader: Box<dyn Read + Send + 'a>,
    /// The first bytes of what `reader` returns, at most [`SNIFFED_BYTES`].
    pub(super) prefix: Vec<u8>,
    pub(super) gzip: bool,
}

impl<'a> Source<'a> {
    /// The content of `reader`, which has `total` bytes if that is known.
    pub(super) fn new(
        reader: impl Read + Send + 'a,
        total: Option<u64>,
        options: &ReadOptions<'a>,
    ) -> Result<Self, ReadError> {
        let mut reader = Told { reader, options: *options, done: 0, told: 0, total };
        let stored = prefix_of(&mut reader)?;
        let gzip = stored.starts_with(GZIP_MAGIC);
        if !gzip {
            return Self::with_prefix(stored, reader, gzip);
        }
        room_for_inflate()?;
        let reader = io::Cursor::new(stored).chain(reader);
        let mut reader = MultiGzDecoder::new(BufReader::with_capacity(GZIP_BUFFER, reader));
        let prefix = prefix_of(&mut reader)?;
        Self::with_prefix(prefix, reader, gzip)
    }

    fn with_prefix(mut prefix: Vec<u8>, rest: impl Read + Send + 'a, gzip: bool) -> Result<Self, ReadError> {
        if prefix.starts_with(BYTE_ORDER_MARK) {
            prefix.drain(..BYTE_ORDER_MARK.len());
        }
        let again = try_copy(&prefix, "the start of the file")?;
        Ok(Self { reader: Box::new(io::Cursor::new(again).chain(rest)), prefix, gzip })
    }

    /// The content of the file at `path`.
    pub(super) fn open(path: &Path, options: &ReadOptions<'a>) -> Result<Self, ReadError> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory").into());
        }
        let total = Some(metadata.len()).filter(|_| metadata.is_file());
        Self::new(file, total, options)
    }
}

/// Whether there is memory for the state of a decoder and its buffer, which do not grow with what is read. As for
/// writers: the crate that inflates ends the process without it, and cannot be asked.
pub(super) fn room_for_inflate() -> Result<(), OutOfMemory> {
    /// Bytes of both, and some more.
    const INFLATE_BYTES: usize = 1 << 19;
    try_with_room::<u8>(INFLATE_BYTES, "the decoder of deflate").map(drop)
}

fn prefix_of(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut prefix = Vec::new();
    reader.take(SNIFFED_BYTES).read_to_end(&mut prefix)?;
    Ok(prefix)
}

/// Appends all that `reader` has, and says how much that is. Where memory runs out for it, as many bytes are told as
/// the vector then asks for: twice those that it has room for.
pub(super) fn read_to_end(mut reader: impl Read, to: &mut Vec<u8>) -> Result<usize, ReadError> {
    reader.read_to_end(to).map_err(|error| match error.kind() {
        io::ErrorKind::OutOfMemory => {
            OutOfMemory { what: "what is read", bytes: 2 * to.capacity() as u64 }.into()
        }
        _ => error.into(),
    })
}

/// Everything that `reader` has, if that is within the limits.
pub(super) fn read_all(reader: impl Read, limits: &Limits) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    read_to_end(reader.take(limits.max_bytes.saturating_add(1)), &mut bytes)?;
    let read = bytes.len() as u64;
    if read > limits.max_bytes {
        return Err(limits.too_many_bytes(read));
    }
    Ok(bytes)
}

/// A reader that tells how much was read of it.
struct Told<'a, R> {
    reader: R,
    options: ReadOptions<'a>,
    done: u64,
    /// `done` when the progress was last told.
    told: u64,
    total: Option<u64>,
}

impl<R: Read> Read for Told<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.done += read as u64;
        let finished = read == 0 && self.told < self.done;
        if finished || self.done - self.told >= PROGRESS_BYTES {
            self.told = self.done;
            self.options.tell(Stage::Reading, self.done, self.total);
        }
        Ok(read)
    }
}

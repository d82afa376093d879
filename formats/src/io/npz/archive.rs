//! The zip archive around the arrays.

use std::io::{self, Read, Seek, SeekFrom};

use zip::ZipArchive;
use zip::result::ZipError;

use super::super::line::excerpt;
use super::super::source::room_for_inflate;
use super::super::{Format, Limits, ReadError};
use super::array::Array;
use crate::memory::{index, try_with_room};

/// A zip archive of which at most so many bytes are decompressed.
pub(super) struct Archive<R> {
    zip: ZipArchive<R>,
    max_bytes: u64,
    bytes_read: u64,
}

impl<R: Read + Seek> Archive<R> {
    pub(super) fn open(mut reader: R, max_bytes: u64) -> Result<Self, ReadError> {
        let bytes = bytes_of_directory(&mut reader)?;
        try_with_room::<u8>(index(bytes), "the directory of an archive")?;
        let zip = ZipArchive::new(reader).map_err(|error| damaged("archive", &error))?;
        Ok(Self { zip, max_bytes, bytes_read: 0 })
    }

    /// Bytes decompressed up to now.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    fn has(&self, array: &str) -> bool {
        self.zip.index_for_name(&file_name(array)).is_some()
    }

    /// Whether its members are called as those of `torch.save` are.
    pub(super) fn is_of_torch(&self) -> bool {
        self.zip.file_names().any(|name| name.ends_with("/data.pkl"))
    }

    /// The format, from the names of the arrays.
    pub(super) fn format(&self) -> Result<Format, ReadError> {
        if self.has("format") {
            return Ok(Format::ScipyNpz);
        }
        if self.has("src_li") {
            return Ok(Format::TcGnnNpz);
        }
        if self.is_of_torch() {
            let found = "it is a file of torch.save; in Python, safetensors.torch.save_file writes tensors";
            return Err(ReadError::UnknownFormat { found: found.to_owned() });
        }
        let mut names: Vec<_> = self.zip.file_names().take(6).map(|name| excerpt(name.as_bytes())).collect();
        if self.zip.len() > names.len() {
            names.push("…".to_owned());
        }
        let found = format!("it is a zip archive of {}, without format.npy or src_li.npy", names.join(", "));
        Err(ReadError::UnknownFormat { found })
    }

    /// The array called `name`; `None` if there is none.
    pub(super) fn optional(&mut self, name: &str) -> Result<Option<Array>, ReadError> {
        let file = file_name(name);
        let allowed = self.max_bytes.saturating_sub(self.bytes_read);
        room_for_inflate()?;
        let mut bytes = Vec::new();
        let member = match self.zip.by_name(&file) {
            Ok(member) => member,
            Err(ZipError::FileNotFound) => return Ok(None),
            Err(error) => return Err(damaged(&file, &error)),
        };
        // The size that the archive declares is not looked at: what is read decides.
        let read = member.take(allowed.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|error| damaged(&file, &error))?;
        self.bytes_read += bytes.len() as u64;
        if bytes.len() as u64 > allowed {
            let limits = Limits { max_bytes: self.max_bytes, ..Limits::default() };
            return Err(limits.too_many_bytes(self.bytes_read));
        }
        Array::parse(file, bytes).map(Some)
    }

    /// The array called `name`.
    pub(super) fn array(&mut self, name: &str) -> Result<Array, ReadError> {
        let array = self.optional(name)?;
        array.ok_or_else(|| ReadError::archive("archive", format!("an array {name}"), "none of that name"))
    }
}

/// Bytes that the directory of the archive takes as it is kept, at most; the crate that reads it ends the process
/// without them.
fn bytes_of_directory(reader: &mut (impl Read + Seek)) -> io::Result<u64> {
    /// The record at the end (APPNOTE.TXT, section 4.3.16): its least length, its signature, and the longest comment
    /// behind it.
    const RECORD: usize = 22;
    const SIGNATURE: &[u8] = b"PK\x05\x06";
    const COMMENT: u64 = u16::MAX as u64;
    /// What each member takes beside names and fields, which are kept up to three times.
    const MEMBER: u64 = 1 << 10;
    const NAMED: u64 = 4;
    /// The least length of a member in the directory.
    const LEAST: u64 = 46;
    let len = reader.seek(SeekFrom::End(0))?;
    let tail = len.min(RECORD as u64 + COMMENT);
    reader.seek(SeekFrom::Start(len - tail))?;
    let mut end = Vec::new();
    reader.take(tail).read_to_end(&mut end)?;
    // A comment may look like one.
    let records = end.windows(RECORD).filter(|record| record.starts_with(SIGNATURE));
    let most = records.map(|record| {
        let members = u16::from_le_bytes([record[10], record[11]]);
        let bytes = u32::from_le_bytes([record[12], record[13], record[14], record[15]]);
        // The largest numbers stand for such as are elsewhere.
        let bytes = if bytes == u32::MAX { len } else { len.min(bytes.into()) };
        let members = if members == u16::MAX { bytes / LEAST } else { u64::from(members).min(bytes / LEAST) };
        MEMBER.saturating_mul(members).saturating_add(NAMED.saturating_mul(bytes))
    });
    Ok(most.max().unwrap_or(0))
}

fn file_name(array: &str) -> String {
    format!("{array}.npy")
}

fn damaged(member: &str, error: &(impl std::error::Error + 'static)) -> ReadError {
    let member = member.to_owned();
    let error: &(dyn std::error::Error + 'static) = error;
    // A reader that fails is not the archive's fault.
    match error.downcast_ref::<io::Error>() {
        Some(io) if io.kind() == io::ErrorKind::OutOfMemory => {
            ReadError::Io(io::ErrorKind::OutOfMemory.into())
        }
        _ => ReadError::archive(member, "an undamaged zip archive", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive that says of its directory how many members and bytes it has, of a megabyte in all.
    fn archive(members: u16, bytes: u32, comment: &[u8]) -> io::Cursor<Vec<u8>> {
        let mut content = vec![0; (1 << 20) - 22 - comment.len()];
        content.extend(b"PK\x05\x06\0\0\0\0\0\0");
        content.extend(members.to_le_bytes());
        content.extend(bytes.to_le_bytes());
        content.extend([0; 6]);
        content.extend(comment);
        io::Cursor::new(content)
    }

    #[test]
    fn room_for_a_directory_follows_from_its_members() {
        let room = |members, bytes| bytes_of_directory(&mut archive(members, bytes, b"")).unwrap();
        assert_eq!(room(3, 200), 3 * 1024 + 4 * 200);
        assert_eq!(room(100, 200), 4 * 1024 + 4 * 200, "four have a place in so many bytes");
        let most = (1 << 20) / 46 * 1024 + (4 << 20);
        assert_eq!(room(u16::MAX, u32::MAX), most, "the numbers are elsewhere");
        // A comment of which nobody can tell that it is none of a directory.
        let record = &archive(7, 700, b"").into_inner()[(1 << 20) - 22..];
        let with = |comment: &[u8]| bytes_of_directory(&mut archive(3, 200, comment)).unwrap();
        assert_eq!([with(b"PK"), with(record)], [3 * 1024 + 800, 7 * 1024 + 2800]);
        assert_eq!(bytes_of_directory(&mut io::Cursor::new(b"PK\x05\x06")).unwrap(), 0);
    }
}

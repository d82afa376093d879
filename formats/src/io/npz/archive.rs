//! The zip archive around the arrays.

use std::io::{self, Read, Seek};

use zip::ZipArchive;
use zip::result::ZipError;

use super::super::line::excerpt;
use super::super::source::room_for_inflate;
use super::super::{Format, Limits, ReadError};
use super::array::Array;

/// A zip archive of which at most so many bytes are decompressed.
pub(super) struct Archive<R> {
    zip: ZipArchive<R>,
    max_bytes: u64,
    bytes_read: u64,
}

impl<R: Read + Seek> Archive<R> {
    pub(super) fn open(reader: R, max_bytes: u64) -> Result<Self, ReadError> {
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

    /// The format, from the names of the arrays.
    pub(super) fn format(&self) -> Result<Format, ReadError> {
        if self.has("format") {
            return Ok(Format::ScipyNpz);
        }
        if self.has("src_li") {
            return Ok(Format::TcGnnNpz);
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

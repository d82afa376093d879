//! Files of the user's cache folder: read without trust, written whole, changed by one process at a time.
//!
//! Beside `NAME.json` there may be `NAME.json.lock`, which who changes the file holds meanwhile, and
//! `NAME.json.broken`, what was there before when it could not be read.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use windrow_formats::io::{WriteError, printable, replace_file};

use crate::device::Device;
use crate::num::wide;

/// Bytes of a file, at most: ten thousand tuned products.
const MOST_BYTES: u64 = 1 << 24;
/// Bytes of what is wrong in a file that a message has, at most: the file chooses the names that it quotes.
const MOST_REASON_BYTES: usize = 400;

/// `windrow/KIND-MODEL.json` in the user's cache folder, or in the folder that `WINDROW_CACHE_DIR` names; `None` where
/// there is neither.
pub(crate) fn path(device: &Device, kind: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("WINDROW_CACHE_DIR") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => dirs::cache_dir()?.join("windrow"),
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let model: String = device.name().chars().map(plain).collect();
    Some(folder.join(format!("{kind}-{model}.json")))
}

/// The text of a file; `None` if there is none. What is no regular file is an error at once: nobody waits for the
/// writer of a pipe.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    let mut options = OpenOptions::new();
    options.read(true);
    let file = match without_waiting(&mut options).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut text = String::new();
    file.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    check_size(&text)?;
    Ok(Some(text))
}

/// What is wrong in the text of a file, for people.
pub(crate) fn reason(error: &serde_json::Error) -> String {
    let mut reason = printable(error.to_string());
    if reason.len() > MOST_REASON_BYTES {
        reason.truncate(reason.floor_char_boundary(MOST_REASON_BYTES));
        // The place is at the end of what was cut off; there is none in a value that was parsed before.
        let (line, column) = (error.line(), error.column());
        reason += &if line > 0 { format!("… at line {line} column {column}") } else { "…".to_owned() };
    }
    reason
}

fn check_size(text: &str) -> io::Result<()> {
    match wide(text.len()) <= MOST_BYTES {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than the {MOST_BYTES} bytes that are read"),
        )),
    }
}

/// Opening a pipe does not wait for its other end.
fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NONBLOCK);
    options
}

/// Makes the folder of `path` if there is none, and finds out whether files can be made in it.
pub(crate) fn prepare(path: &Path) -> io::Result<()> {
    lock(path)?;
    tempfile::tempfile_in(folder_of(path)).map(drop)
}

/// Waits until no one else changes `path`, and keeps others from it until the result is dropped.
///
/// File systems that have no locks do without: the file is whole there too, but of two that change it at once one
/// change may be lost.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    fs::create_dir_all(folder_of(path))?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = without_waiting(&mut options).open(beside(path, ".lock"))?;
    match file.lock() {
        Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(error),
        _ => Ok(file),
    }
}

/// Moves what cannot be read out of the way; where that fails, it is written over.
pub(crate) fn set_aside(path: &Path) {
    let _ = fs::rename(path, beside(path, ".broken"));
}

/// Writes a file whole: who reads finds what was there before, or all of `text`.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    check_size(text)?;
    // What is no regular file would be written as it is, and a pipe waits for its reader.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    replace_file(path, |writer| Ok(writer.write_all(text.as_bytes())?)).map_err(|error| match error {
        WriteError::InFile { source, .. } => match *source {
            WriteError::Io(error) => error,
            other => io::Error::other(other),
        },
        other => io::Error::other(other),
    })
}

/// The folder that a file is in; the working folder for a bare name.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

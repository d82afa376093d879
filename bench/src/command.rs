//! What the programs of this crate have in common: matrices, the device, results and their summary, and exit codes.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::de::DeserializeOwned;
use windrow::synthetic::Synthetic;
use windrow::{Device, DeviceSelector};

use crate::sweep::MatrixSource;

/// Why a program ends, as its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All right.
    Right = 0,
    /// A result is wrong.
    Wrong = 1,
    /// The command line says nothing that can be done.
    Usage = 2,
    /// A file could not be read or written.
    File = 3,
    /// There is no such device.
    NoDevice = 4,
    /// Something failed otherwise.
    Failed = 5,
}

impl Exit {
    /// The worst that happened, of so many wrong results, unreadable files and other failures.
    #[must_use]
    pub fn worst(wrong: u64, unreadable: u64, failed: u64) -> Self {
        match (wrong, unreadable, failed) {
            (1.., ..) => Self::Wrong,
            (_, 1.., _) => Self::File,
            (.., 1..) => Self::Failed,
            _ => Self::Right,
        }
    }
}

/// What ends a program before its end.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What to tell the user.
    pub message: String,
}

impl Failure {
    /// A failure that ends in `exit`.
    pub fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: message.to_string() }
    }

    /// A failure with a file.
    pub fn file(path: &Path, error: impl Display) -> Self {
        Self::new(Exit::File, format!("{}: {error}", path.display()))
    }
}

/// What a program returns in the end; a failure is told on standard error.
pub fn end(result: Result<Exit, Failure>) -> ExitCode {
    ExitCode::from(result.unwrap_or_else(|failure| {
        eprintln!("error: {}", failure.message);
        failure.exit
    }) as u8)
}

/// Files and made-up matrices, in this order.
///
/// # Errors
/// [`Exit::Usage`] if there are none.
pub fn sources(files: &[PathBuf], synthetic: &[Synthetic]) -> Result<Vec<MatrixSource>, Failure> {
    let files = files.iter().cloned().map(MatrixSource::File);
    let sources: Vec<_> = files.chain(synthetic.iter().copied().map(MatrixSource::Synthetic)).collect();
    match sources.is_empty() {
        true => Err(Failure::new(Exit::Usage, "no matrix: name files, or made-up ones with --synthetic")),
        false => Ok(sources),
    }
}

/// Opens the device.
///
/// # Errors
/// [`Exit::NoDevice`].
pub fn open(device: DeviceSelector) -> Result<Device, Failure> {
    device.open().map_err(|error| {
        // The library's remedy names its function; here it is an option.
        Failure::new(Exit::NoDevice, error.to_string().replace("`Device::cpu()`", "`--device cpu`"))
    })
}

/// The file to write, or standard output.
///
/// # Errors
/// [`Exit::File`].
pub fn output(path: Option<&Path>) -> Result<Box<dyn Write>, Failure> {
    Ok(match path {
        Some(path) => {
            Box::new(BufWriter::new(File::create(path).map_err(|error| Failure::file(path, error))?))
        }
        None => Box::new(io::stdout()),
    })
}

/// The text of a file.
///
/// # Errors
/// [`Exit::File`].
pub fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::file(path, error))
}

/// The records of results, one JSON object on a line, file after file.
///
/// # Errors
/// [`Exit::File`] for the first line that is no such record, with its number.
pub fn records<R: DeserializeOwned>(files: &[PathBuf]) -> Result<Vec<R>, Failure> {
    let mut records = Vec::new();
    for path in files {
        for (number, line) in (1..).zip(read(path)?.lines()) {
            let record = serde_json::from_str(line);
            records.push(record.map_err(|error| Failure::file(path, format!("line {number}: {error}")))?);
        }
    }
    Ok(records)
}

/// Writes what `summarise` says of the records in `files`.
///
/// # Errors
/// [`Exit::Usage`] if there are no files, [`Exit::File`].
pub fn write_summary<R: DeserializeOwned>(
    files: &[PathBuf],
    out: Option<&Path>,
    summarise: impl FnOnce(&[R]) -> String,
) -> Result<(), Failure> {
    if files.is_empty() {
        return Err(Failure::new(Exit::Usage, "no results; name the files that --out wrote"));
    }
    let text = summarise(&records(files)?);
    let mut out = output(out)?;
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Failure::new(Exit::File, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_from_all_files() {
        let file = |name: &str, text: &str| {
            let path = std::env::temp_dir().join(format!("windrow-bench-test-{}-{name}", std::process::id()));
            std::fs::write(&path, text).unwrap();
            path
        };
        let (two, one) = (file("two.jsonl", "1\n2\n"), file("one.jsonl", "3\n"));
        let wrong = file("wrong.jsonl", "4\nfive\n");
        assert_eq!(records::<u32>(&[two.clone(), one.clone()]).unwrap(), [1, 2, 3]);
        let failure = records::<u32>(&[two.clone(), wrong.clone()]).unwrap_err();
        let told = format!("{}: line 2: expected ident at line 1 column 2", wrong.display());
        assert_eq!((failure.exit, failure.message), (Exit::File, told));
        for path in [two, one, wrong] {
            std::fs::remove_file(path).unwrap();
        }
    }
}

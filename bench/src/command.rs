//! What the programs of this crate have in common: matrices, the device, the output, and exit codes.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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

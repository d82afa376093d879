//! Reading and writing matrices, with progress bars and limits.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use windrow::io::{self, Format, Limits, ReadOptions, ReadReport, WriteOptions};
use windrow::{Csr, Device, DeviceKind, Profile, Tuned, Value};

use crate::args::ReadArgs;
use crate::console::{Console, tell};
use crate::failure::{Failure, Result};
use crate::units;

/// The name of a file that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Reads the matrix at `path` within the limits of `args`.
pub(crate) fn read<V: Value>(path: &Path, args: &ReadArgs, console: Console) -> Result<(Csr<V>, ReadReport)> {
    let limits = Limits {
        max_rows: args.max_rows,
        max_nnz: args.max_nnz,
        max_bytes: args.max_bytes,
        ..Limits::default()
    };
    let bar = console.bytes_bar("reading");
    let show = |progress| tell(&bar, progress);
    let options = ReadOptions { limits, progress: Some(&show), format: args.from };
    let outcome = if path.as_os_str() == STANDARD_INPUT {
        io::read_csr_from(std::io::stdin(), &options)
            .map_err(|error| Failure::from(error).with_context("standard input"))
    } else {
        io::read_csr_with_report(path, &options).map_err(Failure::from)
    };
    bar.finish_and_clear();
    outcome
}

/// Input and output under one name would leave neither if writing fails.
pub(crate) fn refuse_same_file(input: &Path, output: &Path) -> Result<()> {
    match (input.canonicalize(), output.canonicalize()) {
        (Ok(from), Ok(to)) if from == to => {
            let path = output.display();
            Err(Failure::usage(format!("{path} is the input too; write to another file")))
        }
        _ => Ok(()),
    }
}

/// A file that was written. `Display` prints one line.
#[derive(Debug, Serialize)]
pub(crate) struct Written {
    pub(crate) output: String,
    #[serde(serialize_with = "format_name")]
    pub(crate) format: Format,
    pub(crate) gzip: bool,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) nnz: usize,
    /// Values other than 1 that the format has no place for.
    pub(crate) values_dropped: u64,
    /// Size of the file.
    pub(crate) bytes: u64,
}

fn format_name<S: serde::Serializer>(format: &Format, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(format.name())
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} × {}, {} entries, {}{}, {}",
            self.output,
            units::count(self.rows),
            units::count(self.cols),
            units::count(self.nnz),
            self.format.name(),
            if self.gzip { " with gzip" } else { "" },
            units::bytes(self.bytes)
        )
    }
}

/// Writes `a` to `path`, in the format that `to` or the name tells, and says so if values were lost.
pub(crate) fn write<V: Value>(
    path: &Path,
    a: &Csr<V>,
    to: Option<Format>,
    console: Console,
) -> Result<Written> {
    let bar = console.bytes_bar("writing");
    let outcome = io::write_csr(
        path,
        a,
        &WriteOptions { format: to, progress: Some(&|progress| tell(&bar, progress)), gzip: None },
    );
    bar.finish_and_clear();
    let report = outcome?;
    if report.values_dropped > 0 {
        console.note(format_args!(
            "note: {} values other than 1 were left out, since {} holds the pattern only; .mtx, .npz and .txt keep them",
            units::count(report.values_dropped),
            report.format,
        ));
    }
    Ok(Written {
        output: path.display().to_string(),
        format: report.format,
        gzip: report.gzip,
        rows: a.rows(),
        cols: a.cols(),
        nnz: a.nnz(),
        values_dropped: report.values_dropped,
        bytes: std::fs::metadata(path).map_or(0, |file| file.len()),
    })
}

/// What was measured on the device's model, else what is built in. A file of it that cannot be used is a note.
pub(crate) fn profile(device: &Device, console: Console) -> Profile {
    // The CPU has no thresholds.
    let kept =
        if device.kind() == DeviceKind::Cpu { None } else { unless_broken(Profile::load(device), console) };
    kept.unwrap_or_else(|| Profile::built_in(device))
}

/// What was tuned on the device's model. A file of it that cannot be used is a note.
pub(crate) fn tuned(device: &Device, console: Console) -> Option<Tuned> {
    unless_broken(Tuned::load(device), console)
}

/// A cache makes a product quicker; a broken one does not stop it.
fn unless_broken<T, E: fmt::Display>(
    loaded: std::result::Result<Option<T>, E>,
    console: Console,
) -> Option<T> {
    loaded.unwrap_or_else(|error| {
        console.note(format_args!("note: {error}; without it for now"));
        None
    })
}

//! Reading and writing matrices, with progress bars and limits.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use windrow::io::{self, Format, ReadOptions, ReadReport, WriteOptions};
use windrow::{Csr, Device, DeviceKind, Profile, Tuned, Value};

use crate::args::ReadArgs;
use crate::console::{Console, tell};
use crate::failure::{Failure, Result};
use crate::output::{self, Output, STANDARD};
use crate::units;

/// Reads the matrix at `path` within the limits of `args`.
pub(crate) fn read<V: Value>(path: &Path, args: &ReadArgs, console: Console) -> Result<(Csr<V>, ReadReport)> {
    let bar = console.bytes_bar("reading");
    let show = |progress| tell(&bar, progress);
    let options = ReadOptions {
        limits: args.limits(),
        progress: Some(&show),
        format: args.from,
        tensor: args.tensor.as_deref(),
    };
    let outcome = if path.as_os_str() == STANDARD {
        io::read_csr_from(std::io::stdin(), &options)
            .map_err(|error| Failure::from(error).with_context("standard input"))
    } else {
        io::read_csr_with_report(path, &options).map_err(Failure::from)
    };
    bar.finish_and_clear();
    if let Ok((_, report)) = &outcome {
        tell_difference(path, report, console);
    }
    outcome
}

/// Says so if a file has not as many entries as it says itself.
fn tell_difference(path: &Path, report: &ReadReport, console: Console) {
    if let Some(stated) = report.entries_stated.filter(|&stated| stated != report.entries_read) {
        console.note(format_args!(
            "note: {} says that it has {} edges, and lists {}: it was cut off, or counts them otherwise",
            io::printable(path),
            units::count(stated),
            units::count(report.entries_read)
        ));
    }
}

/// The number of values of a matrix that are NaN or infinite; a note if there are any.
pub(crate) fn tell_non_finite<V: Value>(a: &Csr<V>, console: Console) -> usize {
    let non_finite = a.values().iter().filter(|value| !value.to_f64().is_finite()).count();
    if non_finite > 0 {
        console.note(format_args!(
            "note: {} of {} values are NaN or infinite",
            units::count(non_finite),
            units::count(a.nnz())
        ));
    }
    non_finite
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

/// How a matrix is written to `output`, as `to` or the name tells.
pub(crate) fn write_options(output: Output<'_>, to: Option<Format>) -> Result<WriteOptions<'static>> {
    let options = WriteOptions { format: to, ..WriteOptions::default() };
    match (output.is_standard(), to) {
        (true, None) => Err(output::no_format()),
        (true, _) => Ok(options),
        (false, _) => Ok(options.for_name(output.path()).map_err(|error| error.in_file(output.path()))?),
    }
}

/// Writes `a` to `output`, and says so if values were lost.
pub(crate) fn write<V: Value>(
    output: Output<'_>,
    a: &Csr<V>,
    options: &WriteOptions<'_>,
    console: Console,
) -> Result<Written> {
    let bar = console.bytes_bar("writing");
    let show = |progress| tell(&bar, progress);
    let options = WriteOptions { progress: Some(&show), ..*options };
    let outcome =
        output.write(|path| io::write_csr(path, a, &options), |stream| io::write_csr_to(stream, a, &options));
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
        output: output.name(),
        format: report.format,
        gzip: report.gzip,
        rows: a.rows(),
        cols: a.cols(),
        nnz: a.nnz(),
        values_dropped: report.values_dropped,
        bytes: output.bytes(),
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

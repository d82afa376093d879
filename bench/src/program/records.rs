//! Files of records: read, checked, gone on with.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use windrow::Device;

use super::{Common, Exit, Failure};
use crate::suites::Suite;
use crate::suites::facts::DeviceFacts;
use crate::suites::record::{Record, SCHEMA, revision};

/// The lines of files, each with its file and its number.
pub(crate) struct Records(Vec<(PathBuf, usize, String)>);

/// What every line has.
#[derive(Deserialize)]
struct Head {
    schema: u32,
    #[serde(default)]
    suite: String,
    #[serde(default)]
    case: String,
    revision: String,
    device: DeviceFacts,
    #[serde(default)]
    error: Option<String>,
}

impl Records {
    /// The lines of files, one after the other.
    ///
    /// # Errors
    /// [`Exit::Usage`] if there are no files, [`Exit::File`] for one that cannot be read.
    pub(crate) fn read(files: &[PathBuf]) -> Result<Self, Failure> {
        if files.is_empty() {
            return Err(Failure::usage("no results; name the files that --out wrote"));
        }
        let mut lines = Vec::new();
        for path in files {
            let text = read(path)?;
            lines.extend(
                (1..).zip(text.lines()).map(|(number, line)| (path.clone(), number, line.to_owned())),
            );
        }
        Ok(Self(lines))
    }

    /// What `parse` makes of each line.
    ///
    /// # Errors
    /// [`Exit::File`] for the first line that it refuses, with its number.
    pub(crate) fn each<T, E: std::fmt::Display>(
        &self,
        mut parse: impl FnMut(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, Failure> {
        let parse = |(path, number, line): &(PathBuf, usize, String)| {
            parse(line).map_err(|error| Failure::file(path, format!("line {number}: {error}")))
        };
        self.0.iter().map(parse).collect()
    }

    /// The records of a suite.
    ///
    /// # Errors
    /// [`Exit::File`] for the first line that is no such record, is another suite's or of another version.
    pub(crate) fn of<S: Suite>(&self) -> Result<Vec<Record<S::Facts>>, Failure> {
        self.each(|line| {
            let head: Head = serde_json::from_str(line).map_err(|error| error.to_string())?;
            if head.schema != SCHEMA {
                return Err(format!(
                    "version {} of the lines' form, this program reads {SCHEMA}",
                    head.schema
                ));
            }
            if !head.suite.is_empty() && head.suite != S::NAME {
                return Err(format!("a record of the suite {}, not of {}", head.suite, S::NAME));
            }
            serde_json::from_str(line).map_err(|error| error.to_string())
        })
    }
}

/// Cases that a file has already.
pub(crate) struct Done(HashSet<String>);

impl Done {
    /// Those without an error, of this device and revision.
    fn of(path: &Path, device: &Device) -> Result<Self, Failure> {
        let heads = Records::read(&[path.to_owned()])?.each(|line| {
            let torn = |error| format!("{error}; remove the line, or leave out --resume");
            serde_json::from_str::<Head>(line).map_err(torn)
        })?;
        let (device, revision) = (DeviceFacts::of(device), revision());
        let same = |head: &Head| head.device == device && head.revision == revision && head.error.is_none();
        Ok(Self(
            heads.into_iter().filter(same).map(|head| format!("{}: {}", head.suite, head.case)).collect(),
        ))
    }

    /// Whether the case of a suite is there.
    pub(crate) fn contains(&self, suite: &str, case: &str) -> bool {
        self.0.contains(&format!("{suite}: {case}"))
    }

    /// How many cases of a suite are there.
    pub(crate) fn count<S: Suite>(&self, suite: &S) -> usize {
        suite.cases().iter().filter(|case| self.contains(S::NAME, &suite.name(case))).count()
    }
}

/// Where records go, and what is there already if the run goes on.
///
/// # Errors
/// [`Exit::File`].
pub(super) fn output(common: &Common, device: &Device) -> Result<(Box<dyn Write>, Done), Failure> {
    let nothing = Done(HashSet::new());
    let Some(path) = &common.out else { return Ok((Box::new(io::stdout()), nothing)) };
    let done = if common.resume && path.exists() { Done::of(path, device)? } else { nothing };
    let file = match common.resume {
        true => OpenOptions::new().create(true).append(true).open(path),
        false => File::create(path),
    };
    Ok((Box::new(BufWriter::new(file.map_err(|error| Failure::file(path, error))?)), done))
}

/// The text of a file.
///
/// # Errors
/// [`Exit::File`].
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::file(path, error))
}

/// Writes text to a file, or to standard output.
///
/// # Errors
/// [`Exit::File`].
pub(crate) fn write(path: Option<&Path>, text: &str) -> Result<(), Failure> {
    match path {
        Some(path) => std::fs::write(path, text).map_err(|error| Failure::file(path, error)),
        None => {
            let mut out = io::stdout();
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            written.map_err(|error| Failure::new(Exit::File, format!("standard output: {error}")))
        }
    }
}

//! Where a command writes its file: under a name, or to standard output.

use std::fs::Metadata;
use std::io::{BufWriter, Write};
use std::path::Path;

use windrow::io::{self, WriteError};

use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{self, Stage};

/// The name of a file that stands for standard input, or output.
pub(crate) const STANDARD: &str = "-";
/// Names that the system has for standard output.
const STANDARD_OUTPUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
/// Bytes collected before standard output is asked to take them.
const BUFFER_BYTES: usize = 1 << 18;

/// A file to be written whole or not at all, or standard output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output<'a> {
    path: &'a Path,
    is_standard: bool,
}

impl<'a> Output<'a> {
    /// What is called `path`, which can be written and is none of `inputs`.
    ///
    /// # Errors
    /// A usage error if it is an input, or if `console` is to write an object to standard output too; the error of the
    /// file if it cannot be made.
    pub(crate) fn of(path: &'a Path, inputs: &[&Path], console: Console) -> Result<Self> {
        let is_standard = is_standard(path);
        let output = Self { path, is_standard };
        output.refuse_inputs(inputs)?;
        if is_standard && console.json {
            let message = "--json and the file cannot both go to standard output; name a file";
            return Err(Failure::usage(message));
        }
        if !is_standard {
            io::check_target(path)?;
            interrupt::enter(Stage::Before);
        }
        Ok(output)
    }

    /// Input and output in one would leave neither if writing fails.
    fn refuse_inputs(self, inputs: &[&Path]) -> Result<()> {
        let Some(own) = regular(self.path, self.is_standard, Stream::Output) else { return Ok(()) };
        for input in inputs {
            let other = regular(input, input.as_os_str() == STANDARD, Stream::Input);
            if other.is_some_and(|other| same_file((self.path, &own), (input, &other))) {
                let name = self.name();
                return Err(Failure::usage(format!("{name} is the input too; write to another file")));
            }
        }
        Ok(())
    }

    pub(crate) fn is_standard(self) -> bool {
        self.is_standard
    }

    pub(crate) fn path(self) -> &'a Path {
        self.path
    }

    /// What says where things go in text: a file's name tells no terminal what to do.
    pub(crate) fn name(self) -> String {
        Self::name_of(self.path)
    }

    /// The same of any name.
    pub(crate) fn name_of(path: &Path) -> String {
        if is_standard(path) { "standard output".to_owned() } else { io::printable(path) }
    }

    /// Writes the file: `to_file` is given its name, `to_stream` a writer if there is none.
    ///
    /// # Errors
    /// Those of what is called, or of standard output.
    pub(crate) fn write<T>(
        self,
        to_file: impl FnOnce(&Path) -> std::result::Result<T, WriteError>,
        to_stream: impl FnOnce(&mut (dyn Write + Send)) -> std::result::Result<T, WriteError>,
    ) -> Result<T> {
        if !self.is_standard {
            interrupt::enter(Stage::Writing);
            let made = to_file(self.path)?;
            interrupt::enter(Stage::Other);
            return Ok(made);
        }
        let mut stream = BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout());
        let made = to_stream(&mut stream).map_err(|error| match error {
            WriteError::Io(error) => Failure::output(&error),
            error => Failure::from(error).with_context("standard output"),
        })?;
        stream.flush().map_err(|error| Failure::output(&error))?;
        Ok(made)
    }

    /// Size of the file that was written; nothing is known of a stream.
    pub(crate) fn bytes(self) -> u64 {
        match std::fs::metadata(self.path) {
            Ok(file) if !self.is_standard => file.len(),
            _ => 0,
        }
    }
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == STANDARD || STANDARD_OUTPUT.iter().any(|name| path == Path::new(name))
}

/// One of the streams that a process is started with.
#[derive(Debug, Clone, Copy)]
enum Stream {
    Input,
    Output,
}

/// What is known of the regular file at `path`, or behind the stream; `None` for anything else.
fn regular(path: &Path, is_stream: bool, stream: Stream) -> Option<Metadata> {
    let found = if is_stream { of_stream(stream) } else { std::fs::metadata(path).ok() };
    found.filter(Metadata::is_file)
}

#[cfg(unix)]
fn of_stream(stream: Stream) -> Option<Metadata> {
    use std::os::fd::AsFd;

    let descriptor = match stream {
        Stream::Input => std::io::stdin().as_fd().try_clone_to_owned(),
        Stream::Output => std::io::stdout().as_fd().try_clone_to_owned(),
    };
    std::fs::File::from(descriptor.ok()?).metadata().ok()
}

#[cfg(not(unix))]
fn of_stream(_: Stream) -> Option<Metadata> {
    None
}

/// Whether both are one file, whatever it is called.
#[cfg(unix)]
fn same_file(one: (&Path, &Metadata), other: (&Path, &Metadata)) -> bool {
    use std::os::unix::fs::MetadataExt;

    (one.1.dev(), one.1.ino()) == (other.1.dev(), other.1.ino())
}

#[cfg(not(unix))]
fn same_file(one: (&Path, &Metadata), other: (&Path, &Metadata)) -> bool {
    matches!((one.0.canonicalize(), other.0.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The failure of an output whose format no name tells.
pub(crate) fn no_format() -> Failure {
    Failure::new(Exit::Usage, "standard output has no name that tells the format; name it with --to")
}

//! Why a command stopped, and the exit code that says so.

use std::fmt;
use std::io;

use windrow::io::{ReadError, WriteError, printable};
use windrow::reorder::Stopped;
use windrow::{
    AttentionError, DeviceError, FormatError, NmError, OutOfMemory, PlanError, ProfileError, SddmmError,
    SpmmError, TensorError, TunedError,
};
use windrow_bench::measure::BenchError;

/// What every part of a command returns.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Exit codes. Part of the command's interface: scripts rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// A result is outside of its error bound.
    Verification = 1,
    /// The command line makes no sense. The parser of the command line uses the same number.
    Usage = 2,
    /// A file cannot be read, is no matrix, or cannot be written.
    File = 3,
    /// There is no such device, or it cannot run the kernels.
    NoDevice = 4,
    /// A device failed at work.
    Device = 5,
    /// Something exceeds a limit: of the options, of memory, of the indices.
    Limit = 6,
    /// Ctrl-C was pressed; shells report the same of programs that the signal ended.
    Interrupted = 130,
    /// Another process asked the command to end (SIGTERM).
    #[cfg(unix)]
    Terminated = 143,
    /// The terminal was closed (SIGHUP).
    #[cfg(unix)]
    HungUp = 129,
    /// Whoever read standard output went away; shells report the same of programs that the signal ended.
    ClosedPipe = 141,
}

/// Why a command stopped: a message for the person at the terminal, and an exit code for scripts.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The same failure, its message behind the place it arose at.
    pub(crate) fn with_context(self, place: &str) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    /// The failure of a write to standard output.
    pub(crate) fn output(error: &io::Error) -> Self {
        let exit = if error.kind() == io::ErrorKind::BrokenPipe { Exit::ClosedPipe } else { Exit::File };
        Self::new(exit, format!("cannot write to standard output: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        let exit = match error.cause() {
            ReadError::Limit { .. } => Exit::Limit,
            ReadError::Matrix(error) => format_exit(error),
            ReadError::Io(error) if error.kind() == io::ErrorKind::OutOfMemory => Exit::Limit,
            _ => Exit::File,
        };
        Self::new(exit, option_for_field(&error.to_string()))
    }
}

/// The reader names the field of its limits; here it is an option.
fn option_for_field(message: &str) -> String {
    let message = &message.replace("set ReadOptions::format", "say so with --from edge-list");
    ["rows", "cols", "nnz", "bytes"].iter().fold(message.clone(), |message, what| {
        message.replace(&format!("raise Limits::max_{what}"), &format!("raise it with --max-{what}"))
    })
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        if let WriteError::Read(read) = error {
            return (*read).into();
        }
        match error.cause() {
            WriteError::UnknownExtension => {
                let path = match &error {
                    WriteError::InFile { path, .. } => format!("{}: ", printable(path)),
                    _ => String::new(),
                };
                Self::usage(format!(
                    "{path}the name does not tell the format; end it in .mtx, .smtx, .npz or .txt, each also \
                     with .gz behind it, or name the format with --to"
                ))
            }
            WriteError::UnknownNmExtension | WriteError::UnknownDenseExtension => {
                Self::usage(error.to_string())
            }
            WriteError::OutOfMemory(_) => Self::new(Exit::Limit, error.to_string()),
            _ => Self::new(Exit::File, error.to_string()),
        }
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Cancelled => Self::new(Exit::Interrupted, "interrupted; nothing was written"),
            Stopped::OutOfMemory(error) => error.into(),
        }
    }
}

impl From<TunedError> for Failure {
    fn from(error: TunedError) -> Self {
        Self::new(Exit::File, error.to_string())
    }
}

impl From<ProfileError> for Failure {
    fn from(error: ProfileError) -> Self {
        Self::new(Exit::File, error.to_string())
    }
}

fn format_exit(error: &FormatError) -> Exit {
    match error {
        FormatError::OutOfMemory { .. }
        | FormatError::DimensionTooLarge { .. }
        | FormatError::TooManyTiles { .. } => Exit::Limit,
        FormatError::UnknownSynthetic { .. } => Exit::Usage,
        _ => Exit::File,
    }
}

fn device_exit(error: &DeviceError) -> Exit {
    match error {
        DeviceError::NoDriver
        | DeviceError::NoSuchDevice { .. }
        | DeviceError::DriverTooOld { .. }
        | DeviceError::ComputeCapability { .. } => Exit::NoDevice,
        DeviceError::OutOfMemory { .. } | DeviceError::HostMemory(_) | DeviceError::Grid { .. } => {
            Exit::Limit
        }
        DeviceError::UnknownSelector { .. } => Exit::Usage,
        _ => Exit::Device,
    }
}

/// The library's remedies name its functions; here they are options.
fn in_options(message: &str) -> String {
    message.replace("the CPU (`Device::cpu()`)", "the CPU (`--device cpu`)")
}

impl From<windrow::Error> for Failure {
    fn from(error: windrow::Error) -> Self {
        let exit = match (&error, error.plan()) {
            (_, Some(PlanError::MemoryLimit { .. } | PlanError::TooLarge { .. })) => Exit::Limit,
            (windrow::Error::Device(error), _) | (_, Some(PlanError::Device(error))) => device_exit(error),
            (windrow::Error::Format(error), _) | (_, Some(PlanError::Format(error))) => format_exit(error),
            // What is left comes from options that do not fit together.
            _ => Exit::Usage,
        };
        Self::new(exit, in_options(&error.to_string()))
    }
}

/// Errors of a family become failures as any error of the library does.
macro_rules! from_library {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                windrow::Error::from(error).into()
            }
        })+
    };
}

from_library!(
    OutOfMemory,
    DeviceError,
    FormatError,
    PlanError,
    SpmmError,
    SddmmError,
    AttentionError,
    NmError,
    TensorError
);

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Device(error) => error.into(),
            BenchError::Product(error) => error.into(),
            BenchError::Format(error) => error.into(),
            BenchError::Read(error) => error.into(),
            BenchError::Wrong(_) => Self::new(Exit::Verification, error.to_string()),
            BenchError::TooLarge { .. } => Self::new(Exit::Limit, error.to_string()),
            _ => Self::new(Exit::Device, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_code() {
        let exit = |failure: Failure| failure.exit as i32;
        assert_eq!(exit(DeviceError::NoDriver.into()), 4);
        assert_eq!(exit(DeviceError::NoSuchDevice { index: 3, count: 1 }.into()), 4);
        assert_eq!(exit(DeviceError::Jit { code: String::new(), log: String::new() }.into()), 5);
        let (call, name) = ("cuStreamSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned());
        assert_eq!(exit(DeviceError::Lost { call, name, message: String::new() }.into()), 5);
        assert_eq!(exit(DeviceError::Grid { kernel: "k", x: 1, y: 1 << 20 }.into()), 6);
        assert_eq!(exit(SpmmError::from(DeviceError::NoDriver).into()), 4);
        assert_eq!(exit(FormatError::TooManyTiles { tiles: 1 << 33 }.into()), 6);
        let memory = OutOfMemory { what: "values", bytes: 1 << 50 };
        assert_eq!(exit(FormatError::from(memory).into()), 6);
        assert_eq!(exit(DeviceError::from(memory).into()), 6);
        assert_eq!(exit(SpmmError::from(memory).into()), 6);
        assert_eq!(exit(ReadError::from(memory).into()), 6);
        assert_eq!(exit(ReadError::Io(io::ErrorKind::OutOfMemory.into()).into()), 6);
        let (largest, remedy) = ("columns", "raise the limit");
        let limit = PlanError::MemoryLimit { needed: 2, limit: 1, largest, largest_bytes: 2, remedy };
        assert_eq!(exit(limit.into()), 6);
        let unknown = ReadError::UnknownFormat { found: "nothing".to_owned() };
        assert_eq!(exit(unknown.into()), 3);
        assert_eq!(exit(WriteError::UnknownExtension.into()), 2);
        assert_eq!(exit(WriteError::Io(io::Error::other("full")).into()), 3);
        assert_eq!(exit(Stopped::Cancelled.into()), 130);
        assert_eq!(exit(Failure::output(&io::ErrorKind::BrokenPipe.into())), 141);
        assert_eq!(exit(Failure::output(&io::ErrorKind::StorageFull.into())), 3);
    }

    #[test]
    fn remedies_name_options() {
        let limit = ReadError::Limit {
            place: "line 2".to_owned(),
            what: "entries",
            found: 10,
            limit: 5,
            field: "max_nnz",
        };
        assert!(Failure::from(limit).to_string().ends_with("raise it with --max-nnz"));
        assert!(Failure::from(DeviceError::NoDriver).to_string().ends_with("use the CPU (`--device cpu`)"));
        assert!(Failure::from(WriteError::UnknownExtension).to_string().ends_with("--to"));
    }
}

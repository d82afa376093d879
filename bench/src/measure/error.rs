//! What can go wrong while something is measured.

use cudarc::driver::DriverError;
use thiserror::Error;
use windrow::io::ReadError;
use windrow::{
    AttentionError, DeviceError, FormatError, NmError, PlanError, Precision, SddmmError, SpmmError,
    TensorError, Verification,
};

/// Why there is no measurement.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A library to compare with that this machine lacks.
    #[error("{library} is not available: {reason}")]
    Absent {
        /// Name of the library.
        library: &'static str,
        /// What was looked for, and what to do.
        reason: String,
    },
    /// A call of such a library that did not succeed.
    #[error("{call} failed: {status}")]
    Library {
        /// The library's function that did not succeed.
        call: &'static str,
        /// The library's name of the error.
        status: String,
    },
    /// A way to find positions for which there is no entry.
    #[error("no entry scans masks in {precision} at inner dimension {inner}; f16 has one at 65 to 128")]
    NoScan {
        /// The precision asked for.
        precision: Precision,
        /// The inner dimension asked for.
        inner: usize,
    },
    /// A product that is not within its error bound, so that its time is worth nothing.
    #[error("the result is wrong, so it has no time: {0}")]
    Wrong(Verification),
    /// A gradient that is not that of the CPU, so that its time is worth nothing.
    #[error(
        "the gradient of {of} is wrong, so it has no time: {found} instead of {want} in row {row}, column {col}"
    )]
    Gradient {
        /// The operand whose gradient it is.
        of: &'static str,
        /// Row of the element.
        row: usize,
        /// Column of the element.
        col: usize,
        /// What was found there.
        found: f32,
        /// What the CPU has there.
        want: f32,
    },
    /// A probe that did not read what it should have read.
    #[error(
        "{wrong} of {threads} threads of the gather probe have a wrong checksum ({row_bytes}-byte rows from \
         {working_set_bytes} bytes): the device's memory or its kernels are broken"
    )]
    Checksum {
        /// Threads with a wrong checksum.
        wrong: usize,
        /// Threads of the launch.
        threads: usize,
        /// Bytes of a row.
        row_bytes: u64,
        /// Bytes of the table.
        working_set_bytes: u64,
    },
    /// A copy on the device that does not equal its source.
    #[error("{wrong} of {pieces} 16-byte pieces differ after a copy on the device: its memory is broken")]
    Copy {
        /// Pieces that differ from their source.
        wrong: usize,
        /// Pieces that were copied.
        pieces: usize,
    },
    /// A quantity beyond what a peer's interface takes.
    #[error(
        "{found} {what} are more than the {limit} that {library} is called with; leave it out for this matrix"
    )]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        found: u64,
        /// The most that there may be.
        limit: u64,
        /// Name of the library.
        library: &'static str,
    },
    /// Operands of another type than the arithmetic asked for.
    #[error("{math} multiplies {expected} operands, these are {found}; convert them")]
    Operands {
        /// Name of the arithmetic, such as `tf32`.
        math: &'static str,
        /// The precision that it takes.
        expected: Precision,
        /// The precision of the operands.
        found: Precision,
    },
    /// Rates that are no table.
    #[error("{what} of a table of gather rates {problem}; measure it again")]
    Rates {
        /// The field of the table.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Sizes with which the probe cannot run.
    #[error("the probe cannot gather rows of {row_bytes} bytes from {working_set_bytes} bytes: {why}")]
    Probe {
        /// Bytes of a row.
        row_bytes: u64,
        /// Bytes of the table.
        working_set_bytes: u64,
        /// The rule that is broken.
        why: &'static str,
    },
    /// A name that stands for no path.
    #[error("{text:?} is no path; write an algorithm and a precision it has, as in {known}")]
    UnknownPath {
        /// The text that was to name a path.
        text: String,
        /// The names that exist.
        known: String,
    },
    /// An option of a path that means nothing there.
    #[error("{text:?} is no path, because of {option:?}: {why}")]
    PathOption {
        /// The text that was to name a path.
        text: String,
        /// The option in it that is refused.
        option: String,
        /// What is wrong with it.
        why: String,
    },
    /// A name that is none of a list.
    #[error("{text:?} is no {what}; there are {known}")]
    UnknownName {
        /// What it should name.
        what: &'static str,
        /// The text that was to be one of the names.
        text: String,
        /// The names that exist.
        known: &'static str,
    },
    /// A matrix or a tensor that could not be had, and why.
    #[error("{0}")]
    Unreadable(String),
    /// A line of a table of published times that cannot be read.
    #[error("line {line}: {problem}; a line is: matrix,width,microseconds,library")]
    Published {
        /// Its number, counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// What the device, its driver or its memory reports.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No plan, or no product.
    #[error(transparent)]
    Product(windrow::Error),
    /// A file that is no matrix.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A matrix that cannot be made.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Errors of a family of products are those of products.
macro_rules! from_products {
    ($($error:ty),+) => {
        $(impl From<$error> for BenchError {
            fn from(error: $error) -> Self {
                Self::Product(error.into())
            }
        })+
    };
}

from_products!(windrow::Error, AttentionError, PlanError, SpmmError, SddmmError, NmError, TensorError);

/// An error of the CUDA driver, called directly.
pub(crate) fn driver_error(call: &'static str, error: DriverError) -> DeviceError {
    DeviceError::Driver {
        call,
        name: format!("{:?}", error.0),
        message: "called beside windrow's own work".to_owned(),
    }
}

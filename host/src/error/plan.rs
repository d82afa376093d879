//! What can go wrong with any product: its operands, its memory, its device.

use thiserror::Error;
use windrow_formats::{FormatError, OutOfMemory};

use super::device::DeviceError;
use crate::options::Precision;

/// Why a plan could not be made or run, whatever its product is: dense operands that do not fit, memory, the device.
///
/// Every message has the numbers and what to do about them. Rows and columns are counted from 0.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// `C` does not have A's rows and B's columns.
    #[error("C is {rows} × {cols} but must be {expected_rows} × {expected_cols} (rows of A × columns of B)")]
    OutputShape {
        /// Rows of `C`.
        rows: usize,
        /// Columns of `C`.
        cols: usize,
        /// Rows of `A`.
        expected_rows: usize,
        /// Columns of `B`.
        expected_cols: usize,
    },
    /// Rows that would overlap.
    #[error("leading dimension {ld} is less than the {cols} columns; it counts elements from row to row")]
    LeadingDimension {
        /// The leading dimension, in elements.
        ld: usize,
        /// The columns.
        cols: usize,
    },
    /// A slice that ends before its matrix.
    #[error("{len} elements cannot hold {rows} × {cols} with leading dimension {ld}: {needed} are needed")]
    DenseTooShort {
        /// Elements at hand.
        len: usize,
        /// Elements needed.
        needed: usize,
        /// Rows.
        rows: usize,
        /// Columns.
        cols: usize,
        /// Leading dimension, in elements.
        ld: usize,
    },
    /// Packed elements that are more or fewer than the matrix has.
    #[error("{operand} has {len} elements but must have {rows} × {cols}, row after row without padding")]
    PackedCount {
        /// The operand.
        operand: &'static str,
        /// Elements given.
        len: usize,
        /// Rows that it must have.
        rows: usize,
        /// Columns that it must have.
        cols: usize,
    },
    /// An operand on another device than the plan.
    #[error("{operand} is on {found} but the plan was built for {expected}; upload it there")]
    WrongDevice {
        /// `"B"` or `"C"`.
        operand: &'static str,
        /// Where it is.
        found: String,
        /// Where it must be.
        expected: String,
    },
    /// An operand of another type than the plan's precision.
    #[error(
        "{operand} holds {found} but a plan of precision {expected} takes {}; convert it or build another plan",
        expected.element()
    )]
    ElementType {
        /// The operand.
        operand: &'static str,
        /// Its element type.
        found: &'static str,
        /// The plan's precision.
        expected: Precision,
    },
    /// A dense operand of another shape.
    #[error("{operand} is {} × {} but must be {} × {}", found.0, found.1, expected.0, expected.1)]
    OperandShape {
        /// The operand.
        operand: &'static str,
        /// Its rows and columns.
        found: (usize, usize),
        /// Those it must have.
        expected: (usize, usize),
    },
    /// The plan would take more device memory than the caller allows.
    #[error(
        "the plan needs {needed} bytes on the device, the limit is {limit}; the largest array is {largest} with \
         {largest_bytes} bytes; {remedy}"
    )]
    MemoryLimit {
        /// Bytes needed, all arrays and the workspace.
        needed: u64,
        /// The limit given, in bytes.
        limit: u64,
        /// Name of the largest array.
        largest: &'static str,
        /// Its size in bytes.
        largest_bytes: u64,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A quantity beyond the 32-bit indices of the kernels.
    #[error("{found} {what} are more than the {limit} that the kernels can index; {remedy}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        found: u64,
        /// The limit.
        limit: u64,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Values that are not one for each entry of the plan.
    #[error("{operand}: {found} values for a plan with {expected} entries; give one for each, in CSR order")]
    ValueCount {
        /// What they are.
        operand: &'static str,
        /// Values given.
        found: usize,
        /// Entries of the plan.
        expected: usize,
    },
    /// A matrix that is not the plan's.
    #[error(
        "the matrix is {rows} × {cols} with {nnz} entries, the plan's {plan_rows} × {plan_cols} with {plan_nnz}"
    )]
    OtherMatrix {
        /// Rows of the matrix given.
        rows: usize,
        /// Its columns.
        cols: usize,
        /// Its entries.
        nnz: usize,
        /// Rows of the plan's matrix.
        plan_rows: usize,
        /// Its columns.
        plan_cols: usize,
        /// Its entries.
        plan_nnz: usize,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The matrix, or a layout of it, could not be built.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl From<OutOfMemory> for PlanError {
    fn from(error: OutOfMemory) -> Self {
        Self::Format(error.into())
    }
}

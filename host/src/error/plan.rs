//! What can go wrong with any product: its operands, its memory, its device.

use std::convert::Infallible;

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
        /// Rows that `C` has.
        rows: usize,
        /// Columns that `C` has.
        cols: usize,
        /// Rows of `A`, which `C` must have.
        expected_rows: usize,
        /// Columns of `B`, which `C` must have.
        expected_cols: usize,
    },
    /// Rows that would overlap.
    #[error("leading dimension {ld} is less than the {cols} columns; it counts elements from row to row")]
    LeadingDimension {
        /// The leading dimension, in elements.
        ld: usize,
        /// Columns of the matrix: the least leading dimension.
        cols: usize,
    },
    /// A slice that ends before its matrix.
    #[error("{len} elements cannot hold {rows} × {cols} with leading dimension {ld}: {needed} are needed")]
    DenseTooShort {
        /// Elements that the slice has.
        len: usize,
        /// Elements up to the end of the last row: `(rows − 1)·ld + cols`.
        needed: usize,
        /// Rows of the matrix that the slice is to hold.
        rows: usize,
        /// Columns of the matrix that the slice is to hold.
        cols: usize,
        /// Leading dimension, in elements.
        ld: usize,
    },
    /// Strides that give elements no place of their own.
    #[error(
        "a {} × {} matrix with {} elements from row to row and {} from column to column {why}; copy it to \
         consecutive rows",
        shape.0, shape.1, strides.0, strides.1
    )]
    Strides {
        /// Rows and columns of the matrix.
        shape: (usize, usize),
        /// Elements from row to row, and from column to column.
        strides: (isize, isize),
        /// What is wrong with them.
        why: &'static str,
    },
    /// A slice that ends before its matrix, which has strides.
    #[error(
        "{len} elements cannot hold {} × {} with {} elements from row to row and {} from column to column: {needed} \
         are needed",
        shape.0, shape.1, strides.0, strides.1
    )]
    StridedTooShort {
        /// Elements that the slice has.
        len: usize,
        /// Elements up to the last one of the matrix.
        needed: usize,
        /// Rows and columns of the matrix.
        shape: (usize, usize),
        /// Elements from row to row, and from column to column.
        strides: (isize, isize),
    },
    /// Packed elements that are more or fewer than the matrix has.
    #[error("{operand} has {len} elements but must have {rows} × {cols}, row after row without padding")]
    PackedCount {
        /// Name of the operand in the formula of the product, such as `B`.
        operand: &'static str,
        /// Elements that were given.
        len: usize,
        /// Rows that it must have.
        rows: usize,
        /// Columns that it must have.
        cols: usize,
    },
    /// An operand on another device than the plan.
    #[error("{operand} is on {found} but the plan was built for {expected}; upload it there")]
    WrongDevice {
        /// Name of the operand in the formula of the product, such as `B`.
        operand: &'static str,
        /// The device that it is on.
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
        /// Name of the operand in the formula of the product, such as `B`.
        operand: &'static str,
        /// Its element type, such as `f16`.
        found: &'static str,
        /// Precision of the plan, which asks for another type.
        expected: Precision,
    },
    /// A dense operand of another shape.
    #[error("{operand} is {} × {} but must be {} × {}", found.0, found.1, expected.0, expected.1)]
    OperandShape {
        /// Name of the operand in the formula of the product, such as `B`.
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
        /// How many there are.
        found: u64,
        /// The largest number that the kernels can index.
        limit: u64,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Values that are not one for each entry of the plan.
    #[error("{operand}: {found} values for a plan with {expected} entries; give one for each, in CSR order")]
    ValueCount {
        /// What the values are, such as "the weights".
        operand: &'static str,
        /// Values that were given.
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
        /// Columns of the matrix given.
        cols: usize,
        /// Entries of the matrix given.
        nnz: usize,
        /// Rows of the plan's matrix.
        plan_rows: usize,
        /// Columns of the plan's matrix.
        plan_cols: usize,
        /// Entries of the plan's matrix.
        plan_nnz: usize,
    },
    /// An address that is in no memory of the device.
    #[error(
        "{bytes} bytes are to lie at {address:#x}, which is {found}, not memory of {device}; give an address in its \
         memory, or upload the elements"
    )]
    NotDeviceMemory {
        /// The address that was given.
        address: u64,
        /// Bytes from there to the last element.
        bytes: u64,
        /// Where the address lies.
        found: String,
        /// The device whose memory it must be.
        device: String,
    },
    /// An address that its elements cannot have.
    #[error("address {address:#x} is no multiple of {align}, as elements of type {element} need")]
    Misaligned {
        /// The address that was given.
        address: u64,
        /// What it must be a multiple of, in bytes.
        align: usize,
        /// Type of the elements, such as `f32`.
        element: &'static str,
    },
    /// A matrix or an array that ends behind the memory that it begins in.
    #[error(
        "{bytes} bytes at {address:#x} end behind the memory there, which ends at {end:#x}; give fewer rows or \
         elements, or a smaller leading dimension"
    )]
    BeyondMemory {
        /// The address that was given.
        address: u64,
        /// Bytes from there to the last element.
        bytes: u64,
        /// Address behind the last byte of the memory.
        end: u64,
    },
    /// An output and an operand with bytes in common.
    #[error(
        "{output} at {:#x}..{:#x} overlaps {operand} at {:#x}..{:#x}; give {output} memory of its own",
        output_range.0, output_range.1, operand_range.0, operand_range.1
    )]
    Overlap {
        /// Name of the output in the formula of the product, such as `C`.
        output: &'static str,
        /// Addresses of its first byte and of the one behind its last.
        output_range: (u64, u64),
        /// Name of the operand.
        operand: &'static str,
        /// Those of the operand.
        operand_range: (u64, u64),
    },
    /// Memory that is no workspace for a plan.
    #[error(
        "the workspace has {found} bytes at {address:#x}, the plan needs {needed} at a multiple of {align}; \
         `workspace_bytes` says how many"
    )]
    Workspace {
        /// Where the memory begins.
        address: u64,
        /// Bytes that it has.
        found: u64,
        /// Bytes that it must have.
        needed: u64,
        /// What its address must be a multiple of.
        align: u64,
    },
    /// A matrix in device memory that was wrong when a kernel read it, and right when the host looked for the fault.
    #[error(
        "the matrix changed while it was checked; use it on the stream that writes it, or on one that waits for that"
    )]
    MatrixChanged,
    /// What the device, its driver or its memory reports.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The matrix, or a layout of it, could not be built.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl PlanError {
    /// Whether there was no memory for it, or it was too large for the kernels' indices or grids: an error of one way
    /// to a product, which another may do without.
    pub(crate) fn lacks_room(&self) -> bool {
        match self {
            Self::TooLarge { .. } => true,
            Self::Format(error) => {
                matches!(error, FormatError::OutOfMemory { .. } | FormatError::TooManyTiles { .. })
            }
            Self::Device(error) => match error {
                DeviceError::OutOfMemory { .. } | DeviceError::HostMemory(_) | DeviceError::Grid { .. } => {
                    true
                }
                // Of a kernel that is loaded or started, rather than of an allocation.
                DeviceError::Driver { name: code, .. } | DeviceError::Jit { code, .. } => {
                    code == "CUDA_ERROR_OUT_OF_MEMORY"
                }
                _ => false,
            },
            _ => false,
        }
    }
}

/// For conversions of operands that cannot fail.
impl From<Infallible> for PlanError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<OutOfMemory> for PlanError {
    fn from(error: OutOfMemory) -> Self {
        Self::Format(error.into())
    }
}

//! What can go wrong: on a device, and in a product.

use thiserror::Error;
use windrow_formats::{FormatError, NmPattern};

use crate::nm::NmAlgorithm;
use crate::options::{Algorithm, Precision};
use crate::parallelism::IllegalPoint;
use crate::sddmm::SddmmAlgorithm;

/// Why a device could not be opened, or refused work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No CUDA driver on this machine.
    #[error("no CUDA driver library was found; install the NVIDIA driver, or use the CPU (`Device::cpu()`)")]
    NoDriver,
    /// A driver, but not the GPU asked for.
    #[error("there is no CUDA device {index}: the driver reports {count}; use {}", instead_of_a_gpu(*count))]
    NoSuchDevice {
        /// The number asked for.
        index: u32,
        /// How many devices there are.
        count: u32,
    },
    /// The driver cannot read the PTX that the kernels are stored in.
    #[error(
        "the driver is too old: it has CUDA {}.{}, the kernels are PTX {}.{} and need CUDA {}.{} or later; \
         update the NVIDIA driver", has.0, has.1, ptx.0, ptx.1, needs.0, needs.1
    )]
    DriverTooOld {
        /// CUDA version of the driver, major and minor.
        has: (u32, u32),
        /// The lowest that reads the PTX.
        needs: (u32, u32),
        /// Version of the PTX.
        ptx: (u32, u32),
    },
    /// The GPU is older than the kernels' minimum.
    #[error(
        "{device} has compute capability {}.{}, the kernels need {}.{} or later; use a newer GPU or the CPU",
        has.0, has.1, needs.0, needs.1
    )]
    ComputeCapability {
        /// Name of the GPU.
        device: String,
        /// What it has.
        has: (u32, u32),
        /// What the kernels need.
        needs: (u32, u32),
    },
    /// The driver did not compile the kernels.
    #[error("the driver did not accept the kernels ({code}); its log:\n{log}")]
    Jit {
        /// The driver's error.
        code: String,
        /// The log of its compiler.
        log: String,
    },
    /// A kernel that the table of entry points lists but the loaded module lacks.
    #[error("the loaded PTX has no entry {name}; rebuild it with `cargo xtask build-ptx`")]
    MissingEntry {
        /// The entry point.
        name: &'static str,
    },
    /// An allocation that the device refused.
    #[error(
        "{asked} bytes for {what} do not fit: {free} of {total} bytes are free on {device}; \
         free other buffers, or lower the width or the memory limit"
    )]
    OutOfMemory {
        /// What the memory was for.
        what: &'static str,
        /// Bytes asked for.
        asked: u64,
        /// Bytes free.
        free: u64,
        /// Bytes that the device has.
        total: u64,
        /// The device.
        device: String,
    },
    /// A slice and a buffer of different length.
    #[error("the buffer holds {buffer} elements but the slice {slice}; they must be equal")]
    CopyLength {
        /// Elements of the buffer.
        buffer: usize,
        /// Elements of the slice.
        slice: usize,
    },
    /// Two objects on different devices in one operation.
    #[error("{what} is on {found}, not on {expected}; copy it there first")]
    OtherDevice {
        /// What is elsewhere.
        what: &'static str,
        /// Where it is.
        found: String,
        /// Where it must be.
        expected: String,
    },
    /// A grid beyond what the device accepts.
    #[error(
        "{kernel} would need a grid of {x} × {y} blocks, the limit is 2147483647 × 65535; split the matrix or the width"
    )]
    Grid {
        /// The entry point.
        kernel: &'static str,
        /// Blocks along the fast axis.
        x: u64,
        /// Blocks along the slow axis.
        y: u64,
    },
    /// An error of the CUDA driver. After one of the kinds that break the context (an illegal address, for
    /// example), every later call fails with the same.
    #[error("{call} failed: {name}: {message}")]
    Driver {
        /// The driver function.
        call: &'static str,
        /// The driver's name of the error.
        name: String,
        /// The driver's description.
        message: String,
    },
    /// The emulator found a mistake in a kernel or in its arguments.
    #[error("the emulator stopped {kernel}: {report}")]
    Emulator {
        /// The entry point.
        kernel: &'static str,
        /// What it found.
        report: String,
    },
    /// A name that stands for no device.
    #[error("{text:?} is no device; there are `best`, `cpu` and `cuda:N`")]
    UnknownSelector {
        /// The name given.
        text: String,
    },
    /// A device operation on a device without it.
    #[error("{device} cannot {operation}; use {remedy}")]
    NotAvailable {
        /// The device.
        device: String,
        /// What it cannot do.
        operation: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
}

/// Why a product, [`Spmm`](crate::Spmm), [`Sddmm`](crate::Sddmm), [`Mttkrp`](crate::Mttkrp), [`Ttm`](crate::Ttm) or
/// [`NmSpmm`](crate::NmSpmm), or an operation of [`training`](crate::training), could not be planned or run.
///
/// Every message has the numbers and what to do about them. Rows and columns are counted from 0.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum SpmmError {
    /// `A` is m×k but `B` does not have k rows.
    #[error("A has {a_cols} columns but B has {b_rows} rows; they must be equal")]
    InnerDim {
        /// Columns of `A`.
        a_cols: usize,
        /// Rows of `B`.
        b_rows: usize,
    },
    /// A packed `B` whose length is no multiple of its number of rows.
    #[error(
        "B has {len} elements, which is not a whole number of columns for {a_cols} rows (the columns of A)"
    )]
    PackedLength {
        /// Elements of `B`.
        len: usize,
        /// Columns of `A`, the rows that `B` must have.
        a_cols: usize,
    },
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
    /// A combination of algorithm and precision that no kernel implements.
    #[error("algorithm {algorithm} does not support precision {precision}; {remedy}")]
    Unsupported {
        /// The algorithm asked for.
        algorithm: Algorithm,
        /// The precision asked for.
        precision: Precision,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A combination of algorithm and precision that no kernel of sampled products implements.
    #[error(
        "sampled products by {algorithm} do not support precision {precision}; use {}, or algorithm entries",
        sampled_precisions(*algorithm)
    )]
    UnsupportedSddmm {
        /// The algorithm asked for.
        algorithm: SddmmAlgorithm,
        /// The precision asked for.
        precision: Precision,
    },
    /// A combination of algorithm and precision that no kernel of products with N:M weights implements.
    #[error(
        "products with N:M weights by {algorithm} do not support precision {precision}; use tf32, f16 or bf16, or \
         algorithm cuda-cores or auto"
    )]
    UnsupportedNm {
        /// The algorithm asked for.
        algorithm: NmAlgorithm,
        /// The precision asked for.
        precision: Precision,
    },
    /// Weights that no kernel for Tensor Cores takes.
    #[error(
        "tensor-cores have no {precision} kernel for weights with pattern {pattern}: {reason}; use algorithm cuda-cores or auto"
    )]
    NoTensorCores {
        /// The precision asked for.
        precision: Precision,
        /// That of the weights.
        pattern: NmPattern,
        /// What the kernels do not have.
        reason: String,
    },
    /// A kernel that there is not, or not for these weights.
    #[error(
        "there is no kernel {name:?} for {precision} with weights of pattern {pattern}; there are {known}"
    )]
    NoNmKernel {
        /// The name given.
        name: String,
        /// The precision asked for.
        precision: Precision,
        /// That of the weights.
        pattern: NmPattern,
        /// Names of the kernels that there are.
        known: String,
    },
    /// A division of the work that there is not.
    #[error(transparent)]
    IllegalPoint(#[from] IllegalPoint),
    /// Weights that are not the plan's.
    #[error(
        "the weights are {} × {} with pattern {}, the plan's {} × {} with pattern {}",
        found.0, found.1, found.2, expected.0, expected.1, expected.2
    )]
    OtherWeights {
        /// Rows, columns and pattern of the weights given.
        found: (usize, usize, NmPattern),
        /// Those of the plan's.
        expected: (usize, usize, NmPattern),
    },
    /// A result that cannot be verified.
    #[error(
        "a result with beta = {beta} depends on what C held before, which is gone; verify a run with beta = 0"
    )]
    OldOutput {
        /// The factor of what `C` held.
        beta: f32,
    },
    /// A row of a result that there is not.
    #[error("row {row} is beyond C, which has {rows} rows; they are counted from 0")]
    NoSuchRow {
        /// The row asked for.
        row: usize,
        /// The rows that there are.
        rows: usize,
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
    /// A label that names no class.
    #[error("row {row} has label {label}, but there are {classes} classes, counted from 0")]
    UnknownClass {
        /// The row.
        row: usize,
        /// Its label.
        label: u32,
        /// The number of classes.
        classes: usize,
    },
    /// A weight that is no weight.
    #[error("row {row} has weight {weight}; give a finite number of at least 0")]
    Weight {
        /// The row.
        row: usize,
        /// Its weight.
        weight: f32,
    },
    /// A name that stands for no algorithm or precision.
    #[error("{text:?} is no {what}; there are {known}")]
    UnknownName {
        /// `"algorithm"` or `"precision"`.
        what: &'static str,
        /// The name given.
        text: String,
        /// The names that exist.
        known: &'static str,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The tiles could not be built.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// What an algorithm of sampled products supports, of those that do not support all.
fn sampled_precisions(algorithm: SddmmAlgorithm) -> &'static str {
    match algorithm {
        SddmmAlgorithm::Groups => "f32 or f16",
        _ => "tf32, bf16 or f16",
    }
}

/// What to use instead of a GPU that is none of `count`.
fn instead_of_a_gpu(count: u32) -> String {
    match count {
        0 => "the CPU (`Device::cpu()`)".to_owned(),
        1 => "`cuda:0` or the CPU".to_owned(),
        _ => format!("one of `cuda:0` to `cuda:{}` or the CPU", count - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_gpu_names_those_that_are_there() {
        for (count, remedy) in [
            (0, "use the CPU (`Device::cpu()`)"),
            (1, "use `cuda:0` or the CPU"),
            (4, "use one of `cuda:0` to `cuda:3` or the CPU"),
        ] {
            let message = DeviceError::NoSuchDevice { index: 7, count }.to_string();
            let there = format!("there is no CUDA device 7: the driver reports {count}; ");
            assert_eq!(message.strip_prefix(&there), Some(remedy));
        }
    }
}

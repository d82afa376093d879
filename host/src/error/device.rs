//! What can go wrong on a device.

use thiserror::Error;
use windrow_formats::OutOfMemory;

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
        /// Compute capability of the GPU: major, minor.
        has: (u32, u32),
        /// What the kernels need.
        needs: (u32, u32),
    },
    /// The driver did not compile the kernels.
    #[error("the driver did not accept the kernels ({code}); its log:\n{log}")]
    Jit {
        /// The driver's name of the error, such as `CUDA_ERROR_INVALID_PTX`; what is wrong with the text if it never
        /// came to the driver.
        code: String,
        /// The log of its compiler.
        log: String,
    },
    /// A kernel that the table of entry points lists and this build, or its PTX for this GPU, lacks.
    #[error(
        "there is no PTX of entry {name} for this GPU: build windrow with the feature of its family (nm, tensor, \
         training), or, after a change of the kernels, run `cargo xtask build-ptx`"
    )]
    MissingEntry {
        /// Name of the entry point, or of the kernel that it would be an instance of.
        name: &'static str,
    },
    /// A part of a plan without a kernel for a product: a mistake of windrow's, reported rather than passed over, which
    /// would leave rows of `C` as they were.
    #[error(
        "no kernel of {part} in {precision} takes {columns} columns of a {}B {}; choose another algorithm, and report \
         this as a mistake of windrow",
        if *column_major { "column-major " } else { "" },
        if *vectors { "aligned to 16 bytes" } else { "of any alignment" }
    )]
    NoKernel {
        /// What the plan has the kernel for.
        part: &'static str,
        /// Precision of the plan.
        precision: String,
        /// Columns of `B` that the launch was for.
        columns: u32,
        /// Whether `B` is aligned to 16 bytes.
        vectors: bool,
        /// Whether columns of `B` are contiguous.
        column_major: bool,
    },
    /// An allocation that the device refused.
    #[error(
        "{asked} bytes for {what} do not fit: {free} of {total} bytes are free on {device}; \
         free other buffers, or lower the width or the memory limit"
    )]
    OutOfMemory {
        /// What the memory was for.
        what: &'static str,
        /// Bytes of the allocation that failed.
        asked: u64,
        /// Bytes that were free when it failed.
        free: u64,
        /// Bytes that the device has.
        total: u64,
        /// The device: its model, and its selector where it has one.
        device: String,
    },
    /// An allocation that the host refused.
    #[error(transparent)]
    HostMemory(#[from] OutOfMemory),
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
        /// The object that is elsewhere, as in "the later event".
        what: &'static str,
        /// The device that it is on.
        found: String,
        /// Where it must be.
        expected: String,
    },
    /// A grid beyond what the device accepts.
    #[error(
        "{kernel} would need a grid of {x} × {y} blocks, the limit is 2147483647 × 65535; split the matrix or the width"
    )]
    Grid {
        /// Name of the entry point.
        kernel: &'static str,
        /// Blocks along the fast axis.
        x: u64,
        /// Blocks along the slow axis.
        y: u64,
    },
    /// An error of the CUDA driver.
    #[error("{call} failed: {name}: {message}")]
    Driver {
        /// The driver function that failed, such as `cuMemHostAlloc`.
        call: &'static str,
        /// The driver's name of the error.
        name: String,
        /// The driver's description of the error, in English.
        message: String,
    },
    /// An error of the CUDA driver after which it does nothing more for this process: a kernel accessed an illegal
    /// address, for example, or memory failed. Whatever is asked of the device later ends with the same error.
    #[error(
        "{call} failed: {name}: {message}; the device is lost to this process, with all that lies in its memory: \
         start a new process"
    )]
    Lost {
        /// The driver function that was the first to report it, which need not be what caused it.
        call: &'static str,
        /// The driver's name of the error, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
        name: String,
        /// The driver's description of the error, in English.
        message: String,
    },
    /// A library that refused work.
    #[error("{call} failed: {status}")]
    Library {
        /// The function that failed, such as `cublasGemmEx`.
        call: &'static str,
        /// The library's name of the error.
        status: String,
    },
    /// The emulator found a mistake in a kernel or in its arguments.
    #[error("the emulator stopped {kernel}: {report}")]
    Emulator {
        /// Name of the entry point, or "a copy" between host and device.
        kernel: &'static str,
        /// What the emulator found: the access or the barrier, the thread and the address.
        report: String,
    },
    /// Something that cannot be recorded into a graph.
    #[error("the stream is captured into a graph, which cannot hold {what}; {remedy}")]
    Captured {
        /// What was about to be done.
        what: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A name that stands for no device.
    #[error("{text:?} is no device; there are `best`, `cpu` and `cuda:N`")]
    UnknownSelector {
        /// The text that was to be read as a selector.
        text: String,
    },
    /// A device operation on a device without it.
    #[error("{device} cannot {operation}; use {remedy}")]
    NotAvailable {
        /// The device: its model, and its selector where it has one.
        device: String,
        /// What it cannot do.
        operation: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
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

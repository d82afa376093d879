//! An order of work on a device that runs kernels.

use std::sync::atomic::{AtomicU64, Ordering};

use super::event::Event;
use super::fence::Fence;
use super::machine::Prepared;
use crate::error::DeviceError;

/// What copies to and from the memory of an emulated GPU, in its turn.
#[cfg(all(feature = "dist", feature = "emulator"))]
pub(crate) type Copies =
    std::sync::Arc<dyn Fn(&windrow_simt::emulator::Memory) -> Result<(), DeviceError> + Send + Sync>;

/// Rows of bytes in the memory of the host and in that of a device.
#[cfg_attr(not(any(feature = "cuda", feature = "emulator")), allow(dead_code, reason = "no machine copies"))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowCopy {
    /// The first row in host memory.
    pub(crate) host: HostAddress,
    /// Bytes from one row to the next there.
    pub(crate) host_pitch: usize,
    /// The first row on the device.
    pub(crate) device: u64,
    /// Bytes from one row to the next there.
    pub(crate) device_pitch: usize,
    pub(crate) rows: usize,
    pub(crate) row_bytes: usize,
}

impl RowCopy {
    /// The same bytes as one row, if rows follow each other without gaps on both sides.
    #[cfg_attr(
        not(any(feature = "cuda", feature = "emulator")),
        allow(dead_code, reason = "no machine copies")
    )]
    pub(crate) fn joined(self) -> Self {
        let Self { host_pitch, device_pitch, rows, row_bytes, .. } = self;
        match rows > 1 && (host_pitch, device_pitch) == (row_bytes, row_bytes) {
            true => Self { rows: 1, row_bytes: rows * row_bytes, ..self },
            false => self,
        }
    }
}

/// An address in host memory that work on a device reads or writes later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostAddress(pub(crate) *mut u8);

// SAFETY: an address alone; who uses it promises what is there.
unsafe impl Send for HostAddress {}
// SAFETY: as above.
unsafe impl Sync for HostAddress {}

/// Which way rows are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyWay {
    ToDevice,
    ToHost,
}

/// An order of work: what is asked of one queue later happens later. Launches return before the kernel has finished.
pub(crate) trait Queue: Send + Sync {
    /// Sets bytes to zero.
    ///
    /// # Safety
    /// The bytes lie inside one live allocation of the queue's machine.
    unsafe fn zero(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Copies rows of bytes, and does not wait.
    ///
    /// # Safety
    /// The rows on the device lie inside one live allocation of the queue's machine. Those of the host lie in memory
    /// that lives until the copy is done; until then nobody writes what is read, nor touches what is written. Of memory
    /// that is not page-locked a driver may wait for the copy, or refuse it.
    unsafe fn copy_rows(&self, way: CopyWay, rows: RowCopy) -> Result<(), DeviceError>;

    /// Starts a kernel. [`Prepared::new`] is where its obligations were taken on.
    fn launch(&self, prepared: &Prepared) -> Result<(), DeviceError>;

    /// From here on, what is launched beside may begin: all work asked for so far comes before it.
    fn fork(&self) -> Result<(), DeviceError>;

    /// Starts a kernel beside what is asked for in the usual way between [`fork`](Self::fork) and [`join`](Self::join):
    /// neither waits for the other. Several such kernels are done in their order.
    fn launch_beside(&self, prepared: &Prepared) -> Result<(), DeviceError>;

    /// Work asked for from here on comes after all that was launched beside.
    fn join(&self) -> Result<(), DeviceError>;

    /// Waits until all work asked for so far is done.
    fn synchronize(&self) -> Result<(), DeviceError>;

    /// Whether all work asked for so far is known to be done. Another stream may be captured meanwhile.
    fn is_idle(&self) -> Result<bool, DeviceError>;

    /// A mark in the order of the work.
    fn record(&self) -> Result<Event, DeviceError>;

    /// What tells the queue from all others of the process: its [`next_key`].
    fn key(&self) -> u64;

    /// `CUstream` as an address, for one of a CUDA device.
    fn raw(&self) -> Option<usize>;

    /// Sets the queue's fence behind all work asked for so far. Not for a queue that is captured.
    fn mark(&self) -> Result<(), DeviceError>;

    /// Where the mark was set last.
    fn fence(&self) -> &Fence;

    /// Work asked for from here on comes after all that the fence, of a queue of the same machine, stands behind now.
    /// Not for a queue that is captured.
    fn wait_for(&self, fence: &Fence) -> Result<(), DeviceError>;

    /// Whether what is asked for is recorded into a graph instead of done.
    fn is_captured(&self) -> Result<bool, DeviceError>;

    /// Does something with the memory of an emulated GPU.
    #[cfg(all(feature = "dist", feature = "emulator"))]
    fn copy_by(&self, _copies: Copies) -> Result<(), DeviceError> {
        Err(DeviceError::NoDriver)
    }

    /// Records what is asked for from here on.
    #[cfg(all(test, feature = "emulator"))]
    fn begin_capture(&self) {}

    /// Multiplies dense matrices as a library would; where there is a real one, nothing stands for it.
    #[cfg(all(test, feature = "emulator"))]
    fn multiply_densely(&self, _product: &super::DenseProduct) -> Result<(), DeviceError> {
        Err(DeviceError::NoDriver)
    }

    /// Ends that; what is returned does what was recorded.
    #[cfg(all(test, feature = "emulator"))]
    fn end_capture(&self) -> Box<dyn Fn() -> Result<(), DeviceError> + '_> {
        Box::new(|| Ok(()))
    }
}

/// Whose blocks a GPU starts first when some of several queues could.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Those of any queue.
    Usual,
    /// Those of this queue before others.
    #[cfg_attr(not(feature = "dist"), allow(dead_code, reason = "messages between ranks"))]
    First,
}

/// A number that no other queue has.
#[cfg_attr(
    not(any(feature = "cuda", feature = "emulator")),
    allow(dead_code, reason = "no machine makes queues")
)]
pub(super) fn next_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

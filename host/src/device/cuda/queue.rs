//! A stream of a GPU, with a second one that forks off it and joins it again.

use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::event::CudaEvent;
use super::fork::SideStream;
use super::gpu::Gpu;
use super::probe::Called;
use crate::device::event::{Event, EventKind};
use crate::device::machine::Prepared;
use crate::device::queue::Queue;
use crate::error::DeviceError;
use crate::num::index;

/// A stream and its side stream.
pub(super) struct CudaQueue {
    gpu: Arc<Gpu>,
    stream: sys::CUstream,
    side: Option<SideStream>,
}

// SAFETY: the driver's handles may be used from any thread; every method makes the context current on the thread that
// it runs on before it uses one.
unsafe impl Send for CudaQueue {}
// SAFETY: as above; nothing is changed after `create`, and the driver takes calls on one stream from several threads.
unsafe impl Sync for CudaQueue {}

impl CudaQueue {
    /// A stream that does not wait for the legacy default stream. The context is current.
    pub(super) fn create(gpu: &Arc<Gpu>) -> Result<Self, DeviceError> {
        let stream =
            result::stream::create(result::stream::StreamKind::NonBlocking).called("cuStreamCreate")?;
        let mut queue = Self { gpu: Arc::clone(gpu), stream, side: None };
        queue.side = Some(SideStream::create()?);
        Ok(queue)
    }

    pub(super) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Waits for the work in the stream. The context is current.
    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`; the context is current.
        unsafe { result::stream::synchronize(self.stream) }.called("cuStreamSynchronize")
    }

    /// [`wait`](Self::wait), and for what was launched beside and never joined, for a call between failed.
    pub(super) fn settle(&self) -> Result<(), DeviceError> {
        self.wait()?;
        self.side.as_ref().map_or(Ok(()), SideStream::wait)
    }

    fn side(&self) -> Result<&SideStream, DeviceError> {
        self.side.as_ref().ok_or_else(|| {
            let (operation, remedy) = ("run two kernels beside each other", "a device that was opened");
            DeviceError::NotAvailable { device: self.gpu.name.clone(), operation, remedy }
        })
    }
}

impl Queue for CudaQueue {
    unsafe fn zero(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.gpu.bind()?;
        // SAFETY: the caller's promise; the context is current.
        unsafe { result::memset_d8_async(address, 0, index(bytes), self.stream) }.called("cuMemsetD8Async")
    }

    fn launch(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        self.gpu.bind()?;
        self.gpu.launch(self.stream, prepared)
    }

    fn fork(&self) -> Result<(), DeviceError> {
        self.gpu.bind()?;
        self.side()?.fork(self.stream)
    }

    fn launch_beside(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        self.gpu.bind()?;
        self.gpu.launch(self.side()?.stream(), prepared)
    }

    fn join(&self) -> Result<(), DeviceError> {
        self.gpu.bind()?;
        self.side()?.join(self.stream)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.gpu.bind()?;
        self.wait()
    }

    fn record(&self) -> Result<Event, DeviceError> {
        self.gpu.bind()?;
        CudaEvent::record(self.gpu.context, self.gpu.device, self.stream)
            .map(|event| Event(EventKind::Cuda(event)))
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        // Errors have nobody to go to; what cannot be freed dies with the process.
        if self.gpu.bind().is_ok() {
            drop(self.side.take()); // waits for its work
            let _ = self.wait();
            // SAFETY: made by `create`, destroyed only here.
            let _ = unsafe { result::stream::destroy(self.stream) };
        }
    }
}

//! A stream of a GPU, with a second one that forks off it and joins it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::{result, sys};

use super::event::CudaEvent;
use super::fence::CudaFence;
use super::fork::SideStream;
use super::gpu::Gpu;
use super::memory;
use super::probe::Called;
use crate::device::event::{Event, EventKind};
use crate::device::fence::Fence;
use crate::device::machine::Prepared;
use crate::device::queue::{self, CopyWay, Queue, RowCopy, Urgency};
use crate::error::DeviceError;
use crate::num::index;

/// The legacy default stream, whatever a program is compiled to take 0 for.
const LEGACY: usize = 1;
/// Another stream in every thread.
const PER_THREAD: usize = 2;

/// A stream, its side stream and its mark.
pub(super) struct CudaQueue {
    gpu: Arc<Gpu>,
    key: u64,
    stream: sys::CUstream,
    /// Whether it is somebody else's, who may have destroyed it when the last handle is gone.
    borrowed: bool,
    /// None only while the queue is being made or dropped.
    side: Option<SideStream>,
    /// Whether something was launched beside that no join came after.
    is_forked: AtomicBool,
    fence: Fence,
}

// SAFETY: the driver's handles may be used from any thread; every method makes the context current on the thread that
// it runs on before it uses one.
unsafe impl Send for CudaQueue {}
// SAFETY: as above; after `create` a flag alone is changed, which is atomic, and the driver takes calls on one stream
// from several threads.
unsafe impl Sync for CudaQueue {}

impl CudaQueue {
    /// A stream that does not wait for the legacy default stream. The context is current.
    pub(super) fn create(gpu: &Arc<Gpu>, urgency: Urgency) -> Result<Self, DeviceError> {
        let fence = CudaFence::create()?;
        match create_stream(urgency) {
            Ok(stream) => Self::of(gpu, fence, stream, false),
            Err(error) => {
                fence.destroy();
                Err(error)
            }
        }
    }

    /// The number of a `CUstream` that queues are kept by: 0 and 1 are the same stream.
    ///
    /// # Errors
    /// [`DeviceError::NotAvailable`] for the default stream of a thread.
    pub(super) fn number(gpu: &Gpu, raw: usize) -> Result<usize, DeviceError> {
        if raw == PER_THREAD {
            let (operation, remedy) = (
                "order work in CU_STREAM_PER_THREAD, another stream in every thread",
                "a stream that was made, or the legacy default stream",
            );
            return Err(DeviceError::NotAvailable { device: gpu.name.clone(), operation, remedy });
        }
        Ok(raw.max(LEGACY))
    }

    /// A stream of somebody else's, by its [`number`](Self::number). The context is current.
    ///
    /// # Safety
    /// The stream exists for as long as something is asked of the queue but its fence.
    pub(super) unsafe fn borrow(gpu: &Arc<Gpu>, number: usize) -> Result<Self, DeviceError> {
        let stream: sys::CUstream = std::ptr::with_exposed_provenance_mut(number);
        let mut context: sys::CUcontext = std::ptr::null_mut();
        // SAFETY: the stream exists, by the caller's promise; the pointer is to a live handle.
        unsafe { sys::cuStreamGetCtx(stream, &raw mut context) }.result().called("cuStreamGetCtx")?;
        if context != gpu.context {
            return Err(DeviceError::OtherDevice {
                what: "the stream",
                found: "another CUDA context".to_owned(),
                expected: format!("the primary context of {}", gpu.name),
            });
        }
        Self::of(gpu, CudaFence::create()?, stream, true)
    }

    fn of(
        gpu: &Arc<Gpu>,
        fence: CudaFence,
        stream: sys::CUstream,
        borrowed: bool,
    ) -> Result<Self, DeviceError> {
        let (gpu, key, fence) = (Arc::clone(gpu), queue::next_key(), Fence::Cuda(fence));
        let is_forked = AtomicBool::new(false);
        let mut queue = Self { gpu, key, stream, borrowed, side: None, is_forked, fence };
        queue.side = Some(SideStream::create()?);
        Ok(queue)
    }

    /// Whether the stream is somebody else's with this [`number`](Self::number).
    pub(super) fn is_borrowed(&self, number: usize) -> bool {
        self.borrowed && self.stream.addr() == number
    }

    /// Has a stream that has this one's handle now, which may not be the stream that had it before, go on after the
    /// work of that one. The context is current.
    pub(super) fn take_over(&self) -> Result<(), DeviceError> {
        match fence_of(&self.fence) {
            Some(fence) if !self.captured()? => fence.hold(self.stream),
            _ => Ok(()),
        }
    }

    /// Waits for the work before the mark. The context is current.
    pub(super) fn wait_for_mark(&self) -> Result<(), DeviceError> {
        fence_of(&self.fence).map_or(Ok(()), CudaFence::wait)
    }

    fn captured(&self) -> Result<bool, DeviceError> {
        if self.stream.addr() == LEGACY {
            return Ok(false); // it cannot be, and asking is an error while a stream that waits for it is captured
        }
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream exists; the pointer is to a live status.
        unsafe { sys::cuStreamIsCapturing(self.stream, &raw mut status) }
            .result()
            .called("cuStreamIsCapturing")?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    pub(super) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Waits for the work in the stream. The context is current.
    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`; the context is current.
        unsafe { result::stream::synchronize(self.stream) }.called("cuStreamSynchronize")
    }

    /// What comes from now on comes after what was launched beside, too, be it joined or not. The context is current.
    pub(super) fn join_all(&self) -> Result<(), DeviceError> {
        match &self.side {
            Some(side) if self.is_forked.load(Ordering::Acquire) => side.join(self.stream),
            _ => Ok(()),
        }
    }

    /// What comes in `other` from now on comes after the mark. The context is current.
    pub(super) fn hold_for_mark(&self, other: &Self) -> Result<(), DeviceError> {
        fence_of(&self.fence).map_or(Ok(()), |fence| fence.hold(other.stream))
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

/// A stream of the current context.
fn create_stream(urgency: Urgency) -> Result<sys::CUstream, DeviceError> {
    let (mut least, mut greatest) = (0, 0);
    let mut stream: sys::CUstream = std::ptr::null_mut();
    // SAFETY: the pointers are to live variables.
    unsafe {
        if urgency == Urgency::First {
            sys::cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)
                .result()
                .called("cuCtxGetStreamPriorityRange")?;
        }
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        sys::cuStreamCreateWithPriority(&raw mut stream, flags, greatest)
            .result()
            .called("cuStreamCreateWithPriority")?;
    }
    Ok(stream)
}

impl Queue for CudaQueue {
    unsafe fn zero(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.gpu.with_context(|| {
            // SAFETY: the caller's promise; the context is current.
            unsafe { result::memset_d8_async(address, 0, index(bytes), self.stream) }
                .called("cuMemsetD8Async")
        })
    }

    unsafe fn copy_rows(&self, way: CopyWay, rows: RowCopy) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise; the context is current.
        self.gpu.with_context(|| unsafe { memory::copy_rows(self.stream, way, rows) })
    }

    fn launch(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        self.gpu.with_context(|| self.gpu.launch(self.stream, prepared))
    }

    fn fork(&self) -> Result<(), DeviceError> {
        self.gpu.with_context(|| self.side()?.fork(self.stream))
    }

    fn launch_beside(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        let outcome = self.gpu.with_context(|| self.gpu.launch(self.side()?.stream(), prepared));
        // Behind the launch: a join of another thread that comes between covers it.
        self.is_forked.store(true, Ordering::Release);
        outcome
    }

    fn join(&self) -> Result<(), DeviceError> {
        // Before the join: what another thread launches meanwhile sets it again.
        self.is_forked.store(false, Ordering::Release);
        self.gpu.with_context(|| self.side()?.join(self.stream)).inspect_err(|_| {
            self.is_forked.store(true, Ordering::Release);
        })?;
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.gpu.with_context(|| self.settle())
    }

    fn is_idle(&self) -> Result<bool, DeviceError> {
        self.gpu.with_context(|| {
            let _relaxed = RelaxedCapture::begin()?;
            // SAFETY: the stream lives as long as `self`; the context is current.
            match unsafe { sys::cuStreamQuery(self.stream) } {
                sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
                outcome => outcome.result().called("cuStreamQuery").map(|()| true),
            }
        })
    }

    fn record(&self) -> Result<Event, DeviceError> {
        self.gpu.with_context(|| {
            CudaEvent::record(self.gpu.context, self.gpu.device, self.stream)
                .map(|event| Event(EventKind::Cuda(event)))
        })
    }

    fn key(&self) -> u64 {
        self.key
    }

    fn raw(&self) -> Option<usize> {
        Some(self.stream.expose_provenance())
    }

    fn mark(&self) -> Result<(), DeviceError> {
        self.gpu.with_context(|| fence_of(&self.fence).map_or(Ok(()), |fence| fence.set(self.stream)))
    }

    fn fence(&self) -> &Fence {
        &self.fence
    }

    fn wait_for(&self, fence: &Fence) -> Result<(), DeviceError> {
        self.gpu.with_context(|| fence_of(fence).map_or(Ok(()), |fence| fence.hold(self.stream)))
    }

    fn is_captured(&self) -> Result<bool, DeviceError> {
        self.gpu.with_context(|| self.captured())
    }
}

/// While it lives this thread may ask streams that are not captured what a capture would otherwise forbid: a thread in
/// the usual mode that asks one ends its captures with an error.
struct RelaxedCapture(sys::CUstreamCaptureMode);

impl RelaxedCapture {
    fn begin() -> Result<Self, DeviceError> {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the pointer is to a live mode, which is exchanged for the thread's.
        unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }
            .result()
            .called("cuThreadExchangeStreamCaptureMode")?;
        Ok(Self(mode))
    }
}

impl Drop for RelaxedCapture {
    fn drop(&mut self) {
        // SAFETY: as above; an error has nobody to go to.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut self.0) };
    }
}

/// The event of a queue of a GPU, which every queue here is: no machine has queues of two kinds.
fn fence_of(fence: &Fence) -> Option<&CudaFence> {
    match fence {
        Fence::Cuda(fence) => Some(fence),
        #[cfg(feature = "emulator")]
        Fence::Emulator(_) => None,
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        // Errors have nobody to go to; what cannot be freed dies with the process.
        if self.gpu.bind().is_ok() {
            drop(self.side.take()); // waits for its work
            match self.borrowed {
                true => {
                    let _ = self.wait_for_mark(); // the stream may be gone
                }
                false => {
                    let _ = self.wait();
                    // SAFETY: made by `create`, destroyed only here.
                    let _ = unsafe { result::stream::destroy(self.stream) };
                }
            }
            fence_of(&self.fence).into_iter().for_each(CudaFence::destroy);
        }
    }
}

//! Marks that one stream sets and others wait for: CUDA events without times.

use cudarc::driver::{result, sys};

use super::probe::Called;
use crate::error::DeviceError;

/// An event of the context that is current when it is made; destroyed by its queue, while the context lives.
pub(crate) struct CudaFence(sys::CUevent);

// SAFETY: the driver's handles may be used from any thread on which the context is current.
unsafe impl Send for CudaFence {}
// SAFETY: as above; nothing is changed after `create`.
unsafe impl Sync for CudaFence {}

impl CudaFence {
    /// One that was never set, which nobody waits for.
    pub(super) fn create() -> Result<Self, DeviceError> {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        result::event::create(flags).called("cuEventCreate").map(Self)
    }

    /// Sets it behind what is in `stream` now, and nothing else any more. The context is current.
    pub(super) fn set(&self, stream: sys::CUstream) -> Result<(), DeviceError> {
        // SAFETY: event and stream are of the current context and live.
        unsafe { result::event::record(self.0, stream) }.called("cuEventRecord")
    }

    /// What comes in `stream` from now on comes after what the fence stands behind. The context is current.
    pub(super) fn hold(&self, stream: sys::CUstream) -> Result<(), DeviceError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: event and stream are of the current context and live; an event that was never recorded holds nothing.
        unsafe { result::stream::wait_event(stream, self.0, flags) }.called("cuStreamWaitEvent")
    }

    /// Waits on the host. The context is current.
    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the event is live; one that was never recorded counts as complete.
        unsafe { result::event::synchronize(self.0) }.called("cuEventSynchronize")
    }

    /// Gives it up. The context is current, and nothing uses the fence from now on.
    pub(super) fn destroy(&self) {
        // SAFETY: made by `create`, destroyed once, by the caller's promise. Errors have nobody to go to; the driver
        // keeps what streams still wait for.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

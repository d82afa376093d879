//! Times of a stream's work: CUDA events, and the microseconds between two.

use cudarc::driver::{result, sys};

use super::probe::Called;
use crate::error::DeviceError;

/// A recorded event, with a share of its device's context so that it may outlive the [`Device`](crate::Device).
#[derive(Debug)]
pub(in crate::device) struct CudaEvent {
    handle: sys::CUevent,
    context: sys::CUcontext,
    device: sys::CUdevice,
}

// SAFETY: the driver's handles may be used from any thread; the context is made current before each use.
unsafe impl Send for CudaEvent {}
// SAFETY: as above; nothing is changed after construction.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// Records an event in `stream`. The context, `device`'s primary one, is current.
    pub(super) fn record(
        context: sys::CUcontext,
        device: sys::CUdevice,
        stream: sys::CUstream,
    ) -> Result<Self, DeviceError> {
        let handle = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).called("cuEventCreate")?;
        // SAFETY: `device` is one whose primary context is retained already; released by `drop`.
        if let Err(error) = unsafe { result::primary_ctx::retain(device) } {
            // SAFETY: just created, not used.
            let _ = unsafe { result::event::destroy(handle) };
            return Err(error).called("cuDevicePrimaryCtxRetain");
        }
        let event = Self { handle, context, device };
        // SAFETY: event and stream are of the current context and live.
        unsafe { result::event::record(event.handle, stream) }.called("cuEventRecord")?;
        Ok(event)
    }

    /// Waits for `later`, then the time from `self` to it.
    pub(in crate::device) fn elapsed_us(&self, later: &Self) -> Result<f64, DeviceError> {
        if self.device != later.device {
            return Err(DeviceError::OtherDevice {
                what: "the later event",
                found: format!("cuda:{}", later.device),
                expected: format!("cuda:{}", self.device),
            });
        }
        // SAFETY: the context is retained by both events; both were recorded.
        let milliseconds = unsafe {
            result::ctx::set_current(self.context).called("cuCtxSetCurrent")?;
            result::event::synchronize(later.handle).called("cuEventSynchronize")?;
            result::event::elapsed(self.handle, later.handle).called("cuEventElapsedTime")?
        };
        Ok(f64::from(milliseconds) * 1e3)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // SAFETY: the event was created and the context retained by `record`, both given up only here.
        // Errors have nobody to go to.
        unsafe {
            if result::ctx::set_current(self.context).is_ok() {
                let _ = result::event::destroy(self.handle);
            }
            let _ = result::primary_ctx::release(self.device);
        }
    }
}

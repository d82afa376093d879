//! A second stream that forks off the first and joins it again.

use cudarc::driver::{result, sys};

use super::probe::Called;
use crate::error::DeviceError;

/// The second stream of a GPU, and the two marks that order it with the first.
///
/// Threads share both: one that forks or joins while another does waits for a little more than its own work, never
/// for less, since a wait is for what the mark stood behind when the wait was asked for or later.
pub(super) struct SideStream {
    stream: sys::CUstream,
    forked: sys::CUevent,
    joined: sys::CUevent,
}

// SAFETY: the driver's handles may be used from any thread on which the context is current.
unsafe impl Send for SideStream {}
// SAFETY: as above; nothing is changed after `create`.
unsafe impl Sync for SideStream {}

impl SideStream {
    /// In the current context.
    pub(super) fn create() -> Result<Self, DeviceError> {
        let none = std::ptr::null_mut();
        let mut side = Self { stream: none, forked: none.cast(), joined: none.cast() };
        side.stream =
            result::stream::create(result::stream::StreamKind::NonBlocking).called("cuStreamCreate")?;
        for event in [&mut side.forked, &mut side.joined] {
            *event =
                result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).called("cuEventCreate")?;
        }
        Ok(side)
    }

    pub(super) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// What comes in this stream comes after what is in `main` now.
    pub(super) fn fork(&self, main: sys::CUstream) -> Result<(), DeviceError> {
        order(self.forked, main, self.stream)
    }

    /// What comes in `main` comes after what is in this stream now.
    pub(super) fn join(&self, main: sys::CUstream) -> Result<(), DeviceError> {
        order(self.joined, self.stream, main)
    }

    /// Waits for the work in this stream.
    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`; the context is current.
        unsafe { result::stream::synchronize(self.stream) }.called("cuStreamSynchronize")
    }
}

/// Lets `later` wait for what is in `earlier` now.
fn order(event: sys::CUevent, earlier: sys::CUstream, later: sys::CUstream) -> Result<(), DeviceError> {
    // SAFETY: event and streams are of the current context and live.
    unsafe {
        result::event::record(event, earlier).called("cuEventRecord")?;
        result::stream::wait_event(later, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
            .called("cuStreamWaitEvent")
    }
}

impl Drop for SideStream {
    fn drop(&mut self) {
        // Errors have nobody to go to.
        if !self.stream.is_null() {
            let _ = self.wait();
            // SAFETY: created by `create`, destroyed only here; the context is current.
            let _ = unsafe { result::stream::destroy(self.stream) };
        }
        for event in [self.forked, self.joined] {
            if !event.is_null() {
                // SAFETY: created by `create`, destroyed only here; the context is current.
                let _ = unsafe { result::event::destroy(event) };
            }
        }
    }
}

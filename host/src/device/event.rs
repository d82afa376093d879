//! Marks in the order of a device's work, and the time between two of them.

use std::time::Instant;

use super::cuda::CudaEvent;
use crate::error::DeviceError;

/// A mark in the order of a device's work, set by [`Device::record`](crate::Device::record).
///
/// On a GPU it is a CUDA event: its time is when the work before it had finished. On the CPU and the
/// emulator, where work is done when a call returns, it is the time of the call.
#[derive(Debug)]
pub struct Event(pub(super) EventKind);

#[derive(Debug)]
pub(super) enum EventKind {
    Host(Instant),
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "no GPU sets one"))]
    Cuda(CudaEvent),
}

impl Event {
    pub(super) fn now() -> Self {
        Self(EventKind::Host(Instant::now()))
    }

    /// Microseconds from this mark to a later one of the same device. Waits until `later` is reached.
    ///
    /// On a GPU the resolution is about half a microsecond.
    ///
    /// # Errors
    /// - [`DeviceError::OtherDevice`] if one mark is of a GPU and the other is not of the same;
    /// - [`DeviceError::Driver`] if work before `later` failed.
    ///
    /// # Examples
    /// ```
    /// let device = windrow::Device::cpu();
    /// let (start, end) = (device.record()?, device.record()?);
    /// assert!(start.elapsed_us(&end)? >= 0.0);
    /// # Ok::<(), windrow::DeviceError>(())
    /// ```
    pub fn elapsed_us(&self, later: &Self) -> Result<f64, DeviceError> {
        match (&self.0, &later.0) {
            (EventKind::Host(start), EventKind::Host(end)) => {
                Ok(end.saturating_duration_since(*start).as_secs_f64() * 1e6)
            }
            (EventKind::Cuda(start), EventKind::Cuda(end)) => start.elapsed_us(end),
            (EventKind::Host(_), EventKind::Cuda(_)) => Err(mixed("the host's clock", "a CUDA device")),
            (EventKind::Cuda(_), EventKind::Host(_)) => Err(mixed("a CUDA device", "the host's clock")),
        }
    }
}

fn mixed(expected: &str, found: &str) -> DeviceError {
    DeviceError::OtherDevice {
        what: "the later event",
        found: found.to_owned(),
        expected: expected.to_owned(),
    }
}

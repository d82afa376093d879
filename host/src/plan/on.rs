//! Where the work of a run is queued, and how it is ordered with that of other streams.

use super::checks::{check_device, machine_of};
use crate::device::{Device, Machine, Queue, Stream};
use crate::error::{DeviceError, PlanError};

/// A stream of a plan's device, for one run.
#[derive(Clone, Copy)]
pub(crate) struct On<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) machine: &'a dyn Machine,
    pub(crate) queue: &'a dyn Queue,
    /// Whether it is the device's own, in which everything is ordered that is not said to be elsewhere.
    pub(crate) is_own: bool,
    /// Whether the run uses memory of windrow's beside the plan's, which the own stream uses, too.
    pub(crate) shares: bool,
}

impl<'a> On<'a> {
    /// # Errors
    /// [`PlanError::WrongDevice`] for a stream of another device than the plan's, [`DeviceError::NotAvailable`] for one
    /// of a device that runs no kernels.
    pub(crate) fn of(stream: &'a Stream, device: &'a Device, shares: bool) -> Result<Self, PlanError> {
        check_device("the stream", stream.device(), device)?;
        let machine = machine_of(device)?;
        let own = &**machine.own();
        let queue = stream.queue().unwrap_or(own);
        Ok(Self { stream, machine, queue, is_own: std::ptr::addr_eq(queue, own), shares })
    }

    fn own(&self) -> &'a dyn Queue {
        &**self.machine.own()
    }

    /// What comes now comes after all that the device's own stream was asked for so far.
    pub(crate) fn after_own(&self) -> Result<(), DeviceError> {
        if self.is_own {
            return Ok(());
        }
        self.own().mark()?;
        self.queue.wait_for(self.own().fence())
    }

    /// What the device's own stream is asked for from here on comes after all that this stream was asked for so far.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] on a stream that is captured.
    pub(crate) fn before_own(&self) -> Result<(), DeviceError> {
        if self.is_own {
            return Ok(());
        }
        if self.queue.is_captured()? {
            let (what, remedy) = ("reading a matrix", "make the plan before the capture");
            return Err(DeviceError::Captured { what, remedy });
        }
        self.queue.mark()?;
        self.own().wait_for(self.queue.fence())
    }

    /// Leaves a mark behind a run or a replacement, for memory that is freed and for those who wait, and has the own
    /// stream go on after it if it shares memory. Where that fails, the host waits for the work instead, as for a run
    /// that failed half-way, of which no mark could tell what was queued.
    pub(crate) fn leave(&self, outcome: Result<(), DeviceError>) -> Result<(), DeviceError> {
        if self.is_own {
            return outcome;
        }
        let left = outcome.and_then(|()| self.queue.mark()).and_then(|()| match self.shares {
            true => self.own().wait_for(self.queue.fence()),
            false => Ok(()),
        });
        if left.is_err() {
            let _ = self.queue.synchronize(); // the first error is the one to tell
        }
        left
    }

    /// Whether what is queued is recorded into a graph. The own stream is not asked: nothing is different there.
    pub(crate) fn is_captured(&self) -> Result<bool, DeviceError> {
        if self.is_own { Ok(false) } else { self.queue.is_captured() }
    }
}

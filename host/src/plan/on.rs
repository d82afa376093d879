//! Where the work of a run is queued, and how it is ordered with that of other streams.

use windrow_kernels::Entry;

use super::checks::{check_device, machine_of};
use super::per_stream::PREPARE;
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

    /// Whether nothing needs to come after what the device's own stream was asked for so far: it is done.
    pub(super) fn own_is_idle(&self) -> Result<bool, DeviceError> {
        self.own().is_idle()
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

    /// Whether a run on a stream that is captured may be part of the graph, by its operands.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] for windrow's memory.
    pub(super) fn check_graph(&self) -> Result<(), DeviceError> {
        let (what, remedy) = (
            "the order with the device's own stream that operands in windrow's memory need",
            "give views that are `lent` or made by `from_raw`, and order the graph's launches yourself",
        );
        if self.shares { Err(DeviceError::Captured { what, remedy }) } else { Ok(()) }
    }

    /// Whether nothing has to be compiled to start these kernels in a graph.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] if something has.
    pub(crate) fn check_loaded(
        &self,
        entries: impl IntoIterator<Item = &'static Entry>,
    ) -> Result<(), DeviceError> {
        match entries.into_iter().all(|entry| self.machine.is_loaded(entry)) {
            true => Ok(()),
            false => Err(DeviceError::Captured { what: "the compiling of a kernel", remedy: PREPARE }),
        }
    }

    /// Queues a run of a plan that has no state and whose arrays are written by nobody, with these kernels.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] for what a graph cannot hold; those of the device.
    pub(crate) fn run(
        &self,
        entries: impl IntoIterator<Item = &'static Entry>,
        queue: impl FnOnce(&dyn Queue) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if self.is_own {
            return queue(self.queue);
        }
        if self.is_captured()? {
            self.check_graph()?;
            self.check_loaded(entries)?;
            return queue(self.queue);
        }
        if self.shares {
            self.after_own()?;
        }
        self.leave(queue(self.queue))
    }
}

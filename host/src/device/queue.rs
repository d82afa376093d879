//! An order of work on a device that runs kernels.

use super::event::Event;
use super::machine::Prepared;
use crate::error::DeviceError;

/// An order of work: what is asked of one queue later happens later. Launches return before the kernel has finished.
pub(crate) trait Queue: Send + Sync {
    /// Sets bytes to zero.
    ///
    /// # Safety
    /// The bytes lie inside one live allocation of the queue's machine.
    unsafe fn zero(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;

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

    /// A mark in the order of the work.
    fn record(&self) -> Result<Event, DeviceError>;
}

//! Memory that a value keeps for its operations, which come on one stream after another.

use std::sync::Arc;

use windrow_kernels::Entry;

use super::on::On;
use crate::device::Queue;
use crate::error::DeviceError;

/// Which stream used the memory last: partial sums, the means of an optimiser, results. The operation that comes next
/// is done after that one's, whatever its stream.
#[derive(Default)]
pub(crate) struct Turn {
    /// None for the device's own.
    last: Option<Arc<dyn Queue>>,
}

impl Turn {
    /// Queues an operation with these kernels, which has the memory to itself.
    ///
    /// # Errors
    /// [`DeviceError::Captured`] for what a graph cannot hold; those of the device.
    pub(crate) fn run(
        &mut self,
        on: &On<'_>,
        entries: impl IntoIterator<Item = &'static Entry>,
        queue: impl FnOnce(&dyn Queue) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let stays = self.last.as_ref().map_or(on.is_own, |last| last.key() == on.queue.key());
        if on.is_captured()? {
            on.check_graph()?;
            on.check_loaded(entries)?;
            if !stays {
                let (what, remedy) = (
                    "a wait for the stream of the operation before",
                    "do the same once on this stream before the capture",
                );
                return Err(DeviceError::Captured { what, remedy });
            }
            return queue(on.queue);
        }
        if on.shares || !stays && self.last.is_none() {
            on.after_own()?;
        }
        if let Some(last) = self.last.as_ref().filter(|_| !stays) {
            on.queue.wait_for(last.fence())?;
        }
        self.last = on.stream.shared_queue().filter(|_| !on.is_own).cloned();
        on.leave(queue(on.queue))
    }

    /// Has the device's own stream, in which copies to the host are done, go on after the last operation.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn before_reading(&self, own: &dyn Queue) -> Result<(), DeviceError> {
        self.last.as_ref().map_or(Ok(()), |last| own.wait_for(last.fence()))
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Turn").field(&self.last.as_ref().map(|last| last.key())).finish()
    }
}

//! What a library for messages between devices must be able to do for ranks to exchange rows by it.

use super::queue::Queue;
use crate::error::DeviceError;

/// What tells a group of linked machines from others: one of them makes it, and all join by it.
pub(crate) type LinkId = [u8; 128];

/// Memory of a machine that goes to a rank, or comes from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    pub(crate) rank: usize,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// One machine's end of a group of machines whose memory a library copies from one to another.
pub(crate) trait Link: Send + Sync {
    /// Queues messages, which all happen at once: what one rank sends another receives in the same call, as long as it
    /// was sent.
    ///
    /// # Errors
    /// [`DeviceError::Library`] if the library refuses.
    ///
    /// # Safety
    /// The bytes are live memory of the machine until the work is done; nothing else uses what is received meanwhile,
    /// nor writes what is sent. `queue` is one of the machine's.
    unsafe fn exchange(
        &self,
        queue: &dyn Queue,
        sends: &[Message],
        receives: &[Message],
    ) -> Result<(), DeviceError>;

    /// Whether what was asked for so far goes well, as far as the library knows.
    ///
    /// # Errors
    /// [`DeviceError::Library`].
    fn check(&self) -> Result<(), DeviceError>;

    /// Ends what is under way, with any result, and the link with it: every later call is an error.
    fn abort(&self);
}

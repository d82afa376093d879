//! How a caller follows a long computation, and ends it.

use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;
use windrow_formats::OutOfMemory;

/// Somebody who is told how far a reordering is, and may end it.
///
/// Stages call [`step`](Self::step) from several threads, about a thousand times in all; it should return at once.
pub trait Watch: Sync {
    /// A stage begins that consists of `total` steps.
    fn begin(&self, stage: &'static str, total: u64) {
        let _ = (stage, total);
    }

    /// `steps` more steps of the stage are done.
    fn step(&self, steps: u64) {
        let _ = steps;
    }

    /// Whether the work should end as soon as it can, without a result.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Nobody watches: the work runs to its end.
impl Watch for () {}

/// A flag that another thread may raise.
impl Watch for AtomicBool {
    fn cancelled(&self) -> bool {
        self.load(Ordering::Relaxed)
    }
}

/// Why a reordering ended without an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Stopped {
    /// The [watcher](Watch) ended it.
    #[error("the reordering was cancelled")]
    Cancelled,
    /// There is not enough memory for it.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Reports `steps` done and finds out whether to go on.
pub(crate) fn tick(watch: &dyn Watch, steps: u64) -> Result<(), Stopped> {
    watch.step(steps);
    if watch.cancelled() { Err(Stopped::Cancelled) } else { Ok(()) }
}

/// Finds out whether to go on.
pub(crate) fn go_on(watch: &dyn Watch) -> Result<(), Stopped> {
    if watch.cancelled() { Err(Stopped::Cancelled) } else { Ok(()) }
}

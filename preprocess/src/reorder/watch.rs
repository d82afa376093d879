//! How a caller follows a long computation, and ends it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// The watcher ended the work; nothing was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reordering was cancelled")
    }
}

impl std::error::Error for Cancelled {}

/// Reports `steps` done and finds out whether to go on.
pub(crate) fn tick(watch: &dyn Watch, steps: u64) -> Result<(), Cancelled> {
    watch.step(steps);
    if watch.cancelled() { Err(Cancelled) } else { Ok(()) }
}

/// Finds out whether to go on.
pub(crate) fn go_on(watch: &dyn Watch) -> Result<(), Cancelled> {
    if watch.cancelled() { Err(Cancelled) } else { Ok(()) }
}

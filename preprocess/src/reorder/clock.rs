//! The time that stages take.

use std::time::Instant;

/// A stage of a reordering and the time it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// What the stage does, as reports name it.
    pub name: &'static str,
    /// Wall time that it took.
    pub seconds: f64,
}

/// Collects stages as they end.
#[derive(Debug, Default)]
pub(super) struct Clock {
    pub(super) stages: Vec<Stage>,
}

impl Clock {
    /// Runs a stage and notes how long it took.
    pub(super) fn time<T>(&mut self, name: &'static str, stage: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = stage();
        self.stages.push(Stage { name, seconds: start.elapsed().as_secs_f64() });
        result
    }
}

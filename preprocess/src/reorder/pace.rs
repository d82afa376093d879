//! Work counted for a watcher: how sequential stages report, and find out whether to go on.

use super::watch::{Stopped, Watch, tick};

/// Units of work, of a few nanoseconds each, between two questions whether to go on.
const PART: u64 = 1 << 16;
/// Most steps that a stage reports.
const MAX_STEPS: u64 = 256;

/// How far a stage is.
pub(super) struct Pace<'a> {
    watch: &'a dyn Watch,
    /// Units of work after which a step is told.
    step: u64,
    /// Units done and not yet reported as steps.
    unreported: u64,
    /// Units, also those that no step counts, since the last question.
    unasked: u64,
}

impl<'a> Pace<'a> {
    /// Begins `stage`, which will call [`done`](Self::done) with `work` units in all.
    pub(super) fn begin(watch: &'a dyn Watch, stage: &'static str, work: u64) -> Self {
        let step = (work / MAX_STEPS).max(PART);
        watch.begin(stage, work / step + 1);
        Self { watch, step, unreported: 0, unasked: 0 }
    }

    /// `units` more of the stage's work are done.
    pub(super) fn done(&mut self, units: u64) -> Result<(), Stopped> {
        self.unreported += units;
        self.beside(units)
    }

    /// `units` were spent on something that the stage's total does not count.
    pub(super) fn beside(&mut self, units: u64) -> Result<(), Stopped> {
        self.unasked += units;
        if self.unasked < PART {
            return Ok(());
        }
        self.unasked = 0;
        let steps = self.unreported / self.step;
        self.unreported %= self.step;
        tick(self.watch, steps)
    }

    /// Reports what is left to report.
    pub(super) fn finish(self) -> Result<(), Stopped> {
        tick(self.watch, self.unreported / self.step + 1)
    }
}

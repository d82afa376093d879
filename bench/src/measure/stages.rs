//! What the stages of plans took, over several plans.

use windrow::StageTime;

use super::Statistics;

/// The times of each stage, in the order in which stages first ran.
#[derive(Debug, Default)]
pub(crate) struct StageSamples(Vec<(String, Vec<f64>)>);

impl StageSamples {
    /// Adds those of a plan.
    pub(crate) fn add(&mut self, stages: &[StageTime]) {
        for stage in stages {
            match self.0.iter_mut().find(|(name, _)| name == stage.name) {
                Some((_, times)) => times.push(stage.us),
                None => self.0.push((stage.name.to_owned(), vec![stage.us])),
            }
        }
    }

    /// Median of each stage, in microseconds.
    pub(crate) fn medians(self) -> Vec<(String, f64)> {
        let median = |times: &[f64]| Statistics::of(times).map_or(0.0, |found| found.median);
        self.0.into_iter().map(|(name, times)| (name, median(&times))).collect()
    }
}

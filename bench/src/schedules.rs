//! Hybrids in one stream and in two: which is quicker, and whether the rule knows.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use windrow::OccupancyThresholds;

use crate::sampled::SampledRecord;
use crate::summary::{Grid, geometric_mean, number};
use crate::sweep::{Record, SCHEDULES, SchedulingFacts};

/// Two times this close are taken for the same: runs of one schedule differ by as much.
pub(crate) const SAME: f64 = 1.02;

/// One hybrid product in both schedules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleCase {
    /// Matrix, size and path.
    pub product: String,
    /// Occupancy ratios on CUDA cores and on Tensor Cores.
    pub occupancy: [f64; 2],
    /// Time one after the other, in microseconds.
    pub sequential_us: f64,
    /// Time beside each other, in microseconds.
    pub multi_stream_us: f64,
}

impl ScheduleCase {
    /// Whether these thresholds choose two streams.
    #[must_use]
    pub fn takes_two_streams(&self, thresholds: OccupancyThresholds) -> bool {
        let [cuda_cores, tensor_cores] = self.occupancy;
        cuda_cores < thresholds.cuda_cores && tensor_cores < thresholds.tensor_cores
    }

    /// Time of what these thresholds choose over that of the quicker schedule.
    #[must_use]
    pub fn loss(&self, thresholds: OccupancyThresholds) -> f64 {
        let us = if self.takes_two_streams(thresholds) { self.multi_stream_us } else { self.sequential_us };
        us / self.sequential_us.min(self.multi_stream_us)
    }
}

/// The thresholds that lose least time on `cases`: the least sum of logarithms of [`ScheduleCase::loss`]. Of equal ones the
/// smallest, which leave more to one stream.
///
/// # Examples
/// ```
/// use windrow_bench::{ScheduleCase, fit_thresholds};
///
/// let case = |occupancy, multi_stream_us| ScheduleCase {
///     product: String::new(), occupancy, sequential_us: 10.0, multi_stream_us,
/// };
/// let found = fit_thresholds(&[case([0.2, 0.1], 8.0), case([0.9, 0.1], 11.0), case([0.1, 0.8], 12.0)]);
/// assert!(found.cuda_cores > 0.2 && found.cuda_cores <= 0.9);
/// assert!(found.tensor_cores > 0.1 && found.tensor_cores <= 0.8);
/// ```
#[must_use]
pub fn fit_thresholds(cases: &[ScheduleCase]) -> OccupancyThresholds {
    let candidates = |path: usize| {
        let mut ratios: Vec<f64> = cases.iter().map(|case| case.occupancy[path]).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.dedup();
        // Between two that were met; beyond the last, as far again as it is from the one before.
        let mut between: Vec<f64> = ratios.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
        between.extend(ratios.last().map(|last| 1.1 * last));
        between.insert(0, 0.0);
        between
    };
    let mut best = (f64::INFINITY, OccupancyThresholds { cuda_cores: 0.0, tensor_cores: 0.0 });
    for cuda_cores in candidates(0) {
        for tensor_cores in candidates(1) {
            let thresholds = OccupancyThresholds { cuda_cores, tensor_cores };
            let loss: f64 = cases.iter().map(|case| case.loss(thresholds).ln()).sum();
            if loss < best.0 - 1e-9 {
                best = (loss, thresholds);
            }
        }
    }
    best.1
}

/// The cases of some records: those of a path that were measured in both schedules.
fn cases<'a>(
    records: impl Iterator<Item = (String, &'a str, Option<&'a SchedulingFacts>, Option<f64>)>,
) -> (Vec<ScheduleCase>, Option<OccupancyThresholds>) {
    let mut found: BTreeMap<(String, String), [Option<f64>; 2]> = BTreeMap::new();
    let mut facts: BTreeMap<(String, String), &SchedulingFacts> = BTreeMap::new();
    for (product, path, scheduling, us) in records {
        let Some(schedule) = SCHEDULES.iter().position(|s| path.contains(&format!("+{s}"))) else { continue };
        let base = path.replace(&format!("+{}", SCHEDULES[schedule]), "");
        let key = (product, base);
        found.entry(key.clone()).or_default()[schedule] = us;
        if let Some(scheduling) = scheduling {
            facts.insert(key, scheduling);
        }
    }
    let thresholds = facts.values().next().map(|facts| facts.thresholds);
    let case = |((product, base), us): (&(String, String), &[Option<f64>; 2])| {
        let facts = facts.get(&(product.clone(), base.clone()))?;
        Some(ScheduleCase {
            product: format!("{product}, {base}"),
            occupancy: facts.occupancy,
            sequential_us: us[0]?,
            multi_stream_us: us[1]?,
        })
    };
    (found.iter().filter_map(case).collect(), thresholds)
}

/// What sweep records say of schedules.
pub(crate) fn of_sweep(records: &[Record]) -> String {
    let (cases, thresholds) = cases(records.iter().map(|record| {
        let scheduling = record.plan.as_ref().and_then(|plan| plan.scheduling.as_ref());
        let product = format!("{} at {}", record.matrix.name, record.width);
        (product, record.path.as_str(), scheduling, record.time.as_ref().map(|time| time.timing.median_us))
    }));
    section(&cases, thresholds)
}

/// What records of sampled products say of schedules.
pub(crate) fn of_sampled(records: &[SampledRecord]) -> String {
    let (cases, thresholds) = cases(records.iter().map(|record| {
        let scheduling = record.plan.as_ref().and_then(|plan| plan.scheduling.as_ref());
        let product = format!("{} at {}", record.matrix.name, record.inner);
        (product, record.path.as_str(), scheduling, record.time.map(|time| time.median_us))
    }));
    section(&cases, thresholds)
}

/// Cases as a table, and how often the rule is right.
fn section(cases: &[ScheduleCase], thresholds: Option<OccupancyThresholds>) -> String {
    let Some(thresholds) = thresholds.filter(|_| !cases.is_empty()) else { return String::new() };
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Two streams below an occupancy of {:.3} on CUDA cores and {:.3} on Tensor Cores. {}\n",
        thresholds.cuda_cores,
        thresholds.tensor_cores,
        judgement(cases, thresholds)
    );
    let columns =
        ["product", "CUDA cores", "Tensor Cores", "one stream µs", "two streams µs", "rule", "loss %"];
    let mut grid = Grid::new(columns.iter());
    for case in cases {
        let rule = if case.takes_two_streams(thresholds) { "two" } else { "one" };
        let [cuda_cores, tensor_cores] = case.occupancy;
        grid.row([
            case.product.clone(),
            number(Some(cuda_cores), 2),
            number(Some(tensor_cores), 2),
            number(Some(case.sequential_us), 1),
            number(Some(case.multi_stream_us), 1),
            rule.to_owned(),
            number(Some(100.0 * (case.loss(thresholds) - 1.0)), 1),
        ]);
    }
    let _ = write!(text, "{grid}");
    text
}

/// How often the thresholds choose the quicker schedule, and what it costs where they do not.
#[must_use]
pub fn judgement(cases: &[ScheduleCase], thresholds: OccupancyThresholds) -> String {
    let losses: Vec<f64> = cases.iter().map(|case| case.loss(thresholds)).collect();
    let hits = losses.iter().filter(|loss| **loss <= SAME).count();
    let exact = losses.iter().filter(|loss| **loss == 1.0).count();
    let wrong: Vec<f64> = losses.iter().copied().filter(|loss| *loss > SAME).collect();
    let two = cases.iter().filter(|case| case.multi_stream_us < case.sequential_us / SAME).count();
    let percent = |ratio: Option<f64>| number(ratio.map(|ratio| 100.0 * (ratio - 1.0)), 1);
    format!(
        "The rule takes the quicker one in {hits} of {} cases (within 2 %; to the last digit in {exact}); where it is \
         wrong it loses {} % (geometric mean), at most {} %. Two streams are quicker by more than 2 % in {two}.",
        cases.len(),
        percent(geometric_mean(&wrong)),
        percent(losses.iter().copied().max_by(f64::total_cmp)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(occupancy: [f64; 2], multi_stream_us: f64) -> ScheduleCase {
        ScheduleCase { product: "p".to_owned(), occupancy, sequential_us: 10.0, multi_stream_us }
    }

    #[test]
    fn thresholds_separate_what_can_be_separated() {
        let cases = [
            case([0.1, 0.2], 7.0),
            case([0.3, 0.4], 9.0),
            case([0.2, 2.0], 12.0),
            case([3.0, 0.1], 10.5),
            case([4.0, 5.0], 10.1),
        ];
        let found = fit_thresholds(&cases);
        assert!(cases.iter().all(|case| case.loss(found) == 1.0), "{found:?}");
        let text = judgement(&cases, found);
        assert!(text.contains("in 5 of 5 cases") && text.contains("quicker by more than 2 % in 2"), "{text}");
        let never = OccupancyThresholds { cuda_cores: 0.0, tensor_cores: 0.0 };
        assert!(judgement(&cases, never).contains("in 3 of 5 cases"));
        assert_eq!(fit_thresholds(&[]), never);
    }

    #[test]
    fn where_two_streams_always_win_they_are_always_taken() {
        let cases = [case([0.5, 1.0], 9.0), case([2.0, 0.5], 8.0)];
        assert!(cases.iter().all(|case| case.takes_two_streams(fit_thresholds(&cases))));
    }
}

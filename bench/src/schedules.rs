//! Hybrids in one stream and in two: which is quicker, and whether the rule knows.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use windrow::OccupancyRange;

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
    /// Time of what a range chooses over that of the quicker schedule.
    #[must_use]
    pub fn loss(&self, range: OccupancyRange) -> f64 {
        let us = if range.contains(self.occupancy) { self.multi_stream_us } else { self.sequential_us };
        us / self.sequential_us.min(self.multi_stream_us)
    }
}

/// The range that loses least time on `cases`: the least sum of logarithms of [`ScheduleCase::loss`]. Of equal ones the
/// one that leaves most to one stream.
///
/// # Examples
/// ```
/// use windrow_bench::{ScheduleCase, fit_range};
///
/// let case = |occupancy, multi_stream_us| ScheduleCase {
///     product: String::new(), occupancy, sequential_us: 10.0, multi_stream_us,
/// };
/// let found = fit_range(&[case([0.2, 0.1], 11.0), case([0.9, 3.0], 8.0), case([7.0, 0.8], 9.0)]);
/// assert!(found.least > 0.2 && found.least <= 3.0 && found.most > 7.0);
/// ```
#[must_use]
pub fn fit_range(cases: &[ScheduleCase]) -> OccupancyRange {
    let mut ratios: Vec<f64> = cases.iter().map(|case| case.occupancy[0].max(case.occupancy[1])).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.dedup();
    let mut cuts: Vec<f64> = ratios.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
    cuts.insert(0, 0.0);
    cuts.push(f64::MAX);
    let mut best = (loss_of(cases, OccupancyRange::NEVER), OccupancyRange::NEVER);
    for (i, &least) in cuts.iter().enumerate() {
        for &most in &cuts[i + 1..] {
            let range = OccupancyRange { least, most };
            let loss = loss_of(cases, range);
            if loss < best.0 - 1e-9 {
                best = (loss, range);
            }
        }
    }
    best.1
}

fn loss_of(cases: &[ScheduleCase], range: OccupancyRange) -> f64 {
    cases.iter().map(|case| case.loss(range).ln()).sum()
}

/// The cases of some records: those of a path that were measured in both schedules.
fn cases<'a>(
    records: impl Iterator<Item = (String, &'a str, Option<&'a SchedulingFacts>, Option<f64>)>,
) -> (Vec<ScheduleCase>, Option<OccupancyRange>) {
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
    let range = facts.values().next().map(|facts| facts.two_streams);
    let case = |((product, base), us): (&(String, String), &[Option<f64>; 2])| {
        let facts = facts.get(&(product.clone(), base.clone()))?;
        Some(ScheduleCase {
            product: format!("{product}, {base}"),
            occupancy: facts.occupancy,
            sequential_us: us[0]?,
            multi_stream_us: us[1]?,
        })
    };
    (found.iter().filter_map(case).collect(), range)
}

/// What sweep records say of schedules.
pub(crate) fn of_sweep(records: &[Record]) -> String {
    let (cases, range) = cases(records.iter().map(|record| {
        let scheduling = record.plan.as_ref().and_then(|plan| plan.scheduling.as_ref());
        let product = format!("{} at {}", record.matrix.name, record.width);
        (product, record.path.as_str(), scheduling, record.time.as_ref().map(|time| time.timing.median_us))
    }));
    section(&cases, range)
}

/// What records of sampled products say of schedules.
pub(crate) fn of_sampled(records: &[SampledRecord]) -> String {
    let (cases, range) = cases(records.iter().map(|record| {
        let scheduling = record.plan.as_ref().and_then(|plan| plan.scheduling.as_ref());
        let product = format!("{} at {}", record.matrix.name, record.inner);
        (product, record.path.as_str(), scheduling, record.time.map(|time| time.median_us))
    }));
    section(&cases, range)
}

/// Cases as a table, and how often the rule is right.
fn section(cases: &[ScheduleCase], range: Option<OccupancyRange>) -> String {
    let Some(range) = range.filter(|_| !cases.is_empty()) else { return String::new() };
    let mut text = String::new();
    for (rule, range) in [
        (format!("The plans' rule, two streams {range}"), range),
        (format!("Libra's, two streams {}", OccupancyRange::LIBRA), OccupancyRange::LIBRA),
    ] {
        let _ = writeln!(text, "{rule}: {}\n", judgement(cases, range));
    }
    let columns =
        ["product", "CUDA cores", "Tensor Cores", "one stream µs", "two streams µs", "rule", "loss %"];
    let mut grid = Grid::new(columns.iter());
    for case in cases {
        let rule = if range.contains(case.occupancy) { "two" } else { "one" };
        let [cuda_cores, tensor_cores] = case.occupancy;
        grid.row([
            case.product.clone(),
            number(Some(cuda_cores), 2),
            number(Some(tensor_cores), 2),
            number(Some(case.sequential_us), 1),
            number(Some(case.multi_stream_us), 1),
            rule.to_owned(),
            number(Some(100.0 * (case.loss(range) - 1.0)), 1),
        ]);
    }
    let _ = write!(text, "{grid}");
    text
}

/// How often a range chooses the quicker schedule, and what it costs where it does not.
#[must_use]
pub fn judgement(cases: &[ScheduleCase], range: OccupancyRange) -> String {
    let losses: Vec<f64> = cases.iter().map(|case| case.loss(range)).collect();
    let hits = losses.iter().filter(|loss| **loss <= SAME).count();
    let wrong: Vec<f64> = losses.iter().copied().filter(|loss| *loss > SAME).collect();
    let two = cases.iter().filter(|case| case.multi_stream_us < case.sequential_us / SAME).count();
    let percent = |ratio: Option<f64>| number(ratio.map(|ratio| 100.0 * (ratio - 1.0)), 1);
    format!(
        "right in {hits} of {} cases within 2 %; where it is wrong it loses {} % (geometric mean), at most {} %, over all \
         cases {} %. Two streams are quicker by more than 2 % in {two}.",
        cases.len(),
        percent(geometric_mean(&wrong)),
        percent(losses.iter().copied().max_by(f64::total_cmp)),
        percent(geometric_mean(&losses)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(occupancy: [f64; 2], multi_stream_us: f64) -> ScheduleCase {
        ScheduleCase { product: "p".to_owned(), occupancy, sequential_us: 10.0, multi_stream_us }
    }

    #[test]
    fn ranges_separate_what_can_be_separated() {
        let cases = [
            case([0.1, 0.2], 12.0),
            case([0.3, 0.4], 10.5),
            case([0.2, 2.0], 9.0),
            case([3.0, 0.1], 7.0),
            case([4.0, 5.0], 10.1),
        ];
        let found = fit_range(&cases);
        assert!(cases.iter().all(|case| case.loss(found) == 1.0), "{found:?}");
        let text = judgement(&cases, found);
        assert!(text.contains("right in 5 of 5 cases") && text.contains("more than 2 % in 2"), "{text}");
        assert!(judgement(&cases, OccupancyRange::NEVER).contains("right in 3 of 5 cases"));
        assert_eq!(fit_range(&[]), OccupancyRange::NEVER);
    }

    #[test]
    fn where_one_schedule_always_wins_it_is_always_taken() {
        let two = [case([0.5, 1.0], 9.0), case([2.0, 0.5], 8.0)];
        assert!(two.iter().all(|case| fit_range(&two).contains(case.occupancy)));
        let one = [case([0.5, 1.0], 11.0), case([2.0, 0.5], 12.0)];
        assert_eq!(fit_range(&one), OccupancyRange::NEVER);
    }
}

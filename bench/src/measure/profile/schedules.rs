//! Hybrids in one stream and in two: which is quicker, and whether the rule knows.

use serde::{Deserialize, Serialize};
use windrow::{OccupancyRange, OccupancyThresholds, StreamRule};

use crate::measure::statistics::{geometric_mean, number};

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
    /// Time of what a rule chooses over that of the quicker schedule.
    #[must_use]
    pub(crate) fn loss(&self, rule: StreamRule) -> f64 {
        let us = if rule.contains(self.occupancy) { self.multi_stream_us } else { self.sequential_us };
        us / self.sequential_us.min(self.multi_stream_us)
    }
}

/// The range that loses least time on `cases`: the least sum of logarithms of [`ScheduleCase::loss`]. Of equal ones the
/// one that leaves most to one stream.
#[must_use]
pub(crate) fn fit_range(cases: &[ScheduleCase]) -> OccupancyRange {
    let mut ratios: Vec<f64> = cases.iter().map(|case| case.occupancy[0].max(case.occupancy[1])).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.dedup();
    let mut cuts: Vec<f64> = ratios.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
    cuts.insert(0, 0.0);
    cuts.push(f64::MAX);
    let mut best = (loss_of(cases, OccupancyRange::NEVER.into()), OccupancyRange::NEVER);
    for (i, &least) in cuts.iter().enumerate() {
        for &most in &cuts[i + 1..] {
            let range = OccupancyRange { least, most };
            let loss = loss_of(cases, range.into());
            if loss < best.0 - 1e-9 {
                best = (loss, range);
            }
        }
    }
    best.1
}

/// The thresholds of Libra's equation 8 that lose least time on `cases`; of equal ones the lowest, which leave most to
/// one stream.
#[must_use]
pub(crate) fn fit_thresholds(cases: &[ScheduleCase]) -> OccupancyThresholds {
    let mut best = (f64::INFINITY, OccupancyThresholds::LIBRA_H100);
    let tensor_cuts = cuts(cases, 1);
    for cuda_cores in cuts(cases, 0) {
        for &tensor_cores in &tensor_cuts {
            let thresholds = OccupancyThresholds { cuda_cores, tensor_cores };
            let loss = loss_of(cases, thresholds.into());
            if loss < best.0 - 1e-9 {
                best = (loss, thresholds);
            }
        }
    }
    best.1
}

/// What a threshold on CUDA cores (part 0) or on Tensor Cores may be, ascending: below all measured ratios, half way
/// between each two, and above all.
pub(super) fn cuts(cases: &[ScheduleCase], part: usize) -> Vec<f64> {
    let mut ratios: Vec<f64> = cases.iter().map(|case| case.occupancy[part]).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.dedup();
    let mut cuts: Vec<f64> = ratios.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
    cuts.insert(0, ratios.first().map_or(1.0, |least| 0.5 * least).max(f64::MIN_POSITIVE));
    cuts.push(f64::MAX);
    cuts
}

/// Sum of the logarithms of what a rule loses on each case.
pub(super) fn loss_of(cases: &[ScheduleCase], rule: StreamRule) -> f64 {
    cases.iter().map(|case| case.loss(rule).ln()).sum()
}

/// How often a rule chooses the quicker schedule, and what it costs where it does not.
#[must_use]
pub fn judgement(cases: &[ScheduleCase], rule: impl Into<StreamRule>) -> String {
    let rule = rule.into();
    let losses: Vec<f64> = cases.iter().map(|case| case.loss(rule)).collect();
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
        assert!(cases.iter().all(|case| case.loss(found.into()) == 1.0), "{found:?}");
        let text = judgement(&cases, found);
        assert!(text.contains("right in 5 of 5 cases") && text.contains("more than 2 % in 2"), "{text}");
        assert!(judgement(&cases, OccupancyRange::NEVER).contains("right in 3 of 5 cases"));
        assert_eq!(fit_range(&[]), OccupancyRange::NEVER);
    }

    #[test]
    fn thresholds_separate_what_one_range_cannot() {
        // Two streams pay where CUDA cores are nearly idle, whatever Tensor Cores do up to 2.
        let cases =
            [case([0.1, 1.5], 8.0), case([0.2, 0.2], 8.0), case([1.4, 0.1], 12.0), case([0.1, 3.0], 12.0)];
        let found = fit_thresholds(&cases);
        assert!(cases.iter().all(|case| case.loss(found.into()) == 1.0), "{found:?}");
        assert!(cases.iter().any(|case| case.loss(fit_range(&cases).into()) > 1.0));
        // One stream, or two, for all.
        let never = fit_thresholds(&[case([0.5, 1.0], 11.0), case([2.0, 0.5], 12.0)]);
        assert!(!never.contains([0.5, 1.0]) && !never.contains([2.0, 0.5]), "{never:?}");
        let always = fit_thresholds(&[case([0.5, 1.0], 9.0), case([2.0, 0.5], 9.0)]);
        assert!(always.contains([0.5, 1.0]) && always.contains([2.0, 0.5]), "{always:?}");
    }

    #[test]
    fn a_range_has_two_ends() {
        let found = fit_range(&[case([0.2, 0.1], 11.0), case([0.9, 3.0], 8.0), case([7.0, 0.8], 9.0)]);
        assert!(found.least > 0.2 && found.least <= 3.0 && found.most > 7.0, "{found:?}");
    }

    #[test]
    fn where_one_schedule_always_wins_it_is_always_taken() {
        let two = [case([0.5, 1.0], 9.0), case([2.0, 0.5], 8.0)];
        assert!(two.iter().all(|case| fit_range(&two).contains(case.occupancy)));
        let one = [case([0.5, 1.0], 11.0), case([2.0, 0.5], 12.0)];
        assert_eq!(fit_range(&one), OccupancyRange::NEVER);
    }
}

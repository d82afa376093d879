//! The two thresholds of Libra's equation 8, fitted to products in both schedules.

use std::fmt;

use serde::{Deserialize, Serialize};
use windrow::{OccupancyRange, OccupancyThresholds, StreamRule};

use super::schedules::{SAME, ScheduleCase, cuts, loss_of};

/// Where a threshold is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThresholdSource {
    /// Products are quicker by it than by the paper's.
    Measured,
    /// What Libra's authors found on an H100: no measurement separates another from it.
    Paper,
}

/// The thresholds of Libra's equation 8 for a GPU, and where each is from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ThresholdFit {
    /// Both, as [`Profile::thresholds`](windrow::Profile::thresholds) has them.
    pub thresholds: OccupancyThresholds,
    /// Where the one on CUDA cores is from.
    pub cuda_cores: ThresholdSource,
    /// Where the one on Tensor Cores is from.
    pub tensor_cores: ThresholdSource,
}

/// A way to take streams whatever the occupancy.
const ALWAYS: OccupancyRange = OccupancyRange { least: 0.0, most: f64::MAX };
/// Losses this close are equal: sums of logarithms in another order differ by less.
const EQUAL: f64 = 1e-9;

impl ThresholdFit {
    const PAPER: Self = Self {
        thresholds: OccupancyThresholds::LIBRA_H100,
        cuda_cores: ThresholdSource::Paper,
        tensor_cores: ThresholdSource::Paper,
    };

    /// The thresholds that lose least time on `cases`, among the paper's, those half way between two measured ratios,
    /// and none at all (`f64::MAX`); of equal ones those that keep most of the paper's, then the lowest.
    ///
    /// A case whose two times are within 2 % of each other says nothing. The paper's are kept, both, where what is
    /// found loses as much as one stream for all, or as two: then there is no case on one side of the thresholds that
    /// would say where they lie.
    #[must_use]
    pub(crate) fn of(cases: &[ScheduleCase]) -> Self {
        let differs = |case: &&ScheduleCase| {
            let ratio = case.multi_stream_us / case.sequential_us;
            !(1.0 / SAME..=SAME).contains(&ratio)
        };
        let cases: Vec<_> = cases.iter().filter(differs).cloned().collect();
        let loss = |rule: StreamRule| loss_of(&cases, rule);
        let mut best = (loss(Self::PAPER.thresholds.into()), Self::PAPER);
        let of_part = |part, paper| {
            // Nothing is below the first: that is one stream for all.
            let measured = cuts(&cases, part).into_iter().skip(1).map(|cut| (cut, ThresholdSource::Measured));
            [(paper, ThresholdSource::Paper)].into_iter().chain(measured).collect::<Vec<_>>()
        };
        let paper = Self::PAPER.thresholds;
        let (on_cuda, on_tensor) = (of_part(0, paper.cuda_cores), of_part(1, paper.tensor_cores));
        for wanted in [1, 2] {
            for &(cuda_cores, of_cuda) in &on_cuda {
                for &(tensor_cores, of_tensor) in &on_tensor {
                    let sources = [of_cuda, of_tensor];
                    if sources.iter().filter(|of| **of == ThresholdSource::Measured).count() != wanted {
                        continue;
                    }
                    let thresholds = OccupancyThresholds { cuda_cores, tensor_cores };
                    let lost = loss(thresholds.into());
                    if lost < best.0 - EQUAL {
                        best = (lost, Self { thresholds, cuda_cores: of_cuda, tensor_cores: of_tensor });
                    }
                }
            }
        }
        let for_all = loss(OccupancyRange::NEVER.into()).min(loss(ALWAYS.into()));
        if best.0 < for_all - EQUAL { best.1 } else { Self::PAPER }
    }
}

impl fmt::Display for ThresholdFit {
    /// What of it is the paper's, and why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ThresholdSource::{Measured, Paper};
        f.pad(match (self.cuda_cores, self.tensor_cores) {
            (Measured, Measured) => "both thresholds are measured",
            (Measured, Paper) => {
                "the threshold on CUDA cores is measured; the one on Tensor Cores is the paper's of an H100, from \
                 which no measurement separates another"
            }
            (Paper, Measured) => {
                "the threshold on Tensor Cores is measured; the one on CUDA cores is the paper's of an H100, from \
                 which no measurement separates another"
            }
            (Paper, Paper) => {
                "both thresholds are the paper's of an H100: no measurement separates others from them"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ThresholdSource::{Measured, Paper};
    use super::*;

    fn case(occupancy: [f64; 2], multi_stream_us: f64) -> ScheduleCase {
        ScheduleCase { product: "p".to_owned(), occupancy, sequential_us: 10.0, multi_stream_us }
    }

    /// Every pair of ratios, in two streams 8 µs where `pays`, else 12, and 10 in one.
    fn grid(cuda: &[f64], tensor: &[f64], pays: impl Fn([f64; 2]) -> bool) -> Vec<ScheduleCase> {
        let pairs = cuda.iter().flat_map(|&c| tensor.iter().map(move |&t| [c, t]));
        pairs.map(|ratios| case(ratios, if pays(ratios) { 8.0 } else { 12.0 })).collect()
    }

    fn fit(cases: &[ScheduleCase]) -> ([f64; 2], [ThresholdSource; 2]) {
        let ThresholdFit { thresholds, cuda_cores, tensor_cores } = ThresholdFit::of(cases);
        ([thresholds.cuda_cores, thresholds.tensor_cores], [cuda_cores, tensor_cores])
    }

    const LIBRA: ([f64; 2], [ThresholdSource; 2]) = ([38.27, 3.91], [Paper, Paper]);

    #[test]
    fn thresholds_that_made_the_times_are_found() {
        let (cuda, tensor) = ([0.5, 1.5, 2.5, 8.0], [0.2, 0.6, 1.0, 5.0]);
        let cases = grid(&cuda, &tensor, |[c, t]| c < 2.2 && t < 0.9);
        // Half way between the ratios on either side.
        assert_eq!(fit(&cases), ([2.0, 0.8], [Measured, Measured]));
        // In whatever order, and with a few cases that contradict.
        let mut cases: Vec<_> = cases.into_iter().rev().collect();
        cases.extend([case([1.5, 0.6], 10.6), case([8.0, 5.0], 9.5)]);
        assert_eq!(fit(&cases), ([2.0, 0.8], [Measured, Measured]));
    }

    #[test]
    fn a_part_that_no_measurement_decides_keeps_the_papers() {
        let cases = grid(&[0.5, 1.5, 2.5], &[0.2, 1.0, 3.0], |[c, _]| c < 2.0);
        assert_eq!(fit(&cases), ([2.0, 3.91], [Measured, Paper]));
        let cases = grid(&[0.5, 1.5, 20.0], &[0.2, 1.0, 3.0], |[_, t]| t < 1.5);
        assert_eq!(fit(&cases), ([38.27, 2.0], [Paper, Measured]));
        // Two streams pay beyond the paper's threshold, and no case says from where on they do not.
        let cases = grid(&[0.5, 1.5, 2.5], &[0.2, 9.0], |[c, _]| c < 2.0);
        assert_eq!(fit(&cases), ([2.0, f64::MAX], [Measured, Measured]));
    }

    #[test]
    fn where_nothing_is_separated_the_papers_are_kept() {
        let (cuda, tensor) = ([0.5, 2.0, 50.0], [0.1, 1.0, 9.0]);
        assert_eq!(fit(&[]), LIBRA);
        assert_eq!(fit(&grid(&cuda, &tensor, |_| false)), LIBRA, "one stream for all");
        assert_eq!(fit(&grid(&cuda, &tensor, |_| true)), LIBRA, "two streams for all");
        // The paper's own rule cannot be told from one with a threshold beside it.
        assert_eq!(fit(&grid(&cuda, &tensor, |[c, t]| c < 38.27 && t < 3.91)), LIBRA);
        // Two streams pay where CUDA cores are full: no threshold of equation 8 says so.
        assert_eq!(fit(&grid(&cuda, &[1.0], |[c, _]| c > 10.0)), LIBRA);
        // A difference within 2 % is none.
        let close: Vec<_> = [0.5, 1.0, 2.0].map(|c| case([c, 1.0], if c < 1.5 { 9.9 } else { 10.1 })).into();
        assert_eq!(fit(&close), LIBRA);
        let apart: Vec<_> = [0.5, 1.0, 2.0].map(|c| case([c, 1.0], if c < 1.5 { 9.7 } else { 10.3 })).into();
        assert_eq!(fit(&apart), ([1.5, 3.91], [Measured, Paper]));
    }

    #[test]
    fn it_is_said_whose_thresholds_they_are() {
        let text = |cases: &[ScheduleCase]| ThresholdFit::of(cases).to_string();
        assert!(text(&[]).starts_with("both thresholds are the paper's"));
        let cases = grid(&[0.5, 1.5], &[0.2], |[c, _]| c < 1.0);
        let told = text(&cases);
        assert!(
            told.contains("on CUDA cores is measured") && told.contains("Tensor Cores is the paper's"),
            "{told}"
        );
        let json = serde_json::to_value(ThresholdFit::of(&cases)).unwrap();
        assert_eq!((&json["cuda_cores"], &json["tensor_cores"]), (&"measured".into(), &"paper".into()));
        assert_eq!(json["thresholds"]["cuda_cores"], 1.0);
    }
}

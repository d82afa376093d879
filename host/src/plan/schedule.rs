//! Whether the two parts of a hybrid product run one after the other or beside each other.

use std::fmt;

use windrow_formats::names;

use super::occupancy::{OccupancyRange, OccupancyThresholds, StreamRule};

/// How the launches of a hybrid follow each other: its CUDA-core part and its Tensor-Core part. Plans with one part
/// have nothing to choose.
///
/// Two launches beside each other fill what either leaves idle; but the streams wait for each other twice, and sums
/// of rows that are in both parts take a way through memory. After Libra (section 4.4.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Schedule {
    /// Two streams where that was found to pay, judged by the occupancy of both parts and an
    /// [`OccupancyRange`](crate::OccupancyRange); else one.
    #[default]
    Auto,
    /// One after the other.
    Sequential,
    /// Beside each other, in two streams.
    MultiStream,
    /// As Libra chooses (equation 8): two streams if the occupancy of each part is below the
    /// [`OccupancyThresholds`](crate::OccupancyThresholds) of the profile; else one.
    Thresholds,
}

impl Schedule {
    /// Every choice, `Auto` first.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Sequential, Self::MultiStream, Self::Thresholds];
}

names!(Schedule, "schedule";
    Auto => "auto", Sequential => "sequential", MultiStream => "multi-stream", Thresholds => "thresholds");

/// How the launches of a hybrid follow each other, and why.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Scheduling {
    /// What was asked for.
    pub requested: Schedule,
    /// What is done: one stream or two.
    pub used: Schedule,
    /// Occupancy ratio of the launch on CUDA cores.
    pub cuda_cores: f64,
    /// Occupancy ratio of the launch on Tensor Cores.
    pub tensor_cores: f64,
    /// What makes two streams of them, unless one of the two was asked for.
    pub two_streams: StreamRule,
}

impl Scheduling {
    /// Chooses from the ratios on CUDA cores and on Tensor Cores: by the range where nothing is asked for, by the
    /// thresholds where these are.
    pub(crate) fn choose(
        requested: Schedule,
        ratios: [f64; 2],
        range: OccupancyRange,
        thresholds: OccupancyThresholds,
    ) -> Self {
        let two_streams = match requested {
            Schedule::Thresholds => StreamRule::Each(thresholds),
            _ => StreamRule::Larger(range),
        };
        let used = match requested {
            Schedule::Auto | Schedule::Thresholds if two_streams.contains(ratios) => Schedule::MultiStream,
            Schedule::Auto | Schedule::Thresholds => Schedule::Sequential,
            asked => asked,
        };
        let [cuda_cores, tensor_cores] = ratios;
        Self { requested, used, cuda_cores, tensor_cores, two_streams }
    }

    pub(crate) fn is_beside(&self) -> bool {
        self.used == Schedule::MultiStream
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, cuda_cores, tensor_cores, two_streams, .. } = self;
        let (asked, pay) = match self.requested {
            Schedule::Auto => ("", "pay"),
            Schedule::Thresholds => (" by thresholds", "are taken"),
            _ => (", as asked", "pay"),
        };
        write!(
            f,
            "{used}{asked}: occupancy {cuda_cores:.2} on CUDA cores, {tensor_cores:.2} on Tensor Cores; two streams \
             {pay} {two_streams}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for schedule in Schedule::ALL {
            assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
        }
        let error = "both".parse::<Schedule>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"both\" is no schedule; there are auto, sequential, multi-stream and thresholds"
        );
    }

    #[test]
    fn the_larger_ratio_decides() {
        let used = |asked, ratios, range| {
            Scheduling::choose(asked, ratios, range, OccupancyThresholds::LIBRA_H100).used
        };
        let (one, two) = (Schedule::Sequential, Schedule::MultiStream);
        for (ratios, range, expected) in [
            ([0.4, 0.9], OccupancyRange::UNFILLED, two),
            ([0.4, 1.0], OccupancyRange::UNFILLED, one),
            ([0.4, 0.9], OccupancyRange::FILLED, one),
            ([7.0, 0.1], OccupancyRange::FILLED, two),
            ([0.0, 0.0], OccupancyRange::NEVER, one),
            ([3.0, 0.5], OccupancyRange { least: 2.0, most: 3.0 }, one),
        ] {
            assert_eq!(used(Schedule::Auto, ratios, range), expected, "{ratios:?} {range}");
            assert_eq!(used(one, ratios, range), one);
            assert_eq!(used(two, ratios, range), two);
        }
    }

    #[test]
    fn thresholds_decide_where_they_are_asked_for() {
        let of = |thresholds| {
            Scheduling::choose(Schedule::Thresholds, [5.0, 1.0], OccupancyRange::NEVER, thresholds)
        };
        let found = of(OccupancyThresholds::LIBRA_H100);
        assert_eq!(found.used, Schedule::MultiStream);
        assert_eq!(
            found.to_string(),
            "multi-stream by thresholds: occupancy 5.00 on CUDA cores, 1.00 on Tensor Cores; two streams are taken \
             below 38.27 on CUDA cores and below 3.91 on Tensor Cores"
        );
        let lower = OccupancyThresholds { tensor_cores: 1.0, ..OccupancyThresholds::LIBRA_H100 };
        assert_eq!(of(lower).used, Schedule::Sequential);
    }
}

//! Whether the two parts of a hybrid product run one after the other or beside each other.

use std::fmt;

use windrow_formats::names;
use windrow_kernels::Entry;

use super::geometry::grid;
use crate::device::Machine;
use crate::error::DeviceError;
use crate::num::real;

/// How the launches of a hybrid follow each other: its CUDA-core part and its Tensor-Core part. Plans with one part
/// have nothing to choose.
///
/// Two launches beside each other fill what either leaves idle; but the streams wait for each other twice, and sums
/// of rows that are in both parts take a way through memory. After Libra (section 4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Schedule {
    /// Two streams where that was found to pay, judged by the occupancy of both parts and an [`OccupancyRange`]; else
    /// one.
    #[default]
    Auto,
    /// One after the other.
    Sequential,
    /// Beside each other, in two streams.
    MultiStream,
}

impl Schedule {
    /// Every choice, `Auto` first.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Sequential, Self::MultiStream];
}

names!(Schedule, "schedule";
    Auto => "auto", Sequential => "sequential", MultiStream => "multi-stream");

/// At which occupancy ratios two streams pay.
///
/// The occupancy ratio of a launch is `blocks / (multiprocessors · resident blocks)`: the share of the places for its
/// blocks that it takes, above 1 where blocks have to wait. [`Schedule::Auto`] takes two streams if the larger ratio
/// of the two parts is in the range `least .. most`.
///
/// Libra's rule (equation 8) is another one: the ratio of each part is divided by a threshold of its own, calibrated
/// for the GPU, and two streams are taken if the larger quotient is below 1. With the paper's thresholds for an H100 it
/// was right for 81 of 100 sampled products on an H200, where two streams from a ratio of 1 on were for 95, and for 25
/// of 108 sparse-dense ones, of which two streams paid in 15. That launches in one stream overlap there may be a
/// reason.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OccupancyRange {
    /// The smallest ratio with two streams.
    pub least: f64,
    /// The smallest ratio above it with one stream again.
    pub most: f64,
}

impl OccupancyRange {
    /// No launch is in it: always one stream.
    pub const NEVER: Self = Self { least: 0.0, most: 0.0 };
    /// Two streams unless a launch fills the GPU: Libra's equation 8 with both thresholds 1.
    pub const LIBRA: Self = Self { least: 0.0, most: 1.0 };
    /// Two streams if a launch fills the GPU.
    pub const FILLED: Self = Self { least: 1.0, most: f64::MAX };

    /// Whether two streams are taken for parts with these ratios.
    #[must_use]
    pub fn contains(self, ratios: [f64; 2]) -> bool {
        let larger = ratios[0].max(ratios[1]);
        self.least <= larger && larger < self.most
    }
}

impl fmt::Display for OccupancyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most } = *self;
        match (least < most, least > 0.0, most < f64::MAX) {
            (false, ..) => f.pad("never"),
            (_, false, false) => f.pad("always"),
            (_, false, true) => f.pad(&format!("below {most:.2}")),
            (_, true, false) => f.pad(&format!("from {least:.2}")),
            (_, true, true) => f.pad(&format!("from {least:.2} to {most:.2}")),
        }
    }
}

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
    /// Where the larger of them makes two streams.
    pub two_streams: OccupancyRange,
}

impl Scheduling {
    /// Chooses from the ratios on CUDA cores and on Tensor Cores.
    pub(crate) fn choose(requested: Schedule, ratios: [f64; 2], two_streams: OccupancyRange) -> Self {
        let used = match requested {
            Schedule::Auto if two_streams.contains(ratios) => Schedule::MultiStream,
            Schedule::Auto => Schedule::Sequential,
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
        write!(
            f,
            "{used}{}: occupancy {cuda_cores:.2} on CUDA cores, {tensor_cores:.2} on Tensor Cores; two streams pay {two_streams}",
            if self.requested == Schedule::Auto { "" } else { ", as asked" },
        )
    }
}

/// Share of the places for blocks of `entry` that a launch over `units` units of work and `n` columns takes.
pub(crate) fn occupancy(
    machine: &dyn Machine,
    entry: &'static Entry,
    units: u64,
    n: u32,
) -> Result<f64, DeviceError> {
    let [x, y] = grid(entry, units, n);
    let places = u64::from(machine.multiprocessors()) * u64::from(machine.resident_blocks(entry)?);
    Ok(real(x.saturating_mul(y)) / real(places.max(1)))
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
        assert_eq!(error.to_string(), "\"both\" is no schedule; there are auto, sequential and multi-stream");
    }

    #[test]
    fn the_larger_ratio_decides() {
        let used = |asked, ratios, range| Scheduling::choose(asked, ratios, range).used;
        let (one, two) = (Schedule::Sequential, Schedule::MultiStream);
        for (ratios, range, expected) in [
            ([0.4, 0.9], OccupancyRange::LIBRA, two),
            ([0.4, 1.0], OccupancyRange::LIBRA, one),
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
    fn ranges_are_named() {
        let texts =
            [OccupancyRange::NEVER, OccupancyRange::LIBRA, OccupancyRange::FILLED].map(|r| r.to_string());
        assert_eq!(texts, ["never", "below 1.00", "from 1.00"]);
        assert_eq!(OccupancyRange { least: 0.0, most: f64::MAX }.to_string(), "always");
        assert_eq!(OccupancyRange { least: 0.5, most: 2.0 }.to_string(), "from 0.50 to 2.00");
    }
}

//! Whether the two parts of a hybrid product run one after the other or beside each other.

use std::fmt;
use std::str::FromStr;

use windrow_kernels::Entry;

use crate::device::Machine;
use crate::error::{DeviceError, SpmmError};
use crate::num::real;
use crate::spmm::grid;

/// How the launches of a hybrid follow each other: its CUDA-core part and its Tensor-Core part. Plans with one part have
/// nothing to choose.
///
/// Two launches beside each other fill a GPU that neither fills alone; but sums of rows that are in both parts then take a
/// way through memory, and the streams wait for each other twice. After Libra (section 4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Schedule {
    /// Two streams if both parts leave enough of the GPU idle, judged by [`OccupancyThresholds`], else one.
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

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Sequential => "sequential",
            Self::MultiStream => "multi-stream",
        })
    }
}

impl FromStr for Schedule {
    type Err = SpmmError;

    fn from_str(text: &str) -> Result<Self, SpmmError> {
        Self::ALL.into_iter().find(|s| s.to_string() == text).ok_or_else(|| SpmmError::UnknownName {
            what: "schedule",
            text: text.to_owned(),
            known: "auto, sequential and multi-stream",
        })
    }
}

/// Below which occupancy ratio the launches of a path leave room for those of the other.
///
/// The occupancy ratio of a path is `blocks / (multiprocessors · resident blocks)`: the share of the places for its
/// blocks that its launch takes, above 1 where blocks have to wait. [`Schedule::Auto`] takes two streams if both ratios
/// are below their thresholds.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct OccupancyThresholds {
    /// Of the part on CUDA cores.
    pub cuda_cores: f64,
    /// Of the part on Tensor Cores.
    pub tensor_cores: f64,
}

impl OccupancyThresholds {
    /// Libra's rule before any calibration: a launch that does not fill the GPU leaves room.
    pub const LIBRA: Self = Self { cuda_cores: 1.0, tensor_cores: 1.0 };
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
    /// What they are compared with.
    pub thresholds: OccupancyThresholds,
}

impl Scheduling {
    /// Chooses from the ratios on CUDA cores and on Tensor Cores.
    pub(crate) fn choose(requested: Schedule, ratios: [f64; 2], thresholds: OccupancyThresholds) -> Self {
        let [cuda_cores, tensor_cores] = ratios;
        let room = cuda_cores < thresholds.cuda_cores && tensor_cores < thresholds.tensor_cores;
        let used = match requested {
            Schedule::Auto if room => Schedule::MultiStream,
            Schedule::Auto => Schedule::Sequential,
            asked => asked,
        };
        Self { requested, used, cuda_cores, tensor_cores, thresholds }
    }

    pub(crate) fn is_beside(&self) -> bool {
        self.used == Schedule::MultiStream
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, cuda_cores, tensor_cores, thresholds, .. } = self;
        write!(
            f,
            "{used}{}: occupancy {cuda_cores:.2} of {:.2} on CUDA cores, {tensor_cores:.2} of {:.2} on Tensor Cores",
            if self.requested == Schedule::Auto { "" } else { ", as asked" },
            thresholds.cuda_cores,
            thresholds.tensor_cores
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
    fn two_streams_need_room_on_both_paths() {
        let thresholds = OccupancyThresholds { cuda_cores: 0.5, tensor_cores: 2.0 };
        let used = |asked, ratios| Scheduling::choose(asked, ratios, thresholds).used;
        assert_eq!(used(Schedule::Auto, [0.4, 1.9]), Schedule::MultiStream);
        assert_eq!(used(Schedule::Auto, [0.5, 1.9]), Schedule::Sequential);
        assert_eq!(used(Schedule::Auto, [0.4, 2.0]), Schedule::Sequential);
        assert_eq!(used(Schedule::MultiStream, [9.0, 9.0]), Schedule::MultiStream);
        assert_eq!(used(Schedule::Sequential, [0.1, 0.1]), Schedule::Sequential);
    }
}

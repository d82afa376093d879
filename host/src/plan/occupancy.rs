//! How far a launch fills a GPU, and at which ratios the two parts of a hybrid run beside each other.

use std::fmt;

use serde::{Deserialize, Serialize};
use windrow_kernels::Entry;

use super::geometry::grid;
use crate::device::Machine;
use crate::error::DeviceError;
use crate::num::real;

/// At which occupancy ratios two streams pay, judged by the larger ratio of the two parts.
///
/// The occupancy ratio of a launch is `blocks / (multiprocessors · resident blocks)` (Libra, equation 7): the share of
/// the places for its blocks that it takes, above 1 where blocks have to wait.
/// [`Schedule::Auto`](crate::Schedule::Auto) takes two streams if the larger ratio of the two parts is in the range
/// `least .. most`.
///
/// Libra's own rule is [`OccupancyThresholds`]. With the paper's thresholds for an H100 that was right for 81 of 100
/// sampled products on an H200, where two streams from a ratio of 1 on were for 95, and for 25 of 108 sparse-dense
/// ones, of which two streams paid in 15. That launches in one stream overlap there may be a reason.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
    /// Two streams unless a launch fills the GPU.
    pub const UNFILLED: Self = Self { least: 0.0, most: 1.0 };
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

/// A threshold of the occupancy ratio for each part of a hybrid: equation 8 of Libra.
///
/// Two streams are taken if `max(cuda ratio / cuda_cores, tensor ratio / tensor_cores) < 1`: if neither part saturates
/// the GPU, as its own threshold says. [`Schedule::Thresholds`](crate::Schedule::Thresholds) goes by it.
///
/// # Examples
/// ```
/// use windrow::OccupancyThresholds;
///
/// // Ratios on CUDA cores and on Tensor Cores.
/// assert!(OccupancyThresholds::LIBRA_H100.contains([38.0, 3.9]));
/// assert!(!OccupancyThresholds::LIBRA_H100.contains([1.0, 3.92]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OccupancyThresholds {
    /// The smallest ratio on CUDA cores with one stream.
    pub cuda_cores: f64,
    /// The smallest ratio on Tensor Cores with one stream.
    pub tensor_cores: f64,
}

impl OccupancyThresholds {
    /// What the authors of Libra found for their kernels on an H100 (section 4.4.1).
    pub const LIBRA_H100: Self = Self { cuda_cores: 38.27, tensor_cores: 3.91 };

    /// Whether two streams are taken for parts with these ratios, on CUDA cores and on Tensor Cores.
    #[must_use]
    pub fn contains(self, [cuda_cores, tensor_cores]: [f64; 2]) -> bool {
        (cuda_cores / self.cuda_cores).max(tensor_cores / self.tensor_cores) < 1.0
    }
}

impl fmt::Display for OccupancyThresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = |threshold: f64| match threshold < f64::MAX {
            true => format!("below {threshold:.2}"),
            false => "any".to_owned(),
        };
        let [cuda_cores, tensor_cores] = [self.cuda_cores, self.tensor_cores].map(below);
        f.pad(&format!("{cuda_cores} on CUDA cores and {tensor_cores} on Tensor Cores"))
    }
}

/// What decides between one stream and two.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StreamRule {
    /// Two streams if the larger of the two ratios is in a range.
    Larger(OccupancyRange),
    /// Two streams if each ratio is below a threshold of its own.
    Each(OccupancyThresholds),
}

impl StreamRule {
    /// Whether two streams are taken for parts with these ratios, on CUDA cores and on Tensor Cores.
    #[must_use]
    pub fn contains(self, ratios: [f64; 2]) -> bool {
        match self {
            Self::Larger(range) => range.contains(ratios),
            Self::Each(thresholds) => thresholds.contains(ratios),
        }
    }
}

impl From<OccupancyRange> for StreamRule {
    fn from(range: OccupancyRange) -> Self {
        Self::Larger(range)
    }
}

impl From<OccupancyThresholds> for StreamRule {
    fn from(thresholds: OccupancyThresholds) -> Self {
        Self::Each(thresholds)
    }
}

impl fmt::Display for StreamRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Larger(range) => range.fmt(f),
            Self::Each(thresholds) => thresholds.fmt(f),
        }
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
    fn ranges_are_named() {
        let texts =
            [OccupancyRange::NEVER, OccupancyRange::UNFILLED, OccupancyRange::FILLED].map(|r| r.to_string());
        assert_eq!(texts, ["never", "below 1.00", "from 1.00"]);
        assert_eq!(OccupancyRange { least: 0.0, most: f64::MAX }.to_string(), "always");
        assert_eq!(OccupancyRange { least: 0.5, most: 2.0 }.to_string(), "from 0.50 to 2.00");
        let rule = StreamRule::from(OccupancyThresholds::LIBRA_H100);
        assert_eq!(rule.to_string(), "below 38.27 on CUDA cores and below 3.91 on Tensor Cores");
        let rule = OccupancyThresholds { cuda_cores: f64::MAX, tensor_cores: 0.5 };
        assert_eq!(rule.to_string(), "any on CUDA cores and below 0.50 on Tensor Cores");
    }

    #[test]
    fn each_part_has_its_threshold() {
        let thresholds = OccupancyThresholds { cuda_cores: 4.0, tensor_cores: 0.5 };
        for (ratios, two) in
            [([3.9, 0.4], true), ([4.0, 0.4], false), ([3.9, 0.5], false), ([0.0, 0.0], true)]
        {
            assert_eq!(thresholds.contains(ratios), two, "{ratios:?}");
        }
    }

    #[test]
    fn rules_come_back_from_json() {
        for rule in [OccupancyRange::FILLED.into(), OccupancyThresholds::LIBRA_H100.into()] {
            let text = serde_json::to_string::<StreamRule>(&rule).unwrap();
            assert_eq!(serde_json::from_str::<StreamRule>(&text).unwrap(), rule, "{text}");
        }
    }
}

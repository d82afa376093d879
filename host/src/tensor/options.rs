//! The options of an MTTKRP as one plain value.

use serde::{Deserialize, Serialize};

use crate::options::{Determinism, Precision};
use crate::parallelism::{AtomicParallelism, GroupLaunch};

/// The options of a plan as one plain value: what [`MttkrpBuilder`](super::MttkrpBuilder) sets one by one. As JSON a
/// missing field has its default, and a field that there is not is an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MttkrpOptions {
    /// Columns of the factors that most products will have: [`MttkrpBuilder::width`](super::MttkrpBuilder::width).
    pub width: usize,
    /// The type that values and factors are rounded to: [`MttkrpBuilder::precision`](super::MttkrpBuilder::precision).
    pub precision: Precision,
    /// Whether two runs must give the same bits: [`MttkrpBuilder::determinism`](super::MttkrpBuilder::determinism).
    pub determinism: Determinism,
    /// Device memory that the plan may take, in bytes:
    /// [`MttkrpBuilder::memory_limit`](super::MttkrpBuilder::memory_limit).
    pub memory_limit: Option<u64>,
    /// How segment groups divide the work: [`MttkrpBuilder::parallelism`](super::MttkrpBuilder::parallelism).
    pub parallelism: Option<AtomicParallelism>,
    /// What the division of segment groups leaves to their launch:
    /// [`MttkrpBuilder::group_launch`](super::MttkrpBuilder::group_launch).
    pub group_launch: GroupLaunch,
}

impl Default for MttkrpOptions {
    /// For a usual rank of a CP decomposition.
    fn default() -> Self {
        Self {
            width: 32,
            precision: Precision::F32,
            determinism: Determinism::RunToRun,
            memory_limit: None,
            parallelism: None,
            group_launch: GroupLaunch::default(),
        }
    }
}

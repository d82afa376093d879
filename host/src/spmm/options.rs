//! The options of a product as one plain value.

use serde::{Deserialize, Serialize};
use windrow_preprocess::partition::PartitionRule;
use windrow_preprocess::reorder;

use crate::options::{
    Algorithm, CpuTasks, Determinism, Precision, Preprocessing, RowDivision, TilePipeline, TileValues,
};
use crate::parallelism::{AtomicParallelism, GroupLaunch};
use crate::plan::Schedule;

/// Everything that a plan can be told but the arrays that belong to the matrix: a plain value, to be kept, compared,
/// sent and read back. The setters of [`SpmmBuilder`](crate::SpmmBuilder) set its fields one by one;
/// [`SpmmBuilder::options`](crate::SpmmBuilder::options) takes it whole.
///
/// As JSON a missing field has its default, and a field that there is not is an error.
///
/// # Examples
/// ```
/// use windrow::{Algorithm, Csr, Device, Precision, Spmm, SpmmOptions};
///
/// let options = SpmmOptions { width: 1, precision: Precision::F16, ..SpmmOptions::default() };
/// let plan = Spmm::builder(&Csr::<f32>::identity(2)?).options(options).build(&Device::best()?)?;
/// assert_eq!(plan.run(&[1.0, 2.0])?, [1.0, 2.0]);
///
/// let read: SpmmOptions = serde_json::from_str(r#"{"width": 32, "algorithm": "row-split"}"#)?;
/// assert_eq!(read, SpmmOptions { width: 32, algorithm: Algorithm::RowSplit, ..SpmmOptions::default() });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpmmOptions {
    /// Columns of `B` that most products will have: [`SpmmBuilder::width`](crate::SpmmBuilder::width).
    pub width: usize,
    /// The type that values and `B` are rounded to: [`SpmmBuilder::precision`](crate::SpmmBuilder::precision).
    pub precision: Precision,
    /// Whether two runs must give the same bits: [`SpmmBuilder::determinism`](crate::SpmmBuilder::determinism).
    pub determinism: Determinism,
    /// Device memory that the plan may take, in bytes: [`SpmmBuilder::memory_limit`](crate::SpmmBuilder::memory_limit).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// Products that the plan will make: [`SpmmBuilder::expected_runs`](crate::SpmmBuilder::expected_runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_runs: Option<u64>,
    /// Whether the two paths that are predicted to be quickest are timed:
    /// [`SpmmBuilder::autotune`](crate::SpmmBuilder::autotune).
    #[serde(skip_serializing_if = "is_default")]
    pub autotune: bool,
    /// Where the matrix is laid out in tiles: [`SpmmBuilder::preprocessing`](crate::SpmmBuilder::preprocessing).
    pub preprocessing: Preprocessing,
    /// Whether the plan is ready for new values from device memory:
    /// [`SpmmBuilder::values_from_device`](crate::SpmmBuilder::values_from_device).
    #[serde(skip_serializing_if = "is_default")]
    pub values_from_device: bool,
    /// The algorithm on a GPU: [`SpmmBuilder::algorithm`](crate::SpmmBuilder::algorithm).
    pub algorithm: Algorithm,
    /// How an order of the rows is found; they keep their own if none is given:
    /// [`SpmmBuilder::reorder`](crate::SpmmBuilder::reorder).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<reorder::Options>,
    /// Which rows or entries a hybrid leaves to CUDA cores: [`SpmmBuilder::partition`](crate::SpmmBuilder::partition).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionRule>,
    /// How device memory holds the values of tiles: [`SpmmBuilder::tile_values`](crate::SpmmBuilder::tile_values).
    pub tile_values: TileValues,
    /// How rows of `B` get to Tensor Cores: [`SpmmBuilder::tile_pipeline`](crate::SpmmBuilder::tile_pipeline).
    #[serde(skip_serializing_if = "is_default")]
    pub tile_pipeline: TilePipeline,
    /// Whether the parts of a hybrid follow each other or run beside each other:
    /// [`SpmmBuilder::schedule`](crate::SpmmBuilder::schedule).
    pub schedule: Schedule,
    /// How segment groups divide the work: [`SpmmBuilder::parallelism`](crate::SpmmBuilder::parallelism).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<AtomicParallelism>,
    /// What the division of segment groups leaves to their launch:
    /// [`SpmmBuilder::group_launch`](crate::SpmmBuilder::group_launch).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_launch: Option<GroupLaunch>,
    /// How row-split divides the work: [`SpmmBuilder::row_division`](crate::SpmmBuilder::row_division).
    #[serde(skip_serializing_if = "is_default")]
    pub row_division: RowDivision,
    /// How the CPU deals the product out to its threads: [`SpmmBuilder::cpu_tasks`](crate::SpmmBuilder::cpu_tasks).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_tasks: Option<CpuTasks>,
    /// The number of warps that share a tile stream, instead of as many as the device holds: for tests of windows that
    /// are cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// A warp for each window, whatever its length: for comparison with the tile stream.
    #[serde(skip_serializing_if = "is_default")]
    pub window_each: bool,
}

impl Default for SpmmOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl SpmmOptions {
    /// What a plan is told if it is told nothing, as a constant.
    pub const DEFAULT: Self = Self {
        width: 128,
        precision: Precision::F32,
        determinism: Determinism::RunToRun,
        memory_limit: None,
        expected_runs: None,
        autotune: false,
        preprocessing: Preprocessing::Auto,
        values_from_device: false,
        algorithm: Algorithm::Auto,
        reorder: None,
        partition: None,
        tile_values: TileValues::Auto,
        tile_pipeline: TilePipeline::ThreeStages,
        schedule: Schedule::Auto,
        parallelism: None,
        group_launch: None,
        row_division: RowDivision { piece_entries: None, slice_columns: None, several_ways: None },
        cpu_tasks: None,
        workers: None,
        window_each: false,
    };

    /// The same product by the way of `other`. What the product is, where its layout is made, how much memory it may
    /// take and how its parts follow each other stay; all else is the way.
    pub(crate) fn with_way_of(&self, other: &Self) -> Self {
        let Self { width, precision, determinism, memory_limit, preprocessing, .. } = *self;
        let Self { values_from_device, schedule, autotune, .. } = *self;
        Self {
            width,
            precision,
            determinism,
            memory_limit,
            preprocessing,
            values_from_device,
            schedule,
            autotune,
            ..*other
        }
    }

    /// Whether the way to the product is left to the plan: nothing of it is said.
    pub(crate) fn leave_the_way_open(&self) -> bool {
        *self == self.with_way_of(&Self::DEFAULT)
    }
}

/// Whether an option says nothing.
fn is_default<T: Default + PartialEq>(option: &T) -> bool {
    *option == T::default()
}

#[cfg(test)]
mod tests {
    use windrow_preprocess::partition::VectorThreshold;

    use super::*;

    #[test]
    fn options_come_back_from_json_as_they_were() {
        let all = SpmmOptions {
            autotune: true,
            width: 7,
            precision: Precision::Bf16,
            determinism: Determinism::Fast,
            memory_limit: Some(1 << 40),
            expected_runs: Some(4),
            preprocessing: Preprocessing::Gpu,
            values_from_device: true,
            algorithm: Algorithm::Hybrid,
            reorder: Some(reorder::Options {
                method: reorder::Method::ReverseCuthillMckee,
                ..reorder::Options::default()
            }),
            partition: Some(PartitionRule::ColumnVectors { threshold: VectorThreshold::LIBRA }),
            tile_values: TileValues::Packed,
            tile_pipeline: TilePipeline::Registers,
            schedule: Schedule::MultiStream,
            parallelism: Some("{<1/4 row, 2 col>, 4}".parse().unwrap()),
            group_launch: Some(GroupLaunch::default()),
            row_division: RowDivision { several_ways: Some(true), ..RowDivision::default() },
            cpu_tasks: Some(CpuTasks::default()),
            workers: Some(3),
            window_each: true,
        };
        for options in [SpmmOptions::default(), all] {
            let text = serde_json::to_string(&options).unwrap();
            assert_eq!(serde_json::from_str::<SpmmOptions>(&text).unwrap(), options, "{text}");
        }
        for (text, reason) in [
            (r#"{"widht": 3}"#, "unknown field"),
            (r#"{"precision": "f17"}"#, "f17"),
            (r#"{"parallelism": "{<3 row, 2 col>, 4}"}"#, "4"),
            (r#"{"partition": {"column-vectors": {"threshold": 2.0}}}"#, "2"),
        ] {
            let error = serde_json::from_str::<SpmmOptions>(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn the_way_is_open_until_something_of_it_is_said() {
        let product = SpmmOptions {
            width: 3,
            precision: Precision::F16,
            determinism: Determinism::Fast,
            memory_limit: Some(1),
            preprocessing: Preprocessing::Cpu,
            values_from_device: true,
            schedule: Schedule::Sequential,
            ..SpmmOptions::default()
        };
        assert!(product.leave_the_way_open());
        let said = [
            SpmmOptions { expected_runs: Some(1), ..product },
            SpmmOptions { algorithm: Algorithm::RowSplit, ..product },
            SpmmOptions { reorder: Some(reorder::Options::default()), ..product },
            SpmmOptions { partition: Some(PartitionRule::AllTile), ..product },
            SpmmOptions { tile_values: TileValues::Dense, ..product },
            SpmmOptions { group_launch: Some(GroupLaunch::default()), ..product },
            SpmmOptions { cpu_tasks: Some(CpuTasks::default()), ..product },
        ];
        assert!(said.iter().all(|options| !options.leave_the_way_open()));
        for way in said {
            assert_eq!(product.with_way_of(&way), way);
            let other = SpmmOptions { width: 5, precision: Precision::Bf16, memory_limit: None, ..way };
            assert_eq!(product.with_way_of(&other), way, "what the product is stays");
        }
    }
}

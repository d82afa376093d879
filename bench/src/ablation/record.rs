//! One line of an ablation's output.

use serde::{Deserialize, Serialize};

use crate::sweep::{CheckFacts, DeviceFacts, MatrixFacts, PlanFacts};
use crate::timing::Timing;

/// Version of the lines' form. It rises when a field changes its meaning or goes; new fields do not raise it.
pub const ABLATION_SCHEMA: u32 = 1;

/// What was found of one matrix by one part: one JSON object on a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AblationRecord {
    /// [`ABLATION_SCHEMA`].
    pub schema: u32,
    /// Which windrow was measured.
    pub revision: String,
    /// Where.
    pub device: DeviceFacts,
    /// The sparse matrix.
    pub matrix: MatrixFacts,
    /// Where its values came from.
    pub values: String,
    /// Columns of `B`.
    pub width: usize,
    /// What was found; `null` for a matrix that could not be had.
    pub facts: Option<AblationFacts>,
    /// Why there is nothing, or not everything.
    pub error: Option<String>,
}

/// What the parts find. A time is `null` where it was skipped for want of a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub enum AblationFacts {
    /// A threshold of a partition.
    Threshold(ThresholdFacts),
    /// A threshold of column vectors.
    Vectors(VectorFacts),
    /// Windows dealt out evenly against a warp for each.
    Stream {
        /// Dealt out evenly: the tile stream.
        tile_stream: Option<Measurement>,
        /// A warp for each window.
        window_each: Option<Measurement>,
        /// Time of the second over that of the first.
        speed_up: Option<f64>,
    },
    /// An order of the rows.
    Reorder(ReorderFacts),
    /// Bytes in each format.
    Bytes {
        /// How rows were divided for RS-Tile.
        partition: String,
        /// The formats.
        formats: Vec<FormatFacts>,
    },
    /// The hybrid against its parts.
    Hybrid(Box<HybridFacts>),
    /// Repeated runs beside other work.
    Determinism(DeterminismFacts),
    /// A plan made on the CPU and on the GPU.
    Preprocess(PreprocessFacts),
}

/// A product that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The path, as [`SweepPath`](crate::SweepPath) writes it.
    pub path: String,
    /// The plan.
    pub plan: Option<PlanFacts>,
    /// The comparison with the f64 reference.
    pub check: Option<CheckFacts>,
    /// The time, of a result that is right.
    pub time: Option<Timing>,
    /// Why there is no time.
    pub error: Option<String>,
}

impl Measurement {
    /// Its median in microseconds.
    #[must_use]
    pub fn us(&self) -> Option<f64> {
        self.time.map(|timing| timing.median_us)
    }
}

/// What a threshold leaves in the tiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThresholdFacts {
    /// `overlap`, or `printed`: Algorithm 1 of the paper to the letter, with both of its thresholds the same.
    pub rule: String,
    /// The longest row that may leave, in entries.
    pub max_entries: u32,
    /// Tiles.
    pub tiles: u64,
    /// Windows.
    pub windows: u64,
    /// Entries of a tile, on average.
    pub mean_nnz_per_tile: f64,
    /// Entries of a window, on average.
    pub mean_nnz_per_window: f64,
    /// Rows in the residual.
    pub residual_rows: u64,
    /// Share of the entries in the residual.
    pub residual_share: f64,
    /// Time that the cost model predicts, in microseconds.
    pub predicted_us: f64,
    /// The smaller threshold that divides the rows alike, whose time is repeated here.
    pub same_as: Option<u32>,
    /// The hybrid of this partition.
    pub hybrid: Option<Measurement>,
}

/// What a threshold of column vectors leaves in the tiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VectorFacts {
    /// The threshold, in eighths: `3/8`.
    pub threshold: String,
    /// Steps of 16 columns.
    pub steps: u64,
    /// Column vectors in them.
    pub columns: u64,
    /// Entries of a tile, on average.
    pub mean_nnz_per_tile: f64,
    /// Share of the entries in tiles.
    pub tile_share: f64,
    /// Rows with entries in tiles and on CUDA cores.
    pub rows_in_both: u64,
    /// Time that the cost model predicts, in microseconds.
    pub predicted_us: f64,
    /// The smaller threshold that divides the entries alike, whose time is repeated here.
    pub same_as: Option<String>,
    /// The hybrid of this division.
    pub hybrid: Option<Measurement>,
}

/// What an order does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReorderFacts {
    /// `identity`, a method, or the stages of the similarity order.
    pub order: String,
    /// Time to find it, in seconds.
    pub seconds: f64,
    /// Threads that found it.
    pub threads: usize,
    /// Time of each stage, in seconds.
    pub stages: Vec<(String, f64)>,
    /// Whether the order that was found gathers more than the matrix's own, which was then kept.
    pub kept_original: bool,
    /// Entries for each column vector of a window, in the matrix's own order.
    pub entries_per_vector_before: f64,
    /// The same, in this one.
    pub entries_per_vector_after: f64,
    /// A product in this order.
    pub product: Option<Measurement>,
    /// Time in the matrix's own order over time in this one.
    pub speed_up: Option<f64>,
    /// After how many products the time to find the order is earned back; `null` if never.
    pub break_even: Option<f64>,
}

/// Bytes in a format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FormatFacts {
    /// The format.
    pub format: String,
    /// Bytes of everything but values.
    pub metadata_bytes: u64,
    /// Bytes of values, in f32.
    pub value_bytes: u64,
    /// Both, over those of CSR.
    pub over_csr: f64,
}

/// The hybrid and its parts alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HybridFacts {
    /// The hybrid.
    pub hybrid: Option<Measurement>,
    /// All rows in tiles.
    pub tile_stream: Option<Measurement>,
    /// All rows on CUDA cores, long rows cut.
    pub row_split: Option<Measurement>,
    /// All rows on CUDA cores, grouped by length.
    pub short_rows: Option<Measurement>,
    /// How far the hybrid is behind the quickest of the others, in percent; negative where it is ahead.
    pub loss_percent: Option<f64>,
}

/// A plan made on the CPU and on the GPU, from CSR arrays in host memory to arrays on the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreprocessFacts {
    /// The path.
    pub path: String,
    /// Where the second was made: `gpu`, or `cpu` for a plan that only the CPU makes.
    pub place: String,
    /// Why there.
    pub reason: String,
    /// Bytes of the arrays.
    pub bytes: u64,
    /// The first array that differs; `null` if they are the same, byte for byte.
    pub differs: Option<String>,
    /// Threads of the CPU.
    pub threads: usize,
    /// On the CPU.
    pub cpu: PlaceFacts,
    /// On the GPU.
    pub gpu: PlaceFacts,
    /// Time of the first over that of the second, if the arrays are the same.
    pub speed_up: Option<f64>,
}

/// How long a plan took to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlaceFacts {
    /// Median of the builds, in microseconds.
    pub us: f64,
    /// The quickest, in microseconds.
    pub min_us: f64,
    /// Relative spread, as [`Statistics::noise`](crate::Statistics::noise).
    pub noise: f64,
    /// Builds after the first, which is not counted.
    pub builds: u64,
    /// Median of each stage, in microseconds.
    pub stages: Vec<(String, f64)>,
}

/// What repeated runs gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeterminismFacts {
    /// The path.
    pub path: String,
    /// Runs.
    pub runs: u32,
    /// Runs whose bits differ from those of the first.
    pub differing: u32,
    /// What ran beside.
    pub load: String,
    /// Products that it ran meanwhile.
    pub load_products: u64,
    /// The path, alone.
    pub run_to_run: Option<Measurement>,
    /// The same with sums in any order, alone.
    pub any_order: Option<Measurement>,
    /// Time of the first over that of the second.
    pub cost: Option<f64>,
}

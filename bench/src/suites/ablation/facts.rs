//! What records tell of ablations.

use serde::{Deserialize, Serialize};

use crate::measure::timing::Timing;
use crate::suites::facts::{CheckFacts, MatrixFacts};
use crate::suites::preprocess::PreprocessFacts;
use crate::suites::spmm::facts::PlanFacts;

/// One matrix, width and step of a part; `P` is what is found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartFacts<P> {
    pub(crate) matrix: MatrixFacts,
    /// Where its values came from.
    pub(crate) values: String,
    pub(crate) width: usize,
    /// What was found; `null` where nothing was.
    pub(crate) facts: Option<P>,
}

/// What the parts find. A time is `null` where it was skipped for want of a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub(crate) enum AblationFacts {
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
    /// The tile stream as it is built against what is printed.
    Printed(PrintedFacts),
    /// An order of the rows.
    Reorder(ReorderFacts),
    /// Bytes in each format.
    Bytes {
        /// How rows were divided for RS-Tile.
        partition: String,
        formats: Vec<FormatFacts>,
    },
    /// The hybrid against its parts.
    Hybrid(Box<HybridFacts>),
    /// Repeated runs beside other work.
    Determinism(DeterminismFacts),
    /// A plan made on the CPU and on the GPU: older programs had it as a part, now it is the suite `preprocess`.
    Preprocess(PreprocessFacts),
}

/// A product that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// The path, as [`SweepPath`](crate::measure::SweepPath) writes it.
    pub(crate) path: String,
    pub(crate) plan: Option<PlanFacts>,
    /// The comparison with the f64 reference.
    pub(crate) check: Option<CheckFacts>,
    /// The time, of a result that is right.
    pub(crate) time: Option<Timing>,
    /// Why there is no time.
    pub(crate) error: Option<String>,
}

impl Measurement {
    /// Its median in microseconds.
    pub(crate) fn us(&self) -> Option<f64> {
        self.time.map(|timing| timing.median_us)
    }
}

/// What a threshold leaves in the tiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ThresholdFacts {
    /// `overlap`, or `printed`: Algorithm 1 of the paper to the letter, with both of its thresholds the same.
    pub(crate) rule: String,
    /// The longest row that may leave, in entries.
    pub(crate) max_entries: u32,
    pub(crate) tiles: u64,
    pub(crate) windows: u64,
    /// Entries of a tile, on average.
    pub(crate) mean_nnz_per_tile: f64,
    /// Entries of a window, on average.
    pub(crate) mean_nnz_per_window: f64,
    /// Rows in the residual.
    pub(crate) residual_rows: u64,
    /// Share of the entries in the residual.
    pub(crate) residual_share: f64,
    /// Time that the cost model predicts, in microseconds.
    pub(crate) predicted_us: f64,
    /// The smaller threshold that divides the rows alike, whose time is repeated here.
    pub(crate) same_as: Option<u32>,
    /// The hybrid of this partition.
    pub(crate) hybrid: Option<Measurement>,
}

/// What a threshold of column vectors leaves in the tiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct VectorFacts {
    /// The threshold, in eighths: `3/8`.
    pub(crate) threshold: String,
    /// Steps of 16 columns.
    pub(crate) steps: u64,
    /// Column vectors in them.
    pub(crate) columns: u64,
    /// Entries of a tile, on average.
    pub(crate) mean_nnz_per_tile: f64,
    /// Share of the entries in tiles.
    pub(crate) tile_share: f64,
    /// Rows with entries in tiles and on CUDA cores.
    pub(crate) rows_in_both: u64,
    /// Time that the cost model predicts, in microseconds.
    pub(crate) predicted_us: f64,
    /// The smaller threshold that divides the entries alike, whose time is repeated here.
    pub(crate) same_as: Option<String>,
    /// The hybrid of this division.
    pub(crate) hybrid: Option<Measurement>,
}

/// The tile stream with its values dense, and others beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PrintedFacts {
    /// As it is built.
    pub(crate) built: Option<Measurement>,
    /// Other forms of values, and what RSH-SpMM prints.
    pub(crate) others: Vec<OtherFacts>,
}

/// A variant of the tile stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OtherFacts {
    /// The path, known where there is no product too.
    pub(crate) path: String,
    pub(crate) product: Option<Measurement>,
    /// Its time over that of the stream as it is built.
    pub(crate) slow_down: Option<f64>,
}

/// What an order does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReorderFacts {
    /// `identity`, a method, or the stages of the similarity order.
    pub(crate) order: String,
    /// Time to find it, in seconds.
    pub(crate) seconds: f64,
    /// Threads that found it.
    pub(crate) threads: usize,
    /// Time of each stage, in seconds.
    pub(crate) stages: Vec<(String, f64)>,
    /// Whether the order that was found gathers more than the matrix's own, which was then kept.
    pub(crate) kept_original: bool,
    /// Entries for each column vector of a window, in the matrix's own order.
    pub(crate) entries_per_vector_before: f64,
    /// The same, in this one.
    pub(crate) entries_per_vector_after: f64,
    /// A product in this order.
    pub(crate) product: Option<Measurement>,
    /// Time in the matrix's own order over time in this one.
    pub(crate) speed_up: Option<f64>,
    /// After how many products the time to find the order is earned back; `null` if never.
    pub(crate) break_even: Option<f64>,
}

/// Bytes in a format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FormatFacts {
    pub(crate) format: String,
    /// Bytes of everything but values.
    pub(crate) metadata_bytes: u64,
    /// Bytes of values, in f32.
    pub(crate) value_bytes: u64,
    /// Both, over those of CSR.
    pub(crate) over_csr: f64,
}

/// The hybrid and its parts alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct HybridFacts {
    pub(crate) hybrid: Option<Measurement>,
    /// All rows in tiles.
    pub(crate) tile_stream: Option<Measurement>,
    /// All rows on CUDA cores, long rows cut.
    pub(crate) row_split: Option<Measurement>,
    /// All rows on CUDA cores, grouped by length.
    pub(crate) short_rows: Option<Measurement>,
    /// How far the hybrid is behind the quickest of the others, in percent; negative where it is ahead.
    pub(crate) loss_percent: Option<f64>,
}

/// What repeated runs gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeterminismFacts {
    pub(crate) path: String,
    pub(crate) runs: u32,
    /// Runs whose bits differ from those of the first.
    pub(crate) differing: u32,
    /// What ran beside the path, so that its blocks finish in other orders.
    pub(crate) load: String,
    /// Products that it ran meanwhile.
    pub(crate) load_products: u64,
    /// Time of the path with sums in a fixed order, nothing beside.
    pub(crate) run_to_run: Option<Measurement>,
    /// The same with sums in any order, alone.
    pub(crate) any_order: Option<Measurement>,
    /// Time of the first over that of the second.
    pub(crate) cost: Option<f64>,
}

//! What records tell of sparse-dense products.

use serde::{Deserialize, Serialize};
use windrow::SpmmReport;

use crate::measure::orders::FoundOrder;
use crate::suites::facts::{MatrixFacts, PeerFacts, SchedulingFacts};

/// One matrix, width and path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SpmmFacts {
    pub(crate) matrix: MatrixFacts,
    /// Where its values came from, as [`Values`](crate::suites::matrices::Values) writes it.
    #[serde(default)]
    pub(crate) values: String,
    pub(crate) width: usize,
    /// Algorithm, precision and options asked for, as [`SweepPath`](crate::measure::SweepPath) writes them.
    pub(crate) path: String,
    /// The order of the rows, if the path names one.
    #[serde(default)]
    pub(crate) order: Option<OrderFacts>,
    pub(crate) plan: Option<PlanFacts>,
    /// cuSPARSE on the same matrix and width, for each precision.
    pub(crate) cusparse: Vec<PeerFacts>,
    /// cuBLAS on the dense form of the matrix, if that is small enough.
    #[serde(default)]
    pub(crate) cublas: Vec<PeerFacts>,
    /// The crate `sprs` on one thread of the CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sprs: Vec<PeerFacts>,
}

impl SpmmFacts {
    /// cuSPARSE's best time in this arithmetic, in microseconds.
    pub(crate) fn cusparse_us(&self, math: &str) -> Option<f64> {
        self.cusparse.iter().find(|facts| facts.math == math)?.median_us
    }
}

/// An order of the rows, found once for a matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OrderFacts {
    /// How rows were ordered.
    pub(crate) method: String,
    /// Time to find the order, in milliseconds, on so many threads, while other matrices were reordered on others.
    pub(crate) reorder_ms: f64,
    /// Threads that found it.
    pub(crate) threads: usize,
    /// Entries for each column vector of a window, in the matrix's own order.
    pub(crate) entries_per_vector_before: f64,
    /// The same, in the new order.
    pub(crate) entries_per_vector_after: f64,
    /// Whether the order that was found gathers more than the matrix's own, which was then kept.
    pub(crate) kept_original: bool,
}

impl OrderFacts {
    pub(crate) fn of(method: &str, order: &FoundOrder) -> Self {
        let quality = &order.found.quality;
        Self {
            method: method.to_owned(),
            reorder_ms: order.seconds * 1e3,
            threads: order.threads,
            entries_per_vector_before: quality.before.entries_per_vector,
            entries_per_vector_after: quality.after.entries_per_vector,
            kept_original: order.found.kept_original,
        }
    }
}

/// What a plan reports of itself, as far as times depend on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlanFacts {
    /// The algorithm that is run.
    pub(crate) algorithm: String,
    #[serde(default)]
    pub(crate) reason: String,
    /// Entry points that are launched.
    pub(crate) entries: Vec<String>,
    /// Device memory of the plan, workspace included, in bytes.
    pub(crate) device_bytes: u64,
    /// Time to make the plan, in milliseconds.
    pub(crate) preprocess_ms: f64,
    /// The order in which rows are worked on.
    #[serde(default)]
    pub(crate) order: String,
    /// Whether two runs give the same bits.
    #[serde(default)]
    pub(crate) determinism: String,
    /// How the values of tiles are held, and why; empty if there are no tiles.
    #[serde(default)]
    pub(crate) tile_values: String,
    /// Time that the cost model predicts on CUDA cores and on Tensor Cores, in microseconds.
    #[serde(default)]
    pub(crate) predicted_us: [f64; 2],
    /// Share of the entries that Tensor Cores multiply.
    #[serde(default)]
    pub(crate) tile_share: f64,
    /// Rows and windows that are cut.
    #[serde(default)]
    pub(crate) split: u64,
    /// Rows with entries both in tiles and on CUDA cores.
    #[serde(default)]
    pub(crate) rows_in_both: u64,
    /// Distinct columns of panels; 0 without panels.
    #[serde(default)]
    pub(crate) panel_columns: u64,
    /// What bundles of four rows have in them.
    #[serde(default)]
    pub(crate) panel_vectors: u64,
    /// How the two parts of a hybrid follow each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scheduling: Option<SchedulingFacts>,
}

impl PlanFacts {
    pub(crate) fn of(report: &SpmmReport) -> Self {
        Self {
            algorithm: report.algorithm.to_string(),
            reason: report.reason.clone(),
            entries: report.entries.iter().map(|&entry| entry.to_owned()).collect(),
            device_bytes: report.device_bytes,
            preprocess_ms: report.preprocessing_us() / 1e3,
            order: report.order.clone(),
            determinism: report.determinism.to_string(),
            tile_values: match report.tile_values_reason.as_str() {
                "" => String::new(),
                why => format!("{}: {why}", report.tile_values),
            },
            predicted_us: report.predicted_us,
            tile_share: report.tile_share,
            split: report.split,
            rows_in_both: report.rows_in_both,
            panel_columns: report.panel_columns,
            panel_vectors: report.panel_vectors,
            scheduling: report.scheduling.as_ref().map(SchedulingFacts::of),
        }
    }
}

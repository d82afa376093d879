//! One line of a sweep's output.

use serde::{Deserialize, Serialize};
use windrow::{Csr, Device, OccupancyRange, Scheduling, SpmmReport, Verification};

use super::SweepOptions;
use crate::orders::FoundOrder;
use crate::roofline::DeviceRates;
use crate::timing::Timing;

/// Version of the lines' form. It rises when a field changes its meaning or goes; new fields do not raise it.
pub const SCHEMA: u32 = 1;

/// What was measured of one matrix, width and path: one JSON object on a line.
///
/// What is not known is `null`: `time` of a case that is wrong or did not run, `plan` of one that could not be planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Which windrow was measured.
    pub revision: String,
    /// Where.
    pub device: DeviceFacts,
    /// The sparse matrix.
    pub matrix: MatrixFacts,
    /// Where its values came from, as [`Values`](super::Values) writes it.
    #[serde(default)]
    pub values: String,
    /// Columns of `B`.
    pub width: usize,
    /// Algorithm, precision and options asked for, as [`SweepPath`](super::SweepPath) writes them.
    pub path: String,
    /// The order of the rows, if the path names one.
    #[serde(default)]
    pub order: Option<OrderFacts>,
    /// The plan.
    pub plan: Option<PlanFacts>,
    /// The comparison with the f64 reference.
    pub check: Option<CheckFacts>,
    /// The time, of a result that is right.
    pub time: Option<TimeFacts>,
    /// cuSPARSE on the same matrix and width, for each precision.
    pub cusparse: Vec<PeerFacts>,
    /// cuBLAS on the dense form of the matrix, if that is small enough.
    pub cublas: Vec<PeerFacts>,
    /// Why there is no time.
    pub error: Option<String>,
}

/// The device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// The model.
    pub name: String,
    /// `cuda`, `cpu` or `emulator`.
    pub kind: String,
    /// CUDA version of the driver, such as `13.0`.
    pub driver: Option<String>,
    /// Multiprocessors, or threads of a CPU.
    pub multiprocessors: u32,
}

impl DeviceFacts {
    pub(crate) fn of(device: &Device) -> Self {
        Self {
            name: device.name().to_owned(),
            kind: format!("{:?}", device.kind()).to_ascii_lowercase(),
            driver: device.driver_version().map(|(major, minor)| format!("{major}.{minor}")),
            multiprocessors: device.multiprocessors(),
        }
    }
}

/// The matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MatrixFacts {
    /// Its name.
    pub name: String,
    /// [`pattern_checksum`](crate::pattern_checksum), in hexadecimal.
    pub checksum: Option<String>,
    /// Rows.
    pub rows: Option<usize>,
    /// Columns.
    pub cols: Option<usize>,
    /// Entries.
    pub nnz: Option<usize>,
    /// Entries of the longest row.
    #[serde(default)]
    pub longest_row: Option<u64>,
    /// Rows without entries.
    #[serde(default)]
    pub empty_rows: Option<usize>,
    /// Standard deviation of the lengths of rows, divided by their mean.
    #[serde(default)]
    pub variation: Option<f64>,
}

impl MatrixFacts {
    /// A matrix of which only the name is known.
    pub(crate) fn named(name: String) -> Self {
        Self {
            name,
            checksum: None,
            rows: None,
            cols: None,
            nnz: None,
            longest_row: None,
            empty_rows: None,
            variation: None,
        }
    }

    /// With the facts of `csr`.
    pub(crate) fn of<V>(self, csr: &Csr<V>, checksum: u64) -> Self {
        let checksum = Some(format!("{checksum:016x}"));
        let lengths = || csr.row_offsets().windows(2).map(|ends| ends[1] - ends[0]);
        let (rows, nnz) = (csr.rows() as f64, csr.nnz() as f64);
        let squares: f64 = lengths().map(|len| (len as f64 - nnz / rows).powi(2)).sum();
        Self {
            name: self.name,
            checksum,
            rows: Some(csr.rows()),
            cols: Some(csr.cols()),
            nnz: Some(csr.nnz()),
            longest_row: Some(lengths().max().unwrap_or(0)),
            empty_rows: Some(lengths().filter(|&len| len == 0).count()),
            variation: (nnz > 0.0).then(|| (squares * rows).sqrt() / nnz),
        }
    }
}

/// An order of the rows, found once for a matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OrderFacts {
    /// How rows were ordered.
    pub method: String,
    /// Time to find the order, in milliseconds, on so many threads, while other matrices were reordered on others.
    pub reorder_ms: f64,
    /// Those threads.
    pub threads: usize,
    /// Entries for each column vector of a window, in the matrix's own order.
    pub entries_per_vector_before: f64,
    /// The same, in the new order.
    pub entries_per_vector_after: f64,
    /// Whether the order that was found gathers more than the matrix's own, which was then kept.
    pub kept_original: bool,
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

/// The plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanFacts {
    /// The algorithm that is run.
    pub algorithm: String,
    /// Why that one.
    pub reason: String,
    /// Entry points that are launched.
    pub entries: Vec<String>,
    /// Device memory of the plan, workspace included, in bytes.
    pub device_bytes: u64,
    /// Time to make the plan, in milliseconds.
    pub preprocess_ms: f64,
    /// The order in which rows are worked on.
    #[serde(default)]
    pub order: String,
    /// Whether two runs give the same bits.
    #[serde(default)]
    pub determinism: String,
    /// How the values of tiles are held, and why; empty if there are no tiles.
    #[serde(default)]
    pub tile_values: String,
    /// Time that the cost model predicts on CUDA cores and on Tensor Cores, in microseconds.
    #[serde(default)]
    pub predicted_us: [f64; 2],
    /// Share of the entries that Tensor Cores multiply.
    #[serde(default)]
    pub tile_share: f64,
    /// Rows and windows that are cut.
    #[serde(default)]
    pub split: u64,
    /// Rows with entries both in tiles and on CUDA cores.
    #[serde(default)]
    pub rows_in_both: u64,
    /// How the two parts of a hybrid follow each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<SchedulingFacts>,
}

/// How the two parts of a hybrid follow each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchedulingFacts {
    /// `sequential` or `multi-stream`.
    pub used: String,
    /// Occupancy ratios on CUDA cores and on Tensor Cores.
    pub occupancy: [f64; 2],
    /// Where the larger of them makes two streams.
    pub two_streams: OccupancyRange,
}

impl SchedulingFacts {
    pub(crate) fn of(scheduling: &Scheduling) -> Self {
        Self {
            used: scheduling.used.to_string(),
            occupancy: [scheduling.cuda_cores, scheduling.tensor_cores],
            two_streams: scheduling.two_streams,
        }
    }
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
            scheduling: report.scheduling.as_ref().map(SchedulingFacts::of),
        }
    }
}

/// The comparison with the reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckFacts {
    /// The largest error in units of its bound; `null` if it is infinite.
    pub worst_ratio: Option<f64>,
    /// Elements beyond their bound.
    pub failures: u64,
    /// Elements compared.
    pub checked: u64,
}

impl CheckFacts {
    pub(crate) fn of(verification: &Verification) -> Self {
        let worst_ratio = Some(verification.worst_ratio).filter(|ratio| ratio.is_finite());
        Self { worst_ratio, failures: verification.failures, checked: verification.checked }
    }
}

/// The time of a product, and what it means.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeFacts {
    /// The time itself.
    #[serde(flatten)]
    pub timing: Timing,
    /// Bytes of `B` gathered over the median, in GB/s; `null` if there are none.
    pub gathered_gbps: Option<f64>,
    /// Lower bound of the gather roofline, in microseconds.
    pub roofline_us: Option<f64>,
    /// That bound over the median: 1 at the roofline.
    pub roofline_fraction: Option<f64>,
    /// Time of moving the plan's arrays, `B` and `C` once at the rate of a copy, in microseconds.
    #[serde(default)]
    pub once_us: Option<f64>,
}

impl TimeFacts {
    pub(super) fn of(timing: Timing, report: &SpmmReport, width: usize, rates: Option<&DeviceRates>) -> Self {
        let median = timing.median_us;
        let useful = |x: &f64| x.is_finite() && *x > 0.0;
        let roofline_us = rates.and_then(|rates| rates.roofline_us(report, width));
        Self {
            timing,
            gathered_gbps: Some(report.gathered_bytes(width) / median / 1e3).filter(useful),
            roofline_us,
            roofline_fraction: roofline_us.map(|us| us / median).filter(useful),
            once_us: rates.map(|rates| rates.once_us(report, width)).filter(useful),
        }
    }
}

/// A peer's product on the same matrix and width.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerFacts {
    /// The arithmetic: `f32`, `f16`, `tf32`.
    pub math: String,
    /// Version of the library, if it could be loaded.
    pub version: Option<String>,
    /// Name of the quickest algorithm with a right result.
    pub algorithm: Option<String>,
    /// Its median time, in microseconds.
    pub median_us: Option<f64>,
    /// Everything that was tried.
    pub attempts: Vec<PeerAttempt>,
    /// Why nothing was tried.
    pub error: Option<String>,
}

impl PeerFacts {
    /// The facts of these attempts, of which the quickest right one counts.
    pub(crate) fn best_of(math: String, version: &str, attempts: Vec<PeerAttempt>) -> Self {
        let timed = attempts.iter().filter_map(|attempt| Some((attempt, attempt.time?.median_us)));
        let best = timed.min_by(|a, b| a.1.total_cmp(&b.1));
        let (algorithm, median_us) = best.map(|(attempt, us)| (attempt.algorithm.clone(), us)).unzip();
        Self { math, version: Some(version.to_owned()), algorithm, median_us, attempts, error: None }
    }

    /// The facts when nothing could be tried.
    pub(crate) fn nothing(math: String, error: String) -> Self {
        let (version, algorithm, median_us) = (None, None, None);
        Self { math, version, algorithm, median_us, attempts: Vec::new(), error: Some(error) }
    }
}

/// One algorithm of a peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerAttempt {
    /// Its name.
    pub algorithm: String,
    /// Its time, if its result is right.
    pub time: Option<Timing>,
    /// Time to prepare it, in microseconds.
    pub preprocess_us: Option<f64>,
    /// The comparison with the reference.
    pub check: Option<CheckFacts>,
    /// Why there is no time.
    pub error: Option<String>,
}

impl Record {
    /// A record of a matrix of which only the name is known.
    pub(super) fn blank(device: &Device, options: &SweepOptions, name: String) -> Self {
        Self {
            schema: SCHEMA,
            revision: options.revision.clone(),
            device: DeviceFacts::of(device),
            matrix: MatrixFacts::named(name),
            values: options.values.to_string(),
            width: 0,
            path: String::new(),
            order: None,
            plan: None,
            check: None,
            time: None,
            cusparse: Vec::new(),
            cublas: Vec::new(),
            error: None,
        }
    }

    /// The record as JSON, without a line break.
    ///
    /// # Panics
    /// Never: every field has a form in JSON.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        serde_json::to_string(self).expect("numbers, text and lists of these")
    }

    /// The peer facts of this arithmetic.
    #[must_use]
    pub fn cusparse_us(&self, math: &str) -> Option<f64> {
        self.cusparse.iter().find(|facts| facts.math == math)?.median_us
    }
}

//! The facts that several suites tell: device, matrix, comparison with the reference, time, peers.

use serde::{Deserialize, Serialize};
use windrow::partition::column_vectors;
use windrow::{Csr, Device, Scheduling, SpmmReport, StreamRule, Verification};

use crate::measure::roofline::DeviceRates;
use crate::measure::timing::Timing;

/// The device that was measured, as far as it changes times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceFacts {
    pub(crate) name: String,
    /// `cuda`, `cpu` or `emulator`.
    pub(crate) kind: String,
    /// CUDA version of the driver, such as `13.0`.
    pub(crate) driver: Option<String>,
    /// Multiprocessors, or threads of a CPU.
    pub(crate) multiprocessors: u32,
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

/// The sparse matrix; what is not known of one that could not be had is `null`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MatrixFacts {
    pub(crate) name: String,
    /// [`pattern_checksum`](crate::measure::operands::pattern_checksum) of rows and columns, in hexadecimal.
    pub(crate) checksum: Option<String>,
    pub(crate) rows: Option<usize>,
    pub(crate) cols: Option<usize>,
    pub(crate) nnz: Option<usize>,
    /// Entries of the longest row.
    #[serde(default)]
    pub(crate) longest_row: Option<u64>,
    #[serde(default)]
    pub(crate) empty_rows: Option<usize>,
    /// Distinct columns of each window of 8 rows with entries, summed.
    #[serde(default)]
    pub(crate) column_vectors: Option<u64>,
    /// Batches of up to eight entries of a row.
    #[serde(default)]
    pub(crate) batches: Option<u64>,
    /// Standard deviation of the lengths of rows, divided by their mean.
    #[serde(default)]
    pub(crate) variation: Option<f64>,
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
            column_vectors: None,
            batches: None,
            variation: None,
        }
    }

    /// With the facts of `csr`.
    pub(crate) fn of<V: Sync>(self, csr: &Csr<V>, checksum: u64) -> Self {
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
            column_vectors: column_vectors(csr, csr.nnz()).ok(),
            batches: Some(lengths().map(|len| len.div_ceil(8)).sum()),
            variation: (nnz > 0.0).then(|| (squares * rows).sqrt() / nnz),
        }
    }
}

/// How the two parts of a hybrid follow each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SchedulingFacts {
    /// What the plan did: `sequential` or `multi-stream`.
    pub(crate) used: String,
    /// Occupancy ratios on CUDA cores and on Tensor Cores.
    pub(crate) occupancy: [f64; 2],
    /// What makes two streams of them.
    pub(crate) two_streams: StreamRule,
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

/// The comparison with the reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckFacts {
    /// The largest error in units of its bound; `null` if it is infinite.
    pub(crate) worst_ratio: Option<f64>,
    /// Elements beyond their bound.
    pub(crate) failures: u64,
    pub(crate) checked: u64,
}

impl CheckFacts {
    pub(crate) fn of(verification: &Verification) -> Self {
        let worst_ratio = Some(verification.worst_ratio).filter(|ratio| ratio.is_finite());
        Self { worst_ratio, failures: verification.failures, checked: verification.checked }
    }
}

/// The time of a product, and what bounds it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct TimeFacts {
    #[serde(flatten)]
    pub(crate) timing: Timing,
    /// What bounds it; nothing where nobody asked.
    #[serde(flatten)]
    pub(crate) bounds: Bounds,
}

impl From<Timing> for TimeFacts {
    fn from(timing: Timing) -> Self {
        Self { timing, bounds: Bounds::default() }
    }
}

/// What memory says of a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    /// Bytes of `B` gathered over the median, in GB/s; none if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gathered_gbps: Option<f64>,
    /// Lower bound of the gather roofline, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) roofline_us: Option<f64>,
    /// That bound over the median: 1 at the roofline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) roofline_fraction: Option<f64>,
    /// Time of moving the plan's arrays, `B` and `C` once at the rate of a copy, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) once_us: Option<f64>,
}

impl TimeFacts {
    /// The time of a sparse-dense product of width `width` by the plan of `report`.
    pub(crate) fn of(timing: Timing, report: &SpmmReport, width: usize, rates: Option<&DeviceRates>) -> Self {
        let median = timing.median_us;
        let useful = |x: &f64| x.is_finite() && *x > 0.0;
        let roofline_us = rates.and_then(|rates| rates.roofline_us(report, width));
        let bounds = Bounds {
            gathered_gbps: Some(report.gathered_bytes(width) / median / 1e3).filter(useful),
            roofline_us,
            roofline_fraction: roofline_us.map(|us| us / median).filter(useful),
            once_us: rates.map(|rates| rates.once_us(report, width)).filter(useful),
        };
        Self { timing, bounds }
    }
}

/// A peer's product on the same matrix and width.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerFacts {
    /// The arithmetic: `f32`, `f16`, `tf32`.
    pub(crate) math: String,
    /// Version of the library, if it could be loaded.
    pub(crate) version: Option<String>,
    /// Name of the quickest algorithm with a right result.
    pub(crate) algorithm: Option<String>,
    /// Its median time, in microseconds.
    pub(crate) median_us: Option<f64>,
    /// Everything that was tried.
    #[serde(default)]
    pub(crate) attempts: Vec<PeerAttempt>,
    /// Why nothing was tried.
    pub(crate) error: Option<String>,
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
pub(crate) struct PeerAttempt {
    pub(crate) algorithm: String,
    /// Its time, if its result is right.
    pub(crate) time: Option<Timing>,
    /// Time to prepare it, in microseconds.
    pub(crate) preprocess_us: Option<f64>,
    /// The comparison with the reference.
    pub(crate) check: Option<CheckFacts>,
    /// Why there is no time.
    pub(crate) error: Option<String>,
}

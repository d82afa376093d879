//! Records: one line of JSON for each case, and the facts that several suites tell.

use serde::{Deserialize, Serialize};
use windrow::{Csr, Device, OccupancyRange, Scheduling, SpmmReport, Verification};

use crate::measure::roofline::DeviceRates;
use crate::measure::timing::Timing;

/// Version of the lines' form. It rises when a field changes its meaning or goes; new fields do not raise it.
pub(crate) const SCHEMA: u32 = 1;

/// What was measured of one case: one JSON object on a line. `F` are the fields that a suite adds, beside the others.
///
/// What is not known is `null`: `time` of a case that is wrong or did not run, a plan that could not be made. Lines of
/// version 1 that older programs wrote have no `suite` and no `case`; committed ones leave out more that no summary
/// reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record<F> {
    /// [`SCHEMA`].
    pub(crate) schema: u32,
    /// Name of the suite.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) suite: String,
    /// Name of the case.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) case: String,
    /// Which windrow was measured.
    pub(crate) revision: String,
    /// Where.
    pub(crate) device: DeviceFacts,
    /// What the suite tells.
    #[serde(flatten)]
    pub(crate) facts: F,
    /// The comparison with the f64 reference.
    #[serde(default)]
    pub(crate) check: Option<CheckFacts>,
    /// The time, of a result that is right.
    #[serde(default)]
    pub(crate) time: Option<TimeFacts>,
    /// Why there is no time.
    #[serde(default)]
    pub(crate) error: Option<String>,
}

impl<F> Record<F> {
    /// A record of a case that is yet to be measured.
    pub(crate) fn new(suite: &str, case: String, device: &Device, facts: F) -> Self {
        Self {
            schema: SCHEMA,
            suite: suite.to_owned(),
            case,
            revision: revision(),
            device: DeviceFacts::of(device),
            facts,
            check: None,
            time: None,
            error: None,
        }
    }

    /// The median time in microseconds, of a right result.
    pub(crate) fn us(&self) -> Option<f64> {
        self.time.map(|time| time.timing.median_us)
    }
}

impl<F: Serialize> Record<F> {
    /// The record as JSON, without a line break.
    ///
    /// # Panics
    /// Never: every field has a form in JSON.
    pub(crate) fn to_json_line(&self) -> String {
        serde_json::to_string(self).expect("numbers, text and lists of these")
    }
}

/// Which windrow this is: `WINDROW_REVISION` of the environment, or of the build (`git describe`), or the version.
pub(crate) fn revision() -> String {
    let built = option_env!("WINDROW_REVISION").unwrap_or(concat!("v", env!("CARGO_PKG_VERSION")));
    std::env::var("WINDROW_REVISION").unwrap_or_else(|_| built.to_owned())
}

/// The device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceFacts {
    /// The model.
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

/// The matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MatrixFacts {
    /// Its name.
    pub(crate) name: String,
    /// [`pattern_checksum`](crate::measure::operands::pattern_checksum), in hexadecimal.
    pub(crate) checksum: Option<String>,
    /// Rows.
    pub(crate) rows: Option<usize>,
    /// Columns.
    pub(crate) cols: Option<usize>,
    /// Entries.
    pub(crate) nnz: Option<usize>,
    /// Entries of the longest row.
    #[serde(default)]
    pub(crate) longest_row: Option<u64>,
    /// Rows without entries.
    #[serde(default)]
    pub(crate) empty_rows: Option<usize>,
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

/// How the two parts of a hybrid follow each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SchedulingFacts {
    /// `sequential` or `multi-stream`.
    pub(crate) used: String,
    /// Occupancy ratios on CUDA cores and on Tensor Cores.
    pub(crate) occupancy: [f64; 2],
    /// Where the larger of them makes two streams.
    pub(crate) two_streams: OccupancyRange,
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
    /// Elements compared.
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
    /// The time itself.
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
    /// Its name.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::BenchError;
    use crate::suites::{Measured, Suite, Tally, run};

    /// A suite whose second result is wrong.
    struct Second;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Number {
        number: u32,
        half: Option<f64>,
    }

    impl Suite for Second {
        const NAME: &'static str = "second";
        type Case = u32;
        type Facts = Number;

        fn cases(&self) -> Vec<u32> {
            vec![1, 2, 3]
        }

        fn name(&self, case: &u32) -> String {
            format!("case {case}")
        }

        fn facts(&self, case: &u32) -> Number {
            Number { number: *case, half: None }
        }

        fn measure(&mut self, case: &u32, facts: &mut Number) -> Result<Measured, BenchError> {
            facts.half = Some(f64::from(*case) / 2.0);
            let (worst_ratio, failures) = if *case == 2 { (f64::INFINITY, 3) } else { (0.5, 0) };
            let found = Verification { worst_ratio, worst_row: 1, worst_col: 2, failures, checked: 4 };
            let timing =
                Timing { median_us: 1.5, min_us: 1.0, max_us: 2.0, noise: 0.0, batches: 1, calls: 1 };
            Measured::right(found, timing)
        }
    }

    #[test]
    fn a_wrong_result_is_a_record_without_a_time() {
        let mut records = Vec::new();
        let tally = run(&mut Second, &Device::cpu(), &|_| false, &mut |record| {
            let back: Record<Number> = serde_json::from_str(&record.to_json_line())?;
            assert_eq!(&back, record);
            records.push(back);
            Ok(())
        });
        assert_eq!(tally.unwrap(), Tally { cases: 3, wrong: 1, ..Tally::default() });
        let wrong = &records[1];
        assert_eq!((wrong.suite.as_str(), wrong.case.as_str(), wrong.us()), ("second", "case 2", None));
        assert_eq!(wrong.check, Some(CheckFacts { worst_ratio: None, failures: 3, checked: 4 }));
        assert_eq!(wrong.facts, Number { number: 2, half: Some(1.0) });
        assert!(wrong.error.as_ref().is_some_and(|error| error.contains("3 beyond the bound")));
        assert_eq!((records[0].us(), records[2].us()), (Some(1.5), Some(1.5)));
    }
}

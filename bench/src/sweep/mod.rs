//! Matrices × widths × paths: each case planned, run on fresh numbers, timed, verified, and reported at once.
//!
//! ```
//! use windrow::{Csr, Device};
//! use windrow_bench::{MatrixSource, Sampling, SweepOptions, SweepPath, sweep};
//!
//! let matrix = MatrixSource::InMemory { name: "identity".to_owned(), csr: Csr::identity(100)? };
//! let options = SweepOptions {
//!     widths: vec![32],
//!     paths: vec!["row-split-f32".parse::<SweepPath>()?],
//!     sampling: Sampling::SMOKE,
//!     ..SweepOptions::default()
//! };
//! let mut lines = Vec::new();
//! let summary = sweep(&Device::cpu(), &[matrix], &options, &mut |record| {
//!     lines.push(record.to_json_line());
//!     Ok(())
//! })?;
//! assert_eq!((summary.cases, summary.failed()), (1, 0));
//! assert!(lines[0].contains("\"median_us\""));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compare;
mod path;
mod record;
mod source;
mod table;

use std::io;

use windrow::{Csr, Device, Element, Precision, Spmm, f16};

use crate::error::BenchError;
use crate::operands::{case_seed, pattern_checksum, poisoned_matrix, random_matrix};
use crate::roofline::DeviceRates;
use crate::timing::{Sampling, measure};
use compare::{Compared, Peers};

pub use path::SweepPath;
pub use record::{
    CheckFacts, DeviceFacts, MatrixFacts, PeerAttempt, PeerFacts, PlanFacts, Record, SCHEMA, TimeFacts,
};
pub use source::MatrixSource;
pub use table::Table;

/// What a sweep measures, and how.
#[derive(Debug, Clone)]
pub struct SweepOptions {
    /// Columns of `B`.
    pub widths: Vec<usize>,
    /// Algorithms and precisions.
    pub paths: Vec<SweepPath>,
    /// Seed of the values of matrices that have none, and of `B`.
    pub seed: u64,
    /// How much is measured.
    pub sampling: Sampling,
    /// Which windrow this is, for the records.
    pub revision: String,
    /// Rates of the device for the roofline; `None` leaves it out.
    pub rates: Option<DeviceRates>,
    /// Whether cuSPARSE and cuBLAS are measured beside, on a CUDA device.
    pub peers: bool,
    /// Largest dense `A` in bytes of f32 for which cuBLAS multiplies the dense matrices.
    pub dense_limit_bytes: u64,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self {
            widths: vec![32, 64, 128, 256],
            paths: SweepPath::DEFAULT.to_vec(),
            seed: 1,
            sampling: Sampling::default(),
            revision: revision(),
            rates: None,
            peers: true,
            dense_limit_bytes: 256 << 20,
        }
    }
}

/// Which windrow this is: `WINDROW_REVISION` of the environment, or of the build (`git describe`), or the version.
#[must_use]
pub fn revision() -> String {
    let built = option_env!("WINDROW_REVISION").unwrap_or(concat!("v", env!("CARGO_PKG_VERSION")));
    std::env::var("WINDROW_REVISION").unwrap_or_else(|_| built.to_owned())
}

/// How a sweep went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepSummary {
    /// Records written, those of failed cases included.
    pub cases: u64,
    /// Cases with a wrong result.
    pub wrong: u64,
    /// Cases that did not run.
    pub errors: u64,
    /// Matrices that could not be had.
    pub unreadable: u64,
}

impl SweepSummary {
    /// Cases without a time.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.wrong + self.errors + self.unreadable
    }
}

/// Measures every matrix in every width on every path and hands each record to `emit` as soon as it is measured.
///
/// A case is: a plan of the width; `B` with fresh values, uniform in `[−1, 1)`; `C` full of NaN; the product timed;
/// what the last call left in `C` compared with an f64 reference. A case that fails has its error in its record, and
/// the sweep goes on. On a CUDA device the peers are measured once for each matrix and width, before the paths.
///
/// # Errors
/// The first error of `emit`.
pub fn sweep(
    device: &Device,
    sources: &[MatrixSource],
    options: &SweepOptions,
    emit: &mut dyn FnMut(&Record) -> io::Result<()>,
) -> io::Result<SweepSummary> {
    let mut summary = SweepSummary::default();
    let peers = Peers::load(device, options.peers);
    for source in sources {
        let blank = Record::blank(device, options, source.name());
        let csr = match source.load(options.seed) {
            Ok(csr) => csr,
            Err(error) => {
                summary.cases += 1;
                summary.unreadable += 1;
                emit(&Record { error: Some(error.to_string()), ..blank })?;
                continue;
            }
        };
        let checksum = pattern_checksum(&csr);
        let blank = Record { matrix: blank.matrix.of(&csr, checksum), ..blank };
        for &width in &options.widths {
            let compared = peers.compare(&Compared { device, csr: &csr, checksum, width, options });
            for &path in &options.paths {
                let mut record = Record { width, path: path.to_string(), ..blank.clone() };
                (record.cusparse, record.cublas) = compared.clone();
                let case = Case { device, csr: &csr, checksum, width, path, options };
                match case.run(&mut record) {
                    Ok(()) => {}
                    Err(error) => {
                        let wrong = matches!(error, BenchError::Wrong(_));
                        summary.wrong += u64::from(wrong);
                        summary.errors += u64::from(!wrong);
                        record.error = Some(error.to_string());
                    }
                }
                summary.cases += 1;
                emit(&record)?;
            }
        }
    }
    Ok(summary)
}

/// One matrix, width and path.
struct Case<'a> {
    device: &'a Device,
    csr: &'a Csr<f32>,
    checksum: u64,
    width: usize,
    path: SweepPath,
    options: &'a SweepOptions,
}

impl Case<'_> {
    /// Fills in what is known; after an error that is what was known until then.
    fn run(&self, record: &mut Record) -> Result<(), BenchError> {
        match self.path.precision {
            Precision::F16 => self.run_as::<f16>(record),
            _ => self.run_as::<f32>(record),
        }
    }

    fn run_as<T: Element>(&self, record: &mut Record) -> Result<(), BenchError> {
        let Self { device, csr, width, path, options, .. } = *self;
        let builder = Spmm::builder(csr).width(width).precision(path.precision).algorithm(path.algorithm);
        let plan = builder.build(device)?;
        record.plan = Some(PlanFacts::of(plan.report()));
        let seed = case_seed(options.seed, self.checksum, width, &record.path);
        let b = random_matrix::<T>(device, csr.cols(), width, seed)?;
        let mut c = poisoned_matrix(device, csr.rows(), width)?;
        let timing = measure(device, options.sampling, || {
            plan.run_into(1.0, &b, 0.0, &mut c).map_err(BenchError::from)
        })?;
        let verification = plan.verify(csr, &b, &c)?;
        record.check = Some(CheckFacts::of(&verification));
        if !verification.passed() {
            return Err(BenchError::Wrong(verification));
        }
        let roofline_us = options.rates.as_ref().and_then(|rates| rates.roofline_us(plan.report(), width));
        record.time = Some(TimeFacts::of(timing, plan.report().gathered_bytes(width), roofline_us));
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Attention over the entries of matrices: matrices × columns of a head × paths, each planned, timed, verified.
//!
//! Operands are uniform in `[−1, 1)`, results are full of NaN before. The result is compared with an f64 reference,
//! gradients, too, with those of the CPU.

mod arguments;
mod summary;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use windrow::{AttentionReport, Device};

use super::facts::MatrixFacts;
use super::matrices::{Case, Matrices, MatrixSource, Values};
use super::record::Record;
use super::{Measured, Suite};
use crate::measure::attended::AttendedPath;
use crate::measure::operands::case_seed;
use crate::measure::{BenchError, L2, Sampling, measure};
pub(crate) use arguments::Arguments;

/// What is told of attention.
pub(crate) type AttendedRecord = Record<AttendedFacts>;

/// What is measured, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) sources: Vec<MatrixSource>,
    /// Columns that each head has.
    pub(crate) columns: Vec<usize>,
    pub(crate) paths: Vec<AttendedPath>,
    /// Seed of all operands.
    pub(crate) seed: u64,
    /// How much is measured.
    pub(crate) sampling: Sampling,
    /// What the L2 cache holds before each timed run: each case is measured with each.
    pub(crate) l2: Vec<L2>,
    /// Is told what is done before the first measurement.
    pub(crate) progress: fn(&str),
}

/// One matrix, number of columns and path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttendedFacts {
    pub(crate) matrix: MatrixFacts,
    /// Columns that each head has.
    pub(crate) columns: usize,
    /// Algorithm, precision and options, as [`AttendedPath`] writes them.
    pub(crate) path: String,
    pub(crate) plan: Option<AttendedPlanFacts>,
}

/// A plan of attention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttendedPlanFacts {
    /// The algorithm that is run.
    pub(crate) algorithm: String,
    /// The entry point of the result.
    pub(crate) entry: String,
    /// Rows of a window.
    pub(crate) window_rows: u32,
    /// Device memory of the plan, in bytes.
    pub(crate) device_bytes: u64,
    /// Time to make the plan, in milliseconds.
    pub(crate) preprocess_ms: f64,
}

impl AttendedPlanFacts {
    fn of(report: &AttentionReport) -> Self {
        Self {
            algorithm: report.algorithm.to_string(),
            entry: report.entry.to_owned(),
            window_rows: report.window_rows,
            device_bytes: report.device_bytes,
            preprocess_ms: report.preprocessing_us() / 1e3,
        }
    }
}

pub(crate) struct Attention {
    device: Device,
    options: Options,
    matrices: Matrices,
}

impl Attention {
    /// Reads all of the matrices.
    pub(crate) fn open(device: &Device, options: Options) -> Self {
        let matrices = Matrices::load(&options.sources, Values::File, options.seed, options.progress);
        Self { device: device.clone(), options, matrices }
    }
}

impl Suite for Attention {
    const NAME: &'static str = "attention";
    type Case = Case<AttendedPath>;
    type Facts = AttendedFacts;

    fn cases(&self) -> Vec<Self::Case> {
        self.matrices.cases(&self.options.columns, &self.options.l2, &self.options.paths)
    }

    fn name(&self, case: &Self::Case) -> String {
        self.matrices.name(case)
    }

    fn l2(&self, case: &Self::Case) -> L2 {
        case.l2
    }

    fn facts(&self, case: &Self::Case) -> AttendedFacts {
        AttendedFacts {
            matrix: self.matrices.facts(case),
            columns: case.width,
            path: case.path.map_or_else(String::new, |path| path.to_string()),
            plan: None,
        }
    }

    fn measure(&mut self, case: &Self::Case, facts: &mut AttendedFacts) -> Result<Measured, BenchError> {
        let (matrix, path) = self.matrices.of(case)?;
        let (csr, columns) = (&matrix.csr, case.width);
        let seed = case_seed(self.options.seed, matrix.checksum, columns, "Q");
        let mut attended = path.prepare(csr, columns, &self.device, seed)?;
        facts.plan = Some(AttendedPlanFacts::of(attended.plan().report()));
        let timing = measure(&self.device, self.options.sampling.with_l2(case.l2), || attended.run())?;
        Measured::right(attended.verify(csr)?, timing)
    }
}

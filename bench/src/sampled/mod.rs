//! Sampled products: patterns × inner dimensions × paths, each planned, timed, verified, beside cuSPARSE.

mod path;
mod summary;

use std::io;

use serde::{Deserialize, Serialize};
use windrow::{
    Csr, Device, DeviceBuffer, DeviceKind, DeviceMatrix, Element, Precision, SddmmPlan, SddmmReport,
    Verification, bf16, f16,
};

use crate::error::BenchError;
use crate::operands::{case_seed, random_matrix};
use crate::peers::{CuSparse, DeviceCsr};
use crate::product::{Bs, Stored};
use crate::roofline::DeviceRates;
use crate::sweep::{
    CheckFacts, DeviceFacts, Matrix, MatrixFacts, MatrixSource, PeerAttempt, PeerFacts, SchedulingFacts,
    SweepSummary, Values, load_all, revision,
};
use crate::timing::{Sampling, Timing, measure};

pub use path::SampledPath;
pub use summary::summarise_sampled;

/// Version of the lines' form, as [`SCHEMA`](crate::SCHEMA).
pub const SAMPLED_SCHEMA: u32 = 1;
/// What a result is full of before a peer writes it: far beyond every bound, but finite, since a library may multiply
/// it by β = 0 instead of not reading it.
const UNWRITTEN: f32 = 1e30;

/// What is measured, and how.
#[derive(Debug, Clone)]
pub struct SampledOptions {
    /// Columns of `X` and `Y`.
    pub inners: Vec<usize>,
    /// Algorithms and precisions.
    pub paths: Vec<SampledPath>,
    /// Seed of values and operands.
    pub seed: u64,
    /// How much is measured.
    pub sampling: Sampling,
    /// Rates of the device for the roofline; `None` leaves it out.
    pub rates: Option<DeviceRates>,
    /// Whether cuSPARSE is measured beside, on a CUDA device.
    pub peers: bool,
    /// Is told what is done before the first measurement.
    pub progress: fn(&str),
}

impl Default for SampledOptions {
    fn default() -> Self {
        Self {
            inners: vec![32, 64, 128, 256],
            paths: SampledPath::DEFAULT.to_vec(),
            seed: 1,
            sampling: Sampling::default(),
            rates: None,
            peers: true,
            progress: |_| {},
        }
    }
}

/// What was measured of one pattern, inner dimension and path: one JSON object on a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampledRecord {
    /// [`SAMPLED_SCHEMA`].
    pub schema: u32,
    /// Which windrow was measured.
    pub revision: String,
    /// Where.
    pub device: DeviceFacts,
    /// The pattern.
    pub matrix: MatrixFacts,
    /// Columns of `X` and `Y`.
    pub inner: usize,
    /// Algorithm, precision and options, as [`SampledPath`] writes them.
    pub path: String,
    /// The plan.
    pub plan: Option<SampledPlanFacts>,
    /// The comparison with the f64 reference.
    pub check: Option<CheckFacts>,
    /// The time, of a result that is right.
    pub time: Option<Timing>,
    /// Lower bound of the gather roofline, in microseconds.
    pub roofline_us: Option<f64>,
    /// cuSPARSE on the same pattern and inner dimension, for f32 and f16 operands.
    pub cusparse: Vec<PeerFacts>,
    /// Why there is no time.
    pub error: Option<String>,
}

/// A plan of sampled products.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampledPlanFacts {
    /// The algorithm that is run.
    pub algorithm: String,
    /// Entry points that are launched.
    pub entries: Vec<String>,
    /// Device memory of the plan, in bytes.
    pub device_bytes: u64,
    /// Time to make the plan, in milliseconds.
    pub preprocess_ms: f64,
    /// Share of the entries that Tensor Cores compute.
    pub tile_share: f64,
    /// Share of the tiles' places that hold an entry.
    pub utilisation: f64,
    /// How the two parts of a hybrid follow each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<SchedulingFacts>,
}

impl SampledPlanFacts {
    fn of(report: &SddmmReport) -> Self {
        Self {
            algorithm: report.algorithm.to_string(),
            entries: report.entries.iter().map(|&entry| entry.to_owned()).collect(),
            device_bytes: report.device_bytes,
            preprocess_ms: report.preprocessing_us() / 1e3,
            tile_share: report.tile_share,
            utilisation: report.utilisation,
            scheduling: report.scheduling.as_ref().map(SchedulingFacts::of),
        }
    }
}

impl SampledRecord {
    /// The record as JSON, without a line break.
    ///
    /// # Panics
    /// Never: every field has a form in JSON.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        serde_json::to_string(self).expect("numbers, text and lists of these")
    }

    /// cuSPARSE's time with operands of this type.
    #[must_use]
    pub fn cusparse_us(&self, math: &str) -> Option<f64> {
        self.cusparse.iter().find(|facts| facts.math == math)?.median_us
    }
}

/// Measures every pattern with every inner dimension on every path and hands each record to `emit` as soon as it is
/// measured: operands uniform in `[−1, 1)`, the result full of NaN before, what the last call left compared with an f64
/// reference. A case that fails has its error in its record.
///
/// # Errors
/// The first error of `emit`.
pub fn sampled_sweep(
    device: &Device,
    sources: &[MatrixSource],
    options: &SampledOptions,
    emit: &mut dyn FnMut(&SampledRecord) -> io::Result<()>,
) -> io::Result<SweepSummary> {
    let mut summary = SweepSummary::default();
    let wanted = options.peers && device.kind() == DeviceKind::Cuda;
    let library = wanted.then(|| CuSparse::load(device));
    let matrices = load_all(sources, Values::Random, options.seed, options.progress);
    for (source, matrix) in sources.iter().zip(&matrices) {
        let blank = SampledRecord {
            schema: SAMPLED_SCHEMA,
            revision: revision(),
            device: DeviceFacts::of(device),
            matrix: MatrixFacts::named(source.name()),
            inner: 0,
            path: String::new(),
            plan: None,
            check: None,
            time: None,
            roofline_us: None,
            cusparse: Vec::new(),
            error: None,
        };
        let Matrix { csr, checksum } = match matrix {
            Ok(matrix) => matrix,
            Err(error) => {
                summary.cases += 1;
                summary.unreadable += 1;
                emit(&SampledRecord { error: Some(error.to_string()), ..blank })?;
                continue;
            }
        };
        let blank = SampledRecord { matrix: blank.matrix.of(csr, *checksum), ..blank };
        for &inner in &options.inners {
            let case =
                Case { device, csr, inner, seed: case_seed(options.seed, *checksum, inner, "X"), options };
            let mut made = Operands::default();
            let cusparse = match &library {
                None => Vec::new(),
                Some(library) => {
                    vec![case.cusparse::<f32>(library, &mut made), case.cusparse::<f16>(library, &mut made)]
                }
            };
            for &path in &options.paths {
                let mut record = SampledRecord {
                    inner,
                    path: path.to_string(),
                    cusparse: cusparse.clone(),
                    ..blank.clone()
                };
                let result = match path.precision {
                    Precision::F16 => case.measure::<f16>(path, &mut made, &mut record),
                    Precision::Bf16 => case.measure::<bf16>(path, &mut made, &mut record),
                    _ => case.measure::<f32>(path, &mut made, &mut record),
                };
                if let Err(error) = result {
                    let wrong = matches!(error, BenchError::Wrong(_));
                    summary.wrong += u64::from(wrong);
                    summary.errors += u64::from(!wrong);
                    record.error = Some(error.to_string());
                }
                summary.cases += 1;
                emit(&record)?;
            }
        }
    }
    Ok(summary)
}

/// `X` and `Y` in each type, for all paths of a case.
#[derive(Default)]
struct Operands {
    x: Bs,
    y: Bs,
}

/// A sampled product that was timed, and how its result compares with the reference.
pub(crate) struct MeasuredSampled {
    timing: Timing,
    check: Verification,
}

impl MeasuredSampled {
    /// The time, of a right result.
    pub(crate) fn right(&self) -> Result<Timing, BenchError> {
        if self.check.passed() { Ok(self.timing) } else { Err(BenchError::Wrong(self.check)) }
    }
}

/// Times a plan for `csr` on operands `[x, y]`, and compares what the last call left in a result that was full of NaN.
pub(crate) fn measure_sampled<T: Element>(
    plan: &SddmmPlan,
    csr: &Csr<f32>,
    [x, y]: [&DeviceMatrix<T>; 2],
    sampling: Sampling,
) -> Result<MeasuredSampled, BenchError> {
    let mut out = DeviceBuffer::from_slice(plan.device(), &vec![f32::NAN; csr.nnz()])?;
    let timing =
        measure(plan.device(), sampling, || plan.run_into(1.0, x, y, &mut out).map_err(BenchError::from))?;
    Ok(MeasuredSampled { timing, check: plan.verify(csr, x, y, &out)? })
}

/// A pattern and an inner dimension.
struct Case<'a> {
    device: &'a Device,
    csr: &'a Csr<f32>,
    inner: usize,
    seed: u64,
    options: &'a SampledOptions,
}

impl Case<'_> {
    /// `X` and `Y`, made when a type is first asked for: that takes longer than the products.
    fn operands<'a, T: Stored>(
        &self,
        made: &'a mut Operands,
    ) -> Result<[&'a DeviceMatrix<T>; 2], BenchError> {
        let place = |bs, rows, seed| match T::place(bs) {
            Some(matrix) => Ok(&*matrix),
            none => Ok::<_, BenchError>(&*none.insert(random_matrix(self.device, rows, self.inner, seed)?)),
        };
        let x = place(&mut made.x, self.csr.rows(), self.seed)?;
        Ok([x, place(&mut made.y, self.csr.cols(), self.seed ^ 1)?])
    }

    fn measure<T: Stored>(
        &self,
        path: SampledPath,
        made: &mut Operands,
        record: &mut SampledRecord,
    ) -> Result<(), BenchError> {
        let plan = path.builder(self.csr, self.inner).build(self.device)?;
        record.plan = Some(SampledPlanFacts::of(plan.report()));
        if path.scan && !plan.report().entries.iter().any(|entry| entry.ends_with("_scan")) {
            let (precision, inner) = (path.precision, self.inner);
            return Err(BenchError::NoScan { precision, inner });
        }
        let rates = self.options.rates.as_ref();
        record.roofline_us = rates.map(|rates| rates.sampled_roofline_us(plan.report(), self.inner));
        let [x, y] = self.operands::<T>(made)?;
        let measured = measure_sampled(&plan, self.csr, [x, y], self.options.sampling)?;
        record.check = Some(CheckFacts::of(&measured.check));
        record.time = Some(measured.right()?);
        Ok(())
    }

    /// The comparison with the reference, and whether it passed.
    fn check<T: Element>(
        &self,
        plan: &SddmmPlan,
        x: &DeviceMatrix<T>,
        y: &DeviceMatrix<T>,
        out: &DeviceBuffer<f32>,
    ) -> Result<(CheckFacts, Result<(), BenchError>), BenchError> {
        let found = plan.verify(self.csr, x, y, out)?;
        let passed = if found.passed() { Ok(()) } else { Err(BenchError::Wrong(found)) };
        Ok((CheckFacts::of(&found), passed))
    }

    fn cusparse<T: Stored>(&self, library: &Result<CuSparse, BenchError>, made: &mut Operands) -> PeerFacts {
        let math = T::PRECISION.to_string();
        let library = match library {
            Ok(library) => library,
            Err(error) => return PeerFacts::nothing(math, error.to_string()),
        };
        let (algorithm, time, preprocess_us) = ("SDDMM_ALG_DEFAULT".to_owned(), None, None);
        let mut attempt = PeerAttempt { algorithm, time, preprocess_us, check: None, error: None };
        if let Err(error) = self.try_cusparse::<T>(library, made, &mut attempt) {
            (attempt.time, attempt.error) = (None, Some(error.to_string()));
        }
        PeerFacts::best_of(math, library.version(), vec![attempt])
    }

    fn try_cusparse<T: Stored>(
        &self,
        library: &CuSparse,
        made: &mut Operands,
        attempt: &mut PeerAttempt,
    ) -> Result<(), BenchError> {
        let [x, y] = self.operands::<T>(made)?;
        let mut out = DeviceCsr::<f32>::upload(self.device, &self.csr.map_values(|_| UNWRITTEN))?;
        let sddmm = library.prepare_sddmm(x, y, &mut out)?;
        attempt.preprocess_us = Some(sddmm.preprocess_us());
        attempt.time = Some(measure(self.device, self.options.sampling, || sddmm.run())?);
        drop(sddmm);
        // Entry by entry: the bound of sums of fused multiply-adds.
        let entries = SampledPath { algorithm: windrow::SddmmAlgorithm::Entries, ..SampledPath::DEFAULT[0] };
        let entries = SampledPath { precision: T::PRECISION, ..entries };
        let verifier = entries.builder(self.csr, self.inner).build(self.device)?;
        let (facts, passed) = self.check(&verifier, x, y, out.values())?;
        attempt.check = Some(facts);
        passed
    }
}

#[cfg(test)]
mod tests;

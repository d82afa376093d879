//! Sampled products: patterns × inner dimensions × paths, each planned, timed, verified, beside cuSPARSE.
//!
//! Operands are uniform in `[−1, 1)`, the result is full of NaN before, and what the last call left is compared with an
//! f64 reference.

mod arguments;
mod summary;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use windrow::{Device, DeviceKind, DeviceMatrix, Precision, SddmmAlgorithm, SddmmReport, with_element};

use super::compare::{Attempt, peer_precisions};
use super::facts::{Bounds, MatrixFacts, PeerFacts, SchedulingFacts, TimeFacts};
use super::kept::Kept;
use super::matrices::{Case, Matrices, MatrixSource, Place, Values};
use super::record::Record;
use super::{Measured, Suite};
use crate::measure::operands::{Filling, case_seed};
use crate::measure::peers::{CuSparse, DeviceCsr};
use crate::measure::product::{ByType, Placed, Stored};
use crate::measure::sampled::{SampledPath, measure_sampled};
use crate::measure::{BenchError, DeviceRates, L2, Sampling, measure, random_matrix};
pub(crate) use arguments::Arguments;

/// What is told of a sampled product.
pub(crate) type SampledRecord = Record<SampledFacts>;

/// What is measured, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) sources: Vec<MatrixSource>,
    /// Columns of `X` and `Y`.
    pub(crate) inners: Vec<usize>,
    pub(crate) paths: Vec<SampledPath>,
    /// Seed of values and operands.
    pub(crate) seed: u64,
    /// How much is measured.
    pub(crate) sampling: Sampling,
    /// What the L2 cache holds before each timed product: each case is measured with each.
    pub(crate) l2: Vec<L2>,
    /// Rates of the device for the roofline; `None` leaves it out.
    pub(crate) rates: Option<DeviceRates>,
    /// Whether cuSPARSE is measured beside, on a CUDA device.
    pub(crate) peers: bool,
    /// Is told what is done before the first measurement.
    pub(crate) progress: fn(&str),
}

/// One pattern, inner dimension and path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SampledFacts {
    pub(crate) matrix: MatrixFacts,
    /// Columns of `X` and `Y`.
    pub(crate) inner: usize,
    /// Algorithm, precision and options, as [`SampledPath`] writes them.
    pub(crate) path: String,
    pub(crate) plan: Option<SampledPlanFacts>,
    /// Lower bound of the gather roofline, in microseconds.
    pub(crate) roofline_us: Option<f64>,
    /// cuSPARSE on the same pattern and inner dimension, for f32 and f16 operands.
    pub(crate) cusparse: Vec<PeerFacts>,
}

impl SampledFacts {
    /// cuSPARSE's time with operands of this type.
    pub(crate) fn cusparse_us(&self, math: &str) -> Option<f64> {
        self.cusparse.iter().find(|facts| facts.math == math)?.median_us
    }
}

/// A plan of sampled products.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SampledPlanFacts {
    /// The algorithm that is run.
    pub(crate) algorithm: String,
    /// Entry points that are launched.
    pub(crate) entries: Vec<String>,
    /// Device memory of the plan, in bytes.
    pub(crate) device_bytes: u64,
    /// Time to make the plan, in milliseconds.
    pub(crate) preprocess_ms: f64,
    /// Share of the entries that Tensor Cores compute.
    pub(crate) tile_share: f64,
    /// Share of the tiles' places that hold an entry.
    pub(crate) utilisation: f64,
    /// How the two parts of a hybrid follow each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scheduling: Option<SchedulingFacts>,
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

pub(crate) struct Sddmm {
    device: Device,
    options: Options,
    matrices: Matrices,
    library: Option<Result<CuSparse, BenchError>>,
    shared: Kept<Place, Shared>,
}

/// What the cases of one pattern, inner dimension and state of the cache share.
struct Shared {
    operands: Operands,
    cusparse: Vec<PeerFacts>,
}

impl Sddmm {
    /// Loads cuSPARSE, if peers are asked for and the device is a CUDA one.
    pub(crate) fn open(device: &Device, options: Options) -> Self {
        let wanted = options.peers && device.kind() == DeviceKind::Cuda;
        let library = wanted.then(|| CuSparse::load(device));
        let matrices = Matrices::load(&options.sources, Values::Random, options.seed, options.progress);
        Self { device: device.clone(), options, matrices, library, shared: Kept::default() }
    }
}

impl Suite for Sddmm {
    const NAME: &'static str = "sddmm";
    type Case = Case<SampledPath>;
    type Facts = SampledFacts;

    fn cases(&self) -> Vec<Self::Case> {
        self.matrices.cases(&self.options.inners, &self.options.l2, &self.options.paths)
    }

    fn name(&self, case: &Self::Case) -> String {
        self.matrices.name(case)
    }

    fn l2(&self, case: &Self::Case) -> L2 {
        case.l2
    }

    fn facts(&self, case: &Self::Case) -> SampledFacts {
        SampledFacts {
            matrix: self.matrices.facts(case),
            inner: case.width,
            path: case.path.map_or_else(String::new, |path| path.to_string()),
            plan: None,
            roofline_us: None,
            cusparse: Vec::new(),
        }
    }

    fn measure(&mut self, case: &Self::Case, facts: &mut SampledFacts) -> Result<Measured, BenchError> {
        let (matrix, path) = self.matrices.of(case)?;
        let (csr, inner, sampling) = (&matrix.csr, case.width, self.options.sampling.with_l2(case.l2));
        let shared = self.shared.get(case.place(), || {
            let seed = case_seed(self.options.seed, matrix.checksum, inner, "X");
            let (device, sizes) = (self.device.clone(), [csr.rows(), csr.cols(), inner]);
            let mut operands = Operands { device, sizes, seed, x: ByType::default(), y: ByType::default() };
            let cusparse = self.library.as_ref().map_or_else(Vec::new, |library| {
                let mut of = Compared { library, csr, operands: &mut operands, sampling };
                let precisions = peer_precisions(self.options.paths.iter().map(|path| path.precision));
                let each = |precision| with_element!(precision, T => of.facts::<T>());
                precisions.into_iter().map(each).collect()
            });
            Ok::<_, BenchError>(Shared { operands, cusparse })
        })?;
        facts.cusparse.clone_from(&shared.cusparse);
        let plan = path.builder(csr, inner).build(&self.device)?;
        facts.plan = Some(SampledPlanFacts::of(plan.report()));
        if path.scan && !plan.report().entries.iter().any(|entry| entry.ends_with("_scan")) {
            return Err(BenchError::NoScan { precision: path.precision, inner });
        }
        let rates = self.options.rates.as_ref();
        facts.roofline_us = rates.map(|rates| rates.sampled_roofline_us(plan.report(), inner));
        let (found, timing) = with_element!(path.precision, T => {
            let [x, y] = shared.operands.get::<T>()?;
            measure_sampled(&plan, csr, [x, y], sampling)
        })?;
        let bounds = Bounds {
            roofline_us: facts.roofline_us,
            roofline_fraction: facts.roofline_us.map(|us| us / timing.median_us),
            ..Bounds::default()
        };
        Measured::right(found, TimeFacts { timing, bounds })
    }
}

/// `X` and `Y` in each type, made when a type is first asked for: that takes longer than the products.
struct Operands {
    device: Device,
    /// Rows of `X` and `Y`, and their columns.
    sizes: [usize; 3],
    seed: u64,
    x: ByType,
    y: ByType,
}

impl Operands {
    fn get<T: Placed>(&mut self) -> Result<[&DeviceMatrix<T>; 2], BenchError> {
        let Self { device, sizes: [rows, cols, inner], seed, x, y } = self;
        let place = |bs, rows, seed| match T::place(bs) {
            Some(matrix) => Ok(&*matrix),
            none => Ok::<_, BenchError>(&*none.insert(random_matrix(device, rows, *inner, seed)?)),
        };
        Ok([place(x, *rows, *seed)?, place(y, *cols, *seed ^ 1)?])
    }
}

/// What cuSPARSE is measured on.
struct Compared<'a> {
    library: &'a Result<CuSparse, BenchError>,
    csr: &'a windrow::Csr<f32>,
    operands: &'a mut Operands,
    sampling: Sampling,
}

impl Compared<'_> {
    fn facts<T: Stored>(&mut self) -> PeerFacts {
        let math = T::PRECISION.to_string();
        let library = match self.library {
            Ok(library) => library,
            Err(error) => return PeerFacts::nothing(math, error.to_string()),
        };
        let mut attempt = Attempt::new("SDDMM_ALG_DEFAULT".to_owned());
        let result = self.attempt::<T>(library, &mut attempt);
        PeerFacts::best_of(math, library.version(), vec![attempt.end(result)])
    }

    fn attempt<T: Stored>(&mut self, library: &CuSparse, attempt: &mut Attempt) -> Result<(), BenchError> {
        let (device, inner) = (self.operands.device.clone(), self.operands.sizes[2]);
        let [x, y] = self.operands.get::<T>()?;
        let unwritten = Filling::Huge.element::<T::Sum>();
        let mut out = DeviceCsr::<T::Sum>::upload(&device, &self.csr.map_values(|_| unwritten))?;
        let sddmm = library.prepare_sddmm(x, y, &mut out)?;
        attempt.preprocess_us = Some(sddmm.preprocess_us());
        attempt.timing = Some(measure(&device, self.sampling, || sddmm.run())?);
        drop(sddmm);
        let verifier = verifier(T::PRECISION).builder(self.csr, inner).build(&device)?;
        attempt.judge(&verifier.verify(self.csr, x, y, out.values())?)
    }
}

/// Entry by entry: a plan that knows the reference, with the bound of sums of fused multiply-adds.
fn verifier(precision: Precision) -> SampledPath {
    SampledPath { algorithm: SddmmAlgorithm::Entries, precision, ..SampledPath::DEFAULT[0] }
}

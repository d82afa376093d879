//! Products with vector-wise N:M weights: shapes × patterns × precisions, each planned, timed, verified, beside
//! cuBLAS's dense product of the same shape.
//!
//! Weights and activations are uniform in `[−1, 1)`, which weights are kept is random, the result is full of NaN
//! before, and what the last call left is compared with an f64 reference.

mod arguments;
mod dense;
mod shape;
mod summary;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use windrow::synthetic::seeded_weights;
use windrow::{
    ActivationLayout, Device, DeviceKind, DeviceMatrix, Element, Epilogue, NmAlgorithm, NmPacking, NmPattern,
    NmReport, NmSpmm, NmSpmmPlan, Precision, VectorNm, Verification,
};

use super::kept::Kept;
use super::record::Record;
use super::{Measured, Suite};
use crate::measure::operands::case_seed;
use crate::measure::peers::CuBlas;
use crate::measure::{BenchError, L2, Sampling, measure, random_matrix};
pub(crate) use arguments::Arguments;
use shape::NmShape;
use windrow::{bf16, f16};

/// Rows of a large result that are checked; of one with fewer products than `CHECKED_PRODUCTS`, all.
const CHECKED_ROWS: usize = 96;
const CHECKED_PRODUCTS: usize = 1 << 30;

/// What is told of a product with N:M weights.
pub(crate) type NmRecord = Record<NmFacts>;

/// What is measured, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Sizes of the products.
    pub(crate) shapes: Vec<NmShape>,
    /// Patterns of the weights; one that keeps everything measures the kernels without sparsity.
    pub(crate) patterns: Vec<NmPattern>,
    /// Types of activations and weights. For f16 and bf16, `C` has the same type.
    pub(crate) precisions: Vec<Precision>,
    /// How activations are stored.
    pub(crate) layouts: Vec<ActivationLayout>,
    /// Whether columns of `A` are packed.
    pub(crate) packings: Vec<NmPacking>,
    /// The algorithm on a GPU.
    pub(crate) algorithm: NmAlgorithm,
    /// One kernel by its name, instead of the model's choice.
    pub(crate) kernel: Option<String>,
    /// Whether plans are promised that activations are finite.
    pub(crate) finite: bool,
    /// Whether plans may run cuBLAS where a dense product is quicker.
    pub(crate) dense_fallback: bool,
    /// Whether plans try a few kernels.
    pub(crate) autotune: bool,
    /// Seed of weights and activations.
    pub(crate) seed: u64,
    /// How much is measured.
    pub(crate) sampling: Sampling,
    /// What the L2 cache holds before each timed product: each case is measured with each.
    pub(crate) l2: Vec<L2>,
    /// Whether cuBLAS is measured beside, on a CUDA device.
    pub(crate) peers: bool,
}

/// One product of a shape, a pattern, a precision and a layout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NmFacts {
    /// Rows of `A` and `C`, columns of `C`, and the inner dimension.
    pub(crate) shape: NmShape,
    /// `N`, `M` and `L` of the weights.
    pub(crate) pattern: [usize; 3],
    /// Type of activations and weights.
    pub(crate) precision: String,
    /// How activations are stored.
    pub(crate) layout: String,
    /// What was asked of packing.
    pub(crate) packing: String,
    pub(crate) plan: Option<NmPlanFacts>,
    /// 10¹² operations a second, of those that are kept.
    pub(crate) tflops: Option<f64>,
    /// cuBLAS's dense product of this shape and precision (f16 for bf16, too), in microseconds.
    pub(crate) dense_us: Option<f64>,
}

impl NmFacts {
    /// Share of the weights that is not kept where groups are whole.
    pub(crate) fn sparsity(&self) -> f64 {
        let [n, m, _] = self.pattern.map(|x| u32::try_from(x).map_or(f64::NAN, f64::from));
        1.0 - n / m
    }

    /// Operations for each element that a stage moves, equation 3 of NM-SpMM. Records of before it was told have the
    /// tile in words: of these it is as printed, with whole groups of `A`, packed or not.
    pub(crate) fn intensity(&self) -> Option<f64> {
        let plan = self.plan.as_ref()?;
        plan.intensity.or_else(|| {
            let (size, stage) = plan.tile.as_ref()?.split_once(", ")?;
            let (rows, columns) = size.split_once(" × ")?;
            let kept = stage.split_once(" kept rows")?.0;
            let [m, n, w]: [f64; 3] = [rows.parse().ok()?, columns.parse().ok()?, kept.parse().ok()?];
            let k = w / (1.0 - self.sparsity());
            Some(2.0 * m * n * w / (m * k + w * n + 2.0 * m * n))
        })
    }
}

/// A plan of products with N:M weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NmPlanFacts {
    /// The algorithm that is run.
    pub(crate) algorithm: String,
    /// Entry points that are launched.
    pub(crate) entries: Vec<String>,
    /// Whether columns of `A` are packed.
    pub(crate) packing: String,
    /// Shape of a block's tile.
    pub(crate) tile: Option<String>,
    /// Operations for each element that a stage moves; older records have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) intensity: Option<f64>,
    /// Kernels that were tried, and how many microseconds each took.
    pub(crate) tuned: Vec<(String, f64)>,
    /// Device memory of the plan, in bytes.
    pub(crate) device_bytes: u64,
    /// Time to make the plan, in milliseconds.
    pub(crate) preprocess_ms: f64,
}

impl NmPlanFacts {
    fn of(report: &NmReport) -> Self {
        Self {
            algorithm: report.algorithm.to_string(),
            entries: report.entries.iter().map(|&entry| entry.to_owned()).collect(),
            packing: report.packing.to_string(),
            tile: report.block.map(|block| block.to_string()),
            intensity: report.block.map(|block| block.intensity()),
            tuned: report.tuned.clone(),
            device_bytes: report.device_bytes,
            preprocess_ms: report.preprocessing_us() / 1e3,
        }
    }
}

/// One product to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    shape: NmShape,
    precision: Precision,
    pattern: NmPattern,
    layout: ActivationLayout,
    packing: NmPacking,
    l2: L2,
}

pub(crate) struct Nm {
    device: Device,
    options: Options,
    library: Option<Result<CuBlas, BenchError>>,
    /// cuBLAS's time of a shape, precision and state of the cache.
    dense_us: Kept<(NmShape, Precision, L2), Option<f64>>,
}

impl Nm {
    /// Looks for cuBLAS, if peers are asked for and the device is a CUDA one.
    pub(crate) fn open(device: &Device, options: Options) -> Self {
        let wanted = options.peers && device.kind() == DeviceKind::Cuda;
        let library = wanted.then(|| CuBlas::load(device));
        Self { device: device.clone(), options, library, dense_us: Kept::default() }
    }
}

impl Suite for Nm {
    const NAME: &'static str = "nm";
    type Case = Case;
    type Facts = NmFacts;

    fn cases(&self) -> Vec<Case> {
        let Options { shapes, patterns, precisions, layouts, packings, l2: l2s, .. } = &self.options;
        let mut cases = Vec::new();
        for &shape in shapes {
            for (&precision, &l2) in precisions.iter().flat_map(|of| l2s.iter().map(move |l2| (of, l2))) {
                for &pattern in patterns {
                    for &layout in layouts {
                        let case = |&packing| Case { shape, precision, pattern, layout, packing, l2 };
                        cases.extend(packings.iter().map(case));
                    }
                }
            }
        }
        cases
    }

    fn name(&self, case: &Case) -> String {
        let Case { shape, precision, pattern, layout, packing, l2 } = case;
        let (n, m, l) = (pattern.n(), pattern.m(), pattern.l());
        let kernel = self.options.kernel.as_ref().map_or_else(String::new, |kernel| format!(", {kernel}"));
        let tuned = if self.options.autotune { ", tuned" } else { "" };
        let algorithm = match self.options.algorithm {
            NmAlgorithm::Auto => String::new(),
            asked => format!(", {asked}"),
        };
        let finite = if self.options.finite { ", finite" } else { "" };
        let fallback = if self.options.dense_fallback { ", or dense" } else { "" };
        let asked = format!("{algorithm}{kernel}{finite}{fallback}{tuned}{}", l2.suffix());
        format!("{shape}, {n}:{m} L {l}, {precision}, {layout}, packing {packing}{asked}")
    }

    fn l2(&self, case: &Case) -> L2 {
        case.l2
    }

    fn facts(&self, case: &Case) -> NmFacts {
        let Case { shape, precision, pattern, layout, packing, .. } = case;
        NmFacts {
            shape: *shape,
            pattern: [pattern.n(), pattern.m(), pattern.l()],
            precision: precision.to_string(),
            layout: layout.to_string(),
            packing: packing.to_string(),
            plan: None,
            tflops: None,
            dense_us: None,
        }
    }

    fn measure(&mut self, case: &Case, facts: &mut NmFacts) -> Result<Measured, BenchError> {
        let Self { device, options, library, dense_us } = self;
        facts.dense_us = *dense_us.get((case.shape, case.precision, case.l2), || {
            Ok::<_, BenchError>(
                library
                    .as_ref()
                    .and_then(|library| dense::us((device, library.as_ref().ok()?), case, options)),
            )
        })?;
        let product = Product { device, case, options };
        match case.precision {
            // There is no plan of f64, and making it says so.
            Precision::F32 | Precision::Tf32 | Precision::F64 => product.measure::<f32>(facts),
            Precision::F16 => product.measure::<f16>(facts),
            Precision::Bf16 => product.measure::<bf16>(facts),
        }
    }
}

/// One product: made, run, checked, timed.
struct Product<'a> {
    device: &'a Device,
    case: &'a Case,
    options: &'a Options,
}

impl Product<'_> {
    fn seed(&self, what: &str) -> u64 {
        let NmShape { m, n, k } = self.case.shape;
        case_seed(self.options.seed, (m ^ n << 20 ^ k << 40) as u64, self.case.pattern.n(), what)
    }

    fn measure<T: Element<Sum = f32>>(&self, facts: &mut NmFacts) -> Result<Measured, BenchError> {
        let Case { shape: NmShape { m, n, k }, precision, pattern, layout, packing, l2 } = *self.case;
        let weights = seeded_weights((k, n), pattern, self.seed("W"))?;
        let builder = NmSpmm::builder(&weights).rows(m).precision(precision).layout(layout).packing(packing);
        let builder = builder.algorithm(self.options.algorithm).autotune(self.options.autotune);
        let builder = builder.finite_activations(self.options.finite);
        let builder = builder.dense_fallback(self.options.dense_fallback);
        let builder = match &self.options.kernel {
            Some(kernel) => builder.kernel(kernel),
            None => builder,
        };
        let plan = builder.build(self.device)?;
        facts.plan = Some(NmPlanFacts::of(plan.report()));
        let (rows, cols) = layout.stored(m, k);
        let a = random_matrix::<T>(self.device, rows, cols, self.seed("A"))?;
        let mut c = poisoned::<T>(self.device, m, n)?;
        let run = Epilogue::default();
        let sampling = self.options.sampling.with_l2(l2);
        let timing = measure(self.device, sampling, || plan.run_into(&run, &a, &mut c))?;
        let measured = Measured::right(self.check(&plan, &weights, &run, (&a, &c))?, timing)?;
        facts.tflops = Some(plan.report().flop(m) / timing.median_us / 1e6);
        Ok(measured)
    }

    fn check<T: Element<Sum = f32>>(
        &self,
        plan: &NmSpmmPlan,
        weights: &VectorNm<f32>,
        run: &Epilogue<'_>,
        (a, c): (&DeviceMatrix<T>, &DeviceMatrix<T>),
    ) -> Result<Verification, BenchError> {
        let NmShape { m, n, .. } = self.case.shape;
        let products = m.saturating_mul(n).saturating_mul(weights.kept_rows());
        let all = products <= CHECKED_PRODUCTS || m <= CHECKED_ROWS;
        let rows: Vec<usize> = match all {
            true => (0..m).collect(),
            // From the first to the last, odd and even.
            false => (0..CHECKED_ROWS).map(|i| i * (m - 1) / (CHECKED_ROWS - 1)).collect(),
        };
        Ok(plan.verify_rows(weights, run, a, c, &rows)?)
    }
}

/// A result full of NaN, of any type: what `poisoned_matrix` fills on the device is f32.
fn poisoned<C: Element>(device: &Device, m: usize, n: usize) -> Result<DeviceMatrix<C>, BenchError> {
    let nan = vec![C::from_f64(f64::NAN); m * n];
    Ok(DeviceMatrix::upload(device, windrow::DenseRef::packed(&nan, m, n)?)?)
}

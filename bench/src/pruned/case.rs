//! One product: made, run, checked, timed.

use windrow::synthetic::seeded_weights;
use windrow::{
    ActivationLayout, Device, DeviceMatrix, Element, NmPacking, NmPattern, NmRun, NmSpmm, NmSpmmPlan, Output,
    Precision, VectorNm, bf16, f16,
};

use super::{NmOptions, NmPlanFacts, NmRecord, NmShape};
use crate::error::BenchError;
use crate::operands::{case_seed, random_matrix};
use crate::peers::{CuBlas, DenseMath};
use crate::sweep::CheckFacts;
use crate::timing::measure;

/// Rows of a large result that are checked; of one with fewer products than `CHECKED_PRODUCTS`, all.
const CHECKED_ROWS: usize = 96;
const CHECKED_PRODUCTS: usize = 1 << 30;

/// What one record is about.
pub(super) struct Case<'a> {
    pub(super) device: &'a Device,
    pub(super) shape: NmShape,
    pub(super) pattern: NmPattern,
    pub(super) precision: Precision,
    pub(super) layout: ActivationLayout,
    pub(super) packing: NmPacking,
    pub(super) options: &'a NmOptions,
}

impl Case<'_> {
    pub(super) fn measure(&self, record: &mut NmRecord) -> Result<(), BenchError> {
        match self.precision {
            Precision::F32 | Precision::Tf32 => self.measure_as::<f32, f32>(record),
            Precision::F16 => self.measure_as::<f16, f16>(record),
            _ => self.measure_as::<bf16, bf16>(record),
        }
    }

    fn seed(&self, what: &str) -> u64 {
        let NmShape { m, n, k } = self.shape;
        case_seed(self.options.seed, (m ^ n << 20 ^ k << 40) as u64, self.pattern.n(), what)
    }

    fn measure_as<E: Element, C: Element>(&self, record: &mut NmRecord) -> Result<(), BenchError> {
        let NmShape { m, n, k } = self.shape;
        let weights = seeded_weights((k, n), self.pattern, self.seed("W"))?;
        let mut builder = NmSpmm::builder(&weights);
        builder = builder.rows(m).precision(self.precision).layout(self.layout).packing(self.packing);
        builder = builder.autotune(self.options.autotune);
        if let Some(kernel) = &self.options.kernel {
            builder = builder.kernel(kernel);
        }
        let plan = builder.build(self.device)?;
        record.plan = Some(NmPlanFacts::of(plan.report()));
        let (rows, cols) = self.layout.stored(m, k);
        let a = random_matrix::<E>(self.device, rows, cols, self.seed("A"))?;
        let mut c = poisoned::<C>(self.device, m, n)?;
        let run = NmRun::default();
        let timing = measure(self.device, self.options.sampling, || plan.run_into(&run, &a, &mut c))?;
        let check = self.check(&plan, &weights, &run, (&a, &c))?;
        let right = check.failures == 0;
        record.check = Some(check);
        if right {
            record.tflops = Some(plan.report().flop(m) / timing.median_us / 1e6);
            record.time = Some(timing);
        }
        Ok(())
    }

    fn check<E: Element, C: Element>(
        &self,
        plan: &NmSpmmPlan,
        weights: &VectorNm<f32>,
        run: &NmRun<'_>,
        (a, c): (&DeviceMatrix<E>, &DeviceMatrix<C>),
    ) -> Result<CheckFacts, BenchError> {
        let NmShape { m, n, .. } = self.shape;
        let products = m.saturating_mul(n).saturating_mul(weights.kept_rows());
        let all = products <= CHECKED_PRODUCTS || m <= CHECKED_ROWS;
        let rows: Vec<usize> = match all {
            true => (0..m).collect(),
            // From the first to the last, odd and even.
            false => (0..CHECKED_ROWS).map(|i| i * (m - 1) / (CHECKED_ROWS - 1)).collect(),
        };
        Ok(CheckFacts::of(&plan.verify_rows(weights, run, a, c, &rows)?))
    }
}

/// A result full of NaN, of any type: what `poisoned_matrix` fills on the device is f32.
fn poisoned<C: Element>(device: &Device, m: usize, n: usize) -> Result<DeviceMatrix<C>, BenchError> {
    let nan = vec![C::from_f64(f64::NAN); m * n];
    Ok(DeviceMatrix::upload(device, windrow::DenseRef::packed(&nan, m, n)?)?)
}

/// The time of cuBLAS's dense product, if it can be measured. For bf16 it is that of f16, whose result is f16, too.
pub(super) fn dense_us(
    device: &Device,
    library: Option<&Result<CuBlas, BenchError>>,
    shape: NmShape,
    precision: Precision,
    options: &NmOptions,
) -> Option<f64> {
    let library = library?.as_ref().ok()?;
    let timed = match precision {
        Precision::F32 => dense::<f32, f32>(device, library, shape, DenseMath::F32, options),
        Precision::Tf32 => dense::<f32, f32>(device, library, shape, DenseMath::Tf32, options),
        _ => dense::<f16, f16>(device, library, shape, DenseMath::F16, options),
    };
    timed.ok()
}

fn dense<T: Element, C: Element + Output>(
    device: &Device,
    library: &CuBlas,
    NmShape { m, n, k }: NmShape,
    math: DenseMath,
    options: &NmOptions,
) -> Result<f64, BenchError> {
    let a = random_matrix::<T>(device, m, k, options.seed)?;
    let b = random_matrix::<T>(device, k, n, options.seed.wrapping_add(1))?;
    let mut c = DeviceMatrix::<C>::zeros(device, m, n)?;
    Ok(measure(device, options.sampling, || library.gemm(math, &a, &b, &mut c))?.median_us)
}

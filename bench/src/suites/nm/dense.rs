//! cuBLAS's dense product of the same shape.

use windrow::{Device, DeviceMatrix, Element, Precision, f16};

use super::{Case, NmShape, Options};
use crate::measure::peers::{CuBlas, DenseMath};
use crate::measure::{BenchError, measure, random_matrix};

/// Its time, if it can be measured. For bf16 it is that of f16, whose result is f16, too.
pub(super) fn us(on: (&Device, &CuBlas), case: &Case, options: &Options) -> Option<f64> {
    let timed = match case.precision {
        Precision::F32 => dense::<f32, f32>(on, case, DenseMath::F32, options),
        Precision::Tf32 => dense::<f32, f32>(on, case, DenseMath::Tf32, options),
        _ => dense::<f16, f16>(on, case, DenseMath::F16, options),
    };
    timed.ok()
}

fn dense<T: Element, C: Element>(
    (device, library): (&Device, &CuBlas),
    case: &Case,
    math: DenseMath,
    options: &Options,
) -> Result<f64, BenchError> {
    let NmShape { m, n, k } = case.shape;
    let a = random_matrix::<T>(device, m, k, options.seed)?;
    let b = random_matrix::<T>(device, k, n, options.seed.wrapping_add(1))?;
    let mut c = DeviceMatrix::<C>::zeros(device, m, n)?;
    let sampling = options.sampling.with_l2(case.l2);
    Ok(measure(device, sampling, || library.gemm(math, &a, &b, &mut c))?.median_us)
}

//! cuBLAS's dense product of the same shape.

use windrow::{Device, DeviceMatrix, Element, Precision, f16};

use super::{NmShape, Options};
use crate::measure::peers::{CuBlas, DenseMath};
use crate::measure::{BenchError, measure, random_matrix};

/// Its time, if it can be measured. For bf16 it is that of f16, whose result is f16, too.
pub(super) fn us(
    device: &Device,
    library: &CuBlas,
    shape: NmShape,
    precision: Precision,
    options: &Options,
) -> Option<f64> {
    let timed = match precision {
        Precision::F32 => dense::<f32, f32>(device, library, shape, DenseMath::F32, options),
        Precision::Tf32 => dense::<f32, f32>(device, library, shape, DenseMath::Tf32, options),
        _ => dense::<f16, f16>(device, library, shape, DenseMath::F16, options),
    };
    timed.ok()
}

fn dense<T: Element, C: Element>(
    device: &Device,
    library: &CuBlas,
    NmShape { m, n, k }: NmShape,
    math: DenseMath,
    options: &Options,
) -> Result<f64, BenchError> {
    let a = random_matrix::<T>(device, m, k, options.seed)?;
    let b = random_matrix::<T>(device, k, n, options.seed.wrapping_add(1))?;
    let mut c = DeviceMatrix::<C>::zeros(device, m, n)?;
    Ok(measure(device, options.sampling, || library.gemm(math, &a, &b, &mut c))?.median_us)
}

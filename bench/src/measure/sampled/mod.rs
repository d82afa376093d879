//! Sampled products: the paths to one, and a plan's result timed and compared with the reference.

mod path;

use windrow::{Csr, DeviceBuffer, DeviceMatrix, Element, SddmmPlan, Value, Verification};

use crate::measure::error::BenchError;
use crate::measure::operands::Filling;
use crate::measure::timing::{Sampling, Timing, measure};
pub(crate) use path::SampledPath;

/// Times a plan for `csr` on operands `[x, y]`, and compares what the last call left in a result that was full of NaN.
///
/// # Errors
/// [`BenchError::Wrong`] of a result that is not within its bound.
pub(crate) fn measure_sampled<T: Element>(
    plan: &SddmmPlan,
    csr: &Csr<f32>,
    [x, y]: [&DeviceMatrix<T>; 2],
    sampling: Sampling,
) -> Result<(Verification, Timing), BenchError> {
    let mut out =
        DeviceBuffer::from_slice(plan.device(), &vec![Filling::Nan.element::<T::Sum>(); csr.nnz()])?;
    let timing = measure(plan.device(), sampling, || {
        plan.run_into(T::Sum::ONE, x, y, &mut out).map_err(BenchError::from)
    })?;
    let found = plan.verify(csr, x, y, &out)?;
    if found.passed() { Ok((found, timing)) } else { Err(BenchError::Wrong(found)) }
}

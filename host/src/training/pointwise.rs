//! Bias, ReLU, its gradient, and rounding.

use rayon::prelude::*;
use windrow_formats::Value;
use windrow_kernels::Variant;
use windrow_kernels::training::{Matrix, PointwiseParams};
use windrow_simt::GlobalPtr;

use super::{check, extent, is_empty, launch, rows_mut, view};
use crate::element::Element;
use crate::error::TrainingError;
use crate::matrix::DeviceMatrix;
use crate::options::Precision;

/// `x ← x + b`: the one row of `bias` added to each row.
///
/// # Errors
/// See [`training`](crate::training#errors): `bias` is 1 × n for an `x` of m × n.
pub fn add_bias(x: &mut DeviceMatrix<f32>, bias: &DeviceMatrix<f32>) -> Result<(), TrainingError> {
    forward(x, Some(bias), false)
}

/// `x ← max(x + b, 0)`.
///
/// # Errors
/// As for [`add_bias`].
pub fn add_bias_relu(x: &mut DeviceMatrix<f32>, bias: &DeviceMatrix<f32>) -> Result<(), TrainingError> {
    forward(x, Some(bias), true)
}

/// `x ← max(x, 0)`.
///
/// # Errors
/// See [`training`](crate::training#errors).
pub fn relu(x: &mut DeviceMatrix<f32>) -> Result<(), TrainingError> {
    forward(x, None, true)
}

fn forward(
    x: &mut DeviceMatrix<f32>,
    bias: Option<&DeviceMatrix<f32>>,
    rectify: bool,
) -> Result<(), TrainingError> {
    if let Some(bias) = bias {
        check("the bias", bias, x.device(), (1, x.cols()))?;
    }
    if is_empty(x) {
        return Ok(());
    }
    if let Some(machine) = x.device().machine() {
        let bias = bias.map_or(GlobalPtr::NULL, |bias| bias.buffer().pointer());
        let params = PointwiseParams { out: view(x)?, bias, rectify: rectify.into(), ..reading(x)? };
        // SAFETY: shapes and devices were checked; matrices free their memory after the work that was queued before;
        // `x` is borrowed for itself.
        return unsafe { launch(machine, Variant::Pointwise, params.extent.threads(), 1, &params) };
    }
    let bias = bias.and_then(|bias| Some(bias.host()?.row(0)));
    if let Some(x) = x.host_mut() {
        rows_mut(x).for_each(|(_, row)| {
            if let Some(bias) = bias {
                row.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
            }
            if rectify {
                zero_where(row, |x, _| x <= 0.0);
            }
        });
    }
    Ok(())
}

/// `g ← g ⊙ [y > 0]`: the gradient with respect to what [`relu`] was applied to, from the gradient with respect to its
/// result `y`, in the place of that one.
///
/// # Errors
/// See [`training`](crate::training#errors): both have the same shape.
pub fn relu_backward(gradient: &mut DeviceMatrix<f32>, y: &DeviceMatrix<f32>) -> Result<(), TrainingError> {
    check("the result of ReLU", y, gradient.device(), (gradient.rows(), gradient.cols()))?;
    if is_empty(gradient) {
        return Ok(());
    }
    if let Some(machine) = gradient.device().machine() {
        let params = PointwiseParams { out: view(gradient)?, gate: view(y)?, ..reading(gradient)? };
        // SAFETY: as in `forward`.
        return unsafe { launch(machine, Variant::Pointwise, params.extent.threads(), 1, &params) };
    }
    if let (Some(gradient), Some(y)) = (gradient.host_mut(), y.host()) {
        rows_mut(gradient).for_each(|(r, row)| zero_where(row, |_, c| y.row(r)[c] <= 0.0));
    }
    Ok(())
}

/// `to ← scale·from`, each product rounded to f32, and then to the type of `to`: to nearest, ties to even.
///
/// With a power of two as `scale` there is one rounding. Gradients may be so small that f16 cannot hold them: scaled,
/// and with the scale taken back by the `alpha` of the product, they keep their digits.
///
/// # Errors
/// See [`training`](crate::training#errors): both have the same shape.
///
/// # Examples
/// ```
/// use windrow::{DenseRef, Device, DeviceMatrix, f16, training};
///
/// let device = Device::best()?;
/// let x = DeviceMatrix::upload(&device, DenseRef::packed(&[0.1f32, 2.0, 1e6], 1, 3)?)?;
/// let mut rounded = DeviceMatrix::<f16>::zeros(&device, 1, 3)?;
/// training::round_into(1.0, &x, &mut rounded)?;
/// assert_eq!(rounded.download()?, [f16::from_f32(0.1), f16::from_f32(2.0), f16::INFINITY]);
/// # Ok::<(), windrow::TrainingError>(())
/// ```
pub fn round_into<T: Element<Sum = f32>>(
    scale: f32,
    from: &DeviceMatrix<f32>,
    to: &mut DeviceMatrix<T>,
) -> Result<(), TrainingError> {
    check("the rounded matrix", to, from.device(), (from.rows(), from.cols()))?;
    if is_empty(from) {
        return Ok(());
    }
    if let Some(machine) = from.device().machine() {
        let reading = PointwiseParams { scale, ..reading(from)? };
        let params = match T::PRECISION {
            Precision::F16 => PointwiseParams { rounded: view(to)?, ..reading },
            Precision::Bf16 => PointwiseParams { rounded: view(to)?, rounds_to_bf16: 1, ..reading },
            Precision::F32 | Precision::Tf32 | Precision::F64 => {
                PointwiseParams { out: view(to)?, ..reading }
            }
        };
        // SAFETY: as in `forward`; what is written has elements of the type that the params name.
        return unsafe { launch(machine, Variant::Pointwise, params.extent.threads(), 1, &params) };
    }
    if let (Some(from), Some(to)) = (from.host(), to.host_mut()) {
        rows_mut(to).for_each(|(r, row)| {
            row.iter_mut()
                .zip(from.row(r))
                .for_each(|(to, &from)| *to = <T as Value>::from_f32(scale * from));
        });
    }
    Ok(())
}

/// Params that read `x` and write nothing.
fn reading(x: &DeviceMatrix<f32>) -> Result<PointwiseParams, TrainingError> {
    Ok(PointwiseParams {
        x: view(x)?,
        gate: Matrix::NONE,
        out: Matrix::NONE,
        rounded: Matrix::NONE,
        bias: GlobalPtr::NULL,
        extent: extent(x)?,
        rectify: 0,
        rounds_to_bf16: 0,
        scale: 1.0,
        reserved: 0,
    })
}

/// Elements of a row for which `is_zero(element, column)` become zero.
fn zero_where(row: &mut [f32], is_zero: impl Fn(f32, usize) -> bool) {
    for (c, x) in row.iter_mut().enumerate() {
        if is_zero(*x, c) {
            *x = 0.0;
        }
    }
}

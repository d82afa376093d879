//! Bias, ReLU, its gradient, and rounding.

use rayon::prelude::*;
use windrow_formats::Value;
use windrow_kernels::Variant;
use windrow_kernels::training::{Matrix, PointwiseParams};
use windrow_simt::GlobalPtr;

use super::operands::{Operands, extent, is_empty, launch, matrix};
use super::rows_mut;
use crate::device::Stream;
use crate::element::Element;
use crate::error::TrainingError;
use crate::matrix::DeviceMatrix;
use crate::options::Precision;
use crate::plan::{FACTOR, Scale};
use crate::view::{DeviceView, DeviceViewMut};

/// `x ← x + b`: the one row of `bias` added to each row.
///
/// # Errors
/// See [`training`](crate::training#errors): `bias` is 1 × n for an `x` of m × n.
pub fn add_bias(x: &mut DeviceMatrix<f32>, bias: &DeviceMatrix<f32>) -> Result<(), TrainingError> {
    add_bias_on(&x.device().stream(), x, bias)
}

/// [`add_bias`] on a [`Stream`], for matrices in memory of any origin.
///
/// # Errors
/// Those of [`add_bias`], and what is said of [streams](crate::training#streams).
pub fn add_bias_on<'a>(
    on: &Stream,
    x: impl Into<DeviceViewMut<'a, f32>>,
    bias: impl Into<DeviceView<'a, f32>>,
) -> Result<(), TrainingError> {
    forward(on, x.into(), Some(bias.into()), false)
}

/// `x ← max(x + b, 0)`.
///
/// # Errors
/// As for [`add_bias`].
pub fn add_bias_relu(x: &mut DeviceMatrix<f32>, bias: &DeviceMatrix<f32>) -> Result<(), TrainingError> {
    add_bias_relu_on(&x.device().stream(), x, bias)
}

/// [`add_bias_relu`] on a [`Stream`], for matrices in memory of any origin.
///
/// # Errors
/// As for [`add_bias_on`].
pub fn add_bias_relu_on<'a>(
    on: &Stream,
    x: impl Into<DeviceViewMut<'a, f32>>,
    bias: impl Into<DeviceView<'a, f32>>,
) -> Result<(), TrainingError> {
    forward(on, x.into(), Some(bias.into()), true)
}

/// `x ← max(x, 0)`.
///
/// # Errors
/// See [`training`](crate::training#errors).
pub fn relu(x: &mut DeviceMatrix<f32>) -> Result<(), TrainingError> {
    relu_on(&x.device().stream(), x)
}

/// [`relu`] on a [`Stream`], for a matrix in memory of any origin.
///
/// # Errors
/// What is said of [streams](crate::training#streams).
pub fn relu_on<'a>(on: &Stream, x: impl Into<DeviceViewMut<'a, f32>>) -> Result<(), TrainingError> {
    forward(on, x.into(), None, true)
}

fn forward(
    on: &Stream,
    x: DeviceViewMut<'_, f32>,
    bias: Option<DeviceView<'_, f32>>,
    rectify: bool,
) -> Result<(), TrainingError> {
    let mut operands = Operands::on(on, x.device())?;
    operands.writes("the matrix", &x, (x.rows(), x.cols()))?;
    if let Some(bias) = bias {
        operands.reads("the bias", bias, (1, x.cols()))?;
    }
    if is_empty(x.as_view()) {
        return Ok(());
    }
    if let Some(on) = operands.queued()? {
        let bias = bias.map_or(GlobalPtr::NULL, |bias| GlobalPtr::from_address(bias.address()));
        let out = matrix(x.as_view())?;
        let params = PointwiseParams { out, bias, rectify: rectify.into(), ..reading(x.as_view())? };
        // SAFETY: shapes and devices were checked; matrices free their memory after the work that was queued before,
        // and of other memory the views were promised that it lives; `x` is borrowed for itself.
        return unsafe { launch(&on, Variant::Pointwise, params.extent.threads(), &params) };
    }
    let bias = bias.and_then(|bias| Some(bias.host()?.row(0)));
    if let Some(x) = x.into_host() {
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
    relu_backward_on(&gradient.device().stream(), gradient, y)
}

/// [`relu_backward`] on a [`Stream`], for matrices in memory of any origin.
///
/// # Errors
/// Those of [`relu_backward`], and what is said of [streams](crate::training#streams).
pub fn relu_backward_on<'a>(
    on: &Stream,
    gradient: impl Into<DeviceViewMut<'a, f32>>,
    y: impl Into<DeviceView<'a, f32>>,
) -> Result<(), TrainingError> {
    let (gradient, y) = (gradient.into(), y.into());
    let shape = (gradient.rows(), gradient.cols());
    let mut operands = Operands::on(on, gradient.device())?;
    operands.writes("the gradient", &gradient, shape)?;
    operands.reads("the result of ReLU", y, shape)?;
    if is_empty(y) {
        return Ok(());
    }
    if let Some(on) = operands.queued()? {
        let out = matrix(gradient.as_view())?;
        let params = PointwiseParams { out, gate: matrix(y)?, ..reading(gradient.as_view())? };
        // SAFETY: as in `forward`.
        return unsafe { launch(&on, Variant::Pointwise, params.extent.threads(), &params) };
    }
    if let (Some(gradient), Some(y)) = (gradient.into_host(), y.host()) {
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
    round_into_on(&from.device().stream(), scale, from, to)
}

/// [`round_into`] on a [`Stream`], for matrices in memory of any origin. The [`Scale`] is a number, or where one is on
/// the device.
///
/// # Errors
/// Those of [`round_into`], and what is said of [streams](crate::training#streams).
pub fn round_into_on<'a, T: Element<Sum = f32>>(
    on: &Stream,
    scale: impl Into<Scale<'a>>,
    from: impl Into<DeviceView<'a, f32>>,
    to: impl Into<DeviceViewMut<'a, T>>,
) -> Result<(), TrainingError> {
    let (scale, from, to) = (scale.into(), from.into(), to.into());
    let shape = (from.rows(), from.cols());
    let mut operands = Operands::on(on, from.device())?;
    operands.reads("the matrix", from, shape)?;
    operands.writes("the rounded matrix", &to, shape)?;
    if let Scale::At(factor) = scale {
        operands.reads_array(FACTOR, factor, 1)?;
    }
    if is_empty(from) {
        return Ok(());
    }
    if let Some(on) = operands.queued()? {
        let (scale, factor) = scale.on_device();
        let (reading, written) = (PointwiseParams { scale, factor, ..reading(from)? }, matrix(to.as_view())?);
        let params = match T::PRECISION {
            Precision::F16 => PointwiseParams { rounded: written, ..reading },
            Precision::Bf16 => PointwiseParams { rounded: written, rounds_to_bf16: 1, ..reading },
            Precision::F32 | Precision::Tf32 | Precision::F64 => PointwiseParams { out: written, ..reading },
        };
        // SAFETY: as in `forward`; what is written has elements of the type that the params name.
        return unsafe { launch(&on, Variant::Pointwise, params.extent.threads(), &params) };
    }
    if let (Some(from), Some(to)) = (from.host(), to.into_host()) {
        let scale = scale.on_host();
        rows_mut(to).for_each(|(r, row)| {
            row.iter_mut()
                .zip(from.row(r))
                .for_each(|(to, &from)| *to = <T as Value>::from_f32(scale * from));
        });
    }
    Ok(())
}

/// Params that read `x` and write nothing.
fn reading(x: DeviceView<'_, f32>) -> Result<PointwiseParams, TrainingError> {
    Ok(PointwiseParams {
        x: matrix(x)?,
        gate: Matrix::NONE,
        out: Matrix::NONE,
        rounded: Matrix::NONE,
        bias: GlobalPtr::NULL,
        factor: GlobalPtr::NULL,
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

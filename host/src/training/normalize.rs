//! Rows of length 1, and the gradient.

use rayon::prelude::*;
use windrow_formats::Value;
use windrow_kernels::Variant;
use windrow_kernels::training::{NormalizeRowsGradParams, NormalizeRowsParams};
use windrow_simt::GlobalPtr;

use super::operands::{Operands, counts, is_empty, launch, matrix};
use super::rows_mut;
use crate::device::{DeviceBuffer, Stream};
use crate::error::TrainingError;
use crate::matrix::DeviceMatrix;
use crate::plan::{FACTOR, Scale};
use crate::view::{DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut};

/// Rows that are no longer than this have no direction.
pub const MIN_NORM: f32 = 1e-12;

/// `y[r] ← x[r] / ‖x[r]‖`, with `1 / ‖x[r]‖` in `inverse_norms`; both 0 where `‖x[r]‖ ≤` [`MIN_NORM`].
///
/// Products of two such rows are cosines of angles: scores of attention in AGNN.
///
/// # Precision
/// Squares are summed in f32 on a GPU, in f64 on the CPU.
///
/// # Errors
/// See [`training`](crate::training#errors): `x` and `y` have the same shape, there is an inverse norm for each row.
///
/// # Examples
/// ```
/// use windrow::training::{normalize_rows, normalize_rows_backward};
/// use windrow::{DenseRef, Device, DeviceBuffer, DeviceMatrix};
///
/// let device = Device::best()?;
/// let upload = |x: &[f32]| DeviceMatrix::upload(&device, DenseRef::packed(x, 2, 2)?);
/// let mut y = DeviceMatrix::zeros(&device, 2, 2)?;
/// let mut inverse_norms = DeviceBuffer::alloc_zeroed(&device, 2)?;
/// normalize_rows(&upload(&[0.0, 4.0, 0.0, 0.0])?, &mut y, &mut inverse_norms)?;
/// assert_eq!(y.download()?, [0.0, 1.0, 0.0, 0.0]);
/// assert_eq!(inverse_norms.to_vec()?, [0.25, 0.0]);
///
/// let mut gradient = upload(&[1.0; 4])?; // of something else: it is added to
/// normalize_rows_backward(1.0, (&y, &inverse_norms), &upload(&[8.0, 5.0, 3.0, 3.0])?, &mut gradient)?;
/// assert_eq!(gradient.download()?, [3.0, 1.0, 1.0, 1.0]); // nothing along the row
/// # Ok::<(), windrow::TrainingError>(())
/// ```
pub fn normalize_rows(
    x: &DeviceMatrix<f32>,
    y: &mut DeviceMatrix<f32>,
    inverse_norms: &mut DeviceBuffer<f32>,
) -> Result<(), TrainingError> {
    normalize_rows_on(&x.device().stream(), x, y, inverse_norms)
}

/// [`normalize_rows`] on a [`Stream`], for matrices and an array in memory of any origin.
///
/// # Errors
/// Those of [`normalize_rows`], and what is said of [streams](crate::training#streams).
pub fn normalize_rows_on<'a>(
    on: &Stream,
    x: impl Into<DeviceView<'a, f32>>,
    y: impl Into<DeviceViewMut<'a, f32>>,
    inverse_norms: impl Into<DeviceSliceMut<'a, f32>>,
) -> Result<(), TrainingError> {
    let (x, y, inverse_norms) = (x.into(), y.into(), inverse_norms.into());
    let mut operands = Operands::on(on, x.device())?;
    operands.reads("the matrix", x, (x.rows(), x.cols()))?;
    operands.writes("the normalised matrix", &y, (x.rows(), x.cols()))?;
    operands.writes_array("the inverse norms", &inverse_norms, x.rows())?;
    if is_empty(x) {
        return Ok(());
    }
    if let Some(on) = operands.queued()? {
        let (rows, cols) = counts(x)?;
        let inverse_norms = GlobalPtr::from_address(inverse_norms.address());
        let (x, y) = (matrix(x)?, matrix(y.as_view())?);
        let params = NormalizeRowsParams { x, y, inverse_norms, rows, cols, epsilon: MIN_NORM, reserved: 0 };
        // SAFETY: shapes and devices were checked; matrices free their memory after the work that was queued before,
        // and of other memory the views were promised that it lives; what is written is borrowed for itself.
        return unsafe { launch(&on, Variant::NormalizeRows, u64::from(rows), &params) };
    }
    if let (Some(x), Some(y), Some(inverse_norms)) = (x.host(), y.into_host(), inverse_norms.into_host()) {
        rows_mut(y).zip(inverse_norms).for_each(|((r, y), inverse)| {
            let norm = f32::from_f64(dot(x.row(r), x.row(r)).sqrt());
            *inverse = if norm <= MIN_NORM { 0.0 } else { 1.0 / norm };
            y.iter_mut().zip(x.row(r)).for_each(|(y, x)| *y = x * *inverse);
        });
    }
    Ok(())
}

/// `out[r] += scale·(g[r] − y[r]·(y[r]·g[r])) / ‖x[r]‖`: adds the gradient with respect to the rows `x` that
/// [`normalize_rows`] made `y` and the inverse norms of, from the gradient `g` with respect to `y`. Rows without
/// direction have none.
///
/// # Errors
/// See [`training`](crate::training#errors): all matrices have the same shape, there is an inverse norm for each row.
pub fn normalize_rows_backward(
    scale: f32,
    (y, inverse_norms): (&DeviceMatrix<f32>, &DeviceBuffer<f32>),
    gradient: &DeviceMatrix<f32>,
    out: &mut DeviceMatrix<f32>,
) -> Result<(), TrainingError> {
    let normalized = (y.view(), inverse_norms.view());
    normalize_rows_backward_on(&y.device().stream(), scale, normalized, gradient, out)
}

/// [`normalize_rows_backward`] on a [`Stream`], for matrices and an array in memory of any origin. The [`Scale`] is a
/// number, or where one is on the device.
///
/// # Errors
/// Those of [`normalize_rows_backward`], and what is said of [streams](crate::training#streams).
pub fn normalize_rows_backward_on<'a>(
    on: &Stream,
    scale: impl Into<Scale<'a>>,
    (y, inverse_norms): (DeviceView<'_, f32>, DeviceSlice<'_, f32>),
    gradient: impl Into<DeviceView<'a, f32>>,
    out: impl Into<DeviceViewMut<'a, f32>>,
) -> Result<(), TrainingError> {
    let (scale, gradient, out) = (scale.into(), gradient.into(), out.into());
    let shape = (y.rows(), y.cols());
    let mut operands = Operands::on(on, y.device())?;
    operands.reads("the normalised matrix", y, shape)?;
    operands.reads("the gradient", gradient, shape)?;
    operands.writes("the result", &out, shape)?;
    operands.reads_array("the inverse norms", inverse_norms, y.rows())?;
    if let Scale::At(factor) = scale {
        operands.reads_array(FACTOR, factor, 1)?;
    }
    if is_empty(y) {
        return Ok(());
    }
    if let Some(on) = operands.queued()? {
        let (rows, cols) = counts(y)?;
        let (scale, factor) = scale.on_device();
        let params = NormalizeRowsGradParams {
            y: matrix(y)?,
            gradient: matrix(gradient)?,
            out: matrix(out.as_view())?,
            inverse_norms: GlobalPtr::from_address(inverse_norms.address()),
            factor,
            rows,
            cols,
            scale,
            reserved: 0,
        };
        // SAFETY: as in `normalize_rows_on`.
        return unsafe { launch(&on, Variant::NormalizeRowsGrad, u64::from(rows), &params) };
    }
    if let (Some(y), Some(g), Some(out), Some(inverse_norms)) =
        (y.host(), gradient.host(), out.into_host(), inverse_norms.host())
    {
        let scale = scale.on_host();
        rows_mut(out).zip(inverse_norms).for_each(|((r, out), inverse)| {
            let along = f32::from_f64(dot(y.row(r), g.row(r)));
            let factor = scale * inverse;
            for ((out, y), g) in out.iter_mut().zip(y.row(r)).zip(g.row(r)) {
                *out += factor * (g - y * along);
            }
        });
    }
    Ok(())
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

//! `A @ B` and `B @ A`, with plans that the matrix keeps.

use std::sync::{Arc, PoisonError};

use pyo3::prelude::*;
use windrow::{Device, Precision};

use super::{Matrix, PyCsr};
use crate::array::{Array, Place, told};
use crate::device::given_or_default;
use crate::dtype::Dtype;
use crate::error::{Class, Fault};
use crate::numpy::numpy;
use crate::product::{Product, Run};

/// What a plan was made for by `A @ B`: the device, the precision, and the width, rounded up.
pub(super) type Key = (usize, Precision, usize);

/// Plans that `A @ B` keeps.
const MOST_PLANS: usize = 4;

/// The plan for a product of this width on this device, made if there is none.
fn product(
    a: &Bound<'_, PyCsr>,
    device: &'static Device,
    precision: Precision,
    width: usize,
) -> PyResult<Arc<Product>> {
    let this = a.get();
    let width = width.max(1).checked_next_power_of_two().unwrap_or(width);
    let key: Key = (std::ptr::from_ref(device).addr(), precision, width);
    let plans = || this.plans.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, plan)) = plans().iter().find(|(of, _)| *of == key) {
        return Ok(Arc::clone(plan));
    }
    let options = windrow::SpmmOptions { width, precision, ..windrow::SpmmOptions::DEFAULT };
    let plan = Arc::new(Product::build(a.py(), this, device, options, None)?);
    let mut plans = plans();
    if plans.len() == MOST_PLANS {
        plans.remove(0);
    }
    plans.push((key, Arc::clone(&plan)));
    Ok(plan)
}

/// The precision of a product of these two types: the wider of them.
fn precision_of(of_a: Dtype, of_b: Dtype) -> Precision {
    match (of_a, of_b) {
        (Dtype::F64, _) | (_, Dtype::F64) => Precision::F64,
        (Dtype::F16, Dtype::F16) => Precision::F16,
        (Dtype::Bf16, Dtype::Bf16) => Precision::Bf16,
        _ => Precision::F32,
    }
}

/// Whether it is windrow's, scipy's, or a sparse tensor of PyTorch's.
fn is_sparse(b: &Bound<'_, PyAny>) -> PyResult<bool> {
    if b.cast::<PyCsr>().is_ok() || b.hasattr("tocsr")? {
        return Ok(true);
    }
    let layout = b.getattr_opt("layout")?.map(|layout| layout.str()).transpose()?;
    Ok(layout.is_some_and(|layout| layout.to_string_lossy().contains("sparse")))
}

fn two_sparse(instead: &str) -> PyErr {
    let text = "a product of two sparse matrices is not what windrow does";
    told(Class::Dtype, format!("{text}; use {instead}, or make B dense"))
}

/// `A·B`, where the matrix is, or where `B` is.
pub(super) fn by<'py>(a: &Bound<'py, PyCsr>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let (py, this) = (a.py(), a.get());
    if is_sparse(b)? {
        return Err(two_sparse("A.to_scipy() @ B"));
    }
    let b = Array::of("B", b, None)?.forward()?;
    let (((rows, width), _), (_, cols)) = (b.matrix()?, this.shape());
    if rows != cols {
        return Err(Fault::from(windrow::SpmmError::InnerDim { a_cols: cols, b_rows: rows }).into());
    }
    let device = match (&this.matrix, b.place) {
        (Matrix::Device(raw), _) => raw.get().device,
        (_, Place::Device(device)) => device,
        _ => given_or_default(py, None)?,
    };
    let plan = product(a, device, precision_of(this.dtype_of(), b.dtype()?), width)?;
    plan.mm(py, b, &Run { to_precision: true, ..Run::default() })
}

/// `B·A`, by way of the transpose: `(Aᵀ·Bᵀ)ᵀ`.
pub(super) fn from_the_left<'py>(
    a: &Bound<'py, PyCsr>,
    b: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if is_sparse(b)? {
        return Err(two_sparse("B @ A.to_scipy()"));
    }
    let transposed = PyCsr::T(a)?;
    let b = numpy(a.py())?.call_method1("asarray", (b,))?.getattr("T")?;
    by(transposed.bind(a.py()), &b)?.getattr("T")
}

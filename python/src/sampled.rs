//! Sampled products and softmax over rows, of memory at addresses.

use std::sync::{PoisonError, RwLock};

use pyo3::prelude::*;
use windrow::{
    Device, DeviceSlice, DeviceSliceMut, DeviceView, Element, Precision, RowSoftmax, Sddmm, SddmmOptions,
    SddmmPlan, Stream,
};

use crate::device::{PyDevice, stream_of};
use crate::dtype::Dtype;
use crate::error::{Fault, Outcome, dtype, shape};
use crate::options::read_options;
use crate::outside::{Kept, outside};
use crate::raw::{Lies, Operand, RawCsr, each};
use pyo3::types::PyDict;

/// A plan of `values[e] = alpha·scale[e]·Σ X[row(e)]·Y[col(e)]` for the entries of a sparse matrix at addresses, made
/// in the order of `stream`. Keywords are the options of `windrow.Sddmm`; `scale[e]` is the matrix's value where
/// `form="scale"`, else 1.
#[pyclass(frozen, name = "Sddmm", module = "windrow._windrow.raw")]
pub(crate) struct RawSddmm {
    plan: Kept<RwLock<SddmmPlan>>,
    device: &'static Device,
    precision: Precision,
}

#[pymethods]
impl RawSddmm {
    #[new]
    #[pyo3(signature = (a, stream = None, **options))]
    fn new(
        py: Python<'_>,
        a: &RawCsr,
        stream: Option<usize>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = match options {
            Some(given) => read_options::<SddmmOptions>(given)?,
            None => SddmmOptions::default(),
        };
        let (device, precision) = (a.device, options.precision);
        // SAFETY: the promise of who gives the stream.
        let plan = outside(py, || unsafe {
            let on = stream_of(device, stream)?;
            Ok::<_, Fault>(each!(&*a.matrix, a => Sddmm::builder(&**a).options(options).build_on(&on)?))
        })?;
        Ok(Self { plan: Kept::new(RwLock::new(plan)), device, precision })
    }

    /// Queues the product in `stream`. `x` and `y` are `(address, shape, strides, dtype)` of the plan's element type
    /// with consecutive rows, `values` is `(address, nnz, dtype)`: any of f32, f16 and bf16, or f64 for a plan of that.
    #[pyo3(signature = (stream, x, y, values, alpha = 1.0))]
    fn run(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        x: Operand,
        y: Operand,
        values: (u64, usize, Dtype),
        alpha: f64,
    ) -> PyResult<()> {
        outside(py, || {
            // SAFETY: the promise of who gives addresses and the stream.
            unsafe {
                let on = stream_of(self.device, stream)?;
                let plan = self.plan.read().unwrap_or_else(PoisonError::into_inner);
                run(&plan, self.device, &on, alpha, [x, y], values)
            }
        })
    }

    /// Makes what runs of this inner dimension on `stream` need, so that they can be captured into a graph.
    #[pyo3(signature = (stream, inner, dtype = Dtype::F32))]
    fn prepare(&self, py: Python<'_>, stream: Option<usize>, inner: usize, dtype: Dtype) -> PyResult<()> {
        // SAFETY: the promise of who gives the stream.
        outside(py, || unsafe {
            let on = stream_of(self.device, stream)?;
            let plan = self.plan.read().unwrap_or_else(PoisonError::into_inner);
            crate::dtype::with_dtype!(dtype, O => Ok::<_, Fault>(plan.prepare_on::<O>(&on, inner)?))
        })
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    #[getter]
    fn precision(&self) -> String {
        self.precision.to_string()
    }

    /// What the plan is, what it holds and what it cost to make, as text.
    fn report(&self) -> String {
        self.plan.read().unwrap_or_else(PoisonError::into_inner).report().to_string()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.plan.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// # Safety
/// Those of [`DeviceView::from_raw`] and [`DeviceSliceMut::from_raw`], for the stream.
unsafe fn run(
    plan: &SddmmPlan,
    device: &'static Device,
    on: &Stream,
    alpha: f64,
    [x, y]: [Operand; 2],
    values: (u64, usize, Dtype),
) -> Outcome<()> {
    if x.3 != y.3 {
        return dtype(format!("X holds {} but Y holds {}; convert one of them", x.3.name(), y.3.name()));
    }
    // SAFETY: the caller's promise.
    unsafe {
        match (x.3, values.2) {
            (Dtype::F64, Dtype::F64) => run_as::<f64, f64>(plan, device, on, alpha, [x, y], values),
            (Dtype::F64, _) | (_, Dtype::F64) => dtype(format!(
                "the result holds {} but X holds {}; only f64 goes with f64",
                values.2.name(),
                x.3.name()
            )),
            (of_x, of_values) => {
                #[expect(clippy::cast_possible_truncation, reason = "factors are f32 where sums are")]
                let alpha = alpha as f32;
                macro_rules! run_as {
                    ($($x:ident $x_type:ty, $out:ident $out_type:ty;)+) => {
                        match (of_x, of_values) {
                            $((Dtype::$x, Dtype::$out) => {
                                run_as::<$x_type, $out_type>(plan, device, on, alpha, [x, y], values)
                            })+
                            (Dtype::F64, _) | (_, Dtype::F64) => unreachable!("told above"),
                        }
                    };
                }
                run_as! {
                    F32 f32, F32 f32; F32 f32, F16 windrow::f16; F32 f32, Bf16 windrow::bf16;
                    F16 windrow::f16, F32 f32; F16 windrow::f16, F16 windrow::f16; F16 windrow::f16, Bf16 windrow::bf16;
                    Bf16 windrow::bf16, F32 f32; Bf16 windrow::bf16, F16 windrow::f16; Bf16 windrow::bf16, Bf16 windrow::bf16;
                }
            }
        }
    }
}

/// # Safety
/// As for [`run`], and the elements are of these types.
unsafe fn run_as<T: Element, O: Element<Sum = T::Sum>>(
    plan: &SddmmPlan,
    device: &'static Device,
    on: &Stream,
    alpha: T::Sum,
    [x, y]: [Operand; 2],
    (to, nnz, _): (u64, usize, Dtype),
) -> Outcome<()> {
    let view = |what: &str, operand: Operand| {
        let Operand(at, (rows, cols), ..) = operand;
        let Lies::Rows(ld) = operand.lies(what)? else {
            return shape(format!("{what} lies column after column; give it consecutive rows"));
        };
        // SAFETY: the caller's promise; what the driver knows of the addresses is checked.
        Ok(unsafe { DeviceView::<T>::from_raw(device, at, rows, cols, ld)? })
    };
    // SAFETY: as above.
    let values = unsafe { DeviceSliceMut::<O>::from_raw(device, to, nnz)? };
    Ok(plan.run_into_on(on, alpha, [view("X", x)?, view("Y", y)?], values)?)
}

/// A softmax over the entries of each row of a sparse matrix at addresses, made in the order of `stream`.
#[pyclass(frozen, name = "RowSoftmax", module = "windrow._windrow.raw")]
pub(crate) struct RawSoftmax {
    softmax: Kept<RowSoftmax>,
    device: &'static Device,
}

#[pymethods]
impl RawSoftmax {
    #[new]
    #[pyo3(signature = (a, stream = None))]
    fn new(py: Python<'_>, a: &RawCsr, stream: Option<usize>) -> PyResult<Self> {
        let device = a.device;
        // SAFETY: the promise of who gives the stream.
        let softmax = outside(py, || unsafe {
            let on = stream_of(device, stream)?;
            Ok::<_, Fault>(each!(&*a.matrix, a => RowSoftmax::new_on(&**a, &on)?))
        })?;
        Ok(Self { softmax: Kept::new(softmax), device })
    }

    /// `to ← softmax(scale·scores)` over rows: `nnz` elements of f32 at each address.
    fn forward(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        scores: u64,
        to: u64,
        nnz: usize,
        scale: f32,
    ) -> PyResult<()> {
        // SAFETY: the promise of who gives addresses and the stream.
        outside(py, || unsafe {
            let on = stream_of(self.device, stream)?;
            let scores = DeviceSlice::<f32>::from_raw(self.device, scores, nnz)?;
            let to = DeviceSliceMut::<f32>::from_raw(self.device, to, nnz)?;
            Ok::<_, Fault>(self.softmax.forward_on(&on, scale, scores, to)?)
        })
    }

    /// `to ← scale·p·(g − Σ p·g)`, the sum over the row: `nnz` elements of f32 at each address.
    fn backward(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        p: u64,
        g: u64,
        to: u64,
        nnz: usize,
        scale: f32,
    ) -> PyResult<()> {
        // SAFETY: the promise of who gives addresses and the stream.
        outside(py, || unsafe {
            let on = stream_of(self.device, stream)?;
            let [p, g] = [p, g].map(|at| DeviceSlice::<f32>::from_raw(self.device, at, nnz));
            let to = DeviceSliceMut::<f32>::from_raw(self.device, to, nnz)?;
            Ok::<_, Fault>(self.softmax.backward_on(&on, scale, [p?, g?], to)?)
        })
    }

    fn __repr__(&self) -> String {
        format!("{:?}", *self.softmax)
    }
}

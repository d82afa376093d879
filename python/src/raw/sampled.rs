//! Sampled products with patterns at addresses.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use windrow::{Device, DeviceSliceMut, Precision, Sddmm, SddmmOptions, SddmmPlan};

use super::arrays::AnyDeviceCsr;
use super::csr::RawCsr;
use super::operand::Operand;
use crate::any::each;
use crate::device::{PyDevice, on_stream};
use crate::dtype::{Dtype, factor, with_dtype, with_pair};
use crate::error::dtype;
use crate::options::read_options;
use crate::outside::Shared;

/// A plan of `values[e] = alpha·scale[e]·Σ X[row(e)]·Y[col(e)]` for the entries of a sparse matrix at addresses, made
/// in the order of `stream`. Keywords are the options of `windrow.Sddmm`; `scale[e]` is the matrix's value where
/// `form="scale"`, else 1.
#[pyclass(frozen, name = "Sddmm", module = "windrow._windrow.raw")]
pub(super) struct RawSddmm {
    plan: Shared<SddmmPlan>,
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
        let plan = unsafe {
            on_stream(py, device, stream, |on| {
                Ok(each!(AnyDeviceCsr, &*a.matrix, a => Sddmm::builder(&**a).options(options).build_on(on)?))
            })?
        };
        Ok(Self { plan: Shared::new(plan), device, precision })
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
        if x.3 != y.3 {
            dtype(format!("X holds {} but Y holds {}; convert one of them", x.3.name(), y.3.name()))?;
        }
        let (to, nnz, of) = values;
        // SAFETY: the promise of who gives addresses and the stream; what the driver knows of them is checked.
        unsafe {
            on_stream(py, self.device, stream, |on| {
                with_pair!((x.3, of), "the result", T, O => {
                    let [x, y] = [x.view::<T>("X", self.device)?, y.view::<T>("Y", self.device)?];
                    let values = DeviceSliceMut::<O>::from_raw(self.device, to, nnz)?;
                    Ok(self.plan.read().run_into_on(on, factor::<T>(alpha), [x, y], values)?)
                })
            })
        }
    }

    /// Makes what runs of this inner dimension on `stream` need, so that they can be captured into a graph.
    #[pyo3(signature = (stream, inner, dtype = Dtype::F32))]
    fn prepare(&self, py: Python<'_>, stream: Option<usize>, inner: usize, dtype: Dtype) -> PyResult<()> {
        // SAFETY: the promise of who gives the stream.
        unsafe {
            on_stream(
                py,
                self.device,
                stream,
                |on| with_dtype!(dtype, O => Ok(self.plan.read().prepare_on::<O>(on, inner)?)),
            )
        }
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
        self.plan.read().report().to_string()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", **self.plan.read())
    }
}

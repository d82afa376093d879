//! Plans of sparse times dense.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windrow::{DeviceSlice, Precision, SpmmOptions};

use crate::array::{Array, Place};
use crate::csr::{PyCsr, as_csr, permutation};
use crate::device::{PyDevice, Where, live, on_stream};
use crate::dtype::{Dtype, with_dtype};
use crate::error::Fault;
use crate::options::{Size, spmm_options};
use crate::outside::outside;
use crate::product::{Product, Run};
use crate::remake::remade;
use crate::report::{Said, report};

/// A sparse matrix laid out for products `C ← alpha·A·B + beta·C` on one device.
///
/// `Spmm(A, device, width=128, precision="f32", …)`; a plan runs any number of times, with any width, from any thread.
/// `precision`: "f32", "tf32", "f16", "bf16" or "f64", what values and `B` are rounded to; left out, that of `A`'s
/// values. Sums are f32, of f64 they are f64.
///
/// More keywords, as the fields of the library's `SpmmOptions`: `width` (columns that most products have), `algorithm`
/// ("auto", "row-split", "tile-stream", "hybrid", …), `determinism` ("run-to-run" or "fast"), `memory_limit` (bytes),
/// `expected_runs`, `values_from_device`, `preprocessing`, `reorder` (a dict such as `{"method": "rcm"}`), `order` (an
/// array, as `reorder` returns it), and the rest of them.
///
/// >>> A = windrow.Csr(([1.0, 2.0, 3.0], [0, 2, 1], [0, 2, 3]), shape=(2, 3))
/// >>> plan = windrow.Spmm(A, "cpu", width=2)
/// >>> plan.mm(numpy.ones((3, 2)))
/// array([[3., 3.],
///        [3., 3.]])
#[pyclass(frozen, weakref, name = "Spmm", module = "windrow")]
pub(crate) struct PySpmm {
    product: Arc<Product>,
    /// What another is made of.
    matrix: Mutex<Py<PyCsr>>,
    /// As they were given, for the same.
    given: Py<PyDict>,
}

/// The options of a plan of this matrix, of whose type the precision is unless it is given.
pub(crate) fn options_for(a: &PyCsr, given: Option<&Bound<'_, PyDict>>) -> PyResult<SpmmOptions> {
    let precision = given.map(|given| given.get_item("precision")).transpose()?.flatten();
    let mut options = spmm_options(given)?;
    if precision.is_none_or(|precision| precision.is_none()) {
        options.precision = a.dtype_of().precision();
    }
    Ok(options)
}

impl PySpmm {
    pub(crate) fn make(
        py: Python<'_>,
        a: &Bound<'_, PyCsr>,
        device: Option<Where>,
        order: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let given = options.map_or_else(|| Ok(PyDict::new(py)), |options| options.copy())?;
        let plain = options_for(a.get(), Some(&given))?;
        if let Some(order) = order {
            given.set_item("order", order)?;
        }
        let order = order.map(|order| permutation("order", order)).transpose()?;
        let device = a.get().device_for(py, device)?;
        let product = Product::build(py, a.get(), device, plain, order.as_ref())?;
        Ok(Self { product: Arc::new(product), matrix: Mutex::new(a.clone().unbind()), given: given.unbind() })
    }

    fn matrix(&self, py: Python<'_>) -> Py<PyCsr> {
        self.matrix.lock().unwrap_or_else(PoisonError::into_inner).clone_ref(py)
    }
}

#[pymethods]
impl PySpmm {
    #[new]
    #[pyo3(signature = (a, device = None, *, order = None, **options))]
    fn new(
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        device: Option<Where>,
        order: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Self::make(py, &as_csr(a)?, device, order, options)
    }

    /// `C ← alpha·A·B + beta·C`, and returns `C`: `out`, or a new array.
    ///
    /// `B` is `k × n` or a vector of `k`: an array in host memory, in any order of elements and of any of the four
    /// types, or one on the plan's GPU, of the plan's type and with consecutive elements in its rows. `C` is `m × n`,
    /// with consecutive elements in its rows; it has the type of `B` unless `out` has another.
    ///
    /// Without `stream` the result is there when the call returns, but for operands that are all `windrow.Array`s:
    /// those stay in the order of the device. With `stream`, the handle of a CUDA stream such as
    /// `torch.cuda.current_stream().cuda_stream`, the product is queued there and nobody waits; arrays of other
    /// libraries are the caller's to order.
    #[pyo3(signature = (b, out = None, *, alpha = 1.0, beta = 0.0, stream = None))]
    fn mm<'py>(
        &self,
        py: Python<'py>,
        b: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        alpha: f64,
        beta: f64,
        stream: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let b = Array::of("B", b, stream)?.forward()?;
        self.product.mm(py, b, &Run { out, alpha, beta, stream, to_precision: false })
    }

    fn __matmul__<'py>(&self, py: Python<'py>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.mm(py, b, None, 1.0, 0.0, None)
    }

    fn __call__<'py>(&self, py: Python<'py>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.mm(py, b, None, 1.0, 0.0, None)
    }

    /// Puts new values in the places of the old, one for each entry in the order of `A.data`; the pattern stays. Costs
    /// a fraction of a new plan. Of an array on the plan's GPU (f32, or f64 for a plan of that precision) nothing comes
    /// to the host.
    #[pyo3(signature = (values, *, stream = None))]
    fn replace_values(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        stream: Option<usize>,
    ) -> PyResult<()> {
        let array = Array::of("values", values, stream)?.forward()?;
        let device = self.product.device;
        if let Place::Device(_) = array.place {
            let (address, len) = (array.address, array.consecutive(device)?);
            let precision = self.product.plan.read().precision();
            array.check_type(if precision == Precision::F64 { Dtype::F64 } else { Dtype::F32 })?;
            // SAFETY: what the owner promises; it is kept until the stream is done, or its order is the caller's.
            return unsafe {
                on_stream(py, device, stream, |on| {
                    let mut plan = self.product.plan.write();
                    if precision == Precision::F64 {
                        plan.replace_values_on(on, DeviceSlice::<f64>::from_raw(device, address, len)?)?;
                    } else {
                        plan.replace_values_on(on, DeviceSlice::<f32>::from_raw(device, address, len)?)?;
                    }
                    if stream.is_none() {
                        on.synchronize()?;
                    }
                    Ok(())
                })
            };
        }
        let matrix = self.matrix(py).get().with_values(py, &array.object)?;
        live(device)?;
        with_dtype!(array.dtype()?, V => {
            let values = array.to_vec::<V>()?;
            outside(py, || Ok::<_, Fault>(self.product.plan.write().replace_values(&values)?))?;
        });
        *self.matrix.lock().unwrap_or_else(PoisonError::into_inner) = Py::new(py, matrix)?;
        Ok(())
    }

    /// Makes what products of this width on `stream` need, so that they can be captured into a graph.
    #[pyo3(signature = (width, stream = None, *, staged = false))]
    fn prepare(&self, py: Python<'_>, width: Size, stream: Option<usize>, staged: bool) -> PyResult<()> {
        // SAFETY: the promise of who gives the stream.
        unsafe {
            on_stream(py, self.product.device, stream, |on| {
                Ok(self.product.plan.read().prepare_on(on, width.0, staged)?)
            })
        }
    }

    /// What the plan is, what it holds and what it cost to make.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let said = Said::by(self.product.plan.read().report())?;
        report(py, "Spmm", said)
    }

    /// Rows and columns of `A`.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        self.product.plan.read().shape()
    }

    #[getter]
    fn nnz(&self) -> usize {
        self.product.plan.read().nnz()
    }

    #[getter]
    fn precision(&self) -> String {
        self.product.plan.read().precision().to_string()
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.product.device)
    }

    /// Bytes of device memory that the plan holds.
    #[getter]
    fn device_bytes(&self) -> u64 {
        self.product.plan.read().device_bytes()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        remade(py, "Spmm", self.matrix(py).into_any(), self.product.device, &self.given)
    }

    fn __repr__(&self) -> String {
        let plan = self.product.plan.read();
        let ((rows, cols), nnz, report) = (plan.shape(), plan.nnz(), plan.report());
        let (algorithm, precision, device) =
            (report.algorithm, plan.precision(), self.product.device.selector());
        format!("windrow.Spmm({rows} × {cols}, {nnz} entries, {algorithm}, {precision}, on {device})")
    }
}

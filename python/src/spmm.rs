//! Plans of sparse times dense.
#![expect(clippy::undocumented_unsafe_blocks, reason = "it does not see comments in the arguments of macros")]

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windrow::{
    DenseMut, Device, DeviceCsr, DeviceSlice, Element, Precision, Spmm, SpmmBuilder, SpmmOptions, SpmmPlan,
    Value,
};

use crate::array::{Array, Place, told};
use crate::csr::{Matrix, PyCsr, permutation, with_csr};
use crate::device::{PyDevice, Where, given_or_default, live, stream_of};
use crate::dtype::{Dtype, with_dtype, with_pair};
use crate::error::{Class, Fault};
use crate::matrix::{PyArray, zeros};
use crate::numpy::{empty, numpy};
use crate::options::{shown, spmm_options};
use crate::outside::{Kept, outside};
use crate::raw::each;
use crate::report::report;

/// A plan and where it is.
pub(crate) struct Product {
    plan: RwLock<Kept<SpmmPlan>>,
    device: &'static Device,
}

/// What a product is asked for.
pub(crate) struct Run<'a, 'py> {
    pub(crate) out: Option<&'a Bound<'py, PyAny>>,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) stream: Option<usize>,
    /// Whether the result has the type of the plan, and not that of `B`.
    pub(crate) to_precision: bool,
}

impl Default for Run<'_, '_> {
    fn default() -> Self {
        Self { out: None, alpha: 1.0, beta: 0.0, stream: None, to_precision: false }
    }
}

impl Product {
    pub(crate) fn build(
        py: Python<'_>,
        a: &PyCsr,
        device: &'static Device,
        options: SpmmOptions,
        order: Option<&windrow::Permutation>,
    ) -> PyResult<Self> {
        let plan = match &a.matrix {
            Matrix::Host(matrix) => outside(py, || {
                live(device)?;
                with_csr!(matrix, a => Ok::<_, Fault>(ordered(Spmm::builder(&**a).options(options), order).build(device)?))
            }),
            Matrix::Device(raw) => {
                let raw = raw.get();
                if !raw.device.is_same(device) {
                    let text = format!("the matrix is on {} and the plan is for {device}", raw.device);
                    return Err(told(
                        Class::Device,
                        format!("{text}; leave the device out, or use A.to_host()"),
                    ));
                }
                outside(py, || {
                    live(device)?;
                    each!(&*raw.matrix, a => {
                        let a: &DeviceCsr<'static, _> = a;
                        let builder = ordered(Spmm::builder(a).options(options), order);
                        Ok::<_, Fault>(builder.build_on(&device.stream())?)
                    })
                })
            }
        }?;
        Ok(Self { plan: RwLock::new(Kept::new(plan)), device })
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Kept<SpmmPlan>> {
        self.plan.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// `C ← α·A·B + β·C`, and `C`.
    pub(crate) fn mm<'py>(
        &self,
        py: Python<'py>,
        b: Array<'py>,
        run: &Run<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        live(self.device)?;
        if run.out.is_none() && run.beta != 0.0 {
            let text = format!("beta = {} is a factor of what C held before; give C as out=", run.beta);
            return Err(told(Class::Option, text));
        }
        match b.place {
            Place::Host => self.on_host(py, &b, run),
            Place::Device(_) => self.on_device(py, &b, run),
        }
    }

    fn on_host<'py>(
        &self,
        py: Python<'py>,
        b: &Array<'py>,
        run: &Run<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let of_b = b.dtype()?;
        let ((_, n), _) = b.matrix()?;
        let (made, rows) = (self.read().precision(), self.read().shape().0);
        let c = match run.out {
            Some(c) => c.clone(),
            None => {
                let of_c = if run.to_precision { Dtype::of(made) } else { of_b };
                // numpy has no bf16, of which sums are f32.
                let of_c = if of_c == Dtype::Bf16 { Dtype::F32 } else { of_c };
                let shape = [rows, n];
                empty(py, &shape[..if b.is_vector() { 1 } else { 2 }], of_c)?
            }
        };
        let mut to = Array::host("C", &c)?;
        to.check_writable()?;
        b.check_apart(&to)?;
        let of_c = to.dtype()?;
        // Sums of a plan of f64 are not rounded on the way to C, whatever B holds.
        let widened = (of_c == Dtype::F64 && of_b != Dtype::F64).then(|| widen(py, b)).transpose()?;
        let b = widened.as_ref().unwrap_or(b);
        let of_b = b.dtype()?;
        let ((c_rows, c_cols), ld) = to.rows()?;
        let (alpha, beta) = (run.alpha, run.beta);
        with_pair!((of_b, of_c), "C", B, C => {
            // SAFETY: of these types, in host memory, and apart; B was made to go forward, and rows of C do.
            let (b, c) = unsafe { (b.mat_ref::<B>()?, to.elements_mut::<C>()) };
            let (alpha, beta) = (factor::<B>(alpha), factor::<B>(beta));
            outside(py, || {
                let c = DenseMut::try_new(c, c_rows, c_cols, ld)?;
                Ok::<_, Fault>(self.read().run_host(alpha, b, beta, c)?)
            })?;
            Ok::<_, Fault>(())
        })?;
        Ok(c)
    }

    fn on_device<'py>(
        &self,
        py: Python<'py>,
        b: &Array<'py>,
        run: &Run<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (device, of_b, ((_, n), _)) = (self.device, b.dtype()?, b.matrix()?);
        let (alpha, beta, stream) = (run.alpha, run.beta, run.stream);
        let Some(out) = run.out else {
            let made = with_dtype!(of_b, B => {
                // SAFETY: what the owner of B promises; it is kept, and waited for below.
                let view = unsafe { b.view::<B>(device)? };
                let wait = stream.is_none() && !b.is_own() || stream.is_some() && b.is_own();
                outside(py, || {
                    let plan = self.read();
                    let mut c = zeros::<B>(device, plan.shape().0, n)?;
                    // SAFETY: the promise of who gives the stream.
                    let on = unsafe { stream_of(device, stream)? };
                    plan.run_into_on(&on, factor::<B>(alpha), view, factor::<B>(beta), &mut c)?;
                    if wait {
                        on.synchronize()?;
                    }
                    Ok::<_, Fault>(c.into())
                })?
            });
            return Ok(Bound::new(py, PyArray::new(made, device, b.is_vector()))?.into_any());
        };
        let mut to = Array::of("C", out, stream)?;
        let own = [b.is_own(), to.is_own()];
        let wait = if stream.is_none() { !(own[0] && own[1]) } else { own[0] || own[1] };
        with_pair!((of_b, to.dtype()?), "C", B, C => {
            // SAFETY: what the owners of B and C promise; they are kept, and waited for below, or ordered by who gave
            // the stream.
            let (view, c) = unsafe { (b.view::<B>(device)?, to.view_mut::<C>(device)?) };
            outside(py, || {
                // SAFETY: the promise of who gives the stream.
                let on = unsafe { stream_of(device, stream)? };
                self.read().run_into_on(&on, factor::<B>(alpha), view, factor::<B>(beta), c)?;
                if wait {
                    on.synchronize()?;
                }
                Ok::<_, Fault>(())
            })?;
            Ok::<_, Fault>(())
        })?;
        Ok(out.clone())
    }
}

/// A factor in the type of the sums.
pub(crate) fn factor<B: Element>(x: f64) -> B::Sum {
    <B::Sum as Value>::from_f64(x)
}

fn ordered<'a, A>(
    builder: SpmmBuilder<'a, A>,
    order: Option<&'a windrow::Permutation>,
) -> SpmmBuilder<'a, A> {
    match order {
        Some(order) => builder.order(order),
        None => builder,
    }
}

/// A copy of an array in host memory in f64.
fn widen<'py>(py: Python<'py>, array: &Array<'py>) -> PyResult<Array<'py>> {
    Array::host("B", &numpy(py)?.call_method1("asarray", (&array.object, "f8"))?)?.forward()
}

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

impl PySpmm {
    pub(crate) fn make(
        py: Python<'_>,
        a: &Bound<'_, PyCsr>,
        device: Option<Where>,
        order: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let given = options.map_or_else(|| Ok(PyDict::new(py)), |options| options.copy())?;
        let mut plain = spmm_options(Some(&given))?;
        if given.get_item("precision")?.is_none_or(|precision| precision.is_none()) {
            plain.precision = precision_of(a.get());
        }
        if let Some(order) = order {
            given.set_item("order", order)?;
        }
        let order = order.map(|order| permutation("order", order)).transpose()?;
        let device = match &a.get().matrix {
            Matrix::Device(raw) if device.is_none() => raw.get().device,
            _ => given_or_default(py, device)?,
        };
        let product = Product::build(py, a.get(), device, plain, order.as_ref())?;
        Ok(Self { product: Arc::new(product), matrix: Mutex::new(a.clone().unbind()), given: given.unbind() })
    }

    fn matrix(&self, py: Python<'_>) -> Py<PyCsr> {
        self.matrix.lock().unwrap_or_else(PoisonError::into_inner).clone_ref(py)
    }
}

/// The precision in which nothing of a matrix is rounded.
pub(crate) fn precision_of(a: &PyCsr) -> Precision {
    match a.dtype_of() {
        Dtype::F32 => Precision::F32,
        Dtype::F64 => Precision::F64,
        Dtype::F16 => Precision::F16,
        Dtype::Bf16 => Precision::Bf16,
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
        let plan = || self.product.plan.write().unwrap_or_else(PoisonError::into_inner);
        if let Place::Device(_) = array.place {
            let (address, len) = (array.address, array.consecutive(device)?);
            let precision = self.product.read().precision();
            let wanted = if precision == Precision::F64 { Dtype::F64 } else { Dtype::F32 };
            array.check_type(wanted)?;
            return outside(py, || {
                // SAFETY: what the owner promises; it is kept until the stream is done, or its order is the caller's.
                unsafe {
                    let on = stream_of(device, stream)?;
                    if precision == Precision::F64 {
                        plan().replace_values_on(&on, DeviceSlice::<f64>::from_raw(device, address, len)?)?;
                    } else {
                        plan().replace_values_on(&on, DeviceSlice::<f32>::from_raw(device, address, len)?)?;
                    }
                    if stream.is_none() {
                        on.synchronize()?;
                    }
                }
                Ok::<_, Fault>(())
            });
        }
        let matrix = self.matrix(py).get().with_values(py, &array.object)?;
        live(device)?;
        with_dtype!(array.dtype()?, V => {
            let values = array.to_vec::<V>()?;
            outside(py, || Ok::<_, Fault>(plan().replace_values(&values)?))?;
        });
        *self.matrix.lock().unwrap_or_else(PoisonError::into_inner) = Py::new(py, matrix)?;
        Ok(())
    }

    /// Makes what products of this width on `stream` need, so that they can be captured into a graph.
    #[pyo3(signature = (width, stream = None, *, staged = false))]
    fn prepare(&self, py: Python<'_>, width: usize, stream: Option<usize>, staged: bool) -> PyResult<()> {
        outside(py, || {
            // SAFETY: the promise of who gives the stream.
            let on = unsafe { stream_of(self.product.device, stream)? };
            Ok::<_, Fault>(self.product.read().prepare_on(&on, width, staged)?)
        })
    }

    /// What the plan is, what it holds and what it cost to make.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (text, fields) = {
            let plan = self.product.read();
            (plan.report().to_string(), shown(plan.report())?)
        };
        report(py, "Spmm", &text, &fields)
    }

    /// Rows and columns of `A`.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        self.product.read().shape()
    }

    #[getter]
    fn nnz(&self) -> usize {
        self.product.read().nnz()
    }

    #[getter]
    fn precision(&self) -> String {
        self.product.read().precision().to_string()
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.product.device)
    }

    /// Bytes of device memory that the plan holds.
    #[getter]
    fn device_bytes(&self) -> u64 {
        self.product.read().device_bytes()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        remade(py, "Spmm", self.matrix(py).into_any(), self.product.device, &self.given)
    }

    fn __repr__(&self) -> String {
        let plan = self.product.read();
        let ((rows, cols), nnz, report) = (plan.shape(), plan.nnz(), plan.report());
        let (algorithm, precision, device) =
            (report.algorithm, plan.precision(), self.product.device.selector());
        format!("windrow.Spmm({rows} × {cols}, {nnz} entries, {algorithm}, {precision}, on {device})")
    }
}

/// How a plan is made anew of what it was made of.
pub(crate) fn remade<'py>(
    py: Python<'py>,
    class: &str,
    of: Py<PyAny>,
    device: &'static Device,
    given: &Py<PyDict>,
) -> PyResult<Bound<'py, PyTuple>> {
    let remake = py.import("windrow._convert")?.getattr("remake_plan")?;
    (remake, (class, of, PyDevice(device), given.bind(py))).into_pyobject(py)
}

/// A matrix that was given as one, or as what one is made of.
pub(crate) fn as_csr<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCsr>> {
    match object.cast::<PyCsr>() {
        Ok(own) => Ok(own.clone()),
        Err(_) => Ok(object.py().get_type::<PyCsr>().call1((object,))?.cast_into()?),
    }
}

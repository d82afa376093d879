//! Sampled products, and the softmax of rows.
#![expect(clippy::undocumented_unsafe_blocks, reason = "it does not see comments in the arguments of macros")]

use std::sync::{Mutex, PoisonError, RwLock};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windrow::{Device, DeviceBuffer, DeviceCsr, DeviceMatrix, RowSoftmax, Sddmm, SddmmOptions, SddmmPlan};

use crate::array::{Array, Place, told};
use crate::csr::{Matrix, PyCsr, with_csr};
use crate::device::{PyDevice, Where, given_or_default, live, stream_of};
use crate::dtype::{Dtype, with_dtype, with_pair};
use crate::error::{Class, Fault, dtype};
use crate::matrix::PyArray;
use crate::numpy::numbers;
use crate::options::{read_options, shown};
use crate::outside::{Kept, outside};
use crate::raw::each;
use crate::report::report;
use crate::spmm::{as_csr, factor, precision_of, remade};

/// Where a plan for this matrix is made.
fn device_for(py: Python<'_>, a: &PyCsr, device: Option<Where>) -> PyResult<&'static Device> {
    match &a.matrix {
        Matrix::Device(raw) if device.is_none_or(|given| given.0.is_same(raw.get().device)) => {
            Ok(raw.get().device)
        }
        Matrix::Device(raw) => {
            let text =
                format!("the matrix is on {}; leave the device out, or use A.to_host()", raw.get().device);
            Err(told(Class::Device, text))
        }
        Matrix::Host(_) => given_or_default(py, device),
    }
}

/// A plan for sampled products, `out = alpha·(X·Yᵀ) ⊙ A`: a dense product where `A` has entries.
///
/// `Sddmm(A, device, inner=128, form="mask", precision="f32", …)`: `inner` columns of `X` and `Y`; with `form="scale"`
/// each is multiplied by the value of its entry, with "mask" only the pattern matters. More keywords are the fields of
/// the library's `SddmmOptions`.
///
/// >>> A = windrow.Csr(([2.0, 3.0], [1, 0], [0, 1, 2]), shape=(2, 2))
/// >>> X, Y = numpy.array([[1.0, 2.0], [3.0, 4.0]]), numpy.array([[1.0, 1.0], [0.0, 1.0]])
/// >>> windrow.Sddmm(A, "cpu", inner=2, form="scale").run(X, Y)
/// array([ 4., 21.])
#[pyclass(frozen, weakref, name = "Sddmm", module = "windrow")]
pub(crate) struct PySddmm {
    plan: RwLock<Kept<SddmmPlan>>,
    device: &'static Device,
    matrix: Mutex<Py<PyCsr>>,
    given: Py<PyDict>,
}

impl PySddmm {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Kept<SddmmPlan>> {
        self.plan.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PySddmm {
    #[new]
    #[pyo3(signature = (a, device = None, **options))]
    fn new(
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        device: Option<Where>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let a = as_csr(a)?;
        let given = options.map_or_else(|| Ok(PyDict::new(py)), |options| options.copy())?;
        let mut options: SddmmOptions = read_options(&given)?;
        if given.get_item("precision")?.is_none_or(|precision| precision.is_none()) {
            options.precision = precision_of(a.get());
        }
        let device = device_for(py, a.get(), device)?;
        let plan = match &a.get().matrix {
            Matrix::Host(matrix) => outside(py, || {
                live(device)?;
                with_csr!(matrix, a => Ok::<_, Fault>(Sddmm::builder(&**a).options(options).build(device)?))
            }),
            Matrix::Device(raw) => outside(py, || {
                live(device)?;
                each!(&*raw.get().matrix, a => {
                    let a: &DeviceCsr<'static, _> = a;
                    Ok::<_, Fault>(Sddmm::builder(a).options(options).build_on(&device.stream())?)
                })
            }),
        }?;
        let (plan, matrix) = (RwLock::new(Kept::new(plan)), Mutex::new(a.unbind()));
        Ok(Self { plan, device, matrix, given: given.unbind() })
    }

    /// The values of all entries, in the order of `A.data`: `out`, or a new vector.
    ///
    /// `X` is `m × inner` and `Y` is `n × inner` for an `A` of `m × n`, of one type; both in host memory, in any order
    /// of elements, or both on the plan's GPU, of the plan's type and with consecutive elements in their rows. `stream`
    /// is as for `Spmm.mm`.
    #[pyo3(signature = (x, y, out = None, *, alpha = 1.0, stream = None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        alpha: f64,
        stream: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        live(self.device)?;
        let (x, y) = (Array::of("X", x, stream)?.forward()?, Array::of("Y", y, stream)?.forward()?);
        let of = x.dtype()?;
        if of != y.dtype()? {
            let text =
                format!("X holds {} and Y holds {}; convert one of them", of.name(), y.dtype()?.name());
            return Err(told(Class::Dtype, text));
        }
        if let (Place::Host, Place::Host) = (x.place, y.place) {
            return with_dtype!(of, T => {
                // SAFETY: of this type, in host memory, and forward.
                let (from_x, from_y) = unsafe { (x.mat_ref::<T>()?, y.mat_ref::<T>()?) };
                let values = outside(py, || Ok::<_, Fault>(self.read().run_host(factor::<T>(alpha), from_x, from_y)?))?;
                copied(py, &values, of, out)
            });
        }
        let device = self.device;
        let made = match out {
            Some(out) => out.clone(),
            None => {
                let nnz = self.read().nnz();
                let values = with_dtype!(of, T => outside(py, || {
                    Ok::<_, Fault>(DeviceMatrix::<T>::with_ld(device, nnz, 1, 1)?.into())
                })?);
                Bound::new(py, PyArray::new(values, device, true))?.into_any()
            }
        };
        let mut to = Array::of("out", &made, stream)?;
        let own = [x.is_own(), y.is_own(), to.is_own()];
        let wait = if stream.is_none() { own.contains(&false) } else { own.contains(&true) };
        with_pair!((of, to.dtype()?), "out", T, O => {
            // SAFETY: what the owners promise; they are kept, and waited for below, or ordered by who gave the stream.
            let (views, to) = unsafe { ([x.view::<T>(device)?, y.view::<T>(device)?], to.slice_mut::<O>(device)?) };
            outside(py, || {
                // SAFETY: the promise of who gives the stream.
                let on = unsafe { stream_of(device, stream)? };
                self.read().run_into_on(&on, factor::<T>(alpha), views, to)?;
                if wait {
                    on.synchronize()?;
                }
                Ok::<_, Fault>(())
            })?;
            Ok::<_, Fault>(())
        })?;
        Ok(made)
    }

    /// Puts new values in the places of the old, which `form="scale"` multiplies by.
    fn replace_values(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        live(self.device)?;
        let kept = || self.matrix.lock().unwrap_or_else(PoisonError::into_inner);
        let before = kept().clone_ref(py);
        let matrix = before.get().with_values(py, values)?;
        let array = Array::host("values", values)?.forward()?;
        with_dtype!(array.dtype()?, V => {
            let values = array.to_vec::<V>()?;
            outside(py, || {
                let mut plan = self.plan.write().unwrap_or_else(PoisonError::into_inner);
                Ok::<_, Fault>(plan.replace_values(&values)?)
            })?;
        });
        *kept() = Py::new(py, matrix)?;
        Ok(())
    }

    /// What the plan is, what it holds and what it cost to make.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (text, fields) = {
            let plan = self.read();
            (plan.report().to_string(), shown(plan.report())?)
        };
        report(py, "Sddmm", &text, &fields)
    }

    #[getter]
    fn shape(&self) -> (usize, usize) {
        self.read().shape()
    }

    #[getter]
    fn nnz(&self) -> usize {
        self.read().nnz()
    }

    #[getter]
    fn precision(&self) -> String {
        self.read().precision().to_string()
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let matrix = self.matrix.lock().unwrap_or_else(PoisonError::into_inner).clone_ref(py);
        remade(py, "Sddmm", matrix.into_any(), self.device, &self.given)
    }

    fn __repr__(&self) -> String {
        let plan = self.read();
        let ((rows, cols), nnz) = (plan.shape(), plan.nnz());
        format!(
            "windrow.Sddmm({rows} × {cols}, {nnz} entries, {}, on {})",
            plan.precision(),
            self.device.selector()
        )
    }
}

/// Values as an array of numpy, or in one that there is.
fn copied<'py, T: windrow::Element>(
    py: Python<'py>,
    values: &[T],
    of: Dtype,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let name = match of {
        Dtype::F32 => "f4",
        Dtype::F64 => "f8",
        Dtype::F16 => "f2",
        Dtype::Bf16 => {
            let values: Vec<f32> = values.iter().map(|value| value.to_f32()).collect();
            return copied(py, &values, Dtype::F32, out);
        }
    };
    let Some(out) = out else { return numbers(py, values, name) };
    let mut to = Array::host("out", out)?;
    to.check_writable()?;
    to.check_type(of)?;
    let len = to.consecutive_on_host()?;
    if len != values.len() {
        let text =
            format!("out has {len} elements but must have one for each of the {} entries", values.len());
        return Err(told(Class::Shape, text));
    }
    // SAFETY: of this type, in host memory, and as long.
    unsafe { to.elements_mut::<T>() }.copy_from_slice(values);
    Ok(out.clone())
}

/// `softmax(scale·s)` over the entries of each row of a pattern, and its gradient: scores become weights of attention.
///
/// >>> A = windrow.Csr(([1.0, 1.0, 1.0], [0, 1, 1], [0, 2, 3]), shape=(2, 2))
/// >>> windrow.RowSoftmax(A, "cpu").forward(numpy.array([3, 3, 8], dtype="f4"))
/// array([0.5, 0.5, 1. ], dtype=float32)
#[pyclass(frozen, weakref, name = "RowSoftmax", module = "windrow")]
pub(crate) struct PyRowSoftmax {
    softmax: Kept<RowSoftmax>,
    device: &'static Device,
    matrix: Py<PyCsr>,
}

#[pymethods]
impl PyRowSoftmax {
    #[new]
    #[pyo3(signature = (a, device = None))]
    fn new(py: Python<'_>, a: &Bound<'_, PyAny>, device: Option<Where>) -> PyResult<Self> {
        let a = as_csr(a)?;
        let device = device_for(py, a.get(), device)?;
        let softmax = match &a.get().matrix {
            Matrix::Host(matrix) => outside(py, || {
                live(device)?;
                with_csr!(matrix, a => Ok::<_, Fault>(RowSoftmax::new(a, device)?))
            }),
            Matrix::Device(raw) => outside(py, || {
                live(device)?;
                each!(&*raw.get().matrix, a => Ok::<_, Fault>(RowSoftmax::new_on(a, &device.stream())?))
            }),
        }?;
        Ok(Self { softmax: Kept::new(softmax), device, matrix: a.unbind() })
    }

    /// `softmax(scale·scores)` over each row, of f32.
    #[pyo3(signature = (scores, out = None, *, scale = 1.0, stream = None))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        scores: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        scale: f32,
        stream: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.computed(py, scale, [("scores", scores), ("scores", scores)], out, stream, true)
    }

    /// The gradient of the scores, of the weights that `forward` returned and of their gradient.
    #[pyo3(signature = (weights, gradient, out = None, *, scale = 1.0, stream = None))]
    fn backward<'py>(
        &self,
        py: Python<'py>,
        weights: &Bound<'py, PyAny>,
        gradient: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        scale: f32,
        stream: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.computed(py, scale, [("weights", weights), ("gradient", gradient)], out, stream, false)
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    #[getter]
    fn nnz(&self) -> usize {
        self.softmax.nnz()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        remade(py, "RowSoftmax", self.matrix.clone_ref(py).into_any(), self.device, &PyDict::new(py).unbind())
    }

    fn __repr__(&self) -> String {
        let (rows, nnz) = (self.softmax.rows(), self.softmax.nnz());
        format!("windrow.RowSoftmax({rows} rows, {nnz} entries, on {})", self.device.selector())
    }
}

impl PyRowSoftmax {
    /// The softmax of the first array, or its gradient of both.
    fn computed<'py>(
        &self,
        py: Python<'py>,
        scale: f32,
        given: [(&'static str, &Bound<'py, PyAny>); 2],
        out: Option<&Bound<'py, PyAny>>,
        stream: Option<usize>,
        forward: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        live(self.device)?;
        let [first, second] = given.map(|(what, object)| Array::of(what, object, stream)?.forward());
        let (first, second, device) = (first?, second?, self.device);
        for array in [&first, &second] {
            if array.dtype()? != Dtype::F32 {
                return Err(dtype::<()>("softmax is of f32; convert what it is given").unwrap_err().into());
            }
        }
        if let (Place::Host, Place::Host) = (first.place, second.place) {
            let (first, second) = (first.to_vec::<f32>()?, second.to_vec::<f32>()?);
            let values = outside(py, || {
                let upload = |values: &[f32]| DeviceBuffer::from_slice(device, values);
                let (first, second) = (upload(&first)?, upload(&second)?);
                let mut to = DeviceBuffer::<f32>::alloc_zeroed(device, self.softmax.nnz())?;
                if forward {
                    self.softmax.forward(scale, &first, &mut to)?;
                } else {
                    self.softmax.backward(scale, &first, &second, &mut to)?;
                }
                Ok::<_, Fault>(to.to_vec()?)
            })?;
            return copied(py, &values, Dtype::F32, out);
        }
        let made = match out {
            Some(out) => out.clone(),
            None => {
                let values = outside(py, || DeviceMatrix::<f32>::with_ld(device, self.softmax.nnz(), 1, 1))?;
                Bound::new(py, PyArray::new(values.into(), device, true))?.into_any()
            }
        };
        let mut to = Array::of("out", &made, stream)?;
        to.check_type(Dtype::F32)?;
        let own = [first.is_own(), second.is_own(), to.is_own()];
        let wait = if stream.is_none() { own.contains(&false) } else { own.contains(&true) };
        // SAFETY: what the owners promise; they are kept, and waited for below, or ordered by who gave the stream.
        let (first, second, to) =
            unsafe { (first.slice(device)?, second.slice(device)?, to.slice_mut(device)?) };
        outside(py, || {
            // SAFETY: the promise of who gives the stream.
            let on = unsafe { stream_of(device, stream)? };
            if forward {
                self.softmax.forward_on(&on, scale, first, to)?;
            } else {
                self.softmax.backward_on(&on, scale, [first, second], to)?;
            }
            if wait {
                on.synchronize()?;
            }
            Ok::<_, Fault>(())
        })?;
        Ok(made)
    }
}

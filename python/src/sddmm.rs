//! Sampled products of dense matrices.
#![expect(clippy::undocumented_unsafe_blocks, reason = "it does not see comments in the arguments of macros")]

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windrow::{Device, DeviceMatrix, Sddmm, SddmmOptions, SddmmPlan};

use crate::array::{Array, Place, told};
use crate::csr::{PyCsr, as_csr, planned};
use crate::device::{PyDevice, Where, live};
use crate::dtype::{Dtype, factor, with_dtype, with_pair};
use crate::error::{Class, Fault};
use crate::numpy::{Item, numbers};
use crate::options::read_options;
use crate::outside::{Shared, outside};
use crate::remake::remade;
use crate::report::{Said, report};
use crate::result::{Turn, on_device};

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
    plan: Shared<SddmmPlan>,
    device: &'static Device,
    matrix: Mutex<Py<PyCsr>>,
    given: Py<PyDict>,
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
            options.precision = a.get().dtype_of().precision();
        }
        let device = a.get().device_for(py, device)?;
        let plan = planned!(py, a.get(), device, a, on => {
            Sddmm::builder(&**a).options(options).build(device),
            Sddmm::builder(&**a).options(options).build_on(on)
        })?;
        let (plan, matrix) = (Shared::new(plan), Mutex::new(a.unbind()));
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
                let values = outside(py, || Ok::<_, Fault>(self.plan.read().run_host(factor::<T>(alpha), from_x, from_y)?))?;
                values_of_entries(py, &values, of, out)
            });
        }
        let device = self.device;
        let make = || {
            let nnz = self.plan.read().nnz();
            with_dtype!(of, T => outside(py, || {
                Ok::<_, Fault>(DeviceMatrix::<T>::with_ld(device, nnz, 1, 1)?.into())
            }))
        };
        let (made, mut to) = on_device(py, "out", out, (device, stream, true), make)?;
        let turn = Turn::new(device, stream, &[&x, &y, &to]);
        with_pair!((of, to.dtype()?), "out", T, O => {
            // SAFETY: what the owners promise; they are kept, and have their turn.
            let (views, to) = unsafe { ([x.view::<T>(device)?, y.view::<T>(device)?], to.slice_mut::<O>(device)?) };
            turn.take(py, |on| Ok(self.plan.read().run_into_on(on, factor::<T>(alpha), views, to)?))?;
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
                Ok::<_, Fault>(self.plan.write().replace_values(&values)?)
            })?;
        });
        *kept() = Py::new(py, matrix)?;
        Ok(())
    }

    /// What the plan is, what it holds and what it cost to make.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let said = Said::by(self.plan.read().report())?;
        report(py, "Sddmm", said)
    }

    #[getter]
    fn shape(&self) -> (usize, usize) {
        self.plan.read().shape()
    }

    #[getter]
    fn nnz(&self) -> usize {
        self.plan.read().nnz()
    }

    #[getter]
    fn precision(&self) -> String {
        self.plan.read().precision().to_string()
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
        let plan = self.plan.read();
        let ((rows, cols), nnz) = (plan.shape(), plan.nnz());
        format!(
            "windrow.Sddmm({rows} × {cols}, {nnz} entries, {}, on {})",
            plan.precision(),
            self.device.selector()
        )
    }
}

/// Values as an array of numpy, or in one that there is.
pub(crate) fn values_of_entries<'py, T: windrow::Element>(
    py: Python<'py>,
    values: &[T],
    of: Dtype,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if of == Dtype::Bf16 {
        let values: Vec<f32> = values.iter().map(|value| value.to_f32()).collect();
        return values_of_entries(py, &values, Dtype::F32, out);
    }
    let Some(out) = out else { return numbers(py, values, Item::Value(of)) };
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

//! Products with sparse tensors.
#![expect(clippy::undocumented_unsafe_blocks, reason = "it does not see comments in the arguments of macros")]

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windrow::{DenseMut, Device, Mttkrp, MttkrpOptions, MttkrpPlan, SpmmOptions, Ttm, TtmPlan};

use crate::array::{Array, told};
use crate::device::{PyDevice, Where, given_or_default, live};
use crate::dtype::{factor, with_pair};
use crate::error::{Class, Fault};
use crate::options::{Size, read_options};
use crate::outside::{Kept, outside};
use crate::remake::remade;
use crate::report::{Said, report};
use crate::result::{check_beta, in_host_memory};
use crate::tensor::{AnyTensor, PyTensor, with_tensor};

/// A plan of MTTKRP, `Y[i,:] ← alpha·Σ A[i,k,l]·(B[k,:] ⊙ C[l,:]) + beta·Y[i,:]`, for CP decompositions.
///
/// `Mttkrp(A, device, mode=0, width=32, precision="f32", …)`: `i` is the index of `mode`, `k` and `l` those of the
/// other two, in their order. More keywords are the fields of the library's `MttkrpOptions`.
///
/// >>> A = windrow.Tensor(([0, 0, 1], [1, 2, 0], [0, 1, 1]), [2.0, 1.0, 3.0], (2, 3, 2))
/// >>> B, C = numpy.array([[1, 0], [0, 1], [1, 1.0]]), numpy.array([[1, 1], [2, 0.5]])
/// >>> windrow.Mttkrp(A, "cpu", width=2).run(B, C)
/// array([[2. , 2.5],
///        [6. , 0. ]])
#[pyclass(frozen, weakref, name = "Mttkrp", module = "windrow")]
pub(crate) struct PyMttkrp {
    plan: Kept<MttkrpPlan>,
    device: &'static Device,
    tensor: Py<PyTensor>,
    given: Py<PyDict>,
}

/// The order of modes with this one first.
fn first(mode: usize) -> PyResult<[usize; 3]> {
    match mode {
        0 => Ok([0, 1, 2]),
        1 => Ok([1, 0, 2]),
        2 => Ok([2, 0, 1]),
        _ => Err(told(Class::Option, format!("there is no mode {mode}; give 0, 1 or 2"))),
    }
}

/// What a plan of a tensor is told: its keywords, those of the library, and the precision of the tensor if none is
/// given.
fn keywords<'py>(
    py: Python<'py>,
    tensor: &PyTensor,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<[Bound<'py, PyDict>; 2]> {
    let given = options.map_or_else(|| Ok(PyDict::new(py)), |options| options.copy())?;
    let plain = given.copy()?;
    if plain.get_item("precision")?.is_none_or(|precision| precision.is_none()) {
        plain.set_item("precision", tensor.dtype())?;
    }
    Ok([given, plain])
}

#[pymethods]
impl PyMttkrp {
    #[new]
    #[pyo3(signature = (tensor, device = None, *, mode = Size(0), **options))]
    fn new(
        py: Python<'_>,
        tensor: &Bound<'_, PyTensor>,
        device: Option<Where>,
        mode: Size,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let [given, plain] = keywords(py, tensor.get(), options)?;
        let options: MttkrpOptions = read_options(&plain)?;
        let (order, device) = (first(mode.0)?, given_or_default(py, device)?);
        let plan = with_tensor!(&tensor.get().0, a => outside(py, || {
            live(device)?;
            Ok::<_, Fault>(Mttkrp::builder(&a.to_csf(order)?).options(options).build(device)?)
        })?);
        given.set_item("mode", mode.0)?;
        Ok(Self { plan: Kept::new(plan), device, tensor: tensor.clone().unbind(), given: given.unbind() })
    }

    /// `Y`, of arrays in host memory: a row of `B` and of `C` for each index of the second and third mode, of one type.
    #[pyo3(signature = (b, c, out = None, *, alpha = 1.0, beta = 0.0))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        b: &Bound<'py, PyAny>,
        c: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        alpha: f64,
        beta: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (b, c) = (Array::host("B", b)?.forward()?, Array::host("C", c)?.forward()?);
        if b.dtype()? != c.dtype()? {
            let text = format!(
                "B holds {} and C holds {}; convert one of them",
                b.dtype()?.name(),
                c.dtype()?.name()
            );
            return Err(told(Class::Dtype, text));
        }
        check_beta("Y", out, beta)?;
        let (of, shape) = (b.dtype()?, [self.plan.dims()[0], b.matrix()?.0.1]);
        let (made, mut to) = in_host_memory(py, "Y", out, (&shape, of), &[&b, &c])?;
        let ((rows, cols), ld) = to.rows()?;
        with_pair!((of, to.dtype()?), "Y", B, C => {
            // SAFETY: of these types, in host memory, and apart.
            let (b, c, y) = unsafe { (b.mat_ref::<B>()?, c.mat_ref::<B>()?, to.elements_mut::<C>()) };
            outside(py, || {
                live(self.device)?;
                let y = DenseMut::try_new(y, rows, cols, ld)?;
                Ok::<_, Fault>(self.plan.run_host(factor::<B>(alpha), [b, c], factor::<B>(beta), y)?)
            })?;
            Ok::<_, Fault>(())
        })?;
        Ok(made)
    }

    /// What the plan is, what it holds and what it cost to make.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let said = Said::by(self.plan.report())?;
        report(py, "Mttkrp", said)
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        remade(py, "Mttkrp", self.tensor.clone_ref(py).into_any(), self.device, &self.given)
    }

    fn __repr__(&self) -> String {
        let ([i, k, l], nnz) = (self.plan.dims(), self.plan.nnz());
        let (precision, device) = (self.plan.precision(), self.device.selector());
        format!("windrow.Mttkrp({i} × {k} × {l}, {nnz} entries, {precision}, on {device})")
    }
}

/// A plan of TTM, a sparse tensor times a dense matrix along its last mode, for Tucker decompositions:
/// `Y[f,:] = alpha·Σ A[f,l]·B[l,:] + beta·Y[f,:]` for each fiber `f` that has entries.
///
/// `Ttm(A, device, modes=(0, 1, 2), width=32, precision="f32", …)`: `modes` is the order, of which the last is summed
/// over; fibers are sorted by the others. More keywords are the fields of the library's `SpmmOptions`.
///
/// >>> A = windrow.Tensor(([0, 0, 1], [1, 1, 0], [0, 1, 1]), [2.0, 1.0, 3.0], (2, 3, 2))
/// >>> windrow.Ttm(A, "cpu", width=1).run(numpy.array([[1.0], [10.0]]))
/// array([[12.],
///        [30.]])
#[pyclass(frozen, weakref, name = "Ttm", module = "windrow")]
pub(crate) struct PyTtm {
    plan: Kept<TtmPlan>,
    device: &'static Device,
    tensor: Py<PyTensor>,
    given: Py<PyDict>,
}

#[pymethods]
impl PyTtm {
    #[new]
    #[pyo3(signature = (tensor, device = None, *, modes = [Size(0), Size(1), Size(2)], **options))]
    fn new(
        py: Python<'_>,
        tensor: &Bound<'_, PyTensor>,
        device: Option<Where>,
        modes: [Size; 3],
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let modes = modes.map(|mode| mode.0);
        let [given, plain] = keywords(py, tensor.get(), options)?;
        let (options, device): (SpmmOptions, _) = (read_options(&plain)?, given_or_default(py, device)?);
        let plan = with_tensor!(&tensor.get().0, a => outside(py, || {
            live(device)?;
            Ok::<_, Fault>(Ttm::builder(&a.to_csf(modes)?).options(options).build(device)?)
        })?);
        given.set_item("modes", modes)?;
        Ok(Self { plan: Kept::new(plan), device, tensor: tensor.clone().unbind(), given: given.unbind() })
    }

    /// `Y`, of an array in host memory with a row for each index of the last mode.
    #[pyo3(signature = (b, out = None, *, alpha = 1.0, beta = 0.0))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        b: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        alpha: f64,
        beta: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let b = Array::host("B", b)?.forward()?;
        check_beta("Y", out, beta)?;
        let (of, shape) = (b.dtype()?, [self.plan.fibers(), b.matrix()?.0.1]);
        let (made, mut to) = in_host_memory(py, "Y", out, (&shape, of), &[&b])?;
        let ((rows, cols), ld) = to.rows()?;
        with_pair!((of, to.dtype()?), "Y", B, C => {
            // SAFETY: of these types, in host memory, and apart.
            let (b, y) = unsafe { (b.mat_ref::<B>()?, to.elements_mut::<C>()) };
            outside(py, || {
                live(self.device)?;
                let y = DenseMut::try_new(y, rows, cols, ld)?;
                Ok::<_, Fault>(self.plan.run_host(factor::<B>(alpha), b, factor::<B>(beta), y)?)
            })?;
            Ok::<_, Fault>(())
        })?;
        Ok(made)
    }

    /// Fibers with entries: rows of `Y`.
    #[getter]
    fn fibers(&self) -> usize {
        self.plan.fibers()
    }

    /// What the plan is, what it holds and what it cost to make.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let said = Said::by(self.plan.report())?;
        report(py, "Ttm", said)
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        remade(py, "Ttm", self.tensor.clone_ref(py).into_any(), self.device, &self.given)
    }

    fn __repr__(&self) -> String {
        format!("windrow.Ttm({} fibers, on {})", self.plan.fibers(), self.device.selector())
    }
}

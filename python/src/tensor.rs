//! Sparse tensors with three modes.
#![expect(clippy::undocumented_unsafe_blocks, reason = "it does not see comments in the arguments of macros")]

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windrow::{Coo3, DenseMut, Device, Mttkrp, MttkrpOptions, MttkrpPlan, SpmmOptions, Ttm, TtmPlan};

use crate::array::{Array, told};
use crate::device::{PyDevice, Where, given_or_default, live};
use crate::dtype::{Dtype, with_pair};
use crate::error::{Class, Fault};
use crate::numpy::{Item, empty, lend};
use crate::options::{read_options, shown};
use crate::outside::{Kept, outside};
use crate::report::report;
use crate::spmm::{factor, remade};

#[derive(Clone)]
enum AnyTensor {
    F32(Arc<Coo3<f32>>),
    F64(Arc<Coo3<f64>>),
}

macro_rules! with_tensor {
    ($tensor:expr, $a:ident => $run:expr) => {
        match $tensor {
            AnyTensor::F32($a) => $run,
            AnyTensor::F64($a) => $run,
        }
    };
}

/// A sparse tensor with three modes: `values` of f32 or f64 at `indices`, three arrays; duplicates are summed by what
/// is made of it.
///
/// >>> windrow.Tensor(([0, 0, 1], [1, 2, 0], [0, 1, 1]), [2.0, 1.0, 3.0], (2, 3, 2))
/// windrow.Tensor(2 × 3 × 2, 3 entries, f64)
#[pyclass(frozen, weakref, name = "Tensor", module = "windrow")]
pub(crate) struct PyTensor(AnyTensor);

#[pymethods]
impl PyTensor {
    #[new]
    #[pyo3(signature = (indices, values, shape))]
    fn new(
        py: Python<'_>,
        indices: [Bound<'_, PyAny>; 3],
        values: &Bound<'_, PyAny>,
        shape: [usize; 3],
    ) -> PyResult<Self> {
        let [i, j, k] = indices
            .map(|of_mode| Array::host("indices", &of_mode)?.forward()?.whole_numbers().map_err(PyErr::from));
        let (indices, values) = ([i?, j?, k?], Array::host("values", values)?.forward()?);
        match values.dtype()? {
            Dtype::F32 => {
                let values = values.to_vec::<f32>()?;
                let tensor = outside(py, || Coo3::try_new(shape, indices, values))?;
                Ok(Self(AnyTensor::F32(Arc::new(tensor))))
            }
            Dtype::F64 => {
                let values = values.to_vec::<f64>()?;
                let tensor = outside(py, || Coo3::try_new(shape, indices, values))?;
                Ok(Self(AnyTensor::F64(Arc::new(tensor))))
            }
            of => Err(told(
                Class::Dtype,
                format!("values are {}; a tensor holds f32 or f64: convert them", of.name()),
            )),
        }
    }

    /// Reads a FROSTT `.tns` file, gzipped or not; without `shape` each mode is as long as its largest index. `dtype`
    /// is "f32" or "f64".
    #[staticmethod]
    #[pyo3(signature = (path, shape = None, dtype = Dtype::F32))]
    fn read(
        py: Python<'_>,
        path: std::path::PathBuf,
        shape: Option<[usize; 3]>,
        dtype: Dtype,
    ) -> PyResult<Self> {
        let options =
            windrow::io::ReadOptions { limits: windrow::io::Limits::of_machine(), ..Default::default() };
        Ok(Self(match dtype {
            Dtype::F64 => {
                AnyTensor::F64(Arc::new(outside(py, || windrow::io::read_tns(&path, shape, &options))?))
            }
            _ => AnyTensor::F32(Arc::new(outside(py, || windrow::io::read_tns(&path, shape, &options))?)),
        }))
    }

    /// Writes the tensor as a `.tns` file, gzipped if the name ends in `.gz`.
    fn write(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        with_tensor!(&self.0, a => outside(py, || windrow::io::write_tns(&path, a)))
    }

    #[getter]
    fn shape(&self) -> [usize; 3] {
        with_tensor!(&self.0, a => a.dims())
    }

    #[getter]
    fn nnz(&self) -> usize {
        with_tensor!(&self.0, a => a.nnz())
    }

    /// Type of the values.
    #[getter]
    fn dtype(&self) -> &'static str {
        match self.0 {
            AnyTensor::F32(_) => "f32",
            AnyTensor::F64(_) => "f64",
        }
    }

    /// The index of each entry in each mode, as uint32: not copies, and cannot be written.
    #[getter]
    fn indices<'py>(slf: &Bound<'py, Self>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let of_mode = |mode| {
            let owner = slf.clone().into_any().unbind();
            with_tensor!(&slf.get().0, a => lend(slf.py(), owner, a.indices(mode), &[a.nnz()], Item::U32))
        };
        (0..3).map(of_mode).collect()
    }

    /// Value of each entry: not a copy, and cannot be written.
    #[getter]
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let owner = slf.clone().into_any().unbind();
        let of = if let AnyTensor::F32(_) = slf.get().0 { Dtype::F32 } else { Dtype::F64 };
        with_tensor!(&slf.get().0, a => lend(slf.py(), owner, a.values(), &[a.nnz()], Item::Value(of)))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        (slf.get_type(), (Self::indices(slf)?, Self::values(slf)?, slf.get().shape())).into_pyobject(slf.py())
    }

    fn __repr__(&self) -> String {
        let [i, j, k] = self.shape();
        format!("windrow.Tensor({i} × {j} × {k}, {} entries, {})", self.nnz(), self.dtype())
    }
}

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
    #[pyo3(signature = (tensor, device = None, *, mode = 0, **options))]
    fn new(
        py: Python<'_>,
        tensor: &Bound<'_, PyTensor>,
        device: Option<Where>,
        mode: usize,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let [given, plain] = keywords(py, tensor.get(), options)?;
        let options: MttkrpOptions = read_options(&plain)?;
        let (order, device) = (first(mode)?, given_or_default(py, device)?);
        let plan = with_tensor!(&tensor.get().0, a => outside(py, || {
            live(device)?;
            Ok::<_, Fault>(Mttkrp::builder(&a.to_csf(order)?).options(options).build(device)?)
        })?);
        given.set_item("mode", mode)?;
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
        let n = b.matrix()?.0.1;
        dense_result(py, &[&b, &c], (self.plan.dims()[0], n), out, beta, |of, to| {
            let ((rows, cols), ld) = to.rows()?;
            live(self.device)?;
            with_pair!((of, to.dtype()?), "Y", B, C => {
                // SAFETY: of these types, in host memory, and apart.
                let (b, c, y) = unsafe { (b.mat_ref::<B>()?, c.mat_ref::<B>()?, to.elements_mut::<C>()) };
                outside(py, || {
                    let y = DenseMut::try_new(y, rows, cols, ld)?;
                    Ok::<_, Fault>(self.plan.run_host(factor::<B>(alpha), [b, c], factor::<B>(beta), y)?)
                })?;
                Ok::<_, Fault>(())
            })?;
            Ok(())
        })
    }

    /// What the plan is, what it holds and what it cost to make.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = self.plan.report();
        report(py, "Mttkrp", &found.to_string(), &shown(found)?)
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
    #[pyo3(signature = (tensor, device = None, *, modes = [0, 1, 2], **options))]
    fn new(
        py: Python<'_>,
        tensor: &Bound<'_, PyTensor>,
        device: Option<Where>,
        modes: [usize; 3],
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
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
        let n = b.matrix()?.0.1;
        dense_result(py, &[&b], (self.plan.fibers(), n), out, beta, |of, to| {
            let ((rows, cols), ld) = to.rows()?;
            live(self.device)?;
            with_pair!((of, to.dtype()?), "Y", B, C => {
                // SAFETY: of these types, in host memory, and apart.
                let (b, y) = unsafe { (b.mat_ref::<B>()?, to.elements_mut::<C>()) };
                outside(py, || {
                    let y = DenseMut::try_new(y, rows, cols, ld)?;
                    Ok::<_, Fault>(self.plan.run_host(factor::<B>(alpha), b, factor::<B>(beta), y)?)
                })?;
                Ok::<_, Fault>(())
            })?;
            Ok(())
        })
    }

    /// Fibers with entries: rows of `Y`.
    #[getter]
    fn fibers(&self) -> usize {
        self.plan.fibers()
    }

    /// What the plan is, what it holds and what it cost to make.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = self.plan.report();
        report(py, "Ttm", &found.to_string(), &shown(found)?)
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

/// `out` or a new array, written by `work`.
fn dense_result<'py>(
    py: Python<'py>,
    operands: &[&Array<'py>],
    (rows, n): (usize, usize),
    out: Option<&Bound<'py, PyAny>>,
    beta: f64,
    work: impl FnOnce(Dtype, &mut Array<'py>) -> PyResult<()>,
) -> PyResult<Bound<'py, PyAny>> {
    if out.is_none() && beta != 0.0 {
        let text = format!("beta = {beta} is a factor of what Y held before; give Y as out=");
        return Err(told(Class::Option, text));
    }
    let of = operands[0].dtype()?;
    let made = match out {
        Some(out) => out.clone(),
        None => empty(py, &[rows, n], if of == Dtype::Bf16 { Dtype::F32 } else { of })?,
    };
    let mut to = Array::host("Y", &made)?;
    to.check_writable()?;
    for operand in operands {
        operand.check_apart(&to)?;
    }
    work(of, &mut to)?;
    Ok(made)
}

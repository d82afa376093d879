//! Weights with N:M sparsity.
#![expect(clippy::undocumented_unsafe_blocks, reason = "it does not see comments in the arguments of macros")]

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windrow::{
    Activation, DenseMut, Device, DeviceSlice, Epilogue, NmOptions, NmPattern, NmSpmm, NmSpmmPlan, VectorNm,
    VectorNmParts, prune_magnitude,
};

use crate::array::{Array, Place, told};
use crate::device::{PyDevice, Where, given_or_default, live, stream_of};
use crate::dtype::{Dtype, with_narrow};
use crate::error::{Class, Fault};
use crate::matrix::{AnyMatrix, PyArray, zeros};
use crate::numpy::{Item, empty, lend, numpy};
use crate::options::{read_options, shown};
use crate::outside::{Kept, outside};
use crate::report::report;
use crate::spmm::remade;

/// Weights `k × n` of which in every `M` rows `N` are kept, in vectors of `L` columns: a pruned layer, of f32.
///
/// `NmWeights.prune(W, (N, M, L))` keeps the largest, `NmWeights.of_dense(W, (N, M, L))` takes a matrix that has the
/// pattern already; `W` has a row for each input.
///
/// >>> W = windrow.NmWeights.prune(numpy.arange(16.0).reshape(4, 4), (1, 2, 4))
/// >>> W
/// windrow.NmWeights(4 × 4, 1:2 in vectors of 4)
/// >>> W.to_dense()[0]
/// array([0., 0., 0., 0.], dtype=float32)
#[pyclass(frozen, weakref, name = "NmWeights", module = "windrow")]
pub(crate) struct PyNmWeights(pub(crate) Arc<VectorNm<f32>>);

/// A dense matrix as packed rows of f32.
fn dense<'py>(matrix: &Bound<'py, PyAny>) -> PyResult<(Array<'py>, usize, usize)> {
    let packed = numpy(matrix.py())?.call_method1("ascontiguousarray", (matrix, "f4"))?;
    let array = Array::host("the weights", &packed)?;
    match array.shape[..] {
        [rows, cols] => Ok((array, rows, cols)),
        _ => Err(told(Class::Shape, format!("weights have two dimensions, not {}", array.shape.len()))),
    }
}

fn pattern((n, m, l): (usize, usize, usize)) -> PyResult<NmPattern> {
    Ok(NmPattern::new(n, m, l).map_err(Fault::from)?)
}

#[pymethods]
impl PyNmWeights {
    /// The weights of which the magnitudes are largest: of each group of `M` rows `N`, for every `L` columns.
    #[staticmethod]
    #[pyo3(name = "prune", signature = (dense, pattern))]
    fn pruned(py: Python<'_>, dense: &Bound<'_, PyAny>, pattern: (usize, usize, usize)) -> PyResult<Self> {
        let ((array, rows, cols), pattern) = (self::dense(dense)?, self::pattern(pattern)?);
        // SAFETY: packed, of f32, in host memory.
        let elements = unsafe { array.elements::<f32>() };
        outside(py, || prune_magnitude(elements, rows, cols, pattern)).map(|weights| Self(Arc::new(weights)))
    }

    /// The weights of a dense matrix that has the pattern already.
    #[staticmethod]
    #[pyo3(signature = (dense, pattern))]
    fn of_dense(py: Python<'_>, dense: &Bound<'_, PyAny>, pattern: (usize, usize, usize)) -> PyResult<Self> {
        let ((array, rows, cols), pattern) = (self::dense(dense)?, self::pattern(pattern)?);
        // SAFETY: as above.
        let elements = unsafe { array.elements::<f32>() };
        outside(py, || VectorNm::from_dense(elements, rows, cols, pattern))
            .map(|weights| Self(Arc::new(weights)))
    }

    /// The weights of their arrays: `values`, w × n, and `indices`, w × q, the rows of the values in their groups.
    #[staticmethod]
    #[pyo3(signature = (values, indices, shape, pattern))]
    fn of_parts(
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        shape: (usize, usize),
        pattern: (usize, usize, usize),
    ) -> PyResult<Self> {
        let pattern = self::pattern(pattern)?;
        let values = numpy(py)?.call_method1("asarray", (values, "f4"))?.call_method0("ravel")?;
        let values = Array::host("values", &values)?.to_vec::<f32>()?;
        let indices = numpy(py)?.call_method1("asarray", (indices,))?.call_method0("ravel")?;
        let indices = Array::host("indices", &indices)?.whole_numbers::<u8>()?;
        let parts = VectorNmParts { rows: shape.0, cols: shape.1, pattern, values, indices };
        outside(py, || VectorNm::try_from_parts(parts)).map(|weights| Self(Arc::new(weights)))
    }

    /// Reads weights from a safetensors file or a `.npz`, as `write` writes them.
    #[staticmethod]
    fn read(py: Python<'_>, path: std::path::PathBuf) -> PyResult<Self> {
        let read = || windrow::io::read_vector_nm::<f32>(&path, &windrow::io::ReadOptions::default());
        outside(py, read).map(|weights| Self(Arc::new(weights)))
    }

    /// Writes the weights as `.safetensors` or `.npz`.
    fn write(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        outside(py, || windrow::io::write_vector_nm(&path, &self.0, windrow::io::NmIndices::Auto))
    }

    /// The dense matrix, with its zeros.
    fn to_dense<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let dense = outside(py, || self.0.to_dense())?;
        let made = empty(py, &[self.0.rows(), self.0.cols()], Dtype::F32)?;
        let mut to = Array::host("the matrix", &made)?;
        // SAFETY: just made, packed, and of as many elements.
        unsafe { to.elements_mut::<f32>() }.copy_from_slice(&dense);
        Ok(made)
    }

    /// Inputs and outputs: rows and columns of the dense matrix.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.0.rows(), self.0.cols())
    }

    /// The pattern as `(N, M, L)`.
    #[getter]
    fn pattern(&self) -> (usize, usize, usize) {
        let pattern = self.0.pattern();
        (pattern.n(), pattern.m(), pattern.l())
    }

    /// What is kept, w × n: not a copy, and cannot be written.
    #[getter]
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let weights = &slf.get().0;
        let shape = [weights.kept_rows(), weights.cols()];
        let owner = slf.clone().into_any().unbind();
        lend(slf.py(), owner, weights.values(), &shape, Item::Value(Dtype::F32))
    }

    /// Rows of the values in their groups, w × q, as uint8: not a copy, and cannot be written.
    #[getter]
    fn indices<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let weights = &slf.get().0;
        let shape = [weights.kept_rows(), weights.vectors()];
        lend(slf.py(), slf.clone().into_any().unbind(), weights.indices(), &shape, Item::U8)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let remake = slf.get_type().getattr("of_parts")?;
        let this = slf.get();
        (remake, (Self::values(slf)?, Self::indices(slf)?, this.shape(), this.pattern()))
            .into_pyobject(slf.py())
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr().expose_provenance()
    }

    fn __repr__(&self) -> String {
        let ((k, n), (kept, of, l)) = (self.shape(), self.pattern());
        format!("windrow.NmWeights({k} × {n}, {kept}:{of} in vectors of {l})")
    }
}

/// A plan for products with N:M weights, `C = act(alpha·A·W + beta·C + bias)`: a pruned layer with dense activations.
///
/// `NmSpmm(W, device, rows=1024, precision="f32", …)`: `rows` of `A` that most products have; more keywords are the
/// fields of the library's `NmOptions`.
///
/// >>> W = windrow.NmWeights.prune(numpy.arange(16.0).reshape(4, 4), (1, 2, 4))
/// >>> windrow.NmSpmm(W, "cpu").mm(numpy.ones((1, 4), dtype="f4"))
/// array([[16., 18., 20., 22.]], dtype=float32)
#[pyclass(frozen, weakref, name = "NmSpmm", module = "windrow")]
pub(crate) struct PyNmSpmm {
    plan: Kept<NmSpmmPlan>,
    device: &'static Device,
    weights: Py<PyNmWeights>,
    given: Py<PyDict>,
}

#[pymethods]
impl PyNmSpmm {
    #[new]
    #[pyo3(signature = (weights, device = None, **options))]
    fn new(
        py: Python<'_>,
        weights: &Bound<'_, PyNmWeights>,
        device: Option<Where>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let given = options.map_or_else(|| Ok(PyDict::new(py)), |options| options.copy())?;
        let options: NmOptions = read_options(&given)?;
        let (device, of) = (given_or_default(py, device)?, &weights.get().0);
        let plan = outside(py, || {
            live(device)?;
            Ok::<_, Fault>(NmSpmm::builder(&**of).options(options).build(device)?)
        })?;
        Ok(Self { plan: Kept::new(plan), device, weights: weights.clone().unbind(), given: given.unbind() })
    }

    /// `C ← act(alpha·A·W + beta·C + bias)`, and returns `C`: `out`, or a new array of the type of `A`.
    ///
    /// `A` is `rows × k`, `bias` a vector of `n` in f32, `activation` "identity", "relu" or "gelu". All are in host
    /// memory or on the plan's GPU; `stream` is as for `Spmm.mm`.
    #[pyo3(signature = (a, out = None, *, bias = None, activation = "identity", alpha = 1.0, beta = 0.0, stream = None))]
    fn mm<'py>(
        &self,
        py: Python<'py>,
        a: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        bias: Option<&Bound<'py, PyAny>>,
        activation: &str,
        alpha: f32,
        beta: f32,
        stream: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        live(self.device)?;
        let activation: Activation =
            activation.parse().map_err(|error: windrow::UnknownName| Fault::from(error))?;
        if out.is_none() && beta != 0.0 {
            let text = format!("beta = {beta} is a factor of what C held before; give C as out=");
            return Err(told(Class::Option, text));
        }
        let a = Array::of("A", a, stream)?.forward()?;
        let bias = bias.map(|bias| Array::of("bias", bias, stream)?.forward()).transpose()?;
        if let Some(bias) = &bias {
            bias.check_type(Dtype::F32)?;
        }
        let (of, ((rows, _), _), device) = (a.dtype()?, a.matrix()?, self.device);
        let rows = match self.plan.layout() {
            windrow::ActivationLayout::KMajor => a.matrix()?.0.1,
            _ => rows,
        };
        let cols = self.plan.shape().1;
        if of == Dtype::F64 {
            return Err(told(
                Class::Dtype,
                "A holds f64, which N:M weights are not multiplied by; convert it to f32",
            ));
        }
        if let Place::Host = a.place {
            let of_c = if of == Dtype::Bf16 { Dtype::F32 } else { of };
            let c = out.map_or_else(|| empty(py, &[rows, cols], of_c), |out| Ok(out.clone()))?;
            let bias = bias.map(|bias| bias.on_host()?.to_vec::<f32>().map_err(PyErr::from)).transpose()?;
            let mut to = Array::host("C", &c)?;
            to.check_writable()?;
            a.check_apart(&to)?;
            let ((c_rows, c_cols), ld) = to.rows()?;
            let run = Epilogue { alpha, beta, bias: bias.as_deref(), activation };
            with_narrow!((of, to.dtype()?), "C", A, C => {
                // SAFETY: of these types, in host memory, and apart.
                let (a, c) = unsafe { (a.mat_ref::<A>()?, to.elements_mut::<C>()) };
                outside(py, || {
                    let c = DenseMut::try_new(c, c_rows, c_cols, ld)?;
                    Ok::<_, Fault>(self.plan.run_host(&run, a, c)?)
                })?;
                Ok::<_, Fault>(())
            })?;
            return Ok(c);
        }
        let made = match out {
            Some(out) => out.clone(),
            None => {
                let c: AnyMatrix = match of {
                    // f64 was refused above.
                    Dtype::F32 | Dtype::F64 => outside(py, || zeros::<f32>(device, rows, cols))?.into(),
                    Dtype::F16 => outside(py, || zeros::<windrow::f16>(device, rows, cols))?.into(),
                    Dtype::Bf16 => outside(py, || zeros::<windrow::bf16>(device, rows, cols))?.into(),
                };
                Bound::new(py, PyArray::new(c, device, false))?.into_any()
            }
        };
        let mut to = Array::of("C", &made, stream)?;
        let own = [a.is_own(), to.is_own(), bias.as_ref().is_none_or(Array::is_own)];
        let wait = if stream.is_none() { own.contains(&false) } else { own.contains(&true) };
        with_narrow!((of, to.dtype()?), "C", A, C => {
            // SAFETY: what the owners promise; they are kept, and waited for below, or ordered by who gave the stream.
            let (a, c, bias) = unsafe {
                let bias = bias.as_ref().map(|bias| bias.slice::<f32>(device)).transpose()?;
                (a.view::<A>(device)?, to.view_mut::<C>(device)?, bias)
            };
            outside(py, || {
                // SAFETY: the promise of who gives the stream.
                let on = unsafe { stream_of(device, stream)? };
                let run = Epilogue::<'_, f32, DeviceSlice<'_, f32>> { alpha, beta, bias: bias.as_ref(), activation };
                self.plan.run_into_on(&on, &run, a, c)?;
                if wait {
                    on.synchronize()?;
                }
                Ok::<_, Fault>(())
            })?;
            Ok::<_, Fault>(())
        })?;
        Ok(made)
    }

    /// What the plan is, what it holds and what it cost to make.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = self.plan.report();
        report(py, "NmSpmm", &found.to_string(), &shown(found)?)
    }

    /// Inputs and outputs: rows and columns of the weights.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        self.plan.shape()
    }

    #[getter]
    fn precision(&self) -> String {
        self.plan.precision().to_string()
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        remade(py, "NmSpmm", self.weights.clone_ref(py).into_any(), self.device, &self.given)
    }

    fn __repr__(&self) -> String {
        let ((k, n), precision) = (self.plan.shape(), self.plan.precision());
        format!("windrow.NmSpmm({k} × {n}, {precision}, on {})", self.device.selector())
    }
}

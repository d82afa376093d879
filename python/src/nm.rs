//! Products with weights of N:M sparsity.
#![expect(clippy::undocumented_unsafe_blocks, reason = "it does not see comments in the arguments of macros")]

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windrow::{Activation, DenseMut, Device, DeviceSlice, Epilogue, NmOptions, NmSpmm, NmSpmmPlan};

use crate::array::{Array, Place, told};
use crate::device::{PyDevice, Where, given_or_default, live};
use crate::dtype::{Dtype, with_dtype, with_narrow};
use crate::error::{Class, Fault};
use crate::matrix::{AnyMatrix, zeros};
use crate::nm_weights::PyNmWeights;
use crate::options::read_options;
use crate::outside::{Kept, outside};
use crate::remake::remade;
use crate::report::{Said, report};
use crate::result::{Turn, check_beta, in_host_memory, on_device};

/// A plan for products with N:M weights, `C = act(alpha·A·W + beta·C + bias)`: a pruned layer with dense activations.
///
/// `NmSpmm(W, device, rows=1024, precision="f32", dense_fallback=False, …)`: `rows` of `A` that most products have,
/// and whether cuBLAS may multiply densely where that is quicker; more keywords are the fields of the library's
/// `NmOptions`.
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
    /// `A` is `rows × k`, `bias` a vector of `n` in f32, `activation` "identity", "relu", "gelu" or "silu". With
    /// `gated`, what `out` holds is multiplied by that, element by element: `silu(x·W1) * (x·W3)` is `c = up.mm(x)`,
    /// then `gate.mm(x, c, activation="silu", gated=True)`. All are in host memory or on the plan's GPU; `stream` is as
    /// for `Spmm.mm`.
    #[pyo3(signature = (
        a, out = None, *, bias = None, activation = "identity", alpha = 1.0, beta = 0.0, gated = false, stream = None
    ))]
    fn mm<'py>(
        &self,
        py: Python<'py>,
        a: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        bias: Option<&Bound<'py, PyAny>>,
        activation: &str,
        alpha: f32,
        beta: f32,
        gated: bool,
        stream: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        live(self.device)?;
        let activation: Activation =
            activation.parse().map_err(|error: windrow::UnknownName| Fault::from(error))?;
        check_beta("C", out, beta.into())?;
        if gated && out.is_none() {
            return Err(told(Class::Option, "gated multiplies what C held before; give C as out="));
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
            let bias = bias.map(|bias| bias.on_host()?.to_vec::<f32>().map_err(PyErr::from)).transpose()?;
            let (c, mut to) = in_host_memory(py, "C", out, (&[rows, cols], of), &[&a])?;
            let ((c_rows, c_cols), ld) = to.rows()?;
            let run = Epilogue { alpha, beta, bias: bias.as_deref(), activation, gated };
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
        let make =
            || with_dtype!(of, T => outside(py, || zeros::<T>(device, rows, cols)).map(AnyMatrix::from));
        let (made, mut to) = on_device(py, "C", out, (device, stream, false), make)?;
        let operands: Vec<&Array<'_>> = [&a, &to].into_iter().chain(&bias).collect();
        let turn = Turn::new(device, stream, &operands);
        with_narrow!((of, to.dtype()?), "C", A, C => {
            // SAFETY: what the owners promise; they are kept, and have their turn.
            let (a, c, bias) = unsafe {
                let bias = bias.as_ref().map(|bias| bias.slice::<f32>(device)).transpose()?;
                (a.view::<A>(device)?, to.view_mut::<C>(device)?, bias)
            };
            turn.take(py, |on| {
                let run = Epilogue::<'_, f32, DeviceSlice<'_, f32>> { alpha, beta, bias: bias.as_ref(), activation, gated };
                Ok(self.plan.run_into_on(on, &run, a, c)?)
            })?;
            Ok::<_, Fault>(())
        })?;
        Ok(made)
    }

    /// What the plan is, what it holds and what it cost to make.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let said = Said::by(self.plan.report())?;
        report(py, "NmSpmm", said)
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

//! Products with N:M weights, of activations at addresses.

use pyo3::prelude::*;
use windrow::{
    Device, DeviceSlice, DeviceView, DeviceViewMut, Element, Epilogue, NmOptions, NmPattern, NmSpmm,
    NmSpmmPlan, Precision, Stream, VectorNm, prune_magnitude,
};

use crate::array::{HostArray, empty};
use crate::device::{PyDevice, stream_of};
use crate::dtype::Dtype;
use crate::error::{Fault, Outcome, dtype, shape};
use crate::outside::outside;
use crate::raw::{Lies, Operand};

/// Weights `W[k×n]` of which in every `M` consecutive rows, in every `L` consecutive columns, `N` rows are kept: the
/// largest, of a dense `numpy` array of f32. `pattern` is `(N, M, L)`.
#[pyclass(frozen, name = "NmWeights", module = "windrow._windrow.raw")]
pub(crate) struct RawNmWeights(VectorNm<f32>);

#[pymethods]
impl RawNmWeights {
    #[new]
    fn new(py: Python<'_>, dense: &Bound<'_, PyAny>, pattern: (usize, usize, usize)) -> PyResult<Self> {
        let dense = HostArray::of("the weights", dense)?;
        let ((k, n), (down, across)) = dense.matrix()?;
        if dense.item != crate::array::Item::Value(Dtype::F32) {
            return Err(dense.not_values().into());
        }
        let (down, across) = match (usize::try_from(down), usize::try_from(across)) {
            (Ok(down), Ok(across)) => (down, across),
            _ => return Err(shape::<()>("the weights have negative strides; copy them").unwrap_err().into()),
        };
        // SAFETY: numpy says that the elements are there, and its owner is kept by `dense`.
        let there: &[f32] = unsafe { dense.elements() };
        let packed: Vec<f32> = (0..k)
            .flat_map(|row| (0..n).map(move |col| row * down + col * across))
            .map(|at| there[at])
            .collect();
        let weights = outside(py, || {
            let (kept, of, columns) = pattern;
            Ok::<_, Fault>(prune_magnitude(&packed, k, n, NmPattern::new(kept, of, columns)?)?)
        })?;
        Ok(Self(weights))
    }

    /// The weights with zeros, as a `numpy` array.
    fn dense<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (array, mut to) = empty(py, (self.0.rows(), self.0.cols()), Dtype::F32)?;
        let dense = outside(py, || Ok::<_, Fault>(self.0.to_dense()?))?;
        // SAFETY: the array was just made with as many elements of this type.
        unsafe { to.elements_mut::<f32>() }.copy_from_slice(&dense);
        Ok(array)
    }
}

/// A plan of `C ← A·W + bias` on a device, for about `rows` rows of `A`.
#[pyclass(frozen, name = "NmSpmm", module = "windrow._windrow.raw")]
pub(crate) struct RawNmSpmm {
    plan: NmSpmmPlan,
    device: &'static Device,
}

#[pymethods]
impl RawNmSpmm {
    #[new]
    #[pyo3(signature = (device, weights, precision = Dtype::F32, rows = 1024))]
    fn new(
        py: Python<'_>,
        device: &PyDevice,
        weights: &RawNmWeights,
        precision: Dtype,
        rows: usize,
    ) -> PyResult<Self> {
        let precision = match precision {
            Dtype::F32 => Precision::F32,
            Dtype::F64 => Precision::F64,
            Dtype::F16 => Precision::F16,
            Dtype::Bf16 => Precision::Bf16,
        };
        let (device, options) = (device.0, NmOptions { rows, precision, ..NmOptions::default() });
        let plan =
            outside(py, || Ok::<_, Fault>(NmSpmm::builder(&weights.0).options(options).build(device)?))?;
        Ok(Self { plan, device })
    }

    /// Queues the product in `stream`: `a` and `c` are `(address, shape, strides, dtype)` with consecutive rows, of the
    /// plan's type; `bias` is the address of `n` elements of f32.
    #[pyo3(signature = (stream, a, c, bias = None))]
    fn run(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        a: Operand,
        c: Operand,
        bias: Option<u64>,
    ) -> PyResult<()> {
        // SAFETY: the promise of who gives addresses and the stream.
        outside(py, || unsafe {
            let on = stream_of(self.device, stream)?;
            match (a.3, c.3) {
                (Dtype::F32, Dtype::F32) => self.run_as::<f32>(&on, a, c, bias),
                (Dtype::F16, Dtype::F16) => self.run_as::<windrow::f16>(&on, a, c, bias),
                (Dtype::Bf16, Dtype::Bf16) => self.run_as::<windrow::bf16>(&on, a, c, bias),
                (a, c) => dtype(format!(
                    "A holds {} and C {}; both must hold f32, f16 or bf16, and the same",
                    a.name(),
                    c.name()
                )),
            }
        })
    }

    /// Makes what runs with so many rows on `stream` need, so that they can be captured into a graph.
    fn prepare(&self, py: Python<'_>, stream: Option<usize>, rows: usize) -> PyResult<()> {
        // SAFETY: the promise of who gives the stream.
        outside(py, || unsafe {
            let on = stream_of(self.device, stream)?;
            Ok::<_, Fault>(self.plan.prepare_on(&on, rows)?)
        })
    }

    fn report(&self) -> String {
        self.plan.report().to_string()
    }
}

impl RawNmSpmm {
    /// # Safety
    /// Those of [`DeviceView::from_raw`] and [`DeviceViewMut::from_raw`], for the stream.
    unsafe fn run_as<E: Element<Sum = f32>>(
        &self,
        on: &Stream,
        a: Operand,
        c: Operand,
        bias: Option<u64>,
    ) -> Outcome<()> {
        let (Lies::Rows(a_ld), Lies::Rows(c_ld)) = (a.lies("A")?, c.lies("C")?) else {
            return shape("A and C must have consecutive rows; give them contiguous");
        };
        let (Operand(a, (m, k), ..), Operand(c, (c_rows, n), ..)) = (a, c);
        // SAFETY: the caller's promise; what the driver knows of the addresses is checked.
        unsafe {
            let bias = bias.map(|at| DeviceSlice::<f32>::from_raw(self.device, at, n)).transpose()?;
            let run = Epilogue { bias: bias.as_ref(), ..Epilogue::default() };
            let a = DeviceView::<E>::from_raw(self.device, a, m, k, a_ld)?;
            let c = DeviceViewMut::<E>::from_raw(self.device, c, c_rows, n, c_ld)?;
            Ok(self.plan.run_into_on(on, &run, a, c)?)
        }
    }
}

//! Products with N:M weights, of activations at addresses.

use pyo3::prelude::*;
use windrow::{
    Device, DeviceSlice, DeviceView, DeviceViewMut, Element, Epilogue, NmOptions, NmPattern, NmSpmm,
    NmSpmmPlan, Precision, Stream, VectorNm, prune_magnitude,
};

use crate::device::{PyDevice, stream_of};
use crate::dtype::Dtype;
use crate::error::{Fault, Outcome, dtype, shape};
use crate::outside::{Kept, outside};
use crate::raw::{Lies, Operand};

/// Weights `W[k×n]` of which in every `M` consecutive rows, in every `L` consecutive columns, `N` rows are kept: the
/// largest, of the dense matrix of f32 whose packed rows are at an address of the host. `pattern` is `(N, M, L)`.
#[pyclass(frozen, name = "NmWeights", module = "windrow._windrow.raw")]
pub(crate) struct RawNmWeights(VectorNm<f32>);

#[pymethods]
impl RawNmWeights {
    #[new]
    fn new(
        py: Python<'_>,
        dense: usize,
        shape: (usize, usize),
        pattern: (usize, usize, usize),
    ) -> PyResult<Self> {
        let ((k, n), (kept, of, columns)) = (shape, pattern);
        let weights = outside(py, || {
            let dense: &[f32] = if k * n == 0 {
                &[]
            } else {
                // SAFETY: the promise of who gives the address.
                unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(dense), k * n) }
            };
            Ok::<_, Fault>(prune_magnitude(dense, k, n, NmPattern::new(kept, of, columns)?)?)
        })?;
        Ok(Self(weights))
    }

    /// Writes the weights, zeros where none are kept, to an address of the host: `k·n` elements of f32.
    fn write(&self, py: Python<'_>, to: usize) -> PyResult<()> {
        outside(py, || {
            let dense = self.0.to_dense()?;
            if !dense.is_empty() {
                // SAFETY: the promise of who gives the address.
                let to: &mut [f32] = unsafe {
                    std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(to), dense.len())
                };
                to.copy_from_slice(&dense);
            }
            Ok::<_, Fault>(())
        })
    }
}

/// A plan of `C ← A·W + bias` on a device, for about `rows` rows of `A`.
#[pyclass(frozen, name = "NmSpmm", module = "windrow._windrow.raw")]
pub(crate) struct RawNmSpmm {
    plan: Kept<NmSpmmPlan>,
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
        Ok(Self { plan: Kept::new(plan), device })
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

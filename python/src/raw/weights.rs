//! Products with N:M weights, of activations at addresses.

use pyo3::prelude::*;
use windrow::{
    Device, DeviceSlice, Element, Epilogue, NmOptions, NmPattern, NmSpmm, NmSpmmPlan, Stream, VectorNm,
    prune_magnitude,
};

use super::operand::Operand;
use crate::device::{PyDevice, on_stream};
use crate::dtype::Dtype;
use crate::error::{Fault, Outcome, dtype};
use crate::outside::{Kept, outside};

/// Weights `W[k×n]` of which in every `M` consecutive rows, in every `L` consecutive columns, `N` rows are kept: the
/// largest, of the dense matrix of f32 whose packed rows are at an address of the host. `pattern` is `(N, M, L)`.
#[pyclass(frozen, name = "NmWeights", module = "windrow._windrow.raw")]
pub(super) struct RawNmWeights(VectorNm<f32>);

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
pub(super) struct RawNmSpmm {
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
        let (device, options) =
            (device.0, NmOptions { rows, precision: precision.precision(), ..NmOptions::default() });
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
        unsafe {
            on_stream(py, self.device, stream, |on| match (a.3, c.3) {
                (Dtype::F32, Dtype::F32) => self.run_as::<f32>(on, a, c, bias),
                (Dtype::F16, Dtype::F16) => self.run_as::<windrow::f16>(on, a, c, bias),
                (Dtype::Bf16, Dtype::Bf16) => self.run_as::<windrow::bf16>(on, a, c, bias),
                (a, c) => dtype(format!(
                    "A holds {} and C {}; both must hold f32, f16 or bf16, and the same",
                    a.name(),
                    c.name()
                )),
            })
        }
    }

    /// Makes what runs with so many rows on `stream` need, so that they can be captured into a graph.
    fn prepare(&self, py: Python<'_>, stream: Option<usize>, rows: usize) -> PyResult<()> {
        // SAFETY: the promise of who gives the stream.
        unsafe { on_stream(py, self.device, stream, |on| Ok(self.plan.prepare_on(on, rows)?)) }
    }

    fn report(&self) -> String {
        self.plan.report().to_string()
    }
}

impl RawNmSpmm {
    /// # Safety
    /// Those of [`Operand::view`] and [`Operand::view_mut`], for the stream.
    unsafe fn run_as<E: Element<Sum = f32>>(
        &self,
        on: &Stream,
        a: Operand,
        c: Operand,
        bias: Option<u64>,
    ) -> Outcome<()> {
        // SAFETY: the caller's promise; what the driver knows of the addresses is checked.
        unsafe {
            let (a, c, (_, n)) = (a.view::<E>("A", self.device)?, c.view_mut::<E>("C", self.device)?, c.1);
            let bias = bias.map(|at| DeviceSlice::<f32>::from_raw(self.device, at, n)).transpose()?;
            let run = Epilogue { bias: bias.as_ref(), ..Epilogue::default() };
            Ok(self.plan.run_into_on(on, &run, a, c)?)
        }
    }
}

//! Products with N:M weights, of activations at addresses.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use windrow::{
    Device, DeviceBuffer, DeviceSlice, DeviceVectorNm, Element, Epilogue, NmOptions, NmPattern, NmSpmm,
    NmSpmmPlan, Stream, Value, VectorNm, prune_magnitude,
};

use super::operand::Operand;
use crate::device::{PyDevice, on_stream};
use crate::dtype::Dtype;
use crate::error::{Fault, Outcome, dtype};
use crate::outside::{Shared, outside};

/// What is done with values of this type.
macro_rules! with_values {
    ($dtype:expr, $V:ident => $done:expr) => {
        match $dtype {
            Dtype::F32 => {
                type $V = f32;
                $done
            }
            Dtype::F16 => {
                type $V = windrow::f16;
                $done
            }
            Dtype::Bf16 => {
                type $V = windrow::bf16;
                $done
            }
            other => dtype(format!("the values hold {}; weights hold f32, f16 or bf16", other.name())),
        }
    };
}

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

    /// Kept rows, and vectors in each.
    #[getter]
    fn kept(&self) -> (usize, usize) {
        (self.0.kept_rows(), self.0.vectors())
    }

    /// The row of the weights that each kept row and vector is, row by row, as the bytes of as many i64.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (rows, vectors) = self.kept();
        PyBytes::new_with(py, rows * vectors * size_of::<i64>(), |bytes| {
            let named = (0..rows).flat_map(|u| (0..vectors).map(move |v| (u, v)));
            for ((u, v), to) in named.zip(bytes.chunks_exact_mut(size_of::<i64>())) {
                to.copy_from_slice(&(self.0.source_row(u, v) as u64).to_ne_bytes());
            }
            Ok(())
        })
    }
}

/// A plan of `C ← A·W + bias` on a device, for about `rows` rows of `A`.
#[pyclass(frozen, name = "NmSpmm", module = "windrow._windrow.raw")]
pub(super) struct RawNmSpmm {
    plan: Shared<NmSpmmPlan>,
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
        Ok(Self { plan: Shared::new(plan), device })
    }

    /// A plan that takes new values, of weights whose values are on the device already: `values` is a matrix of kept
    /// rows by columns, as operands are given, and is read in the order of `stream`.
    #[staticmethod]
    #[pyo3(signature = (device, stream, weights, values, precision = Dtype::F32, rows = 1024))]
    fn of_values(
        py: Python<'_>,
        device: &PyDevice,
        stream: Option<usize>,
        weights: &RawNmWeights,
        values: Operand,
        precision: Dtype,
        rows: usize,
    ) -> PyResult<Self> {
        let (device, options) =
            (device.0, NmOptions { rows, precision: precision.precision(), ..NmOptions::default() });
        // SAFETY: the promise of who gives the address and the stream.
        let plan = unsafe {
            on_stream(py, device, stream, |on| {
                let (address, len) = (values.0, values.1.0 * values.1.1);
                with_values!(values.3, V => {
                    of_values(on, &weights.0, DeviceSlice::<V>::from_raw(device, address, len)?, options)
                })
            })
        }?;
        Ok(Self { plan: Shared::new(plan), device })
    }

    /// Puts new values in the places of the old, in the order of `stream`; [`of_values`](Self::of_values) says how they
    /// are given.
    fn replace_values(&self, py: Python<'_>, stream: Option<usize>, values: Operand) -> PyResult<()> {
        // SAFETY: the promise of who gives the address and the stream.
        unsafe {
            on_stream(py, self.device, stream, |on| {
                let (address, len) = (values.0, values.1.0 * values.1.1);
                with_values!(values.3, V => {
                    let values = DeviceSlice::<V>::from_raw(self.device, address, len)?;
                    Ok(self.plan.write().replace_values_on(on, values)?)
                })
            })
        }
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
        unsafe { on_stream(py, self.device, stream, |on| Ok(self.plan.read().prepare_on(on, rows)?)) }
    }

    fn report(&self) -> String {
        self.plan.read().report().to_string()
    }
}

/// A plan of the weights, with these values in place of their own, that takes new ones.
fn of_values<V: Value>(
    on: &Stream,
    weights: &VectorNm<f32>,
    values: DeviceSlice<'_, V>,
    options: NmOptions,
) -> Outcome<NmSpmmPlan> {
    let indices = DeviceBuffer::from_slice(on.device(), weights.indices())?;
    let (rows, cols, pattern) = (weights.rows(), weights.cols(), weights.pattern());
    let weights = DeviceVectorNm::new(rows, cols, pattern, values, &indices)?;
    Ok(NmSpmm::builder(&weights).options(options).build_on(on)?)
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
            Ok(self.plan.read().run_into_on(on, &run, a, c)?)
        }
    }
}

//! Softmax over the rows of patterns at addresses.

use pyo3::prelude::*;
use windrow::{Device, DeviceSlice, DeviceSliceMut, RowSoftmax};

use super::arrays::AnyDeviceCsr;
use super::csr::RawCsr;
use crate::any::each;
use crate::device::on_stream;
use crate::outside::Kept;

/// A softmax over the entries of each row of a sparse matrix at addresses, made in the order of `stream`.
#[pyclass(frozen, name = "RowSoftmax", module = "windrow._windrow.raw")]
pub(super) struct RawSoftmax {
    softmax: Kept<RowSoftmax>,
    device: &'static Device,
}

#[pymethods]
impl RawSoftmax {
    #[new]
    #[pyo3(signature = (a, stream = None))]
    fn new(py: Python<'_>, a: &RawCsr, stream: Option<usize>) -> PyResult<Self> {
        // SAFETY: the promise of who gives the stream.
        let softmax = unsafe {
            on_stream(py, a.device, stream, |on| {
                Ok(each!(AnyDeviceCsr, &*a.matrix, a => RowSoftmax::new_on(&**a, on)?))
            })?
        };
        Ok(Self { softmax: Kept::new(softmax), device: a.device })
    }

    /// `to ← softmax(scale·scores)` over rows: `nnz` elements of f32 at each address.
    fn forward(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        scores: u64,
        to: u64,
        nnz: usize,
        scale: f32,
    ) -> PyResult<()> {
        // SAFETY: the promise of who gives addresses and the stream.
        unsafe {
            on_stream(py, self.device, stream, |on| {
                let scores = DeviceSlice::<f32>::from_raw(self.device, scores, nnz)?;
                let to = DeviceSliceMut::<f32>::from_raw(self.device, to, nnz)?;
                Ok(self.softmax.forward_on(on, scale, scores, to)?)
            })
        }
    }

    /// `to ← scale·p·(g − Σ p·g)`, the sum over the row: `nnz` elements of f32 at each address.
    fn backward(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        p: u64,
        g: u64,
        to: u64,
        nnz: usize,
        scale: f32,
    ) -> PyResult<()> {
        // SAFETY: the promise of who gives addresses and the stream.
        unsafe {
            on_stream(py, self.device, stream, |on| {
                let [p, g] = [p, g].map(|at| DeviceSlice::<f32>::from_raw(self.device, at, nnz));
                let to = DeviceSliceMut::<f32>::from_raw(self.device, to, nnz)?;
                Ok(self.softmax.backward_on(on, scale, [p?, g?], to)?)
            })
        }
    }

    fn __repr__(&self) -> String {
        format!("{:?}", *self.softmax)
    }
}

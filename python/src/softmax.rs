//! The softmax of rows.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windrow::{Device, DeviceBuffer, DeviceMatrix, RowSoftmax};

use crate::array::{Array, Place};
use crate::csr::{PyCsr, as_csr, planned};
use crate::device::{PyDevice, Where, live};
use crate::dtype::Dtype;
use crate::error::Fault;
use crate::outside::{Kept, outside};
use crate::remake::remade;
use crate::result::{Turn, on_device};
use crate::sddmm::values_of_entries;

/// `softmax(scale·s)` over the entries of each row of a pattern, and its gradient: scores become weights of attention.
///
/// >>> A = windrow.Csr(([1.0, 1.0, 1.0], [0, 1, 1], [0, 2, 3]), shape=(2, 2))
/// >>> windrow.RowSoftmax(A, "cpu").forward(numpy.array([3, 3, 8], dtype="f4"))
/// array([0.5, 0.5, 1. ], dtype=float32)
#[pyclass(frozen, weakref, name = "RowSoftmax", module = "windrow")]
pub(crate) struct PyRowSoftmax {
    softmax: Kept<RowSoftmax>,
    device: &'static Device,
    matrix: Py<PyCsr>,
}

#[pymethods]
impl PyRowSoftmax {
    #[new]
    #[pyo3(signature = (a, device = None))]
    fn new(py: Python<'_>, a: &Bound<'_, PyAny>, device: Option<Where>) -> PyResult<Self> {
        let a = as_csr(a)?;
        let device = a.get().device_for(py, device)?;
        let softmax = planned!(py, a.get(), device, a, on => {
            RowSoftmax::new(a, device),
            RowSoftmax::new_on(a, on)
        })?;
        Ok(Self { softmax: Kept::new(softmax), device, matrix: a.unbind() })
    }

    /// `softmax(scale·scores)` over each row, of f32.
    #[pyo3(signature = (scores, out = None, *, scale = 1.0, stream = None))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        scores: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        scale: f32,
        stream: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.computed(py, scale, [("scores", scores), ("scores", scores)], out, stream, true)
    }

    /// The gradient of the scores, of the weights that `forward` returned and of their gradient.
    #[pyo3(signature = (weights, gradient, out = None, *, scale = 1.0, stream = None))]
    fn backward<'py>(
        &self,
        py: Python<'py>,
        weights: &Bound<'py, PyAny>,
        gradient: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        scale: f32,
        stream: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.computed(py, scale, [("weights", weights), ("gradient", gradient)], out, stream, false)
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    #[getter]
    fn nnz(&self) -> usize {
        self.softmax.nnz()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        remade(py, "RowSoftmax", self.matrix.clone_ref(py).into_any(), self.device, &PyDict::new(py).unbind())
    }

    fn __repr__(&self) -> String {
        let (rows, nnz) = (self.softmax.rows(), self.softmax.nnz());
        format!("windrow.RowSoftmax({rows} rows, {nnz} entries, on {})", self.device.selector())
    }
}

impl PyRowSoftmax {
    /// The softmax of the first array, or its gradient of both.
    fn computed<'py>(
        &self,
        py: Python<'py>,
        scale: f32,
        given: [(&'static str, &Bound<'py, PyAny>); 2],
        out: Option<&Bound<'py, PyAny>>,
        stream: Option<usize>,
        forward: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        live(self.device)?;
        let [first, second] = given.map(|(what, object)| Array::of(what, object, stream)?.forward());
        let (first, second, device) = (first?, second?, self.device);
        for array in [&first, &second] {
            array.check_type(Dtype::F32)?;
        }
        if let (Place::Host, Place::Host) = (first.place, second.place) {
            let (first, second) = (first.to_vec::<f32>()?, second.to_vec::<f32>()?);
            let values = outside(py, || {
                let upload = |values: &[f32]| DeviceBuffer::from_slice(device, values);
                let (first, second) = (upload(&first)?, upload(&second)?);
                let mut to = DeviceBuffer::<f32>::alloc_zeroed(device, self.softmax.nnz())?;
                if forward {
                    self.softmax.forward(scale, &first, &mut to)?;
                } else {
                    self.softmax.backward(scale, &first, &second, &mut to)?;
                }
                Ok::<_, Fault>(to.to_vec()?)
            })?;
            return values_of_entries(py, &values, Dtype::F32, out);
        }
        let nnz = self.softmax.nnz();
        let make = || outside(py, || DeviceMatrix::<f32>::with_ld(device, nnz, 1, 1)).map(Into::into);
        let (made, mut to) = on_device(py, "out", out, (device, stream, true), make)?;
        to.check_type(Dtype::F32)?;
        let turn = Turn::new(device, stream, &[&first, &second, &to]);
        // SAFETY: what the owners promise; they are kept, and have their turn.
        let (first, second, to) =
            unsafe { (first.slice(device)?, second.slice(device)?, to.slice_mut(device)?) };
        turn.take(py, |on| {
            if forward {
                self.softmax.forward_on(on, scale, first, to)?;
            } else {
                self.softmax.backward_on(on, scale, [first, second], to)?;
            }
            Ok(())
        })?;
        Ok(made)
    }
}

//! Sparse tensors with three modes.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use windrow::Coo3;

use crate::array::{Array, told};
use crate::dtype::Dtype;
use crate::error::Class;
use crate::numpy::{Item, lend};
use crate::options::Size;
use crate::outside::outside;

#[derive(Clone)]
pub(crate) enum AnyTensor {
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
pub(crate) use with_tensor;

/// A sparse tensor with three modes: `values` of f32 or f64 at `indices`, three arrays; duplicates are summed by what
/// is made of it.
///
/// >>> windrow.Tensor(([0, 0, 1], [1, 2, 0], [0, 1, 1]), [2.0, 1.0, 3.0], (2, 3, 2))
/// windrow.Tensor(2 × 3 × 2, 3 entries, f64)
#[pyclass(frozen, weakref, name = "Tensor", module = "windrow")]
pub(crate) struct PyTensor(pub(crate) AnyTensor);

#[pymethods]
impl PyTensor {
    #[new]
    #[pyo3(signature = (indices, values, shape))]
    fn new(
        py: Python<'_>,
        indices: [Bound<'_, PyAny>; 3],
        values: &Bound<'_, PyAny>,
        shape: [Size; 3],
    ) -> PyResult<Self> {
        let shape = shape.map(|size| size.0);
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
        shape: Option<[Size; 3]>,
        dtype: Dtype,
    ) -> PyResult<Self> {
        let shape = shape.map(|shape| shape.map(|size| size.0));
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
    pub(crate) fn dtype(&self) -> &'static str {
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

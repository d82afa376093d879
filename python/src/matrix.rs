//! Dense matrices of windrow's in the memory of a device.

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use windrow::{Device, DeviceKind, DeviceMatrix, Value};

use crate::any::{any_type, each};
use crate::array::{Array, Place};
use crate::device::{PyDevice, Where, given_or_default, live};
use crate::dlpack;
use crate::dtype::{Dtype, with_dtype};
use crate::error::{Fault, Outcome};
use crate::numpy::{Item, empty};
use crate::outside::{Kept, outside};

type Held<V> = Kept<DeviceMatrix<V>>;

any_type! {
    /// A matrix of any type.
    AnyMatrix(Held) from DeviceMatrix by Kept::new;
}

/// A dense matrix in the memory of a device, row after row: what products with operands there return.
///
/// `Array(b, device)` uploads anything that numpy makes a matrix of. `numpy()` brings it back; `torch.from_dlpack(c)`,
/// `cupy.from_dlpack(c)` and the like use it where it is.
///
/// >>> windrow.Array(numpy.eye(2, dtype="f4"), "cpu").numpy()
/// array([[1., 0.],
///        [0., 1.]], dtype=float32)
#[pyclass(frozen, name = "Array", module = "windrow")]
pub(crate) struct PyArray {
    matrix: AnyMatrix,
    device: &'static Device,
    /// Whether it has one dimension.
    vector: bool,
}

impl PyArray {
    pub(crate) fn new(matrix: AnyMatrix, device: &'static Device, vector: bool) -> Self {
        Self { matrix, device, vector }
    }

    fn of(&self) -> Dtype {
        self.matrix.dtype()
    }

    fn parts(&self) -> (u64, [usize; 2], [isize; 2]) {
        each!(AnyMatrix, &self.matrix, m => {
            (m.buffer().address(), [m.rows(), m.cols()], [m.ld().cast_signed(), 1])
        })
    }

    /// The matrix as an operand of a call.
    pub(crate) fn array<'py>(&self, what: &'static str, owner: &Bound<'py, PyAny>) -> Outcome<Array<'py>> {
        live(self.device)?;
        let (address, shape, strides) = self.parts();
        let place = match self.device.kind() {
            DeviceKind::Cpu => Place::Host,
            _ => Place::Device(self.device),
        };
        let array = Array::known(what, owner, place, address, (shape, strides), self.of());
        Ok(if self.vector { array.into_vector() } else { array })
    }
}

#[pymethods]
impl PyArray {
    #[new]
    #[pyo3(signature = (object, device = None))]
    fn upload(py: Python<'_>, object: &Bound<'_, PyAny>, device: Option<Where>) -> PyResult<Self> {
        let device = given_or_default(py, device)?;
        let array = Array::host("array", object)?.forward()?;
        with_dtype!(array.dtype()?, T => {
            // SAFETY: of this type, in host memory, and forward.
            let from = unsafe { array.mat_ref::<T>()? };
            let matrix = outside(py, || {
                live(device)?;
                Ok::<_, Fault>(DeviceMatrix::upload(device, from)?)
            })?;
            Ok(Self::new(matrix.into(), device, array.is_vector()))
        })
    }

    /// Rows and columns; of a vector the number of its elements.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        let (_, shape, _) = self.parts();
        pyo3::types::PyTuple::new(py, &shape[..if self.vector { 1 } else { 2 }])
    }

    /// "f32", "f64", "f16" or "bf16".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.of().name()
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    /// A copy in host memory, after the work that was asked for so far. Elements of bf16 become f32.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        live(self.device)?;
        let (_, [rows, cols], _) = self.parts();
        let shape = if self.vector { vec![rows] } else { vec![rows, cols] };
        macro_rules! copied {
            ($m:expr, $to:ty, $of:expr, $convert:expr) => {{
                let elements = outside(py, || $m.download())?;
                let copy = empty(py, &shape, $of)?;
                let mut to = Array::host("the copy", &copy)?;
                // SAFETY: just made, of this type.
                let to = unsafe { to.elements_mut::<$to>() };
                to.iter_mut().zip(elements).for_each(|(to, element)| *to = $convert(element));
                Ok(copy)
            }};
        }
        match &self.matrix {
            AnyMatrix::F32(m) => copied!(m, f32, Dtype::F32, |x| x),
            AnyMatrix::F64(m) => copied!(m, f64, Dtype::F64, |x| x),
            AnyMatrix::F16(m) => copied!(m, windrow::f16, Dtype::F16, |x| x),
            AnyMatrix::Bf16(m) => copied!(m, f32, Dtype::F32, windrow::bf16::to_f32),
        }
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            let text = "a windrow.Array cannot become an array of numpy without a copy; leave copy=False out";
            return Err(pyo3::exceptions::PyValueError::new_err(text));
        }
        let array = self.numpy(py)?;
        match dtype {
            Some(dtype) => array.call_method1("astype", (dtype,)),
            None => Ok(array),
        }
    }

    /// DLPack: the matrix where it is. What was asked of the device's own stream so far is done by then.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = (stream, max_version);
        let (py, this) = (slf.py(), slf.get());
        let place = this.__dlpack_device__();
        if dl_device.is_some_and(|wanted| wanted != place) || copy == Some(true) {
            let text = "a windrow.Array is handed on where it is; use numpy() for a copy in host memory";
            return Err(pyo3::exceptions::PyBufferError::new_err(text));
        }
        outside(py, || {
            live(this.device)?;
            Ok::<_, Fault>(this.device.synchronize()?)
        })?;
        let (address, shape, strides) = this.parts();
        let given = dlpack::Given {
            address,
            place,
            shape,
            strides,
            of: this.of(),
            dims: if this.vector { 1 } else { 2 },
        };
        dlpack::capsule(py, slf.clone().into_any().unbind(), &given)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        match self.device.kind() {
            DeviceKind::Cuda => {
                let index = self.device.selector().strip_prefix("cuda:").and_then(|index| index.parse().ok());
                (dlpack::CUDA, index.unwrap_or(0))
            }
            _ => (dlpack::CPU, 0),
        }
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (address, shape, strides) = self.parts();
        let Some(typestr) =
            Item::Value(self.of()).typestr().filter(|_| self.device.kind() == DeviceKind::Cuda)
        else {
            return Err(PyAttributeError::new_err("only matrices of f32, f64 and f16 on a GPU have it"));
        };
        let size = with_dtype!(self.of(), T => size_of::<T>().cast_signed());
        let dims = if self.vector { 1 } else { 2 };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &shape[..dims])?)?;
        interface
            .set_item("strides", pyo3::types::PyTuple::new(py, strides[..dims].iter().map(|s| s * size))?)?;
        interface.set_item("typestr", typestr)?;
        interface.set_item("data", (address, false))?;
        interface.set_item("stream", self.device.stream().raw().map(|stream| stream.expose_provenance()))?;
        Ok(interface)
    }

    fn __repr__(&self) -> String {
        let (_, [rows, cols], _) = self.parts();
        let cols = if self.vector { String::new() } else { format!(" × {cols}") };
        format!("windrow.Array({rows}{cols}, {}, on {})", self.of().name(), self.device.selector())
    }
}

/// A new matrix of this type.
pub(crate) fn zeros<T: Value>(device: &Device, rows: usize, cols: usize) -> Outcome<DeviceMatrix<T>> {
    live(device)?;
    Ok(DeviceMatrix::zeros(device, rows, cols)?)
}

//! The class of sparse matrices at addresses.

use pyo3::prelude::*;
use windrow::{Device, DeviceSlice, DeviceSliceMut, Stream};

use super::arrays::{AnyDeviceCsr, Arrays, Held};
use super::operand::Operand;
use super::spmm::run_once;
use crate::any::each;
use crate::device::{PyDevice, on_stream};
use crate::dtype::{Dtype, IndexType, with_dtype};
use crate::error::{Class, Fault, Outcome};
use crate::outside::{Kept, outside};

/// A sparse matrix at addresses: on a GPU or on the CPU.
///
/// `offsets`, `columns` and `values` are the addresses of `rows + 1`, `nnz` and `nnz` elements of `device`'s memory, of
/// the types `offset_type` and `column_type` ("i32" or "i64") and `dtype`; without `values` all are 1. `keep` is
/// anything that keeps the memory alive. Nothing may write the arrays while the object lives.
#[pyclass(frozen, name = "DeviceCsr", module = "windrow._windrow.raw")]
pub(crate) struct RawCsr {
    pub(crate) made: Made,
    pub(crate) matrix: Kept<AnyDeviceCsr>,
    pub(crate) device: &'static Device,
}

/// How a matrix was made.
pub(crate) enum Made {
    /// Of arrays elsewhere, which are kept alive.
    Borrowed(Arrays, Option<Py<PyAny>>),
    /// By windrow, in memory of its own.
    Owned,
}

#[pymethods]
impl RawCsr {
    #[new]
    #[pyo3(signature = (device, shape, nnz, offsets, columns, values=None, *, offset_type=IndexType::I64,
                        column_type=IndexType::I64, dtype=Dtype::F32, keep=None))]
    fn new(
        py: Python<'_>,
        device: &PyDevice,
        shape: (usize, usize),
        nnz: usize,
        offsets: u64,
        columns: u64,
        values: Option<u64>,
        offset_type: IndexType,
        column_type: IndexType,
        dtype: Dtype,
        keep: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let device = device.0;
        let (offsets, columns) = ((offsets, offset_type), (columns, column_type));
        let arrays = Arrays { shape, nnz, offsets, columns, values, dtype };
        // SAFETY: the promise of who gives addresses; `keep` keeps them.
        let matrix = outside(py, || unsafe { arrays.matrix(device, None) })?;
        Ok(Self { made: Made::Borrowed(arrays, keep), matrix: Kept::new(matrix), device })
    }

    /// The same matrix, checked on `stream`, which is waited for. Plans of it for few products wait for nothing.
    #[pyo3(signature = (stream = None))]
    pub(crate) fn checked(&self, py: Python<'_>, stream: Option<usize>) -> PyResult<Self> {
        let (device, Made::Borrowed(arrays, keep)) = (self.device, &self.made) else {
            // Those that windrow makes are canonical.
            return self.canonical(py, stream);
        };
        let arrays = *arrays;
        // SAFETY: the promise of who gave addresses and gives the stream.
        let matrix = unsafe { on_stream(py, device, stream, |on| arrays.matrix(device, Some(on)))? };
        let keep = keep.as_ref().map(|keep| keep.clone_ref(py));
        Ok(Self { made: Made::Borrowed(arrays, keep), matrix: Kept::new(matrix), device })
    }

    /// The matrix with sorted rows and summed duplicates, in memory of its own: made on `stream`, which is waited for.
    #[pyo3(signature = (stream = None))]
    pub(crate) fn canonical(&self, py: Python<'_>, stream: Option<usize>) -> PyResult<Self> {
        self.made_there(py, stream, |a, on| each!(AnyDeviceCsr, a, a => Ok(a.canonical(on)?.into())))
    }

    /// The transpose, in memory of its own: made on `stream`. It knows the order of its entries, see `bring_values`.
    #[pyo3(signature = (stream = None))]
    pub(crate) fn transposed(&self, py: Python<'_>, stream: Option<usize>) -> PyResult<Self> {
        self.made_there(py, stream, |a, on| each!(AnyDeviceCsr, a, a => Ok(a.transposed(on)?.into())))
    }

    /// `C ← A·B` without a plan, queued in `stream`: on a GPU nothing is copied and nobody waits, and of a matrix that
    /// is wrong all of `C` is NaN. `b` and `c` as `Spmm.run` takes them.
    #[pyo3(signature = (stream, b, c))]
    fn run_once(&self, py: Python<'_>, stream: Option<usize>, b: Operand, c: Operand) -> PyResult<()> {
        let device = self.device;
        // SAFETY: the promise of who gives addresses and the stream.
        unsafe { on_stream(py, device, stream, |on| run_once(&self.matrix, device, on, b, c)) }
    }

    /// Of a transpose: brings `nnz` values of type `dtype` at the address `values`, which are in the order of the
    /// original's entries, to the address `to` in the order of its own, on `stream`.
    #[pyo3(signature = (stream, values, to, nnz, dtype = Dtype::F32))]
    fn bring_values(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        values: u64,
        to: u64,
        nnz: usize,
        dtype: Dtype,
    ) -> PyResult<()> {
        let device = self.device;
        // SAFETY: the promise of who gives addresses and the stream.
        unsafe {
            on_stream(py, device, stream, |on| {
                each!(AnyDeviceCsr, &*self.matrix, a => {
                    let Held::Transposed(transposed) = a else {
                        return Err(Fault::new(Class::Format, "only what `transposed` has made knows an order of values"));
                    };
                    with_dtype!(dtype, V => {
                        let values = DeviceSlice::<V>::from_raw(device, values, nnz)?;
                        transposed.values_on(on, values, DeviceSliceMut::<V>::from_raw(device, to, nnz)?)?;
                    });
                    Ok(())
                })
            })
        }
    }

    #[getter]
    pub(crate) fn shape(&self) -> (usize, usize) {
        each!(AnyDeviceCsr, &*self.matrix, a => (a.rows(), a.cols()))
    }

    #[getter]
    pub(crate) fn nnz(&self) -> usize {
        each!(AnyDeviceCsr, &*self.matrix, a => a.nnz())
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    fn __repr__(&self) -> String {
        each!(AnyDeviceCsr, &*self.matrix, a => format!("{:?}", **a))
    }
}

impl RawCsr {
    pub(crate) fn dtype(&self) -> Dtype {
        self.matrix.dtype()
    }

    fn made_there(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        make: impl Fn(&AnyDeviceCsr, &Stream) -> Outcome<AnyDeviceCsr> + Send + Sync,
    ) -> PyResult<Self> {
        let device = self.device;
        // SAFETY: the promise of who gives the stream.
        let matrix = unsafe { on_stream(py, device, stream, |on| make(&self.matrix, on))? };
        Ok(Self { made: Made::Owned, matrix: Kept::new(matrix), device })
    }
}

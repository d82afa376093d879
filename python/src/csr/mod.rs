//! The class of sparse matrices.

mod any;
mod make;
mod multiply;

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windrow::{Device, DeviceCsr, Permutation};

pub(crate) use any::{AnyCsr, Matrix, planned};

use crate::any::each;
use crate::array::{Array, told};
use crate::device::{PyDevice, Where, given_or_default, live, open};
use crate::dtype::{Dtype, with_dtype};
use crate::error::{Class, Fault};
use crate::numpy::{Item, lend, numbers};
use crate::options::Size;
use crate::outside::{Kept, outside};
use crate::product::Product;
use crate::raw::{AnyDeviceCsr, Made, RawCsr};
use crate::spmm::PySpmm;

/// A sparse matrix in compressed rows: row `r` has its entries at `indptr[r] .. indptr[r + 1]` of `indices`, their
/// columns, and `data`, their values. It cannot be changed.
///
/// Made of
///
/// - a matrix or array of `scipy.sparse`, of any format;
/// - `(data, indices, indptr)` or `(data, (row, column))` and `shape`, as there. Rows are sorted and duplicates are
///   summed. Arrays in the memory of a GPU (by DLPack or CUDA's array interface) are borrowed as compressed rows,
///   and must be in canonical form: they are checked, kept alive, and must not change while the matrix lives;
/// - a dense matrix, of which the zeros are left out.
///
/// `dtype` is "f32", "f64", "f16" or "bf16"; left out, it is that of the data, which must be one of these.
///
/// `A @ B` multiplies, with a plan that the matrix keeps; `Spmm(A, …)` makes one with options.
///
/// >>> A = windrow.Csr(([1.0, 2.0, 3.0], [0, 2, 1], [0, 2, 3]), shape=(2, 3))
/// >>> A
/// windrow.Csr(2 × 3, 3 entries, f64)
/// >>> A @ numpy.array([1.0, 10.0, 100.0])
/// array([201.,  30.])
#[pyclass(frozen, weakref, name = "Csr", module = "windrow")]
pub(crate) struct PyCsr {
    pub(crate) matrix: Matrix,
    pub(super) plans: Mutex<Vec<(multiply::Key, Arc<Product>)>>,
    transposed: Mutex<Option<Py<PyCsr>>>,
}

impl From<AnyCsr> for PyCsr {
    fn from(matrix: AnyCsr) -> Self {
        Self::new(Matrix::Host(matrix))
    }
}

impl PyCsr {
    fn new(matrix: Matrix) -> Self {
        Self { matrix, plans: Mutex::default(), transposed: Mutex::default() }
    }

    /// A matrix on a device.
    fn there(py: Python<'_>, raw: RawCsr) -> PyResult<Self> {
        Ok(Self::new(Matrix::Device(Py::new(py, raw)?)))
    }

    /// The matrix in host memory; one on a device is copied.
    pub(crate) fn on_host(&self, py: Python<'_>) -> PyResult<AnyCsr> {
        match &self.matrix {
            Matrix::Host(matrix) => Ok(matrix.clone()),
            Matrix::Device(raw) => {
                let raw = raw.get();
                outside(py, || {
                    live(raw.device)?;
                    each!(AnyDeviceCsr, &*raw.matrix, a => Ok::<AnyCsr, Fault>(a.to_host(&raw.device.stream())?.into()))
                })
            }
        }
    }

    pub(crate) fn dtype_of(&self) -> Dtype {
        match &self.matrix {
            Matrix::Host(matrix) => matrix.dtype(),
            Matrix::Device(raw) => raw.get().dtype(),
        }
    }

    /// Where a plan for this matrix is made: where it is, if it is on a device.
    pub(crate) fn device_for(&self, py: Python<'_>, given: Option<Where>) -> PyResult<&'static Device> {
        let Matrix::Device(raw) = &self.matrix else { return given_or_default(py, given) };
        let there = raw.get().device;
        match given {
            Some(Where(device)) if !device.is_same(there) => {
                let text = format!("the matrix is on {there} and the plan is for {device}");
                Err(told(Class::Device, format!("{text}; leave the device out, or use A.to_host()")))
            }
            _ => Ok(there),
        }
    }

    /// An array of the matrix in host memory, or of a copy there.
    fn lent<'py>(
        slf: &Bound<'py, Self>,
        lend: impl FnOnce(&AnyCsr, Py<PyAny>) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match &slf.get().matrix {
            Matrix::Host(matrix) => lend(matrix, slf.clone().into_any().unbind()),
            Matrix::Device(_) => {
                let matrix = slf.get().on_host(py)?;
                lend(&matrix, Py::new(py, Self::from(matrix.clone()))?.into_any())
            }
        }
    }
}

#[pymethods]
impl PyCsr {
    /// So that numpy leaves `B @ A` to the matrix.
    #[classattr]
    fn __array_ufunc__() -> Option<()> {
        None
    }

    /// So that numpy does not take it for an object of which it knows nothing.
    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__(&self, dtype: Option<&Bound<'_, PyAny>>, copy: Option<bool>) -> PyResult<()> {
        let _ = (dtype, copy);
        let text = "a windrow.Csr is no array of numpy, and not made one unasked";
        Err(told(Class::Dtype, format!("{text}; use A.to_dense(), or A.to_scipy()")))
    }

    #[new]
    #[pyo3(signature = (object, shape = None, dtype = None))]
    fn make(
        py: Python<'_>,
        object: &Bound<'_, PyAny>,
        shape: Option<(Size, Size)>,
        dtype: Option<Dtype>,
    ) -> PyResult<Self> {
        make::of_object(py, object, shape.map(|(rows, cols)| (rows.0, cols.0)), dtype)
    }

    /// Number of rows and of columns.
    #[getter]
    pub(crate) fn shape(&self) -> (usize, usize) {
        match &self.matrix {
            Matrix::Host(matrix) => each!(AnyCsr, matrix, a => (a.rows(), a.cols())),
            Matrix::Device(raw) => raw.get().shape(),
        }
    }

    /// Entries, stored zeros included.
    #[getter]
    pub(crate) fn nnz(&self) -> usize {
        match &self.matrix {
            Matrix::Host(matrix) => each!(AnyCsr, matrix, a => a.nnz()),
            Matrix::Device(raw) => raw.get().nnz(),
        }
    }

    /// Type of the values: "f32", "f64", "f16" or "bf16".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype_of().name()
    }

    #[getter]
    const fn ndim(&self) -> usize {
        2
    }

    /// How many plans `A @ B` has made and keeps, at most four.
    #[getter]
    fn kept_plans(&self) -> usize {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The device in whose memory it is: the CPU, or that of the arrays that were borrowed.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<PyDevice> {
        match &self.matrix {
            Matrix::Host(_) => outside(py, || open(windrow::DeviceSelector::Cpu)).map(PyDevice),
            Matrix::Device(raw) => Ok(PyDevice(raw.get().device)),
        }
    }

    /// Where rows begin and the last one ends, as uint64: not a copy, and cannot be written. Of a matrix on a device a
    /// copy in host memory.
    #[getter]
    #[pyo3(name = "indptr")]
    fn row_offsets<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::lent(slf, |matrix, owner| {
            let offsets = each!(AnyCsr, matrix, a => a.row_offsets());
            lend(slf.py(), owner, offsets, &[offsets.len()], Item::U64)
        })
    }

    /// Column of each entry, as uint32: not a copy, and cannot be written.
    #[getter]
    fn indices<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::lent(slf, |matrix, owner| {
            let columns = each!(AnyCsr, matrix, a => a.col_indices());
            lend(slf.py(), owner, columns, &[columns.len()], Item::U32)
        })
    }

    /// Value of each entry: not a copy, and cannot be written. Of bf16 the bits, as uint16: see `astype`.
    #[getter]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::lent(slf, |matrix, owner| {
            let item = match matrix.dtype() {
                Dtype::Bf16 => Item::U16,
                of => Item::Value(of),
            };
            each!(AnyCsr, matrix, a => lend(slf.py(), owner, a.values(), &[a.nnz()], item))
        })
    }

    /// The matrix as a `scipy.sparse.csr_array`, a copy. Values of f16 and bf16, which scipy does not multiply, become
    /// f32.
    fn to_scipy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("windrow._convert")?.call_method1("to_scipy", (slf,))
    }

    /// The matrix with all its zeros, as an array of numpy.
    fn to_dense<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::to_scipy(slf)?.call_method0("toarray")
    }

    /// The matrix in host memory: a copy of one that is on a device.
    fn to_host(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(self.on_host(py)?.into())
    }

    /// A copy in the memory of a device, of which plans are made by kernels.
    fn to_device(&self, py: Python<'_>, device: Where) -> PyResult<Self> {
        let (Where(device), matrix) = (device, self.on_host(py)?);
        let matrix = outside(py, || {
            live(device)?;
            Ok::<_, Fault>(each!(AnyCsr, &matrix, a => DeviceCsr::from_host(device, a)?.into()))
        })?;
        Self::there(py, RawCsr { made: Made::Owned, matrix: Kept::new(matrix), device })
    }

    /// The matrix with values of another type, rounded to nearest.
    fn astype(&self, py: Python<'_>, dtype: Dtype) -> PyResult<Self> {
        let matrix = self.on_host(py)?;
        outside(py, || Ok::<_, Fault>(matrix.cast(dtype))).map(Self::from)
    }

    /// The same pattern with other values, one for each entry in the order of `data`.
    pub(crate) fn with_values(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (matrix, values) = (self.on_host(py)?, Array::host("values", values)?.forward()?);
        with_dtype!(values.dtype()?, V => {
            let values = values.to_vec::<V>()?;
            outside(py, || Ok::<AnyCsr, Fault>(each!(AnyCsr, &matrix, a => a.with_values(values)?.into()))).map(Self::from)
        })
    }

    /// The transpose, whose entries are `data[A.transpose_order()]`.
    fn transpose(&self, py: Python<'_>) -> PyResult<Self> {
        if let Matrix::Device(raw) = &self.matrix {
            return Self::there(py, raw.get().transposed(py, None)?);
        }
        let matrix = self.on_host(py)?;
        outside(py, || Ok::<AnyCsr, Fault>(each!(AnyCsr, &matrix, a => a.transpose()?.into())))
            .map(Self::from)
    }

    /// The transpose, made once.
    #[getter]
    #[allow(non_snake_case, reason = "scipy's name")]
    fn T(slf: &Bound<'_, Self>) -> PyResult<Py<Self>> {
        let (py, this) = (slf.py(), slf.get());
        let kept = || this.transposed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(transposed) = &*kept() {
            return Ok(transposed.clone_ref(py));
        }
        let transposed = Py::new(py, this.transpose(py)?)?;
        *kept() = Some(transposed.clone_ref(py));
        Ok(transposed)
    }

    /// Which entry of this matrix each entry of the transpose is.
    fn transpose_order<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let matrix = self.on_host(py)?;
        let order = outside(py, || Ok::<_, Fault>(each!(AnyCsr, &matrix, a => a.transpose_order()?)))?;
        order_array(py, &order)
    }

    /// The matrix with its rows in another order: row `i` is row `order[i]` of this one.
    fn permute_rows(&self, py: Python<'_>, order: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (matrix, order) = (self.on_host(py)?, permutation("order", order)?);
        outside(py, || Ok::<AnyCsr, Fault>(each!(AnyCsr, &matrix, a => a.permute_rows(&order)?.into())))
            .map(Self::from)
    }

    /// `A·B` by a plan that is made at the first product and kept, on the default device or where the matrix is.
    ///
    /// `B` has shape `(k, n)` or `(k,)`, in C's or Fortran's order or any other; it may also be an array on a GPU
    /// (DLPack, CUDA's array interface). The result has the wider type of both, in an array of numpy, or in a
    /// `windrow.Array` if `B` is on a GPU. `Spmm` has options, and writes where it is told to.
    fn __matmul__<'py>(slf: &Bound<'py, Self>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        multiply::by(slf, b)
    }

    /// `B·A`, by way of the transpose: `(Aᵀ·Bᵀ)ᵀ`.
    fn __rmatmul__<'py>(slf: &Bound<'py, Self>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        multiply::from_the_left(slf, b)
    }

    /// A plan for products with this matrix: `Spmm(A, …)`.
    #[pyo3(signature = (device = None, *, order = None, **options))]
    fn plan(
        slf: &Bound<'_, Self>,
        device: Option<Where>,
        order: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PySpmm> {
        PySpmm::make(slf.py(), slf, device, order, options)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let remake = py.import("windrow._convert")?.getattr("remake_csr")?;
        let (row_offsets, indices, data) = (Self::row_offsets(slf)?, Self::indices(slf)?, Self::data(slf)?);
        let this = slf.get();
        (remake, (data, indices, row_offsets, this.shape(), this.dtype())).into_pyobject(py)
    }

    /// Two matrices are equal if shape, pattern and values are.
    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Self>() else { return Ok(false) };
        Ok(match (self.on_host(py)?, other.get().on_host(py)?) {
            (AnyCsr::F32(a), AnyCsr::F32(b)) => a == b,
            (AnyCsr::F64(a), AnyCsr::F64(b)) => a == b,
            (AnyCsr::F16(a), AnyCsr::F16(b)) => a == b,
            (AnyCsr::Bf16(a), AnyCsr::Bf16(b)) => a == b,
            _ => false,
        })
    }

    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr().expose_provenance()
    }

    fn __repr__(&self) -> String {
        let ((rows, cols), nnz) = (self.shape(), self.nnz());
        let place = match &self.matrix {
            Matrix::Host(_) => String::new(),
            Matrix::Device(raw) => format!(", on {}", raw.get().device.selector()),
        };
        format!("windrow.Csr({rows} × {cols}, {nnz} entries, {}{place})", self.dtype())
    }
}

/// An order that was given as an array of whole numbers.
pub(crate) fn permutation(what: &'static str, order: &Bound<'_, PyAny>) -> PyResult<Permutation> {
    let (py, order) = (order.py(), Array::host(what, order)?.forward()?.whole_numbers()?);
    outside(py, || Permutation::try_from_new_to_old(order))
}

/// An order as an array of numpy.
pub(crate) fn order_array<'py>(py: Python<'py>, order: &Permutation) -> PyResult<Bound<'py, PyAny>> {
    let order: Vec<i64> = order.new_to_old().iter().map(|&old| i64::from(old)).collect();
    numbers(py, &order, Item::I64)
}

/// A matrix that was given as one, or as what one is made of.
pub(crate) fn as_csr<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCsr>> {
    match object.cast::<PyCsr>() {
        Ok(own) => Ok(own.clone()),
        Err(_) => Ok(object.py().get_type::<PyCsr>().call1((object,))?.cast_into()?),
    }
}

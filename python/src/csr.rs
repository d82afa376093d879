//! The class of sparse matrices.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windrow::{Coo, Csr, Device, DeviceCsr, Permutation, Precision};

use crate::array::{Array, Place, told};
use crate::device::{PyDevice, Where, given_or_default, live, open};
use crate::dtype::{Dtype, IndexType, with_dtype};
use crate::error::{Class, Fault, dtype};
use crate::numpy::{Item, lend, numbers, numpy};
use crate::outside::{Kept, outside};
use crate::raw::{Arrays, Made, RawCsr, each};
use crate::spmm::{Product, PySpmm, Run};

/// A matrix in host memory, of any type of values.
#[derive(Clone)]
pub(crate) enum AnyCsr {
    F32(Arc<Csr<f32>>),
    F64(Arc<Csr<f64>>),
    F16(Arc<Csr<windrow::f16>>),
    Bf16(Arc<Csr<windrow::bf16>>),
}

/// An expression for a matrix of whatever type: `with_csr!(matrix, a => expression)`.
macro_rules! with_csr {
    ($matrix:expr, $a:ident => $run:expr) => {
        match $matrix {
            $crate::csr::AnyCsr::F32($a) => $run,
            $crate::csr::AnyCsr::F64($a) => $run,
            $crate::csr::AnyCsr::F16($a) => $run,
            $crate::csr::AnyCsr::Bf16($a) => $run,
        }
    };
}
pub(crate) use with_csr;

macro_rules! any_csr {
    ($($kind:ident($value:ty);)+) => { $(
        impl From<Csr<$value>> for AnyCsr {
            fn from(matrix: Csr<$value>) -> Self {
                Self::$kind(Arc::new(matrix))
            }
        }
    )+ };
}
any_csr! { F32(f32); F64(f64); F16(windrow::f16); Bf16(windrow::bf16); }

impl AnyCsr {
    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            Self::F32(_) => Dtype::F32,
            Self::F64(_) => Dtype::F64,
            Self::F16(_) => Dtype::F16,
            Self::Bf16(_) => Dtype::Bf16,
        }
    }

    pub(crate) fn cast(self, to: Dtype) -> Self {
        if self.dtype() == to {
            return self;
        }
        with_csr!(&self, a => with_dtype!(to, T => a.cast::<T>().into()))
    }
}

/// Where a matrix is.
pub(crate) enum Matrix {
    Host(AnyCsr),
    Device(Py<RawCsr>),
}

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
    plans: Mutex<Vec<(Key, Arc<Product>)>>,
    transposed: Mutex<Option<Py<PyCsr>>>,
}

/// What a plan was made for by `A @ B`: the device, the precision, and the width, rounded up.
type Key = (usize, Precision, usize);

/// Plans that `A @ B` keeps.
const MOST_PLANS: usize = 4;

impl From<AnyCsr> for PyCsr {
    fn from(matrix: AnyCsr) -> Self {
        Self::new(Matrix::Host(matrix))
    }
}

impl PyCsr {
    fn new(matrix: Matrix) -> Self {
        Self { matrix, plans: Mutex::default(), transposed: Mutex::default() }
    }

    /// The matrix in host memory; one on a device is copied.
    pub(crate) fn on_host(&self, py: Python<'_>) -> PyResult<AnyCsr> {
        match &self.matrix {
            Matrix::Host(matrix) => Ok(matrix.clone()),
            Matrix::Device(raw) => {
                let raw = raw.get();
                outside(py, || {
                    live(raw.device)?;
                    each!(&*raw.matrix, a => Ok::<AnyCsr, Fault>(a.to_host(&raw.device.stream())?.into()))
                })
            }
        }
    }

    fn of_host_parts(
        py: Python<'_>,
        (rows, cols): (usize, usize),
        offsets: Vec<u64>,
        columns: Vec<u32>,
        data: &Array<'_>,
    ) -> PyResult<AnyCsr> {
        with_dtype!(data.dtype()?, V => {
            let values = data.to_vec::<V>()?;
            outside(py, || Ok::<AnyCsr, Fault>(Csr::try_from_parts(rows, cols, offsets, columns, values)?.into()))
        })
    }

    /// The matrix of arrays in device memory.
    fn of_device_parts(
        py: Python<'_>,
        shape: (usize, usize),
        device: &'static Device,
        [offsets, columns, values]: [&Array<'_>; 3],
    ) -> PyResult<Self> {
        let index_type = |what: &str, of: Item| match of {
            Item::I32 | Item::U32 => Ok(IndexType::I32),
            Item::I64 | Item::U64 => Ok(IndexType::I64),
            other => dtype(format!("{what} holds {other} but must hold int32 or int64; convert it")),
        };
        let ends = offsets.consecutive(device)?;
        let (nnz, given) = (columns.consecutive(device)?, values.consecutive(device)?);
        for (what, found, wanted) in [("indptr", ends, shape.0 + 1), ("data", given, nnz)] {
            if found != wanted {
                return Err(told(
                    Class::Shape,
                    format!("{what} has {found} elements but must have {wanted}"),
                ));
            }
        }
        let arrays = Arrays {
            shape,
            nnz,
            offsets: (offsets.address, index_type("indptr", offsets.item)?),
            columns: (columns.address, index_type("indices", columns.item)?),
            values: Some(values.address),
            dtype: values.dtype()?,
        };
        let owners = [&offsets.owner, &columns.owner, &values.owner];
        let keep = PyTuple::new(py, owners)?.into_any().unbind();
        // SAFETY: the owners, which are kept, have promised that the arrays are there; that nobody writes them is the
        // promise of who makes such a matrix.
        let matrix = outside(py, || unsafe {
            live(device)?;
            arrays.matrix(device, Some(&device.stream()))
        })?;
        let raw = RawCsr { made: Made::Borrowed(arrays, Some(keep)), matrix: Kept::new(matrix), device };
        Ok(Self::new(Matrix::Device(Py::new(py, raw)?)))
    }

    /// The plan for a product of this width on this device, made if there is none.
    fn product(
        slf: &Bound<'_, Self>,
        device: &'static Device,
        precision: Precision,
        width: usize,
    ) -> PyResult<Arc<Product>> {
        let this = slf.get();
        let width = width.max(1).checked_next_power_of_two().unwrap_or(width);
        let key: Key = (std::ptr::from_ref(device).addr(), precision, width);
        let plans = || this.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, plan)) = plans().iter().find(|(of, _)| *of == key) {
            return Ok(Arc::clone(plan));
        }
        let options = windrow::SpmmOptions { width, precision, ..windrow::SpmmOptions::DEFAULT };
        let plan = Arc::new(Product::build(slf.py(), this, device, options, None)?);
        let mut plans = plans();
        if plans.len() == MOST_PLANS {
            plans.remove(0);
        }
        plans.push((key, Arc::clone(&plan)));
        Ok(plan)
    }

    pub(crate) fn dtype_of(&self) -> Dtype {
        match &self.matrix {
            Matrix::Host(matrix) => matrix.dtype(),
            Matrix::Device(raw) => raw.get().dtype(),
        }
    }

    /// The precision of a product of these two types: the wider of them.
    fn precision_with(&self, of_b: Dtype) -> Precision {
        match (self.dtype_of(), of_b) {
            (Dtype::F64, _) | (_, Dtype::F64) => Precision::F64,
            (Dtype::F16, Dtype::F16) => Precision::F16,
            (Dtype::Bf16, Dtype::Bf16) => Precision::Bf16,
            _ => Precision::F32,
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

    #[new]
    #[pyo3(signature = (object, shape = None, dtype = None))]
    fn make(
        py: Python<'_>,
        object: &Bound<'_, PyAny>,
        shape: Option<(usize, usize)>,
        dtype: Option<Dtype>,
    ) -> PyResult<Self> {
        if let Ok(own) = object.cast::<Self>() {
            return match dtype {
                Some(to) => own.get().astype(py, to),
                None => Ok(own.get().on_host(py)?.into()),
            };
        }
        let parts =
            py.import("windrow._convert")?.call_method1("parts", (object, shape, dtype.map(Dtype::name)))?;
        let (kind, arrays, shape): (String, Vec<Bound<'_, PyAny>>, (usize, usize)) = parts.extract()?;
        let matrix: AnyCsr = match (&*kind, &arrays[..]) {
            ("csr" | "csc", [data, indices, row_offsets]) => {
                let offsets = Array::of("indptr", row_offsets, None)?;
                let columns = Array::of("indices", indices, None)?;
                let data = Array::of("data", data, None)?;
                if let (Place::Device(device), Place::Device(_), Place::Device(_)) =
                    (offsets.place, columns.place, data.place)
                {
                    return Self::of_device_parts(py, shape, device, [&offsets, &columns, &data]);
                }
                let [offsets, columns, data] =
                    [offsets.on_host()?, columns.on_host()?, data.forward()?.on_host()?];
                let (offsets, columns) =
                    (offsets.forward()?.whole_numbers()?, columns.forward()?.whole_numbers()?);
                match &*kind {
                    "csr" => Self::of_host_parts(py, shape, offsets, columns, &data)?,
                    _ => {
                        let turned = Self::of_host_parts(py, (shape.1, shape.0), offsets, columns, &data)?;
                        outside(py, || Ok::<AnyCsr, Fault>(with_csr!(&turned, a => a.transpose()?.into())))?
                    }
                }
            }
            ("coo", [data, rows, columns]) => {
                let rows = Array::host("row", rows)?.forward()?.whole_numbers()?;
                let columns = Array::host("column", columns)?.forward()?.whole_numbers()?;
                let data = Array::host("data", data)?.forward()?;
                with_dtype!(data.dtype()?, V => {
                    let values = data.to_vec::<V>()?;
                    outside(py, || {
                        Ok::<AnyCsr, Fault>(Coo::try_new(shape.0, shape.1, rows, columns, values)?.to_csr()?.into())
                    })?
                })
            }
            (_, [dense]) => {
                let dense =
                    Array::host("the matrix", &numpy(py)?.call_method1("ascontiguousarray", (dense,))?)?;
                with_dtype!(dense.dtype()?, V => {
                    // SAFETY: of this type, in host memory, and packed.
                    let elements = unsafe { dense.elements::<V>() };
                    outside(py, || Ok::<AnyCsr, Fault>(Csr::from_dense(shape.0, shape.1, elements)?.into()))?
                })
            }
            _ => return Err(told(Class::Internal, format!("{} arrays of {kind}", arrays.len()))),
        };
        Ok(match dtype {
            Some(to) => matrix.cast(to).into(),
            None => matrix.into(),
        })
    }

    /// Number of rows and of columns.
    #[getter]
    pub(crate) fn shape(&self) -> (usize, usize) {
        match &self.matrix {
            Matrix::Host(matrix) => with_csr!(matrix, a => (a.rows(), a.cols())),
            Matrix::Device(raw) => raw.get().shape(),
        }
    }

    /// Entries, stored zeros included.
    #[getter]
    pub(crate) fn nnz(&self) -> usize {
        match &self.matrix {
            Matrix::Host(matrix) => with_csr!(matrix, a => a.nnz()),
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
        let (py, owner) = (slf.py(), Self::host_owner(slf)?);
        let Matrix::Host(matrix) = &owner.get().matrix else {
            return Err(told(Class::Internal, "not on the host"));
        };
        with_csr!(matrix, a => {
            let offsets = a.row_offsets();
            lend(py, owner.clone().into_any().unbind(), offsets, &[offsets.len()], Item::U64)
        })
    }

    /// Column of each entry, as uint32: not a copy, and cannot be written.
    #[getter]
    fn indices<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, owner) = (slf.py(), Self::host_owner(slf)?);
        let Matrix::Host(matrix) = &owner.get().matrix else {
            return Err(told(Class::Internal, "not on the host"));
        };
        with_csr!(matrix, a => {
            let columns = a.col_indices();
            lend(py, owner.clone().into_any().unbind(), columns, &[columns.len()], Item::U32)
        })
    }

    /// Value of each entry: not a copy, and cannot be written. Of bf16 the bits, as uint16: see `astype`.
    #[getter]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, owner) = (slf.py(), Self::host_owner(slf)?);
        let Matrix::Host(matrix) = &owner.get().matrix else {
            return Err(told(Class::Internal, "not on the host"));
        };
        let item = match matrix.dtype() {
            Dtype::Bf16 => Item::U16,
            of => Item::Value(of),
        };
        with_csr!(matrix, a => lend(py, owner.clone().into_any().unbind(), a.values(), &[a.nnz()], item))
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
            Ok::<_, Fault>(with_csr!(&matrix, a => DeviceCsr::from_host(device, a)?.into()))
        })?;
        Ok(Self::new(Matrix::Device(Py::new(
            py,
            RawCsr { made: Made::Owned, matrix: Kept::new(matrix), device },
        )?)))
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
            outside(py, || Ok::<AnyCsr, Fault>(with_csr!(&matrix, a => a.with_values(values)?.into()))).map(Self::from)
        })
    }

    /// The transpose, whose entries are `data[A.transpose_order()]`.
    fn transpose(&self, py: Python<'_>) -> PyResult<Self> {
        if let Matrix::Device(raw) = &self.matrix {
            let transposed = raw.get().transposed(py, None)?;
            return Ok(Self::new(Matrix::Device(Py::new(py, transposed)?)));
        }
        let matrix = self.on_host(py)?;
        outside(py, || Ok::<AnyCsr, Fault>(with_csr!(&matrix, a => a.transpose()?.into()))).map(Self::from)
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
        let order = outside(py, || Ok::<_, Fault>(with_csr!(&matrix, a => a.transpose_order()?)))?;
        order_array(py, &order)
    }

    /// The matrix with its rows in another order: row `i` is row `order[i]` of this one.
    fn permute_rows(&self, py: Python<'_>, order: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (matrix, order) = (self.on_host(py)?, permutation("order", order)?);
        outside(py, || Ok::<AnyCsr, Fault>(with_csr!(&matrix, a => a.permute_rows(&order)?.into())))
            .map(Self::from)
    }

    /// `A·B` by a plan that is made at the first product and kept, on the default device or where the matrix is.
    ///
    /// `B` has shape `(k, n)` or `(k,)`, in C's or Fortran's order or any other; it may also be an array on a GPU
    /// (DLPack, CUDA's array interface). The result has the wider type of both, in an array of numpy, or in a
    /// `windrow.Array` if `B` is on a GPU. `Spmm` has options, and writes where it is told to.
    fn __matmul__<'py>(slf: &Bound<'py, Self>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if b.hasattr("tocsr")? || b.cast::<Self>().is_ok() {
            return Err(told(
                Class::Dtype,
                "a product of two sparse matrices is not what windrow does; use A.to_scipy() @ B, or B.toarray()",
            ));
        }
        let b = Array::of("B", b, None)?.forward()?;
        let (((rows, width), _), (_, cols)) = (b.matrix()?, this.shape());
        if rows != cols {
            return Err(Fault::from(windrow::SpmmError::InnerDim { a_cols: cols, b_rows: rows }).into());
        }
        let device = match (&this.matrix, b.place) {
            (Matrix::Device(raw), _) => raw.get().device,
            (_, Place::Device(device)) => device,
            _ => given_or_default(py, None)?,
        };
        let plan = Self::product(slf, device, this.precision_with(b.dtype()?), width)?;
        plan.mm(py, b, &Run { to_precision: true, ..Run::default() })
    }

    /// `B·A`, by way of the transpose: `(Aᵀ·Bᵀ)ᵀ`.
    fn __rmatmul__<'py>(slf: &Bound<'py, Self>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let transposed = Self::T(slf)?;
        let b = numpy(slf.py())?.call_method1("asarray", (b,))?.getattr("T")?;
        Self::__matmul__(transposed.bind(slf.py()), &b)?.getattr("T")
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

impl PyCsr {
    /// The matrix whose arrays are in host memory: itself, or a copy.
    fn host_owner<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        match &slf.get().matrix {
            Matrix::Host(_) => Ok(slf.clone()),
            Matrix::Device(_) => Bound::new(slf.py(), slf.get().to_host(slf.py())?),
        }
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
    numbers(py, &order, "i8")
}

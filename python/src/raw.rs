//! Memory of other libraries by addresses, in the order of their streams: what `windrow.torch` is made of.
//!
//! Nothing is copied here and nobody waits for a device unless a docstring says so. Who calls answers for addresses and
//! streams, as with the library's own `from_raw`.

use std::ops::Deref;
use std::sync::{PoisonError, RwLock};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use windrow::{
    CsrAddresses, Device, DeviceCsr, DeviceIndices, DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut,
    Element, PlanError, Precision, Spmm, SpmmPlan, Stream, Transposed, Value,
};

use crate::device::{PyDevice, stream_of};
use crate::dtype::{Dtype, IndexType, with_dtype};
use crate::error::{Class, Fault, Outcome, dtype, shape};
use crate::options::spmm_options;
use crate::outside::{Kept, outside};

/// A dense matrix somewhere: `(address, shape, strides, dtype)`, strides in elements, as a tensor's `data_ptr()`,
/// `shape` and `stride()` say.
#[derive(Clone, Copy)]
pub(crate) struct Operand(
    pub(crate) u64,
    pub(crate) (usize, usize),
    pub(crate) (isize, isize),
    pub(crate) Dtype,
);

impl FromPyObject<'_, '_> for Operand {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let (address, shape, strides, dtype) = object.extract()?;
        Ok(Self(address, shape, strides, dtype))
    }
}

/// How a matrix with these strides lies.
pub(crate) enum Lies {
    /// Elements from row to row.
    Rows(usize),
    /// Elements from column to column.
    Columns(usize),
}

impl Operand {
    pub(crate) fn lies(self, what: &str) -> Outcome<Lies> {
        let Self(_, (rows, cols), strides, _) = self;
        // Of a single row or column the stride to the next is anything.
        let step = |extent: usize, stride: isize, least: usize| match usize::try_from(stride) {
            _ if extent <= 1 => Some(least),
            Ok(stride) if stride >= least => Some(stride),
            _ => None,
        };
        let (row, column) = strides;
        let by_rows = (column == 1 || cols <= 1).then(|| step(rows, row, cols)).flatten();
        let by_columns = (row == 1 || rows <= 1).then(|| step(cols, column, rows)).flatten();
        match (by_rows, by_columns) {
            (Some(ld), _) => Ok(Lies::Rows(ld)),
            (None, Some(ld)) => Ok(Lies::Columns(ld)),
            (None, None) => shape(format!(
                "{what} is {rows} × {cols} with strides {strides:?} (elements from row to row and from column to \
                 column); the elements of a row must be consecutive: give {what}.contiguous()"
            )),
        }
    }
}

/// A sparse matrix at addresses: on a GPU or on the CPU.
///
/// `offsets`, `columns` and `values` are the addresses of `rows + 1`, `nnz` and `nnz` elements of `device`'s memory, of
/// the types `offset_type` and `column_type` ("i32" or "i64") and `dtype`; without `values` all are 1. `keep` is
/// anything that keeps the memory alive. Nothing may write the arrays while the object lives.
#[pyclass(frozen, name = "DeviceCsr", module = "windrow._windrow.raw")]
pub(crate) struct RawCsr {
    pub(crate) made: Made,
    pub(crate) matrix: Kept<AnyCsr>,
    pub(crate) device: &'static Device,
}

/// How a matrix was made.
pub(crate) enum Made {
    /// Of arrays elsewhere, which are kept alive.
    Borrowed(Arrays, Option<Py<PyAny>>),
    /// By windrow, in memory of its own.
    Owned,
}

#[derive(Clone, Copy)]
pub(crate) struct Arrays {
    pub(crate) shape: (usize, usize),
    pub(crate) nnz: usize,
    pub(crate) offsets: (u64, IndexType),
    pub(crate) columns: (u64, IndexType),
    pub(crate) values: Option<u64>,
    pub(crate) dtype: Dtype,
}

pub(crate) enum AnyCsr {
    F32(Held<f32>),
    F64(Held<f64>),
    F16(Held<windrow::f16>),
    Bf16(Held<windrow::bf16>),
}

pub(crate) enum Held<V: Value> {
    Plain(DeviceCsr<'static, V>),
    Transposed(Transposed<V>),
}

impl<V: Value> Deref for Held<V> {
    type Target = DeviceCsr<'static, V>;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Plain(matrix) => matrix,
            Self::Transposed(transposed) => transposed.matrix(),
        }
    }
}

/// An expression for a matrix of whatever type: `each!(&matrix, a => expression)`.
macro_rules! each {
    ($matrix:expr, $a:ident => $run:expr) => {
        match $matrix {
            $crate::raw::AnyCsr::F32($a) => $run,
            $crate::raw::AnyCsr::F64($a) => $run,
            $crate::raw::AnyCsr::F16($a) => $run,
            $crate::raw::AnyCsr::Bf16($a) => $run,
        }
    };
}
pub(crate) use each;

macro_rules! any_csr {
    ($($kind:ident($value:ty);)+) => { $(
        impl From<DeviceCsr<'static, $value>> for AnyCsr {
            fn from(matrix: DeviceCsr<'static, $value>) -> Self {
                Self::$kind(Held::Plain(matrix))
            }
        }
        impl From<Transposed<$value>> for AnyCsr {
            fn from(transposed: Transposed<$value>) -> Self {
                Self::$kind(Held::Transposed(transposed))
            }
        }
    )+ };
}
any_csr! { F32(f32); F64(f64); F16(windrow::f16); Bf16(windrow::bf16); }

impl Arrays {
    /// The matrix; checked, if a stream is given.
    ///
    /// # Safety
    /// Those of [`DeviceCsr::from_raw`].
    pub(crate) unsafe fn matrix(self, device: &'static Device, check: Option<&Stream>) -> Outcome<AnyCsr> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.values.is_none() {
                return checked(self.pattern(device)?, check);
            }
            with_dtype!(self.dtype, V => checked(self.of_values::<V>(device)?, check))
        }
    }

    /// # Safety
    /// Those of [`DeviceCsr::from_raw`], and the values are of this type.
    unsafe fn of_values<V: Value>(self, device: &'static Device) -> Result<DeviceCsr<'static, V>, PlanError> {
        let Self {
            shape, nnz, offsets: (offsets, of_offsets), columns: (columns, of_columns), values, ..
        } = self;
        let values = values.unwrap_or(0);
        let at = CsrAddresses { offsets, columns, values };
        // SAFETY: the caller's promise.
        unsafe {
            match (of_offsets, of_columns) {
                (IndexType::I32, IndexType::I32) => DeviceCsr::from_raw::<i32, i32>(device, shape, nnz, at),
                (IndexType::I64, IndexType::I64) => DeviceCsr::from_raw::<i64, i64>(device, shape, nnz, at),
                (IndexType::I64, IndexType::I32) => DeviceCsr::from_raw::<i64, i32>(device, shape, nnz, at),
                (IndexType::I32, IndexType::I64) => DeviceCsr::from_raw::<i32, i64>(device, shape, nnz, at),
            }
        }
    }

    /// The matrix whose values are all 1.
    ///
    /// # Safety
    /// Those of [`DeviceCsr::from_raw`].
    unsafe fn pattern(self, device: &'static Device) -> Result<DeviceCsr<'static, f32>, PlanError> {
        let Self {
            shape: (rows, cols),
            nnz,
            offsets: (offsets, of_offsets),
            columns: (columns, of_columns),
            ..
        } = self;
        let ends = rows.saturating_add(1);
        // SAFETY: the caller's promise.
        unsafe {
            let offsets: DeviceIndices<'_> = match of_offsets {
                IndexType::I32 => DeviceSlice::<i32>::from_raw(device, offsets, ends)?.into(),
                IndexType::I64 => DeviceSlice::<i64>::from_raw(device, offsets, ends)?.into(),
            };
            match of_columns {
                IndexType::I32 => DeviceCsr::pattern(
                    rows,
                    cols,
                    offsets,
                    DeviceSlice::<i32>::from_raw(device, columns, nnz)?,
                ),
                IndexType::I64 => DeviceCsr::pattern(
                    rows,
                    cols,
                    offsets,
                    DeviceSlice::<i64>::from_raw(device, columns, nnz)?,
                ),
            }
        }
    }
}

fn checked<V: Value>(a: DeviceCsr<'static, V>, on: Option<&Stream>) -> Outcome<AnyCsr>
where
    AnyCsr: From<DeviceCsr<'static, V>>,
{
    Ok(match on {
        Some(on) => a.checked(on)?.into(),
        None => a.into(),
    })
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
        let matrix = outside(py, || unsafe { arrays.matrix(device, Some(&stream_of(device, stream)?)) })?;
        let keep = keep.as_ref().map(|keep| keep.clone_ref(py));
        Ok(Self { made: Made::Borrowed(arrays, keep), matrix: Kept::new(matrix), device })
    }

    /// The matrix with sorted rows and summed duplicates, in memory of its own: made on `stream`, which is waited for.
    #[pyo3(signature = (stream = None))]
    pub(crate) fn canonical(&self, py: Python<'_>, stream: Option<usize>) -> PyResult<Self> {
        self.made_there(py, stream, |a, on| each!(a, a => Ok(a.canonical(on)?.into())))
    }

    /// The transpose, in memory of its own: made on `stream`. It knows the order of its entries, see `bring_values`.
    #[pyo3(signature = (stream = None))]
    pub(crate) fn transposed(&self, py: Python<'_>, stream: Option<usize>) -> PyResult<Self> {
        self.made_there(py, stream, |a, on| each!(a, a => Ok(a.transposed(on)?.into())))
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
        outside(py, || unsafe {
            let on = stream_of(device, stream)?;
            each!(&*self.matrix, a => {
                let Held::Transposed(transposed) = a else {
                    return Err(Fault::new(Class::Format, "only what `transposed` has made knows an order of values"));
                };
                with_dtype!(dtype, V => {
                    let values = DeviceSlice::<V>::from_raw(device, values, nnz)?;
                    transposed.values_on(&on, values, DeviceSliceMut::<V>::from_raw(device, to, nnz)?)?;
                });
                Ok(())
            })
        })
    }

    #[getter]
    pub(crate) fn shape(&self) -> (usize, usize) {
        each!(&*self.matrix, a => (a.rows(), a.cols()))
    }

    #[getter]
    pub(crate) fn nnz(&self) -> usize {
        each!(&*self.matrix, a => a.nnz())
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    fn __repr__(&self) -> String {
        each!(&*self.matrix, a => format!("{:?}", **a))
    }
}

impl RawCsr {
    pub(crate) fn dtype(&self) -> Dtype {
        match *self.matrix {
            AnyCsr::F32(_) => Dtype::F32,
            AnyCsr::F64(_) => Dtype::F64,
            AnyCsr::F16(_) => Dtype::F16,
            AnyCsr::Bf16(_) => Dtype::Bf16,
        }
    }

    pub(crate) fn made_there(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        make: impl Fn(&AnyCsr, &Stream) -> Outcome<AnyCsr> + Send + Sync,
    ) -> PyResult<Self> {
        let device = self.device;
        // SAFETY: the promise of who gives the stream.
        let matrix = outside(py, || make(&self.matrix, &unsafe { stream_of(device, stream)? }))?;
        Ok(Self { made: Made::Owned, matrix: Kept::new(matrix), device })
    }
}

/// A plan of a product with a sparse matrix at addresses, made in the order of `stream` (the handle of a CUDA stream;
/// the device's own if there is none, which is in no order with PyTorch's).
///
/// Keywords are the options of `windrow.Spmm`. The arrays of the matrix may be freed when the work of the stream is
/// done.
#[pyclass(frozen, name = "Spmm", module = "windrow._windrow.raw")]
pub(crate) struct RawSpmm {
    plan: RwLock<Kept<SpmmPlan>>,
    device: &'static Device,
    precision: Precision,
}

#[pymethods]
impl RawSpmm {
    #[new]
    #[pyo3(signature = (a, stream = None, **options))]
    fn new(
        py: Python<'_>,
        a: &RawCsr,
        stream: Option<usize>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (options, device) = (spmm_options(options)?, a.device);
        // SAFETY: the promise of who gives the stream.
        let plan = outside(py, || unsafe {
            let on = stream_of(device, stream)?;
            Ok::<_, Fault>(each!(&*a.matrix, a => Spmm::builder(&**a).options(options).build_on(&on)?))
        })?;
        Ok(Self { precision: plan.precision(), plan: RwLock::new(Kept::new(plan)), device })
    }

    /// `C ← alpha·A·B + beta·C`, queued in `stream`: nothing is copied, and nobody waits.
    ///
    /// `b` and `c` are `(address, shape, strides, dtype)`, strides in elements. `B` has the plan's element type; `C`
    /// any of f32, f16 and bf16, or f64 for a plan of precision f64. Rows are consecutive, at any distance; a `B` with
    /// consecutive columns is taken by plans that have a kernel for it, matricized-rows in f16.
    #[pyo3(signature = (stream, b, c, alpha = 1.0, beta = 0.0))]
    fn run(
        &self,
        py: Python<'_>,
        stream: Option<usize>,
        b: Operand,
        c: Operand,
        alpha: f64,
        beta: f64,
    ) -> PyResult<()> {
        outside(py, || {
            // SAFETY: the promise of who gives addresses and the stream.
            unsafe {
                let on = stream_of(self.device, stream)?;
                let plan = self.plan.read().unwrap_or_else(PoisonError::into_inner);
                run(&plan, self.device, &on, (alpha, b), (beta, c))
            }
        })
    }

    /// Puts new values in the places of the old, in the order of `stream`: `nnz` elements of f32, or of f64 for a plan
    /// of precision f64, at an address.
    #[pyo3(signature = (stream, values, nnz))]
    fn replace_values(&self, py: Python<'_>, stream: Option<usize>, values: u64, nnz: usize) -> PyResult<()> {
        // SAFETY: the promise of who gives the address and the stream.
        outside(py, || unsafe {
            let on = stream_of(self.device, stream)?;
            let mut plan = self.plan.write().unwrap_or_else(PoisonError::into_inner);
            if self.precision == Precision::F64 {
                plan.replace_values_on(&on, DeviceSlice::<f64>::from_raw(self.device, values, nnz)?)
            } else {
                plan.replace_values_on(&on, DeviceSlice::<f32>::from_raw(self.device, values, nnz)?)
            }?;
            Ok::<_, Fault>(())
        })
    }

    /// Makes what runs of this width on `stream` need, so that they can be captured into a graph.
    #[pyo3(signature = (stream, width, staged = false))]
    fn prepare(&self, py: Python<'_>, stream: Option<usize>, width: usize, staged: bool) -> PyResult<()> {
        // SAFETY: the promise of who gives the stream.
        outside(py, || unsafe {
            let on = stream_of(self.device, stream)?;
            let plan = self.plan.read().unwrap_or_else(PoisonError::into_inner);
            Ok::<_, Fault>(plan.prepare_on(&on, width, staged)?)
        })
    }

    #[getter]
    fn shape(&self) -> (usize, usize) {
        self.plan.read().unwrap_or_else(PoisonError::into_inner).shape()
    }

    #[getter]
    fn nnz(&self) -> usize {
        self.plan.read().unwrap_or_else(PoisonError::into_inner).nnz()
    }

    #[getter]
    fn precision(&self) -> String {
        self.precision.to_string()
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.device)
    }

    /// Bytes of device memory that the plan holds.
    #[getter]
    fn device_bytes(&self) -> u64 {
        self.plan.read().unwrap_or_else(PoisonError::into_inner).device_bytes()
    }

    /// What the plan is, what it holds and what it cost to make, as text.
    fn report(&self) -> String {
        self.plan.read().unwrap_or_else(PoisonError::into_inner).report().to_string()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", **self.plan.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// # Safety
/// Those of [`DeviceView::from_raw`] and [`DeviceViewMut::from_raw`], for the stream.
unsafe fn run(
    plan: &SpmmPlan,
    device: &'static Device,
    on: &Stream,
    (alpha, b): (f64, Operand),
    (beta, c): (f64, Operand),
) -> Outcome<()> {
    if b.3 != Dtype::of(plan.precision()) {
        return dtype(format!(
            "B holds {} but a plan of precision {} takes {}; convert it or make another plan",
            b.3.name(),
            plan.precision(),
            Dtype::of(plan.precision()).name()
        ));
    }
    // SAFETY: the caller's promise.
    unsafe {
        match (b.3, c.3) {
            (Dtype::F64, Dtype::F64) => run_as::<f64, f64>(plan, device, on, (alpha, b), (beta, c)),
            (Dtype::F64, _) | (_, Dtype::F64) => dtype(format!(
                "C holds {} but sums of a plan of precision {} are in {}; give C such a type",
                c.3.name(),
                plan.precision(),
                if b.3 == Dtype::F64 { "f64" } else { "f32, and may be rounded to f16 or bf16" }
            )),
            #[expect(clippy::cast_possible_truncation, reason = "factors are f32 where sums are")]
            (of_b, of_c) => {
                let (b, c) = ((alpha as f32, b), (beta as f32, c));
                macro_rules! run_as {
                    ($($b:ident $b_type:ty, $c:ident $c_type:ty;)+) => {
                        match (of_b, of_c) {
                            $((Dtype::$b, Dtype::$c) => run_as::<$b_type, $c_type>(plan, device, on, b, c),)+
                            (Dtype::F64, _) | (_, Dtype::F64) => unreachable!("told above"),
                        }
                    };
                }
                run_as! {
                    F32 f32, F32 f32; F32 f32, F16 windrow::f16; F32 f32, Bf16 windrow::bf16;
                    F16 windrow::f16, F32 f32; F16 windrow::f16, F16 windrow::f16; F16 windrow::f16, Bf16 windrow::bf16;
                    Bf16 windrow::bf16, F32 f32; Bf16 windrow::bf16, F16 windrow::f16; Bf16 windrow::bf16, Bf16 windrow::bf16;
                }
            }
        }
    }
}

/// # Safety
/// As for [`run`], and the elements are of these types.
unsafe fn run_as<B: Element, C: Element<Sum = B::Sum>>(
    plan: &SpmmPlan,
    device: &'static Device,
    on: &Stream,
    (alpha, b): (B::Sum, Operand),
    (beta, c): (B::Sum, Operand),
) -> Outcome<()> {
    let Operand(at, (rows, cols), ..) = c;
    let Lies::Rows(ld) = c.lies("C")? else {
        return shape("C lies column after column; give it consecutive rows");
    };
    // SAFETY: the caller's promise; what the driver knows of the addresses is checked.
    unsafe {
        let c = DeviceViewMut::<C>::from_raw(device, at, rows, cols, ld)?;
        let Operand(at, (rows, cols), ..) = b;
        match b.lies("B")? {
            Lies::Rows(ld) => {
                plan.run_into_on(on, alpha, DeviceView::<B>::from_raw(device, at, rows, cols, ld)?, beta, c)
            }
            Lies::Columns(ld) => {
                let columns = DeviceView::<B>::from_raw(device, at, cols, rows, ld)?;
                plan.run_column_major_into_on(on, alpha, columns, beta, c)
            }
        }?;
    }
    Ok(())
}

/// The module `windrow._windrow.raw` and what it holds.
pub(crate) fn module<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyModule>> {
    let module = PyModule::new(py, "raw")?;
    module.add_class::<RawCsr>()?;
    module.add_class::<RawSpmm>()?;
    module.add_class::<crate::sampled::RawSddmm>()?;
    module.add_class::<crate::sampled::RawSoftmax>()?;
    module.add_class::<crate::weights::RawNmWeights>()?;
    module.add_class::<crate::weights::RawNmSpmm>()?;
    Ok(module)
}

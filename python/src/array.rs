//! Arrays of other libraries: where they are, what they hold, and who keeps them.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::dtype::Dtype;
use crate::error::{Class, Fault, Outcome, dtype, shape};

/// What an array holds, as `typestr` of the array interface tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    Value(Dtype),
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

impl Item {
    fn bytes(self) -> isize {
        match self {
            Self::Value(Dtype::F64) | Self::I64 | Self::U64 => 8,
            Self::Value(Dtype::F32) | Self::I32 | Self::U32 => 4,
            Self::Value(Dtype::F16 | Dtype::Bf16) | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    fn of_typestr(typestr: &str) -> Option<Self> {
        // Bytes have no order; of others it is the machine's.
        let native = if cfg!(target_endian = "little") { '<' } else { '>' };
        let kind = typestr.strip_prefix([native, '|', '='])?;
        Some(match kind {
            "f2" => Self::Value(Dtype::F16),
            "f4" => Self::Value(Dtype::F32),
            "f8" => Self::Value(Dtype::F64),
            "i1" => Self::I8,
            "i2" => Self::I16,
            "i4" => Self::I32,
            "i8" => Self::I64,
            "u1" => Self::U8,
            "u2" => Self::U16,
            "u4" => Self::U32,
            "u8" => Self::U64,
            "b1" => Self::Bool,
            _ => return None,
        })
    }
}

/// An array in host memory, kept by a reference to its owner.
pub(crate) struct HostArray<'py> {
    /// What it is called in messages.
    pub(crate) what: &'static str,
    pub(crate) address: usize,
    pub(crate) shape: Vec<usize>,
    /// In elements.
    pub(crate) strides: Vec<isize>,
    pub(crate) item: Item,
    _owner: Bound<'py, PyAny>,
}

impl<'py> HostArray<'py> {
    /// An array as `numpy` has it: anything that has the array interface, or that `numpy.asarray` makes one of.
    pub(crate) fn of(what: &'static str, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let owner = match object.hasattr("__array_interface__")? {
            true => object.clone(),
            false => numpy(py)?.call_method1("asarray", (object,))?,
        };
        let interface = owner.getattr("__array_interface__")?.cast_into::<PyDict>()?;
        let item = |name: &str| -> PyResult<Bound<'py, PyAny>> { interface.as_any().get_item(name) };
        let (address, _read_only): (usize, bool) = item("data")?.extract()?;
        let shape: Vec<usize> = item("shape")?.extract()?;
        let typestr: String = item("typestr")?.extract()?;
        let Some(of) = Item::of_typestr(&typestr) else {
            return Err(dtype::<()>(format!(
                "{what} holds elements of type {typestr:?}; convert it, for example with {what}.astype(numpy.float32)"
            ))
            .unwrap_err()
            .into());
        };
        let strides = match interface.get_item("strides")? {
            Some(strides) if !strides.is_none() => elements(what, &strides.extract::<Vec<isize>>()?, of)?,
            _ => packed(&shape),
        };
        Ok(Self { what, address, shape, strides, item: of, _owner: owner })
    }

    /// Elements of a one-dimensional array.
    pub(crate) fn len(&self) -> Outcome<usize> {
        match self.shape[..] {
            [len] => Ok(len),
            _ => shape(format!("{} has {} dimensions but must have one", self.what, self.shape.len())),
        }
    }

    /// Shape and strides of a two-dimensional array.
    pub(crate) fn matrix(&self) -> Outcome<((usize, usize), (isize, isize))> {
        match (&self.shape[..], &self.strides[..]) {
            (&[rows, cols], &[down, across]) => Ok(((rows, cols), (down, across))),
            _ => shape(format!("{} has {} dimensions but must have two", self.what, self.shape.len())),
        }
    }

    /// What is said of an array that holds no values.
    pub(crate) fn not_values(&self) -> Fault {
        let what = self.what;
        let text = format!(
            "{what} holds {:?}, which are no values of a matrix; convert it, for example with \
             {what}.astype(numpy.float32)",
            self.item
        );
        Fault::new(Class::Dtype, text)
    }

    /// Elements from the first to the last: those between are there, too.
    fn span(&self) -> usize {
        let last = |(&extent, &stride): (&usize, &isize)| (extent - 1) * stride.unsigned_abs();
        match self.shape.contains(&0) {
            true => 0,
            false => 1 + self.shape.iter().zip(&self.strides).map(last).sum::<usize>(),
        }
    }

    /// The elements where they are, those between rows, too.
    ///
    /// # Safety
    /// The array holds elements of type `T`, no stride is negative, and nothing writes them for as long as they are
    /// used.
    pub(crate) unsafe fn elements<T>(&self) -> &[T] {
        let len = self.span();
        if len == 0 {
            return &[];
        }
        // SAFETY: the array interface promises that they are there as long as their owner lives.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.address), len) }
    }

    /// The elements, to be written.
    ///
    /// # Safety
    /// As for [`elements`](Self::elements), and nothing else uses them.
    pub(crate) unsafe fn elements_mut<T>(&mut self) -> &mut [T] {
        let len = self.span();
        if len == 0 {
            return &mut [];
        }
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(self.address), len) }
    }

    /// A copy of the elements of a one-dimensional array of type `T`.
    pub(crate) fn to_vec<T: Copy>(&self) -> Outcome<Vec<T>> {
        let len = self.len()?;
        // SAFETY: who asks has looked at the type.
        let elements = unsafe { self.elements::<T>() };
        let stride = self.strides[0].unsigned_abs().max(1);
        Ok(elements.iter().step_by(stride).take(len).copied().collect())
    }

    /// A copy of a one-dimensional array of whole numbers of any type.
    pub(crate) fn whole_numbers<T>(&self) -> Outcome<Vec<T>>
    where
        T: TryFrom<i8>
            + TryFrom<i16>
            + TryFrom<i32>
            + TryFrom<i64>
            + TryFrom<u8>
            + TryFrom<u16>
            + TryFrom<u32>
            + TryFrom<u64>,
    {
        match self.item {
            Item::I8 => self.converted::<i8, T>(),
            Item::I16 => self.converted::<i16, T>(),
            Item::I32 => self.converted::<i32, T>(),
            Item::I64 => self.converted::<i64, T>(),
            Item::U8 => self.converted::<u8, T>(),
            Item::U16 => self.converted::<u16, T>(),
            Item::U32 => self.converted::<u32, T>(),
            Item::U64 => self.converted::<u64, T>(),
            Item::Value(_) | Item::Bool => dtype(format!(
                "{0} holds {1:?} but must hold whole numbers; convert it with {0}.astype(numpy.int64)",
                self.what, self.item
            )),
        }
    }

    fn converted<S: Copy + std::fmt::Display, T: TryFrom<S>>(&self) -> Outcome<Vec<T>> {
        let given = self.to_vec::<S>()?;
        let converted = given.iter().enumerate().map(|(at, &number)| {
            T::try_from(number).map_err(|_| {
                let text = format!("{}[{at}] is {number}, which is no index", self.what);
                Fault::new(Class::Format, text)
            })
        });
        converted.collect()
    }
}

fn elements(what: &str, bytes: &[isize], item: Item) -> Outcome<Vec<isize>> {
    let size = item.bytes();
    if bytes.iter().any(|stride| stride % size != 0) {
        return shape(format!("{what} has strides of {bytes:?} bytes, of elements with {size}; copy it"));
    }
    Ok(bytes.iter().map(|stride| stride / size).collect())
}

fn packed(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at].cast_signed();
    }
    strides
}

/// A new array of `numpy` and where it is.
pub(crate) fn empty<'py>(
    py: Python<'py>,
    shape: (usize, usize),
    of: Dtype,
) -> PyResult<(Bound<'py, PyAny>, HostArray<'py>)> {
    let name = match of {
        Dtype::F32 => "float32",
        Dtype::F64 => "float64",
        Dtype::F16 | Dtype::Bf16 => "float16",
    };
    let array = numpy(py)?.call_method1("empty", (shape, name))?;
    let at = HostArray::of("C", &array)?;
    Ok((array, at))
}

/// The module `numpy`, imported when first needed.
pub(crate) fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(NUMPY.get_or_try_init(py, || PyModule::import(py, "numpy").map(Bound::unbind))?.bind(py))
}

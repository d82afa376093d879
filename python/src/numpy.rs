//! numpy: its types, and arrays of its own.

use std::fmt;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::array::Array;
use crate::dtype::Dtype;

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

const LETTERS: [(&str, Item); 12] = [
    ("f2", Item::Value(Dtype::F16)),
    ("f4", Item::Value(Dtype::F32)),
    ("f8", Item::Value(Dtype::F64)),
    ("i1", Item::I8),
    ("i2", Item::I16),
    ("i4", Item::I32),
    ("i8", Item::I64),
    ("u1", Item::U8),
    ("u2", Item::U16),
    ("u4", Item::U32),
    ("u8", Item::U64),
    ("b1", Item::Bool),
];

impl Item {
    pub(crate) fn bytes(self) -> isize {
        match self {
            Self::Value(Dtype::F64) | Self::I64 | Self::U64 => 8,
            Self::Value(Dtype::F32) | Self::I32 | Self::U32 => 4,
            Self::Value(Dtype::F16 | Dtype::Bf16) | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    pub(crate) fn of_typestr(typestr: &str) -> Option<Self> {
        // Single bytes have no order; of others it is the machine's.
        let letters = typestr.strip_prefix([NATIVE, '|', '='])?;
        LETTERS.iter().find(|(known, _)| *known == letters).map(|&(_, item)| item)
    }

    /// None for bf16, which numpy has not.
    fn letters(self) -> Option<&'static str> {
        LETTERS.iter().find(|(_, item)| *item == self).map(|(letters, _)| *letters)
    }

    /// None for bf16, which has no letters.
    pub(crate) fn typestr(self) -> Option<String> {
        self.letters().map(|letters| format!("{NATIVE}{letters}"))
    }
}

const NATIVE: char = if cfg!(target_endian = "little") { '<' } else { '>' };

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Value(of) => of.name(),
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::Bool => "bool",
        })
    }
}

/// The module `numpy`, imported when first needed.
pub(crate) fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(NUMPY.get_or_try_init(py, || PyModule::import(py, "numpy").map(Bound::unbind))?.bind(py))
}

/// A new array of numpy, whose elements are anything. It has no bf16, of which the bits are `uint16`.
pub(crate) fn empty<'py>(py: Python<'py>, shape: &[usize], of: Dtype) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let empty = EMPTY.get_or_try_init(py, || Ok::<_, PyErr>(numpy(py)?.getattr("empty")?.unbind()))?;
    let name = Item::Value(of).letters().unwrap_or("u2");
    let shape = pyo3::types::PyTuple::new(py, shape)?;
    empty.bind(py).call1((shape, name))
}

/// A new array of numpy with these numbers.
pub(crate) fn numbers<'py, T: Copy>(
    py: Python<'py>,
    numbers: &[T],
    item: Item,
) -> PyResult<Bound<'py, PyAny>> {
    debug_assert_eq!(item.bytes().unsigned_abs(), size_of::<T>());
    let array = numpy(py)?.call_method1("empty", (numbers.len(), item.letters().unwrap_or("u2")))?;
    let mut to = Array::host("the result", &array)?;
    // SAFETY: just made, packed, of as many elements of this size.
    unsafe { to.elements_mut::<T>() }.copy_from_slice(numbers);
    Ok(array)
}

/// Elements of windrow's as an array of numpy that cannot be written: where they are, kept by their owner.
#[pyclass(frozen, module = "windrow._windrow")]
pub(crate) struct Lent {
    owner: Py<PyAny>,
    address: u64,
    shape: Vec<usize>,
    item: Item,
}

#[pymethods]
impl Lent {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", self.item.typestr().unwrap_or_else(|| format!("{NATIVE}u2")))?;
        // Of no elements numpy wants an address, too.
        interface.set_item("data", (self.address, true))?;
        Ok(interface)
    }

    #[getter]
    fn owner(&self, py: Python<'_>) -> Py<PyAny> {
        self.owner.clone_ref(py)
    }
}

/// The elements of `owner` as an array of numpy.
pub(crate) fn lend<'py, T>(
    py: Python<'py>,
    owner: Py<PyAny>,
    elements: &[T],
    shape: &[usize],
    item: Item,
) -> PyResult<Bound<'py, PyAny>> {
    let address = elements.as_ptr().expose_provenance() as u64;
    let lent = Lent { owner, address, shape: shape.to_vec(), item };
    numpy(py)?.call_method1("asarray", (lent.into_pyobject(py)?,))
}

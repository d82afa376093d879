//! DLPack: tensors as other libraries hand them on, version 0 of its capsules.

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};

use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

use crate::array::told;
use crate::dtype::Dtype;
use crate::error::Class;
use crate::numpy::Item;

pub(crate) const CPU: i32 = 1;
pub(crate) const CUDA: i32 = 2;
/// Host memory that CUDA has pinned.
pub(crate) const CUDA_HOST: i32 = 3;
pub(crate) const CUDA_MANAGED: i32 = 13;

const NAME: &CStr = c"dltensor";

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    index: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Type {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: Type,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// What a capsule holds.
pub(crate) struct Described {
    pub(crate) address: u64,
    pub(crate) shape: Vec<usize>,
    /// In elements; none if they are packed.
    pub(crate) strides: Option<Vec<isize>>,
    pub(crate) item: Item,
}

const KINDS: [(u8, u8, Item); 13] = [
    (2, 16, Item::Value(Dtype::F16)),
    (2, 32, Item::Value(Dtype::F32)),
    (2, 64, Item::Value(Dtype::F64)),
    (4, 16, Item::Value(Dtype::Bf16)),
    (0, 8, Item::I8),
    (0, 16, Item::I16),
    (0, 32, Item::I32),
    (0, 64, Item::I64),
    (1, 8, Item::U8),
    (1, 16, Item::U16),
    (1, 32, Item::U32),
    (1, 64, Item::U64),
    (6, 8, Item::Bool),
];

/// Reads a capsule, which stays as it is.
pub(crate) fn describe(what: &str, capsule: &Bound<'_, PyAny>) -> PyResult<Described> {
    let capsule = capsule.cast::<PyCapsule>()?;
    let managed: NonNull<Managed> = capsule.pointer_checked(Some(NAME))?.cast();
    // SAFETY: a capsule of this name that was not consumed holds such a tensor, as long as it lives.
    let tensor = unsafe { &managed.as_ref().tensor };
    let Type { code, bits, lanes } = tensor.dtype;
    let known = KINDS.iter().find(|kind| (kind.0, kind.1) == (code, bits) && lanes == 1);
    let Some(&(_, _, item)) = known else {
        let text = format!("{what} holds elements of {bits} bits (code {code} of DLPack)");
        return Err(told(Class::Dtype, format!("{text}; convert it to f32, f64, f16 or bf16")));
    };
    let dims = usize::try_from(tensor.ndim).unwrap_or(0);
    let numbers = |first: *const i64| {
        // SAFETY: there is one for each dimension.
        (0..dims).map(|dim| unsafe { *first.add(dim) }).collect::<Vec<_>>()
    };
    let shape =
        numbers(tensor.shape).into_iter().map(|extent| usize::try_from(extent).unwrap_or(0)).collect();
    let strides = (!tensor.strides.is_null()).then(|| {
        numbers(tensor.strides).into_iter().map(|stride| isize::try_from(stride).unwrap_or(0)).collect()
    });
    let address = tensor.data.expose_provenance() as u64 + tensor.byte_offset;
    Ok(Described { address, shape, strides, item })
}

/// A matrix to hand on.
pub(crate) struct Given {
    pub(crate) address: u64,
    pub(crate) place: (i32, i32),
    pub(crate) shape: [usize; 2],
    pub(crate) strides: [isize; 2],
    pub(crate) of: Dtype,
    /// 1 for a vector, the first of the two.
    pub(crate) dims: i32,
}

/// What a tensor that was handed on keeps until it is not needed any more.
struct Kept {
    /// First, so that the addresses of both are one.
    managed: Managed,
    numbers: [i64; 4],
    owner: Option<Py<PyAny>>,
}

/// A capsule of a matrix, which keeps its owner.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    owner: Py<PyAny>,
    given: &Given,
) -> PyResult<Bound<'py, PyCapsule>> {
    let item = Item::Value(given.of);
    let &(code, bits, _) = KINDS.iter().find(|kind| kind.2 == item).unwrap_or(&KINDS[1]);
    let [rows, cols] = given.shape.map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
    let [down, across] = given.strides.map(|stride| stride as i64);
    let (kind, index) = given.place;
    #[expect(clippy::cast_possible_truncation, reason = "addresses are 64 bits wherever CUDA is")]
    let data = ptr::with_exposed_provenance_mut(given.address as usize);
    let tensor = Tensor {
        data,
        device: Device { kind, index },
        ndim: given.dims,
        dtype: Type { code, bits, lanes: 1 },
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = Managed { tensor, context: ptr::null_mut(), deleter: Some(delete) };
    let kept = Box::new(Kept { managed, numbers: [rows, cols, down, across], owner: Some(owner) });
    let kept = Box::into_raw(kept);
    // SAFETY: just made, and nobody else knows it.
    let pointer = unsafe {
        (*kept).managed.tensor.shape = (&raw mut (*kept).numbers).cast();
        (*kept).managed.tensor.strides = (*kept).managed.tensor.shape.add(2);
        NonNull::new_unchecked(kept.cast())
    };
    // SAFETY: the pointer is that of a tensor, of which the destructor takes care.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, NAME, Some(drop_capsule)) }
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: made by `capsule`, the first field of a box, and deleted once.
    let mut kept = unsafe { Box::from_raw(managed.cast::<Kept>()) };
    let owner = kept.owner.take();
    // At the end of the interpreter there is nothing to give back to.
    Python::try_attach(|_| drop(owner));
}

unsafe extern "C" fn drop_capsule(capsule: *mut pyo3::ffi::PyObject) {
    // SAFETY: a capsule that nobody consumed still has its name and its tensor.
    unsafe {
        if pyo3::ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            let managed = pyo3::ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast::<Managed>();
            if let Some(deleter) = (*managed).deleter {
                deleter(managed);
            }
        }
    }
}

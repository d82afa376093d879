//! What the driver knows of an address.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys;

use super::probe::Called;
use crate::device::machine::Lies;
use crate::error::DeviceError;
use crate::num::wide;

/// Where an address lies, seen from GPU number `device`. A context is current.
pub(super) fn find(address: u64, device: sys::CUdevice) -> Result<Lies, DeviceError> {
    use sys::CUpointer_attribute as Attribute;
    let (mut kind, mut managed, mut ordinal): (c_uint, c_uint, c_int) = (0, 0, -1);
    let (mut start, mut bytes): (sys::CUdeviceptr, usize) = (0, 0);
    const COUNT: u32 = 5;
    let mut wanted: [_; COUNT as usize] = [
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ];
    let mut found: [_; COUNT as usize] = [
        (&raw mut kind).cast(),
        (&raw mut managed).cast(),
        (&raw mut ordinal).cast(),
        (&raw mut start).cast(),
        (&raw mut bytes).cast(),
    ];
    // SAFETY: as many attributes as places, each of the type that the driver's documentation names (two unsigned
    // integers, the second a boolean of which it writes 4 bytes at most, an integer, a pointer, a size), which live to
    // the end of the call. Unlike `cuPointerGetAttribute`, the call takes addresses of no memory, too.
    let code =
        unsafe { sys::cuPointerGetAttributes(COUNT, wanted.as_mut_ptr(), found.as_mut_ptr(), address) };
    code.result().called("cuPointerGetAttributes")?;
    const HOST: c_uint = sys::CUmemorytype::CU_MEMORYTYPE_HOST as c_uint;
    const DEVICE: c_uint = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as c_uint;
    Ok(match kind {
        HOST | DEVICE if managed != 0 => Lies::Here { end: end(start, bytes) },
        DEVICE if ordinal == device => Lies::Here { end: end(start, bytes) },
        DEVICE => Lies::Elsewhere(format!("memory of cuda:{ordinal}")),
        HOST => Lies::Elsewhere("host memory".to_owned()),
        _ => Lies::Elsewhere("no memory that the driver knows".to_owned()),
    })
}

fn end(start: u64, bytes: usize) -> u64 {
    start.saturating_add(wide(bytes))
}

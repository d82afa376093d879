//! What the driver knows of an address, and what it does with page-locked memory.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;

use cudarc::driver::{DriverError, result, sys};
use windrow_formats::OutOfMemory;

use super::probe::Called;
use crate::device::machine::Lies;
use crate::device::queue::{CopyWay, RowCopy};
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

/// Zeros in page-locked memory, which every context sees as such. A context is current.
pub(super) fn alloc_pinned(bytes: usize) -> Result<NonNull<u8>, DeviceError> {
    // SAFETY: a context is current; freed by `free_pinned`.
    let memory = match unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) } {
        Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
            return Err(OutOfMemory { what: "page-locked memory", bytes: wide(bytes) }.into());
        }
        allocated => allocated.called("cuMemHostAlloc")?,
    };
    let memory = NonNull::new(memory.cast::<u8>())
        .ok_or(OutOfMemory { what: "page-locked memory", bytes: wide(bytes) })?;
    // SAFETY: just allocated, of so many bytes.
    unsafe { memory.write_bytes(0, bytes) };
    Ok(memory)
}

/// Gives it back. A context is current.
///
/// # Safety
/// It came from [`alloc_pinned`], and nothing uses it any more.
pub(super) unsafe fn free_pinned(memory: NonNull<u8>) {
    // SAFETY: the caller's promise. Errors have nobody to go to.
    let _ = unsafe { result::free_host(memory.as_ptr().cast()) };
}

/// Whether an address lies in page-locked host memory. A context is current.
pub(super) fn is_pinned(address: *const u8) -> Result<bool, DeviceError> {
    use sys::CUpointer_attribute as Attribute;
    let (mut kind, mut managed): (c_uint, c_uint) = (0, 0);
    let mut wanted =
        [Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED];
    let mut found = [(&raw mut kind).cast(), (&raw mut managed).cast()];
    // SAFETY: as in `find`; nothing is read at the address.
    let code = unsafe {
        sys::cuPointerGetAttributes(2, wanted.as_mut_ptr(), found.as_mut_ptr(), wide(address.addr()))
    };
    code.result().called("cuPointerGetAttributes")?;
    Ok(kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as c_uint && managed == 0)
}

/// Queues a copy of rows in a stream. The context is current.
///
/// # Safety
/// Those of [`Queue::copy_rows`](crate::device::Queue::copy_rows).
pub(super) unsafe fn copy_rows(
    stream: sys::CUstream,
    way: CopyWay,
    rows: RowCopy,
) -> Result<(), DeviceError> {
    let RowCopy { host, host_pitch, device, device_pitch, rows, row_bytes } = rows.joined();
    let host = host.0.cast::<c_void>();
    if rows == 0 || row_bytes == 0 {
        return Ok(());
    }
    if rows == 1 {
        // SAFETY: the caller's promise; the context is current.
        let (code, call) = unsafe {
            match way {
                CopyWay::ToDevice => {
                    (sys::cuMemcpyHtoDAsync_v2(device, host, row_bytes, stream), "cuMemcpyHtoDAsync")
                }
                CopyWay::ToHost => {
                    (sys::cuMemcpyDtoHAsync_v2(host, device, row_bytes, stream), "cuMemcpyDtoHAsync")
                }
            }
        };
        return code.result().called(call);
    }
    use sys::CUmemorytype::{CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST};
    let to_device = way == CopyWay::ToDevice;
    let (from, to, from_pitch, to_pitch) = match to_device {
        true => (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, host_pitch, device_pitch),
        false => (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, device_pitch, host_pitch),
    };
    let null = std::ptr::null_mut::<c_void>();
    let copy = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: from,
        srcHost: if to_device { host } else { null },
        srcDevice: if to_device { 0 } else { device },
        srcArray: std::ptr::null_mut(),
        srcPitch: from_pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: to,
        dstHost: if to_device { null } else { host },
        dstDevice: if to_device { device } else { 0 },
        dstArray: std::ptr::null_mut(),
        dstPitch: to_pitch,
        WidthInBytes: row_bytes,
        Height: rows,
    };
    // SAFETY: as above; the driver reads the description before it returns.
    unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, stream) }.result().called("cuMemcpy2DAsync")
}

fn end(start: u64, bytes: usize) -> u64 {
    start.saturating_add(wide(bytes))
}

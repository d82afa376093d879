//! Raw handles, for programs that use other CUDA libraries beside windrow.
//!
//! A [`DeviceBuffer::address`](crate::DeviceBuffer::address) of a CUDA device is a `CUdeviceptr` in the device's
//! primary context. Work on it by other libraries is ordered with windrow's if it is queued in windrow's
//! stream: hand [`cuda_handles`] to them (`cusparseSetStream`, `cublasSetStream`). The other way round, windrow queues
//! its work in a [stream of theirs](crate::Stream::from_raw) and reads and writes
//! [their memory](crate::DeviceView::from_raw).

use std::ffi::c_void;

use crate::{Device, DeviceError};

/// The driver's handles of a CUDA device. Valid as long as a [`Device`] for it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaHandles {
    /// `CUcontext`: the primary context.
    pub context: *mut c_void,
    /// `CUstream`: the device's own stream, in which windrow queues all work that is not asked of another
    /// [`Stream`](crate::Stream). It does not wait for the
    /// legacy default stream, nor that one for it.
    pub stream: *mut c_void,
}

/// The handles of a CUDA device, its context made current on the calling thread; `None` for other devices.
///
/// # Errors
/// [`DeviceError::Driver`].
pub fn cuda_handles(device: &Device) -> Result<Option<CudaHandles>, DeviceError> {
    let Some(machine) = device.machine() else { return Ok(None) };
    let pointer = |address| std::ptr::with_exposed_provenance_mut(address);
    let raw = machine.raw_cuda()?;
    Ok(raw.map(|(context, stream)| CudaHandles { context: pointer(context), stream: pointer(stream) }))
}

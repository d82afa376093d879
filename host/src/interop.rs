//! Raw handles, for programs that use other CUDA libraries beside windrow.
//!
//! A [`DeviceBuffer::address`](crate::DeviceBuffer::address) of a CUDA device is a `CUdeviceptr` in the device's
//! primary context. Work on it by other libraries is ordered with windrow's if it is queued in windrow's
//! stream: hand [`cuda_handles`] to them (`cusparseSetStream`, `cublasSetStream`).

use std::ffi::c_void;

use bytemuck::Pod;
pub use windrow_kernels as kernels;

use crate::device::Prepared;
use crate::{Device, DeviceError};

/// The driver's handles of a CUDA device. Valid as long as a [`Device`] for it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaHandles {
    /// `CUcontext`: the primary context.
    pub context: *mut c_void,
    /// `CUstream`: the stream in which all of windrow's work on the device is queued. It does not wait for the
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

/// Starts a kernel directly, in the order of the device's work: for measuring tools and tests of one kernel.
/// A grid with no blocks starts nothing.
///
/// # Errors
/// - [`DeviceError::NotAvailable`] on the CPU, which runs no kernels;
/// - [`DeviceError::Grid`] for more blocks than a GPU takes;
/// - [`DeviceError::Driver`], [`DeviceError::Emulator`].
///
/// # Panics
/// If `P` is not as large as the entry's parameter struct.
///
/// # Safety
/// `P` is the entry's parameter struct and `params` keeps the obligations of its documentation, for this grid.
/// The memory it points to is of this device and stays allocated until the kernel has finished.
pub unsafe fn launch<P: Pod>(
    device: &Device,
    entry: &'static kernels::Entry,
    grid: [u64; 2],
    params: &P,
) -> Result<(), DeviceError> {
    let Some(machine) = device.machine() else {
        let (operation, remedy) = ("start GPU kernels", "a CUDA device");
        return Err(DeviceError::NotAvailable { device: device.to_string(), operation, remedy });
    };
    // SAFETY: the caller promises that the params are the entry's and keep its obligations for this grid.
    match unsafe { Prepared::new(entry, grid, params) }? {
        Some(prepared) => machine.launch(&prepared),
        None => Ok(()),
    }
}

/// Blocks of an entry that are resident on one multiprocessor at a time, as the driver computes it.
///
/// # Errors
/// As [`launch`].
pub fn resident_blocks(device: &Device, entry: &'static kernels::Entry) -> Result<u32, DeviceError> {
    let (operation, remedy) = ("tell a kernel's occupancy", "a CUDA device");
    device
        .machine()
        .ok_or_else(|| DeviceError::NotAvailable { device: device.to_string(), operation, remedy })?
        .resident_blocks(entry)
}

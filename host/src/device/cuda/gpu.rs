//! What everything on one GPU shares: its context and its kernels.

use std::ffi::c_void;
use std::sync::OnceLock;

use cudarc::driver::{result, sys};

use super::kernels::{Function, Kernels};
use super::probe::Called;
use crate::device::machine::Prepared;
use crate::error::DeviceError;

/// A GPU's primary context, and the modules that are loaded in it.
pub(super) struct Gpu {
    pub(super) name: String,
    pub(super) device: sys::CUdevice,
    pub(super) context: sys::CUcontext,
    pub(super) kernels: Kernels,
    /// The error that lost the device, once there was one. The driver says the same to most calls after it, but not to
    /// all, and what those return would be of no use.
    lost: OnceLock<DeviceError>,
}

// SAFETY: the driver's handles may be used from any thread; `bind` makes the context current on the thread before one
// is used.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver serialises calls on one context, and what is changed after `open` is behind locks.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Retains the primary context of `device`.
    pub(super) fn open(name: String, device: sys::CUdevice, kernels: Kernels) -> Result<Self, DeviceError> {
        // SAFETY: `device` came from `device::get`. Released when the value is dropped.
        let context = unsafe { result::primary_ctx::retain(device) }.called("cuDevicePrimaryCtxRetain")?;
        Ok(Self { name, device, context, kernels, lost: OnceLock::new() })
    }

    /// Makes the context current on this thread: the driver's calls refer to it silently.
    pub(super) fn bind(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained for as long as `self` lives.
        unsafe { result::ctx::set_current(self.context) }.called("cuCtxSetCurrent")
    }

    /// Does something with the context current, unless the device is lost.
    pub(super) fn with_context<T>(
        &self,
        work: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        let outcome = self.bind().and_then(|()| work());
        if let Err(error @ DeviceError::Lost { .. }) = &outcome {
            let _ = self.lost.set(error.clone()); // or another thread was first
        }
        outcome
    }

    /// Starts a kernel in a stream of the context, which is current.
    pub(super) fn launch(&self, stream: sys::CUstream, prepared: &Prepared) -> Result<(), DeviceError> {
        let entry = prepared.entry();
        let Function { handle: function, overlaps_launches } = self.kernels.function(entry)?;
        let [x, y] = prepared.grid();
        let mut argument = prepared.params().as_ptr().cast_mut().cast::<c_void>();
        if !overlaps_launches {
            // SAFETY: the function takes one struct by value, of `params_bytes` bytes, which `Prepared` holds
            // aligned; the driver copies it before it returns and does not write to it. Grid and block are the
            // entry's own, and what the kernel does with the pointers was promised to `Prepared::new`.
            let code = unsafe {
                let block = (prepared.block_threads(), 1, 1);
                let arguments = std::slice::from_mut(&mut argument);
                result::launch_kernel(function, (x, y, 1), block, entry.shared_bytes, stream, arguments)
            };
            return code.called("cuLaunchKernel");
        }
        // Saves the microsecond or two for which the GPU is idle between two launches.
        let mut overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: 1,
            blockDimX: prepared.block_threads(),
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: entry.shared_bytes,
            hStream: stream,
            attrs: &raw mut overlap,
            numAttrs: 1,
        };
        // SAFETY: as above; every entry of the module waits for the launch before it before it touches memory, so
        // the order of the stream holds.
        let code = unsafe {
            sys::cuLaunchKernelEx(&raw const config, function, &raw mut argument, std::ptr::null_mut())
        };
        code.result().called("cuLaunchKernelEx")
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Errors have nobody to go to; what cannot be freed dies with the process.
        if self.bind().is_ok() {
            self.kernels.unload();
        }
        // SAFETY: retained by `open`, released only here.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

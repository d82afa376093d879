//! One module of kernels, compiled by the driver from the PTX that is part of this library.

use std::ffi::{CString, c_uint, c_void};
use std::fmt::Display;
use std::ptr;
use std::time::Instant;

use cudarc::driver::{result, sys};
use windrow_kernels::{Entry, Module};

use super::probe::{Called, cuda_for_ptx, failed, loses_device, ptx_version};
use crate::error::DeviceError;

/// Bytes for each of the compiler's two logs.
const LOG_BYTES: usize = 16 << 10;
/// Shared memory of a block that needs no leave, in bytes.
const DEFAULT_SHARED_BYTES: u32 = 48 << 10;
/// A block with this much shared memory stages its operands there, past L1.
const PIPELINE_SHARED_BYTES: u32 = 16 << 10;

/// A loaded module. Unloaded by [`Loaded::unload`], not by `Drop`: that needs the context.
#[derive(Debug)]
pub(super) struct Loaded {
    handle: sys::CUmodule,
    /// Of each of the entries that it was loaded with; none for those whose blocks are too large for this GPU.
    pub(super) functions: Vec<Option<sys::CUfunction>>,
    /// Time that the driver took, compiling or finding it in its cache.
    pub(super) milliseconds: f64,
}

// SAFETY: the driver's handles may be used from any thread on which the context is current.
unsafe impl Send for Loaded {}
// SAFETY: as above; nothing is changed after `load`.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// Compiles a module for the device of the current context and finds the functions of `entries`.
    pub(super) fn load(
        source: &Module,
        entries: &[&'static Entry],
        driver: (u32, u32),
    ) -> Result<Self, DeviceError> {
        let text = source.text().map_err(|error| broken(&error))?;
        needed_cuda(&text, driver)?;
        let started = Instant::now();
        let handle = compile(text)?;
        let mut loaded = Self { handle, functions: Vec::with_capacity(entries.len()), milliseconds: 0.0 };
        for entry in entries {
            match find_function(handle, entry) {
                Ok(function) => loaded.functions.push(function),
                Err(error) => {
                    loaded.unload();
                    return Err(error);
                }
            }
        }
        loaded.milliseconds = started.elapsed().as_secs_f64() * 1e3;
        Ok(loaded)
    }

    /// Unloads the module; its functions are invalid from now on. The context is current.
    pub(super) fn unload(self) {
        // SAFETY: loaded by `compile`, and unloaded once: `self` is gone after this.
        // A failure leaves nothing to do: the context is about to go, or has failed before.
        let _ = unsafe { result::module::unload(self.handle) };
    }
}

/// The entry's function with its attributes set; none if blocks have less shared memory on this GPU.
fn find_function(module: sys::CUmodule, entry: &Entry) -> Result<Option<sys::CUfunction>, DeviceError> {
    let missing = DeviceError::MissingEntry { name: entry.name };
    let Ok(name) = CString::new(entry.name) else { return Err(missing) };
    // SAFETY: the module is loaded.
    let found = unsafe { result::module::get_function(module, name) };
    let function = found.map_err(|error| match loses_device(error.0) {
        true => failed("cuModuleGetFunction", error),
        false => missing,
    })?;
    if entry.shared_bytes > DEFAULT_SHARED_BYTES {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(entry.shared_bytes).unwrap_or(i32::MAX);
        // SAFETY: the function was found in a module that is loaded.
        match unsafe { result::function::set_function_attribute(function, attribute, bytes) } {
            Err(error) if loses_device(error.0) => return Err(failed("cuFuncSetAttribute", error)),
            Err(_) => return Ok(None), // there are entries that do with less
            Ok(()) => {}
        }
    }
    if entry.shared_bytes >= PIPELINE_SHARED_BYTES {
        // Without it the driver may leave so much to L1 that fewer blocks are resident than the
        // occupancy query promised, and the evenly dealt work runs in two waves.
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        let percent = 100;
        // SAFETY: the function was found in a module that is loaded.
        unsafe { result::function::set_function_attribute(function, attribute, percent) }
            .called("cuFuncSetAttribute")?;
    }
    Ok(Some(function))
}

/// The CUDA version that a driver needs to read this PTX.
///
/// # Errors
/// [`DeviceError::DriverTooOld`] if `driver` has an older one; [`DeviceError::Jit`] if the text does not say.
pub(super) fn needed_cuda(ptx: &str, driver: (u32, u32)) -> Result<(u32, u32), DeviceError> {
    let version = ptx_version(ptx).ok_or_else(|| broken(&"no .version line"))?;
    let needs = cuda_for_ptx(version);
    if driver < needs {
        return Err(DeviceError::DriverTooOld { has: driver, needs, ptx: version });
    }
    Ok(needs)
}

/// The error for PTX in this library that cannot be what `build-ptx` wrote.
pub(super) fn broken(why: &dyn Display) -> DeviceError {
    let log = "the embedded PTX is empty or broken; rebuild it with `cargo xtask build-ptx`".to_owned();
    DeviceError::Jit { code: why.to_string(), log }
}

/// Compiles, with the compiler's log in the error.
fn compile(ptx: String) -> Result<sys::CUmodule, DeviceError> {
    let image = CString::new(ptx).map_err(|_| broken(&"zero byte in the PTX"))?;
    let mut info = vec![0u8; LOG_BYTES];
    let mut error = vec![0u8; LOG_BYTES];
    const OPTIONS: c_uint = 4;
    let mut options: [sys::CUjit_option; OPTIONS as usize] = [
        sys::CUjit_option::CU_JIT_INFO_LOG_BUFFER,
        sys::CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    // Sizes are passed in the pointer's own bits.
    let size = ptr::without_provenance_mut::<c_void>(LOG_BYTES);
    let mut values = [info.as_mut_ptr().cast(), size, error.as_mut_ptr().cast(), size];
    let mut module: sys::CUmodule = ptr::null_mut();
    // SAFETY: a context is current; the image ends in a zero byte; options and values are `OPTIONS` each, the
    // logs as long as told, and all of them live to the end of the call.
    let code = unsafe {
        sys::cuModuleLoadDataEx(
            &raw mut module,
            image.as_ptr().cast(),
            OPTIONS,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    code.result().map(|()| module).map_err(|driver_error| {
        if loses_device(driver_error.0) {
            return failed("cuModuleLoadDataEx", driver_error); // the kernels are not what is wrong
        }
        let name = driver_error.error_name().map_or("unknown error".into(), |name| name.to_string_lossy());
        let log = [text(&error), text(&info)].join("\n");
        DeviceError::Jit { code: name.into_owned(), log: log.trim().to_owned() }
    })
}

/// A log up to its first zero byte.
fn text(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).into_owned()
}

//! The kernels, compiled by the driver from the PTX that is part of this library.

use std::collections::HashMap;
use std::ffi::{CString, c_uint, c_void};
use std::ptr;

use cudarc::driver::{result, sys};
use windrow_kernels::{ENTRIES, Entry, MODULES};

use super::probe::{Called, cuda_for_ptx, ptx_version};
use crate::error::DeviceError;

/// Bytes for each of the compiler's two logs.
const LOG_BYTES: usize = 16 << 10;
/// Shared memory of a block that needs no leave, in bytes.
const DEFAULT_SHARED_BYTES: u32 = 48 << 10;
/// A block with this much shared memory stages its operands there, past L1.
const PIPELINE_SHARED_BYTES: u32 = 16 << 10;

/// A loaded module and its functions. Unloaded by [`Module::unload`], not by `Drop`: that needs the context.
pub(super) struct Module {
    handle: sys::CUmodule,
    overlaps_launches: bool,
    functions: HashMap<&'static str, sys::CUfunction>,
}

impl Module {
    /// Compiles the newest PTX that the device of the current context, of that compute capability, runs.
    pub(super) fn load(capability: (u32, u32), driver: (u32, u32)) -> Result<Self, DeviceError> {
        let sm = 10 * capability.0 + capability.1;
        let newest = MODULES.iter().rev().find(|module| module.sm <= sm);
        let broken = || DeviceError::Jit {
            code: "no .version line".to_owned(),
            log: "the embedded PTX is empty or broken; rebuild it with `cargo xtask build-ptx`".to_owned(),
        };
        let source = newest.ok_or_else(broken)?;
        let version = ptx_version(source.ptx).ok_or_else(broken)?;
        let needs = cuda_for_ptx(version);
        if driver < needs {
            return Err(DeviceError::DriverTooOld { has: driver, needs, ptx: version });
        }
        let mut module = Self {
            handle: compile(source.ptx)?,
            overlaps_launches: source.sm >= 90,
            functions: HashMap::with_capacity(ENTRIES.len()),
        };
        if let Err(error) = module.find_functions(source.sm) {
            module.unload();
            return Err(error);
        }
        Ok(module)
    }

    /// Finds the functions of the module compiled for compute capability `sm` on, as `10·major + minor`.
    fn find_functions(&mut self, sm: u32) -> Result<(), DeviceError> {
        for entry in ENTRIES.iter().filter(|entry| entry.min_sm <= sm) {
            let missing = |_| DeviceError::MissingEntry { name: entry.name };
            let name =
                CString::new(entry.name).map_err(|_| DeviceError::MissingEntry { name: entry.name })?;
            // SAFETY: the module is loaded.
            let function = unsafe { result::module::get_function(self.handle, name) }.map_err(missing)?;
            if entry.shared_bytes > DEFAULT_SHARED_BYTES {
                let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                let bytes = i32::try_from(entry.shared_bytes).unwrap_or(i32::MAX);
                // SAFETY: the function was found in a module that is loaded.
                let set = unsafe { result::function::set_function_attribute(function, attribute, bytes) };
                if set.is_err() {
                    continue; // blocks have less on this GPU; there are entries that do with it
                }
            }
            if entry.shared_bytes >= PIPELINE_SHARED_BYTES {
                // Without it the driver may leave so much to L1 that fewer blocks are resident than the
                // occupancy query promised, and the evenly dealt work runs in two waves.
                let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
                let percent = 100;
                // SAFETY: as above.
                unsafe { result::function::set_function_attribute(function, attribute, percent) }
                    .called("cuFuncSetAttribute")?;
            }
            self.functions.insert(entry.name, function);
        }
        Ok(())
    }

    pub(super) fn function(&self, entry: &Entry) -> Result<sys::CUfunction, DeviceError> {
        self.functions.get(entry.name).copied().ok_or(DeviceError::MissingEntry { name: entry.name })
    }

    /// Whether every entry waits by itself for the launch before it, so that the host may let the two overlap.
    pub(super) fn overlaps_launches(&self) -> bool {
        self.overlaps_launches
    }

    /// Unloads the module; its functions are invalid from now on. The context is current.
    pub(super) fn unload(&mut self) {
        self.functions.clear();
        // SAFETY: loaded by `compile` and unloaded once: the machine that owns it calls this when dropped.
        // A failure leaves nothing to do: the context is about to go.
        let _ = unsafe { result::module::unload(self.handle) };
    }
}

/// Compiles, with the compiler's log in the error.
fn compile(ptx: &str) -> Result<sys::CUmodule, DeviceError> {
    let image = CString::new(ptx).map_err(|_| DeviceError::Jit {
        code: "zero byte in the PTX".to_owned(),
        log: "the embedded PTX is broken; rebuild it with `cargo xtask build-ptx`".to_owned(),
    })?;
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

//! Is there a driver, and does it suffice? Nothing here panics on a machine without one.

use std::ffi::c_int;
use std::sync::OnceLock;

use cudarc::driver::{DriverError, result, sys};

use crate::error::DeviceError;

/// The driver's error as ours.
pub(super) fn failed(call: &'static str, error: DriverError) -> DeviceError {
    let text = |found: Result<&std::ffi::CStr, DriverError>| {
        found.map_or_else(|_| format!("error {}", error.0 as u32), |text| text.to_string_lossy().into_owned())
    };
    let (name, message) = (text(error.error_name()), text(error.error_string()));
    match loses_device(error.0) {
        true => DeviceError::Lost { call, name, message },
        false => DeviceError::Driver { call, name, message },
    }
}

/// Whether an error leaves the process without the device, by what the driver's documentation says of it ("the process
/// must be terminated and relaunched").
pub(super) fn loses_device(code: sys::CUresult) -> bool {
    use sys::CUresult as Code;
    matches!(
        code,
        Code::CUDA_ERROR_ILLEGAL_ADDRESS
            | Code::CUDA_ERROR_LAUNCH_TIMEOUT
            | Code::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | Code::CUDA_ERROR_ASSERT
            | Code::CUDA_ERROR_HARDWARE_STACK_ERROR
            | Code::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | Code::CUDA_ERROR_MISALIGNED_ADDRESS
            | Code::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | Code::CUDA_ERROR_INVALID_PC
            | Code::CUDA_ERROR_LAUNCH_FAILED
            | Code::CUDA_ERROR_EXTERNAL_DEVICE
            | Code::CUDA_ERROR_ECC_UNCORRECTABLE
            | Code::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | Code::CUDA_ERROR_MPS_CLIENT_TERMINATED
    )
}

/// `map_err` with the name of the call.
pub(super) trait Called<T> {
    fn called(self, call: &'static str) -> Result<T, DeviceError>;
}

impl<T> Called<T> for Result<T, DriverError> {
    fn called(self, call: &'static str) -> Result<T, DeviceError> {
        self.map_err(|error| failed(call, error))
    }
}

/// Loads and starts the driver, once per process. cudarc panics where the library is missing, so this comes
/// before any other call of it.
pub(super) fn start() -> Result<(), DeviceError> {
    static STARTED: OnceLock<Result<(), DeviceError>> = OnceLock::new();
    STARTED
        .get_or_init(|| {
            // SAFETY: loads and unloads the driver library, whose initialisers are meant for that.
            if !unsafe { sys::is_culib_present() } {
                return Err(DeviceError::NoDriver);
            }
            match result::init() {
                // The stub comes with the toolkit and stands in for a driver when linking.
                Err(DriverError(sys::CUresult::CUDA_ERROR_STUB_LIBRARY)) => Err(DeviceError::NoDriver),
                Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => {
                    Err(DeviceError::NoSuchDevice { index: 0, count: 0 })
                }
                other => other.called("cuInit"),
            }
        })
        .clone()
}

/// How many devices the driver reports; 0 without a driver.
pub(in super::super) fn count() -> Result<u32, DeviceError> {
    match start() {
        Err(DeviceError::NoDriver | DeviceError::NoSuchDevice { .. }) => Ok(0),
        Err(other) => Err(other),
        Ok(()) => Ok(unsigned(result::device::get_count().called("cuDeviceGetCount")?)),
    }
}

/// CUDA version of the driver; `None` without a driver.
pub(in super::super) fn driver_version() -> Result<Option<(u32, u32)>, DeviceError> {
    match start() {
        Err(DeviceError::NoDriver) => return Ok(None),
        Err(DeviceError::NoSuchDevice { .. }) | Ok(()) => {}
        Err(other) => return Err(other),
    }
    let mut version: c_int = 0;
    // SAFETY: the driver is loaded; the pointer is to a live integer.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().called("cuDriverGetVersion")?;
    let version = unsigned(version);
    Ok(Some((version / 1000, version % 1000 / 10)))
}

/// Counts and sizes that the driver returns as signed integers.
pub(super) fn unsigned(x: c_int) -> u32 {
    u32::try_from(x).unwrap_or(0)
}

/// The `.version` of a PTX text.
pub(super) fn ptx_version(ptx: &str) -> Option<(u32, u32)> {
    let version = ptx.lines().find_map(|line| line.trim().strip_prefix(".version"))?;
    let (major, minor) = version.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The first CUDA version whose driver reads a PTX version, from the table of release notes in the PTX ISA.
/// A version newer than the table is taken to need a CUDA as new as the last row at least.
pub(super) fn cuda_for_ptx(ptx: (u32, u32)) -> (u32, u32) {
    match ptx {
        (..=6, _) => (10, 2),
        (7, minor) => (11, minor.min(8)),
        (8, minor @ ..=5) => (12, minor),
        (8, 6) => (12, 7),
        (8, 7) => (12, 8),
        (8, _) => (12, 9),
        (9, minor) => (13, minor),
        (major, _) => (major + 4, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_ptx_is_read_off_its_header() {
        assert_eq!(ptx_version("//\n// made by\n.version 7.0\n.target sm_80\n"), Some((7, 0)));
        assert_eq!(ptx_version(".version 8.4"), Some((8, 4)));
        assert_eq!(ptx_version(".target sm_80"), None);
    }

    #[test]
    fn ptx_versions_map_to_cuda_versions() {
        // Rows of the PTX ISA's table of releases.
        for (ptx, cuda) in [
            ((7, 0), (11, 0)),
            ((7, 8), (11, 8)),
            ((8, 0), (12, 0)),
            ((8, 4), (12, 4)),
            ((8, 6), (12, 7)),
            ((8, 8), (12, 9)),
            ((9, 0), (13, 0)),
        ] {
            assert_eq!(cuda_for_ptx(ptx), cuda, "PTX {ptx:?}");
        }
    }

    #[test]
    fn errors_that_end_the_process_s_work_say_so() {
        // Without a driver there are no texts to ask for.
        if matches!(start(), Err(DeviceError::NoDriver)) {
            for (code, lost) in [
                (sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, true),
                (sys::CUresult::CUDA_ERROR_LAUNCH_FAILED, true),
                (sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY, false),
                (sys::CUresult::CUDA_ERROR_INVALID_VALUE, false),
                (sys::CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, false),
            ] {
                assert_eq!(loses_device(code), lost, "{code:?}");
            }
            return;
        }
        let error = failed("a test", DriverError(sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        assert!(matches!(error, DeviceError::Lost { .. }), "{error}");
        let error = failed("a test", DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE));
        assert!(matches!(error, DeviceError::Driver { .. }), "{error}");
    }

    #[test]
    fn probing_never_panics() {
        assert!(count().is_ok() || matches!(start(), Err(DeviceError::Driver { .. })));
        assert_eq!(
            driver_version().unwrap_or(None).is_some(),
            !matches!(start(), Err(DeviceError::NoDriver))
        );
    }
}

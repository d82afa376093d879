//! Devices, which live as long as the process.

use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use windrow::{Device, DeviceKind, DeviceSelector, Stream};

use crate::error::Outcome;
use crate::outside::outside;

/// Devices that were opened. They are never closed: views of borrowed memory refer to them.
static OPEN: Mutex<Vec<&'static Device>> = Mutex::new(Vec::new());

/// The device of this name.
pub(crate) fn open(selector: DeviceSelector) -> Outcome<&'static Device> {
    let device = selector.open()?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = open.iter().find(|known| known.is_same(&device)) {
        return Ok(device);
    }
    let device: &'static Device = Box::leak(Box::new(device));
    open.push(device);
    Ok(device)
}

/// The caller's stream on a GPU, by its handle; the device's own if there is none.
///
/// # Safety
/// The handle is that of a stream of the device that lives until the work asked of it is done, or 0.
pub(crate) unsafe fn stream_of(device: &Device, handle: Option<usize>) -> Outcome<Stream> {
    match handle {
        Some(handle) if device.kind() == DeviceKind::Cuda => {
            // SAFETY: the caller's promise.
            Ok(unsafe { Stream::from_raw(device, with_exposed_provenance_mut::<c_void>(handle))? })
        }
        _ => Ok(device.stream()),
    }
}

/// Where plans are made and run: `Device("cuda:0")`, `Device("cpu")`, or `Device("best")`, a GPU if there is one.
#[pyclass(frozen, name = "Device", module = "windrow")]
pub(crate) struct PyDevice(pub(crate) &'static Device);

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (name = "best"))]
    fn new(py: Python<'_>, name: &str) -> PyResult<Self> {
        outside(py, || open(name.parse()?)).map(Self)
    }

    #[staticmethod]
    fn cpu(py: Python<'_>) -> PyResult<Self> {
        outside(py, || open(DeviceSelector::Cpu)).map(Self)
    }

    #[staticmethod]
    #[pyo3(signature = (index = 0))]
    fn cuda(py: Python<'_>, index: u32) -> PyResult<Self> {
        outside(py, || open(DeviceSelector::Cuda(index))).map(Self)
    }

    #[staticmethod]
    fn best(py: Python<'_>) -> PyResult<Self> {
        outside(py, || open(DeviceSelector::Best)).map(Self)
    }

    fn __repr__(&self) -> String {
        format!("windrow.Device({:?})", self.0.selector())
    }
}

//! Devices, which live as long as the process.

use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use windrow::{Device, DeviceKind, DeviceSelector, Stream};

use crate::error::{Class, Fault, Outcome};
use crate::outside::{is_forked, outside};

/// Devices that were opened. They are never closed: views of borrowed memory refer to them.
static OPEN: Mutex<Vec<&'static Device>> = Mutex::new(Vec::new());

/// The device of this name.
pub(crate) fn open(selector: DeviceSelector) -> Outcome<&'static Device> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) =
        open.iter().find(|known| known.kind() == DeviceKind::Cuda && selector != DeviceSelector::Cpu)
    {
        // The driver would tell the child nothing but that it is not initialised.
        live(known)?;
    }
    let device = selector.open()?;
    if let Some(device) = open.iter().find(|known| known.is_same(&device)) {
        return Ok(device);
    }
    let device: &'static Device = Box::leak(Box::new(device));
    open.push(device);
    Ok(device)
}

/// That the device can be used in this process.
pub(crate) fn live(device: &Device) -> Outcome<()> {
    if is_forked() && device.kind() == DeviceKind::Cuda {
        let text = "this process was forked after CUDA was used, which does not survive that; start workers with \
                    multiprocessing.set_start_method(\"spawn\"), or use the CPU in them";
        return Err(Fault::new(Class::Device, text));
    }
    Ok(())
}

/// The caller's stream on a GPU, by its handle; the device's own if there is none.
///
/// # Safety
/// The handle is that of a stream of the device that lives until the work asked of it is done, or 0.
unsafe fn stream_of(device: &Device, handle: Option<usize>) -> Outcome<Stream> {
    live(device)?;
    match handle {
        Some(handle) if device.kind() == DeviceKind::Cuda => {
            // SAFETY: the caller's promise.
            Ok(unsafe { Stream::from_raw(device, with_exposed_provenance_mut::<c_void>(handle))? })
        }
        _ => Ok(device.stream()),
    }
}

/// Does `work` on the caller's stream, or on the device's own, without the interpreter's lock.
///
/// # Safety
/// That of [`stream_of`].
pub(crate) unsafe fn on_stream<T: Send>(
    py: Python<'_>,
    device: &'static Device,
    handle: Option<usize>,
    work: impl FnOnce(&Stream) -> Outcome<T> + Send,
) -> PyResult<T> {
    outside(py, || {
        // SAFETY: the caller's promise.
        let on = unsafe { stream_of(device, handle)? };
        work(&on)
    })
}

/// Where plans are made and run.
///
/// `Device("cuda:0")`, `Device("cpu")`, or `Device("best")`: the first GPU if there is one, else the CPU.
///
/// >>> windrow.Device("cpu")
/// windrow.Device('cpu')
#[pyclass(frozen, eq, hash, name = "Device", module = "windrow")]
#[derive(Clone)]
pub(crate) struct PyDevice(pub(crate) &'static Device);

impl PartialEq for PyDevice {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl std::hash::Hash for PyDevice {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.selector().hash(state);
    }
}

/// What is given as a device: one, its name, or nothing, for the default.
#[derive(Clone, Copy)]
pub(crate) struct Where(pub(crate) &'static Device);

impl FromPyObject<'_, '_> for Where {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(device) = object.cast::<PyDevice>() {
            return Ok(Self(device.get().0));
        }
        let name: String = object.extract()?;
        outside(object.py(), || open(name.parse()?)).map(Self)
    }
}

static DEFAULT: Mutex<Option<&'static Device>> = Mutex::new(None);

/// The device that was given, else the default one.
pub(crate) fn given_or_default(py: Python<'_>, given: Option<Where>) -> PyResult<&'static Device> {
    let device = given.map(|given| given.0).or(*DEFAULT.lock().unwrap_or_else(PoisonError::into_inner));
    device.map_or_else(|| outside(py, || open(DeviceSelector::Best)), Ok)
}

/// The device where plans are made for which none is named; sets it, if one is given.
///
/// Until it is set, it is the first GPU if there is one, else the CPU.
#[pyfunction]
#[pyo3(signature = (device = None))]
pub(crate) fn default_device(py: Python<'_>, device: Option<Where>) -> PyResult<PyDevice> {
    if let Some(Where(device)) = device {
        *DEFAULT.lock().unwrap_or_else(PoisonError::into_inner) = Some(device);
    }
    given_or_default(py, None).map(PyDevice)
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (name = "best"))]
    fn new(py: Python<'_>, name: &str) -> PyResult<Self> {
        outside(py, || open(name.parse()?)).map(Self)
    }

    /// The CPU, with as many threads as there are cores.
    #[staticmethod]
    fn cpu(py: Python<'_>) -> PyResult<Self> {
        outside(py, || open(DeviceSelector::Cpu)).map(Self)
    }

    /// The GPU with this number, as `CUDA_VISIBLE_DEVICES` leaves them.
    #[staticmethod]
    #[pyo3(signature = (index = 0))]
    fn cuda(py: Python<'_>, index: u32) -> PyResult<Self> {
        outside(py, || open(DeviceSelector::Cuda(index))).map(Self)
    }

    /// The first GPU if there is one, else the CPU.
    #[staticmethod]
    fn best(py: Python<'_>) -> PyResult<Self> {
        outside(py, || open(DeviceSelector::Best)).map(Self)
    }

    /// How many GPUs the driver reports; 0 without a driver.
    #[staticmethod]
    fn cuda_count(py: Python<'_>) -> PyResult<u32> {
        outside(py, Device::cuda_count)
    }

    /// Model of the GPU or of the processor.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// What it is called, such as "cuda:0".
    #[getter]
    fn selector(&self) -> &str {
        self.0.selector()
    }

    /// Compute capability of a GPU, major and minor.
    #[getter]
    fn compute_capability(&self) -> Option<(u32, u32)> {
        self.0.compute_capability()
    }

    /// Bytes of memory of a GPU.
    #[getter]
    fn memory_total(&self) -> Option<u64> {
        self.0.memory_total()
    }

    /// Waits until everything asked of the device's own stream is done.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        outside(py, || live(self.0).and_then(|()| Ok(self.0.synchronize()?)))
    }

    /// The handle of the device's own stream, for other libraries; none on the CPU.
    #[getter]
    fn stream(&self) -> Option<usize> {
        self.0.stream().raw().map(|stream| stream.expose_provenance())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.get_type().into_any(), (slf.get().0.selector().to_owned(),)))
    }

    fn __str__(&self) -> &str {
        self.0.selector()
    }

    fn __repr__(&self) -> String {
        format!("windrow.Device('{}')", self.0.selector())
    }
}

//! Arrays by the interfaces of other libraries.

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use windrow::DeviceSelector;

use super::{Array, Place, told};
use crate::device::{on_stream, open};
use crate::dlpack::{self, CPU, CUDA, CUDA_HOST, CUDA_MANAGED};
use crate::dtype::Dtype;
use crate::error::{Class, beyond_memory};
use crate::matrix::PyArray;
use crate::numpy::{Item, numpy};

impl<'py> Array<'py> {
    /// An array of any library: windrow's own, numpy's and what has its interface, what has DLPack's, CUDA's array
    /// interface, and at last whatever numpy makes an array of. What is written to device memory by the owner's stream
    /// so far is there for work of the stream `on`, or of the device's own.
    pub(crate) fn of(what: &'static str, object: &Bound<'py, PyAny>, on: Option<usize>) -> PyResult<Self> {
        if let Ok(own) = object.cast::<PyArray>() {
            return Ok(own.get().array(what, object)?);
        }
        if let Some(interface) = object.getattr_opt("__array_interface__")? {
            return Self::of_interface(what, object, &interface.cast_into()?, Place::Host);
        }
        if let Some(place) = object.getattr_opt("__dlpack_device__")? {
            let (kind, index): (i32, i32) = place.call0()?.extract()?;
            match kind {
                CPU | CUDA_HOST => return Self::of_dlpack(what, object, Place::Host, None),
                CUDA | CUDA_MANAGED => {
                    let index = u32::try_from(index).map_err(|_| told(Class::Device, "a device below 0"))?;
                    let device = open(DeviceSelector::Cuda(index))?;
                    return Self::of_dlpack(what, object, Place::Device(device), on);
                }
                _ => {
                    let text =
                        format!("{what} is on a device that windrow does not know (type {kind} of DLPack)");
                    return Err(told(
                        Class::Device,
                        format!("{text}; copy it to the host or to a CUDA device"),
                    ));
                }
            }
        }
        if let Some(interface) = object.getattr_opt("__cuda_array_interface__")? {
            return Self::of_cuda_interface(what, object, &interface.cast_into()?);
        }
        let made = numpy(object.py())?.call_method1("asarray", (object,))?;
        let interface = made.getattr("__array_interface__")?.cast_into()?;
        let array = Self::of_interface(what, &made, &interface, Place::Host).map_err(|error| {
            let (name, of) = (object.get_type().name(), made.getattr("dtype"));
            let (Ok(name), Ok(of)) = (name, of) else { return error };
            let text = format!("{what} is a {name}, of which numpy makes elements of type {of}");
            told(Class::Dtype, format!("{text}; give an array of numbers"))
        })?;
        // What is written there is lost.
        Ok(Self { read_only: true, ..array })
    }

    /// An array in host memory.
    pub(crate) fn host(what: &'static str, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::of(what, object, None)?.on_host()
    }

    /// The array, if it is in host memory.
    pub(crate) fn on_host(self) -> PyResult<Self> {
        match self.place {
            Place::Host => Ok(self),
            Place::Device(device) => {
                let text = format!("{} is on {device} but must be in host memory; copy it there", self.what);
                Err(told(Class::Device, text))
            }
        }
    }

    fn of_interface(
        what: &'static str,
        object: &Bound<'py, PyAny>,
        interface: &Bound<'py, PyDict>,
        place: Place,
    ) -> PyResult<Self> {
        let field = |name: &str| -> PyResult<Bound<'py, PyAny>> { interface.as_any().get_item(name) };
        let typestr: String = field("typestr")?.extract()?;
        let item = match Item::of_typestr(&typestr) {
            Some(item) => item,
            // ml_dtypes has no letter for it.
            None if typestr == "<V2" && of_name(object, "bfloat16") => Item::Value(Dtype::Bf16),
            None => {
                let remedy = match typestr.contains('c') {
                    true => format!("there are no complex numbers: multiply by {what}.real and {what}.imag"),
                    false => format!("convert it with {what}.astype(numpy.float32)"),
                };
                return Err(told(
                    Class::Dtype,
                    format!("{what} holds elements of type {typestr:?}; {remedy}"),
                ));
            }
        };
        let (address, read_only) = field("data")?.extract()?;
        let shape: Vec<usize> = field("shape")?.extract()?;
        let strides = match interface.get_item("strides")? {
            Some(strides) if !strides.is_none() => {
                let bytes = strides.extract::<Vec<isize>>()?;
                let size = item.bytes();
                match bytes.iter().all(|stride| stride % size == 0) {
                    true => bytes.iter().map(|stride| stride / size).collect(),
                    false => return Self::copied(what, object, place),
                }
            }
            _ => packed(&shape),
        };
        let (owner, object) = (object.clone(), object.clone());
        let array = Self { what, place, address, shape, strides, item, read_only, owner, object };
        match array.is_aligned() {
            true => Ok(array),
            false => Self::copied(what, &array.object, place),
        }
    }

    /// What lies between the elements of others is copied out of there.
    pub(super) fn copied(what: &'static str, object: &Bound<'py, PyAny>, place: Place) -> PyResult<Self> {
        if let Place::Device(_) = place {
            let text =
                format!("{what} has elements at addresses that are no multiple of their size; copy it");
            return Err(told(Class::Shape, text));
        }
        let made = numpy(object.py())?.call_method1("array", (object,)).map_err(|error| {
            beyond_memory(object.py(), error, &format!("a copy of {what}"), "fewer columns at a time")
        })?;
        let interface = made.getattr("__array_interface__")?.cast_into()?;
        let copy = Self::of_interface(what, &made, &interface, place)?;
        // What is written to a copy is lost.
        Ok(Self { read_only: true, ..copy })
    }

    fn of_cuda_interface(
        what: &'static str,
        object: &Bound<'py, PyAny>,
        interface: &Bound<'py, PyDict>,
    ) -> PyResult<Self> {
        // The interface does not say which device; CuPy's arrays do.
        let of_owner = object.getattr_opt("device")?.and_then(|device| device.getattr("id").ok());
        let index = of_owner.and_then(|id| id.extract().ok()).unwrap_or(0);
        let device = open(DeviceSelector::Cuda(index))?;
        if let Some(stream) = interface.get_item("stream")?.filter(|stream| !stream.is_none()) {
            let handle = stream.extract::<usize>()?;
            // SAFETY: the interface promises that it is a stream that lives as long as the array.
            unsafe { on_stream(object.py(), device, Some(handle), |on| Ok(on.synchronize()?))? };
        }
        Self::of_interface(what, object, interface, Place::Device(device))
    }

    fn of_dlpack(
        what: &'static str,
        object: &Bound<'py, PyAny>,
        place: Place,
        on: Option<usize>,
    ) -> PyResult<Self> {
        let py = object.py();
        let keywords = match place {
            Place::Host => None,
            Place::Device(device) => {
                let own = device.stream().raw().map_or(0, |stream| stream.expose_provenance());
                let keywords = PyDict::new(py);
                // There 0 is ambiguous, and the legacy default stream is 1.
                keywords.set_item("stream", on.unwrap_or(own).max(1))?;
                Some(keywords)
            }
        };
        let capsule = object.call_method("__dlpack__", (), keywords.as_ref()).map_err(|error| {
            if !error.is_instance_of::<PyBufferError>(py) {
                return error;
            }
            let text = format!("{what} does not lend its elements: {}", error.value(py));
            let told =
                told(Class::Dtype, format!("{text}; products that have gradients are windrow.torch's"));
            told.set_cause(py, Some(error));
            told
        })?;
        let dlpack::Described { address, shape, strides, item } = dlpack::describe(what, &capsule)?;
        let strides = strides.unwrap_or_else(|| packed(&shape));
        // The capsule was not consumed: it frees the tensor when it goes.
        Ok(Self {
            what,
            place,
            address,
            shape,
            strides,
            item,
            read_only: false,
            owner: capsule,
            object: object.clone(),
        })
    }

    fn is_aligned(&self) -> bool {
        self.address.is_multiple_of(self.item.bytes().unsigned_abs() as u64)
    }
}

fn of_name(object: &Bound<'_, PyAny>, name: &str) -> bool {
    let found = object.getattr("dtype").and_then(|dtype| dtype.getattr("name")?.extract::<String>());
    found.is_ok_and(|found| found == name)
}

fn packed(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at].cast_signed();
    }
    strides
}

//! Arrays of other libraries: where they are, what they hold, and who keeps them.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::slice::{from_raw_parts, from_raw_parts_mut};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use windrow::{
    Device, DeviceSelector, DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut, MatRef, Value,
};

use crate::device::{live, open};
use crate::dlpack::{self, CPU, CUDA, CUDA_HOST, CUDA_MANAGED};
use crate::dtype::Dtype;
use crate::error::{Class, Fault, Outcome, dtype, shape};
use crate::matrix::PyArray;
use crate::numpy::{Item, numpy};

/// Where an array is.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Host,
    Device(&'static Device),
}

/// An array, kept by a reference to who owns it.
pub(crate) struct Array<'py> {
    /// What it is called in messages.
    what: &'static str,
    pub(crate) place: Place,
    pub(crate) address: u64,
    pub(crate) shape: Vec<usize>,
    /// Elements from one to the next.
    strides: Vec<isize>,
    pub(crate) item: Item,
    read_only: bool,
    /// Who keeps the memory allocated.
    pub(crate) owner: Bound<'py, PyAny>,
    /// What the caller gave for it.
    pub(crate) object: Bound<'py, PyAny>,
}

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
        Self::of_interface(what, &made, &interface, Place::Host)
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
                let text = format!("{what} holds elements of type {typestr:?}");
                return Err(told(
                    Class::Dtype,
                    format!("{text}; convert it with {what}.astype(numpy.float32)"),
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
    fn copied(what: &'static str, object: &Bound<'py, PyAny>, place: Place) -> PyResult<Self> {
        if let Place::Device(_) = place {
            let text =
                format!("{what} has elements at addresses that are no multiple of their size; copy it");
            return Err(told(Class::Shape, text));
        }
        let made = numpy(object.py())?.call_method1("array", (object,))?;
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
            crate::outside::outside(object.py(), || unsafe {
                Ok::<_, Fault>(crate::device::stream_of(device, Some(handle))?.synchronize()?)
            })?;
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
        let capsule = object.call_method("__dlpack__", (), keywords.as_ref())?;
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

    /// An array of which everything is known.
    pub(crate) fn known(
        what: &'static str,
        owner: &Bound<'py, PyAny>,
        place: Place,
        address: u64,
        (shape, strides): ([usize; 2], [isize; 2]),
        of: Dtype,
    ) -> Self {
        let (shape, strides, item) = (shape.to_vec(), strides.to_vec(), Item::Value(of));
        Self {
            what,
            place,
            address,
            shape,
            strides,
            item,
            read_only: false,
            owner: owner.clone(),
            object: owner.clone(),
        }
    }

    /// The first column alone.
    pub(crate) fn into_vector(mut self) -> Self {
        self.shape.truncate(1);
        self.strides.truncate(1);
        self
    }

    fn is_aligned(&self) -> bool {
        self.address.is_multiple_of(self.item.bytes().unsigned_abs() as u64)
    }

    /// The type of values; whole numbers are none.
    pub(crate) fn dtype(&self) -> Outcome<Dtype> {
        match self.item {
            Item::Value(of) => Ok(of),
            other => dtype(format!(
                "{0} holds {other}, which are no values of a matrix; convert it with {0}.astype(numpy.float32)",
                self.what
            )),
        }
    }

    /// The elements, of type `T`.
    pub(crate) fn check_type(&self, of: Dtype) -> Outcome<()> {
        match self.dtype()? == of {
            true => Ok(()),
            false => dtype(format!("{} holds {} but must hold {}", self.what, self.item, of.name())),
        }
    }

    /// Elements of a one-dimensional array.
    pub(crate) fn len(&self) -> Outcome<usize> {
        match self.shape[..] {
            [len] => Ok(len),
            _ => shape(format!("{} has {} dimensions but must have one", self.what, self.shape.len())),
        }
    }

    /// Whether it is a single column that was given as a vector.
    pub(crate) fn is_vector(&self) -> bool {
        self.shape.len() == 1
    }

    /// Shape and strides as a matrix; a vector is a column.
    pub(crate) fn matrix(&self) -> Outcome<((usize, usize), (isize, isize))> {
        match (&self.shape[..], &self.strides[..]) {
            (&[rows, cols], &[down, across]) => Ok(((rows, cols), (down, across))),
            (&[rows], &[down]) => Ok(((rows, 1), (down, 1))),
            _ => shape(format!("{} has {} dimensions but must have one or two", self.what, self.shape.len())),
        }
    }

    /// The array with strides that views of matrices can have: backward ones and repeated elements are copied.
    pub(crate) fn forward(self) -> PyResult<Self> {
        let odd = |(&extent, &stride): (&usize, &isize)| extent > 1 && stride <= 0;
        match self.place {
            Place::Host if self.shape.iter().zip(&self.strides).any(odd) => {
                let Self { what, place, object, .. } = self;
                Self::copied(what, &object, place)
            }
            _ => Ok(self),
        }
    }

    /// Elements from the first to the last: those between are there, too.
    fn span(&self) -> usize {
        let last = |(&extent, &stride): (&usize, &isize)| (extent - 1) * stride.unsigned_abs();
        match self.shape.contains(&0) {
            true => 0,
            false => 1 + self.shape.iter().zip(&self.strides).map(last).sum::<usize>(),
        }
    }

    /// The elements where they are, in host memory, those between rows, too.
    ///
    /// # Safety
    /// The array is in host memory and [goes forward](Self::forward), holds elements of type `T`, and nothing writes
    /// them for as long as they are used: other threads of Python are trusted not to, as with numpy's own functions.
    pub(crate) unsafe fn elements<T>(&self) -> &[T] {
        let (len, address) = (self.span(), at(self.address));
        // SAFETY: the owner has promised that they are there as long as it lives, and it is kept.
        if len == 0 { &[] } else { unsafe { from_raw_parts(with_exposed_provenance(address), len) } }
    }

    /// The elements, to be written.
    ///
    /// # Safety
    /// As for [`elements`](Self::elements), and nothing else uses them.
    pub(crate) unsafe fn elements_mut<T>(&mut self) -> &mut [T] {
        let (len, address) = (self.span(), at(self.address));
        if len == 0 {
            &mut []
        } else {
            // SAFETY: as above.
            unsafe { from_raw_parts_mut(with_exposed_provenance_mut(address), len) }
        }
    }

    /// The matrix in host memory.
    ///
    /// # Safety
    /// As for [`elements`](Self::elements).
    pub(crate) unsafe fn mat_ref<T>(&self) -> Outcome<MatRef<'_, T>> {
        let (shape, strides) = self.matrix()?;
        // SAFETY: the caller's promise.
        Ok(MatRef::try_new(unsafe { self.elements() }, shape, strides)?)
    }

    /// A copy of a one-dimensional array of type `T` in host memory.
    pub(crate) fn to_vec<T: Copy>(&self) -> Outcome<Vec<T>> {
        let len = self.len()?;
        // SAFETY: who asks has looked at type and place.
        let elements = unsafe { self.elements::<T>() };
        let stride = self.strides[0].unsigned_abs().max(1);
        Ok(elements.iter().step_by(stride).take(len).copied().collect())
    }

    /// A copy of a one-dimensional array of whole numbers of any type, in host memory.
    pub(crate) fn whole_numbers<T>(&self) -> Outcome<Vec<T>>
    where
        T: TryFrom<i8> + TryFrom<i16> + TryFrom<i32> + TryFrom<i64>,
        T: TryFrom<u8> + TryFrom<u16> + TryFrom<u32> + TryFrom<u64>,
    {
        match self.item {
            // An empty list is one of numbers of f64 to numpy.
            _ if self.len()? == 0 => Ok(Vec::new()),
            Item::I8 => self.converted::<i8, T>(),
            Item::I16 => self.converted::<i16, T>(),
            Item::I32 => self.converted::<i32, T>(),
            Item::I64 => self.converted::<i64, T>(),
            Item::U8 => self.converted::<u8, T>(),
            Item::U16 => self.converted::<u16, T>(),
            Item::U32 => self.converted::<u32, T>(),
            Item::U64 => self.converted::<u64, T>(),
            Item::Value(_) | Item::Bool => dtype(format!(
                "{0} holds {1} but must hold whole numbers; convert it with {0}.astype(numpy.int64)",
                self.what, self.item
            )),
        }
    }

    fn converted<S: Copy + std::fmt::Display, T: TryFrom<S>>(&self) -> Outcome<Vec<T>> {
        let given = self.to_vec::<S>()?;
        let converted = given.iter().enumerate().map(|(at, &number)| {
            T::try_from(number).map_err(|_| {
                let text =
                    format!("{}[{at}] is {number}, which is no index: they are counted from 0", self.what);
                Fault::new(Class::Format, text)
            })
        });
        converted.collect()
    }

    /// That the array may be written.
    pub(crate) fn check_writable(&self) -> Outcome<()> {
        match self.read_only {
            true => shape(format!("{} cannot be written in place; give an array that can", self.what)),
            false => Ok(()),
        }
    }

    /// The length of a one-dimensional array of consecutive elements in host memory.
    pub(crate) fn consecutive_on_host(&self) -> Outcome<usize> {
        match (self.len()?, self.strides[0]) {
            (len, stride) if stride == 1 || len <= 1 => Ok(len),
            _ => shape(format!("{} is not contiguous; give an array that is", self.what)),
        }
    }

    /// Shape and elements from row to row, of rows of consecutive elements.
    pub(crate) fn rows(&self) -> Outcome<((usize, usize), usize)> {
        let ((rows, cols), (down, across)) = self.matrix()?;
        let ld = match usize::try_from(down) {
            _ if rows <= 1 => Some(cols),
            Ok(down) if down >= cols => Some(down),
            _ => None,
        };
        match ld {
            Some(ld) if across == 1 || cols <= 1 => Ok(((rows, cols), ld)),
            _ => shape(format!(
                "{} is {rows} × {cols} with {down} elements from row to row and {across} from column to column; its \
                 rows must be consecutive elements: copy it to such an array",
                self.what
            )),
        }
    }

    /// The matrix as an operand on a device.
    ///
    /// # Safety
    /// That of [`DeviceView::from_raw`], for the owner's promises.
    pub(crate) unsafe fn view<T: Value>(&self, device: &'static Device) -> Outcome<DeviceView<'_, T>> {
        self.check_place(device)?;
        let ((rows, cols), ld) = self.rows()?;
        // SAFETY: the caller's promise.
        Ok(unsafe { DeviceView::from_raw(device, self.address, rows, cols, ld)? })
    }

    /// The matrix as a result on a device.
    ///
    /// # Safety
    /// That of [`DeviceViewMut::from_raw`].
    pub(crate) unsafe fn view_mut<T: Value>(
        &mut self,
        device: &'static Device,
    ) -> Outcome<DeviceViewMut<'_, T>> {
        self.check_place(device)?;
        self.check_writable()?;
        let ((rows, cols), ld) = self.rows()?;
        // SAFETY: the caller's promise.
        Ok(unsafe { DeviceViewMut::from_raw(device, self.address, rows, cols, ld)? })
    }

    /// A one-dimensional array of consecutive elements as an operand on a device.
    ///
    /// # Safety
    /// That of [`DeviceSlice::from_raw`].
    pub(crate) unsafe fn slice<T: Value>(&self, device: &'static Device) -> Outcome<DeviceSlice<'_, T>> {
        let len = self.consecutive(device)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { DeviceSlice::from_raw(device, self.address, len)? })
    }

    /// A one-dimensional array of consecutive elements as a result on a device.
    ///
    /// # Safety
    /// That of [`DeviceSliceMut::from_raw`].
    pub(crate) unsafe fn slice_mut<T: Value>(
        &mut self,
        device: &'static Device,
    ) -> Outcome<DeviceSliceMut<'_, T>> {
        self.check_writable()?;
        let len = self.consecutive(device)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { DeviceSliceMut::from_raw(device, self.address, len)? })
    }

    /// The length of a one-dimensional array of consecutive elements on a device.
    pub(crate) fn consecutive(&self, device: &'static Device) -> Outcome<usize> {
        self.check_place(device)?;
        match (self.len()?, self.strides[0]) {
            (len, stride) if stride == 1 || len <= 1 => Ok(len),
            (_, stride) => shape(format!(
                "{} has {stride} elements from one to the next; copy it to consecutive elements",
                self.what
            )),
        }
    }

    /// That this array and a result in host memory have no bytes in common.
    pub(crate) fn check_apart(&self, result: &Self) -> Outcome<()> {
        let bytes = |of: &Self| {
            let size = of.item.bytes().unsigned_abs() as u64;
            of.address..of.address + of.span() as u64 * size
        };
        let (own, of_result) = (bytes(self), bytes(result));
        match own.start < of_result.end && of_result.start < own.end {
            true => shape(format!("{} overlaps {}; give it memory of its own", result.what, self.what)),
            false => Ok(()),
        }
    }

    /// Whether it is windrow's own.
    pub(crate) fn is_own(&self) -> bool {
        self.owner.cast::<PyArray>().is_ok()
    }

    fn check_place(&self, device: &'static Device) -> Outcome<()> {
        live(device)?;
        match self.place {
            Place::Device(place) if place.is_same(device) => Ok(()),
            Place::Host if device.kind() == windrow::DeviceKind::Cpu => Ok(()),
            Place::Device(place) => Err(self.elsewhere(place, device)),
            Place::Host => Err(self.elsewhere(&"the host", device)),
        }
    }

    fn elsewhere(&self, place: &dyn std::fmt::Display, device: &Device) -> Fault {
        let text = format!("{} is on {place} but must be on {device}; copy it there", self.what);
        Fault::new(Class::Device, text)
    }
}

/// What was not to be, as an exception.
pub(crate) fn told(class: Class, text: impl Into<String>) -> PyErr {
    Fault::new(class, text).into()
}

fn of_name(object: &Bound<'_, PyAny>, name: &str) -> bool {
    let found = object.getattr("dtype").and_then(|dtype| dtype.getattr("name")?.extract::<String>());
    found.is_ok_and(|found| found == name)
}

#[expect(clippy::cast_possible_truncation, reason = "addresses are 64 bits wherever CUDA is")]
fn at(address: u64) -> usize {
    address as usize
}

fn packed(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at].cast_signed();
    }
    strides
}

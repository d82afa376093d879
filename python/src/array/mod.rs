//! Arrays of other libraries: where they are, what they hold, and who keeps them.

mod elements;
mod import;
mod views;

use pyo3::prelude::*;
use windrow::Device;

use crate::device::live;
use crate::dtype::Dtype;
use crate::error::{Class, Fault, Outcome, dtype, shape};
use crate::matrix::PyArray;
use crate::numpy::Item;

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
            false => {
                dtype(format!("{} holds {} but must hold {}; convert it", self.what, self.item, of.name()))
            }
        }
    }

    /// Elements of a one-dimensional array.
    pub(crate) fn len(&self) -> Outcome<usize> {
        match self.shape[..] {
            [len] => Ok(len),
            _ => shape(format!(
                "{0} has {1} dimensions but must have one; give {0}.ravel()",
                self.what,
                self.shape.len()
            )),
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
            _ => shape(format!(
                "{} has {} dimensions but must have one or two; give a matrix, or a vector",
                self.what,
                self.shape.len()
            )),
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

    /// That the array may be written.
    pub(crate) fn check_writable(&self) -> Outcome<()> {
        match self.read_only {
            true => shape(format!(
                "{} cannot be written in place; give an array that can, such as one of numpy.zeros",
                self.what
            )),
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

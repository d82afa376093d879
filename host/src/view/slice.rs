//! Arrays of one dimension: values, a bias.

use std::fmt;
use std::ops::Range;

use bytemuck::Pod;
use windrow_formats::memory::{try_copy, try_zeroed};

use super::{Pitched, Place, PlaceMut, borrowed};
use crate::device::{Device, DeviceBuffer};
use crate::error::{DeviceError, PlanError};
use crate::num::wide;

/// Elements one after the other in the memory of a [`Device`], which may be read: of a [`DeviceBuffer`], or of memory
/// that another library has allocated.
pub struct DeviceSlice<'a, T: Pod> {
    device: &'a Device,
    place: Place<'a, T>,
    len: usize,
    pub(super) owned: bool,
}

/// Elements one after the other in the memory of a [`Device`], which may be written: [`DeviceSlice`] otherwise.
pub struct DeviceSliceMut<'a, T: Pod> {
    device: &'a Device,
    place: PlaceMut<'a, T>,
    len: usize,
    pub(super) owned: bool,
}

impl<'a, T: Pod> DeviceSlice<'a, T> {
    /// `len` elements at `address`: a `CUdeviceptr` of memory in the device's primary context, or an ordinary address
    /// on the CPU.
    ///
    /// # Errors
    /// [`PlanError::Misaligned`], [`PlanError::NotDeviceMemory`], [`PlanError::BeyondMemory`], as of
    /// [`DeviceView::from_raw`](super::DeviceView::from_raw).
    ///
    /// # Safety
    /// As for [`DeviceView::from_raw`](super::DeviceView::from_raw).
    pub unsafe fn from_raw(device: &'a Device, address: u64, len: usize) -> Result<Self, PlanError> {
        borrowed::check::<T>(device, address, len, len)?;
        // SAFETY: the caller's promise, of memory that was just checked.
        let place = unsafe { borrowed::place(device, address, len) };
        Ok(Self { device, place, len, owned: false })
    }

    /// What a matrix has from its first element to its last.
    pub(super) fn of_span(device: &'a Device, place: Place<'a, T>, len: usize, owned: bool) -> Self {
        Self { device, place, len, owned }
    }

    /// Number of elements, not bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first element.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.place.address()
    }

    /// The device whose memory it is.
    #[must_use]
    pub fn device(&self) -> &'a Device {
        self.device
    }

    /// The elements with these numbers; none if there are not so many.
    #[must_use]
    pub fn get(self, range: Range<usize>) -> Option<Self> {
        let len = range.end.checked_sub(range.start).filter(|_| range.end <= self.len)?;
        let place = match self.place {
            Place::Host(elements) => Place::Host(elements.get(range)?),
            Place::Device(address) => Place::Device(address + wide(range.start * size_of::<T>())),
        };
        Some(Self { place, len, ..self })
    }

    /// Whether it is windrow's memory, which the device's own stream uses, too.
    pub(crate) fn is_owned(&self) -> bool {
        self.owned
    }

    pub(crate) fn bytes(&self) -> Pitched {
        Pitched::row::<T>(self.address(), self.len)
    }

    /// The elements, if they are in host memory.
    pub(crate) fn host(&self) -> Option<&'a [T]> {
        match self.place {
            Place::Host(elements) => Some(elements),
            Place::Device(_) => None,
        }
    }

    /// The same elements, seen as those of another type of the same size and alignment.
    pub(crate) fn cast<U: Pod>(self) -> DeviceSlice<'a, U> {
        const { assert!(size_of::<T>() == size_of::<U>() && align_of::<T>() == align_of::<U>()) };
        let Self { device, place, len, owned } = self;
        let place = match place {
            Place::Host(elements) => Place::Host(bytemuck::cast_slice(elements)),
            Place::Device(address) => Place::Device(address),
        };
        DeviceSlice { device, place, len, owned }
    }

    /// Where they are, and whether it is windrow's memory.
    pub(super) fn parts(self) -> (&'a Device, Place<'a, T>, bool) {
        (self.device, self.place, self.owned)
    }

    /// A copy on the host, after all work that the device's own stream was asked for.
    pub(crate) fn to_host(self) -> Result<Vec<T>, DeviceError> {
        let what = "a copy of what a device holds";
        let (Place::Device(address), Some(machine)) = (self.place, self.device.machine()) else {
            return Ok(try_copy(self.host().unwrap_or_default(), what)?);
        };
        let mut elements = try_zeroed(self.len, what)?;
        if self.len > 0 {
            // SAFETY: the slice was promised that there are so many elements, which nothing writes that is not
            // ordered with the work of the stream.
            unsafe { machine.download(address, bytemuck::cast_slice_mut(&mut elements))? };
        }
        Ok(elements)
    }
}

impl<'a, T: Pod> DeviceSliceMut<'a, T> {
    /// [`DeviceSlice::from_raw`] of elements that may be written.
    ///
    /// # Errors
    /// Those of [`DeviceSlice::from_raw`].
    ///
    /// # Safety
    /// As for [`DeviceSlice::from_raw`]; and nothing else uses the elements that is not ordered with the work.
    pub unsafe fn from_raw(device: &'a Device, address: u64, len: usize) -> Result<Self, PlanError> {
        borrowed::check::<T>(device, address, len, len)?;
        // SAFETY: the caller's promise, of memory that was just checked.
        let place = unsafe { borrowed::place_mut(device, address, len) };
        Ok(Self { device, place, len, owned: false })
    }

    /// Number of elements, not bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first element.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.place.read_only().address()
    }

    /// The device whose memory it is.
    #[must_use]
    pub fn device(&self) -> &'a Device {
        self.device
    }

    /// The elements, if they are in host memory.
    pub(crate) fn into_host(self) -> Option<&'a mut [T]> {
        match self.place {
            PlaceMut::Host(elements) => Some(elements),
            PlaceMut::Device(_) => None,
        }
    }

    /// The same elements, read only.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { device: self.device, place: self.place.read_only(), len: self.len, owned: self.owned }
    }
}

impl<T: Pod> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Pod> Copy for DeviceSlice<'_, T> {}

impl<'a, T: Pod> From<&'a DeviceBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        Self { device: buffer.device(), place: Place::of(buffer), len: buffer.len(), owned: true }
    }
}

impl<'a, T: Pod> From<&'a mut DeviceBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        let len = buffer.len();
        let (device, place) = PlaceMut::of(buffer);
        Self { device, place, len, owned: true }
    }
}

impl<'a, T: Pod> From<&'a DeviceSlice<'_, T>> for DeviceSlice<'a, T> {
    fn from(slice: &'a DeviceSlice<'_, T>) -> Self {
        *slice
    }
}

impl<'a, T: Pod> From<&'a mut DeviceSliceMut<'_, T>> for DeviceSliceMut<'a, T> {
    fn from(slice: &'a mut DeviceSliceMut<'_, T>) -> Self {
        Self { device: slice.device, place: slice.place.reborrow(), len: slice.len, owned: slice.owned }
    }
}

impl<T: Pod> DeviceBuffer<T> {
    /// The elements, for calls that take memory of any origin.
    #[must_use]
    pub fn view(&self) -> DeviceSlice<'_, T> {
        self.into()
    }

    /// The elements, for calls that write memory of any origin.
    #[must_use]
    pub fn view_mut(&mut self) -> DeviceSliceMut<'_, T> {
        self.into()
    }
}

impl<T: Pod> fmt::Debug for DeviceSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSlice({} elements at {:#x} on {})", self.len, self.address(), self.device)
    }
}

impl<T: Pod> fmt::Debug for DeviceSliceMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSliceMut({} elements at {:#x} on {})", self.len, self.address(), self.device)
    }
}

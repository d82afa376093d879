//! Offsets and columns of 32 or 64 bits.

use std::ops::Range;

use windrow_formats::OutOfMemory;
use windrow_formats::memory::try_collect;

use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::view::DeviceSlice;

mod sealed {
    pub trait Index: bytemuck::Pod {
        fn into_indices(slice: crate::DeviceSlice<'_, Self>) -> super::DeviceIndices<'_>;
    }
}

/// A type of offsets and columns: i32, u32, i64 or u64. A negative number is one that is out of range.
pub trait Index: sealed::Index {}

/// Offsets or columns in the memory of a [`Device`]: made of a [`DeviceSlice`] or a [`DeviceBuffer`] of i32, u32, i64
/// or u64.
#[derive(Debug, Clone, Copy)]
pub struct DeviceIndices<'a>(Words<'a>);

/// Signed ones seen as unsigned: the negative ones are beyond all limits.
#[derive(Debug, Clone, Copy)]
enum Words<'a> {
    Narrow(DeviceSlice<'a, u32>),
    Wide(DeviceSlice<'a, u64>),
}

impl<'a> DeviceIndices<'a> {
    /// Number of elements, whatever their size.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Words::Narrow(slice) => slice.len(),
            Words::Wide(slice) => slice.len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device whose memory it is.
    #[must_use]
    pub fn device(&self) -> &'a Device {
        match self.0 {
            Words::Narrow(slice) => slice.device(),
            Words::Wide(slice) => slice.device(),
        }
    }

    /// Whether elements have 64 bits.
    pub(crate) fn is_wide(&self) -> bool {
        matches!(self.0, Words::Wide(_))
    }

    pub(crate) fn address(&self) -> u64 {
        match self.0 {
            Words::Narrow(slice) => slice.address(),
            Words::Wide(slice) => slice.address(),
        }
    }
}

macro_rules! indices {
    ($($index:ty => $words:ident;)+) => { $(
        impl sealed::Index for $index {
            fn into_indices(slice: DeviceSlice<'_, Self>) -> DeviceIndices<'_> {
                DeviceIndices(Words::$words(slice.cast()))
            }
        }
        impl Index for $index {}
    )+ };
}
indices! { i32 => Narrow; u32 => Narrow; i64 => Wide; u64 => Wide; }

impl<'a, I: Index> From<DeviceSlice<'a, I>> for DeviceIndices<'a> {
    fn from(slice: DeviceSlice<'a, I>) -> Self {
        I::into_indices(slice)
    }
}

impl<'a, I: Index> From<&'a DeviceBuffer<I>> for DeviceIndices<'a> {
    fn from(buffer: &'a DeviceBuffer<I>) -> Self {
        I::into_indices(buffer.into())
    }
}

impl DeviceIndices<'_> {
    /// The elements with these numbers; none if there are not so many.
    pub(crate) fn get(self, range: Range<usize>) -> Option<Self> {
        Some(Self(match self.0 {
            Words::Narrow(slice) => Words::Narrow(slice.get(range)?),
            Words::Wide(slice) => Words::Wide(slice.get(range)?),
        }))
    }

    /// The elements on the host, after all work that the device's own stream was asked for.
    pub(crate) fn to_host(self) -> Result<Vec<u64>, DeviceError> {
        fn widened(narrow: Vec<u32>) -> Result<Vec<u64>, OutOfMemory> {
            try_collect(narrow.into_iter().map(u64::from), "indices")
        }
        Ok(match self.0 {
            Words::Narrow(slice) => widened(slice.to_host()?)?,
            Words::Wide(slice) => slice.to_host()?,
        })
    }
}

/// Indices of somebody else's, or windrow's own.
pub(crate) enum HeldIndices<'a> {
    Borrowed(DeviceIndices<'a>),
    Narrow(DeviceBuffer<u32>),
    Wide(DeviceBuffer<u64>),
}

impl HeldIndices<'_> {
    pub(crate) fn view(&self) -> DeviceIndices<'_> {
        match self {
            Self::Borrowed(indices) => *indices,
            Self::Narrow(buffer) => buffer.into(),
            Self::Wide(buffer) => buffer.into(),
        }
    }
}

impl<'a> From<DeviceIndices<'a>> for HeldIndices<'a> {
    fn from(indices: DeviceIndices<'a>) -> Self {
        Self::Borrowed(indices)
    }
}

impl From<DeviceBuffer<u32>> for HeldIndices<'_> {
    fn from(buffer: DeviceBuffer<u32>) -> Self {
        Self::Narrow(buffer)
    }
}

impl From<DeviceBuffer<u64>> for HeldIndices<'_> {
    fn from(buffer: DeviceBuffer<u64>) -> Self {
        Self::Wide(buffer)
    }
}

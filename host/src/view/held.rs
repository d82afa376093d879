//! Elements of somebody else's, or windrow's own.

use bytemuck::Pod;

use super::DeviceSlice;
use crate::device::DeviceBuffer;

/// Elements in the memory of a device that a matrix, weights or a tensor are made of.
pub(crate) enum Held<'a, T: Pod> {
    Borrowed(DeviceSlice<'a, T>),
    Owned(DeviceBuffer<T>),
}

impl<T: Pod> Held<'_, T> {
    pub(crate) fn slice(&self) -> DeviceSlice<'_, T> {
        match self {
            Self::Borrowed(slice) => *slice,
            Self::Owned(buffer) => buffer.into(),
        }
    }
}

impl<'a, T: Pod> From<DeviceSlice<'a, T>> for Held<'a, T> {
    fn from(slice: DeviceSlice<'a, T>) -> Self {
        Self::Borrowed(slice)
    }
}

impl<T: Pod> From<DeviceBuffer<T>> for Held<'_, T> {
    fn from(buffer: DeviceBuffer<T>) -> Self {
        Self::Owned(buffer)
    }
}

//! Where the elements of a view are.

use bytemuck::Pod;

use crate::device::{Device, DeviceBuffer};
use crate::num::wide;

/// Where elements are that are read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'a, T> {
    Host(&'a [T]),
    Device(u64),
}

impl<'a, T: Pod> Place<'a, T> {
    pub(super) fn of(buffer: &'a DeviceBuffer<T>) -> Self {
        match buffer.device().machine() {
            Some(_) => Self::Device(buffer.address()),
            None => Self::Host(buffer.host().unwrap_or_default()),
        }
    }

    pub(super) fn address(&self) -> u64 {
        match self {
            Self::Host(elements) => wide(elements.as_ptr().addr()),
            Self::Device(address) => *address,
        }
    }
}

/// Where elements are that are written.
#[derive(Debug)]
pub(super) enum PlaceMut<'a, T> {
    Host(&'a mut [T]),
    Device(u64),
}

impl<'a, T: Pod> PlaceMut<'a, T> {
    pub(super) fn of(buffer: &'a mut DeviceBuffer<T>) -> (&'a Device, Self) {
        let address = buffer.address();
        let (device, elements) = buffer.parts_mut();
        (device, elements.map_or(Self::Device(address), Self::Host))
    }

    pub(super) fn reborrow(&mut self) -> PlaceMut<'_, T> {
        match self {
            Self::Host(elements) => PlaceMut::Host(elements),
            Self::Device(address) => PlaceMut::Device(*address),
        }
    }

    pub(super) fn read_only(&self) -> Place<'_, T> {
        match self {
            Self::Host(elements) => Place::Host(elements),
            Self::Device(address) => Place::Device(*address),
        }
    }
}

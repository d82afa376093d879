//! Memory that the runs of a plan share.

use bytemuck::Pod;
use windrow_simt::GlobalPtr;

use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;

/// Device memory that grows with what runs need, and stays.
///
/// Whoever queues work that uses it holds a lock until all of that work is queued: a machine's work is ordered, so no
/// run sees what another leaves. Memory is freed after the work that uses it.
pub(super) struct Workspace<T: Pod> {
    device: Device,
    name: &'static str,
    buffer: DeviceBuffer<T>,
}

impl<T: Pod> Workspace<T> {
    /// With room for `len` elements.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn new(device: &Device, name: &'static str, len: usize) -> Result<Self, DeviceError> {
        let buffer = DeviceBuffer::alloc(device, len, name)?;
        Ok(Self { device: device.clone(), name, buffer })
    }

    /// At least `len` elements of any content.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Driver`].
    pub(super) fn reserve(&mut self, len: usize) -> Result<&DeviceBuffer<T>, DeviceError> {
        if self.buffer.len() < len {
            self.buffer = DeviceBuffer::alloc(&self.device, 0, self.name)?; // both may not fit
            self.buffer = DeviceBuffer::alloc(&self.device, len, self.name)?;
        }
        Ok(&self.buffer)
    }

    /// What was reserved last.
    pub(super) fn pointer(&self) -> GlobalPtr<T> {
        self.buffer.pointer()
    }
}

//! The stream that a model's work is queued in.

use bytemuck::Pod;
use windrow::{
    Device, DeviceBuffer, DeviceMatrix, DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut, Stream, Value,
};

use super::Result;

/// A stream, and whether it is the only one that uses the model's matrices.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) stream: Stream,
    lent: bool,
}

impl Lane {
    /// The device's own stream.
    pub(crate) fn own(device: &Device) -> Self {
        Self { stream: device.stream(), lent: false }
    }

    /// Another stream; windrow orders its work with that of the device's own, step for step.
    ///
    /// # Errors
    /// If the device refuses.
    pub(crate) fn beside(device: &Device) -> Result<Self> {
        Ok(Self { stream: Stream::new(device)?, lent: false })
    }

    /// Another stream, which can be captured: nothing is ordered with the device's own.
    ///
    /// # Errors
    /// If the device refuses.
    ///
    /// # Safety
    /// All that a model with it does is waited for before anything else uses its matrices, or they are dropped.
    pub(crate) unsafe fn alone(device: &Device) -> Result<Self> {
        Ok(Self { stream: Stream::new(device)?, lent: true })
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.lent
    }

    pub(crate) fn read<'a, T: Value>(&self, matrix: &'a DeviceMatrix<T>) -> DeviceView<'a, T> {
        // SAFETY: who made the lane promised it.
        if self.lent { unsafe { matrix.view().lent() } } else { matrix.view() }
    }

    pub(crate) fn write<'a, T: Value>(&self, matrix: &'a mut DeviceMatrix<T>) -> DeviceViewMut<'a, T> {
        // SAFETY: who made the lane promised it.
        if self.lent { unsafe { matrix.view_mut().lent() } } else { matrix.view_mut() }
    }

    pub(crate) fn read_array<'a, T: Pod>(&self, array: &'a DeviceBuffer<T>) -> DeviceSlice<'a, T> {
        // SAFETY: who made the lane promised it.
        if self.lent { unsafe { array.view().lent() } } else { array.view() }
    }

    pub(crate) fn write_array<'a, T: Pod>(&self, array: &'a mut DeviceBuffer<T>) -> DeviceSliceMut<'a, T> {
        // SAFETY: who made the lane promised it.
        if self.lent { unsafe { array.view_mut().lent() } } else { array.view_mut() }
    }
}

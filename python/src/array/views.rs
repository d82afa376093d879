//! Arrays on a device as operands and results of the library.

use windrow::{Device, DeviceSlice, DeviceSliceMut, DeviceView, DeviceViewMut, Value};

use super::Array;
use crate::error::Outcome;

impl Array<'_> {
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
}

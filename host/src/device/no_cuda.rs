//! What stands for NVIDIA GPUs in a library that was built without the feature `cuda`: there are none.

use super::machine::{Description, Machine};
use crate::error::DeviceError;

/// # Errors
/// [`DeviceError::NoDriver`]: without the feature, nothing looks for one.
pub(super) fn open(_index: u32) -> Result<(Description, Box<dyn Machine>), DeviceError> {
    Err(DeviceError::NoDriver)
}

pub(super) fn count() -> Result<u32, DeviceError> {
    Ok(0)
}

pub(super) fn driver_version() -> Result<Option<(u32, u32)>, DeviceError> {
    Ok(None)
}

/// A mark that nobody can set.
#[derive(Debug)]
pub(in crate::device) enum CudaEvent {}

impl CudaEvent {
    pub(in crate::device) fn elapsed_us(&self, _later: &Self) -> Result<f64, DeviceError> {
        match *self {}
    }
}

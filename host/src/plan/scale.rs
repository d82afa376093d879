//! Factors that the host knows, and factors that only the device does.

use windrow_simt::GlobalPtr;

use super::checks::{check_count, check_device};
use crate::device::Device;
use crate::error::PlanError;
use crate::view::{DeviceSlice, Pitched};

/// A factor of an operation: a number, or one element in the device's memory, which is read when the work is done and
/// not when it is queued. So a parameter that is learned need not come to the host, and a launch of a
/// [graph](crate::Stream#graphs) takes the number that it is by then. Both give the same bits.
///
/// # Examples
/// ```
/// use windrow::{Csr, Device, DeviceBuffer, RowSoftmax};
///
/// let (device, pattern) = (Device::best()?, Csr::from_dense(1, 2, &[1.0f32, 1.0])?);
/// let softmax = RowSoftmax::new(&pattern, &device)?;
/// let betas = DeviceBuffer::from_slice(&device, &[9.0f32, 0.0])?;
/// let mut p = DeviceBuffer::from_slice(&device, &[3.0f32, 4.0])?;
/// let beta = betas.view().get(1..2).ok_or("there are two")?;
/// softmax.forward_in_place_on(&device.stream(), beta, &mut p)?;
/// assert_eq!(p.to_vec()?, [0.5, 0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub enum Scale<'a> {
    /// A number of the host.
    Value(f32),
    /// An array of one number.
    At(DeviceSlice<'a, f32>),
}

impl From<f32> for Scale<'_> {
    fn from(value: f32) -> Self {
        Self::Value(value)
    }
}

impl<'a> From<DeviceSlice<'a, f32>> for Scale<'a> {
    fn from(at: DeviceSlice<'a, f32>) -> Self {
        Self::At(at)
    }
}

/// What errors call it.
pub(crate) const FACTOR: &str = "the factor";

impl Scale<'_> {
    /// # Errors
    /// [`PlanError::WrongDevice`] for an element elsewhere, [`PlanError::ValueCount`] unless it is one.
    pub(crate) fn check(self, device: &Device) -> Result<(), PlanError> {
        let Self::At(at) = self else { return Ok(()) };
        check_device(FACTOR, at.device(), device)?;
        check_count(FACTOR, at.len(), 1)
    }

    /// Whether an output has no byte in common with it.
    ///
    /// # Errors
    /// [`PlanError::Overlap`].
    pub(crate) fn check_apart(self, what: &'static str, output: Pitched) -> Result<(), PlanError> {
        match self {
            Self::Value(_) => Ok(()),
            Self::At(at) => output.check_apart(what, FACTOR, at.bytes()),
        }
    }

    /// Whether it is windrow's memory.
    pub(crate) fn is_owned(self) -> bool {
        matches!(self, Self::At(at) if at.is_owned())
    }

    /// The number, on the CPU.
    pub(crate) fn on_host(self) -> f32 {
        match self {
            Self::Value(value) => value,
            Self::At(at) => at.host().and_then(<[f32]>::first).copied().unwrap_or(1.0),
        }
    }

    /// What kernels take: a number, and where another factor is, or null.
    pub(crate) fn on_device(self) -> (f32, GlobalPtr<f32>) {
        match self {
            Self::Value(value) => (value, GlobalPtr::NULL),
            Self::At(at) => (1.0, GlobalPtr::from_address(at.address())),
        }
    }
}

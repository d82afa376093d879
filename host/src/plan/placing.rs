//! Values that are on the device already, put where a plan keeps them.

use windrow_kernels::Variant;
use windrow_kernels::place_values::{PlaceValues, PlaceValuesParams, Placing};
use windrow_simt::GlobalPtr;

use super::launch::start;
use crate::device::{DeviceBuffer, Machine};
use crate::error::DeviceError;
use crate::num::{narrow, wide};
use crate::options::Precision;

/// Where each of the values goes.
pub(crate) enum Index {
    /// To the place with its own number.
    InOrder,
    /// Place `i` takes value `index[i]`.
    Gather(DeviceBuffer<u32>),
    /// Value `i` goes to place `index[i]`.
    Scatter(DeviceBuffer<u32>),
}

impl Index {
    /// Queues the placing of `values`, rounded to `precision`, in `count` elements of `out`, or of `count` values where
    /// they are scattered. Values that are finite and not any more are counted in `overflowed`, unless that is null.
    ///
    /// # Safety
    /// `values` are live memory of the machine until the work is done, which nothing writes meanwhile, and so is `out`,
    /// which nothing else touches; the index was made for both, and they are freed after the work that is queued here.
    pub(crate) unsafe fn place(
        &self,
        machine: &dyn Machine,
        (precision, overflowed): (Precision, GlobalPtr<u32>),
        values: GlobalPtr<f32>,
        (out, count): (GlobalPtr<u32>, usize),
    ) -> Result<(), DeviceError> {
        let (placing, index) = match self {
            Self::InOrder => (Placing::InPlace, GlobalPtr::NULL),
            Self::Gather(index) => (Placing::Gather, index.pointer()),
            Self::Scatter(index) => (Placing::Scatter, index.pointer()),
        };
        let params = PlaceValuesParams {
            values,
            index,
            out,
            overflowed,
            count: narrow(count),
            placing: placing.code(),
            dtype: PlaceValues::code(precision.dtype()),
            reserved: 0,
        };
        let missing = DeviceError::MissingEntry { name: "place_values" };
        let entry = windrow_kernels::entry(Variant::PlaceValues).ok_or(missing)?;
        // SAFETY: the caller's promise is what the params ask for.
        unsafe { start(machine, entry, wide(count), 1, &params) }
    }
}

/// Copies f32 from one array of a device to another of the same length.
pub(crate) fn copy_on_device(
    machine: &dyn Machine,
    from: &DeviceBuffer<f32>,
    to: &mut DeviceBuffer<f32>,
) -> Result<(), DeviceError> {
    // f32 do not overflow in f32: nothing is counted.
    let rounding = (Precision::F32, GlobalPtr::NULL);
    let out = (to.pointer().cast(), from.len().min(to.len()));
    // SAFETY: both buffers have as many elements, are of one device, and free their memory after the work queued
    // before; `to` is borrowed for itself.
    unsafe { Index::InOrder.place(machine, rounding, from.pointer(), out) }
}

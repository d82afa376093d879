//! Values that are on the device already, put where a plan keeps them.

use windrow_kernels::Variant;
use windrow_kernels::place_values::{self, PlaceValuesParams, Placing};
use windrow_simt::GlobalPtr;

use super::launch::start;
use crate::device::{DeviceBuffer, Machine};
use crate::element::Real;
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
    /// Queues the placing of `values`, of the type of sums and rounded to `precision`, in `count` elements of `out`, or
    /// of `count` values where they are scattered. Values that are finite and not any more are counted in `overflowed`,
    /// unless that is null.
    ///
    /// # Safety
    /// `values` are live memory of the machine until the work is done, which nothing writes meanwhile, and so is `out`,
    /// which nothing else touches; the index was made for both, and they are freed after the work that is queued here.
    pub(crate) unsafe fn place(
        &self,
        machine: &dyn Machine,
        (precision, overflowed): (Precision, GlobalPtr<u32>),
        values: GlobalPtr<u32>,
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
            dtype: place_values::code(precision.dtype()),
            reserved: 0,
        };
        let value_bytes = precision.dtype().sum_bytes();
        let missing = DeviceError::MissingEntry { name: "place_values" };
        let entry = windrow_kernels::entry(Variant::PlaceValues { value_bytes }).ok_or(missing)?;
        // SAFETY: the caller's promise is what the params ask for.
        unsafe { start(machine, entry, wide(count), 1, &params) }
    }
}

/// Copies sums from one array of a device to another with room for as many.
pub(crate) fn copy_on_device<S: Real>(
    machine: &dyn Machine,
    from: &DeviceBuffer<S>,
    to: &mut DeviceBuffer<u8>,
) -> Result<(), DeviceError> {
    // Nothing overflows in its own type: nothing is counted.
    let rounding = (S::PRECISION, GlobalPtr::NULL);
    let out = (to.pointer().cast(), from.len().min(to.len() / size_of::<S>()));
    // SAFETY: both buffers have as many elements, are of one device, and free their memory after the work queued
    // before; `to` is borrowed for itself.
    unsafe { Index::InOrder.place(machine, rounding, from.pointer().cast(), out) }
}

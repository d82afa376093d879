//! Values that are on the device already, put where a plan keeps them.

use windrow_kernels::place_values::{self, PlaceValuesParams, Placing};
use windrow_kernels::{Dtype, Entry, Variant};
use windrow_simt::GlobalPtr;

use super::launch::start;
use crate::device::{DeviceBuffer, Queue};
use crate::element::Real;
use crate::error::DeviceError;
use crate::num::{narrow, wide};
use crate::options::Precision;

/// Where each of the values goes.
#[derive(Debug)]
pub(crate) enum Index {
    /// To the place with its own number.
    InOrder,
    /// Place `i` takes value `index[i]`.
    Gather(DeviceBuffer<u32>),
    /// Value `i` goes to place `index[i]`.
    Scatter(DeviceBuffer<u32>),
}

/// New values that are on the device, of the type of the sums.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewValues {
    pub(crate) first: GlobalPtr<u32>,
    pub(crate) count: usize,
}

/// New values of all entries, rounded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundedValues {
    pub(crate) first: GlobalPtr<u32>,
    pub(crate) dtype: Dtype,
}

/// What becomes of values on their way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounding {
    /// What they are rounded to.
    pub(crate) precision: Precision,
    /// Where those are counted that were finite and are not any more; null for nowhere.
    pub(crate) overflowed: GlobalPtr<u32>,
}

/// Where values are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) out: GlobalPtr<u32>,
    /// Elements, or values where they are scattered.
    pub(crate) count: usize,
}

/// The kernel that places values of the type that a precision sums in.
pub(crate) fn placing_entry(precision: Precision) -> Result<&'static Entry, DeviceError> {
    let value_bytes = precision.dtype().sum_bytes();
    let missing = DeviceError::MissingEntry { name: "place_values" };
    windrow_kernels::entry(Variant::PlaceValues { value_bytes }).ok_or(missing)
}

impl Index {
    /// Queues the placing of `values`, of the type of sums, in the target, rounded.
    ///
    /// # Safety
    /// `values` are live memory of the machine until the work is done, which nothing writes meanwhile, and so is the
    /// target, which nothing else touches; the index was made for both, and they are freed after the work that is
    /// queued here.
    pub(crate) unsafe fn place(
        &self,
        queue: &dyn Queue,
        Rounding { precision, overflowed }: Rounding,
        values: GlobalPtr<u32>,
        Target { out, count }: Target,
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
        // SAFETY: the caller's promise is what the params ask for.
        unsafe { start(queue, placing_entry(precision)?, wide(count), 1, &params) }
    }
}

/// Copies sums from one array of a device to another with room for as many.
///
/// # Safety
/// There are so many, in live memory of the queue's machine until the work is done, which nothing writes meanwhile;
/// nothing else touches `to`.
pub(crate) unsafe fn copy_on_device<S: Real>(
    queue: &dyn Queue,
    (from, count): (GlobalPtr<S>, usize),
    to: &DeviceBuffer<u8>,
) -> Result<(), DeviceError> {
    // Nothing overflows in its own type: nothing is counted.
    let rounding = Rounding { precision: S::PRECISION, overflowed: GlobalPtr::NULL };
    let count = count.min(to.len() / size_of::<S>());
    let target = Target { out: to.pointer().cast(), count };
    // SAFETY: both arrays have as many elements, by the caller's promise, and `to` frees its memory after the work
    // queued before.
    unsafe { Index::InOrder.place(queue, rounding, from.cast(), target) }
}

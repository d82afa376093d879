//! New values that are on the device already: where each belongs, and the launches that put it there.

use std::sync::Arc;

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_collect, try_filled};
use windrow_kernels::place_values::NOWHERE;
use windrow_simt::GlobalPtr;

use super::part::{PLACES, Part, Placement, ValueSlots};
use crate::device::{Device, DeviceBuffer, Queue};
use crate::error::{DeviceError, PlanError};
use crate::options::Precision;
use crate::plan::{Index, NewValues, RoundedValues, Rounding, Target};

/// Where a plan keeps each value, on the device.
pub(super) struct Places {
    /// All values in the order of the entries, rounded: for parts that were laid out on the device, which find their
    /// own there.
    rounded: Option<(Index, DeviceBuffer<u8>)>,
    /// One for each part; none for those that find their own.
    parts: Vec<Option<Index>>,
    /// How many of the values placed last were finite and are not any more.
    overflowed: DeviceBuffer<u32>,
}

impl Places {
    /// For values in the order of the entries, or where entry `e` takes value `order[e]`, of parts with these slots.
    ///
    /// # Errors
    /// [`PlanError::TooLarge`] for records with 2³² elements or more.
    pub(super) fn new(
        device: &Device,
        precision: Precision,
        slots: &[ValueSlots<'_>],
        nnz: usize,
        order: Option<&[u32]>,
    ) -> Result<Self, PlanError> {
        let gather =
            |index: &[u32]| Ok::<_, DeviceError>(Index::Gather(DeviceBuffer::named(device, index, PLACES)?));
        let in_order = || order.map_or(Ok(Index::InOrder), gather);
        let parts = slots.iter().map(|slots| match slots {
            ValueSlots::InOrder { .. } => Ok(Some(in_order()?)),
            ValueSlots::Gathered { sources, .. } => Ok(Some(match order {
                None => gather(sources)?,
                Some(order) => {
                    let values = sources.iter().map(|&entry| order[entry as usize]);
                    gather(&try_collect(values, PLACES)?)?
                }
            })),
            ValueSlots::Scattered { elements, places, .. } => {
                let (found, limit) = (*elements, u64::from(NOWHERE));
                if found > limit {
                    let (what, remedy) = ("elements of tile records", "replace the values from the host");
                    return Err(PlanError::TooLarge { what, found, limit, remedy });
                }
                let places = of_values(places(nnz, NOWHERE)?, order)?;
                Ok(Some(Index::Scatter(DeviceBuffer::named(device, &places, PLACES)?)))
            }
            ValueSlots::OnDevice => Ok(None),
        });
        let parts = parts.collect::<Result<_, PlanError>>()?;
        let finds_its_own = slots.iter().any(|slots| slots.placement() == Placement::OnDevice);
        let rounded = match finds_its_own {
            false => None,
            true => {
                let bytes = nnz * precision.bytes() as usize;
                Some((in_order()?, DeviceBuffer::alloc(device, bytes, PLACES)?))
            }
        };
        Ok(Self { rounded, parts, overflowed: DeviceBuffer::zeroed(device, 1, PLACES)? })
    }

    /// Queues the replacement of the values of `parts`, those that the places were made for, by `values`: one for
    /// each entry, in the order that the places were made for.
    ///
    /// # Safety
    /// `values` are live memory of the plan's device until the work is done, one of the sums' type for each entry,
    /// which nothing writes meanwhile.
    pub(super) unsafe fn place<'a>(
        &self,
        queue: &Arc<dyn Queue>,
        precision: Precision,
        parts: impl Iterator<Item = &'a dyn Part> + Clone,
        NewValues { first: values, count: nnz }: NewValues,
    ) -> Result<(), DeviceError> {
        self.overflowed.clear_in(&**queue)?;
        let mut overflowed = self.overflowed.pointer();
        if let Some((index, rounded)) = &self.rounded {
            let out = rounded.pointer().cast();
            // SAFETY: the caller's promise about the values; there is room for all of them in an array that only these
            // launches use.
            unsafe {
                index.place(
                    &**queue,
                    Rounding { precision, overflowed },
                    values,
                    Target { out, count: nnz },
                )?
            };
            for part in parts.clone() {
                // SAFETY: rounded values of all entries, freed after the work that is queued here.
                unsafe { part.replace_from(queue, RoundedValues { first: out, dtype: precision.dtype() })? };
            }
            overflowed = GlobalPtr::NULL; // all were counted
        }
        for (part, index) in parts.zip(&self.parts) {
            let Some(index) = index else { continue };
            let target = match part.value_slots() {
                ValueSlots::InOrder { out, count } => Target { out, count },
                ValueSlots::Gathered { out, sources } => Target { out, count: sources.len() },
                ValueSlots::Scattered { out, .. } => Target { out, count: nnz },
                ValueSlots::OnDevice => continue,
            };
            // SAFETY: the caller's promise about the values; the arrays are the plan's, which frees them after the
            // machine's work, and the index was made for them.
            unsafe { index.place(&**queue, Rounding { precision, overflowed }, values, target)? };
        }
        Ok(())
    }

    /// How many of the values placed last were finite and are not any more, after all work asked for before.
    pub(super) fn overflowed(&self) -> Result<u64, DeviceError> {
        Ok(self.overflowed.to_vec()?.first().copied().map_or(0, u64::from))
    }
}

/// The places of values from those of the entries, where entry `e` takes value `order[e]`.
fn of_values(places: Vec<u32>, order: Option<&[u32]>) -> Result<Vec<u32>, OutOfMemory> {
    let Some(order) = order else { return Ok(places) };
    let mut of_values = try_filled(places.len(), NOWHERE, PLACES)?;
    for (&value, &place) in order.iter().zip(&places) {
        of_values[value as usize] = place;
    }
    Ok(of_values)
}

#[cfg(all(test, feature = "emulator"))]
mod tests;

//! What is checked of memory that a caller lends.

use std::any::type_name;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::{Place, PlaceMut};
use crate::device::{Device, Lies};
use crate::error::{DeviceError, PlanError};
use crate::num::{index, wide};

/// How many of `most` elements of type `T` at `address` may be read, if it is `needed` ones at least: as far as the
/// driver tells, which on the CPU nobody does.
pub(super) fn check<T>(
    device: &Device,
    address: u64,
    needed: usize,
    most: usize,
) -> Result<usize, PlanError> {
    if needed == 0 {
        return Ok(0);
    }
    let bytes = wide(needed).saturating_mul(wide(size_of::<T>()));
    let refused =
        |found: String| PlanError::NotDeviceMemory { address, bytes, found, device: device.to_string() };
    if address == 0 {
        return Err(refused("null".to_owned()));
    }
    if !address.is_multiple_of(wide(align_of::<T>())) {
        return Err(PlanError::Misaligned { address, align: align_of::<T>(), element: type_name::<T>() });
    }
    let end = address.checked_add(bytes).ok_or_else(|| refused("the end of all memory".to_owned()))?;
    let Some(machine) = device.machine() else { return Ok(needed) };
    let until = |at| match machine.memory_at(at)? {
        Lies::Here { end } => Ok::<_, DeviceError>(Ok(end)),
        Lies::Elsewhere(found) => Ok(Err(found)),
    };
    let first_end = until(address)?.map_err(refused)?;
    let readable_end = match first_end < end {
        false => first_end,
        // Allocations may lie side by side, as in pools that grow.
        true => until(end - 1)?.map_err(|_| PlanError::BeyondMemory { address, bytes, end: first_end })?,
    };
    let readable = index(readable_end.saturating_sub(address)) / size_of::<T>();
    Ok(readable.clamp(needed, most.max(needed)))
}

/// Where `len` elements are that are read.
///
/// # Safety
/// On the CPU there are so many, initialised, at an address of exposed provenance that suits their alignment, and
/// nothing writes them meanwhile. Of no elements the address does not matter.
pub(super) unsafe fn place<'a, T>(device: &Device, address: u64, len: usize) -> Place<'a, T> {
    match device.machine() {
        Some(_) => Place::Device(address),
        None if len == 0 => Place::Host(&[]),
        // SAFETY: the caller's promise.
        None => Place::Host(unsafe { from_raw_parts(with_exposed_provenance(index(address)), len) }),
    }
}

/// Where `len` elements are that are written.
///
/// # Safety
/// As for [`place`], and nothing else uses them meanwhile.
pub(super) unsafe fn place_mut<'a, T>(device: &Device, address: u64, len: usize) -> PlaceMut<'a, T> {
    match device.machine() {
        Some(_) => PlaceMut::Device(address),
        None if len == 0 => PlaceMut::Host(&mut []),
        None => {
            let first = with_exposed_provenance_mut(index(address));
            // SAFETY: the caller's promise.
            PlaceMut::Host(unsafe { from_raw_parts_mut(first, len) })
        }
    }
}

//! What every plan checks: its memory before it is made, its operands before work is queued.

use crate::device::{Device, Machine};
use crate::error::{DeviceError, SpmmError};
use crate::spmm::ArraySize;

/// The machine of a plan that runs kernels.
pub(crate) fn machine_of(device: &Device) -> Result<&dyn Machine, SpmmError> {
    device.machine().ok_or_else(|| {
        let (operation, remedy) = ("run kernels", "a CUDA device");
        DeviceError::NotAvailable { device: device.to_string(), operation, remedy }.into()
    })
}

/// Whether an operand is where its plan is.
pub(crate) fn check_device(
    operand: &'static str,
    found: &Device,
    expected: &Device,
) -> Result<(), SpmmError> {
    if found.is_same(expected) {
        return Ok(());
    }
    Err(SpmmError::WrongDevice { operand, found: found.to_string(), expected: expected.to_string() })
}

/// Whether `operand` has one value for each of `expected` entries.
pub(crate) fn check_count(operand: &'static str, found: usize, expected: usize) -> Result<(), SpmmError> {
    if found == expected { Ok(()) } else { Err(SpmmError::ValueCount { operand, found, expected }) }
}

/// The bytes of all arrays together, if they are not beyond `limit`.
pub(crate) fn check_memory(sizes: &[ArraySize], limit: Option<u64>) -> Result<u64, SpmmError> {
    let needed = sizes.iter().map(|array| array.bytes).sum();
    match limit.filter(|&limit| needed > limit) {
        None => Ok(needed),
        Some(limit) => {
            let largest = sizes.iter().max_by_key(|array| array.bytes);
            let (largest, largest_bytes) = largest.map_or(("none", 0), |array| (array.name, array.bytes));
            Err(SpmmError::MemoryLimit { needed, limit, largest, largest_bytes })
        }
    }
}

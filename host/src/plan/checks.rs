//! What every plan checks: its memory before it is made, its operands before work is queued.

use windrow_formats::FormatError;

use super::report::ArraySize;
use crate::dense::DenseRef;
use crate::device::{Device, Machine, Queue, Stream};
use crate::element::{Element, Real};
use crate::error::{DeviceError, PlanError};
use crate::num::wide;
use crate::options::Precision;
use crate::view::DeviceSlice;

/// The machine of a plan that runs kernels.
pub(super) fn machine_of(device: &Device) -> Result<&dyn Machine, PlanError> {
    device.machine().ok_or_else(|| {
        let (operation, remedy) = ("run kernels", "a CUDA device");
        DeviceError::NotAvailable { device: device.to_string(), operation, remedy }.into()
    })
}

/// The own queue of the machine of a plan that runs kernels.
pub(crate) fn queue_of(device: &Device) -> Result<&dyn Queue, PlanError> {
    machine_of(device).map(|machine| &**machine.own())
}

/// Whether an operand is where its plan is.
pub(crate) fn check_device(
    operand: &'static str,
    found: &Device,
    expected: &Device,
) -> Result<(), PlanError> {
    if found.is_same(expected) {
        return Ok(());
    }
    Err(PlanError::WrongDevice { operand, found: found.to_string(), expected: expected.to_string() })
}

/// Whether elements are of the type that a plan of `precision` takes.
pub(crate) fn check_element<E: Element>(
    operand: &'static str,
    precision: Precision,
) -> Result<(), PlanError> {
    if E::NAME == precision.element() {
        return Ok(());
    }
    Err(PlanError::ElementType { operand, found: E::NAME, expected: precision })
}

/// Whether numbers are of the type in which a plan of `precision` sums.
fn check_sums<S: Real>(operand: &'static str, precision: Precision) -> Result<(), PlanError> {
    let expected = match precision {
        Precision::F64 => Precision::F64,
        Precision::F16 | Precision::Bf16 | Precision::F32 | Precision::Tf32 => Precision::F32,
    };
    if S::PRECISION == expected {
        return Ok(());
    }
    Err(PlanError::ElementType { operand, found: S::NAME, expected })
}

/// Whether values that are on a device may replace those of a plan there, for entries and a precision: one for each, in
/// the type of its sums.
pub(crate) fn check_new_values<S: Real>(
    on: &Stream,
    values: &DeviceSlice<'_, S>,
    device: &Device,
    (precision, nnz): (Precision, usize),
) -> Result<(), PlanError> {
    check_device("the stream", on.device(), device)?;
    check_device("the array of new values", values.device(), device)?;
    check_sums::<S>("the array of new values", precision)?;
    check_count("the new values", values.len(), nnz)
}

/// Whether a dense operand has the rows and columns that it must have.
pub(crate) fn check_shape(
    operand: &'static str,
    found: (usize, usize),
    expected: (usize, usize),
) -> Result<(), PlanError> {
    if found == expected { Ok(()) } else { Err(PlanError::OperandShape { operand, found, expected }) }
}

/// A packed operand with all its elements.
pub(crate) fn check_packed<'a, T>(
    operand: &'static str,
    data: &'a [T],
    (rows, cols): (usize, usize),
) -> Result<DenseRef<'a, T>, PlanError> {
    match DenseRef::packed(data, rows, cols) {
        Ok(matrix) if data.len() == rows * cols => Ok(matrix),
        _ => Err(PlanError::PackedCount { operand, len: data.len(), rows, cols }),
    }
}

/// A number of `what` as kernels take it, if it is not beyond `limit`, which is one of 32 bits.
pub(crate) fn check_index(
    what: &'static str,
    found: usize,
    limit: u64,
    remedy: &'static str,
) -> Result<u32, PlanError> {
    let too_large = || PlanError::TooLarge { what, found: wide(found), limit, remedy };
    u32::try_from(found).ok().filter(|&index| u64::from(index) <= limit).ok_or_else(too_large)
}

/// A leading dimension as kernels take it.
pub(crate) fn check_ld(ld: usize) -> Result<u32, PlanError> {
    check_index(
        "elements from row to row",
        ld,
        u64::from(u32::MAX),
        "copy the matrix to rows closer together",
    )
}

/// Whether dimensions have 32 bits, as formats and kernels count them.
pub(crate) fn check_dimensions(dimensions: [(&'static str, usize); 2]) -> Result<(), PlanError> {
    for (what, found) in dimensions {
        if u32::try_from(found).is_err() {
            return Err(FormatError::DimensionTooLarge { what, found }.into());
        }
    }
    Ok(())
}

/// Whether arrays have as many elements as they must, each with its name, what was found, what is expected, and why.
pub(crate) fn check_lengths(
    lengths: impl IntoIterator<Item = (&'static str, usize, usize, &'static str)>,
) -> Result<(), PlanError> {
    for (array, found, expected, why) in lengths {
        if found != expected {
            return Err(FormatError::LengthMismatch { array, found, expected, why }.into());
        }
    }
    Ok(())
}

/// Whether `operand` has one value for each of `expected` entries.
pub(crate) fn check_count(operand: &'static str, found: usize, expected: usize) -> Result<(), PlanError> {
    if found == expected { Ok(()) } else { Err(PlanError::ValueCount { operand, found, expected }) }
}

/// The bytes of all arrays together, if they are not beyond `limit`; `remedy` says what to do if they are.
pub(crate) fn check_memory(
    sizes: &[ArraySize],
    limit: Option<u64>,
    remedy: &'static str,
) -> Result<u64, PlanError> {
    let needed = sizes.iter().map(|array| array.bytes).sum();
    match limit.filter(|&limit| needed > limit) {
        None => Ok(needed),
        Some(limit) => {
            let largest = sizes.iter().max_by_key(|array| array.bytes);
            let (largest, largest_bytes) = largest.map_or(("none", 0), |array| (array.name, array.bytes));
            Err(PlanError::MemoryLimit { needed, limit, largest, largest_bytes, remedy })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_a_limit_are_refused_with_both() {
        assert_eq!(check_index("rows of A", 7, 7, "have fewer").unwrap(), 7);
        let error = check_index("rows of A", 8, 7, "have fewer").unwrap_err();
        let expected = "8 rows of A are more than the 7 that the kernels can index; have fewer";
        assert_eq!(error.to_string(), expected);
        let beyond = usize::MAX;
        assert!(matches!(check_ld(beyond), Err(PlanError::TooLarge { found, .. }) if found == wide(beyond)));
    }
}

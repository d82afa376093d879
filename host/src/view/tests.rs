//! What is checked of memory that is lent, and of operands that overlap.

use super::*;
use crate::device::{DeviceBuffer, DeviceKind};

/// Bytes `first..`, `rows` rows of `width`, `pitch` apart.
fn pitched(first: u64, rows: u64, width: u64, pitch: u64) -> Pitched {
    let bytes = if rows == 0 || width == 0 { 0 } else { (rows - 1) * pitch + width };
    Pitched { first, bytes, width, pitch }
}

/// All bytes of the rows.
fn bytes(of: Pitched) -> Vec<u64> {
    (0..of.bytes).filter(|byte| byte % of.pitch < of.width).map(|byte| of.first + byte).collect()
}

#[test]
fn what_overlaps_is_found_byte_by_byte_where_rows_are_as_far_apart() {
    let (mut met, mut apart) = (0, 0);
    for first in 0..40 {
        for (rows, width) in [(1, 3), (2, 4), (3, 5), (3, 12), (0, 4)] {
            for (other_rows, other_width) in [(1, 1), (2, 4), (4, 7), (3, 12)] {
                let (one, other) =
                    (pitched(16, rows, width, 12), pitched(first, other_rows, other_width, 12));
                let common = bytes(one).iter().any(|byte| bytes(other).contains(byte));
                assert_eq!(one.overlaps(other), common, "{one:?} {other:?}");
                assert_eq!(other.overlaps(one), common, "{one:?} {other:?}");
                if common { met += 1 } else { apart += 1 }
            }
        }
    }
    assert!(met > 100 && apart > 100, "{met} {apart}");
    // Of another pitch, ranges decide.
    assert!(pitched(0, 3, 4, 16).overlaps(pitched(4, 3, 4, 12)));
    assert!(!pitched(0, 3, 4, 16).overlaps(pitched(36, 3, 4, 12)));
}

#[test]
fn an_overlap_is_an_error_with_both_ranges() {
    let (c, b) = (Pitched::row::<f32>(0x100, 8), Pitched::row::<f32>(0x110, 8));
    let error = c.check_apart("C", "B", b).unwrap_err();
    let text = "C at 0x100..0x120 overlaps B at 0x110..0x130; give C memory of its own";
    assert_eq!(error.to_string(), text);
    assert_eq!(c.check_apart("C", "B", Pitched::row::<f32>(0x120, 8)), Ok(()));
    assert_eq!(c.check_apart("C", "B", Pitched::row::<f32>(0x110, 0)), Ok(()));
}

/// Views of memory that windrow allocated, as if it were somebody else's.
fn borrowed_views(device: &Device) {
    let buffer = DeviceBuffer::from_slice(device, &[0.0f32; 64]).unwrap();
    let at = buffer.address();
    // SAFETY: as far as there is memory, it is `buffer`'s, which nothing writes; what is beyond is refused, except on
    // the CPU, where it is not touched.
    let view = |address, rows, cols, ld| unsafe {
        DeviceView::<f32>::from_raw(device, address, rows, cols, ld)
            .map(|view| (view.rows(), view.cols(), view.ld()))
    };
    assert_eq!(view(at, 8, 8, 8), Ok((8, 8, 8)));
    assert_eq!(view(at + 16, 8, 4, 8), Ok((8, 4, 8)), "the last row ends with the memory");
    assert_eq!(view(0, 0, 4, 4), Ok((0, 4, 4)), "nothing may be anywhere");
    assert_eq!(view(at, 8, 8, 7), Err(PlanError::LeadingDimension { ld: 7, cols: 8 }));
    let misaligned = PlanError::Misaligned { address: at + 2, align: 4, element: "f32" };
    assert_eq!(view(at + 2, 1, 1, 1), Err(misaligned));
    let null = view(0, 8, 8, 8).unwrap_err();
    assert!(matches!(&null, PlanError::NotDeviceMemory { address: 0, bytes: 256, .. }), "{null}");
    assert!(null.to_string().contains("256 bytes are to lie at 0x0, which is null"), "{null}");
    assert!(matches!(view(at, usize::MAX, 9, 9), Err(PlanError::TooLarge { .. })));
    if device.kind() == DeviceKind::Emulator {
        let beyond = view(at + 4, 8, 8, 8).unwrap_err();
        assert_eq!(
            beyond,
            PlanError::BeyondMemory { address: at + 4, bytes: 256, end: at + 256 },
            "{beyond}"
        );
        // SAFETY: as above.
        let slices = unsafe {
            (
                DeviceSlice::<f32>::from_raw(device, at, 64).map(|slice| slice.len()),
                DeviceSlice::<f32>::from_raw(device, at, 65).map(|slice| slice.len()),
            )
        };
        assert_eq!(slices.0, Ok(64));
        assert!(matches!(slices.1, Err(PlanError::BeyondMemory { bytes: 260, .. })));
    }
    if device.machine().is_some() {
        let local = [0.0f32; 64];
        let host = view(local.as_ptr().expose_provenance() as u64, 8, 8, 8).unwrap_err();
        assert!(matches!(&host, PlanError::NotDeviceMemory { .. }), "{host}");
        // SAFETY: as above.
        let slice = unsafe { DeviceSliceMut::<f32>::from_raw(device, 0, 1).map(|slice| slice.len()) };
        assert!(matches!(slice, Err(PlanError::NotDeviceMemory { .. })));
    }
}

#[test]
fn what_is_lent_is_looked_at() {
    borrowed_views(&Device::cpu());
    #[cfg(feature = "emulator")]
    borrowed_views(&Device::emulator(crate::EmulatorSchedule::InOrder));
    if let Ok(device) = Device::cuda(0) {
        borrowed_views(&device);
    }
}

#[test]
fn vectors_are_read_where_there_is_memory_for_them() {
    let device = Device::cpu();
    let matrix = DeviceMatrix::<f32>::zeros(&device, 3, 6).unwrap();
    let nowhere = Pitched::row::<f32>(0, 0);
    assert!(matrix.view().reads_vectors(nowhere) && matrix.view().is_owned());
    let data = [1.0f32; 24];
    let address = data.as_ptr().expose_provenance() as u64;
    // SAFETY: three rows of eight elements, of which the views name six at most.
    let view = |skip: u64, cols| unsafe {
        DeviceView::<f32>::from_raw(&device, address + 4 * skip, 3, cols, 8).unwrap()
    };
    // On the CPU nobody knows what comes behind the last row.
    assert!(view(0, 8).reads_vectors(nowhere) && view(0, 4).reads_vectors(nowhere));
    assert!(!view(0, 6).reads_vectors(nowhere) && !view(0, 6).is_owned());
    assert_eq!(view(2, 6).host().unwrap().row(2), [1.0; 6]);
    // What is read beyond the last column must not be written meanwhile.
    let columns = |first: u64, width: u64| pitched(matrix.view().address() + 4 * first, 3, 4 * width, 32);
    assert!(matrix.view().ld() == 8 && !matrix.view().reads_vectors(columns(6, 2)));
    let narrow = DeviceMatrix::<f32>::with_ld(&device, 3, 3, 8).unwrap();
    let beside = |first: u64| pitched(narrow.view().address() + 4 * first, 3, 4, 32);
    assert!(!narrow.view().reads_vectors(beside(3)) && narrow.view().reads_vectors(beside(4)));
}

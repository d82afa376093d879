//! Matrices on the device that are refused, by what is wrong with them and where.

use windrow::{
    CsrAddresses, Device, DeviceBuffer, DeviceCsr, FormatError, PlanError, RowSoftmax, Sddmm, SddmmError,
    Spmm, SpmmError,
};

use crate::common::{devices, report_missing_gpu};

#[test]
fn wrong_matrices_are_refused() {
    fn error(device: &Device, offsets: &[i64], columns: &[i64]) -> PlanError {
        let rows = offsets.len() - 1;
        let offsets = DeviceBuffer::from_slice(device, offsets).unwrap();
        let columns = DeviceBuffer::from_slice(device, columns).unwrap();
        let matrix = || DeviceCsr::pattern(rows, 5, &offsets, &columns).unwrap();
        let checked = matrix().checked(&device.stream()).unwrap_err();
        let built = Spmm::builder(&matrix()).build_on(&device.stream()).unwrap_err();
        assert!(matches!(built, SpmmError::Plan(ref same) if *same == checked), "{built} and {checked}");
        let built = Sddmm::builder(&matrix()).build_on(&device.stream()).unwrap_err();
        assert!(matches!(built, SddmmError::Plan(ref same) if *same == checked), "{built} and {checked}");
        let built = RowSoftmax::new_on(&matrix(), &device.stream()).unwrap_err();
        assert_eq!(built, checked);
        checked
    }
    for device in devices() {
        let cases: [(&[i64], &[i64], FormatError); 10] = [
            (&[1, 2, 3], &[0, 1, 2], FormatError::FirstOffset { found: 1 }),
            (&[-1, 2, 3], &[0, 1, 2], FormatError::FirstOffset { found: u64::MAX }),
            (&[0, 3, 2, 3], &[0, 1, 2], FormatError::OffsetsDecrease { row: 1, start: 3, end: 2 }),
            (&[0, 1, 1 << 40], &[0, 1, 2], FormatError::LastOffset { found: 1 << 40, entries: 3 }),
            (&[0, 1, 2], &[0, 1, 2], FormatError::LastOffset { found: 2, entries: 3 }),
            (&[0, 2, 3], &[0, 1, 5], FormatError::ColumnOutOfRange { row: 1, entry: 2, column: 5, cols: 5 }),
            (
                &[0, 0, 3],
                &[0, -1, 3],
                FormatError::ColumnOutOfRange { row: 1, entry: 1, column: u64::MAX, cols: 5 },
            ),
            (
                &[0, 3],
                &[0, 1 << 32, 3],
                FormatError::ColumnOutOfRange { row: 0, entry: 1, column: 1 << 32, cols: 5 },
            ),
            (
                &[0, 1, 3],
                &[4, 3, 3],
                FormatError::ColumnsNotAscending { row: 1, entry: 2, column: 3, before: 3 },
            ),
            (
                &[0, 3],
                &[1, 4, 2],
                FormatError::ColumnsNotAscending { row: 0, entry: 2, column: 2, before: 4 },
            ),
        ];
        for (offsets, columns, want) in cases {
            assert_eq!(error(&device, offsets, columns), PlanError::Format(want), "{offsets:?} {columns:?}");
        }
        // A fault far from others, in the last of many blocks.
        let mut columns: Vec<i64> = (0..9000).map(|i| i % 5).collect();
        let offsets: Vec<i64> = (0..=1800).map(|row| row * 5).collect();
        columns[8999] = 3;
        let want = FormatError::ColumnsNotAscending { row: 1799, entry: 8999, column: 3, before: 3 };
        assert_eq!(error(&device, &offsets, &columns), PlanError::Format(want));
    }
    report_missing_gpu("wrong matrices on the device", 11);
}

#[test]
fn arrays_that_do_not_fit_together_are_refused() {
    let (cpu, other) = (Device::cpu(), Device::emulator(windrow::EmulatorSchedule::InOrder));
    let offsets = DeviceBuffer::from_slice(&cpu, &[0i32, 1]).unwrap();
    let columns = DeviceBuffer::from_slice(&cpu, &[0i32]).unwrap();
    let values = DeviceBuffer::from_slice(&cpu, &[1.0f32, 2.0]).unwrap();
    let error = DeviceCsr::new(1, 1, &offsets, &columns, &values).unwrap_err();
    assert_eq!(error.to_string(), "values has 2 elements but 1 are needed, one for each column index");
    let error = DeviceCsr::pattern(2, 1, &offsets, &columns).unwrap_err();
    assert_eq!(
        error.to_string(),
        "row_offsets has 2 elements but 3 are needed, one more than there are rows"
    );
    let error = DeviceCsr::pattern(1, 1 << 32, &offsets, &columns).unwrap_err();
    assert!(
        matches!(error, PlanError::Format(FormatError::DimensionTooLarge { what: "columns", .. })),
        "{error}"
    );
    let elsewhere = DeviceBuffer::from_slice(&other, &[0i32]).unwrap();
    let error = DeviceCsr::pattern(1, 1, &offsets, &elsewhere).unwrap_err();
    assert!(matches!(error, PlanError::WrongDevice { operand: "the array of columns", .. }), "{error}");
    let a = DeviceCsr::pattern(1, 1, &offsets, &columns).unwrap();
    let error = Spmm::builder(&a).build_on(&other.stream()).unwrap_err();
    assert!(
        matches!(error, SpmmError::Plan(PlanError::WrongDevice { operand: "the stream", .. })),
        "{error}"
    );
    let at = |offsets, columns| CsrAddresses { offsets, columns, values: 8 };
    // SAFETY: nothing is read: the addresses are refused.
    let error = unsafe { DeviceCsr::<f32>::from_raw::<i32, i64>(&cpu, (1, 1), 1, at(0, 8)) }.unwrap_err();
    assert!(matches!(error, PlanError::NotDeviceMemory { address: 0, .. }), "{error}");
    // SAFETY: likewise.
    let error = unsafe { DeviceCsr::<f32>::from_raw::<i32, i64>(&cpu, (1, 1), 1, at(4, 4)) }.unwrap_err();
    assert!(matches!(error, PlanError::Misaligned { address: 4, align: 8, .. }), "{error}");
}

//! What a check finds, and what of a stream that is captured.

use windrow_formats::Csr;

use crate::plan::{middle, rows_at_once};
use crate::{Device, DeviceBuffer, DeviceCsr, DeviceError, EmulatorSchedule, Index, PlanError, Stream};

#[track_caller]
fn assert_captured<T>(outcome: Result<T, PlanError>) {
    let error = outcome.err().expect("a captured stream is refused");
    assert!(matches!(error, PlanError::Device(DeviceError::Captured { .. })), "{error}");
}

/// Nothing is queued on a stream that is captured.
#[test]
fn a_stream_that_is_captured_is_refused() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let a = Csr::from_dense(2, 3, &[0.0f32, 5.0, 6.0, 7.0, 8.0, 0.0]).unwrap();
    let owned = DeviceCsr::from_host(&device, &a).unwrap();
    let offsets = DeviceBuffer::from_slice(&device, a.row_offsets()).unwrap();
    let columns = DeviceBuffer::from_slice(&device, a.col_indices()).unwrap();
    let unchecked = DeviceCsr::pattern(2, 3, &offsets, &columns).unwrap();
    let transposed = owned.transposed(&device.stream()).unwrap();
    let from = DeviceBuffer::from_slice(&device, &[1.0f32; 4]).unwrap();
    let mut to = DeviceBuffer::<f32>::alloc_zeroed(&device, 4).unwrap();
    let stream = Stream::new(&device).unwrap();
    let queue = stream.queue().unwrap();
    queue.begin_capture();
    for matrix in [&owned, &unchecked] {
        assert_captured(matrix.transposed(&stream));
        assert_captured(matrix.canonical(&stream));
    }
    assert_captured(transposed.values_on(&stream, &from, &mut to));
    let graph = queue.end_capture();
    graph().unwrap();
    assert_eq!(to.to_vec().unwrap(), [0.0; 4]);
    drop(graph);
    transposed.values_on(&stream, &from, &mut to).unwrap();
    assert_eq!(to.to_vec().unwrap(), [1.0; 4]);
}

/// A check counts the distinct columns of the rows in the middle, of indices of 32 and 64 bits, each for itself.
#[test]
fn columns_of_the_rows_in_the_middle_are_counted() {
    fn counted<O: Index, C: Index>(device: &Device, offsets: &[O], columns: &[C]) -> Option<u32> {
        let (rows, cols) = (offsets.len() - 1, 1 << 20);
        let offsets = DeviceBuffer::from_slice(device, offsets).unwrap();
        let columns = DeviceBuffer::from_slice(device, columns).unwrap();
        let checked = DeviceCsr::pattern(rows, cols, &offsets, &columns).unwrap().checked(&device.stream());
        checked.unwrap().known.filter(|known| known.columns_counted).map(|known| known.record.columns_in_use)
    }
    for schedule in EmulatorSchedule::STANDARD {
        let device = Device::emulator(schedule);
        // Row r has columns r and r + 5, so that most are those of two rows; more rows than are looked at.
        let rows = rows_at_once(&device) + 100;
        let count = i32::try_from(rows).unwrap();
        let offsets: Vec<i32> = (0..=count).map(|row| 2 * row).collect();
        let columns: Vec<i32> = (0..count).flat_map(|row| [row, row + 5]).collect();
        let looked_at = middle(rows, rows_at_once(&device));
        let of_rows = &columns[2 * looked_at.start..2 * looked_at.end];
        let distinct = of_rows.iter().collect::<std::collections::HashSet<_>>().len();
        let want = u32::try_from(distinct).ok();
        let wide = |indices: &[i32]| indices.iter().map(|&index| i64::from(index)).collect::<Vec<_>>();
        assert_eq!(counted(&device, &offsets, &columns), want);
        assert_eq!(counted(&device, &wide(&offsets), &columns), want);
        assert_eq!(counted(&device, &offsets, &wide(&columns)), want);
        assert_eq!(counted(&device, &wide(&offsets), &wide(&columns)), want);
    }
}

//! What of a stream that is captured.

use windrow_formats::Csr;

use crate::{Device, DeviceBuffer, DeviceCsr, DeviceError, EmulatorSchedule, PlanError, Stream};

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

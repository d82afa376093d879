//! What a check finds, and what of a stream that is captured.

use half::f16;
use windrow_formats::{Csr, Value};

use super::transposition::Way;
use crate::plan::{On, middle, rows_at_once};
use crate::{
    Coo3, Device, DeviceBuffer, DeviceCoo3, DeviceCsr, DeviceError, EmulatorSchedule, Index, Mttkrp,
    PlanError, Stream, TensorError,
};

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
    let tensor = Coo3::from_entries([2, 2, 2], [([0, 1, 0], 3.0f32)]).unwrap();
    let stream = Stream::new(&device).unwrap();
    let queue = stream.queue().unwrap();
    queue.begin_capture();
    for matrix in [&owned, &unchecked] {
        assert_captured(matrix.transposed(&stream));
        assert_captured(matrix.canonical(&stream));
    }
    assert_captured(transposed.values_on(&stream, &from, &mut to));
    let list = || DeviceCoo3::from_host(&device, &tensor).unwrap();
    assert_captured(list().checked(&stream));
    assert_captured(list().to_host(&stream));
    let fibers = list().to_csf([0, 1, 2], &device.stream()).unwrap();
    assert_captured(list().to_csf([0, 1, 2], &stream));
    assert_captured(fibers.to_host(&stream));
    match Mttkrp::builder(&fibers).build_on(&stream).err() {
        Some(TensorError::Plan(error)) => assert_captured::<()>(Err(error)),
        other => panic!("a captured stream is refused: {other:?}"),
    }
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

/// A matrix in which some columns have many more entries than others, some rows none and some many.
fn uneven<V: Value>(rows: usize, cols: usize) -> Csr<V> {
    let (mut offsets, mut columns) = (vec![0], Vec::new());
    for row in 0..rows {
        let step = match row % 7 {
            3 => cols + 1, // no entry, or one
            5 => 3,
            _ => 1 + cols / 4,
        };
        let first = (row * row) % step;
        let mut of_row: Vec<usize> = (first..cols).step_by(step).collect();
        if row % 7 != 3 && row % 5 != 0 {
            of_row.extend([0, cols / 2]);
        }
        of_row.sort_unstable();
        of_row.dedup();
        columns.extend(of_row.iter().map(|&column| u32::try_from(column).unwrap()));
        offsets.push(columns.len() as u64);
    }
    let values = (0..columns.len()).map(|i| V::from_f64((i % 2000) as f64 / 8.0)).collect();
    Csr::try_from_parts(rows, cols, offsets, columns, values).unwrap()
}

#[track_caller]
fn check_way<V: Value>(device: &Device, a: &Csr<V>, ways: &[Way]) {
    let (want, order) = (a.transpose().unwrap(), a.transpose_order().unwrap());
    let stream = Stream::new(device).unwrap();
    let offsets: Vec<i32> = a.row_offsets().iter().map(|&x| i32::try_from(x).unwrap()).collect();
    let offsets = DeviceBuffer::from_slice(device, &offsets).unwrap();
    let columns: Vec<i64> = a.col_indices().iter().map(|&x| x.into()).collect();
    let columns = DeviceBuffer::from_slice(device, &columns).unwrap();
    let values = DeviceBuffer::from_slice(device, a.values()).unwrap();
    let borrowed = DeviceCsr::new(a.rows(), a.cols(), &offsets, &columns, &values).unwrap();
    let owned = DeviceCsr::from_host(device, a).unwrap();
    for (matrix, &way) in [&owned, &borrowed].into_iter().cycle().zip(ways) {
        let what = format!("{} × {}, {} entries, {way:?} on {device}", a.rows(), a.cols(), a.nnz());
        let got = matrix.transpose_by(&On::of(&stream, device, false).unwrap(), way).unwrap();
        assert!(got.matrix().to_host(&stream).unwrap().bitwise_eq(&want), "{what}: another transpose");
        assert!(got.order().to_vec().unwrap() == order.new_to_old(), "{what}: another order");
    }
}

fn devices() -> Vec<Device> {
    let mut devices = EmulatorSchedule::STANDARD.map(Device::emulator).to_vec();
    devices.extend(Device::cuda(0));
    devices
}

/// Whatever way: ranges that have more entries than a tile and such as have none, of one column and of several, more
/// columns than ranges take and fewer.
#[test]
fn every_way_to_a_transpose_gives_that_of_the_host() {
    let few =
        |range_columns, cols: u32| Way::Few { range_columns, ranges: cols.div_ceil(range_columns).max(1) };
    let ranges = |digit_bits, bits| Way::Ranges { digit_bits, bits };
    for device in devices() {
        let a = uneven::<f32>(1300, 90);
        assert!(a.nnz() > 9000, "{} entries are no three tiles", a.nnz());
        check_way(&device, &a, &[few(90, 90), ranges(1, 6), ranges(7, 0), few(33, 90), Way::Sorted]);
        check_way(&device, &uneven::<f64>(60, 1700), &[few(1700, 1700), ranges(2, 9), ranges(9, 2)]);
        check_way(&device, &uneven::<f16>(70, 5000), &[ranges(2, 11), few(2048, 5000), Way::Sorted]);
        check_way(&device, &uneven::<f32>(300, 1), &[ranges(1, 0), few(1, 1), few(1, 1)]);
        check_way(&device, &Csr::<f32>::zeros(5, 0).unwrap(), &[few(1, 0), few(1, 0)]);
        check_way(&device, &Csr::<f32>::zeros(0, 5).unwrap(), &[few(2, 5), few(2, 5)]);
    }
}

/// More entries than one launch takes: the ways that are chosen, at their sizes.
#[test]
fn transposes_of_more_entries() {
    let a = uneven::<f32>(9000, 80);
    assert!(matches!(Way::of(a.cols(), a.nnz()), Way::Ranges { .. }), "{} entries", a.nnz());
    let device = Device::cuda(0).unwrap_or_else(|_| Device::emulator(EmulatorSchedule::InOrder));
    check_way(&device, &a, &[Way::of(a.cols(), a.nnz()); 2]);
}

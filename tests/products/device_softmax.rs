//! Softmax over the rows of patterns that are on the device: rows divided as on the host, and the same results.

use windrow::internal::softmax_arrays;
use windrow::{Csr, Device, DeviceBuffer, DeviceCsr, DeviceKind, RowSoftmax, Stream};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::{devices, kernel_devices, report_missing_gpu};
use crate::device_csr::{of_i32, of_i64};
use crate::preprocessing::matrices;

/// Compares with the division of the host, and the results of both.
#[track_caller]
fn check(device: &Device, name: &str, (a, on_device): (&Csr<f32>, &DeviceCsr<'_, f32>)) {
    let want = RowSoftmax::new(a, device).unwrap();
    let got = RowSoftmax::new_on(on_device, &device.stream()).unwrap();
    assert_eq!((got.rows(), got.nnz()), (a.rows(), a.nnz()), "{name} on {device}");
    assert!(softmax_arrays(&got).unwrap() == softmax_arrays(&want).unwrap(), "{name} on {device}");
    let scores = DeviceBuffer::from_slice(device, a.values()).unwrap();
    let run = |softmax: &RowSoftmax| {
        let [mut p, mut gradient] = [(); 2].map(|()| DeviceBuffer::alloc_zeroed(device, a.nnz()).unwrap());
        softmax.forward(0.5, &scores, &mut p).unwrap();
        softmax.backward(0.5, &p, &scores, &mut gradient).unwrap();
        [p, gradient].map(|found| found.to_vec().unwrap())
    };
    assert_eq!(run(&got), run(&want), "{name} on {device}");
}

/// Rows of all classes, long ones among them, and those at the edges of classes.
fn of_all_classes(rows: usize, long: usize) -> Csr<f32> {
    let mut rng = SplitMix64::new(0x50f7);
    let lengths: Vec<usize> = (0..rows)
        .map(|row| match row % 11 {
            _ if long > 0 && row % long == long / 2 => 513 + rng.below(300),
            0 => [512, 448, 449, 64, 65, 1, 128][row / 11 % 7],
            1..4 => 0,
            4 => rng.below(513),
            _ => rng.below(30),
        })
        .collect();
    Pattern::from_lengths(900, lengths, &mut rng).with_values(Values::Reals, &mut rng)
}

#[test]
fn rows_are_divided_as_on_the_host() {
    let mut matrices = matrices();
    matrices.push(("all classes", of_all_classes(230, 40)));
    for device in devices() {
        for (turn, (name, a)) in matrices.iter().enumerate() {
            match turn % 3 {
                0 => check(&device, name, (a, &DeviceCsr::from_host(&device, a).unwrap())),
                1 => check(&device, name, (a, &of_i64(&device, a).matrix())),
                _ => {
                    check(&device, name, (a, &of_i32(&device, a).matrix().checked(&device.stream()).unwrap()))
                }
            }
        }
    }
    report_missing_gpu("softmax over rows of patterns on the device", matrices.len());
}

/// More rows than a block has, without long ones and with them.
#[test]
fn rows_of_many_blocks_keep_their_order() {
    for (turn, long) in [0, 1000].into_iter().enumerate() {
        let a = of_all_classes(5000, long);
        for device in kernel_devices(turn) {
            check(&device, "many blocks", (&a, &of_i32(&device, &a).matrix()));
        }
    }
    report_missing_gpu("softmax over rows of many blocks", 2);
}

/// Another stream writes the pattern: the softmax is made after it, and the arrays may be freed.
#[test]
fn the_stream_that_writes_a_pattern_comes_first() {
    let a = of_all_classes(60, 20);
    for device in devices().into_iter().filter(|device| device.kind() != DeviceKind::Cpu) {
        let stream = Stream::new(&device).unwrap();
        let uploaded = of_i64(&device, &a);
        let got = RowSoftmax::new_on(&uploaded.matrix(), &stream).unwrap();
        drop(uploaded);
        let want = RowSoftmax::new(&a, &device).unwrap();
        let scores = DeviceBuffer::from_slice(&device, a.values()).unwrap();
        let [mut expected, mut found] =
            [(); 2].map(|()| DeviceBuffer::alloc_zeroed(&device, a.nnz()).unwrap());
        want.forward(1.5, &scores, &mut expected).unwrap();
        got.forward_on(&stream, 1.5, &scores, &mut found).unwrap();
        assert_eq!(found.to_vec().unwrap(), expected.to_vec().unwrap(), "{device}");
    }
    report_missing_gpu("softmax made on another stream", 1);
}

//! Plans of matrices that are on the device: made in the order of streams, and without waiting for the device.

use windrow::{
    Algorithm, Csr, CsrAddresses, DenseRef, DeviceBuffer, DeviceCsr, DeviceMatrix, DeviceView, DeviceViewMut,
    Precision, RowDivision, Spmm, SpmmOptions, Stream,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::{kernel_devices, report_missing_gpu};
use crate::device_csr::{Uploaded, of_i32, of_i64};
use crate::preprocessing::matrices;

/// Another stream writes the matrix: the plan is made after it, and runs where it is asked to.
#[test]
fn the_stream_that_writes_a_matrix_comes_first() {
    let (_, a) = &matrices()[10];
    let b: Vec<f32> = (0..a.cols()).map(|i| (i % 5) as f32).collect();
    for device in kernel_devices(2) {
        let want = Spmm::builder(a).width(1).build(&device).unwrap().run(&b).unwrap();
        let stream = Stream::new(&device).unwrap();
        let uploaded = of_i64(&device, a);
        let plan = Spmm::builder(&uploaded.matrix()).width(1).build_on(&stream).unwrap();
        drop(uploaded);
        assert_eq!(plan.run(&b).unwrap(), want, "on {device}");
        let b = DeviceMatrix::upload(&device, DenseRef::packed(&b, a.cols(), 1).unwrap()).unwrap();
        let mut c = DeviceMatrix::<f32>::zeros(&device, a.rows(), 1).unwrap();
        plan.run_into_on(&stream, 1.0, &b, 0.0, &mut c).unwrap();
        assert_eq!(c.download().unwrap(), want, "on {device}");
    }
    report_missing_gpu("plans made on another stream", 1);
}

/// Arrays that another library writes and overwrites in the order of a stream: the plan is made of what was there when
/// it was asked for, whoever runs first.
#[test]
fn what_is_written_later_in_the_stream_does_not_reach_a_plan() {
    let (_, a) = &matrices()[10];
    let (nnz, b) = (a.nnz(), (0..a.cols()).map(|i| (i % 5) as f32).collect::<Vec<_>>());
    for device in kernel_devices(3) {
        let want = Spmm::builder(a).width(1).algorithm(Algorithm::RowSplit).build(&device).unwrap();
        let stream = Stream::new(&device).unwrap();
        let uploaded = Uploaded::new(&device, a, |x| x, |x| x);
        let target = DeviceBuffer::<f32>::alloc_zeroed(&device, nnz).unwrap();
        let zeros = DeviceBuffer::<f32>::alloc_zeroed(&device, nnz).unwrap();
        let copy = Spmm::builder(&Csr::<f32>::identity(nnz).unwrap()).width(1).build(&device).unwrap();
        device.synchronize().unwrap();
        // Borrowed, so that windrow orders nothing but what a stream orders.
        let write = |from: &DeviceBuffer<f32>| {
            // SAFETY: both have so many elements, and live to the end of the test.
            let (from, to) = unsafe {
                (
                    DeviceView::<f32>::from_raw(&device, from.address(), nnz, 1, 1).unwrap(),
                    DeviceViewMut::<f32>::from_raw(&device, target.address(), nnz, 1, 1).unwrap(),
                )
            };
            copy.run_into_on(&stream, 1.0, from, 0.0, to).unwrap();
        };
        write(&uploaded.values);
        let addresses = CsrAddresses {
            offsets: uploaded.offsets.address(),
            columns: uploaded.columns.address(),
            values: target.address(),
        };
        // SAFETY: arrays of these lengths, which are written in the order of the stream alone.
        let matrix =
            unsafe { DeviceCsr::<f32>::from_raw::<u64, u32>(&device, (a.rows(), a.cols()), nnz, addresses) };
        let matrix = matrix.unwrap().checked(&stream).unwrap();
        let builder = Spmm::builder(&matrix).width(1).algorithm(Algorithm::RowSplit);
        let plan = builder.build_on(&stream).unwrap();
        write(&zeros);
        assert_eq!(plan.run(&b).unwrap(), want.run(&b).unwrap(), "on {device}");
        stream.synchronize().unwrap();
    }
    report_missing_gpu("matrices that are overwritten", 1);
}

/// Of a matrix that was checked a plan for few products is made without waiting; what became of the values is told when
/// it is asked for.
#[test]
fn plans_of_checked_matrices_wait_for_nothing() {
    let mut values = vec![1.0f32; 40];
    (values[3], values[7], values[8]) = (1e30, f32::NAN, -7e4);
    let a = Csr::from_dense(8, 5, &[1.0f32; 40]).unwrap().with_values(values).unwrap();
    let b: Vec<f32> = (0..5).map(|i| i as f32).collect();
    for device in kernel_devices(1) {
        let uploaded = of_i64(&device, &a);
        let checked = uploaded.matrix().checked(&device.stream()).unwrap();
        let builder =
            Spmm::builder(&checked).width(1).precision(Precision::F16).algorithm(Algorithm::RowSplit);
        let mut plan = builder.build_on(&device.stream()).unwrap();
        assert_eq!((plan.report().overflowed_values, plan.overflowed_values().unwrap()), (0, 2), "{device}");
        let want = Spmm::builder(&a).width(1).precision(Precision::F16).algorithm(Algorithm::RowSplit);
        let bits = |c: Vec<f32>| c.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(
            bits(plan.run(&b).unwrap()),
            bits(want.build(&device).unwrap().run(&b).unwrap()),
            "{device}"
        );
        plan.replace_values(&[1.0f32; 40]).unwrap();
        assert_eq!(plan.overflowed_values().unwrap(), 0, "{device}");
        // Whether there are tiles depends on the values: that is waited for.
        let plan = Spmm::builder(&checked).precision(Precision::F16).build_on(&device.stream()).unwrap();
        assert_eq!((plan.report().overflowed_values, plan.report().algorithm), (2, Algorithm::RowSplit));
    }
    report_missing_gpu("plans of checked matrices", 1);
}

/// For a few products long rows are cut into places that follow from the offsets, some of which stay empty: the bits
/// are those of the host's plan.
#[test]
fn rows_are_cut_without_waiting() {
    let mut rng = SplitMix64::new(0x5b1ead);
    let ends: Vec<usize> = [0, 49, 1, 48, 300, 0, 31, 33, 1000, 64, 257, 256, 0].to_vec();
    let many = (0..700).map(|row| if row % 97 == 13 { 40 + row } else { row % 7 }).collect();
    for (turn, lengths) in [ends, many, vec![900], vec![50; 40]].into_iter().enumerate() {
        let a = Pattern::from_lengths(1100, lengths, &mut rng).with_values(Values::Reals, &mut rng);
        for (i, precision) in [Precision::F32, Precision::F16, Precision::F64].into_iter().enumerate() {
            let cut =
                RowDivision { piece_entries: Some(32), several_ways: Some(i == 0), ..Default::default() };
            let options = SpmmOptions {
                algorithm: Algorithm::RowSplit,
                row_division: cut,
                precision,
                width: 20,
                ..Default::default()
            };
            let b: Vec<f32> = (0..1100 * 20).map(|i| (i % 17) as f32 - 8.0).collect();
            for device in kernel_devices(turn + i) {
                let uploaded = of_i32(&device, &a);
                let on_device = uploaded.matrix().checked(&device.stream()).unwrap();
                let few = Spmm::builder(&on_device).options(options).expected_runs(1);
                let few = few.build_on(&device.stream()).unwrap();
                let want = Spmm::builder(&a).options(options).build(&device).unwrap();
                assert!(few.report().segments >= want.report().segments, "{device}");
                assert!(few.report().split_rows > 0, "{device}");
                for _ in 0..2 {
                    assert_eq!(few.run(&b).unwrap(), want.run(&b).unwrap(), "{precision} on {device}");
                }
            }
        }
    }
    report_missing_gpu("rows that are cut without waiting", 12);
}

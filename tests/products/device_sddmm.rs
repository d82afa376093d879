//! Plans of sampled products of patterns that are on the device: the arrays and the products of plans made on the host,
//! bit for bit.

use half::{bf16, f16};
use windrow::internal::sampled_arrays;
use windrow::{
    Csr, CsrAddresses, DenseRef, Device, DeviceBuffer, DeviceCsr, DeviceKind, DeviceMatrix, DeviceView,
    DeviceViewMut, PlanError, Precision, Preprocessing, Schedule, Sddmm, SddmmAlgorithm, SddmmError,
    SddmmForm, SddmmOptions, SddmmPlan, Spmm, Stream, Value,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::{devices, kernel_devices, report_missing_gpu};
use crate::device_csr::{of_i32, of_i64};
use crate::preprocessing::{matrices, panel_matrices};

/// An option of each kind: entries, groups, tiles, and hybrids from all in tiles to nothing.
fn plans() -> Vec<SddmmOptions> {
    let entries = SddmmOptions { algorithm: SddmmAlgorithm::Entries, inner: 24, ..SddmmOptions::default() };
    let scale = SddmmForm::Scale;
    let groups = SddmmOptions { algorithm: SddmmAlgorithm::Groups, ..entries.clone() };
    let tiles =
        SddmmOptions { algorithm: SddmmAlgorithm::Tiles, precision: Precision::F16, ..entries.clone() };
    let panels = SddmmOptions { algorithm: SddmmAlgorithm::RowPanels, ..entries.clone() };
    let mut plans = vec![
        entries.clone(),
        SddmmOptions { form: scale, precision: Precision::F64, ..entries.clone() },
        SddmmOptions { form: scale, precision: Precision::Bf16, ..entries },
        groups.clone(),
        SddmmOptions { form: scale, precision: Precision::F16, ..groups },
        panels.clone(),
        SddmmOptions { form: scale, inner: 200, ..panels },
        tiles.clone(),
        SddmmOptions { form: scale, precision: Precision::Tf32, ..tiles.clone() },
        SddmmOptions { precision: Precision::Bf16, ..SddmmOptions::default() },
        SddmmOptions { form: scale, ..SddmmOptions::default() },
    ];
    plans.extend([0, 1, 17, 24, 40, 129].map(|threshold| SddmmOptions {
        algorithm: SddmmAlgorithm::Hybrid,
        tile_threshold: Some(threshold),
        form: if threshold % 2 == 0 { scale } else { SddmmForm::Mask },
        schedule: Schedule::Sequential,
        ..tiles.clone()
    }));
    plans
}

#[track_caller]
fn same_arrays(what: &str, want: &SddmmPlan, got: &SddmmPlan) {
    let (want, got) = (sampled_arrays(want).unwrap(), sampled_arrays(got).unwrap());
    let names = |arrays: &[(&'static str, Vec<u8>)]| arrays.iter().map(|a| a.0).collect::<Vec<_>>();
    assert_eq!(names(&got), names(&want), "{what}");
    for ((name, want), (_, got)) in want.iter().zip(&got) {
        assert_eq!(got.len(), want.len(), "bytes of {name}: {what}");
        let differs = want.iter().zip(got).position(|(want, got)| want != got);
        assert_eq!(differs, None, "first byte of {name} that differs: {what}");
    }
}

/// Compares the plan of a pattern on the device with that of the host: all that they hold and say.
#[track_caller]
fn check<V: Value>(
    options: &SddmmOptions,
    device: &Device,
    name: &str,
    (a, on_device): (&Csr<V>, &DeviceCsr<'_, V>),
) {
    let what = format!("{name}, {options:?} on {device}");
    let want = Sddmm::builder(a).options(options.clone()).build(device).unwrap();
    let got = Sddmm::builder(on_device)
        .options(options.clone())
        .build_on(&device.stream())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let r = got.report();
    let facts = |plan: &SddmmPlan| {
        let r = plan.report().clone();
        let counts = [r.tiles, r.column_vectors, r.window_rows, r.batches, r.panel_columns, r.panel_vectors];
        let others = (r.rows, r.cols, r.nnz, r.algorithm, r.group, r.scheduling, r.weighed);
        (counts, others, r.entries, r.tile_share, r.utilisation, r.arrays, r.device_bytes)
    };
    assert_eq!(facts(&got), facts(&want), "{what}");
    same_arrays(&what, &want, &got);
    if a.nnz() > 0 {
        assert_eq!(
            (r.preprocessing, &*r.preprocessing_reason),
            (Preprocessing::Gpu, "the matrix is there"),
            "{what}"
        );
    } else {
        assert_eq!(r.preprocessing_reason, "a copy of the matrix, on the host: it has no entries", "{what}");
    }
}

/// Patterns for hybrids: columns that rows share, more than a block takes at a time, and windows of other numbers.
fn shared() -> Vec<(&'static str, Csr<f32>)> {
    let mut rng = SplitMix64::new(0x5dd3);
    let lengths: Vec<usize> = (0..90).map(|_| rng.below(14)).collect();
    let few = Pattern::from_lengths(24, lengths, &mut rng).with_values(Values::Reals, &mut rng);
    let all: Vec<u32> = (0..700).collect();
    let rows = (0..19u32).map(|row| match row % 8 {
        0..6 => [all.clone(), (1000 + 100 * row..1000 + 100 * row + 90).collect()].concat(),
        6 => (3000..3800).collect(),
        _ => Vec::new(),
    });
    let long = Pattern { cols: 4000, rows: rows.collect() }.with_values(Values::Reals, &mut rng);
    vec![("shared columns", few), ("long vectors", long)]
}

#[test]
fn the_arrays_are_those_of_the_host() {
    let (plans, mut matrices) = (plans(), panel_matrices());
    matrices.extend(shared());
    for (turn, (name, a)) in matrices.iter().enumerate() {
        for (i, options) in plans.iter().enumerate() {
            for device in kernel_devices(turn + i) {
                match (turn + i) % 3 {
                    0 => check(options, &device, name, (a, &DeviceCsr::from_host(&device, a).unwrap())),
                    1 => check(options, &device, name, (a, &of_i64(&device, a).matrix())),
                    _ => check(options, &device, name, (a, &of_i32(&device, a).matrix())),
                }
            }
        }
    }
    report_missing_gpu("sampled products planned on the device", plans.len() * matrices.len());
}

/// Where the order in which threads run could matter most: every schedule, not one by turns.
#[test]
fn hybrids_are_the_same_under_every_schedule() {
    for (name, a) in shared() {
        for options in plans().iter().filter(|options| options.algorithm == SddmmAlgorithm::Hybrid) {
            for device in devices().iter().filter(|device| device.kind() != DeviceKind::Cpu) {
                check(options, device, name, (&a, &of_i32(device, &a).matrix()));
            }
        }
    }
    report_missing_gpu("hybrids of sampled products planned on the device", 12);
}

/// More rows than a block has, and more batches, windows and tiles than one block of a sum.
#[test]
fn patterns_of_many_blocks_are_laid_out_as_on_the_host() {
    let mut rng = SplitMix64::new(0xb10c);
    let lengths: Vec<usize> =
        (0..40_000).map(|row| if row % 5000 == 7 { 600 } else { rng.below(4) }).collect();
    let a = Pattern::from_lengths(700, lengths, &mut rng).with_values(Values::Reals, &mut rng);
    let algorithms =
        [SddmmAlgorithm::Entries, SddmmAlgorithm::Groups, SddmmAlgorithm::Tiles, SddmmAlgorithm::Hybrid];
    for (turn, algorithm) in algorithms.into_iter().enumerate() {
        let options = SddmmOptions {
            algorithm,
            precision: Precision::F16,
            tile_threshold: Some(18),
            ..SddmmOptions::default()
        };
        for device in kernel_devices(turn) {
            check(&options, &device, "many blocks", (&a, &DeviceCsr::from_host(&device, &a).unwrap()));
        }
    }
    report_missing_gpu("patterns of many blocks on the device", 4);
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = SplitMix64::new(seed);
    (0..count).map(|_| rng.real()).collect()
}

/// Products on every device, of values of every type, and of none.
#[test]
fn products_are_those_of_the_host() {
    fn typed<V: Value>(a: &Csr<f32>) -> Csr<V> {
        a.with_values(a.values().iter().map(|&x| V::from_f32(x)).collect()).unwrap()
    }
    let (_, a) = &matrices()[9];
    let (x, y) = (numbers(a.rows() * 24, 1), numbers(a.cols() * 24, 2));
    for device in devices() {
        for options in plans() {
            macro_rules! same {
                ($($type:ty),+) => { $({
                    let what = format!("{} with {options:?} on {device}", stringify!($type));
                    let a = typed::<$type>(a);
                    let want = Sddmm::builder(&a).options(options.clone()).build(&device).unwrap();
                    let uploaded = of_i32(&device, &a);
                    let matrix = uploaded.matrix();
                    let got = Sddmm::builder(&matrix).options(options.clone()).build_on(&device.stream()).unwrap();
                    assert_eq!(got.run(&x, &y).unwrap(), want.run(&x, &y).unwrap(), "{what}");
                    let said = &got.report().preprocessing_reason;
                    assert_eq!(said.contains("a copy"), device.kind() == DeviceKind::Cpu, "{said}: {what}");
                })+ };
            }
            same!(f32, f16, bf16, f64);
            let uploaded = of_i64(&device, a);
            let pattern =
                DeviceCsr::pattern(a.rows(), a.cols(), &uploaded.offsets, &uploaded.columns).unwrap();
            let ones = a.with_values(vec![1.0f32; a.nnz()]).unwrap();
            let want = Sddmm::builder(&ones).options(options.clone()).build(&device).unwrap();
            let got = Sddmm::builder(&pattern).options(options).build_on(&device.stream()).unwrap();
            assert_eq!(got.run(&x, &y).unwrap(), want.run(&x, &y).unwrap(), "ones on {device}");
        }
    }
    report_missing_gpu("sampled products of plans from the device", 5 * plans().len());
}

/// New values reach a plan whose own came from the device.
#[test]
fn new_values_take_the_places_of_the_old() {
    let (_, a) = &matrices()[10];
    let (x, y) = (numbers(a.rows() * 8, 1), numbers(a.cols() * 8, 2));
    let values: Vec<f32> = (0..a.nnz()).map(|i| 0.5 + i as f32).collect();
    for device in kernel_devices(1) {
        for algorithm in [SddmmAlgorithm::Entries, SddmmAlgorithm::Hybrid] {
            let options = SddmmOptions {
                algorithm,
                form: SddmmForm::Scale,
                precision: Precision::F16,
                tile_threshold: Some(12),
                ..SddmmOptions::default()
            };
            let mut want = Sddmm::builder(a).options(options.clone()).build(&device).unwrap();
            let matrix = DeviceCsr::from_host(&device, a).unwrap();
            let mut got = Sddmm::builder(&matrix).options(options).build_on(&device.stream()).unwrap();
            want.replace_values(&values).unwrap();
            got.replace_values_from(&DeviceBuffer::from_slice(&device, &values).unwrap()).unwrap();
            assert_eq!(got.run(&x, &y).unwrap(), want.run(&x, &y).unwrap(), "{algorithm} on {device}");
        }
    }
    report_missing_gpu("new values of sampled products", 2);
}

#[test]
fn what_there_is_not_is_refused() {
    let a = Csr::<f32>::identity(1000).unwrap();
    for device in kernel_devices(0) {
        let on_device = DeviceCsr::from_host(&device, &a).unwrap();
        for (algorithm, precision) in [
            (SddmmAlgorithm::Entries, Precision::F32),
            (SddmmAlgorithm::Groups, Precision::F32),
            (SddmmAlgorithm::Tiles, Precision::F16),
            (SddmmAlgorithm::Hybrid, Precision::F16),
        ] {
            let builder =
                Sddmm::builder(&on_device).algorithm(algorithm).precision(precision).memory_limit(1000);
            let error = builder.build_on(&device.stream()).unwrap_err();
            let SddmmError::Plan(PlanError::MemoryLimit { needed, limit: 1000, .. }) = error else {
                panic!("{error}")
            };
            let builder = Sddmm::builder(&a).algorithm(algorithm).precision(precision).memory_limit(1000);
            let error = builder.build(&device).unwrap_err();
            assert!(
                matches!(error, SddmmError::Plan(PlanError::MemoryLimit { needed: same, .. }) if same == needed),
                "{error} and {needed}"
            );
        }
        let error = Sddmm::builder(&on_device).algorithm(SddmmAlgorithm::Tiles).build_on(&device.stream());
        assert!(matches!(error, Err(SddmmError::Unsupported { .. })), "{error:?}");
        let other = Device::cpu();
        let error = Sddmm::builder(&on_device).build_on(&other.stream()).unwrap_err();
        assert!(
            matches!(error, SddmmError::Plan(PlanError::WrongDevice { operand: "the stream", .. })),
            "{error}"
        );
    }
    report_missing_gpu("refused plans of sampled products", 6);
}

/// Arrays that another library writes and overwrites in the order of a stream: the plan is made of what was there when
/// it was asked for, and they may be freed after it.
#[test]
fn what_is_written_later_in_the_stream_does_not_reach_a_plan() {
    let (_, a) = &matrices()[10];
    let (nnz, inner) = (a.nnz(), 8);
    let (x, y) = (numbers(a.rows() * inner, 3), numbers(a.cols() * inner, 4));
    for (turn, algorithm) in [SddmmAlgorithm::Entries, SddmmAlgorithm::Hybrid].into_iter().enumerate() {
        let options = SddmmOptions {
            algorithm,
            precision: Precision::F16,
            form: SddmmForm::Scale,
            ..SddmmOptions::default()
        };
        for device in kernel_devices(turn) {
            let want = Sddmm::builder(a).options(options.clone()).build(&device).unwrap();
            let stream = Stream::new(&device).unwrap();
            let uploaded = of_i64(&device, a);
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
            let matrix = unsafe {
                DeviceCsr::<f32>::from_raw::<i64, i64>(&device, (a.rows(), a.cols()), nnz, addresses).unwrap()
            };
            let plan = Sddmm::builder(&matrix).options(options.clone()).build_on(&stream).unwrap();
            drop(matrix);
            write(&zeros);
            drop(uploaded);
            assert_eq!(plan.run(&x, &y).unwrap(), want.run(&x, &y).unwrap(), "{algorithm} on {device}");
            // On the stream of which it was made, too.
            let half = |data: &[f32], rows: usize| {
                let data: Vec<f16> = data.iter().map(|&x| f16::from_f32(x)).collect();
                DeviceMatrix::upload(&device, DenseRef::packed(&data, rows, inner).unwrap()).unwrap()
            };
            let (x, y) = (half(&x, a.rows()), half(&y, a.cols()));
            let mut out = [(); 2].map(|()| DeviceBuffer::<f32>::alloc_zeroed(&device, nnz).unwrap());
            want.run_into(1.0, &x, &y, &mut out[0]).unwrap();
            plan.run_into_on(&stream, 1.0, [x.view(), y.view()], &mut out[1]).unwrap();
            assert_eq!(out[1].to_vec().unwrap(), out[0].to_vec().unwrap(), "{algorithm} on {device}");
            stream.synchronize().unwrap();
        }
    }
    report_missing_gpu("patterns that are overwritten", 2);
}

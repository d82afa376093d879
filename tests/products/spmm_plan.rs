//! Plans as a user meets them: new values, reports, limits, convenience runs, and what is refused.

use crate::common::{Setup, devices, gpu, kernel_devices, report_missing_gpu};
use half::{bf16, f16};
use windrow::partition::{CostModel, PartitionRule, ProductShape, Thresholds, density};
use windrow::{
    Algorithm, Csr, DenseMut, DenseRef, Device, DeviceError, DeviceKind, DeviceMatrix, EmulatorSchedule,
    FormatError, Permutation, PlanError, Precision, Spmm, SpmmError, TileValues,
};
use windrow_testkit::{Case, Operands, Pattern, SplitMix64, Values};

const PLANS: [(Algorithm, Precision); 10] = [
    (Algorithm::RowSplit, Precision::F32),
    (Algorithm::RowSplit, Precision::Tf32),
    (Algorithm::RowSplit, Precision::F16),
    (Algorithm::RowSplit, Precision::Bf16),
    (Algorithm::ShortRows, Precision::F32),
    (Algorithm::ShortRows, Precision::Tf32),
    (Algorithm::ShortRows, Precision::F16),
    (Algorithm::ShortRows, Precision::Bf16),
    (Algorithm::TileStream, Precision::F16),
    (Algorithm::Hybrid, Precision::F16),
];

/// The plans, those with tiles in both forms of values.
fn forms() -> impl Iterator<Item = (Algorithm, Precision, TileValues)> {
    let dense = PLANS.map(|(algorithm, precision)| (algorithm, precision, TileValues::Dense));
    let tiles = [
        (Algorithm::TileStream, Precision::F16),
        (Algorithm::TileStream, Precision::Tf32),
        (Algorithm::Hybrid, Precision::Bf16),
    ];
    let held = |form| tiles.map(|(algorithm, precision)| (algorithm, precision, form));
    dense.into_iter().chain(held(TileValues::Packed)).chain(held(TileValues::Bitmap))
}

fn case(n: usize) -> Case {
    let mut rng = SplitMix64::new(0x9147);
    let pattern = Pattern::from_lengths(620, [600, 2, 0, 30, 1, 1, 8, 70, 3, 12, 0, 5], &mut rng);
    let operands = Operands { n, padding: 0, scalars: (1.0, 0.0), values: Values::Integers, poison: false };
    Case::from_pattern("plan", &pattern, operands, &mut rng)
}

/// The exact product, by hand.
fn product(a: &Csr<f32>, b: &[f32], n: usize) -> Vec<f32> {
    let mut c = vec![0.0; a.rows() * n];
    for (r, (cols, values)) in a.rows_iter().enumerate() {
        for (&col, &value) in cols.iter().zip(values) {
            for j in 0..n {
                c[r * n + j] += value * b[col as usize * n + j];
            }
        }
    }
    c
}

/// Promise, results: new values give the product that a new plan would.
#[test]
fn new_values_go_to_their_places() {
    let case = case(9);
    for device in devices() {
        for (algorithm, precision, tile_values) in forms() {
            let setup = Setup::new(algorithm, precision)
                .told(|o| (o.workers, o.tile_values) = (Some(20), tile_values));
            let mut plan = setup.plan(&device, &case);
            let mut rng = SplitMix64::new(5);
            for _ in 0..2 {
                let values: Vec<f32> = (0..case.a.nnz()).map(|_| rng.integer()).collect();
                let doubles: Vec<f64> = values.iter().copied().map(f64::from).collect();
                plan.replace_values(&doubles).unwrap();
                let a = case.a.with_values(values).unwrap();
                let want = product(&a, &case.b, case.n);
                assert_eq!(plan.run(&case.b).unwrap(), want, "{algorithm} {precision} on {device}");
            }
            let error = plan.replace_values(&[1.0f32]).unwrap_err();
            let (operand, expected) = ("the new values", case.a.nnz());
            assert_eq!(error, SpmmError::Plan(PlanError::ValueCount { operand, found: 1, expected }));
        }
    }
    report_missing_gpu("new values", 2 * forms().count());
}

/// A plan keeps the kernels of its last run: other operands of as many columns may need others.
#[test]
fn alignment_may_change_from_run_to_run() {
    let case = case(8);
    let want = product(&case.a, &case.b, case.n);
    for device in kernel_devices(1) {
        for (algorithm, precision) in [
            (Algorithm::RowSplit, Precision::F32),
            (Algorithm::ShortRows, Precision::F32),
            (Algorithm::TileStream, Precision::Tf32),
        ] {
            let plan = Setup::new(algorithm, precision).plan(&device, &case);
            for (ldb, ldc) in [(8, 8), (9, 8), (8, 8), (8, 9), (11, 13), (12, 12)] {
                let mut b = DeviceMatrix::<f32>::with_ld(&device, case.k(), case.n, ldb).unwrap();
                b.copy_from(DenseRef::packed(&case.b, case.k(), case.n).unwrap()).unwrap();
                let mut c = DeviceMatrix::<f32>::with_ld(&device, case.m(), case.n, ldc).unwrap();
                plan.run_into(1.0, &b, 0.0, &mut c).unwrap();
                assert_eq!(c.download().unwrap(), want, "{algorithm}, {ldb} and {ldc} on {device}");
            }
        }
    }
    report_missing_gpu("alignments of one plan", 18);
}

#[test]
fn host_matrices_with_leading_dimensions() {
    let case = case(5);
    for device in devices() {
        for (algorithm, precision) in PLANS {
            let plan = Setup::new(algorithm, precision).plan(&device, &case);
            let (ldb, ldc) = (7, 11);
            let mut b = vec![f32::NAN; (case.k() - 1) * ldb + 5];
            for (r, row) in case.b.chunks(5).enumerate() {
                b[r * ldb..][..5].copy_from_slice(row);
            }
            let mut c = vec![1.0f32; case.m() * ldc];
            let b_view = DenseRef::try_new(&b, case.k(), 5, ldb).unwrap();
            let c_view = DenseMut::try_new(&mut c, case.m(), 5, ldc).unwrap();
            plan.run_host(2.0, b_view, 3.0, c_view).unwrap();
            let want = product(&case.a, &case.b, 5);
            for (r, row) in c.chunks(ldc).enumerate() {
                let expected: Vec<f32> = want[5 * r..][..5].iter().map(|x| 2.0 * x + 3.0).collect();
                assert_eq!((&row[..5], &row[5..]), (&expected[..], &[1.0; 6][..]), "row {r} on {device}");
            }
        }
    }
    report_missing_gpu("host matrices", PLANS.len());
}

#[test]
fn products_without_elements() {
    for device in devices() {
        for (algorithm, precision) in PLANS {
            let build = |m, k| {
                let a = Csr::<f32>::zeros(m, k).unwrap();
                Spmm::builder(&a).algorithm(algorithm).precision(precision).width(3).build(&device).unwrap()
            };
            assert!(build(0, 4).run(&[1.0; 8]).unwrap().is_empty());
            assert_eq!(build(4, 0).run::<f32>(&[]).unwrap(), [0.0; 12], "k = 0: the plan's width");
            assert!(build(4, 4).run::<f32>(&[]).unwrap().is_empty(), "n = 0");
            assert!(build(0, 0).run::<f32>(&[]).unwrap().is_empty());
            assert_eq!(build(2, 3).run(&[f32::NAN; 6]).unwrap(), [0.0; 4], "no entry refers to the NaN");
            let mut c = [f32::NAN, 7.0];
            let c_view = DenseMut::packed(&mut c, 2, 1).unwrap();
            build(2, 3).run_host(1.0, DenseRef::packed(&[1.0f32; 3], 3, 1).unwrap(), 0.0, c_view).unwrap();
            assert_eq!(c, [0.0; 2], "beta = 0 does not read C");
        }
    }
    report_missing_gpu("empty products", 6 * PLANS.len());
}

#[test]
fn wrong_shapes_types_and_devices_are_refused() {
    let case = case(4);
    let (m, k) = (case.m(), case.k());
    for device in devices() {
        let plan = Setup::new(Algorithm::RowSplit, Precision::F32).plan(&device, &case);
        let zeros = |rows, cols| DeviceMatrix::<f32>::zeros(&device, rows, cols).unwrap();
        let (b, mut c) = (zeros(k, 4), zeros(m, 4));
        plan.run_into(1.0, &b, 0.0, &mut c).unwrap();

        let error = plan.run_into(1.0, &zeros(k - 1, 4), 0.0, &mut c).unwrap_err();
        assert_eq!(error, SpmmError::InnerDim { a_cols: k, b_rows: k - 1 });
        assert_eq!(error.to_string(), "A has 620 columns but B has 619 rows; they must be equal");
        for (rows, cols) in [(m + 1, 4), (m, 3)] {
            let error = plan.run_into(1.0, &b, 0.0, &mut zeros(rows, cols)).unwrap_err();
            assert_eq!(
                error,
                SpmmError::Plan(PlanError::OutputShape { rows, cols, expected_rows: m, expected_cols: 4 })
            );
        }
        assert_eq!(plan.run(&[0.0; 3]), Err(SpmmError::PackedLength { len: 3, a_cols: k }));

        let half = DeviceMatrix::<f16>::zeros(&device, k, 4).unwrap();
        let error = plan.run_into(1.0, &half, 0.0, &mut c).unwrap_err();
        assert_eq!(
            error,
            SpmmError::Plan(PlanError::ElementType { operand: "B", found: "f16", expected: Precision::F32 })
        );
        let plan = Setup::new(Algorithm::RowSplit, Precision::Tf32).plan(&device, &case);
        plan.run_into(1.0, &b, 0.0, &mut c).unwrap();
        assert_eq!(
            plan.run_into(1.0, &half, 0.0, &mut c).unwrap_err().to_string(),
            "B holds f16 but a plan of precision tf32 takes f32; convert it or build another plan"
        );
        let plan = Setup::new(Algorithm::RowSplit, Precision::Bf16).plan(&device, &case);
        plan.run_into(1.0, &DeviceMatrix::<bf16>::zeros(&device, k, 4).unwrap(), 0.0, &mut c).unwrap();
        let error = plan.run_into(1.0, &half, 0.0, &mut c).unwrap_err();
        assert_eq!(
            error,
            SpmmError::Plan(PlanError::ElementType { operand: "B", found: "f16", expected: Precision::Bf16 })
        );
        let plan = Setup::new(Algorithm::RowSplit, Precision::F32).plan(&device, &case);

        let elsewhere = match device.kind() {
            DeviceKind::Cpu => Device::emulator(EmulatorSchedule::InOrder),
            _ => Device::cpu(),
        };
        let far = DeviceMatrix::<f32>::zeros(&elsewhere, k, 4).unwrap();
        let error = plan.run_into(1.0, &far, 0.0, &mut c).unwrap_err();
        assert!(matches!(error, SpmmError::Plan(PlanError::WrongDevice { operand: "B", .. })), "{error}");
        let mut far = DeviceMatrix::<f32>::zeros(&elsewhere, m, 4).unwrap();
        let error = plan.run_into(1.0, &b, 0.0, &mut far).unwrap_err();
        assert!(matches!(error, SpmmError::Plan(PlanError::WrongDevice { operand: "C", .. })), "{error}");
    }
    report_missing_gpu("refusals", 7);
}

#[test]
fn unsupported_combinations_say_what_to_do() {
    let a = Csr::<f32>::identity(3).unwrap();
    for device in devices() {
        for algorithm in [Algorithm::TileStream, Algorithm::Hybrid] {
            let error = Spmm::builder(&a).algorithm(algorithm).build(&device).unwrap_err();
            let expected = format!(
                "algorithm {algorithm} does not support precision f32; use precision tf32, bf16 or f16, or algorithm row-split"
            );
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[test]
fn an_order_of_the_wrong_length_is_refused_everywhere() {
    let a = Csr::<f32>::identity(3).unwrap();
    let order = Permutation::try_from_new_to_old(vec![1, 0]).unwrap();
    for device in devices() {
        let error = Spmm::builder(&a).order(&order).build(&device).unwrap_err();
        let SpmmError::Plan(PlanError::Format(FormatError::LengthMismatch { found, expected, .. })) = error
        else {
            panic!("{error}");
        };
        assert_eq!((found, expected), (2, 3), "{device}");
    }
    report_missing_gpu("orders", 1);
}

/// The need is known before anything is allocated: exactly what the device then hands out.
///
/// Promise, memory: a plan allocates what its report says, to the byte, and one that would pass a limit is refused
/// before.
#[test]
fn memory_is_accounted_to_the_byte_and_limited() {
    let case = case(100);
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let free = || device.memory_free().unwrap().unwrap();
    for (algorithm, precision, form) in forms() {
        let builder = || {
            let builder = Spmm::builder(&case.a).algorithm(algorithm).precision(precision).tile_values(form);
            builder.width(100).workers(20)
        };
        let before = free();
        let plan = builder().build(&device).unwrap();
        let report = plan.report().clone();
        assert_eq!(before - free(), report.device_bytes, "{algorithm} {precision}");
        assert_eq!(report.arrays.iter().map(|array| array.bytes).sum::<u64>(), report.device_bytes);
        assert_eq!(report.split > 0, report.workspace_bytes > 0);
        drop(plan);
        assert_eq!(free(), before, "a dropped plan leaves nothing behind");

        builder().memory_limit(report.device_bytes).build(&device).unwrap();
        let limit = report.device_bytes - 1;
        let error = builder().memory_limit(limit).build(&device).unwrap_err();
        let largest = report.arrays.iter().max_by_key(|array| array.bytes).unwrap();
        let (needed, largest, largest_bytes) = (report.device_bytes, largest.name, largest.bytes);
        let remedy = "raise the limit, lower the width, or choose algorithm row-split";
        assert_eq!(
            error,
            SpmmError::Plan(PlanError::MemoryLimit { needed, limit, largest, largest_bytes, remedy })
        );
        let text = format!(
            "the plan needs {needed} bytes on the device, the limit is {limit}; the largest array is \
             {largest} with {largest_bytes} bytes; {remedy}"
        );
        assert_eq!(error.to_string(), text);
        assert_eq!(free(), before, "a refused plan leaves nothing behind");
    }
    let error = Spmm::builder(&case.a).memory_limit(10).build(&Device::cpu()).unwrap_err();
    assert!(matches!(error, SpmmError::Plan(PlanError::MemoryLimit { limit: 10, .. })), "{error}");
}

#[test]
fn a_full_device_is_an_error_with_numbers() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let total = device.memory_total().unwrap();
    let error = DeviceMatrix::<f32>::zeros(&device, 1 << 20, 1 << 10).unwrap_err();
    let PlanError::Device(DeviceError::OutOfMemory { asked, free, total: of, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!((asked, free, of), (4 << 30, total, total));
    if let Some(gpu) = gpu() {
        let error = DeviceMatrix::<f32>::zeros(&gpu, 1 << 22, 1 << 22).unwrap_err();
        assert!(matches!(error, PlanError::Device(DeviceError::OutOfMemory { .. })), "{error}");
        DeviceMatrix::<f32>::zeros(&gpu, 16, 16).unwrap();
    }
    report_missing_gpu("out of memory", 1);
}

#[test]
fn reports_tell_what_the_plan_is() {
    let case = case(64);
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let plan = Spmm::builder(&case.a)
        .width(64)
        .precision(Precision::F16)
        .algorithm(Algorithm::Hybrid)
        .partition(PartitionRule::ShortRows { max_entries: 3 })
        .tile_values(TileValues::Packed)
        .workers(20)
        .build(&device)
        .unwrap();
    let report = plan.report();
    assert_eq!((report.rows, report.cols, report.nnz), (12, 620, case.a.nnz()));
    assert_eq!((report.empty_rows, report.residual_rows), (2, 4));
    let in_tiles: usize = (0..12).map(|r| case.a.row_len(r)).filter(|&len| len > 3).sum();
    approx::assert_relative_eq!(
        report.tile_share,
        in_tiles as f64 / case.a.nnz() as f64,
        max_relative = 1e-12
    );
    assert_eq!(report.windows, 2, "one of the two empty rows");
    assert_eq!(report.tiles, report.column_vectors.div_ceil(8));
    assert_eq!(
        (report.steps, report.gather_places),
        (report.tiles.div_ceil(2) + 1, 16 * (report.tiles.div_ceil(2) + 1)),
        "the window of empty rows has a step without tiles"
    );
    assert_eq!((report.tile_values, report.tile_values_reason.as_str()), (TileValues::Packed, "as asked"));
    // The long window is shared by a team: nothing is cut.
    assert_eq!(report.entries, ["spmm_short_rows_f16_l8", "spmm_tile_stream_f16_64_packed"]);
    let scalar = (case.a.nnz() - in_tiles) as f64;
    assert_eq!(report.gathered_bytes(64), (scalar + report.column_vectors as f64) * 128.0);
    assert!(report.preprocessing_us() > 0.0);
    let text = report.to_string();
    for part in ["12 × 620", "hybrid in f16: as asked", "workspace", "record_starts", "4 rows", "upload"] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let rates = windrow::Rates { copy: 4e12, gather: 8e12 };
    let streamed = (report.device_bytes - report.workspace_bytes + 620 * 64 * 2 + 12 * 64 * 4) as f64 / 4e12;
    let gathered = report.gathered_bytes(64) / 8e12;
    approx::assert_relative_eq!(
        report.roofline_us(64, rates),
        streamed.max(gathered) * 1e6,
        max_relative = 1e-12
    );
}

/// The time that a plan predicts is the one for which its partition was chosen, empty rows included.
#[test]
fn a_plan_predicts_what_the_estimate_did() {
    let model = CostModel::h200();
    let offsets = (0..=100u64).map(|row| 3 * row.saturating_sub(41)).collect();
    let columns = (0..59 * 3).map(|i| i % 3 * 20 + i / 3 % 17).collect();
    let a = Csr::try_from_parts(100, 60, offsets, columns, vec![1.0f32; 59 * 3]).unwrap();
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let shape = ProductShape { rows: 100, cols: 60, width: 64, element_bytes: 2 };
    for rule in [
        PartitionRule::AllTile,
        PartitionRule::AllResidual,
        PartitionRule::Overlap { thresholds: Thresholds::new(3) },
    ] {
        let builder = Spmm::builder(&a).width(64).precision(Precision::F16).algorithm(Algorithm::Hybrid);
        let plan = builder.partition(rule).build(&device).unwrap();
        let want = model.path_seconds(&density(&a, None, rule).unwrap(), shape);
        assert_eq!(plan.report().predicted_us, want.map(|seconds| seconds * 1e6), "{rule:?}");
    }
}

#[test]
fn overflow_of_a_precision_is_counted() {
    let a = Csr::try_from_parts(1, 3, vec![0, 3], vec![0, 1, 2], vec![1e5f32, 1.0, f32::INFINITY]).unwrap();
    for device in devices() {
        let plan = Spmm::builder(&a).precision(Precision::F16).build(&device).unwrap();
        assert_eq!(plan.report().overflowed_values, 1);
        for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
            let plan = Spmm::builder(&a).precision(precision).build(&device).unwrap();
            assert_eq!(plan.report().overflowed_values, 0, "{precision}");
        }
        let a = Csr::try_from_parts(1, 1, vec![0, 1], vec![0], vec![f32::MAX]).unwrap();
        for precision in [Precision::Tf32, Precision::Bf16] {
            let mut plan = Spmm::builder(&a).precision(precision).build(&device).unwrap();
            assert_eq!(plan.report().overflowed_values, 1, "{precision}");
            plan.replace_values(&[1e38f32]).unwrap();
            assert_eq!(plan.report().overflowed_values, 0, "{precision}");
        }
    }
}

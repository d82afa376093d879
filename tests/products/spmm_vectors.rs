//! Hybrids divided by column vectors: rows with entries in tiles and in segments.

use crate::common::{
    Layout, Setup, all_cases, check, column_vectors, devices, report_missing_gpu, run_case, takes_turn,
};
use windrow::partition::{CostModel, PartitionRule, ProductShape, VectorThreshold, density};
use windrow::{
    Algorithm, Csr, Determinism, Device, DeviceKind, EmulatorSchedule, OccupancyThresholds, Precision,
    Profile, Schedule, Spmm, SpmmOptions, SpmmReport, TileValues,
};
use windrow_testkit::{
    Case, Operands, Pattern, SplitMix64, Tally, Values, edge_cases, non_finite_cases, value_cases,
};

const PRECISIONS: [Precision; 3] = [Precision::F16, Precision::Bf16, Precision::Tf32];

/// `least` of 8 entries make a vector of tiles.
fn vectors(least: usize, precision: Precision) -> Setup {
    Setup::new(Algorithm::Hybrid, precision).told(|o| o.partition = column_vectors(least))
}

/// Windows with rows of every sort: in tiles alone, in segments alone, in both; and rows without entries.
///
/// In each of `windows` windows, rows 0 to 4 share `shared` columns, of which row 5 has every fourth; rows 0, 2 and 6
/// have `own` columns that no other has, row 7 has one. An empty row follows.
fn mixed(windows: usize, shared: usize, own: usize) -> Pattern {
    let (mut rows, mut next) = (Vec::new(), 0u32);
    let mut columns = |count: usize| {
        let columns: Vec<u32> = (next..).take(count).collect();
        next += u32::try_from(count).unwrap();
        columns
    };
    for _ in 0..windows {
        let shared = columns(shared);
        for row in 0..9 {
            let mut of_row = match row {
                0..=4 => shared.clone(),
                5 => shared.iter().copied().step_by(4).collect(),
                _ => Vec::new(),
            };
            of_row.extend(match row {
                0 | 2 | 6 => columns(own),
                7 => columns(1),
                _ => Vec::new(),
            });
            rows.push(of_row);
        }
    }
    Pattern { cols: next as usize, rows }
}

/// Products with [`mixed`] matrices, long and short, with and without what `C` held.
fn mixed_cases(values: Values) -> Vec<Case> {
    let mut rng = SplitMix64::new(0x11b7a);
    let mut cases = Vec::new();
    for (windows, shared, own) in [(3, 5, 20), (1, 700, 40), (1, 6, 500), (1, 700, 100), (1, 20, 9)] {
        for (i, (n, scalars)) in
            [(9, (0.5, -2.0)), (64, (1.0, 0.0)), (72, (-1.0, 1.0))].into_iter().enumerate()
        {
            let pattern = mixed(windows, shared, own);
            let operands = Operands { n, padding: i, scalars, values, poison: true };
            cases.push(Case::from_pattern("mixed", &pattern, operands, &mut rng));
        }
    }
    cases
}

fn some_cases() -> Vec<Case> {
    edge_cases().into_iter().chain(value_cases()).chain(non_finite_cases()).collect()
}

fn report(setup: Setup, case: &Case) -> SpmmReport {
    setup.plan(&Device::emulator(EmulatorSchedule::InOrder), case).report().clone()
}

/// The cases are worth their name: each sort of row, and of cut, occurs.
#[test]
fn mixed_cases_are_mixed() {
    let reports: Vec<_> = mixed_cases(Values::Integers)
        .iter()
        .map(|case| report(vectors(3, Precision::F16).told(|o| o.workers = Some(40)), case))
        .collect();
    assert!(
        reports.iter().all(|r| r.empty_rows > 0 && r.rows_in_both > 0 && r.residual_rows > r.rows_in_both)
    );
    assert!(reports.iter().any(|r| r.split_rows > 0 && r.split > r.split_rows), "rows and windows are cut");
    assert!(reports.iter().any(|r| r.split_rows == 0 && r.split > 0), "only windows");
    assert!(reports.iter().any(|r| r.split_rows > 0 && r.split == r.split_rows), "only rows");
}

#[test]
fn every_threshold_in_every_precision() {
    for precision in PRECISIONS {
        for least in [1, 2, 3, 5, 8] {
            let setup = vectors(least, precision).told(|o| o.workers = Some(40));
            check(setup, &mixed_cases(Values::Integers));
        }
        check(vectors(3, precision), &mixed_cases(Values::Reals));
    }
}

#[test]
fn the_tables_of_cases() {
    for (precision, least, workers) in
        [(Precision::F16, 2, 3), (Precision::Bf16, 3, 1000), (Precision::Tf32, 5, 1)]
    {
        check(vectors(least, precision).told(|o| o.workers = Some(workers)), &some_cases());
    }
}

/// Rounded once, whatever was added to what.
#[test]
fn half_outputs() {
    let many = |precision| vectors(3, precision).told(|o| o.workers = Some(40));
    let half = |precision| Setup { narrow: Some(Precision::F16), ..many(precision) };
    for precision in PRECISIONS {
        check(half(precision), &mixed_cases(Values::Reals));
    }
    check(half(Precision::F16), &some_cases());
    let any_order = half(Precision::F16).told(|o| o.determinism = Determinism::Fast);
    check(any_order, &mixed_cases(Values::Reals));
}

#[test]
fn parts_added_in_any_order() {
    for precision in [Precision::F16, Precision::Tf32] {
        let any_order = vectors(3, precision).told(|o| o.determinism = Determinism::Fast);
        let setup = any_order.told(|o| o.workers = Some(40));
        check(setup, &mixed_cases(Values::Integers));
        check(setup.told(|o| o.workers = Some(1000)), &some_cases());
    }
}

/// In two streams segments do not wait for tiles, and rows in both are added in the end: to the bits of one stream.
#[test]
fn two_streams() {
    let beside = |least, precision, workers| {
        vectors(least, precision).told(|o| (o.schedule, o.workers) = (Schedule::MultiStream, workers))
    };
    for precision in PRECISIONS {
        for (least, workers) in [(2, Some(40)), (3, Some(1000)), (5, None)] {
            check(beside(least, precision, workers), &mixed_cases(Values::Reals));
        }
    }
    let setup = beside(2, Precision::F16, Some(40));
    check(setup, &some_cases());
    check(Setup { narrow: Some(Precision::F16), ..setup }, &mixed_cases(Values::Reals));
    check(setup.told(|o| o.determinism = Determinism::Fast), &mixed_cases(Values::Reals));
    // Rows that are in one part or the other.
    let rows = setup.told(|o| o.partition = Some(PartitionRule::ShortRows { max_entries: 3 }));
    check(rows, &mixed_cases(Values::Reals));
    check(Setup { narrow: Some(Precision::F16), ..rows }, &some_cases());
}

/// The order of the launches changes no bit, run after run.
///
/// Promise, determinism: two streams give the bits of one.
#[test]
fn schedules_agree_bit_by_bit() {
    let (mut compared, mut devices) = (0, devices());
    devices.retain(|device| device.kind() != DeviceKind::Cpu);
    let cases = mixed_cases(Values::Reals);
    for device in &devices {
        // A GPU may do otherwise the next time; the emulator repeats its schedule.
        let again = if device.kind() == DeviceKind::Emulator && !all_cases() { 1 } else { 20 };
        for case in
            cases.iter().enumerate().filter(|(turn, _)| takes_turn(device, *turn)).map(|(_, case)| case)
        {
            let run = |schedule| {
                let setup =
                    vectors(2, Precision::Tf32).told(|o| (o.schedule, o.workers) = (schedule, Some(40)));
                let plan = setup.plan(device, case);
                let scheduling = plan.report().scheduling.clone();
                let ones = vec![0.7; case.k() * case.n];
                let once = plan.run(&ones).unwrap();
                for _ in 0..again {
                    assert_eq!(plan.run(&ones).unwrap(), once, "{schedule} on {device}");
                }
                (once, scheduling)
            };
            let ((one, sequential), (two, beside)) = (run(Schedule::Sequential), run(Schedule::MultiStream));
            assert_eq!(one, two, "{} on {device}", case.name);
            let (sequential, beside) = (sequential.unwrap(), beside.unwrap());
            assert_eq!((sequential.used, beside.used), (Schedule::Sequential, Schedule::MultiStream));
            assert!(beside.cuda_cores > 0.0 && beside.tensor_cores > 0.0);
            assert_eq!(sequential.cuda_cores, beside.cuda_cores);
            // By Libra's rule: each ratio has a threshold of its own, and one that is reached is enough for one stream.
            let (above, below) = (2.0 * beside.cuda_cores, 0.5 * beside.tensor_cores);
            for (tensor_cores, used) in [(f64::MAX, Schedule::MultiStream), (below, Schedule::Sequential)] {
                let mut profile = Profile::built_in(device);
                profile.thresholds = OccupancyThresholds { cuda_cores: above, tensor_cores };
                let setup = vectors(2, Precision::Tf32)
                    .told(|o| (o.schedule, o.workers) = (Schedule::Thresholds, Some(40)));
                let builder = Spmm::builder(&case.a).options(SpmmOptions { width: case.n, ..setup.options });
                let plan = builder.profile(&profile).build(device).unwrap();
                assert_eq!(plan.report().scheduling.as_ref().unwrap().used, used, "{}", case.name);
                assert_eq!(
                    plan.run(&vec![0.7; case.k() * case.n]).unwrap(),
                    one,
                    "{} on {device}",
                    case.name
                );
            }
            compared += 1;
        }
    }
    assert!(compared >= cases.len());
    report_missing_gpu("schedules of hybrids", cases.len());
}

#[test]
fn rows_in_another_order_and_packed_values() {
    for (least, tile_values) in [(2, TileValues::Packed), (3, TileValues::Dense)] {
        let held =
            vectors(least, Precision::F16).told(|o| (o.tile_values, o.workers) = (tile_values, Some(40)));
        let setup = Setup { reversed: true, ..held };
        check(setup, &mixed_cases(Values::Reals));
        check(setup, &some_cases());
    }
}

/// A plan for one width runs another: blocks of columns of the workspace, and of an f16 `C`.
#[test]
fn any_width() {
    let mut rng = SplitMix64::new(0x51de);
    let pattern = mixed(1, 300, 400);
    for device in devices() {
        let mut tally = Tally::new(format!("vectors of any width on {device}"));
        for (n, narrow) in [(1, None), (130, None), (200, Some(Precision::F16)), (64, Some(Precision::Bf16))]
        {
            let operands =
                Operands { n, padding: 3, scalars: (0.5, 2.0), values: Values::Reals, poison: true };
            let case = Case::from_pattern("any width", &pattern, operands, &mut rng);
            let many = vectors(3, Precision::F16).told(|o| o.workers = Some(40));
            let setup = Setup { width: Some(64), narrow, ..many };
            for layout in [Layout::AsGiven, Layout::Aligned] {
                tally.ran(&run_case(setup, &device, &case, layout));
            }
        }
        tally.finish();
    }
    report_missing_gpu("vectors of any width", 8);
}

#[test]
fn new_values_go_to_their_places() {
    let case = &mixed_cases(Values::Integers)[9];
    for device in devices() {
        for least in [1, 3, 8] {
            let setup = vectors(least, Precision::Tf32).told(|o| o.workers = Some(40));
            let mut plan = setup.plan(&device, case);
            let mut rng = SplitMix64::new(6);
            let values: Vec<f32> = (0..case.a.nnz()).map(|_| rng.integer()).collect();
            plan.replace_values(&values).unwrap();
            let b = case.packed_b();
            let n = case.n;
            let a = case.a.with_values(values).unwrap();
            let mut want = vec![0.0; a.rows() * n];
            for (row, want) in want.chunks_mut(n).enumerate() {
                let (columns, values) = a.row(row);
                for (&column, value) in columns.iter().zip(values) {
                    let b = &b[column as usize * n..][..n];
                    want.iter_mut().zip(b).for_each(|(want, b)| *want += value * b);
                }
            }
            assert_eq!(plan.run(&b).unwrap(), want, "{least} of 8 on {device}");
        }
    }
    report_missing_gpu("new values", 3);
}

/// Every schedule, and every run, gives the same bits.
#[test]
fn sums_have_one_order() {
    let cases = mixed_cases(Values::Reals);
    let setup = vectors(3, Precision::F16).told(|o| o.workers = Some(40));
    for case in cases.iter().filter(|case| report(setup, case).split > 0) {
        let run = |schedule| {
            let plan = setup.plan(&Device::emulator(schedule), case);
            let bits =
                || plan.run(&case.packed_b()).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>();
            let first = bits();
            assert_eq!(first, bits(), "two runs of one plan differ");
            first
        };
        let [first, others @ ..] = EmulatorSchedule::STANDARD.map(run);
        assert!(others.iter().all(|other| *other == first));
    }
}

#[test]
fn reports_tell_how_entries_are_divided() {
    let pattern = mixed(2, 30, 40);
    let a = pattern.with_data(vec![1.0; pattern.nnz()]);
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let plan = |threshold| {
        let builder = Spmm::builder(&a).width(64).precision(Precision::F16).algorithm(Algorithm::Hybrid);
        let builder = builder.schedule(Schedule::Sequential);
        builder.partition(PartitionRule::ColumnVectors { threshold }).build(&device).unwrap()
    };
    let libra = plan(VectorThreshold::LIBRA);
    let report = libra.report();
    // 30 full vectors of a window are two steps, filled with 2 of the 121 columns of one entry.
    assert_eq!((report.steps, report.column_vectors), (2 * 2 + 1, 2 * 32));
    let in_tiles = 2 * (5 * 30 + 8 + 2);
    approx::assert_relative_eq!(
        report.tile_share,
        f64::from(in_tiles) / a.nnz() as f64,
        max_relative = 1e-12
    );
    assert_eq!((report.residual_rows, report.rows_in_both, report.empty_rows), (8, 4, 2));
    assert_eq!(report.gathered_bytes(64), f64::from(2 * 119 + 64) * 128.0);
    let text = report.to_string();
    assert!(text.contains("residual       8 rows, 4 of them in tiles too"), "{text}");
    assert!(text.contains("schedule       sequential, as asked: occupancy "), "{text}");
    assert_eq!(report.entries, ["spmm_row_split_f16_l8w4", "spmm_tile_stream_f16_64"], "f32 outputs");
    let names: Vec<_> = report.arrays.iter().map(|array| array.name).collect();
    assert!(
        names.contains(&"segments") && names.contains(&"wide_c") && names.contains(&"records"),
        "{names:?}"
    );

    let shape = ProductShape { rows: a.rows(), cols: a.cols(), width: 64, element_bytes: 2 };
    let predicted = |threshold| {
        let density = density(&a, None, PartitionRule::ColumnVectors { threshold }).unwrap();
        CostModel::h200().path_seconds(&density, shape).map(|seconds| seconds * 1e6)
    };
    for threshold in VectorThreshold::ALL.into_iter().filter(|threshold| threshold.entries() <= 6) {
        assert_eq!(plan(threshold).report().predicted_us, predicted(threshold), "{threshold}");
    }

    let all = plan(VectorThreshold::ALL[0]);
    assert_eq!((all.report().tile_share, all.report().segments, all.report().rows_in_both), (1.0, 0, 0));
    let none = Csr::<f32>::identity(40).unwrap();
    let builder = Spmm::builder(&none).precision(Precision::F16).algorithm(Algorithm::Hybrid);
    let threshold = VectorThreshold::LIBRA;
    let none = builder.partition(PartitionRule::ColumnVectors { threshold }).build(&device).unwrap();
    assert_eq!((none.report().tiles, none.report().segments), (0, 40));
    assert!(none.report().reason.contains("no column vector is 3/8 full"), "{}", none.report().reason);
    let on_cpu = vectors(3, Precision::F16).plan(&Device::cpu(), &mixed_cases(Values::Integers)[0]);
    assert_eq!((on_cpu.report().device_kind, on_cpu.report().rows_in_both), (DeviceKind::Cpu, 0));
}

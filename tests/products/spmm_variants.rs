//! Output types, cut windows, blocks of columns and partitions: what the tables alone would not reach.

use crate::common::{Layout, Setup, check, devices, report_missing_gpu, run_case};
use windrow::partition::PartitionRule;
use windrow::{
    Algorithm, Determinism, Device, DeviceCsr, DeviceKind, EmulatorSchedule, Precision, Preprocessing, Spmm,
    SpmmError, SpmmOptions, TilePipeline, TileValues,
};
use windrow_testkit::{
    Case, Operands, Pattern, SplitMix64, Tally, Values, edge_cases, non_finite_cases, value_cases,
};

fn some_cases() -> Vec<Case> {
    edge_cases().into_iter().chain(value_cases()).chain(non_finite_cases()).collect()
}

#[test]
fn half_outputs() {
    for (algorithm, precision) in [
        (Algorithm::RowSplit, Precision::F32),
        (Algorithm::RowSplit, Precision::F16),
        (Algorithm::RowSplit, Precision::Tf32),
        (Algorithm::RowSplit, Precision::Bf16),
        (Algorithm::ShortRows, Precision::F16),
        (Algorithm::ShortRows, Precision::Bf16),
        (Algorithm::Hybrid, Precision::F16),
    ] {
        check(Setup { narrow: Some(Precision::F16), ..Setup::new(algorithm, precision) }, &some_cases());
    }
}

#[test]
fn auto_chooses_something_right() {
    for precision in Precision::ALL {
        check(Setup::new(Algorithm::Auto, precision), &some_cases());
    }
}

/// One warp has every window to itself; many cut every window that can be cut.
#[test]
fn tile_streams_of_one_few_and_many_workers() {
    for (workers, precision) in [
        (1, Precision::F16),
        (3, Precision::F16),
        (1000, Precision::F16),
        (1000, Precision::Bf16),
        (3, Precision::Tf32),
        (1000, Precision::Tf32),
    ] {
        let setup = Setup::new(Algorithm::TileStream, precision).told(|o| o.workers = Some(workers));
        check(setup, &some_cases());
    }
}

/// Packed values in cut windows, hybrids, other orders of rows, f16 outputs, and added in any order.
#[test]
fn packed_values_in_every_sort_of_plan() {
    let packed = |algorithm, precision, workers| {
        Setup::new(algorithm, precision)
            .told(|o| (o.tile_values, o.workers) = (TileValues::Packed, Some(workers)))
    };
    let streams =
        [(1, Precision::F16), (3, Precision::Bf16), (1000, Precision::F16), (1000, Precision::Tf32)];
    for (workers, precision) in streams {
        check(packed(Algorithm::TileStream, precision, workers), &some_cases());
    }
    let estimated = packed(Algorithm::Hybrid, Precision::F16, 40).told(|o| o.partition = None);
    check(estimated, &some_cases());
    check(Setup { reversed: true, ..packed(Algorithm::TileStream, Precision::Bf16, 5) }, &some_cases());
    check(
        Setup { narrow: Some(Precision::F16), ..packed(Algorithm::Hybrid, Precision::Tf32, 7) },
        &some_cases(),
    );
    let any_order = packed(Algorithm::TileStream, Precision::F16, 1000);
    check(any_order.told(|o| o.determinism = Determinism::Fast), &some_cases());
}

/// Both forms of values give the MMA the same operands: not one bit differs, nor where sums are computed again.
///
/// Promise, determinism: dense and packed values of tiles give the same bits.
#[test]
fn both_forms_of_values_give_the_same_bits() {
    let mut rng = SplitMix64::new(0xf042);
    let pattern = Pattern::from_lengths(300, [3, 250, 0, 40, 2, 300, 9, 1, 70, 5, 16, 128, 8, 8], &mut rng);
    for (n, non_finite) in [(40, false), (130, true), (7, true)] {
        let operands = Operands { n, padding: 0, scalars: (1.0, 0.0), values: Values::Reals, poison: false };
        let mut case = Case::from_pattern("forms", &pattern, operands, &mut rng);
        if non_finite {
            case.b[17 * case.ldb] = f32::INFINITY;
            case.b[200 * case.ldb + n / 2] = f32::NAN;
        }
        for precision in [Precision::F16, Precision::Bf16, Precision::Tf32] {
            for device in devices().into_iter().filter(|device| device.kind() != DeviceKind::Cpu) {
                let forms = [TileValues::Dense, TileValues::Packed, TileValues::Bitmap];
                let [dense, packed, bitmap] = forms.map(|tile_values| {
                    let setup = Setup::new(Algorithm::TileStream, precision)
                        .told(|o| (o.tile_values, o.workers) = (tile_values, Some(9)));
                    let plan = setup.plan(&device, &case);
                    assert_eq!(plan.report().tile_values, tile_values);
                    // All NaN are one: which of its bits a sum keeps is the hardware's.
                    let bits = |x: f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
                    let c = plan.run(&case.packed_b()).unwrap();
                    assert_eq!(c.iter().all(|x| x.is_finite()), !non_finite);
                    c.into_iter().map(bits).collect::<Vec<_>>()
                });
                assert_eq!(dense, packed, "{precision}, n = {n}, on {device}");
                assert_eq!(dense, bitmap, "bitmaps, {precision}, n = {n}, on {device}");
            }
        }
    }
    report_missing_gpu("forms of values", 9);
}

/// However rows of `B` come, the same numbers are multiplied and added: the same bits as through three stages, also in
/// windows that a team shares, windows that are cut, and where a product is not finite.
#[test]
fn pipelines_give_the_same_bits() {
    let mut rng = SplitMix64::new(0xf0e2);
    let pattern = Pattern::from_lengths(300, [3, 250, 0, 40, 2, 300, 9, 1, 70, 5, 16, 128, 8, 8], &mut rng);
    for (n, non_finite) in [(40, false), (130, true), (64, true)] {
        let operands = Operands { n, padding: 0, scalars: (1.0, 0.0), values: Values::Reals, poison: false };
        let mut case = Case::from_pattern("pipelines", &pattern, operands, &mut rng);
        if non_finite {
            case.b[17 * case.ldb] = f32::INFINITY;
            case.b[200 * case.ldb + n / 2] = f32::NAN;
        }
        for (device, workers) in devices().into_iter().flat_map(|device| [(device.clone(), 9), (device, 40)])
        {
            if device.kind() == DeviceKind::Cpu {
                continue;
            }
            for tile_values in [TileValues::Dense, TileValues::Packed, TileValues::Bitmap] {
                let [three, two, registers] = TilePipeline::ALL.map(|pipeline| {
                    let setup = Setup::new(Algorithm::TileStream, Precision::F16).told(|o| {
                        (o.tile_values, o.tile_pipeline, o.workers) = (tile_values, pipeline, Some(workers));
                    });
                    let bits = |x: f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
                    let c = setup.plan(&device, &case).run(&case.packed_b()).unwrap();
                    assert_eq!(c.iter().all(|x| x.is_finite()), !non_finite);
                    c.into_iter().map(bits).collect::<Vec<_>>()
                });
                assert_eq!(three, two, "{tile_values}, n = {n}, {workers} workers on {device}");
                assert_eq!(three, registers, "{tile_values}, n = {n}, {workers} workers on {device}");
            }
        }
    }
    report_missing_gpu("pipelines", 18);
}

/// Other pipelines in hybrids, other orders of rows, f16 outputs, and added in any order.
#[test]
fn pipelines_in_every_sort_of_plan() {
    let setup = |algorithm, tile_pipeline, workers| {
        Setup::new(algorithm, Precision::F16)
            .told(|o| (o.tile_pipeline, o.workers) = (tile_pipeline, Some(workers)))
    };
    check(setup(Algorithm::TileStream, TilePipeline::TwoStages, 1000), &some_cases());
    check(setup(Algorithm::TileStream, TilePipeline::Registers, 1000), &some_cases());
    check(setup(Algorithm::TileStream, TilePipeline::Registers, 1), &some_cases());
    check(Setup { reversed: true, ..setup(Algorithm::Hybrid, TilePipeline::Registers, 7) }, &some_cases());
    let narrow = setup(Algorithm::Hybrid, TilePipeline::Registers, 7)
        .told(|o| (o.tile_values, o.window_each) = (TileValues::Bitmap, true));
    check(Setup { narrow: Some(Precision::F16), ..narrow }, &some_cases());
}

/// Other pipelines are for f16; a plan without tiles disregards them.
#[test]
fn pipelines_without_kernels_are_refused() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let a = windrow::Csr::<f32>::identity(20).unwrap();
    let builder = Spmm::builder(&a).width(4).tile_pipeline(TilePipeline::Registers);
    let tiles = builder.clone().algorithm(Algorithm::TileStream);
    for precision in [Precision::Bf16, Precision::Tf32] {
        let error = tiles.clone().precision(precision).build(&device).unwrap_err();
        assert_eq!(error, SpmmError::NoPipeline { pipeline: TilePipeline::Registers, precision });
    }
    let plan = tiles.precision(Precision::F16).build(&device).unwrap();
    assert_eq!(plan.report().entries[0], "spmm_tile_stream_f16_64_registers");
    let rows = builder.algorithm(Algorithm::RowSplit).precision(Precision::Bf16);
    assert!(rows.build(&device).is_ok());
}

/// Values behind bitmaps in cut windows, hybrids, other orders of rows, and f16 outputs.
#[test]
fn bitmaps_in_every_sort_of_plan() {
    let setup = |algorithm, precision, workers| {
        Setup::new(algorithm, precision)
            .told(|o| (o.tile_values, o.workers) = (TileValues::Bitmap, Some(workers)))
    };
    check(setup(Algorithm::TileStream, Precision::F16, 1000), &some_cases());
    check(setup(Algorithm::Hybrid, Precision::F16, 40), &some_cases());
    check(Setup { reversed: true, ..setup(Algorithm::TileStream, Precision::Bf16, 5) }, &some_cases());
    check(
        Setup { narrow: Some(Precision::F16), ..setup(Algorithm::Hybrid, Precision::Tf32, 7) },
        &some_cases(),
    );
}

/// Bitmaps are laid out on the host, wherever the matrix is and whatever is asked; the report says so.
#[test]
fn bitmaps_are_laid_out_on_the_host() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let a = windrow::Csr::<f32>::identity(40).unwrap();
    let options = SpmmOptions {
        width: 4,
        precision: Precision::F16,
        algorithm: Algorithm::TileStream,
        preprocessing: Preprocessing::Gpu,
        tile_values: TileValues::Bitmap,
        ..SpmmOptions::default()
    };
    let plan = Spmm::builder(&a).options(options).build(&device).unwrap();
    let report = plan.report();
    assert_eq!((report.tile_values, report.preprocessing), (TileValues::Bitmap, Preprocessing::Cpu));
    assert_eq!(report.preprocessing_reason, "values behind bitmaps are laid out there");
    let on_device = DeviceCsr::from_host(&device, &a).unwrap();
    let copied = Spmm::builder(&on_device).options(options).build_on(&device.stream()).unwrap();
    let why = &copied.report().preprocessing_reason;
    assert_eq!(why, "a copy of the matrix, on the host: values behind bitmaps are laid out there");
    let b: Vec<f32> = (0..160u8).map(f32::from).collect();
    assert_eq!(copied.run(&b).unwrap(), b);
    assert_eq!(plan.run(&b).unwrap(), b);
}

/// `Auto` looks at the entries of a step and the steps of a worker; the report says what it found.
#[test]
fn the_form_of_values_follows_the_density_of_tiles() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let report = |a: &windrow::Csr<f32>, form| {
        let builder = Spmm::builder(a).precision(Precision::F16).algorithm(Algorithm::TileStream);
        builder.width(64).workers(16).tile_values(form).build(&device).unwrap().report().clone()
    };
    let full = windrow::Csr::from_dense(16, 32, &[1.0; 512]).unwrap();
    // Few entries a step, steps enough for every worker, and a B of 4 MiB.
    let thin = windrow::Csr::<f32>::identity(1 << 15).unwrap();
    let auto = report(&full, TileValues::Auto);
    assert_eq!((auto.tile_values, auto.entries[0]), (TileValues::Dense, "spmm_tile_stream_f16_64"));
    assert!(auto.to_string().contains("tile values    dense: 128.0 entries a step"), "{auto}");
    let auto = report(&thin, TileValues::Auto);
    assert_eq!((auto.tile_values, auto.entries[0]), (TileValues::Packed, "spmm_tile_stream_f16_64_packed"));
    assert!(
        auto.to_string().contains("tile values    packed: 8.0 entries a step, 256.0 steps a warp"),
        "{auto}"
    );
    let few = report(&windrow::Csr::identity(64).unwrap(), TileValues::Auto);
    assert!(few.to_string().contains("tile values    dense: 0.5 steps a warp, fewer than 8"), "{few}");
    assert!(auto.device_bytes < report(&thin, TileValues::Dense).device_bytes);
    let asked = report(&full, TileValues::Packed);
    assert_eq!((asked.tile_values, asked.tile_values_reason.as_str()), (TileValues::Packed, "as asked"));
    let rows = Spmm::builder(&thin).build(&device).unwrap();
    assert_eq!(
        (rows.report().tile_values, rows.report().tile_values_reason.as_str()),
        (TileValues::Auto, "")
    );
}

#[test]
fn hybrids_with_every_split_between_the_parts() {
    for residual in [Some(0), Some(1), Some(8), Some(u32::MAX), None] {
        let partition = residual.map(|max_entries| PartitionRule::ShortRows { max_entries });
        let setup = Setup::new(Algorithm::Hybrid, Precision::F16)
            .told(|o| (o.partition, o.workers) = (partition, Some(40)));
        check(setup, &some_cases());
    }
}

/// `B` and `C` stay in the caller's order, whatever the order in which rows are worked on.
#[test]
fn rows_in_another_order() {
    for (algorithm, precision) in [
        (Algorithm::RowSplit, Precision::F32),
        (Algorithm::ShortRows, Precision::F16),
        (Algorithm::TileStream, Precision::F16),
        (Algorithm::Hybrid, Precision::Bf16),
    ] {
        let few = Setup::new(algorithm, precision).told(|o| o.workers = Some(5));
        let setup = Setup { reversed: true, ..few };
        check(setup, &some_cases());
    }
}

/// Parts that are added in any order, into a workspace that every run leaves as it found it.
#[test]
fn parts_added_in_any_order() {
    for (algorithm, precision) in [
        (Algorithm::RowSplit, Precision::F32),
        (Algorithm::RowSplit, Precision::F16),
        (Algorithm::TileStream, Precision::F16),
        (Algorithm::TileStream, Precision::Tf32),
    ] {
        let setup = Setup::new(algorithm, precision)
            .told(|o| (o.determinism, o.workers) = (Determinism::Fast, Some(1000)));
        check(setup, &some_cases());
    }
}

/// Products far wider than the workspace run in blocks of columns; the plan's width is only a hint.
///
/// Promise, shapes: a plan runs with any width, whatever it was made for.
#[test]
fn any_width_with_any_plan() {
    let mut rng = SplitMix64::new(0x71de);
    let long = Pattern::from_lengths(600, [550, 3, 0, 17, 590, 1, 8, 8, 9], &mut rng);
    let mut cases = Vec::new();
    for (i, n) in [0, 1, 7, 130, 1000, 4097].into_iter().enumerate() {
        let operands = |values| Operands { n, padding: i % 2 * 3, scalars: (1.0, 0.0), values, poison: true };
        cases.push(Case::from_pattern("any width", &long, operands(Values::Integers), &mut rng));
        let scaled = Operands { scalars: (0.5, -1.0), ..operands(Values::Integers) };
        cases.push(Case::from_pattern("any width, scaled", &long, scaled, &mut rng));
    }
    let plans = [
        (Algorithm::RowSplit, Precision::F32),
        (Algorithm::RowSplit, Precision::F16),
        (Algorithm::ShortRows, Precision::F32),
        (Algorithm::TileStream, Precision::F16),
        (Algorithm::TileStream, Precision::Tf32),
    ];
    for device in devices() {
        let mut tally = Tally::new(format!("any width on {device}"));
        for (algorithm, precision) in plans {
            for width in [0, 64, 200] {
                let few = Setup::new(algorithm, precision).told(|o| o.workers = Some(7));
                let setup = Setup { width: Some(width), ..few };
                for (number, case) in cases.iter().enumerate() {
                    // The emulator needs a second for the widest: one schedule and one plan of them.
                    if device.kind() == windrow::DeviceKind::Emulator
                        && case.n > 1000
                        && !(width == 64 && device.name().contains("InOrder"))
                    {
                        tally.skipped("wide on the emulator");
                        continue;
                    }
                    let layout = [Layout::AsGiven, Layout::Aligned][(number / 2 + width / 64) % 2];
                    tally.ran(&run_case(setup, &device, case, layout));
                }
            }
        }
        tally.finish();
    }
    report_missing_gpu("any width", plans.len() * 3 * cases.len());
}

/// The order of summation does not depend on which block or thread runs first: not one bit.
///
/// Promise, determinism: products with a sparse matrix have the same bits in whatever order blocks, warps and lanes
/// get on.
#[test]
fn every_schedule_gives_the_same_bits() {
    let mut rng = SplitMix64::new(0xb175);
    let pattern = Pattern::from_lengths(1200, [3, 1100, 0, 40, 2, 600, 9, 1, 70, 5, 900, 12], &mut rng);
    let operands = Operands { n: 40, padding: 0, scalars: (1.0, 0.0), values: Values::Reals, poison: false };
    let case = Case::from_pattern("bits", &pattern, operands, &mut rng);
    for (algorithm, precision) in [
        (Algorithm::RowSplit, Precision::F32),
        (Algorithm::RowSplit, Precision::Tf32),
        (Algorithm::RowSplit, Precision::F16),
        (Algorithm::RowSplit, Precision::Bf16),
        (Algorithm::TileStream, Precision::F16),
        (Algorithm::Hybrid, Precision::F16),
    ] {
        let run = |schedule| {
            let device = Device::emulator(schedule);
            let plan = Setup::new(algorithm, precision).plan(&device, &case);
            assert!(plan.report().split > 0, "nothing is cut: the test shows nothing");
            let bits = |c: Vec<f32>| c.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            let first = bits(plan.run(&case.packed_b()).unwrap());
            assert_eq!(first, bits(plan.run(&case.packed_b()).unwrap()), "two runs of one plan differ");
            first
        };
        let [first, others @ ..] = EmulatorSchedule::STANDARD.map(run);
        for other in others {
            assert_eq!(first, other, "{algorithm} {precision}");
        }
    }
}

/// Runs from several threads share the workspace; each must get its own result.
///
/// Promise, results: several threads may run one plan at a time, and each has its own result.
#[test]
fn threads_may_share_a_plan() {
    let mut rng = SplitMix64::new(0x7a5c);
    let pattern = Pattern::from_lengths(1500, [1400, 2, 700, 0, 5], &mut rng);
    for device in devices() {
        for (algorithm, precision) in
            [(Algorithm::RowSplit, Precision::F32), (Algorithm::TileStream, Precision::F16)]
        {
            let operands =
                Operands { n: 8, padding: 0, scalars: (1.0, 0.0), values: Values::Integers, poison: false };
            let case = Case::from_pattern("shared", &pattern, operands, &mut rng);
            let setup = Setup::new(algorithm, precision).told(|o| o.workers = Some(30));
            let plan = setup.plan(&device, &case);
            let product = |factor: f32| {
                let b: Vec<f32> = case.packed_b().iter().map(|x| factor * x).collect();
                plan.run(&b).unwrap()
            };
            let once = product(1.0);
            std::thread::scope(|scope| {
                let product = &product;
                let threads =
                    [1.0, 2.0, -1.0, 4.0].map(|factor| (factor, scope.spawn(move || product(factor))));
                for (factor, thread) in threads {
                    let got = thread.join().unwrap();
                    assert!(got.iter().zip(&once).all(|(x, y)| *x == factor * y), "{factor} on {device}");
                }
            });
        }
    }
    report_missing_gpu("shared plans", 2);
}

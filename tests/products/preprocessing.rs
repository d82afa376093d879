//! Preprocessing on the GPU against that on the CPU: the same arrays, byte for byte.

use crate::common::{gpu, report_missing_gpu, takes_turn};
use proptest::prelude::*;
use windrow::internal::device_arrays;
use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::{
    Algorithm, Csr, Determinism, Device, EmulatorSchedule, Permutation, Precision, Preprocessing,
    RowDivision, Schedule, Spmm, SpmmOptions, SpmmPlan, TileValues, Value, f16,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

const PRECISIONS: [Precision; 3] = [Precision::F16, Precision::Bf16, Precision::Tf32];

/// Every device that has kernels: the emulator under each schedule, the GPU if there is one.
fn devices() -> Vec<Device> {
    let mut devices = EmulatorSchedule::STANDARD.map(Device::emulator).to_vec();
    devices.extend(gpu());
    devices
}

/// A plan with all rows in tiles.
fn tiles(precision: Precision, tile_values: TileValues) -> SpmmOptions {
    let (algorithm, schedule) = (Algorithm::TileStream, Schedule::Sequential);
    SpmmOptions { width: 64, precision, tile_values, algorithm, schedule, ..SpmmOptions::default() }
}

/// A hybrid that is divided so, otherwise the same.
fn divided(rule: PartitionRule, options: SpmmOptions) -> SpmmOptions {
    SpmmOptions { algorithm: Algorithm::Hybrid, partition: Some(rule), ..options }
}

fn plan<V: Value>(
    options: SpmmOptions,
    device: &Device,
    (a, order): (&Csr<V>, Option<&Permutation>),
    place: Preprocessing,
) -> SpmmPlan {
    let mut builder = Spmm::builder(a).options(options).preprocessing(place);
    if let Some(order) = order {
        builder = builder.order(order);
    }
    builder.build(device).unwrap_or_else(|error| panic!("{options:?} on {device}: {error}"))
}

/// Compares everything that the two ways make of a matrix.
#[track_caller]
fn check<V: Value>(
    options: SpmmOptions,
    device: &Device,
    (name, a): (&str, &Csr<V>),
    order: Option<&Permutation>,
) {
    let what = format!("{name}, {options:?}, order {}, on {device}", order.is_some());
    let [on_cpu, mut on_gpu] =
        [Preprocessing::Cpu, Preprocessing::Gpu].map(|place| plan(options, device, (a, order), place));
    let (want, got) = (on_cpu.report(), on_gpu.report());
    assert_eq!(want.preprocessing, Preprocessing::Cpu, "{what}");
    let expected = if a.nnz() == 0 { Preprocessing::Cpu } else { Preprocessing::Gpu };
    assert_eq!(got.preprocessing, expected, "{what}: {}", got.preprocessing_reason);
    let facts = |r: &windrow::SpmmReport| {
        let counts = [r.windows, r.tiles, r.steps, r.workers, r.column_vectors, r.split, r.split_rows];
        let others = [r.segments, r.residual_rows, r.rows_in_both, r.gather_places, r.empty_rows];
        let texts = [r.tile_values_reason.clone(), r.reason.clone()];
        let rest = (r.predicted_us, r.entries.clone(), r.tile_share, r.scheduling.clone());
        (counts, others, r.tile_values, texts, rest)
    };
    assert_eq!(facts(got), facts(want), "{what}");
    same_arrays(&what, &on_cpu, &on_gpu);
    // New values, in the same places.
    let mut on_cpu = on_cpu;
    let values: Vec<f32> = (0..a.nnz()).map(|i| 1.5 + (i % 1000) as f32).collect();
    on_cpu.replace_values(&values).unwrap();
    on_gpu.replace_values(&values).unwrap();
    same_arrays(&format!("new values of {what}"), &on_cpu, &on_gpu);
}

#[track_caller]
pub(crate) fn same_arrays(what: &str, on_cpu: &SpmmPlan, on_gpu: &SpmmPlan) {
    let (want, got) = (device_arrays(on_cpu).unwrap(), device_arrays(on_gpu).unwrap());
    let names = |arrays: &[(&'static str, Vec<u8>)]| arrays.iter().map(|a| a.0).collect::<Vec<_>>();
    assert_eq!(names(&got), names(&want), "{what}");
    for ((name, want), (_, got)) in want.iter().zip(&got) {
        assert_eq!(got.len(), want.len(), "bytes of {name}: {what}");
        let differs = want.iter().zip(got).position(|(want, got)| want != got);
        assert_eq!(differs, None, "first byte of {name} that differs: {what}");
    }
}

/// A matrix of rows of these lengths, columns and values random.
fn matrix(cols: usize, lengths: &[usize], rng: &mut SplitMix64) -> Csr<f32> {
    Pattern::from_lengths(cols, lengths.iter().copied(), rng).with_values(Values::Reals, rng)
}

/// Matrices in which something is at an edge.
pub(crate) fn matrices() -> Vec<(&'static str, Csr<f32>)> {
    let mut rng = SplitMix64::new(0x9e37);
    let mut lengths =
        |rows: usize, most: usize| -> Vec<usize> { (0..rows).map(|_| rng.below(most + 1)).collect() };
    let (short, sparse, nine) = (lengths(61, 12), lengths(150, 1), lengths(72, 5));
    let mut giant = lengths(40, 3);
    giant[17] = 700;
    giant[21] = 333;
    let mut rng = SplitMix64::new(7);
    vec![
        ("no rows", Csr::zeros(0, 5).unwrap()),
        ("no columns", Csr::zeros(9, 0).unwrap()),
        ("no entries", Csr::zeros(20, 7).unwrap()),
        ("one entry", matrix(3, &[1], &mut rng)),
        ("one entry behind empty rows", matrix(40, &[&[0; 30][..], &[1], &[0; 3]].concat(), &mut rng)),
        ("identity", Csr::identity(33).unwrap()),
        ("one full row", matrix(300, &[300], &mut rng)),
        ("full", Csr::from_dense(8, 16, &[1.0; 128]).unwrap()),
        ("full and one more", Csr::from_dense(9, 17, &[2.0; 153]).unwrap()),
        ("nine windows", matrix(30, &nine, &mut rng)),
        ("short rows", matrix(50, &short, &mut rng)),
        ("mostly empty", matrix(100, &sparse, &mut rng)),
        ("few columns", matrix(4, &[4; 50], &mut rng)),
        ("giant rows", matrix(1000, &giant, &mut rng)),
    ]
}

fn shuffled(a: &Csr<f32>) -> Permutation {
    let rows = u32::try_from(a.rows()).unwrap();
    // Neither ascending nor descending: by sevens where that visits every row.
    let order = match rows % 7 {
        0 => (0..rows).rev().collect(),
        _ => (0..rows).map(|i| i * 7 % rows.max(1)).collect(),
    };
    Permutation::try_from_new_to_old(order).unwrap()
}

#[test]
fn the_same_arrays_in_every_form() {
    let (devices, matrices) = (devices(), matrices());
    for precision in PRECISIONS {
        for tile_values in [TileValues::Dense, TileValues::Packed] {
            let setup = tiles(precision, tile_values);
            for device in &devices {
                for (name, a) in &matrices {
                    check(setup, device, (name, a), None);
                }
            }
        }
    }
    report_missing_gpu("preprocessing in every form", 6 * matrices.len());
}

/// Rows in another order, where those without entries remain in their own.
#[test]
fn the_same_arrays_in_any_order() {
    let (devices, matrices) = (devices(), matrices());
    for (precision, tile_values) in
        [(Precision::F16, TileValues::Dense), (Precision::Tf32, TileValues::Packed)]
    {
        for device in &devices {
            for (name, a) in &matrices {
                check(tiles(precision, tile_values), device, (name, a), Some(&shuffled(a)));
            }
        }
    }
    report_missing_gpu("preprocessing in any order", 2 * matrices.len());
}

/// Few warps and many, windows that are cut and shared, and a warp for each window.
#[test]
fn the_same_arrays_however_windows_are_dealt_out() {
    let (devices, matrices) = (devices(), matrices());
    for device in &devices {
        for (turn, (name, a)) in matrices.iter().enumerate() {
            let setup = tiles(Precision::F16, TileValues::Packed);
            for workers in [1, 2, 40, 1000] {
                let setup = SpmmOptions { workers: Some(workers), ..setup };
                // The matrix with giant rows, the last one, is cut under every schedule.
                if turn + 1 < matrices.len() && !takes_turn(device, turn + workers as usize) {
                    continue;
                }
                check(setup, device, (name, a), None);
                check(SpmmOptions { determinism: Determinism::Fast, ..setup }, device, (name, a), None);
            }
            check(SpmmOptions { window_each: true, ..setup }, device, (name, a), None);
            let all = divided(PartitionRule::AllTile, tiles(Precision::Bf16, TileValues::Auto));
            check(all, device, (name, a), None);
        }
    }
    report_missing_gpu("preprocessing for any number of warps", 10 * matrices.len());
    let cut = SpmmOptions { workers: Some(40), ..tiles(Precision::F16, TileValues::Packed) };
    let (_, giant) = matrices.last().unwrap();
    let plan = plan(cut, &devices[0], (giant, None), Preprocessing::Gpu);
    assert!(plan.report().split > 0, "windows are cut");
}

/// Divided by column vectors: in tiles, in segments, in both, and in one of them alone.
#[test]
fn the_same_division_by_column_vectors() {
    let (devices, mut matrices) = (devices(), matrices());
    let mut rng = SplitMix64::new(0x11b7a);
    let lengths: Vec<usize> = (0..90).map(|_| rng.below(14)).collect();
    matrices.push(("shared columns", matrix(24, &lengths, &mut rng)));
    // 700 columns that all eight rows share, and more that one has: more than a block takes at a time.
    let shared: Vec<u32> = (0..700).collect();
    let rows = (0..19u32).map(|row| match row % 8 {
        0..6 => [shared.clone(), (1000 + 100 * row..1000 + 100 * row + 90).collect()].concat(),
        6 => (3000..3800).collect(),
        _ => Vec::new(),
    });
    let pattern = Pattern { cols: 4000, rows: rows.collect() };
    matrices.push(("long vectors", pattern.with_values(Values::Reals, &mut rng)));
    for device in &devices {
        for (at, (name, a)) in matrices.iter().enumerate() {
            for (i, threshold) in VectorThreshold::ALL.into_iter().enumerate() {
                if !takes_turn(device, at * VectorThreshold::ALL.len() + i) {
                    continue;
                }
                let rule = PartitionRule::ColumnVectors { threshold };
                let tile_values = if i % 2 == 0 { TileValues::Dense } else { TileValues::Packed };
                let setup = divided(rule, tiles(PRECISIONS[i % 3], tile_values));
                check(setup, device, (name, a), None);
                let schedule = if i % 4 < 2 { Schedule::MultiStream } else { Schedule::Sequential };
                let dealt = SpmmOptions { workers: Some(40), schedule, ..setup };
                match i % 2 == 0 {
                    true => check(dealt, device, (name, a), Some(&shuffled(a))),
                    false => check(
                        SpmmOptions { determinism: Determinism::Fast, ..dealt },
                        device,
                        (name, a),
                        None,
                    ),
                }
            }
        }
    }
    report_missing_gpu("divisions by column vectors", 16 * matrices.len());
    let rule = PartitionRule::ColumnVectors { threshold: VectorThreshold::LIBRA };
    let setup = divided(rule, tiles(Precision::F16, TileValues::Dense));
    let setup = SpmmOptions { workers: Some(40), ..setup };
    let plan = plan(setup, &devices[0], (&matrices.last().unwrap().1, None), Preprocessing::Gpu);
    let report = plan.report();
    assert!(report.rows_in_both > 0 && report.residual_rows > report.rows_in_both, "{report}");
    assert!(report.split_rows > 0 && report.split > report.split_rows, "{report}");
}

/// The same for panels of rows: bundles of rows that are alike and that have nothing in common, spans that are full and
/// that are not, more columns than a step of the kernels takes, rows and panels without entries.
pub(crate) fn panel_matrices() -> Vec<(&'static str, Csr<f32>)> {
    let mut rng = SplitMix64::new(0x9a4e1);
    let mut matrices = matrices();
    let lengths: Vec<usize> = (0..200).map(|row| if row % 50 == 7 { 0 } else { rng.below(40) }).collect();
    matrices.push(("shared columns", matrix(70, &lengths, &mut rng)));
    matrices.push(("hardly shared", matrix(5000, &lengths, &mut rng)));
    // Three kinds of rows by turns, of 31, 33 and 300 columns, then a panel without entries, then one row.
    let kinds = [0..31_u32, 40..73, 60..360];
    let rows = (0..129).map(|row| match row {
        0..64 | 128 => kinds[row % 3].clone().collect(),
        _ => Vec::new(),
    });
    let alike = Pattern { cols: 400, rows: rows.collect() };
    matrices.push(("alike", alike.with_values(Values::Reals, &mut rng)));
    matrices
}

#[test]
fn the_same_panels() {
    let (devices, matrices) = (devices(), panel_matrices());
    let panels = SpmmOptions { algorithm: Algorithm::RowPanels, width: 64, ..SpmmOptions::default() };
    let in_pieces = RowDivision { piece_entries: Some(50), ..RowDivision::default() };
    for (name, a) in &matrices {
        for (at, device) in devices.iter().enumerate() {
            check(panels, device, (name, a), None);
            let cut = SpmmOptions { row_division: in_pieces, ..panels };
            let determinism = [Determinism::RunToRun, Determinism::Fast][at % 2];
            check(SpmmOptions { determinism, ..cut }, device, (name, a), None);
        }
    }
    report_missing_gpu("panels", 2 * matrices.len());
    // Values of any type, in the same places.
    let wide = vec![1.0 + 2f64.powi(-40), 1e300, -0.0, f64::NAN, 1e-300, f64::NEG_INFINITY];
    let a = Csr::try_from_parts(2, 4, vec![0, 3, 6], vec![0, 1, 3, 0, 2, 3], wide).unwrap();
    let half = a.with_values([1.5f32, -2.0, 0.0, 65504.0, 1e-7, 3.0].map(f16::from_f32).to_vec()).unwrap();
    let nan = a.with_values(vec![1.0, f32::from_bits(0xffc1_2345), f32::INFINITY, -0.0, 1e-40, 2.0]).unwrap();
    for device in devices {
        check(panels, &device, ("f64 values", &a), None);
        check(panels, &device, ("f16 values", &half), None);
        check(panels, &device, ("f32 with NaN", &nan), None);
    }
    report_missing_gpu("panels of values of any type", 3);
}

/// Values of any type are rounded once; what is not finite or too large is what it is on the CPU.
#[test]
fn values_of_any_type() {
    let wide = vec![1.0 + 2f64.powi(-11) + 2f64.powi(-40), 1e300, -0.0, f64::NAN, 1e-300, f64::NEG_INFINITY];
    let a = Csr::try_from_parts(2, 4, vec![0, 3, 6], vec![0, 1, 3, 0, 2, 3], wide).unwrap();
    let half = a.with_values([1.5f32, -2.0, 0.0, 65504.0, 1e-7, 3.0].map(f16::from_f32).to_vec()).unwrap();
    // Ties, subnormals, what overflows and its neighbours, in f16, bf16 and tf32.
    let f32s = [1.0 + 2f32.powi(-11), 1.0 + 2f32.powi(-8), 65_519.996, 65_520.0, -3.4e38, 1e-40, -6e-8, 3e-8];
    let f32s = f32s.into_iter().chain([f32::MAX, f32::from_bits(0x7f7f_7fff), f32::INFINITY, -0.0, 2.98e-8]);
    let full: Vec<f32> = f32s.chain((0..19).map(|i| f32::from_bits(0x3f80_0fff + 0x1001 * i))).collect();
    let numbers = Csr::from_dense(4, 8, &[1.0f32; 32]).unwrap().with_values(full.clone()).unwrap();
    let nan =
        numbers.with_values(full.iter().map(|&x| if x == 1e-40 { f32::NAN } else { x }).collect()).unwrap();
    for device in devices() {
        for precision in PRECISIONS {
            for tile_values in [TileValues::Dense, TileValues::Packed] {
                check(tiles(precision, tile_values), &device, ("f32 values", &numbers), None);
                check(tiles(precision, tile_values), &device, ("f32 with NaN", &nan), None);
                check(tiles(precision, tile_values), &device, ("f64 values", &a), None);
                check(tiles(precision, tile_values), &device, ("f16 values", &half), None);
            }
        }
    }
    report_missing_gpu("preprocessing of values of any type", 24);
}

/// Products of a plan that the GPU laid out are those of one that the CPU did, bit for bit.
#[test]
fn products_are_the_same() {
    for device in devices() {
        for (name, a) in matrices() {
            let b: Vec<f32> = (0..a.cols() * 3).map(|i| (i % 17) as f32 - 8.0).collect();
            let run = |place| {
                let setup = tiles(Precision::Bf16, TileValues::Packed);
                plan(setup, &device, (&a, None), place).run(&b).unwrap()
            };
            assert_eq!(run(Preprocessing::Gpu), run(Preprocessing::Cpu), "{name} on {device}");
        }
    }
    report_missing_gpu("products after preprocessing", matrices().len());
}

#[test]
fn the_report_says_where_and_why() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let a = Csr::<f32>::identity(40).unwrap();
    let report = |builder: windrow::SpmmBuilder<'_, Csr<f32>>, device: &Device| {
        let report = builder.precision(Precision::F16).build(device).unwrap().report().clone();
        (report.preprocessing, report.preprocessing_reason.clone(), report.to_string())
    };
    let in_tiles = || Spmm::builder(&a).algorithm(Algorithm::TileStream);
    let builder = || in_tiles().preprocessing(Preprocessing::Gpu);
    let (place, why, text) = report(builder(), &device);
    assert_eq!((place, why.as_str()), (Preprocessing::Gpu, "as asked"));
    assert!(text.contains(" µs on the GPU (as asked), values ") && text.contains(", condense "), "{text}");
    for (builder, part) in [
        (in_tiles(), "40 entries, fewer than"),
        (builder().preprocessing(Preprocessing::Cpu), "as asked"),
        (builder().algorithm(Algorithm::RowSplit), "only rows in tiles"),
        (builder().algorithm(Algorithm::ShortRows), "whole rows are divided there"),
        (in_tiles().memory_limit(1 << 20), "beyond the limit"),
    ] {
        let (place, why, _) = report(builder, &device);
        assert!(place == Preprocessing::Cpu && why.contains(part), "{place}: {why}");
    }
    let (place, why, _) = report(builder(), &Device::cpu());
    assert_eq!((place, why.as_str()), (Preprocessing::Cpu, "the plan runs there"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn random_matrices(
        rows in prop::collection::vec(prop::collection::btree_set(0u32..90, 0..24), 0..70),
        workers in 0..30u32,
        seed: u64,
    ) {
        let offsets = std::iter::once(0).chain(rows.iter().scan(0, |sum, row| {
            *sum += row.len() as u64;
            Some(*sum)
        })).collect();
        let columns: Vec<u32> = rows.iter().flatten().copied().collect();
        let mut rng = SplitMix64::new(seed);
        let values = (0..columns.len()).map(|_| rng.real()).collect();
        let a = Csr::try_from_parts(rows.len(), 90, offsets, columns, values).unwrap();
        let mut order: Vec<u32> = (0..u32::try_from(rows.len()).unwrap()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i + 1));
        }
        let order = Permutation::try_from_new_to_old(order).unwrap();
        let device = gpu().unwrap_or_else(|| Device::emulator(EmulatorSchedule::Seeded(seed)));
        let workers = (workers > 0).then_some(workers);
        for precision in [Precision::F16, Precision::Tf32] {
            for tile_values in [TileValues::Dense, TileValues::Packed] {
                let setup = SpmmOptions { workers, ..tiles(precision, tile_values) };
                check(setup, &device, ("random", &a), None);
                check(setup, &device, ("random", &a), Some(&order));
                let threshold = VectorThreshold::ALL[rng.below(8)];
                let setup = divided(PartitionRule::ColumnVectors { threshold }, setup);
                check(setup, &device, ("random, divided", &a), None);
                check(setup, &device, ("random, divided", &a), Some(&order));
            }
        }
    }
}

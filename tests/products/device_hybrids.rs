//! Short rows, and tiles beside short rows or segments, of matrices that are on the device: the arrays of the host.

use windrow::partition::{PartitionRule, Thresholds, VectorThreshold};
use windrow::{
    Algorithm, Csr, Determinism, DeviceBuffer, DeviceCsr, DeviceKind, Permutation, Precision, RowDivision,
    Schedule, Spmm, SpmmOptions,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::{devices, kernel_devices, report_missing_gpu};
use crate::device_csr::{compare, of_i32, of_i64};
use crate::preprocessing::{matrices, same_arrays};

/// What reports of such plans say.
const THERE: &str = "the matrix is there";

fn hybrid(rule: PartitionRule) -> SpmmOptions {
    SpmmOptions {
        algorithm: Algorithm::Hybrid,
        partition: Some(rule),
        precision: Precision::F16,
        width: 64,
        ..SpmmOptions::default()
    }
}

fn vectors(share: f64) -> PartitionRule {
    PartitionRule::ColumnVectors { threshold: VectorThreshold::try_new(share).unwrap() }
}

fn overlap(max_entries: u32, max_shared_percent: u32) -> PartitionRule {
    PartitionRule::Overlap { thresholds: Thresholds { max_entries, max_shared_percent } }
}

/// Every rule and each of its bounds; sums in any order, rows that are cut, and both ways of launching the parts.
fn plans() -> Vec<SpmmOptions> {
    let short = SpmmOptions { algorithm: Algorithm::ShortRows, width: 40, ..SpmmOptions::default() };
    let cut = RowDivision { piece_entries: Some(32), ..RowDivision::default() };
    let streams = |options| SpmmOptions { schedule: Schedule::MultiStream, ..options };
    vec![
        short,
        SpmmOptions { width: 200, precision: Precision::Bf16, ..short },
        hybrid(PartitionRule::AllTile),
        hybrid(PartitionRule::AllResidual),
        hybrid(PartitionRule::ShortRows { max_entries: 2 }),
        streams(hybrid(PartitionRule::ShortRows { max_entries: 4 })),
        hybrid(PartitionRule::ShortRows { max_entries: 0 }),
        hybrid(PartitionRule::ShortRows { max_entries: u32::MAX }),
        hybrid(overlap(3, 25)),
        SpmmOptions { precision: Precision::Tf32, ..hybrid(overlap(6, 50)) },
        hybrid(overlap(u32::MAX, 99)),
        hybrid(overlap(6, 100)),
        hybrid(PartitionRule::Printed { max_entries: 5, max_increment: 2 }),
        hybrid(PartitionRule::Printed { max_entries: 2, max_increment: 9 }),
        hybrid(vectors(0.25)),
        streams(hybrid(vectors(0.5))),
        SpmmOptions { row_division: cut, ..hybrid(vectors(0.25)) },
        streams(SpmmOptions { row_division: cut, ..hybrid(vectors(0.25)) }),
        SpmmOptions { row_division: cut, determinism: Determinism::Fast, ..hybrid(vectors(0.25)) },
        streams(SpmmOptions { row_division: cut, determinism: Determinism::Fast, ..hybrid(vectors(0.5)) }),
        hybrid(vectors(1.0)),
    ]
}

#[track_caller]
fn check(options: SpmmOptions, device: &windrow::Device, name: &str, a: &Csr<f32>) {
    let said = compare(options, device, name, (a, &of_i64(device, a).matrix()));
    if a.nnz() > 0 {
        assert_eq!(said, THERE, "{name}, {options:?} on {device}");
    }
}

#[test]
fn the_arrays_are_those_of_the_host() {
    for (turn, (name, a)) in matrices().iter().enumerate() {
        for (i, options) in plans().into_iter().enumerate() {
            for device in kernel_devices(turn + i) {
                check(options, &device, name, a);
            }
        }
    }
    report_missing_gpu("hybrids of matrices on the device", plans().len() * matrices().len());
}

/// Rows of clusters that share columns, some of which are long, and strays between them: every rule divides them.
fn clusters(rows: usize) -> Csr<f32> {
    let mut rng = SplitMix64::new(0x5ca1e);
    let mut places = Vec::new();
    for row in 0..rows {
        let first = (row / 11 * 5) % 900;
        let mut columns: Vec<usize> = match row % 9 {
            4 => Vec::new(),
            7 => (0..1 + rng.below(3)).map(|_| rng.below(2000)).collect(),
            _ => (first..first + 1 + rng.below(7)).collect(),
        };
        // Rows that have entries in both parts, and among them such as are cut into few pieces and into many.
        match row % 100 {
            23 => columns.extend((0..150).map(|i| (i * 13 + row) % 2000)),
            50 | 77 => columns.extend((0..600).map(|i| (i * 3 + row) % 2000)),
            at if at % 3 == 0 && !columns.is_empty() => columns.push(rng.below(2000)),
            _ => {}
        }
        columns.sort_unstable();
        columns.dedup();
        places.push(columns);
    }
    let offsets = std::iter::once(0).chain(places.iter().scan(0, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    }));
    let columns: Vec<u32> = places.iter().flatten().map(|&column| u32::try_from(column).unwrap()).collect();
    let values = (0..columns.len()).map(|i| (i % 17) as f32 - 8.0).collect();
    Csr::try_from_parts(rows, 2000, offsets.collect(), columns, values).unwrap()
}

/// The same under every schedule.
#[test]
fn rules_divide_rows_as_on_the_host() {
    let a = clusters(700);
    for device in devices().iter().filter(|device| device.kind() != DeviceKind::Cpu) {
        for options in plans() {
            check(options, device, "clusters", &a);
        }
    }
    let device = kernel_devices(0).remove(0);
    for options in [hybrid(overlap(3, 25)), hybrid(vectors(0.5))] {
        let plan =
            Spmm::builder(&of_i32(&device, &a).matrix()).options(options).build_on(&device.stream()).unwrap();
        let report = plan.report();
        assert!(report.steps > 0 && report.residual_rows > 0, "{options:?} divides nothing");
    }
    report_missing_gpu("rules of division on the device", plans().len());
}

/// Windows start afresh in every chunk of 8192 rows with entries; what is short is so across the ends of blocks.
#[test]
fn chunks_of_rows_are_judged_by_themselves() {
    let a = clusters(19_000);
    let rules = [overlap(3, 25), PartitionRule::Printed { max_entries: 4, max_increment: 2 }, vectors(0.5)];
    for (turn, rule) in rules.into_iter().enumerate() {
        for device in kernel_devices(turn) {
            let cut = RowDivision { piece_entries: Some(32), ..RowDivision::default() };
            check(SpmmOptions { row_division: cut, ..hybrid(rule) }, &device, "chunks", &a);
        }
    }
    report_missing_gpu("rows of several chunks on the device", 3);
}

/// Rows of one length that fill blocks to the last row or have one more, and long rows among the short.
#[test]
fn short_rows_fill_blocks() {
    let mut rng = SplitMix64::new(0xb10c5);
    let lengths = (0..400).map(|row| match row {
        0..64 => 3,
        64..129 => 5,
        200 => 900,
        201 | 399 => 1,
        _ => 0,
    });
    let a = Pattern::from_lengths(1000, lengths, &mut rng).with_values(Values::Reals, &mut rng);
    for device in devices().iter().filter(|device| device.kind() != DeviceKind::Cpu) {
        for width in [8, 64, 300] {
            let options = SpmmOptions { algorithm: Algorithm::ShortRows, width, ..SpmmOptions::default() };
            check(options, device, "blocks", &a);
        }
    }
    report_missing_gpu("blocks of short rows on the device", 3);
}

/// New values, on the host and on the device, in their own order and in another.
#[test]
fn new_values_reach_their_places() {
    let a = clusters(300);
    let values: Vec<f32> = (0..a.nnz()).map(|i| 0.5 + (i % 100) as f32).collect();
    let last = u32::try_from(a.nnz()).unwrap();
    let order = Permutation::try_from_new_to_old((0..last).rev().collect()).unwrap();
    for (turn, options) in plans().into_iter().enumerate() {
        for device in kernel_devices(turn) {
            let what = format!("new values, {options:?} on {device}");
            let new = DeviceBuffer::from_slice(&device, &values).unwrap();
            let mut want = Spmm::builder(&a).options(options).value_order(&order).build(&device).unwrap();
            let matrix = DeviceCsr::from_host(&device, &a).unwrap();
            let builder = Spmm::builder(&matrix).options(options).value_order(&order);
            let mut got = builder.build_on(&device.stream()).unwrap();
            want.replace_values(&values).unwrap();
            got.replace_values(&values).unwrap();
            same_arrays(&what, &want, &got);
            let mut got = builder.values_from_device().build_on(&device.stream()).unwrap();
            got.replace_values_on(&device.stream(), &new).unwrap();
            same_arrays(&what, &want, &got);
        }
    }
    report_missing_gpu("new values of hybrids from the device", plans().len());
}

/// Products, and their check by the library itself.
#[test]
fn products_are_those_of_the_host() {
    let a = clusters(300);
    let b: Vec<f32> = (0..a.cols() * 64).map(|i| (i % 13) as f32 / 8.0 - 0.5).collect();
    for (turn, options) in plans().into_iter().enumerate() {
        let options = SpmmOptions { width: 64, determinism: Determinism::RunToRun, ..options };
        for device in kernel_devices(turn) {
            let want = Spmm::builder(&a).options(options).build(&device).unwrap().run(&b).unwrap();
            let matrix = DeviceCsr::from_host(&device, &a).unwrap();
            let got = Spmm::builder(&matrix).options(options).build_on(&device.stream()).unwrap();
            assert_eq!(got.run(&b).unwrap(), want, "{options:?} on {device}");
        }
    }
    report_missing_gpu("products of hybrids from the device", plans().len());
}

/// An order of rows that is given is kept, by way of the host.
#[test]
fn orders_that_are_given_are_kept() {
    let a = clusters(300);
    let last = u32::try_from(a.rows()).unwrap();
    let order = Permutation::try_from_new_to_old((0..last).rev().collect()).unwrap();
    for device in kernel_devices(0) {
        let matrix = DeviceCsr::from_host(&device, &a).unwrap();
        for options in [hybrid(overlap(3, 25)), hybrid(vectors(0.25))] {
            let want = Spmm::builder(&a).options(options).order(&order).build(&device).unwrap();
            let builder = Spmm::builder(&matrix).options(options).order(&order);
            let got = builder.build_on(&device.stream()).unwrap();
            same_arrays("a given order", &want, &got);
            let said = &got.report().preprocessing_reason;
            assert!(said.ends_with("rows are reordered there"), "{said}");
        }
    }
    report_missing_gpu("hybrids in a given order", 2);
}

/// What is wrong with a matrix is told, and no rule is asked.
#[test]
fn a_wrong_matrix_is_refused() {
    for device in kernel_devices(0) {
        let offsets = DeviceBuffer::from_slice(&device, &[0i32, 2, 3]).unwrap();
        let columns = DeviceBuffer::from_slice(&device, &[4i32, 2, 1]).unwrap();
        let a = DeviceCsr::pattern(2, 5, &offsets, &columns).unwrap();
        for options in plans() {
            let error = Spmm::builder(&a).options(options).build_on(&device.stream()).unwrap_err();
            assert!(error.to_string().contains("row 0, entry 1: column 2 follows column 4"), "{error}");
        }
    }
    report_missing_gpu("wrong matrices of hybrids", plans().len());
}

//! Products of one column by rows that are merged by path, and of several: rows of every length, every number of steps,
//! against the f64 reference.

use crate::common::{
    Layout, Setup, check, every_case, kernel_devices, replaces_values, report_missing_gpu, run_case,
};
use windrow::{
    Algorithm, AtomicParallelism, Csr, Determinism, Device, Precision, RowDivision, Spmm, SpmmPlan,
};
use windrow_testkit::{Case, shape_cases};

fn setup(precision: Precision) -> Setup {
    Setup::new(Algorithm::MergePath, precision)
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn every_case_f32() {
    check(setup(Precision::F32), &every_case(20));
    check(Setup { narrow: Some(Precision::F16), ..setup(Precision::F32) }, &shape_cases());
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn every_case_in_less_precision() {
    check(setup(Precision::F16), &every_case(20));
    // Kernels differ in the type of elements alone: each of the others takes half of the cases.
    let half = |of: usize| every_case(20).into_iter().skip(of).step_by(2).collect::<Vec<_>>();
    check(setup(Precision::Tf32), &half(0));
    check(setup(Precision::Bf16), &half(1));
}

#[test]
fn in_any_order() {
    check(setup(Precision::F32).told(|o| o.determinism = Determinism::Fast), &shape_cases());
}

/// Entries that a thread reads at once, one for each kernel of a type.
const POINTS: [&str; 3] = ["{<4 nnz, 1 col>, 32}", "{<8 nnz, 1 col>, 32}", "{<16 nnz, 1 col>, 32}"];

#[test]
fn every_number_of_steps() {
    let all = every_case(20);
    let narrow: Vec<Case> = all.into_iter().filter(|case| case.n <= 5 && case.a.nnz() <= 5000).collect();
    assert!(narrow.len() > 20, "{} cases", narrow.len());
    for (number, case) in narrow.iter().enumerate() {
        let point = POINTS[number % 3].parse::<AtomicParallelism>().unwrap();
        let precision = Precision::ALL[number / 3 % 4];
        for device in kernel_devices(number) {
            let layout = [Layout::AsGiven, Layout::Aligned][number % 2];
            run_case(setup(precision).told(|o| o.parallelism = Some(point)), &device, case, layout);
        }
    }
    report_missing_gpu("numbers of steps", narrow.len());
}

/// Rows of so many entries each, of small integers: sums are exact.
fn integers(lens: &[usize], cols: usize) -> Csr<f32> {
    let mut offsets = vec![0_u64];
    let (mut columns, mut values) = (Vec::new(), Vec::new());
    for (row, &len) in lens.iter().enumerate() {
        for entry in 0..len {
            columns.push(u32::try_from(entry * cols / len).unwrap());
            values.push(((row + 3 * entry) % 5) as f32 - 2.0);
        }
        offsets.push(u64::try_from(columns.len()).unwrap());
    }
    Csr::try_from_parts(lens.len(), cols, offsets, columns, values).unwrap()
}

/// Lengths of rows that put their ends everywhere on the path: at the first step of a thread, a warp and a block, at
/// the last, many in one thread, none in a warp, none in a block.
fn lengths() -> Vec<Vec<usize>> {
    let (thread, warp, block) = (7, 32 * 7, 128 * 7);
    let around = |at: usize| [at - 2, at - 1, at, at + 1];
    let mut lists = vec![
        vec![1; 2000],
        vec![0; 2000],
        (0..900).map(|row| row % 7).collect(),
        (0..900).map(|row| if row % 9 == 0 { 40 } else { 0 }).collect(),
        [around(thread), around(warp), around(block)].concat(),
        // A row through all warps of a block but the first and the last thread.
        vec![0, 3, block - 12, 1, 1, 2, 5, warp + 3, 2 * warp, 1, 0, 0, warp],
        // Blocks of one row each, and pieces of rows.
        vec![3, 2000, 0, 896, 895, 894, 1, 5000, 4999, 2, 1793],
    ];
    lists.push((0..64).flat_map(|row| [row * 5 % 61, 0, row % 3]).collect());
    lists
}

fn plan(a: &Csr<f32>, device: &Device, point: &str, determinism: Determinism) -> SpmmPlan {
    let row_division = RowDivision { piece_entries: Some(1500), ..RowDivision::default() };
    let builder = Spmm::builder(a).algorithm(Algorithm::MergePath).width(1).determinism(determinism);
    builder.parallelism(point.parse().unwrap()).row_division(row_division).build(device).unwrap()
}

#[test]
fn ends_of_rows_everywhere() {
    let mut cut = 0;
    for (number, lens) in lengths().iter().enumerate() {
        let a = integers(lens, 6000);
        let b: Vec<f32> = (0..6000).map(|i| ((i * 7) % 9) as f32 - 4.0).collect();
        let expected = Spmm::builder(&a).build(&Device::cpu()).unwrap().run(&b).unwrap();
        for (turn, point) in POINTS.into_iter().enumerate() {
            for device in kernel_devices(number + turn) {
                for determinism in [Determinism::RunToRun, Determinism::Fast] {
                    let plan = plan(&a, &device, point, determinism);
                    cut += plan.report().split_rows;
                    for _ in 0..2 {
                        assert!(plan.run(&b).unwrap() == expected, "list {number}, {point} on {device}");
                    }
                }
            }
        }
    }
    assert!(cut > 0, "rows are cut");
    report_missing_gpu("ends of rows", 3 * lengths().len());
}

/// Sums that depend on their order: the same bits from every schedule, in every run.
///
/// Promise, determinism: products with a sparse matrix have the same bits in whatever order blocks, warps and lanes
/// get on.
#[test]
fn results_are_the_same_bits() {
    let lens: Vec<usize> = (0..300).map(|row| [3, 0, 40, 1, 700, 12, 5, 2500][row % 8] + row % 5).collect();
    let mut a = integers(&lens, 6000);
    let values: Vec<f32> = (0..a.nnz()).map(|i| 1.0 / (1.0 + (i % 1013) as f32)).collect();
    a = a.with_values(values).unwrap();
    let b: Vec<f32> = (0..6000).map(|i| 1.0 / (3.0 + (i % 977) as f32)).collect();
    for point in POINTS {
        let mut first: Option<Vec<u32>> = None;
        let devices: Vec<Device> = (0..4).flat_map(kernel_devices).collect();
        for device in devices {
            let plan = plan(&a, &device, point, Determinism::RunToRun);
            let bits: Vec<u32> = plan.run(&b).unwrap().into_iter().map(f32::to_bits).collect();
            assert!(*first.get_or_insert_with(|| bits.clone()) == bits, "{point} on {device}");
        }
    }
}

#[test]
fn auto_merges_one_column_of_unlike_rows() {
    let mut lens = vec![3; 4000];
    lens[17] = 3000;
    let a = integers(&lens, 6000);
    for device in kernel_devices(1) {
        let algorithm = |width| Spmm::builder(&a).width(width).build(&device).unwrap().report().algorithm;
        assert_eq!(algorithm(1), Algorithm::MergePath);
        assert_eq!(algorithm(2), Algorithm::SegmentGroup);
    }
}

/// More columns than a grid has slices, one column each.
///
/// Promise, shapes: a plan runs with any width, whatever it was made for.
#[test]
fn any_width_can_be_run() {
    let a = Csr::<f32>::identity(1).unwrap();
    let b: Vec<f32> = (0..65_600_u32).map(|i| (i % 1000) as f32).collect();
    for device in kernel_devices(0) {
        let plan = Spmm::builder(&a).algorithm(Algorithm::MergePath).width(1).build(&device).unwrap();
        assert!(plan.run(&b).unwrap() == b, "{device}");
    }
}

#[test]
fn values_are_replaced() {
    for precision in [Precision::F32, Precision::F16] {
        replaces_values(setup(precision).options);
    }
}

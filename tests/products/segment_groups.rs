//! Products divided as points of Sgap's space say: every legal point, every launch, against the f64 reference.

use std::collections::BTreeMap;

use crate::common::{Layout, Setup, check, every_case, kernel_devices, report_missing_gpu, run_case};
use windrow::{
    Algorithm, AtomicParallelism, Bounds, Csr, DaSpmm, Determinism, Device, Family, GroupLaunch, Precision,
    Spmm, SpmmError,
};
use windrow_testkit::{Case, Tally, shape_cases};

fn setup(precision: Precision) -> Setup {
    Setup::new(Algorithm::SegmentGroup, precision)
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn default_point_f32() {
    check(setup(Precision::F32), &every_case(20));
}

/// Promise, zero and not-a-number: `β = 0` never reads `C`, and a NaN or an infinity of `B` reaches only the rows
/// that refer to it; with any extents and leading dimensions, and nothing written between rows.
#[test]
fn default_point_f16() {
    check(setup(Precision::F16), &every_case(20));
    check(Setup { narrow: Some(Precision::F16), ..setup(Precision::F16) }, &shape_cases());
}

#[test]
fn default_point_in_any_order() {
    let any_order = setup(Precision::F32).told(|o| o.determinism = Determinism::Fast);
    check(any_order, &shape_cases());
}

/// Cases that are small enough to run hundreds of points on: narrow, and each with something of its own.
fn narrow_cases() -> Vec<Case> {
    let all = every_case(20).into_iter();
    let narrow: Vec<Case> = all.filter(|case| case.n <= 12 && case.a.nnz() <= 3000).collect();
    assert!(narrow.len() > 20, "{} cases", narrow.len());
    assert!(narrow.iter().any(|case| case.a.rows() > 100 && case.a.nnz() > 200), "one that is cut");
    narrow
}

/// Every legal point that there is a kernel for, with each way to add what is cut, over cases and launches by turns.
#[test]
fn every_legal_point() {
    let cases = narrow_cases();
    let launches = [
        GroupLaunch { block_threads: 32, tile_columns: Some(4), workers_log2: 0 },
        GroupLaunch { block_threads: 128, tile_columns: None, workers_log2: -1 },
        GroupLaunch { block_threads: 96, tile_columns: Some(8), workers_log2: -31 },
    ];
    let points: Vec<_> = AtomicParallelism::all(&Bounds::default()).collect();
    let (mut ran, mut cut) = (BTreeMap::<_, usize>::new(), 0);
    let mut tally = Tally::new("every legal point".to_owned());
    for (at, &point) in points.iter().enumerate() {
        for (turn, determinism) in [(0, Determinism::RunToRun), (1, Determinism::Fast)] {
            for i in 0..3 {
                let number = at * 7 + turn * 5 + i * 11;
                let case = &cases[number % cases.len()];
                let precision = [Precision::F32, Precision::F16][number % 2];
                let launch = launches[(at + i) % launches.len()];
                let setup = setup(precision).told(|o| {
                    (o.parallelism, o.determinism, o.group_launch) = (Some(point), determinism, Some(launch));
                });
                for device in kernel_devices(number) {
                    let layout = [Layout::AsGiven, Layout::Aligned][i % 2];
                    tally.ran(&run_case(setup, &device, case, layout));
                    let report = setup.plan(&device, case).report().clone();
                    assert!(report.parallelism.is_some_and(|found| found.starts_with(&point.to_string())));
                    cut += usize::from(report.split_rows > 0);
                    *ran.entry(point).or_default() += 1;
                }
            }
        }
    }
    tally.finish();
    assert_eq!((ran.len(), points.len()), (306, 306));
    assert!(cut > 300, "{cut} with rows that are cut");
    for family in Family::ALL {
        assert!(ran.keys().any(|point| point.family() == family), "{family}");
    }
    report_missing_gpu("legal points", 6 * points.len());
}

#[test]
fn launches_and_algorithms_of_others() {
    let cases = narrow_cases();
    let mut cases = cases.iter().cycle();
    for algorithm in DaSpmm::ALL {
        for columns in [1, 2, 4] {
            let point = Some(algorithm.point(columns).unwrap());
            for device in kernel_devices(columns as usize) {
                run_case(
                    setup(Precision::F32).told(|o| o.parallelism = point),
                    &device,
                    cases.next().unwrap(),
                    Layout::Aligned,
                );
            }
        }
    }
}

#[test]
fn what_there_is_not_is_refused() {
    let a = Csr::<f32>::identity(8).unwrap();
    let builder = Spmm::builder(&a).algorithm(Algorithm::SegmentGroup).width(4);
    for device in kernel_devices(0) {
        let refused = |launch: GroupLaunch| {
            let point = "{<2 nnz, 4 col>, 8}".parse().unwrap();
            let error = builder.clone().parallelism(point).group_launch(launch).build(&device).unwrap_err();
            assert!(matches!(error, SpmmError::IllegalPoint(_)), "{error}");
            error.to_string()
        };
        let launch = GroupLaunch::default();
        let threads = "48 threads of a block: launches have a multiple of 32 up to 512";
        assert_eq!(refused(GroupLaunch { block_threads: 48, ..launch }), threads);
        let tile = "2 columns of a tile: launches have a power of two, no less than a thread's columns";
        assert_eq!(refused(GroupLaunch { tile_columns: Some(2), ..launch }), tile);
        let workers = "1 logarithm of the share of workers: launches have -31 to 0";
        assert_eq!(refused(GroupLaunch { workers_log2: 1, ..launch }), workers);
        let error = builder.clone().precision(Precision::Tf32).build(&device).unwrap_err();
        assert!(error.to_string().contains("use precision f32, f64 or f16"), "{error}");
    }
    let plan = builder.build(&Device::cpu()).unwrap();
    assert_eq!(plan.report().parallelism, None, "the CPU has one algorithm");
}

/// More columns than a grid has slices, one column each.
///
/// Promise, shapes: a plan runs with any width, whatever it was made for.
#[test]
fn any_width_can_be_run() {
    let a = Csr::<f32>::identity(1).unwrap();
    let b: Vec<f32> = (0..65_600_u32).map(|i| (i % 1000) as f32).collect();
    for device in kernel_devices(0) {
        let builder = Spmm::builder(&a).algorithm(Algorithm::SegmentGroup).width(1);
        let launch = GroupLaunch { block_threads: 32, ..GroupLaunch::default() };
        let point = "{<1/32 row, 1 col>, 32}".parse().unwrap();
        let plan = builder.parallelism(point).group_launch(launch).build(&device).unwrap();
        assert!(plan.run(&b).unwrap() == b, "{device}");
    }
}

#[test]
fn values_are_replaced() {
    let a = Csr::from_dense(3, 3, &[1.0f32, 2.0, 0.0, 0.0, 0.0, 3.0, 4.0, 0.0, 5.0]).unwrap();
    for device in kernel_devices(1) {
        for point in ["{<2 nnz, 1 col>, 2}", "{<1/4 row, 1 col>, 2}"] {
            let builder = Spmm::builder(&a).algorithm(Algorithm::SegmentGroup).width(1);
            let builder = builder.parallelism(point.parse().unwrap()).values_from_device();
            let mut plan = builder.build(&device).unwrap();
            assert_eq!(plan.run(&[1.0, 10.0, 100.0]).unwrap(), [21.0, 300.0, 504.0], "{point}");
            plan.replace_values(&[5.0f32, 4.0, 3.0, 2.0, 1.0]).unwrap();
            assert_eq!(plan.run(&[1.0, 10.0, 100.0]).unwrap(), [45.0, 300.0, 102.0], "{point}");
            let values = windrow::DeviceBuffer::from_slice(&device, &[1.0f32, 1.0, 1.0, 1.0, 2.0]).unwrap();
            plan.replace_values_from(&values).unwrap();
            assert_eq!(plan.run(&[1.0, 10.0, 100.0]).unwrap(), [11.0, 100.0, 201.0], "{point}");
        }
    }
}

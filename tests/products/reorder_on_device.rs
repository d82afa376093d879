//! Rows ordered by kernels: the arrays of plans whose order the host finds, byte for byte.

use windrow::reorder::{Method, Options};
use windrow::{
    Algorithm, Csr, Determinism, Device, DeviceCsr, EmulatorSchedule, Fault, Permutation, Precision,
    Preprocessing, Profile, RowDivision, Spmm, SpmmOptions,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::{kernel_devices, report_missing_gpu};
use crate::preprocessing::{matrices, same_arrays};

const STAGE: &str = "reorder on the GPU";

fn min_hash() -> Option<Options> {
    Some(Options { method: Method::MinHash, ..Options::default() })
}

fn tiles() -> SpmmOptions {
    SpmmOptions {
        algorithm: Algorithm::TileStream,
        precision: Precision::F16,
        width: 24,
        reorder: min_hash(),
        ..SpmmOptions::default()
    }
}

/// Rows of some kinds in random order, so that there is something to gain.
fn kinds(rows: usize, kinds: usize) -> Csr<f32> {
    let mut rng = SplitMix64::new(0x51de);
    let (mut offsets, mut columns) = (vec![0], Vec::new());
    for _ in 0..rows {
        let first = 5 * rng.below(kinds);
        columns.extend((first..first + 5 + rng.below(2)).map(|column| u32::try_from(column).unwrap()));
        offsets.push(columns.len() as u64);
    }
    let values = (0..columns.len()).map(|i| (i % 13) as f32 - 6.0).collect();
    Csr::try_from_parts(rows, 5 * kinds + 5, offsets, columns, values).unwrap()
}

#[test]
fn the_arrays_are_those_of_the_hosts_order() {
    let options = [
        tiles(),
        SpmmOptions { precision: Precision::Tf32, workers: Some(7), ..tiles() },
        SpmmOptions { algorithm: Algorithm::Auto, ..tiles() },
    ];
    let matrices = [matrices(), vec![("kinds", kinds(301, 17))]].concat();
    for (turn, (name, a)) in matrices.iter().enumerate() {
        for (i, &options) in options.iter().enumerate() {
            for device in kernel_devices(turn + i) {
                let what = format!("{name}, {options:?} on {device}");
                let host = Spmm::builder(a).options(options).preprocessing(Preprocessing::Cpu);
                let want = host.build(&device).unwrap();
                let gpu = Spmm::builder(a).options(options).preprocessing(Preprocessing::Gpu);
                let matrix = DeviceCsr::from_host(&device, a).unwrap();
                let on_device = Spmm::builder(&matrix).options(options).build_on(&device.stream()).unwrap();
                for got in [gpu.build(&device).unwrap(), on_device] {
                    same_arrays(&what, &want, &got);
                    let (got, want) = (got.report(), want.report());
                    assert_eq!(
                        (&got.order, got.column_vectors, got.steps),
                        (&want.order, want.column_vectors, want.steps),
                        "{what}"
                    );
                    let by_kernels = got.stages.iter().any(|stage| stage.name == STAGE);
                    assert!(by_kernels || a.nnz() == 0, "{what}: {:?}", got.stages);
                    assert!(want.stages.iter().all(|stage| stage.name != STAGE), "{what}");
                }
            }
        }
    }
    report_missing_gpu("plans in an order found on the device", 3 * options.len() * matrices.len());
}

#[test]
fn rows_of_a_kind_share_windows_and_products_are_the_same() {
    let a = kinds(160, 10);
    let b: Vec<f32> = (0..a.cols() * 24).map(|i| (i % 7) as f32 - 3.0).collect();
    for device in kernel_devices(1) {
        let matrix = DeviceCsr::from_host(&device, &a).unwrap();
        let make = |options| Spmm::builder(&matrix).options(options).build_on(&device.stream()).unwrap();
        let (own, ordered) = (make(SpmmOptions { reorder: None, ..tiles() }), make(tiles()));
        let vectors = |plan: &windrow::SpmmPlan| plan.report().column_vectors;
        assert!(3 * vectors(&ordered) < vectors(&own), "{} of {}", vectors(&ordered), vectors(&own));
        assert_eq!(ordered.report().order, "minhash");
        assert_eq!(ordered.report().preprocessing_reason, "the matrix is there");
        // Small integers: sums are exact in any order.
        assert_eq!(ordered.run(&b).unwrap(), own.run(&b).unwrap(), "on {device}");
    }
    report_missing_gpu("products in an order found on the device", 1);
}

/// An order that gathers more than the matrix's own is not used.
#[test]
fn an_order_that_is_worse_or_not_for_tiles() {
    let blocks: Vec<u32> = (0..64).flat_map(|r| (0..6).map(move |c| r / 8 * 6 + c)).collect();
    let offsets = (0..65).map(|r| 6 * r).collect();
    let a = Csr::try_from_parts(64, 48, offsets, blocks, vec![1f32; 384]).unwrap();
    for device in kernel_devices(2) {
        let matrix = DeviceCsr::from_host(&device, &a).unwrap();
        let made = Spmm::builder(&matrix).options(tiles()).build_on(&device.stream()).unwrap();
        assert_eq!(made.report().column_vectors, 48, "nothing can be gained, nothing is lost");
        let rows = SpmmOptions { algorithm: Algorithm::RowSplit, precision: Precision::F32, ..tiles() };
        let made = Spmm::builder(&matrix).options(rows).build_on(&device.stream()).unwrap();
        let said = &made.report().preprocessing_reason;
        assert_eq!(said, "the matrix is there");
        same_arrays("rows", &Spmm::builder(&a).options(rows).build(&device).unwrap(), &made);
    }
    report_missing_gpu("orders that are not used", 2);
}

/// Rows of few entries, and of many, which are cut.
fn long_and_short() -> Csr<f32> {
    let mut rng = SplitMix64::new(0x0dd);
    let lengths: Vec<usize> = (0..600)
        .map(|row| match row % 97 {
            3 => 0,
            5 => 100 + row,
            _ => rng.below(9),
        })
        .collect();
    Pattern::from_lengths(900, lengths, &mut rng).with_values(Values::Reals, &mut rng)
}

/// Segments in another order of rows, given or found, are those that the host makes, and so are products.
#[test]
fn rows_in_any_order_are_cut_as_on_the_host() {
    let rows = SpmmOptions { algorithm: Algorithm::RowSplit, width: 8, ..SpmmOptions::default() };
    let cut = RowDivision { piece_entries: Some(32), ..RowDivision::default() };
    let a = long_and_short();
    let order: Vec<u32> = (0..600).map(|i| i * 7 % 600).collect();
    let order = Permutation::try_from_new_to_old(order.into_iter().rev().collect()).unwrap();
    let b: Vec<f32> = (0..a.cols() * 8).map(|i| (i % 13) as f32 / 8.0 - 0.5).collect();
    for (turn, options) in [
        rows,
        SpmmOptions { row_division: cut, ..rows },
        SpmmOptions { row_division: cut, determinism: Determinism::Fast, ..rows },
        SpmmOptions { row_division: cut, expected_runs: Some(1), ..rows },
        SpmmOptions { row_division: RowDivision { piece_entries: Some(1 << 20), ..cut }, ..rows },
        SpmmOptions { algorithm: Algorithm::TileStream, precision: Precision::F16, ..rows },
    ]
    .into_iter()
    .enumerate()
    {
        for device in kernel_devices(turn) {
            let what = format!("{options:?} on {device}");
            let matrix = DeviceCsr::from_host(&device, &a).unwrap();
            let on_device = Spmm::builder(&matrix).options(options);
            let on_host = Spmm::builder(&a).options(options);
            let found = on_device.clone().reorder(min_hash().unwrap());
            let want_found = on_host.clone().reorder(min_hash().unwrap());
            let (given, want_given) = (on_device.order(&order), on_host.order(&order));
            for (got, want) in [(given, want_given), (found, want_found)] {
                let (got, want) = (got.build_on(&device.stream()).unwrap(), want.build(&device).unwrap());
                same_arrays(&what, &want, &got);
                assert_eq!(got.report().preprocessing_reason, "the matrix is there", "{what}");
                assert_eq!(
                    (&got.report().order, got.report().split),
                    (&want.report().order, want.report().split)
                );
                if options.determinism == Determinism::RunToRun {
                    assert!(got.run(&b).unwrap() == want.run(&b).unwrap(), "{what}: another product");
                }
            }
        }
    }
    report_missing_gpu("rows in any order", 12);
}

/// Promise, results: where nothing was said of the order of rows and many products are expected, one that pays is made
/// and said why, and products stay in the caller's order; rows are worked on in their own where none pays, and where
/// that is asked for.
#[test]
fn an_order_that_pays_is_made_unasked() {
    let a = kinds(160, 10);
    let b: Vec<f32> = (0..a.cols() * 24).map(|i| (i % 7) as f32 - 3.0).collect();
    let open = SpmmOptions { algorithm: Algorithm::Auto, reorder: None, ..tiles() };
    let identity = Options { method: Method::Identity, ..Options::default() };
    for device in kernel_devices(3) {
        let matrix = DeviceCsr::from_host(&device, &a).unwrap();
        let mut profile = Profile::built_in(&device);
        profile.costs.spmm.launch_seconds = 0.0; // most of the time of so small a product
        profile.costs.tiles.layout_entries = 0;
        profile.costs.paths.rows_f16.launch = 1e6; // tiles, of which orders are
        let make = |options| {
            let on_device = Spmm::builder(&matrix).options(options).profile(&profile);
            let on_host = Spmm::builder(&a).options(options).profile(&profile);
            [on_device.build_on(&device.stream()).unwrap(), on_host.build(&device).unwrap()]
        };
        let [own, _] = make(open);
        assert_eq!((own.report().order.as_str(), own.report().order_reason.as_str()), ("its own", ""));
        let product = own.run(&b).unwrap();
        for (runs, reorder, order, why) in [
            (1 << 40, None, "minhash", "entries a vector"),
            (100, None, "its own", "another saves at most"),
            (1 << 40, Some(identity), "identity", ""),
            (1 << 40, min_hash(), "minhash", ""),
        ] {
            for plan in make(SpmmOptions { expected_runs: Some(runs), reorder, ..open }) {
                let report = plan.report();
                assert_eq!((report.order.as_str(), report.algorithm), (order, Algorithm::TileStream));
                assert!(report.order_reason.contains(why), "{}", report.order_reason);
                assert_eq!(report.order_reason.is_empty(), why.is_empty(), "{}", report.order_reason);
                assert!(report.to_string().contains(&report.order_reason));
                let is_less = 3 * report.column_vectors < own.report().column_vectors;
                assert_eq!(is_less, order == "minhash", "{} vectors", report.column_vectors);
                // Small integers: sums are exact in any order.
                assert_eq!(plan.run(&b).unwrap(), product, "{runs} products on {device}");
            }
        }
        // An order in which nothing is saved is made, and left.
        let identity = Csr::<f32>::identity(64).unwrap();
        let matrix = DeviceCsr::from_host(&device, &identity).unwrap();
        let options = SpmmOptions { expected_runs: Some(1 << 60), ..open };
        let plan =
            Spmm::builder(&matrix).options(options).profile(&profile).build_on(&device.stream()).unwrap();
        let report = plan.report();
        assert!(report.order == "its own" && report.order_reason.contains("too little"), "{report}");
    }
    report_missing_gpu("orders that nobody asked for", 1);
}

/// Whichever call the device refuses, allocations among them: an error, and nothing stays allocated.
#[test]
fn what_the_device_refuses_is_an_error() {
    let a = kinds(30, 3);
    let (device, faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
    let matrix = DeviceCsr::from_host(&device, &a).unwrap();
    let make = || Spmm::builder(&matrix).options(tiles()).build_on(&device.stream());
    let before = faults.calls();
    drop(make().unwrap());
    let (calls, allocated) = (faults.calls() - before, faults.allocated());
    assert!(calls > 300, "{calls}");
    for at in (0..calls).step_by(7).chain(0..60) {
        faults.plan(at, Fault::Refused);
        let made = make();
        assert!(!faults.clear().is_empty(), "call {at} was refused");
        assert!(made.is_err(), "call {at} of {calls}");
        drop(made);
        assert_eq!(faults.allocated(), allocated, "call {at} of {calls}");
    }
    assert_eq!(make().unwrap().report().order, "minhash");
}

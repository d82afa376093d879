//! Plans of matrices that are on the device: the arrays and the products of plans made on the host, bit for bit.

use half::{bf16, f16};
use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::{
    Algorithm, Csr, Determinism, Device, DeviceBuffer, DeviceCsr, Index, Permutation, PlanError, Precision,
    Preprocessing, RowDivision, Spmm, SpmmError, SpmmOptions, SpmmPlan, Value,
};
use windrow_testkit::{Pattern, SplitMix64, Values};

use crate::common::{devices, kernel_devices, report_missing_gpu};
use crate::preprocessing::{matrices, same_arrays};

/// The arrays of a matrix on a device, with indices of some types.
pub(crate) struct Uploaded<O: Index, C: Index, V: Value> {
    shape: (usize, usize),
    pub(crate) offsets: DeviceBuffer<O>,
    pub(crate) columns: DeviceBuffer<C>,
    pub(crate) values: DeviceBuffer<V>,
}

impl<O: Index, C: Index, V: Value> Uploaded<O, C, V> {
    pub(crate) fn new(device: &Device, a: &Csr<V>, offset: fn(u64) -> O, column: fn(u32) -> C) -> Self {
        let offsets: Vec<O> = a.row_offsets().iter().map(|&x| offset(x)).collect();
        let columns: Vec<C> = a.col_indices().iter().map(|&x| column(x)).collect();
        Self {
            shape: (a.rows(), a.cols()),
            offsets: DeviceBuffer::from_slice(device, &offsets).unwrap(),
            columns: DeviceBuffer::from_slice(device, &columns).unwrap(),
            values: DeviceBuffer::from_slice(device, a.values()).unwrap(),
        }
    }

    pub(crate) fn matrix(&self) -> DeviceCsr<'_, V> {
        let (rows, cols) = self.shape;
        DeviceCsr::new(rows, cols, &self.offsets, &self.columns, &self.values).unwrap()
    }
}

fn reversed(len: usize) -> Permutation {
    Permutation::try_from_new_to_old((0..u32::try_from(len).unwrap()).rev().collect()).unwrap()
}

pub(crate) fn of_i64<V: Value>(device: &Device, a: &Csr<V>) -> Uploaded<i64, i64, V> {
    Uploaded::new(device, a, |x| i64::try_from(x).unwrap(), i64::from)
}

pub(crate) fn of_i32<V: Value>(device: &Device, a: &Csr<V>) -> Uploaded<i32, i32, V> {
    Uploaded::new(device, a, |x| i32::try_from(x).unwrap(), |x| i32::try_from(x).unwrap())
}

/// Compares the plan of a matrix on the device with that of the host, everything that they hold. What is asked for in
/// [`plans`] and has entries kernels lay out; what is left to the plan may be the host's.
#[track_caller]
fn check<V: Value>(
    options: SpmmOptions,
    device: &Device,
    name: &str,
    matrices: (&Csr<V>, &DeviceCsr<'_, V>),
) {
    let said = compare(options, device, name, matrices);
    if options.algorithm != Algorithm::Auto && matrices.0.nnz() > 0 && plans().contains(&options) {
        assert_eq!(said, "the matrix is there", "{name}, {options:?} on {device}");
    }
}

/// The comparison, and where the report says that the plan was made.
#[track_caller]
pub(crate) fn compare<V: Value>(
    options: SpmmOptions,
    device: &Device,
    name: &str,
    (a, on_device): (&Csr<V>, &DeviceCsr<'_, V>),
) -> String {
    let what = format!("{name}, {options:?} on {device}");
    let want = Spmm::builder(a).options(options).preprocessing(Preprocessing::Auto).build(device).unwrap();
    let got = Spmm::builder(on_device)
        .options(options)
        .build_on(&device.stream())
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    let facts = |plan: &SpmmPlan| {
        let r = plan.report().clone();
        let counts =
            [r.windows, r.tiles, r.steps, r.workers, r.column_vectors, r.split, r.split_rows, r.segments];
        let others = (r.rows, r.cols, r.nnz, r.empty_rows, r.overflowed_values, r.algorithm, r.reason);
        (counts, others, r.predicted_us, r.entries, r.parallelism, r.tile_values, r.tile_values_reason)
    };
    assert_eq!(facts(&got), facts(&want), "{what}");
    same_arrays(&what, &want, &got);
    got.report().preprocessing_reason.clone()
}

/// The plans that kernels make: rows whole and cut, groups of threads for rows and for entries, merged paths, tiles.
fn plans() -> Vec<SpmmOptions> {
    let rows = SpmmOptions { algorithm: Algorithm::RowSplit, width: 40, ..SpmmOptions::default() };
    let cut = RowDivision { piece_entries: Some(32), ..RowDivision::default() };
    let at = |point: &str| Some(point.parse().unwrap());
    let groups = SpmmOptions {
        algorithm: Algorithm::SegmentGroup,
        parallelism: Some("{<1/8 row, 4 col>, 8}".parse().unwrap()),
        ..rows
    };
    let panels = SpmmOptions { algorithm: Algorithm::RowPanels, ..rows };
    let tiles = SpmmOptions { algorithm: Algorithm::TileStream, precision: Precision::F16, ..rows };
    vec![
        rows,
        SpmmOptions { row_division: cut, ..rows },
        SpmmOptions { row_division: cut, determinism: Determinism::Fast, precision: Precision::Bf16, ..rows },
        SpmmOptions { precision: Precision::Tf32, ..rows },
        groups,
        SpmmOptions { precision: Precision::F16, ..groups },
        SpmmOptions { parallelism: at("{<1/8 row, 4 col>, 4}"), determinism: Determinism::Fast, ..groups },
        SpmmOptions { parallelism: at("{<4 nnz, 4 col>, 32}"), ..groups },
        SpmmOptions { parallelism: at("{<1 nnz, 4 col>, 2}"), ..groups },
        SpmmOptions {
            parallelism: at("{<2 nnz, 4 col>, 4}"),
            determinism: Determinism::Fast,
            precision: Precision::F16,
            ..groups
        },
        panels,
        SpmmOptions { row_division: cut, ..panels },
        SpmmOptions { row_division: cut, determinism: Determinism::Fast, ..panels },
        SpmmOptions { algorithm: Algorithm::MergePath, ..rows },
        SpmmOptions { algorithm: Algorithm::MergePath, row_division: cut, precision: Precision::F16, ..rows },
        tiles,
        SpmmOptions { workers: Some(40), precision: Precision::Tf32, ..tiles },
        SpmmOptions { window_each: true, precision: Precision::Bf16, ..tiles },
        SpmmOptions { precision: Precision::F16, ..SpmmOptions::default() },
        SpmmOptions { width: 4, ..SpmmOptions::default() },
        SpmmOptions::default(),
    ]
}

#[test]
fn the_arrays_are_those_of_the_host() {
    let (plans, matrices) = (plans(), matrices());
    for (turn, (name, a)) in matrices.iter().enumerate() {
        for (i, &options) in plans.iter().enumerate() {
            for device in kernel_devices(turn + i) {
                match (turn + i) % 3 {
                    0 => check(options, &device, name, (a, &DeviceCsr::from_host(&device, a).unwrap())),
                    1 => check(options, &device, name, (a, &of_i64(&device, a).matrix())),
                    _ => check(options, &device, name, (a, &of_i32(&device, a).matrix())),
                }
            }
        }
    }
    report_missing_gpu("plans of matrices on the device", plans.len() * matrices.len());
}

/// More rows than a block has, and more blocks than are added up at once; rows that are cut at the edges of both.
#[test]
fn rows_of_many_blocks_are_cut_as_on_the_host() {
    let mut rng = SplitMix64::new(0xb10c);
    let mut lengths = |rows: usize, long: &[usize]| {
        let mut lengths: Vec<usize> = (0..rows).map(|_| rng.below(3)).collect();
        long.iter().for_each(|&row| lengths[row] = 49 + row % 500);
        lengths
    };
    let few = lengths(3000, &[0, 3, 1022, 1023, 1024, 1027, 2999]);
    let many = lengths(300_000, &[5, 1023, 262_142, 262_143, 262_144, 270_000, 299_999]);
    for (turn, lengths) in [few, many].into_iter().enumerate() {
        let a = Pattern::from_lengths(700, lengths, &mut rng).with_values(Values::Reals, &mut rng);
        let cut = RowDivision { piece_entries: Some(32), ..RowDivision::default() };
        let options = SpmmOptions {
            algorithm: Algorithm::RowSplit,
            row_division: cut,
            width: 4,
            ..SpmmOptions::default()
        };
        for device in kernel_devices(turn) {
            let on_device = DeviceCsr::from_host(&device, &a).unwrap();
            check(options, &device, "many blocks", (&a, &on_device));
            check(
                SpmmOptions { determinism: Determinism::Fast, ..options },
                &device,
                "many blocks",
                (&a, &on_device),
            );
        }
    }
    report_missing_gpu("rows of many blocks on the device", 2);
}

/// More windows than the host deals out, and more than it looks at one by one; whole ones, and one that is divided.
#[test]
fn many_windows_are_dealt_out_as_on_the_host() {
    let mut rng = SplitMix64::new(0xdea1);
    let cases = [(2500, 0, 40), (2500, 2000, 70), (70_000, 0, 40), (70_000, 0, 20_000), (70_000, 2000, 3000)];
    for (turn, (rows, long, workers)) in cases.into_iter().enumerate() {
        let mut lengths: Vec<usize> = (0..rows).map(|row| rng.below(2 + row % 5)).collect();
        lengths[rows / 2] = long.max(1);
        let a = Pattern::from_lengths(3000, lengths, &mut rng).with_values(Values::Reals, &mut rng);
        let options = SpmmOptions {
            algorithm: Algorithm::TileStream,
            precision: Precision::F16,
            workers: Some(workers),
            width: 8,
            ..SpmmOptions::default()
        };
        for device in kernel_devices(turn) {
            let on_device = DeviceCsr::from_host(&device, &a).unwrap();
            let said = compare(options, &device, "many windows", (&a, &on_device));
            assert_eq!(said, "the matrix is there");
        }
    }
    report_missing_gpu("windows dealt out on the device", cases.len());
}

/// What is made on the host says so, and is what the host makes.
#[test]
fn other_plans_are_made_of_a_copy() {
    let rows = SpmmOptions { width: 8, ..SpmmOptions::default() };
    let threshold = VectorThreshold::try_new(0.25).unwrap();
    let f16 = Precision::F16;
    let others = [
        (
            SpmmOptions { algorithm: Algorithm::MatricizedRows, precision: f16, ..rows },
            "rows are dealt out there",
        ),
        (
            SpmmOptions { algorithm: Algorithm::Hybrid, precision: f16, ..rows },
            "it is estimated there how rows are best divided",
        ),
        (
            SpmmOptions {
                algorithm: Algorithm::Hybrid,
                precision: f16,
                partition: Some(PartitionRule::ColumnVectors { threshold }),
                reorder: Some(windrow::reorder::Options::default()),
                ..rows
            },
            "rows are reordered there",
        ),
        (
            SpmmOptions { algorithm: Algorithm::ShortRows, precision: Precision::F64, ..rows },
            "f64 values are gathered there",
        ),
        (SpmmOptions { preprocessing: Preprocessing::Cpu, ..rows }, "as asked"),
        (
            SpmmOptions { reorder: Some(windrow::reorder::Options::default()), ..rows },
            "rows are reordered there",
        ),
    ];
    let (name, a) = &matrices()[10];
    for (turn, (options, why)) in others.into_iter().enumerate() {
        for device in kernel_devices(turn) {
            let on_device = of_i64(&device, a);
            check(options, &device, name, (a, &on_device.matrix()));
            let plan =
                Spmm::builder(&on_device.matrix()).options(options).build_on(&device.stream()).unwrap();
            let said = plan.report().preprocessing_reason.clone();
            assert!(said.starts_with("a copy of the matrix, on the host: ") && said.contains(why), "{said}");
        }
    }
    // Not those in an order that is given.
    let order = reversed(a.rows());
    let device = kernel_devices(0).remove(0);
    let matrix = DeviceCsr::from_host(&device, a).unwrap();
    let got = Spmm::builder(&matrix).order(&order).build_on(&device.stream()).unwrap();
    same_arrays("an order", &Spmm::builder(a).order(&order).build(&device).unwrap(), &got);
    report_missing_gpu("plans of copies", 7);
}

/// Products on every device, with values of every type that is given, rounded as the host rounds them.
#[test]
fn values_of_any_type_and_none() {
    let (_, a) = &matrices()[9];
    let b: Vec<f32> = (0..a.cols() * 4).map(|i| (i % 13) as f32 / 8.0 - 0.5).collect();
    let run = |plan: &SpmmPlan| plan.run(&b).unwrap();
    fn typed<V: Value>(a: &Csr<f32>) -> Csr<V> {
        a.with_values(a.values().iter().map(|&x| V::from_f32(x)).collect()).unwrap()
    }
    for device in devices() {
        for precision in [Precision::F16, Precision::Bf16, Precision::Tf32, Precision::F32] {
            let options =
                SpmmOptions { precision, width: 4, algorithm: Algorithm::RowSplit, ..SpmmOptions::default() };
            macro_rules! same {
                ($($type:ty),+) => { $({
                    let a = typed::<$type>(a);
                    let want = Spmm::builder(&a).options(options).build(&device).unwrap();
                    let uploaded = of_i32(&device, &a);
                    let got = Spmm::builder(&uploaded.matrix()).options(options).build_on(&device.stream()).unwrap();
                    assert_eq!(run(&got), run(&want), "{} in {precision} on {device}", stringify!($type));
                })+ };
            }
            same!(f32, f16, bf16, f64);
            let uploaded = of_i64(&device, a);
            let pattern =
                DeviceCsr::pattern(a.rows(), a.cols(), &uploaded.offsets, &uploaded.columns).unwrap();
            let ones = a.with_values(vec![1.0f32; a.nnz()]).unwrap();
            let want = Spmm::builder(&ones).options(options).build(&device).unwrap();
            let got = Spmm::builder(&pattern).options(options).build_on(&device.stream()).unwrap();
            assert_eq!(run(&got), run(&want), "ones in {precision} on {device}");
        }
        // f64, of f64 and of f32 values.
        let options = SpmmOptions { precision: Precision::F64, width: 4, ..SpmmOptions::default() };
        let b: Vec<f64> = b.iter().map(|&x| f64::from(x) + 1e-9).collect();
        let (wide, want) = (typed::<f64>(a), Spmm::builder(a).options(options).build(&device).unwrap());
        let want: Vec<f64> = want.run(&b).unwrap();
        let plan = |plan: SpmmPlan| -> Vec<f64> { plan.run(&b).unwrap() };
        let (of_f32, of_f64) = (of_i64(&device, a), of_i32(&device, &wide));
        assert_eq!(
            plan(Spmm::builder(&of_f32.matrix()).options(options).build_on(&device.stream()).unwrap()),
            want
        );
        assert_eq!(
            plan(Spmm::builder(&of_f64.matrix()).options(options).build_on(&device.stream()).unwrap()),
            want
        );
    }
    report_missing_gpu("values of any type on the device", 22);
}

/// Values that are not finite, or do not remain so, are counted and decide as on the host.
#[test]
fn values_that_are_not_finite_are_counted() {
    let given = [1.0, 65_520.0, -70_000.0, f32::NAN, f32::INFINITY, 65_519.0, 0.0, -1e-9, 3e38];
    let a = Csr::from_dense(3, 3, &[1.0f32; 9]).unwrap().with_values(given.to_vec()).unwrap();
    for device in kernel_devices(1) {
        let uploaded = of_i64(&device, &a);
        for precision in [Precision::F16, Precision::Bf16, Precision::Tf32] {
            let options = SpmmOptions { precision, width: 64, ..SpmmOptions::default() };
            check(options, &device, "not finite", (&a, &uploaded.matrix()));
        }
        let plan =
            Spmm::builder(&uploaded.matrix()).precision(Precision::F16).build_on(&device.stream()).unwrap();
        assert_eq!(plan.report().overflowed_values, 3);
        assert_eq!(plan.report().algorithm, Algorithm::RowSplit, "{}", plan.report().reason);
    }
    report_missing_gpu("values that are not finite on the device", 4);
}

/// New values, in their own order and in another.
#[test]
fn new_values_reach_their_places() {
    for (turn, (name, a)) in matrices().iter().enumerate() {
        let values: Vec<f32> = (0..a.nnz()).map(|i| 0.5 + (i % 100) as f32).collect();
        let order = reversed(a.nnz());
        for device in kernel_devices(turn) {
            let uploaded = of_i32(&device, a);
            let new = DeviceBuffer::from_slice(&device, &values).unwrap();
            for options in plans() {
                let what = format!("new values, {name}, {options:?} on {device}");
                let mut want = Spmm::builder(a).options(options).value_order(&order).build(&device).unwrap();
                let matrix = uploaded.matrix();
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
    }
    report_missing_gpu("new values of plans from the device", matrices().len());
}

#[test]
fn too_little_memory_is_an_error() {
    let a = Csr::<f32>::identity(1000).unwrap();
    for device in kernel_devices(0) {
        let on_device = DeviceCsr::from_host(&device, &a).unwrap();
        let error = Spmm::builder(&on_device).memory_limit(1000).build_on(&device.stream()).unwrap_err();
        let SpmmError::Plan(PlanError::MemoryLimit { needed, limit: 1000, .. }) = error else {
            panic!("{error}")
        };
        let error = Spmm::builder(&a).memory_limit(1000).build(&device).unwrap_err();
        assert!(
            matches!(error, SpmmError::Plan(PlanError::MemoryLimit { needed: same, .. }) if same == needed),
            "{error}"
        );
    }
    report_missing_gpu("memory limits of plans from the device", 1);
}

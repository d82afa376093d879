//! Products of sparse tensors, MTTKRP and TTM: every mode, every legal point, against the f64 reference.

use crate::common::{by_turns, devices, gpu, kernel_devices, report_missing_gpu};
use windrow::internal::{AtomicEntriesParams, EntryFactor as Factor, Variant, entry, launch};
use windrow::{
    Algorithm, AtomicParallelism, Bounds, Coo3, Csf3, DenseMut, DenseRef, Determinism, Device, DeviceBuffer,
    DeviceKind, DeviceMatrix, Element, EmulatorSchedule, GroupLaunch, Mttkrp, MttkrpPlan, PlanError,
    Precision, TensorError, Ttm, TtmPlan, Value, f16,
};
use windrow_testkit::{Comparison, PADDING_MARK, Tally, TensorCase, tensor_cases};

const ORDERS: [[usize; 3]; 3] = [[0, 1, 2], [1, 2, 0], [2, 1, 0]];
const ORDER_NAMES: [&str; 3] = ["012", "120", "210"];

/// What is tested: a kind of plan, on a mode of the tensor.
#[derive(Debug, Clone, Copy)]
struct Setup {
    precision: Precision,
    determinism: Determinism,
    order: [usize; 3],
    point: Option<AtomicParallelism>,
    launch: GroupLaunch,
    /// Elements between the rows of operands, or as many as align them.
    padding: Option<usize>,
    /// The algorithm of TTM.
    algorithm: Algorithm,
}

const PLAIN: Setup = Setup {
    precision: Precision::F32,
    determinism: Determinism::RunToRun,
    order: ORDERS[0],
    point: None,
    launch: GroupLaunch { block_threads: 64, tile_columns: None, workers_log2: 0 },
    padding: None,
    algorithm: Algorithm::Auto,
};

impl Setup {
    fn ld<T>(self, n: usize) -> usize {
        self.padding.map_or(n.next_multiple_of(16 / size_of::<T>()), |padding| n + padding)
    }

    /// A matrix of `n` columns; the rest of its rows is `filler`.
    fn place<T: Element>(self, device: &Device, data: &[f32], n: usize, filler: f32) -> DeviceMatrix<T> {
        let (rows, ld) = (data.len() / n, self.ld::<T>(n));
        let mut placed = vec![T::from_f32(filler); rows * ld];
        for (row, data) in placed.chunks_exact_mut(ld).zip(data.chunks_exact(n)) {
            row.iter_mut().zip(data).for_each(|(to, &x)| *to = T::from_f32(x));
        }
        DeviceMatrix::from_buffer(DeviceBuffer::from_slice(device, &placed).unwrap(), rows, n, ld).unwrap()
    }

    fn mttkrp(self, device: &Device, a: &Csf3<f32>, width: usize) -> MttkrpPlan {
        let builder = Mttkrp::builder(a).width(width).precision(self.precision);
        let builder = builder.determinism(self.determinism).group_launch(self.launch);
        let builder = self.point.map_or(builder.clone(), |point| builder.parallelism(point));
        builder.build(device).unwrap()
    }

    fn ttm(self, device: &Device, a: &Csf3<f32>, width: usize) -> TtmPlan {
        let builder = Ttm::builder(a).width(width).precision(self.precision).algorithm(self.algorithm);
        let builder = builder.determinism(self.determinism).group_launch(self.launch);
        let builder = self.point.map_or(builder.clone(), |point| builder.parallelism(point));
        builder.build(device).unwrap()
    }
}

/// Runs MTTKRP twice on one plan, and compares both results, padding included.
#[track_caller]
fn run_mttkrp<T: Element, O: Element<Sum = T::Sum> + windrow_testkit::Output>(
    setup: Setup,
    device: &Device,
    case: &TensorCase,
) -> (Comparison, MttkrpPlan) {
    let a = case.tensor.to_csf(setup.order).unwrap();
    let [rows, b, c] = setup.order;
    // Narrower than the product, so that it runs in blocks of columns, or wider.
    let plan = setup.mttkrp(device, &a, if case.n == 33 { 9 } else { case.n });
    let reference = case.mttkrp(setup.order);
    let (b, c) = (&case.factors[b], &case.factors[c]);
    let b = setup.place::<T>(device, b, case.n, f32::NAN);
    let c = setup.place::<T>(device, c, case.n, f32::NAN);
    let initial = case.initial(case.tensor.dims()[rows]);
    let mut compared = Comparison::default();
    for _ in 0..2 {
        let mut y = setup.place::<O>(device, &initial, case.n, PADDING_MARK);
        let [alpha, beta] = [case.alpha, case.beta].map(<T::Sum as Value>::from_f32);
        plan.run_into(alpha, [&b, &c], beta, &mut y)
            .unwrap_or_else(|error| panic!("{} on {device}, {setup:?}: {error}", case.name));
        let got = y.buffer().to_vec().unwrap_or_else(|error| panic!("{} on {device}: {error}", case.name));
        compared = case.assert_matches(&reference, &got, y.ld());
    }
    (compared, plan)
}

#[track_caller]
fn run_ttm<T: Element<Sum: windrow_testkit::Output>>(
    setup: Setup,
    device: &Device,
    case: &TensorCase,
) -> Comparison {
    let a = case.tensor.to_csf(setup.order).unwrap();
    let [.., leaves] = setup.order;
    let plan = setup.ttm(device, &a, case.n);
    assert_eq!(plan.fibers(), a.fibers());
    let b = setup.place::<T>(device, &case.factors[leaves], case.n, f32::NAN);
    let mut y = setup.place::<T::Sum>(device, &case.initial(a.fibers()), case.n, PADDING_MARK);
    let [alpha, beta] = [case.alpha, case.beta].map(<T::Sum as Value>::from_f32);
    plan.run_into(alpha, &b, beta, &mut y)
        .unwrap_or_else(|error| panic!("{} on {device}, {setup:?}: {error}", case.name));
    let got = y.buffer().to_vec().unwrap_or_else(|error| panic!("{} on {device}: {error}", case.name));
    case.assert_matches(&case.ttm(setup.order), &got, y.ld())
}

/// Runs `run` with every case and mode, the padding by turns, on the devices whose turn it is.
fn check(what: &str, setup: Setup, run: impl Fn(Setup, &Device, &TensorCase) -> Comparison) {
    let cases = tensor_cases();
    by_turns(what, ORDERS.len() * cases.len(), |device, turn, ran| {
        let (at, mode) = (turn / ORDERS.len(), turn % ORDERS.len());
        let padding = [None, Some((at + mode) % 4)][(at + mode) % 2];
        let setup = Setup { order: ORDERS[mode], padding, ..setup };
        ran.note(device, turn, [(ORDER_NAMES[mode], padding.is_none())]);
        run(setup, device, &cases[at])
    });
}

/// Promise, zero and not-a-number: MTTKRP and TTM with `β = 0` never read `Y`; with any shapes and leading
/// dimensions, and nothing written between rows.
#[test]
fn mttkrp_f32() {
    check("MTTKRP f32", PLAIN, |setup, device, case| run_mttkrp::<f32, f32>(setup, device, case).0);
}

#[test]
fn mttkrp_f16() {
    let setup = Setup { precision: Precision::F16, ..PLAIN };
    check("MTTKRP f16", setup, |setup, device, case| {
        run_mttkrp::<f16, f32>(setup, device, &case.rounded_to_halves()).0
    });
    check("MTTKRP f16 to f16", setup, |setup, device, case| {
        // Sums of rows that hold thousands are beyond f16.
        match case.tensor.nnz() < 1000 {
            true => run_mttkrp::<f16, f16>(setup, device, &case.rounded_to_halves()).0,
            false => run_mttkrp::<f16, f32>(setup, device, &case.rounded_to_halves()).0,
        }
    });
}

#[test]
fn mttkrp_in_any_order() {
    let setup = Setup { determinism: Determinism::Fast, ..PLAIN };
    check("MTTKRP in any order", setup, |setup, device, case| run_mttkrp::<f32, f32>(setup, device, case).0);
}

/// Promise, zero and not-a-number: MTTKRP and TTM with `β = 0` never read `Y`; with any shapes and leading
/// dimensions, and nothing written between rows.
#[test]
fn ttm_by_every_algorithm() {
    for algorithm in [Algorithm::Auto, Algorithm::SegmentGroup, Algorithm::RowSplit] {
        let what = format!("TTM by {algorithm}");
        check(&what, Setup { algorithm, ..PLAIN }, |setup, device, case| run_ttm::<f32>(setup, device, case));
    }
    let setup = Setup { precision: Precision::F16, algorithm: Algorithm::SegmentGroup, ..PLAIN };
    check("TTM f16", setup, |setup, device, case| run_ttm::<f16>(setup, device, &case.rounded_to_halves()));
}

/// Every point that divides nonzeros, with each way to add what is cut, over cases, modes and launches by turns.
#[test]
fn every_point_of_nonzeros() {
    let cases: Vec<_> = tensor_cases().into_iter().filter(|case| case.n <= 16).collect();
    let launches = [
        GroupLaunch { block_threads: 32, tile_columns: Some(4), workers_log2: 0 },
        GroupLaunch { block_threads: 128, tile_columns: None, workers_log2: -1 },
        GroupLaunch { block_threads: 96, tile_columns: Some(8), workers_log2: -31 },
    ];
    let points = AtomicParallelism::all(&Bounds::default()).filter(|point| point.is_nonzero_split());
    let points: Vec<_> = points.collect();
    assert_eq!(points.len(), 108);
    let (mut tally, mut cut) = (Tally::new("points of MTTKRP and TTM"), 0);
    for (at, &point) in points.iter().enumerate() {
        for (turn, determinism) in [Determinism::RunToRun, Determinism::Fast].into_iter().enumerate() {
            let number = at * 7 + turn * 5;
            let case = &cases[number % cases.len()];
            let setup = Setup {
                point: Some(point),
                determinism,
                order: ORDERS[number % 3],
                launch: launches[(at + turn) % 3],
                padding: [None, Some(1)][(at / 2) % 2],
                algorithm: Algorithm::SegmentGroup,
                ..PLAIN
            };
            for device in kernel_devices(number) {
                let (comparison, plan) = run_mttkrp::<f32, f32>(setup, &device, case);
                let report = plan.report();
                assert!(report.parallelism.as_ref().is_some_and(|it| it.starts_with(&point.to_string())));
                cut += usize::from(report.split_slices > 0);
                tally.ran(&comparison);
                let half = case.rounded_to_halves();
                let of_halves = Setup { precision: Precision::F16, ..setup };
                tally.ran(&run_mttkrp::<f16, f32>(of_halves, &device, &half).0);
                tally.ran(&run_ttm::<f32>(setup, &device, case));
            }
        }
    }
    tally.finish();
    assert!(cut > 80, "{cut} with slices that are cut");
    report_missing_gpu("points of MTTKRP and TTM", 6 * points.len());
}

/// A row that is not finite reaches the slices and fibers that have entries of it, and no other.
///
/// Promise, zero and not-a-number: of MTTKRP and TTM, a row of a factor that is not finite reaches the slices and
/// fibers that have entries of it, and no other.
#[test]
fn what_is_not_finite_stays_in_its_slice() {
    let mut tally = Tally::new("slices that are not finite");
    // Duplicates are added up before they meet an infinity: their sum may be zero.
    let suits =
        |case: &TensorCase| case.exact && case.tensor.nnz() > 50 && !case.name.starts_with("duplicates");
    for (at, mut case) in tensor_cases().into_iter().filter(suits).enumerate() {
        let [_, j, k] = case.tensor.entries().nth(30).unwrap().0;
        let n = case.n;
        case.factors[1][j as usize * n..][..n].fill(f32::NAN);
        case.factors[2][k as usize * n] = f32::INFINITY;
        let reference = case.mttkrp([0, 1, 2]);
        assert!(reference.want.iter().any(|x| !x.is_finite()), "{}", case.name);
        for device in kernel_devices(at).into_iter().chain([Device::cpu()]) {
            tally.ran(&run_mttkrp::<f32, f32>(PLAIN, &device, &case).0);
            for algorithm in [Algorithm::SegmentGroup, Algorithm::Auto] {
                tally.ran(&run_ttm::<f32>(Setup { algorithm, ..PLAIN }, &device, &case));
            }
        }
    }
    tally.finish();
    report_missing_gpu("slices that are not finite", 1);
}

/// Slices that are cut are added up in one order.
///
/// Promise, determinism: MTTKRP and TTM have the same bits in whatever order blocks, warps and lanes get on.
#[test]
fn every_schedule_gives_the_same_bits() {
    let cases = tensor_cases();
    let case = cases.iter().find(|case| case.name.starts_with("power law, reals")).unwrap();
    let a = case.tensor.to_csf([0, 1, 2]).unwrap();
    let run = |device: &Device| -> Vec<u32> {
        let plan = PLAIN.mttkrp(device, &a, case.n);
        assert!(plan.report().split_slices > 3, "{}", plan.report());
        let y = plan.run(&case.factors[1], &case.factors[2]).unwrap();
        y.into_iter().map(f32::to_bits).collect()
    };
    let expected = run(&Device::emulator(EmulatorSchedule::InOrder));
    for schedule in EmulatorSchedule::STANDARD {
        assert_eq!(run(&Device::emulator(schedule)), expected, "{schedule:?}");
    }
    if let Some(gpu) = gpu() {
        assert!((0..20).all(|_| run(&gpu) == run(&gpu)));
    }
    report_missing_gpu("bits of MTTKRP", 1);
}

/// The kernels that others are measured against: an atomic addition for each entry and column.
#[test]
fn atomic_additions_give_the_same() {
    let mut tally = Tally::new("atomic additions");
    for (at, case) in tensor_cases().iter().filter(|case| case.beta == 0.0).enumerate() {
        for device in kernel_devices(at) {
            for factors in [1, 2] {
                let order = ORDERS[at % 3];
                let a = case.tensor.to_csf(order).unwrap();
                let mut fiber = 0;
                let entries: Vec<_> = a.entries().collect();
                let index = |mode: usize| -> Vec<u32> { entries.iter().map(|(at, _)| at[mode]).collect() };
                let fibers: Vec<u32> = (0..a.nnz())
                    .map(|entry| {
                        fiber += u32::from(entry == a.fiber_range(fiber as usize).end);
                        fiber
                    })
                    .collect();
                let [root, of_fiber, leaf] = order;
                let (rows, modes, reference) = match factors {
                    1 => (fibers, [leaf, leaf], case.ttm(order)),
                    _ => (index(root), [of_fiber, leaf], case.mttkrp(order)),
                };
                let values: Vec<f32> = entries.iter().map(|&(_, value)| value * case.alpha).collect();
                let words = |words: &[u32]| DeviceBuffer::from_slice(&device, words).unwrap();
                let floats = |floats: &[f32]| DeviceBuffer::from_slice(&device, floats).unwrap();
                let (rows, values) = (words(&rows), floats(&values));
                let matrices = modes.map(|mode| floats(&case.factors[mode]));
                let indices = modes.map(|mode| words(&index(mode)));
                let out_rows = reference.roundings.len();
                let out = DeviceBuffer::<f32>::alloc_zeroed(&device, out_rows * case.n).unwrap();
                let n = u32::try_from(case.n).unwrap();
                let lanes = n.clamp(1, 32).next_power_of_two();
                let nnz = u32::try_from(a.nnz()).unwrap();
                let params = AtomicEntriesParams {
                    factors: [0, 1].map(|f| Factor {
                        matrix: bytemuck::cast(matrices[f].address()),
                        indices: bytemuck::cast(indices[f].address()),
                        ld: n,
                        reserved: 0,
                    }),
                    rows: bytemuck::cast(rows.address()),
                    values: bytemuck::cast(values.address()),
                    out: bytemuck::cast(out.address()),
                    nnz,
                    n,
                    ld_out: n,
                    lanes_log2: lanes.ilog2(),
                };
                let entry = entry(Variant::AtomicEntries { factors }).unwrap();
                let grid = [u64::from(nnz * lanes).div_ceil(256), u64::from(n.div_ceil(lanes))];
                // SAFETY: indices are those of the tensor's entries, the matrices have the rows of their modes, the
                // result that of the product; all live until the result is read.
                unsafe { launch(&device, entry, grid, &params) }.unwrap();
                tally.ran(&case.assert_matches(&reference, &out.to_vec().unwrap(), case.n));
            }
        }
    }
    tally.finish();
    report_missing_gpu("atomic additions", 1);
}

#[test]
fn plans_say_what_they_are_and_refuse_what_does_not_fit() {
    let tensor = Coo3::from_entries([2, 3, 4], [([1, 0, 2], 2.0f32), ([1, 2, 3], 3.0)]).unwrap();
    let a = tensor.to_csf([0, 1, 2]).unwrap();
    for device in devices() {
        let builder = Mttkrp::builder(&a).width(1);
        let mut plan = builder.build(&device).unwrap();
        assert_eq!((plan.dims(), plan.nnz(), plan.precision()), ([2, 3, 4], 2, Precision::F32));
        let (b, c) = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]);
        assert_eq!(plan.run(&b, &c).unwrap(), [0.0, 75.0]);
        plan.replace_values(&[1.0f64, 10.0]).unwrap();
        assert_eq!(plan.run(&b, &c).unwrap(), [0.0, 216.0]);
        let mut y = [1.0, 1.0, 1.0, 9.0];
        let views = [DenseRef::packed(&b, 3, 1).unwrap(), DenseRef::packed(&c, 4, 1).unwrap()];
        plan.run_host(2.0, views, 1.0, DenseMut::try_new(&mut y, 2, 1, 2).unwrap()).unwrap();
        assert_eq!(y, [1.0, 1.0, 433.0, 9.0], "what is between rows stays");
        let error = plan.run(&b, &c[..3]).unwrap_err();
        assert_eq!(error.to_string(), "C has 3 elements but must have 4 × 1, row after row without padding");
        assert!(matches!(
            plan.replace_values(&[1.0f32]),
            Err(TensorError::Plan(PlanError::ValueCount { found: 1, .. }))
        ));
        let half = DeviceMatrix::<f16>::zeros(&device, 3, 1).unwrap();
        let mut out = DeviceMatrix::<f32>::zeros(&device, 2, 1).unwrap();
        let error = plan.run_into(1.0, [&half, &half], 0.0, &mut out).unwrap_err();
        assert!(matches!(error, TensorError::Plan(PlanError::ElementType { operand: "B", .. })), "{error}");
        let report = plan.report();
        let arrays: u64 = report.arrays.iter().map(|array| array.bytes).sum();
        assert_eq!((report.device_bytes, report.empty_slices, report.fibers), (arrays, 1, 2));
        assert!(report.to_string().contains("2 × 3 × 4, 2 entries in 2 fibers"), "{report}");
        assert_eq!(report.parallelism.is_some(), device.kind() != DeviceKind::Cpu);
        let error = builder.clone().memory_limit(arrays - 1).build(&device).unwrap_err();
        assert!(
            matches!(error, TensorError::Plan(PlanError::MemoryLimit { needed, .. }) if needed == arrays),
            "{error}"
        );
        let error = builder.clone().precision(Precision::Tf32).build(&device).unwrap_err();
        assert!(error.to_string().ends_with("; use precision f32, f64 or f16"), "{error}");
        let rows = "{<1/4 row, 1 col>, 4}".parse().unwrap();
        let error = builder.clone().parallelism(rows).build(&device).unwrap_err().to_string();
        assert!(
            error.starts_with("{<1/4 row, 1 col>, 4} divides rows") && error.contains("{<8 nnz,"),
            "{error}"
        );
        let other = tensor.to_csf([1, 0, 2]).unwrap();
        let c = DeviceMatrix::<f32>::zeros(&device, 4, 1).unwrap();
        let b = DeviceMatrix::<f32>::zeros(&device, 3, 1).unwrap();
        let error = plan.verify(&other, [&b, &c], &out).unwrap_err();
        assert!(
            matches!(error, TensorError::Plan(PlanError::OtherMatrix { rows: 3, plan_rows: 2, .. })),
            "{error}"
        );
        let mut plan = Ttm::builder(&a).width(1).build(&device).unwrap();
        plan.replace_values(&[5.0f32, 6.0]).unwrap();
        assert_eq!(plan.run(&[1.0, 2.0, 3.0, 4.0]).unwrap(), [15.0, 24.0]);
        assert_eq!(plan.report().rows, 2);
    }
    report_missing_gpu("refusals of MTTKRP", 1);
}

#[test]
fn verification_finds_a_wrong_element() {
    for case in tensor_cases().iter().filter(|case| case.tensor.nnz() > 50) {
        let a = case.tensor.to_csf([2, 0, 1]).unwrap();
        for device in kernel_devices(case.n).into_iter().chain([Device::cpu()]) {
            let place = |mode: usize| PLAIN.place::<f32>(&device, &case.factors[mode], case.n, 0.0);
            let (b, c) = (place(0), place(1));
            let plan = PLAIN.mttkrp(&device, &a, case.n);
            let mut y = DeviceMatrix::<f32>::zeros(&device, a.dims()[2], case.n).unwrap();
            plan.run_into(1.0, [&b, &c], 0.0, &mut y).unwrap();
            let found = plan.verify(&a, [&b, &c], &y).unwrap();
            let elements = u64::try_from(a.dims()[2] * case.n).unwrap();
            assert!(found.passed() && found.checked == elements, "{}: {found}", case.name);
            let mut wrong = y.download().unwrap();
            wrong[case.n] += 0.5;
            y.copy_from(DenseRef::packed(&wrong, a.dims()[2], case.n).unwrap()).unwrap();
            let found = plan.verify(&a, [&b, &c], &y).unwrap();
            assert_eq!((found.failures, found.worst_row, found.worst_col), (1, 1, 0), "{}", case.name);
        }
    }
    report_missing_gpu("verification of MTTKRP", 1);
}

//! Sampled products: every algorithm, precision and form, on every device, against an f64 reference.

use crate::common::{by_turns, devices, gpu, report_missing_gpu};
use half::{bf16, f16};
use windrow::{
    Csr, DenseRef, Device, DeviceBuffer, DeviceCsr, DeviceKind, DeviceMatrix, Element, EmulatorSchedule,
    OccupancyThresholds, PlanError, Precision, Preprocessing, Profile, Schedule, Sddmm, SddmmAlgorithm,
    SddmmError, SddmmForm, SddmmGroup,
};
use windrow_testkit::{
    Comparison, Pattern, SplitMix64, UNIT_FMA, UNIT_MMA, Values, edge_patterns, error_bound, round_tf32,
};

/// Inner dimensions: none, below and above what is in flight at a time, ragged and even.
const INNERS: [usize; 13] = [0, 1, 7, 8, 31, 32, 33, 64, 96, 128, 200, 261, 264];

/// What is tested: a kind of plan.
#[derive(Debug, Clone, Copy)]
struct Setup {
    algorithm: SddmmAlgorithm,
    precision: Precision,
    form: SddmmForm,
    /// Entries of a tile of a hybrid at least.
    threshold: u32,
    /// Groups of threads, if not those that suit the case.
    group: Option<SddmmGroup>,
}

/// A pattern and its operands.
struct Case {
    name: String,
    a: Csr<f32>,
    inner: usize,
    alpha: f32,
    x: Vec<f32>,
    y: Vec<f32>,
}

impl Case {
    fn new(name: &str, pattern: &Pattern, inner: usize, rng: &mut SplitMix64) -> Self {
        let a = pattern.with_values(Values::Reals, rng);
        let mut operand = |rows: usize| (0..rows * inner).map(|_| rng.real()).collect::<Vec<_>>();
        let (x, y) = (operand(a.rows()), operand(a.cols()));
        Self { name: format!("{name}, inner {inner}"), a, inner, alpha: 1.5, x, y }
    }
}

fn cases() -> Vec<Case> {
    let mut rng = SplitMix64::new(7);
    let mut cases = Vec::new();
    for (i, (name, pattern)) in edge_patterns().into_iter().enumerate() {
        // Each pattern with some inner dimensions, each inner dimension with some patterns.
        for inner in INNERS.iter().skip(i % 3).step_by(3) {
            cases.push(Case::new(name, &pattern, *inner, &mut rng));
        }
    }
    for inner in INNERS {
        let pattern = Pattern::random(1 + rng.below(70), 1 + rng.below(90), 40, &mut rng);
        cases.push(Case::new("random", &pattern, inner, &mut rng));
        let pattern = Pattern::power_law(40, 150, 150, &mut rng);
        cases.push(Case::new("power law", &pattern, inner, &mut rng));
    }
    cases
}

/// `data` rounded to `T`, with leading dimension `ld`, its padding and what follows NaN.
fn place<T: Element<Sum = f32>>(
    device: &Device,
    data: &[f32],
    rows: usize,
    cols: usize,
    ld: usize,
) -> DeviceMatrix<T> {
    let mut placed = vec![T::from_f32(f32::NAN); rows * ld];
    for r in 0..rows {
        for c in 0..cols {
            placed[r * ld + c] = T::from_f32(data[r * cols + c]);
        }
    }
    DeviceMatrix::from_buffer(DeviceBuffer::from_slice(device, &placed).unwrap(), rows, cols, ld).unwrap()
}

/// Runs a case and compares; a leading dimension is the inner dimension and `extra`, or aligned to 16 bytes.
fn run<T: Element<Sum = f32>>(
    setup: Setup,
    device: &Device,
    case: &Case,
    extra: Option<usize>,
) -> (Comparison, Vec<&'static str>) {
    let Case { name, a, inner, alpha, .. } = case;
    let builder = Sddmm::builder(a)
        .inner(*inner)
        .algorithm(setup.algorithm)
        .precision(setup.precision)
        .form(setup.form)
        .tile_threshold(setup.threshold);
    let plan = setup
        .group
        .map_or(builder.clone(), |group| builder.groups(group))
        .build(device)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let ld = extra.map_or(inner.next_multiple_of(16 / size_of::<T>()), |extra| inner + extra);
    let x = place::<T>(device, &case.x, a.rows(), *inner, ld);
    let y = place::<T>(device, &case.y, a.cols(), *inner, ld);
    let mut out = DeviceBuffer::from_slice(device, &vec![f32::NAN; a.nnz()]).unwrap();
    plan.run_into(*alpha, &x, &y, &mut out)
        .unwrap_or_else(|error| panic!("{name} on {device}: {error}\n{}", plan.report()));
    let got = out.to_vec().unwrap_or_else(|error| panic!("{name} on {device}: {error}\n{}", plan.report()));
    let scalar =
        !matches!(setup.algorithm, SddmmAlgorithm::Tiles | SddmmAlgorithm::Hybrid | SddmmAlgorithm::Auto);
    let tiles = !scalar && setup.precision != Precision::F32;
    let unit = if tiles && device.kind() != DeviceKind::Cpu { UNIT_MMA } else { UNIT_FMA };
    let comparison = compare::<T>(setup, case, &got, unit);
    assert!(comparison.passed(), "{name}, ld {ld}, on {device}: {comparison}\n{}", plan.report());
    (comparison, plan.report().entries.clone())
}

fn compare<T: Element<Sum = f32>>(setup: Setup, case: &Case, got: &[f32], unit: f64) -> Comparison {
    let Case { a, inner, alpha, .. } = case;
    let rounded = |x: f32| match setup.precision {
        Precision::Tf32 => f64::from(round_tf32(x)),
        _ => T::from_f32(x).to_f64(),
    };
    let mut comparison = Comparison::default();
    for r in 0..a.rows() {
        for (&c, at) in a.row(r).0.iter().zip(a.row_range(r)) {
            let factor = f64::from(*alpha)
                * match setup.form {
                    SddmmForm::Scale => f64::from(a.values()[at]),
                    _ => 1.0,
                };
            let (x, y) = (&case.x[r * inner..][..*inner], &case.y[c as usize * inner..][..*inner]);
            let terms = x.iter().zip(y).map(|(&x, &y)| rounded(x) * rounded(y) * factor);
            let (want, scale) = terms.fold((0.0, 0.0), |(sum, scale), term| (sum + term, scale + term.abs()));
            let got = f64::from(got[at]);
            let ratio = if want.is_nan() {
                if got.is_nan() { 0.0 } else { f64::INFINITY }
            } else if want.is_infinite() {
                if got == want { 0.0 } else { f64::INFINITY }
            } else {
                let ratio = (got - want).abs() / error_bound::<f32>(want, scale, inner + 2, unit);
                if ratio.is_nan() { f64::INFINITY } else { ratio }
            };
            comparison.elements += 1;
            comparison.failures += usize::from(ratio > 1.0);
            if ratio > comparison.worst_ratio || comparison.worst_at.is_none() {
                let (worst_ratio, worst_at) = (ratio, Some((r, c as usize)));
                comparison = Comparison { worst_ratio, worst_at, got, want, ..comparison };
            }
        }
    }
    comparison
}

/// Runs every case aligned and not, on the devices whose turn it is, and prints what ran.
fn check(setup: Setup, cases: &[Case]) {
    let what = format!("sampled {} {} {}", setup.algorithm, setup.precision, setup.form);
    by_turns(&what, 2 * cases.len(), |device, turn, ran| {
        let case = &cases[turn / 2];
        let extra = [None, Some(turn / 2 % 4)][turn % 2];
        let (comparison, entries) = match setup.precision {
            Precision::F16 => run::<f16>(setup, device, case, extra),
            Precision::Bf16 => run::<bf16>(setup, device, case, extra),
            _ => run::<f32>(setup, device, case, extra),
        };
        ran.note(device, turn, entries.into_iter().map(|entry| (entry, extra.is_none())));
        comparison
    });
}

fn setup(algorithm: SddmmAlgorithm, precision: Precision, form: SddmmForm) -> Setup {
    Setup { algorithm, precision, form, threshold: 12, group: None }
}

/// Promise, shapes: sampled products are right for any extents, inner and leading dimensions, and read no padding.
#[test]
fn entries_in_every_precision() {
    let cases = cases();
    for precision in Precision::ALL.into_iter().filter(|&precision| precision != Precision::F64) {
        check(setup(SddmmAlgorithm::Entries, precision, SddmmForm::Mask), &cases);
    }
}

/// Promise, shapes: sampled products are right for any extents, inner and leading dimensions, and read no padding.
#[test]
fn tiles_in_every_precision() {
    let cases = cases();
    for precision in [Precision::F16, Precision::Bf16, Precision::Tf32] {
        check(setup(SddmmAlgorithm::Tiles, precision, SddmmForm::Scale), &cases);
    }
}

/// Promise, shapes: sampled products are right for any extents, inner and leading dimensions, and read no padding.
#[test]
fn hybrids_in_every_precision() {
    let cases = cases();
    for precision in [Precision::F16, Precision::Bf16, Precision::Tf32] {
        check(setup(SddmmAlgorithm::Hybrid, precision, SddmmForm::Scale), &cases);
    }
}

/// Promise, shapes: sampled products are right for any extents, inner and leading dimensions, and read no padding.
#[test]
fn groups_of_every_size() {
    let cases = cases();
    for precision in [Precision::F32, Precision::F16] {
        check(setup(SddmmAlgorithm::Groups, precision, SddmmForm::Mask), &cases);
    }
    let cases: Vec<Case> = cases.into_iter().filter(|case| case.inner == 33).collect();
    for threads in [1, 2, 4, 8, 16, 32] {
        for (precision, entries) in [(Precision::F32, 3), (Precision::F32, 6), (Precision::F16, 64)] {
            let group = Some(SddmmGroup { threads, entries });
            check(Setup { group, ..setup(SddmmAlgorithm::Groups, precision, SddmmForm::Scale) }, &cases);
        }
    }
}

/// Panels of one chunk and of many, rows of each kind in them, along every slice.
///
/// Promise, shapes: sampled products are right for any extents, inner and leading dimensions, and read no padding.
#[test]
fn panels_of_rows() {
    let mut rng = SplitMix64::new(0x9a);
    let mut cases = cases();
    let lengths: Vec<usize> = (0..200).map(|row| [3, 90, 0, 40, 7][row / 3 % 5]).collect();
    let pattern = Pattern::from_lengths(300, lengths, &mut rng);
    for inner in [5, 16, 17, 48, 65, 256, 257, 520] {
        cases.push(Case::new("rows of every length", &pattern, inner, &mut rng));
    }
    for form in SddmmForm::ALL {
        check(setup(SddmmAlgorithm::RowPanels, Precision::F32, form), &cases);
    }
}

#[test]
fn panels_are_refused_in_other_precisions_and_laid_out_on_a_device() {
    let a = Csr::<f32>::identity(80).unwrap();
    let builder = Sddmm::builder(&a).algorithm(SddmmAlgorithm::RowPanels).inner(2);
    let ones = vec![1.0f32; 160];
    for device in devices() {
        let error = builder.clone().precision(Precision::Tf32).build(&device).unwrap_err().to_string();
        assert!(error.ends_with("use f32, or algorithm entries"), "{error}");
        let there = DeviceCsr::from_host(&device, &a).unwrap();
        let plan = Sddmm::builder(&there).algorithm(SddmmAlgorithm::RowPanels).inner(2);
        let plan = plan.build_on(&device.stream()).unwrap();
        assert_eq!(plan.run(&ones, &ones).unwrap(), [2.0; 80]);
        let (report, on_cpu) = (plan.report(), device.kind() == DeviceKind::Cpu);
        let there = if on_cpu { Preprocessing::Cpu } else { Preprocessing::Gpu };
        assert_eq!(report.preprocessing, there, "{}", report.preprocessing_reason);
        assert_eq!([report.panel_columns, report.panel_vectors], if on_cpu { [0; 2] } else { [80; 2] });
    }
    report_missing_gpu("panels of patterns on the device", 1);
}

#[test]
fn groups_that_there_are_not_are_refused() {
    let a = Csr::<f32>::identity(2).unwrap();
    let builder = Sddmm::builder(&a).algorithm(SddmmAlgorithm::Groups);
    for device in devices() {
        let refused = |threads, entries| {
            builder.clone().groups(SddmmGroup { threads, entries }).build(&device).unwrap_err().to_string()
        };
        assert!(refused(12, 4).starts_with("a reduction of 12 threads"), "{}", refused(12, 4));
        assert_eq!(refused(8, 0), "0 entries of a group: launches have 1 to 1024");
        let error = builder.clone().precision(Precision::Tf32).build(&device).unwrap_err().to_string();
        assert!(error.ends_with("use f32, f64 or f16, or algorithm entries"), "{error}");
        let report = builder.clone().inner(128).build(&device).unwrap().report().clone();
        let on_cpu = device.kind() == DeviceKind::Cpu;
        assert_eq!(report.group, (!on_cpu).then_some(SddmmGroup { threads: 4, entries: 4 }));
    }
    report_missing_gpu("refusals of groups", 1);
}

#[test]
fn hybrids_of_any_threshold() {
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.inner == 33).collect();
    for threshold in [0, 1, 24, 129] {
        check(Setup { threshold, ..setup(SddmmAlgorithm::Hybrid, Precision::F16, SddmmForm::Mask) }, &cases);
    }
}

/// A pattern of which a warp of the emulator takes several tiles, and that is laid out in several tasks.
fn many_tiles(rng: &mut SplitMix64) -> Pattern {
    Pattern::random(2400, 60, 8, rng)
}

#[test]
fn warps_take_several_tiles_and_layouts_several_tasks() {
    let mut rng = SplitMix64::new(13);
    let pattern = many_tiles(&mut rng);
    let cases = [40, 264].map(|inner| Case::new("many tiles", &pattern, inner, &mut rng));
    let builder = Sddmm::builder(&cases[0].a).precision(Precision::F16).algorithm(SddmmAlgorithm::Tiles);
    let report = builder.build(&Device::emulator(EmulatorSchedule::InOrder)).unwrap().report().clone();
    assert!(report.tiles >= 256 && report.window_rows > 8 * 256, "{report}");
    for algorithm in [SddmmAlgorithm::Tiles, SddmmAlgorithm::Hybrid] {
        check(setup(algorithm, Precision::F16, SddmmForm::Scale), &cases);
    }
}

/// Promise, zero and not-a-number: of sampled products, a row of `X` or `Y` that is not finite reaches only its own
/// entries.
#[test]
fn what_is_not_finite_stays_in_its_row_and_column() {
    let mut rng = SplitMix64::new(3);
    let pattern = Pattern::random(30, 40, 20, &mut rng);
    let cases: Vec<Case> = [32, 40]
        .into_iter()
        .map(|inner| {
            let mut case = Case::new("not finite", &pattern, inner, &mut rng);
            (case.x[3 * inner + 5], case.x[9 * inner]) = (f32::NAN, f32::INFINITY);
            (case.y[2 * inner + 31], case.y[11 * inner + 1]) = (f32::NEG_INFINITY, f32::NAN);
            case
        })
        .collect();
    for algorithm in
        [SddmmAlgorithm::Tiles, SddmmAlgorithm::Entries, SddmmAlgorithm::Groups, SddmmAlgorithm::Hybrid]
    {
        check(setup(algorithm, Precision::F16, SddmmForm::Mask), &cases);
    }
    check(setup(SddmmAlgorithm::RowPanels, Precision::F32, SddmmForm::Mask), &cases);
}

/// Promise, determinism: sampled products have the same bits in whatever order blocks, warps and lanes get on.
#[test]
fn every_schedule_and_both_ways_to_rank_give_the_same_bits() {
    let mut rng = SplitMix64::new(5);
    let case = Case::new("bits", &many_tiles(&mut rng), 100, &mut rng);
    let run = |device: &Device, scan: bool| {
        let tiles = SddmmAlgorithm::Tiles;
        let builder = Sddmm::builder(&case.a).inner(100).precision(Precision::F16).algorithm(tiles);
        let builder = if scan { builder.scan_masks() } else { builder };
        let plan = builder.build(device).unwrap();
        let scans = plan.report().entries == ["sddmm_tiles_f16_4_scan"];
        assert_eq!(scans, scan, "{:?}", plan.report().entries);
        let out = plan.run(&case.x, &case.y).unwrap();
        out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let expected = run(&Device::emulator(EmulatorSchedule::InOrder), false);
    for schedule in EmulatorSchedule::STANDARD {
        let device = Device::emulator(schedule);
        assert_eq!(run(&device, false), expected, "{device}");
        assert_eq!(run(&device, true), expected, "{device}, scanning");
    }
    if let Some(gpu) = gpu() {
        let first = run(&gpu, false);
        assert!((0..20).all(|_| run(&gpu, false) == first && run(&gpu, true) == first));
    }
    report_missing_gpu("bits of sampled products", 1);
}

/// Beside each other or one after the other: no two parts write the same place.
///
/// Promise, determinism: two streams give the bits of one.
#[test]
fn both_schedules_give_the_same_bits() {
    let mut rng = SplitMix64::new(0x5c4ed);
    let case = Case::new("many tiles", &many_tiles(&mut rng), 40, &mut rng);
    let mut devices = devices();
    devices.retain(|device| device.kind() != DeviceKind::Cpu);
    assert!(!devices.is_empty());
    for device in devices {
        let hybrid = |schedule| {
            let builder = Sddmm::builder(&case.a).inner(40).precision(Precision::Tf32).schedule(schedule);
            builder.algorithm(SddmmAlgorithm::Hybrid).tile_threshold(30)
        };
        let run = |schedule| {
            let plan = hybrid(schedule).build(&device).unwrap();
            let scheduling = plan.report().scheduling.clone().expect("both parts have work");
            assert!(
                scheduling.used == schedule && scheduling.cuda_cores > 0.0 && scheduling.tensor_cores > 0.0
            );
            plan.run(&case.x, &case.y).unwrap()
        };
        let once = run(Schedule::Sequential);
        for _ in 0..10 {
            assert_eq!(run(Schedule::MultiStream), once, "on {device}");
        }
        // By Libra's rule no ratio is below the least threshold, and every one below the largest.
        for (threshold, used) in
            [(f64::MIN_POSITIVE, Schedule::Sequential), (f64::MAX, Schedule::MultiStream)]
        {
            let mut profile = Profile::built_in(&device);
            profile.thresholds = OccupancyThresholds { cuda_cores: threshold, tensor_cores: threshold };
            let plan = hybrid(Schedule::Thresholds).profile(&profile).build(&device).unwrap();
            assert_eq!(plan.report().scheduling.as_ref().unwrap().used, used, "{threshold} on {device}");
            assert_eq!(plan.run(&case.x, &case.y).unwrap(), once, "on {device}");
        }
    }
    report_missing_gpu("schedules of sampled products", 1);
}

#[test]
fn plans_say_what_they_are_and_refuse_what_does_not_fit() {
    let a = Csr::from_dense(2, 3, &[1.0f32, 0.0, 2.0, 0.0, 3.0, 0.0]).unwrap();
    for device in devices() {
        let mut plan = Sddmm::builder(&a).inner(4).form(SddmmForm::Scale).build(&device).unwrap();
        assert_eq!((plan.shape(), plan.nnz(), plan.precision()), ((2, 3), 3, Precision::F32));
        assert_eq!(plan.run(&[1.0; 2], &[2.0; 3]).unwrap(), [2.0, 4.0, 6.0]);
        plan.replace_values(&[5.0f64, 6.0, 7.0]).unwrap();
        assert_eq!(plan.run(&[1.0; 2], &[2.0; 3]).unwrap(), [10.0, 12.0, 14.0]);
        assert_eq!(plan.run::<f32>(&[], &[]).unwrap(), [0.0; 3]);
        assert!(matches!(
            plan.replace_values(&[1.0f32]),
            Err(SddmmError::Plan(PlanError::ValueCount { operand: "the new values", found: 1, expected: 3 }))
        ));
        let error = plan.run(&[1.0; 2], &[2.0; 2]).unwrap_err();
        assert_eq!(error.to_string(), "Y has 2 elements but must have 3 × 1, row after row without padding");
        let x = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32; 8], 2, 4).unwrap()).unwrap();
        let y = DeviceMatrix::upload(&device, DenseRef::packed(&[1.0f32; 9], 3, 3).unwrap()).unwrap();
        let mut out = DeviceBuffer::<f32>::alloc_zeroed(&device, 3).unwrap();
        let error = plan.run_into(1.0, &x, &y, &mut out).unwrap_err();
        assert_eq!(
            error,
            SddmmError::Plan(PlanError::OperandShape { operand: "Y", found: (3, 3), expected: (3, 4) })
        );
        let half = DeviceMatrix::<f16>::zeros(&device, 2, 4).unwrap();
        assert!(matches!(
            plan.run_into(1.0, &half, &half, &mut out),
            Err(SddmmError::Plan(PlanError::ElementType { .. }))
        ));
        let arrays: u64 = plan.report().arrays.iter().map(|array| array.bytes).sum();
        assert_eq!(plan.report().device_bytes, arrays);
        let limited = Sddmm::builder(&a).memory_limit(arrays - 1).form(SddmmForm::Scale).build(&device);
        let error = limited.unwrap_err();
        assert!(matches!(error, SddmmError::Plan(PlanError::MemoryLimit { needed, .. }) if needed == arrays));
        let text = error.to_string();
        assert!(text.ends_with("; raise the limit, or choose algorithm entries"), "{text}");
        assert!(plan.report().to_string().contains("2 × 3, 3 entries, scale"), "{}", plan.report());
    }
    report_missing_gpu("refusals of sampled products", 1);
    let error = Sddmm::builder(&a).algorithm(SddmmAlgorithm::Tiles).build(&Device::cpu()).unwrap_err();
    let expected =
        "sampled products by tiles do not support precision f32; use tf32, bf16 or f16, or algorithm entries";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn verification_finds_a_wrong_entry() {
    let mut rng = SplitMix64::new(11);
    let case = Case::new("verify", &Pattern::random(20, 30, 9, &mut rng), 24, &mut rng);
    for device in devices() {
        for (precision, form) in [(Precision::F32, SddmmForm::Mask), (Precision::Tf32, SddmmForm::Scale)] {
            let plan =
                Sddmm::builder(&case.a).inner(24).precision(precision).form(form).build(&device).unwrap();
            let x = place::<f32>(&device, &case.x, 20, 24, 24);
            let y = place::<f32>(&device, &case.y, 30, 24, 24);
            let mut out = DeviceBuffer::<f32>::alloc_zeroed(&device, case.a.nnz()).unwrap();
            plan.run_into(1.0, &x, &y, &mut out).unwrap();
            let found = plan.verify(&case.a, &x, &y, &out).unwrap();
            assert!(found.passed() && found.checked == case.a.nnz() as u64, "{found}");
            let mut wrong = out.to_vec().unwrap();
            let at = case.a.row_range(12).start;
            wrong[at] += 1.0;
            out.copy_from_slice(&wrong).unwrap();
            let found = plan.verify(&case.a, &x, &y, &out).unwrap();
            let column = case.a.row(12).0[0] as usize;
            assert_eq!((found.failures, found.worst_row, found.worst_col), (1, 12, column));
        }
    }
    report_missing_gpu("verification of sampled products", 2);
}

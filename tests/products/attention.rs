//! Attention over the entries of a matrix, on every device, against an f64 reference.

use half::{bf16, f16};
use windrow::{
    AttentionAlgorithm, AttentionError, AttentionOperands, AttentionOptions, Csr, DenseRef, Device,
    DeviceBuffer, DeviceKind, DeviceMatrix, Dropout, Element, GraphAttention, HeadLayout, PlanError,
    Precision, Stream,
};
use windrow_testkit::{Comparison, Pattern, SplitMix64, Values};

use crate::attention_case::{
    Case, Scores, check, kind, kinds, kinds_on_devices, lengths, long_rows, no_entries, no_rows, on_device,
    run, run_kind, shared,
};
use crate::common::{by_turns, devices, report_missing_gpu};

fn cases() -> Vec<Case> {
    let reals = Scores::Reals;
    let mut cases = vec![
        Case::new("no rows", &no_rows(), [1, 8, 8], reals),
        Case::new("no entries", &no_entries(), [2, 16, 8], reals),
        Case::new("lengths", &lengths(), [1, 32, 32], reals),
        Case::new("lengths", &lengths(), [1, 8, 24], reals),
        Case::new("lengths", &lengths(), [1, 64, 16], reals),
        Case::new("lengths", &lengths(), [1, 40, 64], reals),
        Case::new("lengths", &lengths(), [1, 128, 96], reals),
        Case::new("lengths", &lengths(), [1, 136, 256], reals),
        Case::new("long rows", &long_rows(), [2, 32, 32], reals),
        Case::new("long rows", &long_rows(), [1, 64, 64], Scores::Large),
        Case::new("long rows", &long_rows(), [1, 96, 128], reals),
        Case::new("shared columns", &shared(), [3, 16, 32], reals),
        Case::new("shared columns", &shared(), [3, 32, 16], reals).stacked(),
    ];
    for scores in [Scores::Large, Scores::Negative, Scores::Zero] {
        cases.push(Case::new("lengths", &lengths(), [1, 32, 32], scores));
        cases.push(Case::new("long rows", &long_rows(), [1, 32, 8], scores));
    }
    cases
}

#[test]
fn every_algorithm_and_width() {
    for kind in kinds() {
        let cases = cases();
        by_turns(&format!("attention {kind:?}"), cases.len(), |device, turn, ran| {
            let case = &cases[turn];
            let (comparison, entry) = check(device, kind, case);
            // Half of the cases of an algorithm in f16 are of other widths than the kernel named by the report.
            let aligned = match kind.precision {
                Precision::F32 => case.is_aligned::<f32>(),
                _ => case.is_aligned::<f16>(),
            };
            ran.note(device, turn, (!entry.is_empty()).then_some((entry, aligned)));
            comparison
        });
    }
}

#[test]
fn any_alignment() {
    let of = |shape, layout| {
        let case = Case::new("lengths", &lengths(), shape, Scores::Reals);
        if layout == HeadLayout::Rows { case.stacked() } else { case }
    };
    let cases = [
        of([1, 5, 7], HeadLayout::Columns),
        of([2, 33, 12], HeadLayout::Columns),
        of([3, 1, 255], HeadLayout::Rows),
        Case::new("long rows", &long_rows(), [1, 7, 9], Scores::Reals),
    ];
    for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
        by_turns(&format!("attention of any alignment, {precision}"), cases.len(), |device, turn, ran| {
            let kind = kind(AttentionAlgorithm::Auto, None, precision);
            let (comparison, entry) = check(device, kind, &cases[turn]);
            ran.note(device, turn, (!entry.is_empty()).then_some((entry, false)));
            comparison
        });
    }
}

#[test]
fn a_bias_is_added_and_leaves_entries_out() {
    let cases = [
        Case::new("lengths", &lengths(), [2, 32, 32], Scores::Reals).biased(1),
        Case::new("lengths", &lengths(), [2, 24, 32], Scores::Reals).biased(2),
        Case::new("long rows", &long_rows(), [1, 32, 16], Scores::Reals).biased(1),
        Case::new("long rows", &long_rows(), [2, 7, 16], Scores::Reals).biased(2),
    ];
    for (algorithm, precision) in [
        (AttentionAlgorithm::Auto, Precision::F16),
        (AttentionAlgorithm::Rows, Precision::F16),
        (AttentionAlgorithm::Auto, Precision::F32),
    ] {
        by_turns(&format!("biased attention, {algorithm} {precision}"), cases.len(), |device, turn, _| {
            check(device, kind(algorithm, None, precision), &cases[turn]).0
        });
    }
}

/// A row of `V` that is not finite reaches the rows that have an entry there, and no other, in its columns alone.
#[test]
fn what_is_not_finite_stays_in_its_rows() {
    for matrix in [lengths(), long_rows(), shared()] {
        let mut case = Case::new("not finite", &matrix, [2, 32, 32], Scores::Reals);
        let n = case.a.cols();
        // In columns that some rows have and others do not.
        let poisoned = [case.a.col_indices()[1] as usize, case.a.col_indices()[case.a.nnz() / 2] as usize];
        let of_values = (n, case.value_columns);
        let [nan, infinite] = [case.at(of_values, 0, poisoned[0], 3), case.at(of_values, 1, poisoned[1], 9)];
        let clean = Case {
            v: case.v.clone(),
            q: case.q.clone(),
            k: case.k.clone(),
            name: String::new(),
            ..Case::new("", &matrix, [2, 32, 32], Scores::Reals)
        };
        case.v[nan] = f32::NAN;
        case.v[infinite] = f32::INFINITY;
        for (device, kind) in &kinds_on_devices() {
            let kind = *kind;
            let [got, _] = run_kind(&case.plan(kind, device), kind, &case, None);
            let [want, _] = run_kind(&clean.plan(kind, device), kind, &clean, None);
            for (head, row) in (0..2).flat_map(|head| (0..matrix.rows()).map(move |row| (head, row))) {
                for c in 0..32 {
                    let at = case.at((matrix.rows(), 32), head, row, c);
                    let columns = &matrix.col_indices()[matrix.row_range(row)];
                    let hit = columns.contains(&u32::try_from(poisoned[head]).unwrap());
                    let place =
                        format!("{kind:?} on {device}: head {head}, row {row}, column {c}: {}", got[at]);
                    match (head, c) {
                        (0, 3) if hit => assert!(got[at].is_nan(), "{place}"),
                        (1, 9) if hit => assert!(!got[at].is_finite(), "{place}"),
                        _ => assert!((got[at] - want[at]).abs() <= 2e-4, "{place} instead of {}", want[at]),
                    }
                }
            }
        }
    }
    report_missing_gpu("attention over what is not finite", 3);
}

/// A score that is no number makes its row so, and no other.
#[test]
fn a_query_that_is_not_finite_spoils_its_row() {
    let mut case = Case::new("queries", &shared(), [1, 32, 32], Scores::Reals);
    (case.q[5 * 32], case.q[9 * 32 + 1]) = (f32::NAN, f32::INFINITY);
    for (device, kind) in &kinds_on_devices() {
        let kind = *kind;
        let [got, _] = run_kind(&case.plan(kind, device), kind, &case, None);
        for (row, of_row) in got.chunks_exact(32).enumerate() {
            let expected = matches!(row, 5 | 9);
            assert!(
                of_row.iter().all(|x| x.is_nan() == expected),
                "{kind:?} on {device}: row {row}: {of_row:?}"
            );
        }
    }
    report_missing_gpu("attention of what is not finite", 1);
}

/// Promise, determinism: attention gives the same bits in every run, with a head alone or among others below it.
#[test]
fn runs_and_heads_agree_to_the_bit() {
    let case = Case::new("bits", &long_rows(), [3, 32, 32], Scores::Reals).stacked();
    let one = |head: usize| {
        let part = |data: &[f32]| data[head * data.len() / 3..(head + 1) * data.len() / 3].to_vec();
        let (q, k, v) = (part(&case.q), part(&case.k), part(&case.v));
        Case { q, k, v, ..Case::new("one", &long_rows(), [1, 32, 32], Scores::Reals) }
    };
    for (device, kind) in &kinds_on_devices() {
        let kind = *kind;
        let plan = case.plan(kind, device);
        let [first, _] = run_kind(&plan, kind, &case, None);
        let [again, _] = run_kind(&plan, kind, &case, None);
        assert_eq!(first, again, "{kind:?} on {device}");
        for head in 0..3 {
            let alone = one(head);
            let [got, _] = run_kind(&alone.plan(kind, device), kind, &alone, None);
            let of_all = &first[head * got.len()..(head + 1) * got.len()];
            assert_eq!(got, of_all, "head {head}, {kind:?} on {device}");
        }
    }
    report_missing_gpu("attention to the bit", 3);
}

/// Dropout leaves out the share that was asked for, the same weights on every device and by every algorithm.
#[test]
fn dropout_is_the_same_everywhere() {
    let case = Case::new("dropout", &shared(), [2, 32, 32], Scores::Reals);
    let dropout = |rate, seed| Some(Dropout { rate, seed });
    let cpu =
        |dropout| run_kind(&case.plan(kinds()[0], &Device::cpu()), kinds()[0], &case, dropout)[0].clone();
    let (want, other, none) = (cpu(dropout(0.4, 3)), cpu(dropout(0.4, 4)), cpu(None));
    assert_ne!(want, other);
    assert_eq!(cpu(dropout(0.0, 3)), none);
    for (device, kind) in &kinds_on_devices() {
        let kind = *kind;
        let [got, _] = run_kind(&case.plan(kind, device), kind, &case, dropout(0.4, 3));
        for (got, want) in got.iter().zip(&want) {
            assert!((got - want).abs() <= 0.02, "{kind:?} on {device}: {got} instead of {want}");
        }
    }
    // Equal scores and values of 1: a result is the share that stays, times 1 / (1 − rate), a mean of 43 draws.
    let mut ones = Case::new("ones", &shared(), [8, 8, 8], Scores::Zero);
    ones.v.fill(1.0);
    let [got, _] = run_kind(&ones.plan(kinds()[0], &Device::cpu()), kinds()[0], &ones, dropout(0.25, 11));
    let mean = got.iter().sum::<f32>() / got.len() as f32;
    assert!((mean - 1.0).abs() < 0.03 && got.iter().any(|&x| x != got[0]), "{mean}");
    report_missing_gpu("attention with dropout", 1);
}

/// Results of 16 bits are those of f32, rounded once.
#[test]
fn results_of_16_bits() {
    let case = Case::new("narrow", &long_rows(), [2, 32, 24], Scores::Reals);
    for (device, kind) in &kinds_on_devices() {
        let kind = *kind;
        if kind.precision != Precision::F16 {
            continue;
        }
        let plan = case.plan(kind, device);
        let [want, _] = run_kind(&plan, kind, &case, None);
        let (m, n) = (case.a.rows(), case.a.cols());
        let q = on_device::<f16>(device, &case.q, (m, 64));
        let (k, v) = (on_device::<f16>(device, &case.k, (n, 64)), on_device::<f16>(device, &case.v, (n, 48)));
        let mut out = DeviceMatrix::<f16>::zeros(device, m, 48).unwrap();
        plan.forward(case.scale, [&q, &k, &v], &mut out).unwrap();
        let expected: Vec<f16> = want.iter().map(|&x| f16::from_f32(x)).collect();
        assert_eq!(out.download().unwrap(), expected, "{kind:?} on {device}");
        // Rows that do not begin at multiples of a vector are written element by element.
        let mut out = DeviceMatrix::<bf16>::with_ld(device, m, 48, 51).unwrap();
        plan.forward(case.scale, [&q, &k, &v], &mut out).unwrap();
        let expected: Vec<bf16> = want.iter().map(|&x| bf16::from_f32(x)).collect();
        assert_eq!(out.download().unwrap(), expected, "{kind:?} on {device}");
    }
    report_missing_gpu("attention in 16 bits", 2);
}

/// What is right passes, and what is wrong by more than roundings is found where it is, in either layout.
#[test]
fn results_are_verified() {
    let mut cases = [
        Case::new("verified", &lengths(), [2, 24, 16], Scores::Reals),
        Case::new("verified", &long_rows(), [1, 32, 32], Scores::Large),
        Case::new("verified", &shared(), [3, 16, 8], Scores::Negative).stacked(),
        Case::new("verified", &no_entries(), [1, 8, 8], Scores::Reals),
        Case::new("verified, not finite", &shared(), [2, 16, 16], Scores::Reals),
        Case::new("verified", &lengths(), [2, 1, 16], Scores::Reals).biased(1).additive(0.2),
        Case::new("verified", &shared(), [2, 1, 8], Scores::Large).additive(-0.5).stacked(),
        Case::new("verified", &lengths(), [2, 24, 16], Scores::Reals).biased(2).gatv2(0.2),
    ];
    (cases[4].v[5], cases[4].q[40]) = (f32::INFINITY, f32::NAN);
    for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
        by_turns(&format!("verified attention, {precision}"), cases.len(), |device, turn, _| {
            let case = &cases[turn];
            match (precision, case.scores.are_additive()) {
                (Precision::F16, false) => verified::<f16, f16>(device, precision, case),
                (Precision::F16, true) => verified::<f16, f32>(device, precision, case),
                (Precision::Bf16, false) => verified::<bf16, bf16>(device, precision, case),
                (Precision::Bf16, true) => verified::<bf16, f32>(device, precision, case),
                _ => verified::<f32, f32>(device, precision, case),
            }
        });
    }
}

fn verified<T: Element<Sum = f32>, S: Element<Sum = f32>>(
    device: &Device,
    precision: Precision,
    case: &Case,
) -> Comparison {
    let (m, n) = (case.a.rows(), case.a.cols());
    let plan = case.plan(kind(AttentionAlgorithm::Auto, None, precision), device);
    let q = on_device::<S>(device, &case.q, case.shape(m, case.columns));
    let k = on_device::<S>(device, &case.k, case.shape(n, case.columns));
    let v = on_device::<T>(device, &case.v, case.shape(n, case.value_columns));
    let (rows, columns) = case.shape(m, case.value_columns);
    let mut out = DeviceMatrix::<f32>::zeros(device, rows, columns).unwrap();
    let numbers = |of: &Option<Vec<f32>>| of.as_ref().map(|of| DeviceBuffer::from_slice(device, of).unwrap());
    let (vector, bias) = (numbers(&case.vector), numbers(&case.bias));
    let operands = || {
        let operands = AttentionOperands::new(&q, &k, &v).dropout(Dropout { rate: 0.25, seed: 3 });
        let operands = vector.iter().fold(operands, |operands, vector| operands.vector(vector));
        bias.iter().fold(operands, |operands, bias| operands.bias(bias))
    };
    plan.forward_on(&device.stream(), case.scale, operands(), &mut out).unwrap();
    let verify = |out: &DeviceMatrix<f32>| plan.verify(&case.a, case.scale, &operands(), out).unwrap();
    let found = verify(&out);
    assert!(found.passed(), "{} on {device}, {precision}: {found}", case.name);
    assert_eq!(found.checked, (rows * columns) as u64);
    assert!(case.a.nnz() == 0 || found.worst_ratio > 0.0, "{}: nothing was compared", case.name);
    let comparison =
        Comparison { elements: rows * columns, worst_ratio: found.worst_ratio, ..Comparison::default() };
    // One element of the last head's last column, a hundredth off.
    let mut elements = out.download().unwrap();
    let at = case.at((m, case.value_columns), case.heads - 1, m / 2, case.value_columns - 1);
    elements[at] += 0.01;
    out.copy_from(DenseRef::packed(&elements, rows, columns).unwrap()).unwrap();
    let found = verify(&out);
    assert_eq!(
        (found.failures, found.worst_row, found.worst_col),
        (1, at / columns, at % columns),
        "{found}"
    );
    let other = Csr::<f32>::identity(m + 1).unwrap();
    let error = plan.verify(&other, case.scale, &operands(), &out).unwrap_err();
    assert!(matches!(error, AttentionError::Plan(PlanError::OtherMatrix { .. })), "{error}");
    comparison
}

#[test]
fn other_streams_give_the_same() {
    let case = Case::new("streams", &long_rows(), [1, 32, 32], Scores::Reals);
    for device in devices() {
        let plan = case.plan(kind(AttentionAlgorithm::Auto, None, Precision::F16), &device);
        let [want, _] = run::<f16, f16>(&plan, &case, None);
        let (m, n) = (case.a.rows(), case.a.cols());
        let q = on_device::<f16>(&device, &case.q, (m, 32));
        let (k, v) =
            (on_device::<f16>(&device, &case.k, (n, 32)), on_device::<f16>(&device, &case.v, (n, 32)));
        let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
        for stream in &streams {
            let mut out = DeviceMatrix::<f32>::zeros(&device, m, 32).unwrap();
            plan.forward_on(stream, case.scale, AttentionOperands::new(&q, &k, &v), &mut out).unwrap();
            assert_eq!(out.download().unwrap(), want, "{device}");
        }
    }
    report_missing_gpu("attention on streams", 2);
}

#[test]
fn the_choice_follows_the_matrix_and_is_told() {
    let device = Device::emulator(windrow::EmulatorSchedule::STANDARD[0]);
    let report = |a: &Csr<f32>, tell: &dyn Fn(&mut AttentionOptions)| {
        let mut options = AttentionOptions { precision: Precision::F16, ..AttentionOptions::default() };
        tell(&mut options);
        GraphAttention::builder(a).options(options).build(&device).unwrap().report().clone()
    };
    let of_shared = report(&shared(), &|_| {});
    assert_eq!((of_shared.algorithm, of_shared.window_rows), (AttentionAlgorithm::Columns, 8));
    assert_eq!(of_shared.gathered, 43 * 3);
    assert!(of_shared.reason.contains("serves 6.33 of 8 rows"), "{}", of_shared.reason);
    let diagonal = Pattern::diagonal(40, 40).with_values(Values::Integers, &mut SplitMix64::new(1));
    let of_diagonal = report(&diagonal, &|_| {});
    assert_eq!((of_diagonal.algorithm, of_diagonal.window_rows), (AttentionAlgorithm::Columns, 8));
    let biased = report(&shared(), &|options| options.biased = true);
    assert_eq!((biased.algorithm, biased.window_rows), (AttentionAlgorithm::Entries, 4));
    let exact = report(&shared(), &|options| options.precision = Precision::F32);
    assert_eq!((exact.algorithm, exact.entry), (AttentionAlgorithm::Rows, "attention_f32_64"));
    let long = report(&long_rows(), &|options| options.heads = 2);
    assert!(long.pieces > long.cut_windows && long.cut_windows > 0, "{long}");
    let text = long.to_string();
    assert!(text.contains("windows        of ") && text.contains("partial_sums"), "{text}");
    let total: u64 = long.arrays.iter().map(|array| array.bytes).sum();
    assert_eq!(total, long.device_bytes);
}

#[test]
fn what_cannot_be_is_refused_with_numbers() {
    let a = shared();
    let build = |tell: &dyn Fn(&mut AttentionOptions)| {
        let mut options = AttentionOptions { columns: 8, ..AttentionOptions::default() };
        tell(&mut options);
        GraphAttention::builder(&a)
            .options(options)
            .build(&Device::cpu())
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let expected = "attention by columns does not support precision f32; use f16 or bf16, or algorithm rows";
    assert_eq!(build(&|options| options.algorithm = AttentionAlgorithm::Columns), expected);
    let expected = "attention by auto does not support precision f64; use f32, f16 or bf16";
    assert_eq!(build(&|options| options.precision = Precision::F64), expected);
    let expected = "257 columns of V are not between 1 and 256; split them among heads, or products";
    assert_eq!(build(&|options| options.value_columns = Some(257)), expected);
    assert!(build(&|options| options.heads = 0).starts_with("0 heads are not between 1 and 65535"));
    let expected = "windows of 5 rows: there are kernels for 4 and 8";
    assert_eq!(build(&|options| options.window_rows = Some(5)), expected);
    let limited = build(&|options| options.memory_limit = Some(10));
    assert!(
        limited.contains("the limit is 10;") && limited.contains("run fewer heads at a time"),
        "{limited}"
    );

    for device in devices() {
        let plan = GraphAttention::builder(&a).columns(8).build(&device).unwrap();
        let matrix = |rows, cols| DeviceMatrix::<f32>::zeros(&device, rows, cols).unwrap();
        let (q, k, mut out) = (matrix(19, 8), matrix(43, 8), matrix(19, 8));
        let error = plan.forward(1.0, [&q, &q, &k], &mut out).unwrap_err();
        let expected = PlanError::OperandShape { operand: "K", found: (19, 8), expected: (43, 8) };
        assert_eq!(error, expected.into());
        let narrow = DeviceMatrix::<f16>::zeros(&device, 19, 8).unwrap();
        let keys = DeviceMatrix::<f16>::zeros(&device, 43, 8).unwrap();
        let error = plan.forward(1.0, [&narrow, &keys, &keys], &mut out).unwrap_err();
        assert!(
            matches!(error, AttentionError::Plan(PlanError::ElementType { operand: "Q", .. })),
            "{error}"
        );
        let bias = DeviceBuffer::<f32>::alloc_zeroed(&device, a.nnz()).unwrap();
        let run =
            |operands, out: &mut DeviceMatrix<f32>| plan.forward_on(&device.stream(), 1.0, operands, out);
        let operands = || AttentionOperands::new(&q, &k, &k);
        assert_eq!(run(operands().bias(&bias), &mut out).unwrap_err(), AttentionError::NotBiased);
        let dropout = Dropout { rate: 1.0, seed: 0 };
        let error = run(operands().dropout(dropout), &mut out).unwrap_err();
        assert_eq!(error.to_string(), "a dropout of 1 is not at least 0 and below 1");
        let mut states = DeviceBuffer::<f32>::alloc_zeroed(&device, 19).unwrap();
        let error = run(operands().states(&mut states), &mut out).unwrap_err();
        let expected = PlanError::ValueCount { operand: "the states", found: 19, expected: 38 };
        assert_eq!(error, expected.into());
        let elsewhere = DeviceMatrix::<f32>::zeros(&Device::cpu(), 43, 8).unwrap();
        if device.kind() != DeviceKind::Cpu {
            let error = plan.forward(1.0, [&q, &elsewhere, &k], &mut out).unwrap_err();
            assert!(
                matches!(error, AttentionError::Plan(PlanError::WrongDevice { operand: "K", .. })),
                "{error}"
            );
        }
    }
    report_missing_gpu("refusals of attention", 1);
}

//! Products with vector-wise N:M weights: every precision, layout and epilogue, on every device that has them, against
//! the f64 reference.

use crate::common::{by_turns, devices, report_missing_gpu};
use half::{bf16, f16};
use proptest::prelude::*;
use windrow::{
    Activation, ActivationLayout, DenseMut, DenseRef, Device, DeviceBuffer, DeviceMatrix, Element,
    EmulatorSchedule, Epilogue, NmAlgorithm, NmError, NmPattern, NmSpmm, NmSpmmPlan, PlanError, Precision,
    Value, VectorNm, prune_magnitude,
};
use windrow_testkit::{
    Comparison, NmActivation, NmCase, NmLayout, Output, PADDING_MARK, UNIT_FMA, UNIT_MMA, assert_nm_matches,
    nm_edge_cases, nm_non_finite_cases, nm_random_case, nm_value_cases,
};

fn activation(case: &NmCase) -> Activation {
    match case.activation {
        NmActivation::Identity => Activation::Identity,
        NmActivation::Relu => Activation::Relu,
        NmActivation::Gelu => Activation::Gelu,
        NmActivation::Silu => Activation::Silu,
    }
}

pub(crate) fn layout(case: &NmCase) -> ActivationLayout {
    match case.layout {
        NmLayout::RowMajor => ActivationLayout::RowMajor,
        NmLayout::KMajor => ActivationLayout::KMajor,
    }
}

#[track_caller]
fn plan(device: &Device, case: &NmCase, precision: Precision) -> NmSpmmPlan {
    let builder = NmSpmm::builder(&case.weights)
        .rows(case.m)
        .precision(precision)
        .layout(layout(case))
        .scale(case.scale);
    builder.build(device).unwrap_or_else(|error| panic!("{} on {device}: {error}", case.name))
}

/// `data` in device memory as `T`, all rows up to the leading dimension, what is not there filled with `padding`.
fn place<T: Value>(
    device: &Device,
    data: &[f32],
    (rows, cols, ld): (usize, usize, usize),
    padding: f32,
) -> DeviceMatrix<T> {
    let mut placed: Vec<T> = data.iter().map(|&x| T::from_f32(x)).collect();
    placed.resize(rows * ld, T::from_f32(padding));
    let buffer = DeviceBuffer::from_slice(device, &placed).unwrap();
    DeviceMatrix::from_buffer(buffer, rows, cols, ld).unwrap()
}

/// Runs a case with an `A` of `E` and a `C` of `C` and compares all of `C`, padding included; then lets the plan verify
/// the result, if nothing of the old `C` is in it.
fn run_typed<E: Element<Sum = f32>, C: Element<Sum = f32> + Output>(
    plan: &NmSpmmPlan,
    given: &NmCase,
    rounded: &NmCase,
) -> Comparison {
    let device = plan.device();
    let (rows, cols) = given.stored_a();
    let a = place::<E>(device, &given.a, (rows, cols, given.lda), f32::NAN);
    let mut c = place::<C>(device, &given.c, (given.m, given.n(), given.ldc), PADDING_MARK);
    let bias = given.bias.as_ref().map(|bias| DeviceBuffer::from_slice(device, bias).unwrap());
    let run = Epilogue {
        alpha: given.alpha,
        beta: given.beta,
        bias: bias.as_ref(),
        activation: activation(given),
        gated: given.gated,
    };
    let context = || format!("{} to {} on {device}\n{}", given.name, C::NAME, plan.report());
    plan.run_into(&run, &a, &mut c).unwrap_or_else(|error| panic!("{}: {error}", context()));
    let got = c.buffer().to_vec().unwrap_or_else(|error| panic!("{}: {error}", context()));
    let unit = match plan.report().algorithm {
        NmAlgorithm::TensorCores | NmAlgorithm::SparseTensorCores => UNIT_MMA,
        NmAlgorithm::Dense if plan.precision() != Precision::F32 => UNIT_MMA,
        _ => UNIT_FMA,
    };
    let case = rounded.with_c_rounded_to::<C>();
    let comparison = assert_nm_matches(&case, &got, given.ldc, unit);
    if given.m > 0 {
        let behind = &got[((given.m - 1) * given.ldc + given.n()).min(got.len())..];
        assert!(behind.iter().all(|&x| x == C::from_f32(PADDING_MARK)), "{}: written past C", context());
    }
    if given.beta == 0.0 && !given.gated {
        let verification = plan.verify(&given.weights, &run, &a, &c).unwrap();
        assert!(verification.passed(), "{}: {verification}", context());
        let agree = (verification.worst_ratio - comparison.worst_ratio.max(0.0)).abs() < 0.05;
        assert!(given.exact || agree, "{}: {verification} and {comparison}", context());
    }
    comparison
}

/// Runs a case in the types of `precision`, the type of `C` by turns.
pub(crate) fn run(plan: &NmSpmmPlan, case: &NmCase, at: usize) -> Comparison {
    fn with<E: Element<Sum = f32>>(
        plan: &NmSpmmPlan,
        case: &NmCase,
        rounded: &NmCase,
        at: usize,
    ) -> Comparison {
        match at % 3 {
            0 => run_typed::<E, f32>(plan, case, rounded),
            1 => run_typed::<E, f16>(plan, case, rounded),
            _ => run_typed::<E, bf16>(plan, case, rounded),
        }
    }
    match plan.precision() {
        Precision::F32 => with::<f32>(plan, case, case, at),
        Precision::Tf32 => with::<f32>(plan, case, &case.rounded_to_tf32(), at),
        Precision::F16 => with::<f16>(plan, case, &case.rounded_to::<f16>(), at),
        Precision::Bf16 => with::<bf16>(plan, case, &case.rounded_to::<bf16>(), at),
        Precision::F64 => panic!("no plan of N:M weights is of f64"),
    }
}

/// Those that products with N:M weights have.
pub(crate) fn precisions() -> impl Iterator<Item = Precision> {
    Precision::ALL.into_iter().filter(|&precision| NmAlgorithm::Auto.supports(precision))
}

/// Runs every case in every precision on the devices whose turn it is, and prints what ran.
fn check(what: &str, cases: &[NmCase]) {
    for precision in precisions() {
        by_turns(&format!("N:M {what} {precision}"), cases.len(), |device, turn, ran| {
            let plan = plan(device, &cases[turn], precision);
            // Types of `C` by turns, too.
            ran.note(device, turn, plan.report().entries.iter().map(|&entry| (entry, turn % 2 == 0)));
            run(&plan, &cases[turn], turn)
        });
    }
}

/// Promise, zero and not-a-number: products with N:M weights with `β = 0` never read `C`, and a NaN or an infinity of
/// `A` or `W` reaches only the rows and columns of its vectors; with any extents, layouts and leading dimensions.
#[test]
fn edge_cases() {
    check("edge cases", &nm_edge_cases());
}

#[test]
fn values() {
    check("values", &nm_value_cases());
}

/// Promise, zero and not-a-number: products with N:M weights with `β = 0` never read `C`, and a NaN or an infinity of
/// `A` or `W` reaches only the rows and columns of its vectors; with any extents, layouts and leading dimensions.
#[test]
fn what_is_not_finite_stays_in_its_columns() {
    check("non-finite cases", &nm_non_finite_cases());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_shape_on_the_cpu(seed: u64) {
        let case = nm_random_case(seed);
        for (i, precision) in precisions().enumerate() {
            let plan = plan(&Device::cpu(), &case, precision);
            run(&plan, &case, i + usize::from(seed.to_le_bytes()[0]));
        }
    }
}

fn pattern(n: usize, m: usize, l: usize) -> NmPattern {
    NmPattern::new(n, m, l).unwrap()
}

/// 4 × 2 weights of which rows 0 and 3 are kept.
fn small() -> VectorNm<f32> {
    let dense = [1.0f32, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0];
    VectorNm::from_dense(&dense, 4, 2, pattern(1, 2, 2)).unwrap()
}

#[test]
fn the_host_path_gives_what_the_device_path_does() {
    let case = nm_value_cases().into_iter().find(|case| case.m > 30 && case.beta != 0.0).unwrap();
    let (rows, cols) = case.stored_a();
    for precision in precisions() {
        let plan = plan(&Device::cpu(), &case, precision);
        let mut on_host = case.c.clone();
        let a = DenseRef::try_new(&case.a, rows, cols, case.lda).unwrap();
        let c = DenseMut::try_new(&mut on_host, case.m, case.n(), case.ldc).unwrap();
        let bias = case.bias.as_deref();
        let run = Epilogue {
            alpha: case.alpha,
            beta: case.beta,
            bias,
            activation: activation(&case),
            gated: case.gated,
        };
        plan.run_host(&run, a, c).unwrap();
        let rounded = match precision {
            Precision::F16 => case.rounded_to::<f16>(),
            Precision::Bf16 => case.rounded_to::<bf16>(),
            Precision::Tf32 => case.rounded_to_tf32(),
            _ => case.clone(),
        };
        assert_nm_matches(&rounded, &on_host, case.ldc, UNIT_FMA);
    }
}

/// Promise, determinism: on the CPU a result does not depend on the number of threads.
#[test]
fn the_same_bits_whatever_the_threads() {
    let dense: Vec<f32> = (0..300 * 200u16).map(|i| (f32::from(i) * 0.37).sin()).collect();
    let weights = prune_magnitude(&dense, 300, 200, pattern(2, 8, 32)).unwrap();
    let a: Vec<f32> = (0..100 * 300u16).map(|i| (f32::from(i) * 0.11).cos()).collect();
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| NmSpmm::builder(&weights).build(&Device::cpu()).unwrap().run(&a).unwrap())
    };
    assert_eq!(on(1), on(5));
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let device = Device::cpu();
    let plan = NmSpmm::builder(&small()).build(&device).unwrap();
    let zeros = |rows, cols| DeviceMatrix::<f32>::zeros(&device, rows, cols).unwrap();
    let message = |a: &DeviceMatrix<f32>, c: (usize, usize), bias: Option<usize>| {
        let bias = bias.map(|len| DeviceBuffer::<f32>::alloc_zeroed(&device, len).unwrap());
        let run = Epilogue { bias: bias.as_ref(), ..Epilogue::default() };
        plan.run_into(&run, a, &mut zeros(c.0, c.1)).unwrap_err().to_string()
    };
    assert_eq!(message(&zeros(3, 5), (3, 2), None), "A is 3 × 5 but must be 3 × 4");
    assert_eq!(message(&zeros(3, 4), (2, 2), None), "C is 2 × 2 but must be 3 × 2");
    assert_eq!(message(&zeros(3, 4), (3, 2), Some(3)), "the bias is 1 × 3 but must be 1 × 2");
    let halves = DeviceMatrix::<f16>::zeros(&device, 3, 4).unwrap();
    let error = plan.run_into(&Epilogue::default(), &halves, &mut zeros(3, 2)).unwrap_err();
    assert!(matches!(error, NmError::Plan(PlanError::ElementType { operand: "A", found: "f16", .. })));
    let error = plan.run(&[1.0; 6]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "A has 6 elements, which is not a whole number of rows of 4 (the rows of the weights)"
    );
    let emulated = DeviceMatrix::<f32>::zeros(&Device::emulator(EmulatorSchedule::InOrder), 3, 4).unwrap();
    let error = plan.run_into(&Epilogue::default(), &emulated, &mut zeros(3, 2)).unwrap_err();
    assert!(matches!(error, NmError::Plan(PlanError::WrongDevice { operand: "A", .. })));
    // k-major: the stored shape turns.
    let plan = NmSpmm::builder(&small()).layout(ActivationLayout::KMajor).build(&device).unwrap();
    let error = plan.run_into(&Epilogue::default(), &zeros(3, 4), &mut zeros(3, 2)).unwrap_err();
    assert_eq!(error.to_string(), "A is 3 × 4 but must be 4 × 4");
}

#[test]
fn plans_that_cannot_be_are_refused() {
    let (device, weights) = (Device::cpu(), small());
    let builder = NmSpmm::builder(&weights);
    let error = builder.clone().algorithm(NmAlgorithm::TensorCores).build(&device).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("products with N:M weights by tensor-cores do not support precision f32;")
    );
    let error = builder.clone().memory_limit(10).build(&device).unwrap_err();
    assert!(
        matches!(
            error,
            NmError::Plan(PlanError::MemoryLimit { needed: 24, limit: 10, largest: "values", .. })
        ),
        "{error}"
    );
    assert!(error.to_string().ends_with("; raise the limit, or prune more"), "{error}");
    let emulator = Device::emulator(EmulatorSchedule::InOrder);
    let error = builder.memory_limit(10).build(&emulator).unwrap_err().to_string();
    let remedy = "; raise the limit, plan for fewer rows, or give k-major activations";
    assert!(error.ends_with(remedy), "{error}");
}

/// More than kernels can count, of matrices without elements.
#[test]
fn operands_beyond_what_kernels_count_are_refused() {
    let device = Device::emulator(EmulatorSchedule::InOrder);
    let weights = VectorNm::<f32>::from_dense(&[], 0, 0, pattern(1, 2, 1)).unwrap();
    let plan = NmSpmm::builder(&weights).build(&device).unwrap();
    let rows = (1 << 31) + 1;
    let a = DeviceMatrix::<f32>::zeros(&device, rows, 0).unwrap();
    let mut c = DeviceMatrix::<f32>::zeros(&device, rows, 0).unwrap();
    let error = plan.run_into(&Epilogue::default(), &a, &mut c).unwrap_err().to_string();
    let expected = "2147483649 rows of A are more than the 2147483648 that the kernels can index; \
                    multiply fewer rows at a time";
    assert_eq!(error, expected);
    let plan = NmSpmm::builder(&small()).build(&device).unwrap();
    let a = DeviceMatrix::<f32>::with_ld(&device, 0, 4, 1 << 32).unwrap();
    let mut c = DeviceMatrix::<f32>::zeros(&device, 0, 2).unwrap();
    let error = plan.run_into(&Epilogue::default(), &a, &mut c).unwrap_err().to_string();
    let expected = "4294967296 elements from row to row are more than the 4294967295 that the kernels can \
                    index; copy the matrix to rows closer together";
    assert_eq!(error, expected);
    let weights = VectorNm::<f32>::from_dense(&[], 1 << 22, 0, pattern(1, 2, 1)).unwrap();
    let error = NmSpmm::builder(&weights).build(&device).unwrap_err().to_string();
    let expected = "4194304 rows of the weights are more than the 2097120 that the kernels can index; \
                    divide the weights, or use the CPU";
    assert_eq!(error, expected);
}

/// The length of an `A` without columns says nothing about its rows: they are those that the plan was made
/// for.
#[test]
fn without_an_inner_dimension_the_rows_are_those_of_the_plan() {
    let weights = VectorNm::<f32>::from_dense(&[], 0, 2, pattern(1, 2, 1)).unwrap();
    for device in devices() {
        let plan = NmSpmm::builder(&weights).rows(3).build(&device).unwrap();
        assert_eq!(plan.run(&[]).unwrap(), [0.0; 6], "{device}");
        let error = plan.run(&[1.0]).unwrap_err();
        assert_eq!(error, NmError::PackedLength { len: 1, weight_rows: 0 });
    }
    report_missing_gpu("weights without rows", 1);
    let plan = NmSpmm::builder(&weights).rows(usize::MAX).build(&Device::cpu()).unwrap();
    assert!(matches!(
        plan.run(&[]),
        Err(NmError::Plan(PlanError::TooLarge { what: "elements of a dense matrix", .. }))
    ));
}

#[test]
fn verification_finds_what_is_wrong_and_says_what_it_cannot_check() {
    let (device, weights) = (Device::cpu(), small());
    let plan = NmSpmm::builder(&weights).build(&device).unwrap();
    let a = place::<f32>(&device, &[1.0; 12], (3, 4, 4), 0.0);
    let right = [4.0f32, 6.0, 4.0, 6.0, 4.0, 6.0];
    let verify = |c: &[f32], run: Epilogue<'_>| {
        plan.verify(&weights, &run, &a, &place::<f32>(&device, c, (3, 2, 2), 0.0))
    };
    assert!(verify(&right, Epilogue::default()).unwrap().passed());
    let mut wrong = right;
    wrong[3] = 6.001;
    let found = verify(&wrong, Epilogue::default()).unwrap();
    assert_eq!((found.worst_row, found.worst_col, found.failures, found.checked), (1, 1, 1, 6));
    for (run, what) in [
        (Epilogue { beta: 0.5, ..Epilogue::default() }, "with beta = 0.5"),
        (Epilogue { gated: true, ..Epilogue::default() }, "that is gated"),
    ] {
        let error = verify(&right, run).unwrap_err().to_string();
        let rest = "depends on what C held before, which is gone; verify a run with beta = 0 and no gate";
        assert_eq!(error, format!("a result {what} {rest}"));
    }
    let others = VectorNm::from_dense(&[0.0f32; 8], 4, 2, pattern(2, 2, 2)).unwrap();
    let c = place::<f32>(&device, &right, (3, 2, 2), 0.0);
    let error = plan.verify(&others, &Epilogue::default(), &a, &c).unwrap_err().to_string();
    assert_eq!(
        error,
        "the weights are 4 × 2 with pattern 2:2 in vectors of 2, the plan's 4 × 2 with pattern 1:2 in vectors of 2"
    );
}

#[test]
fn rows_are_verified_that_there_are() {
    let (device, weights) = (Device::cpu(), small());
    let plan = NmSpmm::builder(&weights).build(&device).unwrap();
    let a = place::<f32>(&device, &[1.0; 12], (3, 4, 4), 0.0);
    let c = place::<f32>(&device, &[4.0, 6.0, 4.0, 6.5, 4.0, 6.0], (3, 2, 2), 0.0);
    let verify = |rows: &[usize]| plan.verify_rows(&weights, &Epilogue::default(), &a, &c, rows);
    let found = verify(&[2, 0]).unwrap();
    assert!(found.passed() && found.checked == 4, "{found}");
    assert_eq!(verify(&[0, 1]).unwrap().failures, 1);
    assert_eq!(verify(&[]).unwrap().checked, 0);
    let error = verify(&[0, 3]).unwrap_err();
    assert_eq!(error.to_string(), "row 3 is beyond C, which has 3 rows; they are counted from 0");
}

/// What may be infinite before the activation passes whatever comes of it; what may not be does not.
#[test]
fn sums_that_overflow_in_f32_pass_verification() {
    let big = 1e20f32;
    let weights = VectorNm::from_dense(&[big, big, 1.0], 3, 1, pattern(1, 1, 1)).unwrap();
    let rows: [[f32; 3]; 5] = [
        [big, big, 1.0],               // 2·10⁴⁰
        [-big, -big, 1.0],             // −2·10⁴⁰
        [big, -big, 1.0],              // 1; ∞ − ∞ on the way
        [1.0, -1.0, 3.0],              // 3, nothing overflows
        [0.0, 0.0, f32::NEG_INFINITY], // −∞, and that exactly
    ];
    for device in devices() {
        let plan = NmSpmm::builder(&weights).rows(5).build(&device).unwrap();
        let a = place::<f32>(&device, rows.as_flattened(), (5, 3, 3), 0.0);
        for activation in Activation::ALL {
            for alpha in [1.0, 1e-30] {
                let run = Epilogue { alpha, activation, ..Epilogue::default() };
                let mut c = place::<f32>(&device, &[0.5; 5], (5, 1, 1), 0.0);
                plan.run_into(&run, &a, &mut c).unwrap();
                let found = plan.verify(&weights, &run, &a, &c).unwrap();
                let right = c.download().unwrap();
                assert!(found.passed(), "{activation}, {alpha} on {device}: {found} in {right:?}");
                assert!(!right[0].is_finite() && !right[2].is_finite() && right[3].is_finite());
                for (row, wrong) in [(0, 7.0), (3, f32::INFINITY), (4, f32::INFINITY), (4, 7.0)] {
                    let mut c = right.clone();
                    c[row] = wrong;
                    let c = place::<f32>(&device, &c, (5, 1, 1), 0.0);
                    let found = plan.verify(&weights, &run, &a, &c).unwrap();
                    let place = (found.failures, found.worst_row);
                    assert_eq!(place, (1, row), "{activation}, {alpha} on {device}: {wrong}");
                }
            }
        }
    }
    report_missing_gpu("sums that overflow", 1);
}

#[test]
fn the_report_has_what_was_asked_and_what_it_costs() {
    let dense = vec![70_000.0f64; 64];
    let weights = prune_magnitude(&dense, 16, 4, pattern(2, 8, 2)).unwrap();
    let plan = NmSpmm::builder(&weights).rows(7).precision(Precision::F16).scale(4.0);
    let plan = plan.build(&Device::cpu()).unwrap();
    let report = plan.report();
    assert_eq!((report.rows, report.inner, report.cols, report.kept_rows), (7, 16, 4, 4));
    assert_eq!(
        (report.overflowed_values, report.sparsity(), report.flop(7)),
        (16, 0.75, 2.0 * 7.0 * 4.0 * 4.0)
    );
    // Four rows of two vectors, and sixteen weights as f32.
    assert_eq!(report.device_bytes, 4 * 8 + 4 * 16);
    let text = report.to_string();
    assert!(
        text.starts_with("weights        16 × 4, 2:8 in vectors of 2, 4 rows kept (75.0 % sparse)"),
        "{text}"
    );
    assert!(text.contains("overflow       16 finite weights are infinite in f16"), "{text}");
    assert_eq!(serde_json::to_value(report).unwrap()["layout"], "row-major");
}

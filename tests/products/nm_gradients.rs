//! Gradients of products with N:M weights, against the same in f64.

use std::process::Command;

use half::{bf16, f16};
use windrow::{
    DenseRef, Device, DeviceKind, DeviceMatrix, DeviceVectorNm, DeviceView, DeviceViewMut, Element, NmError,
    NmGradientPlan, NmGradients, NmPattern, PlanError, Precision, Stream, Value, VectorNm, prune_magnitude,
    with_element,
};
use windrow_testkit::SplitMix64;

use crate::common::{all_cases, devices, report_missing_gpu, takes_turn};
use crate::numbered_examples::built;

/// Operands of one size.
struct Case {
    m: usize,
    weights: VectorNm<f32>,
    /// m × k, row-major.
    a: Vec<f32>,
    /// m × n, row-major.
    of_c: Vec<f32>,
    scale: f32,
}

impl Case {
    /// Integers, whose sums are exact in every precision, or numbers that each rounds.
    fn new((m, k, n): (usize, usize, usize), pattern: NmPattern, integers: bool) -> Self {
        let mut rng = SplitMix64::new(u64::try_from(m * 31 + k * 7 + n).unwrap());
        let mut numbers = |count: usize| -> Vec<f32> {
            (0..count).map(|_| if integers { rng.below(9) as f32 - 4.0 } else { rng.real() }).collect()
        };
        let weights = prune_magnitude(&numbers(k * n), k, n, pattern).unwrap();
        let (a, of_c) = (numbers(m * k), numbers(m * n));
        Self { m, weights, a, of_c, scale: if integers { 2.0 } else { 0.75 } }
    }

    fn shape(&self) -> (usize, usize, usize) {
        (self.m, self.weights.rows(), self.weights.cols())
    }

    /// The gradient of the activations, and the sums of the absolute values of its terms.
    fn of_activations(&self, precision: Precision) -> (Vec<f64>, Vec<f64>) {
        let (m, k, n) = self.shape();
        let dense = rounded(precision, &self.weights.to_dense().unwrap());
        let of_c = rounded(precision, &self.of_c);
        let at = |at: usize| {
            let (row, column) = (at / k, at % k);
            terms(f64::from(self.scale), (0..n).map(|j| of_c[row * n + j] * dense[column * n + j]))
        };
        (0..m * k).map(at).unzip()
    }

    /// The same of the kept values.
    fn of_values(&self, precision: Precision) -> (Vec<f64>, Vec<f64>) {
        let (m, k, n) = self.shape();
        let (a, of_c) = (rounded(precision, &self.a), rounded(precision, &self.of_c));
        let l = self.weights.pattern().l();
        let at = |at: usize| {
            let (kept, column) = (at / n, at % n);
            let row = self.weights.source_row(kept, column / l);
            terms(f64::from(self.scale), (0..m).map(|i| a[i * k + row] * of_c[i * n + column]))
        };
        (0..self.weights.kept()).map(at).unzip()
    }
}

fn terms(scale: f64, products: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    (scale * products.clone().sum::<f64>(), scale * products.map(f64::abs).sum::<f64>())
}

fn rounded(precision: Precision, numbers: &[f32]) -> Vec<f64> {
    let round = |&x: &f32| match precision {
        Precision::F16 => f16::from_f32(x).to_f64(),
        Precision::Bf16 => bf16::from_f32(x).to_f64(),
        // Ties away from zero, as the instruction has it.
        Precision::Tf32 => f64::from(f32::from_bits((x.to_bits() + 0x1000) & !0x1fff)),
        _ => f64::from(x),
    };
    numbers.iter().map(round).collect()
}

fn pattern(n: usize, m: usize, l: usize) -> NmPattern {
    NmPattern::new(n, m, l).unwrap()
}

const PRECISIONS: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16];

fn upload<E: Value>(device: &Device, numbers: &[f32], rows: usize, cols: usize) -> DeviceMatrix<E> {
    let elements: Vec<E> = numbers.iter().map(|&x| E::from_f32(x)).collect();
    DeviceMatrix::upload(device, DenseRef::packed(&elements, rows, cols).unwrap()).unwrap()
}

fn plan_of(case: &Case, device: &Device, precision: Precision) -> NmGradientPlan {
    let weights = DeviceVectorNm::from_host(device, &case.weights).unwrap();
    let builder = NmGradients::builder(&weights).rows(case.m).precision(precision).scale(case.scale);
    builder.build_on(&device.stream()).unwrap()
}

/// Both gradients, by a plan, in the type of the results.
fn run<E: Element<Sum = f32>, R: Element<Sum = f32>>(
    plan: &mut NmGradientPlan,
    on: &Stream,
    case: &Case,
) -> [Vec<R>; 2] {
    let ((m, k, n), device) = (case.shape(), on.device());
    let (a, of_c) = (upload::<E>(device, &case.a, m, k), upload::<E>(device, &case.of_c, m, n));
    let mut of_a = DeviceMatrix::<R>::zeros(device, m, k).unwrap();
    let mut of_values = DeviceMatrix::<R>::zeros(device, case.weights.kept_rows(), n).unwrap();
    plan.of_activations_on(on, &of_c, &mut of_a).unwrap();
    plan.of_values_on(on, &a, &of_c, &mut of_values).unwrap();
    [of_a.download().unwrap(), of_values.download().unwrap()]
}

fn run_f32(plan: &mut NmGradientPlan, on: &Stream, case: &Case) -> [Vec<f32>; 2] {
    match plan.precision() {
        Precision::F16 => run::<f16, f32>(plan, on, case),
        Precision::Bf16 => run::<bf16, f32>(plan, on, case),
        _ => run::<f32, f32>(plan, on, case),
    }
}

/// Ragged groups and vectors, one row, no rows, no columns, what is kept whole.
fn cases(integers: bool) -> Vec<Case> {
    [
        ((20, 70, 130), pattern(2, 8, 32)),
        ((33, 64, 128), pattern(2, 4, 1)),
        ((7, 37, 41), pattern(1, 4, 8)),
        ((16, 530, 72), pattern(3, 7, 4)),
        ((1, 33, 9), pattern(1, 16, 1)),
        ((70, 300, 136), pattern(129, 129, 3)),
        ((5, 24, 8), pattern(3, 256, 8)),
        ((4, 8, 0), pattern(2, 4, 1)),
        ((0, 8, 12), pattern(2, 4, 1)),
    ]
    .map(|(shape, pattern)| Case::new(shape, pattern, integers))
    .into()
}

#[track_caller]
fn check_exact(what: &str, got: &[f32], (want, _): &(Vec<f64>, Vec<f64>)) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (&got, &want)) in got.iter().zip(want).enumerate() {
        assert!(f64::from(got) == want, "{what}, element {at}: {got} for {want}");
    }
}

#[track_caller]
fn check_bound(what: &str, got: &[f32], (want, size): &(Vec<f64>, Vec<f64>), relative: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, ((&got, want), size)) in got.iter().zip(want).zip(size).enumerate() {
        let off = (f64::from(got) - want).abs();
        assert!(off <= relative * size, "{what}, element {at}: {got} for {want}, bound {}", relative * size);
    }
}

#[test]
fn integers_are_exact() {
    for (at, case) in cases(true).iter().enumerate() {
        for (turn, precision) in (4 * at..).zip(PRECISIONS) {
            for device in devices().iter().filter(|device| all_cases() || takes_turn(device, turn)) {
                let what = format!("{:?}, {}, {precision} on {device}", case.shape(), case.weights.pattern());
                let mut plan = plan_of(case, device, precision);
                let [of_a, of_values] = run_f32(&mut plan, &device.stream(), case);
                check_exact(&format!("dA of {what}"), &of_a, &case.of_activations(precision));
                check_exact(&format!("dV of {what}"), &of_values, &case.of_values(precision));
            }
        }
    }
    report_missing_gpu("gradients of N:M weights", 36);
}

#[test]
fn errors_are_within_their_bounds() {
    let (m, k, n) = (45, 96, 160);
    let case = Case::new((m, k, n), pattern(2, 4, 16), false);
    for device in devices() {
        let streams = match device.kind() {
            DeviceKind::Cpu => vec![device.stream()],
            _ => vec![device.stream(), Stream::new(&device).unwrap()],
        };
        for precision in PRECISIONS {
            let unit = if precision == Precision::F32 { 2.0f64.powi(-24) } else { 2.0f64.powi(-23) };
            let bound = |terms: usize| (terms + 5) as f64 * unit * 1.01;
            let mut plan = plan_of(&case, &device, precision);
            let mut before = None;
            for stream in &streams {
                let [of_a, of_values] = run_f32(&mut plan, stream, &case);
                let what = format!("{precision} on {device}");
                check_bound(&format!("dA of {what}"), &of_a, &case.of_activations(precision), bound(n));
                check_bound(&format!("dV of {what}"), &of_values, &case.of_values(precision), bound(m));
                let bits = [of_a, of_values].map(|of| of.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
                assert!(before.as_ref().is_none_or(|before| *before == bits), "{what}: other bits");
                before = Some(bits);
            }
        }
    }
    report_missing_gpu("bounds of gradients of N:M weights", 4);
}

/// After new values the gradient of the activations is that of these; results may be of 16 bits.
#[test]
fn new_values_of_any_type() {
    let case = Case::new((9, 40, 45), pattern(2, 4, 8), true);
    let other: Vec<f32> = (0..case.weights.kept()).map(|at| (at % 7) as f32 - 3.0).collect();
    let changed = Case {
        weights: case.weights.with_values(other.clone()).unwrap(),
        a: case.a.clone(),
        of_c: case.of_c.clone(),
        ..case
    };
    for device in devices() {
        for precision in PRECISIONS {
            let want = changed.of_activations(precision);
            for replaced in [Precision::F32, Precision::F16, Precision::Bf16] {
                let mut plan = plan_of(&case, &device, precision);
                let stream = device.stream();
                with_element!(replaced, V => {
                    let values = upload::<V>(&device, &other, case.weights.kept_rows(), 45);
                    plan.replace_rows_on(&stream, &values).unwrap();
                });
                let [of_a, _] = run_f32(&mut plan, &stream, &changed);
                check_exact(&format!("{replaced} for {precision} on {device}"), &of_a, &want);
            }
        }
        let mut plan = plan_of(&case, &device, Precision::F16);
        let [_, of_values] = run::<f16, bf16>(&mut plan, &device.stream(), &case);
        let want = case.of_values(Precision::F16).0;
        assert!(of_values.iter().zip(want).all(|(&got, want)| got == bf16::from_f64(want)), "on {device}");
    }
    report_missing_gpu("new values of gradients of N:M weights", 13);
}

/// The gradient of two batches one after the other, in f32, begun anew after another.
fn of_two<E: Element<Sum = f32>>(plan: &mut NmGradientPlan, [first, second]: [&Case; 2]) -> Vec<f32> {
    let (device, (m, k, n)) = (plan.device().clone(), first.shape());
    let stream = device.stream();
    let place = |of: &Case| (upload::<E>(&device, &of.a, m, k), upload::<E>(&device, &of.of_c, m, n));
    let mut rounded = DeviceMatrix::<bf16>::zeros(&device, first.weights.kept_rows(), n).unwrap();
    let mut sums = DeviceMatrix::<f32>::zeros(&device, first.weights.kept_rows(), n).unwrap();
    for _ in 0..2 {
        let (a, of_c) = place(first);
        plan.of_values_on(&stream, &a, &of_c, &mut rounded).unwrap();
        let (a, of_c) = place(second);
        plan.add_of_values_on(&stream, &a, &of_c, &mut sums).unwrap();
    }
    sums.download().unwrap()
}

#[test]
fn batches_are_added() {
    let of = || Case::new((9, 40, 45), pattern(2, 4, 8), true);
    let (first, second) = (of(), Case { a: vec![1.0; 9 * 40], ..of() });
    for device in devices() {
        for precision in [Precision::F32, Precision::F16] {
            let mut plan = plan_of(&first, &device, precision);
            let got = match precision {
                Precision::F16 => of_two::<f16>(&mut plan, [&first, &second]),
                _ => of_two::<f32>(&mut plan, [&first, &second]),
            };
            let both = first.of_values(precision).0.into_iter().zip(second.of_values(precision).0);
            let want = both.map(|(a, b)| a + b).collect();
            check_exact(&format!("two batches in {precision} on {device}"), &got, &(want, Vec::new()));
        }
    }
    report_missing_gpu("batches of gradients of N:M weights", 2);
}

/// What is not finite in a row of `A` reaches the gradients of the values of that row of `W`, and no others.
#[test]
fn what_is_not_finite_goes_no_further() {
    let mut case = Case::new((6, 32, 40), pattern(2, 4, 8), true);
    case.a[2 * 32 + 13] = f32::NAN;
    for device in devices() {
        for precision in PRECISIONS {
            let mut plan = plan_of(&case, &device, precision);
            let [_, of_values] = run_f32(&mut plan, &device.stream(), &case);
            for (at, got) in of_values.iter().enumerate() {
                let row = case.weights.source_row(at / 40, at % 40 / 8);
                assert_eq!(
                    got.is_nan(),
                    row == 13,
                    "value {at} of row {row} in {precision} on {device}: {got}"
                );
            }
        }
    }
    report_missing_gpu("NaN in gradients of N:M weights", 4);
}

#[test]
fn what_does_not_fit_is_refused() {
    let case = Case::new((6, 32, 40), pattern(2, 4, 8), true);
    for device in devices() {
        let stream = device.stream();
        let mut plan = plan_of(&case, &device, Precision::F32);
        let zeros = |rows, cols| DeviceMatrix::<f32>::zeros(&device, rows, cols).unwrap();
        let mut values = zeros(16, 40);
        let text = |outcome: Result<(), NmError>| outcome.unwrap_err().to_string();

        let fewer = plan.of_values_on(&stream, &zeros(5, 32), &zeros(5, 40), &mut values);
        assert_eq!(text(fewer), "A is 5 × 32 but must be 6 × 32");
        let narrow = plan.of_values_on(&stream, &zeros(6, 32), &zeros(6, 39), &mut values);
        assert_eq!(text(narrow), "dC is 6 × 39 but must be 6 × 40");
        let few = plan.of_values_on(&stream, &zeros(6, 32), &zeros(6, 40), &mut zeros(32, 40));
        assert_eq!(text(few), "the gradient of the values is 32 × 40 but must be 16 × 40");
        let half = DeviceMatrix::<f16>::zeros(&device, 6, 32).unwrap();
        let of_c = DeviceMatrix::<f16>::zeros(&device, 6, 40).unwrap();
        let half = plan.of_values_on(&stream, &half, &of_c, &mut values);
        assert!(matches!(half, Err(NmError::Plan(PlanError::ElementType { .. }))), "{half:?}");
        let wrong = plan.of_activations_on(&stream, &zeros(6, 39), &mut zeros(6, 32));
        assert!(matches!(wrong, Err(NmError::Plan(PlanError::OperandShape { .. }))), "{wrong:?}");
        let fewer = plan.replace_rows_on(&stream, &zeros(16, 39));
        assert_eq!(text(fewer), "the matrix of new values is 16 × 39 but must be 16 × 40");

        // Any number of rows for the activations.
        plan.of_activations_on(&stream, &zeros(3, 40), &mut zeros(3, 32)).unwrap();
        let elsewhere = Device::cpu();
        if device.kind() != DeviceKind::Cpu {
            let a = DeviceMatrix::<f32>::zeros(&elsewhere, 6, 32).unwrap();
            let wrong = plan.of_values_on(&stream, &a, &zeros(6, 40), &mut values);
            assert!(matches!(wrong, Err(NmError::Plan(PlanError::WrongDevice { .. }))), "{wrong:?}");
            // What is written is a part of what is read.
            let shared = DeviceMatrix::<f32>::zeros(&device, 32, 40).unwrap();
            // SAFETY: nothing is queued with it: it is refused.
            let overlapping = unsafe {
                let (address, device) = (shared.buffer().address(), &device);
                let of_c = DeviceView::<f32>::from_raw(device, address, 6, 40, 40).unwrap();
                let values = DeviceViewMut::<f32>::from_raw(device, address, 16, 40, 40).unwrap();
                plan.of_values_on(&stream, &zeros(6, 32), of_c, values)
            };
            assert!(matches!(overlapping, Err(NmError::Plan(PlanError::Overlap { operand: "dC", .. }))));
            let wide = case.weights.with_values(vec![1.0f64; case.weights.kept()]).unwrap();
            let wide = DeviceVectorNm::from_host(&device, &wide).unwrap();
            let refused = NmGradients::builder(&wide).rows(6).build_on(&stream).unwrap_err();
            assert!(
                matches!(refused, NmError::Plan(PlanError::ElementType { found: "f64", .. })),
                "{refused}"
            );
        }
        let report = plan.report().to_string();
        assert!(report.starts_with("gradients for 6 rows\nof activations: "), "{report}");

        let weights = DeviceVectorNm::from_host(&device, &case.weights).unwrap();
        let builder = NmGradients::builder(&weights).rows(6).activations(false);
        let mut first = builder.build_on(&stream).unwrap();
        let refused = first.of_activations_on(&stream, &zeros(3, 40), &mut zeros(3, 32));
        assert_eq!(refused, Err(NmError::NoActivations));
        first.replace_rows_on(&stream, &zeros(16, 40)).unwrap();
        let (a, of_c) = (upload::<f32>(&device, &case.a, 6, 32), upload::<f32>(&device, &case.of_c, 6, 40));
        first.of_values_on(&stream, &a, &of_c, &mut values).unwrap();
        let want: Vec<f64> = case.of_values(Precision::F32).0.iter().map(|of| of / 2.0).collect();
        check_exact("a first layer", &values.download().unwrap(), &(want, Vec::new()));
        assert!(first.report().device_bytes <= plan.report().device_bytes);
        assert!(first.report().to_string().starts_with("gradients for 6 rows\nof values: "));
    }
    report_missing_gpu("refusals of gradients of N:M weights", 10);
}

/// The example `finetune_pruned`, where it is built: its gradient is that of differences, and its loss falls.
#[test]
fn a_pruned_network_learns() {
    let Some(program) = built("finetune_pruned") else {
        windrow_testkit::announce_skip("the example finetune_pruned", 1, "it is not built here");
        return;
    };
    for precision in ["f32", "f16"] {
        let arguments = ["--precision", precision, "--steps", "20"];
        let output = Command::new(&program).args(arguments).output().expect("the example starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        assert!(printed.ends_with("the loss falls\n"), "{printed}");
    }
}

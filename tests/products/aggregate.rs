//! Reductions over rows and their gradients, on every device, against f64.

use half::{bf16, f16};
use windrow::{
    Aggregate, AggregateBackward, AggregateError, AggregateGradients, AggregateOperands, AggregatePlan, Csr,
    Device, DeviceBuffer, DeviceMatrix, Element, Message, PlanError, Precision, Reduce, Stream, Value,
};
use windrow_testkit::{Comparison, SplitMix64, UNIT_FMA};

use crate::attention_case::{lengths, long_rows, no_entries, no_rows, on_device, shared};
use crate::common::{by_turns, devices, report_missing_gpu};

const NO_WINNER: u32 = u32::MAX;

struct Case {
    name: String,
    a: Csr<f32>,
    columns: usize,
    x: Vec<f32>,
    values: Vec<f32>,
    gradient: Vec<f32>,
}

impl Case {
    /// Operands of few distinct numbers, so that there are ties.
    fn new(name: &str, a: &Csr<f32>, columns: usize) -> Self {
        let mut rng = SplitMix64::new(61);
        let mut numbers = |count: usize, steps: f32| -> Vec<f32> {
            (0..count).map(|_| (rng.real() * steps).round() / steps).collect()
        };
        Self {
            name: format!("{name}, {columns} columns"),
            a: a.clone(),
            columns,
            x: numbers(a.cols() * columns, 16.0),
            values: numbers(a.nnz(), 4.0),
            gradient: numbers(a.rows() * columns, 64.0),
        }
    }

    fn plan(
        &self,
        (reduce, message): (Reduce, Message),
        precision: Precision,
        device: &Device,
    ) -> AggregatePlan {
        let builder = Aggregate::builder(&self.a).reduce(reduce).message(message).columns(self.columns);
        builder.precision(precision).gradients(true).build(device).unwrap()
    }
}

/// What a device makes of a case.
struct Outcome {
    out: Vec<f32>,
    winners: Vec<u32>,
    of_x: Vec<f32>,
    of_values: Vec<f32>,
}

fn run<T: Element<Sum = f32>>(plan: &AggregatePlan, case: &Case, stream: &Stream) -> Outcome {
    let device = plan.device();
    let options = &plan.report().options;
    let (m, n, d) = (case.a.rows(), case.a.cols(), case.columns);
    let x = on_device::<T>(device, &case.x, (n, d));
    let gradient = on_device::<T>(device, &case.gradient, (m, d));
    let values = DeviceBuffer::from_slice(device, &case.values).unwrap();
    let mut winners = DeviceBuffer::from_slice(device, &vec![7u32; m * d]).unwrap();
    let mut out = on_device::<f32>(device, &vec![f32::NAN; m * d], (m, d));
    let mut of_x = on_device::<f32>(device, &vec![f32::NAN; n * d], (n, d));
    let mut of_values = DeviceBuffer::from_slice(device, &vec![f32::NAN; case.a.nnz()]).unwrap();
    let has_values = options.message.has_values();
    let operands = || {
        let operands = AggregateOperands::new(&x);
        if has_values { operands.values(&values) } else { operands }
    };
    let forward = operands();
    let forward = if options.reduce.picks() { forward.winners(&mut winners) } else { forward };
    plan.forward_on(stream, forward, &mut out).unwrap();
    let given = AggregateBackward::new(operands(), &gradient);
    let given = if options.reduce.picks() { given.winners(&winners) } else { given };
    let found = AggregateGradients::new(&mut of_x);
    let found = if has_values { found.values(&mut of_values) } else { found };
    plan.backward_on(stream, given, found).unwrap();
    Outcome {
        out: out.download().unwrap(),
        winners: winners.to_vec().unwrap(),
        of_x: of_x.download().unwrap(),
        of_values: of_values.to_vec().unwrap(),
    }
}

/// The same in f64: result, winners, both gradients and what each of these may be off by, in units of f32.
struct Model {
    out: Vec<f64>,
    winners: Vec<u32>,
    of_x: Vec<f64>,
    of_values: Vec<f64>,
    off: [Vec<f64>; 3],
}

fn model<T: Value>(case: &Case, reduce: Reduce, message: Message) -> Model {
    let (m, n, d) = (case.a.rows(), case.a.cols(), case.columns);
    let rounded =
        |numbers: &[f32]| -> Vec<f64> { numbers.iter().map(|&x| T::from_f32(x).to_f64()).collect() };
    let (x, g) = (rounded(&case.x), rounded(&case.gradient));
    let mut model = Model {
        out: vec![0.0; m * d],
        winners: vec![NO_WINNER; m * d],
        of_x: vec![0.0; n * d],
        of_values: vec![0.0; case.a.nnz()],
        off: [vec![0.0; m * d], vec![0.0; n * d], vec![0.0; case.a.nnz()]],
    };
    for row in 0..m {
        let entries = case.a.row_range(row);
        let mean = if reduce == Reduce::Mean { 1.0 / entries.len().max(1) as f64 } else { 1.0 };
        for c in 0..d {
            let at = row * d + c;
            for entry in entries.clone() {
                let (x, a) = (x[case.a.col_indices()[entry] as usize * d + c], f64::from(case.values[entry]));
                let made = match message {
                    Message::Mul => a * x,
                    Message::Add => a + x,
                    _ => x,
                };
                let is_first = model.winners[at] == NO_WINNER;
                match reduce {
                    Reduce::Max | Reduce::Min => {
                        let beyond =
                            if reduce == Reduce::Max { made > model.out[at] } else { made < model.out[at] };
                        if is_first || beyond {
                            (model.out[at], model.winners[at]) = (made, u32::try_from(entry).unwrap());
                        }
                    }
                    _ => {
                        model.out[at] += mean * made;
                        model.off[0][at] += mean * (a * x).abs().max(a.abs() + x.abs());
                    }
                }
            }
            for entry in entries.clone() {
                if reduce.picks() && model.winners[at] as usize != entry {
                    continue;
                }
                let of_x = case.a.col_indices()[entry] as usize * d + c;
                let factor = mean * if message == Message::Mul { f64::from(case.values[entry]) } else { 1.0 };
                model.of_x[of_x] += factor * g[at];
                model.off[1][of_x] += (factor * g[at]).abs();
                let factor = mean * if message == Message::Mul { x[of_x] } else { 1.0 };
                model.of_values[entry] += factor * g[at];
                model.off[2][entry] += (factor * g[at]).abs();
            }
        }
    }
    model
}

fn compare(comparison: &mut Comparison, got: &[f32], (want, off): (&[f64], &[f64]), terms: usize) {
    assert_eq!(got.len(), want.len());
    comparison.elements += got.len();
    for (i, ((&got, &want), &off)) in got.iter().zip(want).zip(off).enumerate() {
        let bound = (terms + 6) as f64 * UNIT_FMA * off + f64::from(f32::MIN_POSITIVE);
        let ratio = (f64::from(got) - want).abs() / bound;
        let ratio = if ratio.is_nan() { f64::INFINITY } else { ratio };
        comparison.failures += usize::from(ratio > 1.0);
        if ratio > comparison.worst_ratio || comparison.worst_at.is_none() {
            (comparison.worst_ratio, comparison.worst_at) = (ratio, Some((0, i)));
            (comparison.got, comparison.want) = (f64::from(got), want);
        }
    }
}

fn check(device: &Device, kind: (Reduce, Message), precision: Precision, case: &Case) -> Comparison {
    let plan = case.plan(kind, precision, device);
    let stream = device.stream();
    let (reduce, message) = kind;
    let (got, want) = match precision {
        Precision::F16 => (run::<f16>(&plan, case, &stream), model::<f16>(case, reduce, message)),
        Precision::Bf16 => (run::<bf16>(&plan, case, &stream), model::<bf16>(case, reduce, message)),
        _ => (run::<f32>(&plan, case, &stream), model::<f32>(case, reduce, message)),
    };
    let mut comparison = Comparison::default();
    let terms = case.a.rows().max(case.a.cols()).max(case.columns);
    if reduce.picks() {
        // One of the messages, to the bit: products and sums of such numbers are exact.
        assert!(
            got.out.iter().zip(&want.out).all(|(&got, &want)| f64::from(got) == want),
            "{} on {device}",
            case.name
        );
        assert!(got.winners == want.winners, "{} on {device}, {kind:?}: winners", case.name);
    } else {
        compare(&mut comparison, &got.out, (&want.out, &want.off[0]), terms);
    }
    compare(&mut comparison, &got.of_x, (&want.of_x, &want.off[1]), terms);
    if message.has_values() {
        compare(&mut comparison, &got.of_values, (&want.of_values, &want.off[2]), terms);
    }
    assert!(comparison.passed(), "{} on {device}, {kind:?} {precision}: {comparison}", case.name);
    comparison
}

#[test]
fn every_reduction_and_message() {
    let cases = [
        Case::new("no rows", &no_rows(), 8),
        Case::new("no entries", &no_entries(), 16),
        Case::new("lengths", &lengths(), 32),
        Case::new("lengths", &lengths(), 7),
        Case::new("lengths", &lengths(), 200),
        Case::new("long rows", &long_rows(), 40),
        Case::new("long columns", &long_rows().transpose().unwrap(), 24),
        Case::new("shared columns", &shared(), 64),
        Case::new("long rows", &long_rows(), 3),
    ];
    for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
        for kind in Reduce::ALL.into_iter().flat_map(|reduce| Message::ALL.map(|message| (reduce, message))) {
            by_turns(&format!("{} of {}, {precision}", kind.0, kind.1), cases.len(), |device, turn, _| {
                check(device, kind, precision, &cases[turn])
            });
        }
    }
}

/// A message that is no number wins, the first of them, and stays in its row and column.
#[test]
fn what_is_no_number_wins() {
    for matrix in [lengths(), long_rows()] {
        let mut case = Case::new("not a number", &matrix, 20);
        let poisoned = [matrix.col_indices()[1] as usize, matrix.col_indices()[matrix.nnz() / 2] as usize];
        case.x[poisoned[0] * 20 + 3] = f32::NAN;
        case.x[poisoned[1] * 20 + 3] = f32::NAN;
        for (device, reduce) in
            devices().iter().flat_map(|device| [Reduce::Max, Reduce::Min].map(|of| (device, of)))
        {
            let plan = case.plan((reduce, Message::Copy), Precision::F32, device);
            let got = run::<f32>(&plan, &case, &device.stream());
            for (row, c) in (0..matrix.rows()).flat_map(|row| (0..20).map(move |c| (row, c))) {
                let mut hits = matrix
                    .row_range(row)
                    .filter(|&entry| poisoned.contains(&(matrix.col_indices()[entry] as usize)) && c == 3);
                let at = row * 20 + c;
                match hits.next() {
                    Some(first) => {
                        assert!(got.out[at].is_nan(), "{device}, {reduce}: row {row}");
                        assert_eq!(got.winners[at] as usize, first, "{device}, {reduce}: row {row}");
                    }
                    None => assert!(!got.out[at].is_nan(), "{device}, {reduce}: row {row}, column {c}"),
                }
            }
        }
    }
    report_missing_gpu("reductions of what is no number", 4);
}

/// What is beyond all numbers is a message like any other: it wins where there is nothing else, and the first of it.
#[test]
fn infinities_are_messages() {
    for matrix in [lengths(), long_rows()] {
        let mut case = Case::new("infinities", &matrix, 12);
        for (device, reduce, all) in devices().iter().flat_map(|device| {
            [(Reduce::Max, f32::NEG_INFINITY), (Reduce::Min, f32::INFINITY)]
                .map(|(of, all)| (device, of, all))
        }) {
            case.x.iter_mut().skip(7).step_by(12).for_each(|x| *x = all);
            let plan = case.plan((reduce, Message::Copy), Precision::F32, device);
            let got = run::<f32>(&plan, &case, &device.stream());
            for row in 0..matrix.rows() {
                let (entries, at) = (matrix.row_range(row), row * 12 + 7);
                let want = if entries.is_empty() {
                    (0.0, NO_WINNER)
                } else {
                    (all, u32::try_from(entries.start).unwrap())
                };
                assert_eq!((got.out[at], got.winners[at]), want, "{device}, {reduce}: row {row}");
            }
        }
    }
    report_missing_gpu("reductions of infinities", 4);
}

/// Winners that do not begin at a multiple of 16 bytes are read one by one.
#[test]
fn winners_may_begin_anywhere() {
    for device in devices() {
        let case = Case::new("lengths", &lengths(), 16);
        let plan = case.plan((Reduce::Max, Message::Copy), Precision::F32, &device);
        let stream = device.stream();
        let want = run::<f32>(&plan, &case, &stream);
        let (m, n, d) = (case.a.rows(), case.a.cols(), case.columns);
        let x = on_device::<f32>(&device, &case.x, (n, d));
        let gradient = on_device::<f32>(&device, &case.gradient, (m, d));
        let mut of_x = on_device::<f32>(&device, &vec![f32::NAN; n * d], (n, d));
        let shifted = DeviceBuffer::from_slice(&device, &[&[0], &want.winners[..]].concat()).unwrap();
        let winners = shifted.view().get(1..1 + m * d).unwrap();
        let given = AggregateBackward::new(AggregateOperands::new(&x), &gradient).winners(winners);
        plan.backward_on(&stream, given, AggregateGradients::new(&mut of_x)).unwrap();
        assert_eq!(of_x.download().unwrap(), want.of_x, "{device}");
    }
    report_missing_gpu("winners that begin anywhere", 1);
}

/// Promise, determinism: reductions and their gradients have the same bits in every run, on any stream of a device.
#[test]
fn reductions_agree_to_the_bit() {
    for device in devices() {
        let case = Case::new("long rows", &long_rows(), 40);
        for kind in [(Reduce::Mean, Message::Mul), (Reduce::Max, Message::Add)] {
            let plan = case.plan(kind, Precision::F16, &device);
            let bits = |stream: &Stream| {
                let Outcome { out, winners, of_x, of_values } = run::<f16>(&plan, &case, stream);
                let numbers: Vec<u32> = [out, of_x, of_values].concat().iter().map(|x| x.to_bits()).collect();
                (numbers, winners)
            };
            let own = bits(&device.stream());
            let other = Stream::new(&device).unwrap();
            for stream in [&other, &other, &device.stream()] {
                assert!(bits(stream) == own, "{device}");
            }
        }
    }
    report_missing_gpu("reductions to the bit", 6);
}

#[test]
fn what_cannot_be_reduced_is_refused() {
    let a = lengths();
    for device in devices() {
        let (m, n) = (a.rows(), a.cols());
        let error = Aggregate::builder(&a).precision(Precision::F64).build(&device).unwrap_err();
        assert_eq!(error.to_string(), "there are no reductions of f64; use f32, f16 or bf16");
        let sums = Aggregate::builder(&a).columns(8).gradients(true).build(&device).unwrap();
        let maxima =
            Aggregate::builder(&a).reduce(Reduce::Max).columns(8).gradients(true).build(&device).unwrap();
        let without = Aggregate::builder(&a).columns(8).build(&device).unwrap();
        let zeros = |rows: usize| on_device::<f32>(&device, &vec![0.0; rows * 8], (rows, 8));
        let (x, gradient) = (zeros(n), zeros(m));
        let (mut out, mut of_x): (DeviceMatrix<f32>, DeviceMatrix<f32>) = (zeros(m), zeros(n));
        let mut winners = DeviceBuffer::<u32>::alloc_zeroed(&device, 8 * m).unwrap();
        let values = DeviceBuffer::<f32>::alloc_zeroed(&device, a.nnz()).unwrap();
        let stream = device.stream();
        let operands = AggregateOperands::new(&x).winners(&mut winners);
        let error = sums.forward_on(&stream, operands, &mut out).unwrap_err();
        assert_eq!(error, AggregateError::NoWinners { reduce: Reduce::Sum });
        let error =
            sums.forward_on(&stream, AggregateOperands::new(&x).values(&values), &mut out).unwrap_err();
        assert_eq!(error, AggregateError::NoValues);
        let given = || AggregateBackward::new(AggregateOperands::new(&x), &gradient);
        let error = maxima.backward_on(&stream, given(), AggregateGradients::new(&mut of_x)).unwrap_err();
        assert_eq!(error, AggregateError::Unkept { reduce: Reduce::Max });
        let error = without.backward_on(&stream, given(), AggregateGradients::new(&mut of_x)).unwrap_err();
        assert_eq!(error, AggregateError::NoGradients);
        let error = sums.forward_on(&stream, AggregateOperands::new(&gradient), &mut out).unwrap_err();
        let is_shape = matches!(error, AggregateError::Plan(PlanError::OperandShape { operand: "X", .. }));
        assert!(is_shape, "{error}");
    }
    report_missing_gpu("refusals of reductions", 1);
}

//! Softmax over rows and its gradient, on every device, against an f64 reference.

use crate::common::{by_turns, devices, gpu, report_missing_gpu};
use windrow::{Csr, Device, DeviceBuffer, EmulatorSchedule, PlanError, RowSoftmax};
use windrow_testkit::{Comparison, Pattern, SplitMix64, Tally, UNIT_FMA, Values};

/// What a result may be off by where it is too small for a normal f32.
const SUBNORMAL: f64 = f32::MIN_POSITIVE as f64;

/// Rows of a sparse result, with numbers in the places of its entries.
struct Case {
    name: String,
    pattern: Csr<f32>,
    scale: f32,
    scores: Vec<f32>,
    gradient: Vec<f32>,
}

impl Case {
    /// Rows of these lengths; scores are reals in −1..1, times `spread`.
    fn new(name: &str, lengths: &[usize], (scale, spread): (f32, f32), rng: &mut SplitMix64) -> Self {
        let cols = lengths.iter().copied().max().unwrap_or(0).max(1);
        let pattern = Pattern::from_lengths(cols, lengths.iter().copied(), rng);
        let pattern = pattern.with_values(Values::Integers, rng);
        let scores = (0..pattern.nnz()).map(|_| spread * rng.real()).collect();
        let gradient = (0..pattern.nnz()).map(|_| rng.real()).collect();
        Self { name: format!("{name}, scale {scale}"), pattern, scale, scores, gradient }
    }

    /// The scores as they are after the product with `scale`.
    fn scaled(&self) -> Vec<f32> {
        self.scores.iter().map(|&s| self.scale * s).collect()
    }
}

/// Lengths around what is held in registers, around the limit of short rows and around a block's step; none, and one.
const LENGTHS: [usize; 21] =
    [0, 1, 2, 7, 8, 9, 0, 63, 64, 65, 128, 129, 511, 512, 513, 600, 2047, 2048, 2049, 3000, 0];

fn cases() -> Vec<Case> {
    let mut rng = SplitMix64::new(19);
    let every_length: Vec<usize> = (0..=70).collect();
    let mut cases = vec![
        Case::new("no rows", &[], (1.0, 1.0), &mut rng),
        Case::new("empty rows", &[0; 5], (1.0, 1.0), &mut rng),
        Case::new("one entry", &[1], (1.0, 1.0), &mut rng),
        Case::new("single entries", &[1; 70], (0.3, 50.0), &mut rng),
        Case::new("one long row", &[5001], (1.0, 10.0), &mut rng),
        Case::new("equal scores", &[1, 6, 64, 600, 3000], (1.0, 0.0), &mut rng),
        Case::new("far apart", &[40, 700, 3, 90], (1.0, 3000.0), &mut rng),
    ];
    for scale in [1.0, 0.125, -2.5, 0.0] {
        cases.push(Case::new("every length", &every_length, (scale, 8.0), &mut rng));
        cases.push(Case::new("lengths at the edges", &LENGTHS, (scale, 8.0), &mut rng));
    }
    cases
}

/// Additions that an entry passes on its way into the sum of its row, at most.
fn additions(len: usize) -> f64 {
    (if len <= 512 { len.div_ceil(8) + 3 } else { len.div_ceil(256) + 13 }) as f64
}

/// Probabilities of a row of scaled scores, and what each may be off by.
fn reference(scaled: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let max = scaled.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let distances: Vec<f64> = scaled.iter().map(|&t| f64::from(max) - f64::from(t)).collect();
    let sum: f64 = distances.iter().map(|d| (-d).exp()).sum();
    let probabilities: Vec<f64> = distances.iter().map(|d| (-d).exp() / sum).collect();
    let mean: f64 =
        distances.iter().zip(&probabilities).map(|(d, p)| if *p > 0.0 { d * p } else { 0.0 }).sum();
    let bound = |(d, p): (&f64, &f64)| {
        let relative = (2.25 * (d + mean) + additions(scaled.len()) + 10.0) * UNIT_FMA;
        (if *p > 0.0 { p * relative } else { 0.0 }) + SUBNORMAL
    };
    let bounds = distances.iter().zip(&probabilities).map(bound).collect();
    (probabilities, bounds)
}

/// Gradient of a row's scores, and what each element may be off by.
fn reference_gradient(scale: f32, p: &[f32], g: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let terms = || p.iter().zip(g).map(|(&p, &g)| f64::from(p) * f64::from(g));
    let (mean, abs_sum): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
    let (mut want, mut bounds) = (Vec::new(), Vec::new());
    for (&p, &g) in p.iter().zip(g) {
        let factor = f64::from(scale) * f64::from(p);
        let difference = f64::from(g) - mean;
        let off = (additions(terms().count()) + 1.0) * abs_sum + 3.0 * difference.abs();
        want.push(factor * difference);
        bounds.push(1.01 * UNIT_FMA * factor.abs() * off + SUBNORMAL);
    }
    (want, bounds)
}

/// Compares a row, starting at entry `first` of row `row`.
fn compare(row: usize, got: &[f32], (want, bounds): &(Vec<f64>, Vec<f64>), into: &mut Comparison) {
    for (i, ((&got, &want), &bound)) in got.iter().zip(want).zip(bounds).enumerate() {
        let got = f64::from(got);
        let ratio = match (got.is_nan(), want.is_nan()) {
            (true, true) => 0.0,
            (false, false) => (got - want).abs() / bound,
            _ => f64::INFINITY,
        };
        into.elements += 1;
        into.failures += usize::from(ratio > 1.0);
        if ratio > into.worst_ratio || into.worst_at.is_none() {
            (into.worst_ratio, into.worst_at, into.got, into.want) = (ratio, Some((row, i)), got, want);
        }
    }
}

/// What a device makes of a case: probabilities, the same in place, and gradients.
fn run(device: &Device, case: &Case) -> [Vec<f32>; 3] {
    let softmax = RowSoftmax::new(&case.pattern, device).unwrap();
    let upload = |values: &[f32]| DeviceBuffer::from_slice(device, values).unwrap();
    let mut out = upload(&vec![f32::NAN; case.scores.len()]);
    let mut in_place = upload(&case.scores);
    let mut of_scores = upload(&vec![f32::NAN; case.scores.len()]);
    softmax.forward(case.scale, &upload(&case.scores), &mut out).unwrap();
    softmax.forward_in_place(case.scale, &mut in_place).unwrap();
    softmax.backward(case.scale, &out, &upload(&case.gradient), &mut of_scores).unwrap();
    [out, in_place, of_scores]
        .map(|buffer| buffer.to_vec().unwrap_or_else(|error| panic!("{} on {device}: {error}", case.name)))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Runs a case and compares all of it.
fn check(device: &Device, case: &Case) -> Comparison {
    let [p, in_place, of_scores] = run(device, case);
    assert_eq!(bits(&p), bits(&in_place), "{} in place, on {device}", case.name);
    let scaled = case.scaled();
    let mut comparison = Comparison::default();
    for row in 0..case.pattern.rows() {
        let entries = case.pattern.row_range(row);
        compare(row, &p[entries.clone()], &reference(&scaled[entries.clone()]), &mut comparison);
        let gradient = reference_gradient(case.scale, &p[entries.clone()], &case.gradient[entries.clone()]);
        compare(row, &of_scores[entries], &gradient, &mut comparison);
    }
    assert!(comparison.passed(), "{} on {device}: {comparison}", case.name);
    comparison
}

fn check_all(what: &str, cases: &[Case]) {
    for device in devices() {
        let mut tally = Tally::new(format!("{what} on {device}"));
        for case in cases {
            tally.ran(&check(&device, case));
        }
        tally.finish();
    }
    report_missing_gpu(what, cases.len());
}

#[test]
fn probabilities_and_gradients() {
    let cases = cases();
    by_turns("softmax over rows", cases.len(), |device, turn, _| check(device, &cases[turn]));
}

#[test]
fn rows_of_probabilities_sum_to_one() {
    let mut rng = SplitMix64::new(23);
    let mut lengths: Vec<usize> = (0..40).map(|_| rng.below(130)).collect();
    lengths.push(2500);
    for spread in [0.5, 20.0, 1e6] {
        let case = Case::new("sums", &lengths, (1.0, spread), &mut rng);
        for device in devices() {
            let [p, ..] = run(&device, &case);
            let scaled = case.scaled();
            for row in 0..case.pattern.rows() {
                let entries = case.pattern.row_range(row);
                if entries.is_empty() {
                    continue;
                }
                let sum: f64 = p[entries.clone()].iter().map(|&p| f64::from(p)).sum();
                let bound: f64 = reference(&scaled[entries.clone()]).1.iter().sum();
                assert!((sum - 1.0).abs() <= bound, "row {row} of {} sums to {sum}, {device}", entries.len());
                assert!(p[entries].iter().all(|p| (0.0..=1.0 + 1e-5).contains(p)));
            }
        }
    }
    report_missing_gpu("sums of probabilities", 3);
}

#[test]
fn scores_of_any_magnitude() {
    let mut rng = SplitMix64::new(29);
    let mut cases = Vec::new();
    for scale in [1.0, 0.5, -1.0, 1e-30] {
        let mut case = Case::new("large", &[3, 20, 100, 700], (scale, 1e30), &mut rng);
        // Among the largest there are equals, which share the row.
        for row in 0..4 {
            let entries = case.pattern.row_range(row);
            (case.scores[entries.start], case.scores[entries.end - 1]) = (1e30, 1e30);
            case.scores[entries.start + 1] = -1e30;
        }
        cases.push(case);
    }
    check_all("softmax of large scores", &cases);
    let device = Device::cpu();
    let [p, ..] = run(&device, &cases[0]);
    assert_eq!(p[..3], [0.5, 0.0, 0.5]);
}

/// Rows in which something is not finite, between rows in which all is.
fn not_finite(scale: f32) -> Case {
    let mut rng = SplitMix64::new(31);
    let lengths = [5, 9, 9, 9, 9, 9, 5, 700, 700, 700, 700, 5, 1, 1, 1];
    let mut case = Case::new("not finite", &lengths, (scale, 4.0), &mut rng);
    let row = |r: usize| case.pattern.row_range(r);
    let (infinity, nan) = (f32::INFINITY, f32::NAN);
    for (r, at, value) in [
        (1, 8, nan),
        (2, 3, infinity),
        (3, 0, -infinity),
        (4, 4, -infinity),
        (4, 5, infinity),
        (7, 699, nan),
        (8, 0, infinity),
        (9, 350, -infinity),
        (12, 0, nan),
        (13, 0, infinity),
        (14, 0, -infinity),
    ] {
        case.scores[row(r).start + at] = value;
    }
    for r in [5, 10] {
        let entries = row(r);
        case.scores[entries].fill(-infinity);
    }
    case
}

/// Promise, zero and not-a-number: softmax and its gradient of a row that is not finite leave other rows alone.
#[test]
fn what_is_not_finite_stays_in_its_row() {
    check_all("softmax of what is not finite", &[not_finite(1.0), not_finite(0.5), not_finite(-1.0)]);
    for device in devices() {
        let case = not_finite(1.0);
        let [p, ..] = run(&device, &case);
        let row = |r: usize| &p[case.pattern.row_range(r)];
        for r in [1, 2, 4, 5, 7, 8, 10, 12, 13, 14] {
            assert!(row(r).iter().all(|p| p.is_nan()), "row {r} on {device}");
        }
        for (r, at) in [(3, 0), (9, 350)] {
            assert_eq!(row(r)[at], 0.0, "row {r} on {device}");
        }
        for r in [0, 3, 6, 9, 11] {
            assert!(row(r).iter().all(|p| p.is_finite()), "row {r} on {device}");
        }
        // Nothing times infinity is no number.
        let [p, ..] = run(&device, &not_finite(0.0));
        for r in [1, 2, 3, 5, 9] {
            assert!(p[case.pattern.row_range(r)].iter().all(|p| p.is_nan()), "row {r} on {device}");
        }
        assert_eq!(p[case.pattern.row_range(0)], [0.2; 5]);
    }
}

/// Promise, zero and not-a-number: softmax and its gradient of a row that is not finite leave other rows alone.
#[test]
fn gradients_that_are_not_finite_stay_in_their_row() {
    let mut rng = SplitMix64::new(37);
    for device in devices() {
        let mut case = Case::new("gradients", &[6, 6, 6, 900, 900, 900], (1.0, 2.0), &mut rng);
        for (r, value) in [(1, f32::NAN), (4, f32::INFINITY)] {
            let at = case.pattern.row_range(r).start + 2;
            case.gradient[at] = value;
        }
        let [_, _, of_scores] = run(&device, &case);
        for r in 0..6 {
            let finite = of_scores[case.pattern.row_range(r)].iter().filter(|x| x.is_finite()).count();
            let expected = if r == 1 || r == 4 { 0 } else { case.pattern.row_len(r) };
            assert_eq!(finite, expected, "row {r} on {device}");
        }
    }
    report_missing_gpu("gradients that are not finite", 1);
}

/// Promise, determinism: softmax over rows and its gradient have the same bits in whatever order blocks, warps and
/// lanes get on.
#[test]
fn every_schedule_gives_the_same_bits() {
    let mut rng = SplitMix64::new(41);
    let lengths: Vec<usize> = (0..60).map(|_| rng.below(90)).chain([640, 2100]).collect();
    let case = Case::new("bits", &lengths, (0.7, 6.0), &mut rng);
    let all = |device: &Device| run(device, &case).map(|values| bits(&values));
    let expected = all(&Device::emulator(EmulatorSchedule::InOrder));
    for schedule in EmulatorSchedule::STANDARD {
        let device = Device::emulator(schedule);
        assert_eq!(all(&device), expected, "{device}");
    }
    let cpu = all(&Device::cpu());
    assert!((0..10).all(|_| all(&Device::cpu()) == cpu));
    if let Some(gpu) = gpu() {
        let first = all(&gpu);
        assert!((0..20).all(|_| all(&gpu) == first));
    }
    report_missing_gpu("bits of softmax", 1);
}

#[test]
fn what_does_not_fit_is_refused() {
    let pattern = Csr::from_dense(2, 3, &[1.0f32, 0.0, 2.0, 0.0, 3.0, 0.0]).unwrap();
    let other = Device::emulator(EmulatorSchedule::InOrder);
    for device in devices() {
        let softmax = RowSoftmax::new(&pattern, &device).unwrap();
        assert_eq!((softmax.rows(), softmax.nnz()), (2, 3));
        assert!(softmax.device().is_same(&device));
        assert_eq!(format!("{softmax:?}"), format!("RowSoftmax(2 rows, 3 entries, on {device})"));
        let buffer = |len: usize| DeviceBuffer::<f32>::alloc_zeroed(&device, len).unwrap();
        let (fits, mut out, mut short) = (buffer(3), buffer(3), buffer(2));
        let count = |operand| Err(PlanError::ValueCount { operand, found: 2, expected: 3 });
        assert_eq!(softmax.forward(1.0, &short, &mut out), count("the array of scores"));
        assert_eq!(softmax.forward(1.0, &fits, &mut short), count("the result"));
        assert_eq!(softmax.forward_in_place(1.0, &mut short), count("the array of scores"));
        assert_eq!(softmax.backward(1.0, &short, &fits, &mut out), count("the array of probabilities"));
        assert_eq!(softmax.backward(1.0, &fits, &short, &mut out), count("the gradient"));
        assert_eq!(softmax.backward(1.0, &fits, &fits, &mut short), count("the result"));
        let mut elsewhere = DeviceBuffer::<f32>::alloc_zeroed(&other, 3).unwrap();
        let wrong = |result| {
            let Err(PlanError::WrongDevice { operand, .. }) = result else {
                panic!("{result:?} on {device}")
            };
            operand
        };
        assert_eq!(wrong(softmax.forward(1.0, &elsewhere, &mut out)), "the array of scores");
        assert_eq!(wrong(softmax.forward_in_place(1.0, &mut elsewhere)), "the array of scores");
        assert_eq!(wrong(softmax.forward(1.0, &fits, &mut elsewhere)), "the result");
        assert_eq!(wrong(softmax.backward(1.0, &elsewhere, &fits, &mut out)), "the array of probabilities");
        assert_eq!(wrong(softmax.backward(1.0, &fits, &elsewhere, &mut out)), "the gradient");
    }
    report_missing_gpu("refusals of softmax", 1);
}

#[test]
fn a_factor_on_the_device_gives_the_bits_of_the_number() {
    let mut rng = SplitMix64::new(31);
    let case = Case::new("a factor", &LENGTHS, (-1.75, 8.0), &mut rng);
    for device in devices() {
        let softmax = RowSoftmax::new(&case.pattern, &device).unwrap();
        let array = |elements: &[f32]| DeviceBuffer::from_slice(&device, elements).unwrap();
        let (scores, gradient, factors) =
            (array(&case.scores), array(&case.gradient), array(&[9.0, case.scale]));
        let zeros = || array(&vec![0.0; case.scores.len()]);
        let ([mut p, mut in_place, mut of_scores], own) =
            ([zeros(), array(&case.scores), zeros()], device.stream());
        let factor = factors.view().get(1..2).unwrap();
        softmax.forward_on(&own, factor, &scores, &mut p).unwrap();
        softmax.forward_in_place_on(&own, factor, &mut in_place).unwrap();
        softmax.backward_on(&own, factor, [p.view(), gradient.view()], &mut of_scores).unwrap();
        let (mut want, mut want_of_scores) = (zeros(), zeros());
        softmax.forward(case.scale, &scores, &mut want).unwrap();
        softmax.backward(case.scale, &want, &gradient, &mut want_of_scores).unwrap();
        let bits = |array: &DeviceBuffer<f32>| {
            array.to_vec().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        assert!(bits(&p) == bits(&want) && bits(&in_place) == bits(&want), "{device}");
        assert!(bits(&of_scores) == bits(&want_of_scores), "{device}");

        assert!(factors.view().get(1..3).is_none() && factors.view().get(3..3).is_none());
        let two = softmax.forward_on(&own, factors.view(), &scores, &mut p).unwrap_err();
        assert!(matches!(two, PlanError::ValueCount { found: 2, .. }), "{two}");
    }
    report_missing_gpu("factors on the device", 3);
}

//! The dense operations of training, on every device, against f64 references.

use crate::common::{devices, gpu, report_missing_gpu};
use windrow::training::{
    Adam, ColumnSums, CrossEntropy, MIN_NORM, Moments, add_bias, add_bias_relu, normalize_rows,
    normalize_rows_backward, normalize_rows_backward_on, relu, relu_backward, round_into, round_into_on,
};
use windrow::{
    Device, DeviceBuffer, DeviceMatrix, EmulatorSchedule, PlanError, TrainingError, Value, bf16, f16,
};
use windrow_testkit::SplitMix64;

const UNIT: f64 = windrow_testkit::UNIT_FMA;

/// Shapes around a quad, a warp, what a warp takes at a time and a block; and elements from row to row beyond
/// the columns.
const SHAPES: [(usize, usize, usize); 13] = [
    (1, 1, 0),
    (9, 3, 0),
    (70, 4, 0),
    (3, 5, 3),
    (5, 16, 0),
    (4, 16, 1),
    (2, 31, 2),
    (17, 33, 3),
    (3, 64, 4),
    (2, 127, 1),
    (9, 128, 0),
    (3, 261, 3),
    (2, 1030, 2),
];

/// A matrix in device memory whose rows are `padding` elements apart, with a mark between them.
fn place<T: Value>(
    device: &Device,
    elements: &[T],
    (rows, cols, padding): (usize, usize, usize),
) -> DeviceMatrix<T> {
    let ld = cols + padding;
    let mut placed = vec![T::from_f32(-77.0); rows * ld];
    for (r, row) in elements.chunks(cols.max(1)).enumerate() {
        placed[r * ld..][..cols].copy_from_slice(row);
    }
    DeviceMatrix::from_buffer(DeviceBuffer::from_slice(device, &placed).unwrap(), rows, cols, ld).unwrap()
}

/// The elements; what is between the rows must not have been written.
#[track_caller]
fn elements<T: Value>(matrix: &DeviceMatrix<T>) -> Vec<T> {
    let all = matrix.buffer().to_vec().unwrap();
    let padding = all.chunks(matrix.ld()).flat_map(|row| &row[matrix.cols()..]);
    assert!(padding.into_iter().all(|&x| x == T::from_f32(-77.0)), "written beyond the columns");
    matrix.download().unwrap()
}

fn random(len: usize, rng: &mut SplitMix64) -> Vec<f32> {
    (0..len).map(|_| rng.real()).collect()
}

/// The bits; one NaN is like another, for a GPU has its own.
fn bits(elements: &[f32]) -> Vec<u32> {
    elements.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

#[track_caller]
fn assert_close(got: f32, want: f64, bound: f64, what: &str) {
    assert!((f64::from(got) - want).abs() <= bound, "{what}: {got} instead of {want}, beyond {bound:e}");
}

/// Numbers that a comparison with zero may take for others, and some that it may not.
const SPECIAL: [f32; 8] = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, -1e-40, 7e4];

#[test]
fn bias_and_relu() {
    let mut rng = SplitMix64::new(1);
    for device in devices() {
        for shape in SHAPES {
            let (rows, cols, _) = shape;
            let mut x = random(rows * cols, &mut rng);
            x.iter_mut().zip(SPECIAL).for_each(|(x, special)| *x = special);
            let bias = random(cols, &mut rng);
            let biased: Vec<f32> = x.iter().zip(bias.iter().cycle()).map(|(x, b)| x + b).collect();
            let rectified =
                |x: &[f32]| x.iter().map(|&x| if x <= 0.0 { 0.0 } else { x }).collect::<Vec<f32>>();
            let row = place(&device, &bias, (1, cols, 0));
            let run = |work: &dyn Fn(&mut DeviceMatrix<f32>) -> Result<(), TrainingError>| {
                let mut placed = place(&device, &x, shape);
                work(&mut placed).unwrap();
                bits(&elements(&placed))
            };
            assert_eq!(run(&|x| add_bias(x, &row)), bits(&biased), "{shape:?} on {device}");
            assert_eq!(run(&|x| add_bias_relu(x, &row)), bits(&rectified(&biased)), "{shape:?} on {device}");
            assert_eq!(run(&relu), bits(&rectified(&x)), "{shape:?} on {device}");

            let gradient = random(rows * cols, &mut rng);
            let gated = gradient.iter().zip(&x).map(|(&g, &y)| if y <= 0.0 { 0.0 } else { g });
            let mut placed = place(&device, &gradient, shape);
            relu_backward(&mut placed, &place(&device, &x, (rows, cols, 0))).unwrap();
            assert_eq!(bits(&elements(&placed)), bits(&gated.collect::<Vec<_>>()), "{shape:?} on {device}");
        }
    }
    report_missing_gpu("bias and ReLU", SHAPES.len());
}

#[test]
fn rounding_to_16_bits() {
    let mut rng = SplitMix64::new(2);
    for device in devices() {
        for shape in SHAPES {
            let (rows, cols, _) = shape;
            let mut x = random(rows * cols, &mut rng);
            x.iter_mut().zip(SPECIAL).for_each(|(x, special)| *x = special);
            let from = place(&device, &x, (rows, cols, 1));
            let same = |got: f32, want: f32| got == want || got.is_nan() && want.is_nan();
            for scale in [1.0, 64.0] {
                let mut half = place(&device, &vec![f16::ONE; rows * cols], shape);
                round_into(scale, &from, &mut half).unwrap();
                for (got, x) in elements(&half).into_iter().zip(&x) {
                    assert!(
                        same(got.to_f32(), f16::from_f32(scale * x).to_f32()),
                        "{x}, {shape:?} on {device}"
                    );
                }
                let mut half = place(&device, &vec![bf16::ONE; rows * cols], shape);
                round_into(scale, &from, &mut half).unwrap();
                for (got, x) in elements(&half).into_iter().zip(&x) {
                    assert!(
                        same(got.to_f32(), bf16::from_f32(scale * x).to_f32()),
                        "{x}, {shape:?} on {device}"
                    );
                }
            }
            let mut copy = place(&device, &vec![1.0f32; rows * cols], shape);
            round_into(1.0, &from, &mut copy).unwrap();
            assert_eq!(bits(&elements(&copy)), bits(&x));
        }
    }
    report_missing_gpu("rounding", 5 * SHAPES.len());
}

/// The numbers of one row: loss, gradient, predicted class.
fn cross_entropy(logits: &[f32], label: usize, weight: f32) -> (f64, Vec<f64>, usize) {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - f64::from(max)).exp()).sum();
    let w = f64::from(weight);
    let loss = w * (sum.ln() - (f64::from(logits[label]) - f64::from(max)));
    let share = |&x: &f32| w * (f64::from(x) - f64::from(max)).exp() / sum;
    let mut gradient: Vec<f64> = logits.iter().map(share).collect();
    gradient[label] -= w;
    (loss, gradient, logits.iter().position(|&x| x == max).unwrap())
}

#[test]
fn cross_entropy_and_its_gradient() {
    let mut rng = SplitMix64::new(3);
    for device in devices() {
        for shape in SHAPES {
            let (rows, classes, _) = shape;
            for spread in [0.0, 3.0, 300.0] {
                let logits: Vec<f32> = random(rows * classes, &mut rng).iter().map(|x| x * spread).collect();
                let labels: Vec<u32> =
                    (0..rows).map(|_| u32::try_from(rng.below(classes)).unwrap()).collect();
                let weights: Vec<f32> = (0..rows).map(|r| [0.0, 0.25, 1.5][(r + rng.below(2)) % 3]).collect();
                let mut loss = CrossEntropy::new(&device, classes, &labels, &weights).unwrap();
                let mut gradient = place(&device, &vec![f32::NAN; rows * classes], shape);
                loss.run(&place(&device, &logits, shape), &mut gradient).unwrap();
                let (got, outcome) = (elements(&gradient), loss.outcome().unwrap());
                let (mut total, mut right, mut largest) = (0.0, [0, 0], 0.0f64);
                for r in 0..rows {
                    let row = &logits[r * classes..][..classes];
                    let (loss, want, predicted) = cross_entropy(row, labels[r] as usize, weights[r]);
                    total += loss;
                    largest += f64::from(weights[r]) * (1.0 + f64::from(spread));
                    right[usize::from(weights[r] == 0.0)] += usize::from(predicted == labels[r] as usize);
                    for (c, (&got, &want)) in got[r * classes..].iter().zip(&want).enumerate() {
                        let w = f64::from(weights[r]);
                        let relative = 2.25 * 4.0 * f64::from(spread) + classes as f64 + 20.0;
                        let bound = (relative * (want.abs() + w * 1e-3).min(w) + w) * UNIT;
                        assert_close(
                            got,
                            want,
                            bound,
                            &format!("row {r}, class {c}, spread {spread}, {device}"),
                        );
                    }
                }
                assert_close(
                    outcome.loss,
                    total,
                    200.0 * UNIT * largest.max(1.0),
                    &format!("loss on {device}"),
                );
                assert_eq!([outcome.right_weighted, outcome.right_others], right, "{shape:?} on {device}");
            }
        }
    }
    report_missing_gpu("cross-entropy", 3 * SHAPES.len());
}

#[test]
fn rows_without_weight_have_no_gradient_whatever_they_hold() {
    for device in devices() {
        let logits = [f32::NAN, 1.0, f32::INFINITY, f32::INFINITY, 1.0, 2.0, 1e38, -1e38];
        let mut loss = CrossEntropy::new(&device, 2, &[1, 0, 1, 0], &[0.0, 0.0, 1.0, 0.0]).unwrap();
        let mut gradient = place(&device, &[9.0; 8], (4, 2, 0));
        loss.run(&place(&device, &logits, (4, 2, 0)), &mut gradient).unwrap();
        let got = elements(&gradient);
        assert_eq!((&got[..4], &got[6..]), (&[0.0; 4][..], &[0.0; 2][..]), "{device}");
        let outcome = loss.outcome().unwrap();
        assert_close(outcome.loss, (1.0 + (-1.0f64).exp()).ln(), 1e-6, "loss");
        assert_eq!(
            (outcome.right_weighted, outcome.right_others),
            (1, 3),
            "a NaN is never the largest, {device}"
        );
    }
    report_missing_gpu("rows without weight", 1);
}

#[test]
fn rows_of_length_one_and_their_gradient() {
    let mut rng = SplitMix64::new(5);
    for device in devices() {
        for shape in SHAPES {
            let (rows, cols, _) = shape;
            let mut x = random(rows * cols, &mut rng);
            x[..cols].fill(if rows > 1 { 0.0 } else { 1e-3 });
            let (g, before) = (random(rows * cols, &mut rng), random(rows * cols, &mut rng));
            let mut y = place(&device, &vec![f32::NAN; rows * cols], shape);
            let mut inverse_norms = DeviceBuffer::alloc_zeroed(&device, rows).unwrap();
            normalize_rows(&place(&device, &x, shape), &mut y, &mut inverse_norms).unwrap();
            let mut out = place(&device, &before, shape);
            normalize_rows_backward(0.7, (&y, &inverse_norms), &place(&device, &g, shape), &mut out).unwrap();
            let (y, inverse_norms, out) = (elements(&y), inverse_norms.to_vec().unwrap(), elements(&out));
            let terms = cols as f64 + 10.0;
            for r in 0..rows {
                let row =
                    |m: &[f32]| m[r * cols..][..cols].iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
                let (x, g, before) = (row(&x), row(&g), row(&before));
                let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
                let inverse = if norm <= f64::from(MIN_NORM) { 0.0 } else { 1.0 / norm };
                assert_close(inverse_norms[r], inverse, terms * UNIT * inverse, "an inverse norm");
                let along: f64 = x.iter().zip(&g).map(|(x, g)| x * inverse * g).sum();
                let along_abs: f64 = x.iter().zip(&g).map(|(x, g)| (x * inverse * g).abs()).sum();
                for c in 0..cols {
                    let what = format!("({r}, {c}) of {shape:?} on {device}");
                    assert_close(
                        y[r * cols + c],
                        x[c] * inverse,
                        terms * UNIT * (x[c] * inverse).abs(),
                        &what,
                    );
                    let want = before[c] + f64::from(0.7f32) * inverse * (g[c] - x[c] * inverse * along);
                    let sums = g[c].abs() + 3.0 * (x[c] * inverse).abs() * along_abs;
                    let bound = terms * UNIT * (0.7 * inverse * sums + before[c].abs());
                    assert_close(out[r * cols + c], want, bound, &what);
                }
            }
        }
    }
    report_missing_gpu("rows of length 1", SHAPES.len());
}

#[test]
fn a_factor_on_the_device_gives_the_bits_of_the_number() {
    let (shape, mut rng) = ((17, 33, 3), SplitMix64::new(7));
    let [x, g, before]: [Vec<f32>; 3] = std::array::from_fn(|_| (0..17 * 33).map(|_| rng.real()).collect());
    for device in devices() {
        let (mut y, mut inverse_norms) =
            (place(&device, &x, shape), DeviceBuffer::alloc_zeroed(&device, shape.0).unwrap());
        normalize_rows(&place(&device, &x, shape), &mut y, &mut inverse_norms).unwrap();
        let (g, [mut by_number, mut by_place]) =
            (place(&device, &g, shape), [(); 2].map(|()| place(&device, &before, shape)));
        normalize_rows_backward(0.7, (&y, &inverse_norms), &g, &mut by_number).unwrap();
        let factor = DeviceBuffer::from_slice(&device, &[0.7f32]).unwrap();
        let normalized = (y.view(), inverse_norms.view());
        let own = device.stream();
        normalize_rows_backward_on(&own, factor.view(), normalized, &g, &mut by_place).unwrap();
        assert_eq!(bits(&elements(&by_place)), bits(&elements(&by_number)), "{device}");
        assert_ne!(elements(&by_place), before);
        let two = DeviceBuffer::from_slice(&device, &[0.7f32; 2]).unwrap();
        let error = normalize_rows_backward_on(&own, two.view(), normalized, &g, &mut by_place).unwrap_err();
        let refused = |error: &TrainingError| {
            matches!(error, TrainingError::Plan(PlanError::ValueCount { found: 2, .. }))
        };
        assert!(refused(&error), "{error}");
        let x = place(&device, &x, shape);
        let [mut by_number, mut by_place] = [(); 2].map(|()| place(&device, &before, shape));
        round_into(0.7, &x, &mut by_number).unwrap();
        round_into_on(&own, factor.view(), &x, &mut by_place).unwrap();
        assert_eq!(bits(&elements(&by_place)), bits(&elements(&by_number)), "{device}");
        let [mut by_number, mut by_place] = [(); 2].map(|()| place(&device, &[f16::ONE; 17 * 33], shape));
        round_into(0.7, &x, &mut by_number).unwrap();
        round_into_on(&own, factor.view(), &x, &mut by_place).unwrap();
        assert_eq!(elements(&by_place), elements(&by_number), "{device}");
        let error = round_into_on(&own, two.view(), &x, &mut by_place).unwrap_err();
        assert!(refused(&error), "{error}");
    }
    report_missing_gpu("factors on the device", 1);
}

#[test]
fn sums_of_columns_and_products() {
    let mut rng = SplitMix64::new(6);
    let many = [(1300, 5, 1), (66_000, 2, 0)];
    for device in devices() {
        let mut sums = ColumnSums::new(&device, 1030).unwrap();
        for shape in SHAPES.into_iter().chain(many) {
            let (rows, cols, _) = shape;
            // Whole numbers: every sum is exact in whatever order.
            let x: Vec<f32> = (0..rows * cols).map(|_| rng.integer()).collect();
            let y: Vec<f32> = (0..rows * cols).map(|_| rng.integer()).collect();
            let (placed_x, placed_y) = (place(&device, &x, shape), place(&device, &y, (rows, cols, 2)));
            let mut out = place(&device, &vec![f32::NAN; cols], (1, cols, 3));
            sums.sum(&placed_x, &mut out).unwrap();
            let want: Vec<f32> = (0..cols).map(|c| x[c..].iter().step_by(cols).sum()).collect();
            assert_eq!(elements(&out), want, "{shape:?} on {device}");
            let mut dot = place(&device, &[1.0, f32::NAN, 2.0], (1, 3, 0));
            sums.dot(&placed_x, &placed_y, (&mut dot, 1)).unwrap();
            let want: f32 = x.iter().zip(&y).map(|(x, y)| x * y).sum();
            assert_eq!(elements(&dot), [1.0, want, 2.0], "{shape:?} on {device}");
            // Reals: within the bound.
            let x = random(rows * cols, &mut rng);
            sums.sum(&place(&device, &x, shape), &mut out).unwrap();
            for (c, got) in elements(&out).into_iter().enumerate() {
                let column = || x[c..].iter().step_by(cols).map(|&x| f64::from(x));
                let additions = rows.div_ceil(1024).max(64).div_ceil(8) + 142;
                let bound = 1.01 * UNIT * additions as f64 * column().map(f64::abs).sum::<f64>();
                assert_close(got, column().sum(), bound, "a sum of reals");
            }
        }
        let mut out = place(&device, &[f32::NAN; 3], (1, 3, 0));
        sums.sum(&DeviceMatrix::zeros(&device, 0, 3).unwrap(), &mut out).unwrap();
        assert_eq!(elements(&out), [0.0; 3], "no rows");
    }
    report_missing_gpu("sums of columns", 3 * (SHAPES.len() + many.len()));
}

/// Parameters after a few steps.
fn adam_steps(device: &Device, shape: (usize, usize, usize)) -> Vec<f32> {
    let (rows, cols, padding) = shape;
    let mut rng = SplitMix64::new(7);
    let adam = Adam { learning_rate: 0.03, ..Adam::default() };
    let mut parameter = place(device, &random(rows * cols, &mut rng), shape);
    let mut moments = Moments::of(&parameter).unwrap();
    for step in 1..=4 {
        let gradient = place(device, &random(rows * cols, &mut rng), (rows, cols, padding + 1));
        adam.step(&mut parameter, &gradient, &mut moments).unwrap();
        assert_eq!(moments.steps(), step);
    }
    elements(&parameter)
}

#[test]
fn adam_takes_the_steps_of_its_formula() {
    for shape in SHAPES {
        let (rows, cols, _) = shape;
        let mut rng = SplitMix64::new(7);
        let mut p: Vec<f64> = random(rows * cols, &mut rng).into_iter().map(f64::from).collect();
        let (mut m, mut v) = (vec![0.0; p.len()], vec![0.0; p.len()]);
        for t in 1..=4 {
            for (i, g) in random(rows * cols, &mut rng).into_iter().map(f64::from).enumerate() {
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.999 * v[i] + 0.001 * g * g;
                let (mean, square) = (m[i] / (1.0 - 0.9f64.powi(t)), v[i] / (1.0 - 0.999f64.powi(t)));
                p[i] -= 0.03 * mean / (square.sqrt() + 1e-8);
            }
        }
        let cpu = adam_steps(&Device::cpu(), shape);
        for (&got, &want) in cpu.iter().zip(&p) {
            assert_close(got, want, 3e-6, "a parameter");
        }
        for device in devices() {
            assert_eq!(bits(&adam_steps(&device, shape)), bits(&cpu), "{shape:?} on {device}");
        }
    }
    report_missing_gpu("Adam", SHAPES.len());
}

/// Promise, determinism: the dense operations of training give the same bits twice.
#[test]
fn two_runs_give_the_same_bits() {
    let shape = (700, 33, 2);
    let run = |device: &Device| {
        let mut rng = SplitMix64::new(8);
        let x = place(device, &random(700 * 33, &mut rng), shape);
        let (mut sums, mut out) =
            (ColumnSums::new(device, 33).unwrap(), place(device, &[0.0; 33], (1, 33, 0)));
        sums.sum(&x, &mut out).unwrap();
        let labels: Vec<u32> = (0..700).map(|r| r % 33).collect();
        let mut loss = CrossEntropy::new(device, 33, &labels, &[0.1; 700]).unwrap();
        let mut gradient = place(device, &vec![0.0; 700 * 33], shape);
        loss.run(&x, &mut gradient).unwrap();
        let mut inverse_norms = DeviceBuffer::alloc_zeroed(device, 700).unwrap();
        let mut y = place(device, &vec![0.0; 700 * 33], shape);
        normalize_rows(&x, &mut y, &mut inverse_norms).unwrap();
        let found = [elements(&out), elements(&gradient), elements(&y), vec![loss.outcome().unwrap().loss]];
        found.map(|elements| bits(&elements))
    };
    let expected = run(&Device::emulator(EmulatorSchedule::InOrder));
    for schedule in EmulatorSchedule::STANDARD {
        assert_eq!(run(&Device::emulator(schedule)), expected, "{schedule:?}");
    }
    let cpu = run(&Device::cpu());
    assert!((0..5).all(|_| run(&Device::cpu()) == cpu));
    if let Some(gpu) = gpu() {
        let first = run(&gpu);
        assert!((0..10).all(|_| run(&gpu) == first));
    }
    report_missing_gpu("bits of training", 1);
}

#[test]
fn what_does_not_fit_is_refused() {
    let other = Device::emulator(EmulatorSchedule::InOrder);
    for device in devices() {
        let zeros = |rows, cols| DeviceMatrix::<f32>::zeros(&device, rows, cols).unwrap();
        let norms = |len| DeviceBuffer::<f32>::alloc_zeroed(&device, len).unwrap();
        let shape = |operand, found, expected| {
            Err(TrainingError::Plan(PlanError::OperandShape { operand, found, expected }))
        };
        assert_eq!(add_bias(&mut zeros(4, 3), &zeros(1, 4)), shape("the bias", (1, 4), (1, 3)));
        assert_eq!(add_bias_relu(&mut zeros(4, 3), &zeros(4, 3)), shape("the bias", (4, 3), (1, 3)));
        assert_eq!(
            relu_backward(&mut zeros(4, 3), &zeros(4, 4)),
            shape("the result of ReLU", (4, 4), (4, 3))
        );
        let mut half = DeviceMatrix::<f16>::zeros(&device, 3, 4).unwrap();
        assert_eq!(round_into(1.0, &zeros(4, 3), &mut half), shape("the rounded matrix", (3, 4), (4, 3)));
        let normalized = normalize_rows(&zeros(2, 3), &mut zeros(2, 2), &mut norms(2));
        assert_eq!(normalized, shape("the normalised matrix", (2, 2), (2, 3)));
        let count = Err(TrainingError::Plan(PlanError::ValueCount {
            operand: "the inverse norms",
            found: 3,
            expected: 2,
        }));
        assert_eq!(normalize_rows(&zeros(2, 3), &mut zeros(2, 3), &mut norms(3)), count);
        let backward =
            normalize_rows_backward(1.0, (&zeros(2, 3), &norms(2)), &zeros(2, 3), &mut zeros(3, 3));
        assert_eq!(backward, shape("the result", (3, 3), (2, 3)));
        let mut sums = ColumnSums::new(&device, 3).unwrap();
        assert_eq!(sums.sum(&zeros(2, 4), &mut zeros(1, 4)), shape("the matrix", (2, 4), (2, 3)));
        assert_eq!(sums.sum(&zeros(2, 3), &mut zeros(1, 2)), shape("the sums", (1, 2), (1, 3)));
        let dot = sums.dot(&zeros(2, 3), &zeros(2, 2), (&mut zeros(1, 1), 0));
        assert_eq!(dot, shape("the other factor", (2, 2), (2, 3)));
        for column in [2, usize::MAX] {
            let dot = sums.dot(&zeros(2, 3), &zeros(2, 3), (&mut zeros(1, 2), column));
            let Err(TrainingError::Plan(PlanError::OperandShape {
                operand: "the sum", found: (1, 2), ..
            })) = dot
            else {
                panic!("{dot:?} on {device}")
            };
        }
        let mut sum = place(&device, &[5.0, 6.0], (1, 2, 0));
        sums.dot(&zeros(0, 3), &zeros(0, 3), (&mut sum, 1)).unwrap();
        assert_eq!(elements(&sum), [5.0, 0.0]);
        let mut moments = Moments::of(&zeros(2, 2)).unwrap();
        let stepped = Adam::default().step(&mut zeros(2, 3), &zeros(2, 3), &mut moments);
        assert_eq!(stepped, shape("the mean of gradients", (2, 2), (2, 3)));
        let class = CrossEntropy::new(&device, 3, &[0, 2, 3], &[1.0; 3]).map(|_| ());
        assert_eq!(class, Err(TrainingError::UnknownClass { row: 2, label: 3, classes: 3 }));
        let weight = CrossEntropy::new(&device, 3, &[0, 2], &[1.0, -1.0]).map(|_| ());
        assert_eq!(weight, Err(TrainingError::Weight { row: 1, weight: -1.0 }));
        let weights = CrossEntropy::new(&device, 3, &[0, 2], &[1.0]).map(|_| ());
        assert_eq!(
            weights,
            Err(TrainingError::Plan(PlanError::ValueCount { operand: "the weights", found: 1, expected: 2 }))
        );
        let mut loss = CrossEntropy::new(&device, 3, &[0, 2], &[1.0; 2]).unwrap();
        let logits = loss.run(&zeros(2, 4), &mut zeros(2, 4));
        assert_eq!(logits, shape("the matrix of logits", (2, 4), (2, 3)));
        let elsewhere = DeviceMatrix::<f32>::zeros(&other, 1, 3).unwrap();
        assert!(matches!(
            add_bias(&mut zeros(4, 3), &elsewhere),
            Err(TrainingError::Plan(PlanError::WrongDevice { .. }))
        ));
        // Nothing to do is no error.
        for (rows, cols) in [(0, 3), (3, 0), (0, 0)] {
            relu(&mut zeros(rows, cols)).unwrap();
            add_bias(&mut zeros(rows, cols), &zeros(1, cols)).unwrap();
            normalize_rows(&zeros(rows, cols), &mut zeros(rows, cols), &mut norms(rows)).unwrap();
        }
    }
    report_missing_gpu("refusals of training", 1);
}

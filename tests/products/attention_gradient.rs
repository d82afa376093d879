//! Gradients of attention, on every device, against an f64 model that finite differences hold to account.

use half::{bf16, f16};
use windrow::{
    AttentionAlgorithm, AttentionBackward, AttentionError, AttentionGradients, AttentionOperands,
    AttentionPlan, Device, DeviceBuffer, DeviceKind, Dropout, Element, GraphAttention, PlanError, Precision,
    Stream, Value,
};
use windrow_testkit::{Comparison, SplitMix64, UNIT_FMA, UNIT_MMA};

use crate::attention_case::{
    Case, Kind, PRECISIONS, Scores, kind, lengths, long_rows, no_entries, no_rows, on_device, shared,
};
use crate::common::{by_turns, devices, report_missing_gpu};

/// The gradients of `Q`, `K`, `V`, the bias and the vector, in the layout of each.
type Gradients<T> = [Vec<T>; 5];

/// The gradient of a loss with respect to the result.
fn gradient_of_result(case: &Case) -> Vec<f32> {
    let mut rng = SplitMix64::new(47);
    (0..case.heads * case.a.rows() * case.value_columns).map(|_| rng.real()).collect()
}

fn rounded<T: Value>(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|&x| T::from_f32(x).to_f64()).collect()
}

/// What gradients are, and what each element may be off by, for products and sums of unit roundoff `unit`.
fn model<T: Value>(case: &Case, unit: f64) -> [Gradients<f64>; 2] {
    let (m, n, d, e) = (case.a.rows(), case.a.cols(), case.columns, case.value_columns);
    let of_scores = |numbers| match case.scores.are_additive() {
        true => rounded::<f32>(numbers),
        false => rounded::<T>(numbers),
    };
    let (q, k, v) = (of_scores(&case.q), of_scores(&case.k), rounded::<T>(&case.v));
    let g = rounded::<T>(&gradient_of_result(case));
    let (out, off_out) = case.reference::<T>(unit);
    let (scale, additive) = (f64::from(case.scale), case.scores.are_additive());
    let of_bias = case.bias.as_ref().map_or(0, Vec::len);
    let lengths = [q.len(), k.len(), v.len(), of_bias, case.vector.as_ref().map_or(0, Vec::len)];
    let blank = || lengths.map(|length| vec![0.0; length]);
    let (mut want, mut bounds) = (blank(), blank());
    for (head, row) in (0..case.heads).flat_map(|head| (0..m).map(move |row| (head, row))) {
        let at_q = |c| case.at((m, d), head, row, c);
        let at_out = |c| case.at((m, e), head, row, c);
        let bias_at = |entry: usize| if of_bias > case.a.nnz() { head * case.a.nnz() + entry } else { entry };
        let entries: Vec<_> = case.a.row_range(row).collect();
        let mut off = 0.0f64;
        let (scores, slopes): (Vec<f64>, Vec<f64>) = entries
            .iter()
            .map(|&entry| {
                let [score, of_score, slope] = case.score::<T>((head, row, entry), unit);
                off = off.max(of_score);
                (score, slope)
            })
            .unzip();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if max == f64::NEG_INFINITY {
            continue;
        }
        let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
        // Weights are computed twice: their sum in the forward pass, each of them in the backward one.
        let relative = 5.0 * off + 2.0 * (entries.len() + 24) as f64 * unit;
        let term: f64 = (0..e).map(|c| g[at_out(c)] * out[at_out(c)]).sum();
        let of_term: f64 = (0..e)
            .map(|c| {
                let (g, out, off) = (g[at_out(c)].abs(), out[at_out(c)].abs(), off_out[at_out(c)]);
                g * (off + (e + 6) as f64 * unit * out)
            })
            .sum();
        for ((&entry, &score), &rectified) in entries.iter().zip(&scores).zip(&slopes) {
            let column = case.a.col_indices()[entry] as usize;
            let (at_k, at_v) = (|c| case.at((n, d), head, column, c), |c| case.at((n, e), head, column, c));
            let weight = (score - max).exp() / sum;
            let (mut response, mut of_response) = (0.0, 0.0);
            for c in 0..e {
                let product = g[at_out(c)] * v[at_v(c)];
                response += product;
                of_response += (e + 6) as f64 * unit * product.abs();
                want[2][at_v(c)] += weight * g[at_out(c)];
                bounds[2][at_v(c)] += (relative + (m + 8) as f64 * unit) * weight * g[at_out(c)].abs();
            }
            let slope = weight * (response - term);
            let of_slope = weight * (relative * (response.abs() + term.abs()) + of_response + of_term);
            let (slope, of_slope) = (rectified * slope, rectified.abs() * of_slope);
            for c in 0..d {
                let (of_q, of_k) = (q[at_q(c)], k[at_k(c)]);
                let (q, k) = match &case.vector {
                    _ if additive => (1.0, 1.0),
                    None => (of_q, of_k),
                    Some(vector) => {
                        let (sum, at) = (of_q + of_k, head * d + c);
                        let [rectified, factor] = case.rectified(sum);
                        want[4][at] += scale * slope * rectified;
                        let terms = (entries.len() + m + 16) as f64;
                        bounds[4][at] += scale * rectified.abs() * (of_slope + terms * unit * slope.abs());
                        [factor * f64::from(vector[at]); 2].into()
                    }
                };
                want[0][at_q(c)] += scale * slope * k;
                bounds[0][at_q(c)] +=
                    scale * k.abs() * (of_slope + (entries.len() + 8) as f64 * unit * slope.abs());
                want[1][at_k(c)] += scale * slope * q;
                bounds[1][at_k(c)] += scale * q.abs() * (of_slope + (m + 8) as f64 * unit * slope.abs());
            }
            if of_bias > 0 {
                let factor = if additive { scale } else { 1.0 };
                want[3][bias_at(entry)] += factor * slope;
                bounds[3][bias_at(entry)] += factor * (of_slope + 8.0 * unit * slope.abs());
            }
        }
    }
    [want, bounds]
}

/// What a device makes of a case, scores of `S`: result and gradients, in f32.
fn run<T: Element<Sum = f32>, S: Element<Sum = f32>>(
    plan: &AttentionPlan,
    case: &Case,
    dropout: Option<Dropout>,
    stream: &Stream,
) -> (Vec<f32>, Gradients<f32>) {
    let device = plan.device();
    let (m, n) = (case.a.rows(), case.a.cols());
    let (of_queries, of_result) = (case.shape(m, case.columns), case.shape(m, case.value_columns));
    let (of_keys, of_values) = (case.shape(n, case.columns), case.shape(n, case.value_columns));
    let q = on_device::<S>(device, &case.q, of_queries);
    let (k, v) = (on_device::<S>(device, &case.k, of_keys), on_device::<T>(device, &case.v, of_values));
    let gradient = on_device::<T>(device, &gradient_of_result(case), of_result);
    let blank = |shape: (usize, usize)| on_device::<f32>(device, &vec![f32::NAN; shape.0 * shape.1], shape);
    let mut out = blank(of_result);
    let mut states = DeviceBuffer::from_slice(device, &vec![f32::NAN; 2 * case.heads * m]).unwrap();
    let numbers = |of: &Option<Vec<f32>>| of.as_ref().map(|of| DeviceBuffer::from_slice(device, of).unwrap());
    let (vector, bias) = (numbers(&case.vector), numbers(&case.bias));
    let operands = || {
        let operands = AttentionOperands::new(&q, &k, &v);
        let operands = vector.iter().fold(operands, |operands, vector| operands.vector(vector));
        let operands = bias.iter().fold(operands, |operands, bias| operands.bias(bias));
        dropout.into_iter().fold(operands, AttentionOperands::dropout)
    };
    plan.forward_on(stream, case.scale, operands().states(&mut states), &mut out).unwrap();
    let (mut of_q, mut of_k, mut of_v) = (blank(of_queries), blank(of_keys), blank(of_values));
    let nans = |of: &Option<DeviceBuffer<f32>>| {
        of.as_ref().map(|of| DeviceBuffer::from_slice(device, &vec![f32::NAN; of.len()]).unwrap())
    };
    let (mut of_bias, mut of_vector) = (nans(&bias), nans(&vector));
    let found = AttentionGradients::new(&mut of_q, &mut of_k, &mut of_v);
    let found = of_bias.iter_mut().fold(found, |found, bias| found.bias(bias));
    let found = of_vector.iter_mut().fold(found, |found, vector| found.vector(vector));
    plan.backward_on(stream, case.scale, AttentionBackward::new(operands(), &states, &out, &gradient), found)
        .unwrap_or_else(|error| panic!("{} on {device}: {error}\n{}", case.name, plan.report()));
    let of_numbers = |of: Option<DeviceBuffer<f32>>| of.map_or(Vec::new(), |of| of.to_vec().unwrap());
    let [of_q, of_k, of_v] = [of_q, of_k, of_v].map(|of| of.download().unwrap());
    let gradients = [of_q, of_k, of_v, of_numbers(of_bias), of_numbers(of_vector)];
    (out.download().unwrap(), gradients)
}

fn run_kind(plan: &AttentionPlan, kind: Kind, case: &Case, stream: &Stream) -> (Vec<f32>, Gradients<f32>) {
    match (kind.precision, case.scores.are_additive()) {
        (Precision::F16, false) => run::<f16, f16>(plan, case, None, stream),
        (Precision::F16, true) => run::<f16, f32>(plan, case, None, stream),
        (Precision::Bf16, false) => run::<bf16, bf16>(plan, case, None, stream),
        (Precision::Bf16, true) => run::<bf16, f32>(plan, case, None, stream),
        _ => run::<f32, f32>(plan, case, None, stream),
    }
}

fn plan(case: &Case, kind: Kind, device: &Device) -> AttentionPlan {
    let mut options = case.options(kind);
    options.gradients = true;
    GraphAttention::builder(&case.a).options(options).build(device).unwrap()
}

/// Compares all gradients with the model.
pub(crate) fn check(device: &Device, kind: Kind, case: &Case) -> Comparison {
    let plan = plan(case, kind, device);
    let unit = if device.kind() == DeviceKind::Cpu { UNIT_FMA } else { UNIT_MMA };
    let stream = device.stream();
    let ((_, got), [want, bounds]) = match kind.precision {
        Precision::F16 => (run_kind(&plan, kind, case, &stream), model::<f16>(case, unit)),
        Precision::Bf16 => (run_kind(&plan, kind, case, &stream), model::<bf16>(case, unit)),
        _ => (run_kind(&plan, kind, case, &stream), model::<f32>(case, unit)),
    };
    let mut comparison = Comparison::default();
    for (of, ((got, want), bounds)) in got.iter().zip(&want).zip(&bounds).enumerate() {
        assert_eq!(got.len(), want.len());
        comparison.elements += want.len();
        for (i, ((&got, &want), &bound)) in got.iter().zip(want).zip(bounds).enumerate() {
            if !want.is_finite() {
                comparison.failures += usize::from(got.is_finite());
                continue;
            }
            let off = (f64::from(got) - want).abs();
            let ratio = if off == 0.0 { 0.0 } else { off / (bound + 1e-30) };
            let ratio = if ratio.is_nan() { f64::INFINITY } else { ratio };
            comparison.failures += usize::from(ratio > 1.0);
            if ratio > comparison.worst_ratio || comparison.worst_at.is_none() {
                (comparison.worst_ratio, comparison.worst_at) = (ratio, Some((of, i)));
                (comparison.got, comparison.want) = (f64::from(got), want);
            }
        }
    }
    assert!(comparison.passed(), "{} on {device}, {kind:?}: {comparison}\n{}", case.name, plan.report());
    comparison
}

/// Compares the gradients of cases in every precision, by the algorithm that is chosen for them, on every device.
pub(crate) fn check_all(what: &str, cases: &[Case]) {
    for precision in PRECISIONS {
        let kind = kind(AttentionAlgorithm::Auto, None, precision);
        by_turns(&format!("{what}, {precision}"), cases.len(), |device, turn, _| {
            check(device, kind, &cases[turn])
        });
    }
}

fn kinds() -> Vec<Kind> {
    let mut kinds = vec![kind(AttentionAlgorithm::Auto, None, Precision::F32)];
    for precision in [Precision::F16, Precision::Bf16] {
        kinds.push(kind(AttentionAlgorithm::Auto, None, precision));
        kinds.push(kind(AttentionAlgorithm::Entries, Some(4), precision));
    }
    kinds
}

#[test]
fn gradients_of_every_width() {
    let reals = Scores::Reals;
    let cases = [
        Case::new("no rows", &no_rows(), [1, 8, 8], reals),
        Case::new("no entries", &no_entries(), [2, 16, 8], reals),
        Case::new("lengths", &lengths(), [1, 32, 32], reals),
        Case::new("lengths", &lengths(), [2, 8, 24], reals),
        Case::new("lengths", &lengths(), [1, 64, 16], reals),
        Case::new("lengths", &lengths(), [1, 40, 128], reals),
        Case::new("lengths", &lengths(), [1, 136, 256], reals),
        Case::new("lengths", &lengths(), [1, 32, 32], Scores::Large),
        Case::new("lengths", &lengths(), [1, 32, 32], Scores::Negative),
        Case::new("lengths", &lengths(), [1, 32, 32], Scores::Zero),
        Case::new("long rows", &long_rows(), [2, 32, 32], reals),
        Case::new("long rows", &long_rows(), [1, 64, 96], Scores::Large),
        Case::new("heads together", &lengths(), [8, 8, 8], reals),
        Case::new("heads together", &long_rows(), [4, 64, 64], reals),
        Case::new("heads together", &long_rows(), [6, 16, 16], reals),
        Case::new("shared columns", &shared(), [3, 16, 32], reals).stacked(),
    ];
    for kind in kinds() {
        by_turns(&format!("gradients of attention {kind:?}"), cases.len(), |device, turn, _| {
            check(device, kind, &cases[turn])
        });
    }
}

#[test]
fn gradients_of_any_alignment_and_long_columns() {
    let mut long_columns = Case::new("long columns", &long_rows(), [2, 8, 16], Scores::Reals);
    long_columns.a = long_rows().transpose().unwrap();
    std::mem::swap(&mut long_columns.q, &mut long_columns.k);
    let of_values = long_columns.heads * long_columns.a.cols() * long_columns.value_columns;
    long_columns.v.truncate(of_values);
    let cases = [
        Case::new("lengths", &lengths(), [1, 5, 7], Scores::Reals),
        Case::new("lengths", &lengths(), [2, 33, 12], Scores::Reals),
        Case::new("lengths", &lengths(), [3, 1, 255], Scores::Reals).stacked(),
        Case::new("long rows", &long_rows(), [1, 7, 9], Scores::Reals),
        long_columns,
    ];
    check_all("gradients of any alignment", &cases);
}

/// What is not finite reaches the rows and columns that have an entry with it, and no others: not those of its window.
#[test]
fn gradients_of_operands_that_are_not_finite() {
    let mut cases = Vec::new();
    for (name, a) in [("lengths", lengths()), ("long rows", long_rows())] {
        for of in 0..3 {
            let mut case = Case::new(name, &a, [2, 40, 32], Scores::Reals);
            // The row of three entries, and the first column of it.
            let row = (0..a.rows()).find(|&row| a.row_len(row) == 3).unwrap();
            let column = a.col_indices()[a.row_range(row).start] as usize;
            let at = match of {
                0 => case.at((a.rows(), case.columns), 1, row, 7),
                1 => case.at((a.cols(), case.columns), 1, column, 7),
                _ => case.at((a.cols(), case.value_columns), 1, column, 7),
            };
            *element(&mut case, of, at) = if of == 1 { f32::NAN } else { f32::INFINITY };
            let [want, _] = model::<f16>(&case, UNIT_MMA);
            let spoilt = want.iter().flatten().filter(|want| !want.is_finite()).count();
            let all: usize = want.iter().map(Vec::len).sum();
            assert!(spoilt > 0 && 2 * spoilt < all, "{name}, {of}: {spoilt} of {all}");
            cases.push(case);
        }
    }
    check_all("gradients of operands that are not finite", &cases);
}

#[test]
fn gradients_of_a_bias() {
    let cases = [
        Case::new("lengths", &lengths(), [2, 32, 32], Scores::Reals).biased(1),
        Case::new("lengths", &lengths(), [2, 24, 32], Scores::Reals).biased(2),
        Case::new("heads together", &long_rows(), [4, 16, 16], Scores::Reals).biased(4),
        Case::new("long rows", &long_rows(), [3, 32, 16], Scores::Reals).biased(1),
        Case::new("long rows", &long_rows(), [2, 7, 16], Scores::Reals).biased(2),
    ];
    for precision in [Precision::F32, Precision::F16] {
        by_turns(&format!("gradients of a bias, {precision}"), cases.len(), |device, turn, _| {
            check(device, kind(AttentionAlgorithm::Auto, None, precision), &cases[turn])
        });
    }
}

/// The model's own gradients along a random direction, against differences of the f64 forward pass.
#[test]
fn the_model_is_the_slope_of_the_forward_pass() {
    // Across a kink of the rectifier, which some sums are near, differences are not the slope.
    let case = || Case::new("lengths", &lengths(), [2, 8, 12], Scores::Reals).biased(2);
    compare_with_differences(case, 2e-3);
    compare_with_differences(|| case().additive(0.7), 1e-2);
    compare_with_differences(|| case().gatv2(0.7), 1e-2);
}

fn compare_with_differences(of_case: impl Fn() -> Case, tolerance: f64) {
    let case = of_case();
    let [want, _] = model::<f32>(&case, UNIT_FMA);
    let g: Vec<f64> = rounded::<f32>(&gradient_of_result(&case));
    let loss = |case: &Case| -> f64 {
        case.reference::<f32>(UNIT_FMA).0.iter().zip(&g).map(|(out, g)| out * g).sum()
    };
    // Steps of 2⁻⁶ are added to f32 without much loss; what there is, is taken into account.
    let step = 1.0 / 64.0;
    for of in (0..5).filter(|&of| !want[of].is_empty()) {
        let mut rng = SplitMix64::new(53);
        let (mut up, mut down, mut slope) = (of_case(), of_case(), 0.0);
        for (i, want) in want[of].iter().enumerate() {
            // Uphill, so that nothing cancels.
            let by = if *want < 0.0 { -step } else { step } * rng.real().abs();
            let (of_up, of_down) = (element(&mut up, of, i), element(&mut down, of, i));
            (*of_up, *of_down) = (*of_up + by, *of_down - by);
            if of_up.is_finite() {
                slope += want * f64::from(*of_up - *of_down);
            }
        }
        let difference = loss(&up) - loss(&down);
        assert!(slope.abs() > 1e-3, "{of}: nothing to compare");
        let off = (difference - slope).abs();
        assert!(off < tolerance * slope.abs(), "{}, {of}: {difference} but {slope}", case.name);
    }
}

/// An element of `Q`, `K`, `V`, the bias or the vector.
fn element(case: &mut Case, of: usize, i: usize) -> &mut f32 {
    match of {
        0 => &mut case.q[i],
        1 => &mut case.k[i],
        2 => &mut case.v[i],
        3 => &mut case.bias.as_mut().unwrap()[i],
        _ => &mut case.vector.as_mut().unwrap()[i],
    }
}

/// Dropped weights are those of the forward pass: gradients are its slope, of every operand.
#[test]
fn gradients_with_dropout_are_slopes_of_the_forward_pass() {
    let case = || Case::new("lengths", &lengths(), [2, 8, 8], Scores::Reals).biased(2);
    compare_dropped_with_differences(case, 5e-3);
    compare_dropped_with_differences(|| case().additive(0.7), 1e-2);
    compare_dropped_with_differences(|| case().gatv2(0.7), 1e-2);
    report_missing_gpu("gradients with dropout", 12);
}

fn compare_dropped_with_differences(case: impl Fn() -> Case, tolerance: f64) {
    let dropout = Some(Dropout { rate: 0.4, seed: 11 });
    let kind = kind(AttentionAlgorithm::Auto, None, Precision::F32);
    for device in devices() {
        let g = gradient_of_result(&case());
        let plan = plan(&case(), kind, &device);
        let loss = |case: &Case| -> f64 {
            let (out, _) = run::<f32, f32>(&plan, case, dropout, &device.stream());
            out.iter().zip(&g).map(|(&out, &g)| f64::from(out) * f64::from(g)).sum()
        };
        let (_, gradients) = run::<f32, f32>(&plan, &case(), dropout, &device.stream());
        for (of, gradient) in gradients.iter().enumerate().filter(|(_, gradient)| !gradient.is_empty()) {
            let (mut up, mut down, mut slope) = (case(), case(), 0.0);
            let mut rng = SplitMix64::new(59);
            for (i, &gradient) in gradient.iter().enumerate() {
                let by = rng.real().abs() * gradient.signum() / 64.0; // uphill, so that nothing cancels
                let (of_up, of_down) = (element(&mut up, of, i), element(&mut down, of, i));
                (*of_up, *of_down) = (*of_up + by, *of_down - by);
                if of_up.is_finite() {
                    slope += f64::from(gradient) * f64::from(*of_up - *of_down);
                }
            }
            let difference = loss(&up) - loss(&down);
            assert!(slope.abs() > 1e-2, "{of} on {device}: nothing to compare");
            let off = (difference - slope).abs();
            assert!(
                off < tolerance * slope.abs() + 1e-4,
                "{}, {of} on {device}: {difference} but {slope}",
                case().name
            );
        }
    }
}

/// Promise, determinism: gradients of attention have the same bits in every run, on any stream of a device.
#[test]
fn gradients_agree_to_the_bit() {
    for device in devices() {
        let case = Case::new("long rows", &long_rows(), [2, 24, 40], Scores::Reals).biased(1);
        let plan = plan(&case, kind(AttentionAlgorithm::Auto, None, Precision::F16), &device);
        let bits = |stream: &Stream| {
            let (_, gradients) = run::<f16, f16>(&plan, &case, None, stream);
            gradients.map(|numbers| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
        };
        let own = bits(&device.stream());
        let other = Stream::new(&device).unwrap();
        for stream in [&other, &other, &device.stream()] {
            assert!(bits(stream) == own, "{device}");
        }
    }
    report_missing_gpu("gradients of attention to the bit", 3);
}

#[test]
fn what_gradients_refuse() {
    let case = Case::new("lengths", &lengths(), [1, 8, 8], Scores::Reals);
    for device in devices() {
        let kind = kind(AttentionAlgorithm::Auto, None, Precision::F32);
        let (with, without) = (plan(&case, kind, &device), case.plan(kind, &device));
        let (m, n) = (case.a.rows(), case.a.cols());
        let zeros = |rows| on_device::<f32>(&device, &vec![0.0; rows * 8], (rows, 8));
        let (q, k, v, out, gradient) = (zeros(m), zeros(n), zeros(n), zeros(m), zeros(m));
        let states = DeviceBuffer::<f32>::alloc_zeroed(&device, 2 * m).unwrap();
        let (mut of_q, mut of_k, mut of_v) = (zeros(m), zeros(n), zeros(n));
        let mut of_bias = DeviceBuffer::<f32>::alloc_zeroed(&device, case.a.nnz()).unwrap();
        let given = || AttentionBackward::new(AttentionOperands::new(&q, &k, &v), &states, &out, &gradient);
        let stream = device.stream();
        let found = AttentionGradients::new(&mut of_q, &mut of_k, &mut of_v);
        let error = without.backward_on(&stream, 1.0, given(), found).unwrap_err();
        assert_eq!(error.to_string(), "the plan computes no gradients; build it with `gradients(true)`");
        let found = AttentionGradients::new(&mut of_q, &mut of_k, &mut of_v).bias(&mut of_bias);
        let error = with.backward_on(&stream, 1.0, given(), found).unwrap_err();
        assert_eq!(error, AttentionError::NoBias);
        let mut short = zeros(n - 1);
        let found = AttentionGradients::new(&mut of_q, &mut short, &mut of_v);
        let error = with.backward_on(&stream, 1.0, given(), found).unwrap_err();
        let is_shape = |error: &AttentionError| {
            matches!(
                error,
                AttentionError::Plan(PlanError::OperandShape { operand: "the gradient of K", .. })
            )
        };
        assert!(is_shape(&error), "{error}");
        let short = DeviceBuffer::<f32>::alloc_zeroed(&device, 2 * m - 1).unwrap();
        let operands = AttentionOperands::new(&q, &k, &v);
        let given = AttentionBackward::new(operands, &short, &out, &gradient);
        let found = AttentionGradients::new(&mut of_q, &mut of_k, &mut of_v);
        let error = with.backward_on(&stream, 1.0, given, found).unwrap_err();
        assert!(matches!(error, AttentionError::Plan(PlanError::ValueCount { .. })), "{error}");
    }
    report_missing_gpu("refusals of gradients", 1);
}

#[test]
fn tensor_cores_are_taken_where_they_serve() {
    let device = Device::emulator(windrow::EmulatorSchedule::InOrder);
    let a = lengths();
    let names = |columns, precision, algorithm, biased| {
        let builder = GraphAttention::builder(&a).columns(columns).heads(2).precision(precision);
        let plan = builder.algorithm(algorithm).biased(biased).gradients(true).build(&device).unwrap();
        plan.report().gradient_entries.clone()
    };
    let (auto, rows) = (AttentionAlgorithm::Auto, AttentionAlgorithm::Rows);
    let [over_rows, over_columns] =
        ["attention_gradient_rows_bf16_windows_64", "attention_gradient_columns_bf16_windows_64"];
    for algorithm in [auto, AttentionAlgorithm::Columns] {
        assert_eq!(names(40, Precision::Bf16, algorithm, false), [over_rows, over_columns]);
    }
    for (columns, precision, algorithm, biased) in [
        (16, Precision::F16, auto, false),
        (136, Precision::F16, auto, false),
        (40, Precision::F16, auto, true),
        (40, Precision::F16, rows, false),
        (40, Precision::F16, AttentionAlgorithm::Entries, false),
        (40, Precision::F32, auto, false),
    ] {
        let names = names(columns, precision, algorithm, biased);
        assert!(names.len() == 2 && !names[0].contains("windows"), "{columns}, {precision}: {names:?}");
    }
}

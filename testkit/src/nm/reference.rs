//! The naive product with N:M weights in f64, and how far a rounded one may be from it.

use super::{NmActivation, NmCase};
use crate::compare::{compare_elements, exact_ratio, ratio};
use crate::{Comparison, Output, UNIT_FMA, error_bound};

/// The largest slope of the tanh form of GELU is 1.1290, at x = 1.4142, that of SiLU 1.0999, at x = 2.3994.
const CURVED_SLOPE: f64 = 1.13;
/// What evaluating GELU or SiLU in f32 may cost, in units of `2⁻²⁴·|x|`: a hyperbolic tangent or a power that is off by
/// a few units in the last place, and a handful of roundings. One that is off by 2⁻¹¹, as `tanh.approx.f32` is, is not
/// within it.
const CURVED_UNITS: f64 = 16.0;

/// What an [`NmCase`] must give, row-major m × n without padding.
#[derive(Debug, Clone)]
pub struct NmReference {
    /// What the activation is applied to: `α·scale·Σ a·w + β·c + bias` in f64, without the term in `c` if β = 0.
    pub sum: Vec<f64>,
    /// The activation of that, times what `C` held if the case is gated.
    pub want: Vec<f64>,
    /// What the activation is multiplied by: what `C` held, or 1.
    pub gate: Vec<f64>,
    /// `|α·scale|·Σ|a·w| + |β·c| + |bias|`: what the error is measured against.
    pub abs_sum: Vec<f64>,
}

/// `C ← act(α·scale·A·W + β·C + bias) [⊙ C]` of the case in f64, one element after the other, kept rows in order.
///
/// Products of two f32 are exact in f64; what the additions are off by is far inside any bound for f32.
pub fn nm_spmm(case: &NmCase) -> NmReference {
    let NmCase { weights, m, .. } = case;
    let (n, vector) = (case.n(), weights.pattern().l());
    let factor = f64::from(case.alpha) * f64::from(case.scale);
    let mut reference =
        NmReference { sum: Vec::new(), want: Vec::new(), gate: Vec::new(), abs_sum: Vec::new() };
    for row in 0..*m {
        for column in 0..n {
            let (mut sum, mut abs) = (0.0, 0.0);
            for u in 0..weights.kept_rows() {
                let a = f64::from(case.a_at(row, weights.source_row(u, column / vector)));
                let product = a * f64::from(weights.values()[u * n + column]);
                sum += product;
                abs += product.abs();
            }
            (sum, abs) = (factor * sum, factor.abs() * abs);
            let held = f64::from(case.c[row * case.ldc + column]);
            if case.beta != 0.0 {
                let old = f64::from(case.beta) * held;
                (sum, abs) = (sum + old, abs + old.abs());
            }
            if let Some(bias) = &case.bias {
                let bias = f64::from(bias[column]);
                (sum, abs) = (sum + bias, abs + bias.abs());
            }
            let gate = if case.gated { held } else { 1.0 };
            reference.sum.push(sum);
            reference.want.push(apply(case.activation, sum) * gate);
            reference.gate.push(gate);
            reference.abs_sum.push(abs);
        }
    }
    reference
}

/// The activation in f64; a NaN stays one.
fn apply(activation: NmActivation, x: f64) -> f64 {
    match activation {
        NmActivation::Identity => x,
        NmActivation::Relu if x <= 0.0 => 0.0,
        NmActivation::Relu => x,
        // ½·(1 + tanh(t)) = 1 / (1 + e^(−2t)), which does not cancel where t is far below zero.
        NmActivation::Gelu => {
            let t = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            x / (1.0 + (-2.0 * t).exp())
        }
        NmActivation::Silu => x / (1.0 + (-x).exp()),
    }
}

/// The largest error allowed for an element of type `V` that was `sum` before the activation:
///
/// ```text
/// |gate|·(slope·(γ(w + 5)·abs_sum + tiny) + [GELU, SiLU: 16·2⁻²⁴·|sum|]) + [gated: 2⁻²⁴·|want|]
///     + V::UNIT·|want| + V::TINY
/// ```
///
/// with `w` kept rows, `abs_sum` as in [`NmReference`], and the largest slope of the activation: 1, or 1.13 for GELU
/// and SiLU. To the `w + 2` roundings of a product with `α` and `β` ([`error_bound`]) come one each for the product of
/// `α` and the plan's factor, for the bias, and for adding it.
pub fn nm_error_bound<V: Output>(
    activation: NmActivation,
    (sum, want, gate): (f64, f64, f64),
    (abs_sum, kept_rows): (f64, usize),
    u: f64,
) -> f64 {
    let of_sum = error_bound::<f32>(sum, abs_sum, kept_rows + 3, u);
    let before_store = match activation {
        NmActivation::Identity | NmActivation::Relu => of_sum,
        NmActivation::Gelu | NmActivation::Silu => {
            CURVED_SLOPE * of_sum + CURVED_UNITS * UNIT_FMA * sum.abs()
        }
    };
    // A product with 1 is exact.
    let before_store =
        if gate == 1.0 { before_store } else { before_store * gate.abs() + UNIT_FMA * want.abs() };
    before_store * (1.0 + V::UNIT) + V::UNIT * want.abs() + V::TINY
}

/// Compares `got`, row-major with leading dimension `ld`, with the reference of `case`, as [`compare`](crate::compare)
/// does for other products.
///
/// # Panics
/// If `got` has fewer than `(m − 1)·ld + n` elements, or `reference` is not that of `case`.
pub fn compare_nm<V: Output>(
    case: &NmCase,
    reference: &NmReference,
    got: &[V],
    ld: usize,
    u: f64,
) -> Comparison {
    let (m, n, kept) = (case.m, case.n(), case.weights.kept_rows());
    assert_eq!(reference.want.len(), m * n, "the reference belongs to another case");
    let padding = (ld == case.ldc).then_some(ld);
    compare_elements((m, n), (got, ld), padding, |row, column, element: V| {
        let at = row * n + column;
        let (sum, want, gate) = (reference.sum[at], reference.want[at], reference.gate[at]);
        let ratio = if case.exact {
            exact_ratio(element, want)
        } else {
            let bound =
                nm_error_bound::<V>(case.activation, (sum, want, gate), (reference.abs_sum[at], kept), u);
            ratio::<V>(element.to_f64(), want, bound)
        };
        (ratio, want)
    })
}

/// [`compare_nm`] with the reference of the case.
///
/// # Panics
/// If anything differs, with the case's name and the worst element.
#[track_caller]
pub fn assert_nm_matches<V: Output>(case: &NmCase, got: &[V], ld: usize, u: f64) -> Comparison {
    let comparison = compare_nm(case, &nm_spmm(case), got, ld, u);
    assert!(comparison.passed(), "{}: {comparison}", case.name);
    comparison
}

#[cfg(test)]
mod tests {
    use windrow_formats::{NmPattern, VectorNm};

    use super::super::{NmLayout, NmOperands, nm_edge_cases, nm_value_cases};
    use super::*;
    use crate::{SplitMix64, Values};

    fn operands(m: usize) -> NmOperands {
        NmOperands {
            m,
            layout: NmLayout::KMajor,
            padding: 1,
            scalars: (2.0, -1.0),
            scale: 0.5,
            bias: true,
            activation: NmActivation::Relu,
            gated: false,
            values: Values::Integers,
        }
    }

    #[test]
    fn by_hand() {
        // W = [0 5; 3 0] in vectors of one column, one of two rows kept.
        let pattern = NmPattern::new(1, 2, 1).unwrap();
        let weights = VectorNm::from_dense(&[0.0f32, 5.0, 3.0, 0.0], 2, 2, pattern).unwrap();
        let mut case = NmCase::new("by hand", weights, operands(2), &mut SplitMix64::new(0));
        // A = [1 2; -1 4], stored by columns with leading dimension 3.
        case.a.copy_from_slice(&[1.0, -1.0, 9.0, 2.0, 4.0]);
        case.c.copy_from_slice(&[1.0, 2.0, 9.0, 3.0, 4.0]);
        case.bias = Some(vec![10.0, -4.0]);
        let reference = nm_spmm(&case);
        // A·W = [6 5; 12 -5]; minus C: [5 3; 9 -9]; and the bias: [15 -1; 19 -13].
        assert_eq!(reference.sum, [15.0, -1.0, 19.0, -13.0]);
        assert_eq!(reference.want, [15.0, 0.0, 19.0, 0.0]);
        assert_eq!(reference.abs_sum, [17.0, 11.0, 25.0, 13.0]);
        // Times C.
        let gated = nm_spmm(&NmCase { gated: true, ..case });
        assert_eq!((gated.want, gated.gate), (vec![15.0, 0.0, 57.0, 0.0], vec![1.0, 2.0, 3.0, 4.0]));
    }

    #[test]
    fn gelu_and_silu_are_those_of_the_formula() {
        for (x, gelu, silu) in [
            (0.0, 0.0, 0.0),
            (1.0, 0.841_191_990_6, 0.731_058_578_6),
            (-1.0, -0.158_808_009_4, -0.268_941_421_4),
            (3.0, 2.996_362_607_9, 2.857_722_380_5),
        ] {
            approx::assert_abs_diff_eq!(apply(NmActivation::Gelu, x), gelu, epsilon = 1e-10);
            approx::assert_abs_diff_eq!(apply(NmActivation::Silu, x), silu, epsilon = 1e-10);
        }
        assert!(apply(NmActivation::Gelu, -40.0).abs() < 1e-300);
        for activation in [NmActivation::Gelu, NmActivation::Relu, NmActivation::Silu] {
            assert!(apply(activation, f64::NAN).is_nan());
        }
        assert_eq!(apply(NmActivation::Relu, -f64::INFINITY), 0.0);
        // The slope that the bound assumes is not exceeded anywhere.
        for (activation, least) in [(NmActivation::Gelu, 1.12), (NmActivation::Silu, 1.09)] {
            let steepest = (-60_000..60_000)
                .map(|i| f64::from(i) * 1e-4)
                .map(|x| (apply(activation, x + 1e-5) - apply(activation, x)) / 1e-5)
                .fold(0.0, f64::max);
            assert!((least..=CURVED_SLOPE).contains(&steepest), "{activation:?}: {steepest}");
        }
    }

    #[test]
    fn gelu_and_silu_in_f32_are_within_their_bound() {
        for i in -4000..4000i16 {
            let x = f32::from(i) * 0.005;
            let t = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            let (gelu, silu) = (0.5 * x * (1.0 + t.tanh()), x / (1.0 + (-x).exp()));
            for (activation, got) in [(NmActivation::Gelu, gelu), (NmActivation::Silu, silu)] {
                let (got, want) = (f64::from(got), apply(activation, f64::from(x)));
                let allowed = CURVED_UNITS * UNIT_FMA * f64::from(x).abs();
                assert!((got - want).abs() <= 0.25 * allowed, "{x}: {got} for {want}");
            }
        }
    }

    /// The same product through the dense matrix: another loop order, another way to find the entries.
    #[test]
    fn agrees_with_a_dense_product() {
        let mut compared = 0;
        for case in nm_edge_cases().into_iter().chain(nm_value_cases()) {
            let (k, n, dense) = (case.k(), case.n(), case.weights.to_dense().unwrap());
            let reference = nm_spmm(&case);
            for at in 0..case.m * n {
                let (row, column) = (at / n, at % n);
                let mut sum = 0.0;
                for r in (0..k).filter(|&r| dense[r * n + column] != 0.0) {
                    sum += f64::from(case.a_at(row, r)) * f64::from(dense[r * n + column]);
                }
                sum *= f64::from(case.alpha) * f64::from(case.scale);
                if case.beta != 0.0 {
                    sum += f64::from(case.beta) * f64::from(case.c[row * case.ldc + column]);
                }
                sum += case.bias.as_ref().map_or(0.0, |bias| f64::from(bias[column]));
                assert!((sum - reference.sum[at]).abs() <= 1e-13 * reference.abs_sum[at], "{}", case.name);
                compared += 1;
            }
        }
        assert!(compared > 10_000, "{compared} elements");
    }

    #[test]
    fn one_wrong_element_is_found_and_so_is_overwritten_padding() {
        let pattern = NmPattern::new(2, 4, 4).unwrap();
        for values in [Values::Integers, Values::Reals] {
            let rng = &mut SplitMix64::new(4);
            let weights = super::super::nm_weights((8, 6), pattern, values, rng);
            let operands = NmOperands { values, activation: NmActivation::Identity, ..operands(5) };
            let case = NmCase::new("wrong", weights, operands, rng);
            let reference = nm_spmm(&case);
            let mut right = case.c.clone();
            for (at, &want) in reference.want.iter().enumerate() {
                right[at / 6 * case.ldc + at % 6] = <f32 as windrow_formats::Value>::from_f64(want);
            }
            let compare = |got: &[f32]| compare_nm(&case, &reference, got, case.ldc, UNIT_FMA);
            assert!(compare(&right).passed());
            let mut wrong = right.clone();
            wrong[2 * case.ldc + 3] += 1e-3;
            assert_eq!((compare(&wrong).failures, compare(&wrong).worst_at), (1, Some((2, 3))));
            let mut wrong = right.clone();
            wrong[6] = 0.0;
            assert_eq!(compare(&wrong).overwritten_padding, Some((0, 6)));
        }
    }
}

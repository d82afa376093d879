//! The tables of cases for N:M weights, and cases from a seed.

use windrow_formats::NmPattern;

use super::{NmActivation, NmCase, NmLayout, NmOperands, nm_weights};
use crate::{SCALARS, SplitMix64, Values};

/// `(m, k, n)`: nothing, next to nothing, around the sizes of tiles, and long sums.
const SHAPES: [(usize, usize, usize); 18] = [
    (0, 0, 0),
    (0, 8, 4),
    (3, 0, 5),
    (4, 8, 0),
    (1, 1, 1),
    (1, 8, 32),
    (2, 7, 33),
    (5, 16, 64),
    (7, 17, 31),
    (16, 32, 32),
    (17, 33, 65),
    (31, 40, 96),
    (33, 64, 63),
    (64, 64, 128),
    (65, 70, 130),
    (128, 96, 40),
    (9, 130, 257),
    (3, 600, 20),
];

/// Patterns to test with: the usual ones, the densest and the sparsest, odd groups and vectors of every kind.
///
/// # Panics
/// Never: all are valid.
pub fn nm_patterns() -> Vec<NmPattern> {
    [
        (2, 8, 32),
        (1, 1, 1),
        (2, 4, 4),
        (1, 8, 16),
        (3, 5, 3),
        (4, 8, 8),
        (7, 8, 64),
        (8, 8, 32),
        (2, 16, 128),
        (1, 32, 7),
        (16, 256, 32),
        (255, 256, 5),
        (6, 16, 1),
    ]
    .map(|(n, m, l)| NmPattern::new(n, m, l).expect("1 ≤ N ≤ M ≤ 256 and L ≥ 1"))
    .to_vec()
}

/// Operands that turn with `at`: both layouts, padded and not, every pair of scalars, with and without bias
/// and gate.
fn turning(at: usize, m: usize, values: Values) -> NmOperands {
    let activations = match values {
        Values::Integers => [NmActivation::Identity, NmActivation::Relu, NmActivation::Identity],
        Values::Reals => [NmActivation::Gelu, NmActivation::Identity, NmActivation::Silu],
    };
    NmOperands {
        m,
        layout: [NmLayout::RowMajor, NmLayout::KMajor][at % 2],
        padding: [0, 3, 8][at / 2 % 3],
        scalars: SCALARS[at % 5],
        scale: [1.0, 1.0, 0.5, 4.0][at / 3 % 4],
        bias: at % 3 == 1,
        activation: activations[at / 6 % 3],
        gated: at % 7 == 2 || at % 11 == 2,
        values,
    }
}

/// Every shape with a third of the [patterns](nm_patterns), whole numbers, and operands that turn.
pub fn nm_edge_cases() -> Vec<NmCase> {
    let mut rng = SplitMix64::new(0x0f_ed6e);
    let mut cases = Vec::new();
    for (i, (m, k, n)) in SHAPES.into_iter().enumerate() {
        for pattern in nm_patterns().into_iter().skip(i % 3).step_by(3) {
            let weights = nm_weights((k, n), pattern, Values::Integers, &mut rng);
            let operands = turning(cases.len(), m, Values::Integers);
            cases.push(NmCase::new(&format!("edge {}", cases.len()), weights, operands, &mut rng));
        }
    }
    cases
}

/// Real values in −1..1, scalars that round, GELU and SiLU.
pub fn nm_value_cases() -> Vec<NmCase> {
    const ROUNDING: [(f32, f32); 4] = [(1.0, 0.0), (0.3, 0.0), (1.0, 0.7), (-1.7, 2.3)];
    let mut rng = SplitMix64::new(0x0f_7a1e);
    let mut cases = Vec::new();
    for (i, (m, k, n)) in SHAPES.into_iter().skip(4).enumerate() {
        for pattern in nm_patterns().into_iter().skip((i + 1) % 4).step_by(4) {
            let weights = nm_weights((k, n), pattern, Values::Reals, &mut rng);
            let at = cases.len();
            let operands =
                NmOperands { scalars: ROUNDING[at % 4], scale: 1.25, ..turning(at, m, Values::Reals) };
            cases.push(NmCase::new(&format!("values {at}"), weights, operands, &mut rng));
        }
    }
    cases
}

/// Cases whose result is NaN or infinite in known columns: a column of `A` that some vectors keep and others do not.
///
/// A path that stages a column for several vectors, or pads its sums, must not let it into the others.
pub fn nm_non_finite_cases() -> Vec<NmCase> {
    let mut rng = SplitMix64::new(0x0f_bad);
    let mut cases = Vec::new();
    for (i, special) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().enumerate() {
        for pattern in nm_patterns() {
            let (k, n) = (2 * pattern.m() + 1, 3 * pattern.l() + 1);
            let weights = nm_weights((k, n), pattern, Values::Integers, &mut rng);
            let kept =
                |v: usize| (0..weights.kept_rows()).map(|u| weights.source_row(u, v)).collect::<Vec<_>>();
            let (others, own) = (kept(0), kept(1));
            let row = *own.iter().find(|row| !others.contains(row)).unwrap_or(&own[0]);
            let operands = NmOperands {
                scalars: (1.0, 0.0),
                activation: NmActivation::Identity,
                gated: false,
                ..turning(i, 19, Values::Integers)
            };
            let mut case = NmCase::new(&format!("{special} in a column of A"), weights, operands, &mut rng);
            let at = super::place(case.layout, case.lda, 7, row);
            case.a[at] = special;
            cases.push(case);
        }
    }
    cases
}

/// A case of random shape and pattern: up to 70 rows, 90 inner, 80 columns, both kinds of values.
///
/// For property tests: a failing seed is the regression test.
///
/// # Panics
/// Never: the pattern is valid.
pub fn nm_random_case(seed: u64) -> NmCase {
    let mut rng = SplitMix64::new(seed);
    let most = [4, 16, 40][rng.below(3)];
    let group = rng.between(1, most);
    let pattern = NmPattern::new(rng.between(1, group), group, rng.between(1, 40)).expect("1 ≤ N ≤ M ≤ 256");
    let (m, k, n) = (rng.below(71), rng.below(91), rng.below(81));
    let values = [Values::Integers, Values::Reals][rng.below(2)];
    let weights = nm_weights((k, n), pattern, values, &mut rng);
    let operands = NmOperands { padding: rng.below(9), ..turning(rng.below(120), m, values) };
    NmCase::new(&format!("random {seed:#x}"), weights, operands, &mut rng)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::nm_spmm;

    #[test]
    fn names_are_unique_and_tables_small_enough_to_emulate() {
        let cases: Vec<NmCase> =
            nm_edge_cases().into_iter().chain(nm_value_cases()).chain(nm_non_finite_cases()).collect();
        let names: HashSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        let work: usize = cases.iter().map(|case| case.m * case.weights.kept()).sum();
        assert!(cases.len() < 250 && work < 40_000_000, "{} cases, {work} products", cases.len());
    }

    #[test]
    fn tables_cover_what_they_promise() {
        let cases: Vec<NmCase> = nm_edge_cases().into_iter().chain(nm_value_cases()).collect();
        let any = |what: &str, holds: &dyn Fn(&NmCase) -> bool| {
            assert!(cases.iter().any(holds), "no case with {what}");
        };
        any("m = 0", &|case| case.m == 0 && case.k() > 0);
        any("k = 0", &|case| case.k() == 0 && case.m > 0 && case.n() > 0);
        any("n = 0", &|case| case.n() == 0 && case.m > 0);
        any("a ragged group", &|case| !case.k().is_multiple_of(case.weights.pattern().m()));
        any("a ragged vector", &|case| !case.n().is_multiple_of(case.weights.pattern().l()));
        any("poison", &|case| case.a.iter().any(|x| x.is_infinite()));
        any("C as NaN", &|case| case.beta == 0.0 && case.c.iter().any(|x| x.is_nan()));
        for layout in [NmLayout::RowMajor, NmLayout::KMajor] {
            for activation in
                [NmActivation::Identity, NmActivation::Relu, NmActivation::Gelu, NmActivation::Silu]
            {
                for bias in [false, true] {
                    any("each epilogue", &|case| {
                        (case.layout, case.activation, case.bias.is_some()) == (layout, activation, bias)
                    });
                }
                any("each activation gated", &|case| {
                    (case.layout, case.activation, case.gated) == (layout, activation, true)
                });
            }
        }
    }

    #[test]
    fn references_are_finite_but_where_announced() {
        for case in nm_edge_cases().into_iter().chain(nm_value_cases()) {
            assert!(nm_spmm(&case).want.iter().all(|x| x.is_finite()), "{}", case.name);
        }
        let mut partly = 0;
        for case in nm_non_finite_cases() {
            let (n, want) = (case.n(), nm_spmm(&case).want);
            let reached: Vec<usize> = (0..want.len()).filter(|&at| !want[at].is_finite()).collect();
            assert!(!reached.is_empty() && reached.iter().all(|at| at / n == 7), "{}", case.name);
            partly += usize::from(reached.len() < n);
        }
        assert!(
            partly >= 3 * (nm_patterns().len() - 2),
            "only where N = M do all vectors keep a row: {partly}"
        );
    }

    #[test]
    fn exact_cases_are_exact_in_f32() {
        for case in nm_edge_cases().into_iter().filter(|case| case.exact) {
            let reference = nm_spmm(&case);
            for (&sum, &abs_sum) in reference.sum.iter().zip(&reference.abs_sum) {
                assert!(abs_sum < 4_194_304.0 && sum * 8.0 == (sum * 8.0).round(), "{}", case.name);
            }
        }
    }

    #[test]
    fn cases_are_the_same_every_time() {
        for (one, other) in nm_edge_cases().iter().zip(nm_edge_cases()) {
            assert!(one.name == other.name && one.weights == other.weights);
            assert!(one.a.iter().zip(&other.a).all(|(x, y)| x.to_bits() == y.to_bits()));
        }
    }
}

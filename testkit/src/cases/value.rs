//! Real values, compared within the bound of their roundings.

use crate::{Case, Operands, Pattern, SplitMix64, Values, WIDTHS};

/// Pairs `(α, β)` that round.
const SCALARS: [(f32, f32); 4] = [(1.0, 0.0), (0.3, 0.0), (1.0, 0.7), (-1.7, 2.3)];

/// Real values in −1..1 at every width of [`WIDTHS`], packed and padded; long rows; sums that cancel; and
/// values of very different magnitude.
pub fn value_cases() -> Vec<Case> {
    let mut rng = SplitMix64::new(0x7a1e);
    let rng = &mut rng;
    let mut cases = Vec::new();
    let spec = |at: usize, n: usize, padding: usize| Operands {
        n,
        padding,
        scalars: SCALARS[at % 4],
        values: Values::Reals,
        poison: at % 2 == 1,
    };
    for (i, n) in WIDTHS.into_iter().enumerate() {
        for padding in [0, 3] {
            let pattern = Pattern::random(22, 33, 13, rng);
            cases.push(Case::from_pattern("reals", &pattern, spec(i + padding, n, padding), rng));
        }
    }
    for (i, n) in [1, 16, 40, 5].into_iter().enumerate() {
        let pattern = Pattern::power_law(150, 200, 180, rng);
        cases.push(Case::from_pattern("reals, power law", &pattern, spec(i, n, 0), rng));
        let pattern = Pattern::from_lengths(2100, [2000, 3, 0, 700, 513, 1], rng);
        cases.push(Case::from_pattern("reals, long rows", &pattern, spec(i + 1, n, 0), rng));
        cases.push(cancelling(spec(i + 2, n, 3), rng));
        cases.push(magnitudes(spec(i + 3, n, 0), rng));
    }
    cases
}

/// Neighbouring entries meet almost equal rows of `B` with opposite signs: the sums nearly vanish.
fn cancelling(operands: Operands, rng: &mut SplitMix64) -> Case {
    let pattern = Pattern::dense(10, 24);
    let mut row = |_| {
        let values: Vec<f32> = (0..12).map(|_| rng.real()).collect();
        values.into_iter().flat_map(|x| [x, -x])
    };
    let data: Vec<f32> = (0..10).flat_map(&mut row).collect();
    let mut case = Case::new("reals, cancelling", pattern.with_data(data), operands, rng);
    for k in (0..24).step_by(2) {
        let (above, below) = case.b[k * case.ldb..].split_at_mut(case.ldb);
        for (x, y) in above.iter().zip(&mut below[..operands.n]) {
            *y = x * 1.001;
        }
    }
    case
}

/// Entries of `A` from 2⁻¹² to 2¹², inside the range of every element type.
fn magnitudes(operands: Operands, rng: &mut SplitMix64) -> Case {
    let pattern = Pattern::random(16, 40, 20, rng);
    let mut value = |_| {
        let exponent = i32::try_from(rng.below(25)).expect("below 25") - 12;
        rng.real() * 2f32.powi(exponent)
    };
    let data = (0..pattern.nnz()).map(&mut value).collect();
    Case::new("reals, magnitudes", pattern.with_data(data), operands, rng)
}

//! Products of f64 that are known to the last bit.
//!
//! All numbers are whole, of at most 53 bits, so that f64 holds each; a product of two has 106, and a sum of up to
//! 2²⁰ of them fits the 128 bits of an integer. The reference is such an integer: no rounding of its own comes
//! between a result and its error.

use windrow_formats::Csr;

use crate::{Pattern, SplitMix64};

/// Unit roundoff of f64.
const UNIT: f64 = 1.0 / 9_007_199_254_740_992.0;

/// A random whole number that takes all of f64's significand, of either sign.
pub fn whole(rng: &mut SplitMix64) -> f64 {
    let bits = rng.next_u64();
    let magnitude = (bits >> 11) as f64;
    if bits & 1 == 0 { magnitude } else { -magnitude }
}

/// A sum of products, exactly.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExactSum {
    sum: i128,
    magnitude: u128,
    terms: u32,
}

impl ExactSum {
    /// Adds `a·b`, of whole numbers.
    pub fn add(&mut self, a: f64, b: f64) {
        let term = integer(a) * integer(b);
        self.sum += term;
        self.magnitude += term.unsigned_abs();
        self.terms += 1;
    }

    /// The error of `got` in units of its bound: `γ(terms + roundings)` times the sum of absolute values, with
    /// `roundings` for what is done beside adding products.
    pub fn ratio(&self, got: f64, roundings: u32) -> f64 {
        if !got.is_finite() || got.abs() >= 2f64.powi(127) || got.fract() != 0.0 {
            return f64::INFINITY;
        }
        let error = integer(got).abs_diff(self.sum) as f64;
        let t = f64::from(self.terms + roundings) * UNIT;
        let bound = t / (1.0 - t) * self.magnitude as f64;
        if error == 0.0 { 0.0 } else { error / bound }
    }
}

/// A whole number that 128 bits hold.
#[expect(clippy::cast_possible_truncation, reason = "whole, and smaller than 2^127")]
fn integer(x: f64) -> i128 {
    x as i128
}

/// A product `α·A·B + β·C` of whole numbers.
#[derive(Debug, Clone)]
pub struct ExactCase {
    /// `A`, sparse, with whole numbers as values.
    pub a: Csr<f64>,
    /// `B`, row after row without padding.
    pub b: Vec<f64>,
    /// `C` before the product, likewise.
    pub c: Vec<f64>,
    /// Columns of `B` and `C`.
    pub n: usize,
}

impl ExactCase {
    /// Random numbers on a pattern.
    pub fn random(pattern: &Pattern, n: usize, rng: &mut SplitMix64) -> Self {
        let ones = pattern.with_data(vec![1.0; pattern.nnz()]);
        Self::of(&ones, n, rng)
    }

    /// Random numbers in the places of a matrix.
    ///
    /// # Panics
    /// Never: a matrix has a value for each entry.
    pub fn of(pattern: &Csr<f32>, n: usize, rng: &mut SplitMix64) -> Self {
        let mut numbers = |count: usize| (0..count).map(|_| whole(rng)).collect::<Vec<_>>();
        let values = numbers(pattern.nnz());
        let a = pattern.with_values(values).expect("one for each entry");
        Self { b: numbers(a.cols() * n), c: numbers(a.rows() * n), a, n }
    }

    /// Compares a result, row after row without padding.
    ///
    /// # Panics
    /// If an element is beyond its bound, or something is missing.
    #[track_caller]
    pub fn assert_matches(&self, what: &str, (alpha, beta): (f64, f64), got: &[f64]) {
        assert_eq!(got.len(), self.c.len(), "{what}: elements of the result");
        for (row, (cols, values)) in self.a.rows_iter().enumerate() {
            for j in 0..self.n {
                let at = row * self.n + j;
                let mut want = ExactSum::default();
                for (&col, &value) in cols.iter().zip(values) {
                    want.add(alpha * value, self.b[col as usize * self.n + j]);
                }
                if beta != 0.0 {
                    want.add(beta, self.c[at]);
                }
                let ratio = want.ratio(got[at], 2);
                assert!(ratio <= 1.0, "{what}: {} at ({row}, {j}), {ratio} times its bound off", got[at]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use windrow_formats::Value;

    use super::*;

    #[test]
    fn the_last_bit_is_told() {
        let mut sum = ExactSum::default();
        let big = 2f64.powi(53) - 1.0;
        sum.add(big, big);
        sum.add(-big, big);
        sum.add(3.0, 5.0);
        assert_eq!(sum.ratio(15.0, 0), 0.0);
        assert!(sum.ratio(2f64.powi(60), 0) > 1.0 && sum.ratio(16.0, 0) > 0.0);
        assert_eq!((sum.ratio(f64::NAN, 0), sum.ratio(0.5, 0)), (f64::INFINITY, f64::INFINITY));
    }

    #[test]
    fn sums_in_f32_are_found_out() {
        let case = ExactCase::random(&Pattern::dense(3, 4), 2, &mut SplitMix64::new(1));
        let product = |round: fn(f64) -> f64| {
            let mut c = vec![0.0; 6];
            for (row, (cols, values)) in case.a.rows_iter().enumerate() {
                for j in 0..2 {
                    let terms = cols.iter().zip(values).map(|(&k, v)| v * case.b[k as usize * 2 + j]);
                    c[row * 2 + j] = round(terms.sum());
                }
            }
            c
        };
        case.assert_matches("f64", (1.0, 0.0), &product(|x| x));
        let in_f32 = product(|x| f64::from(<f32 as Value>::from_f64(x)));
        assert!(std::panic::catch_unwind(|| case.assert_matches("f32", (1.0, 0.0), &in_f32)).is_err());
    }
}

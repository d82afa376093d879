//! How far a rounded product may be from the exact one.

use half::{bf16, f16};
use windrow_formats::Value;

/// Unit roundoff of f32 arithmetic, fused or not: 2⁻²⁴.
pub const UNIT_FMA: f64 = 1.0 / 16_777_216.0;

/// Unit roundoff assumed for matrix instructions with f32 accumulation: 2⁻²³, since how they round
/// inside is not promised.
pub const UNIT_MMA: f64 = 1.0 / 8_388_608.0;

/// An element type that results are stored in, and what the store costs.
///
/// The sum becomes an element `x·(1 + δ) + η` with `|δ| ≤ UNIT`, `|η| ≤ TINY`.
pub trait Output: Value {
    /// Unit roundoff of the final store; 0 for f32, whose store does not round.
    const UNIT: f64;
    /// Half the spacing of the type's subnormal numbers.
    const TINY: f64;
    /// From here on, a magnitude rounds to infinity.
    const OVERFLOW: f64;
}

impl Output for f32 {
    const UNIT: f64 = 0.0;
    const TINY: f64 = 7.006_492_321_624_085e-46; // 2^-150
    const OVERFLOW: f64 = 3.402_823_567_797_336_6e38; // 2^128 - 2^103
}

/// For sums in f64, whose inputs are f32: [`ExactCase`](crate::ExactCase) is for f64 inputs.
impl Output for f64 {
    const UNIT: f64 = 0.0;
    const TINY: f64 = 2.5e-324; // 2^-1075
    const OVERFLOW: f64 = f64::INFINITY;
}

impl Output for f16 {
    const UNIT: f64 = 1.0 / 2048.0;
    const TINY: f64 = 1.0 / 33_554_432.0; // 2^-25
    const OVERFLOW: f64 = 65_520.0;
}

impl Output for bf16 {
    const UNIT: f64 = 1.0 / 256.0;
    const TINY: f64 = 4.591_774_807_899_561e-41; // 2^-134
    const OVERFLOW: f64 = 3.396_177_529_230_46e38; // 2^128 - 2^119
}

/// `γ(t) = t·u / (1 − t·u)` (Higham 2002, section 3.1).
fn gamma(t: f64, u: f64) -> f64 {
    t * u / (1.0 - t * u)
}

/// `|got − want| ≤ γ(len + 1)·abs_sum` for an f32 result, where `len` is the row's number of entries
/// and `abs_sum = Σ|a·b|`; the `+ 1` is the rounding of the final store.
pub fn within_bound(got: f32, want: f64, abs_sum: f64, len: usize, u: f64) -> bool {
    (f64::from(got) - want).abs() <= gamma(len as f64 + 1.0, u) * abs_sum
}

/// The largest error allowed for an element of type `V` of `C = α·A·B + β·C`:
///
/// ```text
/// γ(len + 2)·abs_sum + V::UNIT·|want| + (len + 2)·2⁻¹⁵⁰ + V::TINY
/// ```
///
/// with `abs_sum = |α|·Σ|a·b| + |β·c|`. Each term passes at most `len` roundings on its way into the
/// sum, in any order and with any split into partial sums, one for `α` and one for `β`; each of them
/// may also underflow, which costs half of f32's smallest spacing.
pub fn error_bound<V: Output>(want: f64, abs_sum: f64, len: usize, u: f64) -> f64 {
    let roundings = len as f64 + 2.0;
    // The sum is rounded before the store rounds it again, so UNIT applies to a value that near.
    let sum = gamma(roundings, u) * abs_sum + roundings * f32::TINY;
    sum * (1.0 + V::UNIT) + V::UNIT * want.abs() + V::TINY
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_constants<V: Output>() {
        let one = V::ONE.to_f64();
        if V::UNIT > 0.0 {
            // Halfway to the next number rounds to even, a little more rounds up.
            assert_eq!(V::from_f64(one + V::UNIT).to_f64(), one);
            assert_eq!(V::from_f64(one + V::UNIT * 1.001).to_f64(), one + 2.0 * V::UNIT);
        }
        assert_eq!(V::from_f64(V::TINY), V::ZERO);
        assert_eq!(V::from_f64(V::TINY * 1.001).to_f64(), 2.0 * V::TINY);
        assert!(V::from_f64(V::OVERFLOW).to_f64().is_infinite());
        assert!(V::from_f64(V::OVERFLOW * (1.0 - 1e-9)).to_f64().is_finite());
    }

    #[test]
    fn the_constants_are_those_of_the_types() {
        check_constants::<f32>();
        check_constants::<f16>();
        check_constants::<bf16>();
    }

    #[test]
    fn one_rounding_too_many_is_outside() {
        // A row of one entry: two roundings are allowed.
        let u = UNIT_FMA;
        assert!(within_bound(1.0, 1.0 + 2.0 * u, 1.0, 1, u));
        assert!(!within_bound(1.0, 1.0 + 2.1 * u, 1.0, 1, u));
        // No entry: only a store, of zero.
        assert!(within_bound(0.0, 0.0, 0.0, 0, u));
        assert!(!within_bound(1e-30, 0.0, 0.0, 0, u));
    }

    #[test]
    fn nan_is_never_within() {
        assert!(!within_bound(f32::NAN, 0.0, 1.0, 1, UNIT_FMA));
        assert!(!within_bound(0.0, f64::NAN, 1.0, 1, UNIT_FMA));
    }

    #[test]
    fn half_outputs_may_round_once_more() {
        let f32_bound = error_bound::<f32>(100.0, 100.0, 3, UNIT_FMA);
        let f16_bound = error_bound::<f16>(100.0, 100.0, 3, UNIT_FMA);
        assert!(f32_bound < 100.0 * 5.1 * UNIT_FMA && f32_bound > 100.0 * 5.0 * UNIT_FMA);
        assert!(f16_bound > 100.0 / 2048.0 && f16_bound < 101.0 / 2048.0);
    }
}

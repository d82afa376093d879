//! Rounding to TF32: f32's range with 11 significant bits, in 32 bits whose last 13 are zero.

use crate::options::Precision;

/// Half of the last kept place.
pub(crate) const HALF: u32 = 0x1000;
/// The bits that are kept.
pub(crate) const KEPT: u32 = !0x1fff;

/// The tf32 nearest to `x`, ties away from zero, as `cvt.rna.tf32.f32` rounds. NaN stays NaN.
///
/// Half a place is added to the magnitude, whose carry may run into the exponent, and the rest is cut.
#[inline(always)]
pub(crate) fn round(x: f32) -> f32 {
    if x.is_nan() { x } else { f32::from_bits((x.to_bits() + HALF) & KEPT) }
}

/// `x`, an element of a plan's type, as a product of that precision multiplies it.
pub(crate) fn as_multiplied(precision: Precision, x: f64) -> f64 {
    if precision == Precision::Tf32 { f64::from(round_f64(x)) } else { x }
}

/// The tf32 nearest to `x`, ties away from zero, rounded once.
///
/// The way through f32 cuts bits off instead of rounding them, so that a tie stays one and nothing else becomes one.
#[expect(clippy::cast_possible_truncation, reason = "the rounding is corrected below")]
pub(crate) fn round_f64(x: f64) -> f32 {
    let nearest = x as f32;
    // Neighbours in magnitude are neighbours in bits; the one below infinity is f32's largest.
    let beyond = f64::from(nearest).abs() > x.abs();
    round(if beyond { f32::from_bits(nearest.to_bits() - 1) } else { nearest })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ties_go_away_from_zero() {
        let place = 2f32.powi(-10);
        for (x, want) in [
            (1.0, 1.0),
            (1.0 + 0.5 * place, 1.0 + place),
            (1.0 + 1.5 * place, 1.0 + 2.0 * place),
            (1.0 + 0.499 * place, 1.0),
            (2.0 - 0.25 * place, 2.0),
            (0.0, 0.0),
            (f32::MAX, f32::INFINITY),
            (f32::INFINITY, f32::INFINITY),
            (70_000.0, 70_016.0),
            (1e38, f32::from_bits(0x7e96_8000)),
            (f32::from_bits(0x1000), f32::from_bits(0x2000)),
            (f32::from_bits(0x0fff), 0.0),
        ] {
            assert_eq!(round(x), want, "{x:e}");
            assert_eq!(round(-x), -want, "-{x:e}");
            assert_eq!(round_f64(f64::from(x)).to_bits(), round(x).to_bits(), "{x:e} as f64");
        }
        assert_eq!(round(-0.0).to_bits(), (-0.0f32).to_bits());
        assert!(round(f32::NAN).is_nan() && round_f64(f64::NAN).is_nan());
        // A NaN whose only set bits are among those that are cut.
        assert!(round(f32::from_bits(0x7f80_0001)).is_nan());
    }

    #[test]
    fn f64_is_rounded_once() {
        let (tie, little) = (1.0 + 2f64.powi(-11), 2f64.powi(-40));
        assert_eq!(round_f64(tie - little), 1.0, "rounding to f32 first would make it the tie");
        assert_eq!(round_f64(tie), 1.0 + 2f32.powi(-10));
        assert_eq!(round_f64(-(tie - little)), -1.0);
        assert_eq!(round_f64(1e300), f32::INFINITY);
        assert_eq!(round_f64(-1e300), f32::NEG_INFINITY);
        assert_eq!(round_f64(1e-300).to_bits(), 0);
    }

    proptest! {
        #[test]
        fn no_tf32_is_nearer(bits: u32) {
            let x = f32::from_bits(bits);
            let rounded = round(x);
            prop_assert_eq!(rounded.is_nan(), x.is_nan());
            if rounded.is_finite() {
                prop_assert_eq!(rounded.to_bits() & !KEPT, 0);
                prop_assert_eq!(round(rounded).to_bits(), rounded.to_bits());
                let error = (f64::from(rounded) - f64::from(x)).abs();
                let place = (1u32 << 13).min(rounded.to_bits() & 0x7fff_ffff);
                for neighbour in [rounded.to_bits() + (1 << 13), rounded.to_bits() - place] {
                    let other = (f64::from(f32::from_bits(neighbour)) - f64::from(x)).abs();
                    prop_assert!(error <= other, "{x:e}: {rounded:e}");
                }
            }
        }
    }
}

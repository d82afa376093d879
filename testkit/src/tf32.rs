//! Rounding to TF32 as its definition says it, for references.

/// The tf32 nearest to `x`, ties away from zero: the nearest multiple of 2⁻¹⁰ of the power of two below `|x|`, or of
/// the smallest normal number's; NaN and infinities stay.
///
/// In f64 the quotient is exact, and `f64::round` takes ties away from zero.
#[expect(clippy::cast_possible_truncation, reason = "a multiple of a tf32 place is an f32, or infinite")]
pub fn round_tf32(x: f32) -> f32 {
    if !x.is_finite() {
        return x;
    }
    let exponent = (x.abs().to_bits() >> 23).max(1).cast_signed() - 127;
    let place = 2f64.powi(exponent - 10);
    ((f64::from(x) / place).round() * place) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let place = 2f32.powi(-10);
        for (x, want) in [
            (1.0, 1.0),
            (1.0 + 0.5 * place, 1.0 + place),
            (1.0 + 0.49 * place, 1.0),
            (-3.0 - place, -3.0 - 2.0 * place),
            (2.0 - 0.25 * place, 2.0),
            (2049.0, 2050.0),
            (f32::MAX, f32::INFINITY),
            (2f32.powi(-137), 2f32.powi(-136)),
            (2f32.powi(-138), 0.0),
        ] {
            assert_eq!(round_tf32(x), want, "{x:e}");
        }
        assert_eq!(round_tf32(f32::NEG_INFINITY), f32::NEG_INFINITY);
        assert!(round_tf32(f32::NAN).is_nan());
    }
}

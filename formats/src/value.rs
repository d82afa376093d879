//! The element types a matrix can hold.

use std::fmt::{Debug, Display};

use half::{bf16, f16};

/// Element of a sparse or dense matrix: `f32`, `f64`, [`half::f16`] or [`half::bf16`].
///
/// The conversions round to nearest, ties to even; a magnitude beyond the type's range becomes an
/// infinity. Going to a type that is at least as wide and back returns the same number.
pub trait Value:
    bytemuck::Pod + Default + PartialEq + PartialOrd + Debug + Display + Send + Sync + 'static
{
    /// Name of the type as it is written in options and reports, for example `"f32"`.
    const NAME: &'static str;
    /// The additive identity, with all bits zero.
    const ZERO: Self;
    /// The multiplicative identity, which entries of a pattern have.
    const ONE: Self;

    /// The element nearest to `x`.
    fn from_f64(x: f64) -> Self;
    /// The number as `f64`; exact for every type.
    fn to_f64(self) -> f64;
    /// The element nearest to `x`.
    fn from_f32(x: f32) -> Self;
    /// The number as `f32`; exact for every type but `f64`, which is rounded.
    fn to_f32(self) -> f32;
    /// `self + other`, correctly rounded. 16-bit types are added in `f32`, whose 24 bits are enough for the
    /// second rounding to be harmless.
    fn add(self, other: Self) -> Self;
}

impl Value for f32 {
    const NAME: &'static str = "f32";
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is what the method is for")]
    fn from_f64(x: f64) -> Self {
        x as f32
    }
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    fn from_f32(x: f32) -> Self {
        x
    }
    fn to_f32(self) -> f32 {
        self
    }
    fn add(self, other: Self) -> Self {
        self + other
    }
}

impl Value for f64 {
    const NAME: &'static str = "f64";
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn from_f64(x: f64) -> Self {
        x
    }
    fn to_f64(self) -> f64 {
        self
    }
    fn from_f32(x: f32) -> Self {
        f64::from(x)
    }
    #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is what the method is for")]
    fn to_f32(self) -> f32 {
        self as f32
    }
    fn add(self, other: Self) -> Self {
        self + other
    }
}

/// `x` rounded to odd: where `f32` cannot hold it, the neighbour with an odd last bit.
///
/// Rounding the result to a type at least two bits shorter gives what rounding `x` itself would:
/// rounding to nearest twice would not, and `half` converts in two steps or drops the low bits.
#[expect(clippy::cast_possible_truncation, reason = "the rounding is corrected below")]
fn to_f32_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let wide = f64::from(nearest);
    if wide == x || x.is_nan() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    // Neighbours in magnitude are neighbours in bits.
    let bits = nearest.to_bits();
    f32::from_bits(if wide.abs() < x.abs() { bits + 1 } else { bits - 1 })
}

/// Both 16-bit types convert through the functions that `half` gives them.
macro_rules! impl_half {
    ($type:ty, $name:literal) => {
        impl Value for $type {
            const NAME: &'static str = $name;
            const ZERO: Self = <$type>::ZERO;
            const ONE: Self = <$type>::ONE;

            fn from_f64(x: f64) -> Self {
                <$type>::from_f32(to_f32_odd(x))
            }
            fn to_f64(self) -> f64 {
                <$type>::to_f64(self)
            }
            fn from_f32(x: f32) -> Self {
                <$type>::from_f32(x)
            }
            fn to_f32(self) -> f32 {
                <$type>::to_f32(self)
            }
            fn add(self, other: Self) -> Self {
                <$type>::from_f32(<$type>::to_f32(self) + <$type>::to_f32(other))
            }
        }
    };
}

impl_half!(f16, "f16");
impl_half!(bf16, "bf16");

#[cfg(test)]
mod tests {
    use super::*;

    fn check<V: Value>(name: &str) {
        assert_eq!(V::NAME, name);
        assert_eq!(bytemuck::bytes_of(&V::ZERO), vec![0; size_of::<V>()]);
        assert_eq!(V::default(), V::ZERO);
        for x in [-4.0, -0.5, 0.0, 1.0, 3.0, 96.0] {
            assert_eq!(V::from_f64(x).to_f64(), x);
            assert_eq!(f64::from(V::from_f64(x).to_f32()), x);
            assert_eq!(V::from_f64(x).add(V::ONE).to_f64(), x + 1.0);
        }
        assert_eq!(V::from_f32(2.0).to_f64(), 2.0);
        assert!(V::from_f64(f64::NAN).to_f64().is_nan());
        assert_eq!(V::from_f64(f64::NEG_INFINITY).to_f64(), f64::NEG_INFINITY);
    }

    #[test]
    fn every_type_converts_small_integers_exactly() {
        check::<f32>("f32");
        check::<f64>("f64");
        check::<f16>("f16");
        check::<bf16>("bf16");
    }

    #[test]
    fn out_of_range_becomes_infinite() {
        assert_eq!(<f16 as Value>::from_f64(70_000.0), f16::INFINITY);
        assert_eq!(<f32 as Value>::from_f64(1e40), f32::INFINITY);
    }

    #[test]
    fn conversion_from_f64_rounds_once() {
        // Halfway between 1 and the next f16 but for 2^-40: rounding to f32 first would lose it.
        let x = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(<f16 as Value>::from_f64(x).to_f64(), 1.0 + 2f64.powi(-10));
        // bf16 has 8 significant bits, f32 has 24: the same trap with 2^-8 and 2^-40.
        let x = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(<bf16 as Value>::from_f64(x).to_f64(), 1.0 + 2f64.powi(-7));
        for sign in [1.0, -1.0] {
            assert_eq!(<f16 as Value>::from_f64(sign * 1e-300).to_f64(), 0.0);
            assert_eq!(<bf16 as Value>::from_f64(sign * 1e300).to_f64(), sign * f64::INFINITY);
        }
    }

    #[test]
    fn conversion_from_f64_takes_the_nearer_neighbour() {
        // Every finite f16 and its successor: below, at and above the middle between them.
        for bits in 0..0x7BFF {
            let (low, high) = (f16::from_bits(bits), f16::from_bits(bits + 1));
            let middle = 0.5 * (f64::from(low) + f64::from(high));
            let even = if bits % 2 == 0 { low } else { high };
            for (x, want) in [(middle.next_down(), low), (middle, even), (middle.next_up(), high)] {
                assert_eq!(<f16 as Value>::from_f64(x), want, "{x:e}");
                assert_eq!(<f16 as Value>::from_f64(-x), -want, "-{x:e}");
            }
        }
    }

    #[test]
    fn sums_are_rounded_to_the_type() {
        let big = f16::from_f32(2048.0);
        assert_eq!(Value::add(big, f16::ONE), big, "2049 is not an f16; ties go to even");
    }
}

//! The values of `A` in the bits that kernels take.

use half::f16;
use rayon::prelude::*;
use windrow_formats::Value;

use crate::options::Precision;

/// One value for each entry, rounded to a plan's precision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bits {
    F16(Vec<u16>),
    F32(Vec<u32>),
}

impl Bits {
    /// `values` rounded once to `precision`.
    pub(crate) fn of<V: Value>(precision: Precision, values: &[V]) -> Self {
        match precision {
            Precision::F16 => Self::F16(
                values.par_iter().map(|&v| <f16 as Value>::from_f64(v.to_f64()).to_bits()).collect(),
            ),
            Precision::F32 => Self::F32(values.par_iter().map(|v| v.to_f32().to_bits()).collect()),
        }
    }

    /// How many of `values` are finite but not after the rounding.
    pub(crate) fn overflowed<V: Value>(&self, values: &[V]) -> u64 {
        let lost = |finite: bool, value: &V| !finite && value.to_f64().is_finite();
        let count = match self {
            Self::F16(bits) => {
                bits.par_iter().zip(values).filter(|(b, v)| lost(f16::from_bits(**b).is_finite(), v)).count()
            }
            Self::F32(bits) => {
                bits.par_iter().zip(values).filter(|(b, v)| lost(f32::from_bits(**b).is_finite(), v)).count()
            }
        };
        count as u64
    }

    /// How many values are infinite or not a number.
    pub(crate) fn non_finite(&self) -> u64 {
        let count = match self {
            Self::F16(bits) => bits.par_iter().filter(|&&b| !f16::from_bits(b).is_finite()).count(),
            Self::F32(bits) => bits.par_iter().filter(|&&b| !f32::from_bits(b).is_finite()).count(),
        };
        count as u64
    }

    /// The values of these entries.
    pub(crate) fn gather(&self, entries: &[u32]) -> Self {
        match self {
            Self::F16(bits) => Self::F16(entries.par_iter().map(|&e| bits[e as usize]).collect()),
            Self::F32(bits) => Self::F32(entries.par_iter().map(|&e| bits[e as usize]).collect()),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::F16(bits) => bytemuck::cast_slice(bits),
            Self::F32(bits) => bytemuck::cast_slice(bits),
        }
    }

    /// The values as the CPU multiplies them.
    pub(crate) fn to_f32(&self) -> Vec<f32> {
        match self {
            Self::F16(bits) => bits.par_iter().map(|&b| f16::from_bits(b).to_f32()).collect(),
            Self::F32(bits) => bits.par_iter().map(|&b| f32::from_bits(b)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_once_and_overflow_is_counted() {
        // Halfway between 1 and the next f16, but for a bit that f32 would lose.
        let values = [1.0 + 2f64.powi(-11) + 2f64.powi(-40), 70_000.0, f64::INFINITY, 1e300];
        let bits = Bits::of(Precision::F16, &values);
        assert_eq!(bits.to_f32(), [1.0 + 2f32.powi(-10), f32::INFINITY, f32::INFINITY, f32::INFINITY]);
        assert_eq!(bits.overflowed(&values), 2);
        assert_eq!(bits.non_finite(), 3);
        let bits = Bits::of(Precision::F32, &values);
        assert_eq!(bits.overflowed(&values), 1);
        assert_eq!(bits.non_finite(), 2);
        assert_eq!(bits.gather(&[1, 0]).to_f32(), [70_000.0, 1.0 + 2f32.powi(-11)]);
        assert_eq!(bits.bytes().len(), 16);
    }
}

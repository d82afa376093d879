//! The values of `A` in the bits that kernels take.

use half::{bf16, f16};
use rayon::prelude::*;
use windrow_formats::Value;
use windrow_kernels::Dtype;

use crate::options::Precision;
use crate::tf32;

/// One value for each entry, rounded to a plan's precision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bits {
    F16(Vec<u16>),
    Bf16(Vec<u16>),
    F32(Vec<u32>),
    /// f32 bits that are rounded already.
    Tf32(Vec<u32>),
}

impl Bits {
    /// `values` rounded once to `precision`.
    pub(crate) fn of<V: Value>(precision: Precision, values: &[V]) -> Self {
        let half = |bits: fn(f64) -> u16| values.par_iter().map(|&v| bits(v.to_f64())).collect();
        match precision {
            Precision::F16 => Self::F16(half(|x| <f16 as Value>::from_f64(x).to_bits())),
            Precision::Bf16 => Self::Bf16(half(|x| <bf16 as Value>::from_f64(x).to_bits())),
            Precision::F32 => Self::F32(values.par_iter().map(|v| v.to_f32().to_bits()).collect()),
            Precision::Tf32 => {
                Self::Tf32(values.par_iter().map(|v| tf32::round_f64(v.to_f64()).to_bits()).collect())
            }
        }
    }

    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            Self::F16(_) => Dtype::F16,
            Self::Bf16(_) => Dtype::Bf16,
            Self::F32(_) => Dtype::F32,
            Self::Tf32(_) => Dtype::Tf32,
        }
    }

    /// The bits of value `i`, in the low bits of a word.
    pub(crate) fn word(&self, i: usize) -> u32 {
        match self {
            Self::F16(bits) | Self::Bf16(bits) => u32::from(bits[i]),
            Self::F32(bits) | Self::Tf32(bits) => bits[i],
        }
    }

    /// Whether value `i` is neither infinite nor not a number.
    fn is_finite(&self, i: usize) -> bool {
        match self {
            Self::F16(bits) => f16::from_bits(bits[i]).is_finite(),
            Self::Bf16(bits) => bf16::from_bits(bits[i]).is_finite(),
            Self::F32(bits) | Self::Tf32(bits) => f32::from_bits(bits[i]).is_finite(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::F16(bits) | Self::Bf16(bits) => bits.len(),
            Self::F32(bits) | Self::Tf32(bits) => bits.len(),
        }
    }

    /// How many of `values` are finite but not after the rounding.
    pub(crate) fn overflowed<V: Value>(&self, values: &[V]) -> u64 {
        let lost = |i: &usize| !self.is_finite(*i) && values[*i].to_f64().is_finite();
        (0..self.len()).into_par_iter().filter(lost).count() as u64
    }

    /// How many values are infinite or not a number.
    pub(crate) fn non_finite(&self) -> u64 {
        (0..self.len()).into_par_iter().filter(|&i| !self.is_finite(i)).count() as u64
    }

    /// The values of these entries.
    pub(crate) fn gather(&self, entries: &[u32]) -> Self {
        fn of<T: Copy + Send + Sync>(bits: &[T], entries: &[u32]) -> Vec<T> {
            entries.par_iter().map(|&e| bits[e as usize]).collect()
        }
        match self {
            Self::F16(bits) => Self::F16(of(bits, entries)),
            Self::Bf16(bits) => Self::Bf16(of(bits, entries)),
            Self::F32(bits) => Self::F32(of(bits, entries)),
            Self::Tf32(bits) => Self::Tf32(of(bits, entries)),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::F16(bits) | Self::Bf16(bits) => bytemuck::cast_slice(bits),
            Self::F32(bits) | Self::Tf32(bits) => bytemuck::cast_slice(bits),
        }
    }

    /// The values as the CPU multiplies them.
    pub(crate) fn to_f32(&self) -> Vec<f32> {
        match self {
            Self::F16(bits) => bits.par_iter().map(|&b| f16::from_bits(b).to_f32()).collect(),
            Self::Bf16(bits) => bits.par_iter().map(|&b| bf16::from_bits(b).to_f32()).collect(),
            Self::F32(bits) | Self::Tf32(bits) => bits.par_iter().map(|&b| f32::from_bits(b)).collect(),
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

    #[test]
    fn the_range_of_f32_is_kept_without_its_bits() {
        let little = 2f64.powi(-40);
        // Just above the tie between two bf16, just below the tie between two tf32, and what f16 cannot hold.
        let values = [1.0 + 2f64.powi(-8) + little, 1.0 + 2f64.powi(-11) - little, 70_000.0, 3e38, f64::NAN];
        let bits = Bits::of(Precision::Bf16, &values);
        assert_eq!(bits.to_f32()[..3], [1.0 + 2f32.powi(-7), 1.0, 70_144.0]);
        assert_eq!((bits.overflowed(&values), bits.non_finite(), bits.bytes().len()), (0, 1, 10));
        assert_eq!(bits.gather(&[2]).bytes(), 0x4789u16.to_ne_bytes());
        let bits = Bits::of(Precision::Tf32, &values);
        assert_eq!(bits.to_f32()[..3], [1.0 + 2f32.powi(-8), 1.0, 70_016.0]);
        assert_eq!((bits.overflowed(&values), bits.non_finite(), bits.bytes().len()), (0, 1, 20));
        assert_eq!(Bits::of(Precision::Tf32, &[f32::MAX]).overflowed(&[f32::MAX]), 1);
        assert_eq!(Bits::of(Precision::Bf16, &[f32::MAX]).overflowed(&[f32::MAX]), 1);
    }
}

//! The values of `A` in the bits that kernels take.

use std::any::Any;
use std::sync::OnceLock;

use half::{bf16, f16};
use rayon::prelude::*;
use windrow_formats::memory::try_par_collect;
use windrow_formats::{OutOfMemory, Value};
use windrow_kernels::Dtype;
use windrow_kernels::preprocess::TileRecordsParams;

use crate::options::Precision;
use crate::tf32;

/// Values that a task counts.
const TASK_VALUES: usize = 1 << 14;

/// What becomes of values in a precision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Exceptions {
    /// Finite values that become infinite.
    pub(crate) overflowed: u64,
    /// Values that are infinite or not a number when they are rounded.
    pub(crate) non_finite: u64,
    /// Those that are not a number.
    pub(crate) not_numbers: u64,
}

impl Exceptions {
    /// The exceptions among `values`, without rounding one.
    pub(crate) fn of<V: Value>(precision: Precision, values: &[V]) -> Self {
        let limit = least_infinite(precision);
        let count = |values: &[V]| {
            let mut found = Self::default();
            for value in values {
                let x = value.to_f64().abs();
                found.overflowed += u64::from(x >= limit && x < f64::INFINITY);
                found.non_finite += u64::from(x >= limit);
                found.not_numbers += u64::from(x.is_nan());
            }
            Self { non_finite: found.non_finite + found.not_numbers, ..found }
        };
        values.par_chunks(TASK_VALUES).map(count).reduce(Self::default, |a, b| Self {
            overflowed: a.overflowed + b.overflowed,
            non_finite: a.non_finite + b.non_finite,
            not_numbers: a.not_numbers + b.not_numbers,
        })
    }
}

/// The least magnitude that a precision rounds to infinity: half a place above its largest number, where the tie goes
/// to infinity, which is even and away from zero.
fn least_infinite(precision: Precision) -> f64 {
    match precision {
        Precision::F16 => 65_520.0,
        Precision::Bf16 => f64::from(f32::from_bits(0x7f7f_8000)),
        Precision::Tf32 => f64::from(f32::from_bits(0x7f7f_f000)),
        Precision::F32 => f64::from(f32::MAX) + 2f64.powi(103),
        Precision::F64 => f64::INFINITY,
    }
}

/// The values of a matrix, rounded when they are asked for.
pub(crate) struct Values<'a, V> {
    precision: Precision,
    given: &'a [V],
    pub(crate) exceptions: Exceptions,
    bits: OnceLock<Bits>,
}

/// Values for a kernel that lays them out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unplaced<'a> {
    /// One for each entry.
    pub(crate) bytes: &'a [u8],
    pub(crate) dtype: Dtype,
    /// Whether they are f32 that the kernel is to round.
    pub(crate) to_round: bool,
}

impl Unplaced<'_> {
    /// Rounded, and on the device already.
    pub(crate) fn on_device(dtype: Dtype) -> Self {
        Self { bytes: &[], dtype, to_round: false }
    }

    /// What the kernel is told.
    pub(crate) fn rounding(self) -> u32 {
        match (self.to_round, self.dtype) {
            (false, _) => TileRecordsParams::ROUNDED,
            (true, Dtype::Bf16) => TileRecordsParams::TO_BF16,
            (true, _) => TileRecordsParams::TO_NEAREST,
        }
    }
}

impl<'a, V: Value> Values<'a, V> {
    pub(crate) fn new(precision: Precision, given: &'a [V]) -> Self {
        Self { precision, given, exceptions: Exceptions::of(precision, given), bits: OnceLock::new() }
    }

    /// All of them, rounded.
    pub(crate) fn bits(&self) -> Result<&Bits, OutOfMemory> {
        match self.bits.get() {
            Some(bits) => Ok(bits),
            None => {
                let bits = Bits::of(self.precision, self.given)?;
                Ok(self.bits.get_or_init(|| bits))
            }
        }
    }

    /// What a kernel takes: f32 as they are, unless one is not a number, whose bits a GPU would not keep; others
    /// rounded.
    pub(crate) fn unplaced(&self) -> Result<Unplaced<'_>, OutOfMemory> {
        let is_f32 = (&V::ZERO as &dyn Any).is::<f32>();
        Ok(match is_f32 && self.exceptions.not_numbers == 0 {
            true => Unplaced {
                bytes: bytemuck::cast_slice(self.given),
                dtype: self.precision.dtype(),
                to_round: true,
            },
            false => self.bits()?.unplaced(),
        })
    }
}

/// The values that a plan is made with, whatever their type: the same as [`Values`].
pub(crate) trait GivenValues {
    /// All of them, rounded.
    fn bits(&self) -> Result<&Bits, OutOfMemory>;

    /// What a kernel takes that lays them out.
    fn unplaced(&self) -> Result<Unplaced<'_>, OutOfMemory>;
}

impl<V: Value> GivenValues for Values<'_, V> {
    fn bits(&self) -> Result<&Bits, OutOfMemory> {
        Values::bits(self)
    }

    fn unplaced(&self) -> Result<Unplaced<'_>, OutOfMemory> {
        Values::unplaced(self)
    }
}

/// One value for each entry, rounded to a plan's precision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bits {
    F16(Vec<u16>),
    Bf16(Vec<u16>),
    F32(Vec<u32>),
    /// f32 bits that are rounded already.
    Tf32(Vec<u32>),
    F64(Vec<u64>),
}

impl Bits {
    /// `values` rounded once to `precision`.
    pub(crate) fn of<V: Value>(precision: Precision, values: &[V]) -> Result<Self, OutOfMemory> {
        fn map<V: Value, T: Send>(
            values: &[V],
            bits: impl Fn(&V) -> T + Sync + Send,
        ) -> Result<Vec<T>, OutOfMemory> {
            try_par_collect(values.par_iter().map(bits), "rounded values")
        }
        Ok(match precision {
            Precision::F16 => Self::F16(map(values, |v| <f16 as Value>::from_f64(v.to_f64()).to_bits())?),
            Precision::Bf16 => Self::Bf16(map(values, |v| <bf16 as Value>::from_f64(v.to_f64()).to_bits())?),
            Precision::F32 => Self::F32(map(values, |v| v.to_f32().to_bits())?),
            Precision::F64 => Self::F64(map(values, |v| v.to_f64().to_bits())?),
            Precision::Tf32 => Self::Tf32(map(values, |v| tf32::round_f64(v.to_f64()).to_bits())?),
        })
    }

    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            Self::F16(_) => Dtype::F16,
            Self::Bf16(_) => Dtype::Bf16,
            Self::F32(_) => Dtype::F32,
            Self::Tf32(_) => Dtype::Tf32,
            Self::F64(_) => Dtype::F64,
        }
    }

    /// The bits of value `i`, in the low bits of a word.
    pub(crate) fn word(&self, i: usize) -> u32 {
        match self {
            Self::F16(bits) | Self::Bf16(bits) => u32::from(bits[i]),
            Self::F32(bits) | Self::Tf32(bits) => bits[i],
            // Records of tiles, which f64 has none of, are made of such words.
            Self::F64(_) => {
                debug_assert!(false, "f64 has no tiles");
                0
            }
        }
    }

    pub(crate) fn unplaced(&self) -> Unplaced<'_> {
        Unplaced { bytes: self.bytes(), dtype: self.dtype(), to_round: false }
    }

    /// The values of these entries.
    pub(crate) fn gather(&self, entries: &[u32]) -> Result<Self, OutOfMemory> {
        fn of<T: Copy + Send + Sync>(bits: &[T], entries: &[u32]) -> Result<Vec<T>, OutOfMemory> {
            try_par_collect(entries.par_iter().map(|&e| bits[e as usize]), "values in their order")
        }
        Ok(match self {
            Self::F16(bits) => Self::F16(of(bits, entries)?),
            Self::Bf16(bits) => Self::Bf16(of(bits, entries)?),
            Self::F32(bits) => Self::F32(of(bits, entries)?),
            Self::Tf32(bits) => Self::Tf32(of(bits, entries)?),
            Self::F64(bits) => Self::F64(of(bits, entries)?),
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::F16(bits) | Self::Bf16(bits) => bytemuck::cast_slice(bits),
            Self::F32(bits) | Self::Tf32(bits) => bytemuck::cast_slice(bits),
            Self::F64(bits) => bytemuck::cast_slice(bits),
        }
    }

    /// The values as the CPU multiplies them: in the type of the precision's sums, or a wider one.
    pub(crate) fn numbers<S: Value>(&self) -> Result<Vec<S>, OutOfMemory> {
        fn of<T: Copy + Sync, S: Value>(
            bits: &[T],
            number: impl Fn(T) -> S + Sync + Send,
        ) -> Result<Vec<S>, OutOfMemory> {
            try_par_collect(bits.par_iter().map(|&bits| number(bits)), "rounded values")
        }
        match self {
            Self::F16(bits) => of(bits, |bits| S::from_f32(f16::from_bits(bits).to_f32())),
            Self::Bf16(bits) => of(bits, |bits| S::from_f32(bf16::from_bits(bits).to_f32())),
            Self::F32(bits) | Self::Tf32(bits) => of(bits, |bits| S::from_f32(f32::from_bits(bits))),
            Self::F64(bits) => of(bits, |bits| S::from_f64(f64::from_bits(bits))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_rounded_once_and_overflow_is_counted() {
        // Halfway between 1 and the next f16, but for a bit that f32 would lose.
        let values = [1.0 + 2f64.powi(-11) + 2f64.powi(-40), 70_000.0, f64::INFINITY, 1e300];
        let bits = Bits::of(Precision::F16, &values).unwrap();
        assert_eq!(
            bits.numbers::<f32>().unwrap(),
            [1.0 + 2f32.powi(-10), f32::INFINITY, f32::INFINITY, f32::INFINITY]
        );
        assert_eq!(counts(Precision::F16, &values), [2, 3, 0]);
        let bits = Bits::of(Precision::F32, &values).unwrap();
        assert_eq!(counts(Precision::F32, &values), [1, 2, 0]);
        assert_eq!(bits.gather(&[1, 0]).unwrap().numbers::<f32>().unwrap(), [70_000.0, 1.0 + 2f32.powi(-11)]);
        assert_eq!(bits.bytes().len(), 16);
    }

    #[test]
    fn the_range_of_f32_is_kept_without_its_bits() {
        let little = 2f64.powi(-40);
        // Just above the tie between two bf16, just below the tie between two tf32, and what f16 cannot hold.
        let values = [1.0 + 2f64.powi(-8) + little, 1.0 + 2f64.powi(-11) - little, 70_000.0, 3e38, f64::NAN];
        let bits = Bits::of(Precision::Bf16, &values).unwrap();
        assert_eq!(bits.numbers::<f32>().unwrap()[..3], [1.0 + 2f32.powi(-7), 1.0, 70_144.0]);
        assert_eq!((counts(Precision::Bf16, &values), bits.bytes().len()), ([0, 1, 1], 10));
        assert_eq!(bits.gather(&[2]).unwrap().bytes(), 0x4789u16.to_ne_bytes());
        let bits = Bits::of(Precision::Tf32, &values).unwrap();
        assert_eq!(bits.numbers::<f32>().unwrap()[..3], [1.0 + 2f32.powi(-8), 1.0, 70_016.0]);
        assert_eq!((counts(Precision::Tf32, &values), bits.bytes().len()), ([0, 1, 1], 20));
        assert_eq!(counts(Precision::Tf32, &[f32::MAX]), [1, 1, 0]);
        assert_eq!(counts(Precision::Bf16, &[f32::MAX]), [1, 1, 0]);
    }

    /// The exceptions by rounding every value.
    fn by_rounding<V: Value>(precision: Precision, values: &[V]) -> [u64; 3] {
        let rounded = Bits::of(precision, values).unwrap().numbers::<f64>().unwrap();
        let both = || values.iter().zip(&rounded).map(|(x, rounded)| (x.to_f64(), *rounded));
        let count = |found: &dyn Fn(f64, f64) -> bool| both().filter(|&(x, r)| found(x, r)).count() as u64;
        [
            count(&|x, rounded| x.is_finite() && !rounded.is_finite()),
            count(&|_, rounded| !rounded.is_finite()),
            count(&|_, rounded| rounded.is_nan()),
        ]
    }

    fn counts<V: Value>(precision: Precision, values: &[V]) -> [u64; 3] {
        let Exceptions { overflowed, non_finite, not_numbers } = Exceptions::of(precision, values);
        [overflowed, non_finite, not_numbers]
    }

    #[test]
    fn exceptions_are_found_without_rounding() {
        for precision in Precision::ALL {
            let limit = least_infinite(precision);
            let below = f64::from_bits(limit.to_bits() - 1);
            let values = [limit, below, -limit, -below, f64::NAN, f64::INFINITY, 0.0, 1e-320, f64::MAX];
            assert_eq!(counts(precision, &values), by_rounding(precision, &values), "{precision}");
            // Nothing that is finite overflows in f64.
            let want = if precision == Precision::F64 { [0, 4, 1] } else { [3, 5, 1] };
            assert_eq!(counts(precision, &values), want, "{precision}");
        }
    }

    proptest! {
        #[test]
        fn exceptions_of_any_values(bits: Vec<u32>, wide: Vec<u64>) {
            let narrow: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
            let wide: Vec<f64> = wide.into_iter().map(f64::from_bits).collect();
            for precision in Precision::ALL {
                prop_assert_eq!(counts(precision, &narrow), by_rounding(precision, &narrow));
                prop_assert_eq!(counts(precision, &wide), by_rounding(precision, &wide));
            }
        }
    }
}

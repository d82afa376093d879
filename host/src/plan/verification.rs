//! How far a result may be from its reference: units of roundoff, bounds, and what a comparison found.

use std::fmt;
use std::ops::Range;

use half::f16;
use rayon::prelude::*;
use windrow_formats::OutOfMemory;
use windrow_formats::memory::try_zeroed;

use crate::cpu::each_chunk;
use crate::element::{Element, is_narrow};
use crate::error::PlanError;
use crate::num::wide;
use crate::options::Precision;
use crate::tf32;
use crate::view::DeviceView;

/// Unit roundoff of f32 arithmetic: CUDA cores and CPU.
pub(crate) const UNIT_FMA: f32 = 1.0 / 16_777_216.0;
/// Unit roundoff of f64 arithmetic.
const UNIT_F64: f32 = UNIT_FMA * UNIT_FMA / 32.0;
/// Unit roundoff assumed for Tensor Cores, whose rounding inside is not promised.
pub(crate) const UNIT_MMA: f32 = 1.0 / 8_388_608.0;

/// Elements that a thread converts at a time.
const TASK_ELEMENTS: usize = 1 << 14;

/// How far a product is from its reference, in units of its error bound. References are summed with twice f64's
/// precision.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Verification {
    /// The largest error divided by its bound; at most 1 if the product is right, infinite where one of result and
    /// reference is finite and the other is not.
    pub worst_ratio: f64,
    /// Row of that element.
    pub worst_row: usize,
    /// Column of that element.
    pub worst_col: usize,
    /// Elements beyond their bound.
    pub failures: u64,
    /// Elements checked: all of `C`.
    pub checked: u64,
}

impl Verification {
    pub(crate) const NOTHING: Self =
        Self { worst_ratio: 0.0, worst_row: 0, worst_col: 0, failures: 0, checked: 0 };

    /// Whether every element is within its bound.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures == 0 && self.worst_ratio <= 1.0
    }

    /// Of two disjoint parts of `C`.
    pub(crate) fn and(self, other: Self) -> Self {
        let worst = if other.worst_ratio > self.worst_ratio { other } else { self };
        Self { failures: self.failures + other.failures, checked: self.checked + other.checked, ..worst }
    }

    /// [`and`](Self::and) that names the first of equally bad rows, in whatever order threads come to them.
    pub(crate) fn worst_first(self, other: Self) -> Self {
        if self.worst_row <= other.worst_row { self.and(other) } else { other.and(self) }
    }
}

/// Columns of `C` that a thread sums at a time, on its stack, where references are no vectors of the whole width.
pub(crate) const SUMMED_AT_ONCE: usize = 64;

/// The ranges of [`SUMMED_AT_ONCE`] of so many columns.
pub(crate) fn column_blocks(columns: usize) -> impl Iterator<Item = Range<usize>> {
    (0..columns).step_by(SUMMED_AT_ONCE).map(move |at| at..columns.min(at + SUMMED_AT_ONCE))
}

/// The parts of `C` together, each checked by `of_part`, on the threads of the current rayon pool.
pub(crate) fn all_parts(
    parts: usize,
    of_part: &(dyn Fn(usize) -> Result<Verification, OutOfMemory> + Sync),
) -> Result<Verification, OutOfMemory> {
    let worst_first = |a: Verification, b| Ok(a.worst_first(b));
    (0..parts).into_par_iter().map(of_part).try_reduce_with(worst_first).unwrap_or(Ok(Verification::NOTHING))
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed() { "passed" } else { "FAILED" };
        write!(
            f,
            "{verdict}: {} elements, {} beyond the bound, worst {:.3} of it at row {}, column {}",
            self.checked, self.failures, self.worst_ratio, self.worst_row, self.worst_col
        )
    }
}

/// Unit roundoff of sums on CUDA cores and the CPU in a precision.
pub(crate) fn unit_of(precision: Precision) -> f32 {
    match precision {
        Precision::F16 | Precision::Bf16 | Precision::F32 | Precision::Tf32 => UNIT_FMA,
        Precision::F64 => UNIT_F64,
    }
}

/// The elements as a plan of `precision` multiplies them, on the host.
pub(crate) fn multiplied<'a, E: Element>(
    precision: Precision,
    matrix: impl Into<DeviceView<'a, E>>,
) -> Result<Vec<f64>, PlanError> {
    let elements = matrix.into().to_host()?;
    let mut multiplied = try_zeroed(elements.len(), "an operand as it is multiplied")?;
    each_chunk(&mut multiplied, TASK_ELEMENTS, &|task, to| {
        for (to, element) in to.iter_mut().zip(&elements[task * TASK_ELEMENTS..]) {
            *to = tf32::as_multiplied(precision, element.to_f64());
        }
    });
    Ok(multiplied)
}

/// A sum of products with twice f64's precision, as an unevaluated sum `high + low` (Ogita, Rump and Oishi 2005,
/// algorithm 5.3).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Double {
    high: f64,
    low: f64,
}

impl Double {
    /// Adds `a·b`, and returns it rounded.
    pub(crate) fn add_product(&mut self, a: f64, b: f64) -> f64 {
        let product = a * b;
        let product_error = a.mul_add(b, -product);
        let sum = self.high + product;
        let of_product = sum - self.high;
        let sum_error = (self.high - (sum - of_product)) + (product - of_product);
        *self = Self { high: sum, low: self.low + (product_error + sum_error) };
        product
    }

    /// The sum, rounded; not finite where a plain sum is not.
    pub(crate) fn value(self) -> f64 {
        if self.high.is_finite() { self.high + self.low } else { self.high }
    }

    /// `x` less the sum.
    fn from(self, x: f64) -> f64 {
        if self.high.is_finite() { (x - self.high) - self.low } else { x - self.high }
    }

    /// The sum times a factor.
    pub(crate) fn times(self, factor: f64) -> Self {
        let mut product = Self::default();
        if product.add_product(self.high, factor).is_finite() {
            product.add_product(self.low, factor); // else what is low may be no number
        }
        product
    }
}

/// What storing a result in its type may change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Storing {
    /// Unit roundoff, a little more of it.
    pub(crate) unit: f64,
    /// Spacing of subnormal numbers; 0 if nothing is rounded.
    pub(crate) tiny: f64,
    /// What is larger may be infinite.
    pub(crate) largest: f64,
}

impl Storing {
    /// In the element type of a precision.
    pub(crate) fn of(precision: Precision) -> Self {
        let (unit, tiny, largest) = match precision {
            Precision::F16 => (4.9e-4, 6.0e-8, f16::MAX.to_f64()),
            Precision::Bf16 => (3.92e-3, 1e-40, 3.39e38),
            Precision::F32 | Precision::Tf32 => (0.0, 0.0, f64::from(f32::MAX)),
            Precision::F64 => (0.0, 0.0, f64::MAX),
        };
        Self { unit, tiny, largest }
    }
}

/// What roundings may add up to where all are of subnormal numbers of the sums' type.
pub(crate) fn subnormal_error(roundings: f64, unit: f32) -> f64 {
    roundings * if unit < UNIT_FMA { 5e-324 } else { 1.5e-45 }
}

/// `γ(t) = t·u / (1 − t·u)`: relative to the sum of absolute values, what `t` roundings may add up to.
pub(crate) fn gamma(roundings: f64, unit: f32) -> f64 {
    let t = roundings * f64::from(unit);
    t / (1.0 - t)
}

/// `|got − want|` in units of the bound for a sum of `len` products, whose absolute values add up to `scale`;
/// as the kernel has it, for which no sum in f32 is beyond what f32 holds.
pub(crate) fn error_ratio<C: Element>(got: f64, want: Double, scale: f64, len: usize, unit: f32) -> f64 {
    let storing = Storing::of(C::PRECISION);
    let largest = if is_narrow::<C>() { storing.largest } else { f64::INFINITY };
    let roundings = crate::num::real(wide(len)) + 2.0;
    let of_sum = gamma(roundings, unit) * scale + subnormal_error(roundings, unit);
    let bound = of_sum + storing.unit * want.value().abs() + storing.tiny;
    ratio_to(got, want, bound, largest)
}

/// `|got − want|` in units of the bound; infinite where only one of the two is finite, unless `want` is beyond
/// `largest` and `got` infinite.
pub(crate) fn bounded_ratio(got: f64, want: f64, bound: f64, largest: f64) -> f64 {
    ratio_to(got, Double { high: want, low: 0.0 }, bound, largest)
}

/// The same of a reference with more than f64's precision.
pub(crate) fn ratio_to(got: f64, want: Double, bound: f64, largest: f64) -> f64 {
    let value = want.value();
    if value.is_nan() {
        return if got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if value.is_infinite() || (got.is_infinite() && value.abs() > largest) {
        return if got == value.signum() * f64::INFINITY { 0.0 } else { f64::INFINITY };
    }
    let ratio = want.from(got).abs() / bound;
    if ratio.is_nan() { f64::INFINITY } else { ratio }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(want: f64) -> Double {
        Double { high: want, low: 0.0 }
    }

    #[test]
    fn references_have_more_bits_than_f64() {
        let little = 2f64.powi(-70);
        let mut sum = Double::default();
        for (a, b) in [(1.0, 1.0), (little, 1.0), (-1.0, 1.0), (1.0 + 2f64.powi(-40), 2f64.powi(-40))] {
            sum.add_product(a, b);
        }
        // All bits of three numbers of very different sizes.
        assert_eq!(sum.from(2f64.powi(-40)), -(2f64.powi(-80) + little));
        let mut infinite = Double::default();
        infinite.add_product(f64::MAX, 2.0);
        assert_eq!((infinite.value(), sum.times(-2.0).value()), (f64::INFINITY, -2.0 * sum.value()));
        assert_eq!(
            (infinite.times(-1.0).value(), sum.times(f64::INFINITY).value()),
            (-f64::INFINITY, f64::INFINITY)
        );
        // Half a unit in the last place of f64 counts as what it is.
        let ratio = error_ratio::<f64>(1.0, Double { high: 1.0, low: 2f64.powi(-54) }, 1.0, 0, UNIT_F64);
        assert!((ratio - 0.25).abs() < 1e-3, "{ratio}");
    }

    #[test]
    fn ratios_follow_the_bound() {
        let unit = UNIT_FMA;
        let bound = 3.0 * f64::from(unit) / (1.0 - 3.0 * f64::from(unit)) * 4.0;
        let ratio = error_ratio::<f32>(2.0 + bound, of(2.0), 4.0, 1, unit);
        assert!((ratio - 1.0).abs() < 1e-6, "{ratio}");
        assert_eq!(error_ratio::<f32>(0.0, of(0.0), 0.0, 0, unit), 0.0);
        assert!(error_ratio::<f32>(1e-30, of(0.0), 0.0, 0, unit) > 1.0);
    }

    #[test]
    fn what_is_not_finite_must_agree() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for (got, want, right) in [
            (nan, nan, true),
            (1.0, nan, false),
            (inf, inf, true),
            (-inf, inf, false),
            (1.0, inf, false),
            (nan, 1.0, false),
            (inf, 1.0, false),
        ] {
            assert_eq!(error_ratio::<f32>(got, of(want), 1.0, 1, UNIT_FMA) == 0.0, right, "{got} for {want}");
        }
        assert_eq!(error_ratio::<f16>(inf, of(70_000.0), 70_000.0, 1, UNIT_FMA), 0.0);
        assert_eq!(error_ratio::<f32>(inf, of(70_000.0), 70_000.0, 1, UNIT_FMA), inf);
    }
}

//! The state of an online softmax: what the entries so far add up to.

use core::f32::consts::LOG2_E;

use windrow_simt::Simt;

use crate::unroll::each;

/// Logarithm of what weights are multiplied by. Their largest is 2⁸ and more, so that what a product of 16 bits loses
/// of a small one is small, and below 2¹⁴, so that none overflows.
const WEIGHT_LOG2: f32 = 8.0;
/// Weights of the largest score are that much beyond what the maximum so far stands for, at most: 2⁶.
const SLACK: f32 = 6.0 / LOG2_E;
/// The reciprocal of the factor of weights.
const UNSCALED: f32 = 1.0 / 256.0;

/// A maximum that scores are taken relative to, and what their weights add up to.
#[derive(Clone, Copy)]
pub(super) struct Softmax {
    /// No score so far is more than [`SLACK`] above it; minus infinity before the first.
    pub(super) max: f32,
    /// Sum of the weights, in this lane's part of the entries.
    pub(super) weight: f32,
}

impl Softmax {
    pub(super) const EMPTY: Self = Self { max: f32::NEG_INFINITY, weight: 0.0 };

    /// Whether a score is so far above the maximum that weights would become too large.
    #[inline(always)]
    pub(super) fn is_passed_by(&self, score: f32) -> bool {
        score > self.max + SLACK
    }

    /// Raises the maximum to a score; returns what everything added up so far is to be multiplied by.
    #[inline(always)]
    pub(super) fn raise<S: Simt>(&mut self, s: &S, score: f32) -> f32 {
        let max = self.max.max(score);
        let factor = rescale(s, self.max, max);
        self.max = max;
        self.weight *= factor;
        factor
    }

    /// The weight of a score, `2⁸ · exp(score − max)`; 0 for minus infinity.
    #[inline(always)]
    pub(super) fn weigh<S: Simt>(&self, s: &S, score: f32) -> f32 {
        // Until there is a score all are minus infinity, and their difference would be no number.
        let base = if self.max == f32::NEG_INFINITY { 0.0 } else { self.max };
        s.exp2(s.fma(score - base, LOG2_E, WEIGHT_LOG2))
    }

    /// Maximum and sum as the gradient reads them, `Σ exp(score − max)`.
    #[inline(always)]
    pub(super) fn state(&self) -> [f32; 2] {
        [self.max, self.weight * UNSCALED]
    }

    /// What sums are to be multiplied by; 0 where there was nothing to weigh.
    #[inline(always)]
    pub(super) fn inverse(&self) -> f32 {
        if self.weight == 0.0 { 0.0 } else { 1.0 / self.weight }
    }
}

/// `exp(from − to)`, by which weights relative to `from` become such relative to `to`.
#[inline(always)]
pub(super) fn rescale<S: Simt>(s: &S, from: f32, to: f32) -> f32 {
    if from == to { 1.0 } else { s.exp2((from - to) * LOG2_E) }
}

/// Parts of a row, to be joined in their order.
#[derive(Clone, Copy)]
pub(super) struct Joined {
    pub(super) softmax: Softmax,
    /// A sum of weights times elements, relative to the same maximum.
    pub(super) sum: f32,
}

impl Joined {
    pub(super) const fn new(max: f32) -> Self {
        Self { softmax: Softmax { max, weight: 0.0 }, sum: 0.0 }
    }

    /// Adds a part, whose maximum is no larger.
    #[inline(always)]
    pub(super) fn add<S: Simt>(&mut self, s: &S, part: Softmax, sum: f32) {
        if part.weight != 0.0 {
            let factor = rescale(s, part.max, self.softmax.max);
            self.softmax.weight = s.fma(factor, part.weight, self.softmax.weight);
            self.sum = s.fma(factor, sum, self.sum);
        }
    }
}

/// The sum over lanes of equal `lane % 4`, in a fixed tree.
///
/// # Safety
/// A collective of the full warp.
#[inline(always)]
pub(super) unsafe fn over_entries<S: Simt>(s: &S, mut value: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
    each::<3>(|i| {
        // SAFETY: the caller's promise.
        let other = unsafe { s.shuffle_xor(value.to_bits(), 4 << i) };
        value = combine(value, f32::from_bits(other));
    });
    value
}

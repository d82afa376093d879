//! How the score of an entry is made.

use super::{AttentionGradientParams, AttentionParams};

/// How scores are made: of products of rows, or of a number of the row and one of the column.
pub trait ScoreForm: 'static {
    /// Whether they are of numbers: `Q` and `K` then have one column, of f32.
    const ADDITIVE: bool;
}

/// `scale · Σ_c Q[i, c]·K[j, c] + bias[i, j]`.
pub struct DotProduct;
/// `scale · leaky_relu(Q[i] + K[j] + bias[i, j])`: graph attention (GAT).
pub struct Additive;

impl ScoreForm for DotProduct {
    const ADDITIVE: bool = false;
}

impl ScoreForm for Additive {
    const ADDITIVE: bool = true;
}

/// A factor of additive scores, and the slope of their leaky rectifier below zero.
#[derive(Clone, Copy)]
pub(super) struct Rectified {
    pub(super) scale: f32,
    pub(super) negative_slope: f32,
}

impl Rectified {
    /// The slope at `sum`, 1 where it is positive.
    #[inline(always)]
    pub(super) fn slope(self, sum: f32) -> f32 {
        if sum > 0.0 { 1.0 } else { self.negative_slope }
    }

    /// The score of what the numbers of an entry add up to.
    #[inline(always)]
    pub(super) fn score(self, sum: f32) -> f32 {
        self.scale * (sum * self.slope(sum))
    }
}

impl AttentionParams {
    #[inline(always)]
    pub(super) const fn rectified(&self) -> Rectified {
        Rectified { scale: self.scale, negative_slope: self.negative_slope }
    }
}

impl AttentionGradientParams {
    #[inline(always)]
    pub(super) const fn rectified(&self) -> Rectified {
        Rectified { scale: self.scale, negative_slope: self.negative_slope }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_below_zero_count_less() {
        let rectified = Rectified { scale: 2.0, negative_slope: 0.25 };
        assert_eq!([3.0, 0.0, -4.0].map(|sum| rectified.score(sum)), [6.0, 0.0, -2.0]);
        assert_eq!([3.0, 0.0, -4.0].map(|sum| rectified.slope(sum)), [1.0, 0.25, 0.25]);
        assert_eq!(rectified.score(f32::NEG_INFINITY), f32::NEG_INFINITY);
        assert!(rectified.score(f32::NAN).is_nan());
    }
}

//! How the score of an entry is made by lanes that have some elements of each row, and what its slope does to these.

use core::marker::PhantomData;

use windrow_simt::{GlobalPtr, Simt};

use super::lanes::{Elements, LaneHeads, Lanes};
use super::{AttentionGradientParams, AttentionParams, HeadMatrix};
use crate::element::{Element, Gather};

/// How scores are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreKind {
    /// Of products of rows.
    DotProduct,
    /// Of a number of the row and one of the column: `Q` and `K` have one column, of f32.
    Additive,
    /// Of sums of rows, element by element.
    Gatv2,
}

/// How scores are made, as a type.
pub trait ScoreForm: 'static {
    /// The same, as a value.
    const KIND: ScoreKind;
    /// Whether they are of numbers.
    const ADDITIVE: bool = matches!(Self::KIND, ScoreKind::Additive);
}

/// `scale · Σ_c Q[i, c]·K[j, c] + bias[i, j]`.
pub struct DotProduct;
/// `scale · leaky_relu(Q[i] + K[j] + bias[i, j])`: graph attention (GAT).
pub struct Additive;
/// `scale · Σ_c a[c]·leaky_relu(Q[i, c] + K[j, c]) + bias[i, j]`: graph attention that ranks differently for each row
/// (`GATv2`).
pub struct Gatv2;

impl ScoreForm for DotProduct {
    const KIND: ScoreKind = ScoreKind::DotProduct;
}

impl ScoreForm for Additive {
    const KIND: ScoreKind = ScoreKind::Additive;
}

impl ScoreForm for Gatv2 {
    const KIND: ScoreKind = ScoreKind::Gatv2;
}

/// The factor of scores, and the slope of their leaky rectifier below zero, where they have one.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    pub(super) scale: f32,
    pub(super) negative_slope: f32,
}

impl Factors {
    /// The rectifier's slope at `sum`, 1 where it is positive.
    #[inline(always)]
    fn slope(self, sum: f32) -> f32 {
        if sum > 0.0 { 1.0 } else { self.negative_slope }
    }
}

/// Lanes that make scores of a form, each of its elements of rows that are read in one way.
pub(super) struct Scores<C, G, const LANES: u32, const PARTS: usize>(PhantomData<(C, G)>);

/// What the row of a walk gives to its scores.
pub(super) struct OwnRow<const PARTS: usize> {
    /// Of a number, the first.
    elements: Elements<PARTS>,
    /// What sums of elements are multiplied by.
    vector: Elements<PARTS>,
}

/// What the row of an entry gives to its score, under way.
pub(super) struct OtherRow<G: Gather, const PARTS: usize> {
    raw: [G::Raw; PARTS],
    /// Instead of them, where scores are of numbers.
    number: f32,
}

impl<C, G, const LANES: u32, const PARTS: usize> Scores<C, G, LANES, PARTS>
where
    C: ScoreForm,
    G: Gather<Element: Element<Sum = f32>>,
{
    /// The row of an entry that is not there.
    pub(super) const NONE: OtherRow<G, PARTS> = OtherRow { raw: Lanes::<G, LANES, PARTS>::NONE, number: 0.0 };

    /// Reads the row of a walk, from `Q` or `K`, and a head's `vector`.
    ///
    /// # Safety
    /// As for [`Simt::load_readonly`]; there is such a row, and scores that need a vector have one.
    #[inline(always)]
    pub(super) unsafe fn own<S: Simt>(
        s: &S,
        of: &HeadMatrix,
        vector: GlobalPtr<f32>,
        (heads, row): (LaneHeads, u32),
    ) -> OwnRow<PARTS> {
        let mut own = OwnRow { elements: [[0.0; 8]; PARTS], vector: [[0.0; 8]; PARTS] };
        // SAFETY: the caller's promise; only elements that are there are read.
        unsafe {
            if C::ADDITIVE {
                own.elements[0][0] = of.number(s, heads.own, row);
            } else {
                let raw = Lanes::<G, LANES, PARTS>::fetch(s, of, heads.first, row);
                own.elements = Lanes::<G, LANES, PARTS>::elements(s, raw);
            }
            if matches!(C::KIND, ScoreKind::Gatv2) {
                Lanes::<G, LANES, PARTS>::each_element(|part, e| {
                    let column = Lanes::<G, LANES, PARTS>::column(s, part) + e as u32;
                    if column < of.columns {
                        own.vector[part][e] = s.load_readonly(vector.at(heads.walk * of.columns + column));
                    }
                });
            }
        }
        own
    }

    /// Has the row of an entry under way.
    ///
    /// # Safety
    /// As for [`Simt::load_readonly`]; there is such a row.
    #[inline(always)]
    pub(super) unsafe fn fetch<S: Simt>(
        s: &S,
        of: &HeadMatrix,
        heads: LaneHeads,
        row: u32,
    ) -> OtherRow<G, PARTS> {
        let mut other = Self::NONE;
        // SAFETY: the caller's promise.
        unsafe {
            if C::ADDITIVE {
                other.number = of.number(s, heads.own, row);
            } else {
                other.raw = Lanes::<G, LANES, PARTS>::fetch(s, of, heads.first, row);
            }
        }
        other
    }

    /// What two rows make, without factor and bias.
    ///
    /// # Safety
    /// A collective of the full warp.
    #[inline(always)]
    pub(super) unsafe fn made<S: Simt>(
        s: &S,
        (factors, heads): (Factors, LaneHeads),
        own: &OwnRow<PARTS>,
        other: &OtherRow<G, PARTS>,
    ) -> f32 {
        if C::ADDITIVE {
            return own.elements[0][0] + other.number;
        }
        let of_other = Lanes::<G, LANES, PARTS>::elements(s, other.raw);
        let mut rectified = own.elements;
        if matches!(C::KIND, ScoreKind::Gatv2) {
            Lanes::<G, LANES, PARTS>::each_element(|part, e| {
                let sum = own.elements[part][e] + of_other[part][e];
                rectified[part][e] = sum * factors.slope(sum);
            });
        }
        let factor = if matches!(C::KIND, ScoreKind::Gatv2) { &own.vector } else { &of_other };
        // SAFETY: the caller's promise.
        unsafe { Lanes::<G, LANES, PARTS>::product(s, heads, &rectified, factor) }
    }

    /// The score of what two rows have [made](Self::made).
    #[inline(always)]
    pub(super) fn score(factors: Factors, made: f32, bias: f32) -> f32 {
        if C::ADDITIVE {
            let sum = made + bias;
            factors.scale * (sum * factors.slope(sum))
        } else {
            // Two roundings, as where products, bias and softmax are steps of their own.
            made * factors.scale + bias
        }
    }

    /// Adds an entry to the sums that a row's gradient is made of, given the `slope` of its score; returns that of its
    /// bias. Sums lack the [scale](Factors::scale), and what [`complete`](Self::complete) does.
    #[inline(always)]
    pub(super) fn accumulate<S: Simt>(
        s: &S,
        factors: Factors,
        (own, other): (&OwnRow<PARTS>, &OtherRow<G, PARTS>),
        (made, bias, slope): (f32, f32, f32),
        sums: &mut Elements<PARTS>,
    ) -> f32 {
        match C::KIND {
            ScoreKind::Additive => {
                let of_sum = slope * factors.slope(made + bias);
                sums[0][0] += of_sum;
                return factors.scale * of_sum;
            }
            ScoreKind::DotProduct => Lanes::<G, LANES, PARTS>::accumulate(s, slope, other.raw, sums),
            ScoreKind::Gatv2 => {
                let below = slope * factors.negative_slope;
                Self::each_sum(s, own, other, |(part, e), sum| {
                    sums[part][e] += if sum > 0.0 { slope } else { below };
                });
            }
        }
        slope
    }

    /// Multiplies the sums of a row by what all its entries have in common.
    #[inline(always)]
    pub(super) fn complete(own: &OwnRow<PARTS>, sums: &mut Elements<PARTS>) {
        if matches!(C::KIND, ScoreKind::Gatv2) {
            Lanes::<G, LANES, PARTS>::each_element(|part, e| sums[part][e] *= own.vector[part][e]);
        }
    }

    /// Adds an entry to the sums that the gradient of the vector is made of, which lack the scale.
    #[inline(always)]
    pub(super) fn accumulate_vector<S: Simt>(
        s: &S,
        factors: Factors,
        (own, other): (&OwnRow<PARTS>, &OtherRow<G, PARTS>),
        slope: f32,
        sums: &mut Elements<PARTS>,
    ) {
        Self::each_sum(s, own, other, |(part, e), sum| {
            sums[part][e] = s.fma(slope, sum * factors.slope(sum), sums[part][e]);
        });
    }

    /// Calls `visit((part, element), sum)` for what two rows add up to, element by element.
    #[inline(always)]
    fn each_sum<S: Simt>(
        s: &S,
        own: &OwnRow<PARTS>,
        other: &OtherRow<G, PARTS>,
        mut visit: impl FnMut((usize, usize), f32),
    ) {
        let of_other = Lanes::<G, LANES, PARTS>::elements(s, other.raw);
        Lanes::<G, LANES, PARTS>::each_element(|part, e| {
            visit((part, e), own.elements[part][e] + of_other[part][e]);
        });
    }
}

impl AttentionParams {
    #[inline(always)]
    pub(super) const fn factors(&self) -> Factors {
        Factors { scale: self.scale, negative_slope: self.negative_slope }
    }
}

impl AttentionGradientParams {
    #[inline(always)]
    pub(super) const fn factors(&self) -> Factors {
        Factors { scale: self.scale, negative_slope: self.negative_slope }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{F32, Scalars};

    #[test]
    fn sums_below_zero_count_less() {
        let factors = Factors { scale: 2.0, negative_slope: 0.25 };
        let score = |sum| Scores::<Additive, Scalars<F32>, 32, 1>::score(factors, sum, 0.0);
        assert_eq!([3.0, 0.0, -4.0].map(score), [6.0, 0.0, -2.0]);
        assert_eq!([3.0, 0.0, -4.0].map(|sum| factors.slope(sum)), [1.0, 0.25, 0.25]);
        assert_eq!(score(f32::NEG_INFINITY), f32::NEG_INFINITY);
        assert!(score(f32::NAN).is_nan());
    }
}

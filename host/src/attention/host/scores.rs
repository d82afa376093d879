//! Scores on the CPU, in f64.

use super::{Heads, HostBias};
use crate::attention::options::AttentionScores;
use crate::element::Element;

/// What scores are made of.
pub(super) struct HostScores<'a, S> {
    pub(super) form: AttentionScores,
    pub(super) scale: f64,
    pub(super) queries: Heads<'a, S>,
    pub(super) keys: Heads<'a, S>,
    pub(super) bias: HostBias<'a>,
}

/// An entry of one head.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) head: usize,
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) position: usize,
}

/// The sum of products.
pub(super) fn product<A: Element, B: Element>(a: &[A], b: &[B]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| a.to_f64() * b.to_f64()).sum()
}

impl<'a, S: Element> HostScores<'a, S> {
    /// What additive scores are the rectified sum of.
    fn sum(&self, at: Place) -> f64 {
        let numbers = self.queries.row(at.head, at.row).iter().chain(self.keys.row(at.head, at.column));
        numbers.map(|&number| number.to_f64()).sum::<f64>() + self.bias.of(at.head, at.position)
    }

    pub(super) fn of(&self, at: Place) -> f64 {
        match self.form {
            AttentionScores::DotProduct => {
                let product = product(self.queries.row(at.head, at.row), self.keys.row(at.head, at.column));
                self.scale * product + self.bias.of(at.head, at.position)
            }
            AttentionScores::Additive { .. } => {
                let sum = self.sum(at);
                self.scale * (sum * self.form.slope_at(sum))
            }
        }
    }

    /// How much of a score's gradient is that of its bias.
    pub(super) fn of_bias(&self, at: Place) -> f64 {
        match self.form {
            AttentionScores::DotProduct => 1.0,
            AttentionScores::Additive { .. } => self.scale * self.form.slope_at(self.sum(at)),
        }
    }

    /// A score's gradient with respect to the row of `Q`, as a factor and what it multiplies: the row of `K`, or `one`.
    pub(super) fn of_query<'b>(&self, at: Place, one: &'b [S; 1]) -> (f64, &'b [S])
    where
        'a: 'b,
    {
        match self.form {
            AttentionScores::DotProduct => (self.scale, self.keys.row(at.head, at.column)),
            AttentionScores::Additive { .. } => (self.of_bias(at), one),
        }
    }

    /// That with respect to the row of `K`.
    pub(super) fn of_key<'b>(&self, at: Place, one: &'b [S; 1]) -> (f64, &'b [S])
    where
        'a: 'b,
    {
        match self.form {
            AttentionScores::DotProduct => (self.scale, self.queries.row(at.head, at.row)),
            AttentionScores::Additive { .. } => (self.of_bias(at), one),
        }
    }
}

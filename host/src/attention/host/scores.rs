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
    /// Of all heads, where scores have one.
    pub(super) vector: &'a [f32],
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

impl<S: Element> HostScores<'_, S> {
    /// What additive scores are the rectified sum of.
    fn sum(&self, at: Place) -> f64 {
        let numbers = self.queries.row(at.head, at.row).iter().chain(self.keys.row(at.head, at.column));
        numbers.map(|&number| number.to_f64()).sum::<f64>() + self.bias.of(at.head, at.position)
    }

    /// The sums of the elements of two rows, each with what the vector has for it.
    fn sums(&self, at: Place) -> impl Iterator<Item = (f64, f64)> {
        let (query, key) = (self.queries.row(at.head, at.row), self.keys.row(at.head, at.column));
        let vector = &self.vector[at.head * query.len()..];
        let sums = query.iter().zip(key).map(|(&q, &k)| q.to_f64() + k.to_f64());
        sums.zip(vector.iter().map(|&number| f64::from(number)))
    }

    pub(super) fn of(&self, at: Place) -> f64 {
        let made = match self.form {
            AttentionScores::DotProduct => {
                product(self.queries.row(at.head, at.row), self.keys.row(at.head, at.column))
            }
            AttentionScores::Additive { .. } => {
                let sum = self.sum(at);
                return self.scale * (sum * self.form.slope_at(sum));
            }
            AttentionScores::Gatv2 { .. } => {
                self.sums(at).map(|(sum, number)| number * (sum * self.form.slope_at(sum))).sum()
            }
        };
        self.scale * made + self.bias.of(at.head, at.position)
    }

    /// How much of a score's gradient is that of its bias.
    pub(super) fn of_bias(&self, at: Place) -> f64 {
        match self.form {
            AttentionScores::DotProduct | AttentionScores::Gatv2 { .. } => 1.0,
            AttentionScores::Additive { .. } => self.scale * self.form.slope_at(self.sum(at)),
        }
    }

    /// Adds `slope` times a score's gradient with respect to the row of `Q`.
    pub(super) fn add_of_query(&self, at: Place, slope: f64, sums: &mut [f64]) {
        self.add_of(at, slope, self.keys.row(at.head, at.column), sums);
    }

    /// Adds `slope` times that with respect to the row of `K`.
    pub(super) fn add_of_key(&self, at: Place, slope: f64, sums: &mut [f64]) {
        self.add_of(at, slope, self.queries.row(at.head, at.row), sums);
    }

    /// Adds `slope` times a score's gradient with respect to one of its rows, given the other.
    fn add_of(&self, at: Place, slope: f64, other: &[S], sums: &mut [f64]) {
        match self.form {
            AttentionScores::DotProduct => add_row(sums, slope * self.scale, other),
            AttentionScores::Additive { .. } => sums[0] += slope * self.of_bias(at),
            AttentionScores::Gatv2 { .. } => {
                for (to, (sum, number)) in sums.iter_mut().zip(self.sums(at)) {
                    *to += slope * self.scale * number * self.form.slope_at(sum);
                }
            }
        }
    }

    /// Adds `slope` times a score's gradient with respect to the vector of its head.
    pub(super) fn add_of_vector(&self, at: Place, slope: f64, sums: &mut [f64]) {
        for (to, (sum, _)) in sums.iter_mut().zip(self.sums(at)) {
            *to += slope * self.scale * sum * self.form.slope_at(sum);
        }
    }
}

/// `sums += factor · row`.
pub(super) fn add_row<T: Element>(sums: &mut [f64], factor: f64, row: &[T]) {
    sums.iter_mut().zip(row).for_each(|(sum, element)| *sum += factor * element.to_f64());
}

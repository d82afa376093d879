//! The gradient of attention on the CPU.

use rayon::prelude::*;
use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_par_collect_ok, try_zeroed};
use windrow_kernels::attention::DroppedWeights;

use super::scores::{HostScores, Place, product};
use super::{Heads, HostAttention, HostOperands};
use crate::attention::operands::dropped_weights;
use crate::dense::{DenseMut, DenseRef};
use crate::element::Element;
use crate::num::narrow;
use crate::row_lists::Transposed;

/// What gradients are computed of, beside the operands: the matrix by columns, what the forward pass left, and the
/// gradient of its result.
pub(in crate::attention) struct HostForward<'a, T, O> {
    pub(in crate::attention) transposed: &'a Transposed,
    pub(in crate::attention) states: &'a [f32],
    pub(in crate::attention) out: DenseRef<'a, O>,
    pub(in crate::attention) gradient: DenseRef<'a, T>,
}

/// Where the gradients go.
pub(in crate::attention) struct HostGradients<'a, R> {
    pub(in crate::attention) q: DenseMut<'a, R>,
    pub(in crate::attention) k: DenseMut<'a, R>,
    pub(in crate::attention) v: DenseMut<'a, R>,
    pub(in crate::attention) bias: Option<&'a mut [f32]>,
}

/// What scores become weights by, of a row: what they are taken relative to, the reciprocal of the sum of weights, and
/// the product of the result and its gradient.
#[derive(Clone, Copy)]
struct Terms {
    base: f64,
    inverse: f64,
    product: f64,
}

/// Weights and slopes of single entries.
struct Slopes<'a, T, S> {
    scores: HostScores<'a, S>,
    values: Heads<'a, T>,
    gradients: Heads<'a, T>,
    dropped: DroppedWeights,
    rows: usize,
    /// Of each row, heads slowest.
    terms: Vec<Terms>,
}

impl<T: Element, S: Element> Slopes<'_, T, S> {
    fn terms(&self, at: Place) -> Terms {
        self.terms[at.head * self.rows + at.row]
    }

    /// `exp(score − max) / Σ exp(score − max)`.
    fn weight(&self, at: Place) -> f64 {
        let Terms { base, inverse, .. } = self.terms(at);
        (self.scores.of(at) - base).exp() * inverse
    }

    /// What becomes of a number that belongs to a weight.
    fn kept(&self, at: Place, number: f64) -> f64 {
        match self.dropped.kept(narrow(at.head), narrow(at.row), narrow(at.column), 1.0) {
            0.0 => 0.0,
            factor => number * f64::from(factor),
        }
    }

    /// The gradient of the entry's score.
    fn slope(&self, at: Place) -> f64 {
        let response = product(self.gradients.row(at.head, at.row), self.values.row(at.head, at.column));
        self.weight(at) * (self.kept(at, response) - self.terms(at).product)
    }
}

impl HostAttention<'_> {
    /// The gradients, in f64, each element rounded once; the same bits whatever the number of threads.
    pub(in crate::attention) fn backward<T: Element, S: Element, O: Element, R: Element>(
        &self,
        scale: f32,
        operands: &HostOperands<'_, T, S>,
        forward: &HostForward<'_, T, O>,
        found: HostGradients<'_, R>,
    ) -> Result<(), OutOfMemory> {
        let Self { pattern, options, extents: [q, k, v, out] } = *self;
        let of = |matrix, extent| Heads { matrix, extent, options };
        let results = Heads { matrix: forward.out, extent: out, options };
        let gradients = of(forward.gradient, out);
        let terms = forward.states.par_chunks_exact(2).enumerate().map(|(at, state)| {
            let (head, row) = (at / out.rows, at % out.rows);
            let [max, sum] = [state[0], state[1]].map(f64::from);
            // Of a row without entries, or all of whose scores are minus infinity, no weight is anything but 0.
            Ok::<_, OutOfMemory>(Terms {
                base: if max == f64::NEG_INFINITY { 0.0 } else { max },
                inverse: if sum == 0.0 { 0.0 } else { 1.0 / sum },
                product: product(gradients.row(head, row), results.row(head, row)),
            })
        });
        let slopes = Slopes {
            scores: self.scores(scale, operands),
            terms: try_par_collect_ok(terms, "the terms of rows")?,
            values: of(operands.v, v),
            gradients,
            dropped: dropped_weights(operands.dropout),
            rows: out.rows,
        };
        let HostGradients { q: mut of_q, k: mut of_k, v: mut of_v, bias: of_bias } = found;
        let one = [S::from_f64(1.0)];
        self.each_row(&mut of_q, q, |head, row, to| {
            let entries = pattern.row_range(row).map(|position| {
                let column = pattern.col_indices()[position] as usize;
                let at = Place { head, row, column, position };
                let (factor, of) = slopes.scores.of_query(at, &one);
                (factor * slopes.slope(at), of)
            });
            add_up(entries, to)
        })?;
        let transposed = forward.transposed;
        let of_column = |head, column| {
            transposed.range(column).map(move |at| {
                let (row, position) = (transposed.rows[at] as usize, transposed.positions[at] as usize);
                Place { head, row, column, position }
            })
        };
        self.each_row(&mut of_k, k, |head, column, to| {
            let of_entry = |at: Place| {
                let (factor, of) = slopes.scores.of_key(at, &one);
                (factor * slopes.slope(at), of)
            };
            add_up(of_column(head, column).map(of_entry), to)
        })?;
        self.each_row(&mut of_v, v, |head, column, to| {
            let of_entry =
                |at: Place| (slopes.kept(at, slopes.weight(at)), slopes.gradients.row(head, at.row));
            add_up(of_column(head, column).map(of_entry), to)
        })?;
        if let Some(of_bias) = of_bias {
            let (nnz, shared) = (pattern.nnz(), of_bias.len() == pattern.nnz());
            of_bias.par_iter_mut().enumerate().for_each(|(at, to)| {
                let position = at % nnz;
                // The last row that begins at the entry or before it.
                let after = pattern.row_offsets().partition_point(|&begin| begin <= position as u64);
                let column = pattern.col_indices()[position] as usize;
                let heads = if shared { 0..options.heads } else { at / nnz..at / nnz + 1 };
                let of_head = |head| {
                    let at = Place { head, row: after - 1, column, position };
                    slopes.scores.of_bias(at) * slopes.slope(at)
                };
                #[expect(clippy::cast_possible_truncation, reason = "rounded as documented")]
                let sum = heads.map(of_head).sum::<f64>() as f32;
                *to = sum;
            });
        }
        Ok(())
    }
}

/// The sum of numbers times rows, rounded once.
fn add_up<'a, T: Element, R: Element>(
    entries: impl Iterator<Item = (f64, &'a [T])>,
    to: &mut [R],
) -> Result<(), OutOfMemory> {
    let mut sums = try_zeroed::<f64>(to.len(), "the sums of a row")?;
    for (factor, row) in entries {
        sums.iter_mut().zip(row).for_each(|(sum, element)| *sum += factor * element.to_f64());
    }
    to.iter_mut().zip(&sums).for_each(|(to, &sum)| *to = R::from_f64(sum));
    Ok(())
}

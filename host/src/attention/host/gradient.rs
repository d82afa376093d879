//! The gradient of attention on the CPU.

use rayon::prelude::*;
use windrow_formats::memory::{try_par_collect_ok, try_zeroed};
use windrow_formats::{OutOfMemory, Value};
use windrow_kernels::attention::DroppedWeights;

use super::scores::{HostScores, Place, add_row, product};
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
    pub(in crate::attention) vector: Option<&'a mut [f32]>,
    pub(in crate::attention) bias: Option<&'a mut [f32]>,
}

/// Chunks of rows whose part of the gradient of a vector is added up side by side.
const VECTOR_CHUNKS: usize = 64;

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
        let HostGradients { q: mut of_q, k: mut of_k, v: mut of_v, vector: of_vector, bias: of_bias } = found;
        let of_row = |head, row| {
            pattern.row_range(row).map(move |position| {
                let column = pattern.col_indices()[position] as usize;
                Place { head, row, column, position }
            })
        };
        self.each_row(&mut of_q, q, |head, row, to| {
            let add = |at, sums: &mut [f64]| slopes.scores.add_of_query(at, slopes.slope(at), sums);
            add_up(of_row(head, row), to, add)
        })?;
        let transposed = forward.transposed;
        let of_column = |head, column| {
            transposed.range(column).map(move |at| {
                let (row, position) = (transposed.rows[at] as usize, transposed.positions[at] as usize);
                Place { head, row, column, position }
            })
        };
        self.each_row(&mut of_k, k, |head, column, to| {
            let add = |at, sums: &mut [f64]| slopes.scores.add_of_key(at, slopes.slope(at), sums);
            add_up(of_column(head, column), to, add)
        })?;
        self.each_row(&mut of_v, v, |head, column, to| {
            let add = |at: Place, sums: &mut [f64]| {
                add_row(sums, slopes.kept(at, slopes.weight(at)), slopes.gradients.row(head, at.row));
            };
            add_up(of_column(head, column), to, add)
        })?;
        if let Some(of_vector) = of_vector {
            // Chunks of rows side by side, added in their order.
            let chunk = out.rows.div_ceil(VECTOR_CHUNKS).max(1);
            for (head, to) in of_vector.chunks_mut(q.columns).enumerate() {
                let of_chunks = (0..VECTOR_CHUNKS).into_par_iter().map(|i| {
                    let mut sums = try_zeroed::<f64>(q.columns, "the gradient of a vector")?;
                    let rows = (chunk * i).min(out.rows)..(chunk * (i + 1)).min(out.rows);
                    for at in rows.flat_map(|row| of_row(head, row)) {
                        slopes.scores.add_of_vector(at, slopes.slope(at), &mut sums);
                    }
                    Ok::<_, OutOfMemory>(sums)
                });
                let of_chunks = try_par_collect_ok(of_chunks, "the gradient of a vector by chunks")?;
                for (column, to) in to.iter_mut().enumerate() {
                    *to = <f32 as Value>::from_f64(of_chunks.iter().map(|sums| sums[column]).sum());
                }
            }
        }
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

/// What `add` adds of each entry, rounded once.
fn add_up<R: Element>(
    entries: impl Iterator<Item = Place>,
    to: &mut [R],
    add: impl Fn(Place, &mut [f64]),
) -> Result<(), OutOfMemory> {
    let mut sums = try_zeroed::<f64>(to.len(), "the sums of a row")?;
    entries.for_each(|at| add(at, &mut sums));
    to.iter_mut().zip(&sums).for_each(|(to, &sum)| *to = R::from_f64(sum));
    Ok(())
}

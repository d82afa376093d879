//! Attention on the CPU.

use rayon::prelude::*;
use windrow_formats::memory::try_zeroed;
use windrow_formats::{OutOfMemory, Pattern};
use windrow_kernels::attention::dropout_bits;

use super::operands::Extent;
use super::options::{AttentionOptions, Dropout, HeadLayout};
use crate::dense::{DenseMut, DenseRef};
use crate::element::Element;
use crate::num::narrow;

/// What a run has beside its operands.
pub(super) struct HostAttention<'a> {
    pub(super) pattern: &'a Pattern,
    pub(super) options: &'a AttentionOptions,
    /// Of `Q`, `K`, `V` and the result.
    pub(super) extents: [Extent; 4],
}

/// Operands in host memory.
pub(super) struct HostOperands<'a, T> {
    pub(super) q: DenseRef<'a, T>,
    pub(super) k: DenseRef<'a, T>,
    pub(super) v: DenseRef<'a, T>,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) dropout: Option<Dropout>,
}

/// Rows of one head, of an operand that has all.
struct Heads<'a, T> {
    matrix: DenseRef<'a, T>,
    extent: Extent,
    options: &'a AttentionOptions,
}

impl<'a, T: Element> Heads<'a, T> {
    fn row(&self, head: usize, row: usize) -> &'a [T] {
        let ld = self.matrix.ld();
        let first = head * self.extent.head(self.options, ld) + row * ld;
        &self.matrix.data()[first..first + self.extent.columns]
    }
}

/// How often of 2³² a weight is dropped, and the factor of those that are not.
pub(super) fn drop_below(dropout: Option<Dropout>) -> (u32, f32) {
    match dropout {
        None => (0, 1.0),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of 2³², and no more"
        )]
        Some(Dropout { rate, .. }) => ((f64::from(rate) * 4_294_967_296.0) as u32, 1.0 / (1.0 - rate)),
    }
}

impl HostAttention<'_> {
    /// `O[i] = Σ_j softmax_j(scale·Q[i]·K[j] + bias[i, j]) · V[j]` over the entries of the pattern, in f64, each
    /// element rounded once; the same bits whatever the number of threads.
    pub(super) fn run<T: Element, O: Element>(
        &self,
        scale: f32,
        operands: &HostOperands<'_, T>,
        result: &mut DenseMut<'_, O>,
        states: Option<&mut [f32]>,
    ) -> Result<(), OutOfMemory> {
        let Self { pattern, options, extents: [q, k, v, out] } = *self;
        let of = |matrix, extent| Heads { matrix, extent, options };
        let (queries, keys, values) = (of(operands.q, q), of(operands.k, k), of(operands.v, v));
        let bias_head =
            operands.bias.map_or(0, |bias| if bias.len() > pattern.nnz() { pattern.nnz() } else { 0 });
        let (drop_below, keep_scale) = drop_below(operands.dropout);
        let seed = operands.dropout.map_or(0, |dropout| dropout.seed);
        let one = |head: usize, row: usize, result: &mut [O]| -> Result<[f32; 2], OutOfMemory> {
            let entries = pattern.row_range(row);
            let query = queries.row(head, row);
            let mut scores = try_zeroed::<f64>(entries.len(), "the scores of a row")?;
            for (score, entry) in scores.iter_mut().zip(entries.clone()) {
                let key = keys.row(head, pattern.col_indices()[entry] as usize);
                let products = query.iter().zip(key).map(|(&q, &k)| q.to_f64() * k.to_f64());
                let bias = operands.bias.map_or(0.0, |bias| f64::from(bias[head * bias_head + entry]));
                *score = f64::from(scale) * products.sum::<f64>() + bias;
            }
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let base = if max == f64::NEG_INFINITY { 0.0 } else { max };
            let mut sum = 0.0;
            for score in &mut scores {
                *score = (*score - base).exp();
                sum += *score;
            }
            let mut sums = try_zeroed::<f64>(v.columns, "the sums of a row")?;
            for (entry, &weight) in entries.zip(&scores) {
                let column = pattern.col_indices()[entry];
                let dropped =
                    drop_below > 0 && dropout_bits([seed, narrow(head), narrow(row), column]) < drop_below;
                let weight = if dropped { 0.0 } else { weight * f64::from(keep_scale) };
                for (sum, value) in sums.iter_mut().zip(values.row(head, column as usize)) {
                    *sum += weight * value.to_f64();
                }
            }
            let divisor = if sum == 0.0 { 1.0 } else { sum };
            result
                .iter_mut()
                .zip(&sums)
                .for_each(|(element, &of_row)| *element = O::from_f64(of_row / divisor));
            #[expect(clippy::cast_possible_truncation, reason = "rounded as documented")]
            Ok([max as f32, sum as f32])
        };
        let ld = result.ld().max(1);
        let (rows, columns) = (out.rows, out.columns);
        let beside = if options.layout == HeadLayout::Columns { options.heads } else { 1 };
        let result_rows = out.shape(options).0;
        let mut found = try_zeroed::<f32>(2 * beside * result_rows, "the states of rows")?;
        result.data_mut().par_chunks_mut(ld).zip(found.par_chunks_mut(2 * beside)).enumerate().try_for_each(
            |(at, (elements, states))| {
                for (place, state) in states.chunks_exact_mut(2).enumerate() {
                    let (head, row) = match options.layout {
                        HeadLayout::Rows => (at / rows, at % rows),
                        HeadLayout::Columns => (place, at),
                    };
                    let of_head = &mut elements[place * columns..(place + 1) * columns];
                    state.copy_from_slice(&one(head, row, of_head)?);
                }
                Ok(())
            },
        )?;
        if let Some(states) = states {
            for (at, state) in found.chunks_exact(2).enumerate() {
                // By rows and then heads, if heads are beside each other.
                let place = at % beside * rows + at / beside;
                states[2 * place..2 * place + 2].copy_from_slice(state);
            }
        }
        Ok(())
    }
}

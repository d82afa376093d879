//! Attention on the CPU.

pub(super) mod gradient;
mod scores;

use rayon::prelude::*;
use windrow_formats::memory::try_zeroed;
use windrow_formats::{OutOfMemory, Pattern};

use self::scores::{HostScores, Place};
use super::operands::{Extent, dropped_weights};
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
pub(super) struct HostOperands<'a, T, S> {
    pub(super) q: DenseRef<'a, S>,
    pub(super) k: DenseRef<'a, S>,
    pub(super) v: DenseRef<'a, T>,
    pub(super) vector: Option<&'a [f32]>,
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

/// What is added to the scores.
#[derive(Clone, Copy)]
struct HostBias<'a> {
    numbers: Option<&'a [f32]>,
    /// Numbers from one head to the next.
    head: usize,
}

impl HostBias<'_> {
    fn of(self, head: usize, entry: usize) -> f64 {
        self.numbers.map_or(0.0, |numbers| f64::from(numbers[head * self.head + entry]))
    }
}

impl HostAttention<'_> {
    /// `O[i] = Σ_j softmax_j(score[i, j]) · V[j]` over the entries of the pattern, in f64, each element rounded once;
    /// the same bits whatever the number of threads.
    pub(super) fn run<T: Element, S: Element, O: Element>(
        &self,
        scale: f32,
        operands: &HostOperands<'_, T, S>,
        result: &mut DenseMut<'_, O>,
        states: Option<&mut [f32]>,
    ) -> Result<(), OutOfMemory> {
        let Self { pattern, options, extents: [_, _, v, out] } = *self;
        let values = Heads { matrix: operands.v, extent: v, options };
        let of_entries = self.scores(scale, operands);
        let dropped = dropped_weights(operands.dropout);
        let found = self.each_row(result, out, |head, row, result| {
            let entries = pattern.row_range(row);
            let mut scores = try_zeroed::<f64>(entries.len(), "the scores of a row")?;
            for (score, position) in scores.iter_mut().zip(entries.clone()) {
                let column = pattern.col_indices()[position] as usize;
                *score = of_entries.of(Place { head, row, column, position });
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
                let kept = dropped.kept(narrow(head), narrow(row), column, 1.0);
                let weight = if kept == 0.0 { 0.0 } else { weight * f64::from(kept) };
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
        })?;
        if let Some(states) = states {
            let beside = self.beside();
            for (at, state) in found.into_iter().enumerate() {
                // By rows and then heads, if heads are beside each other.
                let place = at % beside * out.rows + at / beside;
                states[2 * place..2 * place + 2].copy_from_slice(&state);
            }
        }
        Ok(())
    }

    fn scores<'b, T, S: Element>(
        &'b self,
        scale: f32,
        operands: &HostOperands<'b, T, S>,
    ) -> HostScores<'b, S> {
        let Self { options, extents: [q, k, ..], .. } = *self;
        let of = |matrix, extent| Heads { matrix, extent, options };
        HostScores {
            form: options.scores,
            scale: f64::from(scale),
            queries: of(operands.q, q),
            keys: of(operands.k, k),
            vector: operands.vector.unwrap_or_default(),
            bias: self.bias(operands.bias),
        }
    }

    fn bias<'b>(&self, numbers: Option<&'b [f32]>) -> HostBias<'b> {
        let nnz = self.pattern.nnz();
        let of_each = numbers.is_some_and(|numbers| numbers.len() > nnz);
        HostBias { numbers, head: if of_each { nnz } else { 0 } }
    }

    /// Heads beside each other in a row of memory.
    fn beside(&self) -> usize {
        if self.options.layout == HeadLayout::Columns { self.options.heads } else { 1 }
    }

    /// Calls `one(head, row, elements)` for every row of every head of a result, in parallel; what it returns is in the
    /// order of the memory.
    fn each_row<O: Element, S: bytemuck::Pod + Send>(
        &self,
        result: &mut DenseMut<'_, O>,
        extent: Extent,
        one: impl Fn(usize, usize, &mut [O]) -> Result<S, OutOfMemory> + Sync,
    ) -> Result<Vec<S>, OutOfMemory> {
        let ld = result.ld().max(1);
        let (rows, columns, beside) = (extent.rows, extent.columns, self.beside());
        let result_rows = extent.shape(self.options).0;
        let mut found = try_zeroed::<S>(beside * result_rows, "what rows leave")?;
        result.data_mut().par_chunks_mut(ld).zip(found.par_chunks_mut(beside)).enumerate().try_for_each(
            |(at, (elements, found))| {
                for (place, found) in found.iter_mut().enumerate() {
                    let (head, row) = match self.options.layout {
                        HeadLayout::Rows => (at / rows, at % rows),
                        HeadLayout::Columns => (place, at),
                    };
                    *found = one(head, row, &mut elements[place * columns..(place + 1) * columns])?;
                }
                Ok(())
            },
        )?;
        Ok(found)
    }
}

//! MTTKRP on the CPU.

use rayon::prelude::*;
use windrow_preprocess::balance::row_ranges;

use super::slices::Slices;
use crate::dense::{DenseMut, DenseRef};
use crate::matrix::{Element, Output};
use crate::num::{index, wide};
use crate::plan::{ArraySize, push};

/// Ranges of slices for each thread: enough that one that takes longer than its share is made up for.
const RANGES_PER_THREAD: usize = 8;
/// What a slice costs beside its entries, in entries.
const SLICE_COST: u64 = 1;

/// A tensor as the CPU walks it.
pub(super) struct HostMttkrp {
    slices: Slices,
    values: Vec<f32>,
}

impl HostMttkrp {
    /// `values` are rounded to the plan's precision.
    pub(super) fn new(slices: Slices, values: Vec<f32>) -> Self {
        Self { slices, values }
    }

    pub(super) fn sizes(&self) -> Vec<ArraySize> {
        let mut sizes = Vec::new();
        push(&mut sizes, "slice_offsets", 8 * wide(self.slices.offsets.len()));
        push(&mut sizes, "fiber_indices", 4 * wide(self.slices.fibers.len()));
        push(&mut sizes, "leaf_indices", 4 * wide(self.slices.leaves.len()));
        push(&mut sizes, "values", 4 * wide(self.values.len()));
        sizes
    }

    pub(super) fn replace_values(&mut self, values: Vec<f32>) {
        self.values = values;
    }

    /// `Y ← α·A·(B ⊙ C) + β·Y`, slices in parallel on the threads of the current rayon pool. Each slice is summed in
    /// the order of its entries: the same bits in every run, whatever the number of threads.
    pub(super) fn run<T: Element, O: Output>(
        &self,
        alpha: f32,
        [b, c]: [DenseRef<'_, T>; 2],
        beta: f32,
        y: DenseMut<'_, O>,
    ) {
        let (n, ld) = (y.cols(), y.ld());
        if n == 0 {
            return;
        }
        let ranges =
            row_ranges(&self.slices.offsets, rayon::current_num_threads() * RANGES_PER_THREAD, SLICE_COST);
        let mut rest = y.into_data();
        let mut tasks = Vec::with_capacity(ranges.len());
        for slices in ranges {
            // The last row of all may end before its leading dimension does.
            let (own, others) = rest.split_at_mut((slices.len() * ld).min(rest.len()));
            rest = others;
            tasks.push((slices, own));
        }
        tasks.into_par_iter().with_max_len(1).for_each(|(slices, own)| {
            let mut sum = vec![0.0f32; n];
            for (slice, row) in slices.zip(own.chunks_mut(ld)) {
                sum.fill(0.0);
                self.add_slice(slice, [b, c], &mut sum);
                for (out, &sum) in row.iter_mut().zip(&sum) {
                    let new = alpha * sum;
                    *out = O::from_f32(if beta == 0.0 { new } else { beta.mul_add(out.to_f32(), new) });
                }
            }
        });
    }

    /// Adds the products of a slice's entries.
    fn add_slice<T: Element>(&self, slice: usize, [b, c]: [DenseRef<'_, T>; 2], sum: &mut [f32]) {
        let Slices { offsets, fibers, leaves } = &self.slices;
        for entry in index(offsets[slice])..index(offsets[slice + 1]) {
            let value = self.values[entry];
            let rows = b.row(fibers[entry] as usize).iter().zip(c.row(leaves[entry] as usize));
            for (sum, (b, c)) in sum.iter_mut().zip(rows) {
                *sum += value * (b.to_f32() * c.to_f32());
            }
        }
    }
}

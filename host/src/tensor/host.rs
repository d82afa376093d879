//! MTTKRP on the CPU.

use windrow_preprocess::balance::row_ranges;

use super::slices::Slices;
use crate::cpu::each_range;
use crate::dense::{DenseMut, DenseRef};
use crate::element::{Element, Real};
use crate::num::{index, wide};

/// Ranges of slices for each thread: enough that one that takes longer than its share is made up for.
const RANGES_PER_THREAD: usize = 8;
/// Columns that are summed at a time, on the stack.
const COLUMNS: usize = 512;
/// What a slice costs beside its entries, in entries.
const SLICE_COST: u64 = 1;

/// A tensor as the CPU walks it.
pub(super) struct HostMttkrp<S> {
    slices: Slices,
    values: Vec<S>,
}

impl<S: Real> HostMttkrp<S> {
    /// `values` are rounded to the plan's precision.
    pub(super) fn new(slices: Slices, values: Vec<S>) -> Self {
        Self { slices, values }
    }

    /// Bytes of all arrays.
    pub(super) fn bytes(&self) -> u64 {
        let Slices { offsets, fibers, leaves } = &self.slices;
        [
            size_of_val(&offsets[..]),
            size_of_val(&fibers[..]),
            size_of_val(&leaves[..]),
            size_of_val(&self.values[..]),
        ]
        .map(wide)
        .iter()
        .sum()
    }

    pub(super) fn replace_values(&mut self, values: Vec<S>) {
        self.values = values;
    }

    /// `Y ← α·A·(B ⊙ C) + β·Y`, slices in parallel on the threads of the current rayon pool. Each slice is summed in
    /// the order of its entries: the same bits in every run, whatever the number of threads.
    pub(super) fn run<T: Element<Sum = S>, O: Element<Sum = S>>(
        &self,
        alpha: S,
        [b, c]: [DenseRef<'_, T>; 2],
        beta: S,
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
        each_range(tasks, &|slices, own| {
            for (slice, row) in slices.zip(own.chunks_mut(ld)) {
                for (first, row) in (0..).step_by(COLUMNS).zip(row[..n].chunks_mut(COLUMNS)) {
                    let sum = &mut [S::ZERO; COLUMNS][..row.len()];
                    self.add_slice(slice, [b, c], first, sum);
                    for (out, &sum) in row.iter_mut().zip(&*sum) {
                        let new = alpha * sum;
                        let new =
                            if beta == S::ZERO { new } else { beta.fused(S::from_f64(out.to_f64()), new) };
                        *out = O::from_f64(new.to_f64());
                    }
                }
            }
        });
    }

    /// Adds the products of a slice's entries, those of as many columns as there are sums, from this one on.
    fn add_slice<T: Element<Sum = S>>(
        &self,
        slice: usize,
        [b, c]: [DenseRef<'_, T>; 2],
        first: usize,
        sum: &mut [S],
    ) {
        let Slices { offsets, fibers, leaves } = &self.slices;
        for entry in index(offsets[slice])..index(offsets[slice + 1]) {
            let value = self.values[entry];
            let [b, c] = [b.row(fibers[entry] as usize), c.row(leaves[entry] as usize)];
            let rows = b[first..].iter().zip(&c[first..]);
            for (sum, (b, c)) in sum.iter_mut().zip(rows) {
                let [b, c] = [b, c].map(|factor| S::from_f64(factor.to_f64()));
                *sum = *sum + value * (b * c);
            }
        }
    }
}

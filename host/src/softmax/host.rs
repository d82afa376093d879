//! Softmax over rows on the CPU.

use std::ops::Range;

use rayon::prelude::*;
use windrow_formats::Value;
use windrow_preprocess::balance::row_ranges;

use crate::num::index;

/// Ranges of rows for each thread: enough that one that takes longer than its share is made up for.
const RANGES_PER_THREAD: usize = 8;
/// What a row costs beside its entries, in entries.
const ROW_COST: u64 = 1;

/// The extents of rows.
pub(super) struct HostRows {
    row_offsets: Vec<u64>,
}

impl HostRows {
    pub(super) fn new(row_offsets: &[u64]) -> Self {
        Self { row_offsets: row_offsets.to_vec() }
    }

    /// `out ← softmax(scale·scores)`.
    pub(super) fn forward(&self, scale: f32, scores: &[f32], out: &mut [f32]) {
        self.each_row(out, |entries, out| {
            out.copy_from_slice(&scores[entries]);
            softmax(scale, out);
        });
    }

    /// `values ← softmax(scale·values)`.
    pub(super) fn forward_in_place(&self, scale: f32, values: &mut [f32]) {
        self.each_row(values, |_, values| softmax(scale, values));
    }

    /// `out ← scale · p · (g − Σ p·g)`.
    pub(super) fn backward(&self, scale: f32, probabilities: &[f32], gradient: &[f32], out: &mut [f32]) {
        self.each_row(out, |entries, out| {
            let (p, g) = (&probabilities[entries.clone()], &gradient[entries]);
            let terms = p.iter().zip(g).map(|(&p, &g)| f64::from(p) * f64::from(g));
            let mean = f32::from_f64(terms.sum());
            for ((out, &p), &g) in out.iter_mut().zip(p).zip(g) {
                *out = scale * p * (g - mean);
            }
        });
    }

    /// Calls `work` with the entries of each row, as a range and in `values`, on the threads of the current rayon pool.
    /// A row is one thread's, so that results do not depend on the number of threads.
    fn each_row(&self, values: &mut [f32], work: impl Fn(Range<usize>, &mut [f32]) + Sync) {
        let parts = row_ranges(&self.row_offsets, rayon::current_num_threads() * RANGES_PER_THREAD, ROW_COST);
        let mut rest = values;
        let tasks: Vec<_> = parts
            .into_iter()
            .map(|rows| {
                let entries = self.row_offsets[rows.end] - self.row_offsets[rows.start];
                let (own, others) = std::mem::take(&mut rest).split_at_mut(index(entries));
                rest = others;
                (rows, own)
            })
            .collect();
        tasks.into_par_iter().with_max_len(1).for_each(|(rows, mut left)| {
            for ends in self.row_offsets[rows.start..=rows.end].windows(2) {
                let entries = index(ends[0])..index(ends[1]);
                let (row, others) = std::mem::take(&mut left).split_at_mut(entries.len());
                left = others;
                work(entries, row);
            }
        });
    }
}

/// Softmax of one row. The sum is taken in f64, so that a long row loses nothing.
fn softmax(scale: f32, row: &mut [f32]) {
    let mut max = f32::NEG_INFINITY;
    for value in row.iter_mut() {
        *value *= scale;
        max = max.max(*value);
    }
    let mut sum = 0.0;
    for value in row.iter_mut() {
        *value = (*value - max).exp();
        sum += f64::from(*value);
    }
    let inverse = f32::from_f64(1.0 / sum);
    for value in row.iter_mut() {
        *value *= inverse;
    }
}

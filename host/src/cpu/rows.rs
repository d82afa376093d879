//! Work on the entries of each row, dealt out to threads.

use std::ops::Range;

use windrow_preprocess::balance::row_ranges;

use super::{RANGES_PER_THREAD, each_range};
use crate::num::index;

/// What a row costs beside its entries, in entries.
const ROW_COST: u64 = 1;

/// Calls `work` with each row, its entries as a range, and its part of `values`, which has an element for each entry,
/// on the threads of the current rayon pool.
///
/// A row is one thread's, so that results do not depend on the number of threads.
pub(crate) fn each_row<T: Send>(
    row_offsets: &[u64],
    values: &mut [T],
    work: impl Fn(usize, Range<usize>, &mut [T]) + Sync,
) {
    let parts = row_ranges(row_offsets, rayon::current_num_threads() * RANGES_PER_THREAD, ROW_COST);
    let mut rest = values;
    let tasks: Vec<_> = parts
        .into_iter()
        .map(|rows| {
            let entries = row_offsets[rows.end] - row_offsets[rows.start];
            let (own, others) = std::mem::take(&mut rest).split_at_mut(index(entries));
            rest = others;
            (rows, own)
        })
        .collect();
    each_range(tasks, &|rows, mut left| {
        for row in rows {
            let entries = index(row_offsets[row])..index(row_offsets[row + 1]);
            let (own, others) = std::mem::take(&mut left).split_at_mut(entries.len());
            left = others;
            work(row, entries, own);
        }
    });
}

//! Blocks of consecutive rows, each sorted by one thread.

use rayon::prelude::*;

use super::Canonicalised;
use super::build::Draft;
use crate::memory::{index, make_room, narrow};
use crate::{OutOfMemory, Value};

/// Rows up to this length are sorted by insertion, without scratch memory.
const INSERTION_ENTRIES: usize = 24;
/// Rows above this length are sorted by all threads together.
const PARALLEL_SORT_ENTRIES: usize = 1 << 17;

/// Row, column and value together, so that distributing an entry touches one cache line.
pub(super) type Entry<V> = (u32, u32, V);

/// What became of a block of rows.
pub(super) struct Outcome {
    rows: usize,
    entries: usize,
    kept: usize,
    canonicalised: Canonicalised,
}

/// Exclusive access to consecutive rows of a matrix under construction.
pub(super) struct RowBlock<'a, V> {
    /// Entries before the block.
    pub(super) base: u64,
    /// `row_offsets[r + 1]` of each row `r`.
    pub(super) ends: &'a mut [u64],
    cols: &'a mut [u32],
    values: &'a mut [V],
}

impl<'a, V: Value> RowBlock<'a, V> {
    pub(super) fn whole(draft: &'a mut Draft<V>) -> Self {
        let ends = &mut draft.row_offsets[1..];
        Self { base: 0, ends, cols: &mut draft.col_indices, values: &mut draft.values }
    }

    pub(super) fn split_at(self, rows: usize, entries: usize) -> (Self, Self) {
        let (ends, ends_tail) = self.ends.split_at_mut(rows);
        let (cols, cols_tail) = self.cols.split_at_mut(entries);
        let (values, values_tail) = self.values.split_at_mut(entries);
        let head = Self { base: self.base, ends, cols, values };
        let base = self.base + entries as u64;
        (head, Self { base, ends: ends_tail, cols: cols_tail, values: values_tail })
    }

    /// Positions of the block's entries in the whole matrix.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        index(self.base)..index(self.base) + self.cols.len()
    }

    /// Counting sort by row of the block's `entries` into the block, then [`Self::canonicalise`].
    pub(super) fn fill(
        self,
        first_row: u32,
        entries: impl Iterator<Item = Entry<V>> + Clone,
    ) -> Result<Outcome, OutOfMemory> {
        // `ends` holds counts, then the next free position of each row, which is its end when all are placed.
        for (row, _, _) in entries.clone() {
            self.ends[(row - first_row) as usize] += 1;
        }
        let mut next = 0;
        for end in &mut *self.ends {
            next += std::mem::replace(end, next);
        }
        for (row, column, value) in entries {
            let end = &mut self.ends[(row - first_row) as usize];
            let at = index(*end);
            *end += 1;
            (self.cols[at], self.values[at]) = (column, value);
        }
        self.ends.iter_mut().for_each(|end| *end += self.base);
        self.canonicalise()
    }

    /// Sorts each row, sums duplicates and closes the gaps in the block that they leave.
    pub(super) fn canonicalise(self) -> Result<Outcome, OutOfMemory> {
        let mut canonicalised = Canonicalised::default();
        let mut scratch = Vec::new();
        let (mut start, mut kept) = (0, 0);
        for end in &mut *self.ends {
            let row = start..index(*end - self.base);
            start = row.end;
            let (cols, values) = (&mut self.cols[row.clone()], &mut self.values[row.clone()]);
            if !cols.is_sorted() {
                sort_row(cols, values, &mut scratch)?;
                canonicalised.sorted_rows += 1;
            }
            let len = sum_duplicates(cols, values);
            canonicalised.summed_duplicates += (row.len() - len) as u64;
            if kept < row.start {
                self.cols.copy_within(row.start..row.start + len, kept);
                self.values.copy_within(row.start..row.start + len, kept);
            }
            kept += len;
            *end = self.base + kept as u64;
        }
        Ok(Outcome { rows: self.ends.len(), entries: start, kept, canonicalised })
    }
}

/// Sorts a row by column; equal columns keep their order, so that sums do not depend on the method.
fn sort_row<V: Value>(
    cols: &mut [u32],
    values: &mut [V],
    scratch: &mut Vec<(u32, u32, V)>,
) -> Result<(), OutOfMemory> {
    if cols.len() <= INSERTION_ENTRIES {
        for i in 1..cols.len() {
            let (column, value) = (cols[i], values[i]);
            let mut hole = i;
            while hole > 0 && cols[hole - 1] > column {
                (cols[hole], values[hole]) = (cols[hole - 1], values[hole - 1]);
                hole -= 1;
            }
            (cols[hole], values[hole]) = (column, value);
        }
        return Ok(());
    }
    scratch.clear();
    make_room(scratch, cols.len(), "a row to be sorted")?;
    let entries = cols.iter().zip(&*values).enumerate();
    scratch.extend(entries.map(|(at, (&column, &value))| (column, narrow(at), value)));
    // The places make a sort stable that needs no memory.
    let key = |&(column, at, _): &(u32, u32, V)| (column, at);
    if scratch.len() > PARALLEL_SORT_ENTRIES {
        scratch.par_sort_unstable_by_key(key);
    } else {
        scratch.sort_unstable_by_key(key);
    }
    for ((column, value), &entry) in cols.iter_mut().zip(values).zip(scratch.iter()) {
        (*column, _, *value) = entry;
    }
    Ok(())
}

/// Adds entries of a sorted row that share a column; returns how many are left, at the front.
fn sum_duplicates<V: Value>(cols: &mut [u32], values: &mut [V]) -> usize {
    let Some(first) = cols.windows(2).position(|pair| pair[0] == pair[1]) else {
        return cols.len();
    };
    let mut last = first;
    for i in first + 1..cols.len() {
        if cols[i] == cols[last] {
            values[last] = values[last].add(values[i]);
        } else {
            last += 1;
            (cols[last], values[last]) = (cols[i], values[i]);
        }
    }
    last + 1
}

/// Closes the gaps between blocks and records what was done.
pub(super) fn close_gaps<V: Value>(draft: &mut Draft<V>, outcomes: &[Outcome]) {
    for outcome in outcomes {
        draft.canonicalised.sorted_rows += outcome.canonicalised.sorted_rows;
        draft.canonicalised.summed_duplicates += outcome.canonicalised.summed_duplicates;
    }
    if draft.canonicalised.summed_duplicates == 0 {
        return;
    }
    let (mut first_row, mut base, mut kept) = (0, 0, 0);
    for outcome in outcomes {
        draft.col_indices.copy_within(base..base + outcome.kept, kept);
        draft.values.copy_within(base..base + outcome.kept, kept);
        let gap = (base - kept) as u64;
        draft.row_offsets[first_row + 1..][..outcome.rows].iter_mut().for_each(|end| *end -= gap);
        first_row += outcome.rows;
        base += outcome.entries;
        kept += outcome.kept;
    }
    draft.col_indices.truncate(kept);
    draft.col_indices.shrink_to_fit();
    draft.values.truncate(kept);
    draft.values.shrink_to_fit();
}

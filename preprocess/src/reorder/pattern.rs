//! The pattern of a matrix: what orders of rows depend on.

use std::ops::Range;

use rayon::prelude::*;
use windrow_formats::{Csr, OutOfMemory, Value};

use super::graph::starts;
use super::watch::{Stopped, Watch, go_on};
use crate::balance::row_ranges;

/// Most chunks that a pass over the rows is cut into; each is one step for the watcher.
const MAX_CHUNKS: u64 = 128;
/// Cost (entries, plus [`ROW_COST`] a row) below which a chunk is not worth a task of its own.
const MIN_CHUNK_COST: u64 = 1 << 14;
/// What a row costs besides its entries.
const ROW_COST: u64 = 4;

/// Where the entries of a matrix are; values do not matter here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pattern<'a> {
    row_offsets: &'a [u64],
    col_indices: &'a [u32],
    cols: usize,
}

impl<'a> Pattern<'a> {
    pub(super) fn of<V: Value>(csr: &'a Csr<V>) -> Self {
        Self { row_offsets: csr.row_offsets(), col_indices: csr.col_indices(), cols: csr.cols() }
    }

    pub(super) fn rows(&self) -> u32 {
        narrow(self.row_offsets.len() - 1)
    }

    pub(super) fn cols(&self) -> usize {
        self.cols
    }

    /// The columns of row `r`, ascending.
    pub(super) fn row(&self, r: u32) -> &'a [u32] {
        &self.col_indices[index(self.row_offsets[r as usize])..index(self.row_offsets[r as usize + 1])]
    }

    pub(super) fn row_len(&self, r: u32) -> usize {
        self.row(r).len()
    }
}

/// Ranges of equal cost that `items` things are cut into, where `cost(i)` says what thing `i` costs beside
/// a constant. They depend on the costs only, so what is computed by ranges is the same whatever the threads.
pub(super) fn chunks(items: usize, cost: impl Fn(usize) -> u64) -> Result<Vec<Range<usize>>, OutOfMemory> {
    let costs_before = starts((0..items).map(cost))?;
    let total = costs_before[items] + ROW_COST * items as u64;
    Ok(row_ranges(&costs_before, index((total / MIN_CHUNK_COST).clamp(1, MAX_CHUNKS)), ROW_COST))
}

/// `f` of each range, in order; in parallel, with one step for each range.
pub(super) fn map_chunks<T: Send>(
    chunks: &[Range<usize>],
    watch: &dyn Watch,
    f: impl Fn(Range<usize>) -> Result<T, OutOfMemory> + Sync,
) -> Result<Vec<T>, Stopped> {
    let map = |range: &Range<usize>| {
        go_on(watch)?;
        let result = f(range.clone())?;
        watch.step(1);
        Ok(result)
    };
    chunks.par_iter().map(map).collect()
}

/// `x` as an index: offsets of a checked matrix are at most the length of a vector that exists.
#[expect(clippy::cast_possible_truncation, reason = "offsets are at most the length of an existing vector")]
pub(super) const fn index(x: u64) -> usize {
    x as usize
}

/// `x` as a row or column number: a matrix has at most `u32::MAX` of them.
#[expect(clippy::cast_possible_truncation, reason = "dimensions of a matrix fit 32 bits")]
pub(super) const fn narrow(x: usize) -> u32 {
    debug_assert!(x as u64 <= u32::MAX as u64);
    x as u32
}

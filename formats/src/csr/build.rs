//! Checks and counting sort: how a [`Csr`] comes to satisfy its invariants.

use rayon::prelude::*;

use super::block::{Entry, Outcome, RowBlock, close_gaps};
use super::{Canonicalised, Csr, Pattern};
use crate::coo::first_not_below;
use crate::memory::{dimension, index, narrow, try_zeroed};
use crate::{Coo, FormatError, OutOfMemory, Value};

/// Entries that make a block worth a task of its own.
const BLOCK_ENTRIES: usize = 1 << 15;
/// Most blocks of rows: enough for balance, few enough that one write stream for each stays in the TLB.
const MAX_BLOCKS: usize = 256;
/// Rows whose order is checked by one thread, at least.
const ROWS_PER_TASK: usize = 1 << 12;

/// A matrix under construction: arrays that nobody shares yet and whose rows may be out of order.
pub(super) struct Draft<V> {
    pub(super) rows: u32,
    pub(super) cols: u32,
    pub(super) row_offsets: Vec<u64>,
    pub(super) col_indices: Vec<u32>,
    pub(super) values: Vec<V>,
    pub(super) canonicalised: Canonicalised,
}

impl<V: Value> Draft<V> {
    /// A matrix without entries.
    pub(super) fn zeros(rows: usize, cols: usize) -> Result<Self, FormatError> {
        let (m, k) = (dimension(rows, "rows")?, dimension(cols, "columns")?);
        let row_offsets = try_zeroed(rows + 1, "row_offsets")?;
        let canonicalised = Canonicalised::default();
        Ok(Self { rows: m, cols: k, row_offsets, col_indices: Vec::new(), values: Vec::new(), canonicalised })
    }

    /// Columns and values of `nnz` entries, all zero.
    pub(super) fn make_room(&mut self, nnz: usize) -> Result<(), FormatError> {
        self.col_indices = try_zeroed(nnz, "col_indices")?;
        self.values = try_zeroed(nnz, "values")?;
        Ok(())
    }

    /// Sorts the rows and sums duplicates; everything else about the arrays is checked already.
    pub(super) fn canonicalise(&mut self) -> Result<(), OutOfMemory> {
        let limits = balanced_limits(&self.row_offsets);
        let mut blocks = Vec::with_capacity(limits.len());
        let mut rest = RowBlock::whole(self);
        let mut first_row = 0;
        for end_row in limits {
            let block_rows = end_row - first_row;
            let entries = rest.ends[..block_rows].last().map_or(0, |&end| index(end - rest.base));
            let (block, tail) = rest.split_at(block_rows, entries);
            blocks.push(block);
            (rest, first_row) = (tail, end_row);
        }
        let outcomes = blocks.into_par_iter().map(RowBlock::canonicalise).collect::<Result<Vec<_>, _>>()?;
        close_gaps(self, &outcomes);
        Ok(())
    }

    /// The matrix, whose arrays now satisfy its invariants.
    pub(super) fn finish(self) -> Csr<V> {
        let Self { rows, cols, row_offsets, col_indices, values, canonicalised } = self;
        Csr { pattern: Pattern::of_checked((rows, cols), row_offsets, col_indices), values, canonicalised }
    }
}

/// Checks everything about `row_offsets`, `col_indices` and the number of values but the order in the rows.
pub(super) fn check_parts(
    dims: (u32, u32),
    row_offsets: &[u64],
    col_indices: &[u32],
    values_len: usize,
) -> Result<(), FormatError> {
    check_offset_count(dims.0, row_offsets)?;
    let expected = col_indices.len();
    if values_len != expected {
        let why = "one for each column index";
        return Err(FormatError::LengthMismatch { array: "values", found: values_len, expected, why });
    }
    check_indices(dims, row_offsets, col_indices)
}

fn check_offset_count(rows: u32, row_offsets: &[u64]) -> Result<(), FormatError> {
    let (found, expected) = (row_offsets.len(), rows as usize + 1);
    if found != expected {
        let why = "one more than there are rows";
        return Err(FormatError::LengthMismatch { array: "row_offsets", found, expected, why });
    }
    Ok(())
}

/// Checks everything about `row_offsets` and `col_indices`.
pub(super) fn check_pattern(
    dims: (u32, u32),
    row_offsets: &[u64],
    col_indices: &[u32],
) -> Result<(), FormatError> {
    check_offset_count(dims.0, row_offsets)?;
    check_indices(dims, row_offsets, col_indices)?;
    check_ascending(row_offsets, col_indices)
}

/// Checks everything about the right number of `row_offsets` and `col_indices` but the order in the rows.
fn check_indices(
    (rows, cols): (u32, u32),
    row_offsets: &[u64],
    col_indices: &[u32],
) -> Result<(), FormatError> {
    let entries = col_indices.len();
    if row_offsets[0] != 0 {
        return Err(FormatError::FirstOffset { found: row_offsets[0] });
    }
    if let Some(row) = row_offsets.par_windows(2).with_min_len(BLOCK_ENTRIES).position_first(|w| w[0] > w[1])
    {
        return Err(FormatError::OffsetsDecrease { row, start: row_offsets[row], end: row_offsets[row + 1] });
    }
    let last = row_offsets[rows as usize];
    if last != entries as u64 {
        return Err(FormatError::LastOffset { found: last, entries });
    }
    if let Some(entry) = first_not_below(col_indices, cols) {
        // The last row that starts at or before the entry is the one that holds it: rows that start there
        // and are empty come earlier.
        let row = row_offsets.partition_point(|&offset| offset <= entry as u64) - 1;
        let column = u64::from(col_indices[entry]);
        return Err(FormatError::ColumnOutOfRange { row, entry, column, cols: cols as usize });
    }
    Ok(())
}

/// Checks that columns strictly ascend in each row; everything else about the arrays is checked already.
fn check_ascending(row_offsets: &[u64], col_indices: &[u32]) -> Result<(), FormatError> {
    let columns = |ends: &[u64]| &col_indices[index(ends[0])..index(ends[1])];
    let ascend = |ends: &[u64]| columns(ends).is_sorted_by(|a, b| a < b);
    let row = row_offsets.par_windows(2).with_min_len(ROWS_PER_TASK).position_first(|ends| !ascend(ends));
    let Some(row) = row else { return Ok(()) };
    let (start, columns) = (index(row_offsets[row]), columns(&row_offsets[row..row + 2]));
    match columns.windows(2).position(|pair| pair[0] >= pair[1]) {
        Some(at) => {
            let (before, column) = (columns[at], columns[at + 1]);
            Err(FormatError::ColumnsNotAscending { row, entry: start + at + 1, column, before })
        }
        None => Ok(()),
    }
}

/// Ends of consecutive ranges of rows that hold about the same number of rows and entries together.
fn balanced_limits(row_offsets: &[u64]) -> Vec<usize> {
    let rows = row_offsets.len() - 1;
    let cost_before = |row: usize| row_offsets[row] + row as u64;
    let total = cost_before(rows);
    let blocks = (total / BLOCK_ENTRIES as u64).clamp(1, MAX_BLOCKS as u64);
    let mut limits = Vec::with_capacity(index(blocks));
    for block in 1..=blocks {
        let target = u128::from(total) * u128::from(block) / u128::from(blocks);
        let (mut low, mut high) = (limits.last().copied().unwrap_or(0), rows);
        while low < high {
            let middle = low.midpoint(high);
            if u128::from(cost_before(middle)) < target { low = middle + 1 } else { high = middle }
        }
        limits.push(low);
    }
    limits
}

/// The canonical matrix of a list of coordinates.
pub(super) fn from_coo<V: Value>(coo: &Coo<V>) -> Result<Csr<V>, FormatError> {
    let (rows, nnz) = (coo.rows(), coo.nnz());
    let mut draft = Draft::zeros(rows, coo.cols())?;
    draft.make_room(nnz)?;
    if nnz == 0 {
        return Ok(draft.finish());
    }

    // 1. Count the entries of each bucket, a range of 2^shift rows, in each chunk of the list.
    let buckets_wanted = (nnz / BLOCK_ENTRIES).clamp(1, MAX_BLOCKS);
    let shift = (0..32).find(|&s| ((rows - 1) >> s) < buckets_wanted).unwrap_or(32);
    let buckets = ((rows - 1) >> shift) + 1;
    let chunk_len = nnz.div_ceil(4 * rayon::current_num_threads()).max(BLOCK_ENTRIES);
    let counts: Vec<Vec<usize>> = coo
        .row_indices()
        .par_chunks(chunk_len)
        .map(|chunk| {
            let mut counts = vec![0; buckets];
            chunk.iter().for_each(|&row| counts[(row >> shift) as usize] += 1);
            counts
        })
        .collect();
    let sizes: Vec<usize> =
        (0..buckets).map(|bucket| counts.iter().map(|chunk| chunk[bucket]).sum()).collect();

    // 2. Give each bucket its part of the result and fill it, from the list itself if that is in order.
    let mut blocks = Vec::with_capacity(buckets);
    let mut rest = RowBlock::whole(&mut draft);
    for (bucket, &entries) in sizes.iter().enumerate() {
        let first_row = bucket << shift;
        let (block, tail) = rest.split_at((rows - first_row).min(1 << shift), entries);
        blocks.push((narrow(first_row), block));
        rest = tail;
    }
    let in_order =
        buckets == 1 || coo.row_indices().par_windows(2).with_min_len(BLOCK_ENTRIES).all(|w| w[0] <= w[1]);
    let outcomes: Result<Vec<Outcome>, _> = if in_order {
        let fill = |(first_row, block): (u32, RowBlock<'_, V>)| {
            let range = block.range();
            let (rows, cols) = (&coo.row_indices()[range.clone()], &coo.col_indices()[range.clone()]);
            let entries = rows.iter().zip(cols).zip(&coo.values()[range]);
            block.fill(first_row, entries.map(|((&row, &column), &value)| (row, column, value)))
        };
        blocks.into_par_iter().map(fill).collect()
    } else {
        let distributed = distribute(coo, chunk_len, shift, &counts)?;
        let fill = |(first_row, block): (u32, RowBlock<'_, V>)| {
            let range = block.range();
            block.fill(first_row, distributed[range].iter().copied())
        };
        blocks.into_par_iter().map(fill).collect()
    };
    close_gaps(&mut draft, &outcomes?);
    Ok(draft.finish())
}

/// The entries of `coo` ordered by bucket, entries of one bucket in their old order.
///
/// `counts[c][b]` is the number of entries that chunk `c` of the list has in bucket `b`.
fn distribute<V: Value>(
    coo: &Coo<V>,
    chunk_len: usize,
    shift: u32,
    counts: &[Vec<usize>],
) -> Result<Vec<Entry<V>>, FormatError> {
    let mut distributed: Vec<Entry<V>> = try_zeroed(coo.nnz(), "a copy of the entries")?;
    let buckets = counts[0].len();
    let mut targets: Vec<_> = counts.iter().map(|_| Vec::with_capacity(buckets)).collect();
    let mut rest = distributed.as_mut_slice();
    for bucket in 0..buckets {
        for (chunk, chunk_targets) in counts.iter().zip(&mut targets) {
            let (target, tail) = rest.split_at_mut(chunk[bucket]);
            chunk_targets.push(target.iter_mut());
            rest = tail;
        }
    }
    let chunks = coo.row_indices().par_chunks(chunk_len).zip(coo.col_indices().par_chunks(chunk_len));
    chunks.zip(coo.values().par_chunks(chunk_len)).zip(targets).for_each(
        |(((rows, cols), values), mut chunk_targets)| {
            for ((&row, &column), &value) in rows.iter().zip(cols).zip(values) {
                // The targets are as long as the counts of the same rows, so there is always a next.
                if let Some(slot) = chunk_targets[(row >> shift) as usize].next() {
                    *slot = (row, column, value);
                }
            }
        },
    );
    Ok(distributed)
}

//! How well an order of the rows serves windows of 8 of them.

use windrow_formats::memory::{make_room, try_collect, try_with_room};
use windrow_formats::{OutOfMemory, WINDOW_ROWS};

use super::pattern::{Pattern, chunks, map_chunks};
use super::similarity::Weights;
use super::watch::{Stopped, Watch};

/// Rows of a block for [`Locality::block_columns`].
const BLOCK_ROWS: usize = 4096;

/// The locality of a matrix's rows in the original and in the new order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// In the original order.
    pub before: Locality,
    /// In the new order.
    pub after: Locality,
}

/// What neighbouring rows have in common in some order; rows without entries are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Locality {
    /// Distinct columns of each window of 8 consecutive rows, summed: how many rows of `B` are gathered.
    pub column_vectors: u64,
    /// Distinct columns of each window of 16 consecutive rows, summed.
    pub column_vectors_16: u64,
    /// Distinct columns of each block of 4096 consecutive rows, summed: how many rows of `B` are loaded
    /// where a cache keeps those of a block.
    pub block_columns: u64,
    /// `nnz / column_vectors`: how often a gathered row of `B` is used; 0 without entries.
    pub entries_per_vector: f64,
    /// Mean of `1 − sim` over pairs of consecutive rows, the paper's objective divided by `m − 1`; 0 if there
    /// are no pairs. With `S_r` the columns of row `r` and `w_j = d_j^(−α)` the weight of column `j` of
    /// degree `d_j`, `sim(r, u) = Σ_{j ∈ S_r ∩ S_u} w_j / Σ_{j ∈ S_r ∪ S_u} w_j`.
    pub dissimilarity: f64,
}

impl Locality {
    /// The locality of `order`, a list of rows.
    ///
    /// # Cost
    /// Linear in rows and entries but for sorting the columns of blocks; parallel.
    pub(super) fn of(
        pattern: &Pattern<'_>,
        weights: &Weights,
        order: &[u32],
        watch: &dyn Watch,
    ) -> Result<Self, Stopped> {
        let mut filled = try_with_room(order.len(), "rows with entries")?;
        filled.extend(order.iter().copied().filter(|&r| pattern.row_len(r) > 0));
        let order: Vec<u32> = filled;
        let pairs = try_collect(order.chunks(2 * WINDOW_ROWS), "pairs of windows")?;
        let blocks = try_collect(order.chunks(BLOCK_ROWS), "blocks of windows")?;
        let entries = |rows: &[u32]| rows.iter().map(|&r| pattern.row_len(r) as u64).sum::<u64>();
        let pair_ranges = chunks(pairs.len(), |pair| entries(pairs[pair]))?;
        let block_ranges = chunks(blocks.len(), |block| entries(blocks[block]))?;
        watch.begin("locality", (pair_ranges.len() + block_ranges.len()) as u64);
        let parts = map_chunks(&pair_ranges, watch, |range| {
            let mut part = Part::default();
            let mut columns = Vec::new();
            for pair in range {
                part.nnz += entries(pairs[pair]);
                for window in pairs[pair].chunks(WINDOW_ROWS) {
                    part.column_vectors += distinct_columns(columns_of(pattern, window), &mut columns)?;
                }
                part.column_vectors_16 += distinct_columns(columns_of(pattern, pairs[pair]), &mut columns)?;
                // The pairs of consecutive rows, also with the first of the next window.
                let first = 2 * WINDOW_ROWS * pair;
                let last = (first + pairs[pair].len() + 1).min(order.len());
                for beside in order[first..last].windows(2) {
                    let (a, b) = (pattern.row(beside[0]), pattern.row(beside[1]));
                    part.dissimilarity += 1.0 - f64::from(weights.similarity(a, b));
                }
            }
            Ok(part)
        })?;
        // Added up in order, so that the sum does not depend on threads.
        let sum = parts.iter().fold(Part::default(), Part::plus);
        let block_columns = map_chunks(&block_ranges, watch, |range| {
            let mut columns = Vec::new();
            range
                .map(|block| distinct_columns(columns_of(pattern, blocks[block]), &mut columns))
                .sum::<Result<u64, _>>()
        })?;
        let block_columns = block_columns.into_iter().sum();
        let ratio = |a: f64, b: f64| if b == 0.0 { 0.0 } else { a / b };
        Ok(Self {
            column_vectors: sum.column_vectors,
            column_vectors_16: sum.column_vectors_16,
            block_columns,
            entries_per_vector: ratio(sum.nnz as f64, sum.column_vectors as f64),
            dissimilarity: ratio(sum.dissimilarity, order.len().saturating_sub(1) as f64),
        })
    }
}

/// Sums over some windows.
#[derive(Default)]
struct Part {
    nnz: u64,
    column_vectors: u64,
    column_vectors_16: u64,
    dissimilarity: f64,
}

impl Part {
    fn plus(self, other: &Self) -> Self {
        Self {
            nnz: self.nnz + other.nnz,
            column_vectors: self.column_vectors + other.column_vectors,
            column_vectors_16: self.column_vectors_16 + other.column_vectors_16,
            dissimilarity: self.dissimilarity + other.dissimilarity,
        }
    }
}

/// The columns of each of some rows.
fn columns_of<'a>(pattern: &'a Pattern<'_>, rows: &'a [u32]) -> impl Iterator<Item = &'a [u32]> {
    rows.iter().map(|&r| pattern.row(r))
}

/// How many distinct columns some rows have, in room that is used again.
pub(super) fn distinct_columns<'a>(
    rows: impl Iterator<Item = &'a [u32]>,
    columns: &mut Vec<u32>,
) -> Result<u64, OutOfMemory> {
    /// Columns that a stable sort has room for on its stack.
    const FEW: usize = 1 << 10;
    columns.clear();
    for row in rows {
        make_room(columns, row.len(), "columns of a window")?;
        columns.extend_from_slice(row);
    }
    if columns.len() <= FEW {
        // Stable: it merges the ascending runs that the rows are.
        columns.sort();
    } else {
        // It would ask for memory.
        columns.sort_unstable();
    }
    columns.dedup();
    Ok(columns.len() as u64)
}

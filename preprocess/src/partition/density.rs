//! What the tiles of a matrix would hold, without building them.

use rayon::prelude::*;
use windrow_formats::{Csr, FormatError, OutOfMemory, Permutation, TILE_COLS, WINDOW_ROWS};

use super::columns::ColumnCounts;
use super::vectors::Division;
use super::windows::tile_rows;
use super::{PartitionRule, rows_with_entries};

/// Tiles of a step of a tile stream.
const STEP_TILES: u64 = 2;
/// Windows counted by one task, at most: enough that a table of columns is made rarely.
const GROUP_WINDOWS: usize = 512;
/// Tasks that few windows are divided into, about.
const GROUPS: usize = 64;

/// How full the tiles of a partition are, and what is left to the residual.
///
/// Counts are those of the [`RsTile`](windrow_formats::RsTile) that the partition leads to. A mean is 0 where
/// there is nothing to divide.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Density {
    /// Tiles of all windows.
    pub tiles: u64,
    /// Windows of 8 rows; the last may have fewer, and any if entries are divided by column vectors.
    pub windows: u64,
    /// Distinct columns of each window, summed over the windows.
    pub columns: u64,
    /// Steps of 16 columns of a tile stream, the last of a window padded.
    pub steps: u64,
    /// Entries of the rows that are in tiles.
    pub entries_in_tiles: u64,
    /// `entries_in_tiles / tiles`, at most 64.
    pub mean_nnz_per_tile: f64,
    /// `entries_in_tiles / windows`; 0 without windows.
    pub mean_nnz_per_window: f64,
    /// Rows with entries that are in no tile; entries, for other entries of the row may be in tiles.
    pub residual_rows: u64,
    /// Entries in the residual.
    pub residual_entries: u64,
    /// Rows with entries in tiles and in the residual.
    pub rows_in_both: u64,
}

/// The density of the tiles of `csr` under `rule`, rows visited in `order` or, without one, as they come.
///
/// Figure 14 of RSH-SpMM plots the two means over the threshold of [`PartitionRule::Overlap`].
///
/// # Cost
/// That of [`assign`](super::assign), then one parallel pass over the entries in tiles.
///
/// # Errors
/// [`FormatError::LengthMismatch`] unless `order` is as long as there are rows; [`FormatError::OutOfMemory`].
///
/// # Examples
/// ```
/// use windrow_formats::Csr;
/// use windrow_preprocess::partition::{PartitionRule, density};
///
/// // Eight rows of two entries in the same two columns: one tile.
/// let a = Csr::try_from_parts(8, 9, (0..=16).step_by(2).collect(), [3, 5].repeat(8), vec![1.0f32; 16])?;
/// let tiles = density(&a, None, PartitionRule::AllTile)?;
/// assert_eq!((tiles.tiles, tiles.mean_nnz_per_tile, tiles.residual_rows), (1, 16.0, 0));
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn density<V: Sync>(
    csr: &Csr<V>,
    order: Option<&Permutation>,
    rule: PartitionRule,
) -> Result<Density, FormatError> {
    let rows = rows_with_entries(csr, order)?;
    Ok(match rule {
        PartitionRule::ColumnVectors { threshold } => {
            Division::of(csr, &rows, threshold)?.density(csr, &rows)
        }
        _ => density_of(csr, rows.len(), &tile_rows(csr, &rows, rule)?)?,
    })
}

/// Column vectors of `csr`: distinct columns of each window of 8 rows with entries, rows as they come, summed.
///
/// Counted in all windows if the matrix has no more than `enough` entries. Else in every so many of them, in which
/// together about `enough` entries are, and `entries of the matrix / entries seen` times these: what rows share with
/// their neighbours seldom needs more to be known.
///
/// # Cost
/// One pass over the lengths of the rows, then one over the entries that are looked at, in parallel.
///
/// # Errors
/// [`FormatError::OutOfMemory`].
///
/// # Examples
/// ```
/// use windrow_formats::Csr;
/// use windrow_preprocess::partition::column_vectors;
///
/// // Sixteen rows of two entries in the same two columns: two windows, two vectors each.
/// let a = Csr::try_from_parts(16, 9, (0..=32).step_by(2).collect(), [3, 5].repeat(16), vec![1.0f32; 32])?;
/// assert_eq!((column_vectors(&a, 32)?, column_vectors(&a, 16)?), (4, 4));
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn column_vectors<V: Sync>(csr: &Csr<V>, enough: usize) -> Result<u64, FormatError> {
    let mut rows = rows_with_entries(csr, None)?;
    let windows_each = csr.nnz().div_ceil(enough.max(1)).max(1);
    let mut position = 0;
    rows.retain(|_| {
        position += 1;
        ((position - 1) / WINDOW_ROWS).is_multiple_of(windows_each)
    });
    let Density { columns, entries_in_tiles, .. } = density_of(csr, rows.len(), &rows)?;
    let for_each = u128::from(columns) * csr.nnz() as u128;
    Ok(u64::try_from(for_each / u128::from(entries_in_tiles.max(1))).unwrap_or(u64::MAX))
}

/// The density if, of `rows` rows with entries, the rows `in_tiles` are packed to windows in their order.
pub(super) fn density_of<V: Sync>(
    csr: &Csr<V>,
    rows: usize,
    in_tiles: &[u32],
) -> Result<Density, OutOfMemory> {
    let group = |rows: &[u32]| {
        let mut counts = ColumnCounts::default();
        let mut sums = Sums::default();
        rows.chunks(WINDOW_ROWS).try_for_each(|window| sums.add_window(csr, window, &mut counts))?;
        Ok(sums)
    };
    let windows_each = in_tiles.len().div_ceil(WINDOW_ROWS * GROUPS).clamp(1, GROUP_WINDOWS);
    let groups = in_tiles.par_chunks(WINDOW_ROWS * windows_each).map(group);
    let sums = groups.try_reduce(Sums::default, |a, b| Ok(a.plus(b)))?;
    let windows = in_tiles.len().div_ceil(WINDOW_ROWS) as u64;
    Ok(sums.density(windows, (rows - in_tiles.len()) as u64, csr.nnz() as u64))
}

/// Counts of windows, added up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    columns: u64,
    tiles: u64,
    steps: u64,
    entries: u64,
}

impl Sums {
    fn add_window<V>(
        &mut self,
        csr: &Csr<V>,
        window: &[u32],
        counts: &mut ColumnCounts,
    ) -> Result<(), OutOfMemory> {
        let entries = window.iter().map(|&row| csr.row_len(row as usize)).sum();
        counts.reset(entries)?;
        for &row in window {
            counts.add(row, csr.row(row as usize).0, |_| ());
        }
        *self = self.plus(Self::of_window(counts.distinct() as u64, entries as u64));
        Ok(())
    }

    /// The counts of one window.
    pub(super) fn of_window(columns: u64, entries: u64) -> Self {
        let tiles = columns.div_ceil(TILE_COLS as u64);
        Self { columns, tiles, steps: tiles.div_ceil(STEP_TILES), entries }
    }

    /// The density of so many windows with these counts, of a matrix of `nnz` entries.
    pub(super) fn density(self, windows: u64, residual_rows: u64, nnz: u64) -> Density {
        Density {
            tiles: self.tiles,
            windows,
            columns: self.columns,
            steps: self.steps,
            entries_in_tiles: self.entries,
            mean_nnz_per_tile: ratio(self.entries, self.tiles),
            mean_nnz_per_window: ratio(self.entries, windows),
            residual_rows,
            residual_entries: nnz - self.entries,
            rows_in_both: 0,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            columns: self.columns + other.columns,
            tiles: self.tiles + other.tiles,
            steps: self.steps + other.steps,
            entries: self.entries + other.entries,
        }
    }
}

/// `part / whole`, or 0 where there is nothing to divide.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

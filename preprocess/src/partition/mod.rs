//! Which rows of a matrix, or which of their entries, are multiplied as tiles and which one by one.
//!
//! A row with few entries fills little of the 8 × 8 tiles it takes part in: a tile costs the same however
//! full it is. RSH-SpMM (section 3) therefore keeps rows out of the tiles that are short and hold columns
//! that no other row of their window holds.
//!
//! - [`assign`] decides for whole rows by a [`PartitionRule`];
//! - [`split_vectors`] decides for the entries of each column of a window, as Libra does: a row may then be in both
//!   parts;
//! - [`estimate`] finds the rule whose product takes least time after a [`CostModel`];
//! - [`density`] counts what the tiles of a rule would hold, [`footprint`] what formats occupy.
//!
//! # Windows
//!
//! Rows are visited in order, rows without entries skipped, as when an [`RsTile`](windrow_formats::RsTile)
//! packs them: a window is the next 8 rows that are not in the residual. So is the window in which a row
//! is judged. It is filled with the next 8 rows; all that are to leave do so together; the window is filled
//! up and judged again, until no row leaves and it is closed. For a row `r` of `nz` entries,
//!
//! `Δ = |⋃_{u ∈ W} S_u| − |⋃_{u ∈ W, u ≠ r} S_u|`,
//!
//! where `W` is the window and `S_u` the columns of row `u`, are the columns that only `r` brings, and
//! `nz − Δ` those that it shares. Algorithm 1 of the paper instead judges the first row of each window only,
//! so that an isolated row in any other place stays; [`PartitionRule::Printed`] does so too.
//!
//! Windows are decided in parallel, afresh in every chunk of 8192 rows with entries, so nothing depends on
//! the number of threads. In the tiles the chunks follow each other without a gap: behind a chunk whose
//! staying rows are no multiple of 8, windows begin up to 7 rows off those that were judged. Their columns
//! are then those of other neighbours, and a row that left may have shared more of them than was seen.
//! [`density`] and [`estimate`] count the windows as they come to be.

mod columns;
mod cost;
mod density;
mod estimate;
mod footprint;
mod vectors;
mod windows;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vector_tests;

use windrow_formats::memory::{try_collect, try_filled, try_par_flat_map};
use windrow_formats::{Csr, FormatError, OutOfMemory, Permutation, RowAssignment, RowPath};

pub use cost::{CostModel, ProductShape};
pub use density::{Density, column_vectors, density};
pub use estimate::{Estimate, Prediction, estimate};
pub use footprint::{Footprint, footprint};
pub use vectors::{InvalidThreshold, VectorPart, VectorSplit, VectorThreshold, split_vectors};

use windows::tile_rows;

/// How rows are divided between tiles and residual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum PartitionRule {
    /// Every row in tiles.
    AllTile,
    /// Every row in the residual.
    AllResidual,
    /// Rows of at most `max_entries` entries in the residual, the others in tiles.
    ShortRows {
        /// The longest row that goes to the residual, in entries.
        max_entries: u32,
    },
    /// Rows in the residual that are short and share few columns with their window, the others in tiles:
    /// Algorithm 1 of RSH-SpMM as its sections 3.2 and 4.3.2 describe it.
    ///
    /// A row goes to the residual if `nz ≤ max_entries`, `100 · (nz − Δ) ≤ max_shared_percent · nz` and
    /// `Δ > 0`: without it, its window has Δ columns fewer.
    Overlap {
        /// What is short and what is little overlap.
        thresholds: Thresholds,
    },
    /// Algorithm 1 of RSH-SpMM as printed, to compare with: the first row of a window goes to the residual
    /// if `nz ≤ max_entries` and `Δ < max_increment`, and the next row becomes the first.
    ///
    /// This sends away rows that share all their columns (`Δ = 0`), and keeps isolated ones with
    /// `Δ = nz ≥ max_increment`: the opposite of what the paper describes.
    Printed {
        /// The longest row that goes to the residual, in entries; `τ_nnz` of the paper.
        max_entries: u32,
        /// Columns that only the row brings are fewer than these; `τ_inc` of the paper.
        max_increment: u32,
    },
    /// Column vectors of windows in tiles that are full enough, the entries of the others on CUDA cores, as
    /// [`split_vectors`] divides them: the distribution of Libra. A row may have entries in both parts.
    ColumnVectors {
        /// What is full enough.
        threshold: VectorThreshold,
    },
}

/// The thresholds of [`PartitionRule::Overlap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// The longest row that may go to the residual, in entries; `τ_nnz` of the paper, which keeps it within
    /// 0 to 6.
    pub max_entries: u32,
    /// The largest share of such a row's columns, in percent, that other rows of its window hold too.
    pub max_shared_percent: u32,
}

impl Thresholds {
    /// Up to `max_entries` entries, of which at most a quarter share their columns.
    ///
    /// An entry in the residual costs about what a column of a window costs. Half a step of padding a
    /// window, an eighth of which is a row's part, is worth one shared column of a row of four.
    pub const fn new(max_entries: u32) -> Self {
        Self { max_entries, max_shared_percent: 25 }
    }
}

/// The path of each row of `csr` under `rule`, rows visited as they come.
///
/// Rows without entries get a path like any other; the formats keep them nowhere. Under
/// [`PartitionRule::ColumnVectors`] the path of a row that has entries on both is [`RowPath::Tile`].
///
/// # Cost
/// One pass over the row offsets. [`PartitionRule::Overlap`] and [`PartitionRule::Printed`] also read the
/// columns of each window that holds a short row, [`PartitionRule::ColumnVectors`] those of all: linear in rows and
/// entries whatever the thresholds, parallel over chunks of rows.
/// Values are not looked at.
///
/// # Errors
/// [`OutOfMemory`].
///
/// # Examples
/// ```
/// use windrow_formats::{Csr, FormatError, RowPath};
/// use windrow_preprocess::partition::{PartitionRule, Thresholds, assign};
///
/// // Rows 0 to 2 hold columns 0, 1 and 2; row 3 is short and alone in column 9; row 4 is short, but
/// // column 1 is in the window anyway.
/// let columns = vec![0, 1, 2, 0, 1, 2, 0, 1, 2, 9, 1];
/// let a = Csr::try_from_parts(5, 10, vec![0, 3, 6, 9, 10, 11], columns, vec![1.0f32; 11])?;
/// let residual = |rule| -> Result<Vec<usize>, FormatError> {
///     let paths = assign(&a, rule)?;
///     Ok((0..5).filter(|&row| paths.path(row) == RowPath::Residual).collect())
/// };
/// assert_eq!(residual(PartitionRule::ShortRows { max_entries: 2 })?, [3, 4]);
/// assert_eq!(residual(PartitionRule::Overlap { thresholds: Thresholds::new(2) })?, [3]);
/// # Ok::<(), FormatError>(())
/// ```
pub fn assign<V: Sync>(csr: &Csr<V>, rule: PartitionRule) -> Result<RowAssignment, OutOfMemory> {
    assign_visiting(csr, None, rule)
}

/// The path of each row of `csr` under `rule`, rows visited in the order `order.to_old(0)`,
/// `order.to_old(1)`, … in which [`RsTile::from_csr_in_order`](windrow_formats::RsTile::from_csr_in_order)
/// packs them. Rows keep their numbers: path `r` is that of row `r` of `csr`.
///
/// # Cost
/// That of [`assign`].
///
/// # Errors
/// [`FormatError::LengthMismatch`] unless `order` is as long as there are rows; [`FormatError::OutOfMemory`].
///
/// # Examples
/// ```
/// use windrow_formats::{Csr, Permutation};
/// use windrow_preprocess::partition::{PartitionRule, Thresholds, assign, assign_in_order};
///
/// let a = Csr::<f32>::identity(100)?;
/// let order = Permutation::try_from_new_to_old((0..100).rev().collect())?;
/// let rule = PartitionRule::Overlap { thresholds: Thresholds::new(1) };
/// assert_eq!(assign_in_order(&a, &order, rule)?, assign(&a, PartitionRule::AllResidual)?);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn assign_in_order<V: Sync>(
    csr: &Csr<V>,
    order: &Permutation,
    rule: PartitionRule,
) -> Result<RowAssignment, FormatError> {
    check_order(csr, order)?;
    Ok(assign_visiting(csr, Some(order), rule)?)
}

/// With an order that is one of the matrix's rows.
fn assign_visiting<V: Sync>(
    csr: &Csr<V>,
    order: Option<&Permutation>,
    rule: PartitionRule,
) -> Result<RowAssignment, OutOfMemory> {
    let what = "paths of rows";
    let paths = match rule {
        PartitionRule::AllTile => try_filled(csr.rows(), RowPath::Tile, what)?,
        PartitionRule::AllResidual => try_filled(csr.rows(), RowPath::Residual, what)?,
        PartitionRule::ShortRows { max_entries } => {
            let is_short = |row| csr.row_len(row) <= max_entries as usize;
            let path = |row| if is_short(row) { RowPath::Residual } else { RowPath::Tile };
            try_collect((0..csr.rows()).map(path), what)?
        }
        PartitionRule::Overlap { .. }
        | PartitionRule::Printed { .. }
        | PartitionRule::ColumnVectors { .. } => {
            let rows = list_rows_with_entries(csr, order)?;
            let mut paths = try_filled(csr.rows(), RowPath::Residual, what)?;
            for row in tile_rows(csr, &rows, rule)? {
                paths[row as usize] = RowPath::Tile;
            }
            paths
        }
    };
    Ok(paths.into())
}

/// The rows of `csr` that have entries, in `order` or as they come.
fn rows_with_entries<V: Sync>(csr: &Csr<V>, order: Option<&Permutation>) -> Result<Vec<u32>, FormatError> {
    order.map_or(Ok(()), |order| check_order(csr, order))?;
    Ok(list_rows_with_entries(csr, order)?)
}

/// The same with an order that is one of the matrix's rows.
fn list_rows_with_entries<V: Sync>(
    csr: &Csr<V>,
    order: Option<&Permutation>,
) -> Result<Vec<u32>, OutOfMemory> {
    let row_at = |position: usize| {
        let row = order.map_or(position, |order| order.to_old(position));
        (csr.row_len(row) > 0).then(|| narrow(row))
    };
    try_par_flat_map(csr.rows(), 0, row_at, "rows with entries")
}

/// The number of a row of a matrix.
fn narrow(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX) // dimensions are checked to fit 32 bits
}

fn check_order<V>(csr: &Csr<V>, order: &Permutation) -> Result<(), FormatError> {
    if order.len() == csr.rows() {
        return Ok(());
    }
    let (found, expected, why) = (order.len(), csr.rows(), "one for each row");
    Err(FormatError::LengthMismatch { array: "the order of rows", found, expected, why })
}

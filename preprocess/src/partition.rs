//! Which rows of a matrix are multiplied as tiles and which entry by entry.
//!
//! A row with few entries fills little of the 8 × 8 tiles it takes part in: a tile costs the same however
//! full it is. RSH-SpMM (section 3) therefore keeps short rows out of the tiles.

use windrow_formats::{Csr, RowAssignment, RowPath};

/// How rows are divided between tiles and residual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

/// The path of each row of `csr` under `rule`.
///
/// Rows without entries get a path like any other; the formats keep them nowhere.
///
/// # Cost
/// One pass over the row offsets; values and columns are not looked at.
///
/// # Examples
/// ```
/// use windrow_formats::{Csr, RowPath};
/// use windrow_preprocess::partition::{PartitionRule, assign};
///
/// let a = Csr::try_from_parts(2, 3, vec![0, 1, 4], vec![2, 0, 1, 2], vec![1.0f32; 4])?;
/// let paths = assign(&a, PartitionRule::ShortRows { max_entries: 2 });
/// assert_eq!(paths.paths(), [RowPath::Residual, RowPath::Tile]);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn assign<V>(csr: &Csr<V>, rule: PartitionRule) -> RowAssignment {
    let ends = csr.row_offsets();
    let rows = ends.len() - 1; // a Csr has one offset more than it has rows
    match rule {
        PartitionRule::AllTile => RowAssignment::all_tile(rows),
        PartitionRule::AllResidual => RowAssignment::all_residual(rows),
        PartitionRule::ShortRows { max_entries } => RowAssignment::from_fn(rows, |r| {
            if ends[r + 1] - ends[r] <= u64::from(max_entries) { RowPath::Residual } else { RowPath::Tile }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row `r` has `lengths[r]` entries.
    fn with_lengths(lengths: &[u32]) -> Csr<f32> {
        let mut ends = vec![0];
        let mut columns = Vec::new();
        for &len in lengths {
            columns.extend(0..len);
            ends.push(columns.len() as u64);
        }
        let ones = vec![1.0; columns.len()];
        Csr::try_from_parts(lengths.len(), 100, ends, columns, ones).unwrap()
    }

    #[test]
    fn each_rule_looks_at_row_lengths_only() {
        use RowPath::{Residual, Tile};
        let a = with_lengths(&[0, 1, 4, 5, 100]);
        assert_eq!(assign(&a, PartitionRule::AllTile).paths(), [Tile; 5]);
        assert_eq!(assign(&a, PartitionRule::AllResidual).paths(), [Residual; 5]);
        for (max_entries, tiles) in [(0, 4), (1, 3), (3, 3), (4, 2), (5, 1), (99, 1), (100, 0), (u32::MAX, 0)]
        {
            let paths = assign(&a, PartitionRule::ShortRows { max_entries });
            let want: Vec<RowPath> =
                [Residual; 5].into_iter().take(5 - tiles).chain([Tile; 5]).take(5).collect();
            assert_eq!(paths.paths(), want, "max_entries = {max_entries}");
        }
    }

    #[test]
    fn a_matrix_without_rows_has_no_paths() {
        let a = Csr::<f32>::zeros(0, 7).unwrap();
        for rule in
            [PartitionRule::AllTile, PartitionRule::AllResidual, PartitionRule::ShortRows { max_entries: 3 }]
        {
            assert_eq!(assign(&a, rule).rows(), 0);
        }
    }
}

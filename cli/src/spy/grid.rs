//! Entries of a matrix counted in the cells of a picture.

use windrow::{Csr, Value};

/// Height and width, in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) high: usize,
    pub(super) wide: usize,
}

/// Numbers of entries per cell, row of cells after row of cells.
#[derive(Debug)]
pub(super) struct Grid {
    pub(super) wide: usize,
    pub(super) high: usize,
    pub(super) counts: Vec<u64>,
    /// The most entries that a cell has.
    pub(super) most: u64,
}

impl Grid {
    /// Counts the entries of `a` in at most `most` cells, in the proportions of the matrix as far as sides of `least`
    /// cells allow.
    pub(super) fn of<V: Value>(a: &Csr<V>, most: Extent, least: Extent) -> Self {
        let Extent { high, wide } = cells(a.rows(), a.cols(), most, least);
        let mut counts = vec![0; high * wide];
        if high * wide > 0 {
            for (row, (cols, _)) in a.rows_iter().enumerate() {
                let line = scale(row, a.rows(), high) * wide;
                for &col in cols {
                    counts[line + scale(col as usize, a.cols(), wide)] += 1;
                }
            }
        }
        let most = counts.iter().copied().max().unwrap_or(0);
        Self { wide, high, counts, most }
    }

    /// Whether a cell stands for one place of the matrix.
    pub(super) fn shows_every_entry<V: Value>(&self, a: &Csr<V>) -> bool {
        (self.high, self.wide) == (a.rows(), a.cols())
    }

    /// Rows and columns of the matrix that a cell covers, no whole numbers as a rule.
    pub(super) fn places<V: Value>(&self, a: &Csr<V>) -> (f64, f64) {
        let each = |length: usize, cells: usize| if cells == 0 { 0.0 } else { length as f64 / cells as f64 };
        (each(a.rows(), self.high), each(a.cols(), self.wide))
    }

    /// How dark a cell with so many entries is, 0 to 1, on a logarithmic scale.
    pub(super) fn level(&self, count: u64) -> f64 {
        (1.0 + count as f64).ln() / (1.0 + self.most as f64).ln()
    }
}

/// Cells for a matrix: as many as fit, square ones if the picture allows, and no more than rows and columns.
fn cells(rows: usize, cols: usize, most: Extent, least: Extent) -> Extent {
    if rows == 0 || cols == 0 {
        return Extent { high: 0, wide: 0 };
    }
    if rows <= most.high && cols <= most.wide {
        return Extent { high: rows, wide: cols };
    }
    // The side that is too long by more fills the picture; the other keeps the proportion, and `least` cells.
    let shrink = (rows as f64 / most.high as f64).max(cols as f64 / most.wide as f64);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most `most`, and positive"
    )]
    let side = |length: usize, most: usize, least: usize| {
        ((length as f64 / shrink).round() as usize).clamp(least.min(length), most)
    };
    Extent { high: side(rows, most.high, least.high), wide: side(cols, most.wide, least.wide) }
}

/// The cell of place `at` when `length` places share `cells` cells.
fn scale(at: usize, length: usize, cells: usize) -> usize {
    // Below 2^32 places and 4000 cells, the product is far below 2^64.
    at * cells / length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proportions_are_kept_as_far_as_a_side_allows() {
        let of = |rows, cols| {
            let Extent { high, wide } =
                cells(rows, cols, Extent { high: 20, wide: 20 }, Extent { high: 4, wide: 2 });
            (high, wide)
        };
        assert_eq!(of(1000, 100), (20, 2));
        assert_eq!(of(100, 10_000), (4, 20));
        assert_eq!(of(1, 10_000), (1, 20));
        assert_eq!(of(7, 5), (7, 5));
        assert_eq!(of(0, 5), (0, 0));
    }

    #[test]
    fn every_entry_is_counted_once() {
        let a = Csr::<f32>::identity(1000).unwrap();
        let grid = Grid::of(&a, Extent { high: 10, wide: 10 }, Extent { high: 1, wide: 1 });
        assert_eq!((grid.counts.iter().sum::<u64>(), grid.most), (1000, 100));
        assert_eq!((grid.places(&a), grid.shows_every_entry(&a)), ((100.0, 100.0), false));
        assert_eq!((grid.level(100), grid.level(0)), (1.0, 0.0));
    }
}

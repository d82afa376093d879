//! Which rank owns which rows.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use windrow_formats::{Csr, Value};

/// Which rank owns which rows, of a matrix or of a dense operand: a range for each, in the order of the ranks.
///
/// Ranges may be empty, also because there are more ranks than rows.
///
/// # Examples
/// ```
/// use windrow::dist::Ownership;
///
/// let rows = Ownership::even(10, 4);
/// assert_eq!((rows.range(0), rows.range(3)), (0..3, 8..10));
/// assert_eq!(rows.owner(5), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    /// Where each rank begins, and the last ends.
    starts: Vec<usize>,
}

impl Ownership {
    /// As many rows for each rank, the first having one more where that does not come out even.
    ///
    /// # Panics
    /// If there are no ranks.
    #[must_use]
    pub fn even(rows: usize, ranks: usize) -> Self {
        assert!(ranks > 0, "somebody owns the rows");
        let (each, more) = (rows / ranks, rows % ranks);
        Self { starts: (0..=ranks).map(|rank| rank * each + rank.min(more)).collect() }
    }

    /// About the same work for each rank, of a product with `a`: an entry reads a row of `B`, a row writes one of `C`.
    ///
    /// # Panics
    /// If there are no ranks.
    #[must_use]
    pub fn balanced<V: Value>(a: &Csr<V>, ranks: usize) -> Self {
        assert!(ranks > 0, "somebody owns the rows");
        let offsets = a.row_offsets();
        let work = |row: usize| offsets[row] + row as u64;
        let all = u128::from(work(a.rows()));
        let mut starts = vec![0; ranks + 1];
        let mut row = 0;
        for (rank, start) in starts.iter_mut().enumerate().skip(1) {
            let before = all * rank as u128 / ranks as u128;
            while row < a.rows() && u128::from(work(row + 1)) <= before {
                row += 1;
            }
            *start = row;
        }
        starts[ranks] = a.rows();
        Self { starts }
    }

    /// Ranges of so many rows each.
    #[must_use]
    pub fn of_lengths(lengths: &[usize]) -> Self {
        let mut starts = vec![0];
        starts.extend(lengths.iter().scan(0, |end, len| {
            *end += len;
            Some(*end)
        }));
        Self { starts }
    }

    /// Number of all rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.starts[self.ranks()]
    }

    /// Number of ranks that own them.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.starts.len() - 1
    }

    /// The rows of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn range(&self, rank: usize) -> Range<usize> {
        self.starts[rank]..self.starts[rank + 1]
    }

    /// The rank that owns a row.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn owner(&self, row: usize) -> usize {
        assert!(row < self.rows(), "row {row} of {}", self.rows());
        self.starts.partition_point(|&start| start <= row) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(lengths: &[u32]) -> Csr<f32> {
        let entries: Vec<u32> = lengths.iter().flat_map(|&len| 0..len).collect();
        let mut offsets = vec![0];
        lengths.iter().for_each(|&len| offsets.push(offsets[offsets.len() - 1] + u64::from(len)));
        let ones = vec![1.0; entries.len()];
        Csr::try_from_parts(lengths.len(), 100, offsets, entries, ones).unwrap()
    }

    #[test]
    fn work_is_balanced_and_every_row_has_an_owner() {
        let a = rows(&[50, 1, 1, 1, 1, 40, 0, 3, 3]);
        for ranks in 1..12 {
            let owned = Ownership::balanced(&a, ranks);
            assert_eq!((owned.rows(), owned.ranks()), (9, ranks));
            for row in 0..9 {
                assert!(owned.range(owned.owner(row)).contains(&row));
            }
            let covered: usize = (0..ranks).map(|rank| owned.range(rank).len()).sum();
            assert_eq!(covered, 9);
        }
        // 109 in all: the first row is nearly half of it.
        assert_eq!(Ownership::balanced(&a, 2).range(0), 0..2);
        assert_eq!(Ownership::balanced(&rows(&[]), 3), Ownership::even(0, 3));
    }

    #[test]
    fn ranges_follow_one_another() {
        assert_eq!(Ownership::of_lengths(&[3, 0, 4]).range(2), 3..7);
        assert_eq!(Ownership::of_lengths(&[3, 0, 4]).owner(3), 2);
        let few = Ownership::even(2, 5);
        assert_eq!((few.range(1), few.range(4)), (1..2, 2..2));
    }
}

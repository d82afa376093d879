//! Where a sparse matrix has entries, before it has values.

use windrow_formats::Csr;

use crate::{SplitMix64, Values};

/// The places of a sparse matrix's entries: a list of ascending columns for each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// Number of columns `k`.
    pub cols: usize,
    /// Ascending, distinct columns of each row; there are as many rows as lists.
    pub rows: Vec<Vec<u32>>,
}

impl Pattern {
    /// A pattern without any entry.
    pub fn empty(rows: usize, cols: usize) -> Self {
        Self { cols, rows: vec![Vec::new(); rows] }
    }

    /// Row `r` has `lengths[r]` entries (at most `cols`) in random columns.
    pub fn from_lengths(cols: usize, lengths: impl IntoIterator<Item = usize>, rng: &mut SplitMix64) -> Self {
        Self { cols, rows: lengths.into_iter().map(|len| distinct_columns(cols, len, rng)).collect() }
    }

    /// Each row has between 0 and `max_len` entries, all lengths equally likely.
    pub fn random(rows: usize, cols: usize, max_len: usize, rng: &mut SplitMix64) -> Self {
        let lengths: Vec<usize> = (0..rows).map(|_| rng.between(0, max_len.min(cols))).collect();
        Self::from_lengths(cols, lengths, rng)
    }

    /// Row `r` has about `max_len / (r + 1)` entries, the heavy rows scattered over the matrix and the
    /// columns crowded at the low end: the shape of a graph with hubs.
    pub fn power_law(rows: usize, cols: usize, max_len: usize, rng: &mut SplitMix64) -> Self {
        let mut lengths: Vec<usize> = (0..rows).map(|r| (max_len / (r + 1)).clamp(1, cols.max(1))).collect();
        for r in (1..rows).rev() {
            lengths.swap(r, rng.below(r + 1));
        }
        let row = |len: usize, rng: &mut SplitMix64| {
            let mut columns: Vec<u32> = Vec::with_capacity(len);
            for _ in 0..len.min(cols) {
                let bound = rng.between(1, cols);
                columns.push(narrow(rng.below(bound)));
            }
            columns.sort_unstable();
            columns.dedup();
            columns
        };
        Self { cols, rows: lengths.into_iter().map(|len| row(len, rng)).collect() }
    }

    /// An entry at `(i, i)` for each `i` there is.
    pub fn diagonal(rows: usize, cols: usize) -> Self {
        let row = |r: usize| if r < cols { vec![narrow(r)] } else { Vec::new() };
        Self { cols, rows: (0..rows).map(row).collect() }
    }

    /// Every place is an entry.
    pub fn dense(rows: usize, cols: usize) -> Self {
        Self { cols, rows: vec![(0..narrow(cols)).collect(); rows] }
    }

    /// The same with the rows in `which` emptied.
    #[must_use]
    pub fn without_rows(mut self, which: impl IntoIterator<Item = usize>) -> Self {
        for row in which {
            self.rows[row].clear();
        }
        self
    }

    /// The same with row `row` having an entry in every column.
    #[must_use]
    pub fn with_dense_row(mut self, row: usize) -> Self {
        self.rows[row] = (0..narrow(self.cols)).collect();
        self
    }

    /// The same with only the columns that `keep` accepts.
    #[must_use]
    pub fn with_columns(mut self, keep: impl Fn(u32) -> bool) -> Self {
        for row in &mut self.rows {
            row.retain(|&col| keep(col));
        }
        self
    }

    /// How many entries the pattern has.
    pub fn nnz(&self) -> usize {
        self.rows.iter().map(Vec::len).sum()
    }

    /// The matrix with this pattern and a value from the generator in each place. Whole numbers may be
    /// 0, so there are explicit zeros among the entries.
    ///
    /// # Panics
    /// If a column is not below `cols`.
    pub fn with_values(&self, values: Values, rng: &mut SplitMix64) -> Csr<f32> {
        let data = (0..self.nnz()).map(|_| values.next(rng)).collect();
        self.with_data(data)
    }

    /// The matrix with this pattern and the given values, row after row.
    ///
    /// # Panics
    /// If a column is not below `cols` or there are not as many values as entries.
    pub fn with_data(&self, data: Vec<f32>) -> Csr<f32> {
        let mut row_offsets = vec![0u64];
        let mut nnz = 0;
        for row in &self.rows {
            nnz += row.len() as u64;
            row_offsets.push(nnz);
        }
        let columns = self.rows.concat();
        Csr::try_from_parts(self.rows.len(), self.cols, row_offsets, columns, data).expect("a valid pattern")
    }
}

/// `len` distinct ascending columns below `cols`, each set equally likely: selection sampling
/// (Knuth, *Seminumerical Algorithms*, section 3.4.2, algorithm S).
fn distinct_columns(cols: usize, len: usize, rng: &mut SplitMix64) -> Vec<u32> {
    let mut wanted = len.min(cols);
    let mut columns = Vec::with_capacity(wanted);
    for col in 0..cols {
        if wanted > 0 && rng.below(cols - col) < wanted {
            columns.push(narrow(col));
            wanted -= 1;
        }
    }
    columns
}

/// A column as it is stored.
fn narrow(col: usize) -> u32 {
    u32::try_from(col).expect("test matrices have fewer than 2^32 columns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_as_asked_and_columns_ascend() {
        let mut rng = SplitMix64::new(3);
        for cols in [0, 1, 5, 40] {
            let pattern = Pattern::from_lengths(cols, [0, 1, 3, 40, 100], &mut rng);
            for (row, len) in pattern.rows.iter().zip([0, 1, 3, 40, 100]) {
                assert_eq!(row.len(), cols.min(len));
                assert!(row.windows(2).all(|pair| pair[0] < pair[1]));
                assert!(row.iter().all(|&col| (col as usize) < cols));
            }
        }
    }

    #[test]
    fn patterns_have_the_named_shape() {
        let mut rng = SplitMix64::new(4);
        assert_eq!(Pattern::diagonal(3, 2).rows, [vec![0], vec![1], vec![]]);
        assert_eq!(Pattern::dense(2, 2).nnz(), 4);
        assert_eq!(Pattern::empty(3, 3).with_dense_row(1).rows, [vec![], vec![0, 1, 2], vec![]]);
        assert_eq!(Pattern::dense(2, 3).without_rows([0]).nnz(), 3);
        assert_eq!(Pattern::dense(1, 4).with_columns(|col| col % 2 == 1).rows, [vec![1, 3]]);
        let hubs = Pattern::power_law(100, 100, 80, &mut rng);
        let longest = hubs.rows.iter().map(Vec::len).max();
        assert!(longest > Some(20) && hubs.nnz() < 1000, "{longest:?} of {}", hubs.nnz());
        assert_eq!(hubs.with_values(Values::Reals, &mut rng).nnz(), hubs.nnz());
    }
}

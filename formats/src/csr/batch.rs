//! Several matrices as one, batches of graphs and heads; and some rows of one as another.

use std::ops::Range;

use super::Csr;
use super::build::Draft;
use crate::memory::{dimension, index, narrow, try_zeroed};
use crate::{FormatError, Permutation, Value};

impl<V: Value> Csr<V> {
    /// The matrices along a diagonal, `diag(A₁, A₂, …)`: a batch of small graphs as one matrix, and so as one plan and
    /// one launch.
    ///
    /// `B` has the rows of all batches one below the other, and so has `C`; entries, and values that a plan takes anew,
    /// follow one another as the matrices do. With the same matrix so many times its products are those of heads that
    /// lie below each other, `[heads, n, d]`, each with values of its own: `[heads, nnz]`.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] for more than 2³² − 1 rows or columns together;
    /// - [`FormatError::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::Csr;
    ///
    /// let a = Csr::from_dense(1, 2, &[1.0f32, 2.0])?;
    /// let b = Csr::from_dense(2, 1, &[3.0f32, 0.0])?;
    /// let both = Csr::block_diagonal(&[&a, &b])?;
    /// assert_eq!(both, Csr::from_dense(3, 3, &[1.0, 2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0])?);
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn block_diagonal(blocks: &[&Self]) -> Result<Self, FormatError> {
        let total = |of: fn(&Self) -> usize| blocks.iter().fold(0, |sum: usize, a| sum.saturating_add(of(a)));
        let mut all = Draft::zeros(total(Self::rows), total(Self::cols))?;
        all.make_room(total(Self::nnz))?;
        let (mut row, mut entry, mut first_column) = (0, 0, 0);
        for a in blocks {
            let end = entry + a.nnz();
            for (to, &column) in all.col_indices[entry..end].iter_mut().zip(a.col_indices()) {
                *to = first_column + column;
            }
            all.values[entry..end].copy_from_slice(a.values());
            for (to, &offset) in all.row_offsets[row + 1..].iter_mut().zip(&a.row_offsets()[1..]) {
                *to = entry as u64 + offset;
            }
            (row, entry, first_column) = (row + a.rows(), end, first_column + narrow(a.cols()));
        }
        Ok(all.finish())
    }

    /// Some successive rows, as a matrix of their own with all columns.
    ///
    /// # Errors
    /// [`FormatError::OutOfMemory`].
    ///
    /// # Panics
    /// If there are no such rows, like an index into a slice.
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::Csr;
    ///
    /// let a = Csr::from_dense(3, 2, &[1.0f32, 2.0, 0.0, 3.0, 4.0, 0.0])?;
    /// assert_eq!(a.row_block(1..3)?, Csr::from_dense(2, 2, &[0.0, 3.0, 4.0, 0.0])?);
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn row_block(&self, rows: Range<usize>) -> Result<Self, FormatError> {
        let offsets = &self.row_offsets()[rows.start..=rows.end];
        let entries = index(offsets[0])..index(offsets[rows.len()]);
        let mut block = Draft::zeros(rows.len(), self.cols())?;
        block.make_room(entries.len())?;
        block.col_indices.copy_from_slice(&self.col_indices()[entries.clone()]);
        block.values.copy_from_slice(&self.values()[entries]);
        for (to, offset) in block.row_offsets.iter_mut().zip(offsets) {
            *to = offset - offsets[0];
        }
        Ok(block.finish())
    }

    /// `A ⊗ I`: the matrix of heads that lie beside each other, `[n, heads, d]`, which is `n·heads` rows of `d` columns
    /// in memory. Row `i·heads + h` is row `i`, and column `j·heads + h` column `j`, of head `h`.
    ///
    /// Every head has the values of this matrix. The permutation says where those of heads come from, one head after
    /// the other, `[heads, nnz]`: entry `e` is number `to_old(e)` of these, as a plan's `value_order` takes it.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] for more than 2³² − 1 rows, columns or entries of all heads;
    /// - [`FormatError::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::Csr;
    ///
    /// let a = Csr::from_dense(1, 2, &[5.0f32, 7.0])?;
    /// let (heads, order) = a.heads_beside(2)?;
    /// assert_eq!(heads, Csr::from_dense(2, 4, &[5.0, 0.0, 7.0, 0.0, 0.0, 5.0, 0.0, 7.0])?);
    /// assert_eq!(order.new_to_old(), [0, 1, 2, 3]); // of one row: the entries of the first head, and of the second
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn heads_beside(&self, heads: usize) -> Result<(Self, Permutation), FormatError> {
        let of_all = |count: usize| count.saturating_mul(heads);
        let mut all = Draft::zeros(of_all(self.rows()), of_all(self.cols()))?;
        dimension(of_all(self.nnz()), "entries")?;
        all.make_room(of_all(self.nnz()))?;
        let mut order = try_zeroed(of_all(self.nnz()), "a permutation")?;
        let (mut to, stride) = (0, narrow(heads));
        for row in 0..self.rows() {
            for head in 0..heads {
                for entry in self.row_range(row) {
                    all.col_indices[to] = self.col_indices()[entry] * stride + narrow(head);
                    all.values[to] = self.values()[entry];
                    order[to] = narrow(head * self.nnz() + entry);
                    to += 1;
                }
                all.row_offsets[row * heads + head + 1] = to as u64;
            }
        }
        Ok((all.finish(), Permutation::try_from_new_to_old(order)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> [Csr<f32>; 3] {
        [
            Csr::from_dense(2, 3, &[1.0, 0.0, 2.0, 0.0, 3.0, 0.0]).unwrap(),
            Csr::zeros(1, 2).unwrap(),
            Csr::from_dense(2, 1, &[4.0, 5.0]).unwrap(),
        ]
    }

    #[test]
    fn blocks_follow_one_another() {
        let blocks = small();
        let all = Csr::block_diagonal(&blocks.each_ref()).unwrap();
        assert_eq!((all.rows(), all.cols()), (5, 6));
        assert_eq!(all.row_offsets(), [0, 2, 3, 3, 4, 5]);
        assert_eq!(all.col_indices(), [0, 2, 1, 5, 5]);
        assert_eq!(all.values(), [1.0, 2.0, 3.0, 4.0, 5.0]);
        let none = Csr::<f32>::block_diagonal(&[]).unwrap();
        assert_eq!((none.rows(), none.cols(), none.nnz()), (0, 0, 0));
    }

    #[test]
    fn heads_are_interleaved() {
        let [a, ..] = small();
        let (all, order) = a.heads_beside(2).unwrap();
        assert_eq!((all.rows(), all.cols()), (4, 6));
        for (row, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let (columns, values) = a.row(row);
            let columns: Vec<u32> = columns.iter().map(|column| 2 * column + head).collect();
            assert_eq!(all.row(2 * row + head as usize), (&columns[..], values));
        }
        assert_eq!(order.new_to_old(), [0, 1, 3, 4, 2, 5]);
        let (none, _) = a.heads_beside(0).unwrap();
        assert_eq!((none.rows(), none.nnz()), (0, 0));
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let wide = Csr::<f32>::zeros(1, 3 << 30).unwrap();
        let is_too_large = |result: Result<Csr<f32>, FormatError>| {
            matches!(result, Err(FormatError::DimensionTooLarge { .. }))
        };
        assert!(is_too_large(Csr::block_diagonal(&[&wide, &wide])));
        assert!(is_too_large(wide.heads_beside(2).map(|(all, _)| all)));
    }
}

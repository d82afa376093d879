//! Matrices made from a matrix: other values, other order.

use super::Csr;
use super::build::Draft;
use crate::memory::{dimension, narrow, try_collect, try_copy, try_zeroed};
use crate::{Coo, FormatError, Permutation, Value};

impl<V: Value> Csr<V> {
    /// The same pattern, shared, with value `f(v)` in place of each `v`.
    ///
    /// # Panics
    /// If there is no memory for the values; [`with_values`](Self::with_values) takes those that the caller has.
    pub fn map_values<W: Value>(&self, f: impl Fn(V) -> W) -> Csr<W> {
        let values = try_collect(self.values.iter().map(|&value| f(value)), "values");
        self.on_this_pattern(values.unwrap_or_else(|error| panic!("{error}")))
    }

    /// The same matrix in another element type, each value rounded once; the pattern is shared.
    ///
    /// # Panics
    /// As [`map_values`](Self::map_values).
    pub fn cast<W: Value>(&self) -> Csr<W> {
        self.map_values(|value| W::from_f64(value.to_f64()))
    }

    /// The same pattern, shared, with other values, one for each entry in order.
    ///
    /// # Errors
    /// [`FormatError::LengthMismatch`] unless there are as many values as entries.
    pub fn with_values<W: Value>(&self, values: Vec<W>) -> Result<Csr<W>, FormatError> {
        let csr = Csr::from_pattern(self.pattern.clone(), values)?;
        Ok(Csr { canonicalised: self.canonicalised, ..csr })
    }

    /// With as many values as the pattern has entries.
    fn on_this_pattern<W>(&self, values: Vec<W>) -> Csr<W> {
        Csr { pattern: self.pattern.clone(), values, canonicalised: self.canonicalised }
    }

    /// The entries as a list, in row order.
    ///
    /// # Errors
    /// [`FormatError::OutOfMemory`].
    pub fn to_coo(&self) -> Result<Coo<V>, FormatError> {
        let mut row_indices = try_zeroed(self.nnz(), "row_indices")?;
        for r in 0..self.rows() {
            row_indices[self.row_range(r)].fill(narrow(r));
        }
        let col_indices = try_copy(self.col_indices(), "col_indices")?;
        Coo::try_new(self.rows(), self.cols(), row_indices, col_indices, try_copy(&self.values, "values")?)
    }

    /// `Aᵀ`, by counting sort.
    ///
    /// # Errors
    /// [`FormatError::OutOfMemory`].
    pub fn transpose(&self) -> Result<Self, FormatError> {
        Self::try_from_coo(&self.to_coo()?.transposed())
    }

    /// The order in which the entries of `Aᵀ` lie in this matrix: entry `e` of [`transpose`](Self::transpose) is
    /// entry `transpose_order.to_old(e)` of this one.
    ///
    /// With it, values that belong to the entries of `A` find their way to those of `Aᵀ`.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] for more than 2³² − 1 entries;
    /// - [`FormatError::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::Csr;
    ///
    /// let a = Csr::from_dense(2, 3, &[0.0f32, 5.0, 6.0, 7.0, 8.0, 0.0])?;
    /// let order = a.transpose_order()?;
    /// assert_eq!(order.new_to_old(), [2, 0, 3, 1]);
    /// assert_eq!(order.apply(a.values()), a.transpose()?.values());
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn transpose_order(&self) -> Result<Permutation, FormatError> {
        dimension(self.nnz(), "entries")?;
        // Where the next entry of each column belongs.
        let mut next = try_zeroed::<u32>(self.cols() + 1, "column offsets")?;
        for &column in self.col_indices() {
            next[column as usize + 1] += 1;
        }
        for column in 0..self.cols() {
            next[column + 1] += next[column];
        }
        let mut order = try_zeroed(self.nnz(), "a permutation")?;
        for (entry, &column) in self.col_indices().iter().enumerate() {
            let place = &mut next[column as usize];
            order[*place as usize] = narrow(entry);
            *place += 1;
        }
        Permutation::try_from_new_to_old(order)
    }

    /// `P·A`: row `i` of the result is row `permutation.to_old(i)` of this matrix.
    ///
    /// # Errors
    /// - [`FormatError::LengthMismatch`] unless the permutation is as long as there are rows;
    /// - [`FormatError::OutOfMemory`].
    pub fn permute_rows(&self, permutation: &Permutation) -> Result<Self, FormatError> {
        if permutation.len() != self.rows() {
            let (found, expected, why) = (permutation.len(), self.rows(), "one for each row");
            return Err(FormatError::LengthMismatch { array: "permutation", found, expected, why });
        }
        let mut permuted = Draft::zeros(self.rows(), self.cols())?;
        permuted.make_room(self.nnz())?;
        let mut start = 0;
        for (new, &old) in permutation.new_to_old().iter().enumerate() {
            let (cols, values) = self.row(old as usize);
            let end = start + cols.len();
            permuted.col_indices[start..end].copy_from_slice(cols);
            permuted.values[start..end].copy_from_slice(values);
            permuted.row_offsets[new + 1] = end as u64;
            start = end;
        }
        Ok(permuted.finish())
    }

    /// `P·A·Pᵀ` of a square matrix: entry `(i, j)` of the result is entry `(to_old(i), to_old(j))` of this matrix. So
    /// the nodes of a graph are numbered anew.
    ///
    /// # Errors
    /// Those of [`permute_rows`](Self::permute_rows), and [`FormatError::LengthMismatch`] unless the permutation is as
    /// long as there are columns.
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::{Csr, Permutation};
    ///
    /// let a = Csr::from_dense(3, 3, &[1.0f32, 2.0, 0.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0])?;
    /// let turned = a.permute_symmetric(&Permutation::try_from_new_to_old(vec![2, 1, 0])?)?;
    /// assert_eq!(turned, Csr::from_dense(3, 3, &[0.0f32, 0.0, 4.0, 3.0, 0.0, 0.0, 0.0, 2.0, 1.0])?);
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn permute_symmetric(&self, permutation: &Permutation) -> Result<Self, FormatError> {
        // Transposing puts the entries of each row in the order of their columns.
        self.permute_rows(permutation)?.transpose()?.permute_rows(permutation)?.transpose()
    }

    /// Whether the two matrices are the same bit for bit: unlike `==`, equal NaNs are equal and zeros of
    /// different sign are not.
    pub fn bitwise_eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern
            && bytemuck::cast_slice::<V, u8>(&self.values) == bytemuck::cast_slice::<V, u8>(&other.values)
    }
}

//! Compressed sparse rows (CSR), valid by construction.

mod batch;
mod block;
mod build;
mod pattern;
mod transform;

#[cfg(test)]
mod tests;

pub use pattern::Pattern;

use crate::memory::{ByteSizes, bytes_of, dimension, index, make_room, narrow};
use crate::{Coo, FormatError, Value};
use build::Draft;

/// A sparse matrix in compressed rows: the form that everything else is made from.
///
/// Invariants: those of its [`Pattern`], and `|values| = nnz`, the number of the pattern's column indices.
///
/// Matrices made from one another on the same pattern share it: [`with_values`](Self::with_values),
/// [`map_values`](Self::map_values), [`cast`](Self::cast) and `clone` copy no index.
///
/// Zeros, NaN and infinities are entries like any other and are kept, also where duplicates sum to zero.
///
/// Two matrices are equal if pattern and values are; how they came to be canonical does not matter.
///
/// # Examples
/// ```
/// use windrow_formats::Csr;
///
/// // Row 0 comes unsorted and holds column 2 twice.
/// let a = Csr::try_from_parts(2, 4, vec![0, 3, 4], vec![2, 0, 2, 1], vec![1.0f32, 5.0, 2.0, 7.0])?;
/// assert_eq!(a.row(0), (&[0, 2][..], &[5.0, 3.0][..]));
/// assert_eq!((a.canonicalised().sorted_rows, a.canonicalised().summed_duplicates), (1, 1));
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Csr<V> {
    pattern: Pattern,
    values: Vec<V>,
    canonicalised: Canonicalised,
}

/// What had to be done to the input of a [`Csr`] to make it canonical.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Canonicalised {
    /// Rows whose entries did not come in ascending order of columns.
    pub sorted_rows: u64,
    /// Entries that were added to another entry of the same row and column.
    pub summed_duplicates: u64,
}

impl<V: Value> Csr<V> {
    /// The `rows × cols` matrix whose row `r` has its entries at
    /// `row_offsets[r] .. row_offsets[r + 1]` of the other two arrays.
    ///
    /// Rows may be unsorted and hold duplicates: they are sorted, duplicates are summed in the order in
    /// which they came, and both are counted in [`Csr::canonicalised`].
    ///
    /// # Cost
    /// One parallel pass over the arrays; rows out of order are sorted by comparison.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] if `rows` or `cols` exceeds 2³² − 1;
    /// - [`FormatError::LengthMismatch`] unless there are `rows + 1` offsets and as many values as columns;
    /// - [`FormatError::FirstOffset`], [`FormatError::OffsetsDecrease`], [`FormatError::LastOffset`] if the
    ///   offsets do not rise from 0 to the number of entries;
    /// - [`FormatError::ColumnOutOfRange`] for the first column index that is not below `cols`.
    pub fn try_from_parts(
        rows: usize,
        cols: usize,
        row_offsets: Vec<u64>,
        col_indices: Vec<u32>,
        values: Vec<V>,
    ) -> Result<Self, FormatError> {
        let (rows, cols) = (dimension(rows, "rows")?, dimension(cols, "columns")?);
        build::check_parts((rows, cols), &row_offsets, &col_indices, values.len())?;
        let mut draft =
            Draft { rows, cols, row_offsets, col_indices, values, canonicalised: Canonicalised::default() };
        draft.canonicalise()?;
        Ok(draft.finish())
    }

    /// The matrix with entry `e` of `pattern` equal to `values[e]`; the pattern stays shared with its other holders.
    ///
    /// # Errors
    /// [`FormatError::LengthMismatch`] unless there are as many values as entries.
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::Csr;
    ///
    /// let a = Csr::<f32>::identity(3)?;
    /// let b = Csr::from_pattern(a.pattern().clone(), vec![1.0f64, 2.0, 3.0])?;
    /// assert!(b.pattern().is_shared_with(a.pattern()));
    /// assert_eq!(b.row(2), (&[2][..], &[3.0][..]));
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn from_pattern(pattern: Pattern, values: Vec<V>) -> Result<Self, FormatError> {
        if values.len() != pattern.nnz() {
            let (found, expected, why) = (values.len(), pattern.nnz(), "one for each entry of the pattern");
            return Err(FormatError::LengthMismatch { array: "values", found, expected, why });
        }
        Ok(Self { pattern, values, canonicalised: Canonicalised::default() })
    }

    /// The matrix that `coo` lists, duplicates summed in the order in which they came.
    ///
    /// # Cost
    /// Linear in rows and entries: entries are distributed to ranges of rows, each range is counting-sorted
    /// by row in the cache, ranges in parallel; rows still out of order are then sorted by comparison.
    /// A list that is already ordered by row is not distributed. Needs room for one copy of the list.
    ///
    /// # Errors
    /// [`FormatError::OutOfMemory`].
    pub fn try_from_coo(coo: &Coo<V>) -> Result<Self, FormatError> {
        build::from_coo(coo)
    }

    /// The nonzeros of the row-major `rows × cols` matrix `dense`.
    ///
    /// Both zeros are dropped; NaN is kept.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] if `rows` or `cols` exceeds 2³² − 1;
    /// - [`FormatError::LengthMismatch`] unless `dense` has `rows · cols` elements;
    /// - [`FormatError::OutOfMemory`].
    pub fn from_dense(rows: usize, cols: usize, dense: &[V]) -> Result<Self, FormatError> {
        let mut draft = Draft::zeros(rows, cols)?;
        if rows.checked_mul(cols) != Some(dense.len()) {
            let (found, expected) = (dense.len(), rows.saturating_mul(cols));
            let why = "one for each row and column";
            return Err(FormatError::LengthMismatch { array: "dense", found, expected, why });
        }
        if dense.is_empty() {
            return Ok(draft.finish());
        }
        for (row, end) in dense.chunks_exact(cols).zip(&mut draft.row_offsets[1..]) {
            for (column, &value) in row.iter().enumerate().filter(|&(_, &value)| value != V::ZERO) {
                make_room(&mut draft.col_indices, 1, "col_indices")?;
                make_room(&mut draft.values, 1, "values")?;
                draft.col_indices.push(narrow(column));
                draft.values.push(value);
            }
            *end = draft.values.len() as u64;
        }
        Ok(draft.finish())
    }

    /// The `rows × cols` matrix without entries.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] if `rows` or `cols` exceeds 2³² − 1;
    /// - [`FormatError::OutOfMemory`]: there are `8 · (rows + 1)` bytes of offsets.
    pub fn zeros(rows: usize, cols: usize) -> Result<Self, FormatError> {
        Draft::zeros(rows, cols).map(Draft::finish)
    }

    /// The `n × n` matrix with ones on the diagonal.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] if `n` exceeds 2³² − 1;
    /// - [`FormatError::OutOfMemory`].
    pub fn identity(n: usize) -> Result<Self, FormatError> {
        let mut draft = Draft::zeros(n, n)?;
        draft.make_room(n)?;
        for (offset, i) in draft.row_offsets[1..].iter_mut().zip(1..) {
            *offset = i;
        }
        for (column, i) in draft.col_indices.iter_mut().zip(0..) {
            *column = i;
        }
        draft.values.fill(V::ONE);
        Ok(draft.finish())
    }
}

impl<V> Csr<V> {
    /// Number of rows `m`.
    pub fn rows(&self) -> usize {
        self.pattern.rows()
    }

    /// Number of columns `k`.
    pub fn cols(&self) -> usize {
        self.pattern.cols()
    }

    /// Number of entries, explicit zeros included.
    pub fn nnz(&self) -> usize {
        self.values.len()
    }

    /// `m + 1` offsets: row `r` has entries `row_offsets[r] .. row_offsets[r + 1]`.
    pub fn row_offsets(&self) -> &[u64] {
        self.pattern.row_offsets()
    }

    /// Column of each entry, ascending in each row.
    pub fn col_indices(&self) -> &[u32] {
        self.pattern.col_indices()
    }

    /// Value of each entry.
    pub fn values(&self) -> &[V] {
        &self.values
    }

    /// Where the entries are; a clone of it shares the indices.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// What had to be done to the input to make it canonical.
    pub fn canonicalised(&self) -> Canonicalised {
        self.canonicalised
    }

    /// Positions of the entries of row `r`.
    ///
    /// # Panics
    /// If `r` is not below [`rows`](Self::rows), like an index into a slice.
    pub fn row_range(&self, r: usize) -> std::ops::Range<usize> {
        self.pattern.row_range(r)
    }

    /// Columns and values of row `r`.
    ///
    /// # Panics
    /// If `r` is not below [`rows`](Self::rows), like an index into a slice; see [`get_row`](Self::get_row).
    pub fn row(&self, r: usize) -> (&[u32], &[V]) {
        let range = self.row_range(r);
        (&self.col_indices()[range.clone()], &self.values[range])
    }

    /// Columns and values of row `r`; `None` if there is no such row.
    pub fn get_row(&self, r: usize) -> Option<(&[u32], &[V])> {
        (r < self.rows()).then(|| self.row(r))
    }

    /// Number of entries of row `r`.
    ///
    /// # Panics
    /// If `r` is not below [`rows`](Self::rows), like an index into a slice.
    pub fn row_len(&self, r: usize) -> usize {
        self.row_range(r).len()
    }

    /// Columns and values of every row, in order.
    pub fn rows_iter(&self) -> impl ExactSizeIterator<Item = (&[u32], &[V])> {
        let (col_indices, values) = (self.col_indices(), self.values());
        self.row_offsets().windows(2).map(move |ends| {
            let range = index(ends[0])..index(ends[1]);
            (&col_indices[range.clone()], &values[range])
        })
    }

    /// Size of each array in bytes; a pattern that is shared counts in full.
    pub fn byte_sizes(&self) -> ByteSizes {
        ByteSizes::new(vec![
            ("row_offsets", bytes_of(self.row_offsets())),
            ("col_indices", bytes_of(self.col_indices())),
            ("values", bytes_of(&self.values)),
        ])
    }

    /// The arrays: row offsets, column indices, values.
    ///
    /// # Cost
    /// Nothing if no other matrix shares the pattern, else a copy of its indices.
    /// [`into_pattern_values`](Self::into_pattern_values) never copies.
    pub fn into_parts(self) -> (Vec<u64>, Vec<u32>, Vec<V>) {
        let (row_offsets, col_indices) = self.pattern.into_parts();
        (row_offsets, col_indices, self.values)
    }

    /// Where the entries are, and their values: what [`from_pattern`](Self::from_pattern) puts together.
    pub fn into_pattern_values(self) -> (Pattern, Vec<V>) {
        (self.pattern, self.values)
    }
}

impl<V: PartialEq> PartialEq for Csr<V> {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.values == other.values
    }
}

//! Coordinate lists: what readers produce and [`Csr`](crate::Csr) is built from.

use rayon::prelude::*;

use crate::memory::{ByteSizes, bytes_of, dimension, make_room, narrow};
use crate::{Csr, FormatError, Value};

/// Entries checked in one piece by one thread.
const CHUNK_ENTRIES: usize = 1 << 16;

/// A sparse matrix as a list of `(row, column, value)` in any order, duplicates allowed.
///
/// Invariants, checked by [`Coo::try_new`], with `nnz = |values|`:
/// - `rows ≤ 2³² − 1` and `cols ≤ 2³² − 1`
/// - `|row_indices| = |col_indices| = nnz`
/// - `∀ e: row_indices[e] < rows` and `col_indices[e] < cols`
///
/// Zeros, NaN and infinities are entries like any other.
#[derive(Debug, Clone, PartialEq)]
pub struct Coo<V> {
    rows: u32,
    cols: u32,
    row_indices: Vec<u32>,
    col_indices: Vec<u32>,
    values: Vec<V>,
}

impl<V: Value> Coo<V> {
    /// The `rows × cols` matrix with entry `e` at `(row_indices[e], col_indices[e])`.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] if `rows` or `cols` exceeds 2³² − 1;
    /// - [`FormatError::LengthMismatch`] if the three arrays differ in length;
    /// - [`FormatError::EntryOutOfRange`] for the first entry outside of the matrix.
    pub fn try_new(
        rows: usize,
        cols: usize,
        row_indices: Vec<u32>,
        col_indices: Vec<u32>,
        values: Vec<V>,
    ) -> Result<Self, FormatError> {
        let (m, k) = (dimension(rows, "rows")?, dimension(cols, "columns")?);
        for (array, found) in [("row_indices", row_indices.len()), ("col_indices", col_indices.len())] {
            if found != values.len() {
                let (expected, why) = (values.len(), "one for each value");
                return Err(FormatError::LengthMismatch { array, found, expected, why });
            }
        }
        let entry =
            [first_not_below(&row_indices, m), first_not_below(&col_indices, k)].into_iter().flatten().min();
        if let Some(entry) = entry {
            let [row, column] = [row_indices[entry], col_indices[entry]].map(|index| index as usize);
            let value = values[entry].to_string();
            return Err(FormatError::EntryOutOfRange { entry, row, column, value, rows, cols });
        }
        Ok(Self { rows: m, cols: k, row_indices, col_indices, values })
    }

    /// The `rows × cols` matrix with the entries `(row, column, value)`, in any order.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] if `rows` or `cols` exceeds 2³² − 1;
    /// - [`FormatError::EntryOutOfRange`] for the first entry outside of the matrix;
    /// - [`FormatError::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::Coo;
    ///
    /// let a = Coo::from_triplets(2, 3, [(1, 2, 0.5f32), (0, 1, 4.0), (1, 2, 1.0)])?.to_csr()?;
    /// assert_eq!(a.row(1), (&[2][..], &[1.5][..])); // duplicates are summed
    /// let outside = Coo::from_triplets(2, 3, [(0, 3, 1.0f32)]).unwrap_err();
    /// assert_eq!(outside.to_string(), "entry 0 (row 0, column 3, value 1) lies outside of 2 rows × 3 columns");
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn from_triplets(
        rows: usize,
        cols: usize,
        triplets: impl IntoIterator<Item = (usize, usize, V)>,
    ) -> Result<Self, FormatError> {
        let (m, k) = (dimension(rows, "rows")?, dimension(cols, "columns")?);
        let triplets = triplets.into_iter();
        let (mut row_indices, mut col_indices, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let announced = triplets.size_hint().0;
        make_room(&mut row_indices, announced, "row_indices")?;
        make_room(&mut col_indices, announced, "col_indices")?;
        make_room(&mut values, announced, "values")?;
        for (entry, (row, column, value)) in triplets.enumerate() {
            if row >= rows || column >= cols {
                let value = value.to_string();
                return Err(FormatError::EntryOutOfRange { entry, row, column, value, rows, cols });
            }
            make_room(&mut row_indices, 1, "row_indices")?;
            make_room(&mut col_indices, 1, "col_indices")?;
            make_room(&mut values, 1, "values")?;
            row_indices.push(narrow(row));
            col_indices.push(narrow(column));
            values.push(value);
        }
        Ok(Self { rows: m, cols: k, row_indices, col_indices, values })
    }

    /// Number of rows `m`.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Number of columns `k`.
    pub fn cols(&self) -> usize {
        self.cols as usize
    }

    /// Number of entries, duplicates counted each time.
    pub fn nnz(&self) -> usize {
        self.values.len()
    }

    /// Row of each entry.
    pub fn row_indices(&self) -> &[u32] {
        &self.row_indices
    }

    /// Column of each entry.
    pub fn col_indices(&self) -> &[u32] {
        &self.col_indices
    }

    /// Value of each entry.
    pub fn values(&self) -> &[V] {
        &self.values
    }

    /// Compressed rows: sorted, duplicates summed. The same as [`Csr::try_from_coo`].
    ///
    /// # Errors
    /// [`FormatError::OutOfMemory`].
    pub fn to_csr(&self) -> Result<Csr<V>, FormatError> {
        Csr::try_from_coo(self)
    }

    /// The transposed matrix: rows and columns change places, entries keep their order.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_indices: self.col_indices,
            col_indices: self.row_indices,
            values: self.values,
        }
    }

    /// The arrays: row indices, column indices, values.
    pub fn into_parts(self) -> (Vec<u32>, Vec<u32>, Vec<V>) {
        (self.row_indices, self.col_indices, self.values)
    }

    /// Size of each array in bytes.
    pub fn byte_sizes(&self) -> ByteSizes {
        ByteSizes::new(vec![
            ("row_indices", bytes_of(&self.row_indices)),
            ("col_indices", bytes_of(&self.col_indices)),
            ("values", bytes_of(&self.values)),
        ])
    }
}

/// Position of the first element that is `bound` or more.
pub(crate) fn first_not_below(indices: &[u32], bound: u32) -> Option<usize> {
    // The maximum of a chunk vectorises; only the chunk that fails is searched element by element.
    let chunk = indices
        .par_chunks(CHUNK_ENTRIES)
        .position_first(|chunk| chunk.iter().copied().max().is_some_and(|max| max >= bound))?;
    let start = chunk * CHUNK_ENTRIES;
    indices[start..].iter().position(|&x| x >= bound).map(|at| start + at)
}

//! Dense matrices in host memory: views of rows, views with strides, and matrices of their own.

mod owned;
mod strided;

use crate::error::PlanError;
pub use owned::Dense;
pub use strided::MatRef;

/// A row-major matrix in host memory: row `r` is `data[r·ld .. r·ld + cols]`.
///
/// Invariants: `ld ≥ cols`, and `data` holds the last row: `|data| ≥ (rows − 1)·ld + cols` if there are
/// rows and columns.
///
/// # Examples
/// ```
/// use windrow::DenseRef;
///
/// // Two rows of three columns, every fourth element is padding.
/// let data = [1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0];
/// let b = DenseRef::try_new(&data, 2, 3, 4)?;
/// assert_eq!(b.row(1), &[4.0, 5.0, 6.0]);
/// assert!(DenseRef::try_new(&data, 2, 3, 2).is_err());
/// # Ok::<(), windrow::PlanError>(())
/// ```
#[derive(Debug)]
pub struct DenseRef<'a, T> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    ld: usize,
}

/// A row-major matrix in host memory that may be written: row `r` is `data[r·ld .. r·ld + cols]`.
///
/// The invariants of [`DenseRef`]; elements between `cols` and `ld` are never touched.
#[derive(Debug)]
pub struct DenseMut<'a, T> {
    data: &'a mut [T],
    rows: usize,
    cols: usize,
    ld: usize,
}

/// Checks what a view promises. `len` is the number of elements at hand.
pub(crate) fn check_shape(len: usize, rows: usize, cols: usize, ld: usize) -> Result<(), PlanError> {
    if ld < cols {
        return Err(PlanError::LeadingDimension { ld, cols });
    }
    let needed = match rows.checked_sub(1) {
        Some(full_rows) if cols > 0 => full_rows.checked_mul(ld).and_then(|all| all.checked_add(cols)),
        _ => Some(0),
    };
    match needed {
        Some(needed) if needed <= len => Ok(()),
        _ => Err(PlanError::DenseTooShort { len, needed: needed.unwrap_or(usize::MAX), rows, cols, ld }),
    }
}

impl<T> Clone for DenseRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for DenseRef<'_, T> {}

impl<'a, T> DenseRef<'a, T> {
    /// The `rows × cols` matrix in `data` with `ld` elements from row to row.
    ///
    /// # Errors
    /// - [`PlanError::LeadingDimension`] if `ld < cols`;
    /// - [`PlanError::DenseTooShort`] if the last row does not lie in `data`.
    pub fn try_new(data: &'a [T], rows: usize, cols: usize, ld: usize) -> Result<Self, PlanError> {
        check_shape(data.len(), rows, cols, ld)?;
        Ok(Self { data, rows, cols, ld })
    }

    /// The `rows × cols` matrix in `data`, row after row with no padding.
    ///
    /// # Errors
    /// [`PlanError::DenseTooShort`] if `data` has fewer than `rows · cols` elements.
    pub fn packed(data: &'a [T], rows: usize, cols: usize) -> Result<Self, PlanError> {
        Self::try_new(data, rows, cols, cols)
    }

    /// Rows of the matrix, each of [`cols`](Self::cols) elements.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the matrix: elements of a row, without padding.
    #[must_use]
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// Elements from the start of a row to the start of the next.
    #[must_use]
    pub const fn ld(&self) -> usize {
        self.ld
    }

    /// All elements, padding included.
    #[must_use]
    pub const fn data(&self) -> &'a [T] {
        self.data
    }

    /// The same matrix of elements that are other ones of the same size; `cast` keeps their number.
    pub(crate) fn map_data<U>(self, cast: impl FnOnce(&'a [T]) -> &'a [U]) -> DenseRef<'a, U> {
        let data = cast(self.data);
        debug_assert_eq!(data.len(), self.data.len(), "elements of the same size");
        DenseRef { data, rows: self.rows, cols: self.cols, ld: self.ld }
    }

    /// The elements of row `r`.
    ///
    /// # Panics
    /// If `r` is not below [`rows`](Self::rows), like an index into a slice.
    #[must_use]
    pub fn row(&self, r: usize) -> &'a [T] {
        assert!(r < self.rows, "row {r} of a view with {} rows", self.rows);
        if self.cols == 0 {
            return &[];
        }
        &self.data[r * self.ld..][..self.cols]
    }
}

impl<'a, T> DenseMut<'a, T> {
    /// The `rows × cols` matrix in `data` with `ld` elements from row to row.
    ///
    /// # Errors
    /// - [`PlanError::LeadingDimension`] if `ld < cols`;
    /// - [`PlanError::DenseTooShort`] if the last row does not lie in `data`.
    pub fn try_new(data: &'a mut [T], rows: usize, cols: usize, ld: usize) -> Result<Self, PlanError> {
        check_shape(data.len(), rows, cols, ld)?;
        Ok(Self { data, rows, cols, ld })
    }

    /// The `rows × cols` matrix in `data`, row after row with no padding.
    ///
    /// # Errors
    /// [`PlanError::DenseTooShort`] if `data` has fewer than `rows · cols` elements.
    pub fn packed(data: &'a mut [T], rows: usize, cols: usize) -> Result<Self, PlanError> {
        Self::try_new(data, rows, cols, cols)
    }

    /// Rows of the matrix, each of [`cols`](Self::cols) elements.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the matrix: elements of a row, without padding.
    #[must_use]
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// Elements from the start of a row to the start of the next.
    #[must_use]
    pub const fn ld(&self) -> usize {
        self.ld
    }

    /// All elements, padding included.
    #[must_use]
    pub const fn data(&self) -> &[T] {
        self.data
    }

    /// All elements, padding included.
    #[must_use]
    pub const fn data_mut(&mut self) -> &mut [T] {
        self.data
    }

    /// The elements, for as long as the view was borrowed.
    #[must_use]
    pub fn into_data(self) -> &'a mut [T] {
        self.data
    }

    /// The same matrix, read only.
    #[must_use]
    pub const fn as_ref(&self) -> DenseRef<'_, T> {
        DenseRef { data: self.data, rows: self.rows, cols: self.cols, ld: self.ld }
    }

    /// The same matrix for a shorter time.
    #[must_use]
    pub const fn reborrow(&mut self) -> DenseMut<'_, T> {
        DenseMut { data: self.data, rows: self.rows, cols: self.cols, ld: self.ld }
    }

    /// The elements of row `r`.
    ///
    /// # Panics
    /// If `r` is not below [`rows`](Self::rows), like an index into a slice.
    #[must_use]
    pub fn row_mut(&mut self, r: usize) -> &mut [T] {
        assert!(r < self.rows, "row {r} of a view with {} rows", self.rows);
        if self.cols == 0 {
            return &mut [];
        }
        &mut self.data[r * self.ld..][..self.cols]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_holds_its_last_row_and_no_more() {
        for (len, rows, cols, ld, fits) in [
            (0, 0, 0, 0, true),
            (0, 0, 5, 5, true),
            (0, 7, 0, 0, true),
            (0, 7, 0, 9, true),
            (6, 2, 3, 3, true),
            (5, 2, 3, 3, false),
            (7, 2, 3, 4, true),
            (6, 2, 3, 4, false),
            (usize::MAX, usize::MAX, 2, 2, false),
        ] {
            let checked = check_shape(len, rows, cols, ld);
            assert_eq!(checked.is_ok(), fits, "{len} elements as {rows}x{cols} by {ld}: {checked:?}");
        }
        assert!(matches!(check_shape(100, 2, 3, 2), Err(PlanError::LeadingDimension { ld: 2, cols: 3 })));
    }

    #[test]
    fn rows_skip_the_padding() {
        let mut data = [0, 1, 2, 9, 3, 4, 5];
        assert_eq!(DenseRef::try_new(&data, 2, 3, 4).unwrap().row(1), [3, 4, 5]);
        let mut view = DenseMut::try_new(&mut data, 2, 3, 4).unwrap();
        view.row_mut(0).fill(7);
        view.reborrow().row_mut(1).fill(8);
        assert_eq!(view.as_ref().row(0), [7, 7, 7]);
        assert_eq!(data, [7, 7, 7, 9, 8, 8, 8]);
    }
}

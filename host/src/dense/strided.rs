//! Views of dense matrices in host memory, row-major or column-major.

use std::ops::Range;

use super::DenseRef;
use crate::error::PlanError;

/// A dense matrix in host memory in which every element has a place of its own: `(r, c)` is
/// `data[r·row_stride + c·col_stride]`.
///
/// What host-slice calls take as operands. Rows whose elements are consecutive are read where they are; a
/// [column-major](Self::col_major) matrix, or one with gaps between its elements, is copied first, to rows.
///
/// Invariants, checked by [`try_new`](Self::try_new), for a matrix of more than one row and column:
/// - `row_stride > 0` and `col_stride > 0`;
/// - `row_stride > (cols − 1)·col_stride`, or `col_stride > (rows − 1)·row_stride`;
/// - `|data| > (rows − 1)·row_stride + (cols − 1)·col_stride`.
///
/// # Examples
/// ```
/// use windrow::{Csr, Device, MatRef, Spmm};
///
/// let plan = Spmm::builder(&Csr::from_dense(1, 3, &[1.0f32, 0.0, 2.0])?).build(&Device::cpu())?;
/// let columns = [1.0f32, 2.0, 3.0, 10.0, 20.0, 30.0]; // two columns of three elements
/// let c = plan.run_dense(MatRef::col_major(&columns, 3, 2)?)?;
/// assert_eq!(c.data(), [7.0, 70.0]);
/// // Backwards, on top of one another, beyond the slice: refused.
/// assert!(MatRef::try_new(&columns, (3, 2), (-1, 3)).is_err());
/// assert!(MatRef::try_new(&columns, (3, 2), (0, 1)).is_err());
/// assert!(MatRef::try_new(&columns, (3, 2), (2, 2)).is_err());
/// assert!(MatRef::try_new(&columns, (4, 2), (2, 1)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MatRef<'a, T> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    /// Of rows, of columns. Where there is only one, as if there were more that lay behind it.
    strides: [usize; 2],
}

impl<T> Clone for MatRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for MatRef<'_, T> {}

impl<'a, T> MatRef<'a, T> {
    /// The `shape.0 × shape.1` matrix with `strides.0` elements from row to row and `strides.1` from column to column.
    /// The stride of a single row or column does not matter.
    ///
    /// # Errors
    /// - [`PlanError::Strides`] if a stride is negative or zero, or rows and columns share or may share elements;
    /// - [`PlanError::StridedTooShort`] if the last element does not lie in `data`.
    pub fn try_new(data: &'a [T], shape: (usize, usize), strides: (isize, isize)) -> Result<Self, PlanError> {
        let (rows, cols) = shape;
        let refused = |why| PlanError::Strides { shape, strides, why };
        if rows == 0 || cols == 0 {
            return Ok(Self { data: &[], rows, cols, strides: [cols.max(1), 1] });
        }
        let too_short = |needed| PlanError::StridedTooShort { len: data.len(), needed, shape, strides };
        let stride = |extent: usize, stride: isize| match usize::try_from(stride) {
            _ if extent == 1 => Ok(1),
            Ok(0) => Err(refused("has elements that lie in one place")),
            Ok(stride) => Ok(stride),
            Err(_) => Err(refused("runs backwards")),
        };
        let (row_stride, col_stride) = (stride(rows, strides.0)?, stride(cols, strides.1)?);
        let span = |extent: usize, stride: usize| (extent - 1).checked_mul(stride);
        let (Some(down), Some(across)) = (span(rows, row_stride), span(cols, col_stride)) else {
            return Err(too_short(usize::MAX));
        };
        if rows > 1 && cols > 1 && row_stride <= across && col_stride <= down {
            return Err(refused("has rows and columns that overlap"));
        }
        match down.checked_add(across).and_then(|last| last.checked_add(1)) {
            Some(needed) if needed <= data.len() => {}
            needed => return Err(too_short(needed.unwrap_or(usize::MAX))),
        }
        let row_stride = if rows == 1 { across + 1 } else { row_stride };
        Ok(Self { data, rows, cols, strides: [row_stride, col_stride] })
    }

    /// The `rows × cols` matrix in `data`, row after row without gaps.
    ///
    /// # Errors
    /// [`PlanError::StridedTooShort`] if `data` has fewer than `rows · cols` elements.
    pub fn row_major(data: &'a [T], rows: usize, cols: usize) -> Result<Self, PlanError> {
        Self::try_new(data, (rows, cols), (signed(cols), 1))
    }

    /// The `rows × cols` matrix in `data`, column after column without gaps: Fortran's order, and that of nalgebra's
    /// `DMatrix::as_slice`.
    ///
    /// # Errors
    /// [`PlanError::StridedTooShort`] if `data` has fewer than `rows · cols` elements.
    pub fn col_major(data: &'a [T], rows: usize, cols: usize) -> Result<Self, PlanError> {
        Self::try_new(data, (rows, cols), (1, signed(rows)))
    }

    /// Rows of the matrix, each of [`cols`](Self::cols) elements.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the matrix: elements of a row.
    #[must_use]
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// The matrix with rows and columns in each other's place; nothing is copied.
    #[must_use]
    pub fn transposed(self) -> Self {
        let (rows, cols, [row_stride, col_stride]) = (self.cols, self.rows, self.strides);
        Self { data: self.data, rows, cols, strides: [col_stride, row_stride] }
    }

    /// Some successive columns as a matrix; nothing is copied.
    pub(crate) fn columns(self, cols: Range<usize>) -> Self {
        debug_assert!(cols.start <= cols.end && cols.end <= self.cols, "there are such columns");
        let at = cols.start * self.strides[1];
        Self { data: self.data.get(at..).unwrap_or(&[]), cols: cols.len(), ..self }
    }

    /// The same matrix as a view by rows, if the elements of each are consecutive.
    pub(crate) fn as_rows(&self) -> Option<DenseRef<'a, T>> {
        let Self { data, rows, cols, strides: [ld, col_stride] } = *self;
        if cols > 1 && col_stride != 1 {
            return None;
        }
        // Of a single row transposed from a column the stride may be less than there are columns.
        Some(DenseRef { data, rows, cols, ld: ld.max(cols) })
    }
}

impl<T: Copy> MatRef<'_, T> {
    /// The element in row `r` and column `c`; `None` beyond the matrix.
    #[must_use]
    pub fn get(&self, r: usize, c: usize) -> Option<T> {
        (r < self.rows && c < self.cols).then(|| self.data[r * self.strides[0] + c * self.strides[1]])
    }

    /// Writes rows `first ..` to `to`, which has `ld` elements for each, one block of rows after the other.
    pub(crate) fn copy_rows<U>(&self, first: usize, ld: usize, to: &mut [U], convert: impl Fn(T) -> U) {
        // A cache line of f32 from each column.
        const TOGETHER: usize = 16;
        for (block, rows) in to.chunks_mut((TOGETHER * ld).max(1)).enumerate() {
            let first = first + block * TOGETHER;
            for c in 0..self.cols {
                let column = first * self.strides[0] + c * self.strides[1];
                for (r, row) in rows.chunks_exact_mut(ld).enumerate() {
                    row[c] = convert(self.data[column + r * self.strides[0]]);
                }
            }
        }
    }
}

/// A stride; one that is too long for it makes a matrix that no slice holds.
fn signed(stride: usize) -> isize {
    isize::try_from(stride).unwrap_or(isize::MAX)
}

impl<'a, T> From<DenseRef<'a, T>> for MatRef<'a, T> {
    fn from(rows: DenseRef<'a, T>) -> Self {
        let DenseRef { data, rows, cols, ld } = rows;
        Self { data, rows, cols, strides: [ld, 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(view: MatRef<'_, u32>) -> Vec<u32> {
        let mut all = vec![u32::MAX; view.rows() * view.cols()];
        view.copy_rows(0, view.cols(), &mut all, |x| x);
        let got = (0..view.rows()).flat_map(|r| (0..view.cols()).map(move |c| view.get(r, c).unwrap()));
        assert_eq!(all, got.collect::<Vec<_>>());
        if let Some(rows) = view.as_rows() {
            assert_eq!(all, (0..view.rows()).flat_map(|r| rows.row(r).to_vec()).collect::<Vec<_>>());
        }
        all
    }

    #[test]
    fn every_view_reads_its_own_elements() {
        let data: Vec<u32> = (0..24).collect();
        for (shape, strides, want) in [
            ((2, 3), (3, 1), vec![0, 1, 2, 3, 4, 5]),
            ((2, 3), (1, 2), vec![0, 2, 4, 1, 3, 5]),
            ((2, 3), (10, 4), vec![0, 4, 8, 10, 14, 18]),
            ((2, 3), (2, 8), vec![0, 8, 16, 2, 10, 18]),
            ((1, 3), (-7, 2), vec![0, 2, 4]),
            ((3, 1), (2, 0), vec![0, 2, 4]),
            ((1, 1), (0, -1), vec![0]),
            ((0, 3), (0, 0), vec![]),
            ((3, 0), (-1, -1), vec![]),
        ] {
            let view = MatRef::try_new(&data, shape, strides).unwrap();
            assert_eq!(elements(view), want, "{shape:?} {strides:?}");
            let turned = view.transposed();
            assert_eq!(elements(turned).len(), want.len());
            for (r, c) in (0..shape.0).flat_map(|r| (0..shape.1).map(move |c| (r, c))) {
                assert_eq!(turned.get(c, r), view.get(r, c));
            }
            for cols in [0..shape.1, shape.1 / 2..shape.1, 0..0] {
                let (some, first) = (view.columns(cols.clone()), cols.start);
                for (r, c) in (0..shape.0).flat_map(|r| (0..cols.len()).map(move |c| (r, c))) {
                    assert_eq!(some.get(r, c), view.get(r, first + c));
                }
                assert_eq!(some.get(0, cols.len()), None);
            }
            assert_eq!((view.get(shape.0, 0), view.get(0, shape.1)), (None, None));
        }
    }

    #[test]
    fn rows_are_read_where_they_are_and_columns_are_not() {
        let data = [0; 12];
        let rows = |shape, strides| MatRef::try_new(&data, shape, strides).unwrap().as_rows().map(|v| v.ld());
        assert_eq!(rows((3, 4), (4, 1)), Some(4));
        assert_eq!(rows((3, 2), (4, 1)), Some(4));
        assert_eq!(rows((3, 1), (4, -1)), Some(4));
        assert_eq!(rows((1, 4), (0, 1)), Some(4));
        assert_eq!(rows((3, 4), (1, 3)), None);
        assert_eq!(rows((1, 4), (1, 3)), None);
        // A column of consecutive elements is also a row of them.
        assert_eq!(MatRef::col_major(&data, 4, 1).unwrap().transposed().as_rows().unwrap().ld(), 4);
        let narrow = DenseRef::try_new(&data, 3, 2, 4).unwrap();
        assert_eq!(MatRef::from(narrow).as_rows().unwrap().ld(), 4);
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_numbers() {
        let data = [0; 6];
        let error = |shape, strides| MatRef::try_new(&data, shape, strides).unwrap_err().to_string();
        let strided = "with 2 elements from row to row and 2 from column to column";
        assert_eq!(
            error((2, 3), (2, 2)),
            format!(
                "a 2 × 3 matrix {strided} has rows and columns that overlap; copy it to consecutive rows"
            )
        );
        assert!(error((2, 3), (-3, 1)).contains("runs backwards"));
        assert!(error((2, 3), (0, 1)).contains("lie in one place"));
        assert!(error((2, 3), (3, 0)).contains("lie in one place"));
        let short = error((2, 3), (4, 1));
        assert!(short.contains("6 elements") && short.contains("7 are needed"), "{short}");
        assert!(error((isize::MAX as usize, 3), (isize::MAX, 1)).contains("are needed"));
        assert!(MatRef::row_major(&data, usize::MAX, 2).is_err());
        assert!(MatRef::col_major(&data, usize::MAX, 2).is_err());
        assert!(MatRef::col_major(&data, 2, 4).is_err() && MatRef::row_major(&data, 2, 4).is_err());
    }
}

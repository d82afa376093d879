//! `ndarray`: arrays of two dimensions as operands and results.

use ndarray::{Array2, ArrayBase, ArrayView2, ArrayViewMut2, Data, DataMut, Ix2, ShapeError};
use windrow_formats::Value;

use crate::dense::{Dense, DenseMut, MatRef};
use crate::error::PlanError;

/// Of a view that is no slice of memory.
const GAPS: &str = "does not fill one slice of memory";

/// The elements where they are, if they fill one slice of memory: in C's order or Fortran's.
///
/// # Errors
/// [`PlanError::Strides`] for a view with gaps, repeated elements or a negative stride; [`Dense`] can be made of it.
impl<'a, T> TryFrom<ArrayView2<'a, T>> for MatRef<'a, T> {
    type Error = PlanError;

    fn try_from(view: ArrayView2<'a, T>) -> Result<Self, PlanError> {
        let (shape, strides) = (view.dim(), strides_of(view.strides()));
        if view.is_empty() {
            return Self::try_new(&[], shape, strides);
        }
        let data = view.to_slice_memory_order().ok_or(PlanError::Strides { shape, strides, why: GAPS })?;
        Self::try_new(data, shape, strides)
    }
}

/// As of a view of it.
///
/// # Errors
/// [`PlanError::Strides`].
impl<'a, T, S: Data<Elem = T>> TryFrom<&'a ArrayBase<S, Ix2>> for MatRef<'a, T> {
    type Error = PlanError;

    fn try_from(array: &'a ArrayBase<S, Ix2>) -> Result<Self, PlanError> {
        Self::try_from(array.view())
    }
}

/// The elements where they are, in C's order.
///
/// # Errors
/// [`PlanError::Strides`] for a view in another order, or with gaps.
impl<'a, T> TryFrom<ArrayViewMut2<'a, T>> for DenseMut<'a, T> {
    type Error = PlanError;

    fn try_from(view: ArrayViewMut2<'a, T>) -> Result<Self, PlanError> {
        let (shape, strides) = (view.dim(), strides_of(view.strides()));
        let why = "is not in C's order";
        let data = view.into_slice().ok_or(PlanError::Strides { shape, strides, why })?;
        Self::packed(data, shape.0, shape.1)
    }
}

/// As of a view of it.
///
/// # Errors
/// [`PlanError::Strides`].
impl<'a, T, S: DataMut<Elem = T>> TryFrom<&'a mut ArrayBase<S, Ix2>> for DenseMut<'a, T> {
    type Error = PlanError;

    fn try_from(array: &'a mut ArrayBase<S, Ix2>) -> Result<Self, PlanError> {
        Self::try_from(array.view_mut())
    }
}

/// A copy, whatever the order.
///
/// # Errors
/// [`PlanError::Format`] if there is no memory for it.
impl<T: Value> TryFrom<ArrayView2<'_, T>> for Dense<T> {
    type Error = PlanError;

    fn try_from(view: ArrayView2<'_, T>) -> Result<Self, PlanError> {
        let mut copy = Self::zeros(view.nrows(), view.ncols())?;
        copy.view_mut().into_data().iter_mut().zip(&view).for_each(|(to, from)| *to = *from);
        Ok(copy)
    }
}

/// As of a view of it.
///
/// # Errors
/// [`PlanError::Format`] if there is no memory for it.
impl<T: Value, S: Data<Elem = T>> TryFrom<&ArrayBase<S, Ix2>> for Dense<T> {
    type Error = PlanError;

    fn try_from(array: &ArrayBase<S, Ix2>) -> Result<Self, PlanError> {
        Self::try_from(array.view())
    }
}

/// The same elements; nothing is copied.
///
/// # Errors
/// [`ShapeError`] if there are no elements, and more rows or columns than `ndarray` can count.
impl<T> TryFrom<Dense<T>> for Array2<T> {
    type Error = ShapeError;

    fn try_from(matrix: Dense<T>) -> Result<Self, ShapeError> {
        let shape = (matrix.rows(), matrix.cols());
        Self::from_shape_vec(shape, matrix.into_data())
    }
}

/// From row to row, from column to column.
fn strides_of(strides: &[isize]) -> (isize, isize) {
    (strides.first().copied().unwrap_or(0), strides.get(1).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use ndarray::{ShapeBuilder, array, s};

    use super::*;

    fn rows(view: ArrayView2<'_, i32>) -> Option<Vec<i32>> {
        let matrix = MatRef::try_from(view).ok()?;
        let elements = (0..matrix.rows()).flat_map(|r| (0..matrix.cols()).map(move |c| (r, c)));
        Some(elements.map(|(r, c)| matrix.get(r, c).unwrap()).collect())
    }

    #[test]
    fn what_fills_a_slice_is_read_and_the_rest_refused() {
        let c_order = array![[1, 2, 3], [4, 5, 6]];
        let mut f_order = Array2::zeros((2, 3).f());
        f_order.assign(&c_order);
        assert_eq!(rows(c_order.view()).unwrap(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(rows(f_order.view()).unwrap(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(rows(c_order.t()).unwrap(), [1, 4, 2, 5, 3, 6]);
        assert_eq!(rows(c_order.slice(s![1..2, ..])).unwrap(), [4, 5, 6]);
        assert!(rows(c_order.slice(s![0..0, ..])).unwrap().is_empty());
        for refused in [
            c_order.slice(s![.., ..2]),
            c_order.slice(s![..;-1, ..]),
            c_order.slice(s![.., ..;2]),
            array![7, 8].view().into_shape_with_order((1, 2)).unwrap().broadcast((3, 2)).unwrap(),
        ] {
            assert!(rows(refused).is_none(), "{refused:?}");
        }
        let error = MatRef::try_from(c_order.slice(s![.., ..2])).unwrap_err();
        assert!(error.to_string().contains("does not fill one slice of memory"), "{error}");
    }

    #[test]
    fn any_view_can_be_copied_and_results_go_back() {
        let a = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
        for view in [a.slice(s![..;-1, ..;2]), a.slice(s![.., 1..]), a.slice(s![..0, ..])] {
            let copy = Dense::try_from(view).unwrap();
            assert_eq!(Array2::try_from(copy).unwrap(), view);
        }
    }

    #[test]
    fn results_are_written_in_c_order_only() {
        let mut c = Array2::<f32>::zeros((2, 3));
        DenseMut::try_from(&mut c).unwrap().row_mut(1).fill(7.0);
        assert_eq!(c, array![[0.0, 0.0, 0.0], [7.0, 7.0, 7.0]]);
        let error = DenseMut::try_from(c.view_mut().reversed_axes()).unwrap_err();
        assert!(error.to_string().contains("is not in C's order"), "{error}");
        assert!(DenseMut::try_from(c.slice_mut(s![.., ..2])).is_err());
    }
}

//! Dense matrices at addresses.

use pyo3::prelude::*;
use windrow::{Device, DeviceView, DeviceViewMut, Value};

use crate::dtype::Dtype;
use crate::error::{Outcome, shape};

/// A dense matrix somewhere: `(address, shape, strides, dtype)`, strides in elements, as a tensor's `data_ptr()`,
/// `shape` and `stride()` say.
#[derive(Clone, Copy)]
pub(super) struct Operand(
    pub(super) u64,
    pub(super) (usize, usize),
    pub(super) (isize, isize),
    pub(super) Dtype,
);

impl FromPyObject<'_, '_> for Operand {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let (address, shape, strides, dtype) = object.extract()?;
        Ok(Self(address, shape, strides, dtype))
    }
}

/// How a matrix with these strides lies.
pub(super) enum Lies {
    /// Elements from row to row.
    Rows(usize),
    /// Elements from column to column.
    Columns(usize),
}

impl Operand {
    pub(super) fn lies(self, what: &str) -> Outcome<Lies> {
        let Self(_, (rows, cols), strides, _) = self;
        // Of a single row or column the stride to the next is anything.
        let step = |extent: usize, stride: isize, least: usize| match usize::try_from(stride) {
            _ if extent <= 1 => Some(least),
            Ok(stride) if stride >= least => Some(stride),
            _ => None,
        };
        let (row, column) = strides;
        let by_rows = (column == 1 || cols <= 1).then(|| step(rows, row, cols)).flatten();
        let by_columns = (row == 1 || rows <= 1).then(|| step(cols, column, rows)).flatten();
        match (by_rows, by_columns) {
            (Some(ld), _) => Ok(Lies::Rows(ld)),
            (None, Some(ld)) => Ok(Lies::Columns(ld)),
            (None, None) => shape(format!(
                "{what} is {rows} × {cols} with strides {strides:?} (elements from row to row and from column to \
                 column); the elements of a row must be consecutive: give {what}.contiguous()"
            )),
        }
    }

    fn row_distance(self, what: &str) -> Outcome<usize> {
        match self.lies(what)? {
            Lies::Rows(ld) => Ok(ld),
            Lies::Columns(_) => shape(format!("{what} lies column after column; give it consecutive rows")),
        }
    }

    /// The matrix as an operand, which has consecutive rows.
    ///
    /// # Safety
    /// Those of [`DeviceView::from_raw`], and the elements are of this type.
    pub(super) unsafe fn view<T: Value>(
        self,
        what: &str,
        device: &'static Device,
    ) -> Outcome<DeviceView<'static, T>> {
        let (ld, Self(address, (rows, cols), ..)) = (self.row_distance(what)?, self);
        // SAFETY: the caller's promise; what the driver knows of the addresses is checked.
        Ok(unsafe { DeviceView::from_raw(device, address, rows, cols, ld)? })
    }

    /// The matrix as a result, which has consecutive rows.
    ///
    /// # Safety
    /// Those of [`DeviceViewMut::from_raw`], and the elements are of this type.
    pub(super) unsafe fn view_mut<T: Value>(
        self,
        what: &str,
        device: &'static Device,
    ) -> Outcome<DeviceViewMut<'static, T>> {
        let (ld, Self(address, (rows, cols), ..)) = (self.row_distance(what)?, self);
        // SAFETY: as above.
        Ok(unsafe { DeviceViewMut::from_raw(device, address, rows, cols, ld)? })
    }
}

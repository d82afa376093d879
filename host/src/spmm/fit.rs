//! What the operands of a product must fit.

use super::operands::{Finish, Operands};
use crate::activation::Epilogue;
use crate::device::{Device, Stream};
use crate::element::Element;
use crate::error::{PlanError, SpmmError};
use crate::num::wide;
use crate::options::Precision;
use crate::plan::{check_device, check_element, check_index, check_shape};
use crate::view::{DeviceSlice, DeviceView, DeviceViewMut};

/// The sparse matrix of a product, as far as its operands are concerned.
#[derive(Clone, Copy)]
pub(super) struct Fit<'a> {
    pub(super) device: &'a Device,
    pub(super) precision: Precision,
    pub(super) rows: usize,
    pub(super) cols: usize,
}

impl Fit<'_> {
    /// Shapes of `B` and `C`.
    pub(super) fn check_shapes(&self, b: (usize, usize), c: (usize, usize)) -> Result<(), SpmmError> {
        if b.0 != self.cols {
            return Err(SpmmError::InnerDim { a_cols: self.cols, b_rows: b.0 });
        }
        if c != (self.rows, b.1) {
            let (expected_rows, expected_cols) = (self.rows, b.1);
            return Err(PlanError::OutputShape { rows: c.0, cols: c.1, expected_rows, expected_cols }.into());
        }
        Ok(())
    }

    /// Devices, types, shapes and overlap of the operands of a run, whose `B` is of this shape, in whatever order it is
    /// stored.
    pub(super) fn check_views<B: Element, C: Element<Sum = B::Sum>>(
        &self,
        on: &Stream,
        run: &Epilogue<'_, B::Sum, DeviceSlice<'_, B::Sum>>,
        (b, shape): (DeviceView<'_, B>, (usize, usize)),
        c: &DeviceViewMut<'_, C>,
    ) -> Result<(), SpmmError> {
        let Self { device, precision, .. } = *self;
        check_device("the stream", on.device(), device)?;
        check_device("B", b.device(), device)?;
        check_element::<B>("B", precision)?;
        check_device("C", c.device(), device)?;
        self.check_shapes(shape, (c.rows(), c.cols()))?;
        c.bytes().check_apart("C", "B", b.bytes())?;
        if let Some(bias) = run.bias {
            check_device("the bias", bias.device(), device)?;
            check_shape("the bias", (1, bias.len()), (1, c.cols()))?;
            c.bytes().check_apart("C", "the bias", bias.bytes())?;
        }
        if run.activation.is_of_f32() && precision == Precision::F64 {
            return Err(SpmmError::NoActivation { activation: run.activation, precision });
        }
        Ok(())
    }
}

impl Operands {
    /// Operands of a row-major `B` that were checked, as launches take them, with `n` columns.
    pub(super) fn of<B: Element, C: Element<Sum = B::Sum>>(
        run: &Epilogue<'_, B::Sum, DeviceSlice<'_, B::Sum>>,
        b: DeviceView<'_, B>,
        n: usize,
        c: &DeviceViewMut<'_, C>,
    ) -> Result<Self, PlanError> {
        Ok(Self {
            b: b.address(),
            ldb: narrow_width(b.ld())?,
            column_major: false,
            second: None,
            reads_vectors: b.reads_vectors(c.bytes()),
            c: c.address(),
            ldc: narrow_width(c.ld())?,
            n: narrow_width(n)?,
            finish: Finish::of::<C>(run),
        })
    }
}

/// What there may be too much of in a `B` or `C`, and what to do about it.
const WIDTH: (&str, &str) = ("columns or elements from row to row", "run the product in blocks of columns");

/// The error for a result of so many columns that nobody can count its elements.
pub(super) fn too_wide(n: usize) -> PlanError {
    let (what, remedy) = WIDTH;
    PlanError::TooLarge { what, found: wide(n), limit: u64::from(u32::MAX), remedy }
}

/// A width or leading dimension as kernels take it.
pub(super) fn narrow_width(n: usize) -> Result<u32, PlanError> {
    let (what, remedy) = WIDTH;
    check_index(what, n, u64::from(u32::MAX), remedy)
}

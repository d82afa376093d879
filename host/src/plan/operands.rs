//! Operands in host memory on their way to a plan and back: rounded to its element type, and uploaded.

use std::any::TypeId;
use std::borrow::Cow;

use windrow_formats::memory::try_zeroed;
use windrow_formats::{OutOfMemory, Value};
use windrow_simt::GlobalPtr;

use crate::cpu;
use crate::dense::{DenseMut, DenseRef, MatRef};
use crate::device::Device;
use crate::element::{Element, Real};
use crate::error::PlanError;
use crate::matrix::DeviceMatrix;

/// A dense matrix of a plan's element type, made of one of another: the same one where there is nothing to round.
pub(crate) struct Rounded<'a, E: Element> {
    data: Cow<'a, [E]>,
    rows: usize,
    cols: usize,
    ld: usize,
}

impl<'a, E: Element> Rounded<'a, E> {
    pub(crate) fn new<T: Element>(matrix: MatRef<'a, T>) -> Result<Self, OutOfMemory> {
        let (rows, cols) = (matrix.rows(), matrix.cols());
        let (data, ld) = match matrix.as_rows() {
            Some(rows) if is_same::<T, E>() => (Cow::Borrowed(bytemuck::cast_slice(rows.data())), rows.ld()),
            Some(rows) => (Cow::Owned(cpu::rounded(rows)?), cols),
            None => (Cow::Owned(cpu::rounded_strided(matrix)?), cols),
        };
        Ok(Self { data, rows, cols, ld })
    }

    pub(crate) fn view(&self) -> Result<DenseRef<'_, E>, PlanError> {
        DenseRef::try_new(&self.data, self.rows, self.cols, self.ld)
    }
}

/// Whether two types are the same one.
pub(crate) fn is_same<T: 'static, U: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<U>()
}

/// Runs `product` for a `C` of the type of its sums; a `C` of another type is rounded from one, which begins with what
/// `C` held unless `beta` is 0.
pub(crate) fn with_sums<T: Element, S: Real, E: From<PlanError>>(
    mut c: DenseMut<'_, T>,
    beta: T::Sum,
    product: impl FnOnce(DenseMut<'_, S>) -> Result<(), E>,
) -> Result<(), E> {
    let (rows, cols, ld) = (c.rows(), c.cols(), c.ld());
    if is_same::<T, S>() {
        let data = bytemuck::cast_slice_mut(c.data_mut());
        return product(DenseMut::try_new(data, rows, cols, ld)?);
    }
    let mut sums: Vec<S> = match beta == <T::Sum as Value>::ZERO {
        true => try_zeroed(rows * cols, "sums of C").map_err(PlanError::from)?,
        false => cpu::rounded(c.as_ref()).map_err(PlanError::from)?,
    };
    product(DenseMut::packed(&mut sums, rows, cols)?)?;
    for (r, sums) in sums.chunks_exact(cols.max(1)).enumerate() {
        c.row_mut(r).iter_mut().zip(sums).for_each(|(c, sum)| *c = T::from_f64(sum.to_f64()));
    }
    Ok(())
}

/// A dense operand of a call that takes those of other crates, too.
pub(crate) fn operand<'a, T: 'a>(
    matrix: impl TryInto<MatRef<'a, T>, Error: Into<PlanError>>,
) -> Result<MatRef<'a, T>, PlanError> {
    matrix.try_into().map_err(Into::into)
}

/// The address of an array that may not be there.
pub(crate) fn pointer_or_null<T>(address: Option<u64>) -> GlobalPtr<T> {
    address.map_or(GlobalPtr::NULL, GlobalPtr::from_address)
}

/// A factor in the type of a plan's sums.
pub(crate) fn factor<T: Real, S: Real>(x: T) -> S {
    S::from_f64(x.to_f64())
}

/// `C` on the device, as a product finds it: zeros unless it reads what `C` held.
pub(crate) fn output_on<C: Element>(
    device: &Device,
    c: DenseRef<'_, C>,
    is_read: bool,
) -> Result<DeviceMatrix<C>, PlanError> {
    match is_read {
        true => DeviceMatrix::upload(device, c),
        false => DeviceMatrix::zeros(device, c.rows(), c.cols()),
    }
}

//! Sparse matrices of arrays at addresses.

use std::ops::Deref;

use windrow::{
    CsrAddresses, Device, DeviceCsr, DeviceIndices, DeviceSlice, PlanError, Stream, Transposed, Value,
};

use crate::any::any_type;
use crate::dtype::{Dtype, IndexType, with_dtype};
use crate::error::Outcome;

pub(crate) enum Held<V: Value> {
    Plain(DeviceCsr<'static, V>),
    Transposed(Transposed<V>),
}

impl<V: Value> Deref for Held<V> {
    type Target = DeviceCsr<'static, V>;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Plain(matrix) => matrix,
            Self::Transposed(transposed) => transposed.matrix(),
        }
    }
}

type Borrowed<V> = DeviceCsr<'static, V>;

any_type! {
    /// A matrix in the memory of a device, of any type of values.
    AnyDeviceCsr(Held) from Borrowed by Held::Plain; from Transposed by Held::Transposed;
}

#[derive(Clone, Copy)]
pub(crate) struct Arrays {
    pub(crate) shape: (usize, usize),
    pub(crate) nnz: usize,
    pub(crate) offsets: (u64, IndexType),
    pub(crate) columns: (u64, IndexType),
    pub(crate) values: Option<u64>,
    pub(crate) dtype: Dtype,
}

impl Arrays {
    /// The matrix; checked, if a stream is given.
    ///
    /// # Safety
    /// Those of [`DeviceCsr::from_raw`].
    pub(crate) unsafe fn matrix(
        self,
        device: &'static Device,
        check: Option<&Stream>,
    ) -> Outcome<AnyDeviceCsr> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.values.is_none() {
                return checked(self.pattern(device)?, check);
            }
            with_dtype!(self.dtype, V => checked(self.of_values::<V>(device)?, check))
        }
    }

    /// # Safety
    /// Those of [`DeviceCsr::from_raw`], and the values are of this type.
    unsafe fn of_values<V: Value>(self, device: &'static Device) -> Result<DeviceCsr<'static, V>, PlanError> {
        let Self {
            shape, nnz, offsets: (offsets, of_offsets), columns: (columns, of_columns), values, ..
        } = self;
        let values = values.unwrap_or(0);
        let at = CsrAddresses { offsets, columns, values };
        // SAFETY: the caller's promise.
        unsafe {
            match (of_offsets, of_columns) {
                (IndexType::I32, IndexType::I32) => DeviceCsr::from_raw::<i32, i32>(device, shape, nnz, at),
                (IndexType::I64, IndexType::I64) => DeviceCsr::from_raw::<i64, i64>(device, shape, nnz, at),
                (IndexType::I64, IndexType::I32) => DeviceCsr::from_raw::<i64, i32>(device, shape, nnz, at),
                (IndexType::I32, IndexType::I64) => DeviceCsr::from_raw::<i32, i64>(device, shape, nnz, at),
            }
        }
    }

    /// The matrix whose values are all 1.
    ///
    /// # Safety
    /// Those of [`DeviceCsr::from_raw`].
    unsafe fn pattern(self, device: &'static Device) -> Result<DeviceCsr<'static, f32>, PlanError> {
        let Self {
            shape: (rows, cols),
            nnz,
            offsets: (offsets, of_offsets),
            columns: (columns, of_columns),
            ..
        } = self;
        let ends = rows.saturating_add(1);
        // SAFETY: the caller's promise.
        unsafe {
            let offsets: DeviceIndices<'_> = match of_offsets {
                IndexType::I32 => DeviceSlice::<i32>::from_raw(device, offsets, ends)?.into(),
                IndexType::I64 => DeviceSlice::<i64>::from_raw(device, offsets, ends)?.into(),
            };
            match of_columns {
                IndexType::I32 => DeviceCsr::pattern(
                    rows,
                    cols,
                    offsets,
                    DeviceSlice::<i32>::from_raw(device, columns, nnz)?,
                ),
                IndexType::I64 => DeviceCsr::pattern(
                    rows,
                    cols,
                    offsets,
                    DeviceSlice::<i64>::from_raw(device, columns, nnz)?,
                ),
            }
        }
    }
}

fn checked<V: Value>(a: DeviceCsr<'static, V>, on: Option<&Stream>) -> Outcome<AnyDeviceCsr>
where
    AnyDeviceCsr: From<DeviceCsr<'static, V>>,
{
    Ok(match on {
        Some(on) => a.checked(on)?.into(),
        None => a.into(),
    })
}

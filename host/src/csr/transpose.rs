//! The transpose of a matrix, made where the matrix is.

use bytemuck::Pod;
use windrow_formats::Value;
use windrow_kernels::Variant;
use windrow_kernels::csr::{TransposeEntriesParams, TransposeOut};
use windrow_kernels::preprocess::MOST_ITEMS;
use windrow_simt::GlobalPtr;

use super::receive::entry_of;
use super::transposition::{Transposition, Way};
use super::{Arrays, DeviceCsr, OwnedCsr};
use crate::device::{DeviceBuffer, Stream};
use crate::error::PlanError;
use crate::num::{index, narrow, wide};
use crate::plan::{MAX_INDEX, On, check_count, check_device, start};
use crate::view::{DeviceSlice, DeviceSliceMut};

/// What arrays that live as long as a transposition are called where there is no memory for them.
const WHAT: &str = "a transposition";

/// `Aᵀ` in the memory of a device, and which entry of `A` each of its entries is; made by [`DeviceCsr::transposed`].
#[derive(Debug)]
pub struct Transposed<V: Value> {
    matrix: DeviceCsr<'static, V>,
    order: DeviceBuffer<u32>,
}

impl<V: Value> Transposed<V> {
    /// `Aᵀ`, a matrix like others.
    #[must_use]
    pub fn matrix(&self) -> &DeviceCsr<'static, V> {
        &self.matrix
    }

    /// The order of its entries: entry `e` of `Aᵀ` is entry `order[e]` of `A`, as in
    /// [`Csr::transpose_order`](windrow_formats::Csr::transpose_order).
    #[must_use]
    pub fn order(&self) -> &DeviceBuffer<u32> {
        &self.order
    }

    /// `Aᵀ` and the order of its entries.
    #[must_use]
    pub fn into_parts(self) -> (DeviceCsr<'static, V>, DeviceBuffer<u32>) {
        (self.matrix, self.order)
    }

    /// Brings values from the order of `A`'s entries to that of `Aᵀ`'s, in the order of a stream: `to[e] =
    /// values[order[e]]`. A plan for `Aᵀ` takes them then, without another transposition.
    ///
    /// # Errors
    /// - [`PlanError::ValueCount`] unless both have an element for each entry;
    /// - [`PlanError::WrongDevice`] unless all is on the device of the matrix;
    /// - [`PlanError::TooLarge`] for 2³² entries less a few;
    /// - [`PlanError::Device`]: [`DeviceError::Captured`](crate::DeviceError::Captured) for a stream that is captured
    ///   into a graph.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceBuffer, DeviceCsr, Spmm};
    ///
    /// let (device, a) = (Device::best()?, Csr::from_dense(2, 2, &[1.0f32, 2.0, 3.0, 0.0])?);
    /// let stream = device.stream();
    /// let at = DeviceCsr::from_host(&device, &a)?.transposed(&stream)?;
    /// let mut plan = Spmm::builder(at.matrix()).width(1).values_from_device().build_on(&stream)?;
    /// assert_eq!(plan.run(&[1.0, 10.0])?, [31.0, 2.0]);
    ///
    /// let new = DeviceBuffer::from_slice(&device, &[5.0f32, 6.0, 7.0])?; // A = [5 6; 7 .]
    /// let mut of_transpose = DeviceBuffer::alloc_zeroed(&device, 3)?;
    /// at.values_on(&stream, &new, &mut of_transpose)?;
    /// plan.replace_values_on(&stream, &of_transpose)?;
    /// assert_eq!(plan.run(&[1.0, 10.0])?, [75.0, 6.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn values_on<'f, 't, W: Value>(
        &self,
        on: &Stream,
        values: impl Into<DeviceSlice<'f, W>>,
        to: impl Into<DeviceSliceMut<'t, W>>,
    ) -> Result<(), PlanError> {
        let (values, to) = (values.into(), to.into());
        let DeviceCsr { device, nnz, .. } = &self.matrix;
        check_device("the stream", on.device(), device)?;
        check_device("the values", values.device(), device)?;
        check_device("the place of the values", to.device(), device)?;
        check_count("the values", values.len(), *nnz)?;
        check_count("the place of the values", to.len(), *nnz)?;
        if device.machine().is_none() {
            let (order, values) = (self.order.host().unwrap_or_default(), values.host().unwrap_or_default());
            for (to, &entry) in to.into_host().unwrap_or_default().iter_mut().zip(order) {
                *to = values[entry as usize];
            }
            return Ok(());
        }
        if wide(*nnz) > MAX_INDEX {
            let (what, remedy) = ("entries of a transpose", "cut the matrix");
            return Err(PlanError::TooLarge { what, found: wide(*nnz), limit: MAX_INDEX, remedy });
        }
        let params = TransposeEntriesParams {
            order: self.order.pointer(),
            columns: GlobalPtr::NULL,
            rows: GlobalPtr::NULL,
            values: GlobalPtr::from_address(values.address()),
            out_offsets: GlobalPtr::NULL,
            out_rows: GlobalPtr::NULL,
            out_values: GlobalPtr::from_address(to.address()),
            entries: narrow(*nnz),
            cols: 0,
            value_bytes: bytes_of::<W>(),
            reserved: 0,
        };
        let entry = entry_of(Variant::TransposeEntries)?;
        On::of(on, device, true)?.run([entry], |queue| {
            // SAFETY: values and places were counted, the order is that of a transposition; of borrowed memory the
            // slices were promised that it lives, windrow's is freed after the work, which `On::run` orders with its
            // own stream.
            unsafe { start(queue, entry, wide(*nnz), 1, &params) }
        })?;
        Ok(())
    }
}

/// Bytes of a value, as kernels are told.
fn bytes_of<T: Pod>() -> u32 {
    narrow(size_of::<T>())
}

impl<V: Value> DeviceCsr<'_, V> {
    /// `Aᵀ` where `A` is, in the order of a stream: after what that was asked for so far. The arrays of `A` may be
    /// written or freed by what that is asked for later. Offsets have 64 bits then and columns 32; values are of the
    /// same type, or none.
    ///
    /// The arrays are those of [`Csr::transpose`](windrow_formats::Csr::transpose) on the host, the order is that of
    /// [`Csr::transpose_order`](windrow_formats::Csr::transpose_order).
    ///
    /// # Cost
    /// On a GPU one launch for up to 65,536 entries. For more, entries are divided among ranges of columns and each
    /// range is sorted in shared memory: five launches, 12 bytes for each entry and some for each column until it is
    /// done. Of more than 2²⁰ columns a stable sort by column instead: three launches for each nine bits of a column
    /// and two more, 16 bytes for each entry. Nothing is waited for if the matrix was [checked](Self::checked), else
    /// once. On the CPU, and of 2³¹ rows, columns or entries, it is made on the host.
    ///
    /// # Errors
    /// Those of [`checked`](Self::checked); [`DeviceError::OutOfMemory`](crate::DeviceError::OutOfMemory).
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, DeviceCsr, Spmm};
    ///
    /// let (device, a) = (Device::best()?, Csr::from_dense(2, 3, &[0.0f32, 5.0, 6.0, 7.0, 8.0, 0.0])?);
    /// let at = DeviceCsr::from_host(&device, &a)?.transposed(&device.stream())?;
    /// assert_eq!(at.matrix().to_host(&device.stream())?, a.transpose()?);
    /// assert_eq!(at.order().to_vec()?, [2, 0, 3, 1]);
    ///
    /// let plan = Spmm::builder(at.matrix()).width(1).build_on(&device.stream())?;
    /// assert_eq!(plan.run(&[1.0, 10.0])?, [70.0, 85.0, 6.0]); // Aᵀ·B
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transposed(&self, on: &Stream) -> Result<Transposed<V>, PlanError> {
        check_device("the stream", on.device(), &self.device)?;
        // Entries without a row are told on the host.
        let is_there = self.cols < index(u64::from(MOST_ITEMS)) && (self.rows > 0 || self.nnz == 0);
        match self.device.machine() {
            Some(_) if self.fits_kernels() && is_there => {
                self.transpose_there(&On::of(on, &self.device, false)?)
            }
            _ => {
                let a = self.to_host(on)?;
                let order = a.transpose_order()?;
                let order = DeviceBuffer::named(&self.device, order.new_to_old(), WHAT)?;
                Ok(Transposed { matrix: DeviceCsr::from_host(&self.device, &a.transpose()?)?, order })
            }
        }
    }

    fn transpose_there(&self, on: &On<'_>) -> Result<Transposed<V>, PlanError> {
        self.transpose_by(on, Way::of(self.cols, self.nnz))
    }

    /// The transpose by a way.
    pub(super) fn transpose_by(&self, on: &On<'_>, way: Way) -> Result<Transposed<V>, PlanError> {
        let record = match self.known {
            Some(_) => None,
            None => Some(self.look(on, false)?),
        };
        on.before_own()?;
        let device = &self.device;
        let values = match self.arrays().values {
            Some(_) => Some(DeviceBuffer::<V>::alloc(device, self.nnz, "values")?),
            None => None,
        };
        let offsets = DeviceBuffer::alloc(device, self.cols + 1, "row_offsets")?;
        let columns = DeviceBuffer::alloc(device, self.nnz, "col_indices")?;
        let to = Transposed {
            matrix: DeviceCsr::of_owned((self.cols, self.rows), OwnedCsr { offsets, columns, values }, None),
            order: DeviceBuffer::alloc(device, self.nnz, WHAT)?,
        };
        let Arrays { offsets: out_offsets, columns: out_rows, values: out_values } = to.matrix.arrays();
        let arrays = self.arrays();
        let address_of = |values: Option<DeviceSlice<'_, V>>| {
            values.map_or(GlobalPtr::NULL, |values| GlobalPtr::from_address(values.address()))
        };
        let transposition = Transposition {
            device,
            own: &**on.machine.own(),
            rows: narrow(self.rows),
            cols: self.cols,
            nnz: self.nnz,
            offsets: arrays.offsets,
            columns: arrays.columns,
            values: address_of(arrays.values),
            value_bytes: bytes_of::<V>(),
            out: TransposeOut {
                offsets: GlobalPtr::from_address(out_offsets.address()),
                order: to.order.pointer(),
                rows: GlobalPtr::from_address(out_rows.address()),
                values: address_of(out_values),
            },
        };
        // SAFETY: the arrays of the matrix have the lengths that were checked when it was made, in memory that lives as
        // long as it does, and whatever they hold, kernels stay inside them; the others have the room that the kernels
        // ask for, and are freed after the work. There is a row if there are entries.
        let queued = unsafe { transposition.queue(way) };
        // Whoever writes or frees the arrays in the order of the stream does so after they were read.
        let ordered = on.after_own();
        queued?;
        ordered?;
        if let Some(record) = record {
            self.found(on, &record)?;
        }
        Ok(to)
    }
}

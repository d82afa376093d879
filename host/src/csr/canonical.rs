//! Canonical form, brought about where the matrix is.

use windrow_formats::Value;
use windrow_kernels::Variant;
use windrow_kernels::csr::CanonicalParams;
use windrow_kernels::place_values::code;
use windrow_simt::GlobalPtr;

use super::receive::{entry_of, given};
use super::transposition::expand_rows;
use super::{DeviceCsr, Key, Known, Ordered, OwnedCsr};
use crate::device::{DeviceBuffer, Queue, Stream};
use crate::error::{DeviceError, PlanError};
use crate::num::{narrow, wide};
use crate::plan::{On, check_device, start};
use crate::sort::Sort;
use crate::spmm::Scratch;

/// What arrays that live until rows are sorted are called where there is no memory for them.
const WHAT: &str = "rows to be sorted";

impl<V: Value> DeviceCsr<'_, V> {
    /// The matrix with columns that strictly ascend in each row, where they need not: entries are sorted, and those of
    /// one place added in the order in which they came. In the order of a stream, like
    /// [`transposed`](Self::transposed).
    ///
    /// The arrays are those of [`Csr::try_from_parts`](windrow_formats::Csr::try_from_parts) on the host, bit for bit,
    /// but for what a value that is not a number says beside that. f16 and bf16 are added in f32 and rounded after each
    /// addition, as there. Of a matrix without values the sums are the numbers of entries.
    ///
    /// # Cost
    /// On a GPU a check, which is waited for; a copy if the matrix is canonical as it is. Else two stable sorts, by
    /// column and by row, and another wait for the number of sums; 24 to 32 bytes for each entry until it is done.
    /// A place with many entries is one thread's. On the CPU, and of 2³¹ rows or entries, it is made on the host.
    ///
    /// # Errors
    /// - [`PlanError::Format`] with the first row and entry that are wrong:
    ///   [`FormatError::FirstOffset`](windrow_formats::FormatError::FirstOffset),
    ///   [`FormatError::OffsetsDecrease`](windrow_formats::FormatError::OffsetsDecrease),
    ///   [`FormatError::LastOffset`](windrow_formats::FormatError::LastOffset),
    ///   [`FormatError::ColumnOutOfRange`](windrow_formats::FormatError::ColumnOutOfRange);
    /// - [`PlanError::WrongDevice`] for a stream of another device;
    /// - [`PlanError::Device`]: [`DeviceError::Captured`] for a stream that is captured,
    ///   [`DeviceError::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// use windrow::{Device, DeviceBuffer, DeviceCsr};
    ///
    /// let device = Device::best()?;
    /// let offsets = DeviceBuffer::from_slice(&device, &[0i32, 3])?;
    /// let columns = DeviceBuffer::from_slice(&device, &[2i32, 0, 2])?;
    /// let values = DeviceBuffer::from_slice(&device, &[1.0f32, 5.0, 2.0])?;
    /// let a = DeviceCsr::new(1, 4, &offsets, &columns, &values)?.canonical(&device.stream())?;
    /// let a = a.to_host(&device.stream())?;
    /// assert_eq!((a.col_indices(), a.values()), (&[0, 2][..], &[5.0, 3.0][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn canonical(&self, on: &Stream) -> Result<DeviceCsr<'static, V>, PlanError> {
        check_device("the stream", on.device(), &self.device)?;
        let is_there = given::<V>().is_some() && self.fits_kernels() && (self.rows > 0 || self.nnz == 0);
        match self.device.machine() {
            Some(_) if is_there => self.canonical_there(&On::of(on, &self.device, false)?),
            _ => DeviceCsr::from_host(&self.device, &self.canonical_on_host(on)?),
        }
    }

    fn canonical_there(&self, on: &On<'_>) -> Result<DeviceCsr<'static, V>, PlanError> {
        let record = match self.known {
            Some(known) => known.record,
            None => self.look(on, false)?.to_vec()?.first().copied().unwrap_or_default(),
        };
        if record.wrong_offsets != 0 || record.wrong_columns != 0 {
            return Err(self.fault(on.stream)?.unwrap_or(PlanError::MatrixChanged));
        }
        on.before_own()?;
        let made = match record.is_canonical() {
            true => {
                let known = self.known.unwrap_or(Known { record, columns_counted: false });
                self.copied(on, known)
            }
            false => self.sorted(on),
        };
        // Whoever writes or frees the arrays in the order of the stream does so after they were read.
        let ordered = on.after_own();
        let made = made?;
        ordered?;
        Ok(made)
    }

    /// A copy of what is canonical.
    fn copied(&self, on: &On<'_>, known: Known) -> Result<DeviceCsr<'static, V>, PlanError> {
        let to = self.room_for(self.nnz, self.arrays().values.is_some(), Some(known))?;
        let params = self.params(GlobalPtr::NULL, GlobalPtr::NULL, Some(&to));
        // SAFETY: the arrays were checked, and there is room for as many entries.
        unsafe { self.queue_sums(&**on.machine.own(), &params)? };
        Ok(to)
    }

    /// What is made of entries in any order.
    fn sorted(&self, on: &On<'_>) -> Result<DeviceCsr<'static, V>, PlanError> {
        let (own, nnz) = (&**on.machine.own(), self.nnz);
        let (columns, bits) = (self.arrays().columns, [self.cols, self.rows].map(Sort::bits_below));
        let scratch = Scratch::new(&self.device, 4 * (2 * wide(nnz) + Ordered::words(nnz, bits)) + 4096)?;
        let array = || scratch.array::<u32>(nnz, WHAT);
        let (rows, marks) = (array()?, array()?);
        let by_column = Key {
            indices: GlobalPtr::from_address(columns.address()),
            words: if columns.is_wide() { 2 } else { 1 },
            bits: bits[0],
        };
        let by_row = Key { indices: rows, words: 1, bits: bits[1] };
        // SAFETY: the arrays of the matrix were checked, which is not empty; there is room for all of its entries.
        let Ordered { order, sorted: sorted_rows } = unsafe {
            expand_rows(own, self.arrays().offsets, narrow(self.rows), narrow(nnz), rows)?;
            Ordered::by(&scratch, own, [by_column, by_row], nnz)?
        };
        let mut params = CanonicalParams { rows: sorted_rows, marks, ..self.params(order, marks, None) };
        // SAFETY: as above.
        let sums = unsafe {
            start(own, entry_of(Variant::MarkDistinct)?, wide(nnz), 1, &params)?;
            params.places = scratch.array(nnz + 1, WHAT)?;
            scratch.scan(marks, narrow(nnz), false, params.places)?;
            scratch.read(params.places.at(narrow(nnz)), 1)?
        };
        let to = self.room_for(sums.first().map_or(0, |&sums| sums as usize), true, None)?;
        let params = CanonicalParams {
            rows: sorted_rows,
            places: params.places,
            ..self.params(order, marks, Some(&to))
        };
        // SAFETY: as above; there is room for each sum.
        unsafe { self.queue_sums(own, &params)? };
        Ok(to)
    }

    /// A matrix of the same shape to be written.
    fn room_for(
        &self,
        nnz: usize,
        has_values: bool,
        known: Option<Known>,
    ) -> Result<DeviceCsr<'static, V>, DeviceError> {
        let device = &self.device;
        let values = match has_values {
            true => Some(DeviceBuffer::alloc(device, nnz, "values")?),
            false => None,
        };
        let offsets = DeviceBuffer::alloc(device, self.rows + 1, "row_offsets")?;
        let columns = DeviceBuffer::alloc(device, nnz, "col_indices")?;
        Ok(DeviceCsr::of_owned((self.rows, self.cols), OwnedCsr { offsets, columns, values }, known))
    }

    fn params(
        &self,
        order: GlobalPtr<u32>,
        marks: GlobalPtr<u32>,
        to: Option<&DeviceCsr<'static, V>>,
    ) -> CanonicalParams {
        let arrays = self.arrays();
        let to = to.map(DeviceCsr::arrays);
        let address = |address: Option<u64>| GlobalPtr::from_address(address.unwrap_or(0));
        CanonicalParams {
            order,
            rows: GlobalPtr::NULL,
            columns: address(Some(arrays.columns.address())),
            values: address(arrays.values.map(|values| values.address())),
            marks,
            places: GlobalPtr::NULL,
            offsets: address(Some(arrays.offsets.address())),
            out_offsets: address(to.map(|to| to.offsets.address())).cast(),
            out_columns: address(to.map(|to| to.columns.address())),
            out_values: address(to.and_then(|to| to.values).map(|values| values.address())),
            entries: narrow(self.nnz),
            row_count: narrow(self.rows),
            column_words: if arrays.columns.is_wide() { 2 } else { 1 },
            wide_offsets: arrays.offsets.is_wide().into(),
            given: given::<V>().map_or(0, code), // all matrices here have a type that kernels take
            reserved: 0,
        }
    }

    /// # Safety
    /// The arrays have the lengths that the kernel asks for.
    unsafe fn queue_sums(&self, own: &dyn Queue, params: &CanonicalParams) -> Result<(), DeviceError> {
        let units = wide(self.nnz.max(self.rows + 1));
        // SAFETY: the caller's promise.
        unsafe { start(own, entry_of(Variant::SumEntries)?, units, 1, params) }
    }
}

//! A matrix brought to the form in which plans keep it, by one kernel that checks it on the way.

use bytemuck::Zeroable;
use half::{bf16, f16};
use windrow_formats::Value;
use windrow_kernels::csr::{COLUMNS_IN_USE_AT, CsrRecord, MarkColumnsParams, ReadCsr, ReadCsrParams};
use windrow_kernels::merge_based::MergeBasedParams;
use windrow_kernels::place_values::code;
use windrow_kernels::preprocess::MOST_ITEMS;
use windrow_kernels::{Dtype, Variant};
use windrow_simt::GlobalPtr;

use super::{DeviceCsr, Known};
use crate::device::{DeviceBuffer, Queue, SharedBlock};
use crate::error::{DeviceError, PlanError};
use crate::num::{index, narrow, wide};
use crate::options::Precision;
use crate::plan::{Exceptions, On, middle, rows_at_once, start};

/// Entries are read in groups of as many, with zeros behind the last.
const PADDING: usize = 32;

/// A matrix in canonical form, in memory of its own on a device that runs kernels.
pub(crate) struct Received {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) nnz: usize,
    pub(crate) dtype: Dtype,
    pub(crate) row_offsets: DeviceBuffer<u32>,
    /// Column of each entry, and zeros behind, to a multiple of 32.
    pub(crate) col_indices: DeviceBuffer<u32>,
    /// Rounded value of each entry, and zeros behind.
    pub(crate) values: DeviceBuffer<u8>,
    pub(crate) record: CsrRecord,
    /// What became of the values, where nobody has waited for that.
    pub(crate) unread: Option<DeviceBuffer<CsrRecord>>,
}

/// What the one who receives a matrix wants to know of it.
pub(crate) struct Wanted {
    pub(crate) precision: Precision,
    /// Whether only the pattern is: values are 1 then, whatever the matrix has.
    pub(crate) pattern: bool,
    /// Whether entries end where the matrix's do, without zeros behind.
    pub(crate) unpadded: bool,
    /// Whether the distinct columns of the rows in the middle are counted, of those that a device works on at the same
    /// time.
    pub(crate) columns: bool,
    /// Whether what becomes of the values decides something.
    pub(crate) exceptions: bool,
    /// What has been found out since the matrix was made, if something has.
    pub(crate) known: Option<Known>,
}

impl Received {
    /// What became of the values.
    pub(crate) fn exceptions(&self) -> Exceptions {
        let CsrRecord { overflowed, non_finite, not_numbers, .. } = self.record;
        Exceptions {
            overflowed: u64::from(overflowed),
            non_finite: u64::from(non_finite),
            not_numbers: u64::from(not_numbers),
        }
    }
}

/// Where what was read is written.
pub(super) struct Outputs {
    row_offsets: DeviceBuffer<u32>,
    col_indices: DeviceBuffer<u32>,
    values: DeviceBuffer<u8>,
    dtype: Dtype,
    /// Whether values are 1, whatever the matrix has.
    pattern: bool,
}

impl<V: Value> DeviceCsr<'_, V> {
    /// Whether kernels can count the rows and the entries.
    pub(super) fn fits_kernels(&self) -> bool {
        let most = index(u64::from(MOST_ITEMS - ReadCsr::PER_BLOCK));
        self.rows < most && self.nnz < most
    }

    /// Why the pattern cannot be [received](Self::receive), if so.
    pub(crate) fn pattern_cannot_be_received(&self) -> Option<&'static str> {
        (!self.fits_kernels()).then_some("it has 2³¹ rows or entries")
    }

    /// Why the matrix cannot be [received](Self::receive), if so.
    pub(crate) fn cannot_be_received(&self) -> Option<&'static str> {
        let of_type = || given::<V>().is_none().then_some("kernels do not read values of its type");
        self.pattern_cannot_be_received().or_else(of_type)
    }

    /// The matrix with its values rounded to a precision, after what the stream was asked for before, and before what
    /// it is asked for later. What is received is the plan's, made in the order of the device's own stream.
    ///
    /// # Errors
    /// Those of [`checked`](Self::checked), and [`DeviceError::OutOfMemory`].
    pub(crate) fn receive(
        &self,
        on: &On<'_>,
        Wanted { precision, pattern, unpadded, columns, exceptions, known }: Wanted,
    ) -> Result<Received, PlanError> {
        let (device, dtype) = (&self.device, precision.dtype());
        let padded = if unpadded { self.nnz } else { self.nnz.next_multiple_of(PADDING) };
        let value_bytes = padded * dtype.bytes() as usize;
        let sizes = [4 * (self.rows + 1), 4 * padded, value_bytes, size_of::<CsrRecord>()];
        let mut block = SharedBlock::new(device, sizes.map(wide), "a matrix")?;
        let outputs = Outputs {
            row_offsets: block.part(device, self.rows + 1, "row_offsets")?,
            col_indices: block.part(device, padded, "col_indices")?,
            values: block.part(device, value_bytes, "values")?,
            dtype,
            pattern,
        };
        let unread = block.part(device, 1, "a record of a matrix")?;
        let known = known.or(self.known).filter(|known| !exceptions && (!columns || known.columns_counted));
        self.launch(on, Some(&outputs), columns && known.is_none(), &unread)?;
        let (record, unread) = match known {
            Some(known) => (known.record, Some(unread)),
            None => (self.found(on, &unread)?, None),
        };
        let Outputs { row_offsets, col_indices, values, dtype, .. } = outputs;
        let (rows, cols, nnz) = (self.rows, self.cols, self.nnz);
        Ok(Received { rows, cols, nnz, dtype, row_offsets, col_indices, values, record, unread })
    }

    /// Checks the matrix without a copy.
    pub(super) fn inspect(&self, on: &On<'_>) -> Result<CsrRecord, PlanError> {
        let record = self.look(on, true)?;
        self.found(on, &record)
    }

    /// Starts the kernel without a copy, and the count of columns if it is wanted; they leave a record.
    pub(super) fn look(&self, on: &On<'_>, columns: bool) -> Result<DeviceBuffer<CsrRecord>, PlanError> {
        let record = DeviceBuffer::alloc(&self.device, 1, "a record of a matrix")?;
        self.launch(on, None, columns, &record)?;
        Ok(record)
    }

    /// Starts the kernel, which leaves a record.
    fn launch(
        &self,
        on: &On<'_>,
        outputs: Option<&Outputs>,
        columns: bool,
        record: &DeviceBuffer<CsrRecord>,
    ) -> Result<(), PlanError> {
        on.before_own()?;
        let own = &**on.machine.own();
        record.clear_in(own)?;
        let mut params = self.read_params();
        params.record = record.pointer();
        if let Some(to) = outputs {
            params.out_offsets = to.row_offsets.pointer();
            params.out_columns = to.col_indices.pointer();
            params.out_values = to.values.pointer().cast();
            params.padded = narrow(to.col_indices.len());
            params.dtype = code(to.dtype);
            if to.pattern {
                (params.values, params.given) = (GlobalPtr::NULL, code(Dtype::F32));
            }
        }
        let entry = entry_of(Variant::ReadCsr)?;
        let units = wide(self.rows.max(self.nnz) + PADDING); // the end of the offsets, and the zeros behind
        // SAFETY: the arrays have the lengths that were checked when the matrix was made, in memory that lives as long
        // as it does and is written by nothing that is not ordered with the stream, which the own one was told to come
        // after; outputs and record have the room that the kernel asks for.
        unsafe { start(own, entry, units, 1, &params)? };
        if columns {
            self.count_columns(own, params.wide_indices, record)?;
        }
        // Whoever writes or frees the arrays in the order of the stream does so after they were read.
        Ok(on.after_own()?)
    }

    /// What a kernel is told of the matrix; it writes nothing yet.
    pub(super) fn read_params(&self) -> ReadCsrParams {
        let arrays = self.arrays();
        let pointer = |address: u64| GlobalPtr::from_address(address);
        let wide_indices = u32::from(arrays.offsets.is_wide()) * ReadCsrParams::WIDE_OFFSETS
            + u32::from(arrays.columns.is_wide()) * ReadCsrParams::WIDE_COLUMNS;
        let given = code(self.given_dtype());
        ReadCsrParams {
            offsets: pointer(arrays.offsets.address()),
            columns: pointer(arrays.columns.address()),
            values: arrays.values.map_or(GlobalPtr::NULL, |values| pointer(values.address())),
            rows: narrow(self.rows),
            cols: narrow(self.cols),
            entries: narrow(self.nnz),
            padded: narrow(self.nnz),
            wide_indices,
            given,
            dtype: given,
            ..ReadCsrParams::zeroed()
        }
    }

    /// Whether kernels read its values.
    pub(crate) fn is_read_by_kernels(&self) -> bool {
        given::<V>().is_some()
    }

    /// What kernels of a product without a plan are told of the matrix.
    pub(crate) fn merge_based_params(&self) -> MergeBasedParams {
        MergeBasedParams { read: self.read_params(), ..MergeBasedParams::zeroed() }
    }

    /// The type of the values as kernels are given it; f32 if there are none.
    pub(super) fn given_dtype(&self) -> Dtype {
        let values = self.arrays().values;
        values.and_then(|_| given::<V>()).unwrap_or(Dtype::F32)
    }

    /// What a record says, of a matrix in canonical form.
    pub(super) fn found(
        &self,
        on: &On<'_>,
        record: &DeviceBuffer<CsrRecord>,
    ) -> Result<CsrRecord, PlanError> {
        let found = record.to_vec()?.first().copied().unwrap_or_else(CsrRecord::zeroed);
        match found.is_canonical() {
            true => Ok(found),
            // What is wrong the host finds out; nothing, if the arrays have changed meanwhile.
            false => Err(self.fault(on.stream)?.unwrap_or(PlanError::MatrixChanged)),
        }
    }
}

impl<V: Value> DeviceCsr<'_, V> {
    /// Counts the distinct columns of the rows in the middle, of a matrix that may be wrong.
    fn count_columns(
        &self,
        own: &dyn Queue,
        wide_indices: u32,
        record: &DeviceBuffer<CsrRecord>,
    ) -> Result<(), DeviceError> {
        let marks = DeviceBuffer::<u32>::zeroed(&self.device, self.cols, "columns in use")?;
        let rows = middle(self.rows, rows_at_once(&self.device));
        let arrays = self.arrays();
        let params = MarkColumnsParams {
            row_offsets: GlobalPtr::from_address(arrays.offsets.address()),
            columns: GlobalPtr::from_address(arrays.columns.address()),
            marks: marks.pointer(),
            count: record.pointer().byte_add(COLUMNS_IN_USE_AT).cast(),
            entries: narrow(self.nnz),
            first_row: narrow(rows.start),
            end_row: narrow(rows.end),
            cols: narrow(self.cols),
            wide_indices,
            reserved: 0,
        };
        let entry = entry_of(Variant::MarkColumns)?;
        // SAFETY: the arrays have the rows and entries, as for `launch`; whatever they hold, columns that are none are
        // left out; there is a mark for each column, whose memory is freed after the work.
        unsafe { start(own, entry, wide(self.nnz), 1, &params) }
    }
}

/// The type of values as kernels are given it.
pub(crate) fn given<V: Value>() -> Option<Dtype> {
    use std::any::TypeId;
    let is = |other: TypeId| TypeId::of::<V>() == other;
    match () {
        () if is(TypeId::of::<f32>()) => Some(Dtype::F32),
        () if is(TypeId::of::<f64>()) => Some(Dtype::F64),
        () if is(TypeId::of::<f16>()) => Some(Dtype::F16),
        () if is(TypeId::of::<bf16>()) => Some(Dtype::Bf16),
        () => None,
    }
}

/// The entry of a kernel that every GPU has.
pub(super) fn entry_of(variant: Variant) -> Result<&'static windrow_kernels::Entry, DeviceError> {
    windrow_kernels::entry(variant).ok_or(DeviceError::MissingEntry { name: "a kernel that reads a matrix" })
}

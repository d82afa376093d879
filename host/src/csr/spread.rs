//! A matrix that was checked as row-split takes it, by one kernel that nobody waits for.

use windrow_formats::Value;
use windrow_kernels::csr::{CsrRecord, SpreadCsr, SpreadCsrParams};
use windrow_kernels::place_values::code;
use windrow_kernels::preprocess::MOST_ITEMS;
use windrow_kernels::{Dtype, Variant};
use windrow_simt::GlobalPtr;

use super::receive::entry_of;
use super::{DeviceCsr, Known, Received};
use crate::device::{DeviceBuffer, SharedBlock};
use crate::error::PlanError;
use crate::num::{narrow, wide};
use crate::options::Precision;
use crate::plan::{On, start};

/// Where rows are cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CutAt {
    /// A row of more entries is cut.
    pub(crate) limit: u32,
    /// Entries of the longest piece.
    pub(crate) piece: u32,
    /// Whether the pieces of a row share a slot.
    pub(crate) shared: bool,
}

impl CutAt {
    /// The longest piece whose places follow from offsets.
    const MOST_PIECE: u32 = u32::MAX / 3;
    /// Where no row is so long.
    pub(crate) const NEVER: Self = Self { limit: u32::MAX, piece: Self::MOST_PIECE, shared: false };

    /// Whether no row is.
    pub(crate) fn is_never(self) -> bool {
        self.limit == u32::MAX
    }

    /// Whether the pieces of each row that is cut have places without being counted.
    pub(crate) fn can_be_spread(self) -> bool {
        !self.shared
            && (1..=Self::MOST_PIECE).contains(&self.piece)
            && self.limit >= self.piece.saturating_add(self.piece / 2)
    }
}

/// Rows cut into segments at places that follow from their offsets, of which rows leave some empty.
pub(crate) struct SpreadSegments {
    pub(crate) segments: DeviceBuffer<[u32; 4]>,
    /// Places of rows that are cut, those of many slots first.
    pub(crate) cut_rows: DeviceBuffer<[u32; 4]>,
    /// How many are for rows of many slots.
    pub(crate) wide_rows: u32,
    pub(crate) slots: u32,
}

impl<V: Value> DeviceCsr<'_, V> {
    /// What was found out by a check.
    pub(crate) fn known(&self) -> Option<Known> {
        self.known
    }

    /// What a check finds out now.
    ///
    /// # Errors
    /// Those of [`checked`](Self::checked).
    pub(crate) fn find_out(&self, on: &On<'_>) -> Result<Known, PlanError> {
        Ok(Known { record: self.inspect(on)?, columns_counted: true })
    }

    /// Whether one launch has threads for all rows and entries.
    pub(crate) fn can_be_spread(&self) -> bool {
        SpreadCsr::units(wide(self.rows), wide(self.nnz)) < u64::from(MOST_ITEMS)
    }

    /// The entries, of which nothing is behind the last, without offsets, and the rows cut into segments: after what
    /// the stream was asked for before, and before what it is asked for later.
    ///
    /// The matrix was checked and [can be received](Self::cannot_be_received) and [spread](Self::can_be_spread), and so
    /// can the [cuts](CutAt::can_be_spread).
    pub(crate) fn spread(
        &self,
        on: &On<'_>,
        precision: Precision,
        record: CsrRecord,
        CutAt { limit, piece, .. }: CutAt,
    ) -> Result<(Received, SpreadSegments), PlanError> {
        on.before_own()?;
        let (device, dtype) = (&self.device, precision.dtype());
        let mut params = SpreadCsrParams {
            read: self.read_params(),
            segments: GlobalPtr::NULL,
            cut_rows: GlobalPtr::NULL,
            limit,
            piece,
        };
        params.read.dtype = code(dtype);
        let value_bytes = self.nnz * dtype.bytes() as usize;
        let (segment_count, cut_count) = (params.segments() as usize, params.cut_rows() as usize);
        let found_bytes = if self.may_overflow(dtype) { size_of::<CsrRecord>() } else { 0 };
        let sizes = [4 * self.nnz, value_bytes, 16 * segment_count, 16 * cut_count, found_bytes];
        let mut block = SharedBlock::new(device, sizes.map(wide), "segments")?;
        let col_indices = block.part(device, self.nnz, "col_indices")?;
        let values = block.part(device, value_bytes, "values")?;
        let segments = block.part(device, segment_count, "segments")?;
        let cut_rows = block.part(device, cut_count, "split_rows")?;
        let own = &**on.machine.own();
        let unread = match found_bytes {
            0 => None,
            _ => {
                let unread = block.part::<CsrRecord>(device, 1, "a record of a matrix")?;
                unread.clear_in(own)?;
                params.read.record = unread.pointer();
                Some(unread)
            }
        };
        params.read.out_columns = col_indices.pointer();
        params.read.out_values = values.pointer().cast();
        (params.segments, params.cut_rows) = (segments.pointer(), cut_rows.pointer());
        let units = SpreadCsr::units(wide(self.rows), wide(self.nnz));
        // SAFETY: the arrays are those of a matrix that was checked, in memory that lives as long as it does and is
        // written by nothing; outputs have the room that the params say, and the record is zero.
        unsafe { start(own, entry_of(Variant::SpreadCsr)?, units, 1, &params)? };
        on.after_own()?;
        let (rows, cols, nnz) = (self.rows, self.cols, self.nnz);
        let row_offsets = DeviceBuffer::alloc(device, 0, "row_offsets")?;
        let received = Received { rows, cols, nnz, dtype, row_offsets, col_indices, values, record, unread };
        let (wide_rows, slots) = (params.wide_rows(), params.slots(narrow(nnz)));
        Ok((received, SpreadSegments { segments, cut_rows, wide_rows, slots }))
    }

    /// Whether a finite value may be infinite in another type.
    fn may_overflow(&self, dtype: Dtype) -> bool {
        let given = self.given_dtype();
        let holds_all = dtype == given || dtype == Dtype::F64 || dtype == Dtype::F32 && given != Dtype::F64;
        self.arrays().values.is_some() && !holds_all
    }
}

//! A matrix that is on the device: what choices look at, and its rows cut into segments.

use windrow_formats::Permutation;
use windrow_kernels::Variant;
use windrow_kernels::csr::{
    Collect, CollectParams, CountPiecesParams, MarkColumnsParams, WriteSegmentsParams,
};
use windrow_simt::GlobalPtr;

use super::scratch::Scratch;
use crate::csr::Received;
use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{narrow, wide};
use crate::spmm::layout::{CsrArrays, Matrix};
use crate::spmm::part::CutList;

impl Matrix for Received {
    fn rows(&self) -> usize {
        self.rows
    }

    fn cols(&self) -> usize {
        self.cols
    }

    fn nnz(&self) -> usize {
        self.nnz
    }

    fn columns_in_use(
        &self,
        device: &Device,
        order: Option<&Permutation>,
        rows: usize,
    ) -> Result<usize, DeviceError> {
        debug_assert!(order.is_none(), "a matrix that is received keeps its order");
        let first = self.rows.saturating_sub(rows) / 2;
        let end = self.rows.min(first + rows);
        if self.nnz == 0 {
            return Ok(0);
        }
        let scratch = Scratch::new(device, 0)?;
        let marks = DeviceBuffer::<u32>::zeroed(device, self.cols, "columns in use")?;
        let ranks = scratch.array::<u32>(self.cols + 1, "columns in use")?;
        let params = MarkColumnsParams {
            row_offsets: self.row_offsets.pointer(),
            columns: self.col_indices.pointer(),
            marks: marks.pointer(),
            entries: narrow(self.nnz),
            first_row: narrow(first),
            end_row: narrow(end),
            reserved: 0,
        };
        let cols = narrow(self.cols);
        // SAFETY: the matrix was checked; there is a mark for each column, and one more sum.
        let found = unsafe {
            scratch.launch(Variant::MarkColumns, wide(self.nnz), &params)?;
            scratch.scan(marks.pointer(), cols, true, ranks)?;
            scratch.read(ranks.at(cols), 1)?
        };
        Ok(found.first().map_or(0, |&count| count as usize))
    }

    fn arrays(&self, scratch: &Scratch) -> Result<CsrArrays, DeviceError> {
        scratch.hold_values(self.values.pointer().cast());
        Ok(CsrArrays { row_offsets: self.row_offsets.pointer(), col_indices: self.col_indices.pointer() })
    }
}

/// Where rows are cut.
#[derive(Debug, Clone, Copy)]
pub(in crate::spmm) struct CutAt {
    /// A row of more entries is cut.
    pub(in crate::spmm) limit: u32,
    /// Entries of the longest piece.
    pub(in crate::spmm) piece: u32,
    /// Whether the pieces of a row share a slot.
    pub(in crate::spmm) shared: bool,
}

/// Rows as segments in device memory: what [`windrow_preprocess::balance::row_segments`] makes on the host.
pub(in crate::spmm) struct DeviceSegments {
    pub(in crate::spmm) segments: DeviceBuffer<[u32; 4]>,
    /// None if no row is cut.
    pub(in crate::spmm) cut: Option<CutList>,
    pub(in crate::spmm) slots: u32,
}

impl DeviceSegments {
    /// Cuts the rows of a matrix.
    pub(in crate::spmm) fn new(device: &Device, a: &Received, at: CutAt) -> Result<Self, DeviceError> {
        let scratch = Scratch::new(device, 0)?;
        let is_cut = a.record.longest > u64::from(at.limit);
        match is_cut {
            true => Self::cut(&scratch, a, at),
            false => Self::whole(&scratch, a),
        }
    }

    /// Every row is a segment.
    fn whole(scratch: &Scratch, a: &Received) -> Result<Self, DeviceError> {
        let segments = DeviceBuffer::alloc(scratch.device(), a.rows, "segments")?;
        let params = WriteSegmentsParams {
            row_offsets: a.row_offsets.pointer(),
            positions: GlobalPtr::NULL,
            first_slots: GlobalPtr::NULL,
            cut_ranks: GlobalPtr::NULL,
            wide_ranks: GlobalPtr::NULL,
            segments: segments.pointer(),
            cut_rows: GlobalPtr::NULL,
            rows: narrow(a.rows),
            count: narrow(a.rows),
            wide_count: 0,
            shared: 0,
        };
        // SAFETY: the offsets were checked; there is a segment for each row.
        unsafe { scratch.launch(Variant::WriteSegments, wide(a.rows), &params)? };
        Ok(Self { segments, cut: None, slots: 0 })
    }

    fn cut(
        scratch: &Scratch,
        a: &Received,
        CutAt { limit, piece, shared }: CutAt,
    ) -> Result<Self, DeviceError> {
        let (device, rows) = (scratch.device(), narrow(a.rows));
        let counted = |what| scratch.array::<u32>(a.rows, what);
        let summed = |what| scratch.array::<u32>(a.rows + 1, what);
        let of_rows = CountPiecesParams {
            row_offsets: a.row_offsets.pointer(),
            pieces: counted("pieces of rows")?,
            slots: counted("slots of rows")?,
            wide: counted("rows of many pieces")?,
            rows,
            limit,
            piece: piece.max(1),
            shared: u32::from(shared),
        };
        let mut write = WriteSegmentsParams {
            row_offsets: a.row_offsets.pointer(),
            positions: summed("first segments of rows")?,
            first_slots: summed("first slots of rows")?,
            cut_ranks: summed("ranks of cut rows")?,
            wide_ranks: summed("ranks of rows of many pieces")?,
            segments: GlobalPtr::NULL,
            cut_rows: GlobalPtr::NULL,
            rows,
            count: 0,
            wide_count: 0,
            shared: u32::from(shared),
        };
        let sums = [write.positions, write.first_slots, write.cut_ranks, write.wide_ranks];
        let totals = scratch.array::<u32>(Collect::MOST, "what was counted")?;
        let collect = CollectParams { from: sums.map(|sums| sums.at(rows)), to: totals };
        // SAFETY: the offsets were checked; the arrays have an element for each row, sums one more.
        let totals = unsafe {
            scratch.launch(Variant::CountPieces, u64::from(rows), &of_rows)?;
            scratch.scan(of_rows.pieces, rows, false, write.positions)?;
            scratch.scan(of_rows.slots, rows, false, write.first_slots)?;
            scratch.scan(of_rows.slots, rows, true, write.cut_ranks)?;
            scratch.scan(of_rows.wide, rows, false, write.wide_ranks)?;
            scratch.launch(Variant::Collect, 1, &collect)?;
            scratch.read(totals, Collect::MOST)?
        };
        let [count, slots, cut, wide_count] = totals[..] else { return Self::whole(scratch, a) };
        let segments = DeviceBuffer::alloc(device, count as usize, "segments")?;
        let cut_rows = DeviceBuffer::alloc(device, cut as usize, "split_rows")?;
        (write.segments, write.cut_rows) = (segments.pointer(), cut_rows.pointer());
        (write.count, write.wide_count) = (count, wide_count);
        // SAFETY: the sums are those of the counts, and there is room for what they add up to.
        unsafe { scratch.launch(Variant::WriteSegments, u64::from(count.max(rows)), &write)? };
        Ok(Self { segments, cut: Some(CutList { rows: cut_rows, wide: wide_count }), slots })
    }
}

//! A matrix that is on the device: what choices look at, and its rows cut into segments.

use bytemuck::Zeroable;
use windrow_formats::Permutation;
use windrow_kernels::Variant;
use windrow_kernels::csr::{CUT_ROWS, CutRowsParams, MarkOrderedParams, OrderSegmentsParams};
use windrow_kernels::preprocess::PlaceRowsParams;
use windrow_simt::GlobalPtr;

use super::condense::{Condensed, RowList, WindowCounts, place_pass};
use super::scratch::Scratch;
use crate::csr::{CutAt, Received, SpreadSegments};
use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{narrow, wide};
use crate::plan::middle;
use crate::spmm::layout::{CsrArrays, Matrix};
use crate::spmm::part::CutList;
use crate::spmm::tiles::WINDOW_ROWS;

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

    fn columns_in_use(&self, order: Option<&Permutation>, rows: usize) -> Result<usize, DeviceError> {
        let Some(order) = order else {
            return Ok(self.record.columns_in_use as usize); // counted when the matrix was read, of as many rows
        };
        let device = self.row_offsets.device();
        let looked_at = order.new_to_old().get(middle(self.rows, rows)).unwrap_or_default();
        let scratch = Scratch::new(device, 0)?;
        let marks = DeviceBuffer::<u32>::zeroed(device, self.cols + 1, "columns in use")?;
        let params = MarkOrderedParams {
            row_offsets: self.row_offsets.pointer(),
            columns: self.col_indices.pointer(),
            rows: scratch.array_from(looked_at, "rows that are looked at")?,
            marks: marks.pointer(),
            found: marks.pointer().at(narrow(self.cols)),
            count: narrow(looked_at.len()),
            reserved: 0,
        };
        // SAFETY: the matrix was checked, the rows are some of an order of it; there is a mark for each column, and a
        // number behind.
        let found = unsafe {
            scratch.launch(Variant::MarkOrdered, wide(looked_at.len()), &params)?;
            scratch.read(params.found, 1)?
        };
        Ok(found.first().map_or(0, |&found| found as usize))
    }

    fn arrays(&self, scratch: &Scratch) -> Result<CsrArrays, DeviceError> {
        scratch.hold_values(self.values.pointer().cast());
        Ok(CsrArrays { row_offsets: self.row_offsets.pointer(), col_indices: self.col_indices.pointer() })
    }
}

impl Condensed {
    /// The windows of a matrix that is on the device, of its rows with entries; nobody waits for them. For what is done
    /// with them, scratch memory has `entry_bytes` for each entry.
    pub(crate) fn of_received(device: &Device, a: &Received, entry_bytes: u64) -> Result<Self, DeviceError> {
        Self::new(device, a, None, WindowCounts::of_filled(a), entry_bytes)
    }

    /// The rows of these windows once more, in memory that a plan keeps.
    pub(crate) fn place_rows_in(&self, a: &Received, window_rows: GlobalPtr<u32>) -> Result<(), DeviceError> {
        let own = RowList { list: GlobalPtr::NULL, rows: a.rows, kinds: PlaceRowsParams::FULL };
        place_pass(&self.scratch, self.row_offsets, own, window_rows, WindowCounts::of_filled(a))
    }
}

impl WindowCounts {
    /// Windows of the rows with entries alone.
    pub(crate) fn of_filled(a: &Received) -> Self {
        let empty_rows = a.record.empty_rows as usize;
        Self { full: (a.rows - empty_rows).div_ceil(WINDOW_ROWS), empty: 0, all_full: empty_rows == 0 }
    }
}

/// Rows as segments in device memory: what [`windrow_preprocess::balance::row_segments`] makes on the host.
pub(in crate::spmm) struct DeviceSegments {
    pub(in crate::spmm) segments: DeviceBuffer<[u32; 4]>,
    /// None if no row is cut.
    pub(in crate::spmm) cut: Option<CutList>,
    pub(in crate::spmm) slots: u32,
}

impl DeviceSegments {
    /// Cuts the rows of a matrix. Waits for nothing if none is so long.
    pub(in crate::spmm) fn new(
        device: &Device,
        a: &Received,
        CutAt { limit, piece, shared }: CutAt,
    ) -> Result<Self, DeviceError> {
        let is_cut = a.record.longest > u64::from(limit);
        let (rows, blocks) = (narrow(a.rows), if is_cut { a.rows.div_ceil(CUT_ROWS as usize) } else { 0 });
        let scratch = Scratch::new(device, if is_cut { 16 * wide(blocks + 1) + (1 << 9) } else { 0 })?;
        let mut params = CutRowsParams {
            row_offsets: a.row_offsets.pointer(),
            sums: GlobalPtr::NULL,
            totals: GlobalPtr::NULL,
            segments: GlobalPtr::NULL,
            cut_rows: GlobalPtr::NULL,
            rows,
            limit,
            piece: piece.max(1),
            shared: u32::from(shared),
            wide_count: 0,
            reserved: 0,
        };
        let (mut extra, mut slots, mut cut) = (0, 0, None);
        if is_cut {
            params.sums = scratch.array(blocks, "sums of rows that are cut")?;
            params.totals = scratch.array(1, "sums of rows that are cut")?;
            // SAFETY: the offsets were checked; there is a sum for each block of rows.
            let totals = unsafe {
                scratch.launch(Variant::CountCuts, u64::from(rows), &params)?;
                scratch.launch(Variant::SumCuts, 1, &params)?;
                scratch.read(params.totals, 1)?
            };
            let rows_cut;
            [extra, slots, rows_cut, params.wide_count] = totals.first().copied().unwrap_or_default();
            let list = DeviceBuffer::alloc(device, rows_cut as usize, "split_rows")?;
            params.cut_rows = list.pointer();
            cut = Some(CutList { rows: list, wide: params.wide_count });
        }
        let segments = DeviceBuffer::alloc(device, a.rows + extra as usize, "segments")?;
        params.segments = segments.pointer();
        // SAFETY: as above; there is room for what the sums say.
        unsafe { scratch.launch(Variant::CutRows, u64::from(rows), &params)? };
        Ok(Self { segments, cut, slots })
    }

    /// The segments in another order of the rows; slots and the list of rows that are cut stay as they are.
    pub(in crate::spmm) fn in_order(
        self,
        device: &Device,
        a: &Received,
        CutAt { limit, piece, .. }: CutAt,
        order: &Permutation,
    ) -> Result<Self, DeviceError> {
        let rows = narrow(a.rows);
        let is_cut = self.segments.len() > a.rows;
        let bytes = if is_cut { 16 * wide(a.rows) } else { 0 };
        let scratch = Scratch::new(device, 4 * wide(a.rows) + bytes + bytes / 64 + (1 << 13))?;
        let ordered = DeviceBuffer::alloc(device, self.segments.len(), "segments")?;
        let mut params = OrderSegmentsParams {
            cut: CutRowsParams {
                row_offsets: a.row_offsets.pointer(),
                segments: self.segments.pointer(),
                rows,
                limit,
                piece: piece.max(1),
                ..CutRowsParams::zeroed()
            },
            order: GlobalPtr::NULL,
            counts: GlobalPtr::NULL,
            firsts: GlobalPtr::NULL,
            places: GlobalPtr::NULL,
            ordered: ordered.pointer(),
        };
        let list = scratch.array_from(order.new_to_old(), "an order of rows")?;
        // SAFETY: the rows were cut at the same lengths, so that the counts add up to the segments; an order has each
        // row once. The counts of the first order are added up before those of the second are written.
        unsafe {
            if is_cut {
                params.counts = scratch.array(a.rows, "segments of rows")?;
                params.firsts = scratch.array(a.rows + 1, "first segments of rows")?;
                params.places = scratch.array(a.rows + 1, "places of segments")?;
                for (list, sums) in [(GlobalPtr::NULL, params.firsts), (list, params.places)] {
                    let params = OrderSegmentsParams { order: list, ..params };
                    scratch.launch(Variant::CountOrdered, u64::from(rows), &params)?;
                    scratch.scan(params.counts, rows, false, sums)?;
                }
            }
            params.order = list;
            scratch.launch(Variant::OrderSegments, u64::from(rows), &params)?;
        }
        Ok(Self { segments: ordered, ..self })
    }

    /// Those that a matrix was read into.
    pub(in crate::spmm) fn of(spread: SpreadSegments) -> Self {
        let SpreadSegments { segments, cut_rows, wide_rows, slots } = spread;
        let cut = (!cut_rows.is_empty()).then_some(CutList { rows: cut_rows, wide: wide_rows });
        Self { segments, cut, slots }
    }
}

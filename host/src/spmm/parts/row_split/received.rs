//! Row-split of a matrix that is on the device.

use windrow_kernels::csr::CsrRecord;

use super::choose::{RowCounts, SegmentShape};
use super::{ReceivedEntries, RowSplitLayout, SegmentEntries, SegmentList, lengths, segment_shape};
use crate::csr::{CutAt, Received, SpreadSegments};
use crate::device::Device;
use crate::error::DeviceError;
use crate::num::{real, wide};
use crate::options::Determinism;
use crate::spmm::layout::Context;
use crate::spmm::options::SpmmOptions;
use crate::spmm::part::{CutRows, LaidOut, LayoutFacts};
use crate::spmm::preprocess::DeviceSegments;

/// Where rows are cut, of a matrix with so many rows and entries.
pub(in crate::spmm) fn cut_at(
    options: &SpmmOptions,
    device: &Device,
    (rows, nnz): (usize, usize),
    record: &CsrRecord,
) -> CutAt {
    let counts = || RowCounts { rows: wide(rows), nnz: wide(nnz), longest: record.longest };
    let (limit, piece) = lengths(options, device, counts);
    match record.longest > u64::from(limit) {
        true => CutAt { limit, piece, shared: options.determinism == Determinism::Fast },
        false => CutAt::NEVER,
    }
}

/// The rows of a matrix cut into segments, by kernels.
pub(in crate::spmm) struct Cut {
    segments: DeviceSegments,
    shape: SegmentShape,
}

impl Cut {
    /// In the order of the plan, as the host cuts them.
    pub(in crate::spmm) fn new(context: &Context<'_, Received>) -> Result<Self, DeviceError> {
        let a = context.a;
        let at = cut_at(context.options, context.device, (a.rows, a.nnz), &a.record);
        let mut segments = DeviceSegments::new(context.device, a, at)?;
        if let Some(order) = context.order {
            segments = segments.in_order(context.device, a, at, order)?;
        }
        let count = wide(segments.segments.len());
        Self::of(context, segments, count)
    }

    /// Cut when the matrix was read. Some places of segments are empty.
    pub(in crate::spmm) fn spread(
        context: &Context<'_, Received>,
        segments: SpreadSegments,
    ) -> Result<Self, DeviceError> {
        let count = (wide(context.a.rows) + wide(segments.segments.len())) / 2; // half of those beside the rows
        Self::of(context, DeviceSegments::of(segments), count)
    }

    /// `count` segments, or about as many.
    fn of(
        context: &Context<'_, Received>,
        segments: DeviceSegments,
        count: u64,
    ) -> Result<Self, DeviceError> {
        let mean_len = real(wide(context.a.nnz)) / real(count.max(1));
        Ok(Self { segments, shape: SegmentShape { mean_len, ..segment_shape(context)? } })
    }

    /// The whole matrix as segments.
    pub(in crate::spmm) fn into_laid_out(self, mut a: Received) -> LaidOut<'static> {
        let DeviceSegments { segments, cut, slots } = self.segments;
        let cut_rows = cut.as_ref().map_or(0, |cut| wide(cut.rows.len()));
        let facts = LayoutFacts {
            scalar_rows: wide(a.rows),
            scalar_entries: wide(a.nnz),
            segments: wide(segments.len()),
            split: cut_rows,
            split_rows: cut_rows,
            ..LayoutFacts::default()
        };
        // Kernels of segments read no further than the entries.
        a.col_indices.truncate(a.nnz);
        a.values.truncate(a.nnz * a.dtype.bytes() as usize);
        let entries = ReceivedEntries { col_indices: a.col_indices, values: a.values };
        let layout = RowSplitLayout {
            segments: SegmentList::OnDevice(segments),
            entries: SegmentEntries::Received(entries),
            dtype: a.dtype,
            shape: self.shape,
        };
        let cut = CutRows { on_device: cut, slot_rows: u64::from(slots), ..CutRows::default() };
        LaidOut::one(layout, cut, facts)
    }
}

//! Row-split of a matrix that is on the device.

use super::choose::{RowCounts, SegmentShape};
use super::{ReceivedEntries, RowSplitLayout, SegmentEntries, SegmentList, lengths, segment_shape};
use crate::csr::Received;
use crate::error::DeviceError;
use crate::num::{real, wide};
use crate::options::Determinism;
use crate::spmm::decide::few_runs;
use crate::spmm::layout::Context;
use crate::spmm::part::{CutRows, LaidOut, LayoutFacts};
use crate::spmm::preprocess::{CutAt, DeviceSegments};

/// The rows of a matrix cut into segments, by kernels.
pub(in crate::spmm) struct Cut {
    segments: DeviceSegments,
    shape: SegmentShape,
}

impl Cut {
    /// In the order of the plan. For a few products in the matrix's own nobody waits for how many segments there are,
    /// and some places of segments stay empty.
    pub(in crate::spmm) fn new(context: &Context<'_, Received>) -> Result<Self, DeviceError> {
        let a = context.a;
        let counts = || RowCounts { rows: wide(a.rows), nnz: wide(a.nnz), longest: a.record.longest };
        let (limit, piece) = lengths(context, counts);
        let shared = context.options.determinism == Determinism::Fast;
        let at = CutAt { limit, piece, shared };
        let few = few_runs(context.options, &context.profile.costs.tiles).is_some();
        let is_cut = a.record.longest > u64::from(limit);
        let (segments, count) = match few && is_cut && context.order.is_none() && at.can_be_spread() {
            true => {
                let spread = DeviceSegments::spread(context.device, a, at)?;
                let places = wide(spread.segments.len());
                (spread, (wide(a.rows) + places) / 2) // some of the places are empty: taken for half of them
            }
            false => {
                let mut cut = DeviceSegments::new(context.device, a, at)?;
                if let Some(order) = context.order {
                    cut = cut.in_order(context.device, a, at, order)?;
                }
                let count = wide(cut.segments.len());
                (cut, count)
            }
        };
        let mean_len = real(wide(a.nnz)) / real(count.max(1));
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

//! Segments of the entries outside of tiles, of a matrix that is on the device.

use super::choose::{RowCounts, SegmentShape};
use super::{RowSplitLayout, SegmentEntries, SegmentList, lengths, segment_shape};
use crate::csr::{CutAt, Received};
use crate::device::DeviceBuffer;
use crate::error::DeviceError;
use crate::num::{real, wide};
use crate::options::Determinism;
use crate::spmm::layout::Context;
use crate::spmm::preprocess::{CountedRest, Rest, RestEntries};

/// Counts the segments of the rest, which are cut as suits its rows.
pub(in crate::spmm) fn count_rest(
    context: &Context<'_, Received>,
    rest: &Rest,
) -> Result<CountedRest, DeviceError> {
    let (rows, nnz) = (wide(context.a.rows), wide(rest.entries.len()));
    let (limit, piece) =
        lengths(context.options, context.device, || RowCounts { rows, nnz, longest: rest.longest });
    let shared = context.options.determinism == Determinism::Fast;
    CountedRest::new(context.device, context.a, rest, CutAt { limit, piece, shared })
}

/// Segments of the rest, as a layout.
pub(in crate::spmm) fn lay_out_rest(
    context: &Context<'_, Received>,
    segments: DeviceBuffer<[u32; 4]>,
    entries: RestEntries,
) -> Result<RowSplitLayout<'static>, DeviceError> {
    let mean_len = real(wide(entries.len())) / real(wide(segments.len()).max(1));
    let shape = SegmentShape { mean_len, ..segment_shape(context)? };
    Ok(RowSplitLayout {
        segments: SegmentList::OnDevice(segments),
        entries: SegmentEntries::OnDevice(entries),
        dtype: context.options.precision.dtype(),
        shape,
    })
}

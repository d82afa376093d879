//! The algorithm [`RowSplit`](crate::Algorithm::RowSplit): CSR as it is, long rows cut into segments. Its kernel is
//! [`windrow_kernels::row_split`].

mod choose;
mod received;
mod rest;

use std::borrow::Cow;
use std::sync::Arc;

use windrow_formats::{Csr, OutOfMemory, Value};
use windrow_kernels::row_split::RowSplitParams;
use windrow_kernels::{Dtype, Entry, Factor, Variant};
use windrow_preprocess::balance::{RowSegments, row_segments};

pub(in crate::spmm) use choose::SHORTEST_PIECE;
use choose::{RowCounts, SegmentShape, cut_lengths, select};
pub(in crate::spmm) use received::{Cut, cut_at};
pub(in crate::spmm) use rest::{count_rest, lay_out_rest};

use super::read_array;
use crate::device::{ArrayMemory, Device, DeviceBuffer, Queue};
use crate::error::DeviceError;
use crate::num::{narrow, real, wide};
use crate::options::Determinism;
use crate::plan::{ArraySize, Bits, GivenValues, Launcher, RoundedValues, push};
use crate::spmm::layout::{Context, Matrix};
use crate::spmm::options::SpmmOptions;
use crate::spmm::part::{
    CutRows, DenseOperands, LaidOut, Layout, LayoutFacts, Operation, Part, Placement, ValueSlots,
};
use crate::spmm::preprocess::{RestEntries, RestSources};
use crate::spmm::select::Demand;
use crate::spmm::sums::wide_first;

/// What a slice of `B` may occupy of the L2 cache, in quarters of it: the rest is for `A`, for `C` on its way out,
/// and for the lines that both halves of the cache hold. A pass of row-split over `A` costs more than one of tiles, so
/// that its slices had better be wide.
const CACHE_QUARTERS: u64 = 3;

/// The whole matrix as segments, in the order of the plan.
pub(in crate::spmm) fn lay_out<'a, V: Value>(
    context: &Context<'a, Csr<V>>,
) -> Result<LaidOut<'a>, DeviceError> {
    let entries = SegmentEntries::OnHost(Cow::Borrowed(context.a.col_indices()), None);
    let cut = cut_rows(context, context.a.row_offsets())?;
    let Segments { layout, cut_rows: rows, slots, count } = segments(context, cut, entries)?;
    let facts = LayoutFacts {
        scalar_rows: wide(context.a.rows()),
        scalar_entries: wide(context.a.nnz()),
        segments: count,
        split: wide(rows.len()),
        split_rows: wide(rows.len()),
        ..LayoutFacts::default()
    };
    Ok(LaidOut::one(layout, CutRows { rows, slot_rows: slots, ..CutRows::default() }, facts))
}

/// The segments of rows with these offsets, in the order of the rows.
pub(in crate::spmm) fn cut_rows<A: Matrix>(
    context: &Context<'_, A>,
    row_offsets: &[u64],
) -> Result<RowSegments, OutOfMemory> {
    let (limit, piece) = lengths(context.options, context.device, || RowCounts::of(row_offsets));
    let mut cut = row_segments(row_offsets, limit, piece)?;
    if context.options.determinism == Determinism::Fast {
        cut.share_slots()?;
    }
    Ok(cut)
}

/// Entries from which on a row is cut on so many multiprocessors, infinite for never, and those of its longest piece.
pub(crate) fn cut_above([rows, nnz, longest]: [u64; 3], multiprocessors: f64) -> [f64; 2] {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 2^16")]
    let multiprocessors = multiprocessors.clamp(1.0, 65536.0) as u32;
    let (cut, piece) = cut_lengths(RowCounts { rows, nnz, longest }, multiprocessors);
    [if cut == u32::MAX { f64::INFINITY } else { f64::from(cut) }, f64::from(piece)]
}

/// Entries from which on a row is cut, and entries of its longest piece: as asked for, or as suits the rows.
fn lengths(options: &SpmmOptions, device: &Device, rows: impl FnOnce() -> RowCounts) -> (u32, u32) {
    match options.row_division.piece_entries {
        Some(piece) => (piece.saturating_add(piece / 2), piece.max(SHORTEST_PIECE)),
        None => cut_lengths(rows(), device.multiprocessors()),
    }
}

/// Segments ready to be a part, and what was cut of them.
pub(in crate::spmm) struct Segments<'a> {
    pub(in crate::spmm) layout: RowSplitLayout<'a>,
    pub(in crate::spmm) cut_rows: Vec<[u32; 4]>,
    /// Slots of the workspace.
    pub(in crate::spmm) slots: u64,
    pub(in crate::spmm) count: u64,
}

/// Segments with their entries, in the order of the plan.
pub(in crate::spmm) fn segments<'a, A: Matrix>(
    context: &Context<'a, A>,
    mut cut: RowSegments,
    entries: SegmentEntries<'a>,
) -> Result<Segments<'a>, DeviceError> {
    if let Some(order) = context.order {
        // The pieces of a row in the order of their entries; a stable sort would ask for memory.
        cut.segments.sort_unstable_by_key(|segment| (order.to_new(segment[0] as usize), segment[1]));
    }
    let count = wide(cut.segments.len());
    let mean_len = real(wide(entries.len())) / real(count.max(1));
    let shape = SegmentShape { mean_len, ..segment_shape(context)? };
    let dtype = context.options.precision.dtype();
    Ok(Segments {
        layout: RowSplitLayout { segments: SegmentList::OnHost(cut.segments), entries, dtype, shape },
        cut_rows: wide_first(cut.split_rows)?,
        slots: u64::from(cut.slots),
        count,
    })
}

/// The entry for an aligned product with segments of this mean length.
pub(in crate::spmm) fn entry_for<A: Matrix>(
    context: &Context<'_, A>,
    mean_len: f64,
) -> Result<Option<&'static Entry>, DeviceError> {
    Ok(select(context.demand(), SegmentShape { mean_len, ..segment_shape(context)? }))
}

/// What of the segments decides the entry, but for their mean length.
fn segment_shape<A: Matrix>(context: &Context<'_, A>) -> Result<SegmentShape, DeviceError> {
    let division = context.options.row_division;
    let widest_slice = match division.slice_columns {
        Some(columns) => columns,
        None => context.slicing(CACHE_QUARTERS)?.widest,
    };
    Ok(SegmentShape { mean_len: 0.0, several_ways: division.several_ways, widest_slice })
}

/// What segments refer to.
pub(in crate::spmm) enum SegmentEntries<'a> {
    /// Column of each entry, and which of CSR it is, unless they are all entries.
    OnHost(Cow<'a, [u32]>, Option<Vec<u32>>),
    /// Divided from others in device memory.
    OnDevice(RestEntries),
    /// All entries, whose columns and values are on the device.
    Received(ReceivedEntries),
}

/// Columns and rounded values of all entries, in device memory.
pub(in crate::spmm) struct ReceivedEntries {
    col_indices: DeviceBuffer<u32>,
    values: DeviceBuffer<u8>,
}

/// `[row, begin, end, slot]` of each segment.
enum SegmentList {
    OnHost(Vec<[u32; 4]>),
    OnDevice(DeviceBuffer<[u32; 4]>),
}

impl SegmentList {
    fn len(&self) -> usize {
        match self {
            Self::OnHost(segments) => segments.len(),
            Self::OnDevice(segments) => segments.len(),
        }
    }
}

/// Segments up to the last that has entries. Those behind it are rows that become `β·C`.
fn with_entries(segments: &[[u32; 4]]) -> u32 {
    let is_empty = |[_, begin, end, _]: &&[u32; 4]| begin == end;
    narrow(segments.len() - segments.iter().rev().take_while(is_empty).count())
}

impl SegmentEntries<'_> {
    pub(in crate::spmm) fn len(&self) -> usize {
        match self {
            Self::OnHost(col_indices, _) => col_indices.len(),
            Self::OnDevice(rest) => rest.len(),
            Self::Received(all) => all.col_indices.len(),
        }
    }
}

/// Segments of rows, before upload; see [`windrow_preprocess::balance::row_segments`].
pub(in crate::spmm) struct RowSplitLayout<'a> {
    segments: SegmentList,
    entries: SegmentEntries<'a>,
    dtype: Dtype,
    shape: SegmentShape,
}

impl Layout for RowSplitLayout<'_> {
    fn arrays(&self, sizes: &mut Vec<ArraySize>) {
        push(sizes, "segments", 16 * wide(self.segments.len()));
        push(sizes, "col_indices", 4 * wide(self.entries.len()));
        push(sizes, "values", wide(self.entries.len()) * u64::from(self.dtype.bytes()));
        if let SegmentEntries::OnDevice(rest) = &self.entries {
            push(sizes, "segment_sources", rest.kept_bytes());
        }
    }

    fn host_bytes(&self) -> u64 {
        match &self.entries {
            SegmentEntries::OnHost(_, Some(sources)) => 4 * wide(sources.len()),
            SegmentEntries::OnHost(_, None) | SegmentEntries::OnDevice(_) | SegmentEntries::Received(_) => 0,
        }
    }

    fn placement(&self) -> Placement {
        match &self.entries {
            SegmentEntries::OnHost(columns, None) => Placement::InOrder(columns.len()),
            SegmentEntries::OnHost(_, Some(sources)) => Placement::Gathered(sources.len()),
            SegmentEntries::OnDevice(_) => Placement::OnDevice,
            SegmentEntries::Received(all) => Placement::InOrder(all.col_indices.len()),
        }
    }

    fn upload(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        let (col_indices, values, sources) = match self.entries {
            SegmentEntries::Received(ReceivedEntries { col_indices, values }) => {
                (col_indices, values, SegmentSources::Identity)
            }
            SegmentEntries::OnDevice(rest) => {
                let (col_indices, values, sources) = rest.with_values(values.unplaced()?)?;
                (col_indices, values, SegmentSources::OnDevice(sources))
            }
            SegmentEntries::OnHost(col_indices, sources) => {
                let bits = values.bits()?;
                let gathered = sources.as_ref().map(|sources| bits.gather(sources)).transpose()?;
                let values = gathered.as_ref().unwrap_or(bits);
                (
                    memory.array(&col_indices, "col_indices")?,
                    memory.array(values.bytes(), "values")?,
                    sources.map_or(SegmentSources::Identity, SegmentSources::OnHost),
                )
            }
        };
        let (segments, with_entries) = match self.segments {
            SegmentList::OnHost(segments) => (memory.array(&segments, "segments")?, with_entries(&segments)),
            SegmentList::OnDevice(segments) => {
                let all = narrow(segments.len());
                (segments, all)
            }
        };
        let (dtype, shape) = (self.dtype, self.shape);
        Ok(Box::new(RowSplitPart { segments, with_entries, col_indices, values, sources, dtype, shape }))
    }
}

/// Segments of rows in device memory.
struct RowSplitPart {
    segments: DeviceBuffer<[u32; 4]>,
    /// Of the segments, the first of which no more than these need be worked on where `C` is added to as it is.
    with_entries: u32,
    col_indices: DeviceBuffer<u32>,
    values: DeviceBuffer<u8>,
    sources: SegmentSources,
    dtype: Dtype,
    shape: SegmentShape,
}

/// CSR entry of each value.
enum SegmentSources {
    /// They are all entries.
    Identity,
    OnHost(Vec<u32>),
    OnDevice(RestSources),
}

impl Part for RowSplitPart {
    fn name(&self) -> &'static str {
        "row-split"
    }

    fn entry(&self, operation: Operation) -> Option<&'static Entry> {
        select(Demand::of(self.dtype, operation), self.shape)
    }

    unsafe fn launch(
        &self,
        stream: Launcher<'_>,
        entry: &'static Entry,
        operands: &DenseOperands,
    ) -> Result<(), DeviceError> {
        // An order may have the rows without entries behind all others: `C` stays as it is there.
        let one = match self.dtype.sum_bytes() {
            8 => Factor::new(1.0f64),
            _ => Factor::new(1.0f32),
        };
        let keeps_c = operands.dense.out.beta == one;
        let segments = if keeps_c { self.with_entries } else { narrow(self.segments.len()) };
        let params = RowSplitParams {
            dense: operands.dense,
            segments: self.segments.pointer(),
            col_indices: self.col_indices.pointer(),
            values: self.values.pointer().cast(),
            segment_count: segments,
            reserved: 0,
        };
        // SAFETY: the arrays were made of a valid CSR by `row_segments`, which keeps the obligations, and belong to the
        // plan, which frees them after the machine's work; the dense operands and the workspace are the caller's
        // promise.
        unsafe { stream.start(entry, u64::from(segments), params.dense.n(), &params) }
    }

    fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        match &self.sources {
            SegmentSources::Identity => self.values.copy_from_slice(values.bytes()),
            SegmentSources::OnHost(sources) => self.values.copy_from_slice(values.gather(sources)?.bytes()),
            SegmentSources::OnDevice(sources) => sources.replace(values.unplaced(), &self.values),
        }
    }

    fn value_slots(&self) -> ValueSlots<'_> {
        let out = self.values.pointer().cast();
        match &self.sources {
            SegmentSources::Identity => ValueSlots::InOrder { out, count: self.col_indices.len() },
            SegmentSources::OnHost(sources) => ValueSlots::Gathered { out, sources },
            SegmentSources::OnDevice(_) => ValueSlots::OnDevice,
        }
    }

    unsafe fn replace_from(&self, queue: &Arc<dyn Queue>, values: RoundedValues) -> Result<(), DeviceError> {
        match &self.sources {
            // SAFETY: the caller's promise: values of all entries, live until the work is done.
            SegmentSources::OnDevice(sources) => unsafe { sources.replace_from(queue, values, &self.values) },
            SegmentSources::OnHost(_) | SegmentSources::Identity => Ok(()),
        }
    }

    fn replacing(&self, dtype: Dtype) -> Option<&'static Entry> {
        let own = matches!(self.sources, SegmentSources::OnDevice(_));
        own.then(|| windrow_kernels::entry(Variant::GatherValues { value_bytes: dtype.bytes() })).flatten()
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        Ok(vec![
            read_array("segments", &self.segments)?,
            read_array("col_indices", &self.col_indices)?,
            read_array("values", &self.values)?,
        ])
    }
}

//! The algorithm [`RowSplit`](crate::Algorithm::RowSplit): CSR as it is, long rows cut into segments. Its kernel is
//! [`windrow_kernels::row_split`].

use std::borrow::Cow;
use std::cmp::Reverse;

use windrow_formats::Value;
use windrow_kernels::row_split::{IN_FLIGHT, RowSplitParams};
use windrow_kernels::{Dtype, ENTRIES, Entry, Variant};
use windrow_preprocess::balance::{RowSegments, row_segments};
use windrow_simt::GlobalPtr;

use super::read_array;
use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{index, narrow, real, wide};
use crate::options::Determinism;
use crate::plan::{ArraySize, Bits, GivenValues, Stream, division, push};
use crate::spmm::layout::Context;
use crate::spmm::part::{
    CutRows, DenseOperands, LaidOut, Layout, LayoutFacts, Operation, Part, Placement, ValueSlots,
};
use crate::spmm::preprocess::{RestEntries, RestSources};
use crate::spmm::select::{Demand, reads_whole_lines, slicing_cost};
use crate::spmm::sums::wide_first;

/// No row is cut into shorter pieces than this: a piece's sum is written and read once more.
pub(in crate::spmm) const SHORTEST_PIECE: u32 = 32;
/// So many pieces of the longest kind would occupy a multiprocessor for the whole product. One lane group
/// takes about as long for such a piece as an eighth of it, so the longest row does not outlast the rest,
/// and the workspace depends on the device, not on the matrix.
const PIECES_PER_MULTIPROCESSOR: u32 = 96;

/// With so many rows for each multiprocessor, the rows alone occupy the device.
const ROWS_PER_MULTIPROCESSOR: u32 = 32;
/// No row is cut for being longer than the others by less than this: adding its pieces is a launch of its own.
const SHORTEST_CUT: u32 = 96;

/// What a slice of `B` may occupy of the L2 cache, in quarters of it: the rest is for `A`, for `C` on its way out,
/// and for the lines that both halves of the cache hold. A pass of row-split over `A` costs more than one of tiles, so
/// that its slices had better be wide.
const CACHE_QUARTERS: u64 = 3;

/// The whole matrix as segments, in the order of the plan.
pub(in crate::spmm) fn lay_out<'a, V: Value>(context: &Context<'a, V>) -> LaidOut<'a> {
    let entries = SegmentEntries::OnHost(Cow::Borrowed(context.a.col_indices()), None);
    let cut = cut_rows(context, context.a.row_offsets());
    let Segments { layout, cut_rows: rows, slots, count } = segments(context, cut, entries);
    let facts = LayoutFacts {
        scalar_rows: wide(context.a.rows()),
        scalar_entries: wide(context.a.nnz()),
        segments: count,
        split: wide(rows.len()),
        split_rows: wide(rows.len()),
        ..LayoutFacts::default()
    };
    LaidOut::one(layout, CutRows { rows, slot_rows: slots, ..CutRows::default() }, facts)
}

/// The segments of rows with these offsets, in the order of the rows.
pub(in crate::spmm) fn cut_rows<V: Value>(context: &Context<'_, V>, row_offsets: &[u64]) -> RowSegments {
    let (limit, piece) = match context.options.row_division.piece_entries {
        Some(piece) => (piece.saturating_add(piece / 2), piece.max(SHORTEST_PIECE)),
        None => cut_lengths(row_offsets, context.device.multiprocessors()),
    };
    let mut cut = row_segments(row_offsets, limit, piece);
    if context.options.determinism == Determinism::Fast {
        cut.share_slots();
    }
    cut
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
pub(in crate::spmm) fn segments<'a, V: Value>(
    context: &Context<'a, V>,
    mut cut: RowSegments,
    entries: SegmentEntries<'a>,
) -> Segments<'a> {
    if let Some(order) = context.order {
        cut.segments.sort_by_key(|segment| order.to_new(segment[0] as usize));
    }
    let count = wide(cut.segments.len());
    let mean_len = real(wide(entries.len())) / real(count.max(1));
    let shape = SegmentShape { mean_len, ..segment_shape(context) };
    let dtype = context.options.precision.dtype();
    Segments {
        layout: RowSplitLayout { segments: cut.segments, entries, dtype, shape },
        cut_rows: wide_first(cut.split_rows),
        slots: u64::from(cut.slots),
        count,
    }
}

/// The entry for an aligned product with segments of this mean length.
pub(in crate::spmm) fn entry_for<V: Value>(
    context: &Context<'_, V>,
    mean_len: f64,
) -> Option<&'static Entry> {
    select(context.demand(), SegmentShape { mean_len, ..segment_shape(context) })
}

/// What of the segments decides the entry, but for their mean length.
fn segment_shape<V: Value>(context: &Context<'_, V>) -> SegmentShape {
    let division = context.options.row_division;
    SegmentShape {
        mean_len: 0.0,
        several_ways: division.several_ways,
        widest_slice: division.slice_columns.unwrap_or_else(|| context.slicing(CACHE_QUARTERS).widest),
    }
}

/// Entries from which on a row is cut, and entries of its longest piece.
///
/// Rows that are alike need no cutting if there are enough of them; on an H200, cutting them cost bcsstk16
/// 24 %, not cutting unlike ones email-Enron 100 %.
fn cut_lengths(row_offsets: &[u64], multiprocessors: u32) -> (u32, u32) {
    let nnz = row_offsets.last().copied().unwrap_or(0);
    let rows = wide(row_offsets.len()).saturating_sub(1);
    let longest = row_offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let alike = longest <= u64::from(SHORTEST_CUT).max(2 * nnz / rows.max(1));
    let piece = piece_len(nnz, multiprocessors);
    if alike && rows >= u64::from(ROWS_PER_MULTIPROCESSOR) * u64::from(multiprocessors) {
        return (u32::MAX, piece);
    }
    // A row that is barely longer than a piece is better left whole than cut into halves.
    (piece.saturating_add(piece / 2), piece)
}

/// Entries of the longest piece of a row that is cut, for `nnz` entries on so many multiprocessors.
fn piece_len(nnz: u64, multiprocessors: u32) -> u32 {
    let pieces = u64::from(PIECES_PER_MULTIPROCESSOR) * u64::from(multiprocessors.max(1));
    narrow(index(nnz.div_ceil(pieces).max(u64::from(SHORTEST_PIECE))))
}

/// What of the segments decides the entry.
#[derive(Debug, Clone, Copy)]
struct SegmentShape {
    /// Mean entries of a segment.
    mean_len: f64,
    /// Whether several groups of lanes share a segment; as the mean length says, unless told.
    several_ways: Option<bool>,
    /// Widest slice of `B` that is worked on at a time, in columns.
    widest_slice: u32,
}

/// The entry with the slicing that wastes least, no wider than asked, and several ways where segments are long enough
/// to keep the loads of each in flight.
fn select(demand: Demand, shape: SegmentShape) -> Option<&'static Entry> {
    let Demand { dtype, n, vectors } = demand;
    let SegmentShape { mean_len, several_ways, widest_slice } = shape;
    let of_family = |entry: &&Entry| {
        matches!(entry.variant,
        Variant::RowSplit { dtype: d, vectors: v, .. } if d == dtype && v == vectors)
    };
    let ways = |entry: &Entry| match entry.variant {
        Variant::RowSplit { ways, .. } => ways,
        _ => 1,
    };
    let fills = |entry: &Entry| {
        several_ways.unwrap_or_else(|| mean_len >= f64::from(ways(entry)) * real(IN_FLIGHT as u64))
    };
    let candidates = || ENTRIES.iter().filter(of_family).filter(|entry| ways(entry) == 1 || fills(entry));
    candidates()
        .filter(|entry| reads_whole_lines(entry, dtype, n))
        .min_by_key(|entry| {
            let slice = division(entry).slice;
            let too_wide = if slice > widest_slice { slice } else { 0 };
            (too_wide, slicing_cost(entry, dtype, n), Reverse(ways(entry)))
        })
        .or_else(|| candidates().max_by_key(|entry| division(entry).slice))
}

/// What segments refer to.
pub(in crate::spmm) enum SegmentEntries<'a> {
    /// Column of each entry, and which of CSR it is, unless they are all entries.
    OnHost(Cow<'a, [u32]>, Option<Vec<u32>>),
    /// Divided from others in device memory.
    OnDevice(RestEntries),
}

impl SegmentEntries<'_> {
    pub(in crate::spmm) fn len(&self) -> usize {
        match self {
            Self::OnHost(col_indices, _) => col_indices.len(),
            Self::OnDevice(rest) => rest.len(),
        }
    }
}

/// Segments of rows, before upload; see [`windrow_preprocess::balance::row_segments`].
pub(in crate::spmm) struct RowSplitLayout<'a> {
    segments: Vec<[u32; 4]>,
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
            SegmentEntries::OnHost(_, None) | SegmentEntries::OnDevice(_) => 0,
        }
    }

    fn placement(&self) -> Placement {
        match &self.entries {
            SegmentEntries::OnHost(columns, None) => Placement::InOrder(columns.len()),
            SegmentEntries::OnHost(_, Some(sources)) => Placement::Gathered(sources.len()),
            SegmentEntries::OnDevice(_) => Placement::OnDevice,
        }
    }

    fn upload(
        self: Box<Self>,
        device: &Device,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        let (col_indices, values, sources) = match self.entries {
            SegmentEntries::OnDevice(rest) => {
                let (col_indices, values, sources) = rest.with_values(values.unplaced()?)?;
                (col_indices, values, SegmentSources::OnDevice(sources))
            }
            SegmentEntries::OnHost(col_indices, sources) => {
                let bits = values.bits()?;
                let gathered = sources.as_ref().map(|sources| bits.gather(sources)).transpose()?;
                let values = gathered.as_ref().unwrap_or(bits);
                (
                    DeviceBuffer::named(device, &col_indices, "col_indices")?,
                    DeviceBuffer::named(device, values.bytes(), "values")?,
                    sources.map_or(SegmentSources::Identity, SegmentSources::OnHost),
                )
            }
        };
        let segments = DeviceBuffer::named(device, &self.segments, "segments")?;
        let Self { dtype, shape, .. } = *self;
        Ok(Box::new(RowSplitPart { segments, col_indices, values, sources, dtype, shape }))
    }
}

/// Segments of rows in device memory.
struct RowSplitPart {
    segments: DeviceBuffer<[u32; 4]>,
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
    fn entry(&self, operation: Operation) -> Option<&'static Entry> {
        select(Demand::of(self.dtype, operation), self.shape)
    }

    unsafe fn launch(
        &self,
        stream: Stream<'_>,
        entry: &'static Entry,
        operands: &DenseOperands,
    ) -> Result<(), DeviceError> {
        let params = RowSplitParams {
            dense: operands.dense,
            segments: self.segments.pointer(),
            col_indices: self.col_indices.pointer(),
            values: self.values.pointer().cast(),
            segment_count: narrow(self.segments.len()),
            reserved: 0,
        };
        // SAFETY: the arrays were made of a valid CSR by `row_segments`, which keeps the obligations, and belong to the
        // plan, which frees them after the machine's work; the dense operands and the workspace are the caller's
        // promise.
        unsafe { stream.start(entry, wide(self.segments.len()), params.dense.n(), &params) }
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

    unsafe fn replace_from(&self, values: (GlobalPtr<u32>, Dtype)) -> Result<(), DeviceError> {
        match &self.sources {
            // SAFETY: the caller's promise: values of all entries, live until the work is done.
            SegmentSources::OnDevice(sources) => unsafe { sources.replace_from(values, &self.values) },
            SegmentSources::OnHost(_) | SegmentSources::Identity => Ok(()),
        }
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        Ok(vec![
            read_array("segments", &self.segments)?,
            read_array("col_indices", &self.col_indices)?,
            read_array("values", &self.values)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(lengths: &[u64]) -> Vec<u64> {
        lengths.iter().fold(vec![0], |mut offsets, len| {
            offsets.push(offsets[offsets.len() - 1] + len);
            offsets
        })
    }

    #[test]
    fn many_rows_alike_stay_whole() {
        assert_eq!(cut_lengths(&offsets(&[60; 128]), 4), (u32::MAX, SHORTEST_PIECE));
    }

    #[test]
    fn few_rows_and_unlike_rows_are_cut() {
        let cut = (SHORTEST_PIECE + SHORTEST_PIECE / 2, SHORTEST_PIECE);
        assert_eq!(cut_lengths(&offsets(&[60; 127]), 4), cut);
        let mut lengths = [4; 128];
        lengths[5] = 97;
        assert_eq!(cut_lengths(&offsets(&lengths), 4), cut);
        lengths[5] = 96;
        assert_eq!(cut_lengths(&offsets(&lengths), 4).0, u32::MAX);
    }

    #[test]
    fn a_larger_matrix_has_longer_pieces() {
        let nnz = 1000 * u64::from(PIECES_PER_MULTIPROCESSOR) * 4;
        assert_eq!(cut_lengths(&[0, nnz], 4), (1500, 1000));
        assert_eq!(cut_lengths(&[0], 4).1, SHORTEST_PIECE);
    }

    fn shape(mean_len: f64) -> SegmentShape {
        SegmentShape { mean_len, several_ways: None, widest_slice: u32::MAX }
    }

    #[test]
    fn the_entry_follows_width_alignment_and_length() {
        for (dtype, n, vectors, mean, name) in [
            (Dtype::F16, 128, true, 4.0, "spmm_row_split_f16_l16w1"),
            (Dtype::F16, 128, true, 40.0, "spmm_row_split_f16_l16w2"),
            (Dtype::F16, 256, true, 4.0, "spmm_row_split_f16_l32w1"),
            (Dtype::F16, 64, true, 4.0, "spmm_row_split_f16_l8w1"),
            (Dtype::F16, 64, true, 16.0, "spmm_row_split_f16_l8w4"),
            (Dtype::F16, 32, true, 100.0, "spmm_row_split_f16_l4w8"),
            (Dtype::F16, 1, true, 1.0, "spmm_row_split_f16_l4w1"),
            (Dtype::F16, 128, false, 40.0, "spmm_row_split_f16_elements"),
            (Dtype::F32, 128, true, 4.0, "spmm_row_split_f32_l32w1"),
            (Dtype::F32, 32, true, 4.0, "spmm_row_split_f32_l8w1"),
            (Dtype::F32, 7, false, 4.0, "spmm_row_split_f32_elements"),
        ] {
            let entry = select(Demand { dtype, n, vectors }, shape(mean)).unwrap();
            assert_eq!(entry.name, name, "{dtype:?}, n = {n}, vectors {vectors}, mean {mean}");
        }
    }

    #[test]
    fn slices_and_ways_are_those_asked_for() {
        let demand = Demand { dtype: Dtype::F32, n: 512, vectors: true };
        let narrow = SegmentShape { widest_slice: 64, ..shape(4.0) };
        assert_eq!(select(demand, narrow).unwrap().name, "spmm_row_split_f32_l16w1");
        let demand = Demand { dtype: Dtype::F16, n: 64, vectors: true };
        let ways = |several_ways| SegmentShape { several_ways: Some(several_ways), ..shape(16.0) };
        assert_eq!(select(demand, ways(false)).unwrap().name, "spmm_row_split_f16_l8w1");
        assert_eq!(
            select(demand, SegmentShape { mean_len: 1.0, ..ways(true) }).unwrap().name,
            "spmm_row_split_f16_l8w4"
        );
    }

    #[test]
    fn there_is_an_entry_for_every_demand() {
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::Tf32, Dtype::F32] {
            for n in [1, 7, 31, 33, 64, 130, 257, 4097, 1 << 20] {
                for (vectors, mean) in [(true, 0.0), (true, 1e6), (false, 10.0)] {
                    let entry = select(Demand { dtype, n, vectors }, shape(mean)).unwrap();
                    assert!(entry.name.contains(if vectors { "_l" } else { "_elements" }), "{}", entry.name);
                }
            }
        }
    }
}

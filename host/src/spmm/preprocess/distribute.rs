//! Entries divided by column vectors on a GPU: what [`windrow_preprocess::partition::split_vectors`] does on the host.

use std::rc::Rc;
use std::sync::Arc;

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_collect, try_with_room};
use windrow_kernels::Variant;
use windrow_kernels::hybrid::MeasureRestParams;
use windrow_kernels::preprocess::{
    DistributeEntriesParams, DistributeVectorsParams, GatherValuesParams, NO_WINDOW, PlaceRowsParams,
    PlaceWindowsParams,
};
use windrow_preprocess::partition::VectorThreshold;
use windrow_simt::GlobalPtr;

use super::condense::{Condensed, RowList, WindowCounts, place_pass};
use super::deal::WindowTotals;
use super::scratch::Scratch;
use crate::device::{DeviceBuffer, Queue};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::plan::{RoundedValues, Unplaced};
use crate::spmm::tiles::WINDOW_ROWS;

/// Entries that are not in tiles, row after row.
pub(crate) struct Rest {
    /// Where those of each row begin, on the host, unless they were measured.
    pub(crate) row_offsets: Vec<u64>,
    /// The same in device memory, as long as the entries are held.
    pub(crate) offsets: GlobalPtr<u32>,
    /// Entries of the row that has most, if they were measured.
    pub(crate) longest: u64,
    pub(crate) entries: RestEntries,
}

/// The entries in device memory, without their values.
pub(crate) struct RestEntries {
    /// Column of each entry, row after row.
    pub(crate) col_indices: DeviceBuffer<u32>,
    sources: RestSources,
    /// Holds the values of the whole matrix, from which those of the rest are gathered.
    scratch: Rc<Scratch>,
}

/// Entry of the matrix for each of the rest. Kept, for new values.
pub(crate) struct RestSources(DeviceBuffer<u32>);

impl Condensed {
    /// Divides the windows of all rows with entries. None if no vector has `threshold`; otherwise what goes to the
    /// tiles, with windows of `empty_rows` dealt out among the others, and the rest, whose offsets the host gets unless
    /// it is measured on the device.
    pub(crate) fn distribute(
        self,
        rows: usize,
        threshold: VectorThreshold,
        empty_rows: usize,
        measured: bool,
    ) -> Result<Option<(Self, Rest)>, DeviceError> {
        let scratch = Rc::clone(&self.scratch);
        let (windows, nnz) = (self.windows(), self.sources.len());
        let (entries, row_count) = (narrow(nnz), narrow(rows));
        let vectors = self.list_vectors(GlobalPtr::NULL)?;
        let of_vectors = DistributeVectorsParams {
            window_vectors: self.window_vectors,
            vectors,
            masks: self.masks,
            taken_masks: scratch.array(self.vector_count(), "taken_masks")?,
            distributed: scratch.array(windows, "distributed windows")?,
            threshold: threshold.entries(),
            reserved: 0,
        };
        let mut of_entries = DistributeEntriesParams {
            row_offsets: self.row_offsets,
            col_indices: self.col_indices,
            sources: self.sources.pointer(),
            masks: self.masks,
            ranks: self.ranks,
            taken_masks: of_vectors.taken_masks,
            kept: scratch.array(nnz + 1, "entries in tiles")?,
            rest: scratch.array(nnz + 1, "entries not in tiles")?,
            kept_sources: GlobalPtr::NULL,
            kept_masks: GlobalPtr::NULL,
            rest_sources: GlobalPtr::NULL,
            rest_cols: GlobalPtr::NULL,
            rest_offsets: GlobalPtr::NULL,
            entries,
            rows: row_count,
        };
        // SAFETY: the arrays are those of `self` and of the lengths that the kernels ask for; sums may take the place
        // of what is added up.
        let (distributed, kept, longest) = unsafe {
            scratch.launch(Variant::DistributeVectors, wide(windows), &of_vectors)?;
            scratch.launch(Variant::DistributeEntries, wide(nnz), &of_entries)?;
            scratch.scan(of_entries.kept, entries, false, of_entries.kept)?;
            scratch.scan(of_entries.rest, entries, false, of_entries.rest)?;
            let (kept, longest) = match measured {
                true => measure(&scratch, &of_entries)?,
                false => {
                    let kept = scratch.read(of_entries.kept.at(entries), 1)?;
                    (kept.first().map_or(0, |&kept| kept as usize), 0)
                }
            };
            (scratch.read(of_vectors.distributed, windows)?, kept, longest)
        };
        let full = distributed.iter().filter(|[slots, _]| *slots != 0).count();
        if full == 0 {
            return Ok(None);
        }
        let counts = WindowCounts { full, empty: empty_rows.div_ceil(WINDOW_ROWS), all_full: false };
        let (origins, vectors) = arrange(&distributed, counts)?;
        let slots = WINDOW_ROWS * origins.len();
        let device = scratch.device();
        let sources = DeviceBuffer::alloc(device, kept, "sources")?;
        let rest_sources = DeviceBuffer::alloc(device, nnz - kept, "sources")?;
        let rest_cols = DeviceBuffer::alloc(device, nnz - kept, "col_indices")?;
        of_entries.kept_sources = sources.pointer();
        of_entries.kept_masks = scratch.array(kept, "masks")?;
        of_entries.rest_sources = rest_sources.pointer();
        of_entries.rest_cols = rest_cols.pointer();
        of_entries.rest_offsets = scratch.array(rows + 1, "rest_offsets")?;
        let of_windows = PlaceWindowsParams {
            origins: scratch.array_from(&origins, "origins of windows")?,
            window_rows: self.window_rows,
            distributed: of_vectors.distributed,
            placed_rows: scratch.array(slots, "window_rows")?,
            slots: narrow(slots),
            reserved: 0,
        };
        let ranks = scratch.array(kept + 1, "ranks")?;
        // SAFETY: as above; an origin is a window.
        let rest_offsets = unsafe {
            scratch.launch(Variant::KeepEntries, wide(nnz.max(rows + 1)), &of_entries)?;
            scratch.launch(Variant::PlaceWindows, wide(slots), &of_windows)?;
            scratch.scan(of_entries.kept_masks, narrow(kept), true, ranks)?;
            if measured { Vec::new() } else { scratch.read(of_entries.rest_offsets, rows + 1)? }
        };
        if counts.empty > 0 {
            let own = RowList { list: GlobalPtr::NULL, rows, kinds: PlaceRowsParams::EMPTY };
            place_pass(&scratch, self.row_offsets, own, of_windows.placed_rows, counts)?;
        }
        let tiles = Self {
            window_rows: of_windows.placed_rows,
            masks: of_entries.kept_masks,
            ranks,
            window_vectors: scratch.array_from(&vectors, "window_vectors")?,
            sources,
            totals: WindowTotals::of(&vectors),
            counts: None,
            vectors,
            own_rows: None,
            ..self
        };
        let entries = RestEntries { col_indices: rest_cols, sources: RestSources(rest_sources), scratch };
        let row_offsets = try_collect(rest_offsets.into_iter().map(u64::from), "rest_offsets")?;
        Ok(Some((tiles, Rest { row_offsets, offsets: of_entries.rest_offsets, longest, entries })))
    }
}

/// How many entries are in tiles, and how many of the row that has most are not.
///
/// # Safety
/// `kept` and `rest` are sums, of an entry more than there are.
unsafe fn measure(
    scratch: &Scratch,
    of_entries: &DistributeEntriesParams,
) -> Result<(usize, u64), DeviceError> {
    let found = DeviceBuffer::<u64>::zeroed(scratch.device(), 2, "what was divided")?;
    let params = MeasureRestParams {
        row_offsets: of_entries.row_offsets,
        rest: of_entries.rest,
        kept: of_entries.kept,
        found: found.pointer(),
        rows: of_entries.rows,
        entries: of_entries.entries,
    };
    // SAFETY: the caller's promise; the offsets are those of a valid matrix.
    unsafe { scratch.launch(Variant::MeasureRest, u64::from(of_entries.rows) + 1, &params)? };
    let found = found.to_vec()?;
    Ok((index(found[1]), found[0]))
}

/// The windows with vectors in tiles, and those of rows without entries dealt out evenly among them: for each the
/// window that it was, and the vectors of those before it, and of all.
fn arrange(distributed: &[[u32; 2]], counts: WindowCounts) -> Result<(Vec<u32>, Vec<u32>), OutOfMemory> {
    let windows = counts.full + counts.empty;
    let mut kept = (0u32..).zip(distributed).filter(|(_, [slots, _])| *slots != 0);
    let mut origins = try_with_room(windows, "origins of windows")?;
    let mut vectors = try_with_room(windows + 1, "window_vectors")?;
    let mut end = 0;
    vectors.push(0);
    for window in 0..windows {
        let next = if counts.is_empty(window) { None } else { kept.next() };
        origins.push(next.map_or(NO_WINDOW, |(origin, _)| origin));
        end += next.map_or(0, |(_, [_, taken])| *taken);
        vectors.push(end);
    }
    Ok((origins, vectors))
}

impl RestEntries {
    /// Entries of a matrix whose values the scratch memory holds.
    pub(super) fn new(
        col_indices: DeviceBuffer<u32>,
        sources: DeviceBuffer<u32>,
        scratch: Rc<Scratch>,
    ) -> Self {
        Self { col_indices, sources: RestSources(sources), scratch }
    }

    pub(crate) fn len(&self) -> usize {
        self.col_indices.len()
    }

    /// What is kept beside the arrays that products need, in bytes.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.sources.0.bytes()
    }

    /// Columns, the values of the matrix at their entries, and where these came from.
    pub(crate) fn with_values(
        self,
        values: Unplaced<'_>,
    ) -> Result<(DeviceBuffer<u32>, DeviceBuffer<u8>, RestSources), DeviceError> {
        let bytes = self.len() * values.dtype.bytes() as usize;
        let gathered = DeviceBuffer::alloc(self.scratch.device(), bytes, "values")?;
        self.sources.gather(&self.scratch, values, &gathered)?;
        Ok((self.col_indices, gathered, self.sources))
    }
}

impl RestSources {
    /// Gathers the values of the rest anew, from those of the whole matrix in CSR order.
    pub(crate) fn replace(
        &self,
        values: Unplaced<'_>,
        gathered: &DeviceBuffer<u8>,
    ) -> Result<(), DeviceError> {
        let scratch = Scratch::new(gathered.device(), wide(values.bytes.len()))?;
        self.gather(&scratch, values, gathered)
    }

    /// [`replace`](Self::replace) by values that are on the device, one for each entry of the matrix.
    ///
    /// # Safety
    /// They are live memory until the work is done, which nothing writes meanwhile.
    pub(crate) unsafe fn replace_from(
        &self,
        queue: &Arc<dyn Queue>,
        values: RoundedValues,
        gathered: &DeviceBuffer<u8>,
    ) -> Result<(), DeviceError> {
        let scratch = Scratch::holding(gathered.device(), queue, values.first)?;
        self.gather(&scratch, Unplaced::on_device(values.dtype), gathered)
    }

    fn gather(
        &self,
        scratch: &Scratch,
        values: Unplaced<'_>,
        gathered: &DeviceBuffer<u8>,
    ) -> Result<(), DeviceError> {
        let params = GatherValuesParams {
            sources: self.0.pointer(),
            values: scratch.values(values)?,
            gathered: gathered.pointer().cast(),
            count: narrow(self.0.len()),
            rounding: values.rounding(),
        };
        let variant = Variant::GatherValues { value_bytes: values.dtype.bytes() };
        // SAFETY: there is a value for each entry of the matrix, and room for each of these. The scratch memory is
        // freed after the launch.
        unsafe { scratch.launch(variant, wide(self.0.len()), &params) }
    }
}

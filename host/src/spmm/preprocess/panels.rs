//! Panels of rows laid out on a GPU: what [`crate::panels`] makes on the host. The kernels' side is
//! [`windrow_kernels::panels`].

use std::rc::Rc;
use std::sync::Arc;

use windrow_formats::memory::{try_collect, try_with_room};
use windrow_kernels::panels::{
    BundleRowsParams, PANEL_ROWS, PositionRecordsParams, SpansParams, ValueRecordsParams,
};
use windrow_kernels::row_panels::{MAX_PAIRS, NAME_WORDS, record_words};
use windrow_kernels::sddmm::panels as position;
use windrow_kernels::{Entry, NO_ROW, Variant};
use windrow_simt::GlobalPtr;

use super::condense::{Condensed, Slots, WindowCounts, place_all_rows, slots_of};
use super::scratch::Scratch;
use crate::csr::Received;
use crate::device::{Device, DeviceBuffer, Queue};
use crate::error::DeviceError;
use crate::num::{narrow, wide};
use crate::options::Precision;
use crate::panels::{ChunkWork, Panels, Sample};
use crate::plan::{Index, RoundedValues, Rounding, Target, Unplaced, placing_entry};
use crate::predict::PanelCounts;
use crate::spmm::layout::{CsrArrays, Matrix};
use crate::spmm::part::PLACES;
use crate::spmm::tiles::WINDOW_ROWS;

const ROWS: usize = PANEL_ROWS as usize;
/// Windows of a panel, which are merged as rows of a window are.
const WINDOWS: usize = ROWS / WINDOW_ROWS;
/// Scratch memory for each entry: masks, ranks and vectors of windows, and of panels where these share nothing.
const ENTRY_BYTES: u64 = 40;
/// Scratch memory for each row: its slot, and what there is of each window and panel.
const ROW_BYTES: u64 = 16;
/// Rows and entries that there may be: of no row do the kernels count more.
pub(crate) const MOST_PANEL_ITEMS: usize = 1 << 29;

/// A matrix in panels of successive rows, in device memory but for its records, of which it is known how long they are.
/// `P` are the params of the kernel that writes them.
pub(crate) struct DevicePanels<P> {
    /// What pieces are cut from.
    pub(crate) panels: Panels,
    pub(crate) rows: DeviceBuffer<[u32; 4]>,
    /// Columns of each chunk, and where its record is: written with it.
    pub(crate) names: DeviceBuffer<u32>,
    /// Words of all records.
    pub(crate) record_words: usize,
    nnz: usize,
    params: P,
    spans: Spans,
}

impl DevicePanels<ValueRecordsParams> {
    /// The panels of a matrix with no more than [`MOST_PANEL_ITEMS`] rows and entries, for products with a dense
    /// matrix. None if there are more words of records than kernels count.
    pub(in crate::spmm) fn new<A: Matrix>(device: &Device, a: &A) -> Result<Option<Self>, DeviceError> {
        let Bundled { mut spans, arrays, rows, counts } = Bundled::of(device, a)?;
        let (scratch, chunks) = (&spans.scratch, spans.params.spans as usize);
        let names = DeviceBuffer::alloc(device, NAME_WORDS as usize * chunks, "names")?;
        let Some(measuring) = Measuring::of(scratch, chunks, record_words(MAX_PAIRS))? else {
            return Ok(None);
        };
        let mut params = ValueRecordsParams {
            spans: spans.params,
            panel_rows: rows.pointer(),
            units: measuring.units,
            work: measuring.work,
            row_offsets: arrays.row_offsets,
            col_indices: arrays.col_indices,
            names: names.pointer(),
            records: GlobalPtr::NULL,
            places: GlobalPtr::NULL,
        };
        // SAFETY: the spans are those of all rows, whose words and bundles were written by the launches before; there
        // is a length for each chunk, and what it is to a block.
        let measured = unsafe {
            scratch.launch(Variant::MeasureRecords, wide(chunks), &params)?;
            measuring.read()?
        };
        let Some(Measured { starts, record_words, work }) = measured else { return Ok(None) };
        params.units = starts;
        let chunks = std::mem::take(&mut spans.panel_spans);
        let panels = Panels::elsewhere(rows.to_vec()?, work, chunks, counts);
        Ok(Some(Self { panels, rows, names, record_words, nnz: a.nnz(), params, spans }))
    }

    /// Bytes that are kept for new values.
    pub(in crate::spmm) fn place_bytes(&self) -> u64 {
        4 * wide(self.nnz)
    }

    /// Writes the records with values in CSR order. Beside the arrays, what places new values in them.
    pub(in crate::spmm) fn with_values(
        self,
        values: Unplaced<'_>,
    ) -> Result<(WrittenPanels, ValuePlaces), DeviceError> {
        let Self { rows, names, record_words, nnz, params, spans: Spans { scratch, .. }, .. } = self;
        let device = scratch.device();
        let records = DeviceBuffer::zeroed(device, record_words, "records")?;
        let places = DeviceBuffer::alloc(device, nnz, PLACES)?;
        let params = ValueRecordsParams { records: records.pointer(), places: places.pointer(), ..params };
        // SAFETY: as for `new`; there are names for each chunk, and the records are as long as was measured.
        unsafe { scratch.launch(Variant::WriteRecords, u64::from(params.spans.spans), &params)? };
        let places = ValuePlaces { places: Index::Scatter(places), nnz };
        places.write(&scratch, values, &records)?;
        Ok((WrittenPanels { rows, names, records }, places))
    }
}

impl DevicePanels<PositionRecordsParams> {
    /// The panels of a pattern with no more than [`MOST_PANEL_ITEMS`] rows and entries, for sampled products. None if
    /// there are more words of records than kernels count.
    pub(crate) fn of_pattern(device: &Device, a: &Received) -> Result<Option<Self>, DeviceError> {
        let Bundled { spans, arrays, rows, counts } = Bundled::of(device, a)?;
        let scratch = &spans.scratch;
        let mut chunks = 0;
        let mut panel_chunks = try_with_room(spans.panel_spans.len(), "chunks of panels")?;
        panel_chunks.push(chunks);
        panel_chunks.extend(spans.panel_spans.windows(2).map(|ends| {
            chunks += (ends[1] - ends[0]).div_ceil(2);
            chunks
        }));
        let count = chunks as usize;
        let names = DeviceBuffer::alloc(device, position::NAME_WORDS as usize * count, "names")?;
        let longest = position::record_words(position::MAX_BATCHES);
        let Some(measuring) = Measuring::of(scratch, count, longest)? else { return Ok(None) };
        let mut params = PositionRecordsParams {
            spans: spans.params,
            panel_chunks: scratch.array_from(&panel_chunks, "chunks of panels")?,
            panel_rows: rows.pointer(),
            units: measuring.units,
            work: measuring.work,
            row_offsets: arrays.row_offsets,
            col_indices: arrays.col_indices,
            names: names.pointer(),
            records: GlobalPtr::NULL,
            chunks,
            rows: narrow(a.rows),
        };
        // SAFETY: the spans are those of all rows, whose words and bundles were written by the launches before; there
        // is a length for each chunk, and what it is to a block.
        let measured = unsafe {
            scratch.launch(Variant::MeasurePositions, wide(count), &params)?;
            measuring.read()?
        };
        let Some(Measured { starts, record_words, work }) = measured else { return Ok(None) };
        params.units = starts;
        let panels = Panels::elsewhere(rows.to_vec()?, work, panel_chunks, counts);
        Ok(Some(Self { panels, rows, names, record_words, nnz: a.nnz, params, spans }))
    }

    /// Writes names and records.
    pub(crate) fn written(self) -> Result<WrittenPanels, DeviceError> {
        let Self { rows, names, record_words, params, spans: Spans { scratch, .. }, .. } = self;
        let records = DeviceBuffer::alloc(scratch.device(), record_words, "records")?;
        let params = PositionRecordsParams { records: records.pointer(), ..params };
        // SAFETY: as for `of_pattern`; there are names for each chunk, and the records are as long as was measured.
        unsafe { scratch.launch(Variant::WritePositions, u64::from(params.chunks), &params)? };
        Ok(WrittenPanels { rows, names, records })
    }
}

/// What a kernel is to find of each chunk.
struct Measuring<'a> {
    scratch: &'a Scratch,
    chunks: usize,
    /// Units of 16 bytes of its record.
    units: GlobalPtr<u32>,
    /// What it is to a block.
    work: GlobalPtr<[u32; 2]>,
}

/// What was measured of records.
struct Measured {
    /// The units of 16 bytes before each record, and of all.
    starts: GlobalPtr<u32>,
    record_words: usize,
    work: Vec<ChunkWork>,
}

impl<'a> Measuring<'a> {
    /// Of so many chunks, whose records have no more than so many words. None if the sum of their lengths may be more
    /// than kernels count.
    fn of(scratch: &'a Scratch, chunks: usize, longest: u32) -> Result<Option<Self>, DeviceError> {
        if wide(chunks) * u64::from(longest / 4) > u64::from(u32::MAX) {
            return Ok(None);
        }
        let units = scratch.array(chunks, "lengths of records")?;
        let work = scratch.array(chunks, "chunks of panels")?;
        Ok(Some(Self { scratch, chunks, units, work }))
    }

    /// Waits for the lengths and for what chunks are to blocks. None if there are more words than 32 bits number.
    ///
    /// # Safety
    /// Launches before write both of each chunk.
    unsafe fn read(self) -> Result<Option<Measured>, DeviceError> {
        let Self { scratch, chunks, units, work } = self;
        let starts = scratch.array(chunks + 1, "records of chunks")?;
        // SAFETY: the caller's promise; their sum was found to fit.
        let (all, work) = unsafe {
            scratch.scan(units, narrow(chunks), false, starts)?;
            (scratch.read(starts.at(narrow(chunks)), 1)?, scratch.read(work, chunks)?)
        };
        let words = all.first().and_then(|&units| units.checked_mul(4));
        let Some(record_words) = words.map(|words| words as usize) else { return Ok(None) };
        let work = work.into_iter().map(|[entries, most_pairs]| ChunkWork { entries, most_pairs });
        Ok(Some(Measured { starts, record_words, work: try_collect(work, "chunks of panels")? }))
    }
}

/// The panels of all rows of a matrix, and which of their rows are bundles.
struct Bundled {
    spans: Spans,
    arrays: CsrArrays,
    rows: DeviceBuffer<[u32; 4]>,
    counts: PanelCounts,
}

impl Bundled {
    fn of<A: Matrix>(device: &Device, a: &A) -> Result<Self, DeviceError> {
        let panels = a.rows().div_ceil(ROWS);
        let bytes = ENTRY_BYTES * wide(a.nnz()) + ROW_BYTES * wide(a.rows());
        let scratch = Rc::new(Scratch::new(device, bytes + bytes / 128 + (1 << 18))?);
        let arrays = a.arrays(&scratch)?;
        let slots = place_all_rows(&scratch, arrays.row_offsets, a.rows(), ROWS * panels)?;
        let spans = Spans::of(scratch, arrays, slots, panels, a.nnz())?;
        let rows = DeviceBuffer::alloc(device, ROWS / 4 * panels, "rows")?;
        let counts = PanelCounts::sum(&spans.bundle(rows.pointer().cast())?);
        Ok(Self { spans, arrays, rows, counts })
    }
}

/// The arrays of panels in device memory.
pub(crate) struct WrittenPanels {
    pub(crate) rows: DeviceBuffer<[u32; 4]>,
    pub(crate) names: DeviceBuffer<u32>,
    pub(crate) records: DeviceBuffer<u32>,
}

/// Where each value belongs in records, in device memory. Kept, for new values.
pub(in crate::spmm) struct ValuePlaces {
    places: Index,
    nnz: usize,
}

impl ValuePlaces {
    /// The kernel that places values.
    pub(in crate::spmm) fn entry() -> Option<&'static Entry> {
        placing_entry(Precision::F32).ok()
    }

    /// Replaces the values in `records`.
    pub(in crate::spmm) fn replace(
        &self,
        values: Unplaced<'_>,
        records: &DeviceBuffer<u32>,
    ) -> Result<(), DeviceError> {
        let scratch = Scratch::new(records.device(), wide(values.bytes.len()))?;
        self.write(&scratch, values, records)
    }

    /// [`replace`](Self::replace) by values that are on the device, one for each entry.
    ///
    /// # Safety
    /// They are live memory until the work is done, which nothing writes meanwhile.
    pub(in crate::spmm) unsafe fn replace_from(
        &self,
        queue: &Arc<dyn Queue>,
        values: RoundedValues,
        records: &DeviceBuffer<u32>,
    ) -> Result<(), DeviceError> {
        let scratch = Scratch::holding(records.device(), queue, values.first)?;
        self.write(&scratch, Unplaced::on_device(values.dtype), records)
    }

    fn write(
        &self,
        scratch: &Scratch,
        values: Unplaced<'_>,
        records: &DeviceBuffer<u32>,
    ) -> Result<(), DeviceError> {
        let rounding = Rounding { precision: Precision::F32, overflowed: GlobalPtr::NULL };
        let target = Target { out: records.pointer(), count: self.nnz };
        // SAFETY: there is a value for each entry, and a word of the records for each, which `WriteRecords` numbered.
        // The scratch memory is freed after the launch.
        unsafe { self.places.place(scratch.queue()?, rounding, scratch.values(values)?, target) }
    }
}

/// What panels have of a matrix that is on the device: all of them, or a sample for all, the same as on the host. None
/// if the sample has no entries. Waits for it.
pub(crate) fn received_panel_counts(
    device: &Device,
    a: &Received,
) -> Result<Option<PanelCounts>, DeviceError> {
    let sample = Sample::of(a.rows, a.nnz);
    let rows = sample.panels().flat_map(|panel| ROWS * panel..ROWS * (panel + 1));
    let slot = |row: usize| if row < a.rows { narrow(row) } else { NO_ROW };
    let slot_rows: Vec<u32> = rows.map(slot).collect(); // a few hundred panels
    let panels = slot_rows.len() / ROWS;
    if panels == 0 {
        return Ok(None);
    }
    let bytes = ROW_BYTES * wide(slot_rows.len()) + ENTRY_BYTES * wide(sample.about_entries());
    let scratch = Rc::new(Scratch::new(device, bytes + (1 << 18))?);
    let arrays = a.arrays(&scratch)?;
    let window_rows = scratch.array_from(&slot_rows, "rows of panels")?;
    let slots = slots_of(&scratch, arrays.row_offsets, window_rows, narrow(slot_rows.len()))?;
    // SAFETY: there is an element behind those of the slots.
    let entries = unsafe { scratch.read(slots.slot_begins.at(narrow(slot_rows.len())), 1)? };
    let entries = entries.first().map_or(0, |&entries| entries as usize);
    if entries == 0 {
        return Ok(None);
    }
    let spans = Spans::of(scratch, arrays, slots, panels, entries)?;
    let panel_rows = spans.scratch.array(slot_rows.len(), "rows of bundles")?;
    let PanelCounts { columns, vectors } = PanelCounts::sum(&spans.bundle(panel_rows)?);
    Ok(sample.of_all([wide(entries), columns, vectors]))
}

/// The columns of panels in spans.
struct Spans {
    params: SpansParams,
    slot_rows: GlobalPtr<u32>,
    /// Spans of the panels before each, and of all.
    panel_spans: Vec<u32>,
    scratch: Rc<Scratch>,
    /// Vectors of windows, and those of panels, which the params point to.
    _merged: [Condensed; 2],
}

impl Spans {
    /// Those of panels whose slots have rows of so many entries in all. Waits twice for how many there are.
    fn of(
        scratch: Rc<Scratch>,
        arrays: CsrArrays,
        slots: Slots,
        panels: usize,
        entries: usize,
    ) -> Result<Self, DeviceError> {
        let counts = |full: usize| WindowCounts { full, empty: 0, all_full: true };
        let slot_rows = slots.window_rows;
        let windows =
            Condensed::merge(Rc::clone(&scratch), arrays, slots, counts(WINDOWS * panels), entries)?;
        // SAFETY: there is an element behind those of the windows.
        let count = unsafe { scratch.read(windows.window_vectors.at(narrow(WINDOWS * panels)), 1)? };
        let count = count.first().map_or(0, |&count| count as usize);
        let columns = scratch.array(count, "columns of windows")?;
        let vectors = windows.list_vectors(columns)?;
        let of_windows = CsrArrays { row_offsets: windows.window_vectors, col_indices: columns };
        let slots = place_all_rows(&scratch, of_windows.row_offsets, WINDOWS * panels, WINDOWS * panels)?;
        let merged = Condensed::merge(Rc::clone(&scratch), of_windows, slots, counts(panels), count)?;
        let mut params = SpansParams {
            panel_columns: merged.window_vectors,
            span_counts: scratch.array(panels, "spans of panels")?,
            panel_spans: scratch.array(panels + 1, "spans of panels")?,
            vectors,
            row_masks: windows.masks,
            columns: merged.list_vectors(GlobalPtr::NULL)?,
            window_masks: merged.masks,
            sources: merged.sources.pointer(),
            words: GlobalPtr::NULL,
            panels: narrow(panels),
            spans: 0,
        };
        // SAFETY: the columns are those of the panels, of which there are fewer than entries.
        let panel_spans = unsafe {
            scratch.launch(Variant::CountSpans, wide(panels), &params)?;
            scratch.scan(params.span_counts, params.panels, false, params.panel_spans)?;
            scratch.read(params.panel_spans, panels + 1)?
        };
        params.spans = panel_spans.last().copied().unwrap_or_default();
        params.words = scratch.array(ROWS * params.spans as usize, "rows of spans")?;
        Ok(Self { params, slot_rows, panel_spans, scratch, _merged: [windows, merged] })
    }

    /// Which rows of each panel are a bundle, and the distinct columns and vectors of each panel. Waits for these.
    fn bundle(&self, panel_rows: GlobalPtr<u32>) -> Result<Vec<[u32; 2]>, DeviceError> {
        let panels = self.params.panels;
        let counts = self.scratch.array(panels as usize, "counts of panels")?;
        let params = BundleRowsParams { spans: self.params, slot_rows: self.slot_rows, panel_rows, counts };
        // SAFETY: the spans were counted by the launches of `of`, and the arrays have the lengths that the kernels ask
        // for; rows have fewer than 2³⁰ entries.
        unsafe {
            self.scratch.launch(Variant::MarkRows, u64::from(self.params.spans), &self.params)?;
            self.scratch.launch(Variant::BundleRows, u64::from(panels), &params)?;
            self.scratch.read(counts, panels as usize)
        }
    }
}

//! A pattern that is on the device, laid out for sampled products by kernels: what [`windrow_formats::SampledTiles`]
//! and [`windrow_preprocess::balance::entry_batches`] make on the host. The kernels are [`windrow_kernels::patterns`].

use windrow_formats::WINDOW_ROWS;
use windrow_kernels::Variant;
use windrow_kernels::csr::ExpandRowsParams;
use windrow_kernels::patterns::{
    BatchesParams, RankVectorsParams, RestParams, SampleTilesParams, TileCounts,
};
use windrow_simt::GlobalPtr;

use super::build::{Counts, Uploaded};
use super::builder::SddmmBuilder;
use super::gpu::{EntriesPart, GroupsPart, TilesPart};
use super::options::{SddmmAlgorithm, SddmmForm};
use super::report::SddmmReport;
use super::row_panels::PanelsThere;
use crate::csr::Received;
use crate::device::{Device, DeviceBuffer};
use crate::error::{DeviceError, SddmmError};
use crate::num::{index, narrow, wide};
use crate::options::Precision;
use crate::spmm::{Condensed, DevicePanels, Scratch, WindowCounts};

/// Scratch memory for each entry: masks, ranks, and a vector for each.
const TILES_ENTRY_BYTES: u64 = 20;
/// The same where entries are divided: which vectors and entries are in tiles, and in which order.
const HYBRID_ENTRY_BYTES: u64 = 36;

/// Lays a pattern with entries out, with at least `threshold` entries in a tile of a hybrid, and with the batches that
/// were counted before, if they were. Notes what the plan has, before there is memory for it. None for panels with more
/// words of records than kernels count.
pub(super) fn lay_out<A>(
    builder: &SddmmBuilder<'_, A>,
    device: &Device,
    a: Received,
    (threshold, counted): (Option<u32>, Option<CountedBatches>),
    report: &mut SddmmReport,
) -> Result<Option<(Counts, Uploaded)>, SddmmError> {
    let precision = builder.options.precision;
    let columns = a.nnz;
    let mut uploaded = Uploaded::default();
    let counts = match report.algorithm {
        SddmmAlgorithm::Groups => {
            let counts = Counts { entry_rows: a.nnz, columns, ..Counts::default() };
            builder.note(counts, report)?;
            uploaded.groups = Some(GroupsPart {
                rows: entry_rows(device, &a)?,
                col_indices: a.col_indices,
                group: builder.group(),
                kernels: GroupsPart::kernels(precision)?,
            });
            counts
        }
        SddmmAlgorithm::Entries => {
            let counted = counted.map_or_else(|| CountedBatches::of(device, &a), Ok)?;
            let counts = Counts { batches: counted.len(), columns, ..Counts::default() };
            builder.note(counts, report)?;
            let (rows, begins) = counted.batches.list(device, &counted.scratch)?;
            let (col_indices, kernels) = (a.col_indices, EntriesPart::kernels(precision)?);
            uploaded.entries = Some(EntriesPart { rows, begins, col_indices, kernels });
            counts
        }
        SddmmAlgorithm::RowPanels => {
            let made = DevicePanels::of_pattern(device, &a)?;
            let Some(laid) = made.map(|made| PanelsThere::of(made, device, builder.options.inner)) else {
                return Ok(None);
            };
            let laid = laid?;
            let counts = Counts { panels: laid.counts(), ..Counts::default() };
            builder.note(counts, report)?;
            uploaded.panels = Some(laid.upload(device)?);
            counts
        }
        _ => {
            let windows = Windows::new(device, &a, threshold)?;
            let counts = windows.counts;
            builder.note(counts, report)?;
            if counts.tiles > 0 {
                uploaded.tiles = Some(TilesPart {
                    records: DeviceBuffer::alloc(device, counts.tiles, "tiles")?,
                    window_rows: DeviceBuffer::alloc(device, counts.window_rows, "window_rows")?,
                    kernels: builder.tile_entries()?,
                });
            }
            if counts.places > 0 {
                uploaded.places = Some(DeviceBuffer::alloc(device, counts.places, "places")?);
            }
            windows.write(&a, &uploaded)?;
            uploaded.entries = windows.list_rest(device, precision, uploaded.places.as_ref())?;
            counts
        }
    };
    uploaded.scale = (builder.options.form == SddmmForm::Scale).then_some(a.values);
    Ok(Some((counts, uploaded)))
}

/// The row of each entry.
fn entry_rows(device: &Device, a: &Received) -> Result<DeviceBuffer<u32>, DeviceError> {
    let rows = DeviceBuffer::alloc(device, a.nnz, "entry_rows")?;
    let params = ExpandRowsParams {
        offsets: a.row_offsets.pointer(),
        labels: GlobalPtr::NULL,
        out: rows.pointer(),
        rows: narrow(a.rows),
        entries: narrow(a.nnz),
        wide_offsets: 0,
        reserved: 0,
    };
    let scratch = Scratch::new(device, 0)?;
    // SAFETY: the offsets were checked, and there is a row for each entry.
    unsafe { scratch.launch(Variant::ExpandRows, wide(a.nnz), &params)? };
    Ok(rows)
}

/// The batches of all entries, counted, with the memory that the numbers are in.
pub(super) struct CountedBatches {
    scratch: Scratch,
    batches: Batches,
}

impl CountedBatches {
    pub(super) fn of(device: &Device, a: &Received) -> Result<Self, DeviceError> {
        // The numbers and their sums, and the ends of arrays.
        let scratch = Scratch::new(device, 4 * wide(a.rows) + wide(a.rows) / 128 + (1 << 12))?;
        let batches = Batches::count(&scratch, a, GlobalPtr::NULL)?;
        Ok(Self { scratch, batches })
    }

    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }
}

/// Rows cut into batches that are counted.
struct Batches(BatchesParams);

impl Batches {
    /// Of the entries that `listed` says, or of all.
    fn count(scratch: &Scratch, a: &Received, listed: GlobalPtr<u32>) -> Result<Self, DeviceError> {
        let mut params = BatchesParams {
            row_offsets: a.row_offsets.pointer(),
            listed,
            batches: scratch.array(a.rows + 1, "batches of rows")?,
            batch_rows: GlobalPtr::NULL,
            batch_begins: GlobalPtr::NULL,
            rows: narrow(a.rows),
            count: 0,
        };
        // SAFETY: the offsets were checked; there is a number for each row, and room for their sum.
        let count = unsafe {
            scratch.launch(Variant::CountBatches, wide(a.rows), &params)?;
            scratch.scan(params.batches, params.rows, false, params.batches)?;
            scratch.read(params.batches.at(params.rows), 1)?
        };
        params.count = count.first().copied().unwrap_or_default();
        Ok(Self(params))
    }

    fn len(&self) -> usize {
        self.0.count as usize
    }

    /// Row of each, and where each begins.
    fn list(
        &self,
        device: &Device,
        scratch: &Scratch,
    ) -> Result<(DeviceBuffer<u32>, DeviceBuffer<u32>), DeviceError> {
        let rows = DeviceBuffer::alloc(device, self.len(), "batch_rows")?;
        let begins = DeviceBuffer::alloc(device, self.len() + 1, "batch_begins")?;
        let (batch_rows, batch_begins) = (rows.pointer(), begins.pointer());
        let params = BatchesParams { batch_rows, batch_begins, ..self.0 };
        // SAFETY: the numbers are those of `count`, and there is room for as many batches.
        unsafe { scratch.launch(Variant::ListBatches, wide(self.len()) + 1, &params)? };
        Ok((rows, begins))
    }
}

/// The windows of a pattern, and which of their columns are in tiles.
struct Windows {
    condensed: Condensed,
    tiles: SampleTilesParams,
    /// What is in no tile, of a hybrid.
    rest: Option<(RestParams, Batches)>,
    counts: Counts,
}

impl Windows {
    /// Of a hybrid with so many entries in a tile at least, or with all entries in tiles.
    fn new(device: &Device, a: &Received, threshold: Option<u32>) -> Result<Self, DeviceError> {
        let entry_bytes = if threshold.is_some() { HYBRID_ENTRY_BYTES } else { TILES_ENTRY_BYTES };
        let condensed = Condensed::of_received(device, a, entry_bytes)?;
        let scratch = &*condensed.scratch;
        let windows = WindowCounts::of_filled(a).full;
        let counts = DeviceBuffer::<TileCounts>::zeroed(device, 1, "counts of tiles")?;
        let mut tiles = SampleTilesParams {
            window_vectors: condensed.window_vectors,
            vectors: condensed.list_vectors(GlobalPtr::NULL)?,
            masks: condensed.masks,
            sources: condensed.sources.pointer(),
            order: GlobalPtr::NULL,
            kept: GlobalPtr::NULL,
            window_tiles: scratch.array(windows + 1, "tiles of windows")?,
            window_entries: GlobalPtr::NULL,
            records: GlobalPtr::NULL,
            places: GlobalPtr::NULL,
            counts: counts.pointer(),
            windows: narrow(windows),
            tiles: 0,
        };
        let taken = match threshold {
            Some(threshold) => Some(rank(&condensed, &mut tiles, threshold)?),
            None => None,
        };
        // SAFETY: the arrays are those of `condensed` and `rank`; there is a number for each window, and room for their
        // sums, which may take the place of what is added up.
        unsafe {
            scratch.launch(Variant::CountTiles, wide(windows), &tiles)?;
            scratch.scan(tiles.window_tiles, tiles.windows, false, tiles.window_tiles)?;
            if taken.is_some() {
                scratch.scan(tiles.window_entries, tiles.windows, false, tiles.window_entries)?;
            }
        }
        let rest = match taken {
            Some(taken) => Some(mark_rest(&condensed, a, taken)?),
            None => None,
        };
        let found = counts.to_vec()?.first().copied().unwrap_or_default();
        tiles.tiles = found.tiles;
        let tile_entries = if rest.is_some() { index(u64::from(found.entries)) } else { a.nnz };
        let counts = Counts {
            tiles: found.tiles as usize,
            column_vectors: u64::from(found.vectors),
            windows: found.windows as usize,
            window_rows: WINDOW_ROWS * windows,
            tile_entries,
            places: if rest.is_some() { a.nnz } else { 0 },
            batches: rest.as_ref().map_or(0, |(_, batches)| batches.len()),
            columns: a.nnz - tile_entries,
            ..Counts::default()
        };
        Ok(Self { condensed, tiles, rest, counts })
    }

    /// Writes the tiles to the arrays that were made for them, and the places of their entries.
    fn write(&self, a: &Received, to: &Uploaded) -> Result<(), DeviceError> {
        let Some(part) = &to.tiles else { return Ok(()) };
        let places = to.places.as_ref().map_or(GlobalPtr::NULL, DeviceBuffer::pointer);
        let tiles = SampleTilesParams { records: part.records.pointer().cast(), places, ..self.tiles };
        self.condensed.place_rows_in(a, part.window_rows.pointer())?;
        // SAFETY: there is a record for each tile that was counted, and a place for each entry.
        unsafe { self.condensed.scratch.launch(Variant::SampleTiles, wide(self.counts.tiles), &tiles) }
    }

    /// Batches of the entries that are in no tile, and their columns; their places follow those of the tiles.
    fn list_rest(
        &self,
        device: &Device,
        precision: Precision,
        places: Option<&DeviceBuffer<u32>>,
    ) -> Result<Option<EntriesPart>, DeviceError> {
        let (Some((params, batches)), Some(places)) = (&self.rest, places) else { return Ok(None) };
        if self.counts.columns == 0 {
            return Ok(None);
        }
        let scratch = &*self.condensed.scratch;
        let (rows, begins) = batches.list(device, scratch)?;
        let col_indices = DeviceBuffer::alloc(device, self.counts.columns, "col_indices")?;
        let rest_places = places.pointer().at(narrow(self.counts.tile_entries));
        let params = RestParams { rest_places, rest_cols: col_indices.pointer(), ..*params };
        // SAFETY: the sums are those of `mark_rest`; behind the places of the tiles' entries there is room for those of
        // all others.
        unsafe { scratch.launch(Variant::ListRest, u64::from(params.entries), &params)? };
        let kernels = EntriesPart::kernels(precision)?;
        Ok(Some(EntriesPart { rows, begins, col_indices, kernels }))
    }
}

/// Ranks the columns of each window, and notes where the outcome is. Which vectors are in tiles.
fn rank(
    condensed: &Condensed,
    tiles: &mut SampleTilesParams,
    threshold: u32,
) -> Result<GlobalPtr<u32>, DeviceError> {
    let (scratch, entries) = (&*condensed.scratch, condensed.sources.len());
    let windows = tiles.windows as usize;
    let params = RankVectorsParams {
        window_vectors: tiles.window_vectors,
        vectors: tiles.vectors,
        masks: tiles.masks,
        order: scratch.array(entries, "order of columns")?,
        taken: scratch.array(entries, "columns in tiles")?,
        kept: scratch.array(windows, "columns of windows in tiles")?,
        window_entries: scratch.array(windows + 1, "entries of windows in tiles")?,
        threshold,
        reserved: 0,
    };
    (tiles.order, tiles.kept, tiles.window_entries) = (params.order, params.kept, params.window_entries);
    // SAFETY: the arrays are those of `condensed`; there are no more columns than entries.
    unsafe { scratch.launch(Variant::RankVectors, wide(windows), &params)? };
    Ok(params.taken)
}

/// The entries that are in no tile, and how many batches these make.
fn mark_rest(
    condensed: &Condensed,
    a: &Received,
    taken: GlobalPtr<u32>,
) -> Result<(RestParams, Batches), DeviceError> {
    let scratch = &*condensed.scratch;
    let params = RestParams {
        col_indices: a.col_indices.pointer(),
        sources: condensed.sources.pointer(),
        masks: condensed.masks,
        ranks: condensed.ranks,
        taken,
        rest: scratch.array(a.nnz + 1, "entries not in tiles")?,
        rest_places: GlobalPtr::NULL,
        rest_cols: GlobalPtr::NULL,
        entries: narrow(a.nnz),
        reserved: 0,
    };
    // SAFETY: the arrays are those of `condensed` and `rank`; sums may take the place of what is added up.
    unsafe {
        scratch.launch(Variant::MarkRest, wide(a.nnz), &params)?;
        scratch.scan(params.rest, params.entries, false, params.rest)?;
    }
    Ok((params, Batches::count(scratch, a, params.rest)?))
}

//! The windows of a matrix condensed on a GPU: what [`windrow_formats::RsTile`] and the plan's pattern of tiles are
//! on the host.

use std::rc::Rc;

use windrow_formats::memory::{try_collect, try_with_room};
use windrow_formats::{NO_ROW, Permutation};
use windrow_kernels::Variant;
use windrow_kernels::deal::DealParams;
use windrow_kernels::preprocess::{
    GatherValuesParams, ListStreamPiecesParams, ListVectorsParams, ListWorkersParams, MergeColumnsParams,
    PlaceAllRowsParams, PlaceRowsParams, RowLengthsParams, TileRecordsParams, TileStepsParams,
};
use windrow_kernels::tile_stream::piece_word;
use windrow_preprocess::balance::{DealtSteps, SplitWindow};
use windrow_simt::GlobalPtr;

use super::deal::WindowTotals;
use super::scratch::Scratch;
use super::steps::{DeviceSteps, Ends};
use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{narrow, wide};
use crate::spmm::layout::{CsrArrays, Matrix};
use crate::spmm::tiles::{DealtWindows, Form, WINDOW_ROWS, is_empty_window};

/// A matrix whose windows are condensed, in device memory.
pub(crate) struct Condensed {
    pub(crate) scratch: Rc<Scratch>,
    pub(super) row_offsets: GlobalPtr<u32>,
    pub(super) col_indices: GlobalPtr<u32>,
    /// Row in each slot.
    pub(crate) window_rows: GlobalPtr<u32>,
    /// Where a column begins, the slots that have it.
    pub(crate) masks: GlobalPtr<u32>,
    /// Columns that begin before each position.
    pub(crate) ranks: GlobalPtr<u32>,
    /// Columns of the windows before each, and of all.
    pub(crate) window_vectors: GlobalPtr<u32>,
    /// Entry of the matrix at each position.
    pub(crate) sources: DeviceBuffer<u32>,
    /// `window_vectors` on the host; nothing where nobody has read it.
    pub(super) vectors: Vec<u32>,
    /// Of the windows; only their number where nobody has waited for it.
    pub(super) totals: WindowTotals,
    /// What a kernel counted of them.
    pub(super) counts: Option<DealParams>,
    /// Rows of the matrix, if its windows are of all of them in their own order.
    pub(super) own_rows: Option<usize>,
}

/// Rows without entries go to windows of their own, of which there are so many beside those of the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowCounts {
    pub(crate) full: usize,
    pub(crate) empty: usize,
    /// Whether the windows are those of all rows, and each has entries.
    pub(crate) all_full: bool,
}

impl WindowCounts {
    /// Whether a window is one of rows without entries.
    pub(crate) fn is_empty(self, window: usize) -> bool {
        is_empty_window(window, self.empty, self.full + self.empty)
    }
}

impl Condensed {
    /// Brings a matrix to the device, unless it is there, and condenses its windows of the rows in `order`: all, or
    /// those alone that have entries. For what is done with them, scratch memory has `entry_bytes` for each entry.
    /// Waits for nothing.
    pub(in crate::spmm) fn new<A: Matrix>(
        device: &Device,
        a: &A,
        order: Option<&Permutation>,
        counts: WindowCounts,
        entry_bytes: u64,
    ) -> Result<Self, DeviceError> {
        let of_rows = if order.is_some() { 48 } else { 36 };
        let scratch_bytes = entry_bytes * wide(a.nnz()) + of_rows * wide(a.rows());
        // The ends of arrays, sums of scans, and what there is for each worker.
        let scratch = Rc::new(Scratch::new(device, scratch_bytes + scratch_bytes / 128 + (1 << 18))?);
        let CsrArrays { row_offsets, col_indices } = a.arrays(&scratch)?;
        let slots = narrow(WINDOW_ROWS * (counts.full + counts.empty));
        let placed = match order {
            None if counts.all_full => {
                place_all_rows(&scratch, row_offsets, a.rows(), a.rows().next_multiple_of(WINDOW_ROWS))?
            }
            _ => {
                let window_rows = place_rows(&scratch, row_offsets, a.rows(), order, counts)?;
                slots_of(&scratch, row_offsets, window_rows, slots)?
            }
        };
        let own_rows = (order.is_none() && counts.all_full).then(|| a.rows());
        let merged = Self::merge(scratch, CsrArrays { row_offsets, col_indices }, placed, counts, a.nnz())?;
        Ok(Self { own_rows, ..merged })
    }

    /// Windows of the rows in a list, in its order, and of those that have no entries. Waits for nothing.
    pub(in crate::spmm) fn of_list<A: Matrix>(
        device: &Device,
        a: &A,
        ListedRows { list, entries, counts, entry_bytes }: ListedRows,
    ) -> Result<Self, DeviceError> {
        let scratch_bytes = entry_bytes * wide(entries) + 36 * wide(a.rows());
        let scratch = Rc::new(Scratch::new(device, scratch_bytes + scratch_bytes / 128 + (1 << 18))?);
        let arrays = a.arrays(&scratch)?;
        let windows = counts.full + counts.empty;
        let window_rows = scratch.array(WINDOW_ROWS * windows, "window_rows")?;
        place_pass(&scratch, arrays.row_offsets, list, window_rows, counts)?;
        if counts.empty > 0 {
            let own = RowList { list: GlobalPtr::NULL, rows: a.rows(), kinds: PlaceRowsParams::EMPTY };
            place_pass(&scratch, arrays.row_offsets, own, window_rows, counts)?;
        }
        let placed = slots_of(&scratch, arrays.row_offsets, window_rows, narrow(WINDOW_ROWS * windows))?;
        Self::merge(scratch, arrays, placed, counts, entries)
    }

    /// The columns of windows whose slots have rows of so many entries in all.
    pub(super) fn merge(
        scratch: Rc<Scratch>,
        CsrArrays { row_offsets, col_indices }: CsrArrays,
        Slots { window_rows, slot_begins }: Slots,
        counts: WindowCounts,
        nnz: usize,
    ) -> Result<Self, DeviceError> {
        let windows = counts.full + counts.empty;
        let (slots, entries) = (narrow(WINDOW_ROWS * windows), narrow(nnz));
        let sources = DeviceBuffer::alloc(scratch.device(), nnz, "sources")?;
        let masks = scratch.array(nnz, "masks")?;
        let ranks = scratch.array(nnz + 1, "ranks")?;
        let window_vectors = scratch.array(windows + 1, "window_vectors")?;
        let merge = MergeColumnsParams {
            window_rows,
            slot_begins,
            row_offsets,
            col_indices,
            sources: sources.pointer(),
            masks,
            slots,
            entries,
        };
        let list = ListVectorsParams {
            ranks,
            slot_begins,
            window_vectors,
            col_indices,
            sources: sources.pointer(),
            masks,
            vectors: GlobalPtr::NULL,
            columns: GlobalPtr::NULL,
            entries,
            windows: narrow(windows),
        };
        // SAFETY: the matrix is valid and has fewer than `MOST_ITEMS` rows and entries; the arrays have the lengths
        // that the kernels ask for; every slot has a row or `NO_ROW`, and every row with entries one slot, so that
        // the slots have all entries. Arrays are read after the launch that writes them.
        unsafe {
            scratch.launch(Variant::MergeColumns, u64::from(entries), &merge)?;
            scratch.scan(masks, entries, true, ranks)?;
            scratch.launch(Variant::ListVectors, wide(windows) + 1, &list)?;
        }
        Ok(Self {
            scratch,
            row_offsets,
            col_indices,
            window_rows,
            masks,
            ranks,
            window_vectors,
            sources,
            vectors: Vec::new(),
            totals: WindowTotals::unknown(windows),
            counts: None,
            own_rows: None,
        })
    }

    /// Entries in the windows.
    pub(crate) fn entries(&self) -> usize {
        self.sources.len()
    }

    pub(crate) fn windows(&self) -> usize {
        self.totals.windows
    }

    /// Distinct columns of all windows.
    pub(crate) fn vector_count(&self) -> usize {
        self.totals.vectors
    }

    /// What is known of the windows.
    pub(crate) fn totals(&self) -> WindowTotals {
        self.totals
    }

    /// The rows of windows, eight of each. Waits for them, if they do not follow from the windows' numbers.
    pub(crate) fn rows_of_split(&self, windows: &[SplitWindow]) -> Result<Vec<u32>, DeviceError> {
        let height = narrow(WINDOW_ROWS);
        let mut slots = try_with_room(WINDOW_ROWS * windows.len(), "rows of windows that are cut")?;
        slots.extend(windows.iter().flat_map(|of| height * of.window..height * (of.window + 1)));
        if windows.is_empty() {
            return Ok(slots);
        }
        if let Some(rows) = self.own_rows {
            slots.iter_mut().filter(|slot| **slot >= narrow(rows)).for_each(|slot| *slot = NO_ROW);
            return Ok(slots);
        }
        let count = narrow(slots.len());
        let params = GatherValuesParams {
            sources: self.scratch.array_from(&slots, "rows of windows that are cut")?,
            values: self.window_rows,
            gathered: self.scratch.array(slots.len(), "rows of windows that are cut")?,
            count,
            rounding: TileRecordsParams::ROUNDED,
        };
        // SAFETY: eight slots for each window, placed by the launches of `new`; as many are gathered as are listed.
        unsafe {
            self.scratch.launch(Variant::GatherValues { value_bytes: 4 }, u64::from(count), &params)?;
            self.scratch.read(params.gathered, slots.len())
        }
    }

    /// `[column, first position]` of each column of each window, and the number of positions behind the last. The
    /// columns alone go to `columns`, unless that is null: an array with an element for each.
    pub(crate) fn list_vectors(&self, columns: GlobalPtr<u32>) -> Result<GlobalPtr<[u32; 2]>, DeviceError> {
        let most = if self.totals.steps == 0 { self.sources.len() } else { self.vector_count() };
        let vectors = self.scratch.array(most + 1, "vectors")?;
        let entries = narrow(self.sources.len());
        let params = ListVectorsParams {
            ranks: self.ranks,
            slot_begins: GlobalPtr::NULL,
            window_vectors: GlobalPtr::NULL,
            col_indices: self.col_indices,
            sources: self.sources.pointer(),
            masks: self.masks,
            vectors,
            columns,
            entries,
            windows: 0,
        };
        // SAFETY: the arrays are those of `self`, and there is room for each column that begins.
        unsafe { self.scratch.launch(Variant::ListVectors, u64::from(entries) + 1, &params)? };
        Ok(vectors)
    }

    /// The pieces of windows that were dealt out, and what steps they have.
    fn lay_out_pieces(&self, dealt: &DealtSteps) -> Result<Stream, DeviceError> {
        let scratch = &self.scratch;
        let divided = dealt.divided.iter().map(|piece| {
            let word = piece_word(piece.slot, piece.shared);
            [piece.window, piece.begin, word, piece.end]
        });
        let divided = try_collect(divided, "pieces of windows that are divided")?;
        let (count, workers) = (dealt.order.len(), dealt.workers());
        let of_pieces = ListStreamPiecesParams {
            order: scratch.array_from(&dealt.order, "order of pieces")?,
            divided: scratch.array_from(&divided, "pieces of windows that are divided")?,
            window_vectors: self.window_vectors,
            pieces: scratch.array(count, "pieces")?,
            lengths: scratch.array(count, "steps of pieces")?,
            count: narrow(count),
            reserved: 0,
        };
        let piece_steps = scratch.array(count + 1, "piece_steps")?;
        let list = DeviceBuffer::<[u32; 2]>::alloc(scratch.device(), workers, "workers")?;
        let of_workers = ListWorkersParams {
            worker_pieces: scratch.array_from(&dealt.worker_pieces, "pieces of workers")?,
            piece_steps,
            workers: list.pointer(),
            count: narrow(workers),
            reserved: 0,
        };
        // SAFETY: the pieces are those of the windows that were condensed, as `deal_steps` lists them, each of a piece
        // and at least one; arrays have the lengths that the kernels ask for.
        unsafe {
            scratch.launch(Variant::ListStreamPieces, wide(count), &of_pieces)?;
            scratch.scan(of_pieces.lengths, of_pieces.count, false, piece_steps)?;
            scratch.launch(Variant::ListWorkers, wide(workers), &of_workers)?;
        }
        let (pieces, piece_count) = (of_pieces.pieces, of_pieces.count);
        Ok(Stream { pieces, piece_steps, piece_count, workers: list })
    }

    /// Writes the steps of the windows as they were dealt out.
    pub(crate) fn into_steps(
        self,
        stream: &DealtWindows,
        form: Form,
        value_bytes: u32,
    ) -> Result<DeviceSteps, DeviceError> {
        let scratch = Rc::clone(&self.scratch);
        let device = scratch.device();
        let steps = stream.steps();
        let (step_cols, bitmaps, step_entries) = (
            DeviceBuffer::<[u32; 4]>::alloc(device, 4 * steps, "step_cols")?,
            DeviceBuffer::<[u64; 2]>::alloc(device, steps, "bitmaps")?,
            DeviceBuffer::<u32>::alloc(device, steps, "step_entries")?,
        );
        let record_starts = match form {
            Form::Dense => None,
            Form::Packed | Form::Bitmap => {
                Some(DeviceBuffer::<u32>::alloc(device, steps + 1, "record_starts")?)
            }
        };
        let step_chunks = match form {
            Form::Dense => GlobalPtr::NULL,
            Form::Packed | Form::Bitmap => scratch.array(steps, "chunks of steps")?,
        };
        let Stream { pieces, piece_steps, piece_count, workers } = match stream.whole() {
            Some(whole) => self.deal_out(whole)?,
            None => self.lay_out_pieces(stream.dealt())?,
        };
        let of_steps = TileStepsParams {
            pieces,
            piece_steps,
            window_vectors: self.window_vectors,
            vectors: self.list_vectors(GlobalPtr::NULL)?,
            masks: self.masks,
            step_cols: step_cols.pointer().cast(),
            bitmaps: bitmaps.pointer().cast(),
            step_entries: step_entries.pointer(),
            step_chunks,
            steps: narrow(steps),
            piece_count,
            value_bytes,
            reserved: 0,
        };
        let mut chunks = 0;
        // SAFETY: the arrays are those of `new` and of the lengths that the kernels ask for; the pieces have each
        // step of each window once, of which there are as many as its columns fill.
        unsafe {
            scratch.launch(Variant::TileSteps, wide(steps), &of_steps)?;
            if let Some(starts) = &record_starts {
                scratch.scan(step_chunks, narrow(steps), false, starts.pointer())?;
                let last = scratch.read(starts.pointer().at(narrow(steps)), 1)?;
                chunks = last.first().map_or(0, |&chunks| u64::from(chunks));
            }
        }
        Ok(DeviceSteps {
            workers,
            step_cols,
            bitmaps,
            record_starts,
            chunks,
            step_entries,
            sources: self.sources,
            ends: Ends {
                pieces: of_steps.pieces,
                piece_steps: of_steps.piece_steps,
                piece_count: of_steps.piece_count,
                window_rows: self.window_rows,
            },
            scratch,
        })
    }
}

/// Windows as a stream, in device memory.
pub(super) struct Stream {
    /// `[window, first step of it, piece word, 0]` of each piece.
    pub(super) pieces: GlobalPtr<[u32; 4]>,
    /// First step of each in the stream, and the number of steps.
    pub(super) piece_steps: GlobalPtr<u32>,
    pub(super) piece_count: u32,
    /// `[begin, end]` of each worker's steps.
    pub(super) workers: DeviceBuffer<[u32; 2]>,
}

/// The slots of windows, eight for each.
pub(super) struct Slots {
    /// The row in each slot.
    pub(super) window_rows: GlobalPtr<u32>,
    /// Entries of those before each, and of all.
    pub(super) slot_begins: GlobalPtr<u32>,
}

/// Where slots with these rows begin.
pub(super) fn slots_of(
    scratch: &Scratch,
    row_offsets: GlobalPtr<u32>,
    window_rows: GlobalPtr<u32>,
    slots: u32,
) -> Result<Slots, DeviceError> {
    let lengths = scratch.array(slots as usize, "lengths of slots")?;
    let slot_begins = scratch.array(slots as usize + 1, "slot_begins")?;
    let of_slots = RowLengthsParams { rows: window_rows, row_offsets, lengths, count: slots, reserved: 0 };
    // SAFETY: as for `Condensed::new`.
    unsafe {
        scratch.launch(Variant::RowLengths, u64::from(slots), &of_slots)?;
        scratch.scan(lengths, slots, false, slot_begins)?;
    }
    Ok(Slots { window_rows, slot_begins })
}

/// So many slots, no fewer than rows, for all rows of a matrix in their own order.
pub(super) fn place_all_rows(
    scratch: &Scratch,
    row_offsets: GlobalPtr<u32>,
    rows: usize,
    slots: usize,
) -> Result<Slots, DeviceError> {
    let window_rows = scratch.array(slots, "window_rows")?;
    let slot_begins = scratch.array(slots + 1, "slot_begins")?;
    let (rows, slots) = (narrow(rows), narrow(slots));
    let params = PlaceAllRowsParams { row_offsets, window_rows, slot_begins, rows, slots };
    // SAFETY: as for `Condensed::new`.
    unsafe { scratch.launch(Variant::PlaceAllRows, u64::from(slots) + 1, &params)? };
    Ok(Slots { window_rows, slot_begins })
}

/// The rows in slots of windows: those with entries in the order of the plan, those without ascending.
fn place_rows(
    scratch: &Scratch,
    row_offsets: GlobalPtr<u32>,
    rows: usize,
    order: Option<&Permutation>,
    counts: WindowCounts,
) -> Result<GlobalPtr<u32>, DeviceError> {
    let window_rows = scratch.array(WINDOW_ROWS * (counts.full + counts.empty), "window_rows")?;
    let (full, empty) = (PlaceRowsParams::FULL, PlaceRowsParams::EMPTY);
    let own = |kinds| RowList { list: GlobalPtr::NULL, rows, kinds };
    let mut passes = Vec::new();
    match order {
        None => passes.push(own(full | empty)),
        Some(order) => {
            let list = scratch.array_from(order.new_to_old(), "the order of rows")?;
            passes.push(RowList { list, rows, kinds: full });
            if counts.empty > 0 {
                passes.push(own(empty));
            }
        }
    }
    for pass in passes {
        place_pass(scratch, row_offsets, pass, window_rows, counts)?;
    }
    Ok(window_rows)
}

/// Rows that are placed in one pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowList {
    /// All rows, or null for the matrix's own order.
    pub(crate) list: GlobalPtr<u32>,
    pub(crate) rows: usize,
    /// Which of them: [`PlaceRowsParams::FULL`], [`PlaceRowsParams::EMPTY`] or both.
    pub(crate) kinds: u32,
}

/// Some rows of a matrix, for windows.
#[derive(Debug, Clone, Copy)]
pub(in crate::spmm) struct ListedRows {
    /// Rows that have entries.
    pub(in crate::spmm) list: RowList,
    /// How many entries they have.
    pub(in crate::spmm) entries: usize,
    /// Their windows, and those of the matrix's rows without entries.
    pub(in crate::spmm) counts: WindowCounts,
    /// Scratch memory for each entry.
    pub(in crate::spmm) entry_bytes: u64,
}

/// Places rows of some kinds in the slots of windows.
pub(crate) fn place_pass(
    scratch: &Scratch,
    row_offsets: GlobalPtr<u32>,
    RowList { list, rows, kinds }: RowList,
    window_rows: GlobalPtr<u32>,
    counts: WindowCounts,
) -> Result<(), DeviceError> {
    let (count, lengths) = (narrow(rows), scratch.array(rows, "lengths of rows")?);
    let ranks = scratch.array(rows + 1, "ranks of rows")?;
    let of_rows = RowLengthsParams { rows: list, row_offsets, lengths, count, reserved: 0 };
    let (full, empty) = (narrow(counts.full), narrow(counts.empty));
    let place = PlaceRowsParams { rows: list, ranks, window_rows, count, full, empty, kinds };
    // SAFETY: an order has each row once, `window_rows` has room for the windows of both kinds; as for
    // `Condensed::new`.
    unsafe {
        scratch.launch(Variant::RowLengths, u64::from(count), &of_rows)?;
        scratch.scan(lengths, count, true, ranks)?;
        scratch.launch(Variant::PlaceRows, u64::from(count) + u64::from(PlaceRowsParams::PADS), &place)
    }
}

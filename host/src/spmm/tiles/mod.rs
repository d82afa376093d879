//! The device form of tiles: steps of two tiles, values in the order of the MMA's registers.

mod dealt;
mod dense;
mod packed;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;
use windrow_formats::memory::{try_collect, try_filled, try_par_collect, try_with_room, try_zeroed};
use windrow_formats::{Csr, NO_ROW, OutOfMemory, RsTileParts, Value};
pub(crate) use windrow_kernels::tile_stream::Form;
use windrow_kernels::tile_stream::TileElement;
use windrow_kernels::{Bf16, Dtype, F16, NO_COLUMN, Tf32};
use windrow_preprocess::balance::{Piece, SplitWindow};

use dealt::steps_each;
pub(crate) use dealt::{Dealing, DealtWindows, is_empty_window, step_count, steps_of};
pub(crate) use dense::words_per_record;

use crate::num::{index, narrow};
use crate::plan::Bits;

/// Columns of a tile.
pub(crate) const TILE_COLUMNS: usize = 8;
/// Tiles of a step.
const STEP_TILES: usize = 2;
/// Columns of a step: two tiles.
pub(crate) const STEP_COLUMNS: usize = STEP_TILES * TILE_COLUMNS;
/// Rows of a window.
pub(crate) const WINDOW_ROWS: usize = 8;

/// The elements of a step: `element = index(tile, row, column of the tile)`, `per_word` of them to
/// a word, `lane_words` words to a lane.
#[derive(Debug, Clone, Copy)]
struct Layout {
    index: fn(u32, u32, u32) -> u32,
    per_word: usize,
    lane_words: usize,
}

impl Layout {
    fn of(dtype: Dtype) -> Option<Self> {
        fn element<E: TileElement>() -> Layout {
            Layout {
                index: E::value_index,
                per_word: 4 / E::DTYPE.bytes() as usize,
                lane_words: E::LANE_WORDS as usize,
            }
        }
        match dtype {
            Dtype::F16 => Some(element::<F16>()),
            Dtype::Bf16 => Some(element::<Bf16>()),
            Dtype::Tf32 => Some(element::<Tf32>()),
            Dtype::F32 | Dtype::F64 => None,
        }
    }
}

/// The pattern of the tiles as the device has them, kept on the host to lay out values again.
///
/// The windows are those of the RS-Tile, in its order; rows without entries make windows too, of one step
/// without columns, so that one launch writes all of `C`. The stream holds the windows' *pieces* in the order in
/// which they were dealt out.
#[derive(Debug)]
pub(crate) struct TilePattern {
    /// Rows of each window, 8 of them, `NO_ROW` at the end of a shorter one.
    window_rows: Vec<u32>,
    /// First tile of each window, and the number of tiles.
    window_tiles: Vec<u32>,
    stream: DealtWindows,
    /// The pieces of the stream.
    pieces: Vec<Piece>,
    /// First step of each piece in the stream, and the number of steps.
    piece_steps: Vec<u32>,
    tile_cols: Vec<u32>,
    bitmaps: Vec<u64>,
    tile_values: Vec<u64>,
    /// CSR entry of each packed value.
    sources: Vec<u32>,
}

/// The arrays of a tile stream that do not depend on values.
#[derive(Debug)]
pub(crate) struct StepArrays {
    pub(crate) step_cols: Vec<[u32; 4]>,
    pub(crate) bitmaps: Vec<[u64; 2]>,
}

impl TilePattern {
    /// The windows of an RS-Tile, whose values are those of the CSR entries `sources`, and `empty` rows dealt out
    /// evenly among them.
    pub(crate) fn new<V: Value>(
        parts: &mut RsTileParts<V>,
        sources: Vec<u32>,
        empty: &[u32],
        dealing: Dealing,
    ) -> Result<Self, OutOfMemory> {
        let full = parts.window_tiles.len() - 1;
        let empties = empty.len().div_ceil(WINDOW_ROWS);
        let windows = full + empties;
        let mut window_rows = try_with_room(windows * WINDOW_ROWS, "window_rows")?;
        let mut window_tiles = try_with_room(windows + 1, "window_tiles")?;
        let mut empty = empty.chunks(WINDOW_ROWS);
        let mut rows = parts.window_rows.chunks(WINDOW_ROWS).zip(&parts.window_tiles[1..]);
        let mut tiles = 0u32;
        window_tiles.push(0);
        for window in 0..windows {
            let (listed, end) = match is_empty_window(window, empties, windows) {
                true => (empty.next().unwrap_or_default(), tiles),
                false => rows.next().map_or((&[][..], tiles), |(rows, &end)| (rows, end)),
            };
            window_rows.extend_from_slice(listed);
            window_rows.resize((window + 1) * WINDOW_ROWS, NO_ROW);
            window_tiles.push(end);
            tiles = end;
        }
        let window_steps = steps_each(&window_tiles)?;
        let stream = DealtWindows::new(&window_steps, tiles as usize, dealing)?;
        let pieces = stream.dealt().pieces(&window_steps)?;
        let mut piece_steps = try_with_room(pieces.len() + 1, "steps of pieces")?;
        piece_steps.push(0);
        let mut steps = 0;
        piece_steps.extend(pieces.iter().map(|piece| {
            steps += piece.steps();
            steps
        }));
        Ok(Self {
            window_rows,
            window_tiles,
            stream,
            pieces,
            piece_steps,
            tile_cols: std::mem::take(&mut parts.tile_cols),
            bitmaps: std::mem::take(&mut parts.bitmaps),
            tile_values: std::mem::take(&mut parts.tile_values),
            sources,
        })
    }

    /// The windows, cut and dealt out.
    pub(crate) fn stream(&self) -> &DealtWindows {
        &self.stream
    }

    /// All pieces of a cut window add to one slot: for sums in any order.
    pub(crate) fn share_slots(&mut self) -> Result<(), OutOfMemory> {
        self.stream.share_slots()?;
        self.pieces = self.stream.dealt().pieces(&steps_each(&self.window_tiles)?)?;
        Ok(())
    }

    fn steps(&self) -> usize {
        self.stream.steps()
    }

    /// The pieces of the stream.
    fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// `[begin, end]` of each worker's steps.
    pub(crate) fn workers(&self) -> Result<Vec<[u32; 2]>, OutOfMemory> {
        let step = |piece: u32| self.piece_steps[piece as usize];
        let workers = self.stream.dealt().worker_pieces.windows(2);
        try_collect(workers.map(|ends| [step(ends[0]), step(ends[1])]), "workers")
    }

    /// Entries that lie in tiles: all of the matrix but those of the rest.
    pub(crate) fn entries(&self) -> usize {
        self.sources.len()
    }

    /// Columns that are gathered: those of all tiles but the pads.
    pub(crate) fn column_vectors(&self) -> u64 {
        self.tile_cols.par_iter().filter(|&&col| col != NO_COLUMN).count() as u64
    }

    /// The rows of windows, eight of each.
    pub(crate) fn rows_of_split(&self, windows: &[SplitWindow]) -> Result<Vec<u32>, OutOfMemory> {
        let mut rows = try_with_room(WINDOW_ROWS * windows.len(), "rows of windows that are cut")?;
        for of in windows {
            rows.extend(&self.window_rows[of.window as usize * WINDOW_ROWS..][..WINDOW_ROWS]);
        }
        Ok(rows)
    }

    /// Bytes of host memory.
    pub(crate) fn host_bytes(&self) -> u64 {
        let words = self.stream.host_words()
            + self.window_rows.len()
            + self.window_tiles.len()
            + 5 * self.pieces.len()
            + self.piece_steps.len()
            + self.tile_cols.len()
            + self.sources.len();
        4 * words as u64 + 8 * (self.bitmaps.len() + self.tile_values.len()) as u64
    }

    /// The tiles of a piece.
    fn tile_range(&self, piece: &Piece) -> Range<usize> {
        let ends = &self.window_tiles[piece.window as usize..][..2];
        let tile = |step: u32| ends[0] as usize + STEP_TILES * step as usize;
        tile(piece.begin)..tile(piece.end).min(ends[1] as usize)
    }

    /// The tiles of a step of a piece: two, one, or in a window without any none.
    fn tiles_of_step(&self, piece: &Piece, step: u32) -> Range<usize> {
        let tiles = self.tile_range(piece);
        let begin = tiles.end.min(tiles.start + STEP_TILES * step as usize);
        begin..tiles.end.min(begin + STEP_TILES)
    }

    /// The tiles of a piece, each with its number in the piece.
    fn tiles_of(&self, piece: &Piece) -> impl Iterator<Item = (usize, usize)> {
        self.tile_range(piece).enumerate()
    }

    /// What the kernel reads beside the records.
    pub(crate) fn step_arrays(&self) -> Result<StepArrays, OutOfMemory> {
        let mut step_cols = try_filled(4 * self.steps(), [NO_COLUMN; 4], "step_cols")?;
        let mut bitmaps = try_zeroed::<[u64; 2]>(self.steps(), "bitmaps")?;
        let arrays = self.pieces_of(&mut step_cols, 4)?.zip(self.pieces_of(&mut bitmaps, 1)?);
        arrays.zip(self.pieces()).for_each(|((step_cols, bitmaps), piece)| {
            for (i, tile) in self.tiles_of(piece) {
                let (step, half) = (i / STEP_TILES, i % STEP_TILES);
                bitmaps[step][half] = self.bitmaps[tile];
                for column in 0..TILE_COLUMNS {
                    let at = TILE_COLUMNS * half + column;
                    step_cols[4 * step + at % 4][at / 4] = self.tile_cols[TILE_COLUMNS * tile + column];
                }
            }
        });
        Ok(StepArrays { step_cols, bitmaps })
    }

    /// Bytes of all records.
    pub(crate) fn record_bytes(&self, form: Form, dtype: Dtype) -> u64 {
        match form {
            Form::Dense => dense::record_bytes(self.steps(), dtype),
            Form::Packed | Form::Bitmap => self.packed_bytes(dtype),
        }
    }

    /// The records of all steps, for values in CSR order.
    pub(crate) fn records(&self, form: Form, values: &Bits) -> Result<Vec<u32>, OutOfMemory> {
        let Some(layout) = Layout::of(values.dtype()) else { return Ok(Vec::new()) };
        match form {
            Form::Dense => self.dense_records(layout, values),
            Form::Packed | Form::Bitmap => self.packed_records(form, layout, values),
        }
    }

    /// For each of `nnz` entries of the matrix, which element of the records is its value; `nowhere` for those that are
    /// in no tile.
    pub(crate) fn places(
        &self,
        form: Form,
        dtype: Dtype,
        nnz: usize,
        nowhere: u32,
    ) -> Result<Vec<u32>, OutOfMemory> {
        let places = (0..nnz).into_par_iter().map(|_| AtomicU32::new(nowhere));
        let places = try_par_collect(places, "value_places")?;
        if let Some(layout) = Layout::of(dtype) {
            // Each entry is in one tile: no two threads store to the same place.
            let place = |entry: u32, at: usize| places[entry as usize].store(narrow(at), Ordering::Relaxed);
            match form {
                Form::Dense => self.dense_places(layout, place),
                Form::Packed | Form::Bitmap => self.packed_places(form, layout, dtype, place)?,
            }
        }
        try_par_collect(places.into_par_iter().map(AtomicU32::into_inner), "value_places")
    }

    /// Calls `visit(element, entry)` for the entries of tile `tile`, which is tile `half` of its step, in the order of
    /// its bitmap.
    fn each_entry(&self, layout: Layout, half: usize, tile: usize, mut visit: impl FnMut(usize, u32)) {
        let mut bits = self.bitmaps[tile];
        let mut packed = index(self.tile_values[tile]);
        while bits != 0 {
            let bit = bits.trailing_zeros();
            let element = (layout.index)(narrow(half), bit % 8, bit / 8) as usize;
            visit(element, self.sources[packed]);
            bits &= bits - 1;
            packed += 1;
        }
    }

    /// Rows of a piece's window.
    fn rows_of(&self, piece: &Piece) -> &[u32] {
        &self.window_rows[WINDOW_ROWS * piece.window as usize..][..WINDOW_ROWS]
    }

    /// The parts of an array with `per_step` elements a step, piece by piece.
    fn pieces_of<'a, T: Send>(
        &self,
        array: &'a mut [T],
        per_step: usize,
    ) -> Result<impl IndexedParallelIterator<Item = &'a mut [T]> + use<'a, T>, OutOfMemory> {
        self.split_by_piece(array, &|steps| per_step * steps.len())
    }

    /// The parts of an array with `len(steps)` elements for the steps of a piece, piece by piece.
    fn split_by_piece<'a, T: Send>(
        &self,
        mut array: &'a mut [T],
        len: &dyn Fn(Range<usize>) -> usize,
    ) -> Result<impl IndexedParallelIterator<Item = &'a mut [T]> + use<'a, T>, OutOfMemory> {
        let mut pieces = try_with_room(self.pieces().len(), "parts of pieces")?;
        for ends in self.piece_steps.windows(2) {
            let (mine, rest) = array.split_at_mut(len(ends[0] as usize..ends[1] as usize));
            pieces.push(mine);
            array = rest;
        }
        Ok(pieces.into_par_iter())
    }
}

/// Rows of `csr` without entries, ascending.
pub(crate) fn empty_rows<V: Value>(csr: &Csr<V>) -> Result<Vec<u32>, OutOfMemory> {
    let is_empty = |row: &usize| csr.row_len(*row) == 0;
    let mut empty = try_with_room((0..csr.rows()).into_par_iter().filter(is_empty).count(), "empty rows")?;
    if empty.capacity() > 0 {
        empty.extend((0..csr.rows()).filter(is_empty).map(narrow));
    }
    Ok(empty)
}

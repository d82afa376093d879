//! The device form of tiles: steps of two tiles, values in the order of the MMA's registers.

mod dense;
mod packed;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;
use windrow_formats::memory::try_with_room;
use windrow_formats::{Csr, NO_ROW, OutOfMemory, RsTileParts, Value};
use windrow_kernels::tile_stream::{TEAM, TileElement};
use windrow_kernels::{Bf16, Dtype, F16, NO_COLUMN, Tf32};
use windrow_preprocess::balance::{DealtSteps, Piece, deal_steps};

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

/// In which form records hold the values of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// All of them, zeros too.
    Dense,
    /// Those of entries, place by place, without the zeros between.
    Packed,
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
    stream: DealtWindows,
    tile_cols: Vec<u32>,
    bitmaps: Vec<u64>,
    tile_values: Vec<u64>,
    /// CSR entry of each packed value.
    sources: Vec<u32>,
}

/// Windows as a stream of steps, cut and dealt out: all that the host must know of tiles that a GPU lays out.
#[derive(Debug)]
pub(crate) struct DealtWindows {
    /// First tile of each window, and the number of tiles.
    window_tiles: Vec<u32>,
    dealt: DealtSteps,
    /// First step of each piece in the stream, and the number of steps.
    piece_steps: Vec<u32>,
}

impl DealtWindows {
    /// Windows with these first tiles. One without tiles has a step without columns.
    pub(crate) fn new(window_tiles: Vec<u32>, dealing: Dealing) -> Self {
        let steps = |ends: &[u32]| (ends[1] - ends[0]).div_ceil(narrow(STEP_TILES)).max(1);
        let window_steps: Vec<u32> = window_tiles.windows(2).map(steps).collect();
        let dealt = match dealing {
            Dealing::Evenly(workers) => deal_steps(&window_steps, workers, TEAM),
            Dealing::WindowEach => DealtSteps::one_each(&window_steps),
        };
        let mut piece_steps = Vec::with_capacity(dealt.pieces.len() + 1);
        piece_steps.push(0);
        let mut steps = 0;
        piece_steps.extend(dealt.pieces.iter().map(|piece| {
            steps += piece.steps();
            steps
        }));
        Self { window_tiles, dealt, piece_steps }
    }

    /// `[begin, end]` of each worker's steps.
    pub(crate) fn workers(&self) -> Vec<[u32; 2]> {
        let step = |piece: u32| self.piece_steps[piece as usize];
        self.dealt.worker_pieces.windows(2).map(|ends| [step(ends[0]), step(ends[1])]).collect()
    }

    /// How the windows were cut and dealt out.
    pub(crate) fn dealt(&self) -> &DealtSteps {
        &self.dealt
    }

    /// First step of each piece in the stream, and the number of steps.
    pub(crate) fn piece_steps(&self) -> &[u32] {
        &self.piece_steps
    }

    /// All pieces of a cut window add to one slot: for sums in any order.
    pub(crate) fn share_slots(&mut self) {
        self.dealt.share_slots();
    }

    pub(crate) fn windows(&self) -> usize {
        self.window_tiles.len() - 1
    }

    pub(crate) fn tiles(&self) -> usize {
        self.window_tiles.last().map_or(0, |&tiles| tiles as usize)
    }

    pub(crate) fn steps(&self) -> usize {
        self.piece_steps.last().map_or(0, |&steps| steps as usize)
    }

    /// Words of host memory.
    fn host_words(&self) -> usize {
        5 * self.dealt.pieces.len()
            + self.dealt.worker_pieces.len()
            + 3 * self.dealt.split_windows.len()
            + self.piece_steps.len()
            + self.window_tiles.len()
    }
}

/// The arrays of a tile stream that do not depend on values.
#[derive(Debug)]
pub(crate) struct StepArrays {
    pub(crate) step_cols: Vec<[u32; 4]>,
    pub(crate) bitmaps: Vec<[u64; 2]>,
}

/// How windows become work.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dealing {
    /// To so many warps, evenly: the tile stream.
    Evenly(u32),
    /// A warp for each window, as without balancing: for comparison.
    WindowEach,
}

impl TilePattern {
    /// The windows of an RS-Tile, whose values are those of the CSR entries `sources`, and `empty` rows dealt out
    /// evenly among them.
    pub(crate) fn new<V: Value>(
        parts: &mut RsTileParts<V>,
        sources: Vec<u32>,
        empty: &[u32],
        dealing: Dealing,
    ) -> Self {
        let full = parts.window_tiles.len() - 1;
        let empties = empty.len().div_ceil(WINDOW_ROWS);
        let windows = full + empties;
        let mut window_rows = Vec::with_capacity(windows * WINDOW_ROWS);
        let mut window_tiles = Vec::with_capacity(windows + 1);
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
        Self {
            window_rows,
            stream: DealtWindows::new(window_tiles, dealing),
            tile_cols: std::mem::take(&mut parts.tile_cols),
            bitmaps: std::mem::take(&mut parts.bitmaps),
            tile_values: std::mem::take(&mut parts.tile_values),
            sources,
        }
    }

    /// The windows, cut and dealt out.
    pub(crate) fn stream(&self) -> &DealtWindows {
        &self.stream
    }

    /// All pieces of a cut window add to one slot: for sums in any order.
    pub(crate) fn share_slots(&mut self) {
        self.stream.share_slots();
    }

    fn steps(&self) -> usize {
        self.stream.steps()
    }

    /// The pieces of the stream.
    fn pieces(&self) -> &[Piece] {
        &self.stream.dealt.pieces
    }

    /// Entries that lie in tiles: all of the matrix but those of the rest.
    pub(crate) fn entries(&self) -> usize {
        self.sources.len()
    }

    /// Columns that are gathered: those of all tiles but the pads.
    pub(crate) fn column_vectors(&self) -> u64 {
        self.tile_cols.par_iter().filter(|&&col| col != NO_COLUMN).count() as u64
    }

    pub(crate) fn window_rows(&self) -> &[u32] {
        &self.window_rows
    }

    /// Bytes of host memory.
    pub(crate) fn host_bytes(&self) -> u64 {
        let words =
            self.stream.host_words() + self.window_rows.len() + self.tile_cols.len() + self.sources.len();
        4 * words as u64 + 8 * (self.bitmaps.len() + self.tile_values.len()) as u64
    }

    /// The tiles of a piece.
    fn tile_range(&self, piece: &Piece) -> Range<usize> {
        let ends = &self.stream.window_tiles[piece.window as usize..][..2];
        let tile = |step: u32| ends[0] as usize + STEP_TILES * step as usize;
        tile(piece.begin)..tile(piece.end).min(ends[1] as usize)
    }

    /// The tiles of a piece, each with its number in the piece.
    fn tiles_of(&self, piece: &Piece) -> impl Iterator<Item = (usize, usize)> {
        self.tile_range(piece).enumerate()
    }

    /// What the kernel reads beside the records.
    pub(crate) fn step_arrays(&self) -> StepArrays {
        let mut step_cols = vec![[NO_COLUMN; 4]; 4 * self.steps()];
        let mut bitmaps = vec![[0u64; 2]; self.steps()];
        let arrays = self.pieces_of(&mut step_cols, 4).zip(self.pieces_of(&mut bitmaps, 1));
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
        StepArrays { step_cols, bitmaps }
    }

    /// Bytes of all records.
    pub(crate) fn record_bytes(&self, form: Form, dtype: Dtype) -> u64 {
        match form {
            Form::Dense => dense::record_bytes(self.steps(), dtype),
            Form::Packed => self.packed_bytes(dtype),
        }
    }

    /// The records of all steps, for values in CSR order.
    pub(crate) fn records(&self, form: Form, values: &Bits) -> Vec<u32> {
        let Some(layout) = Layout::of(values.dtype()) else { return Vec::new() };
        match form {
            Form::Dense => self.dense_records(layout, values),
            Form::Packed => self.packed_records(layout, values),
        }
    }

    /// For each of `nnz` entries of the matrix, which element of the records is its value; `nowhere` for those that are
    /// in no tile.
    pub(crate) fn places(&self, form: Form, dtype: Dtype, nnz: usize, nowhere: u32) -> Vec<u32> {
        let places: Vec<AtomicU32> = (0..nnz).into_par_iter().map(|_| AtomicU32::new(nowhere)).collect();
        if let Some(layout) = Layout::of(dtype) {
            // Each entry is in one tile: no two threads store to the same place.
            let place = |entry: u32, at: usize| places[entry as usize].store(narrow(at), Ordering::Relaxed);
            match form {
                Form::Dense => self.dense_places(layout, place),
                Form::Packed => self.packed_places(layout, dtype, place),
            }
        }
        places.into_iter().map(AtomicU32::into_inner).collect()
    }

    /// Calls `visit(element, entry)` for the entries of tile `tile`, which is tile `half` of its step.
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
    ) -> impl IndexedParallelIterator<Item = &'a mut [T]> + use<'a, T> {
        self.split_by_piece(array, &|steps| per_step * steps.len())
    }

    /// The parts of an array with `len(steps)` elements for the steps of a piece, piece by piece.
    fn split_by_piece<'a, T: Send>(
        &self,
        mut array: &'a mut [T],
        len: &dyn Fn(Range<usize>) -> usize,
    ) -> impl IndexedParallelIterator<Item = &'a mut [T]> + use<'a, T> {
        let mut pieces = Vec::with_capacity(self.pieces().len());
        for ends in self.stream.piece_steps.windows(2) {
            let (mine, rest) = array.split_at_mut(len(ends[0] as usize..ends[1] as usize));
            pieces.push(mine);
            array = rest;
        }
        pieces.into_par_iter()
    }
}

/// Whether a window is one of the `empties` of `windows` that have rows without entries: Bresenham's line, so that
/// after `w` windows `w·empties / windows` of them are empty.
pub(crate) fn is_empty_window(window: usize, empties: usize, windows: usize) -> bool {
    (window + 1) * empties / windows > window * empties / windows
}

/// Steps that windows with these first tiles make, and windows of `empty` rows without entries.
pub(crate) fn steps_of(window_tiles: &[u32], empty: usize) -> u64 {
    let steps = |ends: &[u32]| u64::from((ends[1] - ends[0]).div_ceil(narrow(STEP_TILES)).max(1));
    window_tiles.windows(2).map(steps).sum::<u64>() + empty.div_ceil(WINDOW_ROWS) as u64
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

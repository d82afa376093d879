//! The device form of tiles: steps of two tiles, values dense and in the order of the MMA's registers.

use std::ops::Range;

use rayon::prelude::*;
use windrow_formats::{Csr, EntrySources, NO_ROW, RsTileParts, Value};
use windrow_kernels::tile_stream::{MORE_STEPS, RECORD_TAIL, TEAM, TileElement, record_words};
use windrow_kernels::{Bf16, Dtype, F16, NO_COLUMN, Tf32};
use windrow_preprocess::balance::{DealtSteps, Piece, deal_steps};

use super::values::Bits;
use crate::num::{index, narrow};

/// Columns of a tile.
const TILE_COLUMNS: usize = 8;
/// Tiles of a step.
const STEP_TILES: usize = 2;
/// Columns of a step: two tiles.
pub(crate) const STEP_COLUMNS: usize = STEP_TILES * TILE_COLUMNS;
/// Rows of a window.
pub(crate) const WINDOW_ROWS: usize = 8;

/// How a step's values lie in its record: `element = index(tile, row, column of the tile)`, `per_word` elements to
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
            Dtype::F32 => None,
        }
    }
}

/// Words of a step's record; 0 for a type without tile kernels.
pub(crate) fn words_per_record(dtype: Dtype) -> usize {
    Layout::of(dtype).map_or(0, |layout| record_words(layout.lane_words))
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
    tile_cols: Vec<u32>,
    bitmaps: Vec<u64>,
    tile_values: Vec<u64>,
    /// CSR entry of each packed value.
    sources: Vec<u32>,
    dealt: DealtSteps,
    /// First step of each piece in the stream, and the number of steps.
    piece_steps: Vec<u32>,
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
    /// The windows of an RS-Tile, and `empty` rows dealt out evenly among them.
    pub(crate) fn new<V: Value>(
        parts: &mut RsTileParts<V>,
        sources: &EntrySources,
        empty: &[u32],
        dealing: Dealing,
    ) -> Self {
        let full = parts.window_tiles.len() - 1;
        let empties = empty.len().div_ceil(WINDOW_ROWS);
        let windows = full + empties;
        let mut pattern = Self {
            window_rows: Vec::with_capacity(windows * WINDOW_ROWS),
            window_tiles: Vec::with_capacity(windows + 1),
            tile_cols: std::mem::take(&mut parts.tile_cols),
            bitmaps: std::mem::take(&mut parts.bitmaps),
            tile_values: std::mem::take(&mut parts.tile_values),
            sources: sources.tile().par_iter().map(|&entry| narrow(index(entry))).collect(),
            dealt: DealtSteps::default(),
            piece_steps: vec![0],
        };
        let mut empty = empty.chunks(WINDOW_ROWS);
        let mut rows = parts.window_rows.chunks(WINDOW_ROWS).zip(&parts.window_tiles[1..]);
        let mut window_steps = Vec::with_capacity(windows);
        let mut tiles = 0u32;
        pattern.window_tiles.push(0);
        for window in 0..windows {
            // Bresenham's line: after `window` windows, `window·empties / windows` of them are empty.
            let is_empty = (window + 1) * empties / windows > window * empties / windows;
            let (listed, end) = match is_empty {
                true => (empty.next().unwrap_or_default(), tiles),
                false => rows.next().map_or((&[][..], tiles), |(rows, &end)| (rows, end)),
            };
            pattern.window_rows.extend_from_slice(listed);
            pattern.window_rows.resize((window + 1) * WINDOW_ROWS, NO_ROW);
            window_steps.push((end - tiles).div_ceil(narrow(STEP_TILES)).max(1));
            pattern.window_tiles.push(end);
            tiles = end;
        }
        pattern.dealt = match dealing {
            Dealing::Evenly(workers) => deal_steps(&window_steps, workers, TEAM),
            Dealing::WindowEach => DealtSteps::one_each(&window_steps),
        };
        let mut steps = 0;
        pattern.piece_steps.extend(pattern.dealt.pieces.iter().map(|piece| {
            steps += piece.steps();
            steps
        }));
        pattern
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

    /// All pieces of a cut window add to one slot: for sums in any order.
    pub(crate) fn share_slots(&mut self) {
        self.dealt.share_slots();
    }

    pub(crate) fn windows(&self) -> usize {
        self.window_tiles.len() - 1
    }

    pub(crate) fn steps(&self) -> usize {
        self.piece_steps.last().map_or(0, |&steps| steps as usize)
    }

    pub(crate) fn tiles(&self) -> usize {
        self.bitmaps.len()
    }

    /// Entries in tiles.
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
        let words = 5 * self.dealt.pieces.len()
            + self.dealt.worker_pieces.len()
            + 3 * self.dealt.split_windows.len()
            + self.piece_steps.len()
            + self.window_rows.len()
            + self.window_tiles.len()
            + self.tile_cols.len()
            + self.sources.len();
        4 * words as u64 + 8 * (self.bitmaps.len() + self.tile_values.len()) as u64
    }

    /// The tiles of a piece, each with its number in the piece.
    fn tiles_of(&self, piece: &Piece) -> impl Iterator<Item = (usize, usize)> {
        let ends = &self.window_tiles[piece.window as usize..][..2];
        let tile = |step: u32| ends[0] as usize + STEP_TILES * step as usize;
        let tiles: Range<usize> = tile(piece.begin)..tile(piece.end).min(ends[1] as usize);
        tiles.enumerate()
    }

    /// What the kernel reads beside the records.
    pub(crate) fn step_arrays(&self) -> StepArrays {
        let mut step_cols = vec![[NO_COLUMN; 4]; 4 * self.steps()];
        let mut bitmaps = vec![[0u64; 2]; self.steps()];
        let arrays = self.pieces_of(&mut step_cols, 4).zip(self.pieces_of(&mut bitmaps, 1));
        arrays.zip(&self.dealt.pieces).for_each(|((step_cols, bitmaps), piece)| {
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

    /// The records of all steps, for values in CSR order; where there is no entry the fragment is +0.
    pub(crate) fn records(&self, values: &Bits) -> Vec<u32> {
        let Some(layout) = Layout::of(values.dtype()) else { return Vec::new() };
        let words = record_words(layout.lane_words);
        let rows_at = words - RECORD_TAIL - WINDOW_ROWS;
        let bits_of_element = 32 / layout.per_word;
        let mut records = vec![0u32; words * self.steps()];
        self.pieces_of(&mut records, words).zip(&self.dealt.pieces).for_each(|(records, piece)| {
            for record in records.chunks_exact_mut(words) {
                record[rows_at..][..WINDOW_ROWS].fill(MORE_STEPS);
                record[rows_at + WINDOW_ROWS] = piece.slot;
                record[rows_at + WINDOW_ROWS + 1] = u32::from(piece.shared);
            }
            let last = records.len() - words + rows_at;
            records[last..][..WINDOW_ROWS]
                .copy_from_slice(&self.window_rows[WINDOW_ROWS * piece.window as usize..][..WINDOW_ROWS]);
            for (i, tile) in self.tiles_of(piece) {
                let record = &mut records[words * (i / STEP_TILES)..];
                let mut bits = self.bitmaps[tile];
                let mut packed = index(self.tile_values[tile]);
                while bits != 0 {
                    let bit = bits.trailing_zeros();
                    let at = (layout.index)(narrow(i % STEP_TILES), bit % 8, bit / 8) as usize;
                    let value = values.word(self.sources[packed] as usize);
                    record[at / layout.per_word] |= value << (bits_of_element * (at % layout.per_word) % 32);
                    bits &= bits - 1;
                    packed += 1;
                }
            }
        });
        records
    }

    /// The parts of an array with `per_step` elements a step, piece by piece.
    fn pieces_of<'a, T: Send>(
        &self,
        mut array: &'a mut [T],
        per_step: usize,
    ) -> impl IndexedParallelIterator<Item = &'a mut [T]> + use<'a, T> {
        let mut pieces = Vec::with_capacity(self.dealt.pieces.len());
        for piece in &self.dealt.pieces {
            let (mine, rest) = array.split_at_mut(per_step * piece.steps() as usize);
            pieces.push(mine);
            array = rest;
        }
        pieces.into_par_iter()
    }
}

/// Rows of `csr` without entries, ascending.
pub(crate) fn empty_rows<V: Value>(csr: &Csr<V>) -> Vec<u32> {
    (0..csr.rows()).into_par_iter().filter(|&row| csr.row_len(row) == 0).map(narrow).collect()
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;
    use windrow_formats::{RowAssignment, RsTile};
    use windrow_simt::fragment;

    use super::*;

    fn pattern_of(csr: &Csr<f32>, dealing: Dealing) -> TilePattern {
        let tiles = RsTile::from_csr(csr, &RowAssignment::all_tile(csr.rows())).unwrap();
        let sources = tiles.entry_sources(csr).unwrap();
        TilePattern::new(&mut tiles.into_parts(), &sources, &empty_rows(csr), dealing)
    }

    /// `(window row, condensed column, value bits)` of a record, by the lane maps of the MMA's second operand.
    fn values_of(record: &[u32], dtype: Dtype) -> Vec<(u32, u32, u32)> {
        let lanes = 0..32u32;
        match dtype {
            Dtype::Tf32 => lanes
                .flat_map(|lane| (0..4).map(move |i| (lane, i)))
                .map(|(lane, i)| {
                    let (k, row) = fragment::b_tf32(lane, i % 2);
                    (row, 8 * (i / 2) + k, record[(4 * lane + i) as usize])
                })
                .collect(),
            _ => lanes
                .flat_map(|lane| (0..4).map(move |i| (lane, i)))
                .map(|(lane, i)| {
                    let (k, row) = fragment::b_16bit(lane, i / 2, i % 2);
                    (row, k, record[(2 * lane + i / 2) as usize] >> (16 * (i % 2)) & 0xffff)
                })
                .collect(),
        }
    }

    /// What the arrays say the matrix is, read back as the MMA would; and all rows that are listed.
    fn entries_of(pattern: &TilePattern, values: &Bits) -> (Vec<(u32, u32, u32)>, Vec<u32>) {
        let StepArrays { step_cols, bitmaps } = pattern.step_arrays();
        let records = pattern.records(values);
        let words = words_per_record(values.dtype());
        let rows_at = words - RECORD_TAIL - WINDOW_ROWS;
        let (mut entries, mut rows, mut pending) = (Vec::new(), Vec::new(), Vec::new());
        for (step, record) in records.chunks_exact(words).enumerate() {
            for (row, column, value) in values_of(record, values.dtype()) {
                let bit = bitmaps[step][(column / 8) as usize] >> (column % 8 * 8 + row) & 1;
                let col = step_cols[4 * step + (column % 4) as usize][(column / 4) as usize];
                if bit == 1 {
                    assert_ne!(col, NO_COLUMN, "an entry of a pad");
                    pending.push((row as usize, col, value));
                } else {
                    assert_eq!(value, 0, "a value where the bitmap has no entry");
                }
            }
            let ends = &record[rows_at..][..WINDOW_ROWS];
            if ends[0] == MORE_STEPS {
                assert!(ends.iter().all(|&row| row == MORE_STEPS));
            } else {
                entries.extend(pending.drain(..).map(|(at, col, value)| (ends[at], col, value)));
                rows.extend(ends.iter().copied().filter(|&row| row != NO_ROW));
            }
        }
        assert!(pending.is_empty(), "the last piece ends");
        entries.sort_unstable();
        (entries, rows)
    }

    #[test]
    fn every_place_of_a_fragment_is_used_once() {
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::Tf32] {
            let layout = Layout::of(dtype).unwrap();
            let mut seen = [false; 128];
            for (tile, row, k) in
                (0..2).flat_map(|t| (0..8).flat_map(move |r| (0..8).map(move |k| (t, r, k))))
            {
                assert!(!std::mem::replace(&mut seen[(layout.index)(tile, row, k) as usize], true));
            }
            assert_eq!(layout.lane_words * layout.per_word * 32, 128);
        }
        assert!(Layout::of(Dtype::F32).is_none());
    }

    proptest! {
        #[test]
        fn steps_hold_exactly_the_entries(
            rows in 1usize..40,
            cols in 1usize..60,
            seed in any::<u64>(),
            density in 1u64..100,
            workers in 0..20u32,
        ) {
            // Values name their entry, 1.. so that none is the zero of an absent one.
            let mut state = seed;
            let mut dense = vec![0.0f32; rows * cols];
            for x in &mut dense {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if (state >> 33) % 100 < density { *x = 1.0; }
            }
            let csr = Csr::from_dense(rows, cols, &dense).unwrap();
            let halves: Vec<u16> = (1..=u16::try_from(csr.nnz()).unwrap()).collect();
            let words: Vec<u32> = halves.iter().map(|&x| u32::from(x) << 13).collect();
            let dealing = if workers == 0 { Dealing::WindowEach } else { Dealing::Evenly(workers) };
            let pattern = pattern_of(&csr, dealing);
            for values in [Bits::F16(halves.clone()), Bits::Bf16(halves), Bits::Tf32(words)] {
                let expected: Vec<(u32, u32, u32)> = (0..csr.rows())
                    .flat_map(|r| csr.row_range(r).map(move |e| (r, e)))
                    .map(|(r, e)| (narrow(r), csr.col_indices()[e], values.word(e)))
                    .collect();
                let (entries, mut listed) = entries_of(&pattern, &values);
                prop_assert_eq!(&entries, &expected);
                listed.sort_unstable();
                listed.dedup(); // a cut window lists its rows with each piece
                prop_assert_eq!(listed, (0..narrow(rows)).collect::<Vec<u32>>(), "every row");
            }
            let gathered = pattern.step_arrays().step_cols.concat();
            let gathered = gathered.iter().filter(|&&col| col != NO_COLUMN).count() as u64;
            prop_assert_eq!(pattern.column_vectors(), gathered);
        }
    }

    #[test]
    fn values_keep_their_bits() {
        let one =
            |values: &Bits| pattern_of(&Csr::identity(1).unwrap(), Dealing::Evenly(1)).records(values)[0];
        assert_eq!(one(&Bits::F16(vec![f16::from_f32(1.5).to_bits()])), 0x3e00);
        assert_eq!(one(&Bits::Bf16(vec![bf16::from_f32(1.5).to_bits()])), 0x3fc0);
        assert_eq!(one(&Bits::Tf32(vec![1.5f32.to_bits()])), 0x3fc0_0000);
    }

    #[test]
    fn empty_rows_make_windows() {
        let csr = Csr::try_from_parts(4, 2, vec![0, 0, 1, 1, 1], vec![1], vec![1.0f32]).unwrap();
        assert_eq!(empty_rows(&csr), [0, 2, 3]);
        let pattern = pattern_of(&Csr::zeros(20, 2).unwrap(), Dealing::Evenly(2));
        assert_eq!((pattern.windows(), pattern.steps(), pattern.entries()), (3, 3, 0));
        let pattern = pattern_of(&Csr::zeros(0, 2).unwrap(), Dealing::Evenly(2));
        assert_eq!((pattern.windows(), pattern.steps()), (0, 0));
    }
}

//! The device form of tiles: steps of two tiles, values dense and in the order of the MMA's registers.

use rayon::prelude::*;
use windrow_formats::{Csr, EntrySources, RsTileParts, Value};
use windrow_kernels::NO_COLUMN;
use windrow_simt::fragment;

use crate::num::{index, narrow};

/// Columns of a tile.
const TILE_COLUMNS: usize = 8;
/// Columns of a step: two tiles.
pub(crate) const STEP_COLUMNS: usize = 16;
/// Lanes of a warp, each with two registers of a step's values.
const LANES: usize = 32;
/// Halves of one step's fragment: 32 lanes × 2 registers × 2 halves.
const STEP_HALVES: usize = LANES * 4;

/// `[column][row]`: which half of a step's fragment holds the value of condensed column `column` and window
/// row `row`: `4·lane + 2·register + half`, by the map of the MMA's second operand.
const HALF_OF: [[usize; 8]; STEP_COLUMNS] = {
    let mut halves = [[0; 8]; STEP_COLUMNS];
    let mut lane = 0;
    while lane < 32 {
        let mut i = 0;
        while i < 4 {
            let (column, row) = fragment::b_16bit(lane, i / 2, i % 2);
            halves[column as usize][row as usize] = (4 * lane + i) as usize;
            i += 1;
        }
        lane += 1;
    }
    halves
};

/// The pattern of the tiles, kept on the host to lay out values again.
#[derive(Debug)]
pub(crate) struct TilePattern {
    /// First step of each window, and the number of steps.
    window_steps: Vec<u32>,
    window_tiles: Vec<u32>,
    window_rows: Vec<u32>,
    tile_cols: Vec<u32>,
    bitmaps: Vec<u64>,
    tile_values: Vec<u64>,
    /// CSR entry of each packed value.
    sources: Vec<u32>,
}

/// The arrays of a tile stream that do not depend on values.
#[derive(Debug)]
pub(crate) struct StepArrays {
    pub(crate) step_windows: Vec<u32>,
    pub(crate) step_cols: Vec<[u32; 4]>,
    pub(crate) bitmaps: Vec<[u64; 2]>,
}

impl TilePattern {
    /// Two tiles a step, the last of a window alone if their number is odd.
    pub(crate) fn new<V: Value>(parts: &mut RsTileParts<V>, sources: &EntrySources) -> Self {
        let mut window_steps = Vec::with_capacity(parts.window_tiles.len());
        let mut steps = 0u32;
        window_steps.push(0);
        for ends in parts.window_tiles.windows(2) {
            steps += (ends[1] - ends[0]).div_ceil(2);
            window_steps.push(steps);
        }
        Self {
            window_steps,
            window_tiles: std::mem::take(&mut parts.window_tiles),
            window_rows: std::mem::take(&mut parts.window_rows),
            tile_cols: std::mem::take(&mut parts.tile_cols),
            bitmaps: std::mem::take(&mut parts.bitmaps),
            tile_values: std::mem::take(&mut parts.tile_values),
            sources: sources.tile().par_iter().map(|&entry| narrow(index(entry))).collect(),
        }
    }

    pub(crate) fn windows(&self) -> usize {
        self.window_steps.len() - 1
    }

    pub(crate) fn steps(&self) -> usize {
        self.window_steps.last().map_or(0, |&steps| steps as usize)
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

    pub(crate) fn window_steps(&self) -> &[u32] {
        &self.window_steps
    }

    pub(crate) fn window_rows(&self) -> &[u32] {
        &self.window_rows
    }

    /// Bytes of host memory.
    pub(crate) fn host_bytes(&self) -> u64 {
        let words =
            self.window_steps.len() + self.window_tiles.len() + self.window_rows.len() + self.tile_cols.len();
        4 * (words + self.sources.len()) as u64 + 8 * (self.bitmaps.len() + self.tile_values.len()) as u64
    }

    /// The window of each step and its tiles: the first, and the second if there is one.
    fn step_tiles(&self, window: usize, step: usize) -> [Option<usize>; 2] {
        let in_window = step - self.window_steps[window] as usize;
        let first = self.window_tiles[window] as usize + 2 * in_window;
        [Some(first), Some(first + 1).filter(|&tile| tile < self.window_tiles[window + 1] as usize)]
    }

    /// Window of each step.
    pub(crate) fn step_windows(&self) -> Vec<u32> {
        let mut step_windows = vec![0u32; self.steps()];
        for (window, ends) in self.window_steps.windows(2).enumerate() {
            step_windows[ends[0] as usize..ends[1] as usize].fill(narrow(window));
        }
        step_windows
    }

    /// What the kernel reads beside the values.
    pub(crate) fn step_arrays(&self) -> StepArrays {
        let step_windows = self.step_windows();
        let mut step_cols = vec![[NO_COLUMN; 4]; 4 * self.steps()];
        let mut bitmaps = vec![[0u64; 2]; self.steps()];
        let steps =
            step_cols.par_chunks_exact_mut(4).zip(bitmaps.par_iter_mut()).zip(&step_windows).enumerate();
        steps.for_each(|(step, ((cols, bitmaps), &window))| {
            for (i, tile) in self.step_tiles(window as usize, step).into_iter().enumerate() {
                let Some(tile) = tile else { continue };
                bitmaps[i] = self.bitmaps[tile];
                for q in 0..TILE_COLUMNS {
                    let column = TILE_COLUMNS * i + q;
                    cols[column % 4][column / 4] = self.tile_cols[TILE_COLUMNS * tile + q];
                }
            }
        });
        StepArrays { step_windows, step_cols, bitmaps }
    }

    /// The values of all steps, 32 lanes × 2 registers each: `values` are f16 bits in CSR order; where there is
    /// no entry the fragment is +0.
    pub(crate) fn fragments(&self, step_windows: &[u32], values: &[u16]) -> Vec<[u32; 2]> {
        let mut fragments = vec![[0u32; 2]; LANES * self.steps()];
        fragments.par_chunks_exact_mut(LANES).zip(step_windows).enumerate().for_each(
            |(step, (lanes, &window))| {
                for (i, tile) in self.step_tiles(window as usize, step).into_iter().enumerate() {
                    let Some(tile) = tile else { continue };
                    let first = index(self.tile_values[tile]);
                    let mut bits = self.bitmaps[tile];
                    let mut packed = first;
                    while bits != 0 {
                        let bit = bits.trailing_zeros() as usize;
                        let half = HALF_OF[TILE_COLUMNS * i + bit / 8][bit % 8];
                        let value = u32::from(values[self.sources[packed] as usize]);
                        lanes[half / 4][half % 4 / 2] |= value << (16 * (half % 2));
                        bits &= bits - 1;
                        packed += 1;
                    }
                }
            },
        );
        fragments
    }
}

/// Rows of `csr` without entries, ascending.
pub(crate) fn empty_rows<V: Value>(csr: &Csr<V>) -> Vec<u32> {
    (0..csr.rows()).into_par_iter().filter(|&row| csr.row_len(row) == 0).map(narrow).collect()
}

const _: () = assert!(STEP_HALVES == STEP_COLUMNS * 8);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use windrow_formats::{NO_ROW, RowAssignment, RsTile};

    use super::*;

    fn pattern_of(csr: &Csr<f32>) -> TilePattern {
        let tiles = RsTile::from_csr(csr, &RowAssignment::all_tile(csr.rows())).unwrap();
        let sources = tiles.entry_sources(csr).unwrap();
        TilePattern::new(&mut tiles.into_parts(), &sources)
    }

    /// What the arrays say the matrix is, read back as the MMA would.
    fn entries_of(pattern: &TilePattern, values: &[u16]) -> Vec<(u32, u32, u16)> {
        let StepArrays { step_windows, step_cols, bitmaps } = pattern.step_arrays();
        let fragments = pattern.fragments(&step_windows, values);
        let mut entries = Vec::new();
        for step in 0..pattern.steps() {
            for lane in 0..32u32 {
                for i in 0..4u32 {
                    let (column, row) = fragment::b_16bit(lane, i / 2, i % 2);
                    let word = fragments[32 * step + lane as usize][(i / 2) as usize];
                    let value = (word >> (16 * (i % 2)) & 0xffff) as u16;
                    let bit = bitmaps[step][(column / 8) as usize] >> (column % 8 * 8 + row) & 1;
                    let col = step_cols[4 * step + (column % 4) as usize][(column / 4) as usize];
                    let out = pattern.window_rows()[8 * step_windows[step] as usize + row as usize];
                    if bit == 1 {
                        assert!(col != NO_COLUMN && out != NO_ROW, "an entry of a pad");
                        entries.push((out, col, value));
                    } else {
                        assert_eq!(value, 0, "a value where the bitmap has no entry");
                    }
                }
            }
        }
        entries.sort_unstable();
        entries
    }

    #[test]
    fn every_half_of_a_fragment_is_used_once() {
        let mut seen = [false; STEP_HALVES];
        for half in HALF_OF.into_iter().flatten() {
            assert!(!std::mem::replace(&mut seen[half], true));
        }
    }

    proptest! {
        #[test]
        fn steps_hold_exactly_the_entries(
            rows in 1usize..40,
            cols in 1usize..60,
            seed in any::<u64>(),
            density in 1u64..100,
        ) {
            // Values name their entry, 1.. so that none is the zero of an absent one.
            let mut state = seed;
            let mut dense = vec![0.0f32; rows * cols];
            for x in &mut dense {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if (state >> 33) % 100 < density { *x = 1.0; }
            }
            let csr = Csr::from_dense(rows, cols, &dense).unwrap();
            let values: Vec<u16> = (1..=u16::try_from(csr.nnz()).unwrap()).collect();
            let pattern = pattern_of(&csr);
            let expected: Vec<(u32, u32, u16)> = (0..csr.rows())
                .flat_map(|r| csr.row_range(r).map(move |e| (r, e)))
                .map(|(r, e)| (narrow(r), csr.col_indices()[e], values[e]))
                .collect();
            prop_assert_eq!(entries_of(&pattern, &values), expected);
            let distinct: u64 = windrow_formats::RsTile::from_csr(&csr, &RowAssignment::all_tile(rows)).unwrap()
                .tile_cols().iter().filter(|&&c| c != NO_COLUMN).count() as u64;
            prop_assert_eq!(pattern.column_vectors(), distinct);
        }
    }

    #[test]
    fn empty_rows_are_found() {
        let csr = Csr::try_from_parts(4, 2, vec![0, 0, 1, 1, 1], vec![1], vec![1.0f32]).unwrap();
        assert_eq!(empty_rows(&csr), [0, 2, 3]);
        let pattern = pattern_of(&Csr::zeros(4, 2).unwrap());
        assert_eq!((pattern.windows(), pattern.steps(), pattern.entries()), (0, 0, 0));
    }
}

//! How a finished window leaves the registers: transposed through shared memory and stored in whole
//! lines, or, when a sum is not finite, computed again from its entries.

use windrow_simt::{Simt, WARP};

use super::{Accumulators, SLICE_FEATURES, STAGE_SLICE_BYTES, STEP_COLUMNS, Staging, WINDOW_ROWS, Warp};
use crate::element::{Element, F16};
use crate::{NO_ROW, NO_SLOT};

/// A window's sum, complete or a warp's part of it.
pub(super) struct Finished {
    /// Row `lane % 8` of the window.
    pub(super) row: u32,
    /// Steps of it that this warp summed.
    pub(super) begin: u32,
    pub(super) end: u32,
    /// Where a part goes; [`NO_SLOT`] for a whole window.
    pub(super) slot: u32,
}

impl<S: Simt, G: Staging, const SLICES: usize, const STAGES: u32> Warp<'_, S, G, SLICES, STAGES> {
    /// Writes a finished window: through shared memory, so that each row leaves in whole lines. The
    /// step just multiplied has left its pipeline slot, which is exactly as large as the result.
    #[inline(always)]
    pub(super) unsafe fn flush(&self, slot: u32, done: &Finished, acc: &[Accumulators; SLICES]) {
        let mut sound = true;
        let mut slice = 0;
        while slice < SLICES {
            let mut j = 0;
            while j < 4 {
                // 0·x is 0 for a finite x and NaN otherwise.
                let zero = acc[slice][j].iter().fold(0.0, |zero, &x| self.s.fma(x, 0.0, zero));
                sound &= zero == 0.0;
                j += 1;
            }
            slice += 1;
        }
        let tile = self.base + slot; // SLICES × (8, 64) f32
        // SAFETY: window, slot and steps are in range by the params; all lanes are here, for the
        // branches depend on values that the whole warp shares.
        unsafe {
            let sound = self.s.ballot(sound) == u32::MAX;
            self.s.sync_warp(); // WAR: step multiplied -> tile written
            // Spelled out: a loop that is not unrolled would put the accumulators into memory.
            self.fill_tile(tile, done, 0, sound.then_some(&acc[0]));
            if SLICES > 1 {
                self.fill_tile(tile, done, 1, sound.then_some(&acc[1 % SLICES]));
            }
            self.s.sync_warp(); // RAW: tile written -> read
            let mut slice = 0;
            while slice < SLICES as u32 {
                self.store_tile(tile, done, slice);
                slice += 1;
            }
        }
    }

    /// One slice's sums -> its tile; without accumulators worth keeping, from the entries.
    #[inline(always)]
    unsafe fn fill_tile(&self, tile: u32, done: &Finished, slice: u32, acc: Option<&Accumulators>) {
        let tile = tile + slice * STAGE_SLICE_BYTES;
        // SAFETY: as for `flush`.
        unsafe {
            if let Some(acc) = acc {
                self.spread(tile, acc); // (64, 8) -> (8, 64)
            } else {
                self.recompute(tile, done, self.column + slice * SLICE_FEATURES);
            }
        }
    }

    /// One slice's tile -> `C`, or the window's slot of the workspace.
    #[inline(always)]
    unsafe fn store_tile(&self, tile: u32, done: &Finished, slice: u32) {
        let feature = self.lane % 16 * 4;
        let column = self.column + slice * SLICE_FEATURES + feature;
        let dense = &self.p.dense;
        // SAFETY: as for `flush`.
        unsafe {
            let mut i = 0;
            while i < 4 {
                let row = 2 * i + self.lane / 16;
                let quad = self.s.load_shared::<[f32; 4]>(tile_address(
                    tile + slice * STAGE_SLICE_BYTES,
                    row,
                    feature,
                ));
                // All lanes take part, whichever branch they share.
                let out = self.s.shuffle(done.row, row);
                if done.slot == NO_SLOT {
                    if out != NO_ROW {
                        dense.finish_quad(self.s, out, column, quad);
                    }
                } else {
                    dense.keep_quad(self.s, done.slot * WINDOW_ROWS + row, column, quad);
                }
                i += 1;
            }
        }
    }

    /// Accumulators -> tile: register `i` of MMA `j` is feature `16j + g + 8·(i/2)` of window row
    /// `2q + i%2` (`fragment::c_f32`).
    #[inline(always)]
    unsafe fn spread(&self, tile: u32, acc: &Accumulators) {
        let (g, q) = (self.lane / 4, self.lane % 4);
        let mut j = 0;
        while j < 4 {
            let mut i = 0;
            while i < 4 {
                let row = 2 * q + i as u32 % 2;
                let feature = 16 * j as u32 + g + 8 * (i as u32 / 2);
                // SAFETY: inside this warp's tile; one lane per element.
                unsafe { self.s.store_shared(tile_address(tile, row, feature), acc[j][i]) };
                i += 1;
            }
            j += 1;
        }
    }

    /// The same tile from the entries themselves: one row and every fourth feature a lane.
    #[inline(always)]
    unsafe fn recompute(&self, tile: u32, done: &Finished, column: u32) {
        let row = self.lane % WINDOW_ROWS;
        let mut feature = self.lane / WINDOW_ROWS;
        while feature < SLICE_FEATURES {
            let mut sum = 0.0;
            if column + feature < self.p.dense.n {
                let mut step = done.begin;
                while step < done.end {
                    // SAFETY: the caller's promise; `row < 8`, the feature is below n.
                    unsafe {
                        let [first, second] = self.s.load_readonly(self.p.bitmaps.at(step));
                        sum =
                            self.add_entries(Part { step, tile: 0, row, bits: first }, column + feature, sum);
                        sum = self.add_entries(
                            Part { step, tile: 1, row, bits: second },
                            column + feature,
                            sum,
                        );
                    }
                    step += 1;
                }
            }
            // SAFETY: inside this warp's tile; one lane per element.
            unsafe { self.s.store_shared(tile_address(tile, row, feature), sum) };
            feature += WARP / WINDOW_ROWS;
        }
    }

    /// `sum + Σ A[row, k] · B[column of k, feature]` over the entries of one row of one tile.
    #[inline(always)]
    unsafe fn add_entries(&self, part: Part, feature: u32, mut sum: f32) -> f32 {
        let Part { step, tile, row, bits } = part;
        let mut bits = bits & (0x0101_0101_0101_0101 << row);
        while bits != 0 {
            let k = bits.trailing_zeros() / WINDOW_ROWS; // condensed column in the tile
            bits &= bits - 1;
            // `step_cols` and `fragments` as their documentation lays them out: lane (g = row,
            // q = k / 2) holds this tile's columns 2q, 2q + 1 in its register `tile`.
            let condensed = tile * 8 + k;
            let col_at = step * STEP_COLUMNS + condensed % 4 * 4 + condensed / 4;
            let value_at =
                (u64::from(step) * 32 + u64::from(row * 4 + k / 2)) * 4 + u64::from(tile * 2 + k % 2);
            // SAFETY: an entry of the matrix: its column is below k, its value is in the fragments.
            unsafe {
                let col = self.s.load_readonly(self.p.step_cols.cast::<u32>().at(col_at));
                let at = u64::from(col) * u64::from(self.p.dense.ldb) + u64::from(feature);
                let b = self.s.load_readonly(self.p.dense.b.cast::<u16>().at_wide(at));
                let value = self.s.load_readonly(self.p.fragments.cast::<u16>().at_wide(value_at));
                sum = self.s.fma(F16::widen(self.s, value), F16::widen(self.s, b), sum);
            }
        }
        sum
    }
}

/// One row of one tile of a step.
struct Part {
    step: u32,
    /// 0 or 1.
    tile: u32,
    row: u32,
    /// The tile's bitmap.
    bits: u64,
}

/// Where element `(row, feature)` of an (8, 64) f32 tile lies. Pairs of rows are moved apart by an
/// exclusive or with multiples of eight words, so that the accumulators of a warp, which hold four rows of eight features, hit every bank
/// once; groups of four features stay together.
#[inline(always)]
const fn tile_address(tile: u32, row: u32, feature: u32) -> u32 {
    tile + (row * SLICE_FEATURES + (feature ^ (row / 2 * 8))) * 4
}

//! How a finished piece leaves the registers: transposed through shared memory and stored in whole
//! lines, or, when a sum is not finite, computed again from its entries.

use windrow_simt::{Simt, WARP};

use super::held::{Element, Held};
use super::{
    ALONE, STAGE_SLICE_BYTES, STEP_COLUMNS, Staging, TEAM, TileElement, TileStream, WINDOW_ROWS, Warp,
};
use crate::{NO_ROW, NO_SLOT};

/// The steps of a piece that is summed.
pub(super) struct Finished {
    pub(super) begin: u32,
    pub(super) end: u32,
}

impl<S: Simt, E: TileElement, G: Staging, const SLICES: usize, const STAGES: u32, V: Held<E>>
    Warp<'_, S, E, G, SLICES, STAGES, V>
{
    const TEAM_AT: u32 = TileStream::<E, G, SLICES, STAGES, V>::TEAM_AT;

    /// Writes a finished piece: through shared memory, so that each row leaves in whole lines. The
    /// step just multiplied has left its pipeline slot, which is large enough for the result.
    #[inline(always)]
    pub(super) unsafe fn flush(&self, slot: u32, done: &Finished, acc: &[E::Sums; SLICES]) {
        let mut zero = 0.0;
        let mut slice = 0;
        while slice < SLICES {
            // 0·x is 0 for a finite x and NaN otherwise, and NaN stays.
            E::each_sum(self.lane, &acc[slice], |_, _, x| zero = self.s.fma(x, 0.0, zero));
            slice += 1;
        }
        // SAFETY: slot and steps are in range by the params; all lanes are here, for the branches
        // depend on values that the whole warp shares.
        unsafe {
            let sound = self.s.ballot(zero == 0.0) == u32::MAX;
            self.s.sync_warp(); // WAR: step multiplied -> tile written
            let result = self.result_at(slot);
            // Spelled out: a loop that is not unrolled would put the accumulators into memory.
            self.fill_tile(result, done, 0, sound.then_some(&acc[0]));
            if SLICES > 1 {
                self.fill_tile(result, done, 1, sound.then_some(&acc[1 % SLICES]));
            }
            if self.staged_row(slot, WINDOW_ROWS) & ALONE != 0 {
                self.s.sync_warp(); // RAW: tile written -> read
                self.store_tiles(slot, self.lane, WARP, |from| self.s.load_shared(result + from));
            } else {
                if self.lane == 0 {
                    self.s.store_shared(Self::TEAM_AT + 4 * self.s.warp(), result);
                }
                self.s.sync_block(); // RAW: all tiles of the team, and where they are, written -> read
                let thread = self.s.thread_idx();
                self.store_tiles(slot, thread, TEAM * WARP, |from| self.sum_of_team(from));
                self.s.sync_block(); // WAR: tiles read -> next stage, next piece
            }
        }
    }

    /// Where the result of a piece that ends with the step in `slot` is brought together.
    #[inline(always)]
    fn result_at(&self, slot: u32) -> u32 {
        if G::STAGED { slot } else { self.base }
    }

    /// The sum of four elements over the team's tiles, in the order of its warps.
    #[inline(always)]
    unsafe fn sum_of_team(&self, from: u32) -> [f32; 4] {
        let mut sum = [0.0f32; 4];
        let mut warp = 0;
        while warp < TEAM {
            // SAFETY: inside the tile that the warp has told of.
            let part: [f32; 4] = unsafe {
                let tile: u32 = self.s.load_shared(Self::TEAM_AT + 4 * warp);
                self.s.load_shared(tile + from)
            };
            sum = [sum[0] + part[0], sum[1] + part[1], sum[2] + part[2], sum[3] + part[3]];
            warp += 1;
        }
        sum
    }

    /// One slice's sums -> its tile; without accumulators worth keeping, from the entries.
    #[inline(always)]
    unsafe fn fill_tile(&self, result: u32, done: &Finished, slice: u32, acc: Option<&E::Sums>) {
        let tile = result + slice * STAGE_SLICE_BYTES;
        // SAFETY: as for `flush`; inside this warp's tile, one lane per element.
        unsafe {
            if let Some(acc) = acc {
                E::each_sum(self.lane, acc, |row, feature, sum| {
                    self.s.store_shared(tile_address::<E, G>(tile, row, G::feature(feature)), sum);
                });
            } else {
                self.recompute(tile, done, self.column + slice * E::SLICE_FEATURES);
            }
        }
    }

    /// The tiles of all slices -> `C`, or the piece's slot of the workspace, by `threads` threads of which this one is
    /// number `thread`. `read` gives four elements, by where they are in a pipeline slot.
    #[inline(always)]
    unsafe fn store_tiles(&self, slot: u32, thread: u32, threads: u32, read: impl Fn(u32) -> [f32; 4]) {
        let quads = E::SLICE_FEATURES / 4; // of a row
        let feature = thread % quads * 4;
        let dense = &self.p.dense;
        // SAFETY: as for `flush`.
        unsafe {
            let piece_slot = self.staged_row(slot, WINDOW_ROWS) | ALONE;
            let mut slice = 0;
            while slice < SLICES as u32 {
                let column = self.column + slice * E::SLICE_FEATURES + feature;
                let mut row = thread / quads;
                while row < WINDOW_ROWS {
                    let quad = read(tile_address::<E, G>(slice * STAGE_SLICE_BYTES, row, feature));
                    if piece_slot == NO_SLOT {
                        let out = self.staged_row(slot, row);
                        if out != NO_ROW {
                            dense.finish(self.s, (out, false), column, quad);
                        }
                    } else {
                        dense.keep(self.s, (piece_slot & !ALONE) * WINDOW_ROWS + row, column, quad);
                    }
                    row += threads / quads;
                }
                slice += 1;
            }
        }
    }

    /// A slice's tile from the entries themselves: one row and every fourth feature a lane.
    #[inline(always)]
    unsafe fn recompute(&self, tile: u32, done: &Finished, column: u32) {
        let row = self.lane % WINDOW_ROWS;
        let mut feature = self.lane / WINDOW_ROWS;
        while feature < E::SLICE_FEATURES {
            let mut sum = 0.0;
            if column + feature < self.p.dense.n() {
                let mut step = done.begin;
                while step < done.end {
                    // SAFETY: the caller's promise; `row < 8`, the feature is below n.
                    unsafe {
                        let [first, second] = V::bitmaps(self.s, self.p, step, row);
                        let part = |tile, bits| Part { step, tile, row, bits };
                        sum = self.add_entries(part(0, first), column + feature, sum);
                        sum = self.add_entries(part(1, second), column + feature, sum);
                    }
                    step += 1;
                }
            }
            // SAFETY: inside this warp's tile; one lane per element.
            unsafe { self.s.store_shared(tile_address::<E, G>(tile, row, feature), sum) };
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
            let condensed = tile * 8 + k;
            let col_at = step * STEP_COLUMNS + condensed % 4 * 4 + condensed / 4;
            // SAFETY: an entry of the matrix: its column is below k, its value is in the record.
            unsafe {
                let col = self.s.load_readonly(self.p.step_cols.cast::<u32>().at(col_at));
                let at = u64::from(col) * u64::from(self.p.dense.ldb) + u64::from(feature);
                let b = self.s.load_readonly(self.p.dense.b.cast::<E::Bits>().at_wide(at));
                let value = V::value(self.s, self.p, &Element { step, tile, row, k });
                sum = self.s.fma(E::widen(self.s, value), E::widen(self.s, b), sum);
            }
        }
        sum
    }
}

/// One row of one tile of a step.
struct Part {
    step: u32,
    /// Which of the step's tiles, 0 or 1.
    tile: u32,
    row: u32,
    /// Where the tile has entries: bit `8·column + row`.
    bits: u64,
}

/// Where element `(row, feature)` of an 8 × `SLICE_FEATURES` f32 tile lies. Pairs of rows are moved apart by an
/// exclusive or with multiples of eight words, so that the accumulators of a warp, which hold four rows of
/// eight neighbouring features where elements have 16 bits, hit every bank once; groups of four features stay
/// together. Lanes that multiply chunks hold features that are chunks apart: they hit a bank four times.
#[inline(always)]
fn tile_address<E: TileElement, G: Staging>(tile: u32, row: u32, feature: u32) -> u32 {
    let apart = if G::STAGED { 8 } else { 4 };
    tile + (row * E::SLICE_FEATURES + (feature ^ (row / 2 * apart))) * 4
}

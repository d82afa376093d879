//! Rows of `B` from global memory straight to registers, two steps under way: as RSH-SpMM prints it (section 3.3,
//! algorithm 2), for comparison with rows that come through shared memory. f16.
//!
//! A lane (g, q) holds what it multiplies: of the condensed columns `2q`, `2q + 1`, `2q + 8` and `2q + 9` the chunk of
//! features `8g..8g + 8` of every slice, 16 bytes each. An MMA wants two columns side by side in a register, and a
//! chunk has two features side by side, so pairs of chunks are transposed in registers before they are multiplied.
//! Records and columns still come through shared memory.
//!
//! ```text
//! step i      is multiplied: its chunks were asked for in step i - 1
//! step i + 1  its columns have come with the record of step i: its chunks are asked for, and its record
//! ```

use core::marker::PhantomData;

use windrow_simt::{Simt, WARP};

use super::{
    Columns, Finished, Fragments, Held, MORE_STEPS, Pipeline, STAGE_SLICE_BYTES, Staging, TEAM, TileElement,
    TileStream, TileStreamParams, Warp, wait_for_oldest,
};
use crate::NO_COLUMN;
use crate::element::{Element, F16};
use crate::kernel::Kernel;
use crate::variant::Variant;

/// To the registers in which they are multiplied, 16 bytes at a time: [`RegisterStream`].
pub struct Registers;

impl Staging for Registers {
    const VECTORS: bool = true;
    const STAGED: bool = false;

    /// Which feature is which row of an MMA is ours to choose: MMA `j` takes features `8g + 2j` and `8g + 2j + 1` as
    /// its rows `g` and `g + 8`, where others have `16j + g` and `16j + g + 8`.
    #[inline(always)]
    fn feature(feature: u32) -> u32 {
        feature % 8 * 8 + feature / 16 * 2 + feature / 8 % 2
    }
}

/// One instance: `SLICES` slices of 128 bytes of `B`'s rows per warp, values held as `V` says.
pub struct RegisterStream<const SLICES: usize, V = Fragments>(PhantomData<V>);

/// The stages of buffers: one that is multiplied, one that is under way.
const STAGES: u32 = 2;
/// Condensed columns of a step that a lane has chunks of.
const LANE_COLUMNS: usize = 4;

/// What it has in common with rows that come through shared memory.
type Stream<const SLICES: usize, V> = TileStream<F16, Registers, SLICES, STAGES, V>;
/// A lane's chunks of a step: of each slice one for each of its columns.
type Chunks<const SLICES: usize> = [[[u32; 4]; LANE_COLUMNS]; SLICES];
/// A lane's sums of a slice.
type Sums = <F16 as TileElement>::Sums;

impl<const SLICES: usize, V: Held<F16>> Kernel for RegisterStream<SLICES, V> {
    type Params = TileStreamParams;
    const FILE: &'static str = "spmm/tile_stream";
    const VARIANT: Variant = Variant::TileStream {
        dtype: F16::DTYPE,
        features: Stream::<SLICES, V>::FEATURES,
        vectors: true,
        form: V::FORM,
        pipeline: Pipeline::Registers,
    };
    const BLOCK_THREADS: u32 = TEAM * WARP;
    const SHARED_BYTES: u32 = Stream::<SLICES, V>::TEAM_AT + 4 * TEAM;
    // As many as there are registers for.
    const MIN_BLOCKS: u32 = if SLICES == 1 { 4 } else { 3 };
    const UNITS_PER_BLOCK: u32 = TEAM;
    const COLUMNS_PER_BLOCK: u32 = Stream::<SLICES, V>::FEATURES;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &TileStreamParams) {
        const { Stream::<SLICES, V>::VALID }
        const { Stream::<SLICES, V>::LINKED }
        // 1. Locate. A whole warp leaves or stays: the collectives below see all its lanes. A team that shares a
        // piece is complete.
        let worker = s.block_idx() * TEAM + s.warp();
        if worker >= p.worker_count {
            return;
        }
        let warp = Warp::<S, F16, Registers, SLICES, STAGES, V>::locate(s, p);
        // SAFETY: `worker < worker_count`; the steps of a worker are steps of the stream by the obligations of the
        // params, and there is one at least.
        unsafe {
            let [begin, end] = s.load_readonly(p.workers.at(worker));
            warp.all_steps(begin, end);
        }
    }
}

/// How far a worker is.
struct Progress<P, const SLICES: usize> {
    step: u32,
    end: u32,
    /// First step of the piece.
    window_begin: u32,
    acc: [Sums; SLICES],
    /// Where the record of the next step lies.
    next: P,
}

impl<S: Simt, const SLICES: usize, V: Held<F16>> Warp<'_, S, F16, Registers, SLICES, STAGES, V> {
    /// Steps from `begin` to `end`, which is beyond it.
    #[inline(always)]
    unsafe fn all_steps(&self, begin: u32, end: u32) {
        // In front of the slots lies what a piece comes to.
        let first = self.base + SLICES as u32 * STAGE_SLICE_BYTES;
        let slots = [first, first + Self::STAGE_BYTES];
        let second = if begin + 1 < end { begin + 1 } else { begin };
        // SAFETY: the caller's promise.
        unsafe {
            let record = V::place(self.s, self.p, begin);
            self.stage(slots[0], begin, end, Columns { of_lane: [NO_COLUMN; 4], record });
            let next = V::place(self.s, self.p, second);
            let acc = [F16::ZERO_SUMS; SLICES]; // (FEATURES, 8)
            let mut at = Progress { step: begin, end, window_begin: begin, acc, next };
            let cols = self.p.step_cols.at_wide(u64::from(begin) * 4).cast::<u32>();
            let mut even = self.chunks(|i| self.s.load_readonly(cols.at(i))); // (16, FEATURES)
            // Two turns, so that chunks are multiplied in the registers in which they arrive: a register that had to be
            // moved to another would be waited for.
            loop {
                let odd = self.turn(slots, &mut at, &even);
                if at.step == end {
                    break;
                }
                even = self.turn([slots[1], slots[0]], &mut at, &odd);
                if at.step == end {
                    break;
                }
            }
        }
    }

    /// One step, whose record is in the first of the slots: asks for what the next one needs, multiplies, and ends a
    /// piece. Gives the next one's chunks.
    #[inline(always)]
    unsafe fn turn(
        &self,
        [read, fill]: [u32; 2],
        at: &mut Progress<V::Place, SLICES>,
        chunks: &Chunks<SLICES>,
    ) -> Chunks<SLICES> {
        // SAFETY: the caller's promise; the slot that is filled was left in the turn before.
        unsafe {
            // 2. Global -> shared, global -> registers: of the next step.
            wait_for_oldest::<S, STAGES>(self.s);
            self.s.sync_warp(); // RAW: staged -> read; WAR: previous step's reads -> next stage
            self.stage(fill, at.step + 1, at.end, Columns { of_lane: [NO_COLUMN; 4], record: at.next });
            // A link leads two steps on, one further than to the step that was just staged.
            at.next = V::staged_place(self.s, read + Self::RECORD);
            let next = if at.step + 1 < at.end {
                self.chunks(|i| self.s.load_shared(read + Self::COLS_AT + 4 * i)) // (16, FEATURES)
            } else {
                [[[0; 4]; LANE_COLUMNS]; SLICES]
            };
            // 3. and 4. Shared -> registers, multiply-accumulate.
            let fragment = V::fragment(self.s, read + Self::RECORD, self.lane); // (16, 8)
            let mut slice = 0;
            while slice < SLICES {
                // (SLICE_FEATURES, 8) += (SLICE_FEATURES, 16)·(16, 8)
                multiply_chunks(self.s, &chunks[slice], fragment, &mut at.acc[slice]);
                slice += 1;
            }
            at.step += 1;
            // 5. Registers -> global, when the piece ends.
            if self.staged_row(read, 0) != MORE_STEPS {
                self.flush(read, &Finished { begin: at.window_begin, end: at.step }, &at.acc);
                at.acc = [F16::ZERO_SUMS; SLICES];
                at.window_begin = at.step;
            }
            next
        }
    }

    /// The lane's chunks of a step, `column(i)` being word `i` of its columns. Chunks beyond the width and pad columns
    /// are zeros without a read.
    #[inline(always)]
    unsafe fn chunks(&self, column: impl Fn(u32) -> u32) -> Chunks<SLICES> {
        let mut chunks = [[[0; 4]; LANE_COLUMNS]; SLICES];
        let mut i = 0;
        while i < LANE_COLUMNS {
            let condensed = lane_column(self.lane, i as u32);
            let col = column(condensed % 4 * 4 + condensed / 4);
            let row = self.row_of(col);
            let mut slice = 0;
            while slice < SLICES {
                let first = slice as u32 * F16::SLICE_FEATURES;
                let feature = self.column + first + self.lane / 4 * F16::CHUNK;
                if col != NO_COLUMN && feature < self.p.dense.n() {
                    // SAFETY: the column is below k; its row is readable up to n rounded up to whole chunks.
                    chunks[slice][i] = unsafe { self.s.load_readonly(row.at(first).cast()) };
                }
                slice += 1;
            }
            i += 1;
        }
        chunks
    }
}

/// The `i`-th condensed column that a lane has chunks of: those of the MMA's first operand.
#[inline(always)]
fn lane_column(lane: u32, i: u32) -> u32 {
    lane % 4 * 2 + i % 2 + i / 2 * 8
}

/// `sums += chunks (64, 16) · fragment (16, 8)`.
///
/// # Safety
/// A collective of the full warp.
#[inline(always)]
unsafe fn multiply_chunks<S: Simt>(
    s: &S,
    chunks: &[[u32; 4]; LANE_COLUMNS],
    fragment: [u32; 2],
    sums: &mut Sums,
) {
    let mut j = 0;
    while j < 4 {
        // Two columns of one feature: of the lower halves, and of the upper halves.
        let pairs = |x, y| [s.permute_bytes(x, y, 0x5410), s.permute_bytes(x, y, 0x7632)];
        let [low, high] = pairs(chunks[0][j], chunks[1][j]);
        let [low_8, high_8] = pairs(chunks[2][j], chunks[3][j]);
        // SAFETY: the full warp is here, by the caller's promise.
        sums[j] = unsafe { s.mma_m16n8k16_f16([low, high, low_8, high_8], fragment, sums[j]) };
        j += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_computed_once() {
        let mut seen = [false; 64];
        for (j, g, h) in (0..4).flat_map(|j| (0..8).flat_map(move |g| (0..2).map(move |h| (j, g, h)))) {
            let feature = Registers::feature(16 * j + g + 8 * h);
            assert_eq!(feature, 8 * g + 2 * j + h);
            assert!(!core::mem::replace(&mut seen[feature as usize], true));
        }
    }

    #[test]
    fn the_lanes_of_a_row_have_all_columns() {
        let mut columns: Vec<u32> =
            (0..4).flat_map(|lane| (0..4).map(move |i| lane_column(lane, i))).collect();
        columns.sort_unstable();
        assert_eq!(columns, (0..16).collect::<Vec<_>>());
    }
}

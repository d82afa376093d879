//! `C = α·A·B + β·C` on Tensor Cores: a stream of 8 × 8 tiles, dealt out evenly.
//!
//! RSH-SpMM's Tensor Core path (sections 3 and 4), reworked. A *step* is two tiles of one window:
//! 8 rows × 16 condensed columns. All steps of the matrix form one stream; each warp takes one
//! contiguous, equally long range of it, so balance holds by construction and the pipeline is filled
//! once per warp, not once per window. `FEATURES` columns of `C` belong to a warp:
//!
//! ```text
//! global B rows      --cp.async-->  shared, STAGES × (16, FEATURES) f16, 16-byte chunks XOR-swizzled
//! shared (16, 16)    --ldmatrix.trans-->  A operand: 16 features × 16 condensed columns
//! fragments          --8 bytes a lane-->  B operand: 16 condensed columns × 8 window rows
//! accumulators       FEATURES × 8 rows of Cᵀ, f32
//! ```
//!
//! The sparse operand sits on the 8-wide side (`Cᵀ = Bᵀ·Aᵀ`), so sparsity is paid for in 8 × 1
//! column vectors. Its values are dense and in register order: 256 bytes a step, and no bitmap to
//! decode in the loop.
//!
//! **Windows on a boundary.** A window cut between two warps is summed by neither: each leaves its
//! 8 rows in a slot of the workspace and [`combine`](crate::combine) adds them in a fixed order.
//!
//! **Not-a-number.** An MMA multiplies absent entries too: an infinity in a row of `B` would give
//! `0·∞ = NaN` in rows of the window that do not refer to it. Pad columns therefore read nothing, and
//! a window with any non-finite sum is computed again, entry by entry from its bitmaps, before it is
//! stored. Finite data never takes that path.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::dense::Dense;
use crate::element::Dtype;
use crate::kernel::{Kernel, Variant};
use crate::{NO_COLUMN, NO_SLOT};

mod epilogue;

use epilogue::Finished;

/// Rows of a window.
pub const WINDOW_ROWS: u32 = 8;
/// Condensed columns of a step.
pub const STEP_COLUMNS: u32 = 16;

/// Arguments of [`TileStream`].
///
/// # Obligations
/// - `workers[i] = [begin, end, head_slot, tail_slot]`, `begin < end`: the ranges are disjoint. The
///   worker's first window goes to `head_slot`, its last to `tail_slot`, unless [`NO_SLOT`]; a range
///   inside one window has both equal. A window without slots belongs to one worker.
/// - fewer than 2²⁸ steps and 2²⁹ windows.
/// - per step: its window; 16 columns, or [`NO_COLUMN`]; 32 × 2 words of fragments; two bitmaps.
///   A bit is set exactly where there is an entry; elsewhere the fragment is +0.
/// - per window: 8 rows of `C`, or [`NO_ROW`](crate::NO_ROW); no row twice.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct TileStreamParams {
    /// The dense operands. Workspace rows `8·slot .. 8·slot + 8` belong to a slot.
    pub dense: Dense,
    /// `[step_begin, step_end, head_slot, tail_slot]` per warp.
    pub workers: GlobalPtr<[u32; 4]>,
    /// Window of each step.
    pub step_windows: GlobalPtr<u32>,
    /// Columns of each step, four words of four: word `r` holds condensed columns `r`, `r + 4`,
    /// `r + 8`, `r + 12`, the ones that one quarter-warp stages.
    pub step_cols: GlobalPtr<[u32; 4]>,
    /// Values of each step: lane `l`'s two registers of the MMA's second operand.
    pub fragments: GlobalPtr<[u32; 2]>,
    /// Bit `8·k + r` of word `t`: tile `t` of the step has an entry in condensed column `k`, row `r`.
    pub bitmaps: GlobalPtr<[u64; 2]>,
    /// Rows of each window.
    pub window_rows: GlobalPtr<u32>,
    /// Number of workers.
    pub worker_count: u32,
    /// Zero.
    pub reserved: u32,
}

/// How a step's rows of `B` get into shared memory.
pub trait Staging: 'static {
    /// Whether rows are 16-byte aligned.
    const VECTORS: bool;
}
/// `cp.async` of 16 bytes.
pub struct Bulk;
/// Two bytes at a time through registers, for rows of any alignment.
pub struct ByElement;
impl Staging for Bulk {
    const VECTORS: bool = true;
}
impl Staging for ByElement {
    const VECTORS: bool = false;
}

/// One instance: `SLICES` slices of 64 features per warp, `STAGES` steps in flight.
pub struct TileStream<G, const SLICES: usize, const STAGES: u32>(PhantomData<G>);

/// Bytes of one row of a slice: 64 f16 features, one cache line.
const SLICE_BYTES: u32 = 128;
/// Features of a slice.
const SLICE_FEATURES: u32 = SLICE_BYTES / 2;
/// Bytes of one staged slice of a step.
const STAGE_SLICE_BYTES: u32 = STEP_COLUMNS * SLICE_BYTES;
/// One slice's accumulators: `acc[j][i]` is register `i` of the MMA over features `16j..16j+16`.
type Accumulators = [[f32; 4]; 4];

impl<G: Staging, const SLICES: usize, const STAGES: u32> TileStream<G, SLICES, STAGES> {
    const VALID: () = assert!(
        STAGES >= 2 && STAGES <= 4 && SLICES >= 1 && SLICES <= 2,
        "two to four stages, one or two slices"
    );
    /// Columns of `C` per warp, and per value of the grid's slow axis.
    pub const FEATURES: u32 = SLICES as u32 * SLICE_FEATURES;
    /// Workers per block.
    pub const WARPS: u32 = Self::BLOCK_THREADS / WARP;
    const STAGE_BYTES: u32 = SLICES as u32 * STAGE_SLICE_BYTES;
    /// Offset of the last pipeline slot.
    const LAST_STAGE: u32 = (STAGES - 1) * Self::STAGE_BYTES;
    const WARP_BYTES: u32 = STAGES * Self::STAGE_BYTES;
}

impl<G: Staging, const SLICES: usize, const STAGES: u32> Kernel for TileStream<G, SLICES, STAGES> {
    type Params = TileStreamParams;
    const FILE: &'static str = "tile_stream";
    const VARIANT: Variant =
        Variant::TileStream { dtype: Dtype::F16, features: Self::FEATURES, vectors: G::VECTORS };
    const BLOCK_THREADS: u32 = 128;
    const SHARED_BYTES: u32 = Self::BLOCK_THREADS / WARP * Self::WARP_BYTES;
    // Left to itself, `ptxas` spills a few registers to fit one more block.
    const MIN_BLOCKS: u32 = if !G::VECTORS {
        5
    } else if SLICES == 1 {
        6
    } else {
        4
    };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &TileStreamParams) {
        const { Self::VALID }
        // 1. Locate. A whole warp leaves or stays: the collectives below see all its lanes.
        let worker = s.block_idx() * Self::WARPS + s.warp();
        if worker >= p.worker_count {
            return;
        }
        let warp = Warp::<S, G, SLICES, STAGES>::locate(s, p);
        // SAFETY: `worker < worker_count`; everything indexed by a step, window, column or slot is
        // in range by the obligations of the params.
        unsafe {
            let [begin, end, head_slot, tail_slot] = s.load_readonly(p.workers.at(worker));
            let last = end - 1;
            // What a step needs is loaded two steps before it is used: a step lasts about as long as a
            // load from memory that every SM is busy with.
            let mut ahead = begin; // the next step to stage
            let mut cols = [warp.columns(begin), warp.columns(min(begin + 1, last))];
            // Byte offsets of pipeline slots: the one to fill next, the one to multiply next.
            let mut fill = 0;
            while fill < Self::LAST_STAGE {
                warp.stage(fill, ahead < end, cols[0]); // (16, FEATURES) f16
                cols = [cols[1], warp.columns(min(ahead + 2, last))];
                ahead += 1;
                fill += Self::STAGE_BYTES;
            }
            let mut read = 0;
            let mut acc = [[[0.0f32; 4]; 4]; SLICES]; // (FEATURES, 8)
            let mut windows = [warp.window(begin), warp.window(min(begin + 1, last))];
            let mut row = warp.window_row(windows[0]);
            let mut fragments = [warp.fragment(begin), warp.fragment(min(begin + 1, last))]; // (16, 8)
            let mut window_begin = begin;
            let mut slot = head_slot;
            let mut step = begin;
            while step < end {
                let after_next = min(step + 2, last);
                let (fragment_2, window_2) = (warp.fragment(after_next), warp.window(after_next));
                let next_row = warp.window_row(windows[1]);
                // 2. Global -> shared: into the slot that the previous step has left.
                wait_for_oldest::<S, STAGES>(s);
                s.sync_warp(); // RAW: staged -> read; WAR: previous step's reads -> next stage
                warp.stage(fill, ahead < end, cols[0]);
                cols = [cols[1], warp.columns(min(ahead + 2, last))];
                ahead += 1;
                // 3. and 4. Shared -> registers, multiply-accumulate.
                warp.multiply(read, fragments[0], &mut acc); // (FEATURES, 8) += (FEATURES, 16)·(16, 8)
                step += 1;
                // 5. Registers -> global, when the window ends or the range does.
                if windows[1] != windows[0] || step == end {
                    let slot_now = if step == end && slot == NO_SLOT { tail_slot } else { slot };
                    warp.flush(read, &Finished { row, begin: window_begin, end: step, slot: slot_now }, &acc);
                    acc = [[[0.0; 4]; 4]; SLICES];
                    window_begin = step;
                    slot = NO_SLOT;
                }
                windows = [windows[1], window_2];
                fragments = [fragments[1], fragment_2];
                row = next_row;
                fill = read;
                read = if read == Self::LAST_STAGE { 0 } else { read + Self::STAGE_BYTES };
            }
        }
    }
}

/// Waits until the oldest of the `STAGES - 1` groups under way has arrived.
#[inline(always)]
unsafe fn wait_for_oldest<S: Simt, const STAGES: u32>(s: &S) {
    // SAFETY: part of the pipeline's protocol: `STAGES - 1` groups have been committed.
    unsafe {
        match STAGES {
            2 => s.copy_async_wait::<0>(),
            3 => s.copy_async_wait::<1>(),
            _ => s.copy_async_wait::<2>(),
        }
    }
}

const fn min(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

/// Where one lane is, and what it derives from that once.
///
/// Pipeline slots are multiples of 2 KiB, so the swizzle of a row, an exclusive or inside its 128
/// bytes, can be applied to the whole address: constants of the loop below.
struct Warp<'a, S, G, const SLICES: usize, const STAGES: u32> {
    s: &'a S,
    p: &'a TileStreamParams,
    lane: u32,
    /// First column of `C` of the warp.
    column: u32,
    /// This warp's shared memory.
    base: u32,
    /// In slot 0: where this lane's chunk of its first row is staged.
    staged: u32,
    /// In slot 0: the row that this lane names to `ldmatrix` first.
    named: u32,
    /// First of this lane's elements of row 0 of `B`.
    b: GlobalPtr<u16>,
    cols: GlobalPtr<[u32; 4]>,
    fragments: GlobalPtr<[u32; 2]>,
    staging: PhantomData<G>,
}

impl<'a, S: Simt, G: Staging, const SLICES: usize, const STAGES: u32> Warp<'a, S, G, SLICES, STAGES> {
    #[inline(always)]
    fn locate(s: &'a S, p: &'a TileStreamParams) -> Self {
        let lane = s.lane();
        let column = s.block_idx_y() * TileStream::<G, SLICES, STAGES>::FEATURES;
        let base = s.warp() * TileStream::<G, SLICES, STAGES>::WARP_BYTES;
        // Staging: eight lanes a row, chunk `c` of row `r` at chunk `c ^ (r % 8)`.
        let (chunk, row) = (lane % 8, lane / 8);
        // ldmatrix: lane l gives row l % 8 of matrix l / 8. Matrices 0 and 1 are condensed columns
        // 0..8 of features 0..8 and 8..16, matrices 2 and 3 condensed columns 8..16.
        let (matrix, named_row) = (lane / 8, lane % 8);
        Self {
            s,
            p,
            lane,
            column,
            base,
            staged: base + row * SLICE_BYTES + (chunk ^ row) * 16,
            named: base + (named_row + matrix / 2 * 8) * SLICE_BYTES + ((matrix % 2) ^ named_row) * 16,
            b: p.dense.b.cast::<u16>().at(column + chunk * 8),
            cols: p.step_cols.at(row),
            fragments: p.fragments.at(lane),
            staging: PhantomData,
        }
    }

    /// The four condensed columns that this lane helps to stage.
    #[inline(always)]
    unsafe fn columns(&self, step: u32) -> [u32; 4] {
        // SAFETY: `step` is a step of the stream.
        unsafe { self.s.load_readonly_once(self.cols.at_wide(u64::from(step) * 4)) }
    }

    /// This lane's part of the (16, 8) operand of values.
    #[inline(always)]
    unsafe fn fragment(&self, step: u32) -> [u32; 2] {
        // SAFETY: `step` is a step of the stream.
        unsafe { self.s.load_readonly_once(self.fragments.at_wide(u64::from(step) * 32)) }
    }

    /// The window of a step.
    #[inline(always)]
    unsafe fn window(&self, step: u32) -> u32 {
        // SAFETY: `step` is a step of the stream.
        unsafe { self.s.load_readonly(self.p.step_windows.at(step)) }
    }

    /// Row `lane % 8` of a window.
    #[inline(always)]
    unsafe fn window_row(&self, window: u32) -> u32 {
        // SAFETY: a window of the stream.
        unsafe { self.s.load_readonly(self.p.window_rows.at(window * WINDOW_ROWS + self.lane % WINDOW_ROWS)) }
    }

    /// Starts bringing a step's rows of `B` into the pipeline slot at `slot`.
    #[inline(always)]
    unsafe fn stage(&self, slot: u32, live: bool, cols: [u32; 4]) {
        // Rows r + 4 and r + 12 have bit 2 of `r % 8` flipped, and so bit 6 of the address.
        let at = self.staged + slot;
        // SAFETY: columns are below k or NO_COLUMN.
        unsafe {
            if live {
                self.stage_row(at, cols[0]);
                self.stage_row((at ^ 64) + 4 * SLICE_BYTES, cols[1]);
                self.stage_row(at + 8 * SLICE_BYTES, cols[2]);
                self.stage_row((at ^ 64) + 12 * SLICE_BYTES, cols[3]);
            }
            self.s.copy_async_commit();
        }
    }

    /// This lane's chunk of one row, for each slice. Chunks beyond the width and pad columns become
    /// zeros without a read.
    #[inline(always)]
    unsafe fn stage_row(&self, to: u32, col: u32) {
        let row = self.b.byte_add(u64::from(col) * u64::from(self.p.dense.ldb) * 2);
        let mut slice = 0;
        while slice < SLICES as u32 {
            let feature = self.column + slice * SLICE_FEATURES + self.lane % 8 * 8;
            let inside = self.p.dense.n.saturating_sub(feature);
            let source = row.at(slice * SLICE_FEATURES);
            let to = to + slice * STAGE_SLICE_BYTES;
            // SAFETY: with vectors, a row is readable up to ldb, which is a multiple of 8; without,
            // `inside` elements are. `to` is in the pipeline slot.
            unsafe {
                if G::VECTORS {
                    let present = col != NO_COLUMN && inside > 0;
                    self.s.copy_async_16(to, source.cast(), present);
                } else {
                    let present = if col == NO_COLUMN { 0 } else { inside };
                    self.s.store_shared(to, read_elements(self.s, source, present));
                }
            }
            slice += 1;
        }
    }

    /// `acc += staged (FEATURES, 16) · fragment (16, 8)`.
    #[inline(always)]
    unsafe fn multiply(&self, slot: u32, fragment: [u32; 2], acc: &mut [Accumulators; SLICES]) {
        let mut slice = 0;
        while slice < SLICES {
            let at = self.named + slot + slice as u32 * STAGE_SLICE_BYTES;
            let mut j = 0;
            while j < 4 {
                // SAFETY: inside this warp's staged slice; all lanes are here.
                unsafe {
                    let operand = self.s.load_matrix_x4_trans(at ^ (j as u32 * 32)); // (16 features, 16)
                    acc[slice][j] = self.s.mma_m16n8k16_f16(operand, fragment, acc[slice][j]);
                }
                j += 1;
            }
            slice += 1;
        }
    }
}

/// Eight f16 elements of which the first `present` exist, the rest zero, as four words.
#[inline(always)]
unsafe fn read_elements<S: Simt>(s: &S, from: GlobalPtr<u16>, present: u32) -> [u32; 4] {
    let one = |i: u32| {
        // SAFETY: element i exists.
        if i < present { u32::from(unsafe { s.load_readonly(from.at(i)) }) } else { 0 }
    };
    let pair = |i: u32| one(i) | one(i + 1) << 16;
    [pair(0), pair(2), pair(4), pair(6)]
}

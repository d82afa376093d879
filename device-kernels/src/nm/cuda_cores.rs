//! N:M products in f32 on CUDA cores.
//!
//! After NM-SpMM (section III): hierarchical blocking, packing, double buffering of shared memory and of registers,
//! indices prefetched. Different from it: thread tiles of 16 × 8, and the order of lanes in a warp, chosen so that
//! fewer bytes of shared memory are read for each product.
//!
//! ```text
//! A          global --cp.async-->  shared      (slots, BM), the rows that a list names, as they lie
//! W, lists   global --cp.async-->  shared      (depth, BN); slots to pick, rows of the next stage
//! fragments  shared --16 bytes a lane-->  registers      TM of the slot picked, TN of the kept row
//! sums       registers, TM × TN a lane  -->  shared  -->  C, in whole lines
//! ```
//!
//! A warp is `8·TM` rows by `4·TN` columns of `C`: eight lanes along `m`, four along `n`. A lane's rows are chunks of
//! four, 32 apart, its columns follow each other:
//!
//! ```text
//! row of C      32·c + 4·lane_m + i     c < TM / 4, i < 4
//! column of C   TN·(4·warp + lane_n) + j
//! ```
//!
//! Where the lanes of a warp share their picks, neighbours along `m` and `n` alternate (bits 1 to 3 of the lane are
//! `lane_m`, bits 0 and 4 `lane_n`): then lanes `l` and `l ^ 1` read the same of `A`, `l` and `l ^ 2` the same of `W`,
//! which shared memory serves together. Where they do not, eight successive lanes read one row of the slab.
//!
//! Stage `t`, of `depth` kept rows, is multiplied while stage `t + 1` is on its way. The barrier between stages stands
//! before the last row of a stage is multiplied, whose fragments are in registers by then: the fragments after it are
//! read from the next stage, and nothing is drained.
//!
//! Weights and lists of all stages follow each other so that what a stage needs lies together: its weights, its picks
//! and the rows of the stage after it, which are brought while it is multiplied.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::arch::Arch;
use crate::kernel::Kernel;
use crate::output::Output;
use crate::unroll::{each, each4};
use crate::variant::{NmTile, Variant};

mod bulk;
mod form;
mod single;
mod stages;
#[cfg(test)]
mod tests;

pub use form::{Buffers, Bulk, ByColumn, ByLane, ByWarp, Double, Picks, Single};

/// Kept rows whose picks are read at once.
const PICKS_AT_ONCE: u32 = 4;
/// Multiprocessors have this much shared memory for blocks and what each block has beside its own, in KiB.
const SHARED_KIB: u32 = 228;

/// Arguments of [`NmCudaCores`].
///
/// # Obligations
/// - `a`: k-major, 16-byte aligned, less than 2³² vectors of four, every row readable up to `m` rounded up to 4.
/// - the grid is (`⌈m / BM⌉ << parts_log2`, blocks of columns), for a tile of BM × BN.
/// - `records`, 16-byte aligned: (blocks, stages, [`NmTile::record_words`]), and `slots` words behind. A record has
///   `slots` rows of `a`, or [`NO_ROW`](crate::NO_ROW), which nothing picks; then the weights (`depth`, BN), columns
///   from `n` on, and rows that are padding, zero; then for each strip of the block `depth` picks, a pick being
///   `slot · BM · 4` of a slot with a row, or of slot `slots`, which holds zeros.
/// - `slots > 0` is a multiple of 4 and `depth > 0` one of [`NmTile::depth_multiple`], and [`NmTile::shared_bytes`] of
///   them is at most the kernel's.
/// - part `i` of the `1 << parts_log2` takes stages `i · stages_per_part..`, up to as many; all parts together take all
///   stages. It writes the output `i · part_elements` elements further on; with more than one, that is an f32.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct NmCudaCoresParams {
    /// The result, or the partial sums of part 0.
    pub output: Output,
    /// Elements of the output from one part to the next.
    pub part_elements: u64,
    /// The activations, k-major: row `i` is column `i` of `A`.
    pub a: GlobalPtr<f32>,
    /// Rows, weights and picks.
    pub records: GlobalPtr<u32>,
    /// Leading dimension of `a`, in 16-byte vectors.
    pub row_vectors: u32,
    /// Rows of the slab of `A`.
    pub slots: u32,
    /// Kept rows of a stage, padding included.
    pub depth: u32,
    /// Stages of the product.
    pub stages: u32,
    /// Stages of a part.
    pub stages_per_part: u32,
    /// Logarithm of the number of parts.
    pub parts_log2: u32,
}

/// One instance: sums of `TM × TN` a lane, `WARPS` warps side by side along `n`, picks as `P` says, stages as `B` does.
pub struct NmCudaCores<P, const TM: usize, const TN: usize, const WARPS: u32, B = Double>(
    PhantomData<(P, B)>,
);

impl<P: Picks, const TM: usize, const TN: usize, const WARPS: u32, B: Buffers>
    NmCudaCores<P, TM, TN, WARPS, B>
{
    /// What a block computes.
    pub const TILE: NmTile = NmTile {
        rows: 8 * TM as u32,
        columns: 4 * TN as u32 * WARPS,
        strip: if P::BY_WARP {
            4 * TN as u32
        } else if P::BY_COLUMN {
            1
        } else {
            TN as u32
        },
    };
    const THREADS: u32 = WARPS * WARP;
    /// Blocks that shared memory is divided among: four of 64 × 128 find registers on `sm_90`, on `sm_80` they spill.
    const SHARING: u32 = if matches!((TM * TN, WARPS), (64, 4)) { 4 } else { Self::MIN_BLOCKS };
    /// Lists of picks that a lane follows.
    const LISTS: usize = if P::BY_COLUMN { TN } else { 1 };
    /// Bytes of a row of the slab of `W`.
    const W_ROW: u32 = 4 * Self::TILE.columns;
}

impl<P: Picks, const TM: usize, const TN: usize, const WARPS: u32, B: Buffers> Kernel
    for NmCudaCores<P, TM, TN, WARPS, B>
{
    type Params = NmCudaCoresParams;
    const FILE: &'static str = "nm";
    const VARIANT: Variant = Variant::NmCudaCores { tile: Self::TILE, buffers: B::STAGES, bulk: B::BULK };
    const BLOCK_THREADS: u32 = Self::THREADS;
    // An equal share for each of the blocks, of which each takes one KiB more than it asks for.
    const SHARED_BYTES: u32 = (SHARED_KIB / Self::SHARING - 1) * 1024;
    const MIN_BLOCKS: u32 = match (TM * TN, WARPS) {
        (128, 2) => 4,
        (128, _) => 2,
        (64, 4) => 3,
        (64, _) => 6,
        (32, _) => 8,
        _ if P::BY_COLUMN => 6,
        _ => 10,
    };
    const ARCH: Arch = if B::BULK { Arch::Sm90 } else { Arch::Sm80 };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &NmCudaCoresParams) {
        const {
            assert!(
                Self::TILE.rows * Self::W_ROW + NmTile::COUNTER_BYTES <= Self::SHARED_BYTES,
                "the tile of C fits"
            );
            assert!(
                TM.is_multiple_of(4) && TN.is_multiple_of(4) && Self::TILE.columns.is_multiple_of(32),
                "whole vectors"
            );
        }
        // 1. Locate.
        let part = s.block_idx() & ((1 << p.parts_log2) - 1);
        let begin = part * p.stages_per_part;
        let end = p.stages.min(begin + p.stages_per_part);
        let block = Block::<S, P, TM, TN, WARPS>::locate(s, p, begin);
        let mut acc = [[0.0; TN]; TM]; // (BM, BN) per block
        // SAFETY: stages and blocks are those of the params; all threads of a block have the same.
        unsafe {
            if B::STAGES == 1 {
                block.multiply_one_by_one(end.saturating_sub(begin), &mut acc);
            } else if begin < end {
                block.multiply_stages::<B>(end - begin, &mut acc);
            }
            s.sync_block(); // WAR: slabs read -> tile of C written
            block.finish(part, &acc);
        }
    }
}

/// Fragments of one kept row: what a lane's lists pick of `A`, and its columns of `W`.
type Fragments<const TM: usize, const TN: usize> = ([[f32; TM]; TN], [f32; TN]);
/// Picks of four kept rows, for each of a lane's lists.
type FourPicks<const TN: usize> = [[u32; 4]; TN];

/// Where one lane is, and what it derives from that once.
struct Block<'a, S, P, const TM: usize, const TN: usize, const WARPS: u32> {
    s: &'a S,
    p: &'a NmCudaCoresParams,
    /// First row of `C` of the block.
    row: u32,
    /// In a row of the slabs: the lane's first elements.
    lane_a: u32,
    lane_w: u32,
    /// The lane's place along `m`, which the swizzle of the tile of `C` depends on.
    lane_m: u32,
    /// In a stage: the lane's first list of picks.
    lane_list: u32,
    /// What this thread copies of `A`: 16 bytes of a row, if the result has such rows.
    from_a: GlobalPtr<[f32; 4]>,
    present: bool,
    /// The record of the part's first stage.
    records: GlobalPtr<u32>,
    form: PhantomData<P>,
}

impl<'a, S: Simt, P: Picks, const TM: usize, const TN: usize, const WARPS: u32>
    Block<'a, S, P, TM, TN, WARPS>
{
    const TILE: NmTile = NmCudaCores::<P, TM, TN, WARPS, Double>::TILE;
    const A_ROW: u32 = Self::TILE.slot_bytes();
    const W_ROW: u32 = NmCudaCores::<P, TM, TN, WARPS, Double>::W_ROW;
    const THREADS: u32 = NmCudaCores::<P, TM, TN, WARPS, Double>::THREADS;
    const LISTS: usize = NmCudaCores::<P, TM, TN, WARPS, Double>::LISTS;
    /// Kept rows that are multiplied from one branch to the next.
    const ROWS_AT_ONCE: u32 = Self::TILE.depth_multiple();
    /// Threads that copy one row of `A`.
    const ROW_THREADS: u32 = Self::A_ROW / 16;

    #[inline(always)]
    fn locate(s: &'a S, p: &'a NmCudaCoresParams, begin: u32) -> Self {
        let (lane, warp) = (s.lane(), s.warp());
        let (lane_m, lane_n) = match P::BY_WARP {
            true => (lane >> 1 & 7, lane & 1 | lane >> 4 << 1),
            false => (lane % 8, lane / 8),
        };
        let row = (s.block_idx() >> p.parts_log2) * Self::TILE.rows;
        let group = 4 * warp + lane_n; // of TN columns
        let strip = if P::BY_WARP { warp } else { group * Self::LISTS as u32 };
        let copied = row + s.thread_idx() % Self::ROW_THREADS * 4;
        let words = Self::TILE.record_words(p.slots, p.depth);
        let first = u64::from(s.block_idx_y()) * u64::from(p.stages) + u64::from(begin);
        Self {
            s,
            p,
            row,
            lane_a: lane_m * 16,
            lane_w: group * TN as u32 * 4,
            lane_m,
            lane_list: Self::slab_w(p) + p.depth * (Self::W_ROW + strip * 4),
            from_a: p.a.at(copied).cast(),
            present: copied < p.output.m,
            records: p.records.at_wide(first * u64::from(words)),
            form: PhantomData,
        }
    }

    /// In a stage: `W`, behind the slots and the slot of zeros.
    #[inline(always)]
    fn slab_w(p: &NmCudaCoresParams) -> u32 {
        (p.slots + 1) * Self::A_ROW
    }

    /// In a stage: the rows of the next, behind `W` and all picks.
    #[inline(always)]
    fn next_rows(p: &NmCudaCoresParams) -> u32 {
        Self::slab_w(p) + p.depth * (Self::W_ROW + Self::TILE.strips() * 4)
    }

    /// The next four picks of each of the lane's lists.
    #[inline(always)]
    unsafe fn picks(&self, list: u32) -> FourPicks<TN> {
        let mut picks = [[0; 4]; TN];
        each::<TN>(|j| {
            if j < Self::LISTS {
                // SAFETY: inside the lists of a stage that have arrived.
                picks[j] = unsafe { self.s.load_shared(list + j as u32 * self.p.depth * 4) };
            }
        });
        picks
    }

    /// The fragments of kept row `i` of four: `a` and `w` are where the lane's parts of the stage's slab of `A` and of
    /// the first of the four rows of `W` begin.
    #[inline(always)]
    unsafe fn fragments(&self, a: u32, picks: FourPicks<TN>, i: usize, w: u32) -> Fragments<TM, TN> {
        let mut of_a = [[0.0; TM]; TN];
        let mut of_w = [0.0; TN];
        // SAFETY: picks are slots of the slab; the stage has arrived.
        unsafe {
            each::<TN>(|j| {
                if j < Self::LISTS {
                    let at = a + picks[j][i];
                    each::<TM>(|chunk| {
                        if chunk % 4 == 0 {
                            let four: [f32; 4] = self.s.load_shared(at + chunk as u32 / 4 * 128);
                            each4(|e| of_a[j][chunk + e] = four[e]);
                        }
                    });
                }
            });
            each::<TN>(|chunk| {
                if chunk % 4 == 0 {
                    let at = w + i as u32 * Self::W_ROW + chunk as u32 * 4;
                    let four: [f32; 4] = self.s.load_shared(at);
                    each4(|e| of_w[chunk + e] = four[e]);
                }
            });
        }
        (of_a, of_w)
    }

    /// `acc[i][j] += a[i]·w[j]`, an outer product of one kept row, each element rounded once.
    #[inline(always)]
    fn multiply(&self, (a, w): &Fragments<TM, TN>, acc: &mut [[f32; TN]; TM]) {
        // Columns outside: with rows outside, `ptxas` has the factor of `A` change more often, and three registers of
        // one bank meet in 8 % of the instructions instead of 3 %.
        each::<TN>(|j| {
            each::<TM>(|i| acc[i][j] = self.s.fma(a[j % Self::LISTS][i], w[j], acc[i][j]));
        });
    }

    /// Where four columns of the tile of `C` lie in shared memory. Lanes that write or read together find different
    /// banks: eight rows, four apart, of a lane's columns; or a row.
    #[inline(always)]
    const fn tile_at(row: u32, quad: u32) -> u32 {
        let m = row / 4 % 8; // the lane's place along `m`
        let swizzle = match TN {
            8 => m & 1 | (m & 2) << 1 | (m & 4) >> 1,
            _ => (m & 3) << 1 | (m & 4) >> 2,
        };
        row * Self::W_ROW + (quad ^ swizzle) * 16
    }

    /// Writes the block's tile of `C`.
    #[inline(always)]
    unsafe fn finish(&self, part: u32, acc: &[[f32; TN]; TM]) {
        let s = self.s;
        let mut output = self.p.output;
        // More than one part only for f32.
        output.c = output.c.at_wide(u64::from(part) * self.p.part_elements);
        // SAFETY: the tile fits; each of its words is written by one lane before the barrier. Elements of `C` are those
        // of this block and part.
        unsafe {
            // 5. Registers -> shared -> global.
            each::<TM>(|i| {
                let row = i as u32 / 4 * 32 + self.lane_m * 4 + i as u32 % 4;
                each::<TN>(|j| {
                    if j % 4 == 0 {
                        let four = [acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]];
                        s.store_shared(Self::tile_at(row, self.lane_w / 16 + j as u32 / 4), four);
                    }
                });
            });
            s.sync_block(); // RAW: tile of C written -> read
            let column = s.block_idx_y() * Self::TILE.columns;
            let quads = Self::TILE.columns / 4; // of a row
            let mut at = s.thread_idx();
            while at < Self::TILE.rows * quads {
                let (row, quad) = (at / quads, at % quads);
                let four: [f32; 4] = s.load_shared(Self::tile_at(row, quad));
                output.store(s, self.row + row, column + quad * 4, four);
                at += Self::THREADS;
            }
        }
    }
}

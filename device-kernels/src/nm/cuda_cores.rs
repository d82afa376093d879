//! N:M products in f32 on CUDA cores.
//!
//! After NM-SpMM (section III): hierarchical blocking, packing, double buffering of shared memory and of registers,
//! indices prefetched. Different from it: thread tiles of 16 × 8, and the order of lanes in a warp, chosen so that fewer
//! bytes of shared memory are read for each product.
//!
//! ```text
//! lists      global --cp.async-->  shared      rows to bring and slots to pick, a stage before they are needed
//! A          global --cp.async-->  shared      (slots, BM), the rows that the lists name, as they lie
//! W          global --cp.async-->  shared      (depth, BN)
//! fragments  shared --16 bytes a lane-->  registers      TM of the slot picked, TN of the kept row
//! sums       registers, TM × TN a lane  -->  shared  -->  C, in whole lines
//! ```
//!
//! A warp is `8·TM` rows by `4·TN` columns of `C`: eight lanes along `m`, four along `n`. A lane's rows are chunks of four,
//! 32 apart, its columns follow each other:
//!
//! ```text
//! row of C      32·c + 4·lane_m + i     c < TM / 4, i < 4
//! column of C   TN·(4·warp + lane_n) + j
//! ```
//!
//! Where the lanes of a warp share their picks, neighbours along `m` and `n` alternate (bits 1 to 3 of the lane are
//! `lane_m`, bits 0 and 4 `lane_n`): then lanes `l` and `l ^ 1` read the same of `A`, `l` and `l ^ 2` the same of `W`, which
//! shared memory serves together. Where they do not, eight successive lanes read one row of the slab.
//!
//! Stage `t`, of `depth` kept rows, is multiplied while stage `t + 1` and the lists of stage `t + 2` are on their way. The
//! barrier between stages stands before the last row of a stage is multiplied, whose fragments are in registers by then:
//! the fragments after it are read from the next stage, and nothing is drained.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::output::{Output, each, each4};
use super::tile::NmTile;
use crate::kernel::{Kernel, Variant};

mod form;
mod single;
#[cfg(test)]
mod tests;

pub use form::{Buffers, ByColumn, ByLane, ByWarp, Double, Picks, Single};

/// Marks a slot that no row is brought into; nothing picks it.
const NO_ROW: u32 = u32::MAX;
/// Kept rows whose picks are read at once.
const PICKS_AT_ONCE: u32 = 4;
/// Multiprocessors have this much shared memory for blocks and what each block has beside its own, in KiB.
const SHARED_KIB: u32 = 228;

/// Arguments of [`NmCudaCores`].
///
/// # Obligations
/// - `a`: k-major, 16-byte aligned, less than 2³² vectors of four, every row readable up to `m` rounded up to 4.
/// - the grid is (`⌈m / BM⌉ << parts_log2`, blocks of columns), for a tile of BM × BN.
/// - `weights`: (blocks, stages, `depth`, BN); columns from `n` on, and rows that are padding, are zero.
/// - `lists`, per block and stage: `slots` rows of `a`, or `u32::MAX`; then for each strip of the block `depth` picks, a
///   pick being `slot · BM · 4` of a slot with a row, or of slot `slots`, which holds zeros.
/// - `slots` is a multiple of 4 and `depth > 0` one of [`NmTile::depth_multiple`], and [`NmTile::shared_bytes`] of them is at most the
///   kernel's.
/// - part `i` of the `1 << parts_log2` takes stages `i · stages_per_part..`, up to as many; all parts together take all
///   stages. It writes the output `i · part_elements` elements further on; with more than one, that is an f32.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct NmCudaCoresParams {
    /// The result, or the partial sums of part 0.
    pub output: Output,
    /// Elements of the output from one part to the next.
    pub part_elements: u64,
    /// The activations.
    pub a: GlobalPtr<f32>,
    /// What is kept of the weights.
    pub weights: GlobalPtr<f32>,
    /// Rows and picks.
    pub lists: GlobalPtr<u32>,
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
    const VARIANT: Variant = Variant::NmCudaCores { tile: Self::TILE, buffers: B::STAGES };
    const BLOCK_THREADS: u32 = Self::THREADS;
    // An equal share for each of the blocks, of which each takes one KiB more than it asks for.
    const SHARED_BYTES: u32 = (SHARED_KIB / Self::SHARING - 1) * 1024;
    const MIN_BLOCKS: u32 = match (TM * TN, WARPS) {
        (128, _) => 2,
        (64, 4) => 3,
        (64, _) => 6,
        (32, _) => 8,
        _ if P::BY_COLUMN => 6,
        _ => 10,
    };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &NmCudaCoresParams) {
        const {
            assert!(Self::TILE.rows * Self::W_ROW <= Self::SHARED_BYTES, "the tile of C fits");
            assert!(
                TM.is_multiple_of(4) && TN.is_multiple_of(4) && Self::TILE.columns.is_multiple_of(32),
                "whole vectors"
            );
        }
        // 1. Locate.
        let part = s.block_idx() & ((1 << p.parts_log2) - 1);
        let begin = part * p.stages_per_part;
        let end = p.stages.min(begin + p.stages_per_part);
        let block = Block::<S, P, TM, TN, WARPS>::locate(s, p);
        let mut acc = [[0.0; TN]; TM]; // (BM, BN) per block
        // SAFETY: stages and blocks are those of the params; all threads of a block have the same.
        unsafe {
            if B::STAGES == 1 {
                block.multiply_one_by_one(begin, end, &mut acc);
            } else if begin < end {
                block.multiply_stages(begin, end, &mut acc);
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
    /// In a stage's lists: the lane's first list of picks.
    lane_list: u32,
    /// What this thread copies of `A`: 16 bytes of a row, if the result has such rows.
    from_a: GlobalPtr<[f32; 4]>,
    present: bool,
    /// The block's weights and lists.
    from_w: GlobalPtr<u32>,
    from_lists: GlobalPtr<u32>,
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
    fn locate(s: &'a S, p: &'a NmCudaCoresParams) -> Self {
        let (lane, warp) = (s.lane(), s.warp());
        let (lane_m, lane_n) = match P::BY_WARP {
            true => (lane >> 1 & 7, lane & 1 | lane >> 4 << 1),
            false => (lane % 8, lane / 8),
        };
        let row = (s.block_idx() >> p.parts_log2) * Self::TILE.rows;
        let group = 4 * warp + lane_n; // of TN columns
        let strip = if P::BY_WARP { warp } else { group * Self::LISTS as u32 };
        let copied = row + s.thread_idx() % Self::ROW_THREADS * 4;
        let words = Self::TILE.list_words(p.slots, p.depth);
        let first = u64::from(s.block_idx_y()) * u64::from(p.stages);
        Self {
            s,
            p,
            row,
            lane_a: lane_m * 16,
            lane_w: group * TN as u32 * 4,
            lane_m,
            lane_list: (p.slots + strip * p.depth) * 4,
            from_a: p.a.at(copied).cast(),
            present: copied < p.output.m,
            from_w: p.weights.at_wide(first * u64::from(p.depth * Self::TILE.columns)).cast(),
            from_lists: p.lists.at_wide(first * u64::from(words)),
            form: PhantomData,
        }
    }

    /// `acc += A·W` over stages `begin..end`, at least one.
    #[inline(always)]
    unsafe fn multiply_stages(&self, begin: u32, end: u32, acc: &mut [[f32; TN]; TM]) {
        let s = self.s;
        let stage_bytes = Self::TILE.stage_bytes(self.p.slots, self.p.depth);
        let list_bytes = 4 * Self::TILE.list_words(self.p.slots, self.p.depth);
        // In a stage: `W`, behind the slots and the zero slot.
        let slab_w = stage_bytes - self.p.depth * Self::W_ROW;
        let rounds = self.p.depth / Self::ROWS_AT_ONCE;
        // SAFETY: the obligations of the params; copies are waited for and made known by a barrier before they are read,
        // and what they overwrite has been read before a barrier.
        unsafe {
            // Two stages, three lists: `now` is multiplied, `next` brought, and so are the lists `later`.
            let (mut now, mut next) = (0, stage_bytes);
            let mut lists_now = 2 * stage_bytes;
            let (mut lists_next, mut lists_later) = (lists_now + list_bytes, lists_now + 2 * list_bytes);
            self.bring_lists(lists_now, begin, end);
            s.copy_async_commit();
            self.clear_zero_slots(stage_bytes);
            s.copy_async_wait::<0>();
            s.sync_block(); // RAW: lists of the first stage -> read
            self.bring_stage(now, lists_now, begin, slab_w);
            self.bring_lists(lists_next, begin + 1, end);
            s.copy_async_commit();
            s.copy_async_wait::<0>();
            s.sync_block(); // RAW: first stage, zero slots -> read
            if begin + 1 < end {
                self.bring_stage(next, lists_next, begin + 1, slab_w);
            }
            self.bring_lists(lists_later, begin + 2, end);
            s.copy_async_commit();

            let mut stage = begin;
            let mut left = rounds; // of this stage
            let mut a = now + self.lane_a;
            let mut w = now + slab_w + self.lane_w;
            let mut list = lists_now + self.lane_list;
            // Picks to read after the stage's last; after the last stage its last are read again, and not used.
            let again = list + (self.p.depth / PICKS_AT_ONCE - 1) * 16;
            let mut following = if begin + 1 < end { lists_next + self.lane_list } else { again };
            let mut picks = self.picks(list);
            let mut even = self.fragments(a, picks, 0, w);
            while left > 0 {
                // 3. and 4. Four kept rows, the fragments of each read while those of the one before are multiplied; and four
                // before them, where so many are multiplied from one branch to the next.
                if Self::ROWS_AT_ONCE > PICKS_AT_ONCE {
                    let odd = self.fragments(a, picks, 1, w);
                    self.multiply(&even, acc);
                    even = self.fragments(a, picks, 2, w);
                    self.multiply(&odd, acc);
                    let odd = self.fragments(a, picks, 3, w);
                    list += 16;
                    picks = self.picks(list);
                    self.multiply(&even, acc);
                    w += PICKS_AT_ONCE * Self::W_ROW;
                    even = self.fragments(a, picks, 0, w);
                    self.multiply(&odd, acc);
                }
                let odd = self.fragments(a, picks, 1, w);
                self.multiply(&even, acc);
                even = self.fragments(a, picks, 2, w);
                self.multiply(&odd, acc);
                let odd = self.fragments(a, picks, 3, w);
                left -= 1;
                list = if left == 0 { following } else { list + 16 };
                picks = self.picks(list);
                self.multiply(&even, acc);
                if left > 0 {
                    w += PICKS_AT_ONCE * Self::W_ROW;
                } else if stage + 1 < end {
                    stage += 1;
                    s.copy_async_wait::<0>();
                    s.sync_block(); // RAW: stage arrived -> read; WAR: stage before read -> next copies
                    (now, next) = (next, now);
                    (lists_now, lists_next, lists_later) = (lists_next, lists_later, lists_now);
                    // 2. Global -> shared.
                    following = list + (self.p.depth / PICKS_AT_ONCE - 1) * 16;
                    if stage + 1 < end {
                        self.bring_stage(next, lists_next, stage + 1, slab_w);
                        following = lists_next + self.lane_list;
                    }
                    self.bring_lists(lists_later, stage + 2, end);
                    s.copy_async_commit();
                    left = rounds;
                    a = now + self.lane_a;
                    w = now + slab_w + self.lane_w;
                }
                even = self.fragments(a, picks, 0, w);
                self.multiply(&odd, acc);
            }
        }
    }

    /// Starts bringing the lists of a stage to `to`, if it is below `end`.
    #[inline(always)]
    unsafe fn bring_lists(&self, to: u32, stage: u32, end: u32) {
        if stage < end {
            let words = Self::TILE.list_words(self.p.slots, self.p.depth);
            let from = self.from_lists.at_wide(u64::from(stage) * u64::from(words));
            // SAFETY: `words` words are there, a multiple of four; `to` has room for them.
            unsafe { self.bring_bytes(to, from, words * 4) };
        }
    }

    /// Starts bringing the slabs of a stage to `to`, whose lists are at `lists`.
    #[inline(always)]
    unsafe fn bring_stage(&self, to: u32, lists: u32, stage: u32, slab_w: u32) {
        let s = self.s;
        let groups = Self::THREADS / Self::ROW_THREADS; // of threads that copy a row together
        let (group, chunk) = (s.thread_idx() / Self::ROW_THREADS, s.thread_idx() % Self::ROW_THREADS);
        let to_a = to + chunk * 16;
        let mut slot = group * 4;
        // SAFETY: rows of the lists are rows of `A`, whose chunk is readable if it is present; slabs have room for all
        // slots and kept rows.
        unsafe {
            while slot < self.p.slots {
                let rows: [u32; 4] = s.load_shared(lists + slot * 4);
                each4(|i| {
                    if rows[i] != NO_ROW {
                        let from = self.from_a.at(rows[i].wrapping_mul(self.p.row_vectors));
                        s.copy_async_16(to_a + (slot + i as u32) * Self::A_ROW, from.cast(), self.present);
                    }
                });
                slot += groups * 4;
            }
            let bytes = self.p.depth * Self::W_ROW;
            let from = self.from_w.byte_add(u64::from(stage) * u64::from(bytes));
            self.bring_bytes(to + slab_w, from, bytes);
        }
    }

    /// Starts bringing successive bytes, a multiple of 16.
    #[inline(always)]
    unsafe fn bring_bytes(&self, to: u32, from: GlobalPtr<u32>, bytes: u32) {
        let step = Self::THREADS * 16;
        let mut at = self.s.thread_idx() * 16;
        while at < bytes {
            // Four at a time: one address, and offsets from it.
            let (to, from) = (to + at, from.byte_add(u64::from(at)));
            each4(|i| {
                let offset = i as u32 * step;
                if at + offset < bytes {
                    // SAFETY: the caller's promise.
                    unsafe { self.s.copy_async_16(to + offset, from.byte_add(u64::from(offset)), true) };
                }
            });
            at += 4 * step;
        }
    }

    /// Zeros in the zero slot of both stages.
    #[inline(always)]
    unsafe fn clear_zero_slots(&self, stage_bytes: u32) {
        let thread = self.s.thread_idx();
        // SAFETY: a thread's 16 bytes of the row behind the slots.
        unsafe {
            if thread < Self::ROW_THREADS {
                let at = self.p.slots * Self::A_ROW + thread * 16;
                self.s.store_shared(at, [0u32; 4]);
                self.s.store_shared(at + stage_bytes, [0u32; 4]);
            }
        }
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

    /// `acc[i][j] += a[i]·w[j]`.
    #[inline(always)]
    fn multiply(&self, (a, w): &Fragments<TM, TN>, acc: &mut [[f32; TN]; TM]) {
        // Columns outside: with rows outside, `ptxas` has the factor of `A` change more often, and three registers of one
        // bank meet in 8 % of the instructions instead of 3 %.
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

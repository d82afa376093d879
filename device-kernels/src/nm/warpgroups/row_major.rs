//! Rows of `A` as they lie, brought by the copy engine: who starts copies, who waits for them, and in which order.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{
    GlobalPtr, OperandLayout, SharedOperand, Simt, Swizzle, TensorMap, WARP, WARPGROUP, WarpgroupSums,
};

use super::feed::{Activations, Slot};
use super::{GROUPS, STAGE_SLOTS, StageWeights, WarpgroupWork, Warpgroups};

/// Warps of the third warpgroup that start copies and wait for them, a stage each by turns: starting those of one stage
/// and waiting for those of the next, one after the other, would take longer than multiplying.
const FEEDERS: u32 = 3;

/// Which of the feeders waits for a stage, and which brings the one that is then brought: stages are theirs by turns.
#[derive(Clone, Copy)]
struct Turn {
    awaits: u32,
}

impl Turn {
    const FIRST: Self = Self { awaits: 0 };

    #[inline(always)]
    const fn next(self) -> Self {
        Self { awaits: if self.awaits + 1 == FEEDERS { 0 } else { self.awaits + 1 } }
    }

    /// When the stage arrives before which one is read, that before may be replaced: by the one that is so many
    /// further.
    #[inline(always)]
    const fn brings<const STAGES: u32>(self) -> u32 {
        let ahead = self.awaits + (STAGES - 2) % FEEDERS;
        if ahead >= FEEDERS { ahead - FEEDERS } else { ahead }
    }
}

/// The kernel that this is a part of.
type Block<W, const BLOCKS: u32, const R: usize, const STAGES: u32> =
    Warpgroups<RowMajor, W, BLOCKS, R, STAGES>;

/// Arguments of [`NmSparse`](super::NmSparse).
///
/// # Obligations
/// `map` tells of `A`, `output.m` rows of 16-bit elements, with boxes of `BM` rows; and those of `work`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct NmSparseParams {
    /// Tells of the activations.
    pub map: TensorMap,
    /// What there is to do.
    pub work: WarpgroupWork,
}

/// Rows of `A` lie as the copy engine leaves them.
const ROWS: OperandLayout = OperandLayout { inner_bytes: 16, rows_bytes: 1024, swizzle: Swizzle::Bytes128 };

/// Row-major activations, which the copy engine brings.
pub struct RowMajor;

impl Activations for RowMajor {
    type Params = NmSparseParams;
    const PICKS: bool = false;
    const ORDER_BYTES: u32 = 0;

    #[inline(always)]
    fn work(params: &NmSparseParams) -> &WarpgroupWork {
        &params.work
    }

    #[inline(always)]
    fn operand(slab: u32, inner: u32, _: u32) -> SharedOperand {
        SharedOperand { at: slab + 2 * inner, layout: ROWS }
    }

    #[inline(always)]
    unsafe fn multiply<S: Simt, W: StageWeights, const PRODUCT: u32, const R: usize>(
        s: &S,
        sums: &mut WarpgroupSums<R>,
        operands: [SharedOperand; 2],
        metadata: u32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { W::multiply::<S, PRODUCT, 0, R>(s, sums, operands, metadata) }
    }

    #[inline(always)]
    unsafe fn before_products<S: Simt>(_: &S) {}

    #[inline(always)]
    unsafe fn feed<S: Simt, W: StageWeights, const BLOCKS: u32, const R: usize, const STAGES: u32>(
        s: &S,
        p: &NmSparseParams,
    ) {
        const {
            assert!(
                !STAGES.is_multiple_of(FEEDERS),
                "who has just brought a stage need not wait for the next"
            )
        }
        let meet_again = Block::<W, BLOCKS, R, STAGES>::meet_again::<S>;
        let mut item = s.block_idx();
        // SAFETY: the obligations of the params; as many barriers as `multiply_tiles` has.
        unsafe {
            s.warpgroup_give_registers::<40>();
            let mut feed = Feed::<W, BLOCKS, R, STAGES>::new(s, p, item);
            Block::<W, BLOCKS, R, STAGES>::make_counters(s, feed.brings && feed.number == 0);
            meet_again(s); // RAW: counters made -> used
            feed.begin(s);
            let (mut at, mut turn) = (Slot::FIRST, Turn::FIRST);
            feed.await_stage(s, at, turn.awaits);
            meet_again(s); // RAW: stage arrived -> read
            while item < p.work.items {
                let (mut stage, (_, stages)) = (0, p.work.stages_of(item));
                while stage < stages {
                    at = at.next::<STAGES>();
                    turn = turn.next();
                    stage += 1;
                    if stage < stages || item + s.grid_dim() < p.work.items {
                        feed.await_stage(s, at, turn.awaits);
                    }
                    meet_again(s); // RAW: next stage arrived -> read; WAR: stage before read -> copies
                    if feed.number == turn.brings::<STAGES>() {
                        feed.bring(s);
                    }
                }
                item += s.grid_dim();
            }
        }
    }
}

/// What one of the feeders brings: every stage but those of the others, item after item.
struct Feed<'a, W, const BLOCKS: u32, const R: usize, const STAGES: u32> {
    params: &'a NmSparseParams,
    /// Which feeder this is.
    number: u32,
    /// Whether this is the thread that brings; others do nothing.
    brings: bool,
    item: u32,
    /// The stage, counted from the first of the item, and how many the item has.
    stage: u32,
    stages: u32,
    slot: u32,
    /// First row of `A` that the item takes, and first element of its inner dimension.
    row: u32,
    inner: u32,
    /// The weights of the item.
    weights: GlobalPtr<u32>,
    form: PhantomData<W>,
}

impl<'a, W: StageWeights, const BLOCKS: u32, const R: usize, const STAGES: u32>
    Feed<'a, W, BLOCKS, R, STAGES>
{
    #[inline(always)]
    fn new<S: Simt>(s: &S, params: &'a NmSparseParams, item: u32) -> Self {
        let number = s.warp() - GROUPS * WARPGROUP / WARP;
        let mut feed = Self {
            params,
            number,
            brings: number < FEEDERS && s.lane() == 0,
            item,
            stage: number,
            stages: 0,
            slot: number,
            row: 0,
            inner: 0,
            weights: params.work.weights,
            form: PhantomData,
        };
        feed.locate();
        feed.next_item(s);
        feed
    }

    /// Finds what the item takes, if there is such an item: its divisions are not for every stage.
    #[inline(always)]
    fn locate(&mut self) {
        let p = self.params;
        let (begin, stages) = p.work.stages_of(self.item);
        self.stages = stages;
        if !self.brings || self.item >= p.work.items {
            return;
        }
        let (n_tile, m_tile) = p.work.place(self.item >> p.work.parts_log2);
        self.row = m_tile * Block::<W, BLOCKS, R, STAGES>::BM;
        self.inner = begin * STAGE_SLOTS;
        let before = u64::from(n_tile) * u64::from(p.work.stages) + u64::from(begin);
        let bytes = u64::from(Block::<W, BLOCKS, R, STAGES>::WEIGHT_BYTES);
        self.weights = p.work.weights.byte_add(before * bytes);
    }

    /// Goes on to the item that the stage is of, if it is beyond the last of this one.
    #[inline(always)]
    fn next_item<S: Simt>(&mut self, s: &S) {
        while self.stage >= self.stages {
            self.stage -= self.stages;
            self.item += s.grid_dim();
            self.locate();
        }
    }

    /// Brings its own of all stages but one.
    #[inline(always)]
    unsafe fn begin<S: Simt>(&mut self, s: &S) {
        let mut stage = self.number;
        while stage < STAGES - 1 {
            // SAFETY: the slot was not used before.
            unsafe { self.bring(s) };
            stage += FEEDERS;
        }
    }

    /// Starts the copies of its next stage, into the slot that has been free for longest.
    #[inline(always)]
    unsafe fn bring<S: Simt>(&mut self, s: &S) {
        let p = self.params;
        if !self.brings || self.item >= p.work.items {
            return;
        }
        let to = self.slot * Block::<W, BLOCKS, R, STAGES>::STAGE_BYTES;
        let bytes = Block::<W, BLOCKS, R, STAGES>::WEIGHT_BYTES;
        let values_at = Block::<W, BLOCKS, R, STAGES>::VALUES_AT;
        let counter = Block::<W, BLOCKS, R, STAGES>::counter(self.slot);
        let at = [self.inner + self.stage * STAGE_SLOTS, self.row];
        let weights = self.weights.byte_add(u64::from(self.stage) * u64::from(bytes));
        // SAFETY: the slot has room; nobody reads it any more, and nobody has stored to it.
        unsafe {
            s.copy_bulk_box(to, &p.map, at, counter);
            s.copy_bulk(to + values_at, weights, bytes, counter);
            s.copy_bulk_commit(counter, values_at + bytes);
        }
        self.slot += FEEDERS;
        self.slot -= if self.slot >= STAGES { STAGES } else { 0 };
        self.stage += FEEDERS;
        self.next_item(s);
    }

    /// Waits for the copies of a stage, if `feeder` brought them and is this; others know of it after a barrier.
    #[inline(always)]
    unsafe fn await_stage<S: Simt>(&self, s: &S, at: Slot, feeder: u32) {
        if self.brings && self.number == feeder {
            // SAFETY: the stage was brought, and is the last that was in this slot.
            unsafe { s.copy_bulk_wait(Block::<W, BLOCKS, R, STAGES>::counter(at.number), at.round) }
        }
    }
}

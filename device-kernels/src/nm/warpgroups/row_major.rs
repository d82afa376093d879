//! Rows of `A` as they lie, brought by the copy engine: who starts copies, who waits for them, and in which order.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{
    GlobalPtr, OperandLayout, SharedOperand, Simt, Swizzle, TensorMap, WARP, WARPGROUP, WarpgroupSums,
};

use super::feed::{Activations, Slot};
use super::{GROUPS, STAGE_SLOTS, StageWeights, WarpgroupWork, Warpgroups};

/// Warps of the third warpgroup that start copies and wait for them, a step each by turns: starting those of one step
/// and waiting for those of the next, one after the other, would take longer than multiplying.
const FEEDERS: u32 = 3;

/// Which of the feeders waits for a step, and which brings the one that is then brought: steps are theirs by turns.
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

    /// When the step arrives before which one is read, that before may be replaced: by the one that is so many
    /// further.
    #[inline(always)]
    const fn brings<const SLOTS: u32>(self) -> u32 {
        let ahead = self.awaits + (SLOTS - 2) % FEEDERS;
        if ahead >= FEEDERS { ahead - FEEDERS } else { ahead }
    }
}

/// The kernel that this is a part of.
type Block<W, const BLOCKS: u32, const R: usize, const SLOTS: u32> =
    Warpgroups<RowMajor, W, BLOCKS, R, SLOTS>;

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
    unsafe fn feed<S: Simt, W: StageWeights, const BLOCKS: u32, const R: usize, const SLOTS: u32>(
        s: &S,
        p: &NmSparseParams,
    ) {
        const { assert!(!SLOTS.is_multiple_of(FEEDERS), "who has just brought a step need not wait for the next") }
        let meet_again = Block::<W, BLOCKS, R, SLOTS>::meet_again::<S>;
        let mut item = s.block_idx();
        // SAFETY: the obligations of the params; as many barriers as `multiply_tiles` has.
        unsafe {
            s.warpgroup_give_registers::<40>();
            let mut feed = Feed::<W, BLOCKS, R, SLOTS>::new(s, p, item);
            Block::<W, BLOCKS, R, SLOTS>::make_counters(s, feed.brings && feed.number == 0);
            meet_again(s); // RAW: counters made -> used
            feed.begin(s);
            let (mut at, mut turn) = (Slot::FIRST, Turn::FIRST);
            feed.await_step(s, at, turn.awaits);
            meet_again(s); // RAW: step arrived -> read
            while item < p.work.items {
                let (_, stages) = p.work.stages_of(item);
                let (mut step, steps) = (0, Block::<W, BLOCKS, R, SLOTS>::steps(stages));
                while step < steps {
                    at = at.next::<SLOTS>();
                    turn = turn.next();
                    step += 1;
                    if step < steps || item + s.grid_dim() < p.work.items {
                        feed.await_step(s, at, turn.awaits);
                    }
                    meet_again(s); // RAW: next step arrived -> read; WAR: step before read -> copies
                    if feed.number == turn.brings::<SLOTS>() {
                        feed.bring(s);
                    }
                }
                item += s.grid_dim();
            }
        }
    }
}

/// What one of the feeders brings: every step but those of the others, item after item.
struct Feed<'a, W, const BLOCKS: u32, const R: usize, const SLOTS: u32> {
    params: &'a NmSparseParams,
    /// Which feeder this is.
    number: u32,
    /// Whether this is the thread that brings; others do nothing.
    brings: bool,
    item: u32,
    /// The step, counted from the first of the item, and how many stages the item has.
    step: u32,
    stages: u32,
    slot: u32,
    /// First row of `A` that the item takes, and first element of its inner dimension.
    row: u32,
    inner: u32,
    /// The weights of the item.
    weights: GlobalPtr<u32>,
    form: PhantomData<W>,
}

impl<'a, W: StageWeights, const BLOCKS: u32, const R: usize, const SLOTS: u32> Feed<'a, W, BLOCKS, R, SLOTS> {
    #[inline(always)]
    fn new<S: Simt>(s: &S, params: &'a NmSparseParams, item: u32) -> Self {
        let number = s.warp() - GROUPS * WARPGROUP / WARP;
        let mut feed = Self {
            params,
            number,
            brings: number < FEEDERS && s.lane() == 0,
            item,
            step: number,
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
        self.row = m_tile * Block::<W, BLOCKS, R, SLOTS>::BM;
        self.inner = begin * STAGE_SLOTS;
        let before = u64::from(n_tile) * u64::from(p.work.stages) + u64::from(begin);
        let bytes = u64::from(Block::<W, BLOCKS, R, SLOTS>::WEIGHT_BYTES);
        self.weights = p.work.weights.byte_add(before * bytes);
    }

    /// Goes on to the item that the step is of, if it is beyond the last of this one.
    #[inline(always)]
    fn next_item<S: Simt>(&mut self, s: &S) {
        while self.step >= Block::<W, BLOCKS, R, SLOTS>::steps(self.stages) {
            self.step -= Block::<W, BLOCKS, R, SLOTS>::steps(self.stages);
            self.item += s.grid_dim();
            self.locate();
        }
    }

    /// Brings its own of as many steps as there are slots but one.
    #[inline(always)]
    unsafe fn begin<S: Simt>(&mut self, s: &S) {
        let mut step = self.number;
        while step < SLOTS - 1 {
            // SAFETY: the slot was not used before.
            unsafe { self.bring(s) };
            step += FEEDERS;
        }
    }

    /// Starts the copies of its next step, into the slot that has been free for longest. The last of an item may have
    /// one stage.
    #[inline(always)]
    unsafe fn bring<S: Simt>(&mut self, s: &S) {
        let p = self.params;
        if !self.brings || self.item >= p.work.items {
            return;
        }
        let slab = self.slot * Block::<W, BLOCKS, R, SLOTS>::SLOT_BYTES;
        let bytes = Block::<W, BLOCKS, R, SLOTS>::WEIGHT_BYTES;
        let values_at = Block::<W, BLOCKS, R, SLOTS>::VALUES_AT;
        let counter = Block::<W, BLOCKS, R, SLOTS>::counter(self.slot);
        let at_once = Block::<W, BLOCKS, R, SLOTS>::AT_ONCE;
        let first = self.step * at_once;
        let count = if at_once == 1 || first + 1 == self.stages { 1 } else { at_once };
        // SAFETY: the slot has room; nobody reads it any more, and nobody has stored to it.
        unsafe {
            let mut i = 0;
            while i < count {
                let to = slab + i * Block::<W, BLOCKS, R, SLOTS>::STAGE_BYTES;
                let at = [self.inner + (first + i) * STAGE_SLOTS, self.row];
                let weights = self.weights.byte_add(u64::from(first + i) * u64::from(bytes));
                s.copy_bulk_box(to, &p.map, at, counter);
                s.copy_bulk(to + values_at, weights, bytes, counter);
                i += 1;
            }
            s.copy_bulk_commit(counter, count * (values_at + bytes));
        }
        self.slot += FEEDERS;
        self.slot -= if self.slot >= SLOTS { SLOTS } else { 0 };
        self.step += FEEDERS;
        self.next_item(s);
    }

    /// Waits for the copies of a step, if `feeder` brought them and is this; others know of it after a barrier.
    #[inline(always)]
    unsafe fn await_step<S: Simt>(&self, s: &S, at: Slot, feeder: u32) {
        if self.brings && self.number == feeder {
            // SAFETY: the step was brought, and is the last that was in this slot.
            unsafe { s.copy_bulk_wait(Block::<W, BLOCKS, R, SLOTS>::counter(at.number), at.round) }
        }
    }
}

//! Rows of a k-major `A` that are picked one by one, in an order of their own for each tile of columns of `C`.
//!
//! All threads of the warpgroup that brings copy 16 bytes at a time: eight threads 64 successive elements of a row, 128
//! bytes, and each thread such a piece of every sixteenth slot. Weights come by a bulk copy that one of them starts.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, OperandLayout, SharedOperand, Simt, Swizzle, WARPGROUP, WarpgroupSums};

use super::feed::{Activations, Slot};
use super::{GROUPS, STAGE_SLOTS, StageWeights, WarpgroupWork, Warpgroups};
use crate::NO_ROW;
use crate::unroll::each;

/// Elements of a row that eight threads copy, and bytes of them.
const RUN: u32 = 64;
const RUN_BYTES: u32 = 2 * RUN;
/// Bytes of eight slots of a run: a pattern of [`Swizzle::Bytes128`].
const EIGHT_BYTES: u32 = 8 * RUN_BYTES;
/// Threads that copy a run, and slots that the warpgroup copies at once.
const PIECES: u32 = 8;
const AT_ONCE: u32 = WARPGROUP / PIECES;
/// Slots of a stage that a thread copies pieces of.
const TURNS: usize = (STAGE_SLOTS / AT_ONCE) as usize;
/// Bytes of the rows of a stage in an order.
const ORDER_BYTES: u32 = 4 * STAGE_SLOTS;
/// Bytes of a thread's.
const THREAD_ORDER_BYTES: u32 = 4 * TURNS as u32;
/// Runs of a tile, at most.
const MOST_RUNS: usize = 4;

/// Where in the order of a stage the row of slot `slot < 64` is.
#[must_use]
pub const fn picked_order_index(slot: u32) -> u32 {
    slot % AT_ONCE * TURNS as u32 + slot / AT_ONCE
}

/// The kernel that this is a part of.
type Block<W, const BLOCKS: u32, const R: usize, const SLOTS: u32> = Warpgroups<Picked, W, BLOCKS, R, SLOTS>;

/// Arguments of [`NmPacked`](super::NmPacked) and of [`NmKept`](super::NmKept).
///
/// # Obligations
/// - `a` is the k-major `A`: rows of 16-bit elements, `lda ≥ output.m` of them, a multiple of 8, 16-byte aligned, and
///   readable to the end of the 16 bytes that element `output.m - 1` is in; less than 2³² times 16 bytes in all;
/// - `order` has for each tile of columns 64 rows of `A` a stage, for the slots that the weights are for, in the places
///   that [`picked_order_index`] tells; in place of a row [`NO_ROW`] for zeros. 16-byte aligned;
/// - and those of `work`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct NmPickedParams {
    /// The activations, k-major, 16-bit.
    pub a: GlobalPtr<u32>,
    /// (tiles of columns, stages, 64): which row is in a slot, those of one thread after each other.
    pub order: GlobalPtr<u32>,
    /// Leading dimension of the activations, in elements.
    pub lda: u32,
    /// Not read, and zero.
    pub padding: u32,
    /// What there is to do.
    pub work: WarpgroupWork,
}

/// K-major activations, whose rows are picked.
pub struct Picked;

impl Activations for Picked {
    type Params = NmPickedParams;
    const PICKS: bool = true;
    const ORDER_BYTES: u32 = ORDER_BYTES;

    #[inline(always)]
    fn work(params: &NmPickedParams) -> &WarpgroupWork {
        &params.work
    }

    /// Patterns of eight slots and 64 rows of `C` follow one another, those of the same slots first.
    #[inline(always)]
    fn operand(slab: u32, inner: u32, rows: u32) -> SharedOperand {
        let rows_bytes = rows / RUN * EIGHT_BYTES;
        let layout = OperandLayout { inner_bytes: EIGHT_BYTES, rows_bytes, swizzle: Swizzle::Bytes128 };
        SharedOperand { at: slab + inner / 8 * rows_bytes, layout }
    }

    #[inline(always)]
    unsafe fn multiply<S: Simt, W: StageWeights, const PRODUCT: u32, const R: usize>(
        s: &S,
        sums: &mut WarpgroupSums<R>,
        operands: [SharedOperand; 2],
        metadata: u32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { W::multiply::<S, PRODUCT, 1, R>(s, sums, operands, metadata) }
    }

    #[inline(always)]
    unsafe fn before_products<S: Simt>(s: &S) {
        // SAFETY: part of the protocol.
        unsafe { s.copy_bulk_fence() }
    }

    #[inline(always)]
    unsafe fn feed<S: Simt, W: StageWeights, const BLOCKS: u32, const R: usize, const SLOTS: u32>(
        s: &S,
        p: &NmPickedParams,
    ) {
        let meet_again = Block::<W, BLOCKS, R, SLOTS>::meet_again::<S>;
        let mut item = s.block_idx();
        // SAFETY: the obligations of the params; as many barriers as `multiply_tiles` has. Each bringing closes a group
        // of this thread's copies, even if nothing is left to bring, so that groups can be counted: when stage `t + 1`
        // is waited for, `t + SLOTS - 1` were closed, of which the first `t + 2` must have come.
        unsafe {
            s.warpgroup_give_registers::<40>();
            let mut feed = Feed::<W, BLOCKS, R, SLOTS>::new(s, p, item);
            Block::<W, BLOCKS, R, SLOTS>::make_counters(s, feed.leads);
            meet_again(s); // RAW: counters made -> used
            let mut stage = 0;
            while stage < SLOTS - 1 {
                feed.bring(s);
                stage += 1;
            }
            let mut at = Slot::FIRST;
            feed.await_stage(s, at);
            meet_again(s); // RAW: stage arrived -> read
            while item < p.work.items {
                let (mut stage, (_, stages)) = (0, p.work.stages_of(item));
                while stage < stages {
                    at = at.next::<SLOTS>();
                    stage += 1;
                    if stage < stages || item + s.grid_dim() < p.work.items {
                        feed.await_stage(s, at);
                    }
                    meet_again(s); // RAW: next stage arrived -> read; WAR: stage before read -> copies
                    feed.bring(s);
                }
                item += s.grid_dim();
            }
        }
    }
}

/// What a thread of the warpgroup brings: its pieces of every stage, item after item.
struct Feed<'a, W, const BLOCKS: u32, const R: usize, const SLOTS: u32> {
    params: &'a NmPickedParams,
    /// Whether this is the thread that brings weights.
    leads: bool,
    item: u32,
    /// The stage, counted from the first of the item, and how many the item has.
    stage: u32,
    stages: u32,
    slot: u32,
    /// Where in a stage the first of the thread's pieces goes.
    place: u32,
    /// The first of its elements in row 0 of `A` that the item takes, and how many of the row follow up to the last.
    a: GlobalPtr<u32>,
    left: u32,
    /// The order of the item, from the thread's first place on, and where that is in shared memory.
    order: GlobalPtr<u32>,
    rows_at: u32,
    /// The weights of the item.
    weights: GlobalPtr<u32>,
    form: PhantomData<W>,
}

impl<'a, W: StageWeights, const BLOCKS: u32, const R: usize, const SLOTS: u32> Feed<'a, W, BLOCKS, R, SLOTS> {
    const RUNS: u32 = Block::<W, BLOCKS, R, SLOTS>::BM / RUN;
    const VALID: () = {
        assert!(Block::<W, BLOCKS, R, SLOTS>::BM.is_multiple_of(RUN), "whole runs");
        assert!(Self::RUNS as usize <= MOST_RUNS, "loops are unrolled so far");
    };

    /// The thread's number in the warpgroup.
    #[inline(always)]
    fn thread<S: Simt>(s: &S) -> u32 {
        s.thread_idx() - GROUPS * WARPGROUP
    }

    #[inline(always)]
    fn new<S: Simt>(s: &S, params: &'a NmPickedParams, item: u32) -> Self {
        const { Self::VALID }
        let (slot, piece) = (Self::thread(s) / PIECES, Self::thread(s) % PIECES);
        let eight = slot / 8 * Self::RUNS * EIGHT_BYTES;
        let mut feed = Self {
            params,
            leads: Self::thread(s) == 0,
            item,
            stage: 0,
            stages: 0,
            slot: 0,
            place: Swizzle::Bytes128.apply(eight + slot % 8 * RUN_BYTES + piece * 16),
            a: params.a,
            left: 0,
            order: params.order,
            rows_at: Block::<W, BLOCKS, R, SLOTS>::ROWS_AT + slot * THREAD_ORDER_BYTES,
            weights: params.work.weights,
            form: PhantomData,
        };
        feed.locate(s);
        feed
    }

    /// Finds what the item takes, if there is such an item.
    #[inline(always)]
    fn locate<S: Simt>(&mut self, s: &S) {
        let (p, work) = (self.params, &self.params.work);
        let (begin, stages) = work.stages_of(self.item);
        self.stages = stages;
        if self.item >= work.items {
            return;
        }
        let (n_tile, m_tile) = work.place(self.item >> work.parts_log2);
        let (slot, piece) = (Self::thread(s) / PIECES, Self::thread(s) % PIECES);
        let first = m_tile * Block::<W, BLOCKS, R, SLOTS>::BM + piece * 8;
        self.a = p.a.byte_add(2 * u64::from(first));
        self.left = work.output.m.saturating_sub(first);
        let before = u64::from(n_tile) * u64::from(work.stages) + u64::from(begin);
        let order = before * u64::from(ORDER_BYTES) + u64::from(slot * THREAD_ORDER_BYTES);
        self.order = p.order.byte_add(order);
        let bytes = u64::from(Block::<W, BLOCKS, R, SLOTS>::WEIGHT_BYTES);
        self.weights = work.weights.byte_add(before * bytes);
    }

    /// The thread's rows of the next stage. Those of an item's first stages are read from memory, where they come from
    /// slowly; the others came with a stage that is there.
    ///
    /// # Safety
    /// The obligations of the params; the item has the stage.
    #[inline(always)]
    unsafe fn rows<S: Simt>(&self, s: &S) -> [u32; TURNS] {
        // SAFETY: the order has 64 rows a stage, those of a thread next to each other; what came with a stage stays
        // as long as that.
        unsafe {
            match self.stage.checked_sub(SLOTS - 1) {
                None => s.load_readonly(
                    self.order.byte_add(u64::from(self.stage) * u64::from(ORDER_BYTES)).cast(),
                ),
                Some(_) => {
                    let slot = if self.slot + 1 == SLOTS { 0 } else { self.slot + 1 };
                    s.load_shared(self.rows_at + slot * ORDER_BYTES)
                }
            }
        }
    }

    /// Copies the thread's pieces of the next stage, of runs that are there.
    #[inline(always)]
    unsafe fn gather<S: Simt>(&self, s: &S, slab: u32, rows: [u32; TURNS], is_there: impl Fn(u32) -> bool) {
        let row_vectors = self.params.lda / 8;
        each::<TURNS>(|turn| {
            let row = rows[turn];
            let from = self.a.byte_add(u64::from(row.wrapping_mul(row_vectors)) * 16);
            let to = slab + self.place + turn as u32 * (AT_ONCE / 8) * Self::RUNS * EIGHT_BYTES;
            each::<MOST_RUNS>(|run| {
                if run < Self::RUNS as usize {
                    let run = run as u32;
                    let present = row != NO_ROW && is_there(run);
                    // SAFETY: the caller's promise.
                    unsafe {
                        let from = from.byte_add(u64::from(run * RUN_BYTES));
                        s.copy_async_16(to + run * EIGHT_BYTES, from, present);
                    }
                }
            });
        });
    }

    /// Starts the copies of the next stage, if there is one, into the slot that has been free for longest.
    #[inline(always)]
    unsafe fn bring<S: Simt>(&mut self, s: &S) {
        if self.item >= self.params.work.items {
            // SAFETY: as the protocol wants it.
            unsafe { s.copy_async_commit() };
            return;
        }
        let slab = self.slot * Block::<W, BLOCKS, R, SLOTS>::STAGE_BYTES;
        // SAFETY: the slot has room; nobody reads it any more. Rows are of `A`, and read up to the 16 bytes that the
        // last element of the tile is in.
        unsafe {
            if self.leads {
                let bytes = Block::<W, BLOCKS, R, SLOTS>::WEIGHT_BYTES;
                let to = slab + Block::<W, BLOCKS, R, SLOTS>::VALUES_AT;
                let from = self.weights.byte_add(u64::from(self.stage) * u64::from(bytes));
                s.copy_bulk(to, from, bytes, Block::<W, BLOCKS, R, SLOTS>::counter(self.slot));
                // The leader's first place is the order's. The rows of the stage that is brought when this one is
                // multiplied:
                let later = self.stage + SLOTS - 1;
                let of_order = if later < self.stages { ORDER_BYTES } else { 0 };
                if of_order > 0 {
                    let from = self.order.byte_add(u64::from(later) * u64::from(ORDER_BYTES));
                    let to = self.rows_at + self.slot * ORDER_BYTES;
                    s.copy_bulk(to, from, of_order, Block::<W, BLOCKS, R, SLOTS>::counter(self.slot));
                }
                s.copy_bulk_commit(Block::<W, BLOCKS, R, SLOTS>::counter(self.slot), bytes + of_order);
            }
            let rows = self.rows(s);
            // Two times the same, so that nothing is compared for the many tiles that are whole.
            if self.left > (Self::RUNS - 1) * RUN {
                self.gather(s, slab, rows, |_| true);
            } else {
                self.gather(s, slab, rows, |run| run * RUN < self.left);
            }
            s.copy_async_commit();
            self.slot = if self.slot + 1 == SLOTS { 0 } else { self.slot + 1 };
            self.stage += 1;
            if self.stage == self.stages {
                self.stage = 0;
                self.item += s.grid_dim();
                self.locate(s);
            }
        }
    }

    /// Waits for this thread's copies of a stage, behind which those of three fewer than there are in shared memory may
    /// still come; others know of them after a barrier.
    #[inline(always)]
    unsafe fn await_stage<S: Simt>(&self, s: &S, at: Slot) {
        // SAFETY: the stage was brought, and is the last that was in this slot. Who multiplies fences copies off.
        unsafe {
            match SLOTS {
                4 => s.copy_async_wait::<1>(),
                5 => s.copy_async_wait::<2>(),
                6 => s.copy_async_wait::<3>(),
                7 => s.copy_async_wait::<4>(),
                8 => s.copy_async_wait::<5>(),
                _ => const { assert!(4 <= SLOTS && SLOTS <= 8, "waits are written out so far") },
            }
            if self.leads {
                s.copy_bulk_wait(Block::<W, BLOCKS, R, SLOTS>::counter(at.number), at.round);
            }
        }
    }
}

//! How stages come to shared memory: who starts their copies, who waits for them, and in which order.

use core::marker::PhantomData;

use windrow_simt::{GlobalPtr, Simt, WARP, WARPGROUP};

use super::{GROUPS, NmSparse, NmSparseParams, SPARSE_STAGE, SparseElement, place};

/// Warps of the third warpgroup that start copies and wait for them, a stage each by turns: starting those of one stage
/// and waiting for those of the next, one after the other, would take longer than multiplying.
pub(super) const FEEDERS: u32 = 3;

/// A stage's place in shared memory, and how often that was used before.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) number: u32,
    round: u32,
}

impl Slot {
    pub(super) const FIRST: Self = Self { number: 0, round: 0 };

    #[inline(always)]
    pub(super) const fn next<const STAGES: u32>(self) -> Self {
        if self.number + 1 == STAGES {
            Self { number: 0, round: self.round + 1 }
        } else {
            Self { number: self.number + 1, ..self }
        }
    }
}

/// Which of the feeders waits for a stage, and which brings the one that is then brought: stages are theirs by turns.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) awaits: u32,
}

impl Turn {
    pub(super) const FIRST: Self = Self { awaits: 0 };

    #[inline(always)]
    pub(super) const fn next(self) -> Self {
        Self { awaits: if self.awaits + 1 == FEEDERS { 0 } else { self.awaits + 1 } }
    }

    /// When the stage arrives before which one is read, that before may be replaced: by the one that is so many
    /// further.
    #[inline(always)]
    pub(super) const fn brings<const STAGES: u32>(self) -> u32 {
        let ahead = self.awaits + (STAGES - 2) % FEEDERS;
        if ahead >= FEEDERS { ahead - FEEDERS } else { ahead }
    }
}

/// What one of the feeders brings: every stage but those of the others, item after item.
pub(super) struct Feed<'a, E, const BLOCKS: u32, const R: usize, const STAGES: u32> {
    params: &'a NmSparseParams,
    /// Which feeder this is.
    pub(super) number: u32,
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
    element: PhantomData<E>,
}

impl<'a, E: SparseElement, const BLOCKS: u32, const R: usize, const STAGES: u32>
    Feed<'a, E, BLOCKS, R, STAGES>
{
    #[inline(always)]
    pub(super) fn new<S: Simt>(s: &S, params: &'a NmSparseParams, item: u32) -> Self {
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
            weights: params.weights,
            element: PhantomData,
        };
        feed.locate();
        feed.next_item(s);
        feed
    }

    /// Finds what the item takes, if there is such an item: its divisions are not for every stage.
    #[inline(always)]
    fn locate(&mut self) {
        let p = self.params;
        let (begin, stages) = p.stages_of(self.item);
        self.stages = stages;
        if !self.brings || self.item >= p.items {
            return;
        }
        let (n_tile, m_tile) = place(p, self.item >> p.parts_log2);
        self.row = m_tile * NmSparse::<E, BLOCKS, R, STAGES>::BM;
        self.inner = begin * SPARSE_STAGE;
        let before = u64::from(n_tile) * u64::from(p.stages) + u64::from(begin);
        let bytes = u64::from(NmSparse::<E, BLOCKS, R, STAGES>::WEIGHT_BYTES);
        self.weights = p.weights.byte_add(before * bytes);
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

    #[inline(always)]
    fn counter(slot: u32) -> u32 {
        NmSparse::<E, BLOCKS, R, STAGES>::COUNTERS + 8 * slot
    }

    /// Makes the counters of all stages.
    #[inline(always)]
    pub(super) unsafe fn make_counters<S: Simt>(&self, s: &S) {
        if self.brings && self.number == 0 {
            let mut slot = 0;
            while slot < STAGES {
                // SAFETY: counters have 8 bytes each behind all else.
                unsafe { s.copy_bulk_begin(Self::counter(slot), 1) };
                slot += 1;
            }
        }
    }

    /// Brings its own of all stages but one.
    #[inline(always)]
    pub(super) unsafe fn begin<S: Simt>(&mut self, s: &S) {
        let mut stage = self.number;
        while stage < STAGES - 1 {
            // SAFETY: the slot was not used before.
            unsafe { self.bring(s) };
            stage += FEEDERS;
        }
    }

    /// Starts the copies of its next stage, into the slot that has been free for longest.
    #[inline(always)]
    pub(super) unsafe fn bring<S: Simt>(&mut self, s: &S) {
        let p = self.params;
        if !self.brings || self.item >= p.items {
            return;
        }
        let to = self.slot * NmSparse::<E, BLOCKS, R, STAGES>::STAGE_BYTES;
        let bytes = NmSparse::<E, BLOCKS, R, STAGES>::WEIGHT_BYTES;
        let values_at = NmSparse::<E, BLOCKS, R, STAGES>::VALUES_AT;
        let counter = Self::counter(self.slot);
        let at = [self.inner + self.stage * SPARSE_STAGE, self.row];
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
    pub(super) unsafe fn await_stage<S: Simt>(&self, s: &S, at: Slot, feeder: u32) {
        if self.brings && self.number == feeder {
            // SAFETY: the stage was brought, and is the last that was in this slot.
            unsafe { s.copy_bulk_wait(Self::counter(at.number), at.round) }
        }
    }
}

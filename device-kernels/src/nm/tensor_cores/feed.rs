//! What a block works on, one item after the other, and what brings it to shared memory.

use core::marker::PhantomData;
use core::num::NonZeroU32;

use windrow_simt::Simt;

use super::{BlockShape, NmTensorCores, NmTensorCoresParams};
use crate::NO_ROW;
use crate::nm::NmOperand;

/// A tile of rows, a block of columns and a part of the stages. What follows from these is not kept: registers are
/// rare.
#[derive(Clone, Copy)]
pub(super) struct Item {
    number: u32,
    pub(super) tile: u32,
    /// Block of columns and part.
    rest: u32,
}

impl Item {
    #[inline(always)]
    pub(super) fn first<S: Simt>(s: &S, p: &NmTensorCoresParams) -> Self {
        let tiles = NonZeroU32::new(p.m_tiles).unwrap_or(NonZeroU32::MIN); // one at least, by the params
        let number = s.block_idx();
        Self { number, tile: number % tiles, rest: number / tiles }
    }

    /// The block's next item, as many items on as the grid has blocks; it may not exist.
    #[inline(always)]
    pub(super) fn next<S: Simt>(self, s: &S, p: &NmTensorCoresParams) -> Self {
        let (tile, rest) = (self.tile + p.step[0], self.rest + p.step[1]);
        let carry = tile >= p.m_tiles;
        let tile = if carry { tile - p.m_tiles } else { tile };
        Self { number: self.number + s.grid_dim(), tile, rest: rest + u32::from(carry) }
    }

    #[inline(always)]
    pub(super) fn exists(self, p: &NmTensorCoresParams) -> bool {
        self.number < p.items
    }

    #[inline(always)]
    pub(super) fn block(self, p: &NmTensorCoresParams) -> u32 {
        self.rest >> p.parts_log2
    }

    #[inline(always)]
    pub(super) fn part(self, p: &NmTensorCoresParams) -> u32 {
        self.rest & ((1 << p.parts_log2) - 1)
    }

    #[inline(always)]
    pub(super) fn first_stage(self, p: &NmTensorCoresParams) -> u32 {
        self.part(p) * p.stages_per_part
    }

    #[inline(always)]
    pub(super) fn stages(self, p: &NmTensorCoresParams) -> u32 {
        p.stages_per_part.min(p.stages - self.first_stage(p))
    }
}

/// What brings one stage after the other, of one item after the other: first its list, by name `announced`, then, when
/// that has come, the rows that the list names, and the picks.
///
/// No thread holds what it has read of a list from one stage to the next: loads into registers that wait for each
/// other's scoreboard would hold up the weights.
pub(super) struct Feed<'a, S, E, B, const TILES: usize> {
    s: &'a S,
    p: &'a NmTensorCoresParams,
    /// The item of the stage to be announced next, how many stages of it are left, and the stage's number of all
    /// blocks.
    item: Item,
    left: u32,
    stage: u32,
    /// In shared memory: the list announced next, and the stage brought next.
    list: u32,
    at: u32,
    form: PhantomData<(E, B)>,
}

impl<'a, S: Simt, E: NmOperand, B: BlockShape, const TILES: usize> Feed<'a, S, E, B, TILES> {
    const ROW_THREADS: u32 = NmTensorCores::<E, B, TILES>::ROW_THREADS;
    const COPIES: usize = NmTensorCores::<E, B, TILES>::COPIES;
    const PITCH: u32 = NmTensorCores::<E, B, TILES>::PITCH;
    const PICKS_AT: u32 = NmTensorCores::<E, B, TILES>::PICKS_AT;
    const PICK_VECTORS: u32 = NmTensorCores::<E, B, TILES>::PICK_VECTORS;
    const STAGE_BYTES: u32 = NmTensorCores::<E, B, TILES>::STAGE_BYTES;
    const STAGES_END: u32 = B::STAGES * Self::STAGE_BYTES;
    const LIST_BYTES: u32 = NmTensorCores::<E, B, TILES>::LIST_BYTES;
    const LISTS_END: u32 = NmTensorCores::<E, B, TILES>::SHARED;

    #[inline(always)]
    pub(super) fn new(s: &'a S, p: &'a NmTensorCoresParams, item: Item) -> Self {
        let mut feed =
            Self { s, p, item, left: 0, stage: 0, list: Self::STAGES_END, at: 0, form: PhantomData };
        feed.begin();
        feed
    }

    /// Turns to an item that exists.
    #[inline(always)]
    fn begin(&mut self) {
        self.left = self.item.stages(self.p);
        self.stage = self.item.block(self.p) * self.p.stages + self.item.first_stage(self.p);
    }

    /// Starts bringing the next list, and notes whose it is: which vectors of a row of `a`, and which stage; none, if
    /// there is no stage left.
    ///
    /// # Safety
    /// As for copies: the list that was in its place has been read.
    #[inline(always)]
    pub(super) unsafe fn announce(&mut self) {
        let (s, thread) = (self.s, self.s.thread_idx());
        // SAFETY: the list is that of a stage; the caller's promise.
        unsafe {
            let exists = self.left > 0;
            if thread < B::SLOTS / 4 && exists {
                let from = self.p.rows.at(self.stage * B::SLOTS + thread * 4);
                s.copy_async_16(self.list + thread * 16, from, true);
            }
            if thread == 0 {
                let head = [self.item.tile * Self::ROW_THREADS, self.stage, u32::from(exists), 0];
                s.store_shared(self.list + B::SLOTS * 4, head);
            }
        }
        self.list += Self::LIST_BYTES;
        if self.list == Self::LISTS_END {
            self.list = Self::STAGES_END;
        }
        if self.left > 0 {
            self.left -= 1;
            self.stage += 1;
            if self.left == 0 {
                self.item = self.item.next(self.s, self.p);
                if self.item.exists(self.p) {
                    self.begin();
                }
            }
        }
    }

    /// Starts bringing the rows and picks of the stage whose list is the oldest, announces another, and closes the
    /// group of these copies.
    ///
    /// # Safety
    /// As for copies: nobody reads the oldest stage any more. The list has come.
    #[inline(always)]
    pub(super) unsafe fn bring_stage(&mut self) {
        let (s, thread) = (self.s, self.s.thread_idx());
        // As many lists as stages: the one in the place of the stage.
        let list = Self::STAGES_END + self.at / Self::STAGE_BYTES * Self::LIST_BYTES;
        let (row, chunk) = (thread / Self::ROW_THREADS, thread % Self::ROW_THREADS);
        // SAFETY: rows of a list are rows of `a`, readable where `C` has rows; the caller's promise.
        unsafe {
            let [first, stage, exists, _]: [u32; 4] = s.load_shared(list + B::SLOTS * 4);
            if exists != 0 {
                let chunk_of_row = first + chunk;
                let present = chunk_of_row * (16 / E::BYTES) < self.p.output.m;
                let first_slot = row * Self::COPIES as u32;
                let to = self.at + first_slot * Self::PITCH + chunk * 16;
                let mut i = 0;
                while i < Self::COPIES {
                    let row: u32 = s.load_shared(list + (first_slot + i as u32) * 4);
                    let vector = row.wrapping_mul(self.p.row_vectors).wrapping_add(chunk_of_row);
                    let from = self.p.a.at(vector).cast();
                    s.copy_async_16(to + i as u32 * Self::PITCH, from, present && row != NO_ROW);
                    i += 1;
                }
                let of_warp = Self::PICK_VECTORS / B::WARPS;
                if s.lane() < of_warp {
                    let vector = s.warp() * of_warp + s.lane();
                    let from = self.p.picks.at(stage * Self::PICK_VECTORS + vector);
                    s.copy_async_16(self.at + Self::PICKS_AT + vector * 16, from.cast(), true);
                }
            }
            self.at += Self::STAGE_BYTES;
            if self.at == Self::STAGES_END {
                self.at = 0;
            }
            self.announce();
            s.copy_async_commit();
        }
    }
}

//! Records brought by bulk copies: one lane starts each, of warps that take turns.

use windrow_simt::Simt;

use super::{Block, Buffers, NmCudaCores, Picks};
use crate::kernel::Kernel;
use crate::nm::NmTile;

impl<S: Simt, P: Picks, const TM: usize, const TN: usize, const WARPS: u32> Block<'_, S, P, TM, TN, WARPS> {
    /// Makes the counter of rounds, which are stages.
    #[inline(always)]
    pub(super) unsafe fn begin_rounds<B: Buffers>(&self) {
        if self.s.thread_idx() == 0 {
            // SAFETY: it lies behind both stages.
            unsafe { self.s.copy_bulk_begin(Self::counter::<B>(), 1) };
        }
    }

    /// Whether this thread brings the record of a stage.
    #[inline(always)]
    fn brings(&self, stage: u32) -> bool {
        self.s.thread_idx() == stage % WARPS * 32
    }

    /// Starts what [`bring_record`](Self::bring_record) starts.
    #[inline(always)]
    pub(super) unsafe fn bring_record_in_bulk<B: Buffers>(&self, stage: u32, to: u32) {
        if self.brings(stage) {
            let (counter, bytes) = (Self::counter::<B>(), self.record_bytes());
            // SAFETY: the stage exists and its record fits at `to`, as for `bring_record`; one thread brings it.
            unsafe {
                self.s.copy_bulk(to, self.weights_of(stage), bytes, counter);
                self.s.copy_bulk_commit(counter, bytes);
            }
        }
    }

    /// Waits until the record of a stage has arrived: the lane that started it does.
    #[inline(always)]
    pub(super) unsafe fn await_record_in_bulk<B: Buffers>(&self, stage: u32) {
        if self.brings(stage) {
            // SAFETY: this thread committed it.
            unsafe { self.s.copy_bulk_wait(Self::counter::<B>(), stage) };
        }
    }

    /// Where the counter is.
    const fn counter<B: Buffers>() -> u32 {
        NmCudaCores::<P, TM, TN, WARPS, B>::SHARED_BYTES - NmTile::COUNTER_BYTES
    }
}

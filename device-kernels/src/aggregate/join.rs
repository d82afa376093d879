//! Joins the pieces of rows that were cut, in their order.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::pass::{AggregatePass, Extremes, Gradients, Picked, Sums};
use super::{AggregateParams, NO_WINNER};
use crate::kernel::Kernel;
use crate::variant::Variant;

const THREADS: u32 = 128;

/// Arguments of [`AggregateJoin`].
///
/// # Obligations
/// Those of [`AggregateParams`], whose launch comes before this one; `cut[i] = [row, first slot, slots, _]`, each row
/// once; `picks` and `backward` are 1 or 0 as the pass before has them.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct AggregateJoinParams {
    /// What was launched before.
    pub aggregate: AggregateParams,
    /// The rows that were cut.
    pub cut: GlobalPtr<[u32; 4]>,
    /// [`AggregatePass::PICKS`] of the pass before.
    pub picks: u32,
    /// [`AggregatePass::BACKWARD`] of the pass before.
    pub backward: u32,
}

/// The kernel: a block for each row, a thread for each of its elements.
pub struct AggregateJoin;

impl Kernel for AggregateJoin {
    type Params = AggregateJoinParams;
    const FILE: &'static str = "aggregate/join";
    const VARIANT: Variant = Variant::AggregateJoin;
    const BLOCK_THREADS: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AggregateJoinParams) {
        // SAFETY: the obligations of the params.
        unsafe {
            if p.picks != 0 {
                join::<S, Extremes>(s, p);
            } else if p.backward != 0 {
                join::<S, Gradients>(s, p);
            } else {
                join::<S, Sums>(s, p);
            }
        }
    }
}

/// Joins the slots of a block's row.
///
/// # Safety
/// The obligations of the params: slots hold what the launch before wrote; every element is one thread's.
#[inline(always)]
unsafe fn join<S: Simt, P: AggregatePass>(s: &S, p: &AggregateJoinParams) {
    // SAFETY: the caller's promise.
    unsafe {
        let [row, first, count, _] = s.load_readonly(p.cut.at(s.block_idx()));
        let mut column = s.thread_idx();
        while column < p.aggregate.columns {
            let mut found = P::NOTHING;
            let mut slot = first;
            while slot < first + count {
                let number = s.load(p.aggregate.slot_number(slot, column));
                let winner = if P::PICKS { s.load(p.aggregate.slot_winner(slot, column)) } else { NO_WINNER };
                P::take(&mut found, Picked { number, winner });
                slot += 1;
            }
            p.aggregate.finish::<S, P>(s, row, column, found);
            column += THREADS;
        }
    }
}

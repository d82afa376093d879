//! Products of a warpgroup that one of its threads has started: which it has waited for, and what it may not do before.

use std::collections::VecDeque;
use std::panic::Location;

use super::Thread;
use crate::emulator::access::Access;
use crate::emulator::collectives::Request;
use crate::emulator::spot::Operation;
use crate::emulator::warpgroup::{Call, Kept};
use crate::warpgroup::{SharedOperand, WarpgroupSums};

/// The products of its warpgroup that a thread has not waited for.
#[derive(Default)]
pub(super) struct Started {
    /// Number of the group that the next product joins.
    group: u64,
    /// Group and number of each, the oldest first.
    pub(super) under_way: VecDeque<(u64, usize)>,
    /// Whether registers were fenced since sums were last given out.
    fenced: bool,
}

impl Thread<'_> {
    /// Does what `Simt::warpgroup_fence` promises.
    #[track_caller]
    pub(super) fn fence_products(&self) {
        self.step(Operation::WarpgroupFence);
        self.products.borrow_mut().fenced = true;
    }

    /// A product of the thread's warpgroup.
    #[track_caller]
    pub(super) fn product<const R: usize>(
        &self,
        operation: Operation,
        sums: &mut WarpgroupSums<R>,
        ([a, b], transposed): ([SharedOperand; 2], u32),
        kept: Option<Kept>,
    ) {
        assert!(transposed < 2, "yes or no");
        let call = Call { a, b, kept, transposed: transposed == 1, columns: WarpgroupSums::<R>::COLUMNS };
        let who = self.step(operation);
        if !self.products.borrow().fenced {
            self.refuse(&who, "no warpgroup_fence is before the first product of sums".to_owned());
        }
        self.block.hand_over(self.index, &sums.0);
        self.block.arrive(
            self.index,
            Request { operation, location: Location::caller(), operands: call.operands() },
        );
        self.yielder.suspend(());
        let product = self.block.take_over(self.index, &mut sums.0);
        let mut products = self.products.borrow_mut();
        let group = products.group;
        products.under_way.push_back((group, product));
    }

    /// Does what `Simt::warpgroup_commit` promises.
    #[track_caller]
    pub(super) fn commit_products(&self) {
        self.step(Operation::WarpgroupCommit);
        self.products.borrow_mut().group += 1;
    }

    /// Does what `Simt::warpgroup_wait` promises.
    #[track_caller]
    pub(super) fn wait_for_products(&self, pending: u64) {
        let now = self.step(Operation::WarpgroupWait);
        self.end_products(&now, pending);
    }

    /// Does what `Simt::warpgroup_finish` promises.
    #[track_caller]
    pub(super) fn finish_products<const R: usize>(&self, sums: WarpgroupSums<R>) -> [f32; R] {
        let now = self.step(Operation::WarpgroupFinish);
        self.end_products(&now, 0);
        let left = self.products.borrow().under_way.len();
        if left > 0 {
            self.refuse(&now, format!("no warpgroup_commit has closed the group of {left} products"));
        }
        self.products.borrow_mut().fenced = false;
        sums.0
    }

    /// Ends the products whose group is not among the youngest `pending` ones.
    fn end_products(&self, now: &Access, pending: u64) {
        let mut products = self.products.borrow_mut();
        let group = products.group;
        while let Some((_, product)) = products.under_way.pop_front_if(|(of, _)| *of + pending < group) {
            self.block.waited(product, now);
        }
    }
}

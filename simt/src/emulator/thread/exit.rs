//! What a thread may not leave behind.

use super::Thread;
use crate::emulator::violation::Violation;

impl Thread<'_> {
    /// What is checked when the kernel returns.
    pub(in crate::emulator) fn exit(&self) {
        self.block.count_calls(self.calls.get());
        let copies = self.copies.borrow();
        if let Some(oldest) = copies.front() {
            let copy = self.block.spot(&oldest.issued);
            self.block.report(Box::new(Violation::CopyNeverWaited { copy, copies: copies.len() }));
        }
        let products = self.products.borrow().under_way.len();
        if products > 0 {
            let (block, thread) = (self.block.position(), u32::from(self.index));
            self.block.report(Box::new(Violation::ProductNeverWaited { block, thread, products }));
        }
        if let Some((oldest, copies)) = self.bulk.borrow().unfinished() {
            self.block.report(Box::new(Violation::CopyNeverWaited { copy: self.block.spot(oldest), copies }));
        }
    }
}

//! Copies to shared memory that a thread has started: of 16 bytes, in bulk, and of boxes of a matrix.

use super::Thread;
use crate::GlobalPtr;
use crate::emulator::access::Access;
use crate::emulator::spot::Operation;
use crate::warpgroup::{BoxedMatrix, Swizzle, TensorMap};

/// A copy under way, with the bytes it will deliver: the source may not change during the launch.
pub(super) struct Copy {
    group: u64,
    to: u32,
    value: [u32; 4],
    pub(super) issued: Access,
}

impl Thread<'_> {
    /// Does what `Simt::copy_async_16` promises.
    #[track_caller]
    pub(super) fn start_copy(&self, to_shared: u32, from: GlobalPtr<u32>, present: bool) {
        let who = self.step(Operation::CopyAsync16);
        let mut value = [0; 4];
        if present {
            let (view, recent) = self.block.global();
            let loaded = view.load_readonly(&who, recent, from.address(), (16, 16));
            value = self.accept(loaded);
        }
        self.accept(self.block.shared().begin_copy(&who, to_shared));
        let copy = Copy { group: self.group.get(), to: to_shared, value, issued: who };
        self.copies.borrow_mut().push_back(copy);
    }

    /// Does what `Simt::copy_async_wait` promises.
    #[track_caller]
    pub(super) fn wait_for_copies(&self, pending: u64) {
        let now = self.step(Operation::CopyAsyncWait);
        let mut copies = self.copies.borrow_mut();
        let mut shared = self.block.shared();
        // Groups below the current one are closed; the youngest `pending` of them may stay.
        while let Some(copy) = copies.pop_front_if(|copy| copy.group + pending < self.group.get()) {
            let Access { operation, location, .. } = copy.issued;
            shared.finish_copy(&Access { operation, location, ..now }, copy.to, copy.value);
        }
    }

    /// Describes a use of a counter of arrivals as an access, and checks that the counter was begun.
    #[track_caller]
    fn step_at_counter(&self, operation: Operation, counter: u32) -> Access {
        let who = self.step(operation);
        self.expect(&who, self.block.counters().check(counter));
        self.accept(self.block.shared().read(&who, counter, 8));
        who
    }

    /// Does what `Simt::copy_bulk_begin` promises.
    #[track_caller]
    pub(super) fn begin_counter(&self, counter: u32, threads: u32) {
        let who = self.step(Operation::CopyBulkBegin);
        self.accept(self.block.shared().write(&who, counter, 8, [0; 4]));
        self.expect(&who, self.block.counters().begin(counter, threads, self.block.threads()));
    }

    /// Does what `Simt::copy_bulk` promises.
    #[track_caller]
    pub(super) fn start_bulk(&self, to_shared: u32, from: GlobalPtr<u32>, bytes: u32, counter: u32) {
        let who = self.step_at_counter(Operation::CopyBulk, counter);
        if bytes == 0 || !bytes.is_multiple_of(16) {
            self.refuse(&who, format!("bytes is {bytes}, which is 0 or no multiple of 16"));
        }
        for offset in (0..bytes).step_by(16) {
            let (view, recent) = self.block.global();
            let address = from.address() + u64::from(offset);
            let value = self.accept(view.load_readonly(&who, recent, address, (16, 16)));
            self.accept(self.block.shared().begin_copy(&who, to_shared + offset));
            self.bulk.borrow_mut().push(counter, to_shared + offset, value, who);
        }
    }

    /// Does what `Simt::copy_bulk_commit` promises.
    #[track_caller]
    pub(super) fn commit_bulk(&self, counter: u32, bytes: u32) {
        let who = self.step_at_counter(Operation::CopyBulkCommit, counter);
        if let Some(round) = self.block.counters().commit(counter) {
            self.expect(&who, self.bulk.borrow_mut().commit(counter, bytes, round));
        }
    }

    /// Does what `Simt::copy_bulk_wait` promises.
    #[track_caller]
    pub(super) fn wait_for_bulk(&self, counter: u32, round: u32) {
        let now = self.step_at_counter(Operation::CopyBulkWait, counter);
        let pieces = self.expect(&now, self.bulk.borrow_mut().wait(counter, round));
        let mut shared = self.block.shared();
        for piece in pieces {
            let Access { operation, location, .. } = piece.issued;
            shared.finish_copy(&Access { operation, location, ..now }, piece.to, piece.value);
        }
    }

    /// Does what `Simt::copy_bulk_box` promises.
    #[track_caller]
    pub(super) fn start_box(&self, to_shared: u32, map: &TensorMap, [column, row]: [u32; 2], counter: u32) {
        let who = self.step_at_counter(Operation::CopyBulkBox, counter);
        let not_a_map = || "the map is none that TensorMap::emulated has made".to_owned();
        let matrix = self.expect(&who, map.matrix().ok_or_else(not_a_map));
        if !to_shared.is_multiple_of(1024) {
            self.refuse(&who, format!("to_shared is {to_shared}, which is no multiple of 1024"));
        }
        for of_box in 0..matrix.box_rows {
            for piece in 0..BoxedMatrix::BOX_COLUMNS / 8 {
                let value = self.load_piece(&who, &matrix, [column + piece * 8, row + of_box]);
                let to = Swizzle::Bytes128.apply(to_shared + of_box * 128 + piece * 16);
                self.accept(self.block.shared().begin_copy(&who, to));
                self.bulk.borrow_mut().push(counter, to, value, who);
            }
        }
    }

    /// Eight elements of a matrix, with zeros for what is outside of it.
    fn load_piece(&self, who: &Access, matrix: &BoxedMatrix, [column, row]: [u32; 2]) -> [u32; 4] {
        let (view, recent) = self.block.global();
        let present = if row < matrix.rows { matrix.columns.saturating_sub(column).min(8) } else { 0 };
        let address = matrix.address + u64::from(row) * matrix.row_bytes + 2 * u64::from(column);
        let load = |address, bytes| self.accept(view.load_readonly(who, recent, address, (bytes, bytes)));
        if present == 8 {
            return load(address, 16);
        }
        let mut words = [0; 4];
        for element in 0..present {
            let [bits, ..] = load(address + 2 * u64::from(element), 2);
            words[element as usize / 2] |= bits << (element % 2 * 16);
        }
        words
    }
}

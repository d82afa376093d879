//! What the warps of a block have of a window that they share, joined.

use windrow_simt::Simt;

use super::sums::{Joined, Softmax};
use super::{ATTENTION_WARPS, AttentionParams, partial_floats};
use crate::NO_SLOT;
use crate::unroll::each;

/// Where warps leave their sums in shared memory, each (rows, width) and a pad for each row, and behind all of them
/// maximum and weight of each of their rows.
#[derive(Clone, Copy)]
pub(super) struct Shares {
    /// Rows of a window.
    pub(super) rows: u32,
    /// Columns of a row.
    pub(super) width: u32,
    /// States of a row: heads that it may have.
    pub(super) states: u32,
    /// Bytes of a warp's place, at least those of its sums: it may have had other things there before.
    pub(super) warp_bytes: u32,
}

impl Shares {
    /// For warps that need `least` bytes before they leave their sums, from a multiple of a row's bytes in 16 bits on.
    pub(super) const fn new(rows: u32, width: u32, states: u32, least: u32) -> Self {
        let own = Self { rows, width, states, warp_bytes: 0 };
        let sums = rows * own.pitch() * 4;
        let most = if sums > least { sums } else { least };
        Self { warp_bytes: most.next_multiple_of(2 * width), ..own }
    }

    /// Numbers from one row to the next: rows begin in different banks.
    const fn pitch(self) -> u32 {
        self.width + 8
    }

    /// Byte of a warp's sum.
    #[inline(always)]
    pub(super) const fn sum_at(self, warp: u32, row: u32, column: u32) -> u32 {
        warp * self.warp_bytes + (row * self.pitch() + column) * 4
    }

    #[inline(always)]
    const fn state_at(self, warp: u32, row: u32, head: u32) -> u32 {
        self.sum_at(ATTENTION_WARPS, 0, 0) + ((warp * self.rows + row) * self.states + head) * 8
    }

    /// The byte behind the last.
    pub(super) const fn end(self) -> u32 {
        self.state_at(ATTENTION_WARPS, 0, 0)
    }

    /// Leaves maximum and weight of a warp's row and head.
    ///
    /// # Safety
    /// The row of the warp is this thread's.
    #[inline(always)]
    pub(super) unsafe fn keep_state<S: Simt>(self, s: &S, [warp, row, head]: [u32; 3], softmax: Softmax) {
        // SAFETY: the caller's promise.
        unsafe { s.store_shared(self.state_at(warp, row, head), [softmax.max, softmax.weight]) };
    }

    /// Maximum and weight of a warp's row and head.
    ///
    /// # Safety
    /// They have been left, and a barrier has come since.
    #[inline(always)]
    pub(super) unsafe fn state<S: Simt>(self, s: &S, [warp, row, head]: [u32; 3]) -> Softmax {
        // SAFETY: the caller's promise.
        let [max, weight] = unsafe { s.load_shared(self.state_at(warp, row, head)) };
        Softmax { max, weight }
    }

    /// Joins what the warps have left of a window, in their order: to the result, or to the piece's slot.
    ///
    /// # Safety
    /// The obligations of the params; all threads of the block are here, behind a barrier after all has been left.
    #[inline(always)]
    pub(super) unsafe fn join<S: Simt>(self, s: &S, p: &AttentionParams, [walk, window, slot]: [u32; 3]) {
        let record = partial_floats(self.rows, self.width, p.heads);
        let of_slot = u64::from(walk) * u64::from(p.slot_count) + u64::from(slot);
        let partial = p.partial.at_wide(of_slot * u64::from(record));
        let mut at = s.thread_idx();
        while at < self.rows * self.width {
            let (of_window, column) = (at / self.width, at % self.width);
            let row = window * self.rows + of_window;
            let head = p.heads.of_column(column);
            // SAFETY: the caller's promise; the element is this thread's.
            unsafe {
                let mut max = f32::NEG_INFINITY;
                each::<{ ATTENTION_WARPS as usize }>(|warp| {
                    max = max.max(self.state(s, [warp as u32, of_window, head]).max);
                });
                let mut joined = Joined::new(max);
                each::<{ ATTENTION_WARPS as usize }>(|warp| {
                    let sum = s.load_shared(self.sum_at(warp as u32, of_window, column));
                    joined.add(s, self.state(s, [warp as u32, of_window, head]), sum);
                });
                if slot != NO_SLOT {
                    s.store(partial.at(at), joined.sum);
                    if p.heads.begins(column) {
                        let at = self.rows * self.width + 2 * ((of_window << p.heads.count_log2) + head);
                        s.store(partial.at(at).cast(), [joined.softmax.max, joined.softmax.weight]);
                    }
                } else if row < p.rows {
                    p.finish(s, (walk, row, column), joined);
                }
            }
            at += s.block_dim();
        }
    }
}

impl AttentionParams {
    /// Writes one element of a row whose parts are joined, and with the first of a head the row's state.
    ///
    /// # Safety
    /// The obligations of the params; no other thread has the element.
    #[inline(always)]
    pub(super) unsafe fn finish<S: Simt>(&self, s: &S, (walk, row, column): (u32, u32, u32), joined: Joined) {
        let head = self.heads.first(walk);
        // SAFETY: the caller's promise.
        unsafe {
            if column < self.out.columns {
                let at = self.out.at(head, row, column);
                self.out.store(s, self.out_type, at, joined.sum * joined.softmax.inverse());
            }
            if self.heads.begins(column) {
                self.keep_state(s, head + self.heads.of_column(column), row, joined.softmax);
            }
        }
    }

    /// Keeps the state of a row for the gradient, if that is wanted.
    ///
    /// # Safety
    /// The obligations of the params; no other thread has the row.
    #[inline(always)]
    pub(super) unsafe fn keep_state<S: Simt>(&self, s: &S, head: u32, row: u32, softmax: Softmax) {
        if self.states != windrow_simt::GlobalPtr::NULL {
            let at = u64::from(head) * u64::from(self.rows) + u64::from(row);
            // SAFETY: the caller's promise.
            unsafe { s.store(self.states.at_wide(at), softmax.state()) };
        }
    }
}

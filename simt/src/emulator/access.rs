//! One access to one granule of memory, and which pairs of accesses a launch orders.
//!
//! A *granule* is 2 bytes, the narrowest access there is, so that two threads that write the two
//! halves of a word are not mistaken for a race.
//!
//! The order is exact, because [`Simt`](crate::Simt) has only two operations that order memory.
//! `sync_block` counts the block's phase up and orders everything of the block across it;
//! `sync_warp` counts the warp's phase up and orders the accesses of its lanes. Shuffles, votes,
//! `ldmatrix` and `mma` wait for their lanes but order no memory. Nothing orders two blocks.

use std::panic::Location;

use crate::WARP;
use crate::emulator::spot::{Operation, Spot};

/// Bytes that are watched as one: what is reported of a place is exact to so many.
pub(super) const GRANULE: u32 = 2;

/// Who touched a granule, from where, and in which phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) location: &'static Location<'static>,
    /// Linear number of the block in the grid.
    pub(super) block: u32,
    /// Barriers that the block had passed.
    pub(super) block_phase: u32,
    /// Barriers that the warp had passed.
    pub(super) warp_phase: u32,
    pub(super) thread: u16,
    pub(super) operation: Operation,
    /// How often the thread had fenced its stores off from the copy engine, modulo [`Self::FENCES`].
    pub(super) fences: u8,
}

impl Access {
    /// Fences are counted up to here, and then from 0 on.
    pub(super) const FENCES: u8 = 255;
    /// In place of a count: a fence is known to have followed.
    pub(super) const FENCED: u8 = 255;

    fn warp(&self) -> u32 {
        u32::from(self.thread) / WARP
    }

    /// The access as a report shows it.
    pub(super) fn spot(&self, grid_x: u32) -> Spot {
        Spot {
            operation: self.operation,
            block: [self.block % grid_x, self.block / grid_x],
            thread: u32::from(self.thread),
            location: self.location,
        }
    }

    /// Whether nothing orders an `earlier` access before this one.
    pub(super) fn is_unordered_with(&self, earlier: &Self) -> bool {
        earlier.block != self.block
            || (earlier.block_phase == self.block_phase
                && !self.is_by_one_thread_with(earlier)
                && !(earlier.warp() == self.warp() && earlier.warp_phase != self.warp_phase))
    }

    /// Whether both accesses are by the same thread, and by no other. A matrix load is by 32.
    fn is_by_one_thread_with(&self, other: &Self) -> bool {
        self.thread == other.thread && !self.operation.is_by_warp() && !other.operation.is_by_warp()
    }
}

/// Up to two accesses that stand for all accesses of one kind since the last write: whatever access
/// is unordered with any of those is unordered with one of these.
///
/// Two blocks saturate a pair, because every thread is outside of one of them; so do two warps within
/// one phase of a block, and two lanes within one phase of a warp.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair([Option<Access>; 2]);

impl Pair {
    pub(super) const EMPTY: Self = Self([None; 2]);

    /// The first of the two that nothing orders before `later`.
    pub(super) fn unordered_with(&self, later: &Access) -> Option<&Access> {
        self.0.iter().flatten().find(|earlier| later.is_unordered_with(earlier))
    }

    /// Either access of the pair, if the granule was touched at all.
    pub(super) fn any(&self) -> Option<&Access> {
        self.0[0].as_ref()
    }

    /// Adds an access that is later than all before it within its block.
    pub(super) fn remember(&mut self, new: Access) {
        let [Some(first), second] = &self.0 else {
            self.0[0] = Some(new);
            return;
        };
        if first.block != new.block {
            if second.is_none_or(|second| second.block == first.block) {
                self.0[1] = Some(new);
            }
            return;
        }
        if second.is_some_and(|second| second.block != first.block) {
            return;
        }
        if first.block_phase != new.block_phase {
            self.0 = [Some(new), None];
            return;
        }
        if second.is_some_and(|second| second.warp() != first.warp()) {
            return;
        }
        if first.warp() != new.warp() {
            self.0[1] = Some(new);
        } else if first.warp_phase != new.warp_phase {
            self.0 = [Some(new), None];
        } else if second.is_none() && !first.is_by_one_thread_with(&new) {
            self.0[1] = Some(new);
        }
    }
}

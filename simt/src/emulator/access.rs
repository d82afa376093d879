//! One access to one granule of memory, and which pairs of accesses a launch orders.
//!
//! A *granule* is 2 bytes, the narrowest access there is, so that two threads that write the two
//! halves of a word are not mistaken for a race.
//!
//! The order is exact, because [`Simt`](crate::Simt) has only three operations that order memory, for groups of which
//! one holds the next. `sync_block` counts the block's phase up and orders everything of the block across it;
//! `sync_warpgroup` counts the warpgroup's phase up and orders the accesses of its four warps; `sync_warp` does so for
//! the lanes of a warp. Shuffles, votes, `ldmatrix`, `stmatrix` and `mma` wait for their lanes but order no memory.
//! Nothing orders two blocks.

use std::panic::Location;

use crate::WARP;
use crate::emulator::spot::{Operation, Spot};
use crate::warpgroup::WARPGROUP;

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
    /// Barriers that the warp had passed since the last one of the block, those of its warpgroup times
    /// [`Self::OF_GROUP`].
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
    /// What a barrier of the warpgroup adds to the phase of its warps.
    pub(super) const OF_GROUP: u32 = 1 << 20;

    /// The groups that the access is of, from the block down, and the phase in which it found each.
    fn groups(&self) -> [(u32, u32); 3] {
        let thread = u32::from(self.thread);
        [
            (self.block, self.block_phase),
            (thread / WARPGROUP, self.warp_phase / Self::OF_GROUP),
            (thread / WARP, self.warp_phase),
        ]
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

    /// How this access is to an `earlier` one.
    fn relation(&self, earlier: &Self) -> Relation {
        for (depth, (new, old)) in self.groups().into_iter().zip(earlier.groups()).enumerate() {
            if new.0 != old.0 {
                return Relation::Apart(depth);
            }
            if new.1 != old.1 {
                return Relation::Later(depth);
            }
        }
        if self.is_by_one_thread_with(earlier) { Relation::OneThread } else { Relation::Apart(LANES) }
    }

    /// Whether nothing orders an `earlier` access before this one.
    pub(super) fn is_unordered_with(&self, earlier: &Self) -> bool {
        matches!(self.relation(earlier), Relation::Apart(_))
    }

    /// Whether both accesses are by the same thread, and by no other. A matrix load is by 32.
    fn is_by_one_thread_with(&self, other: &Self) -> bool {
        self.thread == other.thread && !self.operation.is_by_warp() && !other.operation.is_by_warp()
    }
}

/// What an access is to an earlier one: of the groups that hold one another, blocks, warpgroups and warps, the first in
/// which they differ.
#[derive(Clone, Copy)]
enum Relation {
    /// By another group, within one phase of the group around it: nothing orders them.
    Apart(usize),
    /// By the same group, in a later phase of it.
    Later(usize),
    /// By the same thread, within one phase of its warp.
    OneThread,
}

/// The depth at which accesses of two lanes are apart.
const LANES: usize = 3;

/// Up to two accesses that stand for all accesses of one kind since the last write: whatever access
/// is unordered with any of those is unordered with one of these.
///
/// Two blocks saturate a pair, because every thread is outside of one of them; so do two warpgroups within one phase of
/// a block, two warps within one phase of a warpgroup, and two lanes within one phase of a warp.
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
        // The two of a pair are alike down to where they are apart; of what is below there is no need to know more.
        let apart = match second.map(|second| second.relation(first)) {
            Some(Relation::Apart(depth)) => depth,
            _ => LANES + 1,
        };
        match new.relation(first) {
            Relation::Later(depth) if depth < apart => self.0 = [Some(new), None],
            Relation::Apart(depth) if depth < apart => self.0[1] = Some(new),
            _ => {}
        }
    }
}

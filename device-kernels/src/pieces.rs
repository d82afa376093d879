//! Runs of entries cut into pieces of about the same length, as rows are that are too long for one group of threads.

use core::num::{NonZeroU32, NonZeroU64};

use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::spmm::combine::Combine;

/// Successive entries, and into how many pieces they are cut.
#[derive(Clone, Copy)]
pub(crate) struct Pieces {
    pub(crate) begin: u32,
    pub(crate) end: u32,
    pub(crate) count: u32,
}

impl Pieces {
    /// No entries, and no piece.
    pub(crate) const NONE: Self = Self { begin: 0, end: 0, count: 0 };

    /// More than `limit` entries are cut into as few pieces as have at most `piece` entries, others into `whole`.
    #[inline(always)]
    pub(crate) fn cut([begin, end]: [u32; 2], (limit, piece): (u32, u32), whole: u32) -> Self {
        let (length, piece) = (end - begin, NonZeroU32::new(piece).unwrap_or(NonZeroU32::MIN)); // it is not 0
        Self { begin, end, count: if length > limit { (length - 1) / piece + 1 } else { whole } }
    }

    #[inline(always)]
    pub(crate) fn is_cut(self) -> bool {
        self.count > 1
    }

    /// Slots of its sums: one for each piece, or one for all that they share; none for what is not cut.
    #[inline(always)]
    pub(crate) fn slots(self, shared: bool) -> u32 {
        match self.is_cut() {
            true if shared => 1,
            true => self.count,
            false => 0,
        }
    }

    /// Slots, whether there are any, and whether they are so many that a block adds them up.
    #[inline(always)]
    pub(crate) fn slot_counts(self, shared: bool) -> [u32; 3] {
        let slots = self.slots(shared);
        [slots, u32::from(slots > 0), u32::from(is_wide(slots))]
    }

    /// Where piece `i` begins and ends.
    #[inline(always)]
    pub(crate) fn range(self, i: u32) -> [u32; 2] {
        [self.begin_of(i), self.begin_of(i + 1)]
    }

    #[inline(always)]
    fn begin_of(self, i: u32) -> u32 {
        let length = self.end - self.begin;
        // There is a piece. Products of less than 2³² are divided in 32 bits, in fewer instructions.
        let count = NonZeroU32::new(self.count).unwrap_or(NonZeroU32::MIN);
        match length < 1 << 16 {
            true => self.begin + length * i / count,
            false => self.begin + (u64::from(length) * u64::from(i) / NonZeroU64::from(count)) as u32,
        }
    }
}

/// Whether a block adds up so many slots, not a warp.
#[inline(always)]
pub(crate) fn is_wide(slots: u32) -> bool {
    slots > Combine::<f32>::NARROW
}

/// Writes the segments `[row, begin, end, slot]` of what the lanes of a warp have cut, of each by all lanes: `place` is
/// the number of a lane's row, of its first segment, and of its first slot. Group: warp.
///
/// # Safety
/// All lanes are here, and `segments` has room for all pieces, which no other thread writes.
#[inline(always)]
pub(crate) unsafe fn write_pieces<S: Simt>(
    s: &S,
    (segments, shared): (GlobalPtr<[u32; 4]>, bool),
    own: Pieces,
    place: [u32; 3],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut left = s.ballot(own.is_cut());
        while left != 0 {
            let lane = left.trailing_zeros();
            let of = |x: u32| s.shuffle(x, lane);
            let pieces = Pieces { begin: of(own.begin), end: of(own.end), count: of(own.count) };
            let [number, first, first_slot] = [of(place[0]), of(place[1]), of(place[2])];
            let mut i = s.lane();
            while i < pieces.count {
                let slot = first_slot + if shared { 0 } else { i };
                let [begin, end] = pieces.range(i);
                s.store(segments.at(first + i), [number, begin, end, slot]);
                i += WARP;
            }
            left &= left - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_as_long_as_they_may_be_and_leave_nothing_out() {
        for (begin, length) in [(0, 1), (7, 65_535), (7, 65_536), (3, 65_537), (0, u32::MAX)] {
            for piece in [1, 2, 3, 1 << 15, u32::MAX - 1] {
                let pieces = Pieces::cut([begin, begin.saturating_add(length)], (piece, piece), 1);
                let length = pieces.end - begin;
                assert_eq!(pieces.count, if length > piece { length.div_ceil(piece) } else { 1 });
                let last = pieces.count - 1;
                for i in [0, 1, last / 2, last.saturating_sub(1), last] {
                    if i >= pieces.count {
                        continue;
                    }
                    let [from, to] = pieces.range(i);
                    let case = format!("piece {i} of {length} entries by {piece}");
                    assert!(from < to && to - from <= piece.max(1), "{case}: {from} to {to}");
                    assert_eq!(from == begin, i == 0, "{case}");
                    assert_eq!(to == pieces.end, i == last, "{case}");
                    assert!(i == 0 || pieces.range(i - 1)[1] == from, "{case}");
                }
            }
        }
    }

    #[test]
    fn slots_are_shared_or_not() {
        let counts = |count, shared| Pieces { count, ..Pieces::NONE }.slot_counts(shared);
        assert_eq!(counts(0, false), [0, 0, 0]);
        assert_eq!(counts(1, false), [0, 0, 0]);
        assert_eq!(counts(2, true), [1, 1, 0]);
        assert_eq!(counts(2, false), [2, 1, 0]);
        let narrow = Combine::<f32>::NARROW;
        assert_eq!(counts(narrow, false), [narrow, 1, 0]);
        assert_eq!(counts(narrow + 1, false), [narrow + 1, 1, 1]);
    }
}

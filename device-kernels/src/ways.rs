//! Rows that the groups of lanes of a warp walk: one row all of them, or several side by side where rows are short.
//!
//! A group of lanes takes an entry and has the width between its lanes. The groups that share a row, its *ways*, take
//! entries by turns, two of each or four under way together.

use windrow_simt::{GlobalPtr, Simt, WARP};

/// The rows of a sparse matrix, and which of them are a warp's.
#[derive(Clone, Copy)]
pub(crate) struct RowLists {
    /// Where each row begins among the entries, and the last ends.
    pub(crate) offsets: GlobalPtr<u32>,
    /// Number of rows, at least one.
    pub(crate) rows: u32,
    /// Most entries of a row that is a warp's.
    pub(crate) longest: u32,
    /// Logarithm of the rows that a warp walks side by side.
    pub(crate) warp_rows_log2: u32,
}

/// The groups of a warp: lanes of each, and entries that each takes in a step.
#[derive(Clone, Copy)]
pub(crate) struct Groups {
    /// Logarithm of the lanes.
    pub(crate) lanes_log2: u32,
    /// Logarithm of the entries.
    pub(crate) entries_log2: u32,
}

impl Groups {
    /// Groups of so many lanes, a power of two, which take two entries in a step.
    #[inline(always)]
    pub(crate) const fn pairs(lanes: u32) -> Self {
        Self { lanes_log2: lanes.ilog2(), entries_log2: 1 }
    }

    /// Groups of a warp.
    #[inline(always)]
    const fn count(self) -> u32 {
        WARP >> self.lanes_log2
    }

    /// Logarithm of the groups of a warp.
    #[inline(always)]
    const fn count_log2(self) -> u32 {
        WARP.ilog2() - self.lanes_log2
    }
}

/// The entries of one row that a lane's group and its neighbours walk.
#[derive(Clone, Copy)]
pub(crate) struct RowWalk {
    pub(crate) row: u32,
    pub(crate) begin: u32,
    pub(crate) end: u32,
    /// Entries from one step to the next.
    stride: u32,
    /// Steps left, the same for all lanes: as many as the longest of the warp's rows takes.
    steps: u32,
    /// Groups that walk this row, a power of two.
    pub(crate) ways: u32,
    /// Whether there is such a row, and it is a warp's.
    pub(crate) is_own: bool,
    groups: Groups,
}

impl RowWalk {
    /// The warp's share of entries `first..end` of a row that a block of `warps` walks, a power of two.
    #[inline(always)]
    pub(crate) fn of_block<S: Simt>(s: &S, groups: Groups, [row, first, end]: [u32; 3], warps: u32) -> Self {
        let of_warp_log2 = groups.count_log2() + groups.entries_log2;
        let begin = (first + (s.warp() << of_warp_log2)).min(end);
        let stride = warps << of_warp_log2;
        let steps = (end - begin + stride - 1) >> (of_warp_log2 + warps.ilog2());
        Self { row, begin, end, stride, steps, ways: groups.count(), is_own: true, groups }
    }

    /// The row of a lane of warp `warp` of all; none where the warp has no row at all.
    ///
    /// # Safety
    /// There are as many offsets as [`RowLists`] says; the whole warp is here.
    #[inline(always)]
    pub(crate) unsafe fn of_warp<S: Simt>(s: &S, groups: Groups, lists: RowLists, warp: u32) -> Option<Self> {
        let ways = groups.count() >> lists.warp_rows_log2;
        let first = warp << lists.warp_rows_log2;
        if first >= lists.rows {
            return None;
        }
        let of_lane = first + (s.lane() >> (WARP.ilog2() - lists.warp_rows_log2));
        // Behind the last row lanes read its operands once more, and no entries.
        let row = of_lane.min(lists.rows - 1);
        // SAFETY: the caller's promise.
        let [begin, end] =
            unsafe { [s.load_readonly(lists.offsets.at(row)), s.load_readonly(lists.offsets.at(row + 1))] };
        let is_own = of_lane < lists.rows && end - begin <= lists.longest;
        let end = if is_own { end } else { begin };
        let stride = ways << groups.entries_log2;
        let stride_log2 = groups.entries_log2 + groups.count_log2() - lists.warp_rows_log2;
        let mut steps = (end - begin + (stride - 1)) >> stride_log2;
        let mut mask = ways << groups.lanes_log2;
        while mask < WARP {
            // SAFETY: a collective of the full warp, by the caller's promise; the bounds are the same for all lanes.
            steps = steps.max(unsafe { s.shuffle_xor(steps, mask) });
            mask *= 2;
        }
        Some(Self { row, begin, end, stride, steps, ways, is_own, groups })
    }

    /// Where entry `i` of a lane's group is in this step; there may be none at an end or behind it.
    #[inline(always)]
    pub(crate) fn position<S: Simt>(&self, s: &S, i: u32) -> u32 {
        self.begin + self.way(s) + i * self.ways
    }

    /// The first two of them.
    #[inline(always)]
    pub(crate) fn positions<S: Simt>(&self, s: &S) -> [u32; 2] {
        let first = self.position(s, 0);
        [first, first + self.ways]
    }

    /// Which of the groups that share its row a lane's is.
    #[inline(always)]
    fn way<S: Simt>(&self, s: &S) -> u32 {
        (s.lane() >> self.groups.lanes_log2) & (self.ways - 1)
    }

    /// Whether a lane of the warp has entries left.
    #[inline(always)]
    pub(crate) const fn goes_on(&self) -> bool {
        self.steps > 0
    }

    #[inline(always)]
    pub(crate) const fn step(&mut self) {
        self.begin += self.stride;
        self.steps -= 1;
    }

    /// Whether a lane is of the row's first group, which tells what all of them have.
    #[inline(always)]
    pub(crate) fn tells<S: Simt>(&self, s: &S) -> bool {
        self.way(s) == 0
    }
}

//! Rows that the groups of lanes of a warp walk: one row all of them, or several side by side where rows are short.
//!
//! A group of `LANES` lanes takes an entry and has the width between its lanes. The groups that share a row, its
//! *ways*, take entries by turns, two of each under way together.

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
}

impl RowWalk {
    /// The warp's share of entries `first..end` of a row that a block of `warps` walks, a power of two.
    #[inline(always)]
    pub(crate) fn of_block<S: Simt, const LANES: u32>(
        s: &S,
        [row, first, end]: [u32; 3],
        warps: u32,
    ) -> Self {
        let ways = WARP / LANES;
        let begin = (first + s.warp() * 2 * ways).min(end);
        let stride = 2 * ways * warps;
        let steps = (end - begin + stride - 1) >> stride.ilog2();
        Self { row, begin, end, stride, steps, ways, is_own: true }
    }

    /// The row of a lane of warp `warp` of all; none where the warp has no row at all.
    ///
    /// # Safety
    /// There are as many offsets as [`RowLists`] says; the whole warp is here.
    #[inline(always)]
    pub(crate) unsafe fn of_warp<S: Simt, const LANES: u32>(
        s: &S,
        lists: RowLists,
        warp: u32,
    ) -> Option<Self> {
        let ways = (WARP / LANES) >> lists.warp_rows_log2;
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
        let stride_log2 = 1 + (WARP / LANES).ilog2() - lists.warp_rows_log2;
        let mut steps = (end - begin + (2 * ways - 1)) >> stride_log2;
        let mut mask = LANES * ways;
        while mask < WARP {
            // SAFETY: a collective of the full warp, by the caller's promise; the bounds are the same for all lanes.
            steps = steps.max(unsafe { s.shuffle_xor(steps, mask) });
            mask *= 2;
        }
        Some(Self { row, begin, end, stride: 2 * ways, steps, ways, is_own })
    }

    /// Where the two entries of a lane's group are in this step; there may be none at an end or behind it.
    #[inline(always)]
    pub(crate) fn positions<S: Simt, const LANES: u32>(&self, s: &S) -> [u32; 2] {
        let first = self.begin + ((s.lane() / LANES) & (self.ways - 1));
        [first, first + self.ways]
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
    pub(crate) fn tells<S: Simt, const LANES: u32>(&self, s: &S) -> bool {
        (s.lane() / LANES) & (self.ways - 1) == 0
    }
}

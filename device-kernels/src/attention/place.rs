//! Where warps work, of windows that are walked in steps.

use windrow_simt::{GlobalPtr, Simt};

use super::ATTENTION_WARPS;
use super::tiles::STEP;
use crate::NO_SLOT;

/// Where a warp works.
pub(super) struct Place {
    pub(super) window: u32,
    pub(super) begin: u32,
    pub(super) end: u32,
    /// Entries before its first step.
    pub(super) first: u32,
    /// Entries from one step to the next.
    pub(super) stride: u32,
    pub(super) head: u32,
    /// Whether the window is this warp's alone.
    pub(super) whole: bool,
}

/// The windows of a matrix, and those of them that are blocks' work.
pub(super) struct WindowPieces {
    /// `[window, begin, end, slot]` of each piece.
    pub(super) pieces: GlobalPtr<[u32; 4]>,
    /// Number of pieces, each a block's.
    pub(super) piece_count: u32,
    pub(super) window_count: u32,
    /// Most entries of a window that is a warp's.
    pub(super) longest: u32,
}

impl Place {
    /// The place of a warp of the grid, and the slot of its piece; none if it has none. All warps of a block have the
    /// same piece, or none has one. `extent` gives first entry and end of a window.
    ///
    /// # Safety
    /// As for [`Simt::load_readonly`], of the pieces.
    #[inline(always)]
    pub(super) unsafe fn of_warp<S: Simt>(
        s: &S,
        of: &WindowPieces,
        head: u32,
        extent: impl Fn(u32) -> [u32; 2],
    ) -> Option<(Self, u32)> {
        let block = s.block_idx();
        let is_piece = block < of.piece_count;
        let (window, [begin, end], slot) = if is_piece {
            // SAFETY: the caller's promise; there is such a piece.
            let [window, begin, end, slot] = unsafe { s.load_readonly(of.pieces.at(block)) };
            (window, [begin, end], slot)
        } else {
            let window = (block - of.piece_count) * ATTENTION_WARPS + s.warp();
            if window >= of.window_count {
                return None;
            }
            let extent = extent(window);
            if extent[1] - extent[0] > of.longest {
                return None;
            }
            (window, extent, NO_SLOT)
        };
        let (first, stride) = if is_piece { (s.warp() * STEP, STEP * ATTENTION_WARPS) } else { (0, STEP) };
        Some((Self { window, begin, end, first, stride, head, whole: !is_piece }, slot))
    }

    /// Calls `visit` with the position of each of the warp's entries.
    #[inline(always)]
    pub(super) fn each_entry(&self, mut visit: impl FnMut(u32)) {
        let mut step = self.begin + self.first;
        while step < self.end {
            let mut at = step;
            while at < self.end.min(step + STEP) {
                visit(at);
                at += 1;
            }
            step += self.stride;
        }
    }
}

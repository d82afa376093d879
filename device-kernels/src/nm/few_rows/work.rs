//! What a block of a product of few rows has to do.

use core::num::NonZeroU32;

use windrow_simt::{GlobalPtr, Simt};

use super::{BUFFERS, ELEMENT, FEW_ROWS_WARPS, NmFewRowsParams};

/// Where a block is in the grid.
pub(super) struct Place {
    pub(super) strip: u32,
    pub(super) tile: u32,
    pub(super) part: u32,
}

impl Place {
    #[inline(always)]
    pub(super) fn new<S: Simt>(s: &S, p: &NmFewRowsParams) -> Self {
        let [strips, tiles] = [p.strips, p.m_tiles].map(|n| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN)); // not 0
        let (strip, rest) = (s.block_idx() % strips, s.block_idx() / strips);
        Self { strip, tile: rest % tiles, part: rest / tiles }
    }
}

/// The rows of `A` of a block.
pub(super) struct Rows {
    pub(super) first: GlobalPtr<u32>,
    /// How many, at least one.
    pub(super) count: u32,
}

impl Rows {
    #[inline(always)]
    pub(super) fn new(p: &NmFewRowsParams, first: u32, most: u32) -> Self {
        let bytes = u64::from(first) * u64::from(p.lda) * u64::from(ELEMENT);
        Self { first: p.a.byte_add(bytes), count: (p.output.m - first).min(most) }
    }
}

/// Where a warp is in a part.
pub(super) struct Work {
    pub(super) strip: u32,
    /// The windows of the part: its first, and the one behind its last.
    pub(super) first: u32,
    pub(super) end: u32,
    /// Windows that were asked for, and that were waited for.
    pub(super) brought: u32,
    pub(super) arrived: u32,
    /// The buffers that these go to next, and lie in.
    pub(super) to: u32,
    pub(super) at: u32,
    /// The warp's step, and the one behind the last of the part.
    pub(super) step: u32,
    pub(super) end_step: u32,
}

impl Work {
    #[inline(always)]
    pub(super) fn new<S: Simt>(s: &S, p: &NmFewRowsParams, at: &Place) -> Self {
        let first = at.part * p.windows_per_part;
        let end = (first + p.windows_per_part).min(p.windows());
        let of_window = FEW_ROWS_WARPS * p.turns;
        Self {
            strip: at.strip,
            first,
            end,
            brought: 0,
            arrived: 0,
            to: 0,
            at: BUFFERS - 1,
            step: first * of_window + s.warp(),
            end_step: p.steps.min(end * of_window),
        }
    }

    /// Whether windows are left that nobody waited for.
    #[inline(always)]
    pub(super) const fn has_windows(&self) -> bool {
        self.first + self.arrived < self.end
    }

    /// The buffer after `buffer`, in turn.
    #[inline(always)]
    pub(super) const fn next(buffer: u32) -> u32 {
        if buffer == BUFFERS - 1 { 0 } else { buffer + 1 }
    }
}

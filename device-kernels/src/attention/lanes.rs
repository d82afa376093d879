//! Rows of dense operands, shared out among the lanes of a group.
//!
//! ```text
//!           lane 0         lane 1      ...  lane LANES-1
//! way 0   K[col 0][0..4)     [4..8)              ...          entries 0, WAYS, 2·WAYS, ...
//! way 1   K[col 1][0..4)     [4..8)              ...          entries 1, WAYS+1, ...
//! ```
//!
//! A lane has the same elements of every row, `PARTS` times a vector of them or a single one.

use core::marker::PhantomData;

use windrow_simt::{Simt, WARP};

use super::{HeadMatrix, WalkHeads};
use crate::element::{Element, Gather};
use crate::unroll::each;

/// A lane's elements of a row; of a part that is read element by element all but the first are zero.
pub(super) type Elements<const PARTS: usize> = [[f32; 8]; PARTS];

/// The heads of a walk, as a lane has them.
#[derive(Clone, Copy)]
pub(super) struct LaneHeads {
    /// Number of the walk.
    pub(super) walk: u32,
    /// Its first head, from which all of them are read.
    pub(super) first: u32,
    /// The head that is the lane's own.
    pub(super) own: u32,
    /// Whether the lane is the first of a head.
    pub(super) leads: bool,
    /// Which steps of a sum over all lanes of a group are between lanes of one head: its bit is set.
    steps: u32,
    /// The reciprocal of what the other steps, of a lane with itself, multiply a sum by.
    unscale: f32,
}

impl LaneHeads {
    /// Which of the walk's heads is the lane's.
    #[inline(always)]
    pub(super) const fn number(self) -> u32 {
        self.own - self.first
    }
}

/// How rows are read, lanes across the width, and what each has of it.
pub(super) struct Lanes<G, const LANES: u32, const PARTS: usize>(PhantomData<G>);

impl<G: Gather, const LANES: u32, const PARTS: usize> Lanes<G, LANES, PARTS> {
    /// Columns that there is room for.
    pub(super) const WIDTH: u32 = LANES * G::WIDTH * PARTS as u32;
    /// Holds whenever it is evaluated.
    pub(super) const VALID: () =
        assert!(LANES.is_power_of_two() && LANES <= WARP, "a gathered row is read inside of a warp");
    /// Whether heads beside each other may be walked together: where lanes have a vector each, in f32 of 64 columns at
    /// most. Elsewhere sums are exchanged by constants.
    const WALKS_SEVERAL: bool = PARTS == 1 && G::VECTORS && (G::WIDTH > 4 || Self::WIDTH <= 64);
    /// A row that is not there.
    pub(super) const NONE: [G::Raw; PARTS] = [G::ZERO; PARTS];

    /// The heads of a walk, of which there may be one alone.
    #[inline(always)]
    pub(super) fn heads<S: Simt>(s: &S, heads: WalkHeads, walk: u32) -> LaneHeads {
        let column = Self::column(s, 0);
        if !Self::WALKS_SEVERAL {
            return LaneHeads {
                walk,
                first: walk,
                own: walk,
                leads: column == 0,
                steps: WARP - 1,
                unscale: 1.0,
            };
        }
        let first = heads.first(walk);
        let of_head = (1 << heads.columns_log2) / G::WIDTH;
        let lanes = if of_head < LANES { of_head } else { LANES };
        LaneHeads {
            walk,
            first,
            own: first + heads.of_column(column),
            leads: heads.begins(column),
            steps: lanes - 1,
            unscale: lanes as f32 / LANES as f32,
        }
    }

    /// The lane's first column of a part.
    #[inline(always)]
    pub(super) fn column<S: Simt>(s: &S, part: usize) -> u32 {
        (part as u32 * LANES + s.lane() % LANES) * G::WIDTH
    }

    /// The lane's part of a row under way; zeros beyond the last column.
    ///
    /// # Safety
    /// As for [`Simt::load_readonly`]; there is such a row, whose columns are a multiple of what a lane reads.
    #[inline(always)]
    pub(super) unsafe fn fetch<S: Simt>(s: &S, of: &HeadMatrix, head: u32, row: u32) -> [G::Raw; PARTS] {
        let mut raw = Self::NONE;
        each::<PARTS>(|part| {
            let column = Self::column(s, part);
            if column < of.columns {
                // SAFETY: the caller's promise.
                raw[part] = unsafe { G::fetch(s, of.first, of.at(head, row, column)) };
            }
        });
        raw
    }
}

impl<G: Gather<Element: Element<Sum = f32>>, const LANES: u32, const PARTS: usize> Lanes<G, LANES, PARTS> {
    #[inline(always)]
    pub(super) fn elements<S: Simt>(s: &S, raw: [G::Raw; PARTS]) -> Elements<PARTS> {
        let mut elements = [[0.0; 8]; PARTS];
        each::<PARTS>(|part| elements[part] = G::elements(s, raw[part]));
        elements
    }

    /// The sum over the lanes of a head of the products of two rows, the same in all of them.
    ///
    /// # Safety
    /// A collective of the full warp.
    #[inline(always)]
    pub(super) unsafe fn product<S: Simt>(
        s: &S,
        heads: LaneHeads,
        a: &Elements<PARTS>,
        b: &Elements<PARTS>,
    ) -> f32 {
        let mut product = 0.0;
        Self::each_element(|part, e| product = s.fma(a[part][e], b[part][e], product));
        // No step is left out, for a branch would keep products of two entries from being made side by side: between
        // heads a lane adds its own sum, which doubles it.
        let mut half = LANES / 2;
        while half >= 1 {
            // SAFETY: the caller's promise.
            product += f32::from_bits(unsafe { s.shuffle_xor(product.to_bits(), half & heads.steps) });
            half /= 2;
        }
        product * heads.unscale
    }

    /// `sums += factor · row`.
    #[inline(always)]
    pub(super) fn accumulate<S: Simt>(s: &S, factor: f32, raw: [G::Raw; PARTS], sums: &mut Elements<PARTS>) {
        each::<PARTS>(|part| G::accumulate(s, factor, raw[part], &mut sums[part]));
    }

    /// Calls `body(part, element)` for the elements that a lane has.
    #[inline(always)]
    pub(super) fn each_element(mut body: impl FnMut(usize, usize)) {
        each::<PARTS>(|part| {
            each::<8>(|e| {
                if (e as u32) < G::WIDTH {
                    body(part, e);
                }
            });
        });
    }
}

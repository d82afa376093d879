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

use super::HeadMatrix;
use crate::element::{Element, Gather};
use crate::row_softmax::butterfly;
use crate::unroll::each;

/// A lane's elements of a row; of a part that is read element by element all but the first are zero.
pub(super) type Elements<const PARTS: usize> = [[f32; 8]; PARTS];

/// How rows are read, lanes across the width, and what each has of it.
pub(super) struct Lanes<G, const LANES: u32, const PARTS: usize>(PhantomData<G>);

impl<G: Gather, const LANES: u32, const PARTS: usize> Lanes<G, LANES, PARTS> {
    /// Columns that there is room for.
    pub(super) const WIDTH: u32 = LANES * G::WIDTH * PARTS as u32;
    /// Holds whenever it is evaluated.
    pub(super) const VALID: () =
        assert!(LANES.is_power_of_two() && LANES <= WARP, "a gathered row is read inside of a warp");
    /// A row that is not there.
    pub(super) const NONE: [G::Raw; PARTS] = [G::ZERO; PARTS];

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

    /// The sum over the lanes of a group of the products of two rows.
    ///
    /// # Safety
    /// A collective of the full warp.
    #[inline(always)]
    pub(super) unsafe fn product<S: Simt>(s: &S, a: &Elements<PARTS>, b: &Elements<PARTS>) -> f32 {
        let mut product = 0.0;
        Self::each_element(|part, e| product = s.fma(a[part][e], b[part][e], product));
        // SAFETY: the caller's promise.
        unsafe { butterfly::<S, LANES>(s, product, |a, b| a + b) }
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

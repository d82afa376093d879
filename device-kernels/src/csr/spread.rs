//! Rows cut into segments at places that follow from their offsets: nothing is counted, and nobody waits.
//!
//! With pieces of at most `p` entries there are at most `⌊nnz / p⌋` cuts. A row that begins at entry `b` and ends
//! before `e` may have the places
//!
//! ```text
//! segments    row + ⌊b / p⌋ ..= row + ⌊e / p⌋      one for the row, and one for each multiple of p up to which it goes
//! list        ⌊2b / 3p⌋ .. ⌊2e / 3p⌋               of rows with few slots, behind those of
//!             ⌊b / 8p⌋ .. ⌊e / 8p⌋                 rows with more than Combine::NARROW = 8
//! slots       ⌊3b / 2p⌋ .. ⌊3e / 2p⌋
//! ```
//!
//! which are enough for a row that is cut only if it has more than `3p / 2` entries: `k + 1` pieces, where
//! `k·p < e − b ≤ (k + 1)·p`, have `k + 1` segments and, as `⌊3k / 2⌋ ≥ k + 1` from `k = 2` on and `⌊3·1.5 / 2⌋ = 2`,
//! slots. A place that a row does not need says so by [`NO_ROW`].

use core::num::{NonZeroU32, NonZeroU64};

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::THREADS;
use crate::kernel::Kernel;
use crate::spmm::combine::Combine;
use crate::variant::Variant;
use crate::{NO_ROW, NO_SLOT};

/// Arguments of [`SpreadRows`].
///
/// # Obligations
/// - `row_offsets` has `rows + 1` elements and ascends from 0 to `entries`; rows and entries are below 2³¹;
/// - `0 < piece ≤` a third of 2³², and `limit ≥ piece + ⌊piece / 2⌋`;
/// - `segments` has [`segments`](Self::segments) elements and `cut_rows` has [`cut_rows`](Self::cut_rows).
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SpreadRowsParams {
    /// First entry of each row, and the end.
    pub row_offsets: GlobalPtr<u32>,
    /// `[row, begin, end, slot]`, or [`NO_ROW`] in place of the row.
    pub segments: GlobalPtr<[u32; 4]>,
    /// `[row, first_slot, count, 1]`, rows of many slots first, or [`NO_ROW`] in place of the row.
    pub cut_rows: GlobalPtr<[u32; 4]>,
    /// Rows of the matrix, those without entries too.
    pub rows: u32,
    /// Entries of the whole matrix.
    pub entries: u32,
    /// A row of more entries is cut.
    pub limit: u32,
    /// Entries of the longest piece.
    pub piece: u32,
}

impl SpreadRowsParams {
    /// Pieces of the longest kind that so many entries fill.
    #[inline(always)]
    const fn filled(&self, entries: u32) -> u32 {
        match NonZeroU32::new(self.piece) {
            Some(piece) => entries / piece.get(),
            None => 0, // it is not 0
        }
    }

    /// How many places segments have.
    #[must_use]
    pub const fn segments(&self) -> u32 {
        self.rows + self.filled(self.entries)
    }

    /// Places of rows with many slots.
    #[must_use]
    pub const fn wide_rows(&self) -> u32 {
        self.filled(self.entries) / Combine::<f32>::NARROW
    }

    /// Rows with few slots that may be cut before entry `entries`.
    #[inline(always)]
    const fn narrow_rows(&self, entries: u32) -> u32 {
        match NonZeroU32::new(3 * self.piece) {
            Some(pieces) => 2 * entries / pieces.get(),
            None => 0, // it is not 0
        }
    }

    /// Places of rows that are cut.
    #[must_use]
    pub const fn cut_rows(&self) -> u32 {
        self.wide_rows() + self.narrow_rows(self.entries)
    }

    /// Slots before those of a row that begins at entry `begin`; of the number of entries, all slots.
    #[inline(always)]
    #[must_use]
    pub const fn slots(&self, begin: u32) -> u32 {
        match NonZeroU64::new(2 * self.piece as u64) {
            Some(pieces) => (3 * begin as u64 / pieces.get()) as u32,
            None => 0, // it is not 0
        }
    }
}

/// The segments of all rows, and the list of those that are cut: a thread for each row, a warp for those of many
/// places.
pub struct SpreadRows;

/// Places of segments that a thread fills alone.
const FEW: u32 = 8;

impl Kernel for SpreadRows {
    type Params = SpreadRowsParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::SpreadRows;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SpreadRowsParams) {
        let number = s.block_idx() * THREADS + s.thread_idx();
        // SAFETY: the obligations of the params; the places of a row are its own; all lanes reach the collectives.
        unsafe {
            let exists = number < p.rows;
            let (begin, end) = match exists {
                true => {
                    (s.load_readonly(p.row_offsets.at(number)), s.load_readonly(p.row_offsets.at(number + 1)))
                }
                false => (0, 0),
            };
            let places = p.filled(end) - p.filled(begin) + 1;
            if exists && places <= FEW {
                write_places(s, p, Row { number, begin, end }, [0, 1]);
            }
            let mut left = s.ballot(places > FEW);
            while left != 0 {
                let lane = left.trailing_zeros();
                let of = |x: u32| s.shuffle(x, lane);
                let row = Row { number: of(number), begin: of(begin), end: of(end) };
                write_places(s, p, row, [s.lane(), WARP]);
                left &= left - 1;
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Row {
    number: u32,
    begin: u32,
    end: u32,
}

/// Fills the places of a row from the `first` on, every `stride`-th of each kind.
#[inline(always)]
unsafe fn write_places<S: Simt>(
    s: &S,
    p: &SpreadRowsParams,
    Row { number, begin, end }: Row,
    [first, stride]: [u32; 2],
) {
    let length = end - begin;
    let pieces = if length > p.limit { p.filled(length - 1) + 1 } else { 1 };
    // There is a piece. Products of less than 2³² are divided in 32 bits, in fewer instructions.
    let (of_pieces, in_64) =
        (NonZeroU32::new(pieces).unwrap_or(NonZeroU32::MIN), NonZeroU64::new(u64::from(pieces)));
    let in_64 = in_64.unwrap_or(NonZeroU64::MIN);
    let begin_of = |piece: u32| match length < 1 << 16 {
        true => begin + length * piece / of_pieces,
        false => begin + (u64::from(length) * u64::from(piece) / in_64) as u32,
    };
    let first_slot = if pieces > 1 { p.slots(begin) } else { 0 };
    let is_wide = pieces > Combine::<f32>::NARROW;
    let none = [NO_ROW, 0, 0, NO_SLOT];
    let listed = [number, first_slot, pieces, 1];
    // SAFETY: the places of the row, each written once.
    unsafe {
        let (before, after) = (p.filled(begin), p.filled(end));
        let mut i = first;
        while i <= after - before {
            let slot = if pieces > 1 { first_slot + i } else { NO_SLOT };
            let segment = if i < pieces { [number, begin_of(i), begin_of(i + 1), slot] } else { none };
            s.store(p.segments.at(number + before + i), segment);
            i += stride;
        }
        let (narrow, narrow_end) = (p.narrow_rows(begin), p.narrow_rows(end));
        let mut i = first;
        while i < narrow_end - narrow {
            let is_here = i == 0 && pieces > 1 && !is_wide;
            s.store(p.cut_rows.at(p.wide_rows() + narrow + i), if is_here { listed } else { none });
            i += stride;
        }
        let (before, after) = (before / Combine::<f32>::NARROW, after / Combine::<f32>::NARROW);
        let mut i = first;
        while i < after - before {
            s.store(p.cut_rows.at(before + i), if i == 0 && is_wide { listed } else { none });
            i += stride;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_room_for_their_pieces() {
        for piece in 1..40u32 {
            let limit = piece + piece / 2;
            for length in limit + 1..20 * piece {
                let p = SpreadRowsParams { piece, limit, entries: 200 * piece, ..SpreadRowsParams::zeroed() };
                let pieces = length.div_ceil(piece);
                for begin in 0..3 * piece {
                    let end = begin + length;
                    let case = format!("{begin} to {end} in pieces of {piece}");
                    assert!(pieces <= 1 + p.filled(end) - p.filled(begin), "segments, {case}");
                    assert!(pieces <= p.slots(end) - p.slots(begin), "slots, {case}");
                    assert!(p.filled(end) > p.filled(begin), "a multiple, {case}");
                    assert!(p.narrow_rows(end) > p.narrow_rows(begin), "the list, {case}");
                    let wides = [begin, end].map(|at| p.filled(at) / Combine::<f32>::NARROW);
                    assert!(pieces <= Combine::<f32>::NARROW || wides[1] > wides[0], "the wide list, {case}");
                }
            }
        }
    }
}

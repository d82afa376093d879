//! A matrix that was checked, brought to the form of row-split by one launch: its entries read, its rows cut into
//! segments at places that follow from their offsets. Nothing is counted, and nobody waits.
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
use windrow_simt::{GlobalPtr, Simt, WARP, Word};

use super::THREADS;
use super::read::{CsrRecord, ReadCsrParams, add, copies_values, index, read_value};
use crate::kernel::Kernel;
use crate::pieces::{Pieces, is_wide};
use crate::spmm::combine::Combine;
use crate::unroll::each4;
use crate::variant::Variant;
use crate::{NO_ROW, NO_SLOT};

/// Entries that a thread takes, a block's threads side by side.
const EACH: u32 = 4;

/// Arguments of [`SpreadCsr`].
///
/// # Obligations
/// - those of [`ReadCsrParams`] for `read`, with these differences: the matrix is in canonical form, `out_offsets` is
///   null, the other outputs are not, `padded` is the number of entries, and `record` may be null: then nothing is
///   found out;
/// - `0 < piece ≤` a third of 2³², and `limit ≥ piece + ⌊piece / 2⌋`;
/// - `segments` has [`segments`](Self::segments) elements and `cut_rows` has [`cut_rows`](Self::cut_rows).
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SpreadCsrParams {
    /// The matrix, and where its entries go.
    pub read: ReadCsrParams,
    /// `[row, begin, end, slot]`, or [`NO_ROW`] in place of the row.
    pub segments: GlobalPtr<[u32; 4]>,
    /// `[row, first_slot, count, 1]`, rows of many slots first, or [`NO_ROW`] in place of the row.
    pub cut_rows: GlobalPtr<[u32; 4]>,
    /// A row of more entries is cut.
    pub limit: u32,
    /// Entries of the longest piece.
    pub piece: u32,
}

impl SpreadCsrParams {
    /// Pieces of the longest kind that so many entries fill.
    #[inline(always)]
    const fn filled(&self, entries: u32) -> u32 {
        match NonZeroU32::new(self.piece) {
            Some(piece) => entries / piece.get(),
            None => 0, // it is not 0
        }
    }

    /// Pieces of a row with so many entries.
    #[inline(always)]
    const fn pieces(&self, length: u32) -> u32 {
        if length > self.limit { self.filled(length - 1) + 1 } else { 1 }
    }

    /// How many places segments have.
    #[must_use]
    pub const fn segments(&self) -> u32 {
        self.read.rows + self.filled(self.read.entries)
    }

    /// Places of rows with many slots.
    #[must_use]
    pub const fn wide_rows(&self) -> u32 {
        self.filled(self.read.entries) / Combine::<f32>::NARROW
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
        self.wide_rows() + self.narrow_rows(self.read.entries)
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

/// The entries of a matrix, the segments of all rows, and the lists of those that are cut: four entries and a row for
/// each thread, a thread for each place.
pub struct SpreadCsr;

impl SpreadCsr {
    /// What there is to do for so many rows and entries, as the kernel's division counts it.
    #[must_use]
    pub const fn units(rows: u64, entries: u64) -> u64 {
        let of_rows = rows * EACH as u64;
        if of_rows > entries { of_rows } else { entries }
    }
}

impl Kernel for SpreadCsr {
    type Params = SpreadCsrParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::SpreadCsr;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS * EACH;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SpreadCsrParams) {
        // 1. Locate.
        let first = s.block_idx() * Self::UNITS_PER_BLOCK + s.thread_idx();
        let mut found = CsrRecord::zeroed();
        // SAFETY: the obligations of the params; each entry and each row is one thread's; all lanes reach the
        // collectives.
        unsafe {
            // 2. Load, and 5. store the entries.
            copy_columns(s, &p.read, first);
            match p.read.record == GlobalPtr::NULL && copies_values(&p.read) {
                true => copy_values(s, &p.read, first),
                false => each4(|i| {
                    let at = first + i as u32 * THREADS;
                    if at < p.read.entries {
                        read_value(s, &p.read, at, &mut found);
                    }
                }),
            }
            // 3. to 5. Rows.
            spread_rows(s, p, s.block_idx() * THREADS + s.thread_idx());
            if p.read.record != GlobalPtr::NULL {
                add(s, p.read.record, found);
            }
        }
    }
}

/// The columns of a thread's entries, all loaded before the first is stored.
#[inline(always)]
unsafe fn copy_columns<S: Simt>(s: &S, p: &ReadCsrParams, first: u32) {
    let wide = p.wide_indices & ReadCsrParams::WIDE_COLUMNS != 0;
    let mut columns = [0; EACH as usize];
    // SAFETY: the obligations of the params; places are below `entries`.
    unsafe {
        each4(|i| {
            let at = first + i as u32 * THREADS;
            if at < p.entries {
                columns[i] = index(s, p.columns, at, wide) as u32;
            }
        });
        each4(|i| {
            let at = first + i as u32 * THREADS;
            if at < p.entries {
                s.store(p.out_columns.at(at), columns[i]);
            }
        });
    }
}

/// The values of a thread's entries, which are of the type that they are wanted in.
#[inline(always)]
unsafe fn copy_values<S: Simt>(s: &S, p: &ReadCsrParams, first: u32) {
    // SAFETY: the obligations of the params.
    unsafe {
        match p.given_bytes() {
            2 => copy(s, [p.values.cast::<u16>(), p.out_values.cast()], p.entries, first),
            8 => copy(s, [p.values.cast::<u64>(), p.out_values.cast()], p.entries, first),
            _ => copy(s, [p.values, p.out_values], p.entries, first),
        }
    }
}

#[inline(always)]
unsafe fn copy<T: Word, S: Simt>(s: &S, [from, to]: [GlobalPtr<T>; 2], entries: u32, first: u32) {
    let mut values = [T::zeroed(); EACH as usize];
    // SAFETY: the caller's arrays have so many elements.
    unsafe {
        each4(|i| {
            let at = first + i as u32 * THREADS;
            if at < entries {
                values[i] = s.load_readonly(from.at(at));
            }
        });
        each4(|i| {
            let at = first + i as u32 * THREADS;
            if at < entries {
                s.store(to.at(at), values[i]);
            }
        });
    }
}

/// The segments of a warp's rows, and their places in the lists.
#[inline(always)]
unsafe fn spread_rows<S: Simt>(s: &S, p: &SpreadCsrParams, number: u32) {
    let wide = p.read.wide_indices & ReadCsrParams::WIDE_OFFSETS != 0;
    // SAFETY: the obligations of the params; the places of a row are its own, each written once; all lanes reach the
    // collectives.
    unsafe {
        let exists = number < p.read.rows;
        let (begin, end) = match exists {
            true => (
                index(s, p.read.offsets, number, wide) as u32,
                index(s, p.read.offsets, number + 1, wide) as u32,
            ),
            false => (0, 0),
        };
        let row = Row { number, pieces: Pieces { begin, end, count: p.pieces(end - begin) } };
        let (first, after) = (p.filled(begin), p.filled(end));
        each_place(s, row, if exists { after - first + 1 } else { 0 }, |row, i| {
            let at = row.number + p.filled(row.pieces.begin) + i;
            s.store(p.segments.at(at), row.segment(p, i));
        });
        let (narrow, narrow_end) = (p.narrow_rows(begin), p.narrow_rows(end));
        each_place(s, row, narrow_end - narrow, |row, i| {
            let is_here = i == 0 && row.pieces.is_cut() && !is_wide(row.pieces.count);
            s.store(
                p.cut_rows.at(p.wide_rows() + p.narrow_rows(row.pieces.begin) + i),
                row.listed(p, is_here),
            );
        });
        let (first, after) = (first / Combine::<f32>::NARROW, after / Combine::<f32>::NARROW);
        each_place(s, row, after - first, |row, i| {
            let at = p.filled(row.pieces.begin) / Combine::<f32>::NARROW + i;
            s.store(p.cut_rows.at(at), row.listed(p, i == 0 && is_wide(row.pieces.count)));
        });
    }
}

/// Calls `fill` for each of the `places` of the warp's rows, of which each lane has one row, with the row and the
/// number of the place in it: a lane for each place, so that none waits for another's long row.
#[inline(always)]
unsafe fn each_place<S: Simt>(s: &S, row: Row, places: u32, mut fill: impl FnMut(Row, u32)) {
    // SAFETY: all lanes are here, and go through the loop together.
    unsafe {
        if s.ballot(places > 1) == 0 {
            if places == 1 {
                fill(row, 0);
            }
            return;
        }
        // Places of the rows up to each.
        let mut ends = places;
        let mut distance = 1;
        while distance < WARP {
            let before = s.shuffle_up(ends, distance);
            ends += if s.lane() >= distance { before } else { 0 };
            distance *= 2;
        }
        let all = s.shuffle(ends, WARP - 1);
        let mut place = s.lane();
        while place - s.lane() < all {
            // The first lane whose places end behind this one.
            let (mut lane, mut step) = (0, WARP / 2);
            while step > 0 {
                lane += if s.shuffle(ends, lane + step - 1) <= place { step } else { 0 };
                step /= 2;
            }
            let of = |x: u32| s.shuffle(x, lane);
            let (number, begin, end) = (of(row.number), of(row.pieces.begin), of(row.pieces.end));
            let count = of(row.pieces.count);
            let first = of(ends) - of(places);
            if place < all {
                fill(Row { number, pieces: Pieces { begin, end, count } }, place - first);
            }
            place += WARP;
        }
    }
}

/// A row and its pieces.
#[derive(Clone, Copy)]
struct Row {
    number: u32,
    pieces: Pieces,
}

impl Row {
    #[inline(always)]
    fn first_slot(self, p: &SpreadCsrParams) -> u32 {
        if self.pieces.is_cut() { p.slots(self.pieces.begin) } else { 0 }
    }

    /// What is in place `i` of its segments.
    #[inline(always)]
    fn segment(self, p: &SpreadCsrParams, i: u32) -> [u32; 4] {
        match i < self.pieces.count {
            true => {
                let slot = if self.pieces.is_cut() { self.first_slot(p) + i } else { NO_SLOT };
                let [begin, end] = self.pieces.range(i);
                [self.number, begin, end, slot]
            }
            false => [NO_ROW, 0, 0, NO_SLOT],
        }
    }

    /// What is in a place of a list.
    #[inline(always)]
    fn listed(self, p: &SpreadCsrParams, is_here: bool) -> [u32; 4] {
        match is_here {
            true => [self.number, self.first_slot(p), self.pieces.count, 1],
            false => [NO_ROW, 0, 0, NO_SLOT],
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
                let read = ReadCsrParams { entries: 200 * piece, ..ReadCsrParams::zeroed() };
                let p = SpreadCsrParams { read, piece, limit, ..SpreadCsrParams::zeroed() };
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

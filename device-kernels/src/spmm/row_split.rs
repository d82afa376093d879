//! `C = α·A·B + β·C` on CUDA cores, straight from CSR, long rows cut into segments.
//!
//! A *segment* is a run of one row's entries; a row that is not longer than the host's limit is one
//! segment. A group of `LANES · WAYS` lanes takes one segment. The lanes lie across the width, one
//! 16-byte vector of `B` each; the ways take every `WAYS`-th entry and are summed at the end:
//!
//! ```text
//!            lane 0     lane 1     lane 2   ...   lane LANES-1
//! way 0   B[col 0][0..8)  [8..16)  [16..24)            ...          entries 0, WAYS, 2·WAYS, ...
//! way 1   B[col 1][0..8)  [8..16)  [16..24)            ...          entries 1, WAYS+1, ...
//! ```
//!
//! [`IN_FLIGHT`] gathers per lane are issued before the first is used, or two where segments are short. A segment that
//! is its whole row writes `C`, or adds to it where tiles have multiplied other entries of the row; a piece of a longer
//! row writes its sum into a slot of the workspace, which [`combine`](crate::spmm::combine) adds in a fixed order, so
//! the result is the same in every run.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::element::{Element, Gather, Sum};
use crate::kernel::Kernel;
use crate::output::Summed;
use crate::real::Real;
use crate::spmm::dense::Dense;
use crate::variant::Variant;
use crate::{ADD_TO_C, NO_ROW, NO_SLOT};

/// Gathers that each lane has in flight.
pub const IN_FLIGHT: usize = 4;

/// Arguments of [`RowSplit`].
///
/// # Obligations
/// `segments[i] = [row, begin, end, slot]` with `begin ≤ end ≤ nnz`, or `[`[`NO_ROW`]`, 0, 0, _]`, which writes
/// nothing; rows are below m, columns below k, and `nnz ≤ 2³² − 1024`. No two segments share a slot unless
/// `dense.accumulate` is set, and a segment with [`NO_SLOT`] or [`ADD_TO_C`] is the only one of its row. What a
/// segment with [`ADD_TO_C`] is added to was written earlier in the stream, for the same columns.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct RowSplitParams {
    /// `B`, `C` and the workspace.
    pub dense: Dense,
    /// `[row, begin, end, slot]` per segment.
    pub segments: GlobalPtr<[u32; 4]>,
    /// Column of each entry.
    pub col_indices: GlobalPtr<u32>,
    /// Value of each entry, in the element type's bits.
    pub values: GlobalPtr<u32>,
    /// Segments, of which a group of lanes has one.
    pub segment_count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// One instance: how `B` is read, lanes across the width, entries side by side.
pub struct RowSplit<G, const LANES: u32, const WAYS: u32>(PhantomData<G>);

impl<G: Gather, const LANES: u32, const WAYS: u32> RowSplit<G, LANES, WAYS> {
    const VALID: () = assert!(
        LANES.is_power_of_two() && WAYS.is_power_of_two() && LANES * WAYS <= WARP,
        "a segment is handled inside one warp"
    );
    /// Whether the instance is for short segments: it has few loads in flight for each, and many segments.
    const SHORT: bool = WAYS == 1 && G::WIDTH == 8;
    /// Lanes that share a segment.
    pub const GROUP: u32 = LANES * WAYS;
    /// Segments per block: one for each group of lanes.
    pub const SEGMENTS_PER_BLOCK: u32 = Self::BLOCK_THREADS / Self::GROUP;
    /// Columns per slice of the width: one value of the grid's slow axis.
    pub const SLICE: u32 = LANES * G::WIDTH;
}

impl<G: Gather, const LANES: u32, const WAYS: u32> Kernel for RowSplit<G, LANES, WAYS> {
    type Params = RowSplitParams;
    const FILE: &'static str = "spmm/row_split";
    const VARIANT: Variant =
        Variant::RowSplit { dtype: G::Element::DTYPE, lanes: LANES, ways: WAYS, vectors: G::VECTORS };
    const BLOCK_THREADS: u32 = 256;
    const MIN_BLOCKS: u32 = if Self::SHORT { 8 } else { 0 };
    const UNITS_PER_BLOCK: u32 = Self::SEGMENTS_PER_BLOCK;
    const COLUMNS_PER_BLOCK: u32 = Self::SLICE;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &RowSplitParams) {
        const { Self::VALID }
        // 1. Locate.
        let group = s.block_idx() * Self::SEGMENTS_PER_BLOCK + s.thread_idx() / Self::GROUP;
        let lane = s.thread_idx() % LANES;
        let way = s.thread_idx() / LANES % WAYS;
        let column = s.block_idx_y() * Self::SLICE + lane * G::WIDTH;
        let active = group < p.segment_count;
        // SAFETY: `group < segment_count` where it is used; entries, slots and rows are in range by
        // the obligations of the params. All lanes of the warp reach the shuffles together.
        unsafe {
            let [row, begin, end, slot] =
                if active { s.load_readonly_once(p.segments.at(group)) } else { [0, 0, 0, NO_SLOT] };
            // 2. to 4. Gather and accumulate; lanes beyond the width have nothing to read.
            let end = if column < p.dense.n() { end } else { begin };
            let entries = Entries {
                col_indices: p.col_indices,
                values: p.values,
                begin: begin + way,
                end,
                stride: WAYS,
            };
            let mut sum = if Self::SHORT {
                accumulate_pairs::<S, G>(s, &p.dense, column, entries)
            } else {
                accumulate_entries::<S, G>(s, &p.dense, column, entries)
            };
            add_ways::<S, G, LANES, WAYS>(s, &mut sum);
            let quads = deal::<S, G, WAYS>(s, way, column, sum);
            // 5. Registers -> global.
            if active && row != NO_ROW {
                if slot >= ADD_TO_C {
                    quads.finish::<S, G>(s, &p.dense, (row, slot == ADD_TO_C));
                } else {
                    quads.keep::<S, G>(s, &p.dense, slot);
                }
            }
        }
    }
}

/// The entries that one lane walks: `begin, begin + stride, …` below `end`.
pub(crate) struct Entries {
    pub(crate) col_indices: GlobalPtr<u32>,
    pub(crate) values: GlobalPtr<u32>,
    pub(crate) begin: u32,
    pub(crate) end: u32,
    pub(crate) stride: u32,
}

/// `Σ value · B[column of entry][column..]` over the lane's entries.
///
/// Full rounds have [`IN_FLIGHT`] loads under way with no condition between them; the last round
/// masks each load, for a loop of single loads would pay a full memory latency per entry. Indices and
/// values go through L1: neighbouring entries share their lines. A masked
/// lane reads nothing and adds 0·0: a NaN or an infinity of `B` stays where `A` refers to it.
///
/// # Safety
/// `begin..end` are entries of the arrays; `column < n` unless the range is empty.
#[inline(always)]
pub(crate) unsafe fn accumulate_entries<S: Simt, G: Gather>(
    s: &S,
    dense: &Dense,
    column: u32,
    entries: Entries,
) -> [Sum<G>; 8] {
    let Entries { col_indices, values, begin, end, stride } = entries;
    let values = values.cast::<<G::Element as Element>::Bits>();
    let mut sum = [Sum::<G>::ZERO; 8];
    let mut entry = begin;
    let at = |col: u32| u64::from(col) * u64::from(dense.ldb) + u64::from(column);
    // SAFETY: every entry read is below `end`; its column is below k, so the row of `B` exists.
    unsafe {
        // Counted down rather than compared with `end`: near 2³² a sum would wrap and pass the test.
        let mut left = end.saturating_sub(begin);
        let last = (IN_FLIGHT as u32 - 1) * stride;
        while left > last {
            let mut weight = [Sum::<G>::ZERO; IN_FLIGHT];
            let mut raw = [G::ZERO; IN_FLIGHT];
            let mut u = 0;
            while u < IN_FLIGHT {
                let e = entry + u as u32 * stride;
                let col = s.load_readonly(col_indices.at(e));
                weight[u] = G::Element::widen(s, s.load_readonly(values.at(e)));
                raw[u] = G::fetch(s, dense.b, at(col));
                u += 1;
            }
            let mut u = 0;
            while u < IN_FLIGHT {
                G::accumulate(s, weight[u], raw[u], &mut sum);
                u += 1;
            }
            entry += IN_FLIGHT as u32 * stride;
            left = left.saturating_sub(IN_FLIGHT as u32 * stride);
        }
        if left > 0 {
            let mut weight = [Sum::<G>::ZERO; IN_FLIGHT];
            let mut raw = [G::ZERO; IN_FLIGHT];
            let mut u = 0;
            while u < IN_FLIGHT - 1 {
                let e = entry + u as u32 * stride;
                if u as u32 * stride < left {
                    let col = s.load_readonly(col_indices.at(e));
                    weight[u] = G::Element::widen(s, s.load_readonly(values.at(e)));
                    raw[u] = G::fetch(s, dense.b, at(col));
                }
                u += 1;
            }
            let mut u = 0;
            while u < IN_FLIGHT - 1 {
                G::accumulate(s, weight[u], raw[u], &mut sum);
                u += 1;
            }
        }
    }
    sum
}

/// [`accumulate_entries`] for segments of a few entries: two gathers in flight, and the next two entries are
/// read meanwhile. So few registers leave room for every warp that a multiprocessor holds.
///
/// # Safety
/// As for [`accumulate_entries`].
#[inline(always)]
pub(crate) unsafe fn accumulate_pairs<S: Simt, G: Gather>(
    s: &S,
    dense: &Dense,
    column: u32,
    entries: Entries,
) -> [Sum<G>; 8] {
    let Entries { col_indices, values, begin, end, stride } = entries;
    let values = values.cast::<<G::Element as Element>::Bits>();
    let mut sum = [Sum::<G>::ZERO; 8];
    let at = |col: u32| u64::from(col) * u64::from(dense.ldb) + u64::from(column);
    let mut next = begin;
    let mut left = end.saturating_sub(begin);
    // SAFETY: every entry read is below `end`; its column is below k, so the row of `B` exists.
    unsafe {
        let read = |next: u32, offset: u32, present: bool| {
            if present {
                let entry = next + offset;
                let weight = G::Element::widen(s, s.load_readonly(values.at(entry)));
                (s.load_readonly(col_indices.at(entry)), weight)
            } else {
                (0, Sum::<G>::ZERO)
            }
        };
        let mut pair = [read(next, 0, left > 0), read(next, stride, left > stride)];
        while left > 0 {
            let mut raw = [G::fetch(s, dense.b, at(pair[0].0)), G::ZERO];
            if left > stride {
                raw[1] = G::fetch(s, dense.b, at(pair[1].0));
            }
            let weight = [pair[0].1, pair[1].1];
            next = next.wrapping_add(2 * stride); // beyond the last pair it is not used
            left = left.saturating_sub(2 * stride);
            pair = [read(next, 0, left > 0), read(next, stride, left > stride)];
            G::accumulate(s, weight[0], raw[0], &mut sum);
            G::accumulate(s, weight[1], raw[1], &mut sum);
        }
    }
    sum
}

/// Sums the ways, so that every lane of a column holds the total. Group: full warp.
///
/// # Safety
/// Collective: all 32 lanes.
#[inline(always)]
unsafe fn add_ways<S: Simt, G: Gather, const LANES: u32, const WAYS: u32>(s: &S, sum: &mut [Sum<G>; 8]) {
    let mut mask = LANES;
    while mask < LANES * WAYS {
        let mut i = 0;
        while i < G::WIDTH as usize {
            // SAFETY: the caller's promise; the loop bounds are constants of the instance.
            let other = unsafe { Sum::<G>::shuffle_xor(s, sum[i], mask) };
            sum[i] = sum[i] + other;
            i += 1;
        }
        mask *= 2;
    }
}

/// What a lane stores: its sums from `column` on, four at a time, twice if there are more than four.
pub(crate) struct Quads<T> {
    first: Option<(u32, [T; 4])>,
    second: Option<(u32, [T; 4])>,
}

impl<T: Summed> Quads<T> {
    #[inline(always)]
    fn each(&self, write: impl Fn(u32, [T; 4])) {
        if let Some((column, quad)) = self.first {
            write(column, quad);
        }
        if let Some((column, quad)) = self.second {
            write(column, quad);
        }
    }

    /// # Safety
    /// As for [`Dense::finish`].
    #[inline(always)]
    pub(crate) unsafe fn finish<S: Simt, G: Gather>(&self, s: &S, dense: &Dense, row: (u32, bool)) {
        // SAFETY: the caller has these columns of a row of `C` to itself.
        self.each(|column, [a, b, c, d]| unsafe {
            match G::WIDTH {
                1 => dense.finish(s, row, column, [a]),
                2 => dense.finish(s, row, column, [a, b]),
                _ => dense.finish(s, row, column, [a, b, c, d]),
            }
        });
    }

    /// # Safety
    /// As for [`Dense::keep`].
    #[inline(always)]
    unsafe fn keep<S: Simt, G: Gather>(&self, s: &S, dense: &Dense, slot: u32) {
        // SAFETY: the caller has these columns of the slot to itself, or all only add to it.
        self.each(|column, [a, b, c, d]| unsafe {
            match G::WIDTH {
                1 => dense.keep(s, slot, column, [a]),
                2 => dense.keep(s, slot, column, [a, b]),
                _ => dense.keep(s, slot, column, [a, b, c, d]),
            }
        });
    }
}

/// Deals the sums of a lane's columns out for storing, so that every store instruction fills whole
/// 32-byte sectors: with several ways, the first takes the lower four columns and the second the
/// upper; with one, neighbouring lanes exchange halves, so that the pair stores eight neighbouring
/// columns, then the next eight. Group: full warp.
///
/// # Safety
/// Collective: all 32 lanes.
#[inline(always)]
pub(crate) unsafe fn deal<S: Simt, G: Gather, const WAYS: u32>(
    s: &S,
    way: u32,
    column: u32,
    sum: [Sum<G>; 8],
) -> Quads<Sum<G>> {
    let [a, b, c, d, e, f, g, h] = sum;
    let (lower, upper) = ([a, b, c, d], [e, f, g, h]);
    if G::WIDTH <= 4 {
        return Quads { first: (way == 0).then_some((column, lower)), second: None };
    }
    if WAYS > 1 {
        let mine = if way == 0 { (column, lower) } else { (column + 4, upper) };
        return Quads { first: (way < 2).then_some(mine), second: None };
    }
    let odd = !s.lane().is_multiple_of(2);
    // SAFETY: the caller promises that all 32 lanes are here.
    let theirs = (if odd { lower } else { upper }).map(|x| unsafe { Sum::<G>::shuffle_xor(s, x, 1) });
    let pair = column - if odd { G::WIDTH } else { 0 };
    Quads {
        first: Some(if odd { (pair + 4, theirs) } else { (pair, lower) }),
        second: Some(if odd { (pair + 12, upper) } else { (pair + 8, theirs) }),
    }
}

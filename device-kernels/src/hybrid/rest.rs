//! The entries outside of tiles as segments of rows, where a row may have others in tiles.
//!
//! As for the [segments](crate::csr::CutRows) of a whole matrix, sums of each block of rows and of the blocks before
//! each say where the rows of a block have theirs.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::THREADS;
use crate::csr::{Counts, add};
use crate::kernel::Kernel;
use crate::pieces::{Pieces, is_wide, write_pieces};
use crate::preprocess::item;
use crate::spmm::combine::ADDS;
use crate::sums::before_in_block;
use crate::unroll::each;
use crate::variant::Variant;
use crate::{ADD_TO_C, NO_SLOT};

/// Successive rows of a thread.
const EACH: usize = 4;
/// Rows of a block.
pub const REST_ROWS: u32 = THREADS * EACH as u32;
const WARPS: u32 = THREADS / WARP;
/// Where the totals of warps are, of the second of two sums.
const SECOND: u32 = 16 * WARPS;

/// Arguments of [`MeasureRest`].
///
/// # Obligations
/// - `row_offsets` has `rows + 1` ascending elements, of which the last is `entries`;
/// - `rest` and `kept` have `entries + 1` ascending elements;
/// - `found` has two elements, of which the first is 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct MeasureRestParams {
    /// Offsets of all rows of the matrix.
    pub row_offsets: GlobalPtr<u32>,
    /// Entries outside of tiles before each of the matrix.
    pub rest: GlobalPtr<u32>,
    /// Entries in tiles before each position.
    pub kept: GlobalPtr<u32>,
    /// Entries outside of tiles of the row that has most, and the number of entries in tiles.
    pub found: GlobalPtr<u64>,
    /// Rows of the matrix.
    pub rows: u32,
    /// Entries of the matrix.
    pub entries: u32,
}

/// The most entries that a row has outside of tiles: a thread for each row, and one for the end.
pub struct MeasureRest;

impl Kernel for MeasureRest {
    type Params = MeasureRestParams;
    const FILE: &'static str = "hybrid";
    const VARIANT: Variant = Variant::MeasureRest;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &MeasureRestParams) {
        let row = item(s);
        // SAFETY: the obligations of the params: offsets are at most `entries`. All lanes come to the maximum, which is
        // raised atomically.
        unsafe {
            let mut most = 0;
            if row < p.rows {
                let begin = s.load_readonly(p.rest.at(s.load_readonly(p.row_offsets.at(row))));
                most = s.load_readonly(p.rest.at(s.load_readonly(p.row_offsets.at(row + 1)))) - begin;
            }
            if row == p.rows {
                s.store(p.found.at(1), u64::from(s.load_readonly(p.kept.at(p.entries))));
            }
            let mut mask = WARP / 2;
            while mask > 0 {
                let other = s.shuffle_xor(most, mask);
                most = if other > most { other } else { most };
                mask /= 2;
            }
            if s.lane() == 0 && most > 0 {
                s.reduce_max_u64(p.found, u64::from(most));
            }
        }
    }
}

/// What the rows outside of tiles add up to.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct RestTotals {
    /// Segments of all rows together.
    pub segments: u32,
    /// Slots of the rows that are cut.
    pub slots: u32,
    /// Rows that are cut.
    pub cut: u32,
    /// Such of them as a block adds up.
    pub wide: u32,
    /// Rows that are not cut and have other entries in tiles.
    pub shared_whole: u32,
    /// Rows that have such entries.
    pub rows: u32,
    /// Rows that have other entries in tiles.
    pub in_both: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Arguments of [`CountRest`], [`SumRest`] and [`CutRest`].
///
/// # Obligations
/// - `row_offsets` and `rest_offsets` have `rows + 1` ascending elements, the row of the second no longer than that of
///   the first; `piece > 0`;
/// - `sums` has two elements for each [`REST_ROWS`] rows and what is left of them; [`SumRest`] comes after
///   [`CountRest`], and [`CutRest`] after that;
/// - for [`CutRest`], of what [`SumRest`] left in `totals`, `segments` has as many elements as there are, `cut_rows`
///   one for each row that is cut and, with `apart`, for each other that has entries in tiles; `wide_count` and
///   `cut_slots` are the counts of that name.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct RestParams {
    /// Offsets of all rows of the matrix.
    pub row_offsets: GlobalPtr<u32>,
    /// Offsets of their entries outside of tiles.
    pub rest_offsets: GlobalPtr<u32>,
    /// Of the rows of each block, then of those before it: the two halves of [`RestTotals`].
    pub sums: GlobalPtr<Counts>,
    /// The sums of all rows.
    pub totals: GlobalPtr<RestTotals>,
    /// `[row, begin, end, slot]`.
    pub segments: GlobalPtr<[u32; 4]>,
    /// `[row, first_slot, count, stride]`, rows of many slots first.
    pub cut_rows: GlobalPtr<[u32; 4]>,
    /// Rows of the matrix.
    pub rows: u32,
    /// A row of more entries is cut.
    pub limit: u32,
    /// Entries of the longest piece.
    pub piece: u32,
    /// Unless 0, the pieces of a row share one slot.
    pub shared: u32,
    /// Unless 0, rows with entries in tiles are summed apart: whole ones have a slot too.
    pub apart: u32,
    /// With `apart`, the first slot of all.
    pub first_slot: u32,
    /// Slots of the rows that are cut.
    pub cut_slots: u32,
    /// Rows of many slots.
    pub wide_count: u32,
}

/// What is left of a row outside of tiles.
#[derive(Clone, Copy)]
struct Row {
    rest: Pieces,
    /// Whether it has others in tiles.
    in_tiles: bool,
}

impl Row {
    /// A row that is none: without segments.
    const NONE: Self = Self { rest: Pieces::NONE, in_tiles: false };

    /// # Safety
    /// The obligations of the params.
    #[inline(always)]
    unsafe fn load<S: Simt>(s: &S, p: &RestParams, row: u32) -> Self {
        if row >= p.rows {
            return Self::NONE;
        }
        // SAFETY: the row exists.
        let (rest, all) = unsafe {
            let all = s.load_readonly(p.row_offsets.at(row + 1)) - s.load_readonly(p.row_offsets.at(row));
            ([s.load_readonly(p.rest_offsets.at(row)), s.load_readonly(p.rest_offsets.at(row + 1))], all)
        };
        let length = rest[1] - rest[0];
        Self { rest: Pieces::cut(rest, (p.limit, p.piece), u32::from(length > 0)), in_tiles: all > length }
    }

    /// Whether it is whole and has others in tiles.
    #[inline(always)]
    fn is_shared_whole(self) -> bool {
        self.rest.count == 1 && self.in_tiles
    }

    /// The halves of [`RestTotals`].
    #[inline(always)]
    fn counts(self, p: &RestParams) -> [Counts; 2] {
        let [slots, cut, wide] = self.rest.slot_counts(p.shared != 0);
        let (exists, in_tiles) = (self.rest.count > 0, self.in_tiles);
        [
            [self.rest.count, slots, cut, wide],
            [u32::from(self.is_shared_whole()), u32::from(exists), u32::from(exists && in_tiles), 0],
        ]
    }
}

/// The sums of each block's rows.
pub struct CountRest;

impl Kernel for CountRest {
    type Params = RestParams;
    const FILE: &'static str = "hybrid";
    const VARIANT: Variant = Variant::CountRest;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = 2 * SECOND;
    const UNITS_PER_BLOCK: u32 = REST_ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &RestParams) {
        // SAFETY: the obligations of the params; all threads reach the sums, and one stores.
        unsafe {
            let own = counts_of(p, rows_of(s, p));
            let (_, first) = before_in_block::<S, 4, WARPS>(s, own[0], 0);
            let (_, second) = before_in_block::<S, 4, WARPS>(s, own[1], SECOND);
            if s.thread_idx() == 0 {
                s.store(p.sums.at(2 * s.block_idx()), first);
                s.store(p.sums.at(2 * s.block_idx() + 1), second);
            }
        }
    }
}

/// The sums of the blocks before each, and of all: one block.
pub struct SumRest;

impl Kernel for SumRest {
    type Params = RestParams;
    const FILE: &'static str = "hybrid";
    const VARIANT: Variant = Variant::SumRest;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = 16 * WARPS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &RestParams) {
        let blocks = p.rows.div_ceil(REST_ROWS);
        // SAFETY: elements below `2·blocks`, each one thread's; all threads run the loops equally often.
        unsafe {
            let mut half = 0;
            while half < 2 {
                let (mut before, mut first) = ([0; 4], 0);
                while first < blocks {
                    let at = first + s.thread_idx();
                    let own = if at < blocks { s.load(p.sums.at(2 * at + half)) } else { [0; 4] };
                    let (mine, total) = before_in_block::<S, 4, WARPS>(s, own, 0);
                    if at < blocks {
                        s.store(p.sums.at(2 * at + half), add(before, mine));
                    }
                    before = add(before, total);
                    first += THREADS;
                    s.sync_block(); // WAR: totals of warps read -> those of the next blocks
                }
                if s.thread_idx() == 0 {
                    s.store(p.totals.cast::<Counts>().at(half), before);
                }
                half += 1;
            }
        }
    }
}

/// The segments of all rows that have entries outside of tiles, and the list of those that are cut or summed apart. A
/// thread has four rows; the pieces of a row that is cut are written by its warp.
pub struct CutRest;

impl Kernel for CutRest {
    type Params = RestParams;
    const FILE: &'static str = "hybrid";
    const VARIANT: Variant = Variant::CutRest;
    const BLOCK_THREADS: u32 = THREADS;
    // As for the segments of a whole matrix: left to itself, `ptxas` spills registers to fit one more block.
    const MIN_BLOCKS: u32 = 1;
    const SHARED_BYTES: u32 = 2 * SECOND;
    const UNITS_PER_BLOCK: u32 = REST_ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &RestParams) {
        // SAFETY: the obligations of the params; each segment and each row of the list is one lane's, and all lanes
        // reach the collectives.
        unsafe {
            let rows = rows_of(s, p);
            let own = counts_of(p, rows);
            let (mine, _) = before_in_block::<S, 4, WARPS>(s, own[0], 0);
            let mut before = add(s.load_readonly(p.sums.at(2 * s.block_idx())), mine);
            let (mine, _) = before_in_block::<S, 4, WARPS>(s, own[1], SECOND);
            let [mut whole, ..] = add(s.load_readonly(p.sums.at(2 * s.block_idx() + 1)), mine);
            let (apart, first_slot) = (p.apart != 0, if p.apart != 0 { p.first_slot } else { 0 });
            each::<EACH>(|i| {
                let (row, number) = (rows[i], first_row(s) + i as u32);
                let [first, slots_before, cuts, wides] = before;
                let stride = 1 | if row.in_tiles { ADDS } else { 0 };
                let narrow = p.wide_count + (cuts - wides) + if apart { whole } else { 0 };
                if row.rest.count == 1 {
                    let slot = match (row.in_tiles, apart) {
                        (false, _) => NO_SLOT,
                        (true, false) => ADD_TO_C,
                        (true, true) => first_slot + p.cut_slots + whole,
                    };
                    s.store(p.segments.at(first), [number, row.rest.begin, row.rest.end, slot]);
                    if row.in_tiles && apart {
                        s.store(p.cut_rows.at(narrow), [number, slot, 1, stride]);
                    }
                }
                let slots = row.rest.slots(p.shared != 0);
                if slots > 0 {
                    let at = if is_wide(slots) { wides } else { narrow };
                    s.store(p.cut_rows.at(at), [number, first_slot + slots_before, slots, stride]);
                }
                let place = [number, first, first_slot + slots_before];
                write_pieces(s, (p.segments, p.shared != 0), row.rest, place);
                before = add(before, row.counts(p)[0]);
                whole += u32::from(row.is_shared_whole());
            });
        }
    }
}

/// Number of the thread's first row.
#[inline(always)]
fn first_row<S: Simt>(s: &S) -> u32 {
    s.block_idx() * REST_ROWS + s.thread_idx() * EACH as u32
}

#[inline(always)]
unsafe fn rows_of<S: Simt>(s: &S, p: &RestParams) -> [Row; EACH] {
    let mut rows = [Row::NONE; EACH];
    // SAFETY: the caller's obligations.
    each::<EACH>(|i| rows[i] = unsafe { Row::load(s, p, first_row(s) + i as u32) });
    rows
}

#[inline(always)]
fn counts_of(p: &RestParams, rows: [Row; EACH]) -> [Counts; 2] {
    let mut counts = [[0; 4]; 2];
    each::<EACH>(|i| {
        let of_row = rows[i].counts(p);
        counts = [add(counts[0], of_row[0]), add(counts[1], of_row[1])];
    });
    counts
}

//! Rows cut into segments, as the host cuts them.
//!
//! Where a row's segments and slots are is a sum over all rows before it. Three launches find them: the sums of each
//! block of rows, the sums of the blocks before each, and then every block knows where its own begin. No block waits
//! for another; what the host must know, how many there are, comes back between the second launch and the third.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::THREADS;
use crate::NO_SLOT;
use crate::kernel::Kernel;
use crate::pieces::{Pieces, is_wide, write_pieces};
use crate::sums::before_in_block;
use crate::unroll::each;
use crate::variant::Variant;

/// Successive rows of a thread.
const EACH: usize = 4;
/// Rows of a block.
pub const CUT_ROWS: u32 = THREADS * EACH as u32;
const WARPS: u32 = THREADS / WARP;

/// What rows add up to: segments beside the first of each row, slots, rows that are cut, and such of them as a block
/// adds up.
pub(crate) type Counts = [u32; 4];

/// Arguments of [`CountCuts`], [`SumCuts`] and [`CutRows`].
///
/// # Obligations
/// - `row_offsets` has `rows + 1` ascending elements; `piece > 0`;
/// - `sums` has an element for each [`CUT_ROWS`] rows and what is left of them, or is null for [`CutRows`] alone, if no
///   row has more than `limit` entries; [`SumCuts`] comes after [`CountCuts`], and [`CutRows`] after that;
/// - for [`CutRows`], of what [`SumCuts`] left in `totals`, `segments` has `rows` elements and the first more,
///   `cut_rows` has the third, and `wide_count` is the fourth.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct CutRowsParams {
    /// First entry of each row, and the end.
    pub row_offsets: GlobalPtr<u32>,
    /// Of the rows of each block, then of those before it.
    pub sums: GlobalPtr<Counts>,
    /// Of all rows: segments beside the first of each, slots, rows that are cut, and those of many slots.
    pub totals: GlobalPtr<Counts>,
    /// `[row, begin, end, slot]`.
    pub segments: GlobalPtr<[u32; 4]>,
    /// `[row, first_slot, count, 1]`, rows of many slots first.
    pub cut_rows: GlobalPtr<[u32; 4]>,
    /// Rows of the matrix.
    pub rows: u32,
    /// A row of more entries is cut.
    pub limit: u32,
    /// Entries of the longest piece.
    pub piece: u32,
    /// Unless 0, the pieces of a row share one slot.
    pub shared: u32,
    /// Rows of many slots.
    pub wide_count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl CutRowsParams {
    /// Row `row`, of which there is a piece even if it is empty; none beyond the last.
    ///
    /// # Safety
    /// The obligations.
    #[inline(always)]
    pub(super) unsafe fn pieces_of<S: Simt>(&self, s: &S, row: u32) -> Pieces {
        if row >= self.rows {
            return Pieces::NONE;
        }
        // SAFETY: the row exists.
        let ends = unsafe {
            [s.load_readonly(self.row_offsets.at(row)), s.load_readonly(self.row_offsets.at(row + 1))]
        };
        Pieces::cut(ends, (self.limit, self.piece), 1)
    }

    #[inline(always)]
    fn counts(&self, row: Pieces) -> Counts {
        let [slots, exist, wide] = row.slot_counts(self.shared != 0);
        [row.count.saturating_sub(1), slots, exist, wide]
    }
}

/// The sums of each block's rows.
pub struct CountCuts;

impl Kernel for CountCuts {
    type Params = CutRowsParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::CountCuts;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = 16 * WARPS;
    const UNITS_PER_BLOCK: u32 = CUT_ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CutRowsParams) {
        // SAFETY: the obligations of the params; all threads reach the sums, and one stores.
        unsafe {
            let own = counts_of(p, rows_of(s, p));
            let (_, total) = before_in_block::<S, 4, WARPS>(s, own, 0);
            if s.thread_idx() == 0 {
                s.store(p.sums.at(s.block_idx()), total);
            }
        }
    }
}

/// The sums of the blocks before each, and of all: one block.
pub struct SumCuts;

impl Kernel for SumCuts {
    type Params = CutRowsParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::SumCuts;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = 16 * WARPS;
    const UNITS_PER_BLOCK: u32 = 1;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CutRowsParams) {
        let blocks = p.rows.div_ceil(CUT_ROWS);
        let (mut before, mut first) = ([0; 4], 0);
        // SAFETY: elements below `blocks`, each one thread's; all threads run the loop equally often.
        unsafe {
            while first < blocks {
                let at = first + s.thread_idx();
                let own = if at < blocks { s.load(p.sums.at(at)) } else { [0; 4] };
                let (mine, total) = before_in_block::<S, 4, WARPS>(s, own, 0);
                if at < blocks {
                    s.store(p.sums.at(at), add(before, mine));
                }
                before = add(before, total);
                first += THREADS;
                s.sync_block(); // WAR: totals of warps read -> those of the next blocks
            }
            if s.thread_idx() == 0 {
                s.store(p.totals, before);
            }
        }
    }
}

/// The segments of all rows, and the list of those that are cut. A thread has four rows; the pieces of a row that is
/// cut are written by its warp.
pub struct CutRows;

impl Kernel for CutRows {
    type Params = CutRowsParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::CutRows;
    const BLOCK_THREADS: u32 = THREADS;
    // Left to itself, `ptxas` spills a few registers to fit one more block.
    const MIN_BLOCKS: u32 = 1;
    const SHARED_BYTES: u32 = 16 * WARPS;
    const UNITS_PER_BLOCK: u32 = CUT_ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CutRowsParams) {
        // SAFETY: the obligations of the params; each segment and each row of the list is one lane's, and all lanes
        // reach the collectives.
        unsafe {
            let rows = rows_of(s, p);
            let of_blocks =
                if p.sums == GlobalPtr::NULL { [0; 4] } else { s.load_readonly(p.sums.at(s.block_idx())) };
            let (mine, _) = before_in_block::<S, 4, WARPS>(s, counts_of(p, rows), 0);
            let mut before = add(of_blocks, mine);
            each::<EACH>(|i| {
                let (row, number) = (rows[i], first_row(s) + i as u32);
                let [extra, first_slot, cuts, wides] = before;
                if row.count == 1 {
                    s.store(p.segments.at(number + extra), [number, row.begin, row.end, NO_SLOT]);
                }
                let slots = row.slots(p.shared != 0);
                if slots > 0 {
                    let at = if is_wide(slots) { wides } else { p.wide_count + (cuts - wides) };
                    s.store(p.cut_rows.at(at), [number, first_slot, slots, 1]);
                }
                write_pieces(s, (p.segments, p.shared != 0), row, [number, number + extra, first_slot]);
                before = add(before, p.counts(row));
            });
        }
    }
}

/// Number of the thread's first row.
#[inline(always)]
fn first_row<S: Simt>(s: &S) -> u32 {
    s.block_idx() * CUT_ROWS + s.thread_idx() * EACH as u32
}

#[inline(always)]
unsafe fn rows_of<S: Simt>(s: &S, p: &CutRowsParams) -> [Pieces; EACH] {
    let mut rows = [Pieces::NONE; EACH];
    // SAFETY: the caller's obligations.
    each::<EACH>(|i| rows[i] = unsafe { p.pieces_of(s, first_row(s) + i as u32) });
    rows
}

#[inline(always)]
fn counts_of(p: &CutRowsParams, rows: [Pieces; EACH]) -> Counts {
    let mut counts = [0; 4];
    each::<EACH>(|i| counts = add(counts, p.counts(rows[i])));
    counts
}

#[inline(always)]
pub(crate) fn add(a: Counts, b: Counts) -> Counts {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]]
}

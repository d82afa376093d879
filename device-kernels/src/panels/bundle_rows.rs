//! Which rows of a panel make a bundle, on the device.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::spans::{SpansParams, THREADS};
use super::{BUNDLE_ROWS, PANEL_ROWS};
use crate::kernel::Kernel;
use crate::variant::Variant;

const BUNDLES: u32 = PANEL_ROWS / BUNDLE_ROWS;
/// Threads that share the spans of a row.
const PARTS: u32 = THREADS / PANEL_ROWS;
/// Where partial counts are in shared memory, twice: those of a step are read while others write the next.
const COUNTS_BYTES: u32 = 4 * PARTS * PANEL_ROWS;
/// Where the rows are that were taken, bundle by bundle, and then the vectors of each bundle.
const TAKEN_AT: u32 = 2 * COUNTS_BYTES;
const VECTORS_AT: u32 = TAKEN_AT + 4 * PANEL_ROWS;

/// Arguments of [`BundleRows`].
///
/// # Obligations
/// - `spans`: those of [`MarkRows`](super::MarkRows), which wrote the words; no row has 2³⁰ entries; the grid has a
///   block for each panel;
/// - `slot_rows`, `panel_rows` have [`PANEL_ROWS`] elements for each panel, `counts` one; nothing overlaps what is
///   written.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct BundleRowsParams {
    /// What panels have in columns.
    pub spans: SpansParams,
    /// The row in each slot of each panel, or [`NO_ROW`](crate::NO_ROW).
    pub slot_rows: GlobalPtr<u32>,
    /// The same bundle by bundle, in the order in which warps have these.
    pub panel_rows: GlobalPtr<u32>,
    /// Distinct columns of each panel, and vectors of its bundles.
    pub counts: GlobalPtr<[u32; 2]>,
}

/// The rows of a panel in bundles, a block a panel: the longest row that is left, then thrice the one that has most
/// columns in common with what the bundle has, less what it would add. Of equals the first; rows without entries come
/// last. Each warp then has one of the bundles with more vectors and one of those with fewer.
///
/// A step takes one row. Each thread counts the columns that a row has in common with the bundle in every fourth span;
/// each warp adds the counts up and finds the best, so that a step has one barrier.
pub struct BundleRows;

impl Kernel for BundleRows {
    type Params = BundleRowsParams;
    const FILE: &'static str = "panels";
    const VARIANT: Variant = Variant::BundleRows;
    const BLOCK_THREADS: u32 = THREADS;
    // Left to itself, `ptxas` spills a few registers to fit more blocks than there are panels for.
    const MIN_BLOCKS: u32 = 1;
    const SHARED_BYTES: u32 = VECTORS_AT + 4 * BUNDLES;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &BundleRowsParams) {
        let panel = s.block_idx();
        let thread = s.thread_idx();
        // SAFETY: the obligations of the params; what decides the bounds of loops around collectives is the block's.
        unsafe {
            let begin = s.load_readonly(p.spans.panel_spans.at(panel));
            let counting = Counting {
                row: thread % PANEL_ROWS,
                first: begin + thread / PANEL_ROWS,
                end: s.load_readonly(p.spans.panel_spans.at(panel + 1)),
            };
            let lengths = counting.added(s, 0, counting.length(s, &p.spans));
            let mut turn = 1;
            let mut left = [u32::MAX; 2];
            let (mut bundle, mut vectors) = (0, 0);
            while bundle < BUNDLES {
                let mut rows = [0; BUNDLE_ROWS as usize];
                let mut in_bundle = 0;
                let mut at = 0;
                while at < BUNDLE_ROWS {
                    let mut common = [0, 0];
                    if at > 0 {
                        let of_half = if counting.row < WARP { left[0] } else { left[1] };
                        let is_left = of_half >> (counting.row % WARP) & 1 != 0;
                        let count = if is_left { counting.common(s, &p.spans, rows) } else { 0 };
                        common = counting.added(s, turn, count);
                        turn ^= 1;
                    }
                    let Best { row, gain } = best(s, left, lengths, common, at == 0);
                    in_bundle += gain;
                    left = without(left, row);
                    // The first stands for those that are not yet taken, which changes no union.
                    rows = match at {
                        0 => [row; BUNDLE_ROWS as usize],
                        1 => [rows[0], row, rows[0], rows[0]],
                        _ => [rows[0], rows[1], row, rows[0]],
                    };
                    if thread == 0 {
                        s.store_shared(TAKEN_AT + 4 * (bundle * BUNDLE_ROWS + at), row);
                    }
                    at += 1;
                }
                vectors += in_bundle;
                if thread == 0 {
                    s.store_shared(VECTORS_AT + 4 * bundle, in_bundle);
                }
                bundle += 1;
            }
            s.sync_block(); // RAW: rows and vectors written -> read
            if thread < PANEL_ROWS {
                let row: u32 = s.load_shared(TAKEN_AT + 4 * thread);
                let to = place_of(s, thread / BUNDLE_ROWS) * BUNDLE_ROWS + thread % BUNDLE_ROWS;
                let row = s.load_readonly(p.slot_rows.at(panel * PANEL_ROWS + row));
                s.store(p.panel_rows.at(panel * PANEL_ROWS + to), row);
            }
            if thread == 0 {
                let first = s.load_readonly(p.spans.panel_columns.at(panel));
                let columns = s.load_readonly(p.spans.panel_columns.at(panel + 1)) - first;
                s.store(p.counts.at(panel), [columns, vectors]);
            }
        }
    }
}

/// What a thread counts: a row, in every so many spans of its panel.
#[derive(Clone, Copy)]
struct Counting {
    row: u32,
    first: u32,
    end: u32,
}

impl Counting {
    /// # Safety
    /// As [`word`](Self::word).
    #[inline(always)]
    unsafe fn length<S: Simt>(self, s: &S, p: &SpansParams) -> u32 {
        let (mut length, mut span) = (0, self.first);
        while span < self.end {
            // SAFETY: the caller's promise; a span of the panel.
            length += unsafe { Self::word(s, p, span, self.row) }.count_ones();
            span += PARTS;
        }
        length
    }

    /// Columns that the row has in common with what the first three of these have together.
    ///
    /// # Safety
    /// As [`word`](Self::word).
    #[inline(always)]
    unsafe fn common<S: Simt>(self, s: &S, p: &SpansParams, [a, b, c, _]: [u32; 4]) -> u32 {
        let (mut common, mut span) = (0, self.first);
        while span < self.end {
            // SAFETY: the caller's promise; a span of the panel.
            unsafe {
                let of_bundle =
                    Self::word(s, p, span, a) | Self::word(s, p, span, b) | Self::word(s, p, span, c);
                common += (Self::word(s, p, span, self.row) & of_bundle).count_ones();
            }
            span += PARTS;
        }
        common
    }

    /// # Safety
    /// The span is one of the params, whose words were written.
    #[inline(always)]
    unsafe fn word<S: Simt>(s: &S, p: &SpansParams, span: u32, row: u32) -> u32 {
        let at = u64::from(span) * u64::from(PANEL_ROWS) + u64::from(row);
        // SAFETY: the caller's promise; there is a word for each row of a panel.
        unsafe { s.load_readonly(p.words.at_wide(at)) }
    }

    /// The counts of all threads for the lane's two rows, itself and the one a warp behind.
    ///
    /// # Safety
    /// The full block. Successive calls have other turns.
    #[inline(always)]
    unsafe fn added<S: Simt>(self, s: &S, turn: u32, count: u32) -> [u32; 2] {
        let at = turn * COUNTS_BYTES;
        // SAFETY: a word a thread, which nobody reads before the barrier; those of two turns before were read before
        // the barrier of the turn between.
        unsafe {
            s.store_shared(at + 4 * s.thread_idx(), count);
            s.sync_block(); // RAW: counts written -> added
            let mut sums = [0, 0];
            let mut part = 0;
            while part < PARTS {
                let from = at + 4 * (part * PANEL_ROWS + s.lane());
                sums[0] += s.load_shared::<u32>(from);
                sums[1] += s.load_shared::<u32>(from + 4 * WARP);
                part += 1;
            }
            sums
        }
    }
}

/// The row that a bundle takes, and how many columns it adds to it.
struct Best {
    row: u32,
    gain: u32,
}

/// The best of the rows that are left, of which a lane knows its own and the one a warp behind.
///
/// # Safety
/// The full warp, all lanes with the same `left`.
#[inline(always)]
unsafe fn best<S: Simt>(s: &S, left: [u32; 2], lengths: [u32; 2], common: [u32; 2], is_first: bool) -> Best {
    let key = |at: usize| {
        let is_left = left[at] >> s.lane() & 1;
        match lengths[at] {
            0 => is_left, // the least that a row may have
            _ if is_left == 0 => 0,
            length if is_first => (1 << 31) + length,
            length => (1 << 31) + 2 * common[at] - length,
        }
    };
    let added = |at: usize| lengths[at] - common[at];
    let (first, second) = (key(0), key(1));
    let (mut best, mut row) = if second > first { (second, s.lane() + WARP) } else { (first, s.lane()) };
    let mut mask = WARP / 2;
    // SAFETY: the caller's promise.
    unsafe {
        while mask > 0 {
            let (other, of_other) = (s.shuffle_xor(best, mask), s.shuffle_xor(row, mask));
            if other > best || other == best && of_other < row {
                (best, row) = (other, of_other);
            }
            mask /= 2;
        }
        let gains = [s.shuffle(added(0), row % WARP), s.shuffle(added(1), row % WARP)];
        Best { row, gain: if row < WARP { gains[0] } else { gains[1] } }
    }
}

/// The rows but for one.
#[inline(always)]
const fn without([first, second]: [u32; 2], row: u32) -> [u32; 2] {
    let bit = !(1 << (row % WARP));
    if row < WARP { [first & bit, second] } else { [first, second & bit] }
}

/// Where a bundle is among those that warps have: the one with most vectors is the first of the first warp, and so on,
/// the one with least the second of it, and so on.
///
/// # Safety
/// The vectors of all bundles were written.
#[inline(always)]
unsafe fn place_of<S: Simt>(s: &S, bundle: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        let own: u32 = s.load_shared(VECTORS_AT + 4 * bundle);
        let (mut rank, mut other) = (0, 0);
        while other < BUNDLES {
            let vectors: u32 = s.load_shared(VECTORS_AT + 4 * other);
            rank += u32::from(vectors > own || vectors == own && other < bundle);
            other += 1;
        }
        if rank < BUNDLES / 2 { 2 * rank } else { 2 * (BUNDLES - 1 - rank) + 1 }
    }
}

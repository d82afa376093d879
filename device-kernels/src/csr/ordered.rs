//! Rows in another order: their segments, and the columns of some of them.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::THREADS;
use super::segments::CutRowsParams;
use crate::kernel::Kernel;
use crate::variant::Variant;

/// Arguments of [`CountOrdered`] and [`OrderSegments`].
///
/// # Obligations
/// - `cut` is what the rows were cut by, of which `row_offsets`, `segments`, `rows`, `limit` and `piece` count here;
/// - `order` has each row once, or is null for the matrix's own order in [`CountOrdered`];
/// - `counts` has `rows` elements for [`CountOrdered`]; for [`OrderSegments`] `firsts` and `places` have one more, the
///   sums of the counts of the rows before each in the matrix's own order and in the other, or both are null if no row
///   is cut;
/// - `ordered` has as many elements as there are segments, and overlaps nothing.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct OrderSegmentsParams {
    /// How the rows were cut.
    pub cut: CutRowsParams,
    /// Row at each position.
    pub order: GlobalPtr<u32>,
    /// Segments of the row at each position.
    pub counts: GlobalPtr<u32>,
    /// The first segment of each row.
    pub firsts: GlobalPtr<u32>,
    /// The first place of the row at each position.
    pub places: GlobalPtr<u32>,
    /// The segments in the order of the rows.
    pub ordered: GlobalPtr<[u32; 4]>,
}

impl OrderSegmentsParams {
    /// The row at a position.
    #[inline(always)]
    unsafe fn row<S: Simt>(&self, s: &S, position: u32) -> u32 {
        match self.order == GlobalPtr::NULL {
            true => position,
            // SAFETY: the obligations of the params; the caller has a position below `rows`.
            false => unsafe { s.load_readonly(self.order.at(position)) },
        }
    }
}

/// How many segments the row at each position has.
pub struct CountOrdered;

impl Kernel for CountOrdered {
    type Params = OrderSegmentsParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::CountOrdered;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &OrderSegmentsParams) {
        let position = s.block_idx() * THREADS + s.thread_idx();
        if position < p.cut.rows {
            // SAFETY: the obligations of the params; an element is one thread's.
            unsafe {
                let row = p.cut.pieces_of(s, p.row(s, position));
                s.store(p.counts.at(position), row.count);
            }
        }
    }
}

/// The segments of all rows in another order: a thread for each row, a warp for one that is cut.
pub struct OrderSegments;

impl Kernel for OrderSegments {
    type Params = OrderSegmentsParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::OrderSegments;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &OrderSegmentsParams) {
        let position = s.block_idx() * THREADS + s.thread_idx();
        let (mut from, mut to, mut count) = (0, position, 0);
        // SAFETY: the obligations of the params; a place is one lane's, and all lanes reach the collectives.
        unsafe {
            if position < p.cut.rows {
                (from, count) = (p.row(s, position), 1);
                if p.places != GlobalPtr::NULL {
                    from = s.load_readonly(p.firsts.at(from));
                    to = s.load_readonly(p.places.at(position));
                    count = s.load_readonly(p.places.at(position + 1)) - to;
                }
            }
            if count == 1 {
                s.store(p.ordered.at(to), s.load_readonly(p.cut.segments.at(from)));
            }
            let mut left = s.ballot(count > 1);
            while left != 0 {
                let lane = left.trailing_zeros();
                let [from, to, count] = [s.shuffle(from, lane), s.shuffle(to, lane), s.shuffle(count, lane)];
                let mut piece = s.lane();
                while piece < count {
                    let segment = s.load_readonly(p.cut.segments.at(from + piece));
                    s.store(p.ordered.at(to + piece), segment);
                    piece += WARP;
                }
                left &= left - 1;
            }
        }
    }
}

/// Arguments of [`MarkOrdered`].
///
/// # Obligations
/// - `row_offsets` and `columns` are those of a matrix in canonical form with `cols` columns;
/// - `rows` has `count` of its rows; `marks` was zeroed and has `cols` elements; nothing overlaps `marks` and `found`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct MarkOrderedParams {
    /// First entry of each row, and the end.
    pub row_offsets: GlobalPtr<u32>,
    /// Column of each entry.
    pub columns: GlobalPtr<u32>,
    /// The rows that are looked at.
    pub rows: GlobalPtr<u32>,
    /// How many entries of theirs each column has.
    pub marks: GlobalPtr<u32>,
    /// What the number of columns that have one is added to.
    pub found: GlobalPtr<u32>,
    /// How many rows are looked at.
    pub count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Counts the distinct columns of some rows: a warp for each.
pub struct MarkOrdered;

impl Kernel for MarkOrdered {
    type Params = MarkOrderedParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::MarkOrdered;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS / WARP;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &MarkOrderedParams) {
        let number = s.block_idx() * Self::UNITS_PER_BLOCK + s.warp();
        if number >= p.count {
            return; // with its whole warp
        }
        // SAFETY: the obligations of the params; marks and the number are added to atomically.
        unsafe {
            let row = s.load_readonly(p.rows.at(number));
            let mut entry = s.load_readonly(p.row_offsets.at(row));
            let end = s.load_readonly(p.row_offsets.at(row + 1));
            let mut firsts = 0;
            while entry < end {
                let mut is_first = false;
                if s.lane() < end - entry {
                    let column = s.load_readonly(p.columns.at(entry + s.lane()));
                    is_first = s.atomic_add_u32(p.marks.at(column), 1) == 0;
                }
                firsts += s.ballot(is_first).count_ones();
                entry = if end - entry < WARP { end } else { entry + WARP };
            }
            if s.lane() == 0 && firsts > 0 {
                s.atomic_add_u32(p.found, firsts);
            }
        }
    }
}

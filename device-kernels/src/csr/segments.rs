//! Rows cut into segments as the host cuts them, and what a plan wants to know of a matrix beside its record.

use core::num::{NonZeroU32, NonZeroU64};

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::THREADS;
use crate::NO_SLOT;
use crate::kernel::Kernel;
use crate::preprocess::part_of;
use crate::spmm::combine::Combine;
use crate::variant::Variant;

/// The thread's number in the grid.
#[inline(always)]
fn item<S: Simt>(s: &S) -> u32 {
    s.block_idx() * THREADS + s.thread_idx()
}

/// Arguments of [`CountPieces`].
///
/// # Obligations
/// - `row_offsets` has `rows + 1` ascending elements, the three others have `rows`; `piece > 0`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct CountPiecesParams {
    /// First entry of each row, and the end.
    pub row_offsets: GlobalPtr<u32>,
    /// Segments of each row: 1, or more where it is cut.
    pub pieces: GlobalPtr<u32>,
    /// Slots of each row that is cut, one for each piece or one for all; 0 for the others.
    pub slots: GlobalPtr<u32>,
    /// 1 for each row of which a block adds up the sums, else 0.
    pub wide: GlobalPtr<u32>,
    /// Rows of the matrix.
    pub rows: u32,
    /// A row of more entries is cut.
    pub limit: u32,
    /// Entries of the longest piece.
    pub piece: u32,
    /// Unless 0, the pieces of a row share one slot.
    pub shared: u32,
}

/// Into how many segments each row is cut: a thread for each.
pub struct CountPieces;

impl Kernel for CountPieces {
    type Params = CountPiecesParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::CountPieces;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CountPiecesParams) {
        let row = item(s);
        // SAFETY: the obligations of the params; `row < rows` where it is used.
        unsafe {
            if row < p.rows {
                let length =
                    s.load_readonly(p.row_offsets.at(row + 1)) - s.load_readonly(p.row_offsets.at(row));
                let piece = NonZeroU32::new(p.piece).unwrap_or(NonZeroU32::MIN); // it is not 0
                let pieces = if length > p.limit { (length - 1) / piece + 1 } else { 1 };
                let slots = match pieces > 1 {
                    true if p.shared != 0 => 1,
                    true => pieces,
                    false => 0,
                };
                s.store(p.pieces.at(row), pieces);
                s.store(p.slots.at(row), slots);
                s.store(p.wide.at(row), u32::from(slots > Combine::<f32>::NARROW));
            }
        }
    }
}

/// Arguments of [`WriteSegments`].
///
/// # Obligations
/// - `row_offsets` has `rows + 1` ascending elements;
/// - no row is cut, `positions` is null and `count = rows`; or `positions`, `first_slots`, `cut_ranks` and `wide_ranks`
///   have `rows + 1` elements: the exclusive sums of what [`CountPieces`] counted, the third of its slots as flags, and
///   `count`, `cut_count`, `wide_count` are the last of the first and of the two ranks;
/// - `segments` has `count` elements, `cut_rows` has `cut_count`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct WriteSegmentsParams {
    /// First entry of each row, and the end.
    pub row_offsets: GlobalPtr<u32>,
    /// First segment of each row.
    pub positions: GlobalPtr<u32>,
    /// First slot of each row that is cut.
    pub first_slots: GlobalPtr<u32>,
    /// Rows before each that are cut.
    pub cut_ranks: GlobalPtr<u32>,
    /// Rows before each that are cut into many.
    pub wide_ranks: GlobalPtr<u32>,
    /// `[row, begin, end, slot]`.
    pub segments: GlobalPtr<[u32; 4]>,
    /// `[row, first_slot, count, 1]`, rows that are cut into many first.
    pub cut_rows: GlobalPtr<[u32; 4]>,
    /// Rows of the matrix.
    pub rows: u32,
    /// Segments of all rows.
    pub count: u32,
    /// Rows that are cut into many.
    pub wide_count: u32,
    /// Unless 0, the pieces of a row share one slot.
    pub shared: u32,
}

/// The segments of all rows, and the list of those that are cut: a thread for each segment and each row.
pub struct WriteSegments;

impl Kernel for WriteSegments {
    type Params = WriteSegmentsParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::WriteSegments;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &WriteSegmentsParams) {
        let i = item(s);
        let cut = p.positions != GlobalPtr::NULL;
        // SAFETY: the obligations of the params; each segment and each row is one thread's.
        unsafe {
            if i < p.count {
                let row = if cut { part_of(s, p.positions, p.rows, i) } else { i };
                let begin = s.load_readonly(p.row_offsets.at(row));
                let end = s.load_readonly(p.row_offsets.at(row + 1));
                let (mut from, mut to, mut slot) = (begin, end, NO_SLOT);
                if cut {
                    let first = s.load_readonly(p.positions.at(row));
                    let pieces = s.load_readonly(p.positions.at(row + 1)) - first;
                    if pieces > 1 {
                        let piece = i - first;
                        let pieces = NonZeroU64::new(u64::from(pieces)).unwrap_or(NonZeroU64::MIN);
                        let entries = u64::from(end - begin);
                        let part = |k: u32| begin + (entries * u64::from(k) / pieces) as u32;
                        (from, to) = (part(piece), part(piece + 1));
                        slot = s.load_readonly(p.first_slots.at(row)) + if p.shared != 0 { 0 } else { piece };
                    }
                }
                s.store(p.segments.at(i), [row, from, to, slot]);
            }
            if cut && i < p.rows {
                let first_slot = s.load_readonly(p.first_slots.at(i));
                let slots = s.load_readonly(p.first_slots.at(i + 1)) - first_slot;
                if slots > 0 {
                    let wide = s.load_readonly(p.wide_ranks.at(i));
                    let is_wide = s.load_readonly(p.wide_ranks.at(i + 1)) > wide;
                    let narrow = s.load_readonly(p.cut_ranks.at(i)) - wide;
                    let at = if is_wide { wide } else { p.wide_count + narrow };
                    s.store(p.cut_rows.at(at), [i, first_slot, slots, 1]);
                }
            }
        }
    }
}

/// Arguments of [`MarkColumns`].
///
/// # Obligations
/// - `columns` has `entries` elements, `row_offsets` more than `end_row`, with `first_row ≤ end_row`; `marks` was
///   zeroed and has an element for each column.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct MarkColumnsParams {
    /// First entry of each row, and the end.
    pub row_offsets: GlobalPtr<u32>,
    /// Column of each entry.
    pub columns: GlobalPtr<u32>,
    /// How many entries of the rows each column has.
    pub marks: GlobalPtr<u32>,
    /// Entries of the matrix.
    pub entries: u32,
    /// The first row.
    pub first_row: u32,
    /// Behind the last row.
    pub end_row: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The columns of successive rows: a thread for each entry of the matrix.
pub struct MarkColumns;

impl Kernel for MarkColumns {
    type Params = MarkColumnsParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::MarkColumns;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &MarkColumnsParams) {
        let entry = item(s);
        // SAFETY: the obligations of the params; marks are added to atomically.
        unsafe {
            if entry < p.entries
                && entry >= s.load_readonly(p.row_offsets.at(p.first_row))
                && entry < s.load_readonly(p.row_offsets.at(p.end_row))
            {
                s.atomic_add_u32(p.marks.at(s.load_readonly(p.columns.at(entry))), 1);
            }
        }
    }
}

/// Arguments of [`Collect`].
///
/// # Obligations
/// - `to` has an element for each of `from`; each of these is null or an element.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct CollectParams {
    /// Where each element is; null: none, which counts as 0.
    pub from: [GlobalPtr<u32>; Collect::MOST],
    /// All of them.
    pub to: GlobalPtr<u32>,
}

/// Brings elements of several arrays to one, so that one copy takes them to the host.
pub struct Collect;

impl Collect {
    /// Elements at most.
    pub const MOST: usize = 4;
}

impl Kernel for Collect {
    type Params = CollectParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::Collect;
    const BLOCK_THREADS: u32 = 32;
    const UNITS_PER_BLOCK: u32 = 32;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CollectParams) {
        // SAFETY: the obligations of the params; each element is one thread's.
        unsafe {
            let mut i = 0;
            while i < Self::MOST {
                if s.thread_idx() == i as u32 {
                    let element = if p.from[i] == GlobalPtr::NULL { 0 } else { s.load(p.from[i]) };
                    s.store(p.to.at(i as u32), element);
                }
                i += 1;
            }
        }
    }
}

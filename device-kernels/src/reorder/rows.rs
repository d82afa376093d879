//! Rows with entries, how many have each column, and what an order of them is worth.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::{THREADS, hash, item};
use crate::kernel::Kernel;
use crate::variant::Variant;

/// Rows of a window.
const WINDOW_ROWS: u32 = 8;

/// Arguments of [`ListFilled`].
///
/// # Obligations
/// - `ranks[i]`, for `i ≤ rows`, is the number of rows before `i` that have entries;
/// - `members` has `ranks[rows]` elements, `order` has `rows`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ListFilledParams {
    /// Rows with entries before each.
    pub ranks: GlobalPtr<u32>,
    /// The rows that have entries.
    pub members: GlobalPtr<u32>,
    /// The new order, of which rows without entries are the end.
    pub order: GlobalPtr<u32>,
    /// Rows of the matrix.
    pub rows: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The rows with entries, and those without at the end of the order. A thread for each row.
pub struct ListFilled;

impl Kernel for ListFilled {
    type Params = ListFilledParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::ListFilled;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ListFilledParams) {
        let row = item(s);
        if row >= p.rows {
            return;
        }
        // SAFETY: the obligations of the params; each element is one row's.
        unsafe {
            let rank = s.load_readonly(p.ranks.at(row));
            if s.load_readonly(p.ranks.at(row + 1)) > rank {
                s.store(p.members.at(rank), row);
            } else {
                s.store(p.order.at(s.load_readonly(p.ranks.at(p.rows)) + (row - rank)), row);
            }
        }
    }
}

/// Arguments of [`CountColumns`], and what says which counter is a column's.
///
/// # Obligations
/// `col_indices` has `entries` elements below `cols`; `counts` has `counters` elements, zero at first, and there are
/// `cols` of them or fewer.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct CountColumnsParams {
    /// Column of each entry.
    pub col_indices: GlobalPtr<u32>,
    /// How many entries each column has, or several columns together.
    pub counts: GlobalPtr<u32>,
    /// Entries of the matrix.
    pub entries: u32,
    /// How many counters there are.
    pub counters: u32,
    /// Columns of the matrix.
    pub cols: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl CountColumnsParams {
    /// The counter that is a column's.
    #[inline(always)]
    pub(super) fn counter(&self, column: u32) -> GlobalPtr<u32> {
        let at = match self.counters == self.cols {
            true => column,
            false => ((u64::from(hash(column)) * u64::from(self.counters)) >> 32) as u32,
        };
        self.counts.at(at)
    }
}

/// Counts the entries of columns. A thread for each entry.
pub struct CountColumns;

impl Kernel for CountColumns {
    type Params = CountColumnsParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::CountColumns;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CountColumnsParams) {
        let entry = item(s);
        if entry < p.entries {
            // SAFETY: the obligations of the params; counters are added to atomically.
            unsafe {
                let column = s.load_readonly(p.col_indices.at(entry));
                s.atomic_add_u32(p.counter(column), 1);
            }
        }
    }
}

/// Arguments of [`CountVectors`] and of [`PlaceOrder`].
///
/// # Obligations
/// - `order` has the `filled` rows with entries, each once, and perhaps others behind them; of each of these,
///   `places[order[i]] = i`, for [`PlaceOrder`] in the end;
/// - `row_offsets` and `col_indices` are those of a valid CSR of `rows` rows and `entries` entries.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct CountVectorsParams {
    /// Offsets of all rows.
    pub row_offsets: GlobalPtr<u32>,
    /// Column of each entry.
    pub col_indices: GlobalPtr<u32>,
    /// Rows with entries in an order.
    pub order: GlobalPtr<u32>,
    /// Place of each such row in it.
    pub places: GlobalPtr<u32>,
    /// Added to: the distinct columns of each window of 8 of them.
    pub total: GlobalPtr<u32>,
    /// Rows of the matrix.
    pub rows: u32,
    /// The rows that have entries.
    pub filled: u32,
    /// Entries of the matrix.
    pub entries: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The places of rows in an order. A thread for each.
pub struct PlaceOrder;

impl Kernel for PlaceOrder {
    type Params = CountVectorsParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::PlaceOrder;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CountVectorsParams) {
        let place = item(s);
        if place < p.filled {
            // SAFETY: the obligations of the params; each row has one place.
            unsafe { s.store(p.places.at(s.load_readonly(p.order.at(place))), place) };
        }
    }
}

/// Counts the distinct columns of windows: the entries whose column no row before in their window has. A thread for
/// each entry.
pub struct CountVectors;

impl Kernel for CountVectors {
    type Params = CountVectorsParams;
    const FILE: &'static str = "reorder";
    const VARIANT: Variant = Variant::CountVectors;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CountVectorsParams) {
        let entry = item(s);
        // SAFETY: the obligations of the params; all lanes reach the ballot.
        unsafe {
            let is_first = entry < p.entries && is_first(s, p, entry);
            let found = s.ballot(is_first).count_ones();
            if s.lane() == 0 && found > 0 {
                s.atomic_add_u32(p.total, found);
            }
        }
    }
}

const _: () = assert!(THREADS.is_multiple_of(WARP));

/// Whether no row before an entry's in its window has the entry's column.
///
/// # Safety
/// The obligations of the params; `entry < entries`.
#[inline(always)]
unsafe fn is_first<S: Simt>(s: &S, p: &CountVectorsParams, entry: u32) -> bool {
    // SAFETY: the caller's promise: the entry is that of a row, which has a place.
    unsafe {
        let (mut low, mut high) = (0, p.rows);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match s.load_readonly(p.row_offsets.at(middle)) <= entry {
                true => low = middle,
                false => high = middle,
            }
        }
        let column = s.load_readonly(p.col_indices.at(entry));
        let mut place = s.load_readonly(p.places.at(low));
        while !place.is_multiple_of(WINDOW_ROWS) {
            place -= 1;
            let row = s.load_readonly(p.order.at(place));
            let (mut low, end) =
                (s.load_readonly(p.row_offsets.at(row)), s.load_readonly(p.row_offsets.at(row + 1)));
            // The first entry that is not before the column.
            let mut high = end;
            while low < high {
                let middle = low + (high - low) / 2;
                match s.load_readonly(p.col_indices.at(middle)) < column {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            if low < end && s.load_readonly(p.col_indices.at(low)) == column {
                return false;
            }
        }
        true
    }
}

//! The transpose of a matrix whose entries lie range by range.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::{
    Columns, EACH, FOUND, OF_THREAD, RANGE_TILE, SHARED_BYTES, SUMS, THREADS, Tile, TransposeOut, WARPS,
    columns_of_thread, count_columns, first_column, least, place_tile,
};
use crate::kernel::Kernel;
use crate::sums::before_in_block;
use crate::unroll::each;
use crate::variant::Variant;

/// Arguments of [`CountParts`] and [`TransposeParts`].
///
/// # Obligations
/// - range `r` has the columns from `r << bits` to the next; there are `ranges ≤` [`MOST_RANGES`](super::MOST_RANGES)
///   of them, and `bits ≤` [`MOST_RANGE_BITS`](super::MOST_RANGE_BITS); bits of a column above those of the ranges'
///   numbers are left out;
/// - `totals` has the entries of each range, of the last perhaps some more; `columns`, `order` and `rows` have
///   `entries`, those of a range side by side and range after range, `order` of numbers below `entries`; `values`,
///   unless `out.values` is null, has as many of `value_bytes` bytes, 2, 4 or 8;
/// - the grid has `ranges + entries / `[`RANGE_TILE`] blocks, and `counts` 2 to the power `bits`, and four at least,
///   for each of them: for [`TransposeParts`] those that [`CountParts`] has left there;
/// - `out.offsets` has `cols + 1` elements.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct TransposePartsParams {
    /// Entries of each range.
    pub totals: GlobalPtr<u32>,
    /// Column of each entry.
    pub columns: GlobalPtr<u32>,
    /// Number of each entry.
    pub order: GlobalPtr<u32>,
    /// Row of each entry.
    pub rows: GlobalPtr<u32>,
    /// Value of each entry, by its number.
    pub values: GlobalPtr<u32>,
    /// Of blocks whose range has several: entries of each column.
    pub counts: GlobalPtr<u32>,
    /// Where the transpose goes.
    pub out: TransposeOut,
    /// Columns of the matrix.
    pub cols: u32,
    /// Entries of the matrix.
    pub entries: u32,
    /// How many ranges there are.
    pub ranges: u32,
    /// Bits of a column within its range.
    pub bits: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl TransposePartsParams {
    /// Where the counts of a block are.
    #[inline(always)]
    fn counts_of(&self, block: u32) -> GlobalPtr<u32> {
        let columns = if self.bits < 2 { 4 } else { 1 << self.bits };
        self.counts.at_wide(u64::from(block) * columns)
    }

    /// The block's part of a range; none for a block that has none. Group: block.
    #[inline(always)]
    unsafe fn locate<S: Simt>(&self, s: &S) -> Option<Part> {
        let range = s.thread_idx();
        // SAFETY: the caller has all threads here; there is a total for each range.
        unsafe {
            if range == 0 {
                s.store_shared(FOUND, [u32::MAX; 4]);
            }
            let total = if range < self.ranges { s.load_readonly(self.totals.at(range)) } else { 0 };
            // A range without entries has columns that begin somewhere.
            let parts = if range < self.ranges && total == 0 { 1 } else { total.div_ceil(RANGE_TILE) };
            let ([begin, parts_before], _) = before_in_block::<S, 2, WARPS>(s, [total, parts], SUMS);
            // The last range may seem to have some more: keys behind the end are counted with it.
            let total = least(total, self.entries - least(begin, self.entries));
            let part = s.block_idx().wrapping_sub(parts_before);
            if part < parts && (part == 0 || part * RANGE_TILE < total) {
                s.store_shared(FOUND, [range, part, begin, total]);
            }
            s.sync_block(); // RAW: found -> read
            let [range, part, begin, total]: [u32; 4] = s.load_shared(FOUND);
            match range < self.ranges {
                true => Some(Part { range, part, begin, total }),
                false => None,
            }
        }
    }

    /// The thread's columns of a part, within the range.
    #[inline(always)]
    unsafe fn columns_of<S: Simt>(&self, s: &S, part: &Part) -> [u32; EACH] {
        let mut columns = [0; EACH];
        let first = part.begin + part.part * RANGE_TILE;
        each::<EACH>(|i| {
            if Tile::at(s, i) < part.len() {
                // SAFETY: an entry of the range.
                let column = unsafe { s.load_readonly(self.columns.at(first + Tile::at(s, i))) };
                columns[i] = column & ((1 << self.bits) - 1);
            }
        });
        columns
    }
}

/// A tile of a range.
struct Part {
    range: u32,
    part: u32,
    /// The first entry of the range.
    begin: u32,
    /// Entries of the range.
    total: u32,
}

impl Part {
    /// Entries of the tile.
    #[inline(always)]
    fn len(&self) -> u32 {
        least(self.total - self.part * RANGE_TILE, RANGE_TILE)
    }

    #[inline(always)]
    fn is_alone(&self) -> bool {
        self.total <= RANGE_TILE
    }
}

/// Counts the columns of each tile, of ranges that have several.
pub struct CountParts;

impl Kernel for CountParts {
    type Params = TransposePartsParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::CountParts;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = SHARED_BYTES;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &TransposePartsParams) {
        // SAFETY: the obligations of the params; all threads of a block have the same part, or none.
        unsafe {
            let Some(part) = p.locate(s) else { return };
            if part.is_alone() {
                return;
            }
            count_columns(s, p.columns_of(s, &part), part.len(), p.bits);
            let first = first_column(s);
            if first < 1 << p.bits {
                s.store(p.counts_of(s.block_idx()).at(first).cast(), columns_of_thread(s, p.bits));
            }
        }
    }
}

/// Brings the entries of each tile to their places.
pub struct TransposeParts;

impl Kernel for TransposeParts {
    type Params = TransposePartsParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::TransposeParts;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = SHARED_BYTES;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &TransposePartsParams) {
        // SAFETY: the obligations of the params; all threads of a block have the same part, or none.
        unsafe {
            if s.block_idx() == 0 && s.thread_idx() == 0 {
                s.store(p.out.offsets.at(p.cols), u64::from(p.entries));
            }
            let Some(part) = p.locate(s) else { return };
            // 2. Global -> registers.
            let (len, first) = (part.len(), part.begin + part.part * RANGE_TILE);
            let columns = p.columns_of(s, &part);
            let (mut entries, mut rows) = ([0; EACH], [0; EACH]);
            each::<EACH>(|i| {
                if Tile::at(s, i) < len {
                    entries[i] = s.load_readonly(p.order.at(first + Tile::at(s, i)));
                    rows[i] = s.load_readonly(p.rows.at(first + Tile::at(s, i)));
                }
            });
            // 3. How many of its column come before each entry.
            let places = count_columns(s, columns, len, p.bits);
            let own = columns_of_thread(s, p.bits);
            let (mut all, mut before) = (own, [0; OF_THREAD]);
            if !part.is_alone() {
                (all, before) = of_all_parts(s, p, &part);
            }
            let range = part.range << p.bits;
            let is_counted = part.part == 0 && range < p.cols;
            let count = if is_counted { least(p.cols - range, 1 << p.bits) } else { 0 };
            let facts = Columns { all, before, begin: part.begin, first: range, count };
            let tile = Tile { columns, entries, rows, len };
            place_tile(s, (&p.out, p.values, p.value_bytes), (tile, places, p.bits), own, &facts);
        }
    }
}

/// Entries of the thread's columns in all tiles of the range, and in those before.
#[inline(always)]
unsafe fn of_all_parts<S: Simt>(
    s: &S,
    p: &TransposePartsParams,
    part: &Part,
) -> ([u32; OF_THREAD], [u32; OF_THREAD]) {
    let (mut all, mut before) = ([0; OF_THREAD], [0; OF_THREAD]);
    let first = first_column(s);
    // SAFETY: the caller's obligations: blocks of the range are side by side, and all have counted.
    unsafe {
        let mut other = 0;
        while other < part.total.div_ceil(RANGE_TILE) && first < 1 << p.bits {
            let block = s.block_idx() - part.part + other;
            let counts: [u32; OF_THREAD] = s.load_readonly(p.counts_of(block).at(first).cast());
            each::<OF_THREAD>(|i| {
                all[i] += counts[i];
                before[i] += if other < part.part { counts[i] } else { 0 };
            });
            other += 1;
        }
    }
    (all, before)
}

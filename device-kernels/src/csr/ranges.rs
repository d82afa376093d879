//! The transpose of a matrix, range of columns by range of columns.
//!
//! A block has a tile of entries of one range, in their order, and finds for each how many of its column came before:
//! lanes with one column find each other by a ballot for each of its bits, and a warp has a counter for each column,
//! as in [`sort`](crate::sort). Where a column of the range begins is a sum over those before it, so that the offsets
//! of the transpose are found on the way. Entries are brought into their order in shared memory first: what is stored
//! side by side is then side by side, as far as a column has several.
//!
//! ```text
//! few entries    TransposeFew    a block for each range, which reads all columns and takes those that are its
//! more           SortCount, SortScan, SplitEntries      entries of each range side by side
//!                CountParts      of ranges with more entries than a tile: those of each column, tile by tile
//!                TransposeParts  a block for each tile
//! ```
//!
//! Integers and fixed places: the same arrays whatever runs first, and no block waits for another.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::read::index;
use super::transpose::copy_value;
use crate::kernel::Kernel;
use crate::sums::before_in_block;
use crate::unroll::each;
use crate::variant::Variant;

const THREADS: u32 = 512;
const WARPS: u32 = THREADS / WARP;
/// Entries of a thread in a tile.
const EACH: usize = 8;
/// Successive entries of a warp in a tile.
const WARP_ENTRIES: u32 = EACH as u32 * WARP;
/// Entries of a tile.
pub const RANGE_TILE: u32 = WARPS * WARP_ENTRIES;
/// Bits of a column within its range, at most.
pub const MOST_RANGE_BITS: u32 = 11;
/// Columns of a range at most: four of a thread.
const MOST_COLUMNS: u32 = 1 << MOST_RANGE_BITS;
const OF_THREAD: usize = (MOST_COLUMNS / THREADS) as usize;
/// Ranges of [`TransposeParts`] at most: a thread finds where each begins.
pub const MOST_RANGES: u32 = THREADS;

// Shared memory, in bytes.
/// How many entries of each column a warp has seen, in 16 bits; then where its first in the tile goes.
const COUNTERS: u32 = 0; // (WARPS, MOST_COLUMNS)
// In the same place, before and after: the tile.
const ENTRIES: u32 = 0; // (RANGE_TILE)
const ROWS: u32 = ENTRIES + 4 * RANGE_TILE; // (RANGE_TILE)
const COLUMNS: u32 = ROWS + 4 * RANGE_TILE; // (RANGE_TILE), in 16 bits
/// What a place in the tile is less than that in the output, for each column.
const BASES: u32 = COUNTERS + 2 * WARPS * MOST_COLUMNS; // (MOST_COLUMNS)
/// Totals of each warp, while they are added.
const SUMS: u32 = BASES + 4 * MOST_COLUMNS; // (WARPS, 2)
/// What a block works on.
const FOUND: u32 = SUMS + 8 * WARPS; // (4)
const SHARED_BYTES: u32 = FOUND + 16;
const _: () = assert!(COLUMNS + 2 * RANGE_TILE <= BASES);

/// Where a transpose goes.
///
/// # Obligations
/// `offsets` has an element more than the matrix has columns; `order`, `rows` and, unless null, `values` have one for
/// each entry; nothing overlaps them.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct TransposeOut {
    /// Where each column begins, and the end.
    pub offsets: GlobalPtr<u64>,
    /// Which entry comes at each place.
    pub order: GlobalPtr<u32>,
    /// Row of each.
    pub rows: GlobalPtr<u32>,
    /// Value of each; null: not wanted.
    pub values: GlobalPtr<u32>,
}

/// Entries of a tile, as a thread has them: a warp's width apart.
#[derive(Clone, Copy)]
struct Tile {
    /// Column in the range.
    columns: [u32; EACH],
    entries: [u32; EACH],
    rows: [u32; EACH],
    /// Entries of the tile.
    len: u32,
}

impl Tile {
    /// The place of the thread's entry `i` in the tile.
    #[inline(always)]
    fn at<S: Simt>(s: &S, i: usize) -> u32 {
        s.warp() * WARP_ENTRIES + i as u32 * WARP + s.lane()
    }
}

/// Where the warp counts entries of a column.
#[inline(always)]
fn counter(warp: u32, column: u32) -> u32 {
    COUNTERS + 2 * (warp * MOST_COLUMNS + column)
}

/// Counts each column's entries, warp by warp; says how many of the warp's came before each.
///
/// # Safety
/// All threads of the block come here with the same `len` and `bits ≤` [`MOST_RANGE_BITS`], below which columns are;
/// counters are not in use.
#[inline(always)]
unsafe fn count_columns<S: Simt>(s: &S, columns: [u32; EACH], len: u32, bits: u32) -> [u32; EACH] {
    let mut places = [0; EACH];
    // SAFETY: the caller's promise; counters are those of the warp, four of which are a word; a warp goes through
    // entries together, or not at all.
    unsafe {
        let mut four = s.lane();
        while 4 * four < 1 << bits {
            s.store_shared(counter(s.warp(), 4 * four), 0_u64);
            four += WARP;
        }
        s.sync_warp(); // RAW: cleared -> counted
        each::<EACH>(|i| {
            if s.warp() * WARP_ENTRIES + i as u32 * WARP < len {
                let is_there = Tile::at(s, i) < len;
                let mut peers = s.ballot(is_there);
                let mut bit = 0;
                while bit < bits {
                    let is_set = columns[i] >> bit & 1 != 0;
                    let set = s.ballot(is_set);
                    peers &= if is_set { set } else { !set };
                    bit += 1;
                }
                let at = counter(s.warp(), columns[i]);
                let before: u16 = s.load_shared(at);
                let below = (peers & ((1 << s.lane()) - 1)).count_ones();
                s.sync_warp(); // WAR: read by all lanes -> counted up by one
                if is_there && below == 0 {
                    s.store_shared(at, before + peers.count_ones() as u16);
                }
                s.sync_warp(); // RAW: counted up -> read for the next entries
                places[i] = u32::from(before) + below;
            }
        });
        s.sync_block(); // RAW: counted by each warp -> added
    }
    places
}

/// Entries of the thread's four columns, of the whole block. Between barriers.
///
/// # Safety
/// After [`count_columns`] with these bits.
#[inline(always)]
unsafe fn columns_of_thread<S: Simt>(s: &S, bits: u32) -> [u32; OF_THREAD] {
    let (first, mut sum) = (first_column(s), 0_u64);
    // SAFETY: the caller's promise; no field of 16 bits exceeds the entries of a tile.
    unsafe {
        let mut warp = 0;
        while warp < WARPS && first < 1 << bits {
            let of_warp: u64 = s.load_shared(counter(warp, first));
            sum += of_warp;
            warp += 1;
        }
    }
    fields(sum)
}

/// The first of the thread's four columns.
#[inline(always)]
fn first_column<S: Simt>(s: &S) -> u32 {
    s.thread_idx() * OF_THREAD as u32
}

#[inline(always)]
fn fields(four: u64) -> [u32; OF_THREAD] {
    let mut fields = [0; OF_THREAD];
    each::<OF_THREAD>(|i| fields[i] = (four >> (16 * i)) as u32 & 0xffff);
    fields
}

/// What a tile's columns have beside it, and where they are.
struct Columns {
    /// Entries of the thread's four columns in all tiles of the range.
    all: [u32; OF_THREAD],
    /// Those in the tiles before.
    before: [u32; OF_THREAD],
    /// The first place of the range in the output.
    begin: u32,
    /// The first column of the range.
    first: u32,
    /// Columns of the range that there are; 0 for a tile that is not the first.
    count: u32,
}

/// Brings the entries of a tile to their places, and says where the columns begin.
///
/// # Safety
/// After [`count_columns`], whose result is `places`, and [`columns_of_thread`], which is `own`; all threads of the
/// block come here; places are inside the output.
#[inline(always)]
unsafe fn place_tile<S: Simt>(
    s: &S,
    (out, values, value_bytes): (&TransposeOut, GlobalPtr<u32>, u32),
    (tile, mut places, bits): (Tile, [u32; EACH], u32),
    own: [u32; OF_THREAD],
    columns: &Columns,
) {
    let first = first_column(s);
    let mut sums = [0; 2];
    each::<OF_THREAD>(|i| sums = [sums[0] + own[i], sums[1] + columns.all[i]]);
    // SAFETY: the caller's promise. Counters and bases of four columns are one thread's.
    unsafe {
        let ([mut in_tile, mut in_range], _) = before_in_block::<S, 2, WARPS>(s, sums, SUMS);
        if first < 1 << bits {
            // 3. Where each warp's entries of a column begin in the tile.
            let mut packed = 0_u64;
            each::<OF_THREAD>(|i| {
                packed |= u64::from(in_tile) << (16 * i);
                let begin = columns.begin + in_range;
                s.store_shared(
                    BASES + 4 * (first + i as u32),
                    (begin + columns.before[i]).wrapping_sub(in_tile),
                );
                if first + (i as u32) < columns.count {
                    s.store(out.offsets.at(columns.first + first + i as u32), u64::from(begin));
                }
                in_tile += own[i];
                in_range += columns.all[i];
            });
            let mut warp = 0;
            while warp < WARPS {
                let at = counter(warp, first);
                let of_warp: u64 = s.load_shared(at);
                s.store_shared(at, packed);
                packed += of_warp;
                warp += 1;
            }
        }
        s.sync_block(); // RAW: places of columns written -> read
        each::<EACH>(|i| {
            if Tile::at(s, i) < tile.len {
                let begin: u16 = s.load_shared(counter(s.warp(), tile.columns[i]));
                places[i] += u32::from(begin);
            }
        });
        s.sync_block(); // WAR: counters read -> the tile written in their place
        // 4. Registers -> shared, in the new order.
        each::<EACH>(|i| {
            if Tile::at(s, i) < tile.len {
                s.store_shared(ENTRIES + 4 * places[i], tile.entries[i]);
                s.store_shared(ROWS + 4 * places[i], tile.rows[i]);
                s.store_shared(COLUMNS + 2 * places[i], tile.columns[i] as u16);
            }
        });
        s.sync_block(); // RAW: the tile in order -> read
        // 5. Shared -> global.
        each::<EACH>(|i| {
            let at = i as u32 * THREADS + s.thread_idx();
            if at < tile.len {
                let entry: u32 = s.load_shared(ENTRIES + 4 * at);
                let row: u32 = s.load_shared(ROWS + 4 * at);
                let column: u16 = s.load_shared(COLUMNS + 2 * at);
                let base: u32 = s.load_shared(BASES + 4 * u32::from(column));
                let place = base.wrapping_add(at);
                s.store(out.order.at(place), entry);
                s.store(out.rows.at(place), row);
                if out.values != GlobalPtr::NULL {
                    copy_value(s, value_bytes, (values, entry), (out.values, place));
                }
            }
        });
        s.sync_block(); // WAR: the tile and the bases read -> another tile
    }
}

/// Arguments of [`TransposeFew`].
///
/// # Obligations
/// - `columns` has `entries` elements of `column_words` words, 1 or 2, of which the first counts; `offsets` has
///   `rows + 1`, of 8 bytes if `wide_offsets` is not 0 and of 4 otherwise; `values`, unless `out.values` is null, has
///   `entries` of `value_bytes` bytes, 2, 4 or 8; any content, but there is a row if there are entries;
/// - `range_columns` is 1 to 2 to the power [`MOST_RANGE_BITS`]; the grid has the fewest blocks of as many columns that
///   take `cols`, and one at least; no column of the grid exceeds 32 bits;
/// - `entries` and `rows` are at most [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS).
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct TransposeFewParams {
    /// First entry of each row, and the end.
    pub offsets: GlobalPtr<u32>,
    /// Column of each entry.
    pub columns: GlobalPtr<u32>,
    /// Value of each entry.
    pub values: GlobalPtr<u32>,
    /// Where the transpose goes.
    pub out: TransposeOut,
    /// Rows of the matrix.
    pub rows: u32,
    /// Columns of the matrix.
    pub cols: u32,
    /// Entries of the matrix.
    pub entries: u32,
    /// Columns of a block.
    pub range_columns: u32,
    /// Words from one column to the next.
    pub column_words: u32,
    /// Whether offsets have 8 bytes.
    pub wide_offsets: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl TransposeFewParams {
    /// The rows of some entries that there are, all looked for at a time: the last that begins at or before each.
    #[inline(always)]
    unsafe fn rows_of<S: Simt>(&self, s: &S, entries: [u32; EACH], len: u32) -> [u32; EACH] {
        let mut rows = [0; EACH];
        let mut step = 1 << (u32::BITS - self.rows.leading_zeros());
        while step > 1 {
            step /= 2;
            each::<EACH>(|i| {
                let row = rows[i] + step;
                if Tile::at(s, i) < len && row < self.rows {
                    // SAFETY: the obligations of the params.
                    let begin = unsafe { index(s, self.offsets, row, self.wide_offsets != 0) };
                    rows[i] = if begin <= u64::from(entries[i]) { row } else { rows[i] };
                }
            });
        }
        rows
    }

    /// The columns of some of the warp's entries, a warp's width apart; the greatest number for what is behind the end.
    #[inline(always)]
    unsafe fn load<S: Simt>(&self, s: &S, first: u32, end: u32) -> [u32; EACH] {
        let mut columns = [u32::MAX; EACH];
        each::<EACH>(|i| {
            let at = first + i as u32 * WARP + s.lane();
            if at < end {
                // SAFETY: the obligations of the params; `at < entries`.
                columns[i] = unsafe {
                    s.load_readonly(self.columns.at_wide(u64::from(at) * u64::from(self.column_words)))
                };
            }
        });
        columns
    }
}

/// The transpose of a matrix with few entries in one launch: every block reads all columns, twice, and takes the
/// entries of a range of them, more than a tile in turns.
pub struct TransposeFew;

impl Kernel for TransposeFew {
    type Params = TransposeFewParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::TransposeFew;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = SHARED_BYTES;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &TransposeFewParams) {
        // 1. Locate: successive entries for each warp, a range of columns for the block.
        let of_warp = p.entries.div_ceil(WARPS * WARP_ENTRIES) * WARP_ENTRIES;
        let begin = least(s.warp() * of_warp, p.entries);
        let end = least(begin + of_warp, p.entries);
        let range = s.block_idx() * p.range_columns;
        let bits = u32::BITS - (p.range_columns - 1).leading_zeros();
        // SAFETY: the obligations of the params; loops depend on what is the same for a warp, or for the block where
        // its threads meet. Places of the range's entries are those behind all of smaller columns.
        unsafe {
            // 2. How many entries are the range's, and how many come before.
            let (mut inside, mut below) = (0, 0);
            let mut at = begin;
            while at < end {
                let columns = p.load(s, at, end);
                each::<EACH>(|i| {
                    inside += u32::from(columns[i].wrapping_sub(range) < p.range_columns);
                    below += u32::from(columns[i] < range);
                });
                at += WARP_ENTRIES;
            }
            let ([before, _], [total, output]) = before_in_block::<S, 2, WARPS>(s, [inside, below], SUMS);
            let of_warps_before = s.shuffle(before, 0);
            s.sync_block(); // WAR: totals read -> other sums
            let tiles = if total == 0 { 1 } else { total.div_ceil(RANGE_TILE) };
            let mut all = [0; OF_THREAD];
            let mut seen = [0; OF_THREAD];
            // Entries of one tile are counted where they are placed; of more, all are counted first.
            let mut is_counted = tiles == 1;
            let mut tile = 0;
            while tile < tiles {
                let first = tile * RANGE_TILE;
                let len = least(total - first, RANGE_TILE);
                collect(s, p, (begin, end), (range, of_warps_before), first);
                let (columns, entries) = collected(s, len);
                let places = count_columns(s, columns, len, bits);
                let own = columns_of_thread(s, bits);
                if is_counted {
                    let of_all = if tiles == 1 { own } else { all };
                    let count =
                        if tile == 0 && range < p.cols { least(p.cols - range, p.range_columns) } else { 0 };
                    let facts = Columns { all: of_all, before: seen, begin: output, first: range, count };
                    let rows = p.rows_of(s, entries, len);
                    let tile = Tile { columns, entries, rows, len };
                    place_tile(s, (&p.out, p.values, p.value_bytes), (tile, places, bits), own, &facts);
                } else {
                    s.sync_block(); // WAR: counters read -> another tile
                }
                each::<OF_THREAD>(|i| seen[i] += own[i]);
                tile += 1;
                if tile == tiles && !is_counted {
                    (all, seen, is_counted, tile) = (seen, [0; OF_THREAD], true, 0);
                }
            }
            if s.block_idx() == 0 && s.thread_idx() == 0 {
                s.store(p.out.offsets.at(p.cols), u64::from(p.entries));
            }
        }
    }
}

/// Puts the numbers and columns of a tile of the range's entries to shared memory, in their order: those from the
/// entry of number `first` in the range on.
#[inline(always)]
unsafe fn collect<S: Simt>(
    s: &S,
    p: &TransposeFewParams,
    (begin, end): (u32, u32),
    (range, of_warps_before): (u32, u32),
    first: u32,
) {
    let (mut at, mut number) = (begin, of_warps_before);
    // SAFETY: the caller has all threads here, between barriers; each place of the tile is one entry's.
    unsafe {
        while at < end {
            let columns = p.load(s, at, end);
            each::<EACH>(|i| {
                let column = columns[i].wrapping_sub(range);
                let is_inside = column < p.range_columns && at + i as u32 * WARP + s.lane() < end;
                let inside = s.ballot(is_inside);
                let place = (number + (inside & ((1 << s.lane()) - 1)).count_ones()).wrapping_sub(first);
                if is_inside && place < RANGE_TILE {
                    s.store_shared(ENTRIES + 4 * place, at + i as u32 * WARP + s.lane());
                    s.store_shared(COLUMNS + 2 * place, column as u16);
                }
                number += inside.count_ones();
            });
            at += WARP_ENTRIES;
        }
        s.sync_block(); // RAW: collected -> read
    }
}

/// The thread's entries of what was collected: columns and numbers.
#[inline(always)]
unsafe fn collected<S: Simt>(s: &S, len: u32) -> ([u32; EACH], [u32; EACH]) {
    let (mut columns, mut entries) = ([0; EACH], [0; EACH]);
    // SAFETY: the caller has all threads here, after `collect` of as many.
    unsafe {
        each::<EACH>(|i| {
            let at = Tile::at(s, i);
            if at < len {
                let column: u16 = s.load_shared(COLUMNS + 2 * at);
                columns[i] = u32::from(column);
                entries[i] = s.load_shared(ENTRIES + 4 * at);
            }
        });
        s.sync_block(); // WAR: collected entries read -> counters in their place
    }
    (columns, entries)
}

/// Arguments of [`CountParts`] and [`TransposeParts`].
///
/// # Obligations
/// - range `r` has the columns from `r << bits` to the next; there are `ranges ≤` [`MOST_RANGES`] of them, and
///   `bits ≤` [`MOST_RANGE_BITS`]; bits of a column above those of the ranges' numbers are left out;
/// - `totals` has the entries of each range, of the last perhaps some more; `columns`, `order` and `rows` have `entries`,
///   those of a range side by side and range after range, `order` of numbers below `entries`; `values`, unless
///   `out.values` is null, has as many of `value_bytes` bytes, 2, 4 or 8;
/// - the grid has `ranges + entries / `[`RANGE_TILE`] blocks, and `counts` 2 to the power `bits`, and four at least, for
///   each of them: for [`TransposeParts`] those that [`CountParts`] has left there;
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

#[inline(always)]
fn least(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

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

mod few;
mod parts;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::transpose::copy_value;
use crate::sums::before_in_block;
use crate::unroll::each;

pub use few::{TransposeFew, TransposeFewParams};
pub use parts::{CountParts, TransposeParts, TransposePartsParams};

const THREADS: u32 = 512;
const WARPS: u32 = THREADS / WARP;
/// Entries of a thread in a tile.
const EACH: usize = 8;
/// Successive entries of a warp in a tile.
const WARP_ENTRIES: u32 = EACH as u32 * WARP;
/// Entries of a block's tile.
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
    /// Row of the entry at each place.
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
    /// How many the tile has.
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

#[inline(always)]
fn least(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

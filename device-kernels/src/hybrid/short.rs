//! Short rows by their length: what [`short_rows`](crate::spmm::short_rows) takes.

use core::num::NonZeroU32;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::THREADS;
use crate::kernel::Kernel;
use crate::preprocess::{item, part_of};
use crate::variant::Variant;

/// Arguments of [`KeyRows`].
///
/// # Obligations
/// - `row_offsets` has `rows + 1` ascending elements, `keys` has `rows`, and so has `in_tiles` unless it is null;
/// - no row outside of tiles has `tile_key` entries or more.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct KeyRowsParams {
    /// Offsets of all rows of the matrix.
    pub row_offsets: GlobalPtr<u32>,
    /// What [`JudgeRows`](super::JudgeRows) told; null: rows of more than `max_entries` entries are in tiles.
    pub in_tiles: GlobalPtr<u32>,
    /// Entries of each row outside of tiles; `tile_key` of others.
    pub keys: GlobalPtr<u32>,
    /// Rows of the matrix.
    pub rows: u32,
    /// Longer rows are in tiles.
    pub max_entries: u32,
    /// The key of a row in tiles.
    pub tile_key: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The key by which each row is sorted: a thread for each. Rows without entries are in no tiles here.
pub struct KeyRows;

impl Kernel for KeyRows {
    type Params = KeyRowsParams;
    const FILE: &'static str = "hybrid";
    const VARIANT: Variant = Variant::KeyRows;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &KeyRowsParams) {
        let row = item(s);
        // SAFETY: the obligations of the params; each key is one thread's.
        unsafe {
            if row < p.rows {
                let length =
                    s.load_readonly(p.row_offsets.at(row + 1)) - s.load_readonly(p.row_offsets.at(row));
                let in_tiles = length > 0
                    && match p.in_tiles == GlobalPtr::NULL {
                        true => length > p.max_entries,
                        false => s.load_readonly(p.in_tiles.at(row)) != 0,
                    };
                s.store(p.keys.at(row), if in_tiles { p.tile_key } else { length });
            }
        }
    }
}

/// What rows outside of tiles add up to.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct ShortTotals {
    /// Rows outside of tiles, those without entries too.
    pub rows: u32,
    /// Their entries.
    pub entries: u32,
    /// Blocks of rows of one length.
    pub blocks: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Arguments of [`MarkShort`], [`SumShort`] and [`ListShort`].
///
/// # Obligations
/// - `keys` are those of [`KeyRows`], sorted, and `rows` the rows that they are of, equal keys by ascending rows;
/// - for [`MarkShort`], `begins` and `ranks` have `count` elements, or one more;
/// - for the other two they have one more, the exclusive sums of what [`MarkShort`] wrote, of `ranks` as flags;
/// - for [`ListShort`], after [`SumShort`], `short_rows` has as many elements as rows outside of tiles are listed,
///   without entries if `empty` is not 0, `blocks` as many as there are, `col_indices` and `sources` one for each of
///   their entries; `row_offsets` and `columns` are those of the matrix;
/// - `rows_per_block > 0`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SortedRowsParams {
    /// Offsets of all rows of the matrix.
    pub row_offsets: GlobalPtr<u32>,
    /// Column of each entry of the matrix.
    pub columns: GlobalPtr<u32>,
    /// Keys of all rows, ascending.
    pub keys: GlobalPtr<u32>,
    /// The row of each key.
    pub rows: GlobalPtr<u32>,
    /// Entries of each row outside of tiles, in this order; then of those before.
    pub begins: GlobalPtr<u32>,
    /// Of each row of the matrix, whether a block begins with it; then how many begin with rows before.
    pub ranks: GlobalPtr<u32>,
    /// What they add up to.
    pub totals: GlobalPtr<ShortTotals>,
    /// The rows outside of tiles by length.
    pub short_rows: GlobalPtr<u32>,
    /// `[first row, rows, first entry, length]` of each block, by the row of the matrix that it begins with.
    pub blocks: GlobalPtr<[u32; 4]>,
    /// Column of each entry of the short rows.
    pub col_indices: GlobalPtr<u32>,
    /// Entry of the matrix for each.
    pub sources: GlobalPtr<u32>,
    /// Rows of the matrix.
    pub count: u32,
    /// How many of them have no entries.
    pub empty: u32,
    /// The key of a row in tiles.
    pub tile_key: u32,
    /// Rows of a block, at most.
    pub rows_per_block: u32,
    /// Entries of the short rows, for [`ListShort`].
    pub entries: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl SortedRowsParams {
    /// Keys below `key`.
    ///
    /// # Safety
    /// The obligations of the params.
    #[inline(always)]
    unsafe fn keys_below<S: Simt>(&self, s: &S, key: u32) -> u32 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            // SAFETY: `middle < count`.
            match unsafe { s.load_readonly(self.keys.at(middle)) } < key {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// The first position of a row that is listed: with tiles, their stream writes the rows without entries.
    ///
    /// # Safety
    /// The obligations of the params, and `count > 0`.
    #[inline(always)]
    unsafe fn first<S: Simt>(&self, s: &S) -> u32 {
        // SAFETY: the caller has a last key.
        let has_tiles = unsafe { s.load_readonly(self.keys.at(self.count - 1)) } == self.tile_key;
        if has_tiles { self.empty } else { 0 }
    }

    /// Whether a block begins at a position of rows of so many entries.
    ///
    /// # Safety
    /// The obligations of the params, and `position < count`.
    #[inline(always)]
    unsafe fn begins_block<S: Simt>(&self, s: &S, position: u32, length: u32) -> bool {
        let per_block = NonZeroU32::new(self.rows_per_block).unwrap_or(NonZeroU32::MIN); // it is not 0
        // SAFETY: the caller's promise: there is a position, so there are keys.
        unsafe {
            length < self.tile_key
                && position >= self.first(s)
                && (position - self.keys_below(s, length)) % per_block == 0
        }
    }
}

/// Where blocks begin, and how many entries each row has: a thread for each row.
pub struct MarkShort;

impl Kernel for MarkShort {
    type Params = SortedRowsParams;
    const FILE: &'static str = "hybrid";
    const VARIANT: Variant = Variant::MarkShort;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SortedRowsParams) {
        let i = item(s);
        // SAFETY: the obligations of the params; each position and each row is one thread's.
        unsafe {
            if i < p.count {
                let length = s.load_readonly(p.keys.at(i));
                s.store(p.begins.at(i), if length < p.tile_key { length } else { 0 });
                let begins = p.begins_block(s, i, length);
                s.store(p.ranks.at(s.load_readonly(p.rows.at(i))), u32::from(begins));
            }
        }
    }
}

/// What rows outside of tiles add up to: one thread.
pub struct SumShort;

impl Kernel for SumShort {
    type Params = SortedRowsParams;
    const FILE: &'static str = "hybrid";
    const VARIANT: Variant = Variant::SumShort;
    const BLOCK_THREADS: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SortedRowsParams) {
        // SAFETY: the obligations of the params: there is a sum behind the last row.
        unsafe {
            if s.thread_idx() == 0 {
                let rows = p.keys_below(s, p.tile_key);
                let entries = s.load_readonly(p.begins.at(p.count));
                let blocks = s.load_readonly(p.ranks.at(p.count));
                s.store(p.totals.cast(), [rows, entries, blocks, 0]);
            }
        }
    }
}

/// The arrays of the short rows: a thread for each row and for each entry.
pub struct ListShort;

impl Kernel for ListShort {
    type Params = SortedRowsParams;
    const FILE: &'static str = "hybrid";
    const VARIANT: Variant = Variant::ListShort;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SortedRowsParams) {
        let i = item(s);
        // SAFETY: the obligations of the params; each row, block and entry is one thread's. An entry is of the last row
        // that begins with it or before: rows without entries come first.
        unsafe {
            if i < p.count {
                let (length, row) = (s.load_readonly(p.keys.at(i)), s.load_readonly(p.rows.at(i)));
                let first = p.first(s);
                if length < p.tile_key && i >= first {
                    s.store(p.short_rows.at(i - first), row);
                }
                if p.begins_block(s, i, length) {
                    let left = p.keys_below(s, length + 1) - i;
                    let rows = if left < p.rows_per_block { left } else { p.rows_per_block };
                    let block = [i - first, rows, s.load_readonly(p.begins.at(i)), length];
                    s.store(p.blocks.at(s.load_readonly(p.ranks.at(row))), block);
                }
            }
            if i < p.entries {
                let position = part_of(s, p.begins, p.count, i);
                let row = s.load_readonly(p.rows.at(position));
                let entry =
                    s.load_readonly(p.row_offsets.at(row)) + (i - s.load_readonly(p.begins.at(position)));
                s.store(p.col_indices.at(i), s.load_readonly(p.columns.at(entry)));
                s.store(p.sources.at(i), entry);
            }
        }
    }
}

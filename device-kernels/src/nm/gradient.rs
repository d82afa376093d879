//! Kept values of N:M weights in a dense matrix, and back: what the gradients of a product need besides dense products.
//!
//! ```text
//! transposed:  D[j, i] = round(V[r, j])   if row r is kept of row i in column j, else 0        D: n × k
//! taken:       V[r, j] = round(D[i, j])   for each kept row r and column j, i = its row        D: k × n
//! ```
//!
//! A block of the first takes whole groups of rows, 256 rows at most, and 32 columns. Kept rows are read as they lie,
//! and put into rows of shared memory 33 words apart: lanes that write along columns and lanes that read along rows
//! both find 32 different banks, where the lanes of a row come from one row of the weights. Two rows of 16 bits share a
//! row of words.

use core::num::NonZeroU32;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::kernel::Kernel;
use crate::place_values::{element, is_half, load, nearest_half, nearest_word, round};
use crate::variant::Variant;

/// Most rows of a block's tile: those of the largest group.
const TILE_ROWS: u32 = 256;
/// Columns of a block's tile.
const TILE_COLUMNS: u32 = WARP;
/// Words from one row of the tile to the next.
const PITCH: u32 = TILE_COLUMNS + 1;
/// Values that a thread has in flight.
const HELD: u32 = 4;

/// Arguments of [`NmTransposed`] and [`NmTaken`].
///
/// # Obligations
/// - `kept` has `kept_rows` rows of `columns` elements, `ld_kept ≥ columns` from row to row, of the type that
///   `kept_type` is the [`code`](crate::place_values::code) of: f32, f16 or bf16;
/// - `positions` has a byte for each kept row and vector, in words of which the last may be half filled: the row's
///   position in its group, below `group_rows` and that of a row that there is, each position once in a group;
/// - `kept_rows` is `⌊rows / group_rows⌋ · group_kept + min(group_kept, rows mod group_rows)`;
///   `1 ≤ group_kept ≤ group_rows ≤ 256`; `vector ≥ 1`, `vectors = ⌈columns / vector⌉`;
/// - [`NmTransposed`]: `dense` has `columns · rows` elements of the type that `dense_type` is the code of, not f64; the
///   grid has [`blocks`](NmTransposed::blocks);
/// - [`NmTaken`]: `dense` has `rows · columns` f32; the grid has [`blocks`](NmTaken::blocks);
/// - what is written overlaps nothing else.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct NmKeptParams {
    /// Kept values, a row for each kept row.
    pub kept: GlobalPtr<u32>,
    /// Position in its group of each kept row, for each vector: bytes, row after row.
    pub positions: GlobalPtr<u16>,
    /// The dense matrix, row-major without gaps.
    pub dense: GlobalPtr<u32>,
    /// Rows of the weights.
    pub rows: u32,
    /// Columns of the weights.
    pub columns: u32,
    /// Rows that are kept.
    pub kept_rows: u32,
    /// Rows that are kept of a group.
    pub group_kept: u32,
    /// Rows of a group.
    pub group_rows: u32,
    /// Columns of a vector.
    pub vector: u32,
    /// Vectors of a row.
    pub vectors: u32,
    /// Type of the kept values.
    pub kept_type: u32,
    /// Type of the elements of `dense`.
    pub dense_type: u32,
    /// Elements from one kept row to the next.
    pub ld_kept: u32,
}

impl NmKeptParams {
    /// Groups of a tile.
    #[inline(always)]
    fn tile_groups(&self) -> u32 {
        TILE_ROWS / divisor(self.group_rows)
    }

    /// Position in its group of a kept row, in the vector of a column.
    ///
    /// # Safety
    /// The obligations of the params, and there is such a row and column.
    #[inline(always)]
    unsafe fn position<S: Simt>(&self, s: &S, kept: u32, vector: u32) -> u32 {
        let at = u64::from(kept) * u64::from(self.vectors) + u64::from(vector);
        // SAFETY: the caller's promise.
        let two = unsafe { s.load_readonly(self.positions.at_wide(at / 2)) };
        u32::from(two) >> (8 * (at % 2) as u32) & 0xff
    }

    /// A kept value.
    ///
    /// # Safety
    /// As for [`position`](Self::position).
    #[inline(always)]
    unsafe fn value<S: Simt>(&self, s: &S, kept: u32, column: u32) -> f32 {
        let at = u64::from(kept) * u64::from(self.ld_kept) + u64::from(column);
        // SAFETY: the caller's promise.
        unsafe { load(s, self.kept_type, self.kept, at) }
    }
}

/// As a divisor: it is not 0.
#[inline(always)]
fn divisor(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
}

/// The weights, dense and transposed: the kept values rounded, zero where nothing is kept.
pub struct NmTransposed;

impl NmTransposed {
    const WARPS: u32 = Self::BLOCK_THREADS / WARP;

    /// Blocks for weights of so many rows, columns, and rows of a group.
    #[must_use]
    pub const fn blocks(rows: u32, columns: u32, group_rows: u32) -> u64 {
        let tile_rows = TILE_ROWS / group_rows * group_rows;
        rows.div_ceil(tile_rows) as u64 * columns.div_ceil(TILE_COLUMNS) as u64
    }

    /// Where a row of the tile has its element of a column, in bytes: two rows of 16 bits share a word.
    #[inline(always)]
    const fn place(row: u32, column: u32, halves: bool) -> u32 {
        if halves { 4 * (row / 2 * PITCH + column) + row % 2 * 2 } else { 4 * (row * PITCH + column) }
    }

    /// Brings the kept rows `first..end` of a column, of which the first begins the tile, to their rows of it: each
    /// warp those that follow each other.
    ///
    /// # Safety
    /// The obligations of the params; there is such a column, and the tile is the block's.
    #[inline(always)]
    unsafe fn bring<S: Simt>(s: &S, p: &NmKeptParams, (first, end): (u32, u32), column: u32) {
        let (vector, per_group) = (column / divisor(p.vector), divisor(p.group_kept));
        let each = (end - first).div_ceil(Self::WARPS);
        let mut kept = first + s.warp() * each;
        let end = (kept + each).min(end);
        let (mut of_group, mut row0) =
            ((kept - first) % per_group, (kept - first) / per_group * p.group_rows);
        while kept < end {
            let mut rows = [0; HELD as usize];
            let mut values = [0.0; HELD as usize];
            // SAFETY: the caller's promise; a position is that of a row of the tile, and no two rows of a column share
            // it.
            unsafe {
                let mut i = 0;
                while i < HELD {
                    if kept + i < end {
                        rows[i as usize] = row0 + p.position(s, kept + i, vector);
                        values[i as usize] = p.value(s, kept + i, column);
                    }
                    of_group += 1;
                    if of_group == p.group_kept {
                        (of_group, row0) = (0, row0 + p.group_rows);
                    }
                    i += 1;
                }
                let mut i = 0;
                while i < HELD {
                    if kept + i < end {
                        let (row, value) = (rows[i as usize], values[i as usize]);
                        let place = Self::place(row, s.lane(), is_half(p.dense_type));
                        match is_half(p.dense_type) {
                            true => s.store_shared(place, nearest_half(s, p.dense_type, value)),
                            false => s.store_shared(place, nearest_word(s, p.dense_type, value)),
                        }
                    }
                    i += 1;
                }
            }
            kept += HELD;
        }
    }

    /// Writes a column of a tile of so many rows to `out`, elements of 16 bits two at a time where they lie in one
    /// word.
    ///
    /// # Safety
    /// The tile is written, and `out` has so many elements, which are the warp's.
    #[inline(always)]
    unsafe fn write<S: Simt>(s: &S, dtype: u32, out: GlobalPtr<u32>, (rows, column): (u32, u32)) {
        let halves = is_half(dtype);
        let (words, aligned) =
            (if halves { rows.div_ceil(2) } else { rows }, out.address().is_multiple_of(4));
        let mut word = s.lane();
        while word < words {
            // SAFETY: the caller's promise.
            unsafe {
                let bits: u32 = s.load_shared(4 * (word * PITCH + column));
                if !halves || aligned && 2 * word + 1 < rows {
                    s.store(out.at(word), bits);
                } else {
                    s.store(out.cast::<u16>().at(2 * word), bits as u16);
                    if 2 * word + 1 < rows {
                        s.store(out.cast::<u16>().at(2 * word + 1), (bits >> 16) as u16);
                    }
                }
            }
            word += WARP;
        }
    }
}

impl Kernel for NmTransposed {
    type Params = NmKeptParams;
    const FILE: &'static str = "nm/gradient";
    const VARIANT: Variant = Variant::NmTransposed;
    const BLOCK_THREADS: u32 = 256;
    const SHARED_BYTES: u32 = TILE_ROWS * PITCH * 4;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &NmKeptParams) {
        // 1. Locate: tiles of columns follow each other, as what is read does.
        let across = divisor(p.columns.div_ceil(TILE_COLUMNS));
        let (tile, column0) = (s.block_idx() / across, s.block_idx() % across * TILE_COLUMNS);
        let groups = p.tile_groups();
        let row0 = tile * groups * p.group_rows;
        let rows = (p.rows - row0).min(groups * p.group_rows);
        let first = tile * groups * p.group_kept;
        let end = (first + groups * p.group_kept).min(p.kept_rows);
        // SAFETY: the tile is in shared memory and all of it is written before the first barrier; what is read and
        // written is within the extents, by the obligations of the params.
        unsafe {
            // 2. Global -> shared: zeros, then what is kept.
            let tile_bytes = Self::place(rows.next_multiple_of(2), 0, is_half(p.dense_type));
            let mut byte = 16 * s.thread_idx();
            while byte < tile_bytes {
                s.store_shared(byte, [0u32; 4]);
                byte += 16 * Self::BLOCK_THREADS;
            }
            s.sync_block(); // WAW: zeros -> kept values
            let column = column0 + s.lane();
            if column < p.columns {
                Self::bring(s, p, (first, end), column);
            }
            s.sync_block(); // RAW: tile written -> read
            // 5. Shared -> global: a warp has a column, which is a row of the result, at a time.
            let mut of_tile = s.warp();
            while of_tile < TILE_COLUMNS && column0 + of_tile < p.columns {
                let from = u64::from(column0 + of_tile) * u64::from(p.rows) + u64::from(row0);
                let out = element(p.dense_type, p.dense, from);
                Self::write(s, p.dense_type, out, (rows, of_tile));
                of_tile += Self::WARPS;
            }
        }
    }
}

/// The elements of a dense matrix that weights keep.
pub struct NmTaken;

impl NmTaken {
    /// Columns of a block.
    const PER_BLOCK: u32 = Self::BLOCK_THREADS * HELD;

    /// Blocks for weights of so many kept rows and columns.
    #[must_use]
    pub const fn blocks(kept_rows: u32, columns: u32) -> u64 {
        kept_rows as u64 * columns.div_ceil(Self::PER_BLOCK) as u64
    }
}

impl Kernel for NmTaken {
    type Params = NmKeptParams;
    const FILE: &'static str = "nm/gradient";
    const VARIANT: Variant = Variant::NmTaken;
    const BLOCK_THREADS: u32 = 256;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &NmKeptParams) {
        // 1. Locate: a block has a piece of a kept row.
        let across = divisor(p.columns.div_ceil(Self::PER_BLOCK));
        let (kept, piece) = (s.block_idx() / across, s.block_idx() % across);
        let column = |i: u32| {
            let at = piece * Self::PER_BLOCK + i * Self::BLOCK_THREADS + s.thread_idx();
            Some(at).filter(|&at| at < p.columns)
        };
        let group0 = kept / divisor(p.group_kept) * p.group_rows;
        let vector = divisor(p.vector);
        // SAFETY: the obligations of the params; no two threads have the same element. There are no collectives.
        unsafe {
            // 2. Gather: all loads before any store.
            let mut values = [0.0f32; HELD as usize];
            let mut i = 0;
            while i < HELD {
                if let Some(column) = column(i) {
                    let row = group0 + p.position(s, kept, column / vector);
                    let at = u64::from(row) * u64::from(p.columns) + u64::from(column);
                    values[i as usize] = s.load_readonly_once(p.dense.cast::<f32>().at_wide(at));
                }
                i += 1;
            }
            // 5. Registers -> global.
            let out = element(p.kept_type, p.kept, u64::from(kept) * u64::from(p.ld_kept));
            let mut i = 0;
            while i < HELD {
                if let Some(column) = column(i) {
                    round(s, p.kept_type, out, column, values[i as usize]);
                }
                i += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;

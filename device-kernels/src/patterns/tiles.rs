//! The records of tiles of sampled products.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::THREADS;
use crate::NO_COLUMN;
use crate::kernel::Kernel;
use crate::preprocess::{item, part_of};
use crate::sddmm::{TILE_RECORD_WORDS, record_masks_at, record_starts_at, record_window_at};
use crate::spmm::tile_stream::{STEP_COLUMNS, WINDOW_ROWS};
use crate::variant::Variant;

/// What the windows of a pattern add up to. Made of zeros, and added to.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct TileCounts {
    /// Columns that are in tiles.
    pub vectors: u32,
    /// Tiles of all windows.
    pub tiles: u32,
    /// Windows that have tiles.
    pub windows: u32,
    /// Entries in tiles, where not all are.
    pub entries: u32,
}

impl TileCounts {
    /// # Safety
    /// There is such a record at `to`, to which is only added.
    #[inline(always)]
    unsafe fn add_to<S: Simt>(self, s: &S, to: GlobalPtr<Self>) {
        let to = to.cast::<u32>();
        // SAFETY: the caller's promise.
        unsafe {
            s.atomic_add_u32(to.at(0), self.vectors);
            s.atomic_add_u32(to.at(1), self.tiles);
            s.atomic_add_u32(to.at(2), self.windows);
            s.atomic_add_u32(to.at(3), self.entries);
        }
    }
}

/// Arguments of [`CountTiles`] and [`SampleTiles`].
///
/// # Obligations
/// - `window_vectors`, and for [`SampleTiles`] `vectors`, `masks` and `sources`: those of
///   [`ListVectors`](crate::preprocess::ListVectors) and [`MergeColumns`](crate::preprocess::MergeColumns) of `windows`
///   windows;
/// - `window_tiles` has an element for each window and one more; for [`SampleTiles`] they are the exclusive sums of
///   what [`CountTiles`] wrote, of which `tiles` is the last;
/// - unless `order` is null it, `kept` and `window_entries` are those of [`RankVectors`](super::RankVectors), the last
///   as its exclusive sums for [`SampleTiles`], and `places` has room for the entries of all tiles;
/// - for [`CountTiles`] `counts` was zeroed; for [`SampleTiles`] `records` has [`TILE_RECORD_WORDS`] words for each
///   tile.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SampleTilesParams {
    /// Columns of the windows before each.
    pub window_vectors: GlobalPtr<u32>,
    /// `[column, first position]` of each column of each window.
    pub vectors: GlobalPtr<[u32; 2]>,
    /// At the first position of a column: the slots that have it.
    pub masks: GlobalPtr<u32>,
    /// Entry of the pattern at each position.
    pub sources: GlobalPtr<u32>,
    /// `[vector, entries of those before]` of the vectors in tiles; null: all, as they are listed.
    pub order: GlobalPtr<[u32; 2]>,
    /// Vectors of each window that are in tiles.
    pub kept: GlobalPtr<u32>,
    /// Tiles of each window, then of those before it.
    pub window_tiles: GlobalPtr<u32>,
    /// Entries in tiles of each window, then of those before it.
    pub window_entries: GlobalPtr<u32>,
    /// The record of each tile.
    pub records: GlobalPtr<u32>,
    /// Entry of the pattern for each entry of the tiles, tile after tile and row after row.
    pub places: GlobalPtr<u32>,
    /// What all windows add up to, added to what is there.
    pub counts: GlobalPtr<TileCounts>,
    /// Number of windows with entries.
    pub windows: u32,
    /// Number of tiles of all windows.
    pub tiles: u32,
}

/// `window_tiles[w] = ⌈columns of window w in tiles / 16⌉`, a thread for each window, and what they add up to.
pub struct CountTiles;

impl Kernel for CountTiles {
    type Params = SampleTilesParams;
    const FILE: &'static str = "patterns";
    const VARIANT: Variant = Variant::CountTiles;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SampleTilesParams) {
        let window = item(s);
        // SAFETY: the obligations of the params; `window < windows` where it is used, all lanes come to the sums.
        unsafe {
            let mut own = TileCounts::default();
            if window < p.windows {
                if p.order == GlobalPtr::NULL {
                    let begin = s.load_readonly(p.window_vectors.at(window));
                    own.vectors = s.load_readonly(p.window_vectors.at(window + 1)) - begin;
                } else {
                    own.vectors = s.load_readonly(p.kept.at(window));
                    own.entries = s.load_readonly(p.window_entries.at(window));
                }
                own.tiles = own.vectors.div_ceil(STEP_COLUMNS);
                own.windows = u32::from(own.vectors > 0);
                s.store(p.window_tiles.at(window), own.tiles);
            }
            let mut half = WARP / 2;
            while half > 0 {
                own.vectors += s.shuffle_xor(own.vectors, half);
                own.tiles += s.shuffle_xor(own.tiles, half);
                own.windows += s.shuffle_xor(own.windows, half);
                own.entries += s.shuffle_xor(own.entries, half);
                half /= 2;
            }
            if s.lane() == 0 && own.tiles > 0 {
                own.add_to(s, p.counts);
            }
        }
    }
}

/// The record of each tile, a warp for each: lane `q < 16` has a column, and every lane writes a word.
pub struct SampleTiles;

impl SampleTiles {
    /// Tiles of a block.
    const TILES: u32 = THREADS / WARP;
}

impl Kernel for SampleTiles {
    type Params = SampleTilesParams;
    const FILE: &'static str = "patterns";
    const VARIANT: Variant = Variant::SampleTiles;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = Self::TILES;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SampleTilesParams) {
        // 1. Locate. A whole warp leaves or stays.
        let tile = s.block_idx() * Self::TILES + s.warp();
        if tile >= p.tiles {
            return;
        }
        // SAFETY: the obligations of the params: `tile < tiles`, a warp alone writes its record and its places.
        unsafe {
            let window = part_of(s, p.window_tiles, p.windows, tile);
            let first = (tile - s.load_readonly(p.window_tiles.at(window))) * STEP_COLUMNS;
            // 2. Global -> registers.
            let column = Column::load(s, p, window, first);
            // 3. The masks of the columns become masks of the rows: those of each row, and where it begins.
            let of_window = match p.order == GlobalPtr::NULL {
                true => 0,
                false => s.load_readonly(p.window_entries.at(window)) + column.entries_before,
            };
            let mut begin = of_window;
            let (mut row_mask, mut row_begin, mut pair) = (0, 0, 0);
            let (masks_at, starts_at) = (record_masks_at() as u32, record_starts_at() as u32);
            let mut row = 0;
            while row < WINDOW_ROWS {
                let mask = s.ballot(column.mask >> row & 1 != 0);
                if s.lane() == starts_at + row {
                    (row_mask, row_begin) = (mask, begin);
                }
                if s.lane() == masks_at + row / 2 {
                    pair |= mask << (16 * (row % 2));
                }
                if p.order != GlobalPtr::NULL && column.mask >> row & 1 != 0 {
                    let rank = (mask & ((1 << s.lane()) - 1)).count_ones();
                    s.store(p.places.at(begin + rank), column.source(s, p, row));
                }
                begin += mask.count_ones();
                row += 1;
            }
            // Where positions are entries, a row begins with the entry of its first column.
            let leader = row_mask.trailing_zeros() % WARP;
            let led = Column {
                mask: s.shuffle(column.mask, leader),
                position: s.shuffle(column.position, leader),
                ..column
            };
            if p.order == GlobalPtr::NULL {
                row_begin = if row_mask != 0 { led.source(s, p, s.lane() - starts_at) } else { 0 };
            }
            // 5. Registers -> global: a word of each lane.
            let word = if s.lane() < masks_at {
                column.index
            } else if s.lane() < starts_at {
                pair
            } else if s.lane() < starts_at + WINDOW_ROWS {
                row_begin
            } else if s.lane() == record_window_at() as u32 {
                window * WINDOW_ROWS
            } else {
                0
            };
            let at = u64::from(tile) * u64::from(TILE_RECORD_WORDS) + u64::from(s.lane());
            s.store(p.records.at_wide(at), word);
        }
    }
}

/// A lane's column of a tile.
#[derive(Clone, Copy)]
struct Column {
    /// Its number in the matrix, or [`NO_COLUMN`].
    index: u32,
    /// The rows of the window that have it.
    mask: u32,
    /// Position of its first entry.
    position: u32,
    /// Entries of the window in the tiles before; of all lanes.
    entries_before: u32,
}

impl Column {
    /// Column `first` plus the lane of those of a window that are in tiles, sixteen of them in the order of the matrix.
    ///
    /// # Safety
    /// The obligations of the params; the full warp, and the window has tiles.
    #[inline(always)]
    unsafe fn load<S: Simt>(s: &S, p: &SampleTilesParams, window: u32, first: u32) -> Self {
        // SAFETY: the caller's promise; columns are read below the window's number of them.
        unsafe {
            let begin = s.load_readonly(p.window_vectors.at(window));
            let at = first + s.lane();
            let in_tile = s.lane() < STEP_COLUMNS;
            let (mut vector, mut entries_before) = (u32::MAX, 0);
            if p.order == GlobalPtr::NULL {
                let count = s.load_readonly(p.window_vectors.at(window + 1)) - begin;
                vector = if in_tile && at < count { begin + at } else { vector };
            } else {
                if in_tile && at < s.load_readonly(p.kept.at(window)) {
                    [vector, entries_before] = s.load_readonly(p.order.at(begin + at));
                }
                entries_before = s.shuffle(entries_before, 0);
                vector = ascending(s, vector);
            }
            if vector == u32::MAX {
                return Self { index: NO_COLUMN, mask: 0, position: 0, entries_before };
            }
            let [index, position] = s.load_readonly(p.vectors.at(vector));
            Self { index, mask: s.load_readonly(p.masks.at(position)), position, entries_before }
        }
    }

    /// The entry of the pattern in a row that has the column.
    ///
    /// # Safety
    /// The obligations of the params; the row has it.
    #[inline(always)]
    unsafe fn source<S: Simt>(&self, s: &S, p: &SampleTilesParams, row: u32) -> u32 {
        let before = (self.mask & ((1 << row) - 1)).count_ones();
        // SAFETY: the entries of a column follow each other, by rows.
        unsafe { s.load_readonly(p.sources.at(self.position + before)) }
    }
}

/// The numbers of the first sixteen lanes in ascending order; no two are the same but for `u32::MAX`, which is last.
///
/// # Safety
/// The full warp.
#[inline(always)]
unsafe fn ascending<S: Simt>(s: &S, number: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        let mut rank = 0;
        let mut lane = 0;
        while lane < STEP_COLUMNS {
            rank += u32::from(s.shuffle(number, lane) < number);
            lane += 1;
        }
        let mut sorted = u32::MAX;
        let mut lane = 0;
        while lane < STEP_COLUMNS {
            let (of_lane, at) = (s.shuffle(number, lane), s.shuffle(rank, lane));
            sorted = if at == s.lane() && of_lane != u32::MAX { of_lane } else { sorted };
            lane += 1;
        }
        sorted
    }
}

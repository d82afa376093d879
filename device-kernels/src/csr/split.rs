//! Entries of a matrix divided among ranges of columns, each with its row.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::read::index;
use crate::kernel::Kernel;
use crate::sort::{
    EACH, SCATTER_BYTES, SORT_TILE, SortParams, THREADS, TILE, WARP_KEYS, begins, scatter_tile,
};
use crate::unroll::each;
use crate::variant::Variant;

/// Arguments of [`SplitEntries`].
///
/// # Obligations
/// - those of [`SortScatter`](crate::sort::SortScatter) for `sort`, whose keys are the columns and whose payloads are
///   null: what comes out is the number of each entry; `counts` is not null;
/// - `offsets` has `rows + 1` elements, of 8 bytes if `wide_offsets` is not 0 and of 4 otherwise; any content, but
///   `0 < rows ≤` [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS);
/// - `out_rows` has an element for each entry, and overlaps nothing.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SplitEntriesParams {
    /// The columns, and where they go.
    pub sort: SortParams,
    /// First entry of each row, and the end.
    pub offsets: GlobalPtr<u32>,
    /// Row of each entry, where the entry went.
    pub out_rows: GlobalPtr<u32>,
    /// Rows of the matrix.
    pub rows: u32,
    /// Whether offsets have 8 bytes.
    pub wide_offsets: u32,
}

impl SplitEntriesParams {
    /// Whether a row, which is at most `rows`, begins at or before an entry.
    #[inline(always)]
    unsafe fn begins_by<S: Simt>(&self, s: &S, row: u32, entry: u32) -> bool {
        // SAFETY: the obligations of the params.
        unsafe { index(s, self.offsets, row, self.wide_offsets != 0) <= u64::from(entry) }
    }

    /// The last row that begins at or before each of two entries, looked for at 32 places at a time. Group: warp.
    #[inline(always)]
    unsafe fn rows_of<S: Simt>(&self, s: &S, entries: [u32; 2]) -> [u32; 2] {
        let (mut low, mut high) = ([0; 2], [self.rows; 2]);
        // SAFETY: the caller has all lanes here, with the same entries; rows that are looked at are below `rows`.
        unsafe {
            while high[0] - low[0] > 1 || high[1] - low[1] > 1 {
                let mut found = [0; 2];
                let mut steps = [0; 2];
                each::<2>(|i| {
                    steps[i] = (high[i] - low[i]).div_ceil(WARP);
                    let row = low[i] + steps[i] * s.lane();
                    let is_before = s.lane() == 0 || row < high[i] && self.begins_by(s, row, entries[i]);
                    found[i] = s.ballot(is_before).count_ones() - 1;
                });
                each::<2>(|i| {
                    low[i] += steps[i] * found[i];
                    let end = low[i] + steps[i];
                    high[i] = if end < high[i] { end } else { high[i] };
                });
            }
        }
        low
    }

    /// The last row from `first` to `last` that begins at or before an entry; `first` if none does.
    #[inline(always)]
    unsafe fn row_between<S: Simt>(&self, s: &S, [first, last]: [u32; 2], entry: u32) -> u32 {
        let (mut low, mut high) = (first, last + 1);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            // SAFETY: `middle ≤ last < rows`.
            match unsafe { self.begins_by(s, middle, entry) } {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }
}

/// Brings every entry, its column and its row to the range of its column: [`SortScatter`](crate::sort::SortScatter),
/// and the rows on the way, which a warp looks for among those of its successive entries.
pub struct SplitEntries;

impl Kernel for SplitEntries {
    type Params = SplitEntriesParams;
    const FILE: &'static str = "csr";
    const VARIANT: Variant = Variant::SplitEntries;
    const BLOCK_THREADS: u32 = THREADS;
    const MIN_BLOCKS: u32 = 2;
    const SHARED_BYTES: u32 = SCATTER_BYTES;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SplitEntriesParams) {
        // 1. Locate.
        let (mut tile, end) = p.sort.keys_of(s.block_idx());
        // SAFETY: the obligations of the params; all threads of the block go through as many tiles.
        unsafe {
            let mut next = begins(s, &p.sort);
            while tile < end {
                let tile_end = if end - tile < SORT_TILE { end } else { tile + SORT_TILE };
                // 2. to 5. Columns and numbers of entries.
                let scattered = scatter_tile(s, &p.sort, (tile, tile_end), next);
                next = scattered.next;
                // 2. and 4. Rows -> shared, in the new order.
                let warp_first = tile + s.warp() * WARP_KEYS;
                if warp_first < tile_end {
                    let left = tile_end - warp_first;
                    let warp_last = warp_first + if left < WARP_KEYS { left } else { WARP_KEYS } - 1;
                    let rows = p.rows_of(s, [warp_first, warp_last]);
                    each::<EACH>(|i| {
                        let at = warp_first + i as u32 * WARP + s.lane();
                        if at < tile_end {
                            let row = p.row_between(s, rows, at);
                            s.store_shared(TILE + 4 * scattered.places[i], row);
                        }
                    });
                }
                s.sync_block(); // RAW: rows in order -> read
                // 5. Shared -> global.
                each::<EACH>(|i| {
                    let place = i as u32 * THREADS + s.thread_idx();
                    if place < tile_end - tile {
                        let row: u32 = s.load_shared(TILE + 4 * place);
                        s.store(p.out_rows.at(scattered.to[i]), row);
                    }
                });
                s.sync_block(); // WAR: rows read -> another tile
                tile += SORT_TILE;
            }
        }
    }
}

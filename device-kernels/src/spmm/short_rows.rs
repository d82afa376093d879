//! `C = α·A·B + β·C` on CUDA cores for rows of equal, small length, without a row pointer.
//!
//! The residual part of RS-Tile (RSH-SpMM, section 4): rows are grouped by their number of entries,
//! so row `i` of a block's bucket owns entries `first + i·len .. first + (i+1)·len` and no offset
//! array is read at all. Each block takes rows of one bucket; a group of `LANES` lanes takes a row,
//! 16 bytes of the width a lane, all entries of a short row in flight together. A bucket of length 0
//! lists the empty rows of `A`, which become `β·C`.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::element::{Element, Gather};
use crate::kernel::Kernel;
use crate::spmm::dense::Dense;
use crate::spmm::row_split::{Entries, accumulate_entries, accumulate_pairs, deal};
use crate::variant::Variant;

/// Arguments of [`ShortRows`].
///
/// # Obligations
/// `blocks[i] = [first_row, row_count, first_entry, len]`: positions `first_row..first_row+row_count`
/// of `rows` have `len` entries each, from `first_entry` on; no row is listed twice. Rows are below m, columns below
/// k, and `nnz ≤ 2³² − 1024`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ShortRowsParams {
    /// `B` and `C`; no row is cut, so that the workspace is not used.
    pub dense: Dense,
    /// `[first_row, row_count, first_entry, len]` per block of the grid.
    pub blocks: GlobalPtr<[u32; 4]>,
    /// Row of `C` per position.
    pub rows: GlobalPtr<u32>,
    /// Column of each entry.
    pub col_indices: GlobalPtr<u32>,
    /// Value of each entry, in the element type's bits.
    pub values: GlobalPtr<u32>,
}

/// One instance: how `B` is read, and lanes across the width.
pub struct ShortRows<G, const LANES: u32>(PhantomData<G>);

impl<G: Gather, const LANES: u32> ShortRows<G, LANES> {
    const VALID: () = assert!(LANES.is_power_of_two() && LANES <= WARP, "a row is handled inside one warp");
    /// Whether two gathers are in flight for each row, and more rows.
    const PAIRS: bool = G::WIDTH == 8;
    /// Rows that a block handles side by side.
    pub const GROUPS: u32 = Self::BLOCK_THREADS / LANES;
    /// Columns per slice of the width: one value of the grid's slow axis.
    pub const SLICE: u32 = LANES * G::WIDTH;
}

impl<G: Gather, const LANES: u32> Kernel for ShortRows<G, LANES> {
    type Params = ShortRowsParams;
    const FILE: &'static str = "spmm/short_rows";
    const VARIANT: Variant =
        Variant::ShortRows { dtype: G::Element::DTYPE, lanes: LANES, vectors: G::VECTORS };
    const BLOCK_THREADS: u32 = 256;
    // Left to itself, `ptxas` spills a few registers to fit one more block.
    const MIN_BLOCKS: u32 = 6;
    const COLUMNS_PER_BLOCK: u32 = Self::SLICE;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ShortRowsParams) {
        const { Self::VALID }
        // 1. Locate.
        let column = s.block_idx_y() * Self::SLICE + s.thread_idx() % LANES * G::WIDTH;
        // SAFETY: the grid has one block per descriptor; positions, entries and rows are in range
        // by the obligations of the params; lanes beyond the last row or the width read nothing. All
        // lanes of the block take the same number of rounds.
        unsafe {
            let [first_row, row_count, first_entry, len] = s.load_readonly(p.blocks.at(s.block_idx()));
            let mut round = 0;
            while round < row_count {
                let position = round + s.thread_idx() / LANES;
                let active = position < row_count;
                let row = if active { s.load_readonly_once(p.rows.at(first_row + position)) } else { 0 };
                // 2. to 4. Gather and accumulate.
                let begin = if active { first_entry + position * len } else { 0 };
                let end = if active && column < p.dense.n() { begin + len } else { begin };
                let entries = Entries { col_indices: p.col_indices, values: p.values, begin, end, stride: 1 };
                let sum = if Self::PAIRS {
                    accumulate_pairs::<S, G>(s, &p.dense, column, entries)
                } else {
                    accumulate_entries::<S, G>(s, &p.dense, column, entries)
                };
                let quads = deal::<S, G, 1>(s, 0, column, sum);
                // 5. Registers -> global.
                if active {
                    quads.finish::<S, G>(s, &p.dense, (row, false));
                }
                round += Self::GROUPS;
            }
        }
    }
}

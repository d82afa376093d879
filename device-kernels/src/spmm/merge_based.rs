//! `C = α·A·B + β·C` straight from CSR as somebody else keeps it: nothing is made beforehand, and whatever
//! the arrays hold, no access leaves them.
//!
//! After *Design Principles for Sparse Matrix Multiplication on the GPU* (Yang, Buluç and Owens, Euro-Par 2018), whose
//! merge-based SpMM shares out the entries and the ends of rows evenly: with the entries of each row before its end,
//! they make one list of `m + nnz` items. A block takes `span` successive ones, which it finds by a search among the
//! offsets, and brings columns, values and ends of rows to shared memory, where it checks them. Its groups of `LANES`
//! lanes, which lie across the width, take equal shares of these:
//!
//! ```text
//! items     e e e | e e e end | end e e | e e e …        a group's share: bars; rows begin and end anywhere
//! group       0         1          2        3
//! row 0     tail      head                               the tail waits in registers, heads in shared memory
//! row 2                           tail     head
//! ```
//!
//! A row within a share is finished at once. Of one that goes on, the group in which it begins adds what the next
//! groups have, in their order. A row that goes on in the next block has its sums in the workspace, one row of it for
//! the block in which the row begins and one for each in which it goes on, which [`CarriedRows`] adds, in order, too:
//! the result is the same in every run.

mod block;
mod carried;
mod shares;

use core::num::NonZeroU32;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

pub use carried::CarriedRows;
pub use shares::MergeBased;

use crate::csr::{ReadCsrParams, index};
use crate::spmm::dense::Dense;

/// Most items of a block.
pub const MOST_SPAN: u32 = 1024;
/// Threads of a block.
const THREADS: u32 = 256;
/// Warps of a block.
const WARPS: u32 = THREADS / WARP;

/// Arguments of [`MergeBased`] and [`CarriedRows`].
///
/// # Obligations
/// - those of [`Dense`], with `out.m` the rows of the matrix and an output of any type, and of [`ReadCsrParams`] for
///   the arrays of `read`, whose outputs and record are null;
/// - `rows + entries ≤ 2³² − 1024` and `0 < span ≤ `[`MOST_SPAN`];
/// - `blocks` is `(rows + entries) / span`, rounded up, and the grid of [`MergeBased`] has as many; `carried` has one
///   element for each, the workspace two rows;
/// - `faults` was zero before [`MergeBased`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct MergeBasedParams {
    /// `B`, `C` and the workspace: row `i` is for the row that goes on in block `i`, row `blocks + i` for the one that
    /// begins there and does not end.
    pub dense: Dense,
    /// The matrix, whose values are taken as they are.
    pub read: ReadCsrParams,
    /// `[row, count]` of the row that begins in a block and goes on in the `count` next ones, or
    /// [`NO_ROW`](crate::NO_ROW).
    pub carried: GlobalPtr<[u32; 2]>,
    /// How many blocks found something wrong.
    pub faults: GlobalPtr<u32>,
    /// Items of a block.
    pub span: u32,
    /// Blocks along the fast axis.
    pub blocks: u32,
}

impl MergeBasedParams {
    /// Entries and ends of rows.
    #[inline(always)]
    const fn items(&self) -> u32 {
        self.read.rows + self.read.entries
    }

    /// The block that has an item.
    #[inline(always)]
    fn block_of(&self, item: u32) -> u32 {
        item / NonZeroU32::new(self.span).unwrap_or(NonZeroU32::MIN) // it is not 0
    }

    /// An offset as it is given.
    #[inline(always)]
    unsafe fn offset<S: Simt>(&self, s: &S, row: u32) -> u64 {
        // SAFETY: the caller's row is at most the last.
        unsafe { index(s, self.read.offsets, row, self.read.wide_indices & ReadCsrParams::WIDE_OFFSETS != 0) }
    }
}

#[inline(always)]
fn min<T: PartialOrd>(a: T, b: T) -> T {
    if a < b { a } else { b }
}

#[inline(always)]
fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

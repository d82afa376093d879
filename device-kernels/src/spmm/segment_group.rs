//! `C = α·A·B + β·C` on CUDA cores straight from CSR, for narrow `B`: the four families of Sgap's design space
//! (section 3, with names as in its section 6).
//!
//! | family | a thread's share | sums |
//! | --- | --- | --- |
//! | `{<g nnz, c col>, 1}` | `g` successive entries | each row's end is written by the thread |
//! | `{<g nnz, c col>, r}` | the same | segment reduction among `r` threads |
//! | `{<x row, c col>, 1}` | `x` rows, one after the other | the thread's own |
//! | `{<1/g row, c col>, r}` | every `g`-th entry of a row | parallel reduction among `r` threads |
//!
//! [`NonzeroGroups`] is the first two, [`RowGroups`] the others; [`Mttkrp`] is the first two for tensors. Each thread
//! has `c` successive columns, `L` lanes next to each other have `L·c` of them (the paper's `tileSz`), and threads that
//! are reduced together are `L` lanes apart: neighbours then read neighbouring elements of a row of `B`, and shuffles
//! reach everybody they must.
//!
//! ```text
//! lane     t·L + l          thread t of a group, columns c·l.. of the slice
//! block    blockSz threads  grid (workers, slices of the width)
//! ```
//!
//! `g`, `x`, `r` and `L` come with the launch, and so do the threads of a block and the blocks: a thread walks on to
//! the next share when there are more of these than threads (`workerDimR`). Only the columns of a thread and the
//! entries that it reads at once decide the code.
//!
//! Rows that end where they began, in one group, go to `C`. A row that is cut has a piece for each group, in a slot of
//! the workspace of its own, which [`combine`](crate::spmm::combine) adds in order; or all add to one slot atomically
//! ([`Dense::accumulate`](crate::spmm::dense::Dense::accumulate)), as the paper's kernels do.

mod columns;
mod mttkrp;
mod nonzeros;
mod rows;

pub use mttkrp::{Mttkrp, MttkrpParams};
pub use nonzeros::{NonzeroGroups, NonzeroGroupsParams};
pub use rows::{RowGroups, RowGroupsParams};

use windrow_simt::Simt;

use crate::reduce::GroupShape;

/// Threads of the largest block.
pub const MOST_THREADS: u32 = 512;

/// Where a thread is: which columns it has, and which of the workers it is.
#[derive(Clone, Copy)]
struct Place {
    /// First of the thread's columns.
    column: u32,
    /// The first worker of the thread's warp, and those of all warps: what the loop over shares goes by, the same for
    /// all lanes.
    warp_worker: u32,
    workers: u32,
    /// The thread's worker, counted from the warp's first.
    worker: u32,
    /// Logarithm of the lanes from one worker to the next.
    lanes_log2: u32,
}

impl Place {
    #[inline(always)]
    fn locate<S: Simt>(s: &S, lanes_log2: u32, columns: u32) -> Self {
        let first_thread = s.block_idx() * s.block_dim() + s.warp() * windrow_simt::WARP;
        let of_slice = s.lane() & ((1 << lanes_log2) - 1);
        Self {
            column: ((s.block_idx_y() << lanes_log2) + of_slice) * columns,
            warp_worker: first_thread >> lanes_log2,
            workers: (s.grid_dim() * s.block_dim()) >> lanes_log2,
            worker: s.lane() >> lanes_log2,
            lanes_log2,
        }
    }

    /// Groups of so many workers.
    #[inline(always)]
    const fn group(self, size_log2: u32) -> GroupShape {
        GroupShape { size_log2, stride_log2: self.lanes_log2 }
    }
}

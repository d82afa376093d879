//! Sums of columns: `out[i, c] = Σ x[r, c]·y[r, c]` over the rows `r` of chunk `i`, without `y` the sum of `x`.
//!
//! A block takes a chunk of rows and 32 columns, its warps every eighth row each. A first launch leaves a row of sums
//! for each chunk, a second adds these, as one chunk.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{Simt, WARP};

use super::Matrix;
use crate::kernel::Kernel;
use crate::variant::Variant;

/// Arguments of [`ColumnSums`].
///
/// # Obligations
/// - those of every [`Matrix`]: `x` and, if it is there, `y` are `rows × cols`, `out` has a row for each chunk and
///   overlaps neither;
/// - `chunk_rows > 0`; the grid's fast axis has a block for each chunk of the rows; `rows ≤ 2³² − 1024`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct ColumnSumsParams {
    /// What is added up.
    pub x: Matrix,
    /// What it is multiplied by first; or none.
    pub y: Matrix,
    /// A row of sums for each chunk.
    pub out: Matrix,
    /// Rows of `x`, and of `y` if it is there.
    pub rows: u32,
    /// Columns of `x`, and of `out`.
    pub cols: u32,
    /// Rows of a chunk.
    pub chunk_rows: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The kernel: a column a lane.
pub struct ColumnSums;

impl ColumnSums {
    /// Columns of a block: one value of the grid's slow axis.
    pub const SLICE: u32 = WARP;
    const WARPS: u32 = Self::BLOCK_THREADS / WARP;
}

impl Kernel for ColumnSums {
    type Params = ColumnSumsParams;
    const FILE: &'static str = "training";
    const VARIANT: Variant = Variant::ColumnSums;
    const BLOCK_THREADS: u32 = 256;
    const SHARED_BYTES: u32 = 4 * Self::BLOCK_THREADS;
    const COLUMNS_PER_BLOCK: u32 = Self::SLICE;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ColumnSumsParams) {
        // 1. Locate.
        let column = s.block_idx_y() * Self::SLICE + s.lane();
        let begin = s.block_idx() * p.chunk_rows;
        let end = begin + p.chunk_rows.min(p.rows - begin);
        let inside = column < p.cols;
        // SAFETY: rows and columns are those of the matrices, by the obligations of the params. All threads of the
        // block reach the barrier: it stands outside of the loop.
        unsafe {
            // 2. to 4. Gather and accumulate: each warp its rows, then the warps in order.
            let mut sum = 0.0;
            let mut row = begin + s.warp();
            while inside && row < end {
                let at = |m: &Matrix| m.data.at_wide(u64::from(row) * u64::from(m.ld) + u64::from(column));
                let x = s.load_readonly(at(&p.x));
                sum = match p.y.is_there() {
                    true => s.fma(x, s.load_readonly(at(&p.y)), sum),
                    false => sum + x,
                };
                row += Self::WARPS;
            }
            s.store_shared(4 * s.thread_idx(), sum); // (WARPS, 32)
            s.sync_block(); // RAW: sums of warps written -> added
            if s.warp() == 0 && inside {
                let mut warp = 1;
                while warp < Self::WARPS {
                    sum += s.load_shared::<f32>(4 * (warp * WARP + s.lane()));
                    warp += 1;
                }
                // 5. Registers -> global.
                let at = u64::from(s.block_idx()) * u64::from(p.out.ld) + u64::from(column);
                s.store(p.out.data.at_wide(at), sum);
            }
        }
    }
}

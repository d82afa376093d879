//! Adds the partial rows that split work left in the workspace: `C[row] = α·Σ partial + β·C[row]`.
//!
//! The second pass of the three SpMM kernels. The partials of a row are added in the order of their
//! slots, which the host laid out along the row, so the result does not depend on which worker
//! finished first: two runs agree bit for bit.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::dense::Dense;
use crate::kernel::{Kernel, Variant};

/// Arguments of [`Combine`].
///
/// # Obligations
/// `rows[i] = [row, first_slot, count, stride]`: the partials of `row` are the workspace's rows
/// `first_slot + j·stride` for `j < count`, all written earlier in the stream; no row is listed twice.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct CombineParams {
    /// The dense operands; `b` is not used.
    pub dense: Dense,
    /// `[row, first_slot, count, stride]` per split row.
    pub rows: GlobalPtr<[u32; 4]>,
    /// Number of split rows.
    pub row_count: u32,
    /// Zero.
    pub reserved: u32,
}

/// The kernel: a warp per split row and 128 columns, four columns a lane.
pub struct Combine;

impl Combine {
    /// Columns per slice of the width: one value of the grid's slow axis.
    pub const SLICE: u32 = 128;
    /// Rows per block.
    pub const ROWS_PER_BLOCK: u32 = Self::BLOCK_THREADS / 32;
}

impl Kernel for Combine {
    type Params = CombineParams;
    const FILE: &'static str = "combine";
    const VARIANT: Variant = Variant::Combine;
    const BLOCK_THREADS: u32 = 128;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CombineParams) {
        let index = s.block_idx() * Self::ROWS_PER_BLOCK + s.warp();
        let column = s.block_idx_y() * Self::SLICE + s.lane() * 4;
        if index >= p.row_count || column >= p.dense.n {
            return; // no collectives below
        }
        // SAFETY: index and column are in range; slots hold what an earlier launch wrote.
        unsafe {
            let [row, first_slot, count, stride] = s.load_readonly(p.rows.at(index));
            let mut sum = [0.0f32; 4];
            let mut i = 0;
            while i < count {
                let slot = first_slot + i * stride;
                let at = u64::from(slot) * u64::from(p.dense.ld_partial) + u64::from(column);
                let part = s.load_readonly(p.dense.partial.at_wide(at).cast::<[f32; 4]>());
                sum = [sum[0] + part[0], sum[1] + part[1], sum[2] + part[2], sum[3] + part[3]];
                i += 1;
            }
            p.dense.finish_quad(s, row, column, sum);
        }
    }
}

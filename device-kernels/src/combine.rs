//! Adds the partial rows that split work left in the workspace: `C[row] = α·Σ partial + β·C[row]`.
//!
//! The second pass of the three SpMM kernels. The partials of a row are added in the order of their
//! slots, which the host laid out along the row, in shares of a fixed size, so the result does not
//! depend on which worker finished first: two runs agree bit for bit.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

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
    /// Number of split rows, and of blocks.
    pub row_count: u32,
    /// Zero.
    pub reserved: u32,
}

/// Partials that each lane has in flight.
const IN_FLIGHT: u32 = 8;

/// The kernel: a block per split row and 128 columns. Each warp adds a contiguous share of the
/// partials, four columns a lane; the shares are added in order.
pub struct Combine;

impl Combine {
    /// Columns per slice of the width: one value of the grid's slow axis.
    pub const SLICE: u32 = 128;
    /// Rows per block.
    pub const ROWS_PER_BLOCK: u32 = 1;
    const WARPS: u32 = Self::BLOCK_THREADS / WARP;
}

impl Kernel for Combine {
    type Params = CombineParams;
    const FILE: &'static str = "combine";
    const VARIANT: Variant = Variant::Combine;
    const BLOCK_THREADS: u32 = 128;
    const SHARED_BYTES: u32 = Self::BLOCK_THREADS * 16;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CombineParams) {
        // 1. Locate.
        let column = s.block_idx_y() * Self::SLICE + s.lane() * 4;
        let inside = column < p.dense.n;
        // SAFETY: the grid has a block per split row; slots hold what an earlier launch wrote; every
        // thread of the block reaches the barrier.
        unsafe {
            let [row, first_slot, count, stride] = s.load_readonly(p.rows.at(s.block_idx()));
            // 2. to 4. This warp's share.
            let share = count.div_ceil(Self::WARPS);
            let begin = min(s.warp() * share, count);
            let end = if inside { min(begin + share, count) } else { begin };
            let mut sum = [0.0f32; 4];
            let mut i = begin;
            while i < end {
                let mut parts = [[0.0f32; 4]; IN_FLIGHT as usize];
                let mut u = 0;
                while u < IN_FLIGHT {
                    if i + u < end {
                        let slot = first_slot + (i + u) * stride;
                        let at = u64::from(slot) * u64::from(p.dense.ld_partial) + u64::from(column);
                        parts[u as usize] = s.load_readonly(p.dense.partial.at_wide(at).cast::<[f32; 4]>());
                    }
                    u += 1;
                }
                let mut u = 0;
                while u < IN_FLIGHT {
                    sum = add(sum, parts[u as usize]);
                    u += 1;
                }
                i += IN_FLIGHT;
            }
            s.store_shared(s.thread_idx() * 16, sum); // (WARPS, 128)
            s.sync_block(); // RAW: shares written -> added
            // 5. The shares in order -> global.
            if s.warp() == 0 && inside {
                let mut warp = 1;
                while warp < Self::WARPS {
                    sum = add(sum, s.load_shared((warp * WARP + s.lane()) * 16));
                    warp += 1;
                }
                p.dense.finish_quad(s, row, column, sum);
            }
        }
    }
}

const fn min(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

#[inline(always)]
fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]]
}

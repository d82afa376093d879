//! Adds the partial rows that split work left in the workspace: `C[row] = act(α·Σ partial + β·C[row] + bias)`.
//!
//! The second pass of the SpMM kernels that cut rows or windows. The partials of a row are added in the order of their
//! slots, which the host laid out along the row, in shares of a fixed size, so the result does not
//! depend on which worker finished first: two runs agree bit for bit. Where partial sums were accumulated
//! instead ([`Dense::accumulate`]), each row has one, and it is left zero.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::NO_ROW;
use crate::kernel::Kernel;
use crate::output::{Output, Summed};
use crate::real::{Factor, add4};
use crate::spmm::dense::Dense;
use crate::unroll::each;
use crate::variant::Variant;

/// Arguments of [`Combine`].
///
/// # Obligations
/// `rows[i] = [row, first_slot, count, stride]`, where the bit [`ADDS`] of the stride says that the sum is added to
/// what `C` holds of the row, written earlier in the stream, whatever `β`. The partials of `row` are the workspace's
/// rows `first_slot + j·stride` for `j < count`, all written earlier in the stream; no row is listed twice, one that is
/// [`NO_ROW`] stands for none and has no partials, and with
/// `dense.accumulate` every slot is listed exactly once, for it is zeroed when it is read. The first `wide_count` rows
/// get a block each, the others a warp each: the grid has [`Combine::blocks`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct CombineParams {
    /// The dense operands; `b` is not used.
    pub dense: Dense,
    /// `[row, first_slot, count, stride]` per split row.
    pub rows: GlobalPtr<[u32; 4]>,
    /// Number of split rows.
    pub row_count: u32,
    /// Rows at the front of the list that have more partials than [`Combine::NARROW`].
    pub wide_count: u32,
}

/// The bit of a stride that is set if the sum of the row is added to `C`. No stride is so large.
pub const ADDS: u32 = 1 << 31;

/// Partials that each lane has in flight.
const IN_FLIGHT: u32 = 8;

/// The kernel, for sums of type `T`: four columns a lane. A row of few partials is one warp's; the many of a long row
/// are shared by a block's warps, each taking a contiguous share, and the shares are added in order.
pub struct Combine<T>(PhantomData<T>);

impl<T: Summed> Combine<T> {
    /// Columns per slice of the width: one value of the grid's slow axis.
    pub const SLICE: u32 = 128;
    /// Most partials of a row that one warp adds alone.
    pub const NARROW: u32 = IN_FLIGHT;
    const WARPS: u32 = Self::BLOCK_THREADS / WARP;

    /// Blocks for a list of `row_count` rows of which the first `wide_count` are wide.
    #[must_use]
    pub const fn blocks(row_count: u32, wide_count: u32) -> u32 {
        wide_count + (row_count - wide_count).div_ceil(Self::WARPS)
    }
}

impl<T: Summed> Kernel for Combine<T> {
    type Params = CombineParams;
    const FILE: &'static str = "spmm/combine";
    const VARIANT: Variant = Variant::Combine { sum_bytes: T::BYTES };
    const BLOCK_THREADS: u32 = 128;
    const SHARED_BYTES: u32 = Self::BLOCK_THREADS * 4 * T::BYTES;
    const COLUMNS_PER_BLOCK: u32 = Self::SLICE;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CombineParams) {
        // 1. Locate.
        let column = s.block_idx_y() * Self::SLICE + s.lane() * 4;
        let inside = column < p.dense.n();
        let wide = s.block_idx() < p.wide_count;
        let index = if wide {
            s.block_idx()
        } else {
            p.wide_count + (s.block_idx() - p.wide_count) * Self::WARPS + s.warp()
        };
        // SAFETY: `index < row_count` where it is used; slots hold what an earlier launch wrote; a
        // block is wide as a whole, so its threads reach the barrier together.
        unsafe {
            let [row, first_slot, count, stride] =
                if index < p.row_count { s.load_readonly(p.rows.at(index)) } else { [0; 4] };
            // 2. to 4. Gather and accumulate: all partials, or this warp's share.
            let share = if wide { count.div_ceil(Self::WARPS) } else { count };
            let begin = if wide { min(s.warp() * share, count) } else { 0 };
            let end = if inside { min(begin + share, count) } else { begin };
            let slots = Slots { first_slot, stride: stride & !ADDS, begin, end };
            let mut sum = sum_slots::<S, T>(s, p, column, slots);
            // 5. Registers -> global.
            if wide {
                T::store_shared(s, s.thread_idx() * 4 * T::BYTES, sum); // (WARPS, 128)
                s.sync_block(); // RAW: shares written -> added
                let mut warp = 1;
                while warp < Self::WARPS {
                    sum = add4(sum, T::load_shared(s, (warp * WARP + s.lane()) * 4 * T::BYTES));
                    warp += 1;
                }
            }
            if index < p.row_count && row != NO_ROW && (!wide || s.warp() == 0) {
                let beta = if stride & ADDS != 0 { Factor::new(T::ONE) } else { p.dense.out.beta };
                Output { beta, ..p.dense.out }.store(s, row, column, sum);
            }
        }
    }
}

/// A run of a row's partials.
struct Slots {
    first_slot: u32,
    stride: u32,
    begin: u32,
    end: u32,
}

/// The partials of a run, added from the first to the last.
#[inline(always)]
unsafe fn sum_slots<S: Simt, T: Summed>(s: &S, p: &CombineParams, column: u32, slots: Slots) -> [T; 4] {
    let mut sum = [T::ZERO; 4];
    let mut i = slots.begin;
    while i < slots.end {
        let mut parts = [[T::ZERO; 4]; IN_FLIGHT as usize];
        each::<{ IN_FLIGHT as usize }>(|u| {
            let at = i + u as u32;
            if at < slots.end {
                let slot = slots.first_slot + at * slots.stride;
                let at = u64::from(slot) * u64::from(p.dense.ld_partial) + u64::from(column);
                // SAFETY: a slot of the row, and `column < n ≤ ld_partial`.
                unsafe {
                    let from = p.dense.partial.cast::<T>().at_wide(at);
                    parts[u] = T::load(s, from);
                    if p.dense.accumulate != 0 {
                        T::store(s, from, [T::ZERO; 4], false); // the next launch adds to it
                    }
                }
            }
        });
        each::<{ IN_FLIGHT as usize }>(|u| sum = add4(sum, parts[u]));
        i += IN_FLIGHT;
    }
    sum
}

const fn min(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

//! Rows that go on from one block to the next.

use core::marker::PhantomData;

use windrow_simt::{Simt, WARP};

use super::{MergeBasedParams, min};
use crate::NO_ROW;
use crate::kernel::Kernel;
use crate::output::Summed;
use crate::real::add4;
use crate::unroll::each;
use crate::variant::Variant;

/// Sums that each lane has in flight.
const IN_FLIGHT: usize = 8;

/// Adds up the rows that blocks of [`MergeBased`](super::MergeBased) left in the workspace, for sums of type `T`: a
/// warp for each block, four columns a lane; what many blocks left of one row is shared by the warps of a block. If one
/// of those blocks found the matrix wrong, all of `C` becomes NaN.
pub struct CarriedRows<T>(PhantomData<T>);

impl<T: Summed> CarriedRows<T> {
    const WARPS: u32 = Self::BLOCK_THREADS / WARP;
    /// Most sums of a row that one warp adds alone.
    const NARROW: u32 = 32;
}

impl<T: Summed> Kernel for CarriedRows<T> {
    type Params = MergeBasedParams;
    const FILE: &'static str = "spmm/merge_based/carried";
    const VARIANT: Variant = Variant::CarriedRows { sum_bytes: T::BYTES };
    const BLOCK_THREADS: u32 = 128;
    const MIN_BLOCKS: u32 = if T::BYTES == 8 { 4 } else { 8 };
    const SHARED_BYTES: u32 = Self::BLOCK_THREADS * 4 * T::BYTES;
    const UNITS_PER_BLOCK: u32 = Self::BLOCK_THREADS / WARP;
    const COLUMNS_PER_BLOCK: u32 = 4 * WARP;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &MergeBasedParams) {
        // 1. Locate.
        let column = s.block_idx_y() * Self::COLUMNS_PER_BLOCK + 4 * s.lane();
        let first = s.block_idx() * Self::WARPS;
        // SAFETY: the obligations of the params; what was left in the workspace, an earlier launch wrote; all threads
        // of a block see the same rows, so they come to the barriers together.
        unsafe {
            if s.load_readonly(p.faults) != 0 {
                spoil::<S, T>(s, p, first + s.warp(), column);
                return;
            }
            let mut i = 0;
            while i < Self::WARPS {
                let block = first + i;
                let [row, count] =
                    if block < p.blocks { s.load_readonly(p.carried.at(block)) } else { [NO_ROW, 0] };
                // 2. to 4. Sums of a row, its first one and those of the next blocks: by all warps, or one.
                let terms = if row == NO_ROW { 0 } else { count + 1 };
                let shared = terms > Self::NARROW;
                let warps = if shared { Self::WARPS } else { 1 };
                let share = terms.div_ceil(warps);
                let number = if shared { s.warp() } else { s.warp().wrapping_sub(i) };
                let begin = if number < warps { min(number * share, terms) } else { terms };
                let mut sum = Self::sum(s, p, column, block, [begin, min(begin + share, terms)]);
                if shared {
                    T::store_shared(s, s.thread_idx() * 4 * T::BYTES, sum);
                    s.sync_block(); // RAW: shares written -> added
                    let mut warp = 1;
                    while warp < Self::WARPS {
                        sum = add4(sum, T::load_shared(s, (warp * WARP + s.lane()) * 4 * T::BYTES));
                        warp += 1;
                    }
                    s.sync_block(); // WAR: shares added -> written
                }
                // 5. Registers -> global.
                if number == 0 && row != NO_ROW {
                    p.dense.out.store_scaled(s, row, column, sum);
                }
                i += 1;
            }
        }
    }
}

impl<T: Summed> CarriedRows<T> {
    /// The sums `begin..end` of those that a row has in the workspace: that of the block in which it begins is the
    /// first.
    ///
    /// # Safety
    /// The obligations of the params; these sums were written.
    #[inline(always)]
    unsafe fn sum<S: Simt>(
        s: &S,
        p: &MergeBasedParams,
        column: u32,
        block: u32,
        [begin, end]: [u32; 2],
    ) -> [T; 4] {
        let mut sum = [T::ZERO; 4];
        let end = if column < p.dense.n() { end } else { begin };
        let mut i = begin;
        while i < end {
            let mut parts = [[T::ZERO; 4]; IN_FLIGHT];
            each::<IN_FLIGHT>(|u| {
                let at = i + u as u32;
                if at < end {
                    let slot = if at == 0 { p.blocks + block } else { block + at };
                    let at = u64::from(slot) * u64::from(p.dense.ld_partial) + u64::from(column);
                    // SAFETY: a slot of the row, and `column < n ≤ ld_partial`.
                    parts[u] = unsafe { T::load(s, p.dense.partial.cast::<T>().at_wide(at)) };
                }
            });
            each::<IN_FLIGHT>(|u| sum = add4(sum, parts[u]));
            i += IN_FLIGHT as u32;
        }
        sum
    }
}

/// Makes every row of `C` NaN that is this warp's among all warps of the grid.
///
/// # Safety
/// The obligations of the params.
#[inline(always)]
unsafe fn spoil<S: Simt, T: Summed>(s: &S, p: &MergeBasedParams, warp: u32, column: u32) {
    let warps = s.grid_dim() * CarriedRows::<T>::WARPS;
    let mut row = warp;
    while row < p.read.rows {
        // SAFETY: rows of `C`, each one warp's. It is never quick, so it is one column at a time.
        unsafe {
            let mut at = column;
            while at < column + 4 {
                p.dense.out.store_scaled(s, row, at, [T::NAN]);
                at += 1;
            }
        }
        row += warps;
    }
}

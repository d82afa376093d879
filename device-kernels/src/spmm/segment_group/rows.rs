//! `{<x row, c col>, 1}` and `{<1/g row, c col>, r}`: threads own rows, or parts of them.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::columns::{AT_ONCE, Columns, add_product};
use super::{MOST_THREADS, Place};
use crate::element::Element;
use crate::kernel::Kernel;
use crate::real::Real;
use crate::reduce::{GroupShape, group_sum};
use crate::spmm::dense::Dense;
use crate::variant::Variant;

/// Arguments of [`RowGroups`].
///
/// # Obligations
/// - `row_offsets`: `rows + 1` offsets of a CSR matrix of `rows` rows; columns are below k, entries below 2³² − 1024.
/// - `reduction ≤ threads` and `lanes · threads ≤ 32`, of which the params have logarithms; blocks have a multiple of
///   32 threads, and all of the grid fewer than 2³².
/// - `vectors` is not 0 only if `b` is aligned to the thread's columns, and `ldb` is a multiple of them.
/// - with `dense.accumulate` and `reduction < threads` the workspace has a slot for each row, which
///   [`Combine`](crate::spmm::combine::Combine) adds to `C` afterwards; else it is not used.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct RowGroupsParams {
    /// `B`, `C` and the workspace.
    pub dense: Dense,
    /// First entry of each row, and the end.
    pub row_offsets: GlobalPtr<u32>,
    /// Column of each entry.
    pub col_indices: GlobalPtr<u32>,
    /// Value of each entry, in the element type's bits.
    pub values: GlobalPtr<u32>,
    /// Rows of `A` and of `C`.
    pub rows: u32,
    /// Rows that a worker has one after the other.
    pub rows_each: u32,
    /// Logarithm of the threads that share a row.
    pub threads_log2: u32,
    /// Logarithm of the threads whose sums are reduced before they are written.
    pub reduction_log2: u32,
    /// Logarithm of the lanes side by side along the width.
    pub lanes_log2: u32,
    /// Whether a thread reads its columns of `B` at once.
    pub vectors: u32,
}

/// One instance: the element type, and the columns of a thread.
pub struct RowGroups<E, const C: usize>(PhantomData<E>);

impl<E: Element, const C: usize> Kernel for RowGroups<E, C> {
    type Params = RowGroupsParams;
    const FILE: &'static str = "spmm/segment_group";
    const VARIANT: Variant = Variant::RowGroups { dtype: E::DTYPE, columns: C as u32 };
    const BLOCK_THREADS: u32 = MOST_THREADS;
    // Left to itself, `ptxas` spills a few registers to fit one more block.
    const MIN_BLOCKS: u32 = 1;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &RowGroupsParams) {
        // 1. Locate.
        let place = Place::locate(s, p.lanes_log2, C as u32);
        let columns = Columns::<C>::new::<E>(&p.dense, place.column, p.vectors).in_registers(s);
        let (all, group) = (place.group(p.threads_log2), place.group(p.reduction_log2));
        let thread = all.place(s.lane());
        let leads = group.place(s.lane()) == 0;
        let cut = p.dense.accumulate != 0 && p.reduction_log2 < p.threads_log2;
        let mut first = place.warp_worker >> p.threads_log2; // unit of the warp's first lane
        // SAFETY: rows and entries are those of the matrix; all lanes of a warp run the loops equally often, so that
        // they reach the shuffles together. A row is that of one unit, and of lane 0 of it where it is written.
        unsafe {
            while u64::from(first) * u64::from(p.rows_each) < u64::from(p.rows) {
                let unit = first + (place.worker >> p.threads_log2);
                let mut i = 0;
                while i < p.rows_each {
                    let row = u64::from(unit) * u64::from(p.rows_each) + u64::from(i);
                    let active = row < u64::from(p.rows) && columns.any();
                    let row = row as u32;
                    // 2. to 4. Gather and accumulate.
                    let sum = if active {
                        sum_row::<S, E, C>(s, p, &columns, (row, thread))
                    } else {
                        [E::Sum::ZERO; C]
                    };
                    let sum = group_sum(s, group, sum);
                    // 5. Registers -> global.
                    if cut {
                        if active && leads {
                            columns.keep(s, row, sum);
                        }
                    } else {
                        let sum = sum_of_groups(s, p, place, sum);
                        if active && thread == 0 {
                            columns.finish(s, row, sum);
                        }
                    }
                    i += 1;
                }
                first += place.workers >> p.threads_log2;
            }
        }
    }
}

/// Adds the sums of groups that share a row.
#[inline(always)]
unsafe fn sum_of_groups<S: Simt, T: Real, const C: usize>(
    s: &S,
    p: &RowGroupsParams,
    place: Place,
    sum: [T; C],
) -> [T; C] {
    let groups = GroupShape {
        size_log2: p.threads_log2 - p.reduction_log2,
        stride_log2: place.lanes_log2 + p.reduction_log2,
    };
    // SAFETY: the caller's promise: all lanes are here.
    unsafe { group_sum(s, groups, sum) }
}

/// What thread `thread` of those that share `row` sums.
#[inline(always)]
unsafe fn sum_row<S: Simt, E: Element, const C: usize>(
    s: &S,
    p: &RowGroupsParams,
    columns: &Columns<'_, C>,
    (row, thread): (u32, u32),
) -> [E::Sum; C] {
    let values = p.values.cast::<E::Bits>();
    let mut sum = [E::Sum::ZERO; C];
    // SAFETY: the row exists; entries read are below its end.
    unsafe {
        let begin = s.load_readonly(p.row_offsets.at(row));
        let end = s.load_readonly(p.row_offsets.at(row + 1));
        let threads = 1 << p.threads_log2;
        let mut entry = begin + thread;
        // Counted down: near 2³² a sum would wrap.
        let mut left = (end.saturating_sub(entry) + threads - 1) >> p.threads_log2;
        while left > 0 {
            let (mut cols, mut weights) = ([0; AT_ONCE], [E::Sum::ZERO; AT_ONCE]);
            let mut u = 0;
            while u < AT_ONCE {
                if (u as u32) < left {
                    let at = entry + u as u32 * threads;
                    cols[u] = s.load_readonly(p.col_indices.at(at));
                    weights[u] = E::widen(s, s.load_readonly(values.at(at)));
                }
                u += 1;
            }
            let elements = columns.fetch::<S, E, AT_ONCE>(s, &cols, left);
            let mut u = 0;
            while u < AT_ONCE {
                add_product(s, weights[u], elements[u], &mut sum);
                u += 1;
            }
            entry = entry.wrapping_add(AT_ONCE as u32 * threads); // beyond the last it is not used
            left = left.saturating_sub(AT_ONCE as u32);
        }
    }
    sum
}

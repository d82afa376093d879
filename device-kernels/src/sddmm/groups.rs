//! SDDMM on CUDA cores by groups of threads of any size: Sgap's equation 4.
//!
//! The reduction of a sampled product is along a dense dimension, so that no row of the result is cut: `r` threads,
//! from one to a warp, share an entry's inner dimension, and a parallel reduction adds their sums.
//!
//! ```text
//!            thread 0     thread 1   ...  thread r − 1
//! entry 0   Y[col 0][0..4)  [4..8)        [4r−4..4r)     then from 4r on
//! entry 1   Y[col 1][0..4)  [4..8)        [4r−4..4r)
//! ```
//!
//! A group has a number of successive entries, wherever rows end, and works on four at a time. Both numbers come with
//! the launch. A short inner dimension wants few threads, which a fixed group of eight leaves idle.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::{Sampled, Target};
use crate::element::{Element, Gather, Sum};
use crate::kernel::Kernel;
use crate::real::Real;
use crate::reduce::{GroupShape, group_sum};
use crate::unroll::each;
use crate::variant::Variant;

/// Entries that a group works on at a time.
const AT_ONCE: usize = 4;

/// Arguments of [`SddmmGroups`].
///
/// # Obligations
/// `rows` and `col_indices` are at multiples of 16 bytes, and those of the positions below m and n. Blocks have the
/// kernel's threads, and all of the grid fewer than 2³²; `groups · entries_each ≤ 2³² − 1`, and the groups have all
/// positions.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SddmmGroupsParams {
    /// The dense operands and the result.
    pub sampled: Sampled,
    /// Row of each position.
    pub rows: GlobalPtr<u32>,
    /// Column of each position.
    pub col_indices: GlobalPtr<u32>,
    /// Number of positions in all groups.
    pub positions: u32,
    /// Groups of threads in the grid.
    pub groups: u32,
    /// Positions of a group.
    pub entries_each: u32,
    /// Logarithm of the threads of a group, at most 5.
    pub reduction_log2: u32,
}

/// One instance: how rows are read.
pub struct SddmmGroups<G>(PhantomData<G>);

impl<G: Gather> SddmmGroups<G> {
    /// Whether successive entries of a row read the row of `X` once. On an H200 f32 takes 0.83 to 0.87 of the time so,
    /// batches of short rows too; f16, whose rows are half as many loads, 0.99 to 1.04, so that it reads it each time.
    const KEEPS_ROWS: bool = G::Element::DTYPE.bytes() >= 4;
}

impl<G: Gather> Kernel for SddmmGroups<G> {
    type Params = SddmmGroupsParams;
    const FILE: &'static str = "sddmm";
    const VARIANT: Variant = Variant::SddmmGroups { dtype: G::Element::DTYPE, vectors: G::VECTORS };
    const BLOCK_THREADS: u32 = 256;
    // Left to itself, `ptxas` spills a few registers to fit one more block.
    const MIN_BLOCKS: u32 = 1;
    const UNITS_PER_BLOCK: u32 = Self::BLOCK_THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SddmmGroupsParams) {
        // 1. Locate.
        let thread = s.block_idx() * Self::BLOCK_THREADS + s.thread_idx();
        let shape = GroupShape { size_log2: p.reduction_log2, stride_log2: 0 };
        let place = shape.place(s.lane());
        let group = thread >> p.reduction_log2;
        let first = if group < p.groups { group * p.entries_each } else { p.positions };
        let count = p.entries_each.min(p.positions - first.min(p.positions));
        let mut done = 0;
        // SAFETY: positions are those of the group, where they are read. All lanes of the warp reach the shuffles
        // together: the bounds of the loops are the same for all.
        unsafe {
            while done < p.entries_each {
                let present = count.saturating_sub(done);
                let (rows, cols) = places(s, p, first + done, present);
                // 2. to 4. Gather, accumulate, reduce.
                let sums = sum_products::<S, G>(s, p, (&rows, &cols), (place, present));
                let sums = group_sum(s, shape, sums);
                // 5. Registers -> global: the threads of a group take turns.
                each::<AT_ONCE>(|u| {
                    let mine = u as u32 & ((1 << p.reduction_log2) - 1) == place;
                    let inside = (u as u32) < present && mine;
                    let position = first + done + u as u32;
                    let target = if inside { p.sampled.target(s, position) } else { Target::NONE };
                    p.sampled.store(s, target, sums[u]);
                });
                done += AT_ONCE as u32;
            }
        }
    }
}

/// Rows and columns of successive positions, of which the first `present` are read: in one load each where that are
/// all, and the array has them at a multiple of 16 bytes.
///
/// # Safety
/// The obligations of the params; there are these positions.
#[inline(always)]
unsafe fn places<S: Simt>(
    s: &S,
    p: &SddmmGroupsParams,
    position: u32,
    present: u32,
) -> ([u32; AT_ONCE], [u32; AT_ONCE]) {
    // SAFETY: the caller's promise.
    unsafe {
        if present >= AT_ONCE as u32 && position.is_multiple_of(AT_ONCE as u32) {
            let of = |indices: GlobalPtr<u32>| s.load_readonly(indices.at(position).cast::<[u32; AT_ONCE]>());
            return (of(p.rows), of(p.col_indices));
        }
        let (mut rows, mut cols) = ([0; AT_ONCE], [0; AT_ONCE]);
        each::<AT_ONCE>(|u| {
            if (u as u32) < present {
                rows[u] = s.load_readonly(p.rows.at(position + u as u32));
                cols[u] = s.load_readonly(p.col_indices.at(position + u as u32));
            }
        });
        (rows, cols)
    }
}

/// The thread's part of the products of rows of `X` and `Y`, of which the first `present` are read.
///
/// # Safety
/// The obligations of the params; these are rows of `X` and `Y`.
#[inline(always)]
unsafe fn sum_products<S: Simt, G: Gather>(
    s: &S,
    p: &SddmmGroupsParams,
    (rows, cols): (&[u32; AT_ONCE], &[u32; AT_ONCE]),
    (place, present): (u32, u32),
) -> [Sum<G>; AT_ONCE] {
    let sampled = &p.sampled;
    let span = G::WIDTH << p.reduction_log2;
    // Whether the row of `X` is that of the entry before, which has been read.
    let is_before = |u: usize| SddmmGroups::<G>::KEEPS_ROWS && u > 0 && rows[u] == rows[u - 1];
    let mut sums = [Sum::<G>::ZERO; AT_ONCE];
    let mut first = 0;
    while first < sampled.inner {
        let k = first + place * G::WIDTH;
        let inside = k < sampled.inner;
        let at = |row: u32, ld: u32| u64::from(row) * u64::from(ld) + u64::from(k);
        let (mut x, mut y) = ([G::ZERO; AT_ONCE], [G::ZERO; AT_ONCE]);
        // SAFETY: the caller's promise; `k` is below the inner dimension.
        unsafe {
            each::<AT_ONCE>(|u| {
                if inside && (u as u32) < present {
                    if !is_before(u) {
                        x[u] = G::fetch(s, sampled.x, at(rows[u], sampled.ldx));
                    }
                    y[u] = G::fetch(s, sampled.y, at(cols[u], sampled.ldy));
                }
            });
        }
        // Behind all loads, of which none waits for another so.
        each::<AT_ONCE>(|u| {
            if is_before(u) {
                x[u] = x[u - 1];
            }
        });
        if sampled.is_ragged(first, span, G::WIDTH) {
            let kept = sampled.inner.saturating_sub(k);
            each::<AT_ONCE>(|u| (x[u], y[u]) = (G::keep_first(x[u], kept), G::keep_first(y[u], kept)));
        }
        each::<AT_ONCE>(|u| {
            let (x, y) = (G::elements(s, x[u]), G::elements(s, y[u]));
            let mut i = 0;
            while i < G::WIDTH as usize {
                sums[u] = Sum::<G>::fma(s, x[i], y[i], sums[u]);
                i += 1;
            }
        });
        first += span;
    }
    sums
}

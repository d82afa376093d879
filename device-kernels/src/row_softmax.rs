//! Softmax over the rows of a sparse matrix, and its gradient, on CUDA cores.
//!
//! ```text
//! p[e]  = exp(t[e] − max t) / Σ exp(t − max t)    with t = scale·s, maximum and sum over the row of e
//! ds[e] = scale · p[e] · (g[e] − Σ p·g)
//! ```
//!
//! The scores of attention over a graph are entries of a sparse result; a row is what one node attends to. A row is
//! shared by a [`Group`]: eight lanes for up to [`MOST_SHORT`] entries, a whole block for longer ones. The threads of a
//! group take the entries of its row in turn, `HELD` of them side by side:
//!
//! ```text
//! row       e0   e1   e2  ...  e7 | e8   e9  ...      32 successive bytes for eight lanes
//! lane      0    1    2   ...  7  | 0    1   ...      HELD times: one step
//! ```
//!
//! The first step stays in registers, so that a row of up to `HELD · THREADS` entries is read once and written once;
//! further steps are read again for each pass (maximum, sum, result) and come from L1 or L2. Only the thread that takes
//! an entry ever reads or writes it, so that the result may take the place of the scores.
//!
//! Each thread adds its entries from first to last, the threads of a group are added in a fixed tree: two runs give the
//! same bits.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::kernel::Kernel;
use crate::variant::Variant;

/// Entries that a thread takes in one step.
const HELD: u32 = 8;
/// Lanes that share a short row.
const SHORT_LANES: u32 = 8;
/// Threads that share a long row.
const LONG_THREADS: u32 = 256;
/// Entries of the longest row that is given to eight lanes: eight steps. Beyond it a block is not mostly idle.
pub const MOST_SHORT: u32 = 8 * SHORT_STEP;
/// Entries that eight lanes take in one step.
pub const SHORT_STEP: u32 = Share::<EightLanes>::STEP;
/// Positions that may exist, so that no count of a step that begins inside a row exceeds 32 bits.
pub const MOST_POSITIONS: u32 = u32::MAX - 4 * LONG_THREADS * HELD;

/// Arguments of [`RowSoftmax`].
///
/// # Obligations
/// - `rows[i] = [begin, end]` with `begin < end ≤` [`MOST_POSITIONS`]: the positions of a row; no two rows overlap;
/// - `scores` and `out` have an element for each position; they are the same array, or do not overlap;
/// - `factor` is null, or a number that nothing writes meanwhile.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct RowSoftmaxParams {
    /// First position and end of each row.
    pub rows: GlobalPtr<[u32; 2]>,
    /// What the softmax is taken of.
    pub scores: GlobalPtr<f32>,
    /// The probabilities, `exp(scale·(score − max)) / Σ` over each row.
    pub out: GlobalPtr<f32>,
    /// Another factor of the scores, of which only the device knows; null for 1.
    pub factor: GlobalPtr<f32>,
    /// Number of rows in `rows`.
    pub row_count: u32,
    /// Factor of the scores.
    pub scale: f32,
}

/// Arguments of [`RowSoftmaxGrad`].
///
/// # Obligations
/// - `rows`: as for [`RowSoftmaxParams`];
/// - `probabilities`, `gradient` and `out` have an element for each position; `out` overlaps neither of the others;
/// - `factor`: as for [`RowSoftmaxParams`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct RowSoftmaxGradParams {
    /// First position and end of each row.
    pub rows: GlobalPtr<[u32; 2]>,
    /// What the softmax gave.
    pub probabilities: GlobalPtr<f32>,
    /// The gradient with respect to the probabilities.
    pub gradient: GlobalPtr<f32>,
    /// The gradient with respect to the scores.
    pub out: GlobalPtr<f32>,
    /// Another factor of the scores, of which only the device knows; null for 1.
    pub factor: GlobalPtr<f32>,
    /// Number of rows in `rows`.
    pub row_count: u32,
    /// Factor of the scores.
    pub scale: f32,
}

/// `scale`, times the number at `factor` if that is not null.
///
/// # Safety
/// `factor` is null, or points to a number that nothing writes meanwhile.
#[inline(always)]
pub(crate) unsafe fn times_factor<S: Simt>(s: &S, scale: f32, factor: GlobalPtr<f32>) -> f32 {
    if factor == GlobalPtr::NULL {
        return scale;
    }
    // SAFETY: the caller's promise.
    scale * unsafe { s.load_readonly(factor) }
}

/// The threads that share a row.
pub trait Group: 'static {
    /// Threads of the group: a power of two.
    const THREADS: u32;
    /// Whether they are a block.
    const LONG: bool;
    /// Shared memory that [`reduce`](Group::reduce) needs, in bytes.
    const SHARED_BYTES: u32;

    /// All values of the group, combined in a fixed tree; every thread gets the same bits. `slot` is the number of the
    /// reduction in its kernel.
    ///
    /// # Safety
    /// A collective of the block.
    unsafe fn reduce<S: Simt>(s: &S, slot: u32, value: f32, combine: impl Fn(f32, f32) -> f32) -> f32;
}

/// Eight lanes: for short rows, four to a warp.
pub struct EightLanes;
/// A block: for long rows.
pub struct WholeBlock;

impl Group for EightLanes {
    const THREADS: u32 = SHORT_LANES;
    const LONG: bool = false;
    const SHARED_BYTES: u32 = 0;

    #[inline(always)]
    unsafe fn reduce<S: Simt>(s: &S, _: u32, value: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
        // SAFETY: the caller promises that the block is here, and with it this warp.
        unsafe { butterfly::<S, SHORT_LANES>(s, value, combine) }
    }
}

impl WholeBlock {
    const WARPS: u32 = LONG_THREADS / WARP;
    /// Reductions of one kernel: each has words of its own, so that none waits for the readers of another.
    const SLOTS: u32 = 2;
}

impl Group for WholeBlock {
    const THREADS: u32 = LONG_THREADS;
    const LONG: bool = true;
    const SHARED_BYTES: u32 = 4 * Self::WARPS * Self::SLOTS;

    #[inline(always)]
    unsafe fn reduce<S: Simt>(s: &S, slot: u32, value: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
        let at = |warp: u32| 4 * (slot * Self::WARPS + warp);
        // SAFETY: the caller's promise; `slot < SLOTS`, and each word is written by one thread, once.
        unsafe {
            let own = butterfly::<S, WARP>(s, value, &combine);
            if s.lane() == 0 {
                s.store_shared(at(s.warp()), own); // (SLOTS, WARPS)
            }
            s.sync_block(); // RAW: values of warps written -> combined
            let mut all = s.load_shared::<f32>(at(0));
            let mut warp = 1;
            while warp < Self::WARPS {
                all = combine(all, s.load_shared(at(warp)));
                warp += 1;
            }
            all
        }
    }
}

/// The values of `LANES` neighbouring lanes, combined; the operation commutes, so that all get the same bits.
///
/// # Safety
/// A collective of the full warp.
#[inline(always)]
pub(crate) unsafe fn butterfly<S: Simt, const LANES: u32>(
    s: &S,
    mut value: f32,
    combine: impl Fn(f32, f32) -> f32,
) -> f32 {
    let mut half = LANES / 2;
    while half >= 1 {
        // SAFETY: the caller's promise; the bounds are constants.
        value = combine(value, f32::from_bits(unsafe { s.shuffle_xor(value.to_bits(), half) }));
        half /= 2;
    }
    value
}

/// A thread's part of a row.
struct Share<G> {
    /// Position of the row's first entry.
    begin: u32,
    /// Entries of the row; 0 if the group has none.
    len: u32,
    /// Number of the thread in its group.
    member: u32,
    group: PhantomData<G>,
}

impl<G: Group> Share<G> {
    /// Entries that the group takes in one step.
    const STEP: u32 = G::THREADS * HELD;
    /// Rows that a block takes.
    const ROWS: u32 = LONG_THREADS / G::THREADS;

    /// # Safety
    /// `rows` has `row_count` rows.
    #[inline(always)]
    unsafe fn locate<S: Simt>(s: &S, rows: GlobalPtr<[u32; 2]>, row_count: u32) -> Self {
        let index = s.block_idx() * Self::ROWS + s.thread_idx() / G::THREADS;
        let [begin, end] = match index < row_count {
            // SAFETY: the index is below the number of rows, which the caller promises that `rows` has.
            true => unsafe { s.load_readonly(rows.at(index)) },
            false => [0; 2],
        };
        Self { begin, len: end - begin, member: s.thread_idx() % G::THREADS, group: PhantomData }
    }

    /// Position of the thread's `i`-th entry in the step that begins `first` entries into the row, if there is one.
    #[inline(always)]
    const fn position(&self, first: u32, i: u32) -> Option<u32> {
        let entry = first + i * G::THREADS + self.member;
        if entry < self.len { Some(self.begin + entry) } else { None }
    }

    /// Writes one step's results.
    ///
    /// # Safety
    /// `out` has an element for each position of the row.
    #[inline(always)]
    unsafe fn write<S: Simt>(&self, s: &S, out: GlobalPtr<f32>, first: u32, step: [f32; HELD as usize]) {
        let mut i = 0;
        while i < HELD {
            if let Some(at) = self.position(first, i) {
                // SAFETY: the caller's promise; the position is this thread's.
                unsafe { s.store(out.at(at), step[i as usize]) };
            }
            i += 1;
        }
    }
}

/// One instance of the forward kernel: the group that shares a row.
pub struct RowSoftmax<G>(PhantomData<G>);

impl<G: Group> Kernel for RowSoftmax<G> {
    type Params = RowSoftmaxParams;
    const FILE: &'static str = "row_softmax";
    const VARIANT: Variant = Variant::RowSoftmax { long: G::LONG };
    const BLOCK_THREADS: u32 = LONG_THREADS;
    const SHARED_BYTES: u32 = G::SHARED_BYTES;
    // Left to itself, `ptxas` spills a few registers to fit two more blocks.
    const MIN_BLOCKS: u32 = 6;
    const UNITS_PER_BLOCK: u32 = Share::<G>::ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &RowSoftmaxParams) {
        // SAFETY: positions are in range by the obligations of the params, and each is one thread's. All threads reach
        // the reductions: they stand outside of the loops, whose bounds differ.
        unsafe {
            // 1. Locate.
            let share = Share::<G>::locate(s, p.rows, p.row_count);
            let scale = times_factor(s, p.scale, p.factor);
            let scaled = |first: u32| scaled(s, p, scale, &share, first);
            // 2. to 4. Gather and reduce. The largest score; a NaN does not count here but in the sum.
            let held = scaled(0);
            let mut max = largest(f32::NEG_INFINITY, held);
            let mut first = Share::<G>::STEP;
            while first < share.len {
                max = largest(max, scaled(first));
                first += Share::<G>::STEP;
            }
            let max = G::reduce(s, 0, max, f32::max);
            let held = exponentials(s, held, max);
            let mut sum = total(0.0, held);
            let mut first = Share::<G>::STEP;
            while first < share.len {
                sum = total(sum, exponentials(s, scaled(first), max));
                first += Share::<G>::STEP;
            }
            // At least 1, the largest score's own: the reciprocal neither overflows nor loses bits.
            let inverse = 1.0 / G::reduce(s, 1, sum, |a, b| a + b);
            // 5. Registers -> global.
            share.write(s, p.out, 0, held.map(|weight| weight * inverse));
            let mut first = Share::<G>::STEP;
            while first < share.len {
                let again = exponentials(s, scaled(first), max);
                share.write(s, p.out, first, again.map(|weight| weight * inverse));
                first += Share::<G>::STEP;
            }
        }
    }
}

/// One step's scores times `scale`; minus infinity, which adds nothing, where there is no entry.
///
/// # Safety
/// The obligations of the params, which `share` was located by.
#[inline(always)]
unsafe fn scaled<S: Simt, G: Group>(
    s: &S,
    p: &RowSoftmaxParams,
    scale: f32,
    share: &Share<G>,
    first: u32,
) -> [f32; HELD as usize] {
    // All loads before any product: a product in the branch of its load would wait for it there.
    let mut step = [0.0; HELD as usize];
    let mut i = 0;
    while i < HELD {
        if let Some(at) = share.position(first, i) {
            // SAFETY: the caller's promise. Not read-only: `out` may be the same array.
            step[i as usize] = unsafe { s.load(p.scores.at(at)) };
        }
        i += 1;
    }
    let mut i = 0;
    while i < HELD {
        let present = share.position(first, i).is_some();
        step[i as usize] = if present { scale * step[i as usize] } else { f32::NEG_INFINITY };
        i += 1;
    }
    step
}

/// The largest of `max` and a step's elements.
#[inline(always)]
fn largest(mut max: f32, step: [f32; HELD as usize]) -> f32 {
    let mut i = 0;
    while i < step.len() {
        max = max.max(step[i]);
        i += 1;
    }
    max
}

/// `sum` and a step's elements, added from the first to the last.
#[inline(always)]
fn total(mut sum: f32, step: [f32; HELD as usize]) -> f32 {
    let mut i = 0;
    while i < step.len() {
        sum += step[i];
        i += 1;
    }
    sum
}

/// `exp(t − max)` of a step's elements. The difference is taken before anything is multiplied: large scores cancel
/// exactly, and that of the largest is exactly 1.
#[inline(always)]
fn exponentials<S: Simt>(s: &S, step: [f32; HELD as usize], max: f32) -> [f32; HELD as usize] {
    step.map(|t| s.exp2((t - max) * core::f32::consts::LOG2_E))
}

/// One instance of the backward kernel: the group that shares a row.
pub struct RowSoftmaxGrad<G>(PhantomData<G>);

impl<G: Group> Kernel for RowSoftmaxGrad<G> {
    type Params = RowSoftmaxGradParams;
    const FILE: &'static str = "row_softmax";
    const VARIANT: Variant = Variant::RowSoftmaxGrad { long: G::LONG };
    const BLOCK_THREADS: u32 = LONG_THREADS;
    const SHARED_BYTES: u32 = G::SHARED_BYTES;
    // Left to itself, `ptxas` fits more blocks and loads the pairs of a step one after the other;
    // told to fit five, it spills for compute capability 8.0.
    const MIN_BLOCKS: u32 = 4;
    const UNITS_PER_BLOCK: u32 = Share::<G>::ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &RowSoftmaxGradParams) {
        // SAFETY: as for the forward kernel.
        unsafe {
            // 1. Locate.
            let share = Share::<G>::locate(s, p.rows, p.row_count);
            let scale = times_factor(s, p.scale, p.factor);
            // 2. to 4. Gather and reduce.
            let held = pairs(s, p, &share, 0);
            let mut sum = weighted(s, 0.0, held);
            let mut first = Share::<G>::STEP;
            while first < share.len {
                sum = weighted(s, sum, pairs(s, p, &share, first));
                first += Share::<G>::STEP;
            }
            let mean = G::reduce(s, 0, sum, |a, b| a + b);
            // 5. Registers -> global.
            let of_score = |[probability, gradient]: [f32; 2]| scale * probability * (gradient - mean);
            share.write(s, p.out, 0, held.map(of_score));
            let mut first = Share::<G>::STEP;
            while first < share.len {
                share.write(s, p.out, first, pairs(s, p, &share, first).map(of_score));
                first += Share::<G>::STEP;
            }
        }
    }
}

/// Probability and gradient of one step's entries; zeros, which add nothing, where there is no entry.
///
/// # Safety
/// The obligations of the params, which `share` was located by.
#[inline(always)]
unsafe fn pairs<S: Simt, G: Group>(
    s: &S,
    p: &RowSoftmaxGradParams,
    share: &Share<G>,
    first: u32,
) -> [[f32; 2]; HELD as usize] {
    let mut step = [[0.0; 2]; HELD as usize];
    let mut i = 0;
    while i < HELD {
        if let Some(at) = share.position(first, i) {
            // SAFETY: the positions are those of the share's row, and both arrays have an element for each.
            step[i as usize] =
                unsafe { [s.load_readonly(p.probabilities.at(at)), s.load_readonly(p.gradient.at(at))] };
        }
        i += 1;
    }
    step
}

/// `sum + Σ p·g` of one step.
#[inline(always)]
fn weighted<S: Simt>(s: &S, mut sum: f32, step: [[f32; 2]; HELD as usize]) -> f32 {
    let mut i = 0;
    while i < step.len() {
        sum = s.fma(step[i][0], step[i][1], sum);
        i += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_count_of_a_step_exceeds_32_bits() {
        for step in [Share::<EightLanes>::STEP, Share::<WholeBlock>::STEP] {
            // The last step of the longest row begins before its end, and the loop counts to the one after.
            assert!(u64::from(MOST_POSITIONS) - 1 + 2 * u64::from(step) <= u64::from(u32::MAX));
        }
        assert_eq!((Share::<EightLanes>::ROWS, Share::<WholeBlock>::ROWS), (32, 1));
        assert_eq!((MOST_SHORT, WholeBlock::SHARED_BYTES), (512, 64));
    }
}

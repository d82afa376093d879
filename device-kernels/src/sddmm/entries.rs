//! SDDMM on CUDA cores.
//!
//! A *batch* is up to eight successive entries of one row, and eight lanes take it. They lie along the inner dimension,
//! 16 bytes of a row each, and gather eight rows of `Y` at a time:
//!
//! ```text
//!            lane 0       lane 1     ...  lane 7
//! entry 0   Y[col 0][0..4)  [4..8)       [28..32)     partial sums of every entry in every lane
//! entry 1   Y[col 1][0..4)  [4..8)       [28..32)
//!  ...
//! ```
//!
//! Then the lanes exchange halves of their sums three times, seven shuffles for all eight entries, until each holds
//! the sum of one: lane `l` that of entry `l`, and the eight are stored side by side.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::{Sampled, Target};
use crate::NO_COLUMN;
use crate::element::{Element, Gather, Sum};
use crate::kernel::Kernel;
use crate::real::Real;
use crate::variant::Variant;

/// Entries of a batch, and lanes that share it.
pub const BATCH: u32 = 8;

/// Arguments of [`SddmmEntries`].
///
/// # Obligations
/// Batch `i` is row `rows[i]`, below m, and the positions `begins[i] .. begins[i + 1]`, at most [`BATCH`];
/// `col_indices` of them are below n. At most 2³² − 1024 positions.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SddmmEntriesParams {
    /// The dense operands and the result.
    pub sampled: Sampled,
    /// Row of each batch.
    pub rows: GlobalPtr<u32>,
    /// First position of each batch, and the end of the last.
    pub begins: GlobalPtr<u32>,
    /// Column of each position.
    pub col_indices: GlobalPtr<u32>,
    /// Batches of the whole grid.
    pub batch_count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// One instance: how rows are read.
pub struct SddmmEntries<G>(PhantomData<G>);

impl<G: Gather> SddmmEntries<G> {
    /// Batches that a block handles.
    pub const BATCHES: u32 = Self::BLOCK_THREADS / BATCH;
    /// Elements of a row that the lanes of a batch read at a time.
    const SPAN: u32 = BATCH * G::WIDTH;
}

impl<G: Gather> Kernel for SddmmEntries<G> {
    type Params = SddmmEntriesParams;
    const FILE: &'static str = "sddmm";
    const VARIANT: Variant = Variant::SddmmEntries { dtype: G::Element::DTYPE, vectors: G::VECTORS };
    const BLOCK_THREADS: u32 = 256;
    // Left to itself, `ptxas` spills a few registers of f64 to fit one more block.
    const MIN_BLOCKS: u32 = if G::Element::DTYPE.sum_bytes() == 8 { 1 } else { 0 };
    const UNITS_PER_BLOCK: u32 = Self::BATCHES;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SddmmEntriesParams) {
        // 1. Locate.
        let batch = s.block_idx() * Self::BATCHES + s.thread_idx() / BATCH;
        let lane = s.thread_idx() % BATCH;
        // SAFETY: `batch < batch_count` where it is used; rows, columns and positions are in range by the obligations
        // of the params. All lanes of the warp reach the shuffles together: the bounds of the loop are the same for
        // all.
        unsafe {
            let [row, begin, end] = match batch < p.batch_count {
                true => [
                    s.load_readonly(p.rows.at(batch)),
                    s.load_readonly(p.begins.at(batch)),
                    s.load_readonly(p.begins.at(batch + 1)),
                ],
                false => [0; 3],
            };
            let mine = begin + lane;
            let column = if mine < end { s.load_readonly_once(p.col_indices.at(mine)) } else { NO_COLUMN };
            let mut columns = [0; BATCH as usize];
            let mut e = 0;
            while e < columns.len() {
                columns[e] = s.shuffle(column, (s.lane() & !(BATCH - 1)) + e as u32);
                e += 1;
            }
            let sampled = &p.sampled;
            let target = if mine < end { sampled.target(s, mine) } else { Target::NONE };
            // 2. to 4. Gather and accumulate.
            let mut sums = [Sum::<G>::ZERO; BATCH as usize];
            let mut first = 0;
            while first < sampled.inner {
                let k = first + lane * G::WIDTH;
                let inside = k < sampled.inner;
                let at = |row: u32, ld: u32| u64::from(row) * u64::from(ld) + u64::from(k);
                let x = match inside && begin < end {
                    true => G::fetch(s, sampled.x, at(row, sampled.ldx)),
                    false => G::ZERO,
                };
                let mut y = [G::ZERO; BATCH as usize];
                let mut e = 0;
                while e < y.len() {
                    if inside && columns[e] != NO_COLUMN {
                        y[e] = G::fetch(s, sampled.y, at(columns[e], sampled.ldy));
                    }
                    e += 1;
                }
                let mut x = x;
                if sampled.is_ragged(first, Self::SPAN, G::WIDTH) {
                    let present = sampled.inner.saturating_sub(k);
                    x = G::keep_first(x, present);
                    let mut e = 0;
                    while e < y.len() {
                        y[e] = G::keep_first(y[e], present);
                        e += 1;
                    }
                }
                let x = G::elements(s, x);
                let mut e = 0;
                while e < sums.len() {
                    sums[e] = dot::<S, G>(s, &x, y[e], sums[e]);
                    e += 1;
                }
                first += Self::SPAN;
            }
            let sum = add_lanes(s, lane, sums);
            // 5. Registers -> global.
            sampled.store(s, target, sum);
        }
    }
}

/// `sum + Σ x[i]·y[i]`.
#[inline(always)]
fn dot<S: Simt, G: Gather>(s: &S, x: &[Sum<G>; 8], y: G::Raw, mut sum: Sum<G>) -> Sum<G> {
    let y = G::elements(s, y);
    let mut i = 0;
    while i < G::WIDTH as usize {
        sum = Sum::<G>::fma(s, x[i], y[i], sum);
        i += 1;
    }
    sum
}

/// Adds the sums of the eight lanes; lane `l` gets the total of entry `l`.
///
/// # Safety
/// A collective of the full warp.
#[inline(always)]
unsafe fn add_lanes<S: Simt, T: Real>(s: &S, lane: u32, mut sums: [T; 8]) -> T {
    let mut half = 4;
    while half >= 1 {
        let upper = lane & half as u32 != 0;
        let mut i = 0;
        while i < half {
            let (keep, give) = if upper { (sums[i + half], sums[i]) } else { (sums[i], sums[i + half]) };
            // SAFETY: the caller's promise; the bounds are constants.
            sums[i] = keep + unsafe { T::shuffle_xor(s, give, half as u32) };
            i += 1;
        }
        half /= 2;
    }
    sums[0]
}

//! Exclusive prefix sums of a whole array: `out[i] = Σ_{j < i} x[j]` for `i ≤ len`, on CUDA cores.
//!
//! The primitive behind compaction and allocation on the device: where every element goes that is kept, where every
//! list begins whose length is known. Two kernels, as many launches as there are levels:
//!
//! ```text
//! x        | 2048 elements | 2048 elements | ...      a block each, 8 successive elements a thread
//! Scan     out: sums inside the block, from 0         sums: the total of each block
//! ScanAdd  out += the totals before its block, which each block adds up itself
//! ```
//!
//! Of more than [`ADDED_BLOCKS`] blocks the totals are scanned in the same way first, and each block adds one of the
//! outcome: two launches for most arrays, four for the others.
//!
//! Inside a block: a thread's 8 elements in registers, the threads of a warp by shuffles, the warps through shared
//! memory. Integers, so every order of addition gives the same bits; no block waits for another within a launch.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::kernel::Kernel;
use crate::sums::before_in_block;
use crate::variant::Variant;

/// Successive elements of a thread.
const PER_THREAD: u32 = 8;
/// Elements of a block.
pub const SCAN_BLOCK: u32 = Scan::BLOCK_THREADS * PER_THREAD;

/// So many totals the blocks of [`ScanAdd`] add up themselves, a thread sixteen at most, which saves a launch. Not
/// fitted to anything measured.
pub const ADDED_BLOCKS: u32 = 16 * ScanAdd::BLOCK_THREADS;

/// Arguments of [`Scan`] and of [`ScanAdd`].
///
/// # Obligations
/// - `len ≤ 2³²` less two blocks; `input` has `len` elements, `output` `len + 1`; both are aligned to 16 bytes, and are
///   the same array or do not overlap;
/// - with `b = ⌈(len + 1) / `[`SCAN_BLOCK`]`⌉` blocks in the grid, `sums` has `b` elements and overlaps neither; for
///   [`ScanAdd`] they are what [`Scan`] stored there, at most [`ADDED_BLOCKS`], or unless `scanned` is 0 the exclusive
///   sums of that;
/// - no sum exceeds 2³² − 1.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ScanParams {
    /// What is added up.
    pub input: GlobalPtr<u32>,
    /// The sum of the elements before each, and of all in the end.
    pub output: GlobalPtr<u32>,
    /// Total of each block.
    pub sums: GlobalPtr<u32>,
    /// Elements of the input.
    pub len: u32,
    /// Unless 0, an element counts as 1 if it is not 0: the sums are then positions in the list of those elements.
    pub flags: u32,
    /// Unless 0, `sums` are exclusive sums of totals, not totals.
    pub scanned: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Sums inside each block, and the total of each.
pub struct Scan;

impl Scan {
    const WARPS: u32 = Self::BLOCK_THREADS / WARP;
}

impl Kernel for Scan {
    type Params = ScanParams;
    const FILE: &'static str = "scan";
    const VARIANT: Variant = Variant::Scan;
    const BLOCK_THREADS: u32 = 256;
    const SHARED_BYTES: u32 = 4 * Self::WARPS;
    const UNITS_PER_BLOCK: u32 = SCAN_BLOCK;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ScanParams) {
        // 1. Locate.
        let first = s.block_idx() * SCAN_BLOCK + s.thread_idx() * PER_THREAD;
        // SAFETY: elements below `len` are read, positions up to `len` written, each by one thread; all threads reach
        // the collectives.
        unsafe {
            // 2. Global -> registers.
            let elements = load(s, p, first); // (8) per thread
            let own = total(elements);
            // 3. Sums of the lanes below, then of the warps below.
            let ([before], _) = before_in_block::<S, 1, { Self::WARPS }>(s, [own], 0);
            // 5. Registers -> global.
            store(s, p, first, before, elements);
            if s.thread_idx() == Self::BLOCK_THREADS - 1 {
                s.store(p.sums.at(s.block_idx()), before + own);
            }
        }
    }
}

/// A thread's elements, zeros beyond the last.
#[inline(always)]
unsafe fn load<S: Simt>(s: &S, p: &ScanParams, first: u32) -> [u32; PER_THREAD as usize] {
    let mut elements = [0; PER_THREAD as usize];
    // SAFETY: the caller's obligations; not read-only, for the output may be the same array.
    unsafe {
        if first + PER_THREAD <= p.len {
            let low: [u32; 4] = s.load(p.input.at(first).cast());
            let high: [u32; 4] = s.load(p.input.at(first + 4).cast());
            elements = [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]];
        } else {
            let mut i = 0;
            while i < PER_THREAD {
                if first + i < p.len {
                    elements[i as usize] = s.load(p.input.at(first + i));
                }
                i += 1;
            }
        }
    }
    let flag = p.flags != 0;
    elements.map(|x| if flag && x > 1 { 1 } else { x })
}

#[inline(always)]
fn total(elements: [u32; PER_THREAD as usize]) -> u32 {
    let mut sum = 0;
    let mut i = 0;
    while i < elements.len() {
        sum += elements[i];
        i += 1;
    }
    sum
}

/// Writes the sums of a thread's elements, given that of all before.
#[inline(always)]
unsafe fn store<S: Simt>(
    s: &S,
    p: &ScanParams,
    first: u32,
    before: u32,
    elements: [u32; PER_THREAD as usize],
) {
    let mut sums = [0; PER_THREAD as usize];
    let mut sum = before;
    let mut i = 0;
    while i < elements.len() {
        sums[i] = sum;
        sum += elements[i];
        i += 1;
    }
    let [a, b, c, d, e, f, g, h] = sums;
    // SAFETY: the caller's obligations.
    unsafe {
        if first + PER_THREAD <= p.len + 1 {
            s.store(p.output.at(first).cast(), [a, b, c, d]);
            s.store(p.output.at(first + 4).cast(), [e, f, g, h]);
        } else {
            let mut i = 0;
            while i < PER_THREAD {
                if first + i <= p.len {
                    s.store(p.output.at(first + i), sums[i as usize]);
                }
                i += 1;
            }
        }
    }
}

/// Adds to each block's sums what is before it.
pub struct ScanAdd;

impl ScanAdd {
    const WARPS: u32 = Self::BLOCK_THREADS / WARP;
}

impl Kernel for ScanAdd {
    type Params = ScanParams;
    const FILE: &'static str = "scan";
    const VARIANT: Variant = Variant::ScanAdd;
    const BLOCK_THREADS: u32 = 256;
    const SHARED_BYTES: u32 = 4 * Self::WARPS;
    const UNITS_PER_BLOCK: u32 = SCAN_BLOCK;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ScanParams) {
        let begin = s.block_idx() * SCAN_BLOCK;
        // SAFETY: positions up to `len`, each one thread's; all threads of a block come to the sum.
        unsafe {
            let before = match p.scanned != 0 {
                true => s.load_readonly(p.sums.at(s.block_idx())),
                false => sum_before(s, p.sums),
            };
            let mut i = 0;
            while i < PER_THREAD {
                let at = begin + i * Self::BLOCK_THREADS + s.thread_idx();
                if at <= p.len {
                    let to = p.output.at(at);
                    s.store(to, s.load(to) + before);
                }
                i += 1;
            }
        }
    }
}

/// The totals of the blocks before this one, added up by its threads.
#[inline(always)]
unsafe fn sum_before<S: Simt>(s: &S, totals: GlobalPtr<u32>) -> u32 {
    let mut sum = 0;
    let mut block = s.thread_idx();
    // SAFETY: there is a total for each block; all threads reach the collectives.
    unsafe {
        while block < s.block_idx() {
            sum += s.load_readonly(totals.at(block));
            block += ScanAdd::BLOCK_THREADS;
        }
        let (_, [all]) = before_in_block::<S, 1, { ScanAdd::WARPS }>(s, [sum], 0);
        all
    }
}

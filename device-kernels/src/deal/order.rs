//! The windows in the order in which they are dealt out.

use windrow_simt::{Simt, WARP};

use super::{BAND, CLASSES, DealParams, length_class};
use crate::kernel::Kernel;
use crate::sums::before_in_block;
use crate::unroll::each;
use crate::variant::Variant;

/// Threads of a block: one for each class.
const THREADS: u32 = CLASSES;
const WARPS: u32 = THREADS / WARP;
/// Windows of a thread in the longest band.
const EACH: usize = (BAND / THREADS) as usize;
/// Successive windows of a warp in the longest band.
const WARP_WINDOWS: u32 = EACH as u32 * WARP;
const CLASS_BITS: u32 = CLASSES.ilog2();

// Shared memory, in bytes.
/// How many windows of each class a warp has seen; then where its first of a band goes.
const COUNTERS: u32 = 0; // (WARPS, CLASSES)
/// Sums of each warp, while they are added: two at a time, or three numbers of each.
const SUMS: u32 = COUNTERS + 4 * WARPS * CLASSES; // (2 or 4, WARPS)
const SHARED: u32 = SUMS + 4 * 4 * WARPS;

/// Where the warp counts windows of a class, the greatest of which is rank 0.
#[inline(always)]
fn counter(warp: u32, rank: u32) -> u32 {
    COUNTERS + 4 * (warp * CLASSES + rank)
}

/// The rank of a window's class: the longest windows have the least.
#[inline(always)]
fn rank_of(steps: u32) -> u32 {
    CLASSES - 1 - length_class(steps)
}

/// The first window of a block, and the end of its windows.
#[inline(always)]
fn windows_of(p: &DealParams, block: u32) -> (u32, u32) {
    let begin = block * p.block_windows;
    let left = p.windows - begin;
    (begin, begin + if left < p.block_windows { left } else { p.block_windows })
}

/// The warp has seen no window.
///
/// # Safety
/// All lanes of the warp come here; the counters are the warp's alone.
#[inline(always)]
unsafe fn clear<S: Simt>(s: &S) {
    let mut rank = s.lane();
    // SAFETY: the caller's promise.
    unsafe {
        while rank < CLASSES {
            s.store_shared(counter(s.warp(), rank), 0_u32);
            rank += WARP;
        }
        s.sync_warp(); // RAW: cleared -> counted
    }
}

/// Counts a window of each lane that has one, and says how many of the warp's of its class came before.
///
/// # Safety
/// All lanes of the warp come here, with ranks of classes; the counters are the warp's alone.
#[inline(always)]
unsafe fn count<S: Simt>(s: &S, rank: u32, exists: bool) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        let mut peers = s.ballot(exists);
        let mut bit = 0;
        while bit < CLASS_BITS {
            let is_set = rank >> bit & 1 != 0;
            let set = s.ballot(is_set);
            peers &= if is_set { set } else { !set };
            bit += 1;
        }
        let counter = counter(s.warp(), rank);
        let before: u32 = s.load_shared(counter);
        let below = (peers & ((1 << s.lane()) - 1)).count_ones();
        s.sync_warp(); // WAR: read by all lanes -> counted up by one
        if exists && below == 0 {
            s.store_shared(counter, before + peers.count_ones());
        }
        s.sync_warp(); // RAW: counted up -> read for the next windows
        before + below
    }
}

/// The sum of what the threads before have, and that of all.
///
/// # Safety
/// As for [`before_in_block`].
#[inline(always)]
unsafe fn sums_of<S: Simt>(s: &S, own: u32, sums: u32) -> (u32, u32) {
    // SAFETY: the caller's promise.
    let ([before], [all]) = unsafe { before_in_block::<S, 1, WARPS>(s, [own], sums) };
    (before, all)
}

/// Counts the windows of each block by their class, and adds up what the host must know of them.
pub struct CountWindows;

impl Kernel for CountWindows {
    type Params = DealParams;
    const FILE: &'static str = "deal";
    const VARIANT: Variant = Variant::CountWindows;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = SHARED;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &DealParams) {
        // 1. Locate.
        let (mut begin, end) = windows_of(p, s.block_idx());
        let (mut steps, mut tiles, mut longest) = (0, 0, 0);
        // SAFETY: the obligations of the params; a warp has windows, or has none, as a whole; a barrier before sums.
        unsafe {
            clear(s);
            while begin < end {
                let warp_first = begin + s.warp() * WARP_WINDOWS;
                each::<EACH>(|i| {
                    let first = warp_first + i as u32 * WARP;
                    if first < end {
                        // 2. Global -> registers.
                        let exists = first + s.lane() < end;
                        let of = if exists { p.steps_and_tiles(s, first + s.lane()) } else { [0; 2] };
                        // 3. Counted.
                        count(s, rank_of(of[0]), exists);
                        steps += of[0];
                        tiles += of[1];
                        longest = if of[0] > longest { of[0] } else { longest };
                    }
                });
                begin += BAND;
            }
            let mut mask = WARP / 2;
            while mask > 0 {
                steps += s.shuffle_xor(steps, mask);
                tiles += s.shuffle_xor(tiles, mask);
                let other = s.shuffle_xor(longest, mask);
                longest = if other > longest { other } else { longest };
                mask /= 2;
            }
            if s.lane() == 0 {
                s.store_shared(SUMS + 16 * s.warp(), [steps, tiles, longest, 0]); // (WARPS)
            }
            s.sync_block(); // RAW: counted by each warp -> added
            // 4. and 5. Sums of the warps -> global.
            let rank = s.thread_idx();
            let mut sum = 0;
            let mut warp = 0;
            while warp < WARPS {
                let of_warp: u32 = s.load_shared(counter(warp, rank));
                sum += of_warp;
                warp += 1;
            }
            s.store(p.counts.at(s.block_idx() * CLASSES + rank), sum);
            if rank == 0 {
                let mut record = [0; 4];
                let mut warp = 0;
                while warp < WARPS {
                    let of_warp: [u32; 4] = s.load_shared(SUMS + 16 * warp);
                    record[0] += of_warp[0];
                    record[1] += of_warp[1];
                    record[2] = if of_warp[2] > record[2] { of_warp[2] } else { record[2] };
                    warp += 1;
                }
                if end == p.windows {
                    record[3] = s.load_readonly(p.window_vectors.at(p.windows));
                }
                s.store(p.records.at(s.block_idx()), record);
            }
        }
    }
}

/// Brings the windows into their order.
pub struct OrderWindows;

impl Kernel for OrderWindows {
    type Params = DealParams;
    const FILE: &'static str = "deal";
    const VARIANT: Variant = Variant::OrderWindows;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = SHARED;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &DealParams) {
        // 1. Locate. Where the block's first windows of the thread's class go, if these are large, and its first
        // others.
        let (mut band, end) = windows_of(p, s.block_idx());
        let rank = s.thread_idx();
        let is_large = rank < CLASSES - 1 - p.small_class;
        // Factors, not branches: the compiler would copy the barriers of a sum into both arms, which a warp may not
        // part at.
        let (of_large, of_small) = (u32::from(is_large), u32::from(!is_large));
        // SAFETY: the obligations of the params; all threads of the block go through as many bands.
        unsafe {
            let (mut before, mut all) = (0, 0);
            let mut block = 0;
            while block < p.blocks {
                let count = s.load_readonly(p.counts.at(block * CLASSES + rank));
                before += if block < s.block_idx() { count } else { 0 };
                all += count;
                block += 1;
            }
            let (large_before, large) = sums_of(s, all * of_large, SUMS);
            let (_, small_before) = sums_of(s, before * of_small, SUMS + 4 * WARPS);
            let mut next_large = large_before + before;
            let mut next_small = large + small_before;
            while band < end {
                let band_end = if end - band < p.band { end } else { band + p.band };
                let warp_first = band + s.warp() * (p.band / WARPS);
                let warp_end = warp_first + p.band / WARPS;
                let warp_end = if warp_end < band_end { warp_end } else { band_end };
                // 2. Global -> registers, and windows of the warp before each of its class.
                let (mut steps, mut places) = ([0; EACH], [0; EACH]);
                clear(s);
                each::<EACH>(|i| {
                    let first = warp_first + i as u32 * WARP;
                    if first < warp_end {
                        let exists = first + s.lane() < warp_end;
                        steps[i] = if exists { p.steps_and_tiles(s, first + s.lane())[0] } else { 0 };
                        places[i] = count(s, rank_of(steps[i]), exists);
                    }
                });
                s.sync_block(); // RAW: counted by each warp -> added
                // 3. Where those of each warp go.
                let mut of_warps = [0; WARPS as usize];
                let mut sum = 0;
                each::<{ WARPS as usize }>(|warp| {
                    of_warps[warp] = s.load_shared(counter(warp as u32, rank));
                    sum += of_warps[warp];
                });
                let (small_before, small) = sums_of(s, sum * of_small, SUMS);
                let mut begin = if is_large { next_large } else { next_small + small_before };
                each::<{ WARPS as usize }>(|warp| {
                    s.store_shared(counter(warp as u32, rank), begin);
                    begin += of_warps[warp];
                });
                next_large += sum;
                next_small += small;
                s.sync_block(); // RAW: begins written -> read
                // 5. Registers -> global.
                each::<EACH>(|i| {
                    let window = warp_first + i as u32 * WARP + s.lane();
                    if window < warp_end {
                        let begin: u32 = s.load_shared(counter(s.warp(), rank_of(steps[i])));
                        s.store(p.list.at(begin + places[i]), [window, steps[i]]);
                    }
                });
                s.sync_block(); // WAR: begins read -> counters of the next band
                band += p.band;
            }
        }
    }
}

//! The windows of each group go to its workers.

use windrow_simt::{Simt, WARP};

use super::{DealParams, GROUP};
use crate::NO_SLOT;
use crate::kernel::Kernel;
use crate::spmm::tile_stream::piece_word;
use crate::variant::Variant;

/// Bits of a worker's number in its group.
const WORKER_BITS: u32 = GROUP.ilog2();

/// List scheduling in each group: every window goes to the worker that has least, of equals the first.
///
/// A lane has a worker, as its load and its number in one word. Sorted by that, lanes take the next windows side by
/// side up to the first whose worker has more than one before it will have then: there list scheduling would turn back.
pub struct ScheduleWindows;

impl Kernel for ScheduleWindows {
    type Params = DealParams;
    const FILE: &'static str = "deal";
    const VARIANT: Variant = Variant::ScheduleWindows;
    const BLOCK_THREADS: u32 = WARP;
    const SHARED_BYTES: u32 = 4 * GROUP;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &DealParams) {
        // 1. Locate.
        let (group, lane) = (s.block_idx(), s.lane());
        let (workers, count) = (p.group_workers(group), p.group_windows(group));
        let list = p.list.at_wide(group as u64 * p.group_room as u64);
        let placed = p.placed.at_wide(group as u64 * p.group_room as u64);
        let mut key = if lane < workers { lane } else { u32::MAX };
        // SAFETY: the obligations of the params; every window and every worker is one lane's at a time.
        unsafe {
            // Windows of each worker are counted in shared memory, for lanes change their workers.
            s.store_shared(4 * lane, 0_u32); // (GROUP)
            s.sync_warp(); // RAW: cleared -> counted
            let load = |at: u32| if at < count { s.load_readonly(list.at(at))[1] } else { 0 };
            let (mut these, mut those) = (load(lane), load(WARP + lane));
            let mut done = 0;
            while done < count {
                // 2. The next window of each lane, of 64 in registers.
                let from = done % WARP + lane;
                let (early, late) = (s.shuffle(these, from % WARP), s.shuffle(those, from % WARP));
                let steps = if from < WARP { early } else { late };
                // `&`, not `&&`: the compiler copies the vote below into both arms of a branch.
                let exists = (lane < workers) & (done + lane < count);
                // 3. Sorted; up to where would list scheduling go?
                key = sort(s, key);
                let given = if exists { key + ((steps + 1) << WORKER_BITS) } else { u32::MAX };
                let least = least_before(s, given);
                let takes = exists & (key < least);
                let taken = s.ballot(takes).count_ones();
                if takes {
                    // 5. Registers -> global.
                    let worker = key % GROUP;
                    let windows: u32 = s.load_shared(4 * worker);
                    let place = [worker + GROUP * windows, (key >> WORKER_BITS) - windows];
                    s.store(placed.at(done + lane), place);
                    s.store_shared(4 * worker, windows + 1);
                    key = given;
                }
                s.sync_warp(); // RAW: counted -> read by another lane
                if done % WARP + taken >= WARP {
                    these = those;
                    those = load((done / WARP + 2) * WARP + lane);
                }
                done += taken;
            }
            let is_worker = key != u32::MAX;
            let worker = key % GROUP;
            let windows: u32 = s.load_shared(4 * worker);
            let total = if is_worker { [windows, (key >> WORKER_BITS) - windows] } else { [0; 2] };
            // Lanes without a worker are behind the others.
            let to = if is_worker { worker } else { lane };
            let mut steps = total[1];
            let mut mask = WARP / 2;
            while mask > 0 {
                steps += s.shuffle_xor(steps, mask);
                mask /= 2;
            }
            s.store(p.worker_totals.at(group * GROUP + to), total);
            if lane == 0 {
                s.store(p.group_totals.at(group), [count, steps]);
            }
        }
    }
}

/// The keys of all lanes, ascending from lane to lane: bitonic.
///
/// # Safety
/// All lanes of the warp come here.
#[inline(always)]
unsafe fn sort<S: Simt>(s: &S, mut key: u32) -> u32 {
    let mut run = 2;
    while run <= WARP {
        let mut apart = run / 2;
        while apart > 0 {
            // SAFETY: the caller's promise.
            let other = unsafe { s.shuffle_xor(key, apart) };
            let takes_less = (s.lane() & run == 0) == (s.lane() & apart == 0);
            key = if (other < key) == takes_less { other } else { key };
            apart /= 2;
        }
        run *= 2;
    }
    key
}

/// The least that the lanes below have; `u32::MAX` for the first.
///
/// # Safety
/// All lanes of the warp come here.
#[inline(always)]
unsafe fn least_before<S: Simt>(s: &S, own: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        let below = s.shuffle_up(own, 1);
        let mut least = if s.lane() == 0 { u32::MAX } else { below };
        let mut delta = 1;
        while delta < WARP {
            let below = s.shuffle_up(least, delta);
            least = if s.lane() >= delta && below < least { below } else { least };
            delta *= 2;
        }
        least
    }
}

/// Writes the pieces of each group, worker after worker, and the workers that have any.
pub struct PlacePieces;

impl PlacePieces {
    const WARPS: u32 = Self::BLOCK_THREADS / WARP;
    /// Where the pieces of each worker begin, and their steps.
    const BEGINS: u32 = 8 * Self::WARPS; // (GROUP, 2), behind sums of the warps
}

impl Kernel for PlacePieces {
    type Params = DealParams;
    const FILE: &'static str = "deal";
    const VARIANT: Variant = Variant::PlacePieces;
    const BLOCK_THREADS: u32 = 256;
    const SHARED_BYTES: u32 = Self::BEGINS + 8 * GROUP;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &DealParams) {
        // 1. Locate: what the groups before have.
        let group = s.block_idx();
        // SAFETY: the obligations of the params; groups and workers that there are; every piece is one thread's.
        unsafe {
            let mut before = [0; 2]; // windows, steps
            let mut other = s.thread_idx();
            while other < group {
                let of_other = s.load_readonly(p.group_totals.at(other));
                before = [before[0] + of_other[0], before[1] + of_other[1]];
                other += Self::BLOCK_THREADS;
            }
            let mut mask = WARP / 2;
            while mask > 0 {
                before =
                    [before[0] + s.shuffle_xor(before[0], mask), before[1] + s.shuffle_xor(before[1], mask)];
                mask /= 2;
            }
            if s.lane() == 0 {
                s.store_shared(8 * s.warp(), before); // (WARPS, 2)
            }
            s.sync_block(); // RAW: sums of warps written -> added
            before = [0; 2];
            let mut warp = 0;
            while warp < Self::WARPS {
                let of_warp: [u32; 2] = s.load_shared(8 * warp);
                before = [before[0] + of_warp[0], before[1] + of_warp[1]];
                warp += 1;
            }
            let [count, steps] = s.load_readonly(p.group_totals.at(group));
            // 2. Where the pieces of each worker begin.
            if s.warp() == 0 {
                let own = s.load_readonly(p.worker_totals.at(group * GROUP + s.lane()));
                let mut upto = own;
                let mut delta = 1;
                while delta < WARP {
                    let below = [s.shuffle_up(upto[0], delta), s.shuffle_up(upto[1], delta)];
                    if s.lane() >= delta {
                        upto = [upto[0] + below[0], upto[1] + below[1]];
                    }
                    delta *= 2;
                }
                let begin = [before[0] + upto[0] - own[0], before[1] + upto[1] - own[1]];
                s.store_shared(Self::BEGINS + 8 * s.lane(), begin); // (GROUP, 2)
                if own[0] > 0 {
                    // Everybody has a window, or every window its own worker.
                    let (rows, more) = p.whole_rows();
                    let workers = group * rows + if group < more { group } else { more };
                    let first = if p.windows < p.workers { before[0] } else { workers };
                    s.store(p.out_workers.at(first + s.lane()), [begin[1], begin[1] + own[1]]);
                }
            }
            s.sync_block(); // RAW: begins written -> read
            // 5. Global -> global.
            let first = group as u64 * p.group_room as u64;
            let mut number = s.thread_idx();
            while number < count {
                let [window, _] = s.load_readonly(p.list.at_wide(first + number as u64));
                let [place, step] = s.load_readonly(p.placed.at_wide(first + number as u64));
                let begin: [u32; 2] = s.load_shared(Self::BEGINS + 8 * (place % GROUP));
                let piece = begin[0] + place / GROUP;
                s.store(p.pieces.at(piece), [window, 0, piece_word(NO_SLOT, false), 0]);
                s.store(p.piece_steps.at(piece), begin[1] + step);
                number += Self::BLOCK_THREADS;
            }
            if group + 1 == p.groups && s.thread_idx() == 0 {
                s.store(p.piece_steps.at(p.windows), before[1] + steps);
            }
        }
    }
}

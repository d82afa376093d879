//! The windows go to the workers of the teams.

use windrow_simt::{Simt, WARP};

use super::{DealParams, MOST_TEAMS, PLACE_BLOCK};
use crate::NO_SLOT;
use crate::kernel::Kernel;
use crate::spmm::tile_stream::{TEAM, piece_word};
use crate::sums::before_in_block;
use crate::unroll::each;
use crate::variant::Variant;

/// Bits of a team's number.
const TEAM_BITS: u32 = MOST_TEAMS.ilog2();
const WARPS: u32 = MOST_TEAMS / WARP;
const _: () = assert!(WARPS == WARP, "a lane looks at a warp");

/// List scheduling: every [`TEAM`] successive windows go to the team that has least, of equals the first, and each of
/// them in the team to the worker that has least.
///
/// A thread has a team, as its load and its number in one word. Sorted by that, threads take the next windows side by
/// side up to the first whose team has more than one before it will have then: there list scheduling would turn back.
/// Where windows differ little, that is all teams; so the block sorts no more than about as often as teams take
/// windows, and not where these are alike.
pub struct ScheduleWindows;

impl ScheduleWindows {
    // Shared memory, in bytes.
    /// Steps and ends of windows that each worker has.
    const LOADS: u32 = 0; // (MOST_TEAMS, TEAM)
    /// Windows of each worker.
    const COUNTS: u32 = Self::LOADS + 4 * TEAM * MOST_TEAMS; // (MOST_TEAMS, TEAM)
    /// Words that threads exchange: two buffers by turns, so that a barrier is enough for each exchange.
    const WORDS: u32 = Self::COUNTS + 4 * TEAM * MOST_TEAMS; // (2, MOST_TEAMS)
    /// The least of each warp, and how many of its threads take windows; sums in the end.
    const OF_WARPS: u32 = Self::WORDS + 8 * MOST_TEAMS; // (2, WARPS)

    /// The keys of all threads, ascending from thread to thread: bitonic, in runs up to `length`, a power of two.
    /// Whoever is behind these keeps its key.
    ///
    /// # Safety
    /// All threads of the block come here with the same length, and none reads the words before a barrier.
    #[inline(always)]
    unsafe fn sort<S: Simt>(s: &S, mut key: u32, length: u32) -> u32 {
        let thread = s.thread_idx();
        let mut buffer = 0;
        let mut run = 2;
        while run <= length {
            let mut apart = run / 2;
            while apart > 0 {
                // SAFETY: the caller's promise; a thread's word is its own until the barrier, and is not written again
                // before the next one.
                let other = unsafe {
                    if apart < WARP {
                        s.shuffle_xor(key, apart)
                    } else {
                        let words = Self::WORDS + buffer * 4 * MOST_TEAMS;
                        buffer ^= 1;
                        s.store_shared(words + 4 * thread, key); // (MOST_TEAMS)
                        s.sync_block(); // RAW: keys written -> read by others
                        s.load_shared(words + 4 * (thread ^ apart))
                    }
                };
                let takes_less = (thread & run == 0) == (thread & apart == 0);
                key = if (other < key) == takes_less { other } else { key };
                apart /= 2;
            }
            run *= 2;
        }
        key
    }

    /// Whether the keys ascend from thread to thread: where the windows of a round cost the same, they still do.
    ///
    /// # Safety
    /// As for [`sort`](Self::sort) and for [`least_before`](Self::least_before).
    #[inline(always)]
    unsafe fn is_sorted<S: Simt>(s: &S, key: u32) -> bool {
        let place = Self::WORDS + 4 * s.thread_idx();
        // SAFETY: the caller's promise.
        unsafe {
            s.store_shared(place, key); // (MOST_TEAMS)
            s.sync_block(); // RAW: keys written -> read by the next threads
            let before = if s.thread_idx() == 0 { 0 } else { s.load_shared(place - 4) };
            Self::count(s, before > key) == 0
        }
    }

    /// The least that the threads before have; `u32::MAX` for the first.
    ///
    /// # Safety
    /// All threads of the block come here, and pass a barrier before the next call.
    #[inline(always)]
    unsafe fn least_before<S: Simt>(s: &S, own: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            let mut upto = own;
            let mut delta = 1;
            while delta < WARP {
                let below = s.shuffle_up(upto, delta);
                upto = if s.lane() >= delta && below < upto { below } else { upto };
                delta *= 2;
            }
            if s.lane() == WARP - 1 {
                s.store_shared(Self::OF_WARPS + 4 * s.warp(), upto); // (WARPS)
            }
            let below = s.shuffle_up(upto, 1);
            let least = if s.lane() == 0 { u32::MAX } else { below };
            s.sync_block(); // RAW: leasts of warps, and loads of teams by other threads, written -> read
            // A lane looks at a warp.
            let of_warp: u32 = s.load_shared(Self::OF_WARPS + 4 * s.lane());
            let mut before = if s.lane() < s.warp() { of_warp } else { u32::MAX };
            let mut mask = WARP / 2;
            while mask > 0 {
                let other = s.shuffle_xor(before, mask);
                before = if other < before { other } else { before };
                mask /= 2;
            }
            if before < least { before } else { least }
        }
    }

    /// How many threads say yes.
    ///
    /// # Safety
    /// As for [`least_before`](Self::least_before).
    #[inline(always)]
    unsafe fn count<S: Simt>(s: &S, says: bool) -> u32 {
        let place = Self::OF_WARPS + 4 * WARPS;
        // SAFETY: the caller's promise.
        unsafe {
            let in_warp = s.ballot(says).count_ones();
            if s.lane() == 0 {
                s.store_shared(place + 4 * s.warp(), in_warp); // (WARPS)
            }
            s.sync_block(); // RAW: counts of warps written -> read
            let mut sum: u32 = s.load_shared(place + 4 * s.lane());
            let mut mask = WARP / 2;
            while mask > 0 {
                sum += s.shuffle_xor(sum, mask);
                mask /= 2;
            }
            sum
        }
    }

    /// Gives the windows from this place on to the workers of a team, each to the one that has least.
    ///
    /// # Safety
    /// The obligations of the params; the team and the windows are the thread's.
    #[inline(always)]
    unsafe fn give<S: Simt>(
        s: &S,
        p: &DealParams,
        team: u32,
        first: u32,
        windows: [[u32; 2]; TEAM as usize],
    ) {
        let of_team = 4 * TEAM * team;
        // SAFETY: the caller's promise.
        unsafe {
            let mut loads: [u32; TEAM as usize] = s.load_shared(Self::LOADS + of_team);
            let mut counts: [u32; TEAM as usize] = s.load_shared(Self::COUNTS + of_team);
            each::<{ TEAM as usize }>(|i| {
                if first + (i as u32) < p.windows {
                    let [window, steps] = windows[i];
                    // The least load, and whose it is.
                    let (mut least, mut load, mut count) = (0, loads[0], counts[0]);
                    each::<{ TEAM as usize }>(|worker| {
                        let is_less = loads[worker] < load;
                        least = if is_less { worker as u32 } else { least };
                        load = if is_less { loads[worker] } else { load };
                        count = if is_less { counts[worker] } else { count };
                    });
                    // 5. Registers -> global.
                    s.store(
                        p.placed.at(first + i as u32),
                        [window, TEAM * team + least, count, load - count],
                    );
                    each::<{ TEAM as usize }>(|worker| {
                        let has = u32::from(worker as u32 == least);
                        loads[worker] += has * (steps + 1);
                        counts[worker] += has;
                    });
                }
            });
            s.store_shared(Self::LOADS + of_team, loads); // (TEAM)
            s.store_shared(Self::COUNTS + of_team, counts); // (TEAM)
        }
    }

    /// Says where the pieces of each worker begin, and which steps it has.
    ///
    /// # Safety
    /// The obligations of the params; all threads of the block come here, after a barrier.
    #[inline(always)]
    unsafe fn place_workers<S: Simt>(s: &S, p: &DealParams) {
        let team = s.thread_idx();
        // SAFETY: the caller's promise; a thread for each team.
        unsafe {
            let (mut loads, mut counts) = ([0; TEAM as usize], [0; TEAM as usize]);
            if team < p.teams {
                loads = s.load_shared(Self::LOADS + 4 * TEAM * team);
                counts = s.load_shared(Self::COUNTS + 4 * TEAM * team);
            }
            let (mut windows, mut steps) = (0, 0);
            each::<{ TEAM as usize }>(|worker| {
                windows += counts[worker];
                steps += loads[worker] - counts[worker];
            });
            let ([mut piece, mut step], [_, all_steps]) =
                before_in_block::<S, 2, WARPS>(s, [windows, steps], Self::OF_WARPS);
            each::<{ TEAM as usize }>(|i| {
                // Whoever has nothing is least: of fewer windows than workers, the first workers have one each.
                if counts[i] > 0 {
                    let worker = TEAM * team + i as u32;
                    let end = step + loads[i] - counts[i];
                    s.store(p.worker_begins.at(worker), [piece, step]);
                    s.store(p.out_workers.at(worker), [step, end]);
                    (piece, step) = (piece + counts[i], end);
                }
            });
            if team == 0 {
                s.store(p.piece_steps.at(p.windows), all_steps);
            }
        }
    }
}

impl Kernel for ScheduleWindows {
    type Params = DealParams;
    const FILE: &'static str = "deal";
    const VARIANT: Variant = Variant::ScheduleWindows;
    const BLOCK_THREADS: u32 = MOST_TEAMS;
    const SHARED_BYTES: u32 = Self::OF_WARPS + 8 * WARPS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &DealParams) {
        // 1. Locate.
        let thread = s.thread_idx();
        let mut length = 2;
        while length < p.teams {
            length *= 2;
        }
        let mut key = if thread < p.teams { thread } else { u32::MAX };
        // SAFETY: the obligations of the params; every window and every team is one thread's at a time.
        unsafe {
            s.store_shared(Self::LOADS + 4 * TEAM * thread, [0_u32; TEAM as usize]); // (MOST_TEAMS, TEAM)
            s.store_shared(Self::COUNTS + 4 * TEAM * thread, [0_u32; TEAM as usize]); // (MOST_TEAMS, TEAM)
            let mut done = 0;
            while done < p.windows {
                // 2. The next windows of each thread: global -> registers, while keys are sorted.
                let first = done + TEAM * thread;
                let mut windows = [[0; 2]; TEAM as usize];
                let mut cost = 0;
                each::<{ TEAM as usize }>(|i| {
                    if thread < p.teams && first + (i as u32) < p.windows {
                        windows[i] = s.load_readonly(p.list.at(first + i as u32));
                        cost += windows[i][1] + 1;
                    }
                });
                // 3. Sorted; up to where would list scheduling go?
                if !Self::is_sorted(s, key) {
                    key = Self::sort(s, key, length);
                }
                let exists = (thread < p.teams) & (first < p.windows);
                let given = if exists { key + (cost << TEAM_BITS) } else { u32::MAX };
                let least = Self::least_before(s, given);
                let takes = exists & (key < least);
                let taken = Self::count(s, takes);
                if takes {
                    Self::give(s, p, key % MOST_TEAMS, first, windows);
                    key = given;
                }
                done += TEAM * taken;
            }
            s.sync_block(); // RAW: loads and counts written -> read; WAR: words of warps
            Self::place_workers(s, p);
        }
    }
}

/// Writes the piece of each window.
pub struct PlacePieces;

impl Kernel for PlacePieces {
    type Params = DealParams;
    const FILE: &'static str = "deal";
    const VARIANT: Variant = Variant::PlacePieces;
    const BLOCK_THREADS: u32 = PLACE_BLOCK;
    const SHARED_BYTES: u32 = 0;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &DealParams) {
        // 1. Locate.
        let place = s.block_idx() * Self::BLOCK_THREADS + s.thread_idx();
        if place < p.windows {
            // SAFETY: the obligations of the params; every piece is one thread's.
            unsafe {
                // 2. Global -> registers.
                let [window, worker, before, steps] = s.load_readonly(p.placed.at(place));
                let [piece, step] = s.load_readonly(p.worker_begins.at(worker));
                // 5. Registers -> global.
                s.store(p.pieces.at(piece + before), [window, 0, piece_word(NO_SLOT, false), 0]);
                s.store(p.piece_steps.at(piece + before), step + steps);
            }
        }
    }
}

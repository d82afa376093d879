//! Stable sort of u32 keys by their low bits, on CUDA cores: digit by digit from the lowest, `⌈bits / 9⌉` passes.
//!
//! A pass is three launches; of so few keys that one block takes them it is the last alone.
//!
//! ```text
//! keys     | tile | tile | ...     a block takes successive tiles of 4096 keys, a warp 512 successive keys of each
//! SortCount    counts[digit][block]: keys of the block that have the digit
//! SortScan     the same of the blocks before, a block for each digit; totals[digit]
//! SortScatter  every key goes behind those of smaller digits, of blocks before, and of tiles, warps and keys before
//! ```
//!
//! A warp takes 32 keys at a time. Lanes with one digit find each other by a ballot for each of its bits; the first of
//! them counts them all, in a counter that the warp has for each digit, so that nothing is added atomically and the
//! order is that of the keys. Keys are brought into their order in shared memory first: what is stored side by side
//! then belongs side by side, as far as a tile has keys of one digit. Integers and fixed places: the same arrays
//! whatever runs first, and no block waits for another.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::kernel::Kernel;
use crate::sums::before_in_block;
use crate::unroll::each;
use crate::variant::Variant;

pub(crate) const THREADS: u32 = 256;
const WARPS: u32 = THREADS / WARP;
/// Keys of a thread in a tile.
pub(crate) const EACH: usize = 16;
/// Successive keys of a warp in a tile.
pub(crate) const WARP_KEYS: u32 = EACH as u32 * WARP;
/// Keys of a tile.
pub const SORT_TILE: u32 = WARPS * WARP_KEYS;
/// Bits of a digit at most.
pub const MOST_DIGIT_BITS: u32 = 9;
/// Values of a digit at most: two for each thread.
const DIGITS: u32 = 1 << MOST_DIGIT_BITS;
/// Blocks of [`SortCount`] and [`SortScatter`] at most: what a block of [`SortScan`] adds up.
pub const MOST_SORT_BLOCKS: u32 = THREADS * SCANNED;
/// Counts of a thread of [`SortScan`].
const SCANNED: u32 = 8;

// Shared memory, in bytes.
/// How many keys of each digit a warp has seen; then where its first in a tile goes.
const COUNTERS: u32 = 0; // (WARPS, DIGITS)
/// The tile in its new order: keys, then payloads.
pub(crate) const TILE: u32 = COUNTERS + 4 * WARPS * DIGITS; // (SORT_TILE)
/// What a place in the tile is less than that in the output, for each digit.
const BASES: u32 = TILE + 4 * SORT_TILE; // (DIGITS)
/// Totals of each warp, while they are added.
const SUMS: u32 = BASES + 4 * DIGITS; // (WARPS)
/// What [`scatter_tile`] takes in all.
pub(crate) const SCATTER_BYTES: u32 = SUMS + 4 * WARPS;

/// Arguments of [`SortCount`], [`SortScan`] and [`SortScatter`].
///
/// # Obligations
/// - `keys` has `len ≤` [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS) elements of `key_words` words, 1 or 2, of which
///   the first is the key; `payloads` has `len` or is null, `out_keys` and `out_payloads` likewise; nothing that is
///   written overlaps anything else;
/// - `digit_bits` is 1 to [`MOST_DIGIT_BITS`], and `shift < 32`;
/// - `blocks ≤` [`MOST_SORT_BLOCKS`], of `block_tiles` successive tiles each, are the fewest that take `len` keys, and
///   are the grid of [`SortCount`] and [`SortScatter`]; that of [`SortScan`] is a block for each value of a digit;
/// - `counts` has `blocks` elements for each value of a digit, `totals` one; for [`SortScan`] the first are what
///   [`SortCount`] stored, for [`SortScatter`] both what [`SortScan`] did. `counts` may be null for [`SortScatter`] of
///   one tile.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SortParams {
    /// What is sorted, and stays as it is.
    pub keys: GlobalPtr<u32>,
    /// What goes with each key; null: its place among them.
    pub payloads: GlobalPtr<u32>,
    /// The keys in their order; null: not wanted.
    pub out_keys: GlobalPtr<u32>,
    /// What goes with each; null: not wanted.
    pub out_payloads: GlobalPtr<u32>,
    /// For each value of a digit, keys of each block; from [`SortScan`] on those of the blocks before.
    pub counts: GlobalPtr<u32>,
    /// Keys with each value of a digit.
    pub totals: GlobalPtr<u32>,
    /// Number of keys in all.
    pub len: u32,
    /// Words from one key to the next.
    pub key_words: u32,
    /// Bits below the digit.
    pub shift: u32,
    /// Bits of the digit.
    pub digit_bits: u32,
    /// Blocks of the keys.
    pub blocks: u32,
    /// Tiles of a block.
    pub block_tiles: u32,
}

impl SortParams {
    #[inline(always)]
    fn digit(&self, key: u32) -> u32 {
        key >> self.shift & ((1 << self.digit_bits) - 1)
    }

    #[inline(always)]
    fn digits(&self) -> u32 {
        1 << self.digit_bits
    }

    /// The first key of a block, and the end: a tile begins every [`SORT_TILE`] from the first on.
    #[inline(always)]
    pub(crate) fn keys_of(&self, block: u32) -> (u32, u32) {
        let keys = self.block_tiles * SORT_TILE;
        let (begin, left) = (block * keys, self.len - block * keys);
        (begin, begin + if left < keys { left } else { keys })
    }
}

/// The thread's keys of a tile: from `first` on, a warp's width apart. What is behind the last has the greatest digit,
/// so that it comes behind all.
#[inline(always)]
unsafe fn load<S: Simt>(s: &S, p: &SortParams, first: u32) -> [u32; EACH] {
    let mut keys = [u32::MAX; EACH];
    each::<EACH>(|i| {
        let at = first + i as u32 * WARP;
        if at < p.len {
            // SAFETY: the obligations of the params; `at < len`.
            keys[i] = unsafe { s.load_readonly(p.keys.at_wide(u64::from(at) * u64::from(p.key_words))) };
        }
    });
    keys
}

/// Where the warp counts keys with a digit.
#[inline(always)]
fn counter(warp: u32, digit: u32) -> u32 {
    COUNTERS + 4 * (warp * DIGITS + digit)
}

/// No key was seen by the warp.
///
/// # Safety
/// All lanes of the warp come here; the counters are the warp's alone.
#[inline(always)]
unsafe fn clear<S: Simt>(s: &S) {
    let mut digit = s.lane();
    // SAFETY: the caller's promise.
    unsafe {
        while digit < DIGITS {
            s.store_shared(counter(s.warp(), digit), 0_u32);
            digit += WARP;
        }
        s.sync_warp(); // RAW: cleared -> counted
    }
}

/// Counts a key of each lane, and says how many of the warp's with its digit came before.
///
/// # Safety
/// All lanes of the warp come here; the counters are the warp's alone.
#[inline(always)]
unsafe fn count<S: Simt>(s: &S, digit: u32, digit_bits: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        let mut peers = u32::MAX;
        let mut bit = 0;
        while bit < digit_bits {
            let is_set = digit >> bit & 1 != 0;
            let set = s.ballot(is_set);
            peers &= if is_set { set } else { !set };
            bit += 1;
        }
        let counter = counter(s.warp(), digit);
        let before: u32 = s.load_shared(counter);
        let below = (peers & ((1 << s.lane()) - 1)).count_ones();
        s.sync_warp(); // WAR: read by all lanes -> counted up by one
        if below == 0 {
            s.store_shared(counter, before + peers.count_ones());
        }
        s.sync_warp(); // RAW: counted up -> read for the next keys
        before + below
    }
}

/// Counts the keys of each block by their digit.
pub struct SortCount;

impl Kernel for SortCount {
    type Params = SortParams;
    const FILE: &'static str = "sort";
    const VARIANT: Variant = Variant::SortCount;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = COUNTERS + 4 * WARPS * DIGITS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SortParams) {
        // 1. Locate.
        let (mut tile, end) = p.keys_of(s.block_idx());
        // SAFETY: the obligations of the params; a warp has keys, or has none, as a whole; a barrier before the sums.
        unsafe {
            clear(s);
            while tile < end {
                // 2. Global -> registers.
                let warp_first = tile + s.warp() * WARP_KEYS;
                let keys = load(s, p, warp_first + s.lane());
                // 3. Registers -> shared: how many there are of each digit.
                each::<EACH>(|i| {
                    if warp_first + i as u32 * WARP < end {
                        count(s, p.digit(keys[i]), p.digit_bits);
                    }
                });
                tile += SORT_TILE;
            }
            s.sync_block(); // RAW: counted by each warp -> added
            // 4. and 5. Sums of the warps -> global.
            let mut digit = s.thread_idx();
            while digit < p.digits() {
                let mut sum = 0;
                let mut warp = 0;
                while warp < WARPS {
                    let of_warp: u32 = s.load_shared(counter(warp, digit));
                    sum += of_warp;
                    warp += 1;
                }
                s.store(p.counts.at(digit * p.blocks + s.block_idx()), sum);
                digit += THREADS;
            }
        }
    }
}

/// Sums up the counts of the blocks before each, for the digit that is the block's number.
pub struct SortScan;

impl Kernel for SortScan {
    type Params = SortParams;
    const FILE: &'static str = "sort";
    const VARIANT: Variant = Variant::SortScan;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = 4 * WARPS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SortParams) {
        // 1. Locate.
        let counts = p.counts.at(s.block_idx() * p.blocks); // of one digit
        let first = s.thread_idx() * SCANNED;
        // SAFETY: counts of blocks that exist, each one thread's; all threads come to the sums.
        unsafe {
            // 2. Global -> registers.
            let mut own = [0; SCANNED as usize];
            let mut sum = 0;
            each::<{ SCANNED as usize }>(|i| {
                if first + (i as u32) < p.blocks {
                    own[i] = s.load(counts.at(first + i as u32));
                }
                sum += own[i];
            });
            // 3. Sums of the threads before.
            let ([mut before], _) = before_in_block::<S, 1, WARPS>(s, [sum], 0);
            // 5. Registers -> global.
            if s.thread_idx() == THREADS - 1 {
                s.store(p.totals.at(s.block_idx()), before + sum);
            }
            each::<{ SCANNED as usize }>(|i| {
                if first + (i as u32) < p.blocks {
                    s.store(counts.at(first + i as u32), before);
                }
                before += own[i];
            });
        }
    }
}

/// Brings every key, and what goes with it, to its place.
pub struct SortScatter;

impl Kernel for SortScatter {
    type Params = SortParams;
    const FILE: &'static str = "sort";
    const VARIANT: Variant = Variant::SortScatter;
    const BLOCK_THREADS: u32 = THREADS;
    // Left to itself, ptxas takes registers for one; there are none to spill for three.
    const MIN_BLOCKS: u32 = 2;
    const SHARED_BYTES: u32 = SCATTER_BYTES;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SortParams) {
        // 1. Locate.
        let (mut tile, end) = p.keys_of(s.block_idx());
        // SAFETY: the obligations of the params; all threads of the block go through as many tiles.
        unsafe {
            let mut next = begins(s, p);
            while tile < end {
                let tile_end = if end - tile < SORT_TILE { end } else { tile + SORT_TILE };
                next = scatter_tile(s, p, (tile, tile_end), next).next;
                tile += SORT_TILE;
            }
        }
    }
}

/// Where the block's first keys of the thread's two digits go.
///
/// # Safety
/// The obligations of the params; all threads of the block come here, first of all.
#[inline(always)]
pub(crate) unsafe fn begins<S: Simt>(s: &S, p: &SortParams) -> [u32; 2] {
    if p.counts == GlobalPtr::NULL {
        return [0; 2];
    }
    let digits = [2 * s.thread_idx(), 2 * s.thread_idx() + 1];
    // SAFETY: the caller's obligations; totals and counts are read of digits that there are.
    unsafe {
        let totals =
            digits.map(|digit| if digit < p.digits() { s.load_readonly(p.totals.at(digit)) } else { 0 });
        let counts = digits.map(|digit| match digit < p.digits() {
            true => s.load_readonly(p.counts.at(digit * p.blocks + s.block_idx())),
            false => 0,
        });
        let ([before], _) = before_in_block::<S, 1, WARPS>(s, [totals[0] + totals[1]], SUMS);
        s.sync_block(); // WAR: totals of warps read -> those of a tile
        [before + counts[0], before + totals[0] + counts[1]]
    }
}

/// Where the keys of a tile went.
pub(crate) struct Scattered {
    /// Where the first of the next tile go, of the thread's two digits.
    pub(crate) next: [u32; 2],
    /// For each key that the thread read, its place in the tile.
    pub(crate) places: [u32; EACH],
    /// For each place in the tile that is the thread's, the place in the output.
    pub(crate) to: [u32; EACH],
}

/// Brings the keys of a tile to their places, the first of the thread's two digits to `next`. All threads have passed
/// a barrier after the last use of [`TILE`].
///
/// # Safety
/// The obligations of the params; all threads of the block come here with the same tile, `next` is of [`begins`], or of
/// the tile before.
#[inline(always)]
pub(crate) unsafe fn scatter_tile<S: Simt>(
    s: &S,
    p: &SortParams,
    (tile, end): (u32, u32),
    next: [u32; 2],
) -> Scattered {
    let warp_first = tile + s.warp() * WARP_KEYS;
    let first = warp_first + s.lane();
    // SAFETY: the caller's obligations; keys and payloads are read below `len`, places are a permutation of them.
    unsafe {
        // 2. Global -> registers.
        let keys = load(s, p, first);
        // 3. Keys of the warp before each with its digit.
        clear(s);
        let mut places = [0; EACH]; // in the tile
        each::<EACH>(|i| {
            if warp_first + i as u32 * WARP < end {
                places[i] = count(s, p.digit(keys[i]), p.digit_bits);
            }
        });
        s.sync_block(); // RAW: counted by each warp -> added
        let next = place_digits(s, p, next);
        s.sync_block(); // RAW: places of digits written -> read
        // 4. Registers -> shared, in the new order.
        each::<EACH>(|i| {
            if first + (i as u32) * WARP < end {
                let digit_begins: u32 = s.load_shared(counter(s.warp(), p.digit(keys[i])));
                places[i] += digit_begins;
                s.store_shared(TILE + 4 * places[i], keys[i]);
            }
        });
        s.sync_block(); // RAW: keys in order -> read
        // 5. Shared -> global.
        let len = end - tile;
        let mut to = [0; EACH];
        each::<EACH>(|i| {
            let place = i as u32 * THREADS + s.thread_idx();
            if place < len {
                let key: u32 = s.load_shared(TILE + 4 * place);
                let base: u32 = s.load_shared(BASES + 4 * p.digit(key));
                to[i] = base.wrapping_add(place);
                if p.out_keys != GlobalPtr::NULL {
                    s.store(p.out_keys.at(to[i]), key);
                }
            }
        });
        s.sync_block(); // WAR: keys read -> payloads, or another tile
        if p.out_payloads != GlobalPtr::NULL {
            each::<EACH>(|i| {
                let at = first + i as u32 * WARP;
                if at < end {
                    let is_given = p.payloads != GlobalPtr::NULL;
                    let payload = if is_given { s.load_readonly(p.payloads.at(at)) } else { at };
                    s.store_shared(TILE + 4 * places[i], payload);
                }
            });
            s.sync_block(); // RAW: payloads in order -> read
            each::<EACH>(|i| {
                let place = i as u32 * THREADS + s.thread_idx();
                if place < len {
                    let payload: u32 = s.load_shared(TILE + 4 * place);
                    s.store(p.out_payloads.at(to[i]), payload);
                }
            });
            s.sync_block(); // WAR: payloads read -> another tile
        }
        Scattered { next, places, to }
    }
}

/// Where the keys of each warp with the thread's two digits begin in the tile, and how far that is from the output,
/// where they begin at `next`; and where those of the next tile begin.
#[inline(always)]
unsafe fn place_digits<S: Simt>(s: &S, p: &SortParams, next: [u32; 2]) -> [u32; 2] {
    let first = 2 * s.thread_idx();
    // SAFETY: the caller has all threads here, between barriers; counters and bases of two digits are one thread's.
    unsafe {
        let mut of_warps = [[0; 2]; WARPS as usize];
        let mut totals = [0; 2];
        each::<{ WARPS as usize }>(|warp| {
            of_warps[warp] = s.load_shared(counter(warp as u32, first));
            totals = [totals[0] + of_warps[warp][0], totals[1] + of_warps[warp][1]];
        });
        let ([before], _) = before_in_block::<S, 1, WARPS>(s, [totals[0] + totals[1]], SUMS);
        let begins = [before, before + totals[0]];
        let mut begin = begins;
        each::<{ WARPS as usize }>(|warp| {
            s.store_shared(counter(warp as u32, first), begin);
            begin = [begin[0] + of_warps[warp][0], begin[1] + of_warps[warp][1]];
        });
        // One tile in its order is the whole in its order.
        let bases = match p.counts == GlobalPtr::NULL {
            true => [0; 2],
            false => [next[0].wrapping_sub(begins[0]), next[1].wrapping_sub(begins[1])],
        };
        s.store_shared(BASES + 4 * first, bases);
        [next[0].wrapping_add(totals[0]), next[1].wrapping_add(totals[1])]
    }
}

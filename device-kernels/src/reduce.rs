//! Reductions among the threads of a group: the two that Sgap (section 5.3) calls `atomicAddGroup` and
//! `segReduceGroup`.
//!
//! A *group* is `size` threads of a warp, `stride` lanes apart, so that the lanes between them may hold other columns
//! of the same result:
//!
//! ```text
//! lane        0  1  2  3  4  5  6  7      stride 2, size 4
//! thread      0  0  1  1  2  2  3  3
//! column      a  b  a  b  a  b  a  b
//! ```
//!
//! Neither writes anything: who does, and whether by an atomic addition or to a place of its own, the kernel decides.
//! Sums are formed in an order that depends on the group's shape alone, so that two runs give the same bits.

use windrow_simt::Simt;

use crate::real::Real;

/// The shape of a group: a number of threads and the lanes from one to the next, powers of two with a product of at
/// most 32, as their logarithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupShape {
    /// Logarithm of the group's threads.
    pub size_log2: u32,
    /// Lanes from one thread to the next.
    pub stride_log2: u32,
}

impl GroupShape {
    /// The thread's number in its group.
    #[inline(always)]
    #[must_use]
    pub const fn place(self, lane: u32) -> u32 {
        lane >> self.stride_log2 & ((1 << self.size_log2) - 1)
    }
}

/// What the threads before one add to its first segment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Carry<T, const C: usize> {
    /// The sum of what belongs to the segment.
    pub sum: [T; C],
    /// Whether a segment begins in one of these threads: if none does, the first segment began before the group.
    pub started: bool,
}

/// Parallel reduction: every thread of a group gets the sum of all. Group: full warp.
///
/// # Safety
/// Collective: all 32 lanes, with the same shape.
#[inline(always)]
pub unsafe fn group_sum<S: Simt, T: Real, const C: usize>(
    s: &S,
    shape: GroupShape,
    mut sum: [T; C],
) -> [T; C] {
    let mut mask = 1 << shape.stride_log2;
    while mask < 1 << (shape.stride_log2 + shape.size_log2) {
        let mut i = 0;
        while i < C {
            // SAFETY: the caller's promise; the mask is below 32.
            let other = unsafe { T::shuffle_xor(s, sum[i], mask) };
            sum[i] = sum[i] + other;
            i += 1;
        }
        mask *= 2;
    }
    sum
}

/// Segment reduction: threads hold successive pieces of a sequence that is cut into segments; what is carried into each
/// thread from those before it in the group. Group: full warp.
///
/// `tail` is the sum of the thread's last segment, as far as the thread has it, and `starts` whether that began in the
/// thread; else the thread is inside one segment as a whole. A thread without elements has a tail of zero and none
/// starts.
///
/// The threads before are added pairwise (Hillis and Steele), nearer ones first.
///
/// # Safety
/// Collective: all 32 lanes, with the same shape.
#[inline(always)]
pub unsafe fn segment_carry<S: Simt, T: Real, const C: usize>(
    s: &S,
    shape: GroupShape,
    tail: [T; C],
    starts: bool,
) -> Carry<T, C> {
    let place = shape.place(s.lane());
    let (mut sum, mut started) = (tail, starts);
    let mut distance = 1;
    while distance < 1 << shape.size_log2 {
        // SAFETY: the caller's promise; the group's lanes are fewer than 32.
        let (other, other_started) = unsafe { take_up(s, distance << shape.stride_log2, sum, started) };
        if place >= distance && !started {
            let mut i = 0;
            while i < C {
                sum[i] = sum[i] + other[i];
                i += 1;
            }
            started = other_started;
        }
        distance *= 2;
    }
    // Of the thread before.
    // SAFETY: the caller promises that all 32 lanes are here, with the same shape.
    let (before, before_started) = unsafe { take_up(s, 1 << shape.stride_log2, sum, started) };
    if place == 0 {
        Carry { sum: [T::ZERO; C], started: false }
    } else {
        Carry { sum: before, started: before_started }
    }
}

/// What the lane `delta` below holds.
#[inline(always)]
unsafe fn take_up<S: Simt, T: Real, const C: usize>(
    s: &S,
    delta: u32,
    sum: [T; C],
    started: bool,
) -> ([T; C], bool) {
    let mut other = [T::ZERO; C];
    let mut i = 0;
    // A group as wide as the warp has nobody below its first thread, whose own values come back: nobody uses them.
    let delta = delta & 31;
    // SAFETY: the caller promises that all 32 lanes are here, with the same `delta`.
    unsafe {
        while i < C {
            other[i] = T::shuffle_up(s, sum[i], delta);
            i += 1;
        }
        (other, s.shuffle_up(u32::from(started), delta) != 0)
    }
}

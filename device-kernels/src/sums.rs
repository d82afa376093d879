//! Sums over the threads of a block: what blocks of rows, keys and entries are counted with.

use windrow_simt::{Simt, WARP};

use crate::unroll::each;

/// What the threads before this one in its block have in all, and what all threads have, of each of `N` numbers; by
/// `4·N` bytes of shared memory for each of `WARPS` warps, from `at` on. Group: block.
///
/// # Safety
/// All threads of the block, which has so many warps, come here, and have passed a barrier since the bytes were used.
#[inline(always)]
pub(crate) unsafe fn before_in_block<S: Simt, const N: usize, const WARPS: u32>(
    s: &S,
    own: [u32; N],
    at: u32,
) -> ([u32; N], [u32; N]) {
    let mut upto = own;
    let mut delta = 1;
    let place = |warp: u32, i: usize| at + 4 * (warp * N as u32 + i as u32);
    // SAFETY: the caller's promise; each warp has a place.
    unsafe {
        while delta < WARP {
            let mut below = [0; N];
            each::<N>(|i| below[i] = s.shuffle_up(upto[i], delta));
            if s.lane() >= delta {
                each::<N>(|i| upto[i] += below[i]);
            }
            delta *= 2;
        }
        if s.lane() == WARP - 1 {
            each::<N>(|i| s.store_shared(place(s.warp(), i), upto[i])); // (WARPS, N)
        }
        s.sync_block(); // RAW: totals of warps written -> added
        let (mut before, mut total) = ([0; N], [0; N]);
        let mut warp = 0;
        while warp < WARPS {
            each::<N>(|i| {
                let of_warp: u32 = s.load_shared(place(warp, i));
                before[i] += if warp < s.warp() { of_warp } else { 0 };
                total[i] += of_warp;
            });
            warp += 1;
        }
        each::<N>(|i| before[i] += upto[i] - own[i]);
        (before, total)
    }
}

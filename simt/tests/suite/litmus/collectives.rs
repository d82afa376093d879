//! Collectives that not all threads of the group reach, or not at the same place.

use windrow_simt::Simt;
use windrow_simt::emulator::Thread;

use super::{Mark, ONE_WARP, TWO_WARPS, nothing, passes, reports};

#[test]
fn lanes_at_two_barriers() {
    let (few, many) = (Mark::default(), Mark::default());
    reports(
        TWO_WARPS,
        nothing,
        |t, ()| {
            // SAFETY: not safe: the lanes of warp 1 part.
            unsafe {
                if t.warp() == 1 && t.lane() < 12 {
                    few.on(t).sync_warp();
                } else {
                    many.on(t).sync_warp();
                }
            }
        },
        |()| {
            format!(
                "divergent collective in warp 1 of block (0, 0): 12 of 32 lanes wait in sync_warp at {few}, \
                 20 of 32 lanes wait in sync_warp at {many}"
            )
        },
    );
    passes(
        TWO_WARPS,
        nothing,
        |t, ()| {
            // SAFETY: whole warps part.
            unsafe {
                if t.warp() == 1 {
                    t.sync_warp();
                } else {
                    t.ballot(true);
                }
            }
        },
        |_, ()| (),
    );
}

#[test]
fn lanes_in_two_operations_and_some_gone() {
    let (shuffle, vote) = (Mark::default(), Mark::default());
    reports(
        ONE_WARP,
        nothing,
        |t, ()| {
            // SAFETY: not safe: three ways.
            unsafe {
                match t.lane() % 4 {
                    0 => _ = shuffle.on(t).shuffle(1, 0),
                    1 => _ = vote.on(t).ballot(true),
                    _ => {}
                }
            }
        },
        |()| {
            format!(
                "divergent collective in warp 0 of block (0, 0): 8 of 32 lanes wait in shuffle at {shuffle}, \
                 8 of 32 lanes wait in ballot at {vote}, 16 have exited"
            )
        },
    );
}

#[test]
fn early_return_before_a_shuffle() {
    let shuffle = Mark::default();
    let kernel = |t: &Thread<'_>, rows: u32| {
        if t.lane() >= rows {
            return;
        }
        // SAFETY: not safe: lanes from `rows` on have left.
        unsafe { shuffle.on(t).shuffle_down(t.lane(), 1) };
    };
    reports(
        ONE_WARP,
        nothing,
        |t, ()| kernel(t, 12),
        |()| {
            format!(
                "incomplete collective in warp 0 of block (0, 0): 12 of 32 lanes wait in shuffle_down at \
                 {shuffle}, 20 have exited"
            )
        },
    );
    passes(ONE_WARP, nothing, |t, ()| kernel(t, 32), |_, ()| ());
}

#[test]
fn early_return_before_a_block_barrier() {
    let sync = Mark::default();
    reports(
        ([2, 2], 96, 0),
        nothing,
        |t, ()| {
            // SAFETY: not safe: one thread of block (1, 0) has left.
            unsafe {
                if t.block_idx() != 1 || t.block_idx_y() != 0 || t.thread_idx() != 77 {
                    sync.on(t).sync_block();
                }
            }
        },
        |()| {
            format!(
                "incomplete collective in block (1, 0): 95 of 96 threads wait in sync_block at {sync}, \
                 1 have exited"
            )
        },
    );
}

/// A barrier per branch, with whole warps in each: a warp's collective would be fine with it.
#[test]
fn warps_at_two_block_barriers() {
    let (first, second) = (Mark::default(), Mark::default());
    reports(
        TWO_WARPS,
        nothing,
        |t, ()| {
            // SAFETY: not safe: the two are different barriers.
            unsafe {
                if t.warp() == 0 {
                    first.on(t).sync_block();
                } else {
                    second.on(t).sync_block();
                }
            }
        },
        |()| {
            format!(
                "divergent collective in block (0, 0): 32 of 64 threads wait in sync_block at {first}, \
                 32 of 64 threads wait in sync_block at {second}"
            )
        },
    );
}

/// One lane goes to the block's barrier, the others of its warp to a product.
#[test]
fn lanes_at_a_block_barrier_and_in_a_product() {
    let (sync, mma) = (Mark::default(), Mark::default());
    reports(
        TWO_WARPS,
        nothing,
        |t, ()| {
            // SAFETY: not safe: lane 1 of warp 0 does not come.
            unsafe {
                if t.thread_idx() == 1 {
                    sync.on(t).sync_block();
                } else {
                    mma.on(t).mma_m16n8k8_f16([0; 2], 0, [0.0; 4]);
                    t.sync_block();
                }
            }
        },
        |()| {
            format!(
                "divergent collective in warp 0 of block (0, 0): 31 of 32 lanes wait in mma_m16n8k8_f16 at \
                 {mma}, 1 of 32 lanes wait in sync_block at {sync}"
            )
        },
    );
}

/// Lanes that make a different number of turns meet at the same call, which no GPU would forgive:
/// the last turns are incomplete.
#[test]
fn loops_of_different_length() {
    let sync = Mark::default();
    reports(
        ONE_WARP,
        nothing,
        |t, ()| {
            for _ in 0..2 + t.lane() / 30 {
                // SAFETY: not safe: two lanes make a turn more.
                unsafe { sync.on(t).sync_warp() };
            }
        },
        |()| {
            format!(
                "incomplete collective in warp 0 of block (0, 0): 2 of 32 lanes wait in sync_warp at {sync}, \
                 30 have exited"
            )
        },
    );
}

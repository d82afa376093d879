//! Global memory: what no barrier orders, and writes to memory that is read as read-only.

use windrow_simt::emulator::Memory;
use windrow_simt::{GlobalPtr, Simt};

use super::{Mark, ONE_WARP, TWO_BLOCKS, TWO_WARPS, passes, reports};

fn zeros(memory: &Memory) -> GlobalPtr<u32> {
    let zeros = memory.alloc_zeroed(64);
    memory.label(zeros, "zeros").unwrap();
    zeros
}

/// Two warps write one word, with a barrier of each warp but none of the block between.
#[test]
fn two_writes_of_two_warps() {
    let (first, second) = (Mark::default(), Mark::default());
    reports(
        TWO_WARPS,
        zeros,
        |t, zeros| {
            // SAFETY: not safe: a warp's barrier does not order two warps.
            unsafe {
                if t.thread_idx() == 0 {
                    first.on(t).store(zeros.at(3), 1);
                }
                t.sync_warp();
                if t.thread_idx() == 32 {
                    second.on(t).store(zeros.at(3), 2);
                }
            }
        },
        |zeros| {
            format!(
                "race on byte 12 of `zeros` (256 bytes at {zeros:?}): nothing orders store by thread 0 of \
                 block (0, 0) at {first} and store by thread 32 of block (0, 0) at {second}"
            )
        },
    );
    passes(
        TWO_WARPS,
        zeros,
        |t, zeros| {
            // SAFETY: the block's barrier orders the two.
            unsafe {
                if t.thread_idx() == 0 {
                    t.store(zeros.at(3), 1);
                }
                t.sync_block();
                if t.thread_idx() == 32 {
                    t.store(zeros.at(3), 2);
                }
            }
        },
        |memory, zeros| assert_eq!(memory.read(zeros.at(3), 1).unwrap(), [2]),
    );
}

/// A shuffle waits for all lanes but orders no memory.
#[test]
fn a_shuffle_is_no_barrier() {
    let (write, read) = (Mark::default(), Mark::default());
    reports(
        ONE_WARP,
        zeros,
        |t, zeros| {
            // SAFETY: not safe: nothing orders the two.
            unsafe {
                if t.lane() == 4 {
                    write.on(t).store(zeros, 1);
                }
                t.shuffle_xor(0, 1);
                if t.lane() == 2 {
                    read.on(t).load(zeros);
                }
            }
        },
        |zeros| {
            format!(
                "race on byte 0 of `zeros` (256 bytes at {zeros:?}): nothing orders load by thread 2 of \
                 block (0, 0) at {read} and store by thread 4 of block (0, 0) at {write}"
            )
        },
    );
    passes(
        ONE_WARP,
        zeros,
        |t, zeros| {
            // SAFETY: the warp's barrier orders the two.
            unsafe {
                if t.lane() == 4 {
                    t.store(zeros, 1);
                }
                t.sync_warp();
                if t.lane() == 2 {
                    assert_eq!(t.load(zeros), 1);
                }
            }
        },
        |_, _| (),
    );
}

/// Both blocks pass barriers, which order nothing between them.
#[test]
fn a_write_and_a_read_of_two_blocks() {
    let (write, read) = (Mark::default(), Mark::default());
    reports(
        TWO_BLOCKS,
        zeros,
        |t, zeros| {
            // SAFETY: not safe: nothing orders two blocks.
            unsafe {
                t.sync_block();
                if t.thread_idx() == 5 {
                    if t.block_idx() == 0 {
                        read.on(t).load(zeros.at(1));
                    } else {
                        write.on(t).store(zeros.cast::<u64>(), 1);
                    }
                }
                t.sync_block();
            }
        },
        |zeros| {
            format!(
                "race on byte 4 of `zeros` (256 bytes at {zeros:?}): nothing orders load by thread 5 of \
                 block (0, 0) at {read} and store by thread 5 of block (1, 0) at {write}"
            )
        },
    );
}

/// Each of 2 × 32 threads writes its own half of a word: no race, and nothing is lost.
#[test]
fn halves_of_a_word_are_apart() {
    passes(
        TWO_BLOCKS,
        zeros,
        |t, zeros| {
            let half = 2 * t.thread_idx() + t.block_idx();
            // SAFETY: 64 halves, one a thread.
            unsafe { t.store(zeros.cast::<u16>().at(half), 1) };
        },
        |memory, zeros| assert_eq!(memory.read(zeros, 33).unwrap()[31..], [0x0001_0001, 0]),
    );
}

#[test]
fn an_atomic_update_and_a_plain_read() {
    let (update, read) = (Mark::default(), Mark::default());
    reports(
        TWO_BLOCKS,
        zeros,
        |t, zeros| {
            // SAFETY: not safe: what the load finds is anybody's guess.
            unsafe {
                match (t.block_idx(), t.thread_idx()) {
                    (0, 0) => _ = update.on(t).atomic_add_u32(zeros, 1),
                    (1, 1) => _ = read.on(t).load(zeros),
                    _ => {}
                }
            }
        },
        |zeros| {
            format!(
                "race on byte 0 of `zeros` (256 bytes at {zeros:?}): nothing orders atomic_add_u32 by \
                 thread 0 of block (0, 0) at {update} and load by thread 1 of block (1, 0) at {read}"
            )
        },
    );
    passes(
        TWO_WARPS,
        zeros,
        |t, zeros| {
            // SAFETY: the barrier orders the updates before the load.
            unsafe {
                t.atomic_add_u32(zeros, 1);
                t.sync_block();
                assert_eq!(t.load(zeros), 64);
            }
        },
        |_, _| (),
    );
}

/// The first of two updates is by the thread that reads, the second by another: a shadow that kept
/// only one of them could miss it.
#[test]
fn of_several_updates_the_one_that_races_is_found() {
    let (update, read) = (Mark::default(), Mark::default());
    reports(
        ONE_WARP,
        zeros,
        |t, zeros| {
            // SAFETY: not safe: lane 30's update is not ordered with lane 1's load.
            unsafe {
                if t.lane() == 1 || t.lane() == 30 {
                    update.on(t).atomic_add_u32(zeros, 1);
                }
                t.ballot(true);
                if t.lane() == 1 {
                    read.on(t).load(zeros);
                }
            }
        },
        |zeros| {
            format!(
                "race on byte 0 of `zeros` (256 bytes at {zeros:?}): nothing orders load by thread 1 of \
                 block (0, 0) at {read} and atomic_add_u32 by thread 30 of block (0, 0) at {update}"
            )
        },
    );
}

/// Even an ordered write by the same thread: the read-only path may keep the old value.
#[test]
fn a_write_to_what_is_read_only() {
    for write_first in [true, false] {
        let (write, read) = (Mark::default(), Mark::default());
        reports(
            ONE_WARP,
            zeros,
            |t, zeros| {
                if t.lane() != 8 {
                    return;
                }
                // SAFETY: not safe: the word is written.
                unsafe {
                    if write_first {
                        write.on(t).store(zeros.at(2), 1);
                    }
                    read.on(t).load_readonly(zeros.at(2));
                    write.on(t).store(zeros.at(2), 1);
                }
            },
            |zeros| {
                format!(
                    "write to read-only memory: byte 8 of `zeros` (256 bytes at {zeros:?}) is written by \
                     store by thread 8 of block (0, 0) at {write} in the launch that reads it by \
                     load_readonly by thread 8 of block (0, 0) at {read}"
                )
            },
        );
    }
    passes(
        ONE_WARP,
        zeros,
        |t, zeros| {
            // SAFETY: the words that are read and those that are written are different ones.
            unsafe { t.store(zeros.at(32 + t.lane()), t.load_readonly(zeros.at(t.lane()))) };
        },
        |_, _| (),
    );
}

/// What was read is remembered to 2 bytes: a neighbour that was read earlier does not hide it.
#[test]
fn read_only_neighbours_are_told_apart() {
    for at in [0_u32, 1, 2, 3, 62, 63] {
        let (write, read) = (Mark::default(), Mark::default());
        reports(
            ONE_WARP,
            zeros,
            |t, zeros| {
                if t.lane() != 8 {
                    return;
                }
                let halves = zeros.cast::<u16>();
                // SAFETY: not safe: the half is written.
                unsafe {
                    for other in (0..64).filter(|&other| other != at) {
                        t.load_readonly(halves.at(other));
                    }
                    read.on(t).load_readonly(halves.at(at));
                    write.on(t).store(halves.at(at), 1);
                }
            },
            |zeros| {
                format!(
                    "write to read-only memory: byte {} of `zeros` (256 bytes at {zeros:?}) is written by \
                     store by thread 8 of block (0, 0) at {write} in the launch that reads it by \
                     load_readonly by thread 8 of block (0, 0) at {read}",
                    2 * at
                )
            },
        );
    }
}

#[test]
fn an_atomic_update_of_what_is_read_only() {
    let (update, read) = (Mark::default(), Mark::default());
    reports(
        TWO_BLOCKS,
        |memory| memory.alloc_zeroed::<f32>(1),
        |t, sum| {
            // SAFETY: not safe: the word is written.
            unsafe {
                match (t.block_idx(), t.thread_idx()) {
                    (0, 0) => update.on(t).reduce_add_f32(sum, 1.0),
                    (1, 0) => _ = read.on(t).load_readonly_once(sum),
                    _ => {}
                }
            }
        },
        |sum| {
            format!(
                "write to read-only memory: byte 0 of the allocation of 4 bytes at {sum:?} is written by \
                 reduce_add_f32 by thread 0 of block (0, 0) at {update} in the launch that reads it by \
                 load_readonly_once by thread 0 of block (1, 0) at {read}"
            )
        },
    );
}

//! `cp.async`: what is used before its wait, overwritten, or never waited for.

use windrow_simt::emulator::{Memory, Thread};
use windrow_simt::{GlobalPtr, Simt};

use super::{Mark, ONE_WARP, TWO_WARPS, passes, reports};

fn numbers(memory: &Memory) -> GlobalPtr<u32> {
    let numbers = memory.alloc_from(&(0..256).collect::<Vec<u32>>());
    memory.label(numbers, "numbers").unwrap();
    numbers
}

#[test]
fn read_before_the_wait() {
    let (copy, read) = (Mark::default(), Mark::default());
    let kernel = |t: &Thread<'_>, numbers: GlobalPtr<u32>, wait: bool| {
        if t.lane() == 4 {
            // SAFETY: not safe without the wait.
            unsafe {
                copy.on(t).copy_async_16(32, numbers, true);
                t.copy_async_commit();
                if wait {
                    t.copy_async_wait::<0>();
                }
                assert_eq!(read.on(t).load_shared::<u32>(36), 1);
                t.copy_async_wait::<0>();
            }
        }
    };
    reports(
        ONE_WARP,
        numbers,
        |t, numbers| kernel(t, numbers, false),
        |_| {
            format!(
                "read of a copy under way: load_shared by thread 4 of block (0, 0) at {read}: no \
                 wait has covered byte 36 of shared memory, the destination of copy_async_16 by \
                 thread 4 of block (0, 0) at {copy}"
            )
        },
    );
    passes(ONE_WARP, numbers, |t, numbers| kernel(t, numbers, true), |_, _| ());
}

/// A wait that leaves the youngest group under way is one group short, and a copy that no commit
/// closed belongs to no group at all.
#[test]
fn waits_that_cover_too_little() {
    let (copy, read) = (Mark::default(), Mark::default());
    let expected = |_| {
        format!(
            "read of a copy under way: load_shared by thread 0 of block (0, 0) at {read}: no wait \
             has covered byte 16 of shared memory, the destination of copy_async_16 by thread 0 of block \
             (0, 0) at {copy}"
        )
    };
    let kernel = |t: &Thread<'_>, numbers: GlobalPtr<u32>, (commit, pending): (bool, u32)| {
        if t.lane() != 0 {
            return;
        }
        // SAFETY: not safe unless `commit` is set and `pending` is 0.
        unsafe {
            t.copy_async_16(0, numbers, true);
            t.copy_async_commit();
            copy.on(t).copy_async_16(16, numbers.at(4), true);
            if commit {
                t.copy_async_commit();
            }
            if pending == 0 {
                t.copy_async_wait::<0>();
            } else {
                t.copy_async_wait::<1>();
            }
            assert_eq!(t.load_shared::<u32>(0), 0);
            assert_eq!(read.on(t).load_shared::<u32>(16), 4);
        }
    };
    reports(ONE_WARP, numbers, |t, numbers| kernel(t, numbers, (true, 1)), expected);
    reports(ONE_WARP, numbers, |t, numbers| kernel(t, numbers, (false, 0)), expected);
    passes(ONE_WARP, numbers, |t, numbers| kernel(t, numbers, (true, 0)), |_, _| ());
}

/// The wait is for the thread's own copies: another lane needs a barrier after it, not before. The vote
/// makes the read come later, but orders no memory.
#[test]
fn missing_barrier_after_the_wait() {
    let (copy, read) = (Mark::default(), Mark::default());
    let kernel = |t: &Thread<'_>, numbers: GlobalPtr<u32>, wait_first: bool| {
        // SAFETY: not safe unless the wait is before the barrier.
        unsafe {
            if t.lane() == 3 {
                copy.on(t).copy_async_16(16, numbers.at(8), true);
                t.copy_async_commit();
            }
            if wait_first {
                t.copy_async_wait::<0>();
            }
            t.sync_warp();
            t.copy_async_wait::<0>();
            t.ballot(true);
            if t.lane() == 20 {
                assert_eq!(read.on(t).load_shared::<[u32; 4]>(16), [8, 9, 10, 11]);
            }
        }
    };
    reports(
        ONE_WARP,
        numbers,
        |t, numbers| kernel(t, numbers, false),
        |_| {
            format!(
                "race on byte 16 of shared memory: no barrier between copy_async_16 by thread 3 of block \
                 (0, 0) at {copy} and load_shared by thread 20 of block (0, 0) at {read}"
            )
        },
    );
    passes(ONE_WARP, numbers, |t, numbers| kernel(t, numbers, true), |_, _| ());
}

#[test]
fn write_over_a_copy_under_way() {
    let (copy, write) = (Mark::default(), Mark::default());
    reports(
        ONE_WARP,
        numbers,
        |t, numbers| {
            if t.lane() == 4 {
                // SAFETY: not safe: the copy may come after the store.
                unsafe {
                    copy.on(t).copy_async_16(32, numbers, true);
                    write.on(t).store_shared(46, 1_u16);
                }
            }
        },
        |_| {
            format!(
                "write over a copy under way: store_shared by thread 4 of block (0, 0) at {write}: no \
                 wait has covered byte 46 of shared memory, the destination of copy_async_16 by \
                 thread 4 of block (0, 0) at {copy}"
            )
        },
    );
}

#[test]
fn two_copies_to_one_place() {
    let (first, second) = (Mark::default(), Mark::default());
    reports(
        ONE_WARP,
        numbers,
        |t, numbers| {
            // SAFETY: not safe: which of the two remains, nobody knows. The barrier does not help.
            unsafe {
                if t.lane() == 1 {
                    first.on(t).copy_async_16(48, numbers, true);
                    t.copy_async_commit();
                }
                t.sync_block();
                if t.lane() == 2 {
                    second.on(t).copy_async_16(48, numbers.at(4), true);
                }
                t.sync_block();
            }
        },
        |_| {
            format!(
                "write over a copy under way: copy_async_16 by thread 2 of block (0, 0) at {second}: no \
                 wait has covered byte 48 of shared memory, the destination of copy_async_16 by \
                 thread 1 of block (0, 0) at {first}"
            )
        },
    );
}

/// The next stage is requested while another warp may still read the last one in its place.
#[test]
fn copy_over_what_is_being_read() {
    let (read, copy) = (Mark::default(), Mark::default());
    let kernel = |t: &Thread<'_>, numbers: GlobalPtr<u32>, barrier: bool| {
        // SAFETY: not safe without the barrier.
        unsafe {
            if t.thread_idx() == 0 {
                t.store_shared(0, [1_u32; 4]);
            }
            t.sync_block();
            if t.thread_idx() == 50 {
                read.on(t).load_shared::<u32>(0);
            }
            if barrier {
                t.sync_block();
            }
            // Not a barrier: it orders no memory.
            t.ballot(true);
            if t.thread_idx() == 49 {
                copy.on(t).copy_async_16(0, numbers, true);
            }
            t.copy_async_commit();
            t.copy_async_wait::<0>();
        }
    };
    reports(
        TWO_WARPS,
        numbers,
        |t, numbers| kernel(t, numbers, false),
        |_| {
            format!(
                "race on byte 0 of shared memory: no barrier between copy_async_16 by thread 49 of block \
                 (0, 0) at {copy} and load_shared by thread 50 of block (0, 0) at {read}"
            )
        },
    );
    passes(TWO_WARPS, numbers, |t, numbers| kernel(t, numbers, true), |_, _| ());
}

#[test]
fn exit_with_copies_under_way() {
    let copy = Mark::default();
    for commit in [false, true] {
        reports(
            ONE_WARP,
            numbers,
            |t, numbers| {
                if t.lane() == 9 {
                    // SAFETY: not safe: nobody waits.
                    unsafe {
                        copy.on(t).copy_async_16(0, numbers, true);
                        if commit {
                            t.copy_async_commit();
                        }
                        t.copy_async_16(16, numbers, true);
                    }
                }
            },
            |_| {
                format!(
                    "copy never waited for: thread 9 of block (0, 0) exited with 2 copies under way, the \
                     oldest of them copy_async_16 by thread 9 of block (0, 0) at {copy}"
                )
            },
        );
    }
}

#[test]
fn a_written_source() {
    let (copy, write) = (Mark::default(), Mark::default());
    reports(
        ONE_WARP,
        numbers,
        |t, numbers| {
            if t.lane() == 0 {
                // SAFETY: not safe: the copy may read before or after the store.
                unsafe {
                    copy.on(t).copy_async_16(0, numbers.at(4), true);
                    write.on(t).store(numbers.at(7), 1);
                }
            }
        },
        |numbers| {
            format!(
                "write to read-only memory: byte 28 of `numbers` (1024 bytes at {numbers:?}) is written by \
                 store by thread 0 of block (0, 0) at {write} in the launch that reads it by copy_async_16 \
                 by thread 0 of block (0, 0) at {copy}"
            )
        },
    );
}

#[test]
fn bad_addresses() {
    let copy = Mark::default();
    let start = |t: &Thread<'_>, (to, from): (u32, GlobalPtr<u32>)| {
        if t.lane() == 0 {
            // SAFETY: not safe: one of the two is wrong.
            unsafe { copy.on(t).copy_async_16(to, from, true) };
        }
    };
    let copies = || format!("copy_async_16 by thread 0 of block (0, 0) at {copy}");
    reports(
        ONE_WARP,
        numbers,
        |t, numbers| start(t, (8, numbers)),
        |_| format!("misaligned: {}: byte 8 of shared memory is no multiple of 16", copies()),
    );
    reports(
        ONE_WARP,
        numbers,
        |t, numbers| start(t, (0, numbers.at(1))),
        |numbers| {
            format!(
                "misaligned: {}: address {:#x}, byte 4 of `numbers` (1024 bytes at {numbers:?}), is no \
                 multiple of 16",
                copies(),
                numbers.address() + 4
            )
        },
    );
    reports(
        ONE_WARP,
        numbers,
        |t, numbers| start(t, (512, numbers)),
        |_| {
            format!(
                "out of bounds: {}: 16 bytes at byte 512 of shared memory, of which the block has 512",
                copies()
            )
        },
    );
    reports(
        ONE_WARP,
        numbers,
        |t, numbers| start(t, (0, numbers.at(256))),
        |numbers| {
            format!(
                "out of bounds: {}: 16 bytes at {:#x}, which is 0 bytes past the end of `numbers` (1024 bytes \
                 at {numbers:?})",
                copies(),
                numbers.address() + 1024
            )
        },
    );
}

//! Launches: their shapes, panics, endless loops, schedules; the host's side of memory.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use windrow_simt::emulator::{Launch, Memory, Schedule, Violation};
use windrow_simt::{GlobalPtr, Simt};

use super::{Mark, ONE_WARP, TWO_BLOCKS, nothing, passes, reports};

#[test]
fn impossible_shapes() {
    let refuse = |grid, block_threads, shared_bytes| {
        let launch = Launch { grid, block_threads, shared_bytes, schedule: Schedule::InOrder };
        Memory::new().launch(&launch, |_| ()).unwrap_err().to_string()
    };
    let grid = "blocks: both at least 1, the second at most 65535, fewer than 2^32 in all";
    let threads = "threads per block: a multiple of 32, at most 1024, is needed";
    assert_eq!(refuse([0, 1], 32, 0), format!("invalid launch: the grid is 0 x 1 {grid}"));
    assert_eq!(refuse([1, 65_536], 32, 0), format!("invalid launch: the grid is 1 x 65536 {grid}"));
    assert_eq!(refuse([u32::MAX, 2], 32, 0), format!("invalid launch: the grid is 4294967295 x 2 {grid}"));
    for n in [0, 1, 33, 1056] {
        assert_eq!(refuse([1, 1], n, 0), format!("invalid launch: {n} {threads}"));
    }
    assert_eq!(
        refuse([1, 1], 32, 232_449),
        "invalid launch: 232449 bytes of shared memory per block: at most 232448 are allowed"
    );
    passes(([1, 1], 1024, 232_448), nothing, |_, ()| (), |_, ()| ());
}

#[test]
fn a_panic_keeps_its_message() {
    let numbers: Vec<u32> = Vec::new();
    reports(
        TWO_BLOCKS,
        nothing,
        |t, ()| {
            if t.block_idx() == 1 && t.thread_idx() == 17 {
                assert_eq!(numbers[t.lane() as usize], 0);
            }
        },
        |()| {
            "panic in thread 17 of block (1, 0): index out of bounds: the len is 0 but the index is 17".into()
        },
    );
    reports(
        ONE_WARP,
        nothing,
        |t, ()| assert!(t.lane() != 3, "three"),
        |()| "panic in thread 3 of block (0, 0): three".into(),
    );
}

/// Threads that the violation of another stops are unwound: what they own is dropped.
#[test]
fn stopped_threads_drop_what_they_own() {
    struct Count<'a>(&'a AtomicU32);
    impl Drop for Count<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = AtomicU32::new(0);
    let launch = Launch { grid: [1, 1], block_threads: 64, shared_bytes: 0, schedule: Schedule::InOrder };
    let result = Memory::new().launch(&launch, |t| {
        let _count = Count(&dropped);
        // SAFETY: not safe: there is no shared memory.
        unsafe {
            t.sync_block();
            if t.thread_idx() == 40 {
                t.store_shared(0, 1_u32);
            }
        }
    });
    assert!(matches!(result, Err(Violation::SharedOutOfBounds { .. })));
    assert_eq!(dropped.into_inner(), 64);
}

#[test]
fn an_endless_loop() {
    let load = Mark::default();
    reports(
        ONE_WARP,
        |memory| {
            memory.set_step_limit(1000);
            memory.alloc_zeroed::<u32>(1)
        },
        |t, flag| {
            // SAFETY: a valid word, which nobody ever sets.
            while t.lane() == 6 && unsafe { load.on(t).load(flag) } == 0 {}
        },
        |_| {
            format!(
                "step limit: load by thread 6 of block (0, 0) at {load} is call 1001 of its thread, the \
                 limit is 1000: the loop does not end, or the limit needs raising (Memory::set_step_limit)"
            )
        },
    );
}

#[test]
fn operands_out_of_range() {
    let call = Mark::default();
    let by = |operation: &str| format!("invalid operand: {operation} by thread 1 of block (0, 0) at {call}");
    reports(
        ONE_WARP,
        nothing,
        |t, ()| {
            // SAFETY: not safe: the mask is no lane's.
            unsafe { call.on(t).shuffle_xor(0, if t.lane() == 1 { 32 } else { 1 }) };
        },
        |()| format!("{}: lane_mask is 32, which is not below 32", by("shuffle_xor")),
    );
    let call = Mark::default();
    reports(
        ONE_WARP,
        nothing,
        |t, ()| {
            if t.lane() == 1 {
                call.on(t).permute_bytes(0, 0, 0x3280);
            }
        },
        |()| {
            format!(
                "invalid operand: permute_bytes by thread 1 of block (0, 0) at {call}: selector is 0x3280: \
                 bit 3 of a nibble is set"
            )
        },
    );
}

/// The order in which the threads of a block, and the blocks of a grid, take tickets.
#[test]
fn schedules_interleave_differently() {
    let tickets = |schedule| {
        let memory = Memory::new();
        let counter = memory.alloc_zeroed::<u32>(1);
        let out: GlobalPtr<u32> = memory.alloc_uninit(128);
        let launch = Launch { grid: [1, 1], block_threads: 64, shared_bytes: 0, schedule };
        memory
            .launch(&launch, |t| {
                // SAFETY: one counter, two words a thread.
                unsafe {
                    t.store(out.at(t.thread_idx()), t.atomic_add_u32(counter, 1));
                    t.sync_warp();
                    t.store(out.at(64 + t.thread_idx()), t.atomic_add_u32(counter, 1));
                }
            })
            .unwrap();
        memory.read(out, 128).unwrap()
    };
    let in_order = tickets(Schedule::InOrder);
    // Warp 0 goes through its barrier before warp 1 begins.
    assert_eq!(in_order, (0..32).chain(64..96).chain(32..64).chain(96..128).collect::<Vec<_>>());
    // The other way round: thread 63 takes the first ticket, and warp 1 its second round before warp 0.
    let reverse = (0..2).flat_map(|round| [1, 0].map(|warp| (round, warp)));
    let reverse = reverse.flat_map(|(round, warp)| (0..32).rev().map(move |i| 64 * warp + 32 * round + i));
    assert_eq!(tickets(Schedule::Reverse), reverse.collect::<Vec<_>>());
    let orders: BTreeSet<_> = Schedule::STANDARD.into_iter().map(tickets).collect();
    assert_eq!(orders.len(), Schedule::STANDARD.len());
    assert_eq!(tickets(Schedule::Seeded(5)), tickets(Schedule::Seeded(5)), "the same seed, the same order");
}

/// Of several failing blocks the one that the schedule starts first is reported, whoever is faster.
#[test]
fn the_first_failing_block_of_the_schedule_is_reported() {
    let fails = |schedule| {
        let launch = Launch { grid: [50, 3], block_threads: 32, shared_bytes: 0, schedule };
        let result = Memory::new().launch(&launch, |t| {
            assert!(t.block_idx() < 40, "{} {}", t.block_idx(), t.block_idx_y());
        });
        result.unwrap_err().to_string()
    };
    for _ in 0..5 {
        assert_eq!(fails(Schedule::InOrder), "panic in thread 0 of block (40, 0): 40 0");
        assert_eq!(fails(Schedule::Reverse), "panic in thread 31 of block (49, 2): 49 2");
        assert_eq!(fails(Schedule::Seeded(3)), fails(Schedule::Seeded(3)));
    }
}

#[test]
fn statistics() {
    let launch = Launch { grid: [3, 2], block_threads: 64, shared_bytes: 0, schedule: Schedule::InOrder };
    let stats = Memory::new().launch(&launch, |t| {
        // SAFETY: all threads reach all.
        unsafe {
            t.sync_block();
            t.sync_warp();
            t.ballot(true);
        }
    });
    let stats = stats.unwrap();
    assert_eq!((stats.blocks, stats.calls, stats.switches), (6, 6 * 64 * 3, 6 * 64 * 4));
    assert_eq!(stats.collectives, 6 * (1 + 2 + 2));
}

/// Launches from inside a parallel iterator, over one memory: no lock is held while blocks run.
#[test]
fn launches_at_the_same_time() {
    let memory = Memory::new();
    let out: GlobalPtr<u32> = memory.alloc_uninit(64 * 256);
    let launch = Launch { grid: [8, 1], block_threads: 32, shared_bytes: 0, schedule: Schedule::Seeded(1) };
    let failed = (0..64_u32).into_par_iter().find_map_any(|i| {
        let part = out.at(256 * i);
        // SAFETY: 8 · 32 words a launch.
        memory.launch(&launch, |t| unsafe { t.store(part.at(32 * t.block_idx() + t.lane()), i) }).err()
    });
    assert_eq!(failed, None);
    for (i, part) in (0..).zip(memory.read(out, 64 * 256).unwrap().chunks(256)) {
        assert!(part.iter().all(|&word| word == i));
    }
}

#[test]
fn the_hosts_mistakes() {
    let memory = Memory::new();
    let bytes = memory.alloc_from(&[1_u8, 2, 3, 4, 5, 6, 7]);
    memory.label(bytes, "bytes").unwrap();
    assert_eq!(bytes.address() % 256, 0);
    memory.write(bytes.at(3), &[9, 8]).unwrap();
    assert_eq!(memory.read(bytes, 7).unwrap(), [1, 2, 3, 9, 8, 6, 7]);
    assert_eq!(memory.read(bytes.at(1), 6).unwrap(), [2, 3, 9, 8, 6, 7]);
    assert_eq!(memory.read(bytes.at(7), 0).unwrap(), []);
    assert_eq!(
        memory.read(bytes.at(4), 4).unwrap_err().to_string(),
        format!(
            "the host asked for 4 bytes at {:#x}, which begins at byte 4 of `bytes` (7 bytes at {bytes:?}) \
             and passes its end",
            bytes.address() + 4
        )
    );
    assert_eq!(
        memory.free(bytes.at(1)).unwrap_err().to_string(),
        format!("no allocation starts at {:#x}", bytes.address() + 1)
    );
    memory.free(bytes).unwrap();
    assert_eq!(
        memory.write(bytes, &[1]).unwrap_err().to_string(),
        format!(
            "the host asked for 1 bytes at {bytes:?}, which is byte 0 of `bytes` (7 bytes at {bytes:?}), \
             which has been freed"
        )
    );
    assert_eq!(memory.free(bytes).unwrap_err().to_string(), format!("no allocation starts at {bytes:?}"));
    // An empty allocation has an address of its own, and nothing in it.
    let (empty, next) = (memory.alloc_uninit::<f64>(0), memory.alloc_zeroed::<f64>(1));
    assert!(empty.address() > bytes.address() && next.address() > empty.address());
    assert_eq!(memory.read(empty, 0).unwrap(), []);
    assert!(memory.read(empty, 1).is_err());
}

#[test]
fn the_host_copies_from_and_to_any_byte() {
    let memory = Memory::new();
    for start in 0..12 {
        for len in 0..24 {
            let bytes = memory.alloc_zeroed::<u8>(40);
            let given: Vec<u8> = (1..=len).collect();
            memory.write(bytes.at(start), &given).unwrap();
            let mut want = vec![0; 40];
            want[start as usize..][..given.len()].copy_from_slice(&given);
            assert_eq!(memory.read(bytes, 40).unwrap(), want, "{len} bytes from byte {start}");
            assert_eq!(memory.read(bytes.at(start), given.len()).unwrap(), given);
            memory.free(bytes).unwrap();
        }
    }
}

//! Global memory: bounds, alignment, unwritten bytes.

use windrow_simt::emulator::Memory;
use windrow_simt::{GlobalPtr, Simt};

use super::{Mark, ONE_WARP, passes, reports};

fn five_floats(memory: &Memory) -> GlobalPtr<f32> {
    let floats = memory.alloc_from(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    memory.label(floats, "floats").unwrap();
    floats
}

#[test]
fn load_past_the_end() {
    let load = Mark::default();
    reports(
        ONE_WARP,
        five_floats,
        |t, floats| {
            if t.lane() == 3 {
                // SAFETY: not safe: there is no sixth.
                unsafe { load.on(t).load(floats.at(5)) };
            }
        },
        |floats| {
            format!(
                "out of bounds: load by thread 3 of block (0, 0) at {load}: 4 bytes at {:#x}, \
                 which is 0 bytes past the end of `floats` (20 bytes at {floats:?})",
                floats.address() + 20
            )
        },
    );
    passes(
        ONE_WARP,
        five_floats,
        |t, floats| {
            if t.lane() < 5 {
                // SAFETY: there are five.
                assert!(unsafe { t.load(floats.at(t.lane())) } > 0.0);
            }
        },
        |_, _| (),
    );
}

/// Nothing is right before an allocation: the nearest one below is named.
#[test]
fn store_before_the_start() {
    let store = Mark::default();
    reports(
        ONE_WARP,
        |memory| {
            let below = memory.alloc_zeroed::<u32>(1);
            (below, memory.alloc_zeroed::<u32>(1))
        },
        |t, (_, zeros)| {
            if t.lane() == 0 {
                // SAFETY: not safe: the index wraps.
                unsafe { store.on(t).store(zeros.at_wide(u64::MAX), 1) };
            }
        },
        |(below, zeros)| {
            format!(
                "out of bounds: store by thread 0 of block (0, 0) at {store}: 4 bytes at {:#x}, \
                 which is {} bytes past the end of the allocation of 4 bytes at {below:?}",
                zeros.address() - 4,
                zeros.address() - 4 - below.address() - 4
            )
        },
    );
}

#[test]
fn vector_load_across_the_end() {
    let load = Mark::default();
    reports(
        ONE_WARP,
        five_floats,
        |t, floats| {
            if t.lane() == 31 {
                // SAFETY: not safe: only one of the four is there.
                unsafe { load.on(t).load_readonly(floats.cast::<[f32; 4]>().at(1)) };
            }
        },
        |floats| {
            format!(
                "out of bounds: load_readonly by thread 31 of block (0, 0) at {load}: 16 bytes at {:#x}, \
                 which begins at byte 16 of `floats` (20 bytes at {floats:?}) and passes its end",
                floats.address() + 16
            )
        },
    );
}

#[test]
fn null_pointer_and_one_cut_to_32_bits() {
    let load = Mark::default();
    for address in [0, 0x40] {
        reports(
            ONE_WARP,
            |memory| {
                let floats = five_floats(memory);
                GlobalPtr::<u64>::from_address(floats.address() & 0xffff_ffff).byte_add(address)
            },
            |t, cut| {
                if t.lane() == 7 {
                    // SAFETY: not safe: nothing is there.
                    unsafe { load.on(t).load_readonly_once(cut) };
                }
            },
            |cut| {
                format!(
                    "out of bounds: load_readonly_once by thread 7 of block (0, 0) at {load}: 8 bytes at \
                     {cut:?}, which is below every allocation"
                )
            },
        );
    }
}

/// A program that frees for days must not run out of the host's memory.
#[test]
fn of_many_freed_allocations_the_last_are_remembered() {
    let memory = Memory::new();
    let free_one = |_| {
        let gone = memory.alloc_zeroed::<u32>(1);
        memory.free(gone).unwrap();
        gone
    };
    let gone: Vec<_> = (0..40_000).map(free_one).collect();
    let told = |at: usize| memory.read(gone[at], 1).unwrap_err().to_string();
    for remembered in [39_999, 39_999 - 16_000] {
        assert!(told(remembered).contains("has been freed"), "{}", told(remembered));
    }
    assert!(told(0).contains("below every allocation"), "{}", told(0));
}

#[test]
fn use_after_free() {
    let add = Mark::default();
    let set_up = |memory: &Memory, free: bool| {
        let counter = memory.alloc_zeroed::<u32>(4);
        let kept = memory.alloc_zeroed::<u32>(4);
        if free {
            memory.free(counter).unwrap();
        }
        (counter, kept)
    };
    reports(
        ONE_WARP,
        |memory| set_up(memory, true),
        |t, (counter, _)| {
            if t.lane() == 0 {
                // SAFETY: not safe: it has been freed.
                unsafe { add.on(t).atomic_add_u32(counter.at(2), 1) };
            }
        },
        |(counter, _)| {
            format!(
                "out of bounds: atomic_add_u32 by thread 0 of block (0, 0) at {add}: 4 bytes at {:#x}, which \
                 is byte 8 of the allocation of 16 bytes at {counter:?}, which has been freed",
                counter.address() + 8
            )
        },
    );
    passes(
        ONE_WARP,
        |memory| set_up(memory, false),
        // SAFETY: it has not been freed.
        |t, (counter, _)| _ = unsafe { t.atomic_add_u32(counter.at(2), 1) },
        |memory, (counter, kept)| {
            assert_eq!(memory.read(counter, 4).unwrap(), [0, 0, 32, 0]);
            assert_eq!(memory.read(kept, 4).unwrap(), [0; 4]);
        },
    );
}

#[test]
fn misaligned_vector_store() {
    let store = Mark::default();
    reports(
        ONE_WARP,
        five_floats,
        |t, floats| {
            if t.lane() == 1 {
                // SAFETY: not safe: 8-byte stores need multiples of 8.
                unsafe { store.on(t).store_streaming(floats.at(1).cast(), [0.0_f32; 2]) };
            }
        },
        |floats| {
            format!(
                "misaligned: store_streaming by thread 1 of block (0, 0) at {store}: address {:#x}, byte 4 \
                 of `floats` (20 bytes at {floats:?}), is no multiple of 8",
                floats.address() + 4
            )
        },
    );
    passes(
        ONE_WARP,
        five_floats,
        |t, floats| {
            if t.lane() == 1 {
                // SAFETY: bytes 8 to 16 of 20.
                unsafe { t.store_streaming(floats.at(2).cast(), [0.0_f32; 2]) };
            }
        },
        |memory, floats| assert_eq!(memory.read(floats, 5).unwrap(), [1.0, 2.0, 0.0, 0.0, 5.0]),
    );
}

/// Three quarters of a vector are written: by the host, by a store and by a half-word store. The
/// report names the very byte that is not.
#[test]
fn read_of_unwritten_bytes() {
    let set_up = |memory: &Memory| {
        let words = memory.alloc_uninit::<u32>(8);
        memory.write(words.at(4), &[1, 2]).unwrap();
        words
    };
    let load = Mark::default();
    reports(
        ONE_WARP,
        set_up,
        |t, words| {
            if t.lane() == 0 {
                // SAFETY: not safe: bytes 30 and 31 hold nothing.
                unsafe {
                    t.store(words.at(6), 3);
                    t.store(words.at(7).cast::<u16>(), 4);
                    load.on(t).load(words.cast::<[u32; 4]>().at(1));
                }
            }
        },
        |words| {
            format!(
                "read of unwritten memory: load by thread 0 of block (0, 0) at {load}: \
                 nothing wrote byte 30 of the allocation of 32 bytes at {words:?}"
            )
        },
    );
    passes(
        ONE_WARP,
        set_up,
        |t, words| {
            if t.lane() == 0 {
                // SAFETY: all 16 bytes are written.
                unsafe {
                    t.store(words.at(6), 3);
                    t.store(words.at(7).cast::<u16>(), 4);
                    t.store(words.at(7).cast::<u16>().at(1), 5);
                    assert_eq!(t.load(words.cast::<[u32; 4]>().at(1)), [1, 2, 3, 5 << 16 | 4]);
                }
            }
        },
        |memory, words| {
            assert_eq!(memory.read(words.at(4), 4).unwrap(), [1, 2, 3, 5 << 16 | 4]);
            assert_eq!(
                memory.read(words, 8).unwrap_err().to_string(),
                format!(
                    "the host read byte 0 of the allocation of 32 bytes at {words:?}, which nothing ever wrote"
                )
            );
        },
    );
}

/// An atomic update reads, too.
#[test]
fn update_of_an_unwritten_word() {
    let update = Mark::default();
    reports(
        ONE_WARP,
        |memory| memory.alloc_uninit::<u64>(1),
        |t, word| {
            if t.lane() == 9 {
                // SAFETY: not safe: there is nothing to raise.
                unsafe { update.on(t).reduce_max_u64(word, 1) };
            }
        },
        |word| {
            format!(
                "read of unwritten memory: reduce_max_u64 by thread 9 of block (0, 0) at {update}: \
                 nothing wrote byte 0 of the allocation of 8 bytes at {word:?}"
            )
        },
    );
}

/// 64 GiB, of which only what is touched exists; all else is as in a small allocation.
#[test]
fn an_allocation_larger_than_the_machine() {
    const WORDS: usize = 1 << 34;
    let far = |words: GlobalPtr<u32>, lane: u32| words.at_wide(u64::from(lane) << 29 | 1);
    let set_up = |memory: &Memory| memory.alloc_uninit::<u32>(WORDS);
    passes(
        ONE_WARP,
        set_up,
        |t, words| {
            // SAFETY: a word of its own for each lane.
            unsafe {
                t.store(far(words, t.lane()), 7 + t.lane());
                assert_eq!(t.load(far(words, t.lane())), 7 + t.lane());
            }
        },
        |memory, words| {
            for lane in 0..32 {
                assert_eq!(memory.read(far(words, lane), 1).unwrap(), [7 + lane]);
            }
            let last = far(words, 31).address() - words.address();
            assert_eq!(
                memory.read(far(words, 31), 2).unwrap_err().to_string(),
                format!(
                    "the host read byte {} of the allocation of 68719476736 bytes at {words:?}, which nothing ever wrote",
                    last + 4
                )
            );
            // Across the end of a page of 1 MiB.
            let around = words.at((1 << 18) - 2);
            memory.write(around, &[1, 2, 3, 4]).unwrap();
            assert_eq!(memory.read(around, 4).unwrap(), [1, 2, 3, 4]);
            memory.zero(around.at(1), 2).unwrap();
            assert_eq!(memory.read(around, 4).unwrap(), [1, 0, 0, 4]);
            memory.zero(words, WORDS).unwrap();
            assert_eq!(memory.read(around, 4).unwrap(), [0; 4]);
            assert_eq!(memory.read(far(words, 30), 4).unwrap(), [0; 4]);
        },
    );
    let load = Mark::default();
    reports(
        ONE_WARP,
        set_up,
        |t, words| {
            if t.lane() == 0 {
                // SAFETY: not safe: nothing is there.
                unsafe { load.on(t).load(far(words, 9)) };
            }
        },
        |words| {
            format!(
                "read of unwritten memory: load by thread 0 of block (0, 0) at {load}: \
                 nothing wrote byte {} of the allocation of 68719476736 bytes at {words:?}",
                (9_u64 << 31) + 4
            )
        },
    );
    let (first, second) = (Mark::default(), Mark::default());
    reports(
        ONE_WARP,
        set_up,
        |t, words| {
            // SAFETY: not safe: two lanes store to one word.
            unsafe {
                match t.lane() {
                    3 => first.on(t).store(far(words, 31), 1),
                    5 => second.on(t).store(far(words, 31), 1),
                    _ => {}
                }
            }
        },
        |words| {
            format!(
                "race on byte {} of the allocation of 68719476736 bytes at {words:?}: nothing orders \
                 store by thread 3 of block (0, 0) at {first} and store by thread 5 of block (0, 0) at {second}",
                (31_u64 << 31) + 4
            )
        },
    );
}

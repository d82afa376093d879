//! Shared memory: bounds, alignment, unwritten bytes, races.

use windrow_simt::Simt;

use super::{Mark, ONE_WARP, Shape, TWO_WARPS, nothing, passes, reports};

#[test]
fn out_of_bounds() {
    let (store, load) = (Mark::default(), Mark::default());
    reports(
        ONE_WARP,
        nothing,
        |t, ()| {
            if t.lane() == 16 {
                // SAFETY: not safe: there are 512 bytes.
                unsafe { store.on(t).store_shared(32 * t.lane(), 1_u16) };
            }
        },
        |()| {
            format!(
                "out of bounds: store_shared by thread 16 of block (0, 0) at {store}: 2 bytes at byte 512 of \
                 shared memory, of which the block has 512"
            )
        },
    );
    reports(
        ([1, 1], 32, 0),
        nothing,
        |t, ()| {
            if t.lane() == 0 {
                // SAFETY: not safe: there are none.
                unsafe { load.on(t).load_shared::<u32>(u32::MAX) };
            }
        },
        |()| {
            format!(
                "out of bounds: load_shared by thread 0 of block (0, 0) at {load}: 4 bytes at byte 4294967295 \
                 of shared memory, of which the block has 0"
            )
        },
    );
    passes(
        ONE_WARP,
        nothing,
        // SAFETY: 32 · 16 bytes.
        |t, ()| unsafe { t.store_shared(16 * t.lane(), [1.0_f32; 4]) },
        |_, ()| (),
    );
}

#[test]
fn misaligned() {
    let load = Mark::default();
    reports(
        ONE_WARP,
        nothing,
        |t, ()| {
            if t.lane() == 2 {
                // SAFETY: not safe: 24 is no multiple of 16.
                unsafe { load.on(t).load_shared::<[f32; 4]>(24) };
            }
        },
        |()| {
            format!(
                "misaligned: load_shared by thread 2 of block (0, 0) at {load}: byte 24 of shared memory is \
                 no multiple of 16"
            )
        },
    );
}

/// Half of a word is written, which is what the other half's reader sees.
#[test]
fn read_of_unwritten_bytes() {
    let load = Mark::default();
    reports(
        ONE_WARP,
        nothing,
        |t, ()| {
            if t.lane() == 2 {
                // SAFETY: not safe: bytes 18 and 19 hold nothing.
                unsafe {
                    t.store_shared(16, 7_u16);
                    load.on(t).load_shared::<u32>(16);
                }
            }
        },
        |()| {
            format!(
                "read of unwritten memory: load_shared by thread 2 of block (0, 0) at {load}: no thread of \
                 the block wrote byte 18 of shared memory"
            )
        },
    );
    passes(
        ONE_WARP,
        nothing,
        |t, ()| {
            if t.lane() == 2 {
                // SAFETY: both halves are written.
                unsafe {
                    t.store_shared(16, 7_u16);
                    t.store_shared(18, 8_u16);
                    assert_eq!(t.load_shared::<u32>(16), 8 << 16 | 7);
                }
            }
        },
        |_, ()| (),
    );
}

/// What one block writes, another has not written, though they run one after the other.
#[test]
fn blocks_do_not_see_each_other() {
    let load = Mark::default();
    let shape = ([64, 1], 32, 512);
    reports(
        shape,
        nothing,
        |t, ()| {
            // SAFETY: not safe in the last block, nor in the first.
            unsafe {
                if t.block_idx() % 63 != 0 {
                    t.store_shared(4 * t.lane(), 1_u32);
                } else if t.block_idx() == 63 && t.lane() == 0 {
                    load.on(t).load_shared::<u32>(0);
                }
            }
        },
        |()| {
            format!(
                "read of unwritten memory: load_shared by thread 0 of block (63, 0) at {load}: no thread of \
                 the block wrote byte 0 of shared memory"
            )
        },
    );
}

/// A tile is overwritten while another warp may still be reading it: the barrier after the read
/// (WAR) is missing.
#[test]
fn missing_barrier_after_a_read() {
    let (read, write) = (Mark::default(), Mark::default());
    reports(
        TWO_WARPS,
        nothing,
        |t, ()| {
            // SAFETY: not safe: nothing orders the last two.
            unsafe {
                if t.thread_idx() == 0 {
                    t.store_shared(64, 1_u32);
                }
                t.sync_block();
                if t.thread_idx() == 40 {
                    read.on(t).load_shared::<u32>(64);
                }
                if t.thread_idx() == 0 {
                    write.on(t).store_shared(64, 2_u32);
                }
            }
        },
        |()| {
            format!(
                "race on byte 64 of shared memory: no barrier between store_shared by thread 0 of block \
                 (0, 0) at {write} and load_shared by thread 40 of block (0, 0) at {read}"
            )
        },
    );
    passes(
        TWO_WARPS,
        nothing,
        |t, ()| {
            // SAFETY: a barrier after each step.
            unsafe {
                if t.thread_idx() == 0 {
                    t.store_shared(64, 1_u32);
                }
                t.sync_block();
                assert_eq!(t.load_shared::<u32>(64), 1);
                t.sync_block();
                if t.thread_idx() == 0 {
                    t.store_shared(64, 2_u32);
                }
            }
        },
        |_, ()| (),
    );
}

/// Two lanes write one word, one of them only the upper half of it.
#[test]
fn two_writes_of_one_warp() {
    let (word, half) = (Mark::default(), Mark::default());
    reports(
        ONE_WARP,
        nothing,
        |t, ()| {
            // SAFETY: not safe: bytes 6 and 7 are written twice.
            unsafe {
                match t.lane() {
                    3 => word.on(t).store_shared(4, 1_u32),
                    9 => half.on(t).store_shared(6, 1_u16),
                    _ => {}
                }
            }
        },
        |()| {
            format!(
                "race on byte 6 of shared memory: no barrier between store_shared by thread 3 of block \
                 (0, 0) at {word} and store_shared by thread 9 of block (0, 0) at {half}"
            )
        },
    );
    passes(
        ONE_WARP,
        nothing,
        |t, ()| {
            // SAFETY: the warp's barrier orders the two.
            unsafe {
                if t.lane() == 3 {
                    t.store_shared(4, 1_u32);
                }
                t.sync_warp();
                if t.lane() == 9 {
                    t.store_shared(6, 2_u16);
                }
                t.sync_warp();
                assert_eq!(t.load_shared::<u32>(4), 2 << 16 | 1);
            }
        },
        |_, ()| (),
    );
}

/// Lane 0 reads and writes the word: its own read must not hide another lane's.
#[test]
fn of_several_reads_the_one_that_races_is_found() {
    let (read, write) = (Mark::default(), Mark::default());
    let kernel = |t: &windrow_simt::emulator::Thread<'_>, ordered: bool| {
        // SAFETY: not safe unless ordered: lanes 0 and 5 read what lane 0 then writes.
        unsafe {
            if t.lane() == 0 {
                t.store_shared(0, 1_u32);
            }
            t.sync_warp();
            if t.lane() == 0 || t.lane() == 5 {
                read.on(t).load_shared::<u32>(0);
            }
            if ordered {
                t.sync_warp();
            } else {
                t.ballot(true);
            }
            if t.lane() == 0 {
                write.on(t).store_shared(0, 2_u32);
            }
        }
    };
    reports(
        ONE_WARP,
        nothing,
        |t, ()| kernel(t, false),
        |()| {
            format!(
                "race on byte 0 of shared memory: no barrier between store_shared by thread 0 of block \
                 (0, 0) at {write} and load_shared by thread 5 of block (0, 0) at {read}"
            )
        },
    );
    passes(ONE_WARP, nothing, |t, ()| kernel(t, true), |_, ()| ());
}

const MATRICES: Shape = ([1, 1], 32, 512);

/// `ldmatrix` reads for the whole warp: even a row whose address comes from the lane that wrote it
/// needs a barrier, because other lanes receive its elements.
#[test]
fn matrix_load_without_a_barrier() {
    let (store, load) = (Mark::default(), Mark::default());
    let kernel = |t: &windrow_simt::emulator::Thread<'_>, barrier: bool| {
        // SAFETY: not safe without the barrier.
        unsafe {
            store.on(t).store_shared(16 * t.lane(), [t.lane(); 4]);
            if barrier {
                t.sync_warp();
            }
            load.on(t).load_matrix_x4(16 * t.lane())
        }
    };
    reports(
        MATRICES,
        nothing,
        |t, ()| _ = kernel(t, false),
        |()| {
            format!(
                "race on byte 0 of shared memory: no barrier between store_shared by thread 0 of block \
                 (0, 0) at {store} and load_matrix_x4 with the address of thread 0 of block (0, 0) at {load}"
            )
        },
    );
    passes(
        MATRICES,
        nothing,
        |t, ()| assert_eq!(kernel(t, true), [0, 8, 16, 24].map(|row| row + t.lane() / 4)),
        |_, ()| (),
    );
}

/// A write after `ldmatrix` without a barrier, even by the lane whose address was used.
#[test]
fn write_over_a_matrix_that_is_being_loaded() {
    let (load, store) = (Mark::default(), Mark::default());
    reports(
        MATRICES,
        nothing,
        |t, ()| {
            // SAFETY: not safe: nothing orders the last two.
            unsafe {
                t.store_shared(16 * t.lane(), [t.lane(); 4]);
                t.sync_warp();
                load.on(t).load_matrix_x4_trans(16 * t.lane());
                if t.lane() == 6 {
                    store.on(t).store_shared(16 * t.lane(), 1_u16);
                }
            }
        },
        |()| {
            format!(
                "race on byte 96 of shared memory: no barrier between load_matrix_x4_trans with the address \
                 of thread 6 of block (0, 0) at {load} and store_shared by thread 6 of block (0, 0) at {store}"
            )
        },
    );
}

#[test]
fn matrix_load_out_of_bounds() {
    let load = Mark::default();
    reports(
        MATRICES,
        nothing,
        |t, ()| {
            // SAFETY: not safe: row 31 begins at byte 512.
            unsafe {
                t.store_shared(16 * t.lane(), [t.lane(); 4]);
                t.sync_warp();
                load.on(t).load_matrix_x4(16 * t.lane() + 16 * (t.lane() / 31));
            }
        },
        |()| {
            format!(
                "out of bounds: load_matrix_x4 with the address of thread 31 of block (0, 0) at {load}: 16 bytes at byte 512 \
                 of shared memory, of which the block has 512"
            )
        },
    );
}

/// What a matrix store has written is other lanes': its own lane may not read it without a barrier either.
#[test]
fn read_of_a_matrix_that_is_being_stored() {
    let (store, load) = (Mark::default(), Mark::default());
    let kernel = |t: &windrow_simt::emulator::Thread<'_>, barrier: bool| {
        // SAFETY: not safe without the barrier.
        unsafe {
            store.on(t).store_matrix_x4_trans(16 * t.lane(), [t.lane(); 4]);
            if barrier {
                t.sync_warp();
            }
            if t.lane() == 6 {
                load.on(t).load_shared::<u32>(16 * t.lane());
            }
        }
    };
    reports(
        MATRICES,
        nothing,
        |t, ()| kernel(t, false),
        |()| {
            format!(
                "race on byte 96 of shared memory: no barrier between store_matrix_x4_trans with the address of \
                 thread 6 of block (0, 0) at {store} and load_shared by thread 6 of block (0, 0) at {load}"
            )
        },
    );
    passes(MATRICES, nothing, |t, ()| kernel(t, true), |_, ()| ());
}

#[test]
fn matrix_store_out_of_bounds() {
    let store = Mark::default();
    reports(
        MATRICES,
        nothing,
        |t, ()| {
            // SAFETY: not safe: row 31 begins at byte 512.
            unsafe { store.on(t).store_matrix_x4_trans(16 * t.lane() + 16 * (t.lane() / 31), [0; 4]) }
        },
        |()| {
            format!(
                "out of bounds: store_matrix_x4_trans with the address of thread 31 of block (0, 0) at {store}: 16 \
                 bytes at byte 512 of shared memory, of which the block has 512"
            )
        },
    );
}

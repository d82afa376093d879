//! Kernels that do nothing wrong pass under every schedule, with the right result.

use windrow_simt::{GlobalPtr, Simt};

use super::passes;

/// Every thread knows its place.
#[test]
fn indices() {
    type Row = GlobalPtr<[u32; 4]>;
    passes(
        ([3, 2], 64, 0),
        |memory| -> Row { memory.alloc_uninit(3 * 2 * 64) },
        |t, out| {
            let block = t.block_idx_y() * t.grid_dim() + t.block_idx();
            let row = [t.block_idx(), t.block_idx_y(), t.warp(), t.lane()];
            // SAFETY: one element a thread.
            unsafe { t.store(out.at(block * t.block_dim() + t.thread_idx()), row) };
        },
        |memory, out| {
            let rows = memory.read(out, 3 * 2 * 64).unwrap();
            for (i, row) in (0..).zip(rows) {
                assert_eq!(row, [i / 64 % 3, i / 192, i % 64 / 32, i % 32]);
            }
        },
    );
}

/// A block reverses its part of an array through shared memory.
#[test]
fn reversal_through_shared_memory() {
    let numbers: Vec<f32> = (0..512_u16).map(f32::from).collect();
    passes(
        ([4, 1], 128, 512),
        |memory| (memory.alloc_from(&numbers), memory.alloc_uninit::<f32>(512)),
        |t, (from, to)| {
            let here = t.block_idx() * 128 + t.thread_idx();
            // SAFETY: `from` and `to` have 4 · 128 elements; all threads reach the barrier.
            unsafe {
                t.store_shared(4 * t.thread_idx(), t.load_readonly(from.at(here)));
                t.sync_block(); // RAW
                t.store(to.at(here), t.load_shared::<f32>(4 * (127 - t.thread_idx())));
            }
        },
        |memory, (_, to)| {
            let reversed: Vec<f32> =
                numbers.chunks(128).flat_map(|chunk| chunk.iter().rev()).copied().collect();
            assert_eq!(memory.read(to, 512).unwrap(), reversed);
        },
    );
}

/// Shuffles, votes and atomics of all kinds.
#[test]
fn shuffles_votes_and_atomics() {
    passes(
        ([8, 1], 64, 0),
        |memory| {
            (
                (memory.alloc_zeroed::<f32>(1), memory.alloc_zeroed::<f64>(1)),
                memory.alloc_zeroed::<u32>(1),
                memory.alloc_zeroed::<u64>(1),
                memory.alloc_uninit::<[u32; 4]>(32),
            )
        },
        |t, ((sum, wide_sum), count, most, out)| {
            let lane = t.lane();
            // SAFETY: all lanes reach every collective; `out` is written by one warp of one block.
            unsafe {
                let mut total = lane;
                for bit in [16, 8, 4, 2, 1] {
                    total += t.shuffle_xor(total, bit);
                }
                let odd = t.ballot(lane % 2 == 1);
                let row =
                    [t.shuffle(lane, lane + 5), t.shuffle_up(lane, 3), t.shuffle_down(lane, 31), total ^ odd];
                t.reduce_add_f32(sum, 0.5);
                t.reduce_add_f64(wide_sum, t.fma_f64(2f64.powi(-40), 2f64.powi(-4), 0.5));
                t.atomic_add_u32(count, 2);
                t.reduce_max_u64(most, u64::from(t.thread_idx()) << 32);
                if t.block_idx() == 5 && t.warp() == 1 {
                    t.store(out.at(lane), row);
                }
            }
        },
        |memory, ((sum, wide_sum), count, most, out)| {
            assert_eq!(memory.read(sum, 1).unwrap(), [256.0]);
            assert_eq!(memory.read(wide_sum, 1).unwrap(), [256.0 + 2f64.powi(-35)]);
            assert_eq!(memory.read(count, 1).unwrap(), [1024]);
            assert_eq!(memory.read(most, 1).unwrap(), [63 << 32]);
            for (lane, row) in (0..).zip(memory.read(out, 32).unwrap()) {
                let up = if lane < 3 { lane } else { lane - 3 };
                let down = if lane == 0 { 31 } else { lane };
                assert_eq!(row, [(lane + 5) % 32, up, down, 496 ^ 0xaaaa_aaaa]);
            }
        },
    );
}

/// Two stages of asynchronous copies, each waited for by its own thread and then by all.
#[test]
fn pipelined_copies() {
    const STEPS: u32 = 5;
    let numbers: Vec<u32> = (0..STEPS * 32 * 4).collect();
    passes(
        ([1, 1], 32, 2 * 512),
        |memory| (memory.alloc_from(&numbers), memory.alloc_uninit::<u32>(numbers.len())),
        |t, (from, to)| {
            let lane = t.lane();
            // SAFETY: 16 bytes a lane and step; every stage is waited for, then ordered by a barrier.
            unsafe {
                t.copy_async_16(16 * lane, from.at(4 * lane), true);
                t.copy_async_commit();
                for step in 0..STEPS {
                    if step + 1 < STEPS {
                        let next = 128 * (step + 1) + 4 * lane;
                        t.copy_async_16(512 * ((step + 1) % 2) + 16 * lane, from.at(next), true);
                    }
                    t.copy_async_commit();
                    t.copy_async_wait::<1>();
                    t.sync_block(); // RAW
                    let neighbour = 16 * ((lane + 1) % 32);
                    let [a, b, c, d] = t.load_shared::<[u32; 4]>(512 * (step % 2) + neighbour);
                    t.store(to.cast::<[u32; 4]>().at(32 * step + lane), [a, b, c, d]);
                    t.sync_block(); // WAR
                }
                t.copy_async_wait::<0>();
            }
        },
        |memory, (_, to)| {
            for (i, value) in (0..).zip(memory.read(to, numbers.len()).unwrap()) {
                let (step, lane, word) = (i / 128, i / 4 % 32, i % 4);
                assert_eq!(value, 128 * step + 4 * ((lane + 1) % 32) + word);
            }
        },
    );
}

/// A copy of what is not present gives zeros and does not look at its source.
#[test]
fn absent_copies() {
    passes(
        ([1, 1], 32, 512),
        |memory| (memory.alloc_from(&[u32::MAX; 4]), memory.alloc_uninit::<[u32; 4]>(32)),
        |t, (from, to)| {
            let lane = t.lane();
            // SAFETY: the source has 16 bytes; where it is not present it is not read.
            unsafe {
                let present = lane % 3 != 0;
                t.copy_async_16(16 * lane, if present { from } else { GlobalPtr::NULL }, present);
                t.copy_async_commit();
                t.copy_async_wait::<0>();
                t.store(to.at(lane), t.load_shared::<[u32; 4]>(16 * lane));
            }
        },
        |memory, (_, to)| {
            for (lane, words) in memory.read(to, 32).unwrap().into_iter().enumerate() {
                assert_eq!(words, [if lane % 3 != 0 { u32::MAX } else { 0 }; 4]);
            }
        },
    );
}

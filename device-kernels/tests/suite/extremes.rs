//! Arguments at the edge of what the obligations allow, on the emulator.

use bytemuck::Zeroable;
use windrow_kernels::dense::Dense;
use windrow_kernels::output::Output;
use windrow_kernels::short_rows::{ShortRows, ShortRowsParams};
use windrow_kernels::{Bf16, F16, F32, Factor, Kernel, Tf32, Vectors};
use windrow_simt::emulator::{Launch, Memory, Schedule};

/// A bucket of empty rows that begins at the last entries that u32 can count: no lane may take the
/// wrapped sum for an entry that exists.
fn empty_rows_at_the_end<K: Kernel<Params = ShortRowsParams>>() {
    for schedule in Schedule::STANDARD {
        for first_entry in [0, u32::MAX - 3, u32::MAX - 1, u32::MAX] {
            let memory = Memory::new();
            let c = memory.alloc_from(&[f32::NAN; 3 * 8]);
            let alpha = Factor::new(1.0f32);
            let out = Output { c: c.cast(), alpha, m: 3, n: 8, ldc: 8, ..Output::zeroed() };
            let params = ShortRowsParams {
                dense: Dense { out, ldb: 8, ..Dense::zeroed() },
                blocks: memory.alloc_from(&[[0, 3, first_entry, 0]]),
                rows: memory.alloc_from(&[2, 0, 1]),
                ..ShortRowsParams::zeroed()
            };
            let launch = Launch { grid: [1, 1], block_threads: K::BLOCK_THREADS, shared_bytes: 0, schedule };
            // SAFETY: the params keep their obligations; no entry exists, so nothing of `B` is read.
            let outcome = memory.launch(&launch, |thread| unsafe { K::run(thread, &params) });
            outcome.unwrap_or_else(|violation| panic!("{schedule:?}, from {first_entry}: {violation}"));
            assert_eq!(memory.read(c, 24).unwrap(), [0.0; 24], "{schedule:?}, from {first_entry}");
        }
    }
}

#[test]
fn short_rows_f16() {
    empty_rows_at_the_end::<ShortRows<Vectors<F16>, 8>>();
}

#[test]
fn short_rows_f32() {
    empty_rows_at_the_end::<ShortRows<Vectors<F32>, 8>>();
}

#[test]
fn short_rows_bf16() {
    empty_rows_at_the_end::<ShortRows<Vectors<Bf16>, 8>>();
}

#[test]
fn short_rows_tf32() {
    empty_rows_at_the_end::<ShortRows<Vectors<Tf32>, 8>>();
}

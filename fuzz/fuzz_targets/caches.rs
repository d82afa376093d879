//! `cargo fuzz run caches`: see CONTRIBUTING.

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|data: &[u8]| windrow_fuzz::caches(data));
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    windrow_fuzz::change(data, size, max_size, seed)
});

//! `cargo fuzz run parts`: see CONTRIBUTING.

#![no_main]

#[path = "../../tests/fuzz/bytes.rs"]
mod bytes;
#[path = "../../tests/fuzz/mutate.rs"]
mod mutate;
#[path = "../../tests/fuzz/parts.rs"]
mod parts;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use windrow_testkit::SplitMix64;

fuzz_target!(|data: &[u8]| {
    parts::check(data);
});

// Half of the changes are the fuzzer's own, half those of the tests.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed.is_multiple_of(2) {
        return fuzzer_mutate(data, size, max_size);
    }
    let mut content = data[..size].to_vec();
    mutate::mutate(&mut content, &mut SplitMix64::new(u64::from(seed)));
    content.truncate(max_size);
    data[..content.len()].copy_from_slice(&content);
    content.len()
});

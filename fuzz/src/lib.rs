//! The targets, which the tests share, and what makes a program of the fuzzer of one.

#![expect(dead_code, reason = "the tests use more of what is shared")]

#[path = "../../tests/fuzz/bytes.rs"]
mod bytes;
#[path = "../../tests/fuzz/caches.rs"]
mod caches;
#[path = "../../tests/fuzz/mutate.rs"]
mod mutate;
#[path = "../../tests/fuzz/parts.rs"]
mod parts;
#[path = "../../tests/fuzz/plans.rs"]
mod plans;
#[path = "../../tests/fuzz/readers.rs"]
mod readers;

use std::sync::Once;

use libfuzzer_sys::fuzzer_mutate;
use rayon::ThreadPoolBuilder;
use windrow_testkit::SplitMix64;

/// Rayon's work is done by the thread that asks for it: a fuzzer is one of several processes, and handing such small
/// work over takes longer than the work.
fn alone() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().unwrap());
}

pub fn readers(data: &[u8]) {
    alone();
    readers::check(data);
}

pub fn parts(data: &[u8]) {
    parts::check(data);
}

pub fn plans(data: &[u8]) {
    alone();
    plans::check(data);
}

pub fn caches(data: &[u8]) {
    alone();
    caches::check(data);
}

/// Half of the changes are the fuzzer's own, half those of the tests.
pub fn change(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    if seed.is_multiple_of(2) {
        return fuzzer_mutate(data, size, max_size);
    }
    let mut content = data[..size].to_vec();
    mutate::mutate(&mut content, &mut SplitMix64::new(u64::from(seed)));
    content.truncate(max_size);
    data[..content.len()].copy_from_slice(&content);
    content.len()
}

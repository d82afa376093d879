//! Few of the products that the example `stress_streams` makes by the million.

use windrow::DeviceKind;

use crate::common::{devices, report_missing_gpu};
use crate::example::stress::{Load, run};

/// Promise, results: products of many threads, each on several streams, with one plan or with several, are right, every
/// one of them; and the plans hold as much memory in the end as after the first products.
#[test]
fn products_of_threads_and_streams_are_right_and_take_no_memory() {
    for device in devices() {
        // The emulator's memory is this test's alone, and it is slow.
        let emulated = device.kind() == DeviceKind::Emulator;
        let (threads, streams, products) = if emulated { (3, 2, 60) } else { (8, 4, 4000) };
        for several in [false, true] {
            let seen = run(&device, Load { threads, streams, products, several }).unwrap();
            assert!(seen.products > products, "{seen:?} on {device}");
            assert!(seen.is_account_flat(), "{seen:?} on {device}");
            assert!(!emulated || seen.is_flat(), "{seen:?} on {device}");
            let [before, first, ..] = seen.memory.map(|memory| memory.held);
            assert!(device.kind() == DeviceKind::Cpu || before < first, "streams have workspaces: {seen:?}");
        }
    }
    report_missing_gpu("products of many threads and streams", 2);
}

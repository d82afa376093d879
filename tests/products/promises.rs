//! What is promised of every family alike.

use windrow::{Device, EmulatorSchedule};

use crate::common::{gpu, report_missing_gpu};
use crate::subjects::{FAMILIES, Family, MODES};

/// A plan made anew and run so often, in one thread.
fn runs(family: &Family, device: &Device, count: usize) -> Vec<Vec<u32>> {
    let mut subject = family.make(device).unwrap_or_else(|error| panic!("{}: {error}", family.name));
    let run = |_| subject.run().unwrap_or_else(|error| panic!("{} on {device}: {error}", family.name));
    (0..count).map(run).collect()
}

/// Families whose sums are added in a fixed order.
fn deterministic() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().chain(MODES).filter(|family| !family.name.contains("any order"))
}

/// Promise, determinism: 50 runs of any family and precision, in two threads with a plan each, beside other work of
/// the same device, give the same bits, in whatever order blocks, warps and lanes get on.
#[test]
fn fifty_runs_under_load_give_the_same_bits() {
    let families: Vec<&Family> = deterministic().collect();
    for (turn, family) in families.iter().enumerate() {
        let schedules = EmulatorSchedule::STANDARD;
        let mut devices = vec![Device::emulator(schedules[turn % schedules.len()])];
        devices.extend(gpu());
        let want = runs(family, &Device::emulator(EmulatorSchedule::InOrder), 1).remove(0);
        for device in devices {
            let other = families[(turn + 5) % families.len()];
            let found = std::thread::scope(|scope| {
                let halves = [(); 2].map(|()| scope.spawn(|| runs(family, &device, 25)));
                scope.spawn(|| runs(other, &device, 10));
                halves.map(|half| half.join().unwrap()).concat()
            });
            assert_eq!(found.len(), 50);
            // The emulator has fewer multiprocessors, for which work is divided otherwise.
            let want = if device.kind() == windrow::DeviceKind::Cuda { &found[0] } else { &want };
            assert!(found.iter().all(|bits| bits == want), "{} on {device}: other bits", family.name);
        }
    }
    report_missing_gpu("determinism under load", families.len());
}

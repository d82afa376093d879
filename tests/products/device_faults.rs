//! What becomes of plans, memory and later results when a call of a device fails: every call of every family in turn.

use windrow::{Device, EmulatorSchedule, Fault, Faults};

use crate::subjects::{FAMILIES, Family, Outcome};

/// What came of the faults of one family.
#[derive(Debug, Default)]
struct Table {
    points: usize,
    refused: usize,
    /// The call's failure was no failure of the whole, and the result was right.
    unharmed: usize,
}

const FAULTS: [Fault; 3] = [Fault::Refused, Fault::Late, Fault::Sticky];

impl Table {
    /// Counts an outcome; anything but the right result or an error that tells of the fault fails.
    #[track_caller]
    fn count(&mut self, what: &str, outcome: Outcome<Vec<u32>>, want: &[u32]) {
        self.points += 1;
        match outcome {
            Ok(found) => {
                assert!(found == want, "{what}: another result, and no error");
                self.unharmed += 1;
            }
            Err(error) => {
                let text = error.to_string();
                let told = text.contains("a fault that was asked for") || text.contains("do not fit");
                assert!(told, "{what}: {text}");
                self.refused += 1;
            }
        }
    }
}

/// The right result, with nothing left on the device afterwards.
fn right(family: &Family, device: &Device, faults: &Faults) -> Vec<u32> {
    let found = family.make(device).and_then(|mut subject| subject.run());
    let found = found.unwrap_or_else(|error| panic!("{}: {error}", family.name));
    assert_eq!(faults.allocated(), (0, 0), "{}: left on the device", family.name);
    found
}

/// Promise, faults: whichever call to a device fails, from the plan to the result, in any family: there is an error,
/// nothing is left on the device, and what it does next is right.
#[test]
fn a_fault_at_any_call_is_an_error_and_leaves_nothing() {
    for family in FAMILIES {
        let (device, faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
        let want = right(family, &device, &faults);
        let before = faults.calls();
        assert!(right(family, &device, &faults) == want, "{}: not the same bits", family.name);
        let calls = faults.calls() - before;
        let mut table = Table::default();
        for fault in FAULTS {
            for at in 0..calls {
                faults.plan(at, fault);
                let outcome = family.make(&device).and_then(|mut subject| subject.run());
                let failed = faults.clear();
                let what = format!("{}: call {at} of {calls} ({failed:?}), {fault:?}", family.name);
                assert!(!failed.is_empty(), "{what}: not reached");
                table.count(&what, outcome, &want);
                assert_eq!(faults.allocated(), (0, 0), "{what}: left on the device");
            }
            assert!(right(family, &device, &faults) == want, "{}: wrong afterwards", family.name);
        }
        eprintln!("{}: {table:?}", family.name);
        assert!(table.refused >= table.points / 2, "{}: {table:?}", family.name);
    }
}

/// Promise, faults: after any call of a run has failed, the plan's next run is right, and the plan holds as much memory
/// as before.
#[test]
fn a_plan_outlives_the_faults_of_its_runs() {
    for family in FAMILIES {
        let (device, faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
        let mut subject = family.make(&device).unwrap();
        let want = subject.run().unwrap();
        let held = faults.allocated();
        let before = faults.calls();
        assert!(subject.run().unwrap() == want, "{}: not the same bits", family.name);
        let calls = faults.calls() - before;
        let mut table = Table::default();
        for fault in [Fault::Refused, Fault::Late] {
            for at in 0..calls {
                faults.plan(at, fault);
                let outcome = subject.run();
                let failed = faults.clear();
                let what = format!("{}: call {at} of {calls} of a run ({failed:?}), {fault:?}", family.name);
                table.count(&what, outcome, &want);
                let next = subject.run().unwrap_or_else(|error| panic!("{what}, then: {error}"));
                assert!(next == want, "{what}: the next run is wrong");
                assert_eq!(faults.allocated(), held, "{what}: more or less memory than before");
            }
        }
        eprintln!("{}: {table:?}", family.name);
        drop(subject);
        assert_eq!(faults.allocated(), (0, 0), "{}: left on the device", family.name);
    }
}

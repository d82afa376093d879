//! A device that is lost to its process: every later call says so, and nothing else happens.

use std::process::Command;

use bytemuck::Zeroable;
use windrow::internal::{GatherProbeParams, Variant};
use windrow::{Device, DeviceBuffer, DeviceError, EmulatorSchedule, Event, Fault};
use windrow_testkit::{announce, announce_skip};

use crate::common::{gpu, report_missing_gpu};
use crate::subjects::{FAMILIES, Family, Outcome, Subject};

/// Set in a process that a test starts, to what notices the fault first there: a process that has lost its GPU can do
/// nothing else any more.
const CHILD: &str = "WINDROW_TEST_LOST_DEVICE";
/// What a child says in the end.
const DONE: &str = "every call after the fault failed, and all was dropped";
/// Set by whoever runs the tests under a tool that takes any fault of a kernel for a failure.
const WRAP: &str = "WINDROW_WRAP";

/// What was made while the device was well.
struct Before {
    device: Device,
    subjects: Vec<(&'static Family, Box<dyn Subject>, Vec<u32>)>,
    buffer: DeviceBuffer<f32>,
    event: Event,
}

impl Before {
    fn make(device: &Device) -> Self {
        let subjects = FAMILIES.iter().map(|family| {
            let mut subject = family.make(device).unwrap_or_else(|error| panic!("{}: {error}", family.name));
            let found = subject.run().unwrap_or_else(|error| panic!("{}: {error}", family.name));
            (family, subject, found)
        });
        Self {
            device: device.clone(),
            subjects: subjects.collect(),
            buffer: DeviceBuffer::from_slice(device, &[1.0; 1000]).unwrap(),
            event: device.record().unwrap(),
        }
    }

    /// Asks for everything that a device does, and drops it all.
    fn ask(mut self) {
        for (family, subject, _) in &mut self.subjects {
            refused(&format!("a run of {}", family.name), subject.run());
            refused(&format!("a plan of {}", family.name), family.make(&self.device).map(drop));
        }
        let device = &self.device;
        let calls: [(&str, Outcome<()>); 9] = [
            ("an allocation", DeviceBuffer::<f32>::alloc_zeroed(device, 9).map(drop).map_err(Into::into)),
            ("an upload", self.buffer.copy_from_slice(&[2.0; 1000]).map_err(Into::into)),
            // By way of pinned memory.
            (
                "a large upload",
                DeviceBuffer::from_slice(device, &[0u64; 1 << 18]).map(drop).map_err(Into::into),
            ),
            ("a download", self.buffer.to_vec().map(drop).map_err(Into::into)),
            ("synchronize", device.synchronize().map_err(Into::into)),
            ("a mark", device.record().map(drop).map_err(Into::into)),
            ("free memory", device.memory_free().map(drop).map_err(Into::into)),
            ("a launch", launch(device).map_err(Into::into)),
            ("synchronize, again", device.synchronize().map_err(Into::into)),
        ];
        for (what, outcome) in calls {
            refused(what, outcome);
        }
        // The mark may have been passed long before the fault.
        if let Err(error) = self.event.elapsed_us(&self.event) {
            refused("an old mark", Err::<(), _>(error.into()));
        }
        assert_eq!(self.subjects.len(), FAMILIES.len());
    }
}

/// That a call ended with the error that tells of the loss.
#[track_caller]
fn refused<T>(what: &str, outcome: Outcome<T>) {
    let Err(error) = outcome else { panic!("{what}: no error, though the device is lost") };
    let text = error.to_string();
    assert!(text.contains("the device is lost to this process"), "{what}: {text}");
    assert!(text.ends_with("start a new process"), "{what}: {text}");
}

/// A launch of a kernel that writes a word through its pointer, which is null.
fn launch(device: &Device) -> Result<(), DeviceError> {
    let entry = windrow::internal::entry(Variant::GatherProbe).expect("the probe has an entry");
    // SAFETY: none, on purpose: the obligations are broken. On a GPU the access is outside of all memory of the
    // process, which the hardware finds and the driver reports; no memory of the process is touched.
    unsafe { windrow::internal::launch(device, entry, [1, 1], &GatherProbeParams::zeroed()) }
}

/// What becomes of a process whose kernel went astray. `first` is what notices.
fn lose_the_gpu(first: &str) {
    // Not the one that all tests share, which nothing drops.
    let device = Device::cuda(0).expect("the process before had one");
    let mut before = Before::make(&device);
    match launch(&device) {
        // The second where the environment has the driver wait for each launch.
        Ok(()) | Err(DeviceError::Lost { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    match first {
        "synchronize" => match device.synchronize() {
            Err(DeviceError::Lost { .. }) => {}
            other => panic!("{other:?}"),
        },
        // The copy back comes after the fault, whatever was queued before it is noticed.
        "run" => refused("the first run", before.subjects[0].1.run()),
        other => panic!("{CHILD}={other:?}"),
    }
    before.ask();
    drop(device);
    announce(DONE);
}

/// Promise, faults: after a kernel's illegal access every later call of the process to that GPU, in any family, is an
/// error that says that the device is lost and a new process is needed; nothing panics, and all ends normally.
///
/// The process that loses its GPU is another one, which this program starts with the same test and [`CHILD`] set. Its
/// exit code is 0 if all of that was so, 101 if not, and a signal's if it crashed.
#[test]
fn a_lost_gpu_is_told_by_every_later_call() {
    if let Ok(first) = std::env::var(CHILD) {
        return lose_the_gpu(&first);
    }
    const WAYS: [&str; 2] = ["synchronize", "run"];
    let what = "lost devices";
    if gpu().is_none() {
        return report_missing_gpu(what, WAYS.len());
    }
    if std::env::var_os(WRAP).is_some_and(|value| !value.is_empty()) {
        return announce_skip(what, WAYS.len(), "a sanitizer, to which the fault is a failure");
    }
    for first in WAYS {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "device_lost::a_lost_gpu_is_told_by_every_later_call", "--nocapture"]);
        let output = child.env(CHILD, first).output().unwrap();
        let [said, complained] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert_eq!(output.status.code(), Some(0), "{first}: {}\n{said}\n{complained}", output.status);
        assert!(said.contains(DONE) && said.contains("1 passed"), "{first}: {said}\n{complained}");
    }
}

/// Promise, faults: once a device is lost, every later call in any family says so, whatever was made before; all that
/// was made can be dropped.
#[test]
fn a_lost_device_is_told_by_every_later_call() {
    let (device, faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
    let before = Before::make(&device);
    faults.plan(0, Fault::Sticky);
    before.ask();
    assert!(!faults.clear().is_empty());
    assert_eq!(faults.allocated(), (0, 0));
    // The emulator's device comes back, and is right.
    for (family, mut subject, found) in Before::make(&device).subjects {
        assert_eq!(subject.run().unwrap(), found, "{}", family.name);
    }
}

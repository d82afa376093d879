//! Plans of every family made, run, verified, given new values and dropped, for as long as is asked for: no result is
//! wrong, and the memory of the process and of the device stays what it was.
//!
//! - `WINDROW_SOAK_SECONDS`: time for each device, 2 unless set;
//! - `WINDROW_SOAK_CSV`: a file that is written anew, a line for each sample;
//! - `WINDROW_SOAK_DEVICE`: only the device of this name, such as `emulator`;
//! - `WINDROW_GPU_ONLY=1`, `WINDROW_REQUIRE_GPU=1`: as in the tests of products.
//!
//! It is the only work of its process, whose memory it reads; what the driver tells of a GPU's memory is that of all
//! processes on it.

mod families;

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use windrow::{Device, DeviceError, DeviceKind, EmulatorSchedule, Faults};
use windrow_testkit::{SplitMix64, announce, announce_skip};

use families::{FAMILIES, Turn};

/// Samples of one device, so that months do not fill the memory that is looked at.
const SAMPLES: u32 = 1000;
/// However slow the device is.
const LEAST_SAMPLES: usize = 10;
/// What memory may grow by, as a share and in bytes: allocators keep what they once had.
const GROWTH: (f64, u64) = (0.02, 16 << 20);

/// What was in use when nothing of windrow's lived but the device.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    seconds: f64,
    products: u64,
    /// Of this process, in the memory of the host.
    resident_bytes: u64,
    /// Of a GPU all that is in use, of the emulator what is allocated; 0 on the CPU.
    device_bytes: u64,
}

/// A device, and what counts its allocations if it is the emulator.
struct Soaked {
    device: Device,
    faults: Option<Faults>,
}

fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| value == "1")
}

fn devices() -> Vec<Soaked> {
    let mut devices = Vec::new();
    if !is_set("WINDROW_GPU_ONLY") {
        let (device, faults) = Device::emulator_with_faults(EmulatorSchedule::InOrder);
        devices.push(Soaked { device: Device::cpu(), faults: None });
        devices.push(Soaked { device, faults: Some(faults) });
    }
    match Device::cuda(0) {
        Ok(device) => devices.push(Soaked { device, faults: None }),
        Err(DeviceError::NoDriver | DeviceError::NoSuchDevice { .. })
            if !is_set("WINDROW_REQUIRE_GPU") && !devices.is_empty() =>
        {
            announce_skip("soak", 1, "no GPU");
        }
        Err(error) => panic!("a GPU must be there: {error}"),
    }
    if let Ok(only) = std::env::var("WINDROW_SOAK_DEVICE") {
        devices.retain(|soaked| soaked.device.selector() == only);
        assert!(!devices.is_empty(), "WINDROW_SOAK_DEVICE={only:?} is none of the devices here");
    }
    devices
}

/// `None` where the operating system does not tell.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

impl Soaked {
    fn device_bytes(&self) -> u64 {
        if let Some(faults) = &self.faults {
            let (arrays, bytes) = faults.allocated();
            assert_eq!((arrays, bytes), (0, 0), "left on {}", self.device);
            return bytes;
        }
        match (self.device.kind(), self.device.memory_total()) {
            (DeviceKind::Cuda, Some(total)) => total - self.device.memory_free().unwrap().unwrap_or(total),
            _ => 0,
        }
    }

    /// Works for `time`, and returns the curve of memory.
    fn soak(&self, time: Duration, csv: &mut Option<File>) -> Vec<Sample> {
        let mut rng = SplitMix64::new(1);
        let largest = if self.device.kind() == DeviceKind::Emulator { 40 } else { 1500 };
        let mut turn = |number: u64| {
            let family = &FAMILIES[usize::try_from(number).unwrap() % FAMILIES.len()];
            let round = number / FAMILIES.len() as u64;
            let verify = round.is_multiple_of(3);
            let turn = Turn { device: &self.device, rng: &mut rng, largest, round, verify };
            (family.run)(turn).unwrap_or_else(|error| panic!("{}, turn {number}: {error}", family.name))
        };
        // What is made once and stays: threads, kernels.
        self.device.load_kernels().unwrap();
        let mut number = 0;
        while number < 2 * FAMILIES.len() as u64 {
            turn(number);
            number += 1;
        }
        let (start, mut products, mut samples) = (Instant::now(), 0, Vec::new());
        let step = time / SAMPLES;
        while start.elapsed() < time || samples.len() < LEAST_SAMPLES {
            products += turn(number);
            number += 1;
            if start.elapsed() < step * u32::try_from(samples.len()).unwrap() {
                continue;
            }
            let sample = Sample {
                seconds: start.elapsed().as_secs_f64(),
                products,
                resident_bytes: resident_bytes().unwrap_or(0),
                device_bytes: self.device_bytes(),
            };
            if let Some(csv) = csv {
                let Sample { seconds, products, resident_bytes, device_bytes } = sample;
                let selector = self.device.selector();
                writeln!(csv, "{seconds:.3},{products},{resident_bytes},{device_bytes},{selector}").unwrap();
            }
            samples.push(sample);
        }
        samples
    }
}

/// What is in use at most in the second fifth of the time, and in the last.
fn early_and_late(samples: &[Sample], bytes: fn(&Sample) -> u64) -> (u64, u64) {
    let end = samples.last().map_or(0.0, |sample| sample.seconds);
    let most = |fifth: f64| {
        let inside =
            |sample: &&Sample| (fifth / 5.0 * end..=(fifth + 1.0) / 5.0 * end).contains(&sample.seconds);
        samples.iter().filter(inside).map(bytes).max().unwrap_or(0)
    };
    (most(1.0), most(4.0))
}

/// What grew by more than [`GROWTH`] after the first fifth of the time.
fn grown(samples: &[Sample]) -> Option<String> {
    let resident = early_and_late(samples, |sample| sample.resident_bytes);
    let on_device = early_and_late(samples, |sample| sample.device_bytes);
    [("resident", resident), ("on the device", on_device)].into_iter().find_map(|(what, (early, late))| {
        let most = early as f64 * (1.0 + GROWTH.0) + GROWTH.1 as f64;
        (late as f64 > most).then(|| format!("{early} bytes {what}, and {late} in the end"))
    })
}

/// Promise, memory: the memory of a process and of its device does not grow, however many plans are made, run, given
/// new values and dropped.
#[test]
fn memory_does_not_grow() {
    if std::env::var_os("WINDROW_WRAP").is_some_and(|value| !value.is_empty()) {
        return announce_skip("soak", 1, "a sanitizer, whose memory it would measure");
    }
    let seconds = std::env::var("WINDROW_SOAK_SECONDS").map_or(2.0, |text| {
        text.parse::<f64>()
            .ok()
            .filter(|seconds| seconds.is_finite() && *seconds > 0.0)
            .unwrap_or_else(|| panic!("WINDROW_SOAK_SECONDS={text:?} is no time; give seconds, such as 3600"))
    });
    let mut csv = std::env::var_os("WINDROW_SOAK_CSV").map(|path| File::create(path).unwrap());
    if let Some(csv) = &mut csv {
        writeln!(csv, "seconds,products,resident_bytes,device_bytes,device").unwrap();
    }
    for soaked in devices() {
        let samples = soaked.soak(Duration::from_secs_f64(seconds), &mut csv);
        let (resident, on_device) =
            (early_and_late(&samples, |s| s.resident_bytes), early_and_late(&samples, |s| s.device_bytes));
        let products = samples.last().unwrap().products;
        announce(&format!(
            "soak on {}: {products} products in {} samples; bytes resident {resident:?}, on the device {on_device:?}",
            soaked.device,
            samples.len()
        ));
        assert_eq!(grown(&samples), None, "{}", soaked.device);
    }
}

#[test]
fn a_leak_is_noticed() {
    let curve = |leak: u64| -> Vec<Sample> {
        let sample = |i: u64| Sample {
            seconds: i as f64,
            products: i,
            // The first fifth may take what it likes.
            resident_bytes: (100 << 20) + (i % 7) * (1 << 20) + leak * i - if i < 20 { 50 << 20 } else { 0 },
            device_bytes: 1 << 30,
        };
        (0..100).map(sample).collect()
    };
    assert_eq!(grown(&curve(0)), None);
    assert_eq!(grown(&curve(100 << 10)), None);
    assert!(grown(&curve(1 << 20)).unwrap().contains("resident"));
    let on_device: Vec<Sample> = curve(0)
        .into_iter()
        .map(|sample| Sample { device_bytes: (1 << 30) + sample.products * (1 << 20), ..sample })
        .collect();
    assert!(grown(&on_device).unwrap().contains("on the device"));
}

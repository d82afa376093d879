//! The CPU as a device: its name and its memory.

use super::DeviceKind;
use super::machine::Description;
use crate::num::narrow;

pub(super) fn describe() -> Description {
    let threads = rayon::current_num_threads();
    Description {
        kind: DeviceKind::Cpu,
        name: format!(
            "{}, {threads} threads",
            model_name().unwrap_or_else(|| std::env::consts::ARCH.to_owned())
        ),
        selector: "cpu".to_owned(),
        compute_capability: None,
        multiprocessors: narrow(threads),
        clock_hz: None,
        memory_rate: None,
        l2_bytes: None,
        memory_total: windrow_formats::machine_memory(),
        driver_version: None,
    }
}

fn model_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let (_, name) = text.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

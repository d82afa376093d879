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

/// Memory that could be had without swapping, in bytes, where the system tells.
pub(super) fn memory_available() -> Option<u64> {
    meminfo("MemAvailable:")
}

/// Linux only; elsewhere the file does not exist and nothing is known.
fn meminfo(key: &str) -> Option<u64> {
    value_of(&std::fs::read_to_string("/proc/meminfo").ok()?, key)
}

fn value_of(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn model_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let (_, name) = text.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_is_read_in_kibibytes() {
        let text = "MemTotal:       2048 kB\nMemFree: 1 kB\nHugePages_Total:       0\n";
        assert_eq!(super::value_of(text, "MemTotal:"), Some(2 << 20));
        assert_eq!(super::value_of(text, "MemAvailable:"), None);
        assert_eq!(super::value_of(text, "HugePages_Total:"), None);
    }
}

//! The memory of this machine, as far as this process may use it.

use std::fs;
use std::path::Path;

/// Bytes of memory that this process can have: what the machine has, or what its control groups or its limit of address
/// space allow, if that is less. `None` where the system does not tell (anywhere but on Linux).
pub fn machine_memory() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let total = read("/proc/meminfo").and_then(|text| bytes_of(&text, "MemTotal:"));
    let address_space = read("/proc/self/limits").as_deref().and_then(address_space_of);
    let groups =
        read("/proc/self/cgroup").and_then(|text| limit_of_groups(&text, Path::new("/sys/fs/cgroup")));
    [total, address_space, groups].into_iter().flatten().min()
}

/// Bytes of [`machine_memory`] that this process could still have without swapping: what it holds of a limit of its own
/// is taken off. `None` where the system does not tell.
pub fn machine_memory_free() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let available = read("/proc/meminfo").and_then(|text| bytes_of(&text, "MemAvailable:"));
    let status = read("/proc/self/status");
    let held = |what: &str| status.as_deref().and_then(|text| bytes_of(text, what)).unwrap_or(0);
    let address_space = read("/proc/self/limits").as_deref().and_then(address_space_of);
    // Other processes of a group may hold some of it, too.
    let groups =
        read("/proc/self/cgroup").and_then(|text| limit_of_groups(&text, Path::new("/sys/fs/cgroup")));
    let address_space = address_space.map(|limit| limit.saturating_sub(held("VmSize:")));
    let groups = groups.map(|limit| limit.saturating_sub(held("VmRSS:")));
    [available, address_space, groups].into_iter().flatten().min()
}

/// A size that `/proc/meminfo` or `/proc/self/status` tells, in bytes.
fn bytes_of(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit, in bytes, of `/proc/self/limits`; `None` if there is none.
fn address_space_of(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The least limit of the groups that `/proc/self/cgroup` names and of those around them, version 1 or 2.
fn limit_of_groups(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // In a container the path may be that of the host: what is above it always exists.
        let group = root.join(path.trim_start_matches('/'));
        let around = group.ancestors().take_while(|folder| folder.starts_with(&root));
        around.filter_map(|folder| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()).min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_understood() {
        let meminfo = "MemTotal:       2048 kB\nMemFree:  1 kB\nHugePages_Total:       0\n";
        assert_eq!(bytes_of(meminfo, "MemTotal:"), Some(2 << 20));
        assert_eq!(bytes_of(meminfo, "MemAvailable:"), None);
        assert_eq!(bytes_of(meminfo, "HugePages_Total:"), None);
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max address space         4096000000           unlimited            bytes     \n";
        assert_eq!(address_space_of(limits), Some(4_096_000_000));
        assert_eq!(address_space_of(&limits.replace("4096000000", "unlimited ")), None);
    }

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| limit_of_groups(groups, root.path());
        assert_eq!(limit("0::/a/b\n"), None);
        put("a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), None);
        put("a/memory.max", "3000000\n");
        assert_eq!(limit("0::/a/b\n"), Some(3_000_000));
        put("memory.max", "2000000\n");
        assert_eq!(limit("0::/a/b\n"), Some(2_000_000));
        assert_eq!(limit("0::/of/the/host\n"), Some(2_000_000));
        // Version 1 has a folder for each controller.
        put("memory/docker/memory.limit_in_bytes", "1000000\n");
        assert_eq!(limit("5:cpu,cpuacct:/docker\n4:memory:/docker\n"), Some(1_000_000));
        assert_eq!(limit("5:cpu,cpuacct:/docker\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_some() {
        assert!(machine_memory().is_some_and(|bytes| bytes > 16 << 20));
        assert!(machine_memory_free() < machine_memory());
    }
}

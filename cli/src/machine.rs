//! What can be learned of this machine without a driver.

use std::path::Path;

/// Where a driver is missing, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoDriver {
    pub(crate) found: String,
    pub(crate) remedy: &'static str,
    pub(crate) gpu_present: bool,
}

/// Architecture and operating system.
pub(crate) fn target() -> String {
    format!("{} {}", std::env::consts::ARCH, std::env::consts::OS)
}

/// Vector units of this processor that matter to sparse products.
#[cfg(target_arch = "x86_64")]
pub(crate) fn features() -> Vec<&'static str> {
    [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
    ]
    .into_iter()
    .filter_map(|(name, present)| present.then_some(name))
    .collect()
}

/// Vector units of this processor that matter to sparse products: none that is asked for at run time.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn features() -> Vec<&'static str> {
    Vec::new()
}

/// The version of NVIDIA's kernel module, if it is loaded.
pub(crate) fn kernel_module() -> Option<String> {
    module_version(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

/// The first word of the first line that looks like a version, such as `580.159.04`.
fn module_version(text: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

/// Why there is no driver library: looks for the GPU, its kernel module and its device files.
pub(crate) fn why_no_driver() -> NoDriver {
    let on_the_bus = gpus_on_the_bus();
    explain(on_the_bus, kernel_module(), Path::new("/dev/nvidiactl").exists())
}

fn explain(on_the_bus: usize, kernel_module: Option<String>, device_files: bool) -> NoDriver {
    let library = "the driver library libcuda.so.1 was not found";
    match (on_the_bus, kernel_module) {
        (0, None) => NoDriver {
            found: format!("{library}, nor an NVIDIA GPU"),
            remedy: "none needed for the CPU; for a GPU, install NVIDIA's driver (the CUDA toolkit is not needed)",
            gpu_present: false,
        },
        (count, None) => NoDriver {
            found: format!(
                "{library}; {count} NVIDIA devices are on the PCI bus, but no kernel module is loaded"
            ),
            remedy: "install NVIDIA's driver and reboot; the CUDA toolkit is not needed",
            gpu_present: true,
        },
        (_, Some(module)) if device_files => NoDriver {
            found: format!("{library}, though its kernel module {module} is loaded"),
            remedy: "install the driver's user libraries (package libcuda1 or nvidia-compute-utils) or add their folder to LD_LIBRARY_PATH",
            gpu_present: true,
        },
        (_, Some(module)) => NoDriver {
            found: format!(
                "{library}, though its kernel module {module} is loaded; there are no device files"
            ),
            remedy: "in a container, start it with access to the GPU (docker run --gpus all); else run nvidia-modprobe",
            gpu_present: true,
        },
    }
}

/// Display and compute controllers of NVIDIA, as Linux lists them.
fn gpus_on_the_bus() -> usize {
    let Ok(devices) = std::fs::read_dir("/sys/bus/pci/devices") else { return 0 };
    let reads = |path: &Path, name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
    devices
        .flatten()
        .map(|device| device.path())
        .filter(|path| reads(path, "vendor").trim() == "0x10de" && reads(path, "class").starts_with("0x03"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version:";
        assert_eq!(module_version(text).as_deref(), Some("580.159.04"));
        assert_eq!(module_version("NVRM version: unknown"), None);
        assert_eq!(module_version(""), None);
    }

    #[test]
    fn each_step_on_the_way_to_a_driver_has_its_remedy() {
        let module = || Some("570.1".to_owned());
        let cases = [
            explain(0, None, false),
            explain(2, None, false),
            explain(0, module(), false),
            explain(1, module(), true),
        ];
        assert_eq!(cases.iter().map(|case| case.gpu_present).collect::<Vec<_>>(), [false, true, true, true]);
        for word in ["none needed", "reboot", "--gpus all", "LD_LIBRARY_PATH"] {
            assert_eq!(cases.iter().filter(|case| case.remedy.contains(word)).count(), 1, "{word}");
        }
        assert!(cases[1].found.contains("2 NVIDIA devices") && cases[3].found.contains("570.1"));
    }
}

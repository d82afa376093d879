//! Instructions and conditional compilation stay in one place, so that a kernel means the same everywhere.

use super::Findings;

/// Where instructions may be named: what the GPU runs, and the CPU back end's vector units.
const INSTRUCTIONS: [&str; 2] = ["simt/src/ptx", "host/src/cpu/x86"];
/// Where code may depend on the architecture: both machines, the two files that join kernels to them, the CPU back
/// end, which picks its vector unit, and what the command says about the machine.
const ARCHITECTURE: [&str; 5] = [
    "simt/",
    "device-kernels/src/lib.rs",
    "device-kernels/src/entries",
    "host/src/cpu/",
    "cli/src/machine.rs",
];

/// Reports assembly, intrinsics and architecture switches outside their place.
pub(super) fn check(path: &str, code: &str, findings: &mut Findings) {
    let instructions = INSTRUCTIONS.iter().any(|place| path.starts_with(place));
    let architecture = ARCHITECTURE.iter().any(|place| path.starts_with(place));
    for (index, line) in code.lines().enumerate() {
        let dense: String = line.split_whitespace().collect();
        let named =
            ["asm!", "core::arch", "std::arch", "llvm_asm"].into_iter().find(|word| dense.contains(word));
        if let Some(word) = named.filter(|_| !instructions) {
            findings.problem(format!(
                "{path}:{}: `{word}` belongs in {}",
                index + 1,
                INSTRUCTIONS.join(" or ")
            ));
        }
        if dense.contains("target_arch") && !architecture {
            findings.problem(format!(
                "{path}:{}: what depends on the architecture belongs in {}",
                index + 1,
                ARCHITECTURE.join(", ")
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, code: &str) -> usize {
        let mut findings = Findings::default();
        check(path, code, &mut findings);
        findings.problems.len()
    }

    #[test]
    fn instructions_stay_in_their_place() {
        let code = "core::arch::asm!(\"bar.sync 0;\")";
        assert_eq!(found("simt/src/ptx/mod.rs", code), 0);
        assert_eq!(found("simt/src/machine.rs", code), 1);
        assert_eq!(found("device-kernels/src/row_split.rs", "use core :: arch :: nvptx;"), 1);
        assert_eq!(found("host/src/cpu/x86.rs", "use core::arch::x86_64::_mm_prefetch;"), 0);
        assert_eq!(found("host/src/cpu/product.rs", "std::arch::x86_64::_mm_prefetch"), 1);
    }

    #[test]
    fn the_architecture_is_asked_in_few_files() {
        let code = "#[cfg(target_arch = \"nvptx64\")]";
        assert_eq!(found("device-kernels/src/entries.rs", code), 0);
        assert_eq!(found("device-kernels/src/lib.rs", code), 0);
        assert_eq!(found("simt/src/lib.rs", code), 0);
        assert_eq!(found("host/src/cpu/mod.rs", code), 0);
        assert_eq!(found("device-kernels/src/row_split.rs", code), 1);
        assert_eq!(found("host/src/device.rs", code), 1);
    }
}

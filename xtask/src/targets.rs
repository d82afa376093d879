//! The architectures that the kernels are compiled for, and the PTX files of each.

use crate::entries::EntrySpec;
use crate::workspace::Workspace;
use std::collections::BTreeMap;
use std::path::PathBuf;
use windrow_kernels::Arch;

/// A folder of PTX: the architecture it is compiled for and how.
#[derive(Debug)]
pub(crate) struct Target {
    /// Says which GPUs run it and which entries it holds.
    pub arch: Arch,
    /// What `-C target-cpu` is given.
    pub target_cpu: &'static str,
    /// `-C target-feature`; empty for what the architecture implies.
    pub target_features: &'static str,
    /// Architectures that `ptxas` must accept its modules for.
    pub gpus: &'static [&'static str],
}

/// Every target, the newest architecture last. A driver compiles PTX for its own GPU, which takes the last text that it
/// runs; a target is added when kernels gain by an instruction that the ones before lack.
pub(crate) const TARGETS: &[Target] = &[
    Target {
        arch: Arch::Sm80,
        target_cpu: "sm_80",
        // PTX 7.4 (CUDA 11.4) has the cache hints of loads and stores.
        target_features: "+ptx75",
        gpus: &["sm_80", "sm_86", "sm_89"],
    },
    // Programmatic dependent launch: `griddepcontrol`. Bulk copies, which PTX 8.0 (CUDA 12.0) has.
    Target {
        arch: Arch::Sm90,
        target_cpu: "sm_90",
        target_features: "+ptx80",
        gpus: &["sm_90a", "sm_100", "sm_120"],
    },
    // `wgmma`, whose sparse form PTX 8.2 (CUDA 12.2) has. Runs on 9.0 and nowhere else.
    Target { arch: Arch::Sm90a, target_cpu: "sm_90a", target_features: "+ptx82", gpus: &["sm_90a"] },
];

/// Passed to LLVM for every target. A kernel whose accumulators stop being unrolled at LLVM's default would
/// name `-unroll-threshold` here; none does, and `check-ptx` would show its stack frame.
pub(crate) const LLVM_ARGS: &[&str] = &[];

impl Target {
    /// The folder of its modules.
    pub(crate) fn folder(&self, workspace: &Workspace) -> PathBuf {
        workspace.ptx_dir().join(self.arch.name())
    }

    /// The file of a module.
    pub(crate) fn file(&self, workspace: &Workspace, module: &str) -> PathBuf {
        self.folder(workspace).join(format!("{module}.ptx"))
    }

    /// The entries that it holds, by module. A target without entries has no folder.
    pub(crate) fn modules(&self) -> BTreeMap<String, Vec<EntrySpec>> {
        self.modules_of(crate::entries::all())
    }

    fn modules_of(&self, entries: Vec<EntrySpec>) -> BTreeMap<String, Vec<EntrySpec>> {
        let mut modules: BTreeMap<String, Vec<EntrySpec>> = BTreeMap::new();
        for entry in entries.into_iter().filter(|entry| self.arch.holds(entry.arch)) {
            modules.entry(entry.module.clone()).or_default().push(entry);
        }
        modules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_in_a_file_and_targets_are_those_of_the_kernels() {
        assert!(TARGETS.iter().map(|target| target.arch).eq(Arch::ALL));
        for entry in crate::entries::all() {
            let holders = TARGETS.iter().filter(|target| {
                let modules = target.modules();
                modules.get(&entry.module).is_some_and(|entries| entries.contains(&entry))
            });
            assert!(holders.count() > 0, "{}", entry.name);
        }
    }

    #[test]
    fn an_entry_of_one_architecture_alone_is_in_its_folder_alone() {
        let entry = |name: &str, arch| EntrySpec { arch, ..EntrySpec::sample(name) };
        let entries = vec![entry("old", Arch::Sm80), entry("new", Arch::Sm90), entry("newest", Arch::Sm90a)];
        let names: Vec<Vec<String>> = TARGETS
            .iter()
            .map(|target| {
                target.modules_of(entries.clone()).into_values().flatten().map(|entry| entry.name).collect()
            })
            .collect();
        assert_eq!(names, [vec!["old"], vec!["new", "old"], vec!["newest"]]);
    }

    #[test]
    fn ptxas_tries_each_architecture_on_a_text_that_its_gpus_take() {
        for target in TARGETS {
            for gpu in target.gpus {
                let sm = gpu.trim_start_matches("sm_").trim_end_matches('a').parse().unwrap();
                assert_eq!(Arch::for_gpu(sm, target.arch), Some(target.arch), "{gpu}");
            }
        }
    }
}

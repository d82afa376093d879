//! The PTX modules that the kernels are compiled into.

use crate::entries::EntrySpec;

/// One PTX file: the architecture it is compiled for and the entry points it holds.
#[derive(Debug)]
pub(crate) struct Module {
    /// File name without its extension.
    pub name: &'static str,
    /// What rustc is told with `-C target-cpu`.
    pub target_cpu: &'static str,
    /// `-C target-feature`; empty for what the architecture implies.
    pub target_features: &'static str,
    /// Lowest architecture that runs the module (80 means `sm_80`). It holds every entry that this one runs.
    pub sm: u32,
    /// Architectures that `ptxas` must accept the module for.
    pub archs: &'static [&'static str],
}

/// Every module, the newest architecture last. A driver compiles PTX for its own GPU, which takes the last module
/// that it runs; a module is added when kernels gain by an instruction that the ones before lack.
pub(crate) const MODULES: &[Module] = &[
    Module {
        name: "windrow_sm80",
        target_cpu: "sm_80",
        // PTX 7.4 (CUDA 11.4) has the cache hints of loads and stores.
        target_features: "+ptx75",
        sm: 80,
        archs: &["sm_80", "sm_86", "sm_89"],
    },
    // Programmatic dependent launch: `griddepcontrol`. Bulk copies, which PTX 8.0 (CUDA 12.0) has.
    Module {
        name: "windrow_sm90",
        target_cpu: "sm_90",
        target_features: "+ptx80",
        sm: 90,
        archs: &["sm_90a", "sm_100", "sm_120"],
    },
];

/// Passed to LLVM for every module. A kernel whose accumulators stop being unrolled at LLVM's default would
/// name `-unroll-threshold` here; none does, and `check-ptx` would show its stack frame.
pub(crate) const LLVM_ARGS: &[&str] = &[];

impl Module {
    /// Name of the module's file in `device-kernels/ptx`.
    pub(crate) fn file_name(&self) -> String {
        format!("{}.ptx", self.name)
    }

    /// The entries of the table that belong in this module.
    pub(crate) fn entries(&self) -> Vec<EntrySpec> {
        crate::entries::all().into_iter().filter(|entry| entry.min_sm <= self.sm).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_belongs_to_a_module() {
        let newest = MODULES.last().unwrap();
        assert_eq!(newest.entries(), crate::entries::all());
    }

    #[test]
    fn modules_are_those_that_the_kernels_embed() {
        let embedded = windrow_kernels::MODULES.iter().map(|module| module.sm);
        assert!(embedded.eq(MODULES.iter().map(|module| module.sm)));
        for (module, embedded) in MODULES.iter().zip(windrow_kernels::MODULES) {
            assert!(embedded.ptx.contains(&format!(".target {}\n", module.target_cpu)), "{}", module.name);
        }
    }

    #[test]
    fn ptxas_tries_each_architecture_on_the_module_that_its_gpus_take() {
        let number =
            |arch: &str| arch.trim_start_matches("sm_").trim_end_matches('a').parse::<u32>().unwrap();
        for (i, module) in MODULES.iter().enumerate() {
            let next = MODULES.get(i + 1).map_or(u32::MAX, |next| next.sm);
            assert!(module.sm < next);
            assert!(
                module.archs.iter().all(|arch| (module.sm..next).contains(&number(arch))),
                "{}",
                module.name
            );
        }
    }
}

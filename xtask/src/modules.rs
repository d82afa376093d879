//! The PTX modules that the kernels are compiled into.

use crate::entries::EntrySpec;

/// One PTX file: the architecture it is compiled for and the entry points it holds.
#[derive(Debug)]
pub(crate) struct Module {
    /// File name without its extension.
    pub name: &'static str,
    /// `-C target-cpu`.
    pub target_cpu: &'static str,
    /// `-C target-feature`; empty for what the architecture implies.
    pub target_features: &'static str,
    /// Entries whose `min_sm` lies in `min_sm.0 ..= min_sm.1` belong to this module.
    pub min_sm: (u32, u32),
    /// Architectures that `ptxas` must accept the module for.
    pub archs: &'static [&'static str],
}

/// Every module. A driver compiles PTX for its own architecture, so one baseline serves them all; a module for
/// a newer one is added when a kernel needs an instruction that the baseline lacks.
pub(crate) const MODULES: &[Module] = &[Module {
    name: "windrow_sm80",
    target_cpu: "sm_80",
    // PTX 7.4 (CUDA 11.4) has the cache hints of loads and stores.
    target_features: "+ptx75",
    min_sm: (0, 89),
    archs: &["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"],
}];

/// Passed to LLVM for every module. A kernel whose accumulators stop being unrolled at LLVM's default would
/// name `-unroll-threshold` here; none does, and `check-ptx` would show its stack frame.
pub(crate) const LLVM_ARGS: &[&str] = &[];

impl Module {
    /// `device-kernels/ptx/<this>`.
    pub(crate) fn file_name(&self) -> String {
        format!("{}.ptx", self.name)
    }

    /// The entries of the table that belong in this module.
    pub(crate) fn entries(&self) -> Vec<EntrySpec> {
        let (low, high) = self.min_sm;
        crate::entries::all().into_iter().filter(|entry| (low..=high).contains(&entry.min_sm)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_belongs_to_exactly_one_module() {
        for entry in crate::entries::all() {
            let homes = MODULES
                .iter()
                .filter(|module| (module.min_sm.0..=module.min_sm.1).contains(&entry.min_sm))
                .count();
            assert_eq!(homes, 1, "{} needs sm_{}", entry.name, entry.min_sm);
        }
    }
}

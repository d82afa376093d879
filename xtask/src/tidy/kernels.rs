//! Every entry point has a source file of its kernel and a row in the golden record.

use super::Findings;
use crate::check_ptx::{golden_entries, golden_path};
use crate::entries::EntrySpec;
use crate::failure::Result;
use crate::workspace::Workspace;
use std::collections::BTreeSet;

/// Checks the table against the working tree.
pub(super) fn check(workspace: &Workspace, entries: &[EntrySpec], findings: &mut Findings) -> Result<()> {
    let path = golden_path(workspace);
    if !path.is_file() {
        findings.problem(format!("{}: missing (`cargo xtask check-ptx --bless`)", workspace.relative(&path)));
        return Ok(());
    }
    let recorded = golden_entries(&path)?;
    let has_file = |kernel: &str| {
        let sources = workspace.root().join("device-kernels/src");
        sources.join(format!("{kernel}.rs")).is_file() || sources.join(kernel).join("mod.rs").is_file()
    };
    coverage(entries, &recorded, has_file, findings);
    Ok(())
}

fn coverage(
    entries: &[EntrySpec],
    recorded: &BTreeSet<String>,
    has_file: impl Fn(&str) -> bool,
    findings: &mut Findings,
) {
    let mut names = BTreeSet::new();
    for entry in entries {
        if !names.insert(entry.name.as_str()) {
            findings.problem(format!("entry {}: twice in `windrow_kernels::ENTRIES`", entry.name));
        }
        if !has_file(&entry.kernel) {
            findings.problem(format!("entry {}: no device-kernels/src/{}.rs", entry.name, entry.kernel));
        }
        if !recorded.contains(&entry.name) {
            findings
                .problem(format!("entry {}: no golden row (`cargo xtask check-ptx --bless`)", entry.name));
        }
    }
    for name in recorded.iter().filter(|name| !names.contains(name.as_str())) {
        findings.problem(format!("golden row {name}: no such entry"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, kernel: &str) -> EntrySpec {
        EntrySpec { kernel: kernel.to_owned(), ..EntrySpec::sample(name) }
    }

    #[test]
    fn each_gap_is_reported() {
        let entries = [spec("a", "row_split"), spec("b", "gone"), spec("a", "row_split")];
        let recorded = ["a", "c"].map(str::to_owned).into();
        let mut findings = Findings::default();
        coverage(&entries, &recorded, |kernel| kernel == "row_split", &mut findings);
        assert_eq!(findings.problems.len(), 4, "{:?}", findings.problems);
        for (problem, words) in findings.problems.iter().zip([
            "no device-kernels/src/gone.rs",
            "b: no golden row",
            "a: twice",
            "row c",
        ]) {
            assert!(problem.contains(words), "{problem}");
        }
    }
}

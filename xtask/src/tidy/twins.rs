//! An algorithm of sparse times dense has one file on the host and one of the same name among the kernels.

use std::collections::BTreeSet;

use super::Findings;
use super::files::File;

/// The host's side: layouts and parts of plans.
const HOST: &str = "host/src/spmm/parts/";
/// The kernels' side: one file for each algorithm.
const KERNELS: &str = "device-kernels/src/spmm/";
/// Files of the kernels' side that no algorithm owns: they serve all.
const SHARED: [&str; 2] = ["combine", "dense"];

/// Checks that each algorithm has both files.
pub(super) fn check(files: &[File], findings: &mut Findings) {
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    compare(&names(&paths, HOST), &names(&paths, KERNELS), findings);
}

/// Names of the files right in a folder.
fn names<'a>(paths: &[&'a str], folder: &str) -> BTreeSet<&'a str> {
    let name =
        |path: &&'a str| path.strip_prefix(folder)?.strip_suffix(".rs").filter(|name| !name.contains('/'));
    paths.iter().filter_map(name).filter(|name| *name != "mod").collect()
}

fn compare(host: &BTreeSet<&str>, kernels: &BTreeSet<&str>, findings: &mut Findings) {
    for name in host.difference(kernels) {
        findings.problem(format!("{HOST}{name}.rs: no {KERNELS}{name}.rs, which it would launch"));
    }
    for name in kernels.difference(host).filter(|name| !SHARED.contains(name)) {
        findings.problem(format!("{KERNELS}{name}.rs: no {HOST}{name}.rs, which would launch it"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_twin_is_reported() {
        let paths = [
            "host/src/spmm/parts/mod.rs",
            "host/src/spmm/parts/row_split.rs",
            "host/src/spmm/parts/alone.rs",
            "host/src/spmm/parts/tile_stream/choose.rs",
            "device-kernels/src/spmm/row_split.rs",
            "device-kernels/src/spmm/dense.rs",
            "device-kernels/src/spmm/lonely.rs",
        ];
        let (host, kernels) = (names(&paths, HOST), names(&paths, KERNELS));
        assert_eq!(host, BTreeSet::from(["row_split", "alone"]));
        let mut findings = Findings::default();
        compare(&host, &kernels, &mut findings);
        assert_eq!(findings.problems.len(), 2, "{:?}", findings.problems);
        assert!(findings.problems[0].starts_with("host/src/spmm/parts/alone.rs"));
        assert!(findings.problems[1].starts_with("device-kernels/src/spmm/lonely.rs"));
    }
}

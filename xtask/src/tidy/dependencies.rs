//! Dependencies between the workspace's crates point one way.

use super::Findings;
use crate::failure::{Context, Result};
use crate::process;
use crate::workspace::Workspace;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::process::Command;

/// Who may depend on whom. A new crate is added here, deliberately.
const ALLOWED: &[(&str, &[&str])] = &[
    ("windrow-formats", &[]),
    ("windrow-preprocess", &["windrow-formats"]),
    ("windrow-simt", &[]),
    ("windrow-kernels", &["windrow-simt"]),
    ("windrow", &["windrow-formats", "windrow-preprocess", "windrow-kernels", "windrow-simt"]),
    ("windrow-bench", &["windrow"]),
    ("windrow-cli", &["windrow", "windrow-bench"]),
    ("windrow-python", &["windrow"]),
    ("windrow-testkit", &["windrow-formats"]),
    ("windrow-tests", &["windrow", "windrow-formats", "windrow-kernels"]),
    ("windrow-examples", &["windrow"]),
    ("xtask", &["windrow-kernels"]),
];

/// The only crates that may know a GPU driver.
const DRIVER_USERS: [&str; 4] = ["windrow", "windrow-bench", "windrow-tests", "windrow-examples"];

/// References and cases for tests.
const TESTKIT: &str = "windrow-testkit";

/// The part of `cargo metadata` that is used.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
    features: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// `null`, `dev` or `build`.
    kind: Option<String>,
    features: Vec<String>,
}

/// Asks cargo for the workspace's own packages.
pub(super) fn read(workspace: &Workspace) -> Result<Metadata> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace.root()).args(["metadata", "--format-version=1", "--no-deps"]);
    serde_json::from_str(&process::capture(&mut command)?).context("cargo metadata")
}

/// Reports every edge that points the wrong way.
pub(super) fn check(metadata: &Metadata, findings: &mut Findings) {
    for package in &metadata.packages {
        let name = package.name.as_str();
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            findings.problem(format!("{name}: a new crate: say in xtask's tidy what it may depend on"));
            continue;
        };
        for dependency in &package.dependencies {
            edge(name, allowed, dependency, findings);
        }
        if default_features(package).any(is_emulator) {
            findings.problem(format!("{name}: the emulator is in its default features; it is for tests"));
        }
    }
}

fn edge(from: &str, allowed: &[&str], dependency: &Dependency, findings: &mut Findings) {
    let to = dependency.name.as_str();
    let dev = dependency.kind.as_deref() == Some("dev");
    let ours = ALLOWED.iter().any(|(known, _)| *known == to);
    let tests_only = dev && (to == TESTKIT || to == from);
    if ours && !allowed.contains(&to) && !tests_only {
        let hint = if to == TESTKIT { " (only as a dev-dependency)" } else { "" };
        findings.problem(format!("{from}: may not depend on {to}{hint}"));
    }
    if to == "cudarc" && !DRIVER_USERS.contains(&from) {
        findings.problem(format!("{from}: knows nothing of GPUs, so it may not depend on cudarc"));
    }
    if !dev && dependency.features.iter().any(|feature| is_emulator(feature)) {
        findings.problem(format!("{from}: turns on {to}'s emulator outside tests"));
    }
}

fn is_emulator(feature: &str) -> bool {
    feature == "emulator" || feature.ends_with("/emulator")
}

/// The default features and what they turn on.
fn default_features(package: &Package) -> impl Iterator<Item = &str> {
    let mut reached: Vec<&str> = vec!["default"];
    let mut at = 0;
    while let Some(feature) = reached.get(at) {
        let more = package.features.get(*feature).into_iter().flatten().map(String::as_str);
        let more: Vec<&str> = more.filter(|feature| !reached.contains(feature)).collect();
        reached.extend(more);
        at += 1;
    }
    reached.into_iter().skip(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(package: &str) -> Vec<String> {
        let metadata = serde_json::from_str(&format!("{{\"packages\":[{package}]}}")).expect("a sample");
        let mut findings = Findings::default();
        check(&metadata, &mut findings);
        findings.problems
    }

    fn depends(from: &str, to: &str, kind: &str, features: &str) -> Vec<String> {
        found(&format!(
            r#"{{"name":"{from}","features":{{}},"dependencies":[{{"name":"{to}","kind":{kind},"features":[{features}]}}]}}"#
        ))
    }

    #[test]
    fn edges_point_one_way() {
        assert!(depends("windrow", "windrow-formats", "null", "").is_empty());
        assert!(depends("windrow", "rayon", "null", "").is_empty());
        assert_eq!(depends("windrow-formats", "windrow", "null", "").len(), 1);
        assert_eq!(depends("windrow-formats", "windrow", "\"dev\"", "").len(), 1);
        assert_eq!(depends("windrow", "windrow-cli", "null", "").len(), 1);
        assert_eq!(depends("windrow", "windrow-bench", "null", "").len(), 1);
        assert_eq!(depends("windrow-kernels", "windrow-formats", "\"build\"", "").len(), 1);
    }

    #[test]
    fn the_driver_is_known_to_the_host_only() {
        assert!(depends("windrow", "cudarc", "null", "").is_empty());
        assert_eq!(depends("windrow-preprocess", "cudarc", "null", "").len(), 1);
    }

    #[test]
    fn the_testkit_never_ships() {
        assert!(depends("windrow", "windrow-testkit", "\"dev\"", "").is_empty());
        let problems = depends("windrow", "windrow-testkit", "null", "");
        assert!(problems[0].contains("only as a dev-dependency"), "{problems:?}");
    }

    #[test]
    fn the_emulator_never_ships() {
        assert!(depends("windrow-kernels", "windrow-simt", "\"dev\"", "\"emulator\"").is_empty());
        assert!(depends("windrow", "windrow", "\"dev\"", "\"emulator\"").is_empty());
        assert_eq!(depends("windrow-kernels", "windrow-simt", "null", "\"emulator\"").len(), 1);
        let by_default = |list: &str| {
            found(&format!(
                r#"{{"name":"windrow","dependencies":[],"features":{{"default":[{list}],"all":["windrow-simt/emulator"]}}}}"#
            ))
        };
        assert!(by_default("").is_empty());
        assert_eq!(by_default(r#""all""#).len(), 1);
    }

    #[test]
    fn a_new_crate_must_be_placed() {
        assert!(found(r#"{"name":"windrow-new","features":{},"dependencies":[]}"#)[0].contains("new crate"));
    }
}

//! Licences and doubled crates, against `deny.toml`: the part of `cargo deny` that needs no data from elsewhere.

use std::collections::BTreeMap;
use std::process::Command;

use serde::Deserialize;
use spdx::{Expression, ParseMode};

use super::Findings;
use crate::failure::{Context, Result};
use crate::process;
use crate::workspace::{Workspace, read};

/// The part of `deny.toml` that is used.
#[derive(Debug, Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

#[derive(Debug, Deserialize)]
struct Skip {
    /// Its name and version, `NAME@VERSION`.
    #[serde(rename = "crate")]
    package: String,
}

/// The part of `cargo metadata` that is used.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
}

/// Looks at every package that the lock file names.
pub(super) fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let deny: Deny = toml::from_str(&read(&workspace.root().join("deny.toml"))?).context("deny.toml")?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace.root()).args([
        "metadata",
        "--format-version=1",
        "--all-features",
        "--locked",
    ]);
    let metadata: Metadata =
        serde_json::from_str(&process::capture(&mut command)?).context("cargo metadata")?;
    compare(&deny, &metadata, findings);
    Ok(())
}

fn compare(deny: &Deny, metadata: &Metadata, findings: &mut Findings) {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &metadata.packages {
        versions.entry(&package.name).or_default().push(&package.version);
        if let Some(problem) = refused(package, &deny.licenses.allow) {
            findings.problem(problem);
        }
    }
    let skipped = |name: &str, version: &str| {
        deny.bans.skip.iter().any(|skip| skip.package == format!("{name}@{version}"))
    };
    for (name, versions) in &versions {
        let kept = versions.iter().filter(|version| !skipped(name, version)).count();
        if kept > 1 {
            findings.problem(format!(
                "{name} is there as {}: bring its users together, or say in deny.toml why not",
                versions.join(" and ")
            ));
        }
    }
    for Skip { package } in &deny.bans.skip {
        let doubled = package.split_once('@').is_some_and(|(name, version)| {
            versions.get(name).is_some_and(|found| found.len() > 1 && found.contains(&version))
        });
        if !doubled {
            findings.problem(format!("deny.toml: {package} is not doubled any more: remove the line"));
        }
    }
}

/// What is wrong with the licence of a package.
fn refused(package: &Package, allowed: &[String]) -> Option<String> {
    let Package { name, version, license } = package;
    let Some(license) = license else {
        return Some(format!("{name} {version} names no licence"));
    };
    // `MIT/Apache-2.0` is how crates of old said `OR`.
    let expression = match Expression::parse_mode(license, ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => {
            return Some(format!("{name} {version}: `{license}` is no licence expression: {error}"));
        }
    };
    let fits = expression.evaluate(|requirement| {
        // With its exception, if it has one.
        allowed.contains(&requirement.to_string())
    });
    (!fits).then(|| format!("{name} {version}: deny.toml does not allow `{license}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = r#"
        licenses.allow = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"]
        bans.skip = [{ crate = "old@1.0.0", reason = "a sample" }]
    "#;

    fn found(packages: &[(&str, &str, Option<&str>)]) -> Vec<String> {
        let packages = packages.iter().map(|&(name, version, license)| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: license.map(str::to_owned),
        });
        let both = [("old", "1.0.0"), ("old", "2.0.0")].map(|(name, version)| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: Some("MIT".to_owned()),
        });
        let metadata = Metadata { packages: packages.chain(both).collect() };
        let mut findings = Findings::default();
        compare(&toml::from_str(DENY).expect("a sample"), &metadata, &mut findings);
        findings.problems
    }

    #[test]
    fn licences_are_those_of_the_list() {
        for fine in [
            "MIT",
            "MIT OR Apache-2.0",
            "Apache-2.0/MIT",
            "MIT AND Zlib",
            "Apache-2.0 WITH LLVM-exception",
            "(MIT OR GPL-3.0) AND Zlib",
        ] {
            assert!(found(&[("a", "1.0.0", Some(fine))]).is_empty(), "{fine}");
        }
        for wrong in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "MIT WITH LLVM-exception", "my own"] {
            assert_eq!(found(&[("a", "1.0.0", Some(wrong))]).len(), 1, "{wrong}");
        }
        assert!(found(&[("a", "1.0.0", None)])[0].contains("no licence"));
    }

    #[test]
    fn doubled_crates_are_told_unless_skipped() {
        let problems = found(&[("a", "1.0.0", Some("MIT")), ("a", "2.0.0", Some("MIT"))]);
        assert!(problems[0].contains("1.0.0 and 2.0.0"), "{problems:?}");
        assert!(found(&[]).is_empty());
    }

    #[test]
    fn a_skip_that_is_not_needed_is_told() {
        let metadata = Metadata { packages: Vec::new() };
        let mut findings = Findings::default();
        compare(&toml::from_str(DENY).expect("a sample"), &metadata, &mut findings);
        assert!(findings.problems[0].contains("not doubled any more"), "{findings:?}");
    }
}

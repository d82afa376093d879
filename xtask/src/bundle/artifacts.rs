//! The executables that a cargo build says it made.

use crate::failure::{Context, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What an executable is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Test,
    Bench,
    Command,
    Example,
}

/// An executable that cargo built: a test, a bench or a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Artifact {
    /// What it is for.
    pub(super) kind: Kind,
    /// Package and target, such as `windrow-spmm_gpu`; a library's file name.
    pub(super) name: String,
    /// Where cargo put it.
    pub(super) executable: PathBuf,
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    executable: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    #[serde(default)]
    crate_types: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Artifact {
    /// Where it lies in the bundle.
    pub(super) fn bundled_path(&self) -> PathBuf {
        match self.kind {
            Kind::Test => PathBuf::from("tests").join(&self.name),
            Kind::Bench => PathBuf::from("benches").join(&self.name),
            Kind::Command | Kind::Example => PathBuf::from("bin").join(&self.name),
        }
    }
}

/// Reads cargo's messages, one JSON object a line, and keeps the executables of this kind.
pub(super) fn parse(messages: &str, kind: Kind) -> Result<Vec<Artifact>> {
    let mut artifacts = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).context("cargo's message")?;
        let Some(target) = message.target else { continue };
        // An example that is a library has no executable, and the file's name is what others load it by.
        let library = target.crate_types.iter().any(|kind| kind == "cdylib");
        let library = message.filenames.into_iter().next().filter(|_| library);
        let Some(executable) = message.executable.or_else(|| library.clone()) else { continue };
        let test = message.profile.is_some_and(|profile| profile.test);
        let is = |wanted: &str| target.kind.iter().any(|kind| kind == wanted);
        let wanted = match kind {
            Kind::Test => test && !is("bench"),
            Kind::Bench => is("bench"),
            Kind::Command => is("bin") && !test,
            Kind::Example => is("example") && !test,
        };
        if message.reason != "compiler-artifact" || !wanted {
            continue;
        }
        let folder = message.manifest_path.parent().and_then(|folder| folder.file_name());
        let folder = folder.map_or_else(String::new, |folder| folder.to_string_lossy().into_owned());
        let name = match kind {
            Kind::Test if is("lib") => format!("{folder}-unit"),
            Kind::Test => format!("{folder}-{}", target.name),
            Kind::Bench | Kind::Command | Kind::Example => match library.as_deref().and_then(Path::file_name)
            {
                Some(file) => file.to_string_lossy().into_owned(),
                None => target.name,
            },
        };
        artifacts.push(Artifact { kind, name, executable });
    }
    Ok(artifacts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = r#"
{"reason":"compiler-artifact","package_id":"p","manifest_path":"/w/formats/Cargo.toml","target":{"kind":["lib"],"name":"windrow_formats"},"profile":{"test":false},"filenames":["a.rlib"],"executable":null}
{"reason":"build-script-executed","package_id":"p"}
{"reason":"compiler-artifact","package_id":"p","manifest_path":"/w/host/Cargo.toml","target":{"kind":["lib"],"name":"windrow"},"profile":{"test":true},"executable":"/t/windrow-1"}
{"reason":"compiler-artifact","package_id":"p","manifest_path":"/w/host/Cargo.toml","target":{"kind":["test"],"name":"gpu"},"profile":{"test":true},"executable":"/t/gpu-2"}
{"reason":"compiler-artifact","package_id":"p","manifest_path":"/w/bench/Cargo.toml","target":{"kind":["bench"],"name":"spmm"},"profile":{"test":true},"executable":"/t/spmm-3"}
{"reason":"compiler-artifact","package_id":"p","manifest_path":"/w/cli/Cargo.toml","target":{"kind":["bin"],"name":"windrow"},"profile":{"test":false},"executable":"/t/windrow"}
{"reason":"compiler-artifact","package_id":"p","manifest_path":"/w/examples/Cargo.toml","target":{"kind":["example"],"name":"gcn"},"profile":{"test":false},"executable":"/t/examples/gcn"}
{"reason":"compiler-artifact","package_id":"p","manifest_path":"/w/examples/Cargo.toml","target":{"kind":["example"],"crate_types":["cdylib"],"name":"loaded"},"profile":{"test":false},"filenames":["/t/examples/libloaded.so"],"executable":null}
{"reason":"build-finished","success":true}
"#;

    fn paths(kind: Kind) -> Vec<PathBuf> {
        parse(MESSAGES, kind).expect("cargo's own form").iter().map(Artifact::bundled_path).collect()
    }

    #[test]
    fn each_kind_finds_its_own() {
        assert_eq!(paths(Kind::Test), [PathBuf::from("tests/host-unit"), PathBuf::from("tests/host-gpu")]);
        assert_eq!(paths(Kind::Bench), [PathBuf::from("benches/spmm")]);
        assert_eq!(paths(Kind::Command), [PathBuf::from("bin/windrow")]);
        assert_eq!(paths(Kind::Example), [PathBuf::from("bin/gcn"), PathBuf::from("bin/libloaded.so")]);
    }
}

//! `bundle`: everything that a machine with a GPU and no Rust needs to test, measure and use windrow.
//!
//! The folder holds the stripped release executables of the tests and, if asked, of the criterion suites,
//! `windrow-bench` and the examples, the command `windrow`, the committed data, and `run.sh`, which runs every test
//! with a missing GPU counted as a failure.

mod artifacts;

use crate::failure::{Context, Failure, Result};
use crate::process;
use crate::workspace::{Workspace, write};
use artifacts::{Artifact, Kind};
use std::path::{Path, PathBuf};
use std::process::Command;

const RUN_SCRIPT: &str = include_str!("run.sh");

/// Packages whose tests run on a GPU.
const TESTED: &[&str] = &["windrow", "windrow-bench", "windrow-tests"];

/// Tests that need the repository and no GPU, and the library of a package that has none.
const LEFT_OUT: [&str; 2] = ["tests-formats", "tests-unit"];

/// A larger folder is slow to carry, and a sign that something was not stripped.
const LIMIT_BYTES: u64 = 100 << 20;

/// What `cargo xtask bundle` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folder to write; what is in it is replaced.
    #[arg(long, default_value = "target/bundle")]
    pub out: PathBuf,
    /// Further matrices to pack, into `matrices/`.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub matrix: Vec<PathBuf>,
    /// Pack `windrow-bench`, the criterion suites, the examples and their peers too.
    #[arg(long)]
    pub bench: bool,
}

/// Builds, strips, copies, and reports the size.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let out = workspace.root().join(&arguments.out);
    clear(&out)?;
    // First, because it marks the folder as ours: a bundle that fails half-way can be replaced.
    let script = out.join("run.sh");
    write(&script, RUN_SCRIPT)?;
    make_executable(&script)?;
    let mut artifacts = build(&["test", "--no-run", "--lib", "--tests"], TESTED, Kind::Test)?;
    artifacts.retain(|artifact| !LEFT_OUT.contains(&artifact.name.as_str()));
    artifacts.extend(build(&["build"], &["windrow-cli"], Kind::Command)?);
    if arguments.bench {
        artifacts.extend(build(&["build", "--bins"], &["windrow-bench"], Kind::Command)?);
        artifacts.extend(build(&["build", "--examples"], &["windrow-examples"], Kind::Example)?);
        copy_folder(&workspace.root().join("bench/peers"), &out.join("peers"))?;
        let script = "torch_memory.py"; // loads one of the examples
        copy(&workspace.root().join("examples").join(script), &out.join("peers").join(script))?;
        artifacts.extend(build(&["bench", "--no-run", "--benches"], &["windrow-bench"], Kind::Bench)?);
    }
    for artifact in &artifacts {
        let target = out.join(artifact.bundled_path());
        copy(&artifact.executable, &target)?;
        process::run(Command::new("strip").arg(&target)).context("stripping needs binutils")?;
    }
    copy_folder(&workspace.root().join("data"), &out.join("data"))?;
    for matrix in &arguments.matrix {
        let name =
            matrix.file_name().ok_or_else(|| Failure::new(format!("no file: {}", matrix.display())))?;
        copy(matrix, &out.join("matrices").join(name))?;
    }
    report(workspace, &out)
}

/// Starts `cargo` and collects the executables it made.
fn build(task: &[&str], packages: &[&str], kind: Kind) -> Result<Vec<Artifact>> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(task);
    if kind != Kind::Bench {
        command.arg("--release");
    }
    command.args(["--message-format=json-render-diagnostics"]);
    for package in packages {
        command.args(["--package", package]);
    }
    command.stderr(std::process::Stdio::inherit());
    let messages = process::capture(&mut command)?;
    let found = artifacts::parse(&messages, kind)?;
    if found.is_empty() {
        return Err(Failure::new(format!("{} made no executable", process::line(&command))));
    }
    Ok(found)
}

/// Empties the output folder, but only one that a bundle was written to before.
fn clear(out: &Path) -> Result<()> {
    if !out.exists() {
        return std::fs::create_dir_all(out).context(out.display());
    }
    let empty = std::fs::read_dir(out).context(out.display())?.next().is_none();
    if !empty && !out.join("run.sh").is_file() {
        return Err(Failure::new(format!("{} is not a bundle: name an empty folder", out.display())));
    }
    std::fs::remove_dir_all(out).context(out.display())?;
    std::fs::create_dir_all(out).context(out.display())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).context(parent.display())?;
    }
    std::fs::copy(from, to).context(format!("{} to {}", from.display(), to.display()))?;
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    for file in files(from)? {
        let name = file.strip_prefix(from).context(file.display())?;
        copy(&file, &to.join(name))?;
    }
    Ok(())
}

/// Every file below `folder`, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).context(folder.display())? {
        let path = entry.context(folder.display())?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).context(path.display())
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<()> {
    Ok(())
}

/// Prints every file's size and the total, and fails when that is over the limit.
fn report(workspace: &Workspace, out: &Path) -> Result<()> {
    let mut total = 0;
    for file in files(out)? {
        let bytes = file.metadata().context(file.display())?.len();
        total += bytes;
        println!("{:>9} KiB  {}", bytes.div_ceil(1024), file.strip_prefix(out).unwrap_or(&file).display());
    }
    println!("{:>9} KiB  {}", total.div_ceil(1024), workspace.relative(out));
    if total > LIMIT_BYTES {
        return Err(Failure::new(format!(
            "the bundle is larger than {} MiB: pack fewer matrices, or look for what was not stripped",
            LIMIT_BYTES >> 20
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bundle_is_cleared() {
        let folder = std::env::temp_dir().join(format!("windrow-bundle-test-{}", std::process::id()));
        write(&folder.join("precious.txt"), "keep").expect("temporary folder");
        let error = clear(&folder).expect_err("not a bundle");
        assert!(error.to_string().contains("not a bundle"), "{error}");
        write(&folder.join("run.sh"), "").expect("temporary folder");
        clear(&folder).expect("a bundle now");
        assert!(files(&folder).expect("it exists").is_empty());
        std::fs::remove_dir(&folder).expect("it is empty");
    }

    #[test]
    fn the_script_refuses_a_machine_without_a_gpu() {
        assert!(RUN_SCRIPT.contains("export WINDROW_REQUIRE_GPU=1"));
        assert!(RUN_SCRIPT.contains("export WINDROW_DATA="));
    }

    #[test]
    fn the_script_starts_the_suites_that_are_packed() {
        let suites = Artifact { kind: Kind::Bench, name: "suites".to_owned(), executable: PathBuf::new() };
        let started = format!("exec {} \"$@\"", suites.bundled_path().display());
        assert!(RUN_SCRIPT.contains(&started), "{started}");
    }
}

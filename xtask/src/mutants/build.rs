//! Compiles the copy: leaves out mutants that do not compile, and finds the tests.

use super::plant::{Copy, Mutant, copy};
use crate::failure::{Context, Failure, Result};
use crate::process;
use crate::workspace::{Workspace, read, write};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Packages whose tests judge: those that have mutants, and those that call them.
const JUDGES: [&str; 6] =
    ["windrow-formats", "windrow-preprocess", "windrow-simt", "windrow-kernels", "windrow", "windrow-tests"];
/// Every round leaves out what the compiler complained of; the compiler stops at the first crate and pass with errors.
const ROUNDS: usize = 20;

/// A program with tests.
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// The folder of its package, in which cargo would run it.
    pub(super) folder: PathBuf,
    pub(super) name: String,
}

/// The part of cargo's messages that is used.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    message: Option<Diagnostic>,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

/// Examples are compiled by cargo, too, and are no tests.
#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Diagnostic {
    level: String,
    spans: Vec<Span>,
    rendered: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Span {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
}

/// Plants the mutants, compiles the tests, and says which mutants do not compile.
pub(super) fn build(workspace: &Workspace, mutants: &[Mutant]) -> Result<(Vec<Program>, BTreeSet<usize>)> {
    // Those of the last run are left out at once: planted again, they would have everything compiled again.
    let list = workspace.target("mutants").join("broken.json");
    let known: BTreeSet<String> =
        read(&list).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let mut broken: BTreeSet<usize> =
        (0..mutants.len()).filter(|&i| known.contains(&mutants[i].key())).collect();
    for round in 1..=ROUNDS {
        let planted = copy(workspace, mutants, |i| !broken.contains(&i))?;
        eprintln!("round {round}: {} mutants are compiled", mutants.len() - broken.len());
        let (checked, messages) = cargo(workspace, &planted.root, &["check", "--tests"])?;
        if checked {
            let keys: BTreeSet<String> = broken.iter().map(|&i| mutants[i].key()).chain(known).collect();
            write(&list, &serde_json::to_string(&keys).context(list.display())?)?;
            let (built, messages) = cargo(workspace, &planted.root, &["test", "--no-run", "--tests"])?;
            let programs: Vec<Program> = messages.into_iter().filter_map(program).collect();
            return match built && !programs.is_empty() {
                true => Ok((programs, broken)),
                false => Err(Failure::new("the copy compiles, but its tests do not link")),
            };
        }
        let before = broken.len();
        for message in messages.iter().filter_map(|message| message.message.as_ref()) {
            if message.level == "error" {
                broken.extend(message.spans.iter().flat_map(|span| at(&planted, span)));
            }
        }
        if broken.len() == before {
            let errors = messages.iter().filter_map(|message| message.message.as_ref()?.rendered.as_deref());
            let errors: Vec<&str> = errors.collect();
            return Err(Failure::new(format!("the copy does not compile:\n{}", errors.join("\n"))));
        }
    }
    Err(Failure::new(format!("after {ROUNDS} rounds there are still mutants that do not compile")))
}

/// The mutants that an error is about.
fn at(planted: &Copy, span: &Span) -> Vec<usize> {
    let Span { file_name, byte_start, byte_end } = span;
    let places = planted.places.get(file_name.as_str()).into_iter().flatten();
    places.filter(|(range, _)| range.start <= *byte_end && *byte_start < range.end).map(|&(_, i)| i).collect()
}

/// Runs cargo over the packages in the copy: whether it succeeded, and what it said. Its products have a
/// folder of their own: cargo tells packages by their place in the workspace, so it would take those of the copy for
/// the workspace's.
fn cargo(workspace: &Workspace, root: &Path, arguments: &[&str]) -> Result<(bool, Vec<Message>)> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    process::clean_environment(&mut command).current_dir(root).args(arguments).arg("--message-format=json");
    command.arg("--target-dir").arg(workspace.target("mutants").join("target")).env("CARGO_INCREMENTAL", "1");
    for package in JUDGES {
        command.args(["--package", package]);
    }
    command.stderr(Stdio::null());
    let output = command.output().context(process::line(&command))?;
    let lines = output.stdout.split(|&byte| byte == b'\n');
    // Programs that cargo runs may write to the same stream.
    let messages = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    Ok((output.status.success(), messages))
}

fn program(message: Message) -> Option<Program> {
    let Message { reason, executable, manifest_path, target, profile, .. } = message;
    let folder = manifest_path?.parent()?.to_path_buf();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let name = format!("{package}/{}", target?.name);
    (reason == "compiler-artifact" && profile?.test).then_some(Program { path: executable?, folder, name })
}

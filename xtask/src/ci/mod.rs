//! `ci`: what continuous integration runs, so that a person can run the same.

mod beside;
mod page;
mod python;
mod tally;

use crate::failure::{Context, Failure, Result};
use crate::workspace::Workspace;
use crate::{process, tidy};
use beside::Beside;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;
use tally::Tally;

/// One step: its name and what it does.
type Step = (&'static str, fn(&Workspace, &mut Tally) -> Result<()>);

/// In the order in which a failure is cheapest to learn. The kernels are compiled beside them: each of both leaves a
/// core idle now and then.
const FIRST: &[Step] = &[
    ("fmt", |workspace, _| cargo(workspace, &["fmt", "--all", "--check"])),
    ("tidy", |workspace, _| tidy::run(workspace)),
    ("clippy", |workspace, _| {
        cargo(workspace, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    }),
    ("doc", |workspace, _| doc(workspace)),
    ("test --no-run", |workspace, _| cargo(workspace, &["test", "--workspace", "--no-run"])),
];

/// What is done beside them, each a command of this program.
const KERNELS: &[(&str, &[&str])] =
    &[("build-ptx --check", &["build-ptx", "--check"]), ("check-ptx", &["check-ptx"])];

/// What comes when both are done.
const THEN: &[Step] = &[("deny", deny), ("test", test)];

/// What is done beside these: a compiler waits for a package index, and tests for the longest of them. It comes to
/// compile when `cargo test` has seen that nothing is to be compiled, so that they do not wait for each other.
const PYTHON: &[(&str, &[&str])] = &[("python", &["python"])];

/// What needs what the tests leave.
const LAST: &[Step] = &[("page", page::run)];

/// Runs every step and stops at the first that fails.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let (mut times, mut tally) = (Vec::new(), Tally::default());
    let kernels = Beside::start(workspace, KERNELS)?;
    let first = steps(workspace, FIRST, (&mut times, &mut tally));
    // Also behind a failure: nothing goes on alone.
    let kernels = kernels.finish(&mut times, &mut tally);
    let outcome = first.and(kernels).and_then(|()| {
        let python = Beside::start(workspace, PYTHON)?;
        let then = steps(workspace, THEN, (&mut times, &mut tally));
        let python = python.finish(&mut times, &mut tally);
        then.and(python).and_then(|()| steps(workspace, LAST, (&mut times, &mut tally)))
    });
    summary(&times);
    outcome?;
    println!("{tally}");
    Ok(())
}

/// Builds and tests the Python package.
pub(crate) fn python(workspace: &Workspace) -> Result<()> {
    python::run(workspace, &mut Tally::default())
}

/// Runs steps up to the first that fails, and notes their times.
fn steps(
    workspace: &Workspace,
    steps: &[Step],
    (times, tally): (&mut Vec<(&'static str, f64)>, &mut Tally),
) -> Result<()> {
    for (name, step) in steps {
        eprintln!("\n== {name}");
        let started = Instant::now();
        let outcome = step(workspace, tally);
        times.push((*name, started.elapsed().as_secs_f64()));
        outcome.map_err(|failure| Failure::new(format!("{name}: {failure}")))?;
    }
    Ok(())
}

fn summary(times: &[(&'static str, f64)]) {
    println!("\nstep                 seconds");
    for (name, seconds) in times {
        println!("{name:20} {seconds:7.1}");
    }
}

fn command(workspace: &Workspace) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace.root());
    command
}

fn cargo(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    process::run(command(workspace).args(arguments))
}

fn doc(workspace: &Workspace) -> Result<()> {
    let mut command = command(workspace);
    process::run(command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Advisories and the rest of `deny.toml`, where `cargo deny` is installed and its data can be had, else a counted
/// skip. `tidy` has looked at licences and doubled crates before.
fn deny(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let missing = if process::capture(command(workspace).args(["deny", "--version"])).is_err() {
        Some("cargo-deny is not installed")
    } else if process::capture(command(workspace).args(["deny", "fetch"])).is_err() {
        Some("the advisories cannot be had")
    } else {
        None
    };
    let Some(missing) = missing else { return cargo(workspace, &["deny", "check"]) };
    let skipped = format!("skipped: 1 look at advisories: {missing}");
    println!("{skipped}");
    tally.add(&skipped);
    Ok(())
}

/// The whole test suite, with its output passed on and its results added up.
fn test(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let mut command = command(workspace);
    command.args(["test", "--workspace"]).env(page::VARIABLE, page::place(workspace)?);
    counted(&mut command, tally)
}

/// Runs tests, with their output passed on and their results added up.
fn counted(command: &mut Command, tally: &mut Tally) -> Result<()> {
    let before = tally.passed;
    command.stdout(Stdio::piped());
    let mut child = command.spawn().context(process::line(command))?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.context("output of the tests")?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            tally.add(&line);
        }
    }
    let status = child.wait().context(process::line(command))?;
    if !status.success() {
        return Err(Failure::new(format!("{} ended with {status}; {tally}", process::line(command))));
    }
    if tally.passed == before {
        return Err(Failure::new("no test ran"));
    }
    Ok(())
}

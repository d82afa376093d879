//! `cargo xtask`: the chores of the workspace.
//!
//! `build-ptx` compiles the kernels to PTX, `check-ptx` holds that PTX to its golden counts and to `ptxas`,
//! `bundle` packs tests and benches for a machine that has a GPU and no Rust, `mutants` plants errors for the
//! tests to find, `man` writes the manual pages of the command, `promises` the table of promises from the tests,
//! `python` tests the Python package, `tidy` checks what no lint does, and `ci` runs everything that continuous
//! integration runs.
#![expect(clippy::print_stdout, reason = "a command line tool: its results belong on standard output")]

mod build_ptx;
mod bundle;
mod check_ptx;
mod ci;
mod entries;
mod failure;
mod man;
mod mutants;
mod process;
mod promises;
mod ptx;
mod targets;
mod tidy;
mod workspace;

use clap::{Parser, Subcommand};
use failure::Result;
use std::process::ExitCode;
use workspace::Workspace;

/// The chores of the windrow workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Compile the kernels to device-kernels/ptx.
    BuildPtx(build_ptx::Arguments),
    /// Hold the committed PTX to its golden counts, and to ptxas for every architecture.
    CheckPtx(check_ptx::Arguments),
    /// Pack tests, benches and the command for a machine that has a GPU and no Rust.
    Bundle(bundle::Arguments),
    /// Plant small errors in the sources, and say which of them the tests notice.
    Mutants(mutants::Arguments),
    /// Check layout, file sizes, dependency directions, words and kernel coverage.
    Tidy,
    /// Write the manual pages of the command to target/man.
    Man,
    /// Write docs/promises.md from the documentation of the tests.
    Promises,
    /// Build the wheel of the Python package, and test it in an environment of its own.
    Python,
    /// Run every step that continuous integration runs, stopping at the first failure.
    Ci,
}

fn run(task: &Task) -> Result<()> {
    let workspace = Workspace::find()?;
    match task {
        Task::BuildPtx(arguments) => build_ptx::run(&workspace, arguments),
        Task::CheckPtx(arguments) => check_ptx::run(&workspace, arguments),
        Task::Bundle(arguments) => bundle::run(&workspace, arguments),
        Task::Mutants(arguments) => mutants::run(&workspace, arguments),
        Task::Tidy => tidy::run(&workspace),
        Task::Man => man::run(&workspace),
        Task::Promises => promises::run(&workspace, &tidy::rust_files(&workspace)?),
        Task::Python => ci::python(&workspace),
        Task::Ci => ci::run(&workspace),
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

//! Running other programs, whose failure is told with their command line.

use crate::failure::{Context, Failure, Result};
use std::process::Command;

/// Variables that `cargo run` and rustup set for this process and that must not reach another toolchain,
/// nor change what the compiler writes.
const NOT_INHERITED: &[&str] = &[
    "CARGO",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_INCREMENTAL",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_TARGET_DIR",
    "LD_LIBRARY_PATH",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];

/// Removes from `command` what this process inherited from the cargo that started it.
pub(crate) fn clean_environment(command: &mut Command) -> &mut Command {
    for name in NOT_INHERITED {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        let profile = name.to_str().is_some_and(|name| name.starts_with("CARGO_PROFILE_"));
        if profile {
            command.env_remove(name);
        }
    }
    command
}

/// Runs `command` with its output on the terminal; fails if it cannot start or does not succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().context(format!("cannot start {}", line(command)))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("{} ended with {status}", line(command))))
    }
}

/// Runs `command` and returns its standard output; a failure carries its standard error.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command.output().context(format!("cannot start {}", line(command)))?;
    if !output.status.success() {
        return Err(Failure::new(format!(
            "{} ended with {}\n{}",
            line(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        )));
    }
    String::from_utf8(output.stdout).context(format!("output of {}", line(command)))
}

/// The command as one would type it, for messages.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

//! `windrow bench`: runs the program `windrow-bench`, which a command that multiplies does not carry.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::BenchArgs;
use crate::failure::{Exit, Failure, Result};

/// The program's name; with the ending of programs where they have one.
fn name() -> String {
    format!("windrow-bench{}", std::env::consts::EXE_SUFFIX)
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let own = std::env::current_exe().ok();
    let program = program(own.as_deref());
    Err(start(&program, &args.arguments))
}

/// The program beside this one, else the one that is found where programs are.
fn program(own: Option<&Path>) -> PathBuf {
    let beside = own.and_then(Path::parent).map(|folder| folder.join(name()));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| name().into())
}

/// Becomes the program: its exit code and what signals do are its own. Returns only if that cannot be.
#[cfg(unix)]
fn start(program: &Path, arguments: &[OsString]) -> Failure {
    use std::os::unix::process::CommandExt;
    absent(program, &Command::new(program).args(arguments).exec())
}

/// Runs the program and ends with its exit code. Returns only if it cannot be started.
#[cfg(not(unix))]
fn start(program: &Path, arguments: &[OsString]) -> Failure {
    match Command::new(program).args(arguments).status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(Exit::Device as i32)),
        Err(error) => absent(program, &error),
    }
}

fn absent(program: &Path, error: &io::Error) -> Failure {
    let program = program.display();
    Failure::new(
        Exit::File,
        format!(
            "cannot start {program}: {error}; `cargo install windrow-bench` installs it, or lay it beside windrow"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_beside_this_one_comes_first() {
        let folder = std::env::temp_dir().join(format!("windrow-bench-beside-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = folder.join("windrow");
        assert_eq!(program(Some(&own)), Path::new(&name()));
        std::fs::write(folder.join(name()), "").unwrap();
        assert_eq!(program(Some(&own)), folder.join(name()));
        assert_eq!(program(None), Path::new(&name()));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

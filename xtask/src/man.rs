//! `man`: the manual pages of the command, from the text of its help.

use std::process::Command;

use crate::failure::Result;
use crate::process;
use crate::workspace::Workspace;

/// Writes them to `target/man`, by the command itself, compiled with the feature that has them.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let folder = workspace.target("man");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace.root());
    command.args(["run", "--quiet", "-p", "windrow-cli", "--features", "man", "--", "man"]).arg(&folder);
    process::run(&mut command)?;
    println!("{} has the manual pages; man -l {0}/windrow.1", workspace.relative(&folder));
    Ok(())
}

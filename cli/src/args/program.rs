//! Arguments of commands about programs: completions, manual pages, `windrow-bench`.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

/// Measure suites of products: hands its arguments to the program windrow-bench.
///
/// windrow-bench measures matrices, widths and ways beside the libraries of others, writes a line of JSON for each
/// case, compares and draws such records, and makes a page of them. It is looked for beside this program, and then
/// where programs are. `windrow bench --help` is its help.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  windrow bench spmm graph.mtx.gz --widths 64,128 --out before.jsonl
  windrow bench compare before.jsonl after.jsonl --gate 5%
  windrow bench report before.jsonl --out report.html"
)]
pub(crate) struct BenchArgs {
    /// Words that windrow-bench is given.
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

/// Write what a shell needs to complete commands and options.
///
/// Standard output is a script of the shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow completions bash > ~/.local/share/bash-completion/completions/windrow
  windrow completions zsh > ~/.zfunc/_windrow      with ~/.zfunc in fpath
  windrow completions fish > ~/.config/fish/completions/windrow.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell that reads the script.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Shells whose completions are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Write the manual pages, one for each command.
#[cfg(feature = "man")]
#[derive(Debug, Args)]
#[command(
    hide = true,
    after_help = "\
Examples:
  windrow man target/man"
)]
pub(crate) struct ManArgs {
    /// The folder that they are written to; it is made if it is not there.
    pub(crate) folder: std::path::PathBuf,
}

//! `windrow man`: the manual pages, from the same text as the help.

use std::path::Path;

use clap::CommandFactory;

use crate::args::Arguments;
#[cfg(feature = "man")]
use crate::args::ManArgs;
use crate::failure::{Exit, Failure, Result};

#[cfg(feature = "man")]
pub(crate) fn run(args: &ManArgs) -> Result<()> {
    write(&args.folder)
}

/// Writes a page for the command and for each of its commands.
fn write(folder: &Path) -> Result<()> {
    let written =
        std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Arguments::command(), folder));
    written.map_err(|error| Failure::new(Exit::File, format!("{}: {error}", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let folder = std::env::temp_dir().join(format!("windrow-man-test-{}", std::process::id()));
        write(&folder).unwrap();
        let commands = Arguments::command();
        let shown = commands.get_subcommands().filter(|command| !command.is_hide_set()).count();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1 + shown);
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let (all, spmm) = (text("windrow.1"), text("windrow-spmm.1"));
        assert!(all.contains(".SH NAME") && all.contains("Exit codes:"), "{all}");
        assert!(spmm.contains("\\-\\-width") && spmm.contains("\\-\\-json"), "{spmm}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

//! `windrow completions`: scripts by which shells complete the command.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Generator;
use clap_complete::shells::{Bash, Fish, Zsh};

use crate::args::{Arguments, CompletionsArgs, Shell};
use crate::failure::{Failure, Result};

pub(crate) fn run(args: &CompletionsArgs) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(&script(args.shell)).and_then(|()| out.flush());
    written.map_err(|error| Failure::output(&error))
}

fn script(shell: Shell) -> Vec<u8> {
    fn of(generator: impl Generator) -> Vec<u8> {
        let mut script = Vec::new();
        clap_complete::generate(generator, &mut Arguments::command(), "windrow", &mut script);
        script
    }
    match shell {
        Shell::Bash => of(Bash),
        Shell::Zsh => of(Zsh),
        Shell::Fish => of(Fish),
    }
}

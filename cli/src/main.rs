//! The command `windrow`: inspect, convert, reorder, multiply and verify sparse matrices.
//!
//! Data goes to standard output, talk and progress bars to standard error, and the exit code tells what
//! went wrong ([`failure::Exit`]).

mod args;
mod command;
mod console;
mod dense;
mod estimate;
mod failure;
mod interrupt;
mod listing;
mod load;
mod machine;
mod ordering;
mod output;
mod peers;
mod predicted;
mod product;
mod spy;
mod threads;
mod units;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command, Global};
use console::Console;
use failure::{Exit, Result};

fn main() -> ExitCode {
    let Arguments { command, global } = Arguments::parse();
    match run(&command, &global) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.exit != Exit::ClosedPipe {
                // Nobody is left to tell if standard error is closed too.
                let _ = writeln!(std::io::stderr(), "error: {failure}");
            }
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn run(command: &Command, global: &Global) -> Result<()> {
    interrupt::listen()?;
    threads::start(global.threads)?;
    let console = Console { json: global.json, quiet: global.quiet };
    match command {
        Command::Info(args) => command::info::run(args, console),
        Command::Spy(args) => command::spy::run(args, console),
        Command::Spmm(args) => command::spmm::run(args, console),
        Command::Sddmm(args) => command::sddmm::run(args, console),
        Command::Attention(args) => command::attention::run(args, console),
        Command::Mttkrp(args) => command::tensor::mttkrp(args, console),
        Command::Ttm(args) => command::tensor::ttm(args, console),
        Command::Nm(args) => command::nm::run(args, console),
        Command::Prune(args) => command::prune::run(args, console),
        Command::Verify(args) => command::verify::run(args, console),
        Command::Reorder(args) => command::reorder::run(args, console),
        Command::Convert(args) => command::convert::run(args, console),
        Command::Gen(args) => command::generate::run(args, console),
        Command::Tune(args) => command::tune::run(args, console),
        Command::Doctor(args) => command::doctor::run(args, console),
        Command::Completions(args) => command::completions::run(args),
        #[cfg(feature = "man")]
        Command::Man(args) => command::man::run(args),
        Command::Bench(args) => command::bench::run(args),
    }
}

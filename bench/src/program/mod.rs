//! The program `windrow-bench`: one suite a run, measured or summarised.

mod arguments;
mod exit;
mod records;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use windrow::Device;

use crate::compare;
use crate::measure::L2;
use crate::reading;
use crate::suites::record::Record;
use crate::suites::{
    Suite, Tally, ablation, attention, nm, plans, preprocess, run, sddmm, spmm, tensor, tuned,
};
#[cfg(feature = "pictures")]
use crate::{page, plot};
pub(crate) use arguments::{CacheArguments, Common, MatrixArguments, progress};
pub(crate) use exit::{Exit, Failure};
pub(crate) use records::{Records, read, write};

/// Measures products of sparse matrices and tensors, and verifies every result.
///
/// Each case is one JSON object on a line, written as soon as it is measured; what is done is told on standard error.
/// A case that fails does not end the run. All files are read and all orders found before the first measurement. On a
/// CUDA device cuSPARSE and cuBLAS are measured beside, where they can be loaded.
///
/// With --summarise, FILE are the lines of earlier runs, and Markdown goes to standard output, or to --out. compare,
/// plot and report read such lines of any suite.
///
/// Exit codes: 0 all right, 1 a result is wrong or runs differ, 2 usage, 3 a file could not be read or written, or has
/// a line that is no record, 4 no such device, 5 a case failed otherwise, 6 something is slower than the --gate of
/// compare allows.
#[derive(Debug, Parser)]
#[command(name = "windrow-bench", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    suite: Choice,
}

#[derive(Debug, Subcommand)]
enum Choice {
    Spmm(spmm::Arguments),
    Sddmm(sddmm::Arguments),
    Attention(attention::Arguments),
    Nm(nm::Arguments),
    Tensor(tensor::Arguments),
    Ablation(ablation::Arguments),
    Preprocess(preprocess::Arguments),
    Plans(plans::Arguments),
    Tuned(tuned::Arguments),
    Compare(compare::Arguments),
    Csv(reading::csv::Arguments),
    #[cfg(feature = "pictures")]
    Plot(plot::Arguments),
    #[cfg(feature = "pictures")]
    Report(page::Arguments),
}

/// What the program asks of a suite's arguments.
pub(crate) trait Command: Args {
    type Suite: Suite;

    /// What all suites are told.
    fn common(&self) -> &Common;

    /// Finds what is wrong with the arguments before anything is opened.
    ///
    /// # Errors
    /// [`Exit::Usage`].
    fn check(&self) -> Result<(), Failure>;

    /// The suite, with everything read that it needs; `talk` is told what is found on the way.
    ///
    /// # Errors
    /// Whatever cannot be had.
    fn open(&self, device: &Device, talk: &mut dyn Write) -> Result<Self::Suite, Failure>;

    /// What is told of a record as it comes.
    fn line(record: &RecordOf<Self>) -> String;

    /// What is told before the first record.
    fn titles() -> Option<String> {
        None
    }

    /// Records as Markdown.
    ///
    /// # Errors
    /// A file besides that cannot be read.
    fn summarise(&self, records: &[RecordOf<Self>]) -> Result<String, Failure>;

    /// Does something else with files than measuring or summarising, if that is asked for.
    ///
    /// # Errors
    /// A file that cannot be read, or says nothing for it.
    fn otherwise(&self) -> Option<Result<String, Failure>> {
        None
    }
}

/// The records of a command's suite.
pub(crate) type RecordOf<C> = Record<<<C as Command>::Suite as Suite>::Facts>;

/// Runs the program with the arguments of the process; it is told on standard error what goes wrong.
pub fn main() -> ExitCode {
    let matches = with_commas(Arguments::command()).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = execute(&arguments, &mut io::stderr());
    ExitCode::from(result.unwrap_or_else(|failure| {
        eprintln!("error: {}", failure.message);
        failure.exit
    }) as u8)
}

/// The command with the defaults of lists in its help as they are typed: clap shows spaces between what commas divide.
fn with_commas(command: clap::Command) -> clap::Command {
    let argument = |argument: clap::Arg| {
        let Some(comma) = argument.get_value_delimiter() else { return argument };
        let list: Vec<_> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let list = list.join(&comma.to_string());
        if !list.contains(comma) {
            return argument;
        }
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        argument.hide_default_value(true).help(format!("{} [default: {list}]", help.trim_end_matches('.')))
    };
    command.mut_args(argument).mut_subcommands(with_commas)
}

/// Does what the arguments ask for.
pub(crate) fn execute(arguments: &Arguments, talk: &mut dyn Write) -> Result<Exit, Failure> {
    match &arguments.suite {
        Choice::Spmm(arguments) => of_suite(arguments, talk),
        Choice::Sddmm(arguments) => of_suite(arguments, talk),
        Choice::Attention(arguments) => of_suite(arguments, talk),
        Choice::Nm(arguments) => of_suite(arguments, talk),
        Choice::Tensor(arguments) => of_suite(arguments, talk),
        Choice::Ablation(arguments) => of_suite(arguments, talk),
        Choice::Preprocess(arguments) => of_suite(arguments, talk),
        Choice::Plans(arguments) => of_suite(arguments, talk),
        Choice::Tuned(arguments) => of_suite(arguments, talk),
        Choice::Compare(arguments) => arguments.run(talk),
        Choice::Csv(arguments) => arguments.run(),
        #[cfg(feature = "pictures")]
        Choice::Plot(arguments) => arguments.run(talk),
        #[cfg(feature = "pictures")]
        Choice::Report(arguments) => arguments.run(),
    }
}

fn of_suite<C: Command>(command: &C, talk: &mut dyn Write) -> Result<Exit, Failure> {
    let common = command.common();
    if let Some(text) = command.otherwise() {
        write(common.out.as_deref(), &text?)?;
        return Ok(Exit::Right);
    }
    if common.summarise {
        let records = Records::read(&common.files)?.of::<C::Suite>()?;
        write(common.out.as_deref(), &summary(command, &records)?)?;
        return Ok(Exit::Right);
    }
    measure(command, talk).map(|tally| Exit::of(&tally))
}

/// The summary of records; of warm ones and of cold ones apart, since neither says anything of the other.
fn summary<C: Command>(command: &C, records: &[RecordOf<C>]) -> Result<String, Failure> {
    if records.iter().all(|record| record.l2.state() == L2::Warm) {
        return command.summarise(records);
    }
    let mut text = String::new();
    for state in [L2::Warm, L2::Cold] {
        let of_state: Vec<_> = records.iter().filter(|record| record.l2.state() == state).cloned().collect();
        if !of_state.is_empty() {
            let gap = if text.is_empty() { "" } else { "\n" };
            text += &format!("{gap}With a {state} L2 cache:\n\n{}", command.summarise(&of_state)?);
        }
    }
    Ok(text)
}

/// Measures the suite, with a line of progress for each record.
fn measure<C: Command>(command: &C, talk: &mut dyn Write) -> Result<Tally, Failure> {
    let common = command.common();
    command.check()?;
    let device = common.open()?;
    say(talk, &format!("device: {device}"))?;
    // First, so that a name that cannot be written ends the program before anything is measured.
    let (mut out, done) = records::output(common, &device)?;
    let mut suite = command.open(&device, talk)?;
    let started = Instant::now();
    let there = done.count(&suite);
    if there > 0 {
        say(talk, &format!("{there} cases are there already"))?;
    }
    let (mut count, total) = (0, suite.cases().len() - there);
    let is_done = |case: &str| done.contains(C::Suite::NAME, case);
    let tally = run(&mut suite, &device, &is_done, &mut |record| {
        writeln!(out, "{}", record.to_json_line())?;
        out.flush()?;
        if let (0, Some(titles)) = (count, C::titles()) {
            writeln!(talk, "{titles}")?;
        }
        count += 1;
        let mut line = C::line(record);
        if record.l2.state() == L2::Cold && !line.contains("cold L2") {
            line += "  cold L2";
        }
        writeln!(talk, "{line}  {count}/{total} {:.0} s", started.elapsed().as_secs_f64())
    });
    let tally = tally.map_err(|error| Failure::new(Exit::File, format!("the results: {error}")))?;
    say(talk, &tally.to_string())?;
    Ok(tally)
}

/// A line of progress.
pub(crate) fn say(talk: &mut dyn Write, text: &str) -> Result<(), Failure> {
    writeln!(talk, "{text}").map_err(|error| Failure::new(Exit::File, format!("standard error: {error}")))
}

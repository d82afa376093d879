//! `windrow-sddmm`: measures sampled products; JSON lines out, progress on standard error.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use windrow::DeviceSelector;
use windrow::synthetic::Synthetic;
use windrow_bench::command::{Exit, Failure, end, open, output, read, sources, write_summary};
use windrow_bench::{
    DeviceRates, SampledOptions, SampledPath, Sampling, SweepSummary, sampled_sweep, summarise_sampled,
};

/// Measures sampled dense-dense products (SDDMM) and verifies every result.
///
/// Each case is one JSON object on a line, written as soon as it is measured. A case that fails does not end the sweep.
/// On a CUDA device cuSPARSE's SDDMM is measured beside, with f32 and f16 operands, where it can be loaded.
///
/// A path is an algorithm (auto, tiles, entries, hybrid) and a precision, such as auto-f16; hybrid-f16:24 keeps tiles of
/// at least 24 entries on Tensor Cores; +scale multiplies by the values, +scan finds positions by scanning masks.
///
/// Exit codes: 0 all right, 1 a result is wrong, 2 usage, 3 a file could not be read or written, 4 no such device,
/// 5 a case failed otherwise.
#[derive(Debug, Parser)]
#[command(name = "windrow-sddmm", version, max_term_width = 100)]
struct Arguments {
    /// Patterns, in any format that windrow reads; with --summarise, results.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Summarise results as Markdown instead of measuring.
    #[arg(long, conflicts_with = "synthetic")]
    summarise: bool,
    /// Made-up matrices, by name.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    synthetic: Vec<Synthetic>,
    /// Inner dimensions: columns of X and Y.
    #[arg(long, value_name = "D", value_delimiter = ',', default_values_t = [32, 64, 128, 256])]
    inners: Vec<usize>,
    /// Algorithms, precisions and options.
    #[arg(long, value_name = "PATH", value_delimiter = ',', default_values_t = SampledPath::DEFAULT)]
    paths: Vec<SampledPath>,
    /// Where to run: best, cpu or cuda:N.
    #[arg(long, default_value_t = DeviceSelector::Best)]
    device: DeviceSelector,
    /// Where the JSON lines go; standard output unless told.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Rates of the device for the roofline, as windrow-sweep writes them.
    #[arg(long, value_name = "FILE")]
    rates: Option<PathBuf>,
    /// Leave out cuSPARSE.
    #[arg(long)]
    no_peers: bool,
    /// Seed of values and operands.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run every case only as often as is needed to see that it runs.
    #[arg(long)]
    smoke: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    end(if arguments.summarise {
        summarise(&arguments)
    } else {
        run(&arguments).map(|summary| exit_of(&summary))
    })
}

/// The worst that happened.
fn exit_of(summary: &SweepSummary) -> Exit {
    Exit::worst(summary.wrong, summary.unreadable, summary.errors)
}

fn run(arguments: &Arguments) -> Result<SweepSummary, Failure> {
    let sources = sources(&arguments.files, &arguments.synthetic)?;
    let device = open(arguments.device)?;
    eprintln!("device: {device}");
    let mut out = output(arguments.out.as_deref())?;
    let rates = match &arguments.rates {
        None => None,
        Some(path) => {
            let rates = serde_json::from_str::<DeviceRates>(&read(path)?);
            Some(rates.map_err(|error| Failure::file(path, error))?)
        }
    };
    let options = SampledOptions {
        inners: arguments.inners.clone(),
        paths: arguments.paths.clone(),
        seed: arguments.seed,
        sampling: if arguments.smoke { Sampling::SMOKE } else { Sampling::default() },
        rates,
        peers: !arguments.no_peers,
        progress: |line| eprintln!("{line}"),
    };
    let summary = sampled_sweep(&device, &sources, &options, &mut |record| {
        let us = record.time.map_or_else(|| "no time".to_owned(), |time| format!("{:.1} µs", time.median_us));
        eprintln!("{} {} {}: {us}", record.matrix.name, record.inner, record.path);
        writeln!(out, "{}", record.to_json_line()).and_then(|()| out.flush())
    });
    let summary = summary.map_err(|error| Failure::new(Exit::File, error))?;
    let SweepSummary { cases, wrong, errors, unreadable } = summary;
    eprintln!("{cases} cases: {wrong} wrong, {errors} failed, {unreadable} matrices unreadable");
    Ok(summary)
}

fn summarise(arguments: &Arguments) -> Result<Exit, Failure> {
    write_summary(&arguments.files, arguments.out.as_deref(), summarise_sampled).map(|()| Exit::Right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_becomes_lines_and_a_table() {
        let temporary = |name: &str| {
            std::env::temp_dir().join(format!("windrow-sddmm-test-{}-{name}", std::process::id()))
        };
        let (matrix, lines, table) = (temporary("m.mtx"), temporary("out.jsonl"), temporary("out.md"));
        std::fs::write(&matrix, "%%MatrixMarket matrix coordinate pattern general\n2 3 2\n1 3\n2 1\n")
            .unwrap();
        let parse =
            |words: &[&str]| Arguments::try_parse_from(["windrow-sddmm"].iter().chain(words)).unwrap();
        let mut arguments =
            parse(&["--device", "cpu", "--smoke", "--inners", "5", "--paths", "auto-f32,auto-f16"]);
        (arguments.files, arguments.out) = (vec![matrix.clone()], Some(lines.clone()));
        let summary = run(&arguments).unwrap();
        assert_eq!(
            (summary, exit_of(&summary)),
            (SweepSummary { cases: 2, ..SweepSummary::default() }, Exit::Right)
        );
        let mut arguments = parse(&["--summarise"]);
        (arguments.files, arguments.out) = (vec![lines.clone()], Some(table.clone()));
        assert_eq!(summarise(&arguments).unwrap(), Exit::Right);
        assert!(std::fs::read_to_string(&table).unwrap().contains("2 records, 0 without a right result"));
        arguments.files = vec![matrix.clone()];
        assert_eq!(summarise(&arguments).unwrap_err().exit, Exit::File);
        assert_eq!(summarise(&parse(&["--summarise"])).unwrap_err().exit, Exit::Usage);
        let failed = SweepSummary { errors: 1, ..SweepSummary::default() };
        assert_eq!(exit_of(&failed), Exit::Failed);
        for path in [matrix, lines, table] {
            std::fs::remove_file(path).unwrap();
        }
    }
}

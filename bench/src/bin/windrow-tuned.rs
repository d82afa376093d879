//! `windrow-tuned`: tunes products of many matrices and widths; JSON lines out, progress on standard error.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use windrow::synthetic::Synthetic;
use windrow::{Determinism, DeviceSelector, Precision};
use windrow_bench::command::{Exit, Failure, end, open, output, sources, write_summary};
use windrow_bench::{
    Limits, SweepOptions, SweepSummary, TuneSweepOptions, TuningRecord, Values, summarise_tuning, tune_sweep,
};

/// Tunes sparse-dense products of many matrices and widths, and verifies every result that has a time.
///
/// Each matrix and width is one JSON object on a line, written as soon as it is measured: what the default takes, the
/// best of every family, what was tried, and who won. A case that fails does not end the run. On a CUDA device cuSPARSE
/// is measured beside, where it can be loaded.
///
/// With --tree nothing is searched: row-split and every division of segment groups that the default's decision tree can
/// answer for the width are timed, for windrow-fit.
///
/// Exit codes: 0 all right, 1 a result is wrong, 2 usage, 3 a file could not be read or written, 4 no such device, 5 a case
/// failed otherwise.
#[derive(Debug, Parser)]
#[command(name = "windrow-tuned", version, max_term_width = 100)]
struct Arguments {
    /// Matrices, in any format that windrow reads; with --summarise, results.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Summarise results as Markdown instead of measuring.
    #[arg(long, conflicts_with = "synthetic")]
    summarise: bool,
    /// Made-up matrices, by name.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    synthetic: Vec<Synthetic>,
    /// Columns of B.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64, 128])]
    widths: Vec<usize>,
    /// Seconds for each matrix and width.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.5)]
    budget: f64,
    /// Time every division of the default's decision tree instead of searching.
    #[arg(long, conflicts_with = "budget")]
    tree: bool,
    /// Batches of each division, with --tree.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,
    /// Type in which A and B are multiplied: f32, tf32, f16 or bf16.
    #[arg(long, value_name = "TYPE", default_value_t = Precision::F32)]
    precision: Precision,
    /// Whether two runs give the same bits: run-to-run or fast.
    #[arg(long, value_name = "NAME", default_value_t = Determinism::default())]
    determinism: Determinism,
    /// Where to run: best, cpu or cuda:N.
    #[arg(long, default_value_t = DeviceSelector::Best)]
    device: DeviceSelector,
    /// Where the JSON lines go; standard output unless told.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Leave out cuSPARSE.
    #[arg(long)]
    no_peers: bool,
    /// Values of the matrices: those of the file, or random ones in [0, 1).
    #[arg(long, default_value_t = Values::File)]
    values: Values,
    /// Seed of made-up values and of B.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    end(match arguments.summarise {
        true => {
            write_summary(&arguments.files, arguments.out.as_deref(), summarise_tuning).map(|()| Exit::Right)
        }
        false => {
            run(&arguments).map(|summary| Exit::worst(summary.wrong, summary.unreadable, summary.errors))
        }
    })
}

fn run(arguments: &Arguments) -> Result<SweepSummary, Failure> {
    let sources = sources(&arguments.files, &arguments.synthetic)?;
    let budget = Duration::try_from_secs_f64(arguments.budget)
        .map_err(|error| Failure::new(Exit::Usage, format!("--budget {}: {error}", arguments.budget)))?;
    let device = open(arguments.device)?;
    eprintln!("device: {device}");
    let mut out = output(arguments.out.as_deref())?;
    let options = TuneSweepOptions {
        precision: arguments.precision,
        determinism: arguments.determinism,
        limits: (!arguments.tree).then(|| Limits { budget, ..Limits::default() }),
        batches: arguments.batches,
        sweep: SweepOptions {
            widths: arguments.widths.clone(),
            seed: arguments.seed,
            values: arguments.values,
            peers: !arguments.no_peers,
            dense_limit_bytes: 0,
            progress: |line| eprintln!("{line}"),
            ..SweepOptions::default()
        },
    };
    let (started, total) = (Instant::now(), sources.len() * arguments.widths.len());
    let mut done = 0;
    let summary = tune_sweep(&device, &sources, &options, &mut |record| {
        done += 1;
        eprintln!("{}  {done}/{total} {:.0} s", line(record), started.elapsed().as_secs_f64());
        writeln!(out, "{}", record.to_json_line()).and_then(|()| out.flush())
    });
    let summary = summary.map_err(|error| Failure::new(Exit::File, format!("the results: {error}")))?;
    let SweepSummary { cases, wrong, errors, unreadable } = summary;
    eprintln!("{cases} cases: {wrong} wrong, {errors} failed, {unreadable} matrices unreadable");
    Ok(summary)
}

/// What is told of a record.
fn line(record: &TuningRecord) -> String {
    let what = format!("{:<22} {:>4}", record.matrix.name, record.width);
    if let Some(error) = &record.error {
        return format!("{what}  FAILED: {error}");
    }
    let us = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.1}"));
    let best = record.winner.as_ref().map_or("the default", String::as_str);
    let peer_us = record.cusparse.as_ref().and_then(|facts| facts.median_us);
    format!(
        "{what}  default {:>8} µs, tuned {:>8} µs, cuSPARSE {:>8} µs, {:>3} tried in {:.2} s: {best}",
        us(record.default_us),
        us(record.winner_us.or(record.default_us)),
        us(peer_us),
        record.tried.len(),
        record.seconds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_a_line() {
        let out = std::env::temp_dir().join(format!("windrow-tuned-test-{}.jsonl", std::process::id()));
        let parse =
            |words: &[&str]| Arguments::try_parse_from(["windrow-tuned"].iter().chain(words)).unwrap();
        let widths =
            ["no-such-file.mtx", "--synthetic", "molbatch300k", "--widths", "1,20", "--device", "cpu"];
        let mut arguments = parse(&[&widths[..], &["--budget", "0.1"]].concat());
        arguments.out = Some(out.clone());
        let summary = run(&arguments).unwrap();
        assert_eq!(summary, SweepSummary { cases: 3, unreadable: 1, ..SweepSummary::default() });
        let text = std::fs::read_to_string(&out).unwrap();
        let records: Vec<TuningRecord> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(records[0].error.is_some() && records[0].tried.is_empty());
        for (record, width) in records[1..].iter().zip([1, 20]) {
            assert_eq!((record.width, record.default.as_deref()), (width, Some("row-split-f32+tasks:8:-")));
            assert!(record.default_us.is_some_and(|us| us > 0.0) && !record.tried.is_empty());
            assert!(line(record).contains("tried in"), "{}", line(record));
        }
        std::fs::remove_file(out).unwrap();
        for budget in ["-1", "NaN"] {
            let arguments = parse(&["x.mtx", &format!("--budget={budget}"), "--device", "cpu"]);
            assert_eq!(run(&arguments).unwrap_err().exit, Exit::Usage);
        }
    }
}

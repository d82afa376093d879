//! `windrow-tensor`: measures products of sparse tensors; JSON lines out, progress on standard error.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use windrow::{AtomicParallelism, Determinism, DeviceSelector};
use windrow_bench::command::{Exit, Failure, end, open, output, write_summary};
use windrow_bench::{
    Sampling, SweepSummary, SyntheticTensor, TensorOperation, TensorOptions, TensorRecord, TensorSource,
    summarise_tensor, tensor_sweep,
};

/// Measures MTTKRP and TTM of sparse tensors in f32 and verifies every result.
///
/// Each case is one JSON object on a line, written as soon as it is measured: what the library chooses, points of segment
/// reduction in a fixed order and in any, and, for comparison, a kernel that adds every product to the result atomically. A case
/// that fails does not end the run.
///
/// Exit codes: 0 all right, 1 a result is wrong, 2 usage, 3 a file could not be read or written, 4 no such device, 5 a case
/// failed otherwise.
#[derive(Debug, Parser)]
#[command(name = "windrow-tensor", version, max_term_width = 100)]
struct Arguments {
    /// FROSTT .tns files, also behind gzip; with --summarise: results.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Summarise results as Markdown instead of measuring.
    #[arg(long)]
    summarise: bool,
    /// Made-up tensors: nell2-like, flickr-like (shapes of FROSTT tensors, indices by power laws), each also :DRAWS, and
    /// IxJxK:DRAWS (uniform).
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    synthetic: Vec<SyntheticTensor>,
    /// Products: mttkrp, ttm.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values_t = TensorOperation::ALL)]
    operations: Vec<TensorOperation>,
    /// Modes, from 0, that products are for.
    #[arg(long, value_name = "MODE", value_delimiter = ',', default_values_t = [0])]
    modes: Vec<usize>,
    /// Columns of the dense matrices.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [8, 16, 32, 64])]
    widths: Vec<usize>,
    /// Points of Sgap's space, separated by semicolons, instead of a choice for each width.
    #[arg(long, value_name = "POINTS", value_delimiter = ';')]
    points: Vec<AtomicParallelism>,
    /// How what is cut is added: run-to-run (in a fixed order), fast (atomically).
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values_t = Determinism::ALL)]
    determinism: Vec<Determinism>,
    /// Where to run: best, cpu or cuda:N.
    #[arg(long, default_value_t = DeviceSelector::Best)]
    device: DeviceSelector,
    /// Where the JSON lines go; standard output unless told.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Seed of made-up tensors and of the matrices.
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
        run(&arguments).map(|summary| Exit::worst(summary.wrong, summary.unreadable, summary.errors))
    })
}

fn run(arguments: &Arguments) -> Result<SweepSummary, Failure> {
    let files = arguments.files.iter().cloned().map(TensorSource::File);
    let sources: Vec<_> =
        files.chain(arguments.synthetic.iter().copied().map(TensorSource::Synthetic)).collect();
    if sources.is_empty() {
        return Err(Failure::new(Exit::Usage, "no tensor: name files, or made-up ones with --synthetic"));
    }
    if let Some(mode) = arguments.modes.iter().find(|&&mode| mode > 2) {
        return Err(Failure::new(Exit::Usage, format!("mode {mode}: a tensor has modes 0, 1 and 2")));
    }
    let options = TensorOptions {
        operations: arguments.operations.clone(),
        modes: arguments.modes.clone(),
        widths: arguments.widths.clone(),
        points: arguments.points.clone(),
        determinisms: arguments.determinism.clone(),
        seed: arguments.seed,
        sampling: if arguments.smoke { Sampling::SMOKE } else { Sampling::default() },
        progress: |what| eprintln!("{what}"),
    };
    let device = open(arguments.device)?;
    eprintln!("device: {device}");
    let mut out = output(arguments.out.as_deref())?;
    let summary = tensor_sweep(&device, &sources, &options, &mut |record| {
        eprintln!("{}", line(record));
        writeln!(out, "{}", record.to_json_line()).and_then(|()| out.flush())
    });
    let summary = summary.map_err(|error| Failure::new(Exit::File, error))?;
    eprintln!("{} cases: {} wrong, {} failed", summary.cases, summary.wrong, summary.errors);
    Ok(summary)
}

/// What is told of a record.
fn line(record: &TensorRecord) -> String {
    let TensorRecord { tensor, operation, mode, width, path, determinism, .. } = record;
    let what = format!("{tensor} {operation} mode {mode} width {width} {path} {determinism}");
    match (&record.time, record.gflops, &record.error) {
        (Some(time), Some(gflops), _) => format!("{what}: {:.1} µs, {gflops:.1} GFLOP/s", time.median_us),
        (_, _, Some(error)) => format!("{what}: {error}"),
        _ => format!("{what}: wrong: {:?}", record.check),
    }
}

fn summarise(arguments: &Arguments) -> Result<Exit, Failure> {
    write_summary(&arguments.files, arguments.out.as_deref(), summarise_tensor).map(|()| Exit::Right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_become_lines_and_a_table() {
        let temporary = |name: &str| {
            std::env::temp_dir().join(format!("windrow-tensor-test-{}-{name}", std::process::id()))
        };
        let (lines, table, tensor) = (temporary("out.jsonl"), temporary("out.md"), temporary("small.tns"));
        std::fs::write(&tensor, "1 1 1 2.5\n2 3 1 -1\n2 1 2 4\n").unwrap();
        let parse =
            |words: &[&str]| Arguments::try_parse_from(["windrow-tensor"].iter().chain(words)).unwrap();
        let words = ["--device", "cpu", "--smoke", "--synthetic", "40x30x20:900", "--modes", "0,1,2"];
        let mut arguments = parse(&words);
        (arguments.out, arguments.files) = (Some(lines.clone()), vec![tensor.clone()]);
        let summary = run(&arguments).unwrap();
        let cases = 2 * 2 * 3 * 4 * 2;
        assert_eq!(summary, SweepSummary { cases, ..SweepSummary::default() });
        let mut arguments = parse(&["--summarise"]);
        (arguments.files, arguments.out) = (vec![lines.clone()], Some(table.clone()));
        assert_eq!(summarise(&arguments).unwrap(), Exit::Right);
        let text = std::fs::read_to_string(&table).unwrap();
        assert!(text.contains("## ttm, mode 1") && text.contains("| 40x30x20:900 | 64 |"), "{text}");
        for file in [lines, table, tensor] {
            std::fs::remove_file(file).unwrap();
        }
        for wrong in [&["--device", "cpu"][..], &["--synthetic", "nell2-like", "--modes", "3"]] {
            assert_eq!(run(&parse(wrong)).unwrap_err().exit, Exit::Usage);
        }
    }
}

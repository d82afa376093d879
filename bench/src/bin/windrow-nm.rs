//! `windrow-nm`: measures products with N:M weights; JSON lines out, progress on standard error.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use windrow::{ActivationLayout, DeviceSelector, NmPacking, NmPattern, Precision};
use windrow_bench::command::{Exit, Failure, end, open, output, write_summary};
use windrow_bench::{NmOptions, NmRecord, NmShape, Sampling, SweepSummary, nm_sweep, summarise_nm};

/// Measures products with vector-wise N:M weights and verifies every result.
///
/// Each case is one JSON object on a line, written as soon as it is measured. A case that fails does not end the run. On a
/// CUDA device cuBLAS's dense product of the same shape and precision is measured beside, where it can be loaded. Of large
/// results a sample of rows is checked, from the first to the last.
///
/// Exit codes: 0 all right, 1 a result is wrong, 2 usage, 3 a file could not be read or written, 4 no such device, 5 a case
/// failed otherwise.
#[derive(Debug, Parser)]
#[command(name = "windrow-nm", version, max_term_width = 100)]
struct Arguments {
    /// With --summarise: results.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Summarise results as Markdown instead of measuring.
    #[arg(long)]
    summarise: bool,
    /// Sizes: `MxNxK`, paper (Table II of NM-SpMM) or llama (the linear layers of Llama-7B).
    #[arg(long, value_name = "SHAPE", value_delimiter = ',', default_values_t = ["paper".to_owned()])]
    shapes: Vec<String>,
    /// Patterns: rows kept of each group.
    #[arg(long, value_name = "N:M", value_delimiter = ',',
        default_values_t = ["16:32", "12:32", "8:32", "4:32"].map(str::to_owned))]
    patterns: Vec<String>,
    /// Columns that share their pattern.
    #[arg(long, value_name = "L", value_delimiter = ',', default_values_t = [32])]
    vectors: Vec<usize>,
    /// Types of activations and weights: f32, tf32, f16, bf16.
    #[arg(long, value_name = "PRECISION", value_delimiter = ',', default_values_t = [Precision::F32])]
    precisions: Vec<Precision>,
    /// How activations are stored: k-major, row-major.
    #[arg(long, value_name = "LAYOUT", value_delimiter = ',', default_values_t = [ActivationLayout::KMajor])]
    layouts: Vec<ActivationLayout>,
    /// Whether columns of A are packed: auto, packed, plain.
    #[arg(long, value_name = "PACKING", value_delimiter = ',', default_values_t = [NmPacking::Auto])]
    packings: Vec<NmPacking>,
    /// One kernel by its name, instead of the model's choice.
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Let every plan try a few kernels.
    #[arg(long)]
    autotune: bool,
    /// Where to run: best, cpu or cuda:N.
    #[arg(long, default_value_t = DeviceSelector::Best)]
    device: DeviceSelector,
    /// Where the JSON lines go; standard output unless told.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Leave out cuBLAS.
    #[arg(long)]
    no_peers: bool,
    /// Seed of weights and activations.
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

/// `N:M` with `L`.
fn pattern(text: &str, l: usize) -> Result<NmPattern, Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::new(Exit::Usage, format!("{text:?}: {error}"));
    let numbers = text.split_once(':').and_then(|(n, m)| Some((n.parse().ok()?, m.parse().ok()?)));
    let (n, m) = numbers.ok_or_else(|| usage(&"no pattern; write N:M, such as 2:8"))?;
    NmPattern::new(n, m, l).map_err(|error| usage(&error))
}

fn run(arguments: &Arguments) -> Result<SweepSummary, Failure> {
    let mut options = NmOptions {
        shapes: Vec::new(),
        patterns: Vec::new(),
        precisions: arguments.precisions.clone(),
        layouts: arguments.layouts.clone(),
        packings: arguments.packings.clone(),
        kernel: arguments.kernel.clone(),
        autotune: arguments.autotune,
        seed: arguments.seed,
        sampling: if arguments.smoke { Sampling::SMOKE } else { Sampling::default() },
        peers: !arguments.no_peers,
    };
    for text in &arguments.shapes {
        options.shapes.extend(NmShape::named(text).map_err(|error| Failure::new(Exit::Usage, error))?);
    }
    for &l in &arguments.vectors {
        for text in &arguments.patterns {
            options.patterns.push(pattern(text, l)?);
        }
    }
    let device = open(arguments.device)?;
    eprintln!("device: {device}");
    let mut out = output(arguments.out.as_deref())?;
    let summary = nm_sweep(&device, &options, &mut |record| {
        eprintln!("{}", line(record));
        writeln!(out, "{}", record.to_json_line()).and_then(|()| out.flush())
    });
    let summary = summary.map_err(|error| Failure::new(Exit::File, error))?;
    eprintln!("{} cases: {} wrong, {} failed", summary.cases, summary.wrong, summary.errors);
    Ok(summary)
}

/// What is told of a record.
fn line(record: &NmRecord) -> String {
    let [n, m, l] = record.pattern;
    let kernel = record.plan.as_ref().map_or(String::new(), |plan| plan.entries.join("+"));
    let what = format!("{} {n}:{m} L {l} {} {} {kernel}", record.shape, record.precision, record.layout);
    match (&record.time, record.tflops, &record.error) {
        (Some(time), Some(tflops), _) => {
            let dense =
                record.dense_us.map_or(String::new(), |us| format!(", {:.2} x dense", us / time.median_us));
            format!("{what}: {:.1} µs, {tflops:.1} TFLOP/s{dense}", time.median_us)
        }
        (_, _, Some(error)) => format!("{what}: {error}"),
        _ => format!("{what}: wrong: {:?}", record.check),
    }
}

fn summarise(arguments: &Arguments) -> Result<Exit, Failure> {
    write_summary(&arguments.files, arguments.out.as_deref(), summarise_nm).map(|()| Exit::Right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_become_lines_and_a_table() {
        let temporary =
            |name: &str| std::env::temp_dir().join(format!("windrow-nm-test-{}-{name}", std::process::id()));
        let (lines, table) = (temporary("out.jsonl"), temporary("out.md"));
        let parse = |words: &[&str]| Arguments::try_parse_from(["windrow-nm"].iter().chain(words)).unwrap();
        let mut arguments = parse(&[
            "--device",
            "cpu",
            "--smoke",
            "--shapes",
            "5x40x64,7x8x9",
            "--precisions",
            "f32,f16",
            "--layouts",
            "k-major,row-major",
        ]);
        arguments.out = Some(lines.clone());
        let summary = run(&arguments).unwrap();
        assert_eq!(summary, SweepSummary { cases: 32, ..SweepSummary::default() });
        let mut arguments = parse(&["--summarise"]);
        (arguments.files, arguments.out) = (vec![lines.clone()], Some(table.clone()));
        assert_eq!(summarise(&arguments).unwrap(), Exit::Right);
        let text = std::fs::read_to_string(&table).unwrap();
        assert!(text.contains("## f16, k-major") && text.contains("| 5x40x64 | 8:32, 32 |"), "{text}");
        std::fs::remove_file(lines).unwrap();
        std::fs::remove_file(table).unwrap();
        let wrong = parse(&["--patterns", "9:8", "--device", "cpu"]);
        assert_eq!(run(&wrong).unwrap_err().exit, Exit::Usage);
    }
}

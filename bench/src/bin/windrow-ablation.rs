//! `windrow-ablation`: what each component of a hybrid product is worth; JSON lines out, progress on standard error.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use windrow::DeviceSelector;
use windrow::synthetic::Synthetic;
use windrow_bench::command::{Exit, Failure, end, open, output, records, sources};
use windrow_bench::{
    AblationOptions, AblationPart, AblationRecord, AblationSummary, Sampling, Values, ablation,
    summarise_ablation,
};

/// Measures what the components of a hybrid product are worth, each against leaving it out.
///
/// Parts: thresholds (partitions, and what they leave in the tiles), vectors (the same by column vectors), stream (windows dealt out evenly against a warp
/// for each), reorder (orders, and the stages of the similarity order), bytes (formats), hybrid (against all rows on
/// one path), determinism (runs bit by bit beside other work, and the cost of a fixed order of sums), preprocess (plans made
/// on the CPU against plans made on the GPU). On the CPU times
/// are skipped, and counted.
///
/// Exit codes: 0 all right, 1 a result is wrong or runs differ, 2 usage, 3 a file could not be read or written, 4 no
/// such device, 5 something failed otherwise.
#[derive(Debug, Parser)]
#[command(name = "windrow-ablation", version, max_term_width = 100)]
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
    /// What to compare.
    #[arg(long, value_name = "PART", value_delimiter = ',', default_values_t = AblationPart::ALL)]
    parts: Vec<AblationPart>,
    /// Columns of B.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [128])]
    widths: Vec<usize>,
    /// Values of the matrices: random ones in [0, 1), or those of the file.
    #[arg(long, default_value_t = Values::Random)]
    values: Values,
    /// Where to run: best, cpu or cuda:N.
    #[arg(long, default_value_t = DeviceSelector::Best)]
    device: DeviceSelector,
    /// Where the JSON lines go; standard output unless told.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Runs that must give the same bits.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..))]
    runs: u32,
    /// Seed of made-up values and of B.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run every product only as often as is needed to see that it runs.
    #[arg(long)]
    smoke: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    end(match arguments.summarise {
        true => write_summary(&arguments).map(|()| Exit::Right),
        false => run(&arguments).map(|summary| exit_of(&summary)),
    })
}

/// The worst that happened.
fn exit_of(summary: &AblationSummary) -> Exit {
    Exit::worst(summary.wrong, summary.unreadable, summary.errors)
}

fn run(arguments: &Arguments) -> Result<AblationSummary, Failure> {
    let sources = sources(&arguments.files, &arguments.synthetic)?;
    let device = open(arguments.device)?;
    eprintln!("device: {device}");
    let mut out = output(arguments.out.as_deref())?;
    let options = AblationOptions {
        parts: arguments.parts.clone(),
        widths: arguments.widths.clone(),
        values: arguments.values,
        seed: arguments.seed,
        sampling: if arguments.smoke { Sampling::SMOKE } else { Sampling::default() },
        runs: arguments.runs,
        progress: |line| eprintln!("{line}"),
        ..AblationOptions::default()
    };
    let summary = ablation(&device, &sources, &options, &mut |record| {
        serde_json::to_writer(&mut out, record)?;
        out.write_all(b"\n")?;
        out.flush()
    });
    let summary = summary.map_err(|error| Failure::new(Exit::File, format!("the results: {error}")))?;
    let AblationSummary { lines, wrong, errors, unreadable, skipped } = summary;
    eprintln!(
        "{lines} lines: {wrong} wrong, {errors} failed, {unreadable} matrices unreadable, {skipped} times skipped \
         for want of a GPU"
    );
    Ok(summary)
}

/// Reads results and writes what they say.
fn write_summary(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.files.is_empty() {
        return Err(Failure::new(Exit::Usage, "nothing to summarise: name files of JSON lines"));
    }
    let records: Vec<AblationRecord> = records(&arguments.files)?;
    let mut out = output(arguments.out.as_deref())?;
    let written = out.write_all(summarise_ablation(&records).as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Failure::new(Exit::File, format!("the summary: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Arguments {
        Arguments::try_parse_from(["windrow-ablation"].iter().chain(words)).unwrap()
    }

    #[test]
    fn arguments_have_the_defaults_of_the_library() {
        let (arguments, options) = (parse(&["a.mtx"]), AblationOptions::default());
        assert_eq!((arguments.parts, arguments.widths), (options.parts, options.widths));
        assert_eq!((arguments.values, arguments.runs), (options.values, options.runs));
        let arguments = parse(&["--parts", "bytes,hybrid", "--synthetic", "rmat17"]);
        assert_eq!(arguments.parts, [AblationPart::Bytes, AblationPart::Hybrid]);
        for wrong in [["--parts", "all"], ["--runs", "1"], ["--values", "ones"]] {
            assert!(
                Arguments::try_parse_from(["windrow-ablation"].iter().chain(&wrong)).is_err(),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn a_file_becomes_lines_and_a_summary() {
        let folder = std::env::temp_dir().join(format!("windrow-ablation-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (matrix, out, summary) = (folder.join("m.mtx"), folder.join("out.jsonl"), folder.join("s.md"));
        std::fs::write(&matrix, "%%MatrixMarket matrix coordinate pattern general\n2 3 2\n1 3\n2 1\n")
            .unwrap();
        let mut arguments = parse(&["--device", "cpu", "--smoke", "--widths", "4", "--runs", "2"]);
        (arguments.files, arguments.out) = (vec![matrix], Some(out.clone()));
        let found = run(&arguments).unwrap();
        assert_eq!((found.wrong, found.errors, found.unreadable), (0, 0, 0));
        assert!(found.skipped > 0 && exit_of(&found) == Exit::Right);
        let lines: Vec<AblationRecord> = records(std::slice::from_ref(&out)).unwrap();
        assert_eq!(lines.len() as u64, found.lines);
        (arguments.files, arguments.out) = (vec![out], Some(summary.clone()));
        write_summary(&arguments).unwrap();
        assert!(std::fs::read_to_string(&summary).unwrap().contains("| m | 4 | overlap | 0 |"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn each_failure_has_its_code() {
        let exit = |words: &[&str]| run(&parse(words)).unwrap_err().exit;
        assert_eq!(exit(&["--device", "cpu"]), Exit::Usage);
        assert_eq!(exit(&["x.mtx", "--device", "cpu", "--out", "no-such-folder/x"]), Exit::File);
        assert_eq!(write_summary(&parse(&["--summarise", "no-such-file"])).unwrap_err().exit, Exit::File);
        let summary = |wrong, errors| AblationSummary { wrong, errors, ..AblationSummary::default() };
        assert_eq!(exit_of(&summary(1, 1)), Exit::Wrong);
        assert_eq!(exit_of(&summary(0, 1)), Exit::Failed);
    }
}

//! `windrow-sweep`: measures products of many matrices, widths and paths; JSON lines out, a table on standard error.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use windrow::synthetic::Synthetic;
use windrow::{Device, DeviceKind, DeviceSelector};
use windrow_bench::command::{Exit, Failure, end, open, output, read, records, sources};
use windrow_bench::{
    DeviceRates, GatherProbe, Published, Record, Sampling, SweepOptions, SweepPath, SweepSummary, Table,
    Values, summarise, sweep,
};

/// Measures sparse-dense products and verifies every result.
///
/// Each case is one JSON object on a line, written as soon as it is measured; a table goes to standard error. A case
/// that fails does not end the sweep. All matrices are read and all orders found before the first measurement. On a
/// CUDA device the gather roofline is measured, and cuSPARSE and cuBLAS beside, where they can be loaded.
///
/// A path is an algorithm and a precision, such as auto-f16, with options behind it: +reorder (similarity order of the
/// rows), +rcm, +community, +degree (other orders), +fast (results may differ in the last bits), +window-each (a warp
/// for each window), +dense, +packed (the form of the values of tiles), +point:1/8row:4col:8 and +launch:128:8:1/2 (how
/// segment-group divides the work, and its launch), +column-major (of B), +vectors or +vectors:2/8 (a hybrid
/// divided by column vectors, with Libra's threshold or that one). Example: hybrid-f16+reorder+fast.
///
/// With --summarise, FILE are the JSON lines of earlier sweeps and a Markdown summary goes to standard output, or to
/// --out. --published names a table of times to compare with: a line `matrix,width,microseconds,library` for each;
/// lines that begin with # are remarks.
///
/// Exit codes: 0 all right, 1 a result is wrong, 2 usage, 3 a file could not be read or written, 4 no such device,
/// 5 a case failed otherwise.
#[derive(Debug, Parser)]
#[command(name = "windrow-sweep", version, max_term_width = 100)]
struct Arguments {
    /// Matrices, in any format that windrow reads; with --summarise, results.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Summarise results instead of measuring.
    #[arg(long, conflicts_with = "synthetic")]
    summarise: bool,
    /// Times of other libraries, for --summarise.
    #[arg(long, value_name = "FILE", requires = "summarise")]
    published: Option<PathBuf>,
    /// Made-up matrices, by name.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    synthetic: Vec<Synthetic>,
    /// Columns of B.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [32, 64, 128, 256])]
    widths: Vec<usize>,
    /// Algorithms, precisions and options.
    #[arg(long, value_name = "PATH", value_delimiter = ',', default_values_t = SweepPath::DEFAULT)]
    paths: Vec<SweepPath>,
    /// Where to run: best, cpu or cuda:N.
    #[arg(long, default_value_t = DeviceSelector::Best)]
    device: DeviceSelector,
    /// Where the JSON lines go; standard output unless told.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Rates of the device for the roofline: read if the file exists, else measured and written.
    #[arg(long, value_name = "FILE")]
    rates: Option<PathBuf>,
    /// Leave out the roofline.
    #[arg(long, conflicts_with = "rates")]
    no_roofline: bool,
    /// Leave out cuSPARSE and cuBLAS.
    #[arg(long)]
    no_peers: bool,
    /// Leave out cuBLAS.
    #[arg(long)]
    no_cublas: bool,
    /// Values of the matrices: those of the file, or random ones in [0, 1), which do not overflow f16.
    #[arg(long, default_value_t = Values::File)]
    values: Values,
    /// Seed of made-up values and of B.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run every case only as often as is needed to see that it runs.
    #[arg(long)]
    smoke: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    end(match arguments.summarise {
        true => write_summary(&arguments).map(|()| Exit::Right),
        false => run(&arguments, &mut io::stderr()).map(|summary| exit_of(&summary)),
    })
}

/// The worst that happened.
fn exit_of(summary: &SweepSummary) -> Exit {
    Exit::worst(summary.wrong, summary.unreadable, summary.errors)
}

fn run(arguments: &Arguments, talk: &mut dyn Write) -> Result<SweepSummary, Failure> {
    let sources = sources(&arguments.files, &arguments.synthetic)?;
    let device = open(arguments.device)?;
    let say = |talk: &mut dyn Write, text: &str| {
        writeln!(talk, "{text}").map_err(|error| Failure::new(Exit::File, format!("standard error: {error}")))
    };
    say(talk, &format!("device: {device}"))?;
    // First, so that a name that cannot be written ends the program before anything is measured.
    let mut out = output(arguments.out.as_deref())?;
    let rates = rates(arguments, &device)?;
    if let Some(DeviceRates { copy, gather }) = &rates {
        say(talk, &format!("copy {:.2} TB/s; gathered rows, TB/s:\n{gather}", copy / 1e12))?;
    }
    let options = SweepOptions {
        widths: arguments.widths.clone(),
        paths: arguments.paths.clone(),
        seed: arguments.seed,
        sampling: if arguments.smoke { Sampling::SMOKE } else { Sampling::default() },
        rates,
        peers: !arguments.no_peers,
        values: arguments.values,
        progress: |line| eprintln!("{line}"),
        ..SweepOptions::default()
    };
    let options = match arguments.no_cublas {
        true => SweepOptions { dense_limit_bytes: 0, ..options },
        false => options,
    };
    let total = sources.len() * options.widths.len() * options.paths.len();
    let (mut done, started) = (0, Instant::now());
    let summary = sweep(&device, &sources, &options, &mut |record| {
        writeln!(out, "{}", record.to_json_line())?;
        out.flush()?;
        if done == 0 {
            writeln!(talk, "{}", Table.titles())?;
        }
        done += 1;
        writeln!(talk, "{}  {done}/{total} {:.0} s", Table.row(record), started.elapsed().as_secs_f64())
    });
    let summary = summary.map_err(|error| Failure::new(Exit::File, format!("the results: {error}")))?;
    let SweepSummary { cases, wrong, errors, unreadable } = summary;
    say(talk, &format!("{cases} cases: {wrong} wrong, {errors} failed, {unreadable} matrices unreadable"))?;
    Ok(summary)
}

/// Reads results and writes what they say.
fn write_summary(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.files.is_empty() {
        return Err(Failure::new(Exit::Usage, "nothing to summarise: name files of JSON lines"));
    }
    let records: Vec<Record> = records(&arguments.files)?;
    let published = arguments
        .published
        .as_deref()
        .map(|path| Published::parse(&read(path)?).map_err(|error| Failure::file(path, error)));
    let text = summarise(&records, published.transpose()?.as_ref());
    let mut out = output(arguments.out.as_deref())?;
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::new(Exit::File, format!("the summary: {error}")))
}

/// The rates of the device: from a file, or measured on a CUDA device.
fn rates(arguments: &Arguments, device: &Device) -> Result<Option<DeviceRates>, Failure> {
    if let Some(path) = arguments.rates.as_deref().filter(|path| path.exists()) {
        return serde_json::from_str(&read(path)?).map(Some).map_err(|error| Failure::file(path, error));
    }
    if arguments.no_roofline || device.kind() != DeviceKind::Cuda {
        return Ok(None);
    }
    let rates = DeviceRates::probe(device, &GatherProbe::default()).map_err(|error| {
        Failure::new(Exit::Failed, format!("the roofline: {error}; leave it out with --no-roofline"))
    })?;
    if let Some(path) = &arguments.rates {
        let text = serde_json::to_string(&rates).map_err(|error| Failure::file(path, error))?;
        std::fs::write(path, text + "\n").map_err(|error| Failure::file(path, error))?;
    }
    Ok(Some(rates))
}

#[cfg(test)]
mod tests {
    use windrow_bench::GatherRates;

    use super::*;

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("windrow-sweep-test-{}-{name}", std::process::id()))
    }

    fn parse(words: &[&str]) -> Arguments {
        Arguments::try_parse_from(["windrow-sweep"].iter().chain(words)).unwrap()
    }

    #[test]
    fn arguments_have_the_defaults_of_the_library() {
        let arguments = parse(&["a.mtx"]);
        let options = SweepOptions::default();
        assert_eq!((arguments.widths, arguments.paths), (options.widths, options.paths));
        assert_eq!((arguments.seed, arguments.device), (options.seed, DeviceSelector::Best));
        let arguments = parse(&["--synthetic", "rmat17,fem100k", "--paths", "auto-f32", "--widths=1,7"]);
        assert_eq!(arguments.synthetic, [Synthetic::Rmat17, Synthetic::Fem100k]);
        assert_eq!((arguments.widths.as_slice(), arguments.paths.len()), (&[1, 7][..], 1));
        let arguments = parse(&["--values", "random", "--paths", "auto-f16+fast,hybrid-f16+rcm"]);
        assert_eq!(
            (arguments.values, arguments.paths[1].to_string().as_str()),
            (Values::Random, "hybrid-f16+rcm")
        );
        for wrong in [
            ["--paths", "row-split"],
            ["--synthetic", "x"],
            ["--device", "gpu"],
            ["--widths", "-1"],
            ["--published", "x"],
        ] {
            assert!(Arguments::try_parse_from(["windrow-sweep"].iter().chain(&wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_becomes_lines_and_a_table() {
        let (matrix, out, rates) = (temporary("m.mtx"), temporary("out.jsonl"), temporary("rates.json"));
        std::fs::write(&matrix, "%%MatrixMarket matrix coordinate real general\n2 3 2\n1 3 1.5\n2 1 -2\n")
            .unwrap();
        let gather = GatherRates::try_new(vec![1e6], vec![64.0], vec![1e10]).unwrap();
        std::fs::write(&rates, serde_json::to_string(&DeviceRates { copy: 1e10, gather }).unwrap()).unwrap();
        let mut arguments =
            parse(&["--device", "cpu", "--smoke", "--widths", "4", "--paths", "row-split-f32,auto-f16"]);
        arguments.files = vec![matrix.clone(), temporary("missing.mtx")];
        (arguments.out, arguments.rates) = (Some(out.clone()), Some(rates.clone()));
        let mut talk = Vec::new();
        let summary = run(&arguments, &mut talk).unwrap();
        assert_eq!(summary, SweepSummary { cases: 3, wrong: 0, errors: 0, unreadable: 1 });
        assert_eq!(exit_of(&summary), Exit::File);

        let lines = std::fs::read_to_string(&out).unwrap();
        let records: Vec<Record> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(records.len(), 3);
        assert!(records[0].time.as_ref().unwrap().roofline_us.is_some_and(|us| us > 0.0));
        let folder = std::env::temp_dir().display().to_string();
        assert!(lines.lines().take(2).all(|line| !line.contains(&folder)), "a path in a record: {lines}");
        assert!(records[2].error.as_ref().is_some_and(|error| error.contains("missing.mtx")));
        let talk = String::from_utf8(talk).unwrap();
        assert!(
            talk.contains("copy 0.01 TB/s") && talk.contains("3 cases: 0 wrong, 0 failed, 1 matrices"),
            "{talk}"
        );

        // The lines are summed up, beside a published time.
        let (published, summary) = (temporary("published.csv"), temporary("summary.md"));
        let name = matrix.file_stem().unwrap().to_str().unwrap();
        std::fs::write(&published, format!("# one\n{name},4,1e9,Other\n")).unwrap();
        let mut arguments = parse(&["--summarise", "--published", published.to_str().unwrap()]);
        (arguments.files, arguments.out) = (vec![out.clone()], Some(summary.clone()));
        write_summary(&arguments).unwrap();
        let text = std::fs::read_to_string(&summary).unwrap();
        assert!(text.contains("3 records, 0 with a wrong result, 1 failed in all"), "{text}");
        assert!(
            text.contains("## Speed over the fastest published") && text.contains("1000000000.0 (Other)"),
            "{text}"
        );
        std::fs::write(&published, "x\n").unwrap();
        let failure = write_summary(&arguments).unwrap_err();
        assert!(failure.exit == Exit::File && failure.message.contains("line 1: 1 cells"), "{failure:?}");
        for path in [matrix, out, rates, published, summary] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn each_failure_has_its_code() {
        let exit = |words: &[&str]| run(&parse(words), &mut io::sink()).unwrap_err().exit;
        assert_eq!(exit(&["--device", "cpu"]), Exit::Usage);
        assert_eq!(write_summary(&parse(&["--summarise"])).unwrap_err().exit, Exit::Usage);
        assert_eq!(write_summary(&parse(&["--summarise", "no-such-file"])).unwrap_err().exit, Exit::File);
        assert_eq!(exit(&["x.mtx", "--device", "cuda:4000000000"]), Exit::NoDevice);
        assert_eq!(exit(&["x.mtx", "--device", "cpu", "--out", "no-such-folder/x"]), Exit::File);
        let summary = |wrong, errors, unreadable| SweepSummary { cases: 9, wrong, errors, unreadable };
        assert_eq!(exit_of(&summary(1, 1, 1)), Exit::Wrong);
        assert_eq!(exit_of(&summary(0, 1, 0)), Exit::Failed);
        assert_eq!(exit_of(&summary(0, 0, 0)), Exit::Right);
    }
}

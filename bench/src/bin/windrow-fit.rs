//! `windrow-fit`: fits the decision tree of segment groups to measured times.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use windrow::Precision;
use windrow_bench::command::{Exit, Failure, end, output, read};
use windrow_bench::{FitData, fit};

/// Fits the thresholds of the decision tree that picks a point for segment groups.
///
/// FILE are JSON lines of windrow-tuned --tree, and of windrow-sweep if some line tells the longest row of the matrix.
/// Prints the thresholds as host/src/spmm/points.rs has them, and how far behind the best measured time the tree is: the
/// one that is there, the fitted one, and, for each matrix, the one that is fitted to all other matrices.
#[derive(Debug, Parser)]
#[command(name = "windrow-fit", version, max_term_width = 100)]
struct Arguments {
    /// Measured times.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Type of the products whose times count.
    #[arg(long, value_name = "TYPE", default_value_t = Precision::F32)]
    precision: Precision,
    /// Widths whose times count; all unless told.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    widths: Vec<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    end(run(&arguments).and_then(|text| {
        let mut out = output(None)?;
        writeln!(out, "{text}").map_err(|error| Failure::new(Exit::File, error))?;
        Ok(Exit::Right)
    }))
}

fn run(arguments: &Arguments) -> Result<String, Failure> {
    let mut data = FitData::default();
    for path in &arguments.files {
        for (number, line) in (1..).zip(read(path)?.lines()) {
            data.add(line, arguments.precision)
                .map_err(|error| Failure::file(path, format!("line {number}: {error}")))?;
        }
    }
    let mut cases = data.cases();
    cases.retain(|case| arguments.widths.is_empty() || arguments.widths.contains(&case.width));
    match cases.is_empty() {
        true => Err(Failure::new(Exit::Usage, "no times of points for a matrix whose longest row is known")),
        false => Ok(fit(&cases).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_what_a_fit_needs_are_refused() {
        let parse = |words: &[&str]| Arguments::try_parse_from(["windrow-fit"].iter().chain(words)).unwrap();
        let path = std::env::temp_dir().join(format!("windrow-fit-test-{}.jsonl", std::process::id()));
        let arguments = parse(&[path.to_str().unwrap()]);
        assert_eq!(run(&arguments).unwrap_err().exit, Exit::File);
        std::fs::write(&path, "{}\n").unwrap();
        let failure = run(&arguments).unwrap_err();
        assert!(failure.exit == Exit::File && failure.message.contains("line 1"), "{failure:?}");
        std::fs::write(&path, "").unwrap();
        assert_eq!(run(&arguments).unwrap_err().exit, Exit::Usage);
        std::fs::remove_file(path).unwrap();
        assert!(Arguments::try_parse_from(["windrow-fit"]).is_err());
    }
}

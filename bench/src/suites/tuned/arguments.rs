//! Arguments of `windrow-bench tuned`, and their way to the suite's options.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use windrow::{Determinism, Device, Precision};

use super::fit::paths::{self, PathRecords};
use super::fit::{FitData, fit};
use super::summary::summarise;
use super::{Options, Tuned, TunedRecord};
use crate::measure::Limits;
use crate::program::{Command, Common, Failure, MatrixArguments, Records, progress};
use crate::suites::matrices::Values;

/// The quickest way to each product of many matrices and widths.
///
/// A line has what the default takes, the best of every family, what was tried, and who won. With --tree nothing is
/// searched: row-split and every division of segment groups that the default's decision tree can answer for the width
/// are timed.
///
/// With --fit, FILE are lines of --tree, and of the suite spmm if some line tells the longest row of the matrix: the
/// thresholds of that tree are fitted to them. Told are the thresholds as host/src/spmm/points.rs has them, and how far
/// behind the best measured time the tree is: the one that is there, the fitted one, and, for each matrix, the one that
/// is fitted to all other matrices.
///
/// With --fit-paths, FILE are lines of the suites spmm, tuned, sddmm and plans: what each path takes (costs.paths of a
/// profile) is fitted to their times. Told are the numbers as host/src/costs/h200.rs has them, and how far behind the
/// best measured path the one is that auto takes: by the numbers that are there, the fitted ones, and, for each matrix,
/// those that are fitted to all other matrices.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    matrices: MatrixArguments,
    /// Columns of B; with --fit, widths whose times count, all unless told.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    widths: Vec<usize>,
    /// Seconds for each matrix and width.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.5)]
    budget: f64,
    /// Time every division of the default's decision tree instead of searching.
    #[arg(long, conflicts_with = "budget")]
    tree: bool,
    /// Fit the thresholds of that tree to measured times.
    #[arg(long, conflicts_with_all = ["tree", "budget", "synthetic", "summarise", "resume"])]
    fit: bool,
    /// Fit what each path takes to measured times.
    #[arg(long, conflicts_with_all = ["fit", "tree", "budget", "synthetic", "summarise", "resume", "widths"])]
    fit_paths: bool,
    /// Batches of each division, with --tree.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,
    /// Type in which A and B are multiplied: f32, tf32, f16, bf16 or f64.
    #[arg(long, value_name = "TYPE", default_value_t = Precision::F32)]
    precision: Precision,
    /// Whether two runs give the same bits: run-to-run or fast.
    #[arg(long, value_name = "NAME", default_value_t = Determinism::default())]
    determinism: Determinism,
    /// Leave out cuSPARSE's SpMM.
    #[arg(long)]
    no_peers: bool,
    /// Values of the matrices: those of the file, or random ones in [0, 1).
    #[arg(long, default_value_t = Values::File)]
    values: Values,
}

/// Columns of B that are measured unless told.
const WIDTHS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

impl Command for Arguments {
    type Suite = Tuned;

    fn common(&self) -> &Common {
        &self.common
    }

    fn check(&self) -> Result<(), Failure> {
        self.budget()?;
        self.matrices.sources(&self.common).map(drop)
    }

    fn open(&self, device: &Device, _talk: &mut dyn Write) -> Result<Tuned, Failure> {
        let budget = self.budget()?;
        let options = Options {
            sources: self.matrices.sources(&self.common)?,
            widths: if self.widths.is_empty() { WIDTHS.to_vec() } else { self.widths.clone() },
            precision: self.precision,
            determinism: self.determinism,
            limits: (!self.tree).then(|| Limits { budget, ..Limits::default() }),
            batches: self.batches,
            values: self.values,
            seed: self.common.seed,
            sampling: self.common.sampling(),
            peers: !self.no_peers,
            progress,
        };
        Ok(Tuned::open(device, options))
    }

    fn line(record: &TunedRecord) -> String {
        let facts = &record.facts;
        let what = format!("{:<22} {:>4}", facts.matrix.name, facts.width);
        if let Some(error) = &record.error {
            return format!("{what}  FAILED: {error}");
        }
        let us = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.1}"));
        format!(
            "{what}  default {:>8} µs, tuned {:>8} µs, cuSPARSE {:>8} µs, {:>3} tried in {:.2} s: {}",
            us(facts.default_us),
            us(facts.tuned_us()),
            us(facts.peer_us()),
            facts.tried.len(),
            facts.seconds,
            facts.winner.as_ref().map_or("the default", String::as_str)
        )
    }

    fn summarise(&self, records: &[TunedRecord]) -> Result<String, Failure> {
        Ok(summarise(records))
    }

    fn otherwise(&self) -> Option<Result<String, Failure>> {
        self.fit.then(|| self.fit()).or_else(|| self.fit_paths.then(|| self.fit_paths()))
    }
}

impl Arguments {
    fn budget(&self) -> Result<Duration, Failure> {
        Duration::try_from_secs_f64(self.budget)
            .map_err(|error| Failure::usage(format!("--budget {}: {error}", self.budget)))
    }

    /// What paths take, fitted to files of times.
    fn fit_paths(&self) -> Result<String, Failure> {
        let mut records = PathRecords::default();
        Records::read(&self.common.files)?.each(|line| records.add(line))?;
        let found = paths::fit(records);
        match found.is_empty() {
            true => {
                Err(Failure::usage("no times of a matrix whose longest row and column vectors are known"))
            }
            false => Ok(found.to_string()),
        }
    }

    /// The thresholds that fit files of times.
    fn fit(&self) -> Result<String, Failure> {
        let mut data = FitData::default();
        Records::read(&self.common.files)?.each(|line| data.add(line, self.precision))?;
        let mut cases = data.cases();
        cases.retain(|case| self.widths.is_empty() || self.widths.contains(&case.width));
        match cases.is_empty() {
            true => Err(Failure::usage("no times of points for a matrix whose longest row is known")),
            false => Ok(format!("{}\n", fit(&cases))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Exit;
    use crate::suites::testing::{parse_suite, temporary};

    #[test]
    fn files_without_what_a_fit_needs_are_refused() {
        let path = temporary("fit.jsonl");
        let arguments: Arguments = parse_suite(&["--fit", path.to_str().unwrap()]);
        let fitted = || arguments.otherwise().expect("a fit is asked for");
        assert_eq!(fitted().unwrap_err().exit, Exit::File);
        std::fs::write(&path, "{}\n").unwrap();
        let failure = fitted().unwrap_err();
        assert!(failure.exit == Exit::File && failure.message.contains("line 1"), "{failure:?}");
        std::fs::write(&path, "").unwrap();
        assert_eq!(fitted().unwrap_err().exit, Exit::Usage);
        std::fs::remove_file(path).unwrap();
        let nothing: Arguments = parse_suite(&["--fit"]);
        assert_eq!(nothing.otherwise().unwrap().unwrap_err().exit, Exit::Usage);
    }
}

//! Arguments of `windrow reorder`.

use std::path::PathBuf;

use clap::Args;
use windrow::reorder::{Method, Options, SimilarityOptions};

use super::ReadArgs;
use crate::failure::{Failure, Result};

/// Find an order of the rows in which neighbours share columns.
///
/// Writes the order as text, the old row of each new one, for spmm --reorder. Prints how many rows of B a product
/// gathers in either order, 8 rows at a time, and what finding the new one cost. OUT appears whole or not at all:
/// Ctrl-C leaves it as it was.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windrow reorder graph.mtx.gz graph.order
  windrow reorder graph.mtx.gz graph.order.gz --method rcm --json
  windrow reorder graph.mtx.gz graph.order --alpha 1 --no-windows --no-exchange --no-arrangement
  windrow spmm graph.mtx.gz --width 128 --precision f16 --reorder graph.order")]
pub(crate) struct ReorderArgs {
    /// The matrix; - reads standard input.
    pub(crate) file: PathBuf,

    /// The file for the order; one that exists is replaced; compressed if its name ends in .gz; - is standard output.
    pub(crate) out: PathBuf,

    /// How rows are ordered: identity, degree, rcm, community, minhash or similarity.
    ///
    /// identity: as they are; degree: longest first; rcm: reverse Cuthill-McKee, by distance in the graph;
    /// community: communities found by merging, as Rabbit order; minhash: by shared columns that min-wise hashing
    /// finds, what GPUs make, too; similarity: by shared columns, after RSH-SpMM.
    #[arg(long, short, value_name = "METHOD", default_value_t = Method::default())]
    pub(crate) method: Method,

    /// Exponent of a column's weight, degree^-ALPHA, when rows are compared, 0 to 4; 0 weighs all alike.
    #[arg(long, value_name = "ALPHA", default_value_t = SimilarityOptions::default().alpha)]
    #[arg(value_parser = parse_alpha)]
    pub(crate) alpha: f64,

    #[command(flatten)]
    similarity: SimilarityArgs,

    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

/// What only `--method similarity` has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Only with --method similarity")]
struct SimilarityArgs {
    #[arg(help = numbered("Most similar rows to remember of each row, 1 to 64", |of| of.neighbours))]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=64))]
    neighbours: Option<u16>,

    #[arg(help = numbered("Rows to compare each row with, at most, 1 to 4096", |of| of.candidates))]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    candidates: Option<u16>,

    #[arg(help = numbered("Columns of least degree by which a row is found, 1 to 4096", |of| of.representatives))]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    representatives: Option<u16>,

    /// Start from the order of the matrix, not from a spanning forest of similar rows.
    #[arg(long)]
    no_forest: bool,

    /// Leave the rows of a window in the order in which they come.
    #[arg(long)]
    no_two_opt: bool,

    /// Leave isolated rows where they are.
    #[arg(long)]
    no_isolated: bool,

    /// Do not fill windows with rows that share columns.
    #[arg(long)]
    no_windows: bool,

    /// Do not exchange rows between windows.
    #[arg(long)]
    no_exchange: bool,

    /// Leave the windows in the order in which they come.
    #[arg(long)]
    no_arrangement: bool,
}

impl ReorderArgs {
    /// What the library is told.
    ///
    /// # Errors
    /// A usage error for an option that the method does not have.
    pub(crate) fn options(&self) -> Result<Options> {
        let args = &self.similarity;
        if let Some(option) = args.first_given().filter(|_| self.method != Method::Similarity) {
            let method = self.method;
            return Err(Failure::usage(format!("{option} is for --method similarity, not for {method}")));
        }
        let default = SimilarityOptions::default();
        let number = |given: Option<u16>, default| given.map_or(default, usize::from);
        let similarity = SimilarityOptions {
            alpha: self.alpha,
            neighbours: number(args.neighbours, default.neighbours),
            candidates: number(args.candidates, default.candidates),
            representatives: number(args.representatives, default.representatives),
            forest: !args.no_forest,
            two_opt: !args.no_two_opt,
            isolated: !args.no_isolated,
            windows: !args.no_windows,
            exchange: !args.no_exchange,
            arrangement: !args.no_arrangement,
        };
        Ok(Options { method: self.method, similarity })
    }
}

impl SimilarityArgs {
    fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--neighbours", self.neighbours.is_some()),
            ("--candidates", self.candidates.is_some()),
            ("--representatives", self.representatives.is_some()),
            ("--no-forest", self.no_forest),
            ("--no-two-opt", self.no_two_opt),
            ("--no-isolated", self.no_isolated),
            ("--no-windows", self.no_windows),
            ("--no-exchange", self.no_exchange),
            ("--no-arrangement", self.no_arrangement),
        ];
        given.into_iter().find_map(|(option, given)| given.then_some(option))
    }
}

/// Help for an option whose default is the library's.
fn numbered(help: &str, number: fn(SimilarityOptions) -> usize) -> String {
    format!("{help} [default: {}]", number(SimilarityOptions::default()))
}

fn parse_alpha(text: &str) -> std::result::Result<f64, String> {
    let alpha = text.parse().ok().filter(|alpha| (0.0..=4.0).contains(alpha));
    alpha.ok_or_else(|| "give a number from 0 to 4".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    fn options(more: &[&str]) -> Result<Options> {
        let line = ["windrow", "reorder", "a.mtx", "a.order"].iter().chain(more);
        match Arguments::parse_from(line).command {
            Command::Reorder(args) => args.options(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_options_it_is_what_the_library_does() {
        assert_eq!(options(&[]).unwrap(), Options::default());
        let numbers = options(&["--neighbours", "1", "--candidates", "2", "--representatives", "3"]).unwrap();
        let SimilarityOptions { neighbours, candidates, representatives, .. } = numbers.similarity;
        assert_eq!((neighbours, candidates, representatives), (1, 2, 3));
    }

    #[test]
    fn each_switch_is_one_stage() {
        let stages = |more: &[&str]| {
            let found = options(more).unwrap().similarity;
            let SimilarityOptions { forest, two_opt, isolated, windows, exchange, arrangement, .. } = found;
            [forest, two_opt, isolated, windows, exchange, arrangement]
        };
        let switches = ["forest", "two-opt", "isolated", "windows", "exchange", "arrangement"];
        for (at, name) in switches.into_iter().enumerate() {
            let mut want = [true; 6];
            want[at] = false;
            assert_eq!(stages(&[&format!("--no-{name}")]), want, "{name}");
        }
        let paper = options(&["--no-windows", "--no-exchange", "--no-arrangement"]).unwrap().similarity;
        assert_eq!(paper, SimilarityOptions::as_in_paper());
    }

    #[test]
    fn other_methods_have_no_stages() {
        let failure = options(&["--method", "rcm", "--no-two-opt"]).unwrap_err();
        assert_eq!(failure.to_string(), "--no-two-opt is for --method similarity, not for rcm");
        let alpha = options(&["--method", "rcm", "--alpha", "1"]).unwrap();
        assert_eq!((alpha.method, alpha.similarity.alpha), (Method::ReverseCuthillMckee, 1.0));
    }

    #[test]
    fn alpha_is_a_number_in_its_range() {
        assert_eq!((parse_alpha("0"), parse_alpha("0.75")), (Ok(0.0), Ok(0.75)));
        for text in ["", "-0.1", "4.1", "nan", "inf", "half"] {
            assert!(parse_alpha(text).is_err(), "{text}");
        }
    }
}

//! `windrow reorder`: an order of the rows in which neighbours share columns.

use std::fmt;

use serde::Serialize;
use windrow::reorder::{Locality, Method, Options, Reordering};
use windrow::{Csr, StageTime, io};

use crate::args::ReorderArgs;
use crate::console::Console;
use crate::failure::Result;
use crate::listing::{Align, Listing, Table};
use crate::output::Output;
use crate::units::{bytes, count, time_us};
use crate::{load, ordering};

/// What `windrow reorder` prints, and writes with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    file: String,
    output: String,
    rows: usize,
    cols: usize,
    nnz: usize,
    method: &'static str,
    alpha: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    similarity: Option<Similarity>,
    before: Quality,
    after: Quality,
    /// Whether the order that was found gathers more than the matrix's own, which was then kept.
    kept_original: bool,
    /// Sum of the stages.
    reorder_us: f64,
    stages: Vec<StageTime>,
    /// Size of the file.
    bytes: u64,
}

/// How rows were compared, and which stages ran.
#[derive(Debug, Serialize)]
struct Similarity {
    neighbours: usize,
    candidates: usize,
    representatives: usize,
    forest: bool,
    two_opt: bool,
    isolated: bool,
    windows: bool,
    exchange: bool,
    arrangement: bool,
}

/// What neighbouring rows have in common in one order.
#[derive(Debug, Serialize)]
struct Quality {
    column_vectors: u64,
    nnz_per_vector: f64,
    column_vectors_16: u64,
    block_columns: u64,
    dissimilarity: f64,
}

pub(crate) fn run(args: &ReorderArgs, console: Console) -> Result<()> {
    let options = args.options()?;
    let output = Output::of(&args.out, &[&args.file], console)?;
    let (a, _) = load::read::<f32>(&args.file, &args.read, console)?;
    console.note(format_args!(
        "{}: ordering {} rows with {} entries, method {}",
        io::printable(&args.file),
        count(a.rows()),
        count(a.nnz()),
        options.method
    ));
    let found = ordering::find(&a, &options, console)?;
    output.write(
        |path| io::write_permutation(path, &found.permutation),
        |stream| io::write_permutation_to(stream, &found.permutation),
    )?;
    let outcome = Outcome::of(args, output, (&a, &options), &found);
    console.summary(output, &outcome)?;
    console.object("reorder", &outcome)
}

impl Outcome {
    fn of(
        args: &ReorderArgs,
        output: Output<'_>,
        (a, options): (&Csr<f32>, &Options),
        found: &Reordering,
    ) -> Self {
        let stages: Vec<StageTime> = found
            .stages
            .iter()
            .map(|stage| StageTime { name: stage.name, us: stage.seconds * 1e6 })
            .collect();
        Self {
            file: args.file.display().to_string(),
            output: output.name(),
            rows: a.rows(),
            cols: a.cols(),
            nnz: a.nnz(),
            method: options.method.name(),
            alpha: options.similarity.alpha,
            similarity: (options.method == Method::Similarity).then(|| Similarity::of(options)),
            before: Quality::of(&found.quality.before),
            after: Quality::of(&found.quality.after),
            kept_original: found.kept_original,
            reorder_us: stages.iter().map(|stage| stage.us).sum(),
            stages,
            bytes: output.bytes(),
        }
    }
}

impl Similarity {
    fn of(options: &Options) -> Self {
        let from = &options.similarity;
        Self {
            neighbours: from.neighbours,
            candidates: from.candidates,
            representatives: from.representatives,
            forest: from.forest,
            two_opt: from.two_opt,
            isolated: from.isolated,
            windows: from.windows,
            exchange: from.exchange,
            arrangement: from.arrangement,
        }
    }
}

impl Quality {
    fn of(locality: &Locality) -> Self {
        Self {
            column_vectors: locality.column_vectors,
            nnz_per_vector: locality.entries_per_vector,
            column_vectors_16: locality.column_vectors_16,
            block_columns: locality.block_columns,
            dissimilarity: locality.dissimilarity,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, cols) = (count(self.rows), count(self.cols));
        let kept = match self.kept_original {
            true => "; its order gathers more than the matrix's own, which is kept",
            false => "",
        };
        let mut listing = Listing::default();
        listing.add("matrix", format!("{rows} × {cols}, {} entries", count(self.nnz)));
        listing.add("method", format!("{}{kept}", self.method));
        writeln!(f, "{listing}\n")?;
        writeln!(f, "{}\n", self.comparison())?;
        let mut listing = Listing::default();
        listing.add("time", time_us(self.reorder_us));
        for stage in &self.stages {
            listing.add("", format!("{:<18}  {}", stage.name, time_us(stage.us)));
        }
        listing.add("order", format!("{}, {}", self.output, bytes(self.bytes)));
        write!(f, "{listing}")
    }
}

impl Outcome {
    /// A table of the order before and after.
    fn comparison(&self) -> String {
        let table = Table::new(&[
            ("rows without entries left out", 0, Align::Left),
            ("before", 13, Align::Right),
            ("after", 13, Align::Right),
        ]);
        let line = |what: &str, value: fn(&Quality) -> String| {
            table.row(&[what.to_owned(), value(&self.before), value(&self.after)])
        };
        [
            table.titles(),
            line("column vectors", |quality| count(quality.column_vectors)),
            line("nonzeros per column vector", |quality| format!("{:.3}", quality.nnz_per_vector)),
            line("the same of 16 rows each", |quality| count(quality.column_vectors_16)),
            line("columns per 4096 rows, summed", |quality| count(quality.block_columns)),
            line("dissimilarity of neighbours", |quality| format!("{:.4}", quality.dissimilarity)),
        ]
        .join("\n")
    }
}

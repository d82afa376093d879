//! `windrow gen`: the synthetic matrices.

use serde::Serialize;
use windrow::synthetic::Synthetic;

use crate::args::GenArgs;
use crate::console::Console;
use crate::failure::{Failure, Result};
use crate::listing::{Align, Table};
use crate::load::{self, Written};
use crate::output::Output;

/// One synthetic matrix, as listed.
#[derive(Debug, Serialize)]
struct Known {
    name: &'static str,
    about: &'static str,
}

/// What `windrow gen` prints about the matrix that it wrote.
#[derive(Debug, Serialize)]
struct Made {
    name: &'static str,
    seed: u64,
    #[serde(flatten)]
    written: Written,
}

#[derive(Debug, Serialize)]
struct List {
    matrices: Vec<Known>,
}

pub(crate) fn run(args: &GenArgs, console: Console) -> Result<()> {
    if args.list {
        return list(console);
    }
    let (Some(name), Some(output)) = (args.name, &args.output) else {
        return Err(Failure::usage("give a name and a file, or --list"));
    };
    let output = Output::of(output, &[], console)?;
    let options = load::write_options(output, args.to)?;
    let spinner = console.spinner(format_args!("making {name}"));
    let a = name.generate::<f32>(args.seed);
    spinner.finish_and_clear();
    let a = a?;
    let written = load::write(output, &a, &options, console)?;
    console.summary(output, &written)?;
    console.object("gen", &Made { name: name.name(), seed: args.seed, written })
}

fn list(console: Console) -> Result<()> {
    let matrices: Vec<Known> =
        Synthetic::ALL.into_iter().map(|kind| Known { name: kind.name(), about: about(kind) }).collect();
    let table = Table::new(&[("name", 13, Align::Left), ("what it is like", 0, Align::Left)]);
    console.line(table.titles())?;
    for Known { name, about } in &matrices {
        console.line(table.row(&[(*name).to_owned(), (*about).to_owned()]))?;
    }
    console.object("gen", &List { matrices })
}

fn about(kind: Synthetic) -> &'static str {
    match kind {
        Synthetic::Rmat17 => "R-MAT graph, 131,072 vertices, 16 edges drawn each: power law, hubs",
        Synthetic::Uniform200k => "200,000 rows of 16 entries in columns without any pattern",
        Synthetic::Fem100k => "finite elements, 100,002 unknowns in 3 x 3 blocks within a band",
        Synthetic::Molbatch300k => "batch of molecules, 300,000 atoms: small blocks on the diagonal",
        Synthetic::Powerlaw100k => "100,000 rows whose lengths follow a power law, one of them very long",
        Synthetic::Pruned4096 => "4096 x 4096 weights, 90 % of them pruned without structure",
        Synthetic::Roadlike500k => "road network, 500,000 crossings with a few near neighbours",
        Synthetic::Community60k => "60,000 vertices in communities of 300",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_matrix_is_described() {
        for kind in Synthetic::ALL {
            assert!(!about(kind).is_empty(), "{kind}");
        }
    }
}

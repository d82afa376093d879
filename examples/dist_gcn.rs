//! Trains a graph convolutional network on a graph that several ranks have together, and on one device, and compares.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example dist_gcn -- graph.mtx.gz --ranks 4 --epochs 20
//! $ cargo run --release -p windrow-examples --example dist_gcn -- --devices cuda:0,cuda:1 --precision f32
//! ```
//!
//! Ranks are threads, or with `--processes` the processes that a launcher starts, as in `dist_spmm`.
//!
//! Each rank has the nodes whose rows of the normalised adjacency matrix it owns, with their features and labels, and
//! all weights, whose gradients are summed. The model is in `common/gcn.rs`, what is a rank's of it in
//! `common/ranks.rs`. Exit code 1 if losses are further apart than 10⁻⁴, or 10⁻² where operands are rounded.

mod common;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use windrow::dist::Communicator;
use windrow::{Csr, Device, Precision};

use common::Result;
use common::data::Task;
use common::gcn::Gcn;
use common::group::Group;
use common::lane::Lane;
use common::model::Tools;
use common::options::Options;
use common::ranks;
use common::train::{Training, median};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    group: Group,
}

/// The loss of each epoch, and its time in ms.
type Course = (Vec<f64>, Vec<f64>);

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // A standard error that is closed has nobody to tell.
            let _ = writeln!(std::io::stderr(), "dist_gcn: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(Arguments { options, group }: &Arguments) -> Result<bool> {
    let graph = options.graph()?;
    let task = options.task(&graph)?;
    group.run(|rank, device| of_rank(rank, device, (&graph, &task), options))
}

/// The training of one rank's nodes, after that of all on rank 0's device; whether losses agree.
fn of_rank(
    rank: &Communicator,
    device: &Device,
    (graph, task): (&Csr<f32>, &Task),
    options: &Options,
) -> Result<bool> {
    let tools = || Tools::new(Lane::own(device), options.dense);
    let trained_alone = || {
        let model = Gcn::new(graph, task, &options.shape(), tools()?)?;
        course(Training::new(model, task, device, options.learning_rate)?, options.epochs)
    };
    // Rank 0 measures while the others wait.
    let alone: Option<Course> = if rank.rank() == 0 { Some(trained_alone()?) } else { None };
    let alone = rank.all_gather(&alone)?.swap_remove(0).unwrap_or_default();
    let part = ranks::part(rank, graph)?;
    let own = task.of_nodes(ranks::nodes(&part));
    let model = ranks::gcn(rank, &part, (&own, &options.shape()), tools()?)?;
    let own = course(Training::new(model, &own, device, options.learning_rate)?, options.epochs)?;
    // Each rank knows its nodes' part of the loss.
    let mut together: Course = (vec![0.0; options.epochs], vec![0.0; options.epochs]);
    for (losses, times) in rank.all_gather(&own)? {
        together.0.iter_mut().zip(losses).for_each(|(sum, loss)| *sum += loss);
        together.1.iter_mut().zip(times).for_each(|(slowest, time)| *slowest = slowest.max(time));
    }
    let apart = together.0.iter().zip(&alone.0).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    if rank.rank() == 0 {
        let (first, last) = (together.0.first().unwrap_or(&0.0), together.0.last().unwrap_or(&0.0));
        let mut out = std::io::stdout().lock();
        writeln!(out, "{} nodes, {} entries, {} ranks", graph.rows(), graph.nnz(), rank.size())?;
        writeln!(out, "losses {first:.5} to {last:.5}, apart from one device's by {apart:.1e} at most")?;
        writeln!(out, "median epoch {:.3} ms, on one device {:.3} ms", median(together.1), median(alone.1))?;
    }
    let tolerance = if options.precision == Precision::F32 { 1e-4 } else { 1e-2 };
    Ok(apart <= tolerance)
}

fn course<M: common::model::Model>(mut training: Training<M>, epochs: usize) -> Result<Course> {
    let mut losses = Vec::with_capacity(epochs);
    let times = training.run(epochs, |_, training| {
        losses.push(f64::from(training.outcome()?.loss));
        Ok(())
    })?;
    Ok((losses, times))
}

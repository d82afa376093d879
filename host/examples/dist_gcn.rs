//! Trains a graph convolutional network on a graph that several ranks have together, and on one device, and compares.
//!
//! ```console
//! $ cargo run --release -p windrow --features dist --example dist_gcn -- graph.mtx.gz --ranks 4 --epochs 20
//! $ cargo run --release -p windrow --features dist --example dist_gcn -- --devices cuda:0,cuda:1 --precision f32
//! ```
//!
//! Each rank has the nodes whose rows of the normalised adjacency matrix it owns, with their features and labels, and
//! all weights, whose gradients are summed. The model is in `common/gcn.rs`, what is a rank's of it in
//! `common/ranks.rs`. Exit code 1 if losses are further apart than 10⁻⁴, or 10⁻² where operands are rounded.

mod common;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use windrow::dist::Communicator;
use windrow::{Csr, Device, DeviceSelector, Precision};

use common::Result;
use common::data::Task;
use common::gcn::Gcn;
use common::lane::Lane;
use common::model::Tools;
use common::options::Options;
use common::ranks;
use common::train::{Training, median};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Ranks, each a thread.
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// Devices that the ranks have by turns; the first trains alone, too.
    #[arg(long, default_value = "cpu", value_delimiter = ',')]
    devices: Vec<String>,
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

fn run(arguments: &Arguments) -> Result<bool> {
    let Arguments { options, ranks, devices } = arguments;
    let devices: Vec<Device> =
        devices.iter().map(|name| Ok(name.parse::<DeviceSelector>()?.open()?)).collect::<Result<_>>()?;
    let graph = options.graph()?;
    let task = options.task(&graph)?;
    let tools = |device: &Device| Tools::new(Lane::own(device), options.dense);
    let alone = {
        let model = Gcn::new(&graph, &task, &options.shape(), tools(&devices[0])?)?;
        course(Training::new(model, &task, &devices[0], options.learning_rate)?, options.epochs)?
    };
    let found: Vec<Result<Course>> = std::thread::scope(|scope| {
        let group = Communicator::threads(*ranks)?.into_iter().zip(devices.iter().cycle());
        let threads: Vec<_> = group
            .map(|(rank, device)| {
                let (graph, task) = (&graph, &task);
                scope.spawn(move || of_rank(&rank, device, (graph, task), options))
            })
            .collect();
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(course) => course,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        Ok::<_, windrow::DistError>(ended.collect())
    })?;
    // Each rank knows its nodes' part of the loss.
    let mut together: Course = (vec![0.0; options.epochs], vec![0.0; options.epochs]);
    for course in found {
        let (losses, times) = course?;
        together.0.iter_mut().zip(losses).for_each(|(sum, loss)| *sum += loss);
        together.1.iter_mut().zip(times).for_each(|(slowest, time)| *slowest = slowest.max(time));
    }
    let apart = together.0.iter().zip(&alone.0).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    let (first, last) = (together.0.first().unwrap_or(&0.0), together.0.last().unwrap_or(&0.0));
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} nodes, {} entries, {ranks} ranks", graph.rows(), graph.nnz())?;
    writeln!(out, "losses {first:.5} to {last:.5}, apart from one device's by {apart:.1e} at most")?;
    writeln!(out, "median epoch {:.3} ms, on one device {:.3} ms", median(together.1), median(alone.1))?;
    let tolerance = if options.precision == Precision::F32 { 1e-4 } else { 1e-2 };
    Ok(apart <= tolerance)
}

/// The training of one rank's nodes.
fn of_rank(
    rank: &Communicator,
    device: &Device,
    (graph, task): (&Csr<f32>, &Task),
    options: &Options,
) -> Result<Course> {
    let part = ranks::part(rank, graph)?;
    let task = task.of_nodes(ranks::nodes(&part));
    let tools = Tools::new(Lane::own(device), options.dense)?;
    let model = ranks::gcn(rank, &part, (&task, &options.shape()), tools)?;
    course(Training::new(model, &task, device, options.learning_rate)?, options.epochs)
}

fn course<M: common::model::Model>(mut training: Training<M>, epochs: usize) -> Result<Course> {
    let mut losses = Vec::with_capacity(epochs);
    let times = training.run(epochs, |_, training| {
        losses.push(f64::from(training.outcome()?.loss));
        Ok(())
    })?;
    Ok((losses, times))
}

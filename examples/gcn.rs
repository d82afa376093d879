//! Trains a five-layer graph convolutional network on any graph and says how long epochs take.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example gcn -- graph.mtx.gz --epochs 200 --hidden 128 --profile
//! $ cargo run --release -p windrow-examples --example gcn -- --device cpu --precision f32 --epochs 20 # made-up graph
//! ```
//!
//! The model is in `common/gcn.rs`. On a GPU dense products are cuBLAS's, which must be there.

mod common;

use std::process::ExitCode;

use clap::Parser;

use common::gcn::Gcn;
use common::options::Options;
use common::train;

fn main() -> ExitCode {
    let options = Options::parse();
    train::main("gcn", &options, |graph, task| {
        let tools = options.tools()?;
        let device = tools.device.clone();
        let model = Gcn::new(graph, task, &options.shape(), tools)?;
        let reports = if options.reports { model.reports() } else { String::new() };
        Ok((model, device, reports))
    })
}

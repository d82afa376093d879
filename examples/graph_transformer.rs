//! Trains a five-layer graph transformer on any graph and says how long epochs take.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example graph_transformer -- graph.mtx.gz --heads 8 --profile
//! $ cargo run --release -p windrow-examples --example graph_transformer -- --device cpu --precision f32 --epochs 20
//! ```
//!
//! The model is in `common/graph_transformer.rs`. On a GPU dense products are cuBLAS's, which must be there.

mod common;

use std::process::ExitCode;

use clap::Parser;

use common::graph_transformer::Layer;
use common::options::HeadedOptions;
use common::stack;

fn main() -> ExitCode {
    let arguments = HeadedOptions::parse();
    stack::main::<Layer>("graph_transformer", &arguments.options, &arguments.shape())
}

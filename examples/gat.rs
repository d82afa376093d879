//! Trains a five-layer graph attention network (GAT) on any graph and says how long epochs take.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example gat -- graph.mtx.gz --hidden 128 --heads 8 --profile
//! $ cargo run --release -p windrow-examples --example gat -- --device cpu --precision f32 --epochs 20
//! ```
//!
//! The model is in `common/gat.rs`. On a GPU dense products are cuBLAS's, which must be there.

mod common;

use std::process::ExitCode;

use clap::Parser;

use common::gat::Layer;
use common::options::HeadedOptions;
use common::stack;

fn main() -> ExitCode {
    let arguments = HeadedOptions::parse();
    stack::main::<Layer>("gat", &arguments.options, &arguments.shape())
}

//! Trains a five-layer attention-based graph neural network (AGNN) on any graph and says how long epochs take.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example agnn -- graph.mtx.gz --epochs 200 --hidden 128 --profile
//! $ cargo run --release -p windrow-examples --example agnn -- --device cpu --precision f32 --epochs 20 # made-up graph
//! ```
//!
//! Attention is computed by a sampled product, a softmax and a product; `--attention fused` computes it in one pass,
//! which needs no array of a number for each entry, and takes longer in f32. The model is in `common/agnn`. On a GPU
//! dense products are cuBLAS's, which must be there.

mod common;

use std::process::ExitCode;

use clap::Parser;

use common::agnn::{Way, one_pass, steps};
use common::options::Options;
use common::stack;

// The documentation of `Options` is the program's help.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// How attention is computed.
    #[arg(long, value_enum, default_value = "steps")]
    attention: Way,
}

fn main() -> ExitCode {
    let Arguments { options, attention } = Arguments::parse();
    match attention {
        Way::Fused => stack::main::<one_pass::Layer>("agnn-fused", &options, &options.shape()),
        Way::Steps => stack::main::<steps::Layer>("agnn", &options, &options.shape()),
    }
}

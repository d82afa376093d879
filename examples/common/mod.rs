//! What the examples share: a graph and classes for its nodes, dense products, models, and the training loop.

#![allow(dead_code, reason = "each example is a crate of its own and uses a part of this")]

pub(crate) mod agnn;
pub(crate) mod attention;
pub(crate) mod capture;
pub(crate) mod clock;
pub(crate) mod cublas;
pub(crate) mod data;
pub(crate) mod gat;
pub(crate) mod gcn;
pub(crate) mod gemm;
pub(crate) mod graph;
pub(crate) mod graph_transformer;
pub(crate) mod group;
pub(crate) mod lane;
pub(crate) mod mlp;
pub(crate) mod model;
pub(crate) mod options;
pub(crate) mod ranks;
pub(crate) mod stack;
pub(crate) mod stress;
pub(crate) mod train;

use std::io::Write;
use std::process::ExitCode;

/// Whatever went wrong, with a message for a person.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What a program that found its results right, or not, tells who has called it.
pub(crate) fn exit_code(is_right: Result<bool>) -> ExitCode {
    match is_right {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nobody is left to tell if standard error is closed.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

//! What can go wrong with attention.

use thiserror::Error;

use super::plan::PlanError;
use super::via_plan_error;
use crate::attention::AttentionAlgorithm;
use crate::options::Precision;

/// Why attention, [`GraphAttention`](crate::GraphAttention), could not be planned or run.
///
/// Every message has the numbers and what to do about them.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum AttentionError {
    /// A combination of algorithm and precision that no kernel of attention implements.
    #[error(
        "attention by {algorithm} does not support precision {precision}; use {}",
        if algorithm.supports(Precision::F32) { "f32, f16 or bf16" } else { "f16 or bf16, or algorithm rows" }
    )]
    Unsupported {
        /// The algorithm asked for.
        algorithm: AttentionAlgorithm,
        /// The precision asked for.
        precision: Precision,
    },
    /// Scores that are no products, with an algorithm that multiplies `Q` and `K`.
    #[error("attention by {algorithm} multiplies Q and K; with other scores use algorithm auto or rows")]
    Additive {
        /// The algorithm asked for.
        algorithm: AttentionAlgorithm,
    },
    /// A slope of the rectifier that is no number or infinite.
    #[error("a negative slope of {found} is not finite; graph attention networks have 0.2")]
    NegativeSlope {
        /// The slope asked for.
        found: f32,
    },
    /// Heads of no or too many columns, or no heads.
    #[error("{found} {what} are not between 1 and {most}; {remedy}")]
    Extent {
        /// What there are so many of.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        most: usize,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Windows of another number of rows than kernels have.
    #[error("windows of {found} rows: there are kernels for 4 and 8")]
    WindowRows {
        /// The rows asked for.
        found: u32,
    },
    /// A share of weights to leave out that is no share.
    #[error("a dropout of {found} is not at least 0 and below 1")]
    DropoutRate {
        /// The rate asked for.
        found: f32,
    },
    /// A bias that the plan was not made for.
    #[error("the plan's windows by columns take no bias; build it with `biased(true)`")]
    NotBiased,
    /// Scores of `GATv2` without their vector.
    #[error("scores of GATv2 have a vector for each head; give the operands theirs")]
    NoVector,
    /// A vector, or a gradient of one, of scores that have none.
    #[error("only scores of GATv2 have a vector; build the plan with `gatv2`, or leave it out")]
    NeedlessVector,
    /// A gradient of a bias, of a run that has none.
    #[error("there is no bias whose gradient could be computed; give the operands theirs, or ask for none")]
    NoBias,
    /// Gradients of a plan that was not made for them.
    #[error("the plan computes no gradients; build it with `gradients(true)`")]
    NoGradients,
    /// A matrix with more columns than windows by columns can name.
    #[error(
        "windows of {rows} rows by columns name {limit} columns at most, of {found}; use algorithm entries"
    )]
    TooManyColumns {
        /// Columns of the matrix.
        found: usize,
        /// Rows of a window.
        rows: u32,
        /// How many they can name.
        limit: usize,
    },
    /// What can go wrong with any plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

via_plan_error!(AttentionError);

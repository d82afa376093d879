//! What can go wrong with reductions.

use thiserror::Error;

use super::plan::PlanError;
use super::via_plan_error;
use crate::aggregate::Reduce;
use crate::options::Precision;

/// Why a reduction, [`Aggregate`](crate::Aggregate), could not be planned or run.
///
/// Every message has the numbers and what to do about them.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum AggregateError {
    /// A precision in which there are no reductions.
    #[error("there are no reductions of {precision}; use f32, f16 or bf16")]
    Unsupported {
        /// The precision asked for.
        precision: Precision,
    },
    /// Winners of a reduction that has none.
    #[error("a {reduce} has no winners to keep; they are those of max and min")]
    NoWinners {
        /// What the plan reduces by.
        reduce: Reduce,
    },
    /// A gradient of a maximum or a minimum without what it came from.
    #[error("the gradient of a {reduce} needs the winners that the forward pass keeps; give it `winners`")]
    Unkept {
        /// What the plan reduces by.
        reduce: Reduce,
    },
    /// Values, or their gradient, of a plan for which they do not matter.
    #[error("the plan's messages are copies, which have no values; build it with `message` mul or add")]
    NoValues,
    /// Gradients of a plan that was not made for them.
    #[error("the plan computes no gradients; build it with `gradients(true)`")]
    NoGradients,
    /// What can go wrong with any plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

via_plan_error!(AggregateError);

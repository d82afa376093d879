//! What can go wrong with products of tensors.

use thiserror::Error;

use super::plan::PlanError;
use super::via_plan_error;
use crate::options::Precision;
use crate::parallelism::IllegalPoint;

/// Why a product of a tensor, [`Mttkrp`](crate::Mttkrp), could not be planned or run.
///
/// Every message has the numbers and what to do about them.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum TensorError {
    /// A precision that no kernel implements.
    #[error("MTTKRP does not support precision {precision}; use precision f32, f64 or f16")]
    Unsupported {
        /// The precision asked for.
        precision: Precision,
    },
    /// A division of the work that there is not.
    #[error(transparent)]
    IllegalPoint(#[from] IllegalPoint),
    /// What can go wrong with any product.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

via_plan_error!(TensorError);

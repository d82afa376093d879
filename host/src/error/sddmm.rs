//! What can go wrong with sampled products.

use thiserror::Error;

use super::plan::PlanError;
use super::via_plan_error;
use crate::options::Precision;
use crate::parallelism::IllegalPoint;
use crate::sddmm::SddmmAlgorithm;

/// Why a sampled product, [`Sddmm`](crate::Sddmm), could not be planned or run.
///
/// Every message has the numbers and what to do about them.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum SddmmError {
    /// A combination of algorithm and precision that no kernel of sampled products implements.
    #[error(
        "sampled products by {algorithm} do not support precision {precision}; use {}, or algorithm entries",
        sampled_precisions(*algorithm)
    )]
    Unsupported {
        /// The algorithm asked for.
        algorithm: SddmmAlgorithm,
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

via_plan_error!(SddmmError);

/// What an algorithm of sampled products supports, of those that do not support all.
fn sampled_precisions(algorithm: SddmmAlgorithm) -> &'static str {
    match algorithm {
        SddmmAlgorithm::Groups => "f32, f64 or f16",
        SddmmAlgorithm::RowPanels => "f32",
        _ => "tf32, bf16 or f16",
    }
}

//! What can go wrong with sparse times dense.

use thiserror::Error;

use super::plan::PlanError;
use super::via_plan_error;
use crate::activation::Activation;
use crate::options::{Algorithm, Precision, TilePipeline};
use crate::parallelism::IllegalPoint;

/// Why a product, [`Spmm`](crate::Spmm) or [`Ttm`](crate::Ttm), could not be planned or run.
///
/// Every message has the numbers and what to do about them. Rows and columns are counted from 0.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum SpmmError {
    /// `A` is m×k but `B` does not have k rows.
    #[error("A has {a_cols} columns but B has {b_rows} rows; they must be equal")]
    InnerDim {
        /// Columns of `A`, which `B` must have as rows.
        a_cols: usize,
        /// Rows that `B` has.
        b_rows: usize,
    },
    /// A packed `B` whose length is no multiple of its number of rows.
    #[error(
        "B has {len} elements, which is not a whole number of columns for {a_cols} rows (the columns of A)"
    )]
    PackedLength {
        /// Elements that `B` has.
        len: usize,
        /// Columns of `A`, the rows that `B` must have.
        a_cols: usize,
    },
    /// A combination of algorithm and precision that no kernel implements.
    #[error("algorithm {algorithm} does not support precision {precision}; {remedy}")]
    Unsupported {
        /// The algorithm asked for.
        algorithm: Algorithm,
        /// The precision asked for.
        precision: Precision,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A pipeline of tiles without kernels for the precision.
    #[error(
        "tile pipeline {pipeline} has kernels for f16 only, and the plan multiplies in {precision}; choose precision f16 or pipeline three-stages"
    )]
    NoPipeline {
        /// The pipeline asked for.
        pipeline: TilePipeline,
        /// Precision of the plan, for which it has no kernels.
        precision: Precision,
    },
    /// An activation that sums of the plan's precision do not have.
    #[error(
        "activation {activation} is computed in f32, and a plan of precision {precision} sums in f64; apply it to the \
         result, or choose precision f32"
    )]
    NoActivation {
        /// The activation asked for.
        activation: Activation,
        /// Precision of the plan, which has no such activation.
        precision: Precision,
    },
    /// A division of the work that there is not.
    #[error(transparent)]
    IllegalPoint(#[from] IllegalPoint),
    /// What can go wrong with any product.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

via_plan_error!(SpmmError);

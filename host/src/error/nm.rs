//! What can go wrong with products by N:M weights.

use thiserror::Error;
use windrow_formats::NmPattern;

use super::plan::PlanError;
use super::via_plan_error;
use crate::nm::NmAlgorithm;
use crate::options::Precision;

/// Why a product with N:M weights, [`NmSpmm`](crate::NmSpmm), could not be planned or run.
///
/// Every message has the numbers and what to do about them. Rows and columns are counted from 0.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum NmError {
    /// Packed activations whose length is no multiple of a row's.
    #[error(
        "A has {len} elements, which is not a whole number of rows of {weight_rows} (the rows of the weights)"
    )]
    PackedLength {
        /// Elements that `A` has.
        len: usize,
        /// Rows of the weights, the columns that `A` must have.
        weight_rows: usize,
    },
    /// A combination of algorithm and precision that no kernel of products with N:M weights implements.
    #[error(
        "products with N:M weights by {algorithm} do not support precision {precision}; use tf32, f16 or bf16, or \
         algorithm cuda-cores or auto"
    )]
    Unsupported {
        /// The algorithm asked for.
        algorithm: NmAlgorithm,
        /// The precision asked for.
        precision: Precision,
    },
    /// Weights that no kernel for Tensor Cores takes.
    #[error(
        "{} have no {precision} kernel for weights with pattern {pattern}: {reason}; use algorithm cuda-cores or auto",
        if *algorithm == NmAlgorithm::SparseTensorCores { "sparse-tensor-cores" } else { "tensor-cores" }
    )]
    NoTensorCores {
        /// The algorithm asked for; `Auto` if it was a kernel.
        algorithm: NmAlgorithm,
        /// The precision asked for.
        precision: Precision,
        /// That of the weights.
        pattern: NmPattern,
        /// What the kernels do not have.
        reason: String,
    },
    /// A dense product where the library that computes it is not.
    #[error(
        "a dense product needs cuBLAS: {reason}; or use algorithm auto with dense_fallback, which does without it"
    )]
    NoLibrary {
        /// Why it cannot be used.
        reason: String,
    },
    /// A kernel that there is not, or not for these weights.
    #[error(
        "there is no kernel {name:?} for {precision} with weights of pattern {pattern}; there are {known}"
    )]
    NoKernel {
        /// The name that was asked for.
        name: String,
        /// The precision asked for.
        precision: Precision,
        /// That of the weights.
        pattern: NmPattern,
        /// Names of the kernels that there are.
        known: String,
    },
    /// Weights that are not the plan's.
    #[error(
        "the weights are {} × {} with pattern {}, the plan's {} × {} with pattern {}",
        found.0, found.1, found.2, expected.0, expected.1, expected.2
    )]
    OtherWeights {
        /// Rows, columns and pattern of the weights given.
        found: (usize, usize, NmPattern),
        /// Those of the plan's.
        expected: (usize, usize, NmPattern),
    },
    /// New values for a plan that does not know where each belongs.
    #[error(
        "the plan was not made of weights on its device, and does not hold where values belong; make it of a \
         `DeviceVectorNm` of f32, f16 or bf16, or build another plan"
    )]
    NoPlaces,
    /// The gradient of activations, of a plan that was built without.
    #[error("the plan was built without the gradient of the activations; build it with `activations(true)`")]
    NoActivations,
    /// A result that cannot be verified.
    #[error(
        "a result {} depends on what C held before, which is gone; verify a run with beta = 0 and no gate",
        if *gated { "that is gated".to_owned() } else { format!("with beta = {beta}") }
    )]
    OldOutput {
        /// The factor of what `C` held.
        beta: f32,
        /// Whether the result was multiplied by what `C` held.
        gated: bool,
    },
    /// A row of a result that there is not.
    #[error("row {row} is beyond C, which has {rows} rows; they are counted from 0")]
    NoSuchRow {
        /// The row asked for.
        row: usize,
        /// The rows that there are.
        rows: usize,
    },
    /// What can go wrong with any product.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

via_plan_error!(NmError);

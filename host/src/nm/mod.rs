//! Products with vector-wise N:M weights: plans and their parts.

mod algorithm;
mod builder;
mod cuda_cores;
mod dense;
mod fallback;
mod few_rows;
mod fragments;
mod gpu;
mod gradients;
mod host;
mod kernels;
mod launch;
mod making;
mod model;
mod new_values;
mod operands;
mod options;
mod parts;
mod placing;
mod plan;
mod report;
mod staging;
mod tensor_cores;
mod tiles;
mod tuning;
mod verify;
mod warpgroups;
mod weights;
mod workspace;

pub use builder::NmSpmmBuilder;
pub use gradients::{NmGradientBuilder, NmGradientPlan, NmGradientReport, NmGradients};
pub use options::{ActivationLayout, NmAlgorithm, NmOptions, NmPacking};
pub use plan::NmSpmmPlan;
pub use report::{NmBlock, NmDense, NmReport};
pub use weights::{DeviceVectorNm, NmAddresses};

use windrow_formats::{Value, VectorNm};

mod sealed {
    pub trait NmWeights {}
}

/// What plans of products with N:M weights are made of: [`VectorNm`] and [`DeviceVectorNm`].
pub trait NmWeights: sealed::NmWeights {}

impl<V: Value> sealed::NmWeights for VectorNm<V> {}
impl<V: Value> NmWeights for VectorNm<V> {}
impl<V: Value> sealed::NmWeights for DeviceVectorNm<'_, V> {}
impl<V: Value> NmWeights for DeviceVectorNm<'_, V> {}

/// `C[m×n] ← act(α·scale·A[m×k]·W[k×n] + β·C + bias)` for weights `W` with vector-wise N:M sparsity: the way
/// to a plan.
///
/// `A` is dense, what comes into a linear layer; `W` are its weights, of which in every `M` consecutive rows,
/// in every `L` consecutive columns, `N` rows are kept ([`VectorNm`];
/// [`prune_magnitude`](crate::prune_magnitude) makes such weights of dense ones). The product, its
/// preprocessing and the blocking of its kernels are after NM-SpMM (Ma et al., IPDPS 2025). The paper's
/// equation 1 has a factor `M/N`, which stands for the elements that were dropped; here it is a
/// [parameter](NmSpmmBuilder::scale) and 1 unless told: the exact product with the weights that are there.
///
/// # Examples
/// ```
/// use windrow::{Device, NmPattern, NmSpmm, VectorNm};
///
/// // W, 4 × 2: of every two rows, one is kept in each column.
/// let dense = [
///     1.0f32, 0.0, //
///     0.0, 2.0, //
///     0.0, 3.0, //
///     4.0, 0.0,
/// ];
/// let weights = VectorNm::from_dense(&dense, 4, 2, NmPattern::new(1, 2, 1)?)?;
/// let plan = NmSpmm::builder(&weights).build(&Device::cpu())?;
/// let a = [1.0, 1.0, 1.0, 1.0, 5.0, 6.0, 7.0, 8.0]; // 2 × 4, row-major
/// assert_eq!(plan.run(&a)?, [5.0, 5.0, 37.0, 33.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct NmSpmm;

impl NmSpmm {
    /// Starts a plan for products with `weights`, a [`VectorNm`] in host memory or a [`DeviceVectorNm`] in that of a
    /// device. The plan keeps what it needs; `weights` may be dropped after [`build`](NmSpmmBuilder::build) or
    /// [`build_on`](NmSpmmBuilder::build_on).
    pub fn builder<W: NmWeights>(weights: &W) -> NmSpmmBuilder<'_, W> {
        NmSpmmBuilder::new(weights)
    }
}

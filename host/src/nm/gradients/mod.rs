//! The gradients of products with N:M weights.

mod builder;
mod dense;
mod places;
mod plan;

pub use builder::NmGradientBuilder;
pub use plan::{NmGradientPlan, NmGradientReport};

use windrow_formats::Value;

use super::weights::DeviceVectorNm;

/// The gradients of `C[m×n] = scale·A[m×k]·W[k×n]` for weights `W` with vector-wise N:M sparsity: the way to a plan.
///
/// ```text
/// dA[m×k] = scale · dC[m×n] · Wᵀ                 of_activations_on
/// dV[t]   = scale · Σᵢ A[i, row(t)] · dC[i, col(t)]   of_values_on: for each kept value V[t] of W
/// ```
///
/// With them a pruned layer is fine-tuned where its weights are: what was dropped stays dropped. Both are products of
/// matrices that are dense but for the zeros of `W`, which lie along the wrong side for sparse Tensor Cores; they are
/// multiplied by the kernels for vectors that are kept whole (plain `wgmma` on Hopper, in f16 and bf16), or by cuBLAS
/// where it is [allowed](NmGradientBuilder::dense_fallback) and quicker. Two kernels lay the kept values out densely,
/// and take those that are kept out of the gradient of all.
///
/// The gradient of a bias is [`training::ColumnSums`](crate::training::ColumnSums) of `dC`, that through a ReLU
/// [`training::relu_backward`](crate::training::relu_backward).
///
/// # Examples
/// ```
/// use windrow::{DenseRef, Device, DeviceMatrix, DeviceVectorNm, NmGradients, NmPattern, VectorNm};
///
/// let device = Device::best()?;
/// // W, 2 × 2: of the two rows, one is kept in each column, 3 above and 5 below.
/// let weights = VectorNm::from_dense(&[3.0f32, 0.0, 0.0, 5.0], 2, 2, NmPattern::new(1, 2, 1)?)?;
/// let weights = DeviceVectorNm::from_host(&device, &weights)?;
/// let stream = device.stream();
/// let mut plan = NmGradients::builder(&weights).rows(1).build_on(&stream)?;
///
/// let upload = |x: &[f32]| DeviceMatrix::upload(&device, DenseRef::packed(x, 1, 2)?);
/// let (a, of_c) = (upload(&[10.0, 20.0])?, upload(&[1.0, 2.0])?);
/// let mut of_a = DeviceMatrix::<f32>::zeros(&device, 1, 2)?;
/// plan.of_activations_on(&stream, &of_c, &mut of_a)?;
/// assert_eq!(of_a.download()?, [3.0, 10.0]);
///
/// let mut of_values = DeviceMatrix::<f32>::zeros(&device, 1, 2)?;
/// plan.of_values_on(&stream, &a, &of_c, &mut of_values)?;
/// assert_eq!(of_values.download()?, [10.0, 40.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct NmGradients;

impl NmGradients {
    /// Starts a plan for the gradients of products with `weights`. The plan keeps what it needs; `weights` may be
    /// dropped after [`build_on`](NmGradientBuilder::build_on).
    pub fn builder<'a, V: Value>(weights: &'a DeviceVectorNm<'a, V>) -> NmGradientBuilder<'a, V> {
        NmGradientBuilder::new(weights)
    }
}

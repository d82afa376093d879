//! What a run hands to the kernels.

use super::activation::Activation;
use super::options::ActivationLayout;
use crate::options::Precision;

/// The operands of a run: addresses in device memory, and leading dimensions in elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operands {
    /// `A`, of the plan's element type.
    pub(super) a: u64,
    pub(super) lda: u32,
    pub(super) layout: ActivationLayout,
    /// `C`, of the type that `output` names.
    pub(super) c: u64,
    pub(super) ldc: u32,
    /// Type of `C`: f32, f16 or bf16.
    pub(super) output: Precision,
    /// Rows of `A` and `C`.
    pub(super) m: u32,
    /// Factor of the product: that of the run times that of the plan.
    pub(super) alpha: f32,
    pub(super) beta: f32,
    /// One f32 for each column of `C`; 0 if there is no bias.
    pub(super) bias: u64,
    pub(super) activation: Activation,
}

//! What a run hands to the kernels.

use windrow_kernels::nm::{Activate, Output, OutputType};
use windrow_simt::GlobalPtr;

use super::activation::Activation;
use super::options::ActivationLayout;
use crate::num::wide;
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

impl Operands {
    /// Their side of `C`, for `n` columns.
    pub(super) fn output_for(&self, n: u32) -> Output {
        let (element, bytes) = match self.output {
            Precision::F16 => (OutputType::F16, 2),
            Precision::Bf16 => (OutputType::Bf16, 2),
            _ => (OutputType::F32, 4),
        };
        let activate = match self.activation {
            Activation::Identity => Activate::Identity,
            Activation::Relu => Activate::Relu,
            Activation::Gelu => Activate::Gelu,
        };
        let vectors = self.c.is_multiple_of(4 * bytes)
            && self.ldc.is_multiple_of(4)
            && self.bias.is_multiple_of(wide(16));
        Output {
            c: GlobalPtr::from_address(self.c),
            bias: GlobalPtr::from_address(self.bias),
            m: self.m,
            n,
            ldc: self.ldc,
            alpha: self.alpha,
            beta: self.beta,
            flags: Output::flags(element, activate, vectors),
        }
    }
}

//! What a run hands to the kernels.

use windrow_kernels::Factor;
use windrow_kernels::output::{Output, OutputType};
use windrow_simt::GlobalPtr;

use super::options::ActivationLayout;
use crate::activation::Activation;
use crate::num::wide;

/// The operands of a run: addresses in device memory, and leading dimensions in elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operands {
    /// `A`, of the plan's element type.
    pub(super) a: u64,
    pub(super) lda: u32,
    pub(super) layout: ActivationLayout,
    /// Whether rows of `A`, as they lie, may be read to the end of the 16 bytes that their last element is in.
    pub(super) reads_vectors: bool,
    /// `C`, of the type that `output` names.
    pub(super) c: u64,
    pub(super) ldc: u32,
    /// Type that sums are rounded to when they are stored in `C`.
    pub(super) output: OutputType,
    /// Rows of `A` and `C`.
    pub(super) m: u32,
    /// Factor of the product: that of the run times that of the plan.
    pub(super) alpha: f32,
    pub(super) beta: f32,
    /// One f32 for each column of `C`; 0 if there is no bias.
    pub(super) bias: u64,
    pub(super) activation: Activation,
    /// Whether the result is multiplied by what `C` held.
    pub(super) gated: bool,
}

impl Operands {
    /// Their side of `C`, for `n` columns.
    pub(super) fn output_for(&self, n: u32) -> Output {
        let bytes = self.output.bytes(4);
        let vectors = self.c.is_multiple_of(4 * u64::from(bytes))
            && self.ldc.is_multiple_of(4)
            && self.bias.is_multiple_of(wide(16));
        Output {
            c: GlobalPtr::from_address(self.c),
            bias: GlobalPtr::from_address(self.bias),
            m: self.m,
            n,
            ldc: self.ldc,
            alpha: Factor::new(self.alpha),
            beta: Factor::new(self.beta),
            flags: Output::flags(self.output, self.activation.code(), vectors) | Output::gate(self.gated),
        }
    }
}

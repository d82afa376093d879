//! One step of the Adam optimiser (Kingma and Ba, 2015, algorithm 1).

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::{Extent, Matrix};
use crate::kernel::Kernel;
use crate::variant::Variant;

/// Arguments of [`Adam`].
///
/// # Obligations
/// Those of [`Extent`] and of every [`Matrix`]: `rows × cols`, none of which overlap. `numbers` is null, or a pair,
/// aligned to 8 bytes, which overlaps no matrix.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct AdamParams {
    /// The parameter `p`, which the step changes.
    pub parameter: Matrix,
    /// The gradient `g` with respect to it.
    pub gradient: Matrix,
    /// The mean of gradients, `m`.
    pub first: Matrix,
    /// The mean of their squares, `v`.
    pub second: Matrix,
    /// Where `step_size` and `correction` are, in this order, if they are not those given here: a launch in a graph has
    /// the same arguments each time. Null if they are.
    pub numbers: GlobalPtr<[f32; 2]>,
    /// Rows and columns of all four matrices.
    pub extent: Extent,
    /// `β₁`: what stays of `m`.
    pub beta1: f32,
    /// `β₂`: what stays of `v`.
    pub beta2: f32,
    /// `1 − β₁`, rounded once.
    pub rest1: f32,
    /// `1 − β₂`, rounded once.
    pub rest2: f32,
    /// The learning rate divided by `1 − β₁ᵗ`.
    pub step_size: f32,
    /// `1 / √(1 − β₂ᵗ)`.
    pub correction: f32,
    /// `ε`, added to the root, so that nothing is divided by zero.
    pub epsilon: f32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The kernel: `m ← β₁·m + (1 − β₁)·g`, `v ← β₂·v + (1 − β₂)·g²`, `p ← p − step·m / (√v·correction + ε)`.
pub struct Adam;

impl Kernel for Adam {
    type Params = AdamParams;
    const FILE: &'static str = "training";
    const VARIANT: Variant = Variant::Adam;
    const BLOCK_THREADS: u32 = Extent::BLOCK_THREADS;
    const UNITS_PER_BLOCK: u32 = Self::BLOCK_THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &AdamParams) {
        let [step_size, correction] = match p.numbers.address() == 0 {
            true => [p.step_size, p.correction],
            // SAFETY: what is not null is a pair, by the obligations of the params.
            false => unsafe { s.load(p.numbers) },
        };
        p.extent.each_quad(s, |quad| {
            // SAFETY: the quad is one of the matrices, which the params promise, and this thread's alone.
            unsafe {
                let gradient = p.gradient.load(s, quad);
                let mut first = p.first.load(s, quad);
                let mut second = p.second.load(s, quad);
                let mut parameter = p.parameter.load(s, quad);
                let mut i = 0;
                while i < gradient.len() {
                    let g = gradient[i];
                    first[i] = p.beta1 * first[i] + p.rest1 * g;
                    second[i] = p.beta2 * second[i] + p.rest2 * (g * g);
                    let denominator = s.sqrt(second[i]) * correction + p.epsilon;
                    parameter[i] -= step_size * first[i] / denominator;
                    i += 1;
                }
                p.first.store(s, quad, first);
                p.second.store(s, quad, second);
                p.parameter.store(s, quad, parameter);
            }
        });
    }
}

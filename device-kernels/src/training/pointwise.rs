//! Bias, ReLU, the gradient of ReLU and rounding, in one pass.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use super::{Extent, Matrix, QUAD, Quad};
use crate::kernel::Kernel;
use crate::row_softmax::times_factor;
use crate::variant::Variant;

/// Arguments of [`Pointwise`].
///
/// # Obligations
/// - those of [`Extent`], and of every [`Matrix`] that is there: `rows × cols`, `rounded` of 16-bit elements;
/// - `bias` is null or has `cols` elements; `factor` is null, or a number that nothing writes meanwhile;
/// - `out` may be `x`; nothing else overlaps what is written.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct PointwiseParams {
    /// The matrix that is read, in f32.
    pub x: Matrix,
    /// Elements that are not above zero here become zero; or none.
    pub gate: Matrix,
    /// The result in f32; or none.
    pub out: Matrix,
    /// The result in 16 bits, cast; or none.
    pub rounded: Matrix,
    /// What is added to each row; or null.
    pub bias: GlobalPtr<f32>,
    /// Another factor of `x`, of which only the device knows; null for 1.
    pub factor: GlobalPtr<f32>,
    /// Rows and columns of all matrices.
    pub extent: Extent,
    /// Whether elements that are not above zero become zero.
    pub rectify: u32,
    /// Whether `rounded` is bf16, not f16.
    pub rounds_to_bf16: u32,
    /// Factor of `x`, before the bias.
    pub scale: f32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The kernel: `y = scale·factor·x + bias`, `max(y, 0)` if it rectifies, 0 where the gate is not above zero. A NaN
/// stays one.
pub struct Pointwise;

impl Kernel for Pointwise {
    type Params = PointwiseParams;
    const FILE: &'static str = "training";
    const VARIANT: Variant = Variant::Pointwise;
    const BLOCK_THREADS: u32 = Extent::BLOCK_THREADS;
    const UNITS_PER_BLOCK: u32 = Self::BLOCK_THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &PointwiseParams) {
        // SAFETY: the factor is null or a number, and a quad is one of the matrices and its thread's alone: the params
        // promise it.
        unsafe {
            let scale = times_factor(s, p.scale, p.factor);
            p.extent.each_quad(s, |quad| {
                let mut elements = p.x.load(s, quad).map(|x| scale * x);
                let gate = if p.gate.is_there() { p.gate.load(s, quad) } else { [1.0; 4] };
                if p.bias.address() != 0 {
                    let mut i = 0;
                    while i < QUAD {
                        if i < quad.present {
                            elements[i as usize] += s.load_readonly(p.bias.at(quad.column + i));
                        }
                        i += 1;
                    }
                }
                let mut i = 0;
                while i < elements.len() {
                    // Written so that a NaN is not below.
                    if p.rectify != 0 && elements[i] <= 0.0 || gate[i] <= 0.0 {
                        elements[i] = 0.0;
                    }
                    i += 1;
                }
                if p.out.is_there() {
                    p.out.store(s, quad, elements);
                }
                if p.rounded.is_there() {
                    store_rounded(s, p, quad, elements);
                }
            });
        }
    }
}

/// Stores the elements of a quad in 16 bits each.
///
/// # Safety
/// As for [`Matrix::store`].
#[inline(always)]
unsafe fn store_rounded<S: Simt>(s: &S, p: &PointwiseParams, quad: Quad, elements: [f32; 4]) {
    let bits = elements.map(|x| if p.rounds_to_bf16 != 0 { s.f32_to_bf16(x) } else { s.f32_to_f16(x) });
    let to = p.rounded.data.cast::<u16>().at_wide(p.rounded.offset(quad));
    // SAFETY: the quad is one of the matrix, and this thread's alone, by the caller's promise.
    unsafe {
        if p.rounded.vectors != 0 && quad.present == QUAD {
            let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
            return s.store(to.cast::<[u32; 2]>(), [pair(bits[0], bits[1]), pair(bits[2], bits[3])]);
        }
        let mut i = 0;
        while i < QUAD {
            if i < quad.present {
                s.store(to.at(i), bits[i as usize]);
            }
            i += 1;
        }
    }
}

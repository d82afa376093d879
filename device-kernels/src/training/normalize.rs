//! Rows of length 1, and the gradient.
//!
//! ```text
//! y[r]    = x[r] / ‖x[r]‖, or 0 where ‖x[r]‖ ≤ ε
//! out[r] += scale·(g[r] − y[r]·(y[r]·g[r])) / ‖x[r]‖
//! ```
//!
//! A warp takes a row.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::cross_entropy::each_quad;
use super::{Matrix, QUAD};
use crate::kernel::Kernel;
use crate::row_softmax::{butterfly, times_factor};
use crate::variant::Variant;

/// Arguments of [`NormalizeRows`].
///
/// # Obligations
/// Those of every [`Matrix`]: `rows × cols`; `inverse_norms` has an element for each row; `y` may be `x`, nothing else
/// overlaps; `cols ≤ 2³² − 1024`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct NormalizeRowsParams {
    /// The rows that are to have length 1.
    pub x: Matrix,
    /// Those of length 1.
    pub y: Matrix,
    /// `1 / ‖x[r]‖`, or 0.
    pub inverse_norms: GlobalPtr<f32>,
    /// Rows of `x` and `y`.
    pub rows: u32,
    /// Columns of `x` and `y`.
    pub cols: u32,
    /// Rows of no more than this length become zero.
    pub epsilon: f32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Arguments of [`NormalizeRowsGrad`].
///
/// # Obligations
/// Those of every [`Matrix`]: `rows × cols`, none of which overlap; `inverse_norms` has an element for each row;
/// `cols ≤ 2³² − 1024`; `factor` is null, or a number that nothing writes meanwhile.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct NormalizeRowsGradParams {
    /// The rows of length 1 that [`NormalizeRows`] wrote.
    pub y: Matrix,
    /// The gradient with respect to it.
    pub gradient: Matrix,
    /// What the gradient with respect to the rows is added to.
    pub out: Matrix,
    /// `1 / ‖x[r]‖`, or 0.
    pub inverse_norms: GlobalPtr<f32>,
    /// Another factor of the gradient, of which only the device knows; null for 1.
    pub factor: GlobalPtr<f32>,
    /// Rows of `y` and the gradients.
    pub rows: u32,
    /// Columns of `y` and the gradients.
    pub cols: u32,
    /// Factor of the gradient.
    pub scale: f32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// The forward kernel: `y[r] = x[r] / ‖x[r]‖`.
pub struct NormalizeRows;
/// The backward kernel: what reaches `x` of the gradient with respect to `y`.
pub struct NormalizeRowsGrad;

impl NormalizeRows {
    /// Rows that a block of either kernel takes.
    pub const ROWS: u32 = Self::BLOCK_THREADS / WARP;
}

impl Kernel for NormalizeRows {
    type Params = NormalizeRowsParams;
    const FILE: &'static str = "training";
    const VARIANT: Variant = Variant::NormalizeRows;
    const BLOCK_THREADS: u32 = 256;
    const UNITS_PER_BLOCK: u32 = NormalizeRows::ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &NormalizeRowsParams) {
        let row = s.block_idx() * Self::ROWS + s.warp();
        let cols = if row < p.rows { p.cols } else { 0 };
        // SAFETY: quads are those of the row, by the obligations of the params, each one lane's. All lanes of a warp
        // reach the shuffles: they stand outside of the loops.
        unsafe {
            let mut squares = 0.0;
            each_quad(s, row, cols, |quad| {
                let x = p.x.load(s, quad);
                squares = dot(s, x, x, squares);
            });
            let norm = s.sqrt(butterfly::<S, WARP>(s, squares, |a, b| a + b));
            // Written so that a NaN is not below.
            let inverse = if norm <= p.epsilon { 0.0 } else { 1.0 / norm };
            each_quad(s, row, cols, |quad| {
                let x = p.x.load(s, quad);
                p.y.store(s, quad, x.map(|x| x * inverse));
            });
            if row < p.rows && s.lane() == 0 {
                s.store(p.inverse_norms.at(row), inverse);
            }
        }
    }
}

impl Kernel for NormalizeRowsGrad {
    type Params = NormalizeRowsGradParams;
    const FILE: &'static str = "training";
    const VARIANT: Variant = Variant::NormalizeRowsGrad;
    const BLOCK_THREADS: u32 = NormalizeRows::BLOCK_THREADS;
    const UNITS_PER_BLOCK: u32 = NormalizeRows::ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &NormalizeRowsGradParams) {
        let row = s.block_idx() * NormalizeRows::ROWS + s.warp();
        let cols = if row < p.rows { p.cols } else { 0 };
        // SAFETY: as for the forward kernel.
        unsafe {
            let mut along = 0.0;
            each_quad(s, row, cols, |quad| {
                along = dot(s, p.y.load(s, quad), p.gradient.load(s, quad), along);
            });
            let along = butterfly::<S, WARP>(s, along, |a, b| a + b);
            let inverse = if row < p.rows { s.load_readonly(p.inverse_norms.at(row)) } else { 0.0 };
            let factor = times_factor(s, p.scale, p.factor) * inverse;
            each_quad(s, row, cols, |quad| {
                let (y, gradient) = (p.y.load(s, quad), p.gradient.load(s, quad));
                let mut out = p.out.load(s, quad);
                let mut i = 0;
                while i < out.len() {
                    out[i] += factor * (gradient[i] - y[i] * along);
                    i += 1;
                }
                p.out.store(s, quad, out);
            });
        }
    }
}

/// `sum + a·b`, element after element, each step rounded once.
#[inline(always)]
fn dot<S: Simt>(s: &S, a: [f32; 4], b: [f32; 4], mut sum: f32) -> f32 {
    let mut i = 0;
    while i < QUAD as usize {
        sum = s.fma(a[i], b[i], sum);
        i += 1;
    }
    sum
}

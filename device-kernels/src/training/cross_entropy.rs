//! Softmax cross-entropy over the rows of a matrix, with its gradient.
//!
//! ```text
//! loss[r]        = w·(log Σ exp(x − max x) − (x[label] − max x))       w = weights[r]
//! gradient[r, c] = w·(exp(x[c] − max x) / Σ exp(x − max x) − [c = label])
//! ```
//!
//! A warp takes a row. Logits are read three times, from L1 after the first.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::{Matrix, QUAD, Quad};
use crate::kernel::Kernel;
use crate::row_softmax::butterfly;
use crate::variant::Variant;

/// Numbers that are written for each row: its loss; 1 if it has a weight and is predicted right; 1 if it has none and
/// is predicted right; 0.
pub const OUTCOMES: u32 = 4;

/// Arguments of [`CrossEntropy`].
///
/// # Obligations
/// - those of every [`Matrix`]: `rows × cols`; `gradient` may be `logits`, and overlaps nothing else;
/// - `labels` and `weights` have an element for each row, `outcomes` has [`OUTCOMES`], aligned to 16 bytes;
/// - labels are below `cols`; `0 < cols ≤ 2³² − 1024`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct CrossEntropyParams {
    /// The logits `x`, a column for each class.
    pub logits: Matrix,
    /// The gradient with respect to the logits.
    pub gradient: Matrix,
    /// The class of each row.
    pub labels: GlobalPtr<u32>,
    /// What each row counts; 0 for one that does not.
    pub weights: GlobalPtr<f32>,
    /// What became of each row.
    pub outcomes: GlobalPtr<[f32; 4]>,
    /// Rows of the logits, each with a label.
    pub rows: u32,
    /// Columns of the logits: the classes.
    pub cols: u32,
}

/// The kernel: gradient, loss and prediction of each row, a warp for each.
pub struct CrossEntropy;

impl CrossEntropy {
    /// Rows that a block takes.
    pub const ROWS: u32 = Self::BLOCK_THREADS / WARP;
}

/// The largest of some logits, and its column.
#[derive(Clone, Copy)]
struct Best {
    value: f32,
    column: u32,
}

impl Best {
    /// The larger, of equals the one with the lower column.
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        let less = self.value < other.value || self.value == other.value && other.column < self.column;
        if less { other } else { self }
    }
}

impl Kernel for CrossEntropy {
    type Params = CrossEntropyParams;
    const FILE: &'static str = "training";
    const VARIANT: Variant = Variant::CrossEntropy;
    const BLOCK_THREADS: u32 = 256;
    const UNITS_PER_BLOCK: u32 = Self::ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &CrossEntropyParams) {
        // 1. Locate. A warp without a row goes through it all with no columns.
        let row = s.block_idx() * Self::ROWS + s.warp();
        let present = row < p.rows;
        let cols = if present { p.cols } else { 0 };
        // SAFETY: quads are those of the row, by the obligations of the params, each one lane's. All lanes of a warp
        // reach the shuffles: they stand outside of the loops, whose bounds differ.
        unsafe {
            let label = if present { s.load_readonly(p.labels.at(row)) } else { 0 };
            let weight = if present { s.load_readonly(p.weights.at(row)) } else { 0.0 };
            // 2. to 4. Gather and reduce.
            let mut best = Best { value: f32::NEG_INFINITY, column: u32::MAX };
            each_quad(s, row, cols, |quad| {
                let logits = p.logits.load(s, quad);
                let mut i = 0;
                while i < QUAD {
                    if i < quad.present {
                        best = best.or(Best { value: logits[i as usize], column: quad.column + i });
                    }
                    i += 1;
                }
            });
            let mut half = WARP / 2;
            while half >= 1 {
                let value = f32::from_bits(s.shuffle_xor(best.value.to_bits(), half));
                best = best.or(Best { value, column: s.shuffle_xor(best.column, half) });
                half /= 2;
            }
            let exponential = |x: f32| s.exp2((x - best.value) * core::f32::consts::LOG2_E);
            let (mut sum, mut own) = (0.0, 0.0);
            each_quad(s, row, cols, |quad| {
                let logits = p.logits.load(s, quad);
                let mut i = 0;
                while i < QUAD {
                    if i < quad.present {
                        sum += exponential(logits[i as usize]);
                        own += if quad.column + i == label { logits[i as usize] - best.value } else { 0.0 };
                    }
                    i += 1;
                }
            });
            let sum = butterfly::<S, WARP>(s, sum, |a, b| a + b);
            // Zero from all lanes but one.
            let own = butterfly::<S, WARP>(s, own, |a, b| a + b);
            // 5. Registers -> global.
            let factor = weight / sum;
            each_quad(s, row, cols, |quad| {
                let mut elements = p.logits.load(s, quad);
                let mut i = 0;
                while i < QUAD {
                    let share = exponential(elements[i as usize]) * factor;
                    let truth = if quad.column + i == label { weight } else { 0.0 };
                    // A row without weight has no gradient, whatever its logits.
                    elements[i as usize] = if weight == 0.0 { 0.0 } else { share - truth };
                    i += 1;
                }
                p.gradient.store(s, quad, elements);
            });
            if present && s.lane() == 0 {
                let loss = s.log2(sum) * core::f32::consts::LN_2 - own;
                let right = if best.column == label { 1.0 } else { 0.0 };
                let outcome = match weight == 0.0 {
                    true => [0.0, 0.0, right, 0.0],
                    false => [weight * loss, right, 0.0, 0.0],
                };
                s.store(p.outcomes.at(row), outcome);
            }
        }
    }
}

/// Calls `work` with each quad of this lane in a row of `cols` columns.
#[inline(always)]
pub(super) fn each_quad<S: Simt>(s: &S, row: u32, cols: u32, mut work: impl FnMut(Quad)) {
    let mut column = QUAD * s.lane();
    while let Some(quad) = Quad::at(row, column, cols) {
        work(quad);
        column += QUAD * WARP;
    }
}

//! Products with vector-wise N:M weights: cases, the f64 reference, and the bound per element.

mod cases;
mod reference;

pub use cases::{nm_edge_cases, nm_non_finite_cases, nm_patterns, nm_random_case, nm_value_cases};
pub use reference::{NmReference, assert_nm_matches, compare_nm, nm_error_bound, nm_spmm};

use windrow_formats::synthetic::seeded_weights;
use windrow_formats::{NmPattern, Value, VectorNm};

use crate::case::row_major;
use crate::{PADDING_MARK, SplitMix64, Values, round_tf32};

/// What is applied to each element in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NmActivation {
    /// `x` as it is.
    Identity,
    /// `max(x, 0)`; a NaN stays one.
    Relu,
    /// `½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
    Gelu,
    /// `x / (1 + e⁻ˣ)`.
    Silu,
}

impl NmActivation {
    /// Whether its result is rounded, of whatever whole number.
    pub const fn rounds(self) -> bool {
        matches!(self, Self::Gelu | Self::Silu)
    }
}

/// How the activations `A[m×k]` are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NmLayout {
    /// Row after row, `lda ≥ k`.
    RowMajor,
    /// Column after column, `lda ≥ m`: a row-major k × m matrix.
    KMajor,
}

/// Everything of an [`NmCase`] that is not the weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NmOperands {
    /// Rows of `A` and `C`.
    pub m: usize,
    /// How `A` is stored.
    pub layout: NmLayout,
    /// What leading dimensions have beyond the extent, in elements.
    pub padding: usize,
    /// The factors of the product and of what `C` holds: `(α, β)`.
    pub scalars: (f32, f32),
    /// The plan's own factor of the product.
    pub scale: f32,
    /// Whether there is a bias.
    pub bias: bool,
    /// What is applied in the end.
    pub activation: NmActivation,
    /// Whether the result is multiplied by what `C` holds.
    pub gated: bool,
    /// What the elements are.
    pub values: Values,
}

/// One product `C[m×n] ← act(α·scale·A[m×k]·W[k×n] + β·C + bias)`, times what `C` holds if it is gated, with all it
/// needs.
///
/// `a` is stored as `layout` says with leading dimension `lda`, `c` row-major with leading dimension `ldc`; both end
/// with the last element of their last row. What lies between is NaN in `a` and [`PADDING_MARK`] in `c`. If β = 0
/// and nothing is gated, the elements of `c` are NaN, which must not be read. Columns of `A` that no kept vector names
/// hold NaN and infinities.
#[derive(Debug, Clone)]
pub struct NmCase {
    /// What is particular about it, and its sizes; unique in a table.
    pub name: String,
    /// The weights, k × n.
    pub weights: VectorNm<f32>,
    /// Rows of `A` and `C`.
    pub m: usize,
    /// How `a` is stored.
    pub layout: NmLayout,
    /// Leading dimension of `a`, in elements.
    pub lda: usize,
    /// Leading dimension of `c`, in elements.
    pub ldc: usize,
    /// Factor of the product, given to each run.
    pub alpha: f32,
    /// Factor of what `c` held.
    pub beta: f32,
    /// Factor of the product, given to the plan.
    pub scale: f32,
    /// The activations, row-major, m × k.
    pub a: Vec<f32>,
    /// What `C` holds before.
    pub c: Vec<f32>,
    /// One number for each column of `C`.
    pub bias: Option<Vec<f32>>,
    /// What is applied in the end.
    pub activation: NmActivation,
    /// Whether the result is multiplied by what `C` holds.
    pub gated: bool,
    /// Whether every sum is exact in f32 in any order, so that the result must equal the reference.
    pub exact: bool,
}

impl NmCase {
    /// A case with these weights and the described operands, filled from `rng`.
    ///
    /// It is exact if the operands are [`Values::Integers`], as the values of `weights` must then be too, and the
    /// activation does not round.
    pub fn new(name: &str, weights: VectorNm<f32>, operands: NmOperands, rng: &mut SplitMix64) -> Self {
        let NmOperands {
            m, layout, padding, scalars: (alpha, beta), scale, values, activation, gated, ..
        } = operands;
        let (k, n, pattern) = (weights.rows(), weights.cols(), weights.pattern());
        let (rows, cols) = stored(layout, m, k);
        let (lda, ldc) = (cols + padding, n + padding);
        let mut a = row_major((rows, cols, lda), f32::NAN, || values.next(rng));
        for (i, r) in unnamed_rows(&weights).into_iter().enumerate() {
            for row in 0..m {
                a[place(layout, lda, row, r)] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][i % 3];
            }
        }
        let c = row_major((m, n, ldc), PADDING_MARK, || {
            if beta == 0.0 && !gated { f32::NAN } else { values.next(rng) }
        });
        let bias = operands.bias.then(|| (0..n).map(|_| values.next(rng)).collect());
        let name = format!(
            "{name}: {m} x {k} x {n}, {pattern}, {layout:?}, lda = {lda}, ldc = {ldc}, alpha = {alpha}, beta = {beta}, \
             scale = {scale}, {}{activation:?}{}",
            if operands.bias { "bias, " } else { "" },
            if gated { ", gated" } else { "" }
        );
        let exact = values == Values::Integers && !activation.rounds();
        Self { name, weights, m, layout, lda, ldc, alpha, beta, scale, a, c, bias, activation, gated, exact }
    }

    /// Rows of the weights, columns of `A`.
    pub fn k(&self) -> usize {
        self.weights.rows()
    }

    /// Columns of the weights and of `C`.
    pub fn n(&self) -> usize {
        self.weights.cols()
    }

    /// Rows and columns of `a` as it is stored: `(m, k)`, or `(k, m)` for [`NmLayout::KMajor`].
    pub fn stored_a(&self) -> (usize, usize) {
        stored(self.layout, self.m, self.k())
    }

    /// The element of `A` in row `row` and column `column`, whatever the layout.
    ///
    /// # Panics
    /// If there is none.
    pub fn a_at(&self, row: usize, column: usize) -> f32 {
        self.a[place(self.layout, self.lda, row, column)]
    }

    /// The case with weights and `A` rounded to `V`: what a path with elements of that type computes.
    #[must_use]
    pub fn rounded_to<V: Value>(&self) -> Self {
        self.with_rounded(V::NAME, |x| V::from_f32(x).to_f32())
    }

    /// The case with weights and `A` rounded to tf32.
    #[must_use]
    pub fn rounded_to_tf32(&self) -> Self {
        self.with_rounded("tf32", round_tf32)
    }

    /// The case with only what `C` holds rounded to `V`.
    #[must_use]
    pub fn with_c_rounded_to<V: Value>(&self) -> Self {
        Self { c: self.c.iter().map(|&x| V::from_f32(x).to_f32()).collect(), ..self.clone() }
    }

    fn with_rounded(&self, what: &str, round: impl Fn(f32) -> f32) -> Self {
        let values = self.weights.values().iter().map(|&x| round(x)).collect();
        Self {
            name: format!("{} [{what}]", self.name),
            weights: self.weights.with_values(values).expect("as many as before"),
            a: self.a.iter().map(|&x| round(x)).collect(),
            ..self.clone()
        }
    }
}

/// Weights of `k × n` with values from `rng`, each vector that is kept chosen by it.
///
/// # Panics
/// If they have 2³² rows or columns.
pub fn nm_weights(
    (k, n): (usize, usize),
    pattern: NmPattern,
    values: Values,
    rng: &mut SplitMix64,
) -> VectorNm<f32> {
    let weights =
        seeded_weights::<f32>((k, n), pattern, rng.next_u64()).expect("fewer than 2³² rows and columns");
    let values = (0..weights.kept()).map(|_| values.next(rng)).collect();
    weights.with_values(values).expect("one for each that there was")
}

/// Rows and columns of `A[m×k]` as it is stored.
fn stored(layout: NmLayout, m: usize, k: usize) -> (usize, usize) {
    match layout {
        NmLayout::RowMajor => (m, k),
        NmLayout::KMajor => (k, m),
    }
}

/// Where the element of `A` in `row` and `column` is.
fn place(layout: NmLayout, lda: usize, row: usize, column: usize) -> usize {
    match layout {
        NmLayout::RowMajor => row * lda + column,
        NmLayout::KMajor => column * lda + row,
    }
}

/// Rows of the weights from which nothing is kept, ascending.
fn unnamed_rows(weights: &VectorNm<f32>) -> Vec<usize> {
    let mut named = vec![false; weights.rows()];
    for (u, v) in (0..weights.kept_rows()).flat_map(|u| (0..weights.vectors()).map(move |v| (u, v))) {
        named[weights.source_row(u, v)] = true;
    }
    (0..weights.rows()).filter(|&row| !named[row]).collect()
}

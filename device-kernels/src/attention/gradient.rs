//! The gradient of attention, recomputed: of the forward pass only the maximum and the sum of each row are kept.
//!
//! ```text
//! p[i, j]  = exp(t[i, j] − max t[i]) / Σ_j exp(t[i, j] − max t[i])       t as in the forward pass
//! w[i, j]  = 0 if the weight was dropped, else 1 / (1 − rate)
//! D[i]     = Σ_c dO[i, c]·O[i, c]
//! ds[i, j] = p[i, j] · (w[i, j] · Σ_c dO[i, c]·V[j, c] − D[i])
//! dQ[i, :] = scale · Σ_j ds[i, j] · K[j, :]       dbias[i, j] = ds[i, j]
//! dK[j, :] = scale · Σ_i ds[i, j] · Q[i, :]       dV[j, :] = Σ_i p[i, j]·w[i, j] · dO[i, :]
//! ```
//!
//! Where scores are additive, `dQ[i] = scale · Σ_j dz[i, j]`, `dK[j] = scale · Σ_i dz[i, j]` and
//! `dbias[i, j] = scale · dz[i, j]` with `dz = ds · leaky_relu'(Q[i] + K[j] + bias[i, j])`. Of those of `GATv2`
//! `dQ[i, c] = scale · a[c] · Σ_j dz[i, j, c]`, `dK` likewise, and `da[c] = scale · Σ_ij ds[i, j] · leaky_relu(z)` with
//! `z = Q[i, c] + K[j, c]` and `dz = ds · leaky_relu'(z)`; each row leaves what it adds to `da`, and sums of columns
//! ([`ColumnSums`](crate::training::ColumnSums)) make the rest.
//!
//! Two passes of one kernel, [`AttentionGradient`]: [`OverRows`] walks the rows of the matrix and [`OverColumns`] those
//! of its transpose, so that every sum is one warp's and no element is added to by several. Each multiplies the two
//! rows that it has (`Q` and `dO`, or `K` and `V`) by the two of each entry (`K` and `V`, or `Q` and `dO`). Rows of
//! many entries are blocks' work as in the forward pass, in pieces that [`AttentionGradientJoin`] adds up.
//!
//! Where scores are products of 16-bit elements, [`AttentionGradientWindows`] makes the same passes on Tensor Cores,
//! over windows of 8 rows or columns whose distinct entries are listed once.

use bytemuck::{Pod, Zeroable};
use windrow_simt::GlobalPtr;

mod join;
mod pass;
mod windows;

pub use self::join::{AttentionGradientJoin, AttentionGradientJoinParams};
pub use self::pass::{AttentionGradient, GradientPass, OverColumns, OverRows};
pub use self::windows::AttentionGradientWindows;

use super::{ATTENTION_WARPS, DroppedWeights, EntryBias, HeadMatrix, ScoreKind, WalkHeads};

/// What the pass over rows leaves of a row for the one over columns: what scores are taken relative to, the reciprocal
/// of the sum of weights, `D`, and a zero.
pub type RowTerms = [f32; 4];

/// Those of a row whose maximum and sum the forward pass has kept, and whose result and its gradient have the product
/// `term`.
#[inline(always)]
const fn row_terms([max, sum]: [f32; 2], term: f32) -> RowTerms {
    // Of a row without entries, or all of whose scores are minus infinity, no weight is anything but 0.
    let base = if max == f32::NEG_INFINITY { 0.0 } else { max };
    [base, if sum == 0.0 { 0.0 } else { 1.0 / sum }, term, 0.0]
}

/// Where sums go, multiplied by a factor.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct SumsTo {
    /// The gradient that they are.
    pub matrix: HeadMatrix,
    /// What sums are multiplied by.
    pub scale: f32,
    /// Type of the gradient: [`OutputType::code`](crate::output::OutputType::code).
    pub code: u32,
}

/// Arguments of [`AttentionGradient`].
///
/// # Obligations
/// - over rows, `own` is `Q` and `dO`, `gathered` is `K` and `V`; over columns the other way round. Each has as many
///   rows as the matrix has rows or columns, and as many columns as its counterpart, at most those that the kernel has
///   room for ([`AttentionGradient::WIDTH`]). Where kernels read vectors, rows begin at multiples of 16 bytes, and have
///   a multiple of that. Where scores are additive, `Q` and `K` are of f32 and one column, of any alignment;
/// - `vector` has a number for each head and column of `Q`, heads slowest, if scores are those of `GATv2`, and is else
///   null;
/// - `sums` is `dQ` over rows, with what rows add to `da`, if there is a vector, and `dK` and `dV` over columns;
/// - `offsets` says where each row (over columns: column) begins among the entries, and the last ends; `entries` has
///   the column (over columns: row) of each; fewer than 2³¹ entries;
/// - `pieces` is as for [`AttentionParams`](super::AttentionParams), of windows of one row;
/// - for [`AttentionGradientWindows`], `offsets`, `entries` and `pieces` are those of
///   [`ByColumns<8>`](super::ByColumns), `heads` is [`WalkHeads::ONE`], and there is no bias, no vector and no gradient
///   of one;
/// - over rows, `out` is the result of the forward pass, of the type `out_type`, and `states` what it kept; `terms` has
///   room for one of each head and row, heads slowest. Over columns, `terms` has what the pass over rows left;
/// - `partial` has [`gradient_partial_floats`] numbers for each walk and slot, slots fastest, as many times as a window
///   has rows;
/// - `bias` is as for `AttentionParams`; over columns, `positions` has the position of each entry among those of the
///   matrix, or is null if there is no bias. `bias_gradient` is null, or has as many numbers as there are of the bias;
/// - `heads` is as for `AttentionParams`, with which `sums` go by the columns of a walk, too, and one if the bias that
///   all heads have gets a gradient; `first_walk` and the grid's slow axis name the walks.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct AttentionGradientParams {
    /// What rows are walked for.
    pub own: [HeadMatrix; 2],
    /// What is gathered for each entry.
    pub gathered: [HeadMatrix; 2],
    /// Where the gradients go.
    pub sums: [SumsTo; 2],
    /// The result of the forward pass.
    pub out: HeadMatrix,
    /// What sums of elements were multiplied by, of scores of `GATv2`.
    pub vector: GlobalPtr<f32>,
    /// What was added to the scores.
    pub bias: EntryBias,
    /// Where the gradient of the bias goes; heads follow one another as those of the bias.
    pub bias_gradient: GlobalPtr<f32>,
    /// Maximum and sum of each row.
    pub states: GlobalPtr<[f32; 2]>,
    /// What the pass over rows leaves for the other.
    pub terms: GlobalPtr<RowTerms>,
    /// The workspace in which pieces leave their sums.
    pub partial: GlobalPtr<f32>,
    /// Where rows begin among the entries.
    pub offsets: GlobalPtr<u32>,
    /// What is gathered for each entry.
    pub entries: GlobalPtr<u32>,
    /// Where the entries of the transpose are in the matrix.
    pub positions: GlobalPtr<u32>,
    /// Rows that are a block's work, and pieces of rows.
    pub pieces: GlobalPtr<[u32; 4]>,
    /// Number of pieces, each a block's.
    pub piece_count: u32,
    /// Rows that are walked.
    pub rows: u32,
    /// Rows of the matrix, of which there are states and terms.
    pub matrix_rows: u32,
    /// Most entries of a row that is a warp's.
    pub longest: u32,
    /// Slots of each head.
    pub slot_count: u32,
    /// Factor of the products, or of additive scores.
    pub scale: f32,
    /// Type of `out`: [`OutputType::code`](crate::output::OutputType::code).
    pub out_type: u32,
    /// Which weights were dropped.
    pub dropped: DroppedWeights,
    /// The heads of a walk.
    pub heads: WalkHeads,
    /// The walk of the grid's first blocks.
    pub first_walk: u32,
    /// 1 if the gradient of the bias is added to what is there, else 0.
    pub adds_bias_gradient: u32,
    /// Logarithm of the rows that a warp walks side by side, where they are not pieces: at most one for each group of
    /// lanes. That of the rows of a window, for [`AttentionGradientWindows`].
    pub warp_rows_log2: u32,
    /// Slope of the rectifier below zero, where scores have one.
    pub negative_slope: f32,
}

impl AttentionGradientParams {
    /// Blocks of the grid's fast axis.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.piece_count + self.rows.div_ceil(ATTENTION_WARPS << self.warp_rows_log2)
    }
}

/// Gradients that a pass adds up.
#[must_use]
pub const fn gradient_results(over_columns: bool, scores: ScoreKind) -> u32 {
    if over_columns || matches!(scores, ScoreKind::Gatv2) { 2 } else { 1 }
}

/// Numbers that a piece leaves: a row of `width` for each result of the pass.
#[must_use]
pub const fn gradient_partial_floats(results: u32, width: u32) -> u32 {
    results * width
}

//! Attention over the entries of a sparse matrix in one pass, and its gradient.
//!
//! ```text
//! t[i, j] = scale · Σ_c Q[i, c]·K[j, c] + bias[i, j]      for each entry (i, j) of A, or, additive (GAT),
//! t[i, j] = scale · leaky_relu(Q[i] + K[j] + bias[i, j])                   or (GATv2)
//! t[i, j] = scale · Σ_c a[c]·leaky_relu(Q[i, c] + K[j, c]) + bias[i, j]
//! O[i, :] = Σ_j exp(t[i, j] − max t[i]) · V[j, :] / Σ_j exp(t[i, j] − max t[i])
//! ```
//!
//! No array holds a number for each entry and head: scores become weights in registers, by a maximum and a sum that are
//! kept up to date while entries are walked (online softmax). A row without entries gives zeros, and so does one all of
//! whose scores are minus infinity. Every head is a value of the grid's slow axis.
//!
//! | kernel | for | rows |
//! | --- | --- | --- |
//! | [`AttentionWindows`] | f16 and bf16, Tensor Cores | windows of 4 or 8 rows |
//! | [`AttentionRows`] | f32, operands of any alignment, and scores that are no products, CUDA cores | one or several at a time |
//! | [`AttentionJoin`] | windows that were cut | those |
//! | [`AttentionGradientWindows`] | gradients in f16 and bf16, Tensor Cores | windows of 8 rows, and then of 8 columns |
//! | [`AttentionGradient`] | the same cases as the kernel of rows, CUDA cores | rows, and then columns |
//! | [`AttentionGradientJoin`] | rows and columns that were cut | those |
//!
//! A *window* is 1, 4 or 8 successive rows, and its entries are one after the other; what a warp works on. A window of
//! many entries is a block's, and one of yet more is cut in *pieces*, a block each, whose sums are left in slots of a
//! workspace and joined in their order by a second launch, so that two runs give the same bits.

mod block;
mod forward;
mod gradient;
mod join;
mod lanes;
mod operands;
mod place;
mod rows;
mod scores;
mod sums;
mod tiles;
mod window;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

pub use self::forward::AttentionWindows;
pub use self::gradient::{
    AttentionGradient, AttentionGradientJoin, AttentionGradientJoinParams, AttentionGradientParams,
    AttentionGradientWindows, GradientPass, OverColumns, OverRows, RowTerms, SumsTo, gradient_partial_floats,
    gradient_results,
};
pub use self::join::{AttentionJoin, AttentionJoinParams, attention_join_parts_log2};
pub use self::operands::{DroppedWeights, EntryBias, HeadMatrix, WalkHeads};
pub use self::rows::AttentionRows;
pub use self::scores::{Additive, DotProduct, Gatv2, ScoreForm, ScoreKind};
pub use self::window::{ByColumns, ByEntries, WindowForm};

#[cfg(doc)]
use crate::output::OutputType;
use crate::unroll::each4;

/// Warps of a block.
pub const ATTENTION_WARPS: u32 = 4;

/// Arguments of the kernels of attention.
///
/// # Obligations
/// - `q` has `rows` rows, `k` and `v` have one for each column of the matrix; `q.columns` is `k.columns`, `out` has
///   `rows` rows and `v.columns`, at most as many as the kernel has room for ([`AttentionWindows::WIDTH`]). Where
///   kernels read vectors, rows of `q`, `k` and `v` begin at multiples of 16 bytes and have a multiple of that. Where
///   scores are additive, `q` and `k` are of f32 and one column, of any alignment;
/// - `offsets` and `entries` are what the [form](WindowForm) of the windows says; fewer than 2³¹ entries;
/// - `pieces[i] = [window, begin, end, slot]`: entries `begin < end` of a window with more than `longest`; all entries
///   of such a window are in pieces, a piece with [`NO_SLOT`](crate::NO_SLOT) is all of them. No two have one slot;
/// - `states` is null, or has the maximum and the sum of a row's softmax for each head and row, heads slowest;
/// - `partial` has [`partial_floats`] numbers for each walk and slot, slots fastest;
/// - `bias` is null unless windows are by entries;
/// - `vector` has a number for each head and column of `q`, heads slowest, if scores are those of `GATv2`, and is else
///   null;
/// - `heads` is [`WalkHeads::ONE`] but for [`AttentionRows`] that read vectors; with more heads in a walk these lie
///   beside each other, in successive columns of operands, and `q.columns`, `v.columns` and `out.columns` are those
///   of a walk, but for the single column of additive scores;
/// - the grid has [`blocks`](Self::blocks), and a value of its slow axis for each walk.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct AttentionParams {
    /// Rows that ask, one for each of the matrix.
    pub q: HeadMatrix,
    /// What it is compared with.
    pub k: HeadMatrix,
    /// What is added up.
    pub v: HeadMatrix,
    /// The result, a row for each of the matrix.
    pub out: HeadMatrix,
    /// What sums of elements are multiplied by, of scores of `GATv2`.
    pub vector: GlobalPtr<f32>,
    /// What is added to the scores.
    pub bias: EntryBias,
    /// Maximum and sum of each row, for the gradient.
    pub states: GlobalPtr<[f32; 2]>,
    /// The workspace in which pieces leave their sums.
    pub partial: GlobalPtr<f32>,
    /// Where rows or windows begin among the entries.
    pub offsets: GlobalPtr<u32>,
    /// Column of each entry, or of each column of a window.
    pub entries: GlobalPtr<u32>,
    /// Windows that are a block's work, and pieces of windows.
    pub pieces: GlobalPtr<[u32; 4]>,
    /// Number of pieces, each a block's.
    pub piece_count: u32,
    /// Rows of the matrix.
    pub rows: u32,
    /// Windows of the matrix.
    pub window_count: u32,
    /// Most entries of a window that is a warp's.
    pub longest: u32,
    /// Slots of each head.
    pub slot_count: u32,
    /// Factor of the products, or of additive scores.
    pub scale: f32,
    /// Type of `out`: [`OutputType::code`].
    pub out_type: u32,
    /// 1 if four elements of `out` may be stored at once: rows and heads begin at multiples of so many, and of 16 bytes
    /// or of eight where that is less; else 0.
    pub out_vectors: u32,
    /// Which weights are dropped.
    pub dropped: DroppedWeights,
    /// Slope of the rectifier below zero, where scores have one.
    pub negative_slope: f32,
    /// Logarithm of the rows that a warp of [`AttentionRows`] walks side by side, where they are not pieces: at most
    /// one for each group of lanes. Zero for other kernels.
    pub warp_rows_log2: u32,
    /// The heads of a walk.
    pub heads: WalkHeads,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl AttentionParams {
    /// Blocks of the grid's fast axis.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.piece_count + self.window_count.div_ceil(ATTENTION_WARPS << self.warp_rows_log2)
    }
}

impl AttentionParams {
    /// Writes four elements of a row from a column on, those that there are.
    ///
    /// # Safety
    /// The obligations of the params; there is such a row, and no other thread touches the elements.
    #[inline(always)]
    unsafe fn store_quad<S: Simt>(&self, s: &S, (head, row, column): (u32, u32, u32), quad: [f32; 4]) {
        let at = self.out.at(head, row, column);
        // SAFETY: the caller's promise; aligned where that is promised.
        unsafe {
            if self.out_vectors != 0 && column + 4 <= self.out.columns {
                self.out.store_at_once(s, self.out_type, at, quad);
            } else {
                each4(|i| {
                    if column + (i as u32) < self.out.columns {
                        self.out.store(s, self.out_type, at + i as u64, quad[i]);
                    }
                });
            }
        }
    }
}

/// Numbers that a piece leaves: sums of each row, `width` a row, then maximum and weight of each.
#[must_use]
pub const fn partial_floats(window_rows: u32, width: u32, heads: WalkHeads) -> u32 {
    window_rows * (width + (2 << heads.count_log2))
}

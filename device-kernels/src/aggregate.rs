//! Reductions over the rows of a sparse matrix: what the nodes of a graph make of their neighbours (g-SpMM).
//!
//! ```text
//! message(i, j, c) = X[j, c],  A[i, j]·X[j, c]  or  A[i, j] + X[j, c]
//! out[i, c] = Σ, mean, max or min over the entries (i, j) of row i of message(i, j, c)
//! ```
//!
//! A row without entries gives zeros. Of a maximum or minimum the *winner* is kept, the position of the entry that it
//! came from, the first of equals, for the gradient; a message that is no number wins over all that are.
//!
//! | kernel | for | over |
//! | --- | --- | --- |
//! | [`Aggregate`] | the reduction, and the gradient of `X` | rows, or columns |
//! | [`AggregateJoin`] | rows and columns that were cut | those |
//! | [`AggregateSlopes`] | the gradient of the values | rows |
//!
//! All of them are on CUDA cores: a warp walks one row or several, each entry by a group of lanes. Rows of
//! many entries are blocks' work, and longer ones are cut in pieces, whose results are left in slots and joined in
//! their order. Nothing is added atomically: two runs give the same bits.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

mod join;
mod rows;
mod slopes;

pub use self::join::{AggregateJoin, AggregateJoinParams};
pub use self::rows::{Aggregate, AggregatePass, Extremes, Gradients, Picked, Sums};
pub use self::slopes::AggregateSlopes;

use crate::output::OutputType;

/// Warps of a block.
pub const AGGREGATE_WARPS: u32 = 4;
/// The winner of an element that has none, of a row without entries.
pub const NO_WINNER: u32 = u32::MAX;

/// What an entry and a row of `X` make, as [`AggregateParams::message`] has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MessageCode {
    /// The row of `X`.
    Copy = 0,
    /// The entry's value times the row.
    Mul = 1,
    /// The entry's value added to each element of the row.
    Add = 2,
}

/// Arguments of the kernels of aggregation.
///
/// # Obligations
/// - [`Aggregate`] forward: `x` has a row of `columns` elements for each column of the matrix, `ldx` from one to the
///   next, `out` one for each row, `ldo` apart, of the type `out_type`. Backward it walks the transpose: `x` is the
///   gradient of the result, `out` that of `X`. [`AggregateSlopes`]: `x` is `X`, `gradient` that of the result, `ldg`
///   apart, of the type of `X`, and `out` has a number of f32 for each entry. Where kernels read vectors, rows of `x`
///   and `gradient` begin at multiples of 16 bytes and have a multiple of that;
/// - `values` has a number for each entry in the order of the matrix, or is null if `message` is a copy;
/// - `winners` has a position for each element of the result, `columns` a row, or is null: then nothing is kept, and
///   gradients are those of a sum or a mean. Of vectors, 16-byte aligned;
/// - `offsets` says where each row that is walked begins among the entries, and the last ends, `entries` has the row of
///   `x` of each; fewer than 2³¹. Where the transpose is walked, `positions` has where each entry is in the matrix;
/// - `lengths` is null, or has the offsets of the rows of the matrix: then a mean is taken;
/// - `pieces[i] = [row, begin, end, slot]`: entries `begin < end` of a row with more than `longest`; all entries of
///   such a row are in pieces, a piece with [`NO_SLOT`](crate::NO_SLOT) is all of them. No two have one slot;
/// - `partial` has for each slot as many numbers as the columns of all blocks of the grid's slow axis, and behind those
///   of all slots as many positions, if winners are kept;
/// - the grid has [`blocks`](Self::blocks), and a value of its slow axis for each share of the columns.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct AggregateParams {
    /// What is gathered for each entry.
    pub x: GlobalPtr<u32>,
    /// The gradient of the result, of the kernel of slopes.
    pub gradient: GlobalPtr<u32>,
    /// Where the results go.
    pub out: GlobalPtr<u32>,
    /// Values of the entries.
    pub values: GlobalPtr<f32>,
    /// Which entry each element came from.
    pub winners: GlobalPtr<u32>,
    /// Where rows begin among the entries.
    pub offsets: GlobalPtr<u32>,
    /// Which row of `x` belongs to an entry.
    pub entries: GlobalPtr<u32>,
    /// Where the entries of the transpose are in the matrix.
    pub positions: GlobalPtr<u32>,
    /// Where rows of the matrix begin, of a mean.
    pub lengths: GlobalPtr<u32>,
    /// Rows that are a block's work, and pieces of rows.
    pub pieces: GlobalPtr<[u32; 4]>,
    /// The workspace in which pieces leave their results.
    pub partial: GlobalPtr<f32>,
    /// Elements from one row of `x` to the next.
    pub ldx: u32,
    /// Elements from one row of `gradient` to the next.
    pub ldg: u32,
    /// Elements from one row of `out` to the next.
    pub ldo: u32,
    /// Columns of `X` and of the result.
    pub columns: u32,
    /// Number of pieces, each a block's.
    pub piece_count: u32,
    /// Rows that are walked.
    pub rows: u32,
    /// Most entries of a row that is a warp's.
    pub longest: u32,
    /// Logarithm of the rows that a warp walks side by side.
    pub warp_rows_log2: u32,
    /// Number of slots of all rows.
    pub slot_count: u32,
    /// Columns of a slot.
    pub slot_columns: u32,
    /// Type of `out`: [`OutputType::code`].
    pub out_type: u32,
    /// What entries and rows make: a [`MessageCode`].
    pub message: u32,
    /// −1 where the least is looked for, else 1: messages are multiplied by it, and results once more.
    pub sign: f32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl AggregateParams {
    /// Blocks of the grid's fast axis.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.piece_count + self.rows.div_ceil(AGGREGATE_WARPS << self.warp_rows_log2)
    }

    /// What an element of `X` is multiplied by and what is added to make it a message of an entry.
    ///
    /// # Safety
    /// The obligations of the params; there is such an entry.
    #[inline(always)]
    unsafe fn message_of<S: Simt>(&self, s: &S, position: u32) -> [f32; 2] {
        if self.values == GlobalPtr::NULL {
            return [self.sign, 0.0];
        }
        // SAFETY: the caller's promise.
        let value = self.sign * unsafe { s.load_readonly(self.values.at(position)) };
        if self.message == MessageCode::Mul as u32 { [value, 0.0] } else { [self.sign, value] }
    }

    /// What a sum over a row is divided by for its mean, as a factor.
    ///
    /// # Safety
    /// The obligations of the params; the matrix has such a row.
    #[inline(always)]
    unsafe fn mean_of<S: Simt>(&self, s: &S, row: u32) -> f32 {
        if self.lengths == GlobalPtr::NULL {
            return 1.0;
        }
        // SAFETY: the caller's promise.
        let [begin, end] =
            unsafe { [s.load_readonly(self.lengths.at(row)), s.load_readonly(self.lengths.at(row + 1))] };
        if begin == end { 1.0 } else { 1.0 / (end - begin) as f32 }
    }

    /// Writes an element of a result.
    ///
    /// # Safety
    /// The obligations of the params; no other thread has the element.
    #[inline(always)]
    unsafe fn store<S: Simt>(&self, s: &S, row: u32, column: u32, value: f32) {
        let at = u64::from(row) * u64::from(self.ldo) + u64::from(column);
        // SAFETY: the caller's promise.
        unsafe { OutputType::store_as(s, self.out_type, self.out, at, value) }
    }
}

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
mod pass;
mod rows;
mod slopes;

pub use self::join::{AggregateJoin, AggregateJoinParams};
pub use self::pass::{AggregatePass, Extremes, Gradients, Picked, Sums};
pub use self::rows::Aggregate;
pub use self::slopes::AggregateSlopes;

use crate::output::OutputType;
use crate::unroll::each4;

/// Warps of a block.
pub const AGGREGATE_WARPS: u32 = 4;
/// Logarithm of the entries that a group of lanes takes in a step of [`Aggregate`].
pub const AGGREGATE_ENTRIES_LOG2: u32 = 2;
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
/// - `partial` has a number for each column of each slot, and behind those of all slots as many positions, if winners
///   are kept;
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
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
    /// Type of `out`: [`OutputType::code`].
    pub out_type: u32,
    /// What entries and rows make: a [`MessageCode`].
    pub message: u32,
    /// −1 where the least is looked for, else 1: messages are multiplied by it, and results once more.
    pub sign: f32,
    /// Logarithm of the lanes that share an entry, of [`Aggregate`]: the vectors or elements of a share of the columns.
    pub lanes_log2: u32,
}

impl AggregateParams {
    /// Blocks of the grid's fast axis.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.piece_count + self.rows.div_ceil(AGGREGATE_WARPS << self.warp_rows_log2)
    }

    /// What an element of `X` is multiplied by and what is added to make it a message of an entry with a value.
    #[inline(always)]
    fn message_of(&self, value: f32) -> [f32; 2] {
        let value = self.sign * value;
        let multiplies = self.message == MessageCode::Mul as u32;
        let adds = self.message == MessageCode::Add as u32;
        [if multiplies { value } else { self.sign }, if adds { value } else { 0.0 }]
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

    /// Where a slot has the number of a column.
    #[inline(always)]
    fn slot_number(&self, slot: u32, column: u32) -> GlobalPtr<f32> {
        self.partial.at_wide(u64::from(slot) * u64::from(self.columns) + u64::from(column))
    }

    /// Where a slot has the winner of a column.
    #[inline(always)]
    fn slot_winner(&self, slot: u32, column: u32) -> GlobalPtr<u32> {
        let numbers = u64::from(self.slot_count) * u64::from(self.columns);
        self.partial.at_wide(numbers + u64::from(slot) * u64::from(self.columns) + u64::from(column)).cast()
    }

    /// What all messages of a row make.
    ///
    /// # Safety
    /// The obligations of the params; the matrix has such a row.
    #[inline(always)]
    unsafe fn made<S: Simt, P: AggregatePass>(&self, s: &S, row: u32, found: Picked) -> f32 {
        match (P::PICKS, P::BACKWARD) {
            (true, _) if found.winner == NO_WINNER => 0.0,
            (true, _) => found.number * self.sign,
            // SAFETY: the caller's promise.
            (false, false) => found.number * unsafe { self.mean_of(s, row) },
            (false, true) => found.number,
        }
    }

    /// Writes an element of the result whose messages have all been taken, and its winner.
    ///
    /// # Safety
    /// The obligations of the params; there is such an element, and no other thread has it.
    #[inline(always)]
    unsafe fn finish<S: Simt, P: AggregatePass>(&self, s: &S, row: u32, column: u32, found: Picked) {
        let at = u64::from(row) * u64::from(self.ldo) + u64::from(column);
        // SAFETY: the caller's promise.
        unsafe {
            OutputType::store_as(s, self.out_type, self.out, at, self.made::<S, P>(s, row, found));
            if P::PICKS && self.winners != GlobalPtr::NULL {
                let at = u64::from(row) * u64::from(self.columns) + u64::from(column);
                s.store(self.winners.at_wide(at), found.winner);
            }
        }
    }

    /// The same for four columns from `column` on.
    ///
    /// # Safety
    /// As for [`finish`](Self::finish).
    #[inline(always)]
    unsafe fn finish_quad<S: Simt, P: AggregatePass>(
        &self,
        s: &S,
        row: u32,
        column: u32,
        found: [Picked; 4],
    ) {
        let at = u64::from(row) * u64::from(self.ldo) + u64::from(column);
        let (mut numbers, mut winners) = ([0.0; 4], [0; 4]);
        // SAFETY: the caller's promise; vectors are stored where they may be.
        unsafe {
            each4(|e| {
                (numbers[e], winners[e]) = (self.made::<S, P>(s, row, found[e]), found[e].winner);
            });
            OutputType::store_quad_as(s, self.out_type, self.out, at, numbers);
            if P::PICKS && self.winners != GlobalPtr::NULL {
                let to = self.winners.at_wide(u64::from(row) * u64::from(self.columns) + u64::from(column));
                if to.address().is_multiple_of(16) {
                    s.store(to.cast(), winners);
                } else {
                    each4(|e| s.store(to.at(e as u32), winners[e]));
                }
            }
        }
    }
}

//! Vector-wise N:M sparsity: which vectors of dense weights are kept, how products with them are cut into blocks, and
//! in which order rows are multiplied.

mod banks;
mod blocks;
mod fours;
mod prune;

pub use banks::Banked;
pub use blocks::{BlockShape, Blocks};
pub use fours::{Filler, Fours, MOST_VECTORS};
pub use prune::prune_magnitude;

/// Marks a slot without a row, in [`Blocks::row_lists`] and [`Banked::row_lists`]: rows are below 2³² − 1.
pub use windrow_formats::NO_ROW;

/// A row of weights as lists name it.
#[expect(clippy::cast_possible_truncation, reason = "weights have fewer than 2³² rows")]
const fn row_number(row: usize) -> u32 {
    debug_assert!((row as u64) < NO_ROW as u64);
    row as u32
}

/// A slot, a strip, or a kept row counted from the first of its stage: [`Blocks::new`] and [`Banked::new`] refuse more
/// than 16 bits can number.
#[expect(clippy::cast_possible_truncation, reason = "checked by whoever makes the lists")]
const fn short(x: usize) -> u16 {
    debug_assert!(x <= u16::MAX as usize);
    x as u16
}

//! Cuts work into pieces of equal size.
//!
//! | function | cuts | for |
//! | --- | --- | --- |
//! | [`row_segments`] | long rows into pieces | row-split products |
//! | [`deal_steps`] | windows of tiles, deals the pieces out to workers | tile-stream products |
//! | [`short_row_blocks`] | buckets of equally long rows into blocks | short-row products |
//! | [`row_warps`] | rows into one warp, two, four or blocks, by their lengths | products of matricised rows |
//! | [`entry_batches`] | rows into batches of a few entries | sampled products, entry by entry |
//! | [`row_ranges`] | rows into one range per thread | products on the CPU |
//!
//! Where a row or window is cut, every piece writes its partial sum to a *slot* of its own, and the slots
//! of one row or window are consecutive, in the order of the pieces. Adding them in that order gives the
//! same result in every run, whichever piece is finished first.

mod batches;
mod dealt;
mod queue;
mod rows;
mod short_rows;
mod sort;
mod threads;
mod tiles;
mod warps;
mod whole;

#[cfg(test)]
mod tests;

use windrow_formats::OutOfMemory;
use windrow_formats::memory::try_zeroed;

pub use batches::{EntryBatches, entry_batches};
pub use dealt::{DealtSteps, Piece, SplitWindow};
pub use rows::{RowSegments, row_segments};
pub use short_rows::short_row_blocks;
pub use threads::row_ranges;
pub use tiles::deal_steps;
pub use warps::{RowWarps, WarpShare, row_warps};
pub use whole::WholeDealing;

/// Marks a piece that needs no slot: it is its whole row or window.
pub const NO_SLOT: u32 = u32::MAX;
/// Marks, in place of a slot, a piece that is its whole row and is added to what `C` holds of it: other entries of
/// the row have been multiplied before.
pub const ADD_TO_C: u32 = u32::MAX - 1;
/// The bit of the stride of a split row whose sum is added to what `C` holds, likewise.
pub const ADDS: u32 = 1 << 31;

/// Gives all pieces of a row one slot, for sums that are accumulated in whatever order they come: in `split_rows`,
/// and in the slots of the pieces. Returns the number of slots, one for each row.
fn share_slots<'a>(
    split_rows: &mut [[u32; 4]],
    slots: u32,
    of_pieces: impl Iterator<Item = &'a mut u32>,
) -> Result<u32, OutOfMemory> {
    let mut shared = try_zeroed::<u32>(slots as usize, "shared slots")?;
    for (row, slot) in split_rows.iter_mut().zip(0_u32..) {
        shared[row[1] as usize..][..row[2] as usize].fill(slot);
        (row[1], row[2]) = (slot, 1);
    }
    for slot in of_pieces.filter(|slot| **slot < ADD_TO_C) {
        *slot = shared[*slot as usize];
    }
    Ok(split_rows.iter().map(|row| row[2]).sum())
}

//! The order of the windows themselves.

use windrow_formats::memory::{try_copy, try_with_room, try_zeroed};
use windrow_formats::{OutOfMemory, WINDOW_ROWS};

use super::super::pace::Pace;
use super::super::pattern::narrow;
use super::super::watch::{Stopped, Watch};
use super::Rows;

/// Rows of windows that stay together, so that windows beside each other keep what they share.
const UNIT_ROWS: usize = 4 * WINDOW_ROWS;
/// Sizes of blocks, in rows, in which columns should recur: from a warp's reach to a cache's.
const SCALES: [usize; 4] = [64, 512, 4096, 32768];

/// Arranges pieces of four windows by where their rows are in each of `guides`, and takes the best of these
/// arrangements and the present one; `guides[g][d]` is the place of row `d`.
///
/// Windows filled greedily wander through the matrix, and what was left on the way is filled late. The guides
/// are orders of good large-scale locality. The best arrangement has the fewest distinct columns in blocks of
/// 64, 512, 4096 and 32 768 rows, added up: what caches of several sizes would have to load. No window changes.
///
/// # Cost
/// A pass over the entries for each arrangement.
pub(super) fn arrange(
    rows: &Rows<'_>,
    order: &[u32],
    guides: &[Vec<u32>],
    watch: &dyn Watch,
) -> Result<Vec<u32>, Stopped> {
    let entries: usize = order.iter().map(|&d| rows.columns(d).len()).sum();
    let mut pace = Pace::begin(watch, "arrangement", ((guides.len() + 1) * (entries + order.len())) as u64);
    let mut best = try_copy(order, "an order")?;
    let mut least = footprint(rows, &best, &mut pace)?;
    for guide in guides {
        let arranged = by_median(order, guide)?;
        let columns = footprint(rows, &arranged, &mut pace)?;
        if columns < least {
            (best, least) = (arranged, columns);
        }
    }
    pace.finish()?;
    Ok(best)
}

/// The pieces by the median place of their rows; the last one, which may be short, stays last.
fn by_median(order: &[u32], places: &[u32]) -> Result<Vec<u32>, OutOfMemory> {
    let (units, _) = order.as_chunks::<UNIT_ROWS>();
    // The last one stays last also if it is whole.
    let moving = order.len().saturating_sub(1) / UNIT_ROWS;
    let mut keyed = try_with_room(moving, "pieces of an order")?;
    for (unit, number) in units[..moving].iter().zip(0u32..) {
        let mut found = unit.map(|d| places[d as usize]);
        keyed.push((*found.select_nth_unstable(UNIT_ROWS / 2).1, number));
    }
    // Pieces of one place keep their order.
    keyed.sort_unstable();
    let mut arranged = try_with_room(order.len(), "an order")?;
    keyed.iter().for_each(|&(_, number)| arranged.extend_from_slice(&units[number as usize]));
    arranged.extend_from_slice(&order[arranged.len()..]);
    Ok(arranged)
}

/// Distinct columns of blocks of consecutive rows, over all blocks of all sizes.
fn footprint(rows: &Rows<'_>, order: &[u32], pace: &mut Pace<'_>) -> Result<u64, Stopped> {
    // The block, counted from 1, in which each column was met last, for each size.
    let mut met = try_zeroed::<[u32; SCALES.len()]>(rows.pattern.cols(), "blocks of columns")?;
    let mut distinct = 0;
    for (at, &d) in order.iter().enumerate() {
        let blocks = SCALES.map(|scale| narrow(at / scale + 1));
        let columns = rows.columns(d);
        for &column in columns {
            let met = &mut met[column as usize];
            distinct += met.iter().zip(&blocks).filter(|(met, block)| met != block).count() as u64;
            *met = blocks;
        }
        pace.done(columns.len() as u64 + 1)?;
    }
    Ok(distinct)
}

//! The order of the windows themselves.

use windrow_formats::WINDOW_ROWS;

use super::super::pace::Pace;
use super::super::pattern::narrow;
use super::super::watch::{Stopped, Watch};
use super::Rows;

/// Windows that stay together, so that windows beside each other keep what they share.
const UNIT_WINDOWS: usize = 4;
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
    let mut best = order.to_vec();
    let mut least = footprint(rows, &best, &mut pace)?;
    for guide in guides {
        let arranged = by_median(order, guide);
        let columns = footprint(rows, &arranged, &mut pace)?;
        if columns < least {
            (best, least) = (arranged, columns);
        }
    }
    pace.finish()?;
    Ok(best)
}

/// The pieces by the median place of their rows; the last one, which may be short, stays last.
fn by_median(order: &[u32], places: &[u32]) -> Vec<u32> {
    let mut units: Vec<&[u32]> = order.chunks(UNIT_WINDOWS * WINDOW_ROWS).collect();
    let Some(last) = units.pop() else {
        return Vec::new();
    };
    let mut keyed: Vec<(u32, &[u32])> = units
        .into_iter()
        .map(|unit| {
            let mut found: Vec<u32> = unit.iter().map(|&d| places[d as usize]).collect();
            let middle = found.len() / 2;
            (*found.select_nth_unstable(middle).1, unit)
        })
        .collect();
    // Stable: pieces of one place keep their order.
    keyed.sort_by_key(|&(place, _)| place);
    keyed.into_iter().flat_map(|(_, unit)| unit).chain(last).copied().collect()
}

/// Distinct columns of blocks of consecutive rows, over all blocks of all sizes.
fn footprint(rows: &Rows<'_>, order: &[u32], pace: &mut Pace<'_>) -> Result<u64, Stopped> {
    // The block, counted from 1, in which each column was met last, for each size.
    let mut met = vec![[0u32; SCALES.len()]; rows.pattern.cols()];
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

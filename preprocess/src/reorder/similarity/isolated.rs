//! Rows that have little to do with those around them.

use std::cmp::Reverse;

use windrow_formats::memory::{try_collect, try_concat, try_filled, try_with_room};

use super::super::pattern::{chunks, map_chunks};
use super::super::watch::{Stopped, Watch, tick};
use super::Rows;
use super::neighbours::Neighbours;

/// A row whose similarity to both rows beside it is less than this is isolated.
const MEANINGFUL: f32 = 1.0 / 32.0;

/// Moves each isolated row behind the row most similar to it that is not isolated; isolated rows without one
/// go to the end, the longest first, so that at least windows of long rows share columns.
pub(super) fn move_isolated(
    rows: &Rows<'_>,
    neighbours: &Neighbours,
    order: &[u32],
    watch: &dyn Watch,
) -> Result<Vec<u32>, Stopped> {
    let ranges = chunks(order.len(), |at| rows.columns(order[at]).len() as u64)?;
    watch.begin("isolated rows", ranges.len() as u64 + 2);
    // Whether a row has something to do with the next one.
    let related = map_chunks(&ranges, watch, |range| {
        let related =
            |at: usize| order.get(at + 1).is_some_and(|&next| rows.similarity(order[at], next) >= MEANINGFUL);
        try_collect(range.map(related), "related rows")
    })?;
    let related = try_concat(&related, "related rows")?;
    let mut isolated = try_filled(rows.len(), false, "isolated rows")?;
    for (at, &d) in order.iter().enumerate() {
        isolated[d as usize] = !(related[at] || (at > 0 && related[at - 1]));
    }
    // Each guest with its host; guests of one host as they stood.
    let count = order.iter().filter(|&&d| isolated[d as usize]).count();
    let mut guests = try_with_room(count, "isolated rows")?;
    let mut tail = try_with_room(count, "isolated rows")?;
    for (&d, at) in order.iter().zip(0u32..).filter(|&(&d, _)| isolated[d as usize]) {
        match neighbours.of(d).find(|&u| !isolated[u as usize]) {
            Some(host) => guests.push((host, at)),
            None => tail.push(at),
        }
    }
    guests.sort_unstable();
    tail.sort_unstable_by_key(|&at| (Reverse(rows.columns(order[at as usize]).len()), at));
    tick(watch, 1)?;
    let mut moved = try_with_room(order.len(), "an order")?;
    let mut served = try_filled(rows.len(), false, "hosts served")?;
    for (at, &d) in order.iter().enumerate().filter(|&(_, &d)| !isolated[d as usize]) {
        moved.push(d);
        // Behind the last of rows alike that stand together.
        if order.get(at + 1) != Some(&d) && !std::mem::replace(&mut served[d as usize], true) {
            let waiting = &guests[guests.partition_point(|&(host, _)| host < d)..];
            let waiting = waiting.iter().take_while(|&&(host, _)| host == d);
            moved.extend(waiting.map(|&(_, guest)| order[guest as usize]));
        }
    }
    moved.extend(tail.iter().map(|&at| order[at as usize]));
    tick(watch, 1)?;
    Ok(moved)
}

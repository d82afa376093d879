//! Depth-first order of a forest.

use windrow_formats::memory::{try_filled, try_with_room, try_zeroed};

use super::super::graph::starts;
use super::super::pace::Pace;
use super::super::pattern::{index, narrow};
use super::super::watch::{Stopped, Watch};
use super::forest::Edge;

/// The rows in depth-first order, most similar child first; trees by their first row, which is the root.
///
/// Of equally similar children the one that was nearer to its parent comes first.
pub(super) fn depth_first(rows: usize, forest: &[Edge], watch: &dyn Watch) -> Result<Vec<u32>, Stopped> {
    let mut pace = Pace::begin(watch, "depth-first order", (2 * forest.len() + rows) as u64);
    let mut counts = try_zeroed::<u64>(rows, "counts of edges")?;
    for &(a, b, _) in forest {
        counts[a as usize] += 1;
        counts[b as usize] += 1;
        pace.done(1)?;
    }
    // Where the list of each row ends so far.
    let mut ends = starts(counts.into_iter())?;
    let mut others = try_filled(2 * forest.len(), (0u32, 0f32), "edges of a forest")?;
    for &(a, b, similarity) in forest {
        for (from, to) in [(a, b), (b, a)] {
            others[index(ends[from as usize])] = (to, similarity);
            ends[from as usize] += 1;
        }
        pace.done(1)?;
    }
    let mut order = try_with_room(rows, "an order")?;
    let mut visited = try_filled(rows, false, "rows visited")?;
    // Each is on the stack once.
    let mut stack = try_with_room(rows, "a stack of rows")?;
    for root in 0..narrow(rows) {
        if visited[root as usize] {
            continue;
        }
        visited[root as usize] = true;
        stack.push(root);
        while let Some(d) = stack.pop() {
            order.push(d);
            let start = if d == 0 { 0 } else { index(ends[d as usize - 1]) };
            let joined = &mut others[start..index(ends[d as usize])];
            // The last pushed is visited first.
            joined.sort_unstable_by(|a, b| {
                a.1.total_cmp(&b.1).then(b.0.abs_diff(d).cmp(&a.0.abs_diff(d))).then(b.0.cmp(&a.0))
            });
            for &(child, _) in joined.iter() {
                if !visited[child as usize] {
                    visited[child as usize] = true;
                    stack.push(child);
                }
            }
            pace.done(1)?;
        }
    }
    pace.finish()?;
    Ok(order)
}

//! Rows joined by the columns that they share.

use std::cmp::Reverse;

use super::graph::{Graph, starts};
use super::pace::Pace;
use super::pattern::{Pattern, chunks, index, map_chunks, narrow};
use super::watch::{Stopped, Watch};
use windrow_formats::OutOfMemory;
use windrow_formats::memory::{make_room, try_collect, try_filled, try_with_room, try_zeroed};

/// A row looks at this many rows before and behind it in the list of a column.
const REACH: usize = 16;
/// Every row names this many others, those it shares most with; who is named has an edge back.
const NAMED: usize = 8;
/// What a column gives each of its rows to share out among the others.
const UNIT: u32 = 1 << 12;

/// Edges `(row, weight)` of each row: `edges[offsets[r] .. offsets[r + 1]]`, rows ascending.
pub(super) struct WeightedRows {
    pub(super) offsets: Vec<u64>,
    pub(super) edges: Vec<(u32, u32)>,
}

/// The rows, each joined to those with which it shares the most, and back.
///
/// The weight of an edge is `Σ 1 / (d_j − 1)` over the shared columns `j` of `d_j` entries, as between authors
/// who share papers (M. Newman, Phys. Rev. E 64, 2001), so that a column that many rows have says little of
/// each. In the list of a column that more than `REACH` rows have, rows see only those that are near.
///
/// # Cost
/// At most `2·REACH` steps an entry, in parallel; then linear in the rows.
pub(super) fn rows_by_shared_columns(
    pattern: &Pattern<'_>,
    watch: &dyn Watch,
) -> Result<WeightedRows, Stopped> {
    let graph = Graph::bipartite(pattern, u32::MAX, watch)?;
    let rows = graph.rows();
    let ranges = chunks(rows, |r| REACH as u64 * u64::from(graph.degree(narrow(r))))?;
    watch.begin("shared columns", ranges.len() as u64);
    let parts = map_chunks(&ranges, watch, |range| named(&graph, range))?;
    // `(row, weight, count of rows named)` in the order of the rows that name them.
    let mut counts = try_with_room(rows, "counts of rows named")?;
    let mut named = try_with_room(NAMED * rows, "rows named")?;
    for part in parts {
        counts.extend(part.counts);
        named.extend(part.named);
    }

    let mut pace = Pace::begin(watch, "graph", 2 * named.len() as u64 + rows as u64);
    let mut lengths: Vec<u64> =
        try_collect(counts.iter().map(|&count| u64::from(count)), "lengths of lists")?;
    for &(row, _) in &named {
        lengths[row as usize] += 1;
        pace.done(1)?;
    }
    let mut ends = starts(lengths.into_iter())?;
    let mut edges = try_filled(2 * named.len(), (0, 0), "edges")?;
    let mut put = |from: u32, edge: (u32, u32)| {
        let end = &mut ends[from as usize];
        edges[index(*end)] = edge;
        *end += 1;
    };
    let mut rest = named.as_slice();
    for (r, &count) in (0..).zip(&counts) {
        let (own, behind) = rest.split_at(count as usize);
        for &(row, weight) in own {
            put(r, (row, weight));
            put(row, (r, weight));
        }
        rest = behind;
        pace.done(u64::from(count) + 1)?;
    }
    // Rows that name each other have the edge twice.
    let mut offsets = try_with_room(rows + 1, "offsets of neighbours")?;
    offsets.push(0);
    let (mut kept, mut start) = (0, 0);
    for &end in &ends[..rows] {
        let end = index(end);
        edges[start..end].sort_unstable();
        let first = kept;
        for at in start..end {
            if kept == first || edges[kept - 1] != edges[at] {
                edges[kept] = edges[at];
                kept += 1;
            }
        }
        offsets.push(kept as u64);
        pace.beside((end - start) as u64 + 1)?;
        start = end;
    }
    pace.finish()?;
    edges.truncate(kept);
    Ok(WeightedRows { offsets, edges })
}

/// What some consecutive rows name.
struct Named {
    counts: Vec<u8>,
    named: Vec<(u32, u32)>,
}

fn named(graph: &Graph, range: std::ops::Range<usize>) -> Result<Named, OutOfMemory> {
    let (counts, named) = (try_with_room(range.len(), "rows named")?, Vec::new());
    let mut result = Named { counts, named };
    make_room(&mut result.named, NAMED * range.len(), "rows named")?;
    // Weight of each row to the row at hand; all 0 in between.
    let mut weights = try_zeroed::<u32>(graph.rows(), "weights of rows")?;
    let mut beside = Vec::new();
    for r in range.map(narrow) {
        for &column in graph.neighbours(r) {
            let list = graph.neighbours(column);
            let at = list.partition_point(|&row| row < r);
            let weight = (UNIT / (graph.degree(column) - 1)).max(1);
            for &row in &list[at.saturating_sub(REACH)..list.len().min(at + REACH + 1)] {
                let sum = &mut weights[row as usize];
                if *sum == 0 {
                    make_room(&mut beside, 1, "rows beside a row")?;
                    beside.push(row);
                }
                *sum = sum.saturating_add(weight);
            }
        }
        let key = |row: u32, weights: &[u32]| (Reverse(weights[row as usize]), row);
        beside.retain(|&row| row != r || std::mem::take(&mut weights[row as usize]) == 0);
        if beside.len() > NAMED {
            beside.select_nth_unstable_by_key(NAMED - 1, |&row| key(row, &weights));
        }
        let before = result.named.len();
        result.named.extend(beside.iter().take(NAMED).map(|&row| (row, weights[row as usize])));
        #[expect(clippy::cast_possible_truncation, reason = "at most NAMED")]
        result.counts.push((result.named.len() - before) as u8);
        for row in beside.drain(..) {
            weights[row as usize] = 0;
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_formats::Csr;

    #[test]
    fn rare_columns_weigh_more_and_edges_go_both_ways() {
        // Rows 0 and 1 share column 0; 0, 1 and 2 share column 1; row 3 is alone with column 2.
        let a =
            Csr::try_from_parts(4, 3, vec![0, 2, 4, 5, 6], vec![0, 1, 0, 1, 1, 2], vec![1f32; 6]).unwrap();
        let graph = rows_by_shared_columns(&Pattern::of(&a), &()).unwrap();
        assert_eq!(graph.offsets, [0, 2, 4, 6, 6]);
        let (one, half) = (UNIT, UNIT / 2);
        assert_eq!(
            graph.edges,
            [(1, one + half), (2, half), (0, one + half), (2, half), (0, half), (1, half)]
        );
    }
}

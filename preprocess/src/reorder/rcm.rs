//! Reverse Cuthill–McKee: rows by their distance from one end of the graph.

use windrow_formats::memory::{try_filled, try_with_room};
use windrow_formats::{Csr, Value};

use super::graph::{Graph, empty_last};
use super::pace::Pace;
use super::pattern::{Pattern, narrow};
use super::watch::{Stopped, Watch};

/// Searches for a row at an end of the graph, at most; each is a pass over the component.
const MAX_SEARCHES: u32 = 8;
/// A column of more entries than this, and than [`HUB_RATIO`] times the mean, makes no rows neighbours.
const HUB_ENTRIES: u32 = 64;
/// A hub has more entries than so many times the mean, too; see [`HUB_ENTRIES`].
const HUB_RATIO: u64 = 16;

/// The reverse Cuthill–McKee order.
///
/// Rows are numbered breadth-first from a row far from most others, the neighbours of each in ascending order
/// of their degrees, and the numbering is reversed (Cuthill–McKee, "Reducing the bandwidth of sparse
/// symmetric matrices", ACM 1969; reversed after A. George, 1971). The start is pseudo-peripheral: the row of
/// least degree among the farthest from the last candidate, until that no longer gets farther (A. George and
/// J. Liu, ACM TOMS 5, 1979). Components come in the order of their first rows, rows without entries last.
///
/// Two rows are neighbours
/// - of a square matrix, if `A + Aᵀ` has an entry where they meet;
/// - of another one, if they share a column. The search walks through each column once, so it visits every
///   pair of neighbours without listing them. A column that very many rows share says little about them and
///   would put all of them at one distance; such hubs are left out.
///
/// # Cost
/// Linear in rows, columns and entries but for sorting neighbours by degree; a few passes over the graph,
/// sequential. Memory for three times the column indices.
pub(super) fn order<V: Value>(csr: &Csr<V>, watch: &dyn Watch) -> Result<Vec<u32>, Stopped> {
    let pattern = Pattern::of(csr);
    let graph = if csr.rows() == csr.cols() {
        Graph::symmetric(&pattern, watch)?
    } else {
        let mean = csr.nnz() as u64 / csr.cols().max(1) as u64;
        let hub = u32::try_from(HUB_RATIO * mean).unwrap_or(u32::MAX).max(HUB_ENTRIES);
        Graph::bipartite(&pattern, hub, watch)?
    };
    let mut pace = Pace::begin(watch, "Cuthill-McKee", graph.len() as u64 + graph.ends());
    let mut order = try_with_room(graph.rows(), "an order")?;
    let mut walk = Walk::new(&graph, &mut pace)?;
    for first in 0..narrow(graph.rows()) {
        if walk.seen[first as usize] {
            continue;
        }
        let from = order.len();
        let start = walk.peripheral(first, &mut pace)?;
        walk.number(start, &mut order, &mut pace)?;
        order[from..].reverse();
    }
    pace.finish()?;
    Ok(empty_last(&pattern, order)?)
}

/// Breadth-first walks over the rows of a graph.
struct Walk<'a> {
    graph: &'a Graph,
    /// Neighbours of each row; where the graph has columns, counted once for every column that is shared.
    degrees: Vec<u32>,
    /// Vertices that no walk needs to visit again.
    seen: Vec<bool>,
    /// Columns and rows seen by the search for a start, the rows in the order of their distance.
    columns: Vec<u32>,
    queue: Vec<u32>,
}

impl<'a> Walk<'a> {
    fn new(graph: &'a Graph, pace: &mut Pace<'_>) -> Result<Self, Stopped> {
        let mut degrees = try_with_room(graph.rows(), "degrees")?;
        for r in 0..narrow(graph.rows()) {
            let shared = |&v: &u32| if graph.is_row(v) { 1 } else { graph.degree(v) - 1 };
            degrees.push(graph.neighbours(r).iter().map(shared).fold(0, u32::saturating_add));
            pace.beside(u64::from(graph.degree(r)) + 1)?;
        }
        // A search meets every vertex once, so neither list grows.
        Ok(Self {
            graph,
            degrees,
            seen: try_filled(graph.len(), false, "vertices seen")?,
            columns: try_with_room(graph.len() - graph.rows(), "columns seen")?,
            queue: try_with_room(graph.rows(), "a queue of rows")?,
        })
    }

    /// Calls `visit` with the neighbours of row `r` that were not seen yet; returns the work that it was.
    fn expand(&mut self, r: u32, mut visit: impl FnMut(u32)) -> u64 {
        let graph = self.graph;
        let mut work = u64::from(graph.degree(r)) + 1;
        for &v in graph.neighbours(r) {
            if std::mem::replace(&mut self.seen[v as usize], true) {
                continue;
            }
            if graph.is_row(v) {
                visit(v);
                continue;
            }
            self.columns.push(v);
            work += u64::from(graph.degree(v)) + 1;
            for &row in graph.neighbours(v) {
                if !std::mem::replace(&mut self.seen[row as usize], true) {
                    visit(row);
                }
            }
        }
        work
    }

    /// A row of the component of `first` that is as far from another as a few searches find.
    fn peripheral(&mut self, first: u32, pace: &mut Pace<'_>) -> Result<u32, Stopped> {
        let (mut start, mut distance) = (first, 0);
        for _ in 0..MAX_SEARCHES {
            let (farthest, found) = self.farthest(start, pace)?;
            if found <= distance {
                break;
            }
            (start, distance) = (farthest, found);
        }
        Ok(start)
    }

    /// The row of least degree among the farthest from `start`, and their distance.
    fn farthest(&mut self, start: u32, pace: &mut Pace<'_>) -> Result<(u32, u32), Stopped> {
        let mut queue = std::mem::take(&mut self.queue);
        queue.push(start);
        self.seen[start as usize] = true;
        let (mut level, mut distance) = (0, 0);
        loop {
            let end = queue.len();
            for at in level..end {
                let work = self.expand(queue[at], |row| queue.push(row));
                pace.beside(work)?;
            }
            if queue.len() == end {
                break;
            }
            (level, distance) = (end, distance + 1);
        }
        let least = queue[level..].iter().copied().min_by_key(|&r| (self.degrees[r as usize], r));
        for v in queue.drain(..).chain(self.columns.drain(..)) {
            self.seen[v as usize] = false;
        }
        self.queue = queue;
        Ok((least.unwrap_or(start), distance))
    }

    /// Appends the component of `start`, nearest rows first.
    fn number(&mut self, start: u32, order: &mut Vec<u32>, pace: &mut Pace<'_>) -> Result<(), Stopped> {
        let mut at = order.len();
        order.push(start);
        self.seen[start as usize] = true;
        while let Some(&row) = order.get(at) {
            let known = order.len();
            let work = self.expand(row, |neighbour| order.push(neighbour));
            order[known..].sort_unstable_by_key(|&r| (self.degrees[r as usize], r));
            pace.done(work)?;
            at += 1;
        }
        self.columns.clear();
        Ok(())
    }
}

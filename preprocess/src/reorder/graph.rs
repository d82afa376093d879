//! Graphs in which rows that have something in common are near each other.

use super::pace::Pace;
use super::pattern::{Pattern, index, narrow};
use super::shared::{WeightedRows, rows_by_shared_columns};
use super::watch::{Stopped, Watch};
use windrow_formats::OutOfMemory;
use windrow_formats::memory::{make_room, try_collect, try_with_room, try_zeroed};

/// No vertex has this number.
const NO_VERTEX: u32 = u32::MAX;

/// An undirected graph without loops; vertices `0 .. rows` are the rows of the matrix.
///
/// Vertices from `rows` on stand for columns: the rows beside such a vertex share that column.
pub(super) struct Graph {
    rows: usize,
    /// Neighbours of vertex `v`: `neighbours[offsets[v] .. offsets[v + 1]]`, ascending.
    offsets: Vec<u64>,
    neighbours: Vec<u32>,
    /// Weight of each edge, at both of its ends; none if all are 1.
    weights: Vec<u32>,
}

impl Graph {
    /// The rows, joined by [shared columns](super::shared).
    pub(super) fn of_shared_columns(pattern: &Pattern<'_>, watch: &dyn Watch) -> Result<Self, Stopped> {
        let WeightedRows { offsets, edges } = rows_by_shared_columns(pattern, watch)?;
        let neighbours = try_collect(edges.iter().map(|edge| edge.0), "neighbours")?;
        let weights = try_collect(edges.iter().map(|edge| edge.1), "weights")?;
        Ok(Self { rows: offsets.len() - 1, offsets, neighbours, weights })
    }

    /// The pattern of `A + Aᵀ` without its diagonal, for a square matrix.
    ///
    /// # Cost
    /// Linear in rows and entries; memory for three times the column indices while it runs.
    pub(super) fn symmetric(pattern: &Pattern<'_>, watch: &dyn Watch) -> Result<Self, Stopped> {
        let rows = pattern.rows();
        let work = (0..rows).map(|r| 3 * pattern.row_len(r) as u64 + 1).sum();
        let mut pace = Pace::begin(watch, "graph", work);
        let mut counts = try_zeroed(rows as usize, "counts of columns")?;
        count_columns(pattern, &mut counts, &mut pace)?;
        let mut ends = starts(counts.iter().map(|&count| u64::from(count)))?;
        drop(counts);
        let mut transposed = try_zeroed(index(ends[rows as usize]), "the transposed pattern")?;
        for r in 0..rows {
            for &column in pattern.row(r) {
                let end = &mut ends[column as usize];
                transposed[index(*end)] = r;
                *end += 1;
            }
            pace.done(pattern.row_len(r) as u64)?;
        }
        let mut offsets = try_zeroed(rows as usize + 1, "offsets of neighbours")?;
        let mut neighbours = try_with_room(transposed.len(), "neighbours")?;
        let mut start = 0;
        for r in 0..rows {
            let end = index(ends[r as usize]);
            make_room(&mut neighbours, pattern.row_len(r) + end - start, "neighbours")?;
            merge(pattern.row(r), &transposed[start..end], r, &mut neighbours);
            offsets[r as usize + 1] = neighbours.len() as u64;
            pace.done(pattern.row_len(r) as u64 + 1)?;
            start = end;
        }
        pace.finish()?;
        neighbours.shrink_to_fit();
        Ok(Self { rows: rows as usize, offsets, neighbours, weights: Vec::new() })
    }

    /// Rows and columns, an edge for each entry; columns of one entry or more than `longest` are left out.
    ///
    /// # Cost
    /// Linear in rows, columns and entries; memory for twice the column indices.
    pub(super) fn bipartite(pattern: &Pattern<'_>, longest: u32, watch: &dyn Watch) -> Result<Self, Stopped> {
        let rows = pattern.rows();
        let nnz: u64 = (0..rows).map(|r| pattern.row_len(r) as u64).sum();
        let mut pace = Pace::begin(watch, "graph", 3 * nnz + u64::from(rows) + pattern.cols() as u64);
        let mut counts = try_zeroed::<u32>(pattern.cols(), "counts of columns")?;
        count_columns(pattern, &mut counts, &mut pace)?;
        // The vertex of a column replaces its count. Should numbers run out, later columns are left out.
        let mut lengths = Vec::new();
        for count in &mut counts {
            let vertex = u64::from(rows) + lengths.len() as u64;
            let taken = (2..=longest).contains(count) && vertex < u64::from(NO_VERTEX);
            let vertex = if taken { narrow(index(vertex)) } else { NO_VERTEX };
            if taken {
                make_room(&mut lengths, 1, "lengths of columns")?;
                lengths.push(u64::from(*count));
            }
            *count = vertex;
            pace.done(1)?;
        }
        let vertices = counts;
        let vertex_of = |&column: &u32| Some(vertices[column as usize]).filter(|&v| v != NO_VERTEX);

        let mut offsets = try_with_room(rows as usize + lengths.len() + 1, "offsets of neighbours")?;
        offsets.push(0);
        let mut neighbours = Vec::new();
        for r in 0..rows {
            make_room(&mut neighbours, pattern.row_len(r), "neighbours")?;
            neighbours.extend(pattern.row(r).iter().filter_map(vertex_of));
            offsets.push(neighbours.len() as u64);
            pace.done(pattern.row_len(r) as u64)?;
        }
        // Every edge so far has another end at a column.
        let by_rows = neighbours.len();
        let mut ends = starts(lengths.into_iter())?;
        ends.iter_mut().for_each(|end| *end += by_rows as u64);
        make_room(&mut neighbours, by_rows, "neighbours")?;
        neighbours.resize(2 * by_rows, 0);
        for r in 0..rows {
            let range = index(offsets[r as usize])..index(offsets[r as usize + 1]);
            for at in range {
                let end = &mut ends[(neighbours[at] - rows) as usize];
                neighbours[index(*end)] = r;
                *end += 1;
            }
            pace.done(pattern.row_len(r) as u64 + 1)?;
        }
        ends.pop();
        offsets.extend(ends);
        pace.finish()?;
        Ok(Self { rows: rows as usize, offsets, neighbours, weights: Vec::new() })
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Whether a vertex is a row.
    pub(super) fn is_row(&self, v: u32) -> bool {
        (v as usize) < self.rows
    }

    /// Number of vertices, rows and others.
    pub(super) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(super) fn neighbours(&self, v: u32) -> &[u32] {
        &self.neighbours[index(self.offsets[v as usize])..index(self.offsets[v as usize + 1])]
    }

    /// The neighbours of a vertex and the weights of the edges to them.
    pub(super) fn edges(&self, v: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let range = index(self.offsets[v as usize])..index(self.offsets[v as usize + 1]);
        range.map(|end| (self.neighbours[end], self.weights.get(end).copied().unwrap_or(1)))
    }

    /// The number of neighbours, which is below 2³².
    pub(super) fn degree(&self, v: u32) -> u32 {
        narrow(self.neighbours(v).len())
    }

    /// Ends of edges: twice the number of edges.
    pub(super) fn ends(&self) -> u64 {
        self.neighbours.len() as u64
    }
}

/// Adds how many rows have each column.
fn count_columns(pattern: &Pattern<'_>, counts: &mut [u32], pace: &mut Pace<'_>) -> Result<(), Stopped> {
    for r in 0..pattern.rows() {
        // A column has at most as many entries as there are rows.
        pattern.row(r).iter().for_each(|&column| counts[column as usize] += 1);
        pace.done(pattern.row_len(r) as u64)?;
    }
    Ok(())
}

/// Where consecutive lists of these lengths start, and the end of the last one.
pub(super) fn starts(lengths: impl Iterator<Item = u64>) -> Result<Vec<u64>, OutOfMemory> {
    let what = "offsets of lists";
    let mut starts = try_with_room(lengths.size_hint().0 + 1, what)?;
    starts.push(0);
    let mut end = 0;
    for len in lengths {
        end += len;
        make_room(&mut starts, 1, what)?;
        starts.push(end);
    }
    Ok(starts)
}

/// Appends the union of two ascending lists, without `without`.
fn merge(a: &[u32], b: &[u32], without: u32, union: &mut Vec<u32>) {
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let x = a.get(i).copied().unwrap_or(NO_VERTEX);
        let y = b.get(j).copied().unwrap_or(NO_VERTEX);
        let least = x.min(y);
        i += usize::from(x == least);
        j += usize::from(y == least);
        if least != without {
            union.push(least);
        }
    }
}

/// `order` with the rows without entries behind all others.
pub(super) fn empty_last(pattern: &Pattern<'_>, mut order: Vec<u32>) -> Result<Vec<u32>, OutOfMemory> {
    let is_empty = |&r: &u32| pattern.row_len(r) == 0;
    let mut empty = try_with_room(order.iter().filter(|r| is_empty(r)).count(), "rows without entries")?;
    empty.extend(order.iter().copied().filter(is_empty));
    order.retain(|r| !is_empty(r));
    // There is the room that they had.
    order.extend(empty);
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_formats::Csr;

    fn matrix(rows: usize, cols: usize, entries: &[&[u32]]) -> Csr<f32> {
        let mut offsets = vec![0];
        offsets.extend(entries.iter().scan(0, |end, row| {
            *end += row.len() as u64;
            Some(*end)
        }));
        let columns = entries.concat();
        let values = vec![1.0; columns.len()];
        Csr::try_from_parts(rows, cols, offsets, columns, values).unwrap()
    }

    fn lists(graph: &Graph) -> Vec<Vec<u32>> {
        (0..narrow(graph.len())).map(|v| graph.neighbours(v).to_vec()).collect()
    }

    #[test]
    fn a_square_matrix_and_its_transpose_are_united() {
        let a = matrix(4, 4, &[&[0, 1, 3], &[0], &[], &[2, 3]]);
        let graph = Graph::symmetric(&Pattern::of(&a), &()).unwrap();
        assert_eq!(lists(&graph), [vec![1, 3], vec![0], vec![3], vec![0, 2]]);
        assert_eq!((graph.rows(), graph.len(), graph.ends()), (4, 4, 6));
    }

    #[test]
    fn columns_that_several_rows_share_become_vertices() {
        // Column 0 has one entry, columns 1 and 4 have two, column 2 none, column 3 has three.
        let a = matrix(3, 5, &[&[0, 1, 3], &[1, 3, 4], &[3, 4]]);
        let graph = Graph::bipartite(&Pattern::of(&a), u32::MAX, &()).unwrap();
        assert_eq!(
            lists(&graph),
            [vec![3, 4], vec![3, 4, 5], vec![4, 5], vec![0, 1], vec![0, 1, 2], vec![1, 2]]
        );
        let graph = Graph::bipartite(&Pattern::of(&a), 2, &()).unwrap();
        assert_eq!(lists(&graph), [vec![3], vec![3, 4], vec![4], vec![0, 1], vec![1, 2]]);
        assert_eq!(graph.rows(), 3);
    }
}

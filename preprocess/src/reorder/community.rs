//! Communities found by merging, and their members next to each other.

use windrow_formats::memory::{make_room, try_collect, try_filled, try_with_room, try_zeroed};
use windrow_formats::{Csr, OutOfMemory, Value};

use super::degree::ascending;
use super::graph::{Graph, empty_last};
use super::pace::Pace;
use super::pattern::{Pattern, narrow};
use super::watch::{Stopped, Watch};

/// Looks at edges that merged communities left, for each end of an edge, at most.
const MAX_LOOKS: u64 = 32;
/// No vertex has this number.
const NONE: u32 = u32::MAX;

/// An order in which the rows of a community, of the communities in it and so on, are consecutive.
///
/// The Rabbit order (J. Arai, H. Shiokawa, T. Yamamuro, M. Onizuka, S. Iwamura, "Rabbit Order: just-in-time
/// parallel reordering for fast graph analysis", IPDPS 2016), sequential and hence deterministic. Vertices are
/// visited in ascending order of their degrees. Each is merged into the neighbouring community that adds most
/// to the modularity, `ΔQ(u, v) ∝ w(u, v) − d(u)·d(v) / Σd` with `w` the weight of the edges between the two
/// and `d` the sum of degrees in each, unless none adds anything. What was merged into what is a forest, the
/// dendrogram; its trees are walked depth-first, in the order of their roots. Rows without entries come last.
///
/// Edges are, of a square matrix, the entries of `A + Aᵀ`, all of weight 1. Of another one, each row is joined to
/// the eight others with which it shares most columns, rare columns counting more; where many rows have a
/// column, only pairs near each other in the matrix are compared. Hubs need no special care: a large `d` repels.
///
/// # Cost
/// Linear in rows and entries, sequential: an edge is looked at when one of its ends is visited and, while it
/// is between communities, again when the one it leaves is. Should that ever be more than 32 times an edge,
/// edges that merged communities left are no longer followed. Memory for four to six times the column indices.
pub(super) fn order<V: Value>(csr: &Csr<V>, watch: &dyn Watch) -> Result<Vec<u32>, Stopped> {
    let pattern = Pattern::of(csr);
    let graph = if csr.rows() == csr.cols() {
        Graph::symmetric(&pattern, watch)?
    } else {
        Graph::of_shared_columns(&pattern, watch)?
    };
    let mut pace = Pace::begin(watch, "communities", graph.len() as u64 + graph.ends());
    let mut communities = Communities::new(&graph)?;
    for v in ascending(narrow(graph.len()), |v| graph.degree(v))? {
        communities.visit(v, &mut pace)?;
    }
    let order = communities.depth_first(&mut pace)?;
    pace.finish()?;
    Ok(empty_last(&pattern, order)?)
}

/// Vertices merged so far.
struct Communities<'a> {
    graph: &'a Graph,
    /// What a vertex was merged into, or something further up; itself if it is a root.
    parent: Vec<u32>,
    /// Vertices merged into each, as lists: the last one, and for each the one before it.
    last_child: Vec<u32>,
    previous: Vec<u32>,
    /// Sum of the degrees in the community of each root.
    degrees: Vec<u64>,
    degree_sum: u64,
    /// Edges to other communities of what was merged into a vertex that is not visited yet.
    edges: Vec<Vec<(u32, u32)>>,
    visited: Vec<bool>,
    /// Edges between the vertex being visited and each root; all 0 between visits.
    weights: Vec<u32>,
    /// Edges of merged communities that may still be looked at.
    looks: u64,
}

impl<'a> Communities<'a> {
    fn new(graph: &'a Graph) -> Result<Self, OutOfMemory> {
        let vertices = narrow(graph.len());
        let degree = |v| graph.edges(v).map(|(_, weight)| u64::from(weight)).sum();
        let (len, what) = (graph.len(), "communities");
        let degrees = try_collect((0..vertices).map(degree), what)?;
        Ok(Self {
            graph,
            parent: try_collect(0..vertices, what)?,
            last_child: try_filled(len, NONE, what)?,
            previous: try_filled(len, NONE, what)?,
            degree_sum: degrees.iter().sum::<u64>(),
            degrees,
            edges: try_filled(len, Vec::new(), what)?,
            visited: try_filled(len, false, what)?,
            weights: try_zeroed(len, what)?,
            looks: MAX_LOOKS * graph.ends(),
        })
    }

    /// The root of the community of `v`, halving the way for the next time.
    fn root(&mut self, mut v: u32) -> u32 {
        while self.parent[v as usize] != v {
            let up = self.parent[self.parent[v as usize] as usize];
            self.parent[v as usize] = up;
            v = up;
        }
        v
    }

    /// Merges `v`, which has a community of its own, into the best one beside it.
    fn visit(&mut self, v: u32, pace: &mut Pace<'_>) -> Result<(), Stopped> {
        self.visited[v as usize] = true;
        let mut beside = Vec::new();
        let graph = self.graph;
        for (neighbour, weight) in graph.edges(v) {
            self.add(v, neighbour, weight, &mut beside)?;
        }
        pace.done(u64::from(graph.degree(v)) + 1)?;
        let mut child = self.last_child[v as usize];
        while child != NONE {
            let edges = std::mem::take(&mut self.edges[child as usize]);
            if let Some(looks) = self.looks.checked_sub(edges.len() as u64) {
                self.looks = looks;
                for &(neighbour, weight) in &edges {
                    self.add(v, neighbour, weight, &mut beside)?;
                }
            }
            pace.beside(edges.len() as u64 + 1)?;
            child = self.previous[child as usize];
        }
        let best = self.best(v, &beside);
        let taken = beside.iter().map(|&u| (u, std::mem::take(&mut self.weights[u as usize])));
        let edges: Vec<(u32, u32)> = try_collect(taken, "edges of a community")?;
        let Some(best) = best else { return Ok(()) };
        self.parent[v as usize] = best;
        self.degrees[best as usize] += self.degrees[v as usize];
        self.previous[v as usize] = self.last_child[best as usize];
        self.last_child[best as usize] = v;
        // Who was visited already looks at no more edges.
        if !self.visited[best as usize] {
            self.edges[v as usize] = edges;
        }
        Ok(())
    }

    /// Adds an edge of the community `v` to what is known about the community at its other end.
    fn add(&mut self, v: u32, neighbour: u32, weight: u32, beside: &mut Vec<u32>) -> Result<(), OutOfMemory> {
        let root = self.root(neighbour);
        if root == v {
            return Ok(());
        }
        let sum = &mut self.weights[root as usize];
        if *sum == 0 {
            make_room(beside, 1, "neighbours of a community")?;
            beside.push(root);
        }
        *sum = sum.saturating_add(weight);
        Ok(())
    }

    /// The root beside `v` of the greatest positive gain; of equal gains, the one of the lowest number.
    fn best(&self, v: u32, beside: &[u32]) -> Option<u32> {
        let degree = i128::from(self.degrees[v as usize]);
        let gain = |u: u32| {
            i128::from(self.weights[u as usize]) * i128::from(self.degree_sum)
                - i128::from(self.degrees[u as usize]) * degree
        };
        let (gain, u) = beside.iter().map(|&u| (gain(u), std::cmp::Reverse(u))).max()?;
        (gain > 0).then_some(u.0)
    }

    /// The rows, every tree of the dendrogram depth-first.
    fn depth_first(&self, pace: &mut Pace<'_>) -> Result<Vec<u32>, Stopped> {
        // Each is on the stack once.
        let mut order = try_with_room(self.graph.len(), "an order")?;
        let mut stack = try_with_room(self.graph.len(), "a stack of communities")?;
        for root in (0..narrow(self.graph.len())).filter(|&v| self.parent[v as usize] == v) {
            stack.push(root);
            while let Some(v) = stack.pop() {
                order.push(v);
                pace.beside(1)?;
                // The child merged first, which is the nearest, comes off the stack first.
                let mut child = self.last_child[v as usize];
                while child != NONE {
                    stack.push(child);
                    child = self.previous[child as usize];
                }
            }
        }
        Ok(order)
    }
}

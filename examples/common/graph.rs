//! Graphs as models take them: undirected, every node its own neighbour.

use windrow::{Coo, Csr};

use super::Result;

/// The pattern of `A ∪ Aᵀ ∪ I`, with ones: every edge in both directions, and a loop at every node.
///
/// # Errors
/// If the matrix is not square, or there is too little memory.
pub(crate) fn undirected(a: &Csr<f32>) -> Result<Csr<f32>> {
    let n = a.rows();
    if a.cols() != n {
        return Err(format!("the matrix is {n} × {}: the adjacency of a graph is square", a.cols()).into());
    }
    let (mut rows, mut cols) = (Vec::new(), Vec::new());
    let mut edge = |i: u32, j: u32| {
        rows.extend([i, j]);
        cols.extend([j, i]);
    };
    for (i, (neighbours, _)) in (0..).zip(a.rows_iter()) {
        neighbours.iter().for_each(|&j| edge(i, j));
        edge(i, i);
    }
    let ones = vec![1.0f32; rows.len()];
    // Edges that were there twice are summed, and are one again.
    Ok(Coo::try_new(n, n, rows, cols, ones)?.to_csr()?.map_values(|_| 1.0))
}

/// `D^-½·A·D^-½` for an undirected graph, with the degrees `D`: what GCN averages with (Kipf and Welling, 2017). As
/// symmetric as `a`, bit for bit.
///
/// # Errors
/// Never: there is a value for each entry.
pub(crate) fn normalized(a: &Csr<f32>) -> Result<Csr<f32>> {
    #[expect(clippy::cast_precision_loss, reason = "a degree, whose root is rounded anyway")]
    let roots: Vec<f32> = (0..a.rows()).map(|i| 1.0 / (a.row_len(i) as f32).sqrt()).collect();
    let mut values = Vec::with_capacity(a.nnz());
    for (i, (neighbours, _)) in a.rows_iter().enumerate() {
        values.extend(neighbours.iter().map(|&j| roots[i] * roots[j as usize]));
    }
    Ok(a.with_values(values)?)
}

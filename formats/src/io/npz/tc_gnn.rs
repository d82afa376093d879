//! Graphs as TC-GNN keeps them (Wang, Feng, Wang, Huang, Ding, "TC-GNN: Bridging Sparse GNN Computation and
//! Dense Tensor Cores on GPUs", USENIX ATC 2023): arrays `src_li` and `dst_li` of ids from 0, and `num_nodes`.
//! Source nodes are rows; every edge has the value 1.

use std::io::{Read, Seek};

use super::super::report::{Header, ReadReport};
use super::super::{Loaded, ReadError, ReadOptions};
use super::archive::Archive;
use crate::memory::try_filled;
use crate::{Coo, Csr, Value};

/// Reads the matrix in `archive`.
pub(super) fn read<V: Value, R: Read + Seek>(
    archive: &mut Archive<R>,
    options: &ReadOptions<'_>,
) -> Result<Loaded<V>, ReadError> {
    let [size] = archive.array("num_nodes")?.numbers("number of nodes", "one number")?;
    let (rows, cols) = options.limits.check_shape("num_nodes.npy", size, size)?;
    let sources = archive.array("src_li")?;
    sources.check_len(sources.len(), "in one dimension")?;
    options.limits.check_nnz("src_li.npy", sources.len())?;
    let row_indices = sources.indices("nodes", rows)?;
    let targets = archive.array("dst_li")?;
    targets.check_len(sources.len(), "one for each of src_li.npy")?;
    let col_indices = targets.indices("nodes", cols)?;

    let values = try_filled(row_indices.len(), V::ONE, "values")?;
    let coo = Coo::try_new(rows as usize, cols as usize, row_indices, col_indices, values)?;
    let csr = Csr::try_from_coo(&coo)?;
    let mut report = ReadReport::new(Header::TcGnnNpz);
    report.entries_read = sources.len();
    report.pattern_values = sources.len();
    Ok(Loaded { csr, report })
}

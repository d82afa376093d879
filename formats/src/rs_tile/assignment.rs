//! Which rows go to tiles and which to the residual.

use crate::OutOfMemory;
use crate::memory::try_collect;

/// Where the entries of a row are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowPath {
    /// In a window's tiles, for matrix units.
    Tile,
    /// In the residual, for scalar cores.
    Residual,
}

/// One [`RowPath`] for each row of a matrix. Rows without entries are kept nowhere, whatever their path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowAssignment {
    paths: Vec<RowPath>,
}

impl RowAssignment {
    /// Every row in tiles.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn all_tile(rows: usize) -> Result<Self, OutOfMemory> {
        Self::from_fn(rows, |_| RowPath::Tile)
    }

    /// Every row in the residual.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn all_residual(rows: usize) -> Result<Self, OutOfMemory> {
        Self::from_fn(rows, |_| RowPath::Residual)
    }

    /// Row `r` on path `path(r)`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn from_fn(rows: usize, path: impl FnMut(usize) -> RowPath) -> Result<Self, OutOfMemory> {
        Ok(Self { paths: try_collect((0..rows).map(path), "paths of rows")? })
    }

    /// How many rows are assigned.
    pub fn rows(&self) -> usize {
        self.paths.len()
    }

    /// The path of each row.
    pub fn paths(&self) -> &[RowPath] {
        &self.paths
    }

    /// The path of row `r`.
    ///
    /// # Panics
    /// If `r` is not below [`rows`](Self::rows), like an index into a slice.
    pub fn path(&self, r: usize) -> RowPath {
        self.paths[r]
    }
}

impl From<Vec<RowPath>> for RowAssignment {
    fn from(paths: Vec<RowPath>) -> Self {
        Self { paths }
    }
}

//! What distinguishes the kernels of products with N:M weights: tiles of `C`, and rows that these multiply.

/// Which rows of N:M weights a tile of columns of `C` multiplies, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NmRows {
    /// All as they come, of each four the two that are kept.
    All,
    /// Those of an order that the tile has for itself, of each four the two that are kept.
    Ordered,
    /// Those that all of its columns keep, which lie in one vector.
    Kept,
}

/// The part of `C` that a block of an N:M product computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NmTile {
    /// Rows of `C` in the tile.
    pub rows: u32,
    /// Columns of `C` in the tile.
    pub columns: u32,
    /// Columns that share one list of picks.
    pub strip: u32,
}

//! The arrays of an RS-Tile matrix, to take apart and to put together.

use super::check::check;
use super::{Bucket, Residual, RsTile};
use crate::memory::narrow;
use crate::{FormatError, Value};

/// The arrays of an [`RsTile`], unchecked: input of [`RsTile::try_from_parts`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RsTileParts<V> {
    /// Number of rows of the matrix.
    pub rows: usize,
    /// Number of columns of the matrix.
    pub cols: usize,
    /// Row in each slot, 8 to a window.
    pub window_rows: Vec<u32>,
    /// First tile of each window, and the number of tiles.
    pub window_tiles: Vec<u32>,
    /// Column of each condensed column, 8 to a tile.
    pub tile_cols: Vec<u32>,
    /// Bitmap of each tile.
    pub bitmaps: Vec<u64>,
    /// First value of each tile, and the number of values.
    pub tile_values: Vec<u64>,
    /// Values of the tiles.
    pub values: Vec<V>,
    /// Buckets of the residual.
    pub residual_buckets: Vec<Bucket>,
    /// Rows of the residual, bucket after bucket.
    pub residual_rows: Vec<u32>,
    /// Columns of the residual, row after row.
    pub residual_col_indices: Vec<u32>,
    /// Values of the residual.
    pub residual_values: Vec<V>,
}

impl<V: Value> RsTile<V> {
    /// The matrix that `parts` describes, all invariants checked.
    ///
    /// # Errors
    /// - [`FormatError::DimensionTooLarge`] if rows or columns exceed 2³² − 1;
    /// - [`FormatError::RsTile`] with the label of the first invariant that is broken, and the place.
    pub fn try_from_parts(parts: RsTileParts<V>) -> Result<Self, FormatError> {
        check(&parts)?;
        Ok(Self::from_checked_parts(parts))
    }

    pub(super) fn from_checked_parts(parts: RsTileParts<V>) -> Self {
        Self {
            rows: narrow(parts.rows),
            cols: narrow(parts.cols),
            window_rows: parts.window_rows,
            window_tiles: parts.window_tiles,
            tile_cols: parts.tile_cols,
            bitmaps: parts.bitmaps,
            tile_values: parts.tile_values,
            values: parts.values,
            residual: Residual {
                buckets: parts.residual_buckets,
                rows: parts.residual_rows,
                col_indices: parts.residual_col_indices,
                values: parts.residual_values,
            },
        }
    }
}

impl<V> RsTile<V> {
    /// Takes the matrix apart; [`try_from_parts`](Self::try_from_parts) puts it together again.
    pub fn into_parts(self) -> RsTileParts<V> {
        RsTileParts {
            rows: self.rows as usize,
            cols: self.cols as usize,
            window_rows: self.window_rows,
            window_tiles: self.window_tiles,
            tile_cols: self.tile_cols,
            bitmaps: self.bitmaps,
            tile_values: self.tile_values,
            values: self.values,
            residual_buckets: self.residual.buckets,
            residual_rows: self.residual.rows,
            residual_col_indices: self.residual.col_indices,
            residual_values: self.residual.values,
        }
    }
}

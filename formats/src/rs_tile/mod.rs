//! RS-Tile: windows of 8 rows condensed to 8 × 8 bitmap tiles, and a residual of short rows.

mod assignment;
mod build;
mod check;
mod convert;
mod merge;
mod parts;
mod residual;
mod sizes;

#[cfg(test)]
mod tests;

pub use assignment::{RowAssignment, RowPath};
pub use convert::EntrySources;
pub use merge::merge_columns;
pub use parts::RsTileParts;
pub use residual::{Bucket, Residual};

use crate::memory::{ByteSizes, bytes_of, index};
use crate::{Csr, FormatError, NO_ROW, Permutation, Structure, Value};

/// Rows of a window, and of a tile.
pub const WINDOW_ROWS: usize = 8;
/// Condensed columns of a tile.
pub const TILE_COLS: usize = 8;

/// A sparse matrix as bitmap tiles for matrix units and a residual for scalar cores, after RSH-SpMM.
///
/// Rows are packed 8 to a *window*, in the order in which the builder is given them; a window may have fewer. The
/// distinct columns of a window, ascending, are condensed 8 to a *tile*: condensed column `q` of a tile stands for
/// column `tile_cols[8·t + q]` of the matrix. Bit `8·q + s` of a tile's bitmap says whether the row in slot `s` of
/// the window has an entry in condensed column `q`; the values of a tile follow in the order of the bits, so the
/// value of bit `p` is at `tile_values[t] + popcount(bitmaps[t] & ((1 << p) − 1))`.
///
/// Rows without entries are stored nowhere. All row and column numbers are those of the matrix that the
/// format was built from, whatever the order of the rows.
///
/// Invariants, with `w = |window_tiles| − 1` windows and `t = |bitmaps|` tiles. [`FormatError::RsTile`]
/// names them by label:
///
/// | label | formula |
/// | --- | --- |
/// | W1 | `window_tiles[0] = 0`, `∀ i < w: window_tiles[i] < window_tiles[i + 1]`, `window_tiles[w] = t` |
/// | W2 | `len(window_rows) = 8·w`; every slot holds a row `< rows`, but a window may end in `NO_ROW`, after at least one row |
/// | W3 | no row is in two slots, nor in a slot and in the residual, nor twice in the residual |
/// | T1 | `len(tile_cols) = 8·t`, `len(tile_values) = t + 1` |
/// | T2 | in a window, its condensed columns without `NO_COLUMN` strictly ascend and are `< cols` |
/// | T3 | `NO_COLUMN` stands only at the end of a window's last tile, after at least one column |
/// | T4 | condensed column `q` of tile `i` is `NO_COLUMN` exactly if bits `8·q .. 8·q + 8` of `bitmaps[i]` are 0 |
/// | T5 | a slot with `NO_ROW` has no bit in its window's tiles, every other slot has at least one |
/// | V1 | `tile_values[0] = 0`, `∀ i < t: tile_values[i + 1] = tile_values[i] + popcount(bitmaps[i])`, `tile_values[t] = len(values)` |
/// | R1 | buckets have ascending lengths in `1 ..= cols`, at least one row each, and `first_row` and `first_entry` are the sums of `rows` and of `rows · len` over the buckets before; in the end they are `len(residual.rows)` and `len(residual.values)` |
/// | R2 | the rows of a bucket are `< rows` and strictly ascend |
/// | R3 | the columns of a residual row are `< cols` and strictly ascend; there are as many columns as values |
///
/// # Examples
/// ```
/// use windrow_formats::{Csr, RowAssignment, RowPath, RsTile};
///
/// let a = Csr::try_from_parts(3, 3, vec![0, 2, 2, 3], vec![0, 2, 2], vec![1.0f32, 2.0, 3.0])?;
/// let tiles = RsTile::from_csr(&a, &RowAssignment::all_tile(3)?)?;
/// assert_eq!(tiles.bitmaps(), [0b11_0000_0001]); // column 0: slot 0; column 2: slots 0 and 1
/// assert_eq!(tiles.window_rows()[..3], [0, 2, windrow_formats::NO_ROW]); // row 1 is empty
/// assert_eq!(tiles.to_csr()?, a);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RsTile<V> {
    rows: u32,
    cols: u32,
    window_rows: Vec<u32>,
    window_tiles: Vec<u32>,
    tile_cols: Vec<u32>,
    bitmaps: Vec<u64>,
    tile_values: Vec<u64>,
    values: Vec<V>,
    residual: Residual<V>,
}

/// One tile of an [`RsTile`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tile<'a, V> {
    /// The 8 columns; [`NO_COLUMN`](crate::NO_COLUMN) where the window has no more.
    pub cols: &'a [u32],
    /// Bit `8·q + s`: condensed column `q`, slot `s`.
    pub bitmap: u64,
    /// One value for each bit that is set, in order.
    pub values: &'a [V],
}

impl<V: Value> RsTile<V> {
    /// `csr` with each row on the path that `assignment` gives it, rows packed to windows in their order.
    ///
    /// # Cost
    /// Linear in rows and entries for the tiles, parallel over windows; the residual's rows are sorted by
    /// length.
    ///
    /// # Errors
    /// - [`FormatError::LengthMismatch`] unless there is one path for each row;
    /// - [`FormatError::TooManyTiles`] for more than 2³² − 1 tiles;
    /// - [`FormatError::OutOfMemory`].
    pub fn from_csr(csr: &Csr<V>, assignment: &RowAssignment) -> Result<Self, FormatError> {
        build::build(csr, assignment, 0..csr.rows())
    }

    /// Like [`RsTile::from_csr`], but rows are packed to windows in the order
    /// `order.to_old(0), order.to_old(1), …`; row numbers and `assignment` remain those of `csr`.
    ///
    /// # Errors
    /// Those of [`RsTile::from_csr`], and [`FormatError::LengthMismatch`] unless `order` is as long as there
    /// are rows.
    pub fn from_csr_in_order(
        csr: &Csr<V>,
        assignment: &RowAssignment,
        order: &Permutation,
    ) -> Result<Self, FormatError> {
        if order.len() != csr.rows() {
            let (found, expected, why) = (order.len(), csr.rows(), "one for each row");
            return Err(FormatError::LengthMismatch { array: "the order of rows", found, expected, why });
        }
        build::build(csr, assignment, order.new_to_old().iter().map(|&row| row as usize))
    }

    /// `csr` with the windows that `window_rows` lists, 8 slots each: rows, then [`NO_ROW`] where a window has fewer.
    /// Rows with entries that are in no window become the residual.
    ///
    /// For whoever decides by more than the order which rows share a window: windows that are full only in part
    /// stay apart.
    ///
    /// # Cost
    /// That of [`RsTile::from_csr`].
    ///
    /// # Errors
    /// - [`FormatError::RsTile`] with label W2, W3 or T5 unless each window has a row, and each row is below the
    ///   number of rows, listed once and not without entries;
    /// - [`FormatError::TooManyTiles`], [`FormatError::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::{Csr, NO_ROW, RsTile};
    ///
    /// let a = Csr::<f32>::identity(3)?;
    /// let windows = [[2, 0], [NO_ROW; 2], [NO_ROW; 2], [NO_ROW; 2]].concat();
    /// let tiles = RsTile::from_windows(&a, windows)?;
    /// assert_eq!((tiles.rows_of_window(0), tiles.residual().rows()), (&[2, 0][..], &[1][..]));
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn from_windows(csr: &Csr<V>, window_rows: Vec<u32>) -> Result<Self, FormatError> {
        build::build_windows(csr, window_rows)
    }
}

impl<V> RsTile<V> {
    /// Number of rows of the matrix.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Number of columns of the matrix.
    pub fn cols(&self) -> usize {
        self.cols as usize
    }

    /// Number of entries, in tiles and residual together.
    pub fn nnz(&self) -> usize {
        self.values.len() + self.residual.nnz()
    }

    /// How many windows there are, ragged ones counted.
    pub fn windows(&self) -> usize {
        self.window_tiles.len() - 1
    }

    /// How many tiles all windows have.
    pub fn tiles(&self) -> usize {
        self.bitmaps.len()
    }

    /// Row in each slot, 8 to a window; [`NO_ROW`] where a window has fewer.
    pub fn window_rows(&self) -> &[u32] {
        &self.window_rows
    }

    /// First tile of each window, and the number of tiles.
    pub fn window_tiles(&self) -> &[u32] {
        &self.window_tiles
    }

    /// Column of each condensed column, 8 to a tile; [`NO_COLUMN`](crate::NO_COLUMN) where the last tile of
    /// a window has fewer.
    pub fn tile_cols(&self) -> &[u32] {
        &self.tile_cols
    }

    /// Bitmap of each tile: bit `8·q + s` for condensed column `q`, slot `s`.
    pub fn bitmaps(&self) -> &[u64] {
        &self.bitmaps
    }

    /// First value of each tile, and the number of values.
    pub fn tile_values(&self) -> &[u64] {
        &self.tile_values
    }

    /// Values of the tiles, in the order of the bits, tile after tile.
    pub fn values(&self) -> &[V] {
        &self.values
    }

    /// The rows that are in no window.
    pub fn residual(&self) -> &Residual<V> {
        &self.residual
    }

    /// The rows of window `w` that exist: at least one, at most 8.
    ///
    /// # Panics
    /// If `w` is not below [`windows`](Self::windows), like an index into a slice.
    pub fn rows_of_window(&self, w: usize) -> &[u32] {
        let slots = &self.window_rows[WINDOW_ROWS * w..WINDOW_ROWS * (w + 1)];
        &slots[..slots.iter().position(|&row| row == NO_ROW).unwrap_or(WINDOW_ROWS)]
    }

    /// Positions of the tiles of window `w`.
    ///
    /// # Panics
    /// If `w` is not below [`windows`](Self::windows), like an index into a slice.
    pub fn tiles_of_window(&self, w: usize) -> std::ops::Range<usize> {
        self.window_tiles[w] as usize..self.window_tiles[w + 1] as usize
    }

    /// Tile `t`.
    ///
    /// # Panics
    /// If `t` is not below [`tiles`](Self::tiles), like an index into a slice.
    pub fn tile(&self, t: usize) -> Tile<'_, V> {
        Tile {
            cols: &self.tile_cols[TILE_COLS * t..TILE_COLS * (t + 1)],
            bitmap: self.bitmaps[t],
            values: &self.values[index(self.tile_values[t])..index(self.tile_values[t + 1])],
        }
    }

    /// Size of each array in bytes.
    pub fn byte_sizes(&self) -> ByteSizes {
        ByteSizes::new(vec![
            ("window_rows", bytes_of(&self.window_rows)),
            ("window_tiles", bytes_of(&self.window_tiles)),
            ("tile_cols", bytes_of(&self.tile_cols)),
            ("bitmaps", bytes_of(&self.bitmaps)),
            ("tile_values", bytes_of(&self.tile_values)),
            ("values", bytes_of(&self.values)),
            ("residual_buckets", bytes_of(&self.residual.buckets)),
            ("residual_rows", bytes_of(&self.residual.rows)),
            ("residual_col_indices", bytes_of(&self.residual.col_indices)),
            ("residual_values", bytes_of(&self.residual.values)),
        ])
    }

    /// The [`byte_sizes`](Self::byte_sizes) of `csr` with all rows in tiles, without building them; `structure` is that
    /// of `csr`.
    ///
    /// # Cost
    /// Constant if no row is empty, for then the tiles are those that `structure` counts; else a parallel pass over the
    /// entries.
    ///
    /// # Errors
    /// Those of [`from_csr`](Self::from_csr).
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::{Csr, RowAssignment, RsTile, Structure};
    ///
    /// let a = Csr::<f32>::identity(20)?;
    /// let sizes = RsTile::byte_sizes_in_tiles(&a, &Structure::of(&a))?;
    /// assert_eq!(sizes, RsTile::from_csr(&a, &RowAssignment::all_tile(20)?)?.byte_sizes());
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn byte_sizes_in_tiles(csr: &Csr<V>, structure: &Structure) -> Result<ByteSizes, FormatError>
    where
        V: Sync,
    {
        sizes::in_tiles(csr, structure)
    }
}

/// Positions of the bits that are set, ascending.
pub(crate) fn set_bits(mut bitmap: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = bitmap.trailing_zeros();
        bitmap &= bitmap.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    })
}

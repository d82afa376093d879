//! Back to compressed rows, and new values for a pattern that is packed already.

use rayon::prelude::*;

use super::{RsTile, TILE_COLS, WINDOW_ROWS, set_bits};
use crate::memory::{index, try_with_room, try_zeroed};
use crate::{Csr, FormatError, NO_ROW, Value};

/// For each packed value of an [`RsTile`], the position of its entry in the [`Csr`] it was built from.
///
/// Together, the two lists hold each position exactly once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntrySources {
    tile: Vec<u64>,
    residual: Vec<u64>,
}

impl EntrySources {
    /// Entry of each value of the tiles.
    pub fn tile(&self) -> &[u64] {
        &self.tile
    }

    /// Entry of each value of the residual.
    pub fn residual(&self) -> &[u64] {
        &self.residual
    }
}

impl<V: Value> RsTile<V> {
    /// The same matrix in compressed rows, values bit for bit.
    ///
    /// # Errors
    /// [`FormatError::OutOfMemory`].
    pub fn to_csr(&self) -> Result<Csr<V>, FormatError> {
        // Counts, then the next free position of each row, which is its end when all entries are placed.
        let mut row_offsets = try_zeroed::<u64>(self.rows() + 1, "row_offsets")?;
        let ends = &mut row_offsets[1..];
        self.for_each_tile_entry(|row, _, _| ends[row as usize] += 1);
        for bucket in self.residual.buckets() {
            for &row in &self.residual.rows()[bucket.first_row as usize..][..bucket.rows as usize] {
                ends[row as usize] = u64::from(bucket.len);
            }
        }
        let mut next = 0;
        for end in &mut *ends {
            next += std::mem::replace(end, next);
        }

        let mut col_indices = try_zeroed::<u32>(self.nnz(), "col_indices")?;
        let mut values = try_zeroed::<V>(self.nnz(), "values")?;
        // Tiles of a window come in ascending order of columns, so the rows come out sorted.
        self.for_each_tile_entry(|row, column, value| {
            let at = index(ends[row as usize]);
            ends[row as usize] += 1;
            (col_indices[at], values[at]) = (column, value);
        });
        for (row, cols, row_values) in self.residual.rows_iter() {
            let start = index(ends[row as usize]);
            let end = start + cols.len();
            ends[row as usize] = end as u64;
            col_indices[start..end].copy_from_slice(cols);
            values[start..end].copy_from_slice(row_values);
        }
        Csr::try_from_parts(self.rows(), self.cols(), row_offsets, col_indices, values)
    }

    /// Calls `visit(row, column, value)` for each entry of the tiles, in the order of the values.
    fn for_each_tile_entry(&self, mut visit: impl FnMut(u32, u32, V)) {
        for window in 0..self.windows() {
            let rows = &self.window_rows[WINDOW_ROWS * window..][..WINDOW_ROWS];
            for tile in self.tiles_of_window(window) {
                let tile = self.tile(tile);
                for (bit, &value) in set_bits(tile.bitmap).zip(tile.values) {
                    visit(rows[bit % WINDOW_ROWS], tile.cols[bit / WINDOW_ROWS], value);
                }
            }
        }
    }

    /// Where each packed value stands in `csr`, the matrix this one was built from (or one of the same
    /// pattern, of any element type).
    ///
    /// # Errors
    /// - [`FormatError::PatternMismatch`] if `csr` has another size or pattern;
    /// - [`FormatError::OutOfMemory`].
    pub fn entry_sources<W: Value>(&self, csr: &Csr<W>) -> Result<EntrySources, FormatError> {
        let mismatch = |detail| FormatError::PatternMismatch { detail };
        let (rows, cols, nnz) = (csr.rows(), csr.cols(), csr.nnz());
        if (rows, cols, nnz) != (self.rows(), self.cols(), self.nnz()) {
            let (m, k, z) = (self.rows(), self.cols(), self.nnz());
            return Err(mismatch(format!("{m} × {k} with {z} entries against {rows} × {cols} with {nnz}")));
        }
        let row_mismatch = |row: u32| mismatch(format!("row {row} has other columns"));

        let mut tile = try_zeroed::<u64>(self.values.len(), "entry sources")?;
        let mut windows = try_with_room(self.windows(), "sources of windows")?;
        let mut rest = tile.as_mut_slice();
        for window in 0..self.windows() {
            let tiles = self.tiles_of_window(window);
            let entries = index(self.tile_values[tiles.end] - self.tile_values[tiles.start]);
            let (sources, tail) = rest.split_at_mut(entries);
            windows.push(sources);
            rest = tail;
        }
        windows.into_par_iter().with_min_len(64).enumerate().try_for_each(|(window, sources)| {
            self.window_sources(csr, window, sources).map_err(row_mismatch)
        })?;

        let mut residual = try_zeroed::<u64>(self.residual.nnz(), "entry sources")?;
        for (row, entries) in self.residual.row_ranges() {
            let range = csr.row_range(row as usize);
            if csr.col_indices()[range.clone()] != self.residual.col_indices[entries.clone()] {
                return Err(row_mismatch(row));
            }
            for (source, entry) in residual[entries].iter_mut().zip(range) {
                *source = entry as u64;
            }
        }
        Ok(EntrySources { tile, residual })
    }

    /// Fills in the sources of one window's values; the error is a row whose columns differ.
    fn window_sources<W: Value>(&self, csr: &Csr<W>, window: usize, sources: &mut [u64]) -> Result<(), u32> {
        let rows = &self.window_rows[WINDOW_ROWS * window..][..WINDOW_ROWS];
        let (mut next, mut ends) = ([0; WINDOW_ROWS], [0; WINDOW_ROWS]);
        for (slot, &row) in rows.iter().enumerate().filter(|&(_, &row)| row != NO_ROW) {
            let range = csr.row_range(row as usize);
            (next[slot], ends[slot]) = (range.start, range.end);
        }
        let mut sources = sources.iter_mut();
        for tile in self.tiles_of_window(window) {
            let cols = &self.tile_cols[TILE_COLS * tile..][..TILE_COLS];
            for (bit, source) in set_bits(self.bitmaps[tile]).zip(sources.by_ref()) {
                let slot = bit % WINDOW_ROWS;
                let entry = next[slot];
                if entry == ends[slot] || csr.col_indices()[entry] != cols[bit / WINDOW_ROWS] {
                    return Err(rows[slot]);
                }
                *source = entry as u64;
                next[slot] += 1;
            }
        }
        match next.iter().zip(ends).position(|(&next, end)| next != end) {
            None => Ok(()),
            Some(slot) => Err(rows[slot]),
        }
    }

    /// Puts `values[e]` in the place of entry `e` of the matrix that `sources` was made with.
    ///
    /// # Errors
    /// - [`FormatError::LengthMismatch`] unless there is one value for each entry;
    /// - [`FormatError::PatternMismatch`] if `sources` is of a matrix with another split into tiles and
    ///   residual.
    pub fn replace_values(&mut self, sources: &EntrySources, values: &[V]) -> Result<(), FormatError> {
        if values.len() != self.nnz() {
            let (found, expected, why) = (values.len(), self.nnz(), "one for each entry");
            return Err(FormatError::LengthMismatch { array: "values", found, expected, why });
        }
        let (tile, residual) = (sources.tile.len(), sources.residual.len());
        if (tile, residual) != (self.values.len(), self.residual.nnz()) {
            let (t, r) = (self.values.len(), self.residual.nnz());
            let detail =
                format!("{t} entries in tiles and {r} in the residual against {tile} and {residual}");
            return Err(FormatError::PatternMismatch { detail });
        }
        let gather = |(target, &source): (&mut V, &u64)| *target = values[index(source)];
        self.values.par_iter_mut().zip(&sources.tile).with_min_len(1 << 14).for_each(gather);
        self.residual.values.par_iter_mut().zip(&sources.residual).with_min_len(1 << 14).for_each(gather);
        Ok(())
    }
}

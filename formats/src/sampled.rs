//! A pattern laid out for sampled products: tiles of 8 rows × 16 condensed columns, and a rest.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use crate::memory::{
    ByteSizes, bytes_of, dimension, make_room, narrow, try_par_collect_ok, try_push, try_with_room,
};
use crate::rs_tile::{WINDOW_ROWS, merge_columns};
use crate::{Csr, FormatError, NO_COLUMN, NO_ROW, OutOfMemory};

/// Condensed columns of a [`SampledTile`].
pub const SAMPLED_COLS: usize = 16;
/// Windows that are laid out by one task.
const TASK_WINDOWS: usize = 256;

/// The pattern of a sparse matrix for `out = (X·Yᵀ) ⊙ pattern` (SDDMM), after Libra (section 4).
///
/// Rows that have entries are packed 8 to a *window*, in order. The distinct columns of a window are condensed 16 to a
/// *tile*, which is computed as a whole on a matrix unit. Tiles of few entries may be left to scalar cores instead:
/// [`SampledTiles::with_dense_tiles`] puts the columns with the most entries together and keeps only the tiles
/// that reach a number of entries; the other entries are the *rest*, row by row.
///
/// Entries are named by their position in the CSR that the pattern was taken from. In a tile, those of a row follow one
/// another in the order of their columns, so that a mask and the position of the first one say where each belongs.
/// With a rest, positions lead to [`places`](Self::places) instead, and that to the CSR: first those of the
/// tiles, then those of the rest.
///
/// Invariants: every entry is in exactly one tile or in the rest; in a tile, columns without [`NO_COLUMN`] ascend and
/// have at least one entry each, and [`NO_COLUMN`] stands only behind them.
///
/// # Examples
/// ```
/// use windrow_formats::{Csr, SampledTiles};
///
/// let a = Csr::try_from_parts(3, 9, vec![0, 2, 2, 3], vec![0, 8, 8], vec![1.0f32; 3])?;
/// let pattern = SampledTiles::from_csr(&a)?;
/// let tile = pattern.tiles()[0];
/// assert_eq!((tile.cols[0], tile.cols[1]), (0, 8));
/// assert_eq!(tile.masks[..2], [0b11, 0b10]); // rows 0 and 2: row 1 is empty
/// assert_eq!(tile.starts[..2], [0, 2]);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SampledTiles {
    window_rows: Vec<u32>,
    tiles: Vec<SampledTile>,
    tile_entries: usize,
    places: Vec<u32>,
    rest_rows: Vec<u32>,
    rest_offsets: Vec<u32>,
    rest_cols: Vec<u32>,
}

/// One tile of [`SampledTiles`], as kernels read it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct SampledTile {
    /// Column of each condensed column, or [`NO_COLUMN`].
    pub cols: [u32; SAMPLED_COLS],
    /// Bit `q` of `masks[s]`: the row in slot `s` has an entry in condensed column `q`.
    pub masks: [u16; WINDOW_ROWS],
    /// Position of each row's first entry in the tile; means nothing for a row without one.
    pub starts: [u32; WINDOW_ROWS],
    /// First element of the window in [`SampledTiles::window_rows`].
    pub window: u32,
    /// Always zero: makes the size a multiple of 16 bytes.
    pub reserved: [u32; 3],
}

impl SampledTile {
    const EMPTY: Self = Self {
        cols: [NO_COLUMN; SAMPLED_COLS],
        masks: [0; WINDOW_ROWS],
        starts: [0; WINDOW_ROWS],
        window: 0,
        reserved: [0; 3],
    };

    /// Number of entries, one bit each.
    #[must_use]
    pub fn nnz(&self) -> u32 {
        self.masks.iter().map(|mask| mask.count_ones()).sum()
    }
}

/// The entries of a window in one column.
#[derive(Debug, Clone, Copy)]
struct Vector {
    column: u32,
    bits: u8,
    /// Position of the entry in each slot that has a bit.
    positions: [u32; WINDOW_ROWS],
}

impl SampledTiles {
    /// All entries of `csr` in tiles, columns ascending in a window.
    ///
    /// # Cost
    /// Linear in rows and entries, parallel over windows.
    ///
    /// # Errors
    /// [`FormatError::DimensionTooLarge`] for 2³² entries or more, [`FormatError::OutOfMemory`].
    pub fn from_csr<V: Sync>(csr: &Csr<V>) -> Result<Self, FormatError> {
        Self::build(csr, |window, csr, rows, group| group.in_order(csr, rows, window))
    }

    /// In tiles what makes tiles of at least `min_entries` entries, if the columns of a window are taken in descending
    /// order of their entries, of equals the lower first; the others in the rest.
    ///
    /// Libra's distribution: the paper keeps a tile with at least 24 of its 128 places taken.
    ///
    /// # Cost
    /// Linear in rows and entries but for sorting the columns of each window; parallel over windows.
    ///
    /// # Errors
    /// [`FormatError::DimensionTooLarge`] for 2³² entries or more, [`FormatError::OutOfMemory`].
    pub fn with_dense_tiles<V: Sync>(csr: &Csr<V>, min_entries: u32) -> Result<Self, FormatError> {
        Self::build(csr, |window, csr, rows, group| group.densest_first(csr, rows, window, min_entries))
    }

    fn build<V: Sync>(
        csr: &Csr<V>,
        lay_out: impl Fn(u32, &Csr<V>, &[u32], &mut Group) -> Result<(), OutOfMemory> + Sync,
    ) -> Result<Self, FormatError> {
        dimension(csr.nnz(), "entries")?;
        let filled = (0..csr.rows()).filter(|&row| csr.row_len(row) > 0).map(narrow);
        let places = filled.clone().count().next_multiple_of(WINDOW_ROWS);
        let mut window_rows = try_with_room(places, "window_rows")?;
        window_rows.extend(filled);
        window_rows.resize(places, NO_ROW);
        let tasks = window_rows.par_chunks(TASK_WINDOWS * WINDOW_ROWS).enumerate();
        let groups = tasks.map(|(task, rows)| {
            let mut group = Group::default();
            for (i, rows) in rows.chunks_exact(WINDOW_ROWS).enumerate() {
                lay_out(narrow((task * TASK_WINDOWS + i) * WINDOW_ROWS), csr, rows, &mut group)?;
            }
            group.vectors = Vec::new();
            Ok::<_, OutOfMemory>(group)
        });
        let groups = try_par_collect_ok(groups, "tiles of windows")?;
        let count = |of: fn(&Group) -> usize| groups.iter().map(of).sum::<usize>();
        let rest = count(|group| group.rest_cols.len());
        let mut all = Self { window_rows, ..Self::default() };
        make_room(&mut all.tiles, count(|group| group.tiles.len()), "tiles")?;
        make_room(&mut all.places, count(|group| group.places.len() + group.rest_places.len()), "places")?;
        make_room(&mut all.rest_rows, count(|group| group.rest_rows.len()), "rest_rows")?;
        make_room(&mut all.rest_offsets, 1 + count(|group| group.rest_ends.len()), "rest_offsets")?;
        make_room(&mut all.rest_cols, rest, "rest_cols")?;
        all.rest_offsets.push(0);
        for group in &groups {
            let first = narrow(all.places.len());
            let shifted = group.tiles.iter().map(|tile| {
                let starts = tile.starts.map(|start| start + first);
                SampledTile { starts, ..*tile }
            });
            match group.places.is_empty() {
                true => all.tiles.extend_from_slice(&group.tiles),
                false => all.tiles.extend(shifted),
            }
            all.places.extend_from_slice(&group.places);
            all.rest_rows.extend_from_slice(&group.rest_rows);
            let end = narrow(all.rest_cols.len());
            all.rest_offsets.extend(group.rest_ends.iter().map(|own| own + end));
            all.rest_cols.extend_from_slice(&group.rest_cols);
        }
        all.tile_entries = csr.nnz() - rest;
        for group in groups {
            all.places.extend(group.rest_places);
        }
        Ok(all)
    }

    /// Row in each slot, 8 to a window; [`NO_ROW`] where the last window has fewer.
    #[must_use]
    pub fn window_rows(&self) -> &[u32] {
        &self.window_rows
    }

    /// The tiles, window after window.
    #[must_use]
    pub fn tiles(&self) -> &[SampledTile] {
        &self.tiles
    }

    /// Number of entries in tiles.
    #[must_use]
    pub fn tile_entries(&self) -> usize {
        self.tile_entries
    }

    /// CSR position of each position, those of the tiles first; empty if they are the same.
    #[must_use]
    pub fn places(&self) -> &[u32] {
        &self.places
    }

    /// Rows of the rest, ascending.
    #[must_use]
    pub fn rest_rows(&self) -> &[u32] {
        &self.rest_rows
    }

    /// First entry of each row of the rest, and their number.
    #[must_use]
    pub fn rest_offsets(&self) -> &[u32] {
        &self.rest_offsets
    }

    /// Column of each entry of the rest.
    #[must_use]
    pub fn rest_cols(&self) -> &[u32] {
        &self.rest_cols
    }

    /// Columns that the tiles gather: their columns without pads.
    #[must_use]
    pub fn gathered_columns(&self) -> u64 {
        let columns = |tile: &SampledTile| tile.cols.iter().filter(|&&column| column != NO_COLUMN).count();
        self.tiles.par_iter().map(|tile| columns(tile) as u64).sum()
    }

    /// Size of each array in bytes.
    #[must_use]
    pub fn byte_sizes(&self) -> ByteSizes {
        ByteSizes::new(vec![
            ("window_rows", bytes_of(&self.window_rows)),
            ("tiles", bytes_of(&self.tiles)),
            ("places", bytes_of(&self.places)),
            ("rest_rows", bytes_of(&self.rest_rows)),
            ("rest_offsets", bytes_of(&self.rest_offsets)),
            ("rest_cols", bytes_of(&self.rest_cols)),
        ])
    }
}

/// What one task lays out; positions in `places` are the group's own.
#[derive(Debug, Default)]
struct Group {
    tiles: Vec<SampledTile>,
    places: Vec<u32>,
    rest_rows: Vec<u32>,
    rest_ends: Vec<u32>,
    rest_cols: Vec<u32>,
    rest_places: Vec<u32>,
    vectors: Vec<Vector>,
}

impl Group {
    /// Tiles of ascending columns; positions are those of the CSR.
    fn in_order<V>(&mut self, csr: &Csr<V>, rows: &[u32], window: u32) -> Result<(), OutOfMemory> {
        let mut taken = SAMPLED_COLS; // of the last tile
        let mut outcome = Ok(());
        let tiles = &mut self.tiles;
        merge_columns(csr, rows, |column, bits, entries| {
            if taken == SAMPLED_COLS {
                let tile = SampledTile { window, ..SampledTile::EMPTY };
                outcome = outcome.and_then(|()| try_push(tiles, tile, "tiles"));
                taken = 0;
            }
            if let Some(tile) = tiles.last_mut() {
                tile.cols[taken] = column;
                for slot in (0..WINDOW_ROWS).filter(|slot| bits >> slot & 1 == 1) {
                    if tile.masks[slot] == 0 {
                        tile.starts[slot] = narrow(entries[slot]);
                    }
                    tile.masks[slot] |= 1 << taken;
                }
            }
            taken += 1;
        });
        outcome
    }

    /// Tiles of the fullest columns, as long as they have `min_entries`; the others to the rest.
    fn densest_first<V>(
        &mut self,
        csr: &Csr<V>,
        rows: &[u32],
        window: u32,
        min_entries: u32,
    ) -> Result<(), OutOfMemory> {
        let mut vectors = std::mem::take(&mut self.vectors);
        vectors.clear();
        let mut outcome = Ok(());
        merge_columns(csr, rows, |column, bits, entries| {
            let vector = Vector { column, bits, positions: entries.map(narrow) };
            outcome = outcome.and_then(|()| try_push(&mut vectors, vector, "columns of a window"));
        });
        outcome?;
        vectors.sort_unstable_by_key(|vector| (std::cmp::Reverse(vector.bits.count_ones()), vector.column));
        let entries = |tile: &[Vector]| tile.iter().map(|vector| vector.bits.count_ones()).sum::<u32>();
        let kept = vectors.chunks(SAMPLED_COLS).take_while(|tile| entries(tile) >= min_entries);
        let kept = kept.map(<[Vector]>::len).sum();
        let (in_tiles, rest) = vectors.split_at_mut(kept);
        for tile in in_tiles.chunks_mut(SAMPLED_COLS) {
            tile.sort_unstable_by_key(|vector| vector.column);
            self.push_tile(tile, window)?;
        }
        rest.sort_unstable_by_key(|vector| vector.column);
        for (slot, &row) in rows.iter().enumerate() {
            let before = self.rest_cols.len();
            for vector in rest.iter().filter(|vector| vector.bits >> slot & 1 == 1) {
                try_push(&mut self.rest_cols, vector.column, "rest_cols")?;
                try_push(&mut self.rest_places, vector.positions[slot], "places")?;
            }
            if self.rest_cols.len() > before {
                try_push(&mut self.rest_rows, row, "rest_rows")?;
                try_push(&mut self.rest_ends, narrow(self.rest_cols.len()), "rest_offsets")?;
            }
        }
        self.vectors = vectors;
        Ok(())
    }

    /// A tile of `vectors`, ascending; their positions are listed row by row.
    fn push_tile(&mut self, vectors: &[Vector], window: u32) -> Result<(), OutOfMemory> {
        let mut tile = SampledTile { window, ..SampledTile::EMPTY };
        for (column, vector) in tile.cols.iter_mut().zip(vectors) {
            *column = vector.column;
        }
        for slot in 0..WINDOW_ROWS {
            let start = narrow(self.places.len());
            for (q, vector) in vectors.iter().enumerate().filter(|(_, vector)| vector.bits >> slot & 1 == 1) {
                tile.masks[slot] |= 1 << q;
                try_push(&mut self.places, vector.positions[slot], "places")?;
            }
            tile.starts[slot] = start;
        }
        try_push(&mut self.tiles, tile, "tiles")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every `(row, column, CSR position)` that the layout has.
    fn entries(pattern: &SampledTiles) -> Vec<(u32, u32, u32)> {
        let place = |position: u32| match pattern.places() {
            [] => position,
            places => places[position as usize],
        };
        let mut all = Vec::new();
        for tile in pattern.tiles() {
            for slot in 0..WINDOW_ROWS {
                let columns = (0..SAMPLED_COLS).filter(|q| tile.masks[slot] >> q & 1 == 1);
                for (rank, q) in (0u32..).zip(columns) {
                    let row = pattern.window_rows()[tile.window as usize + slot];
                    all.push((row, tile.cols[q], place(tile.starts[slot] + rank)));
                }
            }
        }
        let first = pattern.tile_entries();
        for (&row, ends) in pattern.rest_rows().iter().zip(pattern.rest_offsets().windows(2)) {
            for at in ends[0] as usize..ends[1] as usize {
                all.push((row, pattern.rest_cols()[at], pattern.places()[first + at]));
            }
        }
        all.sort_unstable_by_key(|entry| entry.2);
        all
    }

    fn check(csr: &Csr<f32>, min_entries: Option<u32>) -> Result<(), TestCaseError> {
        let pattern = match min_entries {
            None => SampledTiles::from_csr(csr).unwrap(),
            Some(min) => SampledTiles::with_dense_tiles(csr, min).unwrap(),
        };
        let expected: Vec<_> = (0u32..)
            .zip((0..csr.rows()).flat_map(|r| csr.row(r).0.iter().map(move |&c| (narrow(r), c))))
            .map(|(position, (row, column))| (row, column, position))
            .collect();
        prop_assert_eq!(entries(&pattern), expected);
        prop_assert_eq!(pattern.tile_entries() + pattern.rest_cols().len(), csr.nnz());
        let mut columns = 0;
        for tile in pattern.tiles() {
            let real = tile.cols.iter().position(|&c| c == NO_COLUMN).unwrap_or(SAMPLED_COLS);
            columns += real as u64;
            prop_assert!(tile.cols[..real].is_sorted_by(|a, b| a < b));
            prop_assert!(tile.cols[real..].iter().all(|&c| c == NO_COLUMN));
            let taken = tile.masks.iter().fold(0, |all, mask| all | mask);
            prop_assert_eq!(u32::from(taken), (1u32 << real) - 1, "every column has an entry, no pad");
            prop_assert!(tile.nnz() >= min_entries.unwrap_or(1));
        }
        prop_assert_eq!(pattern.gathered_columns(), columns);
        Ok(())
    }

    proptest! {
        #[test]
        fn every_entry_is_in_one_place(
            rows in prop::collection::vec(prop::collection::btree_set(0u32..60, 0..40), 0..40),
            min_entries in 0u32..60,
        ) {
            let offsets = std::iter::once(0).chain(rows.iter().scan(0, |sum, row| {
                *sum += row.len() as u64;
                Some(*sum)
            })).collect();
            let columns: Vec<u32> = rows.iter().flatten().copied().collect();
            let values = vec![1.0; columns.len()];
            let csr = Csr::try_from_parts(rows.len(), 60, offsets, columns, values).unwrap();
            check(&csr, None)?;
            check(&csr, Some(min_entries))?;
        }
    }

    #[test]
    fn dense_columns_are_kept_and_the_rest_is_left() {
        // Column 5 in all 8 rows, columns 0 to 3 in one each.
        let offsets = vec![0, 2, 4, 6, 8, 9, 10, 11, 12];
        let columns = vec![0, 5, 1, 5, 2, 5, 3, 5, 5, 5, 5, 5];
        let csr = Csr::try_from_parts(8, 6, offsets, columns, vec![1.0f32; 12]).unwrap();
        // The five columns make one tile of 12 entries: all or nothing.
        let kept = SampledTiles::with_dense_tiles(&csr, 12).unwrap();
        assert_eq!((kept.tiles().len(), kept.tile_entries(), kept.rest_rows().len()), (1, 12, 0));
        assert_eq!(kept.tiles()[0].masks[0], 0b1_0001);
        let left = SampledTiles::with_dense_tiles(&csr, 13).unwrap();
        assert_eq!((left.tiles().len(), left.tile_entries()), (0, 0));
        assert_eq!(left.rest_rows(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(left.rest_offsets(), [0, 2, 4, 6, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn a_tile_is_a_line_of_128_bytes() {
        assert_eq!(size_of::<SampledTile>(), 128);
        let csr = Csr::from_dense(1, 1, &[1.0f32]).unwrap();
        let pattern = SampledTiles::from_csr(&csr).unwrap();
        let words: &[u32] = bytemuck::cast_slice(pattern.tiles());
        assert_eq!((words[0], words[1], words[16], words[28]), (0, NO_COLUMN, 1, 0));
        assert_eq!(pattern.byte_sizes().total(), 32 + 128 + 4);
    }
}

//! From compressed rows to tiles and residual.

use std::ops::Range;

use rayon::prelude::*;

use super::check::chosen_windows;
use super::merge::merge_columns;
use super::{Bucket, RowAssignment, RowPath, RsTile, RsTileParts, TILE_COLS, WINDOW_ROWS};
use crate::memory::{index, make_room, narrow, try_collect, try_par_collect, try_with_room, try_zeroed};
use crate::{Csr, FormatError, NO_COLUMN, NO_ROW, Value};

/// Entries that make a group of windows worth a task of its own.
const GROUP_ENTRIES: usize = 1 << 14;

/// Builds the tiles from the rows in `order`, which names each row once.
pub(super) fn build<V: Value>(
    csr: &Csr<V>,
    assignment: &RowAssignment,
    order: impl Iterator<Item = usize>,
) -> Result<RsTile<V>, FormatError> {
    if assignment.rows() != csr.rows() {
        let (found, expected, why) = (assignment.rows(), csr.rows(), "one path for each row");
        return Err(FormatError::LengthMismatch { array: "the row assignment", found, expected, why });
    }
    let (mut window_rows, mut residual_rows) = (Vec::new(), Vec::new());
    for row in order.filter(|&row| csr.row_len(row) > 0) {
        match assignment.path(row) {
            RowPath::Tile => {
                make_room(&mut window_rows, WINDOW_ROWS, "window_rows")?;
                window_rows.push(narrow(row));
            }
            RowPath::Residual => {
                make_room(&mut residual_rows, 1, "residual_rows")?;
                residual_rows.push((narrow(csr.row_len(row)), narrow(row)));
            }
        }
    }
    // Room for a whole window was made for each row.
    window_rows.resize(window_rows.len().next_multiple_of(WINDOW_ROWS), NO_ROW);
    build_listed(csr, window_rows, residual_rows)
}

/// Builds the windows that are listed, from the rows that are in none the residual.
pub(super) fn build_windows<V: Value>(csr: &Csr<V>, window_rows: Vec<u32>) -> Result<RsTile<V>, FormatError> {
    let listed = chosen_windows(csr, &window_rows)?;
    let residual = |&row: &usize| !listed[row] && csr.row_len(row) > 0;
    let residual_rows = (0..csr.rows()).filter(residual).map(|row| (narrow(csr.row_len(row)), narrow(row)));
    let mut rows = try_with_room(residual_rows.clone().count(), "residual_rows")?;
    rows.extend(residual_rows);
    build_listed(csr, window_rows, rows)
}

/// Builds the windows that are listed and a residual of rows given as `(length, row)`: no row twice, none empty.
fn build_listed<V: Value>(
    csr: &Csr<V>,
    window_rows: Vec<u32>,
    residual_rows: Vec<(u32, u32)>,
) -> Result<RsTile<V>, FormatError> {
    let mut parts = RsTileParts { rows: csr.rows(), cols: csr.cols(), ..empty_parts() };
    build_tiles(csr, window_rows, &mut parts)?;
    build_residual(csr, residual_rows, &mut parts)?;
    Ok(RsTile::from_checked_parts(parts))
}

fn empty_parts<V>() -> RsTileParts<V> {
    RsTileParts {
        rows: 0,
        cols: 0,
        window_rows: Vec::new(),
        window_tiles: Vec::new(),
        tile_cols: Vec::new(),
        bitmaps: Vec::new(),
        tile_values: Vec::new(),
        values: Vec::new(),
        residual_buckets: Vec::new(),
        residual_rows: Vec::new(),
        residual_col_indices: Vec::new(),
        residual_values: Vec::new(),
    }
}

/// Condenses the windows that `window_rows` lists and packs their values.
fn build_tiles<V: Value>(
    csr: &Csr<V>,
    window_rows: Vec<u32>,
    parts: &mut RsTileParts<V>,
) -> Result<(), FormatError> {
    // 1. Tiles and values of each window, so that every window knows its place.
    let sizes = window_rows.par_chunks(WINDOW_ROWS).with_min_len(64).map(|rows| {
        let mut cols = 0u64;
        merge_columns(csr, rows, |_, _, _| cols += 1);
        let existing = rows.iter().filter(|&&row| row != NO_ROW);
        (cols.div_ceil(TILE_COLS as u64), existing.map(|&row| csr.row_len(row as usize)).sum())
    });
    let sizes: Vec<(u64, usize)> = try_par_collect(sizes, "sizes of windows")?;
    let tiles: u64 = sizes.iter().map(|size| size.0).sum();
    let entries = sizes.iter().map(|size| size.1).sum::<usize>();
    if tiles > u64::from(u32::MAX) {
        return Err(FormatError::TooManyTiles { tiles });
    }
    let tiles = index(tiles);
    let mut window_tiles = try_zeroed(sizes.len() + 1, "window_tiles")?;
    let mut tile_cols = try_zeroed::<u32>(TILE_COLS * tiles, "tile_cols")?;
    let mut bitmaps = try_zeroed(tiles, "bitmaps")?;
    let mut tile_values = try_zeroed(tiles + 1, "tile_values")?;
    let mut values = try_zeroed(entries, "values")?;

    // 2. Groups of consecutive windows with about as many entries each, every one with its part of the arrays.
    let mut groups = try_with_room(sizes.len().min(entries / GROUP_ENTRIES + 1), "groups of windows")?;
    let mut rest = WindowGroup {
        window_rows: &window_rows,
        first_tile: 0,
        first_value: 0,
        window_ends: &mut window_tiles[1..],
        cols: &mut tile_cols,
        bitmaps: &mut bitmaps,
        tile_ends: &mut tile_values[1..],
        values: &mut values,
    };
    let (mut windows, mut group_tiles, mut group_entries) = (0, 0, 0);
    for (window, &(window_tiles, window_entries)) in sizes.iter().enumerate() {
        windows += 1;
        group_tiles += index(window_tiles);
        group_entries += window_entries;
        if group_entries >= GROUP_ENTRIES || window + 1 == sizes.len() {
            let (group, tail) = rest.split_at(windows, group_tiles, group_entries);
            groups.push(group);
            rest = tail;
            (windows, group_tiles, group_entries) = (0, 0, 0);
        }
    }
    groups.into_par_iter().for_each(|group| group.fill(csr));

    parts.window_rows = window_rows;
    parts.window_tiles = window_tiles;
    parts.tile_cols = tile_cols;
    parts.bitmaps = bitmaps;
    parts.tile_values = tile_values;
    parts.values = values;
    Ok(())
}

/// Exclusive access to the part of the arrays that belongs to consecutive windows.
struct WindowGroup<'a, V> {
    window_rows: &'a [u32],
    /// Tiles before the group.
    first_tile: usize,
    /// Values before the group.
    first_value: usize,
    /// `window_tiles[w + 1]` of each window `w`.
    window_ends: &'a mut [u32],
    cols: &'a mut [u32],
    bitmaps: &'a mut [u64],
    /// `tile_values[t + 1]` of each tile `t`.
    tile_ends: &'a mut [u64],
    values: &'a mut [V],
}

impl<V: Value> WindowGroup<'_, V> {
    fn split_at(self, windows: usize, tiles: usize, entries: usize) -> (Self, Self) {
        let (window_rows, window_rows_tail) = self.window_rows.split_at(WINDOW_ROWS * windows);
        let (window_ends, window_ends_tail) = self.window_ends.split_at_mut(windows);
        let (cols, cols_tail) = self.cols.split_at_mut(TILE_COLS * tiles);
        let (bitmaps, bitmaps_tail) = self.bitmaps.split_at_mut(tiles);
        let (tile_ends, tile_ends_tail) = self.tile_ends.split_at_mut(tiles);
        let (values, values_tail) = self.values.split_at_mut(entries);
        let (first_tile, first_value) = (self.first_tile, self.first_value);
        let head =
            Self { window_rows, first_tile, first_value, window_ends, cols, bitmaps, tile_ends, values };
        let tail = Self {
            window_rows: window_rows_tail,
            first_tile: first_tile + tiles,
            first_value: first_value + entries,
            window_ends: window_ends_tail,
            cols: cols_tail,
            bitmaps: bitmaps_tail,
            tile_ends: tile_ends_tail,
            values: values_tail,
        };
        (head, tail)
    }

    fn fill(self, csr: &Csr<V>) {
        let (mut tiles, mut value) = (0, 0);
        for (rows, window_end) in self.window_rows.chunks_exact(WINDOW_ROWS).zip(self.window_ends) {
            let first = TILE_COLS * tiles;
            let mut at = first;
            merge_columns(csr, rows, |column, bits, entries| {
                self.cols[at] = column;
                let tile = at / TILE_COLS;
                self.bitmaps[tile] |= u64::from(bits) << (WINDOW_ROWS * (at % TILE_COLS));
                let mut left = bits;
                while left != 0 {
                    self.values[value] = csr.values()[entries[left.trailing_zeros() as usize]];
                    value += 1;
                    left &= left - 1;
                }
                // The last column of a tile leaves the right number there.
                self.tile_ends[tile] = (self.first_value + value) as u64;
                at += 1;
            });
            tiles += (at - first).div_ceil(TILE_COLS);
            self.cols[at..TILE_COLS * tiles].fill(NO_COLUMN);
            *window_end = narrow(self.first_tile + tiles);
        }
    }
}

/// Orders the residual's rows, given as `(length, row)`, and copies their entries.
fn build_residual<V: Value>(
    csr: &Csr<V>,
    mut rows: Vec<(u32, u32)>,
    parts: &mut RsTileParts<V>,
) -> Result<(), FormatError> {
    rows.par_sort_unstable();
    let entries = rows.iter().map(|&(len, _)| len as usize).sum();
    let mut cols = try_zeroed::<u32>(entries, "residual_col_indices")?;
    let mut values = try_zeroed::<V>(entries, "residual_values")?;
    let buckets = rows.chunk_by(|a, b| a.0 == b.0).count();
    parts.residual_buckets = try_with_room(buckets, "residual_buckets")?;
    let (mut first_row, mut first_entry) = (0, 0);
    for same_len in rows.chunk_by(|a, b| a.0 == b.0) {
        let len = same_len[0].0;
        let (first, count) = (narrow(first_row), narrow(same_len.len()));
        parts.residual_buckets.push(Bucket {
            len,
            first_row: first,
            rows: count,
            first_entry: first_entry as u64,
        });
        let len = len as usize;
        let range: Range<usize> = first_entry..first_entry + len * same_len.len();
        let targets = cols[range.clone()].par_chunks_mut(len).zip(values[range.clone()].par_chunks_mut(len));
        targets.zip(same_len).with_min_len(GROUP_ENTRIES.div_ceil(len)).for_each(
            |((cols, values), &(_, row))| {
                let (row_cols, row_values) = csr.row(row as usize);
                cols.copy_from_slice(row_cols);
                values.copy_from_slice(row_values);
            },
        );
        first_row += same_len.len();
        first_entry = range.end;
    }
    parts.residual_rows = try_collect(rows.into_iter().map(|(_, row)| row), "residual_rows")?;
    parts.residual_col_indices = cols;
    parts.residual_values = values;
    Ok(())
}

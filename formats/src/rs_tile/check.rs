//! The invariants of [`RsTile`](super::RsTile), one function for each label.

use super::{RsTileParts, TILE_COLS, WINDOW_ROWS};
use crate::memory::{dimension, try_filled, try_with_room};
use crate::{Csr, FormatError, NO_COLUMN, NO_ROW};

/// The error for a broken invariant.
fn broken(invariant: &'static str, detail: String) -> FormatError {
    FormatError::RsTile { invariant, detail }
}

/// Checks every invariant. The order matters: each check may index by what the ones before established.
pub(super) fn check<V>(parts: &RsTileParts<V>) -> Result<(), FormatError> {
    dimension(parts.rows, "rows")?;
    dimension(parts.cols, "columns")?;
    lengths(parts)?;
    window_offsets(parts)?;
    window_slots(parts)?;
    residual_buckets(parts)?;
    residual_rows(parts)?;
    rows_once(parts)?;
    for window in 0..parts.window_tiles.len() - 1 {
        window_columns(parts, window)?;
        window_bits(parts, window)?;
    }
    value_offsets(parts)?;
    residual_columns(parts)
}

/// T1: the arrays of tiles have as many elements as there are tiles.
fn lengths<V>(parts: &RsTileParts<V>) -> Result<(), FormatError> {
    let tiles = parts.bitmaps.len();
    if Some(parts.tile_cols.len()) != tiles.checked_mul(TILE_COLS) {
        return Err(broken(
            "T1",
            format!("tile_cols has {} elements for {tiles} tiles", parts.tile_cols.len()),
        ));
    }
    if parts.tile_values.len() != tiles + 1 {
        return Err(broken(
            "T1",
            format!("tile_values has {} elements for {tiles} tiles", parts.tile_values.len()),
        ));
    }
    Ok(())
}

/// W1: every window has a tile, and together they have all.
fn window_offsets<V>(parts: &RsTileParts<V>) -> Result<(), FormatError> {
    let offsets = &parts.window_tiles;
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
        return Err(broken("W1", "window_tiles is empty; it ends with the number of tiles".into()));
    };
    if first != 0 {
        return Err(broken("W1", format!("window_tiles starts at {first}, not at 0")));
    }
    if let Some(window) = offsets.windows(2).position(|pair| pair[0] >= pair[1]) {
        let (start, end) = (offsets[window], offsets[window + 1]);
        return Err(broken("W1", format!("window {window} has no tile: it goes from {start} to {end}")));
    }
    if last as usize != parts.bitmaps.len() {
        let tiles = parts.bitmaps.len();
        return Err(broken("W1", format!("window_tiles ends at {last} but there are {tiles} bitmaps")));
    }
    Ok(())
}

/// W2: a window lists at least one row, and `NO_ROW` only behind its rows.
fn window_slots<V>(parts: &RsTileParts<V>) -> Result<(), FormatError> {
    let (windows, slots) = (parts.window_tiles.len() - 1, &parts.window_rows);
    if Some(slots.len()) != windows.checked_mul(WINDOW_ROWS) {
        return Err(broken("W2", format!("window_rows has {} elements for {windows} windows", slots.len())));
    }
    listed_rows(slots, parts.rows)
}

/// W2 of whole windows: in each a row below `rows` or several, then none.
fn listed_rows(slots: &[u32], rows: usize) -> Result<(), FormatError> {
    for (window, slots) in slots.chunks(WINDOW_ROWS).enumerate() {
        let used = slots.iter().position(|&row| row == NO_ROW).unwrap_or(slots.len());
        if let Some(at) = slots[..used].iter().position(|&row| row as usize >= rows) {
            let row = slots[at];
            return Err(broken(
                "W2",
                format!("window {window}, slot {at}: row {row} is not below {rows} rows"),
            ));
        }
        if used == 0 {
            return Err(broken("W2", format!("window {window} has no row in slot 0")));
        }
        if let Some(after) = slots[used..].iter().position(|&row| row != NO_ROW) {
            let at = used + after;
            return Err(broken(
                "W2",
                format!("window {window}, slot {at} holds a row after a slot that holds none"),
            ));
        }
    }
    Ok(())
}

/// W2, W3 and T5 of the windows that a matrix is to have. Returns which rows they list.
pub(super) fn chosen_windows<V>(csr: &Csr<V>, window_rows: &[u32]) -> Result<Vec<bool>, FormatError> {
    if !window_rows.len().is_multiple_of(WINDOW_ROWS) {
        let len = window_rows.len();
        return Err(broken("W2", format!("window_rows has {len} elements, not 8 for each window")));
    }
    listed_rows(window_rows, csr.rows())?;
    let mut listed = try_filled(csr.rows(), false, "rows listed")?;
    for (slot, &row) in window_rows.iter().enumerate().filter(|&(_, &row)| row != NO_ROW) {
        if std::mem::replace(&mut listed[row as usize], true) {
            return Err(broken("W3", format!("row {row} is stored more than once")));
        }
        if csr.row_len(row as usize) == 0 {
            let (window, at) = (slot / WINDOW_ROWS, slot % WINDOW_ROWS);
            return Err(broken("T5", format!("window {window}, slot {at}: row {row} has no bit")));
        }
    }
    Ok(listed)
}

/// R1: buckets ascend in length and follow each other without gaps.
fn residual_buckets<V>(parts: &RsTileParts<V>) -> Result<(), FormatError> {
    let (mut rows, mut entries, mut previous) = (0u64, 0u64, 0);
    for (number, bucket) in parts.residual_buckets.iter().enumerate() {
        if bucket.len <= previous || bucket.len as usize > parts.cols || bucket.rows == 0 {
            let (len, count, cols) = (bucket.len, bucket.rows, parts.cols);
            let detail = format!(
                "bucket {number}: {count} rows of length {len} after length {previous}, {cols} columns"
            );
            return Err(broken("R1", detail));
        }
        if (u64::from(bucket.first_row), bucket.first_entry) != (rows, entries) {
            let (row, entry) = (bucket.first_row, bucket.first_entry);
            let detail = format!(
                "bucket {number} starts at row {row}, entry {entry}, not at row {rows}, entry {entries}"
            );
            return Err(broken("R1", detail));
        }
        previous = bucket.len;
        // Fewer than 2³² buckets have rows, since `first_row` is 32 bits wide and checked.
        rows += u64::from(bucket.rows);
        let Some(end) = entries.checked_add(u64::from(bucket.rows) * u64::from(bucket.len)) else {
            return Err(broken("R1", format!("bucket {number}: its entries do not fit 64 bits")));
        };
        entries = end;
    }
    let (listed, stored) = (parts.residual_rows.len() as u64, parts.residual_values.len() as u64);
    if (rows, entries) != (listed, stored) {
        let detail =
            format!("buckets have {rows} rows, {entries} entries; there are {listed} rows, {stored} values");
        return Err(broken("R1", detail));
    }
    Ok(())
}

/// R2: the rows of a bucket exist and ascend.
fn residual_rows<V>(parts: &RsTileParts<V>) -> Result<(), FormatError> {
    for (number, bucket) in parts.residual_buckets.iter().enumerate() {
        let rows = &parts.residual_rows[bucket.first_row as usize..][..bucket.rows as usize];
        if let Some(at) = rows.iter().position(|&row| row as usize >= parts.rows) {
            let (row, limit) = (rows[at], parts.rows);
            return Err(broken(
                "R2",
                format!("bucket {number}, position {at}: row {row} is not below {limit} rows"),
            ));
        }
        if let Some(at) = rows.windows(2).position(|pair| pair[0] >= pair[1]) {
            let (row, next) = (rows[at], rows[at + 1]);
            let detail = format!("bucket {number}, position {}: row {next} is not above row {row}", at + 1);
            return Err(broken("R2", detail));
        }
    }
    Ok(())
}

/// W3: no row is in two places.
fn rows_once<V>(parts: &RsTileParts<V>) -> Result<(), FormatError> {
    let in_windows = parts.window_rows.iter().filter(|&&row| row != NO_ROW);
    let mut rows = try_with_room(parts.window_rows.len() + parts.residual_rows.len(), "rows listed")?;
    rows.extend(in_windows.chain(&parts.residual_rows).copied());
    rows.sort_unstable();
    match rows.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(broken("W3", format!("row {} is stored more than once", pair[0]))),
    }
}

/// T2 and T3, for one window.
fn window_columns<V>(parts: &RsTileParts<V>, window: usize) -> Result<(), FormatError> {
    let first = TILE_COLS * parts.window_tiles[window] as usize;
    let cols = &parts.tile_cols[first..TILE_COLS * parts.window_tiles[window + 1] as usize];
    let place =
        |at: usize| format!("window {window}, tile {}, column {}", (first + at) / TILE_COLS, at % TILE_COLS);
    let used = cols.iter().position(|&column| column == NO_COLUMN).unwrap_or(cols.len());
    if let Some(after) = cols[used..].iter().position(|&column| column != NO_COLUMN) {
        return Err(broken(
            "T3",
            format!("{}: column {} after a gap", place(used + after), cols[used + after]),
        ));
    }
    if cols.len() - used >= TILE_COLS {
        return Err(broken(
            "T3",
            format!("{}: the tile has no column", place(used.next_multiple_of(TILE_COLS))),
        ));
    }
    if let Some(at) = cols[..used].iter().position(|&column| column as usize >= parts.cols) {
        return Err(broken("T2", format!("{}: {} is not below {} columns", place(at), cols[at], parts.cols)));
    }
    if let Some(at) = cols[..used].windows(2).position(|pair| pair[0] >= pair[1]) {
        return Err(broken("T2", format!("{}: {} is not above {}", place(at + 1), cols[at + 1], cols[at])));
    }
    Ok(())
}

/// T4 and T5, for one window.
fn window_bits<V>(parts: &RsTileParts<V>, window: usize) -> Result<(), FormatError> {
    let mut slots_with_bits = 0u8;
    for tile in parts.window_tiles[window] as usize..parts.window_tiles[window + 1] as usize {
        for (at, bits) in parts.bitmaps[tile].to_le_bytes().into_iter().enumerate() {
            let column = parts.tile_cols[TILE_COLS * tile + at];
            if (column == NO_COLUMN) != (bits == 0) {
                let name = if column == NO_COLUMN { "none".into() } else { column.to_string() };
                let detail = format!(
                    "window {window}, tile {tile}, column {at} (stands for {name}): bits {bits:#010b}"
                );
                return Err(broken("T4", detail));
            }
            slots_with_bits |= bits;
        }
    }
    for (slot, &row) in parts.window_rows[WINDOW_ROWS * window..][..WINDOW_ROWS].iter().enumerate() {
        let has_bits = slots_with_bits >> slot & 1 == 1;
        if has_bits == (row == NO_ROW) {
            let detail =
                if has_bits { "holds no row but has bits".into() } else { format!("row {row} has no bit") };
            return Err(broken("T5", format!("window {window}, slot {slot}: {detail}")));
        }
    }
    Ok(())
}

/// V1: tiles follow each other in the values, each with as many as its bitmap has bits.
fn value_offsets<V>(parts: &RsTileParts<V>) -> Result<(), FormatError> {
    let offsets = &parts.tile_values;
    if offsets[0] != 0 {
        return Err(broken("V1", format!("tile_values starts at {}, not at 0", offsets[0])));
    }
    for (tile, (pair, bitmap)) in offsets.windows(2).zip(&parts.bitmaps).enumerate() {
        let bits = bitmap.count_ones();
        if pair[0].checked_add(u64::from(bits)) != Some(pair[1]) {
            let (start, end) = (pair[0], pair[1]);
            return Err(broken(
                "V1",
                format!("tile {tile} has {bits} bits but its values run from {start} to {end}"),
            ));
        }
    }
    let (end, values) = (offsets[parts.bitmaps.len()], parts.values.len());
    if end != values as u64 {
        return Err(broken("V1", format!("tile_values ends at {end} but there are {values} values")));
    }
    Ok(())
}

/// R3: the columns of a residual row exist and ascend.
fn residual_columns<V>(parts: &RsTileParts<V>) -> Result<(), FormatError> {
    let (cols, values) = (&parts.residual_col_indices, parts.residual_values.len());
    if cols.len() != values {
        return Err(broken("R3", format!("the residual has {} columns but {values} values", cols.len())));
    }
    // R1 has shown that the buckets cover exactly the rows and the entries.
    let mut rest = cols.as_slice();
    for bucket in &parts.residual_buckets {
        let rows = &parts.residual_rows[bucket.first_row as usize..][..bucket.rows as usize];
        for &row in rows {
            let (row_cols, tail) = rest.split_at(bucket.len as usize);
            rest = tail;
            if let Some(&column) = row_cols.iter().find(|&&column| column as usize >= parts.cols) {
                let limit = parts.cols;
                return Err(broken("R3", format!("row {row}: column {column} is not below {limit} columns")));
            }
            if let Some(pair) = row_cols.windows(2).find(|pair| pair[0] >= pair[1]) {
                let detail = format!("row {row}: column {} comes after column {}", pair[1], pair[0]);
                return Err(broken("R3", detail));
            }
        }
    }
    Ok(())
}

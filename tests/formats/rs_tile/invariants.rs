//! Valid parts with one thing broken are refused under the right label.

use proptest::prelude::*;
use windrow_formats::{FormatError, NO_COLUMN, NO_ROW, RsTile, RsTileParts};

use super::assigned;

/// Defines a property test: whatever the matrix, `change` makes its parts break `label`.
///
/// `change(parts, pick)` returns whether it found something to break; `pick(n)` chooses below `n`. Matrices
/// without anything to break are drawn again.
macro_rules! refuses {
    ($($name:ident, $label:literal, $change:expr;)+) => {
        proptest! {
            // Some changes find something to break in a fifth of the matrices only.
            #![proptest_config(ProptestConfig { max_global_rejects: 1 << 16, ..ProptestConfig::default() })]
            $(#[test]
            fn $name((csr, assignment) in assigned(300), index in any::<prop::sample::Index>()) {
                let mut parts = RsTile::from_csr(&csr, &assignment).unwrap().into_parts();
                let change: fn(&mut RsTileParts<f32>, &dyn Fn(usize) -> usize) -> bool = $change;
                let changed = change(&mut parts, &|n| index.index(n));
                prop_assume!(changed);
                match RsTile::try_from_parts(parts) {
                    Err(FormatError::RsTile { invariant, detail }) => {
                        prop_assert_eq!(invariant, $label, "{}", detail);
                    }
                    other => prop_assert!(false, "not refused as {}: {:?}", $label, other.map(|_| ())),
                }
            })+
        }
    };
}

/// Number of slots that hold a row.
fn used_slots(parts: &RsTileParts<f32>) -> usize {
    parts.window_rows.iter().filter(|&&row| row != NO_ROW).count()
}

/// Positions in `tile_cols` that hold a column.
fn used_cols(parts: &RsTileParts<f32>) -> Vec<usize> {
    (0..parts.tile_cols.len()).filter(|&at| parts.tile_cols[at] != NO_COLUMN).collect()
}

/// One of `candidates`, if there is any.
fn choose(candidates: Vec<usize>, pick: &dyn Fn(usize) -> usize) -> Option<usize> {
    if candidates.is_empty() { None } else { Some(candidates[pick(candidates.len())]) }
}

refuses! {
    w1_first_offset, "W1", |parts, _| { parts.window_tiles[0] = 1; true };
    w1_no_offsets, "W1", |parts, _| { parts.window_tiles.clear(); true };
    w1_window_without_tile, "W1", |parts, pick| {
        if parts.bitmaps.is_empty() { return false }
        let window = pick(parts.window_tiles.len() - 1);
        parts.window_tiles[window + 1] = parts.window_tiles[window];
        true
    };
    w1_last_offset, "W1", |parts, _| {
        let last = parts.window_tiles.last_mut().unwrap();
        *last += 1;
        true
    };
    w2_slot_count, "W2", |parts, _| { parts.window_rows.push(0); true };
    w2_row_out_of_range, "W2", |parts, pick| {
        let used = used_slots(parts);
        if used == 0 { return false }
        parts.window_rows[pick(used)] = u32::try_from(parts.rows).unwrap();
        true
    };
    w2_gap_in_the_rows, "W2", |parts, pick| {
        let used = used_slots(parts);
        // Windows may have fewer than 8 rows, but a row follows.
        let followed = (0..used.saturating_sub(1)).filter(|slot| slot % 8 < 7).collect();
        let Some(slot) = choose(followed, pick) else { return false };
        parts.window_rows[slot] = NO_ROW;
        true
    };
    w2_window_without_row, "W2", |parts, _| {
        let slots = parts.window_rows.len();
        if slots == 0 { return false }
        parts.window_rows[slots - 8..].fill(NO_ROW);
        true
    };
    w3_row_twice_in_windows, "W3", |parts, pick| {
        let used = used_slots(parts);
        if used < 2 { return false }
        let slot = pick(used - 1);
        parts.window_rows[slot] = parts.window_rows[slot + 1];
        true
    };
    w3_row_in_window_and_residual, "W3", |parts, pick| {
        let (used, residual) = (used_slots(parts), parts.residual_rows.len());
        if used == 0 || residual == 0 { return false }
        parts.window_rows[pick(used)] = parts.residual_rows[pick(residual)];
        true
    };
    t1_columns_missing, "T1", |parts, _| parts.tile_cols.pop().is_some();
    t1_offset_too_many, "T1", |parts, _| { parts.tile_values.push(0); true };
    t2_column_out_of_range, "T2", |parts, pick| {
        let Some(at) = choose(used_cols(parts), pick) else { return false };
        parts.tile_cols[at] = u32::try_from(parts.cols).unwrap();
        true
    };
    t2_columns_not_ascending, "T2", |parts, pick| {
        let used = used_cols(parts);
        let ascending = used.iter().copied().filter(|&at| {
            parts.tile_cols.get(at + 1).is_some_and(|&next| next != NO_COLUMN && next > parts.tile_cols[at])
        });
        // Columns of two windows may ascend too, so stay within a tile.
        let within = ascending.filter(|at| at % 8 < 7).collect();
        let Some(at) = choose(within, pick) else { return false };
        parts.tile_cols.swap(at, at + 1);
        true
    };
    t3_gap_in_the_columns, "T3", |parts, pick| {
        let followed = used_cols(parts).into_iter().filter(|&at| {
            at % 8 < 7 && parts.tile_cols[at + 1] != NO_COLUMN
        });
        let Some(at) = choose(followed.collect(), pick) else { return false };
        parts.tile_cols[at] = NO_COLUMN;
        true
    };
    t3_tile_without_column, "T3", |parts, _| {
        let len = parts.tile_cols.len();
        if len == 0 { return false }
        parts.tile_cols[len - 8..].fill(NO_COLUMN);
        true
    };
    t4_column_without_bits, "T4", |parts, pick| {
        let Some(at) = choose(used_cols(parts), pick) else { return false };
        parts.bitmaps[at / 8] &= !(0xFF << (8 * (at % 8)));
        true
    };
    t4_bit_without_column, "T4", |parts, pick| {
        let pads = (0..parts.tile_cols.len()).filter(|&at| parts.tile_cols[at] == NO_COLUMN).collect();
        let Some(at) = choose(pads, pick) else { return false };
        parts.bitmaps[at / 8] |= 1 << (8 * (at % 8));
        true
    };
    t5_bit_without_row, "T5", |parts, _| {
        if parts.window_rows.last() != Some(&NO_ROW) { return false }
        let last = parts.bitmaps.len() - 1;
        parts.bitmaps[last] |= 1 << 7;
        true
    };
    t5_row_without_bit, "T5", |parts, _| {
        // A new row in the first free slot has no bits; row numbers below `rows` that are not stored are needed.
        let free = parts.window_rows.iter().position(|&row| row == NO_ROW);
        let stored = |row: &u32| parts.window_rows.contains(row) || parts.residual_rows.contains(row);
        let unstored = (0..u32::try_from(parts.rows).unwrap()).find(|row| !stored(row));
        let (Some(slot), Some(row)) = (free, unstored) else { return false };
        parts.window_rows[slot] = row;
        true
    };
    v1_first_offset, "V1", |parts, _| { parts.tile_values[0] = 1; true };
    v1_offset_between, "V1", |parts, pick| {
        if parts.bitmaps.is_empty() { return false }
        let tile = 1 + pick(parts.bitmaps.len());
        parts.tile_values[tile] += 1;
        true
    };
    v1_value_missing, "V1", |parts, _| parts.values.pop().is_some();
    v1_bit_too_many, "V1", |parts, pick| {
        // Slot 0 of a window always holds a row, so a bit there breaks the count only.
        let free = used_cols(parts).into_iter().filter(|&at| parts.bitmaps[at / 8] >> (8 * (at % 8)) & 1 == 0);
        let Some(at) = choose(free.collect(), pick) else { return false };
        parts.bitmaps[at / 8] |= 1 << (8 * (at % 8));
        true
    };
    r1_length_of_a_bucket, "R1", |parts, pick| {
        if parts.residual_buckets.is_empty() { return false }
        let bucket = pick(parts.residual_buckets.len());
        parts.residual_buckets[bucket].len += 1;
        true
    };
    r1_bucket_without_rows, "R1", |parts, pick| {
        if parts.residual_buckets.is_empty() { return false }
        let bucket = pick(parts.residual_buckets.len());
        parts.residual_buckets[bucket].rows = 0;
        true
    };
    r1_first_row, "R1", |parts, pick| {
        if parts.residual_buckets.is_empty() { return false }
        let bucket = pick(parts.residual_buckets.len());
        parts.residual_buckets[bucket].first_row += 1;
        true
    };
    r1_first_entry, "R1", |parts, pick| {
        if parts.residual_buckets.is_empty() { return false }
        let bucket = pick(parts.residual_buckets.len());
        parts.residual_buckets[bucket].first_entry += 1;
        true
    };
    r1_buckets_out_of_order, "R1", |parts, pick| {
        if parts.residual_buckets.len() < 2 { return false }
        let bucket = pick(parts.residual_buckets.len() - 1);
        parts.residual_buckets.swap(bucket, bucket + 1);
        true
    };
    r1_row_too_many, "R1", |parts, _| { parts.residual_rows.push(0); true };
    r1_value_too_many, "R1", |parts, _| { parts.residual_values.push(0.0); true };
    r2_row_out_of_range, "R2", |parts, pick| {
        if parts.residual_rows.is_empty() { return false }
        let at = pick(parts.residual_rows.len());
        parts.residual_rows[at] = u32::try_from(parts.rows).unwrap();
        true
    };
    r2_rows_not_ascending, "R2", |parts, pick| {
        let pairs = parts.residual_buckets.iter().filter(|bucket| bucket.rows > 1);
        let Some(at) = choose(pairs.map(|bucket| bucket.first_row as usize).collect(), pick) else { return false };
        parts.residual_rows.swap(at, at + 1);
        true
    };
    r3_column_out_of_range, "R3", |parts, pick| {
        if parts.residual_col_indices.is_empty() { return false }
        let at = pick(parts.residual_col_indices.len());
        parts.residual_col_indices[at] = u32::try_from(parts.cols).unwrap();
        true
    };
    r3_columns_not_ascending, "R3", |parts, pick| {
        let longer = parts.residual_buckets.iter().filter(|bucket| bucket.len > 1);
        let firsts = longer.map(|bucket| usize::try_from(bucket.first_entry).unwrap()).collect();
        let Some(at) = choose(firsts, pick) else { return false };
        parts.residual_col_indices.swap(at, at + 1);
        true
    };
    r3_column_missing, "R3", |parts, _| parts.residual_col_indices.pop().is_some();
}

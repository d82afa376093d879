//! Which rows of a panel make a bundle: rows that have columns in common, so that a bundle has few vectors.

use std::ops::Range;

use windrow_formats::memory::{try_with_room, try_zeroed};
use windrow_formats::{OutOfMemory, Pattern};

use super::{BUNDLE, BUNDLES, Key, ROW_BITS, ROWS, column_of, row_of, same_column};
use crate::num::{index, wide};

/// The entries of a panel, its rows numbered so that four successive ones are a bundle.
pub(super) struct Bundled {
    /// The entries, those of a column one after the other, by the new numbers of their rows.
    pub(super) keys: Vec<Key>,
    /// How many distinct columns they have.
    pub(super) columns: usize,
    /// Which row of the panel has each number; rows without entries, and those that a last panel does not have, come
    /// last.
    pub(super) rows: [usize; ROWS],
}

impl Bundled {
    /// The entries of `rows`, at most a panel of them.
    pub(super) fn of(a: &Pattern, rows: Range<usize>) -> Result<Self, OutOfMemory> {
        let entries = a.row_offsets()[rows.end] - a.row_offsets()[rows.start];
        let mut keys: Vec<Key> = try_with_room(index(entries), "entries of a panel")?;
        for (i, row) in rows.enumerate() {
            keys.extend(a.row(row).iter().map(|&column| u64::from(column) << ROW_BITS | wide(i)));
        }
        keys.sort_unstable();
        let columns = keys.chunk_by(same_column).count();
        let rows = alike(&keys, columns)?;
        let mut number = [0; ROWS];
        rows.iter().zip(0..).for_each(|(&row, new)| number[row] = new);
        for column in keys.chunk_by_mut(same_column) {
            for key in &mut *column {
                *key = u64::from(column_of(*key)) << ROW_BITS | number[row_of(*key)];
            }
            column.sort_unstable();
        }
        Ok(Self { keys, columns, rows })
    }
}

/// The rows of a panel in bundles: the longest that is left, then thrice the one that has most in common with what the
/// bundle has, less what it would add.
fn alike(keys: &[Key], columns: usize) -> Result<[usize; ROWS], OutOfMemory> {
    let words = columns.div_ceil(64);
    let mut has = try_zeroed::<u64>(ROWS * words, "columns of the rows of a panel")?;
    let mut lengths = [0_i64; ROWS];
    for (at, column) in keys.chunk_by(same_column).enumerate() {
        for row in column.iter().map(|&key| row_of(key)) {
            has[row * words + at / 64] |= 1 << (at % 64);
            lengths[row] += 1;
        }
    }
    let row_of = |row: usize| &has[row * words..][..words];
    let mut of_bundle = try_zeroed::<u64>(words, "columns of a bundle")?;
    let mut is_left = [true; ROWS];
    let mut rows = [0; ROWS];
    for bundle in 0..BUNDLES {
        of_bundle.fill(0);
        for at in 0..BUNDLE {
            let common = |row: usize| {
                let both = row_of(row).iter().zip(&of_bundle).map(|(a, b)| i64::from((a & b).count_ones()));
                both.sum::<i64>()
            };
            let gain = |row: &usize| match (lengths[*row], at) {
                (0, _) => i64::MIN, // which would fill a bundle that another row could share
                (length, 0) => length,
                (length, _) => 2 * common(*row) - length,
            };
            // Of equals the first.
            let left = (0..ROWS).filter(|&row| is_left[row]);
            let best = left.rev().max_by_key(gain).unwrap_or_default();
            is_left[best] = false;
            of_bundle.iter_mut().zip(row_of(best)).for_each(|(of_bundle, row)| *of_bundle |= row);
            rows[bundle * BUNDLE + at] = best;
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use windrow_formats::Csr;

    use super::*;

    #[test]
    fn rows_with_the_same_columns_are_a_bundle() {
        // Four kinds of rows by turns.
        let mut dense = vec![0.0_f32; 64 * 40];
        for row in 0..64 {
            (0..10).for_each(|at| dense[row * 40 + 10 * (row % 4) + at] = 1.0);
        }
        let a = Csr::from_dense(64, 40, &dense).unwrap();
        let found = Bundled::of(a.pattern(), 0..64).unwrap();
        assert_eq!((found.keys.len(), found.columns), (640, 40));
        for bundle in found.rows.chunks(BUNDLE) {
            assert!(bundle.iter().all(|row| row % 4 == bundle[0] % 4), "{bundle:?}");
        }
        let mut rows = found.rows;
        rows.sort_unstable();
        assert_eq!(rows, std::array::from_fn(|row| row));
        // Rows without entries come last, as do those behind the last of the matrix.
        dense[..40].fill(0.0);
        let a = Csr::from_dense(60, 40, &dense[..60 * 40]).unwrap();
        let found = Bundled::of(a.pattern(), 0..60).unwrap();
        assert!(found.keys.is_sorted() && found.keys.len() == 590);
        assert_eq!(found.rows[59..], [0, 60, 61, 62, 63]);
    }
}

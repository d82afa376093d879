//! The distinct columns of a window.

use super::WINDOW_ROWS;
use crate::{Csr, NO_COLUMN, NO_ROW};

/// Calls `visit(column, bits, entries)` for each distinct column of a window, ascending: bit `s` of `bits`
/// says that slot `s` has an entry there, and `entries[s]` is then its position in `csr`.
///
/// `rows` holds the row in each slot, at most 8; `NO_ROW` and rows without entries take no part.
///
/// # Cost
/// 8 comparisons for each distinct column, one step for each entry.
///
/// # Panics
/// If there are more than 8 rows, or one is not a row of `csr`.
///
/// # Examples
/// ```
/// use windrow_formats::{Csr, merge_columns};
///
/// let a = Csr::try_from_parts(2, 9, vec![0, 2, 4], vec![3, 7, 0, 7], vec![1.0f32; 4])?;
/// let mut vectors = Vec::new();
/// merge_columns(&a, &[0, 1], |column, bits, _| vectors.push((column, bits)));
/// assert_eq!(vectors, [(0, 0b10), (3, 0b01), (7, 0b11)]);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn merge_columns<V>(csr: &Csr<V>, rows: &[u32], mut visit: impl FnMut(u32, u8, &[usize; WINDOW_ROWS])) {
    let col_indices = csr.col_indices();
    // A slot whose entries are used up, or that has no row, waits at NO_COLUMN, above every column.
    let mut entries = [0; WINDOW_ROWS];
    let mut ends = [0; WINDOW_ROWS];
    let mut heads = [NO_COLUMN; WINDOW_ROWS];
    for (slot, &row) in rows.iter().enumerate().filter(|&(_, &row)| row != NO_ROW) {
        let range = csr.row_range(row as usize);
        if let Some(&column) = col_indices[range.clone()].first() {
            (entries[slot], ends[slot], heads[slot]) = (range.start, range.end, column);
        }
    }
    loop {
        let column = heads.iter().fold(NO_COLUMN, |least, &head| least.min(head));
        if column == NO_COLUMN {
            return;
        }
        let bits = heads.iter().rev().fold(0, |bits, &head| bits << 1 | u8::from(head == column));
        visit(column, bits, &entries);
        let mut left = bits;
        while left != 0 {
            let slot = left.trailing_zeros() as usize;
            left &= left - 1;
            entries[slot] += 1;
            heads[slot] = if entries[slot] < ends[slot] { col_indices[entries[slot]] } else { NO_COLUMN };
        }
    }
}

//! Rows dealt out to threads.

use std::ops::Range;

/// Cuts the rows into at most `parts` ranges of equal cost, where a row costs its entries plus `row_cost`.
///
/// The ranges are not empty, ascend, and cover every row once. None costs more than
/// `⌈total / parts⌉` plus the cost of the dearest row, since rows are not cut. `parts = 0` counts as 1.
///
/// # Cost
/// `parts` binary searches in the offsets.
///
/// # Panics
/// Never, if offsets ascend as a valid matrix's do.
///
/// # Examples
/// ```
/// use windrow_preprocess::balance::row_ranges;
///
/// // One row of 6 entries and four of 2: equal work, not equal rows.
/// assert_eq!(row_ranges(&[0, 6, 8, 10, 12, 14], 2, 0), [0..2, 2..5]);
/// ```
pub fn row_ranges(row_offsets: &[u64], parts: usize, row_cost: u64) -> Vec<Range<usize>> {
    let rows = row_offsets.len().saturating_sub(1);
    if rows == 0 {
        return Vec::new();
    }
    // Cost of the rows before `row`. 128 bits, so that no product with it can overflow.
    let cost_before =
        |row: usize| u128::from(row_offsets[row] - row_offsets[0]) + row as u128 * u128::from(row_cost);
    let total = cost_before(rows);
    let parts = parts.clamp(1, rows) as u128;
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut begin = 0;
    for part in 1..=parts {
        let target = total * part / parts;
        let end =
            if part == parts { rows } else { first_row_where(begin, rows, |row| cost_before(row) >= target) };
        if end > begin {
            ranges.push(begin..end);
            begin = end;
        }
    }
    ranges
}

/// The first row in `low..high` that satisfies a condition which all later rows satisfy too; else `high`.
fn first_row_where(mut low: usize, mut high: usize, holds: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

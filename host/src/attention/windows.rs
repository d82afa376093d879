//! The distinct columns of windows of rows.

use rayon::prelude::*;
use windrow_formats::memory::try_with_room;
use windrow_formats::{Csr, OutOfMemory, Value};

use crate::num::{index, narrow};
use crate::row_lists::Transposed;

/// Windows that a thread lays out at a time: few, so that a small matrix of long rows is work for all threads.
const WINDOWS_TOGETHER: usize = 16;

/// Windows that are not the matrix as it is: lists of their own.
#[derive(Debug, PartialEq)]
pub(super) struct WindowLists {
    /// Where each window begins, and the last ends.
    pub(super) offsets: Vec<u32>,
    /// The distinct columns of some rows, each a column and above it a bit for each row of the window; or the rows of
    /// a column.
    pub(super) entries: Vec<u32>,
}

/// Which entries rows have: those of a matrix, or of its transpose.
#[derive(Clone, Copy)]
pub(super) struct Pattern<'a> {
    /// Where each row begins, and the last ends.
    offsets: &'a [u64],
    /// The columns of each, which ascend.
    columns: &'a [u32],
}

impl<'a, V: Value> From<&'a Csr<V>> for Pattern<'a> {
    fn from(a: &'a Csr<V>) -> Self {
        Self { offsets: a.row_offsets(), columns: a.col_indices() }
    }
}

impl<'a> From<&'a Transposed> for Pattern<'a> {
    fn from(transposed: &'a Transposed) -> Self {
        Self { offsets: transposed.offsets(), columns: &transposed.rows }
    }
}

impl<'a> Pattern<'a> {
    fn rows(self) -> usize {
        self.offsets.len() - 1
    }

    fn row(self, row: usize) -> &'a [u32] {
        &self.columns[index(self.offsets[row])..index(self.offsets[row + 1])]
    }
}

/// Columns that entries of windows of so many rows have bits for.
pub(super) const fn most_columns(window_rows: u32) -> usize {
    1 << (32 - window_rows)
}

impl WindowLists {
    /// First entry and end of each window.
    pub(super) fn extents(&self) -> impl ExactSizeIterator<Item = [u32; 2]> {
        self.offsets.windows(2).map(|ends| [ends[0], ends[1]])
    }

    /// The columns of windows of `rows` successive rows, 4 or 8, of a matrix of at most [`most_columns`] columns.
    pub(super) fn columns<'a>(a: impl Into<Pattern<'a>>, rows: u32) -> Result<Self, OutOfMemory> {
        let a = a.into();
        let windows = a.rows().div_ceil(rows as usize);
        let parts: Vec<_> = (0..windows.div_ceil(WINDOWS_TOGETHER))
            .into_par_iter()
            .map(|part| {
                let first = part * WINDOWS_TOGETHER;
                Part::new(a, rows, first..(first + WINDOWS_TOGETHER).min(windows))
            })
            .collect::<Result<_, _>>()?;
        let mut offsets = try_with_room(windows + 1, "window_offsets")?;
        let mut entries = try_with_room(parts.iter().map(|part| part.entries.len()).sum(), "window_columns")?;
        offsets.push(0);
        for part in parts {
            let before = narrow(entries.len());
            offsets.extend(part.ends.iter().map(|end| before + end));
            entries.extend_from_slice(&part.entries);
        }
        Ok(Self { offsets, entries })
    }
}

/// Some successive windows, laid out by one thread.
struct Part {
    ends: Vec<u32>,
    entries: Vec<u32>,
}

impl Part {
    /// Merges the rows of each window, which ascend.
    fn new(a: Pattern<'_>, rows: u32, windows: std::ops::Range<usize>) -> Result<Self, OutOfMemory> {
        let (rows, bits) = (rows as usize, 32 - rows);
        let of_window = |window: usize| window * rows..((window + 1) * rows).min(a.rows());
        let extent = a.offsets[windows.start * rows]..a.offsets[of_window(windows.end - 1).end];
        let mut ends = try_with_room(windows.len(), "windows")?;
        let mut entries = try_with_room(index(extent.end - extent.start), "window_columns")?;
        for window in windows {
            let mut left = [&[][..]; 8];
            for (left, row) in left.iter_mut().zip(of_window(window)) {
                *left = a.row(row);
            }
            while let Some(&column) = left.iter().filter_map(|row| row.first()).min() {
                let mut entry = column;
                for (row, left) in left.iter_mut().enumerate() {
                    if let [first, rest @ ..] = left
                        && *first == column
                    {
                        entry |= 1 << (bits as usize + row);
                        *left = rest;
                    }
                }
                entries.push(entry);
            }
            ends.push(narrow(entries.len()));
        }
        Ok(Self { ends, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::wide;

    #[test]
    fn columns_of_a_window_are_listed_once_with_their_rows() {
        // Rows 0: 1, 3; 1: none; 2: 0, 3; 3: 3; 4: 2.
        let a = Csr::try_from_parts(5, 4, vec![0, 2, 2, 4, 5, 6], vec![1, 3, 0, 3, 3, 2], vec![1.0f32; 6])
            .unwrap();
        let entry = |column: u32, rows: u32| column | rows << 28;
        let four = WindowLists::columns(&a, 4).unwrap();
        assert_eq!(four.offsets, [0, 3, 4]);
        assert_eq!(four.entries, [entry(0, 0b100), entry(1, 1), entry(3, 0b1101), entry(2, 1)]);
        let eight = WindowLists::columns(&a, 8).unwrap();
        assert_eq!(eight.offsets, [0, 4]);
        assert_eq!(eight.entries[3], 3 | 0b1101 << 24);
        let empty = Csr::<f32>::try_from_parts(0, 4, vec![0], vec![], vec![]).unwrap();
        assert_eq!(
            WindowLists::columns(&empty, 8).unwrap(),
            WindowLists { offsets: vec![0], entries: vec![] }
        );
    }

    #[test]
    fn every_entry_is_in_one_window_whatever_their_number() {
        let (mut row_offsets, mut col_indices) = (vec![0], Vec::new());
        for row in 0..5000u32 {
            let mut columns: Vec<u32> = (0..row % 9).map(|i| (31 * row + 17 * i * i) % 300).collect();
            columns.sort_unstable();
            columns.dedup();
            col_indices.extend(columns);
            row_offsets.push(wide(col_indices.len()));
        }
        let values = vec![1.0f32; col_indices.len()];
        let a = Csr::try_from_parts(5000, 300, row_offsets, col_indices, values).unwrap();
        for rows in [4, 8] {
            let windows = WindowLists::columns(&a, rows).unwrap();
            let count: u32 = windows.entries.iter().map(|entry| (entry >> (32 - rows)).count_ones()).sum();
            assert_eq!(count as usize, a.nnz(), "{rows} rows");
            assert_eq!(windows.offsets.len(), 5000 / rows as usize + 1);
        }
    }
}

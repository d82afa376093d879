//! The distinct columns of windows of rows, the rows of columns, and windows that several warps share.

use rayon::prelude::*;
use windrow_formats::memory::{try_collect, try_copy, try_with_room, try_zeroed};
use windrow_formats::{Csr, OutOfMemory, Value};
use windrow_kernels::NO_SLOT;

use crate::error::PlanError;
use crate::num::{index, narrow, wide};

/// Windows that a thread lays out at a time: few, so that a small matrix of long rows is work for all threads.
const WINDOWS_TOGETHER: usize = 16;
/// Warps that a multiprocessor has at work, about.
const WARPS_AT_WORK: usize = 16;
/// Entries of a step of a kernel: pieces are a multiple of it.
const STEP: u32 = 16;

/// Windows that are not the matrix as it is: lists of their own.
#[derive(Debug, PartialEq)]
pub(super) struct WindowLists {
    /// Where each window begins, and the last ends.
    pub(super) offsets: Vec<u32>,
    /// The distinct columns of some rows, each a column and above it a bit for each row of the window; or the rows of
    /// a column.
    pub(super) entries: Vec<u32>,
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
    pub(super) fn columns<V: Value>(a: &Csr<V>, rows: u32) -> Result<Self, OutOfMemory> {
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

/// The entries of a matrix by columns, those of each in the order of the rows.
#[derive(Debug, PartialEq)]
pub(super) struct Transposed {
    /// Where each column begins, and the last ends.
    offsets: Vec<u64>,
    /// Row of each entry.
    pub(super) rows: Vec<u32>,
    /// Where it is in the matrix.
    pub(super) positions: Vec<u32>,
}

impl Transposed {
    /// Of a matrix of fewer than 2³² entries.
    pub(super) fn new<V: Value>(a: &Csr<V>) -> Result<Self, PlanError> {
        let positions = a.transpose_order()?;
        let mut rows = try_zeroed(a.nnz(), "rows of entries")?;
        let mut offsets = try_zeroed::<u64>(a.cols() + 1, "column_offsets")?;
        for row in 0..a.rows() {
            rows[a.row_range(row)].fill(narrow(row));
        }
        for &column in a.col_indices() {
            offsets[column as usize + 1] += 1;
        }
        for column in 0..a.cols() {
            offsets[column + 1] += offsets[column];
        }
        let rows =
            try_collect(positions.new_to_old().iter().map(|&at| rows[at as usize]), "rows of columns")?;
        Ok(Self { offsets, rows, positions: try_copy(positions.new_to_old(), "positions of entries")? })
    }

    /// The entries of a column.
    pub(super) fn range(&self, column: usize) -> std::ops::Range<usize> {
        index(self.offsets[column])..index(self.offsets[column + 1])
    }

    /// As kernels take it, with the positions.
    pub(super) fn into_lists(self) -> Result<(WindowLists, Vec<u32>), OutOfMemory> {
        let lists = WindowLists { offsets: narrow_offsets(&self.offsets)?, entries: self.rows };
        Ok((lists, self.positions))
    }
}

/// Some successive windows, laid out by one thread.
struct Part {
    ends: Vec<u32>,
    entries: Vec<u32>,
}

impl Part {
    /// Merges the rows of each window, which ascend.
    fn new<V: Value>(a: &Csr<V>, rows: u32, windows: std::ops::Range<usize>) -> Result<Self, OutOfMemory> {
        let (rows, bits) = (rows as usize, 32 - rows);
        let of_window = |window: usize| window * rows..((window + 1) * rows).min(a.rows());
        let extent =
            a.row_range(windows.start * rows).start..a.row_range(of_window(windows.end - 1).end - 1).end;
        let mut ends = try_with_room(windows.len(), "windows")?;
        let mut entries = try_with_room(extent.len(), "window_columns")?;
        for window in windows {
            let mut left = [&[][..]; 8];
            for (left, row) in left.iter_mut().zip(of_window(window)) {
                *left = &a.col_indices()[a.row_range(row)];
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

/// Which windows are more than a warp's, and how they are cut.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Division {
    /// Entries that a warp takes alone at most.
    pub(super) longest: u32,
    /// `[window, begin, end, slot]` of each piece, a block's, those of windows in many pieces first.
    pub(super) pieces: Vec<[u32; 4]>,
    /// `[window, first slot, slots, 0]` of each window in several pieces.
    pub(super) cut: Vec<[u32; 4]>,
    /// Slots of all of them.
    pub(super) slots: u32,
}

impl Division {
    /// Of windows with these offsets, for so many multiprocessors: the more work there is for each warp, the longer a
    /// window must be before it holds the others up.
    pub(super) fn new(
        offsets: impl ExactSizeIterator<Item = [u32; 2]>,
        multiprocessors: u32,
    ) -> Result<Self, OutOfMemory> {
        let offsets: Vec<_> = {
            let mut all = try_with_room(offsets.len(), "windows")?;
            all.extend(offsets);
            all
        };
        let entries: u64 = offsets.iter().map(|[begin, end]| u64::from(end - begin)).sum();
        let load = entries / wide(WARPS_AT_WORK * multiprocessors.max(1) as usize);
        let (longest, piece) = match load {
            0..100 => (64, 512),
            100..250 => (128, 512),
            _ => (256, 1024),
        };
        let mut division = Self { longest, ..Self::default() };
        let mut long = try_with_room(offsets.len(), "long windows")?;
        long.extend((0..).zip(&offsets).filter(|(_, [begin, end])| end - begin > longest));
        // The longest first, so that the last to begin is not one of them; a stable sort would ask for memory.
        long.sort_unstable_by_key(|&(window, [begin, end])| (std::cmp::Reverse(end - begin), window));
        for (window, &[begin, end]) in long {
            let len = end - begin;
            let each = len.div_ceil(len.div_ceil(piece)).next_multiple_of(STEP);
            let count = len.div_ceil(each);
            for i in 0..count {
                let slot = if count == 1 { NO_SLOT } else { division.slots + i };
                let of_piece = [window, begin + i * each, end.min(begin + (i + 1) * each), slot];
                division.pieces.push(of_piece);
            }
            if count > 1 {
                division.cut.push([window, division.slots, count, 0]);
                division.slots += count;
            }
        }
        Ok(division)
    }
}

/// First entry and end of each window of `rows` rows of a matrix with these offsets.
pub(super) fn extents(row_offsets: &[u64], rows: u32) -> impl ExactSizeIterator<Item = [u32; 2]> {
    let (rows, last) = (rows as usize, row_offsets.len() - 1);
    let at = move |row: usize| narrow(index(row_offsets[row.min(last)]));
    (0..last.div_ceil(rows)).map(move |window| [at(window * rows), at((window + 1) * rows)])
}

/// Offsets as kernels take them.
pub(super) fn narrow_offsets(row_offsets: &[u64]) -> Result<Vec<u32>, OutOfMemory> {
    let mut narrowed = try_zeroed(row_offsets.len(), "row_offsets")?;
    narrowed.iter_mut().zip(row_offsets).for_each(|(to, &from)| *to = narrow(index(from)));
    Ok(narrowed)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn the_transpose_has_every_entry_by_columns_and_knows_its_place() {
        let a = Csr::from_dense(3, 3, &[0.0f32, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0]).unwrap();
        let transposed = Transposed::new(&a).unwrap();
        assert_eq!((transposed.range(1), transposed.range(2)), (1..2, 2..4));
        let (lists, positions) = transposed.into_lists().unwrap();
        assert_eq!(lists, WindowLists { offsets: vec![0, 1, 2, 4], entries: vec![2, 0, 0, 2] });
        assert_eq!(positions, [2, 0, 1, 3]);
    }

    #[test]
    fn long_windows_are_cut_evenly_and_the_longest_come_first() {
        let extents = [[0, 64], [64, 129], [129, 129], [129, 1329], [1329, 1841]];
        let division = Division::new(extents.into_iter(), 132).unwrap();
        assert_eq!((division.longest, division.slots), (64, 3));
        // 1200 entries in three pieces of 400, 512 and 65 in one each.
        let expected = [
            [3, 129, 529, 0],
            [3, 529, 929, 1],
            [3, 929, 1329, 2],
            [4, 1329, 1841, NO_SLOT],
            [1, 64, 129, NO_SLOT],
        ];
        assert_eq!(division.pieces, expected);
        assert_eq!(division.cut, [[3, 0, 3, 0]]);
        assert_eq!(Division::new([].into_iter(), 0).unwrap().pieces, [[0; 4]; 0]);
    }

    #[test]
    fn windows_of_rows_end_where_the_matrix_does() {
        let found: Vec<_> = extents(&[0, 2, 2, 5, 6, 9], 4).collect();
        assert_eq!(found, [[0, 6], [6, 9]]);
        assert_eq!(extents(&[0], 4).len(), 0);
    }
}

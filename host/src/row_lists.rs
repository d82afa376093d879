//! The rows of a matrix, or of its transpose, as kernels walk them, and how they are divided among warps and blocks.

use windrow_formats::memory::{try_collect, try_copy, try_with_room, try_zeroed};
use windrow_formats::{Csr, OutOfMemory, Value};
use windrow_kernels::{Entry, NO_SLOT};

use crate::device::{Device, DeviceBuffer};
use crate::error::PlanError;
use crate::num::{index, narrow, wide};
use crate::plan::{ArraySize, push};

/// Warps that a multiprocessor has at work, about.
const WARPS_AT_WORK: usize = 16;
/// Warps of a block of the kernels that walk rows.
const WARPS: u32 = 4;
/// Entries of a step of a kernel: pieces are a multiple of it.
const STEP: u32 = 16;

/// Logarithm of the rows that a warp walks side by side: as many as let each of its groups of lanes have about as many
/// entries of its own as it takes in a step. Of both the logarithms.
pub(crate) fn side_by_side_log2([groups, of_step]: [u32; 2], entries: usize, rows: u32) -> u32 {
    let mean = entries / (rows as usize).max(1);
    let of_row = narrow((mean >> of_step).clamp(1, 1 << groups));
    groups - of_row.ilog2()
}

/// The same for a kernel whose groups take two entries in a step.
pub(crate) fn warp_rows_log2(entry: &Entry, entries: usize, rows: u32) -> u32 {
    side_by_side_log2([(entry.units_per_block / WARPS).ilog2(), 1], entries, rows)
}

/// Rows and their entries, on a device.
pub(crate) struct DeviceRows {
    pub(crate) rows: u32,
    pub(crate) offsets: DeviceBuffer<u32>,
    pub(crate) entries: DeviceBuffer<u32>,
    /// Most entries of a row that is a warp's.
    pub(crate) longest: u32,
    pub(crate) pieces: DeviceBuffer<[u32; 4]>,
    pub(crate) cut: DeviceBuffer<[u32; 4]>,
    pub(crate) slots: u32,
}

impl DeviceRows {
    /// Of offsets and what is gathered for each entry.
    pub(crate) fn upload(
        device: &Device,
        (offsets, entries): (&[u32], &[u32]),
        division: &Division,
    ) -> Result<Self, PlanError> {
        Ok(Self {
            rows: narrow(offsets.len() - 1),
            offsets: DeviceBuffer::named(device, offsets, "offsets")?,
            entries: DeviceBuffer::named(device, entries, "columns")?,
            longest: division.longest,
            pieces: DeviceBuffer::named(device, &division.pieces, "pieces")?,
            cut: DeviceBuffer::named(device, &division.cut, "cut_rows")?,
            slots: division.slots,
        })
    }

    /// What so many offsets and entries take.
    pub(crate) fn push_sizes(
        sizes: &mut Vec<ArraySize>,
        (offsets, entries): (usize, usize),
        division: &Division,
    ) {
        push(sizes, "offsets", 4 * wide(offsets));
        push(sizes, "columns", 4 * wide(entries));
        push(sizes, "pieces", 16 * wide(division.pieces.len()));
        push(sizes, "cut_rows", 16 * wide(division.cut.len()));
    }
}

/// The entries of a matrix by columns, those of each in the order of the rows.
#[derive(Debug, PartialEq)]
pub(crate) struct Transposed {
    /// Where each column begins, and the last ends.
    offsets: Vec<u64>,
    /// Row of each entry.
    pub(crate) rows: Vec<u32>,
    /// Where it is in the matrix.
    pub(crate) positions: Vec<u32>,
}

impl Transposed {
    /// Of a matrix of fewer than 2³² entries.
    pub(crate) fn new<V: Value>(a: &Csr<V>) -> Result<Self, PlanError> {
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

    /// Where each column begins, and the last ends.
    pub(crate) fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The entries of a column.
    pub(crate) fn range(&self, column: usize) -> std::ops::Range<usize> {
        index(self.offsets[column])..index(self.offsets[column + 1])
    }

    /// Offsets as kernels take them, rows, and positions.
    pub(crate) fn into_parts(self) -> Result<[Vec<u32>; 3], OutOfMemory> {
        Ok([narrow_offsets(&self.offsets)?, self.rows, self.positions])
    }
}

/// Which windows are more than a warp's, and how they are cut.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Division {
    /// Entries that a warp takes alone at most.
    pub(crate) longest: u32,
    /// `[window, begin, end, slot]` of each piece, a block's, those of windows in many pieces first.
    pub(crate) pieces: Vec<[u32; 4]>,
    /// `[window, first slot, slots, 0]` of each window in several pieces.
    pub(crate) cut: Vec<[u32; 4]>,
    /// Slots of all of them.
    pub(crate) slots: u32,
}

impl Division {
    /// Of windows with these offsets, for so many multiprocessors: the more work there is for each warp, the longer a
    /// window must be before it holds the others up.
    pub(crate) fn new(
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
pub(crate) fn extents(row_offsets: &[u64], rows: u32) -> impl ExactSizeIterator<Item = [u32; 2]> {
    let (rows, last) = (rows as usize, row_offsets.len() - 1);
    let at = move |row: usize| narrow(index(row_offsets[row.min(last)]));
    (0..last.div_ceil(rows)).map(move |window| [at(window * rows), at((window + 1) * rows)])
}

/// Offsets as kernels take them.
pub(crate) fn narrow_offsets(row_offsets: &[u64]) -> Result<Vec<u32>, OutOfMemory> {
    let mut narrowed = try_zeroed(row_offsets.len(), "row_offsets")?;
    narrowed.iter_mut().zip(row_offsets).for_each(|(to, &from)| *to = narrow(index(from)));
    Ok(narrowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transpose_has_every_entry_by_columns_and_knows_its_place() {
        let a = Csr::from_dense(3, 3, &[0.0f32, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0]).unwrap();
        let transposed = Transposed::new(&a).unwrap();
        assert_eq!((transposed.range(1), transposed.range(2)), (1..2, 2..4));
        let [offsets, rows, positions] = transposed.into_parts().unwrap();
        assert_eq!((offsets, rows), (vec![0, 1, 2, 4], vec![2, 0, 0, 2]));
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

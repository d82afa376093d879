//! The path of a matrix, its entries and the ends of its rows merged, cut into shares of blocks.

use std::cmp::Reverse;
use std::ops::Range;

use rayon::prelude::*;
use windrow_formats::OutOfMemory;
use windrow_formats::memory::{make_room, try_zeroed};
use windrow_kernels::NO_SLOT;
use windrow_kernels::spmm::merge_path::{ENDS_BITS, ROWS_BITS, THREADS};

use crate::num::{index, narrow, wide};
use crate::options::Determinism;

/// Where the path is cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cuts {
    /// Steps of a thread.
    pub(super) steps: u32,
    /// Entries of the longest row that is one block's.
    pub(super) longest: u64,
    /// Entries of the longest piece of a longer one.
    pub(super) piece: u64,
}

/// A path that is cut: what [`MergePathParams`](windrow_kernels::spmm::merge_path::MergePathParams) have of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) shares: Vec<[u32; 4]>,
    /// Shares at the front that are of one row, the longest first.
    pub(super) long_count: u32,
    pub(super) steps: Vec<u32>,
    /// `[row, first_slot, count, 1]` for each row that is in pieces.
    pub(super) split_rows: Vec<[u32; 4]>,
    /// Slots of the workspace.
    pub(super) slots: u32,
}

impl Path {
    /// For fewer than 2³² rows, and entries.
    pub(super) fn cut(offsets: &[u64], cuts: Cuts, determinism: Determinism) -> Result<Self, OutOfMemory> {
        let (together, alone) = whole_rows(offsets, u64::from(THREADS * cuts.steps))?;
        let mut path = Self::default();
        let alone = alone.into_iter().map(|row| (narrow(row), offsets[row]..offsets[row + 1]));
        path.cut_long(alone, cuts, determinism)?;
        path.steps = try_zeroed(together.len() * THREADS as usize, "steps")?;
        make_room(&mut path.shares, together.len(), "shares")?;
        let shares = path.steps.par_chunks_mut(THREADS as usize).zip(&together);
        shares.for_each(|(words, rows)| fill(words, &offsets[rows.start..=rows.end], cuts.steps));
        path.shares.extend(together.into_iter().map(|rows| {
            let (first, end) = (offsets[rows.start], offsets[rows.end]);
            let counts = narrow(rows.len()) | narrow(index(end - first)) << ROWS_BITS;
            [narrow(rows.start), narrow(index(first)), counts, 0]
        }));
        Ok(path)
    }

    /// The rows with more steps than a block, ascending, and their entries: the first shares.
    pub(super) fn cut_long(
        &mut self,
        rows: impl IntoIterator<Item = (u32, Range<u64>)>,
        cuts: Cuts,
        determinism: Determinism,
    ) -> Result<(), OutOfMemory> {
        for (row, entries) in rows {
            self.add_row(row, entries, cuts, determinism)?;
        }
        // Of equally many, the first ones first; a stable sort would ask for memory.
        self.shares.sort_unstable_by_key(|&[_, first, entries, _]| (Reverse(entries), first));
        self.long_count = narrow(self.shares.len());
        Ok(())
    }

    /// A row with more steps than a block: as one share, or in pieces of about the same length.
    fn add_row(
        &mut self,
        row: u32,
        entries: Range<u64>,
        cuts: Cuts,
        determinism: Determinism,
    ) -> Result<(), OutOfMemory> {
        let len = entries.end - entries.start;
        let pieces = if len <= cuts.longest { 1 } else { len.div_ceil(cuts.piece) };
        make_room(&mut self.shares, index(pieces), "shares")?;
        if len <= cuts.longest {
            self.shares.push([row, narrow(index(entries.start)), narrow(index(len)), NO_SLOT]);
            return Ok(());
        }
        let piece = len.div_ceil(pieces);
        let first_slot = self.slots;
        for (number, begin) in entries.clone().step_by(index(piece)).enumerate() {
            let slot = match determinism {
                Determinism::RunToRun => first_slot + narrow(number),
                Determinism::Fast => first_slot,
            };
            let count = piece.min(entries.end - begin);
            self.shares.push([row, narrow(index(begin)), narrow(index(count)), slot]);
            self.slots = slot + 1;
        }
        make_room(&mut self.split_rows, 1, "rows that are cut")?;
        self.split_rows.push([row, first_slot, self.slots - first_slot, 1]);
        Ok(())
    }
}

/// Successive rows with at most so many steps together, as many as fit; and the rows that have more by themselves.
fn whole_rows(offsets: &[u64], block_steps: u64) -> Result<(Vec<Range<usize>>, Vec<usize>), OutOfMemory> {
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    // Where a row begins on the path.
    let at = |row: usize| offsets[row] + wide(row);
    let rows = offsets.len().saturating_sub(1);
    let mut first = 0;
    for row in 0..rows {
        let end = at(row + 1);
        if end - at(first) <= block_steps {
            continue;
        }
        make_room(&mut together, 1, "rows together")?;
        make_room(&mut alone, 1, "rows alone")?;
        if first < row {
            together.push(first..row);
        }
        first = row;
        if end - at(row) > block_steps {
            alone.push(row);
            first = row + 1;
        }
    }
    if first < rows {
        make_room(&mut together, 1, "rows together")?;
        together.push(first..rows);
    }
    Ok((together, alone))
}

/// The words of a share's threads, for the offsets of its rows.
fn fill(words: &mut [u32], offsets: &[u64], steps: u32) {
    for (row, &end) in offsets[1..].iter().enumerate() {
        let step = narrow(index(end - offsets[0]) + row);
        words[(step / steps) as usize] |= 1 << (step % steps);
    }
    let mut before = 0;
    for word in words {
        let ends = word.count_ones();
        *word |= before << ENDS_BITS;
        before += ends;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of a block.
    const BLOCK: u64 = 3 * THREADS as u64;
    const CUTS: Cuts = Cuts { steps: 3, longest: 1000, piece: 600 };

    fn offsets(lengths: &[u64]) -> Vec<u64> {
        lengths.iter().fold(vec![0], |mut offsets, len| {
            offsets.push(offsets[offsets.len() - 1] + len);
            offsets
        })
    }

    fn cut(lengths: &[u64]) -> Path {
        Path::cut(&offsets(lengths), CUTS, Determinism::RunToRun).unwrap()
    }

    /// Rows and entries of a share of several.
    fn counts([.., counts, _]: [u32; 4]) -> [u64; 2] {
        [u64::from(counts & 0xffff), u64::from(counts >> 16)]
    }

    #[test]
    fn threads_have_equal_steps() {
        // e e | | e e e | and one more row: the picture in the kernel's documentation.
        let path = cut(&[2, 0, 3, 0]);
        assert_eq!((path.shares.len(), path.long_count), (1, 0));
        assert_eq!((path.shares[0], counts(path.shares[0])), ([0, 0, 4 | 5 << 16, 0], [4, 5]));
        assert_eq!(path.steps[..4], [0b100, 1 << 16 | 0b001, 2 << 16 | 0b110, 4 << 16]);
        assert!(path.steps[4..].iter().all(|&word| word == 4 << 16));
        assert_eq!(path.steps.len(), 128);
    }

    #[test]
    fn blocks_are_filled_and_cut_where_rows_end() {
        // A row of 383 entries has 384 steps, all of a block.
        let path = cut(&[BLOCK - 1, 1, BLOCK - 3, 0]);
        let found: Vec<_> = path.shares.iter().map(|&share| (share[0], share[1], counts(share))).collect();
        assert_eq!(found, [(0, 0, [1, 383]), (1, 383, [2, 382]), (3, 765, [1, 0])]);
        assert_eq!(path.steps.len(), 3 * 128);
        assert_eq!(path.steps[127], 0b100, "the last step of the last thread");
        let empty = cut(&[0; 400]);
        assert_eq!(empty.shares.iter().map(|&share| counts(share)[0]).collect::<Vec<_>>(), [384, 16]);
        assert_eq!(empty.steps[1], 3 << 16 | 0b111);
        assert_eq!(
            (cut(&[]), Path::cut(&[], CUTS, Determinism::Fast).unwrap()),
            (Path::default(), Path::default())
        );
    }

    #[test]
    fn rows_beyond_a_block_come_first_the_longest_at_the_front() {
        let path = cut(&[4, BLOCK, 5, 1000, 0]);
        assert_eq!(path.long_count, 2);
        assert_eq!(path.shares[..2], [[3, 393, 1000, NO_SLOT], [1, 4, 384, NO_SLOT]]);
        let found: Vec<_> = path.shares[2..].iter().map(|&share| (share[0], counts(share))).collect();
        assert_eq!(found, [(0, [1, 4]), (2, [1, 5]), (4, [1, 0])]);
        assert_eq!((path.slots, path.split_rows), (0, Vec::new()));
    }

    #[test]
    fn a_row_that_would_outlast_the_rest_is_in_pieces() {
        let path = cut(&[1001, 1, 1201]);
        // Pieces of a row are of about the same length, none longer than the longest.
        let slots: Vec<_> =
            path.shares[..5].iter().map(|share| (share[0], share[1], share[2], share[3])).collect();
        let expected =
            [(0, 0, 501, 0), (0, 501, 500, 1), (2, 1002, 401, 2), (2, 1403, 401, 3), (2, 1804, 399, 4)];
        assert_eq!(slots, expected);
        assert_eq!((path.long_count, path.slots), (5, 5));
        assert_eq!(path.split_rows, [[0, 0, 2, 1], [2, 2, 3, 1]]);
        let shared = Path::cut(&offsets(&[1001, 1, 1201]), CUTS, Determinism::Fast).unwrap();
        assert_eq!(shared.shares[..5].iter().map(|share| share[3]).collect::<Vec<_>>(), [0, 0, 1, 1, 1]);
        assert_eq!((shared.slots, shared.split_rows), (2, vec![[0, 0, 1, 1], [2, 1, 1, 1]]));
    }

    /// Every row and entry is in one share, and threads have the ends that the offsets say.
    #[test]
    fn shares_cover_the_path() {
        let mut state = 7_u64;
        for steps in [3, 7, 15] {
            let lengths: Vec<u64> = (0..3000)
                .map(|_| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    match state >> 60 {
                        0 => state >> 40 & 0xfff,
                        1..4 => 0,
                        _ => state >> 40 & 0x1f,
                    }
                })
                .collect();
            let offsets = offsets(&lengths);
            let path = Path::cut(&offsets, Cuts { steps, ..CUTS }, Determinism::RunToRun).unwrap();
            let (long, together) = path.shares.split_at(path.long_count as usize);
            let mut ends = vec![None; lengths.len()];
            for (share, words) in together.iter().zip(path.steps.chunks(128)) {
                let [rows, entries] = counts(*share);
                assert!(rows + entries <= u64::from(128 * steps));
                for (thread, &word) in words.iter().enumerate() {
                    let ending = (0..steps).filter(|step| word >> step & 1 != 0);
                    for (row, step) in (share[0] + (word >> 16)..).zip(ending) {
                        let walked = thread as u64 * u64::from(steps) + u64::from(step);
                        let entry = u64::from(share[1]) + walked - u64::from(row - share[0]);
                        assert_eq!(ends[row as usize].replace(entry), None, "row {row} ends once");
                    }
                }
            }
            let mut found: Vec<u64> = lengths.iter().map(|_| 0).collect();
            for &[row, first, entries, _] in long {
                assert!(
                    u64::from(entries) + 1 > u64::from(128 * steps) || lengths[row as usize] > CUTS.longest
                );
                found[row as usize] += u64::from(entries);
                ends[row as usize] = ends[row as usize].max(Some(u64::from(first + entries)));
            }
            for (row, &length) in lengths.iter().enumerate() {
                assert_eq!(ends[row], Some(offsets[row + 1]), "row {row} of {length} entries");
                assert!(found[row] == length || found[row] == 0);
            }
        }
    }
}

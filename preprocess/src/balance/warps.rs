//! Rows dealt out to warps by their lengths.

use rayon::prelude::*;
use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_par_flat_map, try_with_room};

use super::NO_SLOT;

/// Warps of a block, and the most that a row has in one.
const BLOCK_WARPS: u32 = 8;
/// Entries that a warp takes at a time.
const WARP_ENTRIES: u64 = 8;
/// Entries that a block takes at a time.
const BLOCK_ENTRIES: u64 = 64;
/// Entries of the longest piece of a row that several blocks share, and of the longest row that one block has alone:
/// one that is barely longer than a piece is better left whole.
const PIECE: u64 = 4 * BLOCK_ENTRIES;
const WHOLE: u64 = 6 * BLOCK_ENTRIES;

/// What one warp has of which row, as TCA-SpMM deals rows out (section 4.2.2): its arrays `row_id_for_each_warp`,
/// `num_warps_per_row` and `warpid_within_row`, and the entries that follow from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarpShare {
    /// The row of `C` that the sums belong to.
    pub row: u32,
    /// The slot for the sums of a piece; [`NO_SLOT`] for a whole row.
    pub slot: u32,
    /// First entry of the row, or of the piece that the block has.
    pub first: u32,
    /// Entries of the row, or of the piece.
    pub entries: u32,
    /// Warps of the block that share them: 1, 2, 4 or 8.
    pub warps: u32,
    /// Which of these it is.
    pub warp: u32,
}

/// The rows of a matrix, dealt out to warps.
///
/// Invariants:
/// - the warps of a row, or of a piece, follow each other, none goes on in the next block of eight, and they tell the
///   same but for their number;
/// - rows of at most 8, 16, 32 entries have 1, 2, 4 warps, others 8; rows of more than 384 entries are cut into
///   pieces of at most 256, whole multiples of 64 but for the last;
/// - rows with more warps come first, rows with as many ascend;
/// - the slots of a row are consecutive, in the order of its pieces; `split_rows` lists the rows that are cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowWarps {
    /// What each warp does.
    pub warps: Vec<WarpShare>,
    /// `[row, first_slot, count, stride]` with stride 1: the partial sums of `row` are in slots
    /// `first_slot .. first_slot + count`.
    pub split_rows: Vec<[u32; 4]>,
    /// Slots that the workspace needs for partial sums.
    pub slots: u32,
}

impl RowWarps {
    /// Gives all pieces of a row one slot, for sums that are accumulated in whatever order they come.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn share_slots(&mut self) -> Result<(), OutOfMemory> {
        let of_warps = self.warps.iter_mut().map(|share| &mut share.slot);
        self.slots = super::share_slots(&mut self.split_rows, self.slots, of_warps)?;
        Ok(())
    }

    /// MMAs of 16 × 8 × 8 that a product of `n` columns takes: for each 64 entries of a row, or fewer, and each `16/w`
    /// columns one.
    ///
    /// TCA-SpMM's equation 1 says `nnz·n/128` for rows that are whole multiples of 64; what is more here is padding.
    #[must_use]
    pub fn mma_count(&self, n: u64) -> u64 {
        let of_block = |share: &WarpShare| {
            let rounds = u64::from(share.entries).div_ceil(BLOCK_ENTRIES).max(1);
            rounds * n.div_ceil(u64::from(16 / share.warps))
        };
        self.warps.par_iter().filter(|share| share.warp == 0).map(of_block).sum()
    }
}

/// Warps for so many entries.
const fn warps_of(entries: u64) -> u32 {
    match entries.div_ceil(WARP_ENTRIES) {
        0 | 1 => 1,
        2 => 2,
        3 | 4 => 4,
        _ => BLOCK_WARPS,
    }
}

/// Deals the rows with these offsets out to warps, in parallel.
///
/// # Errors
/// [`OutOfMemory`].
///
/// # Panics
/// If an offset exceeds 2³² − 1 or offsets decrease. The caller has refused matrices of that size, and a
/// valid matrix's offsets ascend.
///
/// # Examples
/// ```
/// use windrow_preprocess::balance::row_warps;
///
/// // Rows of 3, 20 and 0 entries: four warps for the second.
/// let dealt = row_warps(&[0, 3, 23, 23])?;
/// let rows: Vec<u32> = dealt.warps.iter().map(|share| share.row).collect();
/// assert_eq!(rows, [1, 1, 1, 1, 0, 2]);
/// assert_eq!(dealt.mma_count(16), 4 + 1 + 1);
/// # Ok::<(), windrow_formats::OutOfMemory>(())
/// ```
pub fn row_warps(row_offsets: &[u64]) -> Result<RowWarps, OutOfMemory> {
    let rows = row_offsets.len().saturating_sub(1);
    let len = |row: usize| row_offsets[row + 1] - row_offsets[row];
    let is_cut = |&row: &usize| len(row) > WHOLE;
    let cut = (0..rows).into_par_iter().filter(is_cut).count();
    let mut split_rows = try_with_room(cut, "rows that are cut")?;
    let mut slots = 0;
    // Most matrices have none.
    for row in (0..rows).filter(is_cut).take(cut) {
        let count = entry(len(row).div_ceil(piece_of(len(row))));
        split_rows.push([entry(row as u64), slots, count, 1]);
        slots += count; // no more slots than entries
    }
    let shares = |(row, slot, warps): (u32, u32, u32), (first, entries): (u64, u64)| {
        let (first, entries) = (entry(first), entry(entries));
        (0..warps).map(move |warp| WarpShare { row, slot, first, entries, warps, warp })
    };
    let of_cut = |&[row, first_slot, count, _]: &[u32; 4]| {
        let (begin, len) = (row_offsets[row as usize], len(row as usize));
        let piece = piece_of(len);
        (0..count).flat_map(move |i| {
            let from = u64::from(i) * piece;
            // A piece has all the warps of a block, however short it is.
            shares((row, first_slot + i, BLOCK_WARPS), (begin + from, piece.min(len - from)))
        })
    };
    let of_whole = |at: usize| {
        let (row, warps) = (at % rows, [8, 4, 2, 1][at / rows]);
        let len = len(row);
        let share = || shares((entry(row as u64), NO_SLOT, warps), (row_offsets[row], len));
        (len <= WHOLE && warps_of(len) == warps).then(share)
    };
    // The rows that are cut, then for each number of warps those of all rows that have it.
    let of_any = |at: usize| {
        let cut = split_rows.get(at).map(of_cut).into_iter().flatten();
        cut.chain(at.checked_sub(split_rows.len()).and_then(of_whole).into_iter().flatten())
    };
    let blank = WarpShare { row: 0, slot: NO_SLOT, first: 0, entries: 0, warps: 0, warp: 0 };
    let warps = try_par_flat_map(split_rows.len() + 4 * rows, blank, of_any, "warps of rows")?;
    Ok(RowWarps { warps, split_rows, slots })
}

/// Entries of a piece of a row of so many that is cut: as few pieces as can be, of like length.
const fn piece_of(len: u64) -> u64 {
    len.div_ceil(len.div_ceil(PIECE)).next_multiple_of(BLOCK_ENTRIES)
}

fn entry(at: u64) -> u32 {
    u32::try_from(at).expect("rows and entries are counted in 32 bits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn offsets(lens: &[u64]) -> Vec<u64> {
        std::iter::once(0)
            .chain(lens.iter().scan(0, |sum, len| {
                *sum += len;
                Some(*sum)
            }))
            .collect()
    }

    #[test]
    fn warps_follow_lengths() {
        for (entries, warps) in
            [(0, 1), (1, 1), (8, 1), (9, 2), (16, 2), (17, 4), (32, 4), (33, 8), (64, 8), (65, 8), (384, 8)]
        {
            let dealt = row_warps(&[0, entries]).unwrap();
            assert_eq!(dealt.warps.len(), warps, "{entries} entries");
            assert!(dealt.split_rows.is_empty(), "{entries} entries");
        }
    }

    #[test]
    fn long_rows_are_cut_into_pieces_of_like_length() {
        let dealt = row_warps(&[0, 385, 385, 1385]).unwrap();
        let pieces: Vec<_> = dealt.warps.iter().filter(|share| share.warp == 0).collect();
        let of = |piece: &&WarpShare| (piece.row, piece.slot, piece.first, piece.entries);
        assert_eq!(
            pieces.iter().map(of).collect::<Vec<_>>(),
            [
                (0, 0, 0, 256),
                (0, 1, 256, 129),
                (2, 2, 385, 256),
                (2, 3, 641, 256),
                (2, 4, 897, 256),
                (2, 5, 1153, 232),
                (1, NO_SLOT, 385, 0)
            ]
        );
        assert_eq!(dealt.split_rows, [[0, 0, 2, 1], [2, 2, 4, 1]]);
        let mut shared = dealt.clone();
        shared.share_slots().unwrap();
        assert_eq!((shared.slots, shared.split_rows), (2, vec![[0, 0, 1, 1], [2, 1, 1, 1]]));
        assert!(shared.warps.iter().all(|share| share.slot == NO_SLOT || share.slot == share.row / 2));
    }

    #[test]
    fn mmas_are_those_of_equation_one_where_rows_fill_them() {
        for (len, rows) in [(8, 10), (16, 3), (32, 7), (64, 5), (256, 2), (1024, 2)] {
            let lens = vec![len; rows];
            let nnz = len * rows as u64;
            for n in [16, 64, 128] {
                assert_eq!(
                    row_warps(&offsets(&lens)).unwrap().mma_count(n),
                    nnz * n / 128,
                    "rows of {len}, {n} columns"
                );
            }
        }
        assert_eq!(row_warps(&[0, 1]).unwrap().mma_count(16), 1); // padded
        assert_eq!(row_warps(&[0, 65]).unwrap().mma_count(2), 2);
        assert_eq!(row_warps(&[0, 9]).unwrap().mma_count(1), 1);
    }

    proptest! {
        #[test]
        fn every_entry_has_its_warps(lens in prop::collection::vec(prop_oneof![
            6 => 0_u64..40, 2 => 40_u64..400, 1 => 400_u64..3000,
        ], 0..60)) {
            let offsets = offsets(&lens);
            let dealt = row_warps(&offsets).unwrap();
            let mut covered = vec![0_u64; lens.len()];
            let mut last = u32::MAX;
            for (at, share) in (0_u32..).zip(&dealt.warps) {
                prop_assert!(share.warps <= last);
                last = share.warps;
                let in_block = at % BLOCK_WARPS;
                prop_assert!(share.warp <= in_block && in_block - share.warp + share.warps <= BLOCK_WARPS);
                prop_assert_eq!(dealt.warps[(at - share.warp) as usize].first, share.first);
                prop_assert!(share.warps == BLOCK_WARPS || share.entries <= 8 * share.warps);
                if share.warp == 0 {
                    let row = share.row as usize;
                    prop_assert_eq!(u64::from(share.first), offsets[row] + covered[row]);
                    covered[row] += u64::from(share.entries);
                    prop_assert_eq!(share.slot == NO_SLOT, u64::from(share.entries) == lens[row]);
                }
            }
            prop_assert_eq!(covered, lens);
            prop_assert_eq!(dealt.split_rows.iter().map(|row| row[2]).sum::<u32>(), dealt.slots);
        }
    }
}

//! Long rows cut into pieces.

use rayon::prelude::*;

use super::{ADD_TO_C, ADDS, NO_SLOT};

/// Rows as segments: a row is one segment, or several if it is long.
///
/// Invariants, with `[row, begin, end, slot] = segments[i]`:
/// - rows ascend, and the segments of a row are consecutive and cover its entries once, in order;
/// - every row has a segment, rows without entries too (`begin = end`);
/// - `slot = NO_SLOT` exactly where the segment is its whole row; otherwise slots count up from 0 over all
///   segments, so those of a row are consecutive;
/// - `split_rows` lists the rows of more than one segment, ascending; `Σ count = slots`.
///
/// After [`skip_empty`](Self::skip_empty) rows without entries have none; after [`add_to_c`](Self::add_to_c) the slot
/// of a whole row may be [`ADD_TO_C`], and the stride of a split row has the bit [`ADDS`] where it is to be added. After
/// [`sum_apart`](Self::sum_apart) a whole row may have a slot and be listed with a count of 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowSegments {
    /// `[row, begin, end, slot]`: entries `begin..end` of the matrix, all of `row`.
    pub segments: Vec<[u32; 4]>,
    /// `[row, first_slot, count, stride]` with stride 1: the partial sums of `row` are in slots
    /// `first_slot .. first_slot + count`.
    pub split_rows: Vec<[u32; 4]>,
    /// Number of slots.
    pub slots: u32,
}

impl RowSegments {
    /// Gives all pieces of a row one slot, for sums that are accumulated in whatever order they come.
    pub fn share_slots(&mut self) {
        let mut shared = vec![0u32; self.slots as usize];
        for (row, slot) in self.split_rows.iter_mut().zip(0u32..) {
            shared[row[1] as usize..][..row[2] as usize].fill(slot);
            (row[1], row[2]) = (slot, 1);
        }
        for segment in self.segments.iter_mut().filter(|segment| segment[3] < ADD_TO_C) {
            segment[3] = shared[segment[3] as usize];
        }
        self.slots = self.split_rows.iter().map(|row| row[2]).sum(); // one for each row now
    }

    /// Gives whole rows for which `has_more` holds a slot each, and marks all such rows: what is computed for them is
    /// added to `C` when that holds the product of their other entries, and need not wait for it.
    ///
    /// Slots of these rows come last, and begin at `first_slot` for all rows.
    pub fn sum_apart(&mut self, first_slot: u32, has_more: impl Fn(u32) -> bool) {
        for row in &mut self.split_rows {
            row[1] += first_slot;
            row[3] |= if has_more(row[0]) { ADDS } else { 0 };
        }
        for segment in &mut self.segments {
            if segment[3] != NO_SLOT {
                segment[3] += first_slot;
            } else if has_more(segment[0]) {
                segment[3] = first_slot + self.slots;
                self.split_rows.push([segment[0], segment[3], 1, 1 | ADDS]);
                self.slots += 1; // no more slots than entries
            }
        }
        self.split_rows.sort_unstable();
        self.slots += first_slot;
    }

    /// Leaves out the segments of rows without entries: something else writes these.
    pub fn skip_empty(&mut self) {
        self.segments = self.segments.par_iter().copied().filter(|segment| segment[1] < segment[2]).collect();
    }

    /// Marks the rows for which `has_more` holds: what is computed for them is added to `C`, which then holds the
    /// product of their other entries.
    pub fn add_to_c(&mut self, has_more: impl Fn(u32) -> bool + Sync) {
        let whole = |segment: &&mut [u32; 4]| segment[3] == NO_SLOT && has_more(segment[0]);
        self.segments.par_iter_mut().filter(whole).for_each(|segment| segment[3] = ADD_TO_C);
        for row in self.split_rows.iter_mut().filter(|row| has_more(row[0])) {
            row[3] |= ADDS;
        }
    }
}

/// Cuts each row of more than `limit` entries into the fewest pieces of at most `piece` entries, equal to
/// within one entry; every other row is one segment.
///
/// So a segment has at most `max(limit, piece)` entries. A `piece` of 0 counts as 1.
///
/// # Panics
/// If an offset exceeds 2³² − 1 or offsets decrease. The caller has refused matrices of that size, and a
/// valid matrix's offsets ascend.
///
/// # Examples
/// ```
/// use windrow_preprocess::balance::{NO_SLOT, row_segments};
///
/// let cut = row_segments(&[0, 3, 3, 10], 4, 3);
/// assert_eq!(cut.segments, [[0, 0, 3, NO_SLOT], [1, 3, 3, NO_SLOT], [2, 3, 5, 0], [2, 5, 7, 1], [2, 7, 10, 2]]);
/// assert_eq!(cut.split_rows, [[2, 0, 3, 1]]);
/// ```
pub fn row_segments(row_offsets: &[u64], limit: u32, piece: u32) -> RowSegments {
    let cutting = Cutting { limit: u64::from(limit), piece: u64::from(piece.max(1)) };
    let rows = row_offsets.len().saturating_sub(1);
    let chunks: Vec<&[u64]> = (0..rows)
        .step_by(CHUNK_ROWS)
        .map(|first| &row_offsets[first..=rows.min(first + CHUNK_ROWS)])
        .collect();
    let counts: Vec<[usize; 3]> = chunks.par_iter().map(|offsets| cutting.counts(offsets)).collect();
    let total = counts.iter().fold([0; 3], |sum, count| [0, 1, 2].map(|i| sum[i] + count[i]));
    let mut cut = RowSegments {
        segments: vec![[0; 4]; total[0]],
        split_rows: vec![[0; 4]; total[2]],
        slots: entry(total[1] as u64), // no more slots than entries
    };
    let (mut segments, mut split_rows) = (cut.segments.as_mut_slice(), cut.split_rows.as_mut_slice());
    let mut parts = Vec::with_capacity(chunks.len());
    let (mut row, mut slot) = (0u32, 0u32);
    for (offsets, [segment_count, slots, split]) in chunks.into_iter().zip(counts) {
        let (mine, rest) = segments.split_at_mut(segment_count);
        let (mine_split, rest_split) = split_rows.split_at_mut(split);
        parts.push(((row, slot), offsets, mine, mine_split));
        (segments, split_rows) = (rest, rest_split);
        (row, slot) = (row + entry(offsets.len() as u64 - 1), slot + entry(slots as u64));
    }
    parts.into_par_iter().for_each(|(first, offsets, segments, split_rows)| {
        cutting.fill(first, offsets, segments, split_rows);
    });
    cut
}

/// Rows that a thread takes at a time.
const CHUNK_ROWS: usize = 1 << 14;

/// How rows are cut.
#[derive(Clone, Copy)]
struct Cutting {
    /// Entries of the longest row that is not.
    limit: u64,
    /// Entries of the longest piece.
    piece: u64,
}

impl Cutting {
    /// Pieces of a row.
    fn pieces(self, len: u64) -> u64 {
        if len > self.limit { len.div_ceil(self.piece) } else { 1 }
    }

    /// Segments, slots and split rows of some rows.
    fn counts(self, row_offsets: &[u64]) -> [usize; 3] {
        row_offsets.windows(2).fold([0; 3], |[segments, slots, split], ends| {
            match self.pieces(ends[1] - ends[0]) {
                1 => [segments + 1, slots, split],
                pieces => {
                    let pieces = entry(pieces) as usize; // no more than entries
                    [segments + pieces, slots + pieces, split + 1]
                }
            }
        })
    }

    /// The segments and split rows of these rows, whose first row and slot are given: as many as [`counts`](Self::counts)
    /// counts.
    fn fill(
        self,
        (row, slot): (u32, u32),
        row_offsets: &[u64],
        segments: &mut [[u32; 4]],
        split_rows: &mut [[u32; 4]],
    ) {
        let (mut segments, mut split_rows, mut slot) = (segments.iter_mut(), split_rows.iter_mut(), slot);
        let mut push = |segment| {
            if let Some(place) = segments.next() {
                *place = segment;
            }
        };
        for (row, ends) in (row..).zip(row_offsets.windows(2)) {
            let (begin, len) = (ends[0], ends[1] - ends[0]);
            let pieces = self.pieces(len);
            if pieces == 1 {
                push([row, entry(begin), entry(ends[1]), NO_SLOT]);
                continue;
            }
            let first_slot = slot;
            for i in 0..pieces {
                // len and pieces are below 2^32, so the products fit.
                let (from, to) = (begin + len * i / pieces, begin + len * (i + 1) / pieces);
                push([row, entry(from), entry(to), slot]);
                slot += 1;
            }
            if let Some(place) = split_rows.next() {
                *place = [row, first_slot, slot - first_slot, 1];
            }
        }
    }
}

/// An entry's position as kernels address it.
fn entry(at: u64) -> u32 {
    u32::try_from(at).expect("the caller has refused matrices with 2^32 entries or more")
}

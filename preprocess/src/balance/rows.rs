//! Long rows cut into pieces.

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{make_room, try_with_room};

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
/// of a whole row may be [`ADD_TO_C`], and the stride of a split row has the bit [`ADDS`] where it is to be added.
/// After [`sum_apart`](Self::sum_apart) a whole row may have a slot and be listed with a count of 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowSegments {
    /// `[row, begin, end, slot]`: entries `begin..end` of the matrix, all of `row`.
    pub segments: Vec<[u32; 4]>,
    /// `[row, first_slot, count, stride]` with stride 1: the partial sums of `row` are in slots
    /// `first_slot .. first_slot + count`.
    pub split_rows: Vec<[u32; 4]>,
    /// Slots that the workspace needs for partial sums.
    pub slots: u32,
}

impl RowSegments {
    /// Gives all pieces of a row one slot, for sums that are accumulated in whatever order they come.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn share_slots(&mut self) -> Result<(), OutOfMemory> {
        let of_segments = self.segments.iter_mut().map(|segment| &mut segment[3]);
        self.slots = super::share_slots(&mut self.split_rows, self.slots, of_segments)?;
        Ok(())
    }

    /// Gives whole rows for which `has_more` holds a slot each, and marks all such rows: what is computed for them is
    /// added to `C` when that holds the product of their other entries, and need not wait for it.
    ///
    /// Slots of these rows come last, and begin at `first_slot` for all rows.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn sum_apart(&mut self, first_slot: u32, has_more: impl Fn(u32) -> bool) -> Result<(), OutOfMemory> {
        let whole = self.segments.iter().filter(|segment| segment[3] == NO_SLOT && has_more(segment[0]));
        make_room(&mut self.split_rows, whole.count(), "rows that are summed apart")?;
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
        Ok(())
    }

    /// Leaves out the segments of rows without entries: something else writes these.
    pub fn skip_empty(&mut self) {
        self.segments.retain(|segment| segment[1] < segment[2]);
    }

    /// Marks the rows for which `has_more` holds: what is computed for them is added to `C`, which then holds the
    /// product of their other entries.
    pub fn add_to_c(&mut self, has_more: impl Fn(u32) -> bool) {
        for segment in
            self.segments.iter_mut().filter(|segment| segment[3] == NO_SLOT && has_more(segment[0]))
        {
            segment[3] = ADD_TO_C;
        }
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
/// # Errors
/// [`OutOfMemory`].
///
/// # Panics
/// If an offset exceeds 2³² − 1 or offsets decrease. The caller has refused matrices of that size, and a
/// valid matrix's offsets ascend.
///
/// # Examples
/// ```
/// use windrow_preprocess::balance::{NO_SLOT, row_segments};
///
/// let cut = row_segments(&[0, 3, 3, 10], 4, 3)?;
/// assert_eq!(cut.segments, [[0, 0, 3, NO_SLOT], [1, 3, 3, NO_SLOT], [2, 3, 5, 0], [2, 5, 7, 1], [2, 7, 10, 2]]);
/// assert_eq!(cut.split_rows, [[2, 0, 3, 1]]);
/// # Ok::<(), windrow_formats::OutOfMemory>(())
/// ```
pub fn row_segments(row_offsets: &[u64], limit: u32, piece: u32) -> Result<RowSegments, OutOfMemory> {
    let piece = u64::from(piece.max(1));
    let pieces_of = |len: u64| if len > u64::from(limit) { len.div_ceil(piece) } else { 1 };
    let (mut segments, mut split) = (0, 0);
    for ends in row_offsets.windows(2) {
        let pieces = pieces_of(ends[1] - ends[0]);
        segments += pieces;
        split += usize::from(pieces > 1);
    }
    let segments = usize::try_from(segments).unwrap_or(usize::MAX);
    let mut cut = RowSegments {
        segments: try_with_room(segments, "segments")?,
        split_rows: try_with_room(split, "rows that are cut")?,
        slots: 0,
    };
    for (row, ends) in (0u32..).zip(row_offsets.windows(2)) {
        let (begin, end) = (ends[0], ends[1]);
        let len = end - begin;
        let pieces = pieces_of(len);
        if pieces == 1 {
            cut.segments.push([row, entry(begin), entry(end), NO_SLOT]);
            continue;
        }
        let first_slot = cut.slots;
        for i in 0..pieces {
            // len and pieces are below 2^32, so the products fit.
            let (from, to) = (begin + len * i / pieces, begin + len * (i + 1) / pieces);
            cut.segments.push([row, entry(from), entry(to), cut.slots]);
            cut.slots += 1; // no more slots than entries
        }
        cut.split_rows.push([row, first_slot, cut.slots - first_slot, 1]);
    }
    Ok(cut)
}

/// An entry's position as kernels address it.
fn entry(at: u64) -> u32 {
    u32::try_from(at).expect("the caller has refused matrices with 2^32 entries or more")
}

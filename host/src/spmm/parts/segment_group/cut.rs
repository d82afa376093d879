//! Entries in groups of equal number: where rows start among them, and which rows lie in more than one group.

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{make_room, try_with_room, try_zeroed};

use crate::num::{index, narrow};
use crate::options::Determinism;

/// Entries of a word of starts; arrays of entries are padded to a multiple of it.
pub(super) const WORD: usize = 32;

/// Where rows start among the entries.
pub(super) struct Starts {
    /// For each 32 entries: which of them start a row, and how many starts there are before; and none behind.
    pub(super) words: Vec<[u32; 2]>,
    /// Rows with entries, and rows without.
    pub(super) rows: Vec<u32>,
    pub(super) empty: Vec<u32>,
}

impl Starts {
    pub(super) fn new(offsets: &[u64]) -> Result<Self, OutOfMemory> {
        let nnz = index(offsets.last().copied().unwrap_or(0));
        let mut words = try_zeroed::<[u32; 2]>(nnz.div_ceil(WORD) + 1, "row_starts")?;
        let without = offsets.windows(2).filter(|ends| ends[0] == ends[1]).count();
        let mut empty = try_with_room(without, "empty_rows")?;
        let mut rows = try_with_room(offsets.len().saturating_sub(1) - without, "rows")?;
        for (row, ends) in offsets.windows(2).enumerate() {
            if ends[0] == ends[1] {
                empty.push(narrow(row));
            } else {
                let start = index(ends[0]);
                words[start / WORD][0] |= 1 << (start % WORD);
                rows.push(narrow(row));
            }
        }
        let mut before = 0;
        for word in &mut words {
            word[1] = before;
            before += word[0].count_ones();
        }
        Ok(Self { words, rows, empty })
    }

    fn starts_at(&self, entry: u32) -> bool {
        let entry = index(u64::from(entry));
        self.words[entry / WORD][0] >> (entry % WORD) & 1 != 0
    }

    /// The row of an entry.
    fn row_of(&self, entry: u32) -> u32 {
        let at = index(u64::from(entry));
        let [bits, before] = self.words[at / WORD];
        let upto = bits & u32::MAX >> (WORD - 1 - at % WORD);
        self.rows[index(u64::from(before + upto.count_ones() - 1))]
    }

    /// Starts among entries `from..to`.
    fn any_between(&self, from: u32, to: u32) -> bool {
        from < to && (self.starts_at(from) || self.row_of(from) != self.row_of(to - 1))
    }
}

/// Rows that lie in more than one group of entries.
pub(super) struct Cut {
    /// For each group the slot of its first piece.
    pub(super) slots: Vec<u32>,
    pub(super) split_rows: Vec<[u32; 4]>,
    /// Slots of all pieces: rows of the workspace.
    pub(super) count: u32,
}

impl Cut {
    /// Of `nnz` entries in groups of `group`; each piece has a slot of its own, or each row.
    pub(super) fn new(
        starts: &Starts,
        group: u32,
        nnz: u32,
        determinism: Determinism,
    ) -> Result<Self, OutOfMemory> {
        let mut slots = try_with_room(index(u64::from(nnz.div_ceil(group))), "slots")?;
        let (mut split_rows, mut count): (Vec<[u32; 4]>, u32) = (Vec::new(), 0);
        let shared = determinism == Determinism::Fast;
        let mut begin = 0;
        while begin < nnz {
            let end = begin.saturating_add(group).min(nnz);
            let continues = !starts.starts_at(begin); // a row of the group before
            slots.push(if shared { count.saturating_sub(u32::from(continues)) } else { count });
            if continues && !shared {
                if let Some(last) = split_rows.last_mut() {
                    last[2] += 1;
                }
                count += 1;
            }
            let cut_here = end < nnz && !starts.starts_at(end);
            let begins_here = starts.any_between(begin + u32::from(continues), end);
            if cut_here && begins_here {
                make_room(&mut split_rows, 1, "rows that are cut")?;
                split_rows.push([starts.row_of(end - 1), count, 1, 1]);
                count += 1;
            }
            begin = end;
        }
        Ok(Self { slots, split_rows, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_name_the_rows_of_entries() {
        let offsets = [0, 0, 3, 35, 35, 70];
        let starts = Starts::new(&offsets).unwrap();
        assert_eq!(starts.words, [[0b1001, 0], [0b1000, 2], [0, 3], [0, 3]]);
        assert_eq!((starts.rows.as_slice(), starts.empty.as_slice()), (&[1, 2, 4][..], &[0, 3][..]));
        for (entry, row) in [(0, 1), (2, 1), (3, 2), (31, 2), (32, 2), (34, 2), (35, 4), (69, 4)] {
            assert_eq!(starts.row_of(entry), row, "entry {entry}");
        }
        assert!(starts.any_between(1, 4) && !starts.any_between(1, 3) && !starts.any_between(4, 4));
        assert_eq!(Starts::new(&[0]).unwrap().words, [[0, 0]]);
    }

    #[test]
    fn pieces_of_cut_rows_have_slots_in_order() {
        // Rows of 3, 10, 1, 2 entries in groups of 4: row 1 is in groups 0 to 3.
        let starts = Starts::new(&[0, 3, 13, 14, 16]).unwrap();
        let own = Cut::new(&starts, 4, 16, Determinism::RunToRun).unwrap();
        assert_eq!((own.slots.as_slice(), own.count), (&[0, 1, 2, 3][..], 4));
        assert_eq!(own.split_rows, [[1, 0, 4, 1]]);
        let shared = Cut::new(&starts, 4, 16, Determinism::Fast).unwrap();
        assert_eq!((shared.slots.as_slice(), shared.count), (&[0, 0, 0, 0][..], 1));
        assert_eq!(shared.split_rows, [[1, 0, 1, 1]]);
        // Two cut rows in one group.
        let starts = Starts::new(&[0, 6, 12]).unwrap();
        let own = Cut::new(&starts, 4, 12, Determinism::RunToRun).unwrap();
        assert_eq!(own.slots, [0, 1, 3]);
        assert_eq!(own.split_rows, [[0, 0, 2, 1], [1, 2, 2, 1]]);
        assert_eq!(Cut::new(&starts, 4, 12, Determinism::Fast).unwrap().slots, [0, 0, 1]);
        assert!(Cut::new(&starts, 6, 12, Determinism::RunToRun).unwrap().split_rows.is_empty());
    }
}

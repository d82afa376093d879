//! Which rows of a window hold a column alone.

use windrow_formats::OutOfMemory;
use windrow_formats::memory::make_room;

/// Stretches an odd multiple of 2⁶⁴ / golden ratio over the upper bits: columns at any stride are spread.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Counts, for the columns of a few rows, the rows that hold each, and knows the row of a column that one row alone
/// holds; emptied in constant time.
///
/// A hash table with linear probing, at most half full. Only the first `2^bits` slots are in use, so that a
/// small window after a large one stays in the cache. A slot of an older generation counts as free.
#[derive(Debug, Default)]
pub(super) struct ColumnCounts {
    slots: Vec<Slot>,
    bits: u32,
    generation: u32,
    /// Columns that have a slot, those of no row any more included.
    used: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    column: u32,
    generation: u32,
    rows: u32,
    /// The sum of the names of these rows, modulo 2³²: the name itself where there is one.
    names: u32,
}

impl ColumnCounts {
    /// Empties the table and makes room for `columns` columns.
    pub(super) fn reset(&mut self, columns: usize) -> Result<(), OutOfMemory> {
        let len = (2 * columns).next_power_of_two().max(16);
        if let Some(more) = len.checked_sub(self.slots.len()) {
            make_room(&mut self.slots, more, "columns of a window")?;
            self.slots.resize(len, Slot::default());
        }
        if self.generation == u32::MAX {
            self.slots.fill(Slot::default());
            self.generation = 0;
        }
        self.bits = len.trailing_zeros();
        self.generation += 1;
        self.used = 0;
        Ok(())
    }

    /// Whether `columns` more columns leave the table half empty.
    pub(super) fn has_room(&self, columns: usize) -> bool {
        2 * (self.used + columns) <= 1 << self.bits
    }

    /// Columns that were added since the table was emptied.
    pub(super) fn distinct(&self) -> usize {
        self.used
    }

    /// The row `name` has `columns`, for which the table has been reset with room. Returns how many of them it holds
    /// alone; `shares` is told, once for each column, the row that held it alone before.
    pub(super) fn add(&mut self, name: u32, columns: &[u32], mut shares: impl FnMut(u32)) -> usize {
        let mut alone = 0;
        for &column in columns {
            let (slot, generation) = (self.slot(column), self.generation);
            let slot = &mut self.slots[slot];
            if slot.generation != generation {
                *slot = Slot { column, generation, rows: 0, names: 0 };
                self.used += 1;
            }
            match slot.rows {
                0 => alone += 1,
                1 => shares(slot.names),
                _ => {}
            }
            slot.rows += 1;
            slot.names = slot.names.wrapping_add(name);
        }
        alone
    }

    /// The row `name`, which has `columns`, goes; `left_alone` is told, once for each column, the row that alone
    /// holds it now.
    pub(super) fn remove(&mut self, name: u32, columns: &[u32], mut left_alone: impl FnMut(u32)) {
        for &column in columns {
            let slot = self.slot(column);
            let slot = &mut self.slots[slot];
            slot.rows -= 1;
            slot.names = slot.names.wrapping_sub(name);
            if slot.rows == 1 {
                left_alone(slot.names);
            }
        }
    }

    /// Where `column` is, or would be.
    fn slot(&self, column: u32) -> usize {
        let mask = (1 << self.bits) - 1;
        let mut at = home(column, self.bits);
        loop {
            let slot = &self.slots[at];
            if slot.generation != self.generation || slot.column == column {
                return at;
            }
            at = (at + 1) & mask;
        }
    }
}

/// The slot from which `column` is looked for among `2^bits`, `bits > 0`.
#[expect(clippy::cast_possible_truncation, reason = "the result is below 2^bits, the length of a vector")]
const fn home(column: u32, bits: u32) -> usize {
    ((column as u64).wrapping_mul(SPREAD) >> (u64::BITS - bits)) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_what_a_map_counts(
            rows in prop::collection::vec(prop::collection::btree_set(0u32..40, 0..12), 1..8),
            gone in 0usize..8,
        ) {
            let gone = gone % rows.len();
            // Any names do, also those whose sum wraps.
            let name = |row: usize| u32::MAX - 3 * u32::try_from(row).unwrap();
            let columns = |row: usize| rows[row].iter().copied().collect::<Vec<_>>();
            let alone = |rows: &[(usize, &BTreeSet<u32>)]| -> BTreeMap<u32, usize> {
                let held_by = |column| rows.iter().filter(|(_, row)| row.contains(column)).count();
                rows.iter().map(|&(r, row)| (name(r), row.iter().filter(|c| held_by(c) == 1).count())).collect()
            };
            let mut counts = ColumnCounts::default();
            for generation in 0..3 {
                counts.reset(rows.iter().map(BTreeSet::len).sum()).unwrap();
                let mut found = BTreeMap::<u32, usize>::new();
                for row in 0..rows.len() {
                    let own = counts.add(name(row), &columns(row), |other| *found.get_mut(&other).unwrap() -= 1);
                    found.insert(name(row), own);
                }
                let mut all: Vec<_> = rows.iter().enumerate().collect();
                prop_assert_eq!(&found, &alone(&all), "generation {}", generation);
                let distinct = rows.iter().flatten().collect::<BTreeSet<_>>().len();
                prop_assert_eq!(counts.distinct(), distinct, "generation {}", generation);
                all.remove(gone);
                found.remove(&name(gone));
                counts.remove(name(gone), &columns(gone), |other| *found.get_mut(&other).unwrap() += 1);
                prop_assert_eq!(&found, &alone(&all));
            }
        }
    }

    #[test]
    fn room_is_half_of_the_table() {
        let mut counts = ColumnCounts::default();
        assert!(!counts.has_room(1));
        counts.reset(8).unwrap();
        assert!(counts.has_room(8) && !counts.has_room(9));
        assert_eq!(counts.add(0, &[1, 2, 3], |_| ()), 3);
        assert!(counts.has_room(5) && !counts.has_room(6));
    }

    #[test]
    fn a_used_up_generation_leaves_nothing_behind() {
        let mut counts = ColumnCounts { generation: u32::MAX - 1, ..ColumnCounts::default() };
        for _ in 0..3 {
            counts.reset(4).unwrap();
            assert_eq!(counts.distinct(), 0);
            assert_eq!((counts.add(0, &[5, 6], |_| ()), counts.distinct()), (2, 2));
        }
    }
}

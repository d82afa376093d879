//! How many rows of a window hold a column.

/// Stretches an odd multiple of 2⁶⁴ / golden ratio over the upper bits: columns at any stride are spread.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Counts, for the columns of a few rows, the rows that hold each; emptied in constant time.
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
}

impl ColumnCounts {
    /// Empties the table and makes room for `columns` columns.
    pub(super) fn reset(&mut self, columns: usize) {
        let len = (2 * columns).next_power_of_two().max(16);
        if self.slots.len() < len {
            self.slots.resize(len, Slot::default());
        }
        if self.generation == u32::MAX {
            self.slots.fill(Slot::default());
            self.generation = 0;
        }
        self.bits = len.trailing_zeros();
        self.generation += 1;
        self.used = 0;
    }

    /// Whether `columns` more columns leave the table half empty.
    pub(super) fn has_room(&self, columns: usize) -> bool {
        2 * (self.used + columns) <= 1 << self.bits
    }

    /// Columns that were added since the table was emptied.
    pub(super) fn distinct(&self) -> usize {
        self.used
    }

    /// One row more in each of `columns`. The table has been reset with room for them.
    pub(super) fn add(&mut self, columns: &[u32]) {
        for &column in columns {
            let (slot, generation) = (self.slot(column), self.generation);
            let slot = &mut self.slots[slot];
            if slot.generation == generation {
                slot.rows += 1;
            } else {
                *slot = Slot { column, generation, rows: 1 };
                self.used += 1;
            }
        }
    }

    /// One row fewer in each of `columns`, which were added.
    pub(super) fn remove(&mut self, columns: &[u32]) {
        for &column in columns {
            let slot = self.slot(column);
            self.slots[slot].rows -= 1;
        }
    }

    /// How many of `columns`, which were added, are in one row only.
    pub(super) fn held_once(&self, columns: &[u32]) -> usize {
        columns.iter().filter(|&&column| self.slots[self.slot(column)].rows == 1).count()
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
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_what_a_map_counts(
            rows in prop::collection::vec(prop::collection::btree_set(0u32..40, 0..12), 1..8),
            gone in 0usize..8,
        ) {
            let mut counts = ColumnCounts::default();
            for generation in 0..3 {
                counts.reset(rows.iter().map(std::collections::BTreeSet::len).sum());
                let mut want = BTreeMap::<u32, usize>::new();
                for row in &rows {
                    counts.add(&row.iter().copied().collect::<Vec<_>>());
                    row.iter().for_each(|&column| *want.entry(column).or_default() += 1);
                }
                prop_assert_eq!(counts.distinct(), want.len(), "generation {}", generation);
                let gone = &rows[gone % rows.len()];
                counts.remove(&gone.iter().copied().collect::<Vec<_>>());
                gone.iter().for_each(|column| *want.get_mut(column).unwrap() -= 1);
                for (&column, &rows) in &want {
                    prop_assert_eq!(counts.held_once(&[column]), usize::from(rows == 1));
                }
            }
        }
    }

    #[test]
    fn room_is_half_of_the_table() {
        let mut counts = ColumnCounts::default();
        assert!(!counts.has_room(1));
        counts.reset(8);
        assert!(counts.has_room(8) && !counts.has_room(9));
        counts.add(&[1, 2, 3]);
        assert!(counts.has_room(5) && !counts.has_room(6));
    }

    #[test]
    fn a_used_up_generation_leaves_nothing_behind() {
        let mut counts = ColumnCounts { generation: u32::MAX - 1, ..ColumnCounts::default() };
        for _ in 0..3 {
            counts.reset(4);
            assert_eq!(counts.distinct(), 0);
            counts.add(&[5, 6]);
            assert_eq!((counts.distinct(), counts.held_once(&[5, 6])), (2, 2));
        }
    }
}

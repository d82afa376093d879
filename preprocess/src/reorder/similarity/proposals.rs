//! Weights added up by key, for a few keys at a time.

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_collect, try_filled, try_with_room};

/// Marks a free slot; no key has this number.
const FREE: u32 = u32::MAX;
/// Slots at the start: enough for a short row's proposals, few enough for the nearest cache.
const FIRST_SLOTS: usize = 1 << 10;

/// A sum for each key, in a table with open addressing that stays small and is emptied again and again.
#[derive(Default)]
pub(super) struct Proposals {
    /// Keys and sums; a power of two of them, at most half in use.
    slots: Vec<(u32, u64)>,
    used: Vec<u32>,
}

impl Proposals {
    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.used.len()
    }

    /// Grows until `more` keys may be added.
    pub(super) fn make_room(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let wanted = 2 * (self.used.len() + more);
        if wanted <= self.slots.len() {
            return Ok(());
        }
        let len = wanted.next_power_of_two().max(FIRST_SLOTS);
        let kept = try_collect(self.drain(), "proposals")?;
        self.used = try_with_room(len / 2, "proposals")?;
        self.slots = try_filled(len, (FREE, 0), "proposals")?;
        kept.into_iter().for_each(|(key, sum)| self.add(key, sum));
        Ok(())
    }

    /// Adds `weight` to the sum of `key`, which is not `u32::MAX` and for which there is [room](Self::make_room).
    pub(super) fn add(&mut self, key: u32, weight: u64) {
        let mask = self.slots.len() - 1;
        // Multiplication by an odd constant scatters into the upper bits.
        let mut slot = (key.wrapping_mul(0x9E37_79B1) >> 8) as usize & mask;
        while self.slots[slot].0 != key {
            if self.slots[slot].0 == FREE {
                self.slots[slot].0 = key;
                // The table has fewer than 2³² slots as long as there are fewer than 2³¹ keys.
                self.used.push(super::super::pattern::narrow(slot));
                break;
            }
            slot = (slot + 1) & mask;
        }
        self.slots[slot].1 += weight;
    }

    /// Takes out all keys with their sums, in the order in which they came first.
    pub(super) fn drain(&mut self) -> impl ExactSizeIterator<Item = (u32, u64)> + '_ {
        let slots = &mut self.slots;
        self.used.drain(..).map(|slot| std::mem::replace(&mut slots[slot as usize], (FREE, 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_kept_as_the_table_grows() {
        let mut proposals = Proposals::default();
        assert_eq!(proposals.drain().count(), 0);
        for round in 0..3u64 {
            for key in (0..10_000).chain(0..5000) {
                proposals.make_room(1).unwrap();
                proposals.add(key * 3, round + u64::from(key));
            }
            let sums: Vec<(u32, u64)> = proposals.drain().collect();
            let want =
                (0..10_000).map(|key| (3 * key, (round + u64::from(key)) * if key < 5000 { 2 } else { 1 }));
            assert_eq!(sums, want.collect::<Vec<_>>());
        }
    }
}

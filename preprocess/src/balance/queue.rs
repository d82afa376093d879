//! Workers by what they have to do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_with_room, try_zeroed};

/// Loads that are told apart by a set each, from the current one on. Workers with greater ones wait in a heap.
const NEAR: usize = 256;

/// Workers in ascending order of their load, of equals the first, where loads only grow.
///
/// List scheduling takes the least one again and again, and gives it back with a little more: a set of workers for
/// each of the next loads finds it in constant time, where a heap of all workers compares its way down each time.
pub(super) struct LeastLoaded {
    /// The load that is being taken from.
    load: u64,
    /// Words of its set that are empty by now.
    emptied: usize,
    /// Words of a set.
    words: usize,
    /// The workers with load `l`, for `l` in `load .. load + NEAR`, as bits of set `l % NEAR`.
    near: Vec<u64>,
    /// How many each set has.
    counts: Vec<u32>,
    /// How many all sets have.
    near_count: usize,
    /// Workers with greater loads.
    far: BinaryHeap<Reverse<(u64, u32)>>,
}

impl LeastLoaded {
    /// Workers 0, 1, … with these loads.
    pub(super) fn new(loads: &[u64]) -> Result<Self, OutOfMemory> {
        let words = loads.len().div_ceil(64);
        let load = loads.iter().copied().min().unwrap_or(0);
        let is_near = |of: u64| of - load < NEAR as u64;
        // Room for every worker: none that comes later needs more.
        let mut far = try_with_room(loads.len(), "workers by load")?;
        far.extend(loads.iter().copied().zip(0..).filter(|&(of, _)| !is_near(of)).map(Reverse));
        let mut queue = Self {
            load,
            emptied: 0,
            words,
            near: try_zeroed(NEAR * words, "workers by load")?,
            counts: vec![0; NEAR],
            near_count: 0,
            far: BinaryHeap::from(far),
        };
        for (&of, worker) in loads.iter().zip(0..).filter(|&(&of, _)| is_near(of)) {
            queue.put_near(worker, of);
        }
        Ok(queue)
    }

    /// The set of a load that is near.
    fn set(load: u64) -> usize {
        usize::try_from(load % NEAR as u64).unwrap_or(0) // below NEAR
    }

    /// The least loaded worker, out of the queue; none if all are.
    pub(super) fn take(&mut self) -> Option<u32> {
        loop {
            let set = Self::set(self.load);
            let of_set = &mut self.near[set * self.words..][..self.words];
            while let Some(bits) = of_set.get_mut(self.emptied) {
                if *bits != 0 {
                    let bit = bits.trailing_zeros();
                    *bits &= *bits - 1;
                    self.counts[set] -= 1;
                    self.near_count -= 1;
                    return u32::try_from(64 * self.emptied).ok().map(|first| first + bit);
                }
                self.emptied += 1;
            }
            self.advance()?;
        }
    }

    /// Goes on to the next load that a worker has; none if there is no worker.
    fn advance(&mut self) -> Option<()> {
        self.load = match self.near_count {
            0 => self.far.peek().map(|&Reverse((load, _))| load)?,
            _ => self.load + 1,
        };
        while self.near_count > 0 && self.counts[Self::set(self.load)] == 0 {
            self.load += 1;
        }
        self.emptied = 0;
        while let Some(&Reverse((load, worker))) = self.far.peek()
            && load < self.load + NEAR as u64
        {
            self.far.pop();
            self.put_near(worker, load);
        }
        Some(())
    }

    /// Gives a worker back, with more load than it was taken with.
    pub(super) fn give_back(&mut self, worker: u32, load: u64) {
        debug_assert!(load > self.load, "a window costs something");
        if load < self.load + NEAR as u64 {
            self.put_near(worker, load);
        } else {
            self.far.push(Reverse((load, worker)));
        }
    }

    fn put_near(&mut self, worker: u32, load: u64) {
        let set = Self::set(load);
        self.near[set * self.words + worker as usize / 64] |= 1 << (worker % 64);
        self.counts[set] += 1;
        self.near_count += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn workers_come_as_from_a_heap(
            mut loads in prop::collection::vec(prop_oneof![0..5u64, 0..3000u64], 0..40),
            costs in prop::collection::vec(prop_oneof![1..3u64, 1..2000u64, 1000..100_000u64], 0..400),
        ) {
            let mut queue = LeastLoaded::new(&loads).unwrap();
            for cost in costs {
                let least = (0u32..).zip(&loads).min_by_key(|&(worker, &load)| (load, worker));
                let taken = queue.take();
                prop_assert_eq!(taken, least.map(|(worker, _)| worker));
                let Some(worker) = taken else { break };
                let load = &mut loads[worker as usize];
                *load += cost;
                queue.give_back(worker, *load);
            }
        }
    }

    #[test]
    fn every_worker_is_taken_once() {
        let mut queue = LeastLoaded::new(&[7, 3, 3, 9000]).unwrap();
        assert_eq!(std::iter::from_fn(|| queue.take()).collect::<Vec<_>>(), [1, 2, 0, 3]);
    }
}

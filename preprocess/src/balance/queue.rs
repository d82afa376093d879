//! Workers by what they have to do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_with_room, try_zeroed};

/// Loads that are told apart by a set each, from the current one on. Workers with greater ones wait in a heap.
const NEAR: usize = 256;

/// Workers in ascending order of their load, of equals the first, where loads only grow.
///
/// List scheduling gives to the least one again and again: a set of workers for each of the next loads finds it in
/// constant time, and where many pieces cost the same, whole sets of workers go on together. A heap of all workers
/// would compare its way down each time.
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
        for (word, loads) in loads.chunks(64).enumerate() {
            let mut first = 0;
            for alike in loads.chunk_by(|one, other| one == other) {
                let workers = (u64::MAX >> (64 - alike.len())) << first;
                if is_near(alike[0]) {
                    queue.put(word, workers, alike[0]);
                }
                first += alike.len();
            }
        }
        Ok(queue)
    }

    /// The set of a load that is near.
    fn set(load: u64) -> usize {
        usize::try_from(load % NEAR as u64).unwrap_or(0) // below NEAR
    }

    /// Deals `count` pieces of one cost out: each to the worker that then has least, of equals the first. Tells the
    /// worker of each.
    ///
    /// Whoever has the current load has more afterwards, so that sixty-four workers take their pieces at a time.
    pub(super) fn deal(&mut self, mut count: usize, cost: u64, mut give: impl FnMut(u32)) {
        debug_assert!(cost > 0, "a piece costs something");
        while count > 0 {
            let at = Self::set(self.load) * self.words + self.emptied;
            if self.emptied == self.words || self.near[at] == 0 {
                self.emptied = self.words.min(self.emptied + 1);
                if self.emptied == self.words && self.advance().is_none() {
                    return; // there is no worker
                }
                continue;
            }
            let taken = lowest(self.near[at], count);
            self.near[at] ^= taken;
            self.counts[Self::set(self.load)] -= taken.count_ones();
            self.near_count -= taken.count_ones() as usize;
            count -= taken.count_ones() as usize;
            self.put(self.emptied, taken, self.load + cost);
            each_worker(self.emptied, taken, &mut give);
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
            self.put(worker as usize / 64, 1 << (worker % 64), load);
        }
        Some(())
    }

    /// Puts the workers that are bits of a word of a set where those with this load are.
    fn put(&mut self, word: usize, workers: u64, load: u64) {
        if load < self.load + NEAR as u64 {
            let set = Self::set(load);
            self.near[set * self.words + word] |= workers;
            self.counts[set] += workers.count_ones();
            self.near_count += workers.count_ones() as usize;
        } else {
            each_worker(word, workers, |worker| self.far.push(Reverse((load, worker))));
        }
    }
}

/// The lowest bits that are set, so many of them at most.
fn lowest(bits: u64, count: usize) -> u64 {
    match bits.count_ones() as usize <= count {
        true => bits,
        false => bits ^ (0..count).fold(bits, |left, _| left & (left - 1)),
    }
}

/// Each worker that is a bit of a word of a set, ascending.
fn each_worker(word: usize, mut workers: u64, mut visit: impl FnMut(u32)) {
    let first = u32::try_from(64 * word).unwrap_or(u32::MAX); // workers are counted in 32 bits
    while workers != 0 {
        visit(first + workers.trailing_zeros());
        workers &= workers - 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn workers_come_as_from_a_heap(
            mut loads in prop::collection::vec(prop_oneof![0..5u64, 0..3000u64], 0..200),
            runs in prop::collection::vec(
                (prop_oneof![0..3usize, 0..300usize], prop_oneof![1..3u64, 1..2000u64, 1000..100_000u64]),
                0..30,
            ),
        ) {
            let mut queue = LeastLoaded::new(&loads).unwrap();
            for (count, cost) in runs {
                let mut given = Vec::new();
                queue.deal(count, cost, |worker| given.push(worker));
                for _ in 0..if loads.is_empty() { 0 } else { count } {
                    let least = (0u32..).zip(&loads).min_by_key(|&(worker, &load)| (load, worker));
                    let (worker, _) = least.unwrap();
                    prop_assert_eq!(given.remove(0), worker);
                    loads[worker as usize] += cost;
                }
                prop_assert!(given.is_empty());
            }
        }
    }

    #[test]
    fn every_worker_is_given_one_in_turn() {
        let mut queue = LeastLoaded::new(&[7, 3, 3, 9000]).unwrap();
        let mut given = Vec::new();
        queue.deal(4, 10_000, |worker| given.push(worker));
        assert_eq!(given, [1, 2, 0, 3]);
    }
}

//! Workers by what they have to do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Loads that are told apart by position, from the current one on. Those farther away wait in a heap.
const NEAR: u64 = 1024;

/// Workers in ascending order of their load, of equals the first, where loads only grow.
///
/// List scheduling takes the least one again and again, and gives it back with a little more: a list for each of the next
/// loads finds it in constant time, where a heap of all workers compares its way down each time.
pub(super) struct LeastLoaded {
    /// The load that is being taken from.
    load: u64,
    /// Workers with that load, last first.
    current: Vec<u32>,
    /// Workers with load `l`, for `l` in `load + 1 .. load + NEAR`, in list `l % NEAR`.
    near: Vec<Vec<u32>>,
    /// How many these are.
    near_count: usize,
    /// Workers with greater loads.
    far: BinaryHeap<Reverse<(u64, u32)>>,
}

impl LeastLoaded {
    /// Workers 0, 1, … with these loads.
    pub(super) fn new(loads: &[u64]) -> Self {
        let far = loads.iter().copied().zip(0..).map(Reverse).collect();
        let near = vec![Vec::new(); usize::try_from(NEAR).unwrap_or(usize::MAX)];
        Self { load: 0, current: Vec::new(), near, near_count: 0, far }
    }

    /// The least loaded worker, out of the queue; none if all are.
    pub(super) fn take(&mut self) -> Option<u32> {
        while self.current.is_empty() {
            self.load = match (self.near_count, self.far.peek()) {
                (0, None) => return None,
                (0, Some(&Reverse((load, _)))) => load,
                _ => self.load + 1,
            };
            let own = usize::try_from(self.load % NEAR).unwrap_or(0);
            std::mem::swap(&mut self.current, &mut self.near[own]);
            self.near_count -= self.current.len();
            while let Some(&Reverse((load, worker))) = self.far.peek()
                && load < self.load + NEAR
            {
                self.far.pop();
                if load == self.load {
                    self.current.push(worker);
                } else {
                    self.put_near(worker, load);
                }
            }
            self.current.sort_unstable_by_key(|&worker| Reverse(worker));
        }
        self.current.pop()
    }

    /// Gives a worker back, with more load than it was taken with.
    pub(super) fn give_back(&mut self, worker: u32, load: u64) {
        debug_assert!(load > self.load, "a window costs something");
        if load < self.load + NEAR {
            self.put_near(worker, load);
        } else {
            self.far.push(Reverse((load, worker)));
        }
    }

    fn put_near(&mut self, worker: u32, load: u64) {
        self.near[usize::try_from(load % NEAR).unwrap_or(0)].push(worker);
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
            let mut queue = LeastLoaded::new(&loads);
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
        let mut queue = LeastLoaded::new(&[7, 3, 3, 9000]);
        assert_eq!(std::iter::from_fn(|| queue.take()).collect::<Vec<_>>(), [1, 2, 0, 3]);
    }
}

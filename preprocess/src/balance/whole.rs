//! Whole windows dealt out to workers in groups, each of which can be worked out by itself: by a warp of a GPU, or a
//! thread.

use rayon::prelude::*;
use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_filled, try_with_room, try_zeroed};

use super::dealt::{DealtSteps, narrow};
use super::tiles::{FLUSH_STEPS, SHARE_STEPS, fair_share};

const BAND: u32 = WholeDealing::BAND;
const GROUP: u32 = WholeDealing::GROUP;
const CLASSES: u32 = WholeDealing::CLASSES;
/// So many windows are dealt out by several threads.
const PARALLEL: usize = 1 << 14;

/// How windows that all stay whole are dealt out: what a GPU must know to do the same.
///
/// 1. The windows come in an order: the *large* ones, of a class above [`small_class`](Self::small_class), by their
///    [class](Self::class), the greatest first, of a class in the order of the matrix; then the others, a
///    [band](Self::band) after the other, those of a band likewise by their class.
/// 2. Groups of up to [`GROUP`](Self::GROUP) workers, as equal as can be, take them in rounds of as many windows as there are
///    workers. A round is rows of a window for each group, from the first group to the last and in the next row back,
///    and begins with [another group](Self::turn); in the last row only the groups take part that have a worker more.
/// 3. In a group each window goes to the worker that has least, of equals the first. A window costs its steps and one
///    more for its end.
///
/// So nobody has more than the mean of the group and one window. The means differ little, for of successive windows in
/// an order by length each group has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeDealing {
    /// Number of windows, at least 1.
    pub windows: u32,
    /// Number of workers; where there are fewer windows, so many of them have one each.
    pub workers: u32,
    /// Number of groups of them.
    pub groups: u32,
    /// The greatest class of a window that is not large.
    pub small_class: u32,
}

impl WholeDealing {
    /// Successive windows at most that are sorted together.
    pub const BAND: u32 = 4096;
    /// Workers of a group at most.
    pub const GROUP: u32 = 32;
    /// Classes of windows by their length.
    pub const CLASSES: u32 = 512;

    /// The class of a window by its length: lengths below 64 have one each, longer ones share one with those that
    /// differ by a 32nd at most, and from 2²⁰ on all are in the last.
    ///
    /// # Examples
    /// ```
    /// use windrow_preprocess::balance::WholeDealing;
    ///
    /// assert_eq!([63, 64, 65, 66].map(WholeDealing::class), [63, 64, 64, 65]);
    /// assert_eq!(WholeDealing::class(u32::MAX), WholeDealing::CLASSES - 1);
    /// ```
    #[must_use]
    pub fn class(steps: u32) -> u32 {
        if steps < 64 {
            return steps;
        }
        let octave = steps.ilog2() - 6; // of 32 classes
        (64 + 32 * octave + (steps >> (octave + 1)) % 32).min(CLASSES - 1)
    }

    /// For windows that have `steps` steps in all, `longest` the longest of them, if
    /// [`deal_steps`](super::deal_steps) leaves all whole among so many workers.
    #[must_use]
    pub fn of(windows: u32, steps: u64, longest: u32, workers: u32) -> Option<Self> {
        let (workers, load) = fair_share(u64::from(windows), steps, workers)?;
        // Where no window is much longer than a load, list scheduling alone is nearly even.
        let all_whole = longest <= load.saturating_add(SHARE_STEPS);
        let groups = workers.div_ceil(GROUP);
        all_whole.then(|| Self { windows, workers, groups, small_class: Self::class(load / 8) })
    }

    /// Workers that have something to do.
    #[must_use]
    pub fn busy_workers(&self) -> u32 {
        self.workers.min(self.windows)
    }

    /// The group with which the rows of a round begin. Multiples of the golden ratio are spread evenly, whichever rounds
    /// it is in which a band of windows begins.
    #[must_use]
    pub fn turn(&self, round: u32) -> u32 {
        (u64::from(round.wrapping_mul(0x9e37_79b9)) * u64::from(self.groups) >> 32) as u32
    }

    /// Windows of a band: the bands are as few as can be, of up to [`BAND`](Self::BAND) windows, and as long as each other but for
    /// the last.
    #[must_use]
    pub fn band(&self) -> u32 {
        self.windows.div_ceil(self.windows.div_ceil(BAND))
    }

    /// Workers of a group.
    fn group_workers(&self, group: u32) -> u32 {
        self.workers / self.groups + u32::from(group < self.workers % self.groups)
    }

    /// Which window of a row is a group's.
    fn place_in_row(&self, round: u32, row: u32, group: u32) -> u32 {
        if row == self.workers / self.groups {
            return group; // not a row of all groups
        }
        let turned = group + self.groups - self.turn(round);
        let place = if turned >= self.groups { turned - self.groups } else { turned };
        if row.is_multiple_of(2) { place } else { self.groups - 1 - place }
    }

    /// How many windows a group has.
    fn group_windows(&self, group: u32) -> u32 {
        let (round, left) = (self.windows / self.workers, self.windows % self.workers);
        let (row, places) = (left / self.groups, left % self.groups);
        let in_row = self.place_in_row(round, row, group) < places;
        round * self.group_workers(group) + row + u32::from(in_row)
    }

    /// The windows in the order in which they are dealt out, with their steps.
    fn in_order(&self, window_steps: &[u32]) -> Result<Vec<[u32; 2]>, OutOfMemory> {
        let class = |steps: u32| Self::class(steps) as usize;
        let small_classes = self.small_class as usize + 1;
        let mut next = [0_u32; CLASSES as usize]; // where the next window of a class goes
        window_steps.iter().for_each(|&steps| next[class(steps)] += 1);
        let mut small_end = begins_of(&mut next[small_classes..], 0);
        let mut order = try_zeroed::<[u32; 2]>(window_steps.len(), "windows in order")?;
        let mut first = 0;
        for band in window_steps.chunks(self.band() as usize) {
            let small = &mut next[..small_classes];
            small.fill(0);
            for &steps in band {
                if let Some(count) = small.get_mut(class(steps)) {
                    *count += 1;
                }
            }
            small_end = begins_of(small, small_end);
            for (window, &steps) in (first..).zip(band) {
                let at = &mut next[class(steps)];
                order[*at as usize] = [window, steps];
                *at += 1;
            }
            first += narrow(band.len() as u64);
        }
        Ok(order)
    }

    /// Deals the windows out, which are those that it was made for.
    pub(super) fn deal(&self, window_steps: &[u32]) -> Result<DealtSteps, OutOfMemory> {
        let windows = self.in_order(window_steps)?;
        let mut order = try_zeroed::<u32>(windows.len(), "pieces of windows")?;
        let mut owned = try_filled(windows.len(), Owned::default(), "windows of groups")?;
        let mut worker_pieces = try_zeroed::<u32>(self.busy_workers() as usize + 1, "pieces of workers")?;

        let mut groups = try_with_room(self.groups as usize, "groups of workers")?;
        let (mut order_left, mut owned_left, mut ends_left) =
            (&mut order[..], &mut owned[..], &mut worker_pieces[1..]);
        let mut first = 0;
        for group in 0..self.groups {
            let (workers, count) = (self.group_workers(group), self.group_windows(group));
            let (order, owned, ends);
            (order, order_left) = order_left.split_at_mut(count as usize);
            (owned, owned_left) = owned_left.split_at_mut(count as usize);
            // Whoever has nothing is least: nobody has a second window as long as there is one.
            (ends, ends_left) = ends_left.split_at_mut(workers.min(count) as usize);
            groups.push(Group { group, first, workers, order, owned, ends });
            first += count;
        }
        let deal = |group: Group<'_>| group.deal(self, &windows);
        match windows.len() < PARALLEL {
            true => groups.into_iter().for_each(deal),
            false => groups.into_par_iter().for_each(deal),
        }
        Ok(DealtSteps { order, worker_pieces, ..DealtSteps::default() })
    }
}

/// Makes, of numbers of windows of each class, where those of each begin from `begin` on, the greatest class first.
/// Where they all end.
fn begins_of(counts: &mut [u32], begin: u32) -> u32 {
    counts.iter_mut().rev().fold(begin, |begin, count| begin + std::mem::replace(count, begin))
}

/// A window of a group, and which of its workers has it.
#[derive(Debug, Clone, Copy, Default)]
struct Owned {
    window: u32,
    steps: u32,
    worker: u32,
}

/// A group of workers, and what is written of it.
struct Group<'a> {
    group: u32,
    /// Windows of the groups before.
    first: u32,
    workers: u32,
    /// Its windows, worker after worker.
    order: &'a mut [u32],
    owned: &'a mut [Owned],
    /// Where those of each worker end.
    ends: &'a mut [u32],
}

impl Group<'_> {
    fn deal(self, dealing: &WholeDealing, windows: &[[u32; 2]]) {
        let Self { group, first, workers, order, owned, ends } = self;
        for (round, owned) in (0..).zip(owned.chunks_mut(workers as usize)) {
            let begin = round * dealing.workers;
            for (row, owned) in (0..).zip(owned) {
                let rank = begin + row * dealing.groups + dealing.place_in_row(round, row, group);
                let [window, steps] = windows[rank as usize];
                *owned = Owned { window, steps, worker: 0 };
            }
        }
        let mut counts = [0_u32; GROUP as usize];
        let mut least = LeastOfGroup::new(workers);
        for window in owned.iter_mut() {
            window.worker = least.give(window.steps + FLUSH_STEPS);
            counts[window.worker as usize] += 1;
        }
        let mut next = [0; GROUP as usize];
        let mut end = 0;
        for (worker, count) in counts.into_iter().enumerate() {
            next[worker] = end;
            end += count;
            if let Some(to) = ends.get_mut(worker) {
                *to = first + end;
            }
        }
        for owned in owned {
            let at = &mut next[owned.worker as usize];
            order[*at as usize] = owned.window;
            *at += 1;
        }
    }
}

/// The workers of a group by what they have: a tree of which each node is the lesser of two, the first that of all.
struct LeastOfGroup([u64; 2 * GROUP as usize]);

impl LeastOfGroup {
    const NUMBER_BITS: u32 = GROUP.ilog2();

    /// Workers who have nothing. The first is the least.
    fn new(workers: u32) -> Self {
        let mut nodes = [u64::MAX; 2 * GROUP as usize];
        for at in (1..(GROUP + workers) as usize).rev() {
            let worker = at.checked_sub(GROUP as usize);
            nodes[at] = worker.map_or_else(|| nodes[2 * at].min(nodes[2 * at + 1]), |worker| worker as u64);
        }
        Self(nodes)
    }

    /// Gives a window of this cost to the worker that has least, of equals the first, and says who that is.
    fn give(&mut self, cost: u32) -> u32 {
        let Self(nodes) = self;
        let mut least = nodes[1];
        let worker = (least % u64::from(GROUP)) as usize;
        least += u64::from(cost) << Self::NUMBER_BITS;
        let mut at = GROUP as usize + worker;
        nodes[at] = least;
        while at > 1 {
            least = least.min(nodes[at ^ 1]);
            at /= 2;
            nodes[at] = least;
        }
        worker as u32
    }
}

//! Whole windows dealt out to teams of workers, by rules that a block of a GPU can follow.

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_with_room, try_zeroed};

use super::dealt::{DealtSteps, narrow};
use super::queue::LeastLoaded;
use super::tiles::{FLUSH_STEPS, SHARE_STEPS, fair_share};

const BAND: u32 = WholeDealing::BAND;
const CLASSES: u32 = WholeDealing::CLASSES;

/// How windows that all stay whole are dealt out: what a GPU must know to do the same.
///
/// 1. The windows come in an order: the *large* ones, of a class above [`small_class`](Self::small_class), by their
///    [class](Self::class), the greatest first, of a class in the order of the matrix; then the others, a
///    [band](Self::band) after the other, those of a band likewise by their class.
/// 2. Of these, [`team`](Self::team) windows after the other go to one team: the one that has least, of equals the
///    first. A window costs its steps and one more for its end.
/// 3. In the team, each goes to the worker that has least, of equals the first.
///
/// Successive windows have much the same length, so that the workers of a team have one each and are done at about the
/// same time: what neighbouring windows share is asked for by one block, or by blocks that follow each other, while
/// the cache still has it. Nobody has more than the mean of all and the cost of two windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WholeDealing {
    /// Number of windows, at least 1.
    pub windows: u32,
    /// Number of workers, a multiple of [`team`](Self::team); where there are fewer windows, so many have one each.
    pub workers: u32,
    /// Workers of a team.
    pub team: u32,
    /// The greatest class of a window that is not large.
    pub small_class: u32,
}

impl WholeDealing {
    /// Windows of a [band](Self::band) at most.
    pub const BAND: u32 = 4096;
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
    /// [`deal_steps`](super::deal_steps) leaves all whole among so many workers, in teams of `team`. Workers who are no
    /// whole team are left out; where there is none, each worker is one.
    #[must_use]
    pub fn of(windows: u32, steps: u64, longest: u32, workers: u32, team: u32) -> Option<Self> {
        let (workers, load) = fair_share(u64::from(windows), steps, workers)?;
        // Where no window is much longer than a load, list scheduling alone is nearly even.
        let all_whole = longest <= load.saturating_add(SHARE_STEPS);
        let team = if workers < team { 1 } else { team };
        let workers = workers - workers % team;
        all_whole.then(|| Self { windows, workers, team, small_class: Self::class(load / 8) })
    }

    /// Workers that have something to do.
    #[must_use]
    pub fn busy_workers(&self) -> u32 {
        self.workers.min(self.windows)
    }

    /// Successive windows that are sorted together: 1024, 2048 or [`BAND`](Self::BAND), whichever is nearest to the
    /// number of workers. Of fewer, workers would be left with more than others in the end; of more, what is worked on
    /// at the same time would lie further apart.
    #[must_use]
    pub fn band(&self) -> u32 {
        let is_near = |band: &u32| u64::from(self.workers).pow(2) < 2 * u64::from(*band).pow(2);
        [BAND / 4, BAND / 2].into_iter().find(is_near).unwrap_or(BAND)
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
        let team = self.team as usize;
        let workers = self.workers as usize;
        let mut owners = try_with_room::<u32>(windows.len(), "workers of windows")?;
        let mut counts = try_zeroed::<u32>(workers, "pieces of workers")?;
        let mut loads = try_zeroed::<u64>(workers, "loads of workers")?;
        let cost = |&[_, steps]: &[u32; 2]| u64::from(steps + FLUSH_STEPS);
        let mut queue = LeastLoaded::new(&loads[..workers / team])?;
        for share in windows.chunks(team) {
            queue.deal(1, share.iter().map(cost).sum(), |least| {
                let first = least as usize * team;
                for window in share {
                    let of_team = first..first + team;
                    let worker = of_team.min_by_key(|&worker| loads[worker]).unwrap_or(first);
                    loads[worker] += cost(window);
                    counts[worker] += 1;
                    owners.push(narrow(worker as u64));
                }
            });
        }
        // Whoever has nothing is least: nobody has a second window as long as there is one.
        let busy = self.busy_workers() as usize;
        let mut worker_pieces = try_with_room::<u32>(busy + 1, "pieces of workers")?;
        worker_pieces.push(0);
        let mut end = 0;
        for count in &mut counts[..busy] {
            let begin = end;
            end += std::mem::replace(count, begin);
            worker_pieces.push(end);
        }
        let mut order = try_zeroed::<u32>(windows.len(), "pieces of windows")?;
        for ([window, _], owner) in windows.into_iter().zip(owners) {
            let next = &mut counts[owner as usize];
            order[*next as usize] = window;
            *next += 1;
        }
        Ok(DealtSteps { order, worker_pieces, ..DealtSteps::default() })
    }
}

/// Makes, of numbers of windows of each class, where those of each begin from `begin` on, the greatest class first.
/// Where they all end.
fn begins_of(counts: &mut [u32], begin: u32) -> u32 {
    counts.iter_mut().rev().fold(begin, |begin, count| begin + std::mem::replace(count, begin))
}

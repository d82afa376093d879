//! The steps of tiles dealt out to workers.

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{make_room, try_collect, try_filled, try_with_room, try_zeroed};

use super::NO_SLOT;
use super::dealt::{DealtSteps, Piece, SplitWindow, narrow};
use super::queue::LeastLoaded;
use super::sort::LongestFirst;
use super::whole::WholeDealing;

/// Workers of a team at most: a bit for each.
const MOST_TEAM: u32 = 64;
/// What the end of a window costs a worker, in steps: its rows are written.
pub(super) const FLUSH_STEPS: u32 = 1;
/// What sharing a window costs each worker of a team, in steps: two barriers.
pub(super) const SHARE_STEPS: u32 = 2;
/// No window is cut that has at most so many steps for each worker of a team: summing its pieces would take longer.
const SHORTEST_CUT: u32 = 8;
/// What adding up the pieces of windows costs, in steps: a launch.
const COMBINE_STEPS: u32 = 8;
/// A cut moves to the end of a window that is so near, in steps of each worker, and nearer than an eighth of the load.
const FREE_MOVE: u32 = 2;

/// Deals windows out to at most `workers` workers so that all have about the same number of steps, and that
/// what is worked on at the same time lies close together in the matrix.
///
/// `window_steps[w]` is the number of steps of window `w`, at least 1. A window costs its steps and one more for
/// its end; the *load* is the mean cost of a worker. Each `team` successive workers, from a multiple of it, can add
/// up what they have of a window at little cost: where a launch would have fewer, each worker is its own team.
///
/// - Windows that are longer than the load are shared, each by the workers of one team.
/// - If that leaves a team with more than its load and 8 steps for each worker, the windows of more than half a
///   team's load are laid end to end and cut at every load of a team, so that a team has pieces of at most a few of
///   them; a cut moves to the end of a window that is nearer than an eighth of the load.
/// - The others stay whole and are dealt out by list scheduling, each to the worker that has least (the first of
///   several): those longer than an eighth of the load, longest first; then the rest in the order of the matrix, in
///   bands of as many windows as there are workers, of a band the longest first. The workers advance through the
///   matrix side by side, so the rows of `B` that neighbouring windows share are read from memory once.
///
/// All windows stay whole if the fullest worker has no more to do then, a shared window counted as 2 steps more and
/// the launch that adds up pieces as 8; and where none is longer than the load and 2 steps. These are dealt out to
/// whole teams, as [`WholeDealing`] says, so that a GPU can do the same.
///
/// No worker has more than `2·load + 12`, or `load + 22` where that is more; of windows dealt out to whole teams none
/// has more than the mean of them and the cost of two windows.
///
/// # Cost
/// Linear in the windows and the workers, but for sorting the large windows where their lengths differ much more than
/// there are windows.
///
/// # Errors
/// [`OutOfMemory`].
///
/// # Panics
/// If `team` is 0 or more than 64.
///
/// # Examples
/// ```
/// use windrow_preprocess::balance::{NO_SLOT, Piece, SplitWindow, deal_steps};
///
/// // Windows of 1, 40 and 3 steps for two workers who cannot share: the second window is cut after a load.
/// let dealt = deal_steps(&[1, 40, 3], 2, 1)?;
/// assert_eq!(dealt.split_windows, [SplitWindow { window: 1, first_slot: 0, count: 2 }]);
/// assert_eq!(dealt.divided[0], Piece { window: 1, begin: 0, end: 24, slot: 0, shared: false });
/// assert_eq!(dealt.workers(), 2);
///
/// // A team of two has half of it each.
/// let dealt = deal_steps(&[1, 40, 3], 2, 2)?;
/// assert_eq!(dealt.divided[0], Piece { window: 1, begin: 0, end: 20, slot: NO_SLOT, shared: true });
/// assert!(dealt.split_windows.is_empty());
/// # Ok::<(), windrow_formats::OutOfMemory>(())
/// ```
pub fn deal_steps(window_steps: &[u32], workers: u32, team: u32) -> Result<DealtSteps, OutOfMemory> {
    assert!((1..=MOST_TEAM).contains(&team), "a team has 1 to {MOST_TEAM} workers");
    let windows = narrow(window_steps.len() as u64);
    let steps = window_steps.iter().map(|&steps| u64::from(steps)).sum();
    let longest = window_steps.iter().copied().max().unwrap_or(0);
    if let Some(whole) = WholeDealing::of(windows, steps, longest, workers, team) {
        return whole.deal(window_steps);
    }
    let Some((workers, load)) = fair_share(u64::from(windows), steps, workers) else {
        return Ok(DealtSteps::default());
    };
    let team = if workers < team { 1 } else { team };
    let mut divided = Deal::new(workers, team)?;
    divided.divide(window_steps, load)?;
    // Whoever has the longest window whole has no less to do.
    if u64::from(longest + FLUSH_STEPS) > divided.cost() {
        return divided.finish();
    }
    let mut whole = Deal::new(workers, 1)?;
    whole.schedule(window_steps, load, |_| true)?;
    if whole.cost() <= divided.cost() { whole.finish() } else { divided.finish() }
}

/// How many of so many workers there is work for, and the mean cost of one; none where there is no work.
pub(super) fn fair_share(windows: u64, steps: u64, workers: u32) -> Option<(u32, u32)> {
    let total = steps + u64::from(FLUSH_STEPS) * windows;
    let workers = u64::from(workers).clamp(1, total.max(1));
    let load = u32::try_from(total.div_ceil(workers)).unwrap_or(u32::MAX);
    (total > 0).then(|| (narrow(workers), load))
}

/// Pieces on their way to workers.
struct Deal {
    dealt: DealtSteps,
    /// Each piece of a window that is not one worker's, with its worker, in the order in which it was dealt.
    owned: Vec<(Piece, u32)>,
    /// Each window that is one worker's, with its worker, in the order in which they were dealt: after the pieces.
    whole: Vec<(u32, u32)>,
    /// Cost of each worker's pieces.
    loads: Vec<u64>,
    /// Workers of a team; the teams come first.
    team: u32,
}

impl Deal {
    fn new(workers: u32, team: u32) -> Result<Self, OutOfMemory> {
        let loads = try_zeroed(workers as usize, "loads of workers")?;
        Ok(Self { dealt: DealtSteps::default(), owned: Vec::new(), whole: Vec::new(), loads, team })
    }

    /// Room for so many pieces more, one or one for each worker of a team.
    fn make_room(&mut self, pieces: usize) -> Result<(), OutOfMemory> {
        make_room(&mut self.owned, pieces, "pieces of windows")
    }

    /// Shares and cuts the long windows, schedules the others.
    fn divide(&mut self, window_steps: &[u32], load: u32) -> Result<(), OutOfMemory> {
        let team = self.team;
        let windows = || (0u32..).zip(window_steps.iter().copied());
        let is_long = |steps: u32| steps > load.max(team);
        let mut long = try_with_room(windows().filter(|&(_, steps)| is_long(steps)).count(), "long windows")?;
        long.extend(windows().filter(|&(_, steps)| is_long(steps)));
        LongestFirst::new(long.len())?.sort(&mut long);
        let uncut = self.fullest_if_shared(&long)?;
        let cutting_pays = uncut > u64::from(team) * u64::from(load.saturating_add(COMBINE_STEPS));
        let least_cut = u64::from(team) * u64::from(SHORTEST_CUT.max(load / 2));
        let is_cut = |steps: u32| cutting_pays && u64::from(steps) > least_cut;
        self.lay_end_to_end(windows().filter(|&(_, steps)| is_cut(steps)), load)?;
        long.retain(|&(_, steps)| !is_cut(steps));
        self.share(&long)?;
        self.schedule(window_steps, load, |steps| !is_long(steps) && !is_cut(steps))
    }

    /// What the fullest worker has to do, and what dividing costs, in steps.
    fn cost(&self) -> u64 {
        let any = |cost: u32, paid: bool| if paid { u64::from(cost) } else { 0 };
        let most = self.loads.iter().copied().max().unwrap_or(0);
        let shared = self.owned.iter().any(|(piece, _)| piece.shared);
        most + any(SHARE_STEPS, shared) + any(COMBINE_STEPS, self.dealt.slots > 0)
    }

    /// Teams that are complete.
    fn teams(&self) -> usize {
        self.loads.len() / self.team as usize
    }

    /// Cuts the windows, laid end to end, at every load of a team; the first range is team 0's.
    fn lay_end_to_end(
        &mut self,
        windows: impl Iterator<Item = (u32, u32)> + Clone,
        load: u32,
    ) -> Result<(), OutOfMemory> {
        // Every cut goes on with the next team.
        let count = windows.clone().count();
        self.make_room(self.team as usize * (count + self.teams()))?;
        make_room(&mut self.dealt.split_windows, count, "windows that are cut")?;
        let mut pieces = try_with_room(self.teams(), "pieces of a window")?;
        let load = load.saturating_mul(self.team);
        // No piece is shorter than this: there is a step for each worker of the team.
        let slack = (FREE_MOVE * self.team).max(load / 8);
        // A team that ends early for the sake of a window's end leaves its room to the next, so that the
        // last one is not left with the sum of it.
        let last = self.teams() - 1;
        let (mut team, mut room, mut fresh) = (0, load, true);
        for (window, steps) in windows {
            let (first_slot, mut begin) = (self.dealt.slots, 0);
            while begin < steps {
                let left = steps - begin;
                // What is left of the window fits, or nearly: no cut. A sliver of room is not worth one.
                let end = if team == last || left <= room.saturating_add(slack) {
                    steps
                } else if room <= slack && !fresh {
                    begin
                } else if left - room <= slack {
                    steps
                } else {
                    begin + room
                };
                if end > begin {
                    let slot = first_slot + narrow(pieces.len() as u64);
                    pieces.push((Piece { begin, end, slot, ..Piece::whole(window, steps) }, team));
                }
                if end < steps || room <= end - begin {
                    team = last.min(team + 1);
                    room = load.saturating_add(room.saturating_sub(end - begin));
                    fresh = true;
                } else {
                    room -= end - begin;
                    fresh = false;
                }
                begin = end;
            }
            let count = narrow(pieces.len() as u64);
            if let [(piece, _)] = pieces.as_mut_slice() {
                piece.slot = NO_SLOT;
            } else {
                self.dealt.split_windows.push(SplitWindow { window, first_slot, count });
                self.dealt.slots += count;
            }
            for (piece, team) in pieces.drain(..) {
                self.give_team(piece, team);
            }
        }
        Ok(())
    }

    /// What the fullest team has, if these windows, the longest first, were all that there is and each were shared.
    fn fullest_if_shared(&self, windows: &[(u32, u32)]) -> Result<u64, OutOfMemory> {
        let mut loads = try_zeroed::<u64>(self.teams(), "loads of teams")?;
        let mut queue = LeastLoaded::new(&loads)?;
        for alike in of_one_length(windows) {
            let cost = self.shared_cost(alike[0].1);
            queue.deal(alike.len(), cost, |team| loads[team as usize] += cost);
        }
        Ok(loads.into_iter().max().unwrap_or(0))
    }

    /// What a window costs a team that shares it.
    fn shared_cost(&self, steps: u32) -> u64 {
        u64::from(steps) + u64::from(self.team * FLUSH_STEPS)
    }

    /// Gives each of these windows, the longest first, to the team that has least.
    fn share(&mut self, windows: &[(u32, u32)]) -> Result<(), OutOfMemory> {
        let team = self.team as usize;
        self.make_room(team * windows.len())?;
        let loads = self.loads.chunks_exact(team).map(|loads| loads.iter().sum::<u64>());
        let mut queue = LeastLoaded::new(&try_collect(loads, "loads of teams")?)?;
        for alike in of_one_length(windows) {
            let mut windows = alike.iter();
            queue.deal(alike.len(), self.shared_cost(alike[0].1), |team| {
                if let Some(&(window, steps)) = windows.next() {
                    self.give_team(Piece::whole(window, steps), team as usize);
                }
            });
        }
        Ok(())
    }

    /// Gives each of the windows to take to the worker that has least: the large ones first, then the others, a band of
    /// them after the other, and of those in a band the longest first.
    fn schedule(
        &mut self,
        window_steps: &[u32],
        load: u32,
        take: impl Fn(u32) -> bool,
    ) -> Result<(), OutOfMemory> {
        let is_large = |steps: u32| steps > load / 8;
        let windows = || (0u32..).zip(window_steps.iter().copied()).filter(|&(_, steps)| take(steps));
        let (mut count, mut large_count) = (0, 0);
        for (_, steps) in windows() {
            count += 1;
            large_count += usize::from(is_large(steps));
        }
        make_room(&mut self.whole, count, "windows")?;
        let workers = self.loads.len();
        let mut sorter = LongestFirst::new(large_count.max(workers.min(count)))?;
        let mut queue = LeastLoaded::new(&self.loads)?;

        let mut large = try_with_room(large_count, "large windows")?;
        large.extend(windows().filter(|&(_, steps)| is_large(steps)));
        self.deal(&mut queue, sorter.sort(&mut large));
        let mut band = try_with_room(workers.min(count), "a band of windows")?;
        let mut small = windows().filter(|&(_, steps)| !is_large(steps));
        loop {
            band.clear();
            band.extend(small.by_ref().take(workers));
            if band.is_empty() {
                return Ok(());
            }
            self.deal(&mut queue, sorter.sort(&mut band));
        }
    }

    /// Gives windows to the workers that have least.
    fn deal(&mut self, queue: &mut LeastLoaded, windows: &[(u32, u32)]) {
        for alike in of_one_length(windows) {
            let steps = alike[0].1;
            let cost = u64::from(steps + FLUSH_STEPS);
            let mut windows = alike.iter();
            queue.deal(alike.len(), cost, |worker| {
                self.loads[worker as usize] += cost;
                self.whole.extend(windows.next().map(|&(window, _)| (window, worker)));
            });
        }
    }

    /// Gives a piece to a team: each worker has a part, one step more where the least has been dealt out.
    fn give_team(&mut self, piece: Piece, team: usize) {
        let size = self.team as usize;
        let first = team * size;
        if size == 1 {
            return self.give(piece, first);
        }
        let (base, more) = (piece.steps() / self.team, piece.steps() % self.team);
        // Those that have least, of equals the first.
        let rank = |worker: usize| {
            let before = |other: &usize| (self.loads[*other], *other) < (self.loads[worker], worker);
            (first..first + size).filter(before).count()
        };
        let takes_more = (first..first + size).fold(0_u64, |taking, worker| {
            taking | u64::from(rank(worker) < more as usize) << (worker - first)
        });
        let mut begin = piece.begin;
        for worker in first..first + size {
            let takes_more = takes_more >> (worker - first) & 1 != 0;
            let end = begin + base + u32::from(takes_more);
            self.give(Piece { begin, end, shared: true, ..piece }, worker);
            begin = end;
        }
    }

    fn give(&mut self, piece: Piece, worker: usize) {
        self.loads[worker] += u64::from(piece.steps() + FLUSH_STEPS);
        self.owned.push((piece, narrow(worker as u64)));
    }

    /// The pieces, worker after worker, in the order in which they were dealt. A worker without any is left out: it
    /// follows all teams that share, for these are chosen from the first.
    fn finish(self) -> Result<DealtSteps, OutOfMemory> {
        let Self { mut dealt, owned, whole, loads, .. } = self;
        let mut counts = try_zeroed::<u32>(loads.len(), "pieces of workers")?;
        let workers =
            || owned.iter().map(|&(_, worker)| worker).chain(whole.iter().map(|&(_, worker)| worker));
        workers().for_each(|worker| counts[worker as usize] += 1);
        let mut next = try_with_room(counts.len(), "pieces of workers")?;
        let mut end = 0;
        dealt.worker_pieces = try_with_room(counts.len() + 1, "pieces of workers")?;
        dealt.worker_pieces.push(0);
        for count in counts {
            next.push(end as usize);
            end += count;
            if count > 0 {
                dealt.worker_pieces.push(end);
            }
        }
        dealt.order = try_filled(owned.len() + whole.len(), 0, "pieces of windows")?;
        let divided = owned.iter().zip(DealtSteps::DIVIDED..).map(|(&(_, worker), place)| (place, worker));
        for (piece, worker) in divided.chain(whole) {
            let at = &mut next[worker as usize];
            dealt.order[*at] = piece;
            *at += 1;
        }
        dealt.divided = try_collect(owned.into_iter().map(|(piece, _)| piece), "pieces of windows")?;
        Ok(dealt)
    }
}

/// Windows that follow each other and have as many steps.
fn of_one_length(windows: &[(u32, u32)]) -> impl Iterator<Item = &[(u32, u32)]> {
    windows.chunk_by(|one, other| one.1 == other.1)
}

//! The steps of tiles dealt out to workers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use windrow_formats::NO_ROW;

use super::NO_SLOT;

/// What the end of a window costs a worker, in steps: its rows are written.
const FLUSH_STEPS: u64 = 1;
/// No window is cut that is at most so many steps long: summing its pieces would take longer.
const SHORTEST_CUT: u32 = 8;
/// What adding up the pieces of windows costs, in steps: a launch.
const COMBINE_STEPS: u32 = 8;
/// A cut moves to the end of a window that is so near, in steps, and nearer than an eighth of the load.
const FREE_MOVE: u32 = 2;

/// A window, or a part of one, in the stream of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The window.
    pub window: u32,
    /// First step of the window that the piece has.
    pub begin: u32,
    /// One after its last.
    pub end: u32,
    /// Where its sum goes, [`NO_SLOT`] if it is the whole window.
    pub slot: u32,
}

/// A window that was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitWindow {
    /// The window.
    pub window: u32,
    /// Slot of its first piece.
    pub first_slot: u32,
    /// Number of its pieces.
    pub count: u32,
}

/// The steps of a matrix dealt out to workers.
///
/// Invariants:
/// - the pieces of a window cover its steps once; a window of one piece has no slot;
/// - worker `i` has the pieces `worker_pieces[i] .. worker_pieces[i + 1]`, at least one;
/// - `split_windows` lists each window of several pieces, ascending; piece `j` of it has slot `first_slot + j`
///   (`j < count`), and `Σ count = slots`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DealtSteps {
    /// The pieces in the order of the stream, worker after worker.
    pub pieces: Vec<Piece>,
    /// First piece of each worker, and the number of pieces; empty if there are none.
    pub worker_pieces: Vec<u32>,
    /// Windows of several pieces.
    pub split_windows: Vec<SplitWindow>,
    /// Number of slots, of one window each.
    pub slots: u32,
}

impl DealtSteps {
    /// A worker for each window, however long: what there is without balancing.
    pub fn one_each(window_steps: &[u32]) -> Self {
        let pieces =
            (0u32..).zip(window_steps).map(|(window, &end)| Piece { window, begin: 0, end, slot: NO_SLOT });
        let worker_pieces = (0..=narrow(window_steps.len() as u64)).collect();
        Self { pieces: pieces.collect(), worker_pieces, ..Self::default() }
    }

    /// Gives all pieces of a window one slot, for sums that are accumulated in whatever order they come.
    pub fn share_slots(&mut self) {
        let mut shared = vec![0u32; self.slots as usize];
        for (split, slot) in self.split_windows.iter_mut().zip(0u32..) {
            shared[split.first_slot as usize..][..split.count as usize].fill(slot);
            (split.first_slot, split.count) = (slot, 1);
        }
        for piece in self.pieces.iter_mut().filter(|piece| piece.slot != NO_SLOT) {
            piece.slot = shared[piece.slot as usize];
        }
        self.slots = self.split_windows.iter().map(|split| split.count).sum(); // one for each window now
    }

    /// Number of workers that have something to do.
    pub fn workers(&self) -> usize {
        self.worker_pieces.len().saturating_sub(1)
    }

    /// `[row, first, count, stride]` for each row of the split windows of `height` rows: the partial sums of
    /// `row` are rows `first, first + height, …` (`count` of them) of a workspace in which slot `s` has rows
    /// `height·s .. height·(s + 1)`.
    ///
    /// `window_rows` has the rows of each window, [`NO_ROW`] where a window has fewer.
    ///
    /// # Panics
    /// If `window_rows` has not `height` rows for a split window.
    pub fn combine_rows(&self, window_rows: &[u32], height: usize) -> Vec<[u32; 4]> {
        let stride = narrow(height as u64);
        let rows_of = |split: &SplitWindow| {
            let rows = &window_rows[split.window as usize * height..][..height];
            let first = split.first_slot * stride;
            let count = split.count;
            let listed = rows.iter().zip(0u32..).map(move |(&row, i)| [row, first + i, count, stride]);
            listed.filter(|entry| entry[0] != NO_ROW)
        };
        self.split_windows.iter().flat_map(rows_of).collect()
    }
}

/// Deals windows out to at most `workers` workers so that all have about the same number of steps, and that
/// what is worked on at the same time lies close together in the matrix.
///
/// `window_steps[w]` is the number of steps of window `w`, at least 1. A window costs its steps and one more for
/// its end; the *load* is the mean cost of a worker.
///
/// - If a window is longer than a load by more than 8 steps, those of more than half a load (and more than 8 steps) are laid end to
///   end and cut at every load, so that a worker has pieces of at most a few of them; a cut moves to the end of a
///   window that is nearer than an eighth of the load.
/// - The others stay whole and are dealt out by list scheduling: those longer than an eighth of the load,
///   longest first, then the rest in the order of the matrix, each to the worker that has least (the
///   first of several). The workers advance through the matrix side by side, so the rows of `B` that
///   neighbouring windows share are read from memory once.
///
/// No worker has more than `2·load + 2`, or `load + 10` where that is more.
///
/// # Cost
/// `windows · log(workers)`.
///
/// # Examples
/// ```
/// use windrow_preprocess::balance::{NO_SLOT, Piece, SplitWindow, deal_steps};
///
/// // Windows of 1, 40 and 3 steps for two workers: the second window is cut after a load.
/// let dealt = deal_steps(&[1, 40, 3], 2);
/// assert_eq!(dealt.split_windows, [SplitWindow { window: 1, first_slot: 0, count: 2 }]);
/// assert_eq!(dealt.pieces[0], Piece { window: 1, begin: 0, end: 24, slot: 0 });
/// assert_eq!(dealt.workers(), 2);
/// ```
pub fn deal_steps(window_steps: &[u32], workers: u32) -> DealtSteps {
    let total: u64 = window_steps.iter().map(|&steps| u64::from(steps) + FLUSH_STEPS).sum();
    if total == 0 {
        return DealtSteps::default();
    }
    let workers = u64::from(workers).clamp(1, total);
    let load = u32::try_from(total.div_ceil(workers)).unwrap_or(u32::MAX);
    let mut deal =
        Deal { dealt: DealtSteps::default(), owned: Vec::new(), loads: vec![0; narrow(workers) as usize] };

    // Where no window is much longer than a load, list scheduling alone is nearly even.
    let longest = window_steps.iter().copied().max().unwrap_or(0);
    let cuts_pay = longest > load.saturating_add(COMBINE_STEPS);
    let is_long = |steps: u32| cuts_pay && steps > SHORTEST_CUT.max(load / 2);
    let windows = || (0u32..).zip(window_steps.iter().copied());
    deal.lay_end_to_end(windows().filter(|&(_, steps)| is_long(steps)), load);

    let is_large = |steps: u32| steps > load / 8;
    let mut short: Vec<(u32, u32)> =
        windows().filter(|&(_, steps)| !is_long(steps) && is_large(steps)).collect();
    short.sort_by_key(|&(_, steps)| Reverse(steps));
    short.extend(windows().filter(|&(_, steps)| !is_long(steps) && !is_large(steps)));
    deal.schedule(&short);
    deal.finish()
}

/// Pieces on their way to workers.
struct Deal {
    dealt: DealtSteps,
    /// Each piece with its worker, in the order in which it was dealt.
    owned: Vec<(Piece, u32)>,
    /// Cost of each worker's pieces.
    loads: Vec<u64>,
}

impl Deal {
    /// Cuts the windows, laid end to end, at every `load` steps; the first range is worker 0's.
    fn lay_end_to_end(&mut self, windows: impl Iterator<Item = (u32, u32)>, load: u32) {
        let slack = FREE_MOVE.max(load / 8);
        // A worker that ends early for the sake of a window's end leaves its room to the next, so that the
        // last one is not left with the sum of it.
        let last = self.loads.len() - 1;
        let (mut worker, mut room, mut fresh) = (0, load, true);
        for (window, steps) in windows {
            let (first_slot, mut begin) = (self.dealt.slots, 0);
            let mut count = 0;
            while begin < steps {
                let left = steps - begin;
                // What is left of the window fits, or nearly: no cut. A sliver of room is not worth one.
                let end = if worker == last || left <= room.saturating_add(slack) {
                    steps
                } else if room <= slack && !fresh {
                    begin
                } else if left - room <= slack {
                    steps
                } else {
                    begin + room
                };
                if end > begin {
                    self.give(Piece { window, begin, end, slot: first_slot + count }, worker);
                    count += 1;
                }
                if end < steps || room <= end - begin {
                    worker = last.min(worker + 1);
                    room = load.saturating_add(room.saturating_sub(end - begin));
                    fresh = true;
                } else {
                    room -= end - begin;
                    fresh = false;
                }
                begin = end;
            }
            if count == 1 {
                if let Some((piece, _)) = self.owned.last_mut() {
                    piece.slot = NO_SLOT;
                }
            } else {
                self.dealt.split_windows.push(SplitWindow { window, first_slot, count });
                self.dealt.slots += count;
            }
        }
    }

    /// Gives each window to the worker that has least.
    fn schedule(&mut self, windows: &[(u32, u32)]) {
        let by_load = |(worker, &load): (usize, &u64)| Reverse((load, worker));
        let mut heap: BinaryHeap<_> = self.loads.iter().enumerate().map(by_load).collect();
        for &(window, steps) in windows {
            let Some(mut least) = heap.peek_mut() else { return }; // not reached: there is a worker
            let Reverse((load, worker)) = &mut *least;
            *load += u64::from(steps) + FLUSH_STEPS;
            self.give(Piece { window, begin: 0, end: steps, slot: NO_SLOT }, *worker);
        }
    }

    fn give(&mut self, piece: Piece, worker: usize) {
        self.loads[worker] += u64::from(piece.end - piece.begin) + FLUSH_STEPS;
        self.owned.push((piece, narrow(worker as u64)));
    }

    /// The pieces, worker after worker, in the order in which they were dealt.
    fn finish(self) -> DealtSteps {
        let Self { mut dealt, owned, loads } = self;
        let mut counts = vec![0u32; loads.len()];
        for &(_, worker) in &owned {
            counts[worker as usize] += 1;
        }
        let mut next = Vec::with_capacity(counts.len());
        let mut end = 0;
        dealt.worker_pieces.push(0);
        for count in counts {
            next.push(end as usize);
            end += count;
            if count > 0 {
                dealt.worker_pieces.push(end);
            }
        }
        dealt.pieces = vec![Piece { window: 0, begin: 0, end: 0, slot: NO_SLOT }; owned.len()];
        for (piece, worker) in owned {
            let at = &mut next[worker as usize];
            dealt.pieces[*at] = piece;
            *at += 1;
        }
        dealt
    }
}

/// A window or step number, as kernels address it.
fn narrow(x: u64) -> u32 {
    u32::try_from(x).expect("at most the number of steps or of workers, which are 32 bits")
}

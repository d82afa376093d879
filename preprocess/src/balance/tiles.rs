//! The stream of tile steps dealt out to workers.

use windrow_formats::{NO_ROW, WINDOW_ROWS};

use super::NO_SLOT;

/// Steps that a boundary may move to meet the end of a window, however short the ranges are.
const FREE_MOVE: u64 = 2;
/// The same as a part of the range: a sixteenth.
const MOVE_PART: u64 = 8;

/// The steps of a matrix dealt out to workers.
///
/// Invariants, with `[begin, end, head_slot, tail_slot] = workers[i]`:
/// - `begin < end`, each range begins where the one before it ends, and together they are all steps;
/// - a range that begins inside a window has a `head_slot`, one that ends inside a window a `tail_slot`;
///   if the range lies inside one window, the two are equal; otherwise they are `NO_SLOT`;
/// - every slot in `0..slots` belongs to one worker;
/// - `split_windows` lists each window that lies in more than one range, ascending; its slots are
///   `first_slot .. first_slot + count`, in the order of the workers; `Σ count = slots`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TileWorkers {
    /// `[step_begin, step_end, head_slot, tail_slot]`.
    pub workers: Vec<[u32; 4]>,
    /// Windows that more than one worker contributes to.
    pub split_windows: Vec<SplitWindow>,
    /// Number of slots, of one window (8 rows) each.
    pub slots: u32,
}

/// A window that more than one worker contributes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitWindow {
    /// The window.
    pub window: u32,
    /// Slot of its first worker.
    pub first_slot: u32,
    /// Number of its workers.
    pub count: u32,
}

impl TileWorkers {
    /// `[row, first, count, stride]` for each row of the split windows: the partial sums of `row` are rows
    /// `first, first + 8, …` (`count` of them) of a workspace in which slot `s` has rows `8·s .. 8·s + 8`.
    ///
    /// `window_rows` has the 8 rows of each window, [`NO_ROW`] where a window has fewer.
    ///
    /// # Panics
    /// If `window_rows` has no 8 rows for a split window.
    pub fn combine_rows(&self, window_rows: &[u32]) -> Vec<[u32; 4]> {
        const STRIDE: u32 = 8;
        const { assert!(WINDOW_ROWS == STRIDE as usize) }
        let rows_of = |split: &SplitWindow| {
            let rows = &window_rows[split.window as usize * WINDOW_ROWS..][..WINDOW_ROWS];
            let first = split.first_slot * STRIDE;
            let count = split.count;
            let listed = rows.iter().zip(0u32..).map(move |(&row, i)| [row, first + i, count, STRIDE]);
            listed.filter(|entry| entry[0] != NO_ROW)
        };
        self.split_windows.iter().flat_map(rows_of).collect()
    }
}

/// Deals the steps out to at most `workers` workers in contiguous ranges of equal length.
///
/// `window_steps` are the offsets of the windows in the stream of steps: window `w` has steps
/// `window_steps[w] .. window_steps[w + 1]`. With `range = ⌈steps / workers⌉`, a boundary inside a window
/// moves to the nearer end of it if that is at most `slack = max(2, ⌊range / 8⌋)` steps away, so that
/// fewer windows are cut; hence no range exceeds `range + 2·slack`. Workers left without steps are dropped.
///
/// # Panics
/// Never, if offsets ascend as a valid matrix's do.
///
/// # Examples
/// ```
/// use windrow_preprocess::balance::{NO_SLOT, SplitWindow, tile_workers};
///
/// // Windows of 1, 20 and 3 steps for two workers: the second window is cut.
/// let dealt = tile_workers(&[0, 1, 21, 24], 2);
/// assert_eq!(dealt.workers, [[0, 12, NO_SLOT, 0], [12, 24, 1, NO_SLOT]]);
/// assert_eq!(dealt.split_windows, [SplitWindow { window: 1, first_slot: 0, count: 2 }]);
/// ```
pub fn tile_workers(window_steps: &[u32], workers: u32) -> TileWorkers {
    let mut dealt = TileWorkers::default();
    let (Some(&first), Some(&last)) = (window_steps.first(), window_steps.last()) else {
        return dealt;
    };
    let steps = u64::from(last - first);
    let workers = u64::from(workers).clamp(1, steps.max(1));
    let slack = FREE_MOVE.max(steps.div_ceil(workers) / MOVE_PART);
    let mut begin = first;
    for worker in 1..=workers {
        // steps·worker fits: both are below 2^32. The quotient is at most `steps`.
        let even = first + narrow(steps * worker / workers);
        let end = if worker == workers { last } else { nearer_end(window_steps, even, slack) };
        if end > begin {
            dealt.add(window_steps, begin, end);
            begin = end;
        }
    }
    dealt
}

impl TileWorkers {
    /// Adds the range `begin..end`, which follows the one before it.
    fn add(&mut self, window_steps: &[u32], begin: u32, end: u32) {
        let (first, last) = (window_of(window_steps, begin), window_of(window_steps, end - 1));
        let begins_inside = begin > window_steps[first];
        let ends_inside = end < window_steps[last + 1];
        let (mut head_slot, mut tail_slot) = (NO_SLOT, NO_SLOT);
        if begins_inside {
            head_slot = self.take_slot();
            if let Some(split) = self.split_windows.last_mut() {
                split.count += 1;
            }
            if first == last {
                tail_slot = head_slot;
            }
        }
        if ends_inside && tail_slot == NO_SLOT {
            tail_slot = self.take_slot();
            self.split_windows.push(SplitWindow {
                window: narrow(last as u64),
                first_slot: tail_slot,
                count: 1,
            });
            if first == last {
                head_slot = tail_slot;
            }
        }
        self.workers.push([begin, end, head_slot, tail_slot]);
    }

    fn take_slot(&mut self) -> u32 {
        self.slots += 1;
        self.slots - 1
    }
}

/// The nearer end of the window that `step` lies in, if it is at most `slack` away; else `step`.
///
/// Ascends with `step`: of two steps in one window the later is never moved before the earlier.
fn nearer_end(window_steps: &[u32], step: u32, slack: u64) -> u32 {
    let window = window_of(window_steps, step);
    let (start, end) = (window_steps[window], window_steps[window + 1]);
    let (back, ahead) = (step - start, end - step);
    let (distance, to) = if back <= ahead { (back, start) } else { (ahead, end) };
    if u64::from(distance) <= slack { to } else { step }
}

/// The window with `step` among its steps; windows without steps are passed over. `step` is below the
/// last offset.
fn window_of(window_steps: &[u32], step: u32) -> usize {
    window_steps.partition_point(|&start| start <= step) - 1
}

/// A window or step number, as kernels address it.
fn narrow(x: u64) -> u32 {
    u32::try_from(x).expect("at most the last offset, which is 32 bits")
}

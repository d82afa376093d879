//! Windows as a stream of steps.

use windrow_formats::OutOfMemory;
use windrow_formats::memory::try_collect;
use windrow_kernels::tile_stream::TEAM;
use windrow_preprocess::balance::{DealtSteps, WholeDealing, deal_steps};

use super::{STEP_TILES, WINDOW_ROWS};
use crate::num::{index, narrow};

/// Windows as a stream of steps, cut and dealt out: all that the host must know of tiles that a GPU lays out.
#[derive(Debug)]
pub(crate) struct DealtWindows {
    windows: usize,
    tiles: usize,
    steps: usize,
    /// Nothing where the device deals them out.
    dealt: DealtSteps,
    whole: Option<WholeDealing>,
}

impl DealtWindows {
    /// Windows of `tiles` tiles in all, with these [steps](step_count).
    pub(crate) fn new(window_steps: &[u32], tiles: usize, dealing: Dealing) -> Result<Self, OutOfMemory> {
        let dealt = match dealing {
            Dealing::Evenly(workers) => deal_steps(window_steps, workers, TEAM)?,
            Dealing::WindowEach => DealtSteps::one_each(window_steps)?,
        };
        let steps = index(window_steps.iter().map(|&steps| u64::from(steps)).sum());
        Ok(Self { windows: window_steps.len(), tiles, steps, dealt, whole: None })
    }

    /// Windows of so many tiles and steps that the device deals out.
    pub(crate) fn on_device(whole: WholeDealing, tiles: usize, steps: usize) -> Self {
        let windows = whole.windows as usize;
        Self { windows, tiles, steps, dealt: DealtSteps::default(), whole: Some(whole) }
    }

    /// How the device deals the windows out, if it does.
    pub(crate) fn whole(&self) -> Option<WholeDealing> {
        self.whole
    }

    /// Warps that have something to do.
    pub(crate) fn workers(&self) -> usize {
        self.whole.map_or_else(|| self.dealt.workers(), |whole| whole.busy_workers() as usize)
    }

    /// How the windows were cut and dealt out by the host.
    pub(crate) fn dealt(&self) -> &DealtSteps {
        &self.dealt
    }

    /// All pieces of a cut window add to one slot: for sums in any order.
    pub(crate) fn share_slots(&mut self) -> Result<(), OutOfMemory> {
        self.dealt.share_slots()
    }

    pub(crate) fn windows(&self) -> usize {
        self.windows
    }

    pub(crate) fn tiles(&self) -> usize {
        self.tiles
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Words of host memory.
    pub(super) fn host_words(&self) -> usize {
        self.dealt.order.len()
            + 5 * self.dealt.divided.len()
            + self.dealt.worker_pieces.len()
            + 3 * self.dealt.split_windows.len()
    }
}

/// Steps of a window of so many tiles. One without tiles has a step without columns.
pub(crate) fn step_count(tiles: u32) -> u32 {
    tiles.div_ceil(narrow(STEP_TILES)).max(1)
}

/// The steps of windows with these first tiles.
pub(super) fn steps_each(window_tiles: &[u32]) -> Result<Vec<u32>, OutOfMemory> {
    try_collect(window_tiles.windows(2).map(|ends| step_count(ends[1] - ends[0])), "steps of windows")
}

/// How windows become work.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dealing {
    /// To so many warps, evenly: the tile stream.
    Evenly(u32),
    /// A warp for each window, as without balancing: for comparison.
    WindowEach,
}

/// Whether a window is one of the `empties` of `windows` that have rows without entries: Bresenham's line, so that
/// after `w` windows `w·empties / windows` of them are empty.
pub(crate) fn is_empty_window(window: usize, empties: usize, windows: usize) -> bool {
    (window + 1) * empties / windows > window * empties / windows
}

/// Steps that windows with these first tiles make, and windows of `empty` rows without entries.
pub(crate) fn steps_of(window_tiles: &[u32], empty: usize) -> u64 {
    let steps = |ends: &[u32]| step_count(ends[1] - ends[0]);
    window_tiles.windows(2).map(|ends| u64::from(steps(ends))).sum::<u64>()
        + empty.div_ceil(WINDOW_ROWS) as u64
}

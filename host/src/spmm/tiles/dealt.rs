//! Windows as a stream of steps.

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_collect, try_with_room};
use windrow_kernels::tile_stream::TEAM;
use windrow_preprocess::balance::{DealtSteps, deal_steps};

use super::{STEP_TILES, WINDOW_ROWS};
use crate::num::narrow;

/// Windows as a stream of steps, cut and dealt out: all that the host must know of tiles that a GPU lays out.
#[derive(Debug)]
pub(crate) struct DealtWindows {
    /// First tile of each window, and the number of tiles.
    pub(super) window_tiles: Vec<u32>,
    pub(super) dealt: DealtSteps,
    /// First step of each piece in the stream, and the number of steps.
    pub(super) piece_steps: Vec<u32>,
}

impl DealtWindows {
    /// Windows with these first tiles. One without tiles has a step without columns.
    pub(crate) fn new(window_tiles: Vec<u32>, dealing: Dealing) -> Result<Self, OutOfMemory> {
        let steps = |ends: &[u32]| (ends[1] - ends[0]).div_ceil(narrow(STEP_TILES)).max(1);
        let window_steps = try_collect(window_tiles.windows(2).map(steps), "steps of windows")?;
        let dealt = match dealing {
            Dealing::Evenly(workers) => deal_steps(&window_steps, workers, TEAM)?,
            Dealing::WindowEach => DealtSteps::one_each(&window_steps)?,
        };
        let mut piece_steps = try_with_room(dealt.pieces.len() + 1, "steps of pieces")?;
        piece_steps.push(0);
        let mut steps = 0;
        piece_steps.extend(dealt.pieces.iter().map(|piece| {
            steps += piece.steps();
            steps
        }));
        Ok(Self { window_tiles, dealt, piece_steps })
    }

    /// `[begin, end]` of each worker's steps.
    pub(crate) fn workers(&self) -> Result<Vec<[u32; 2]>, OutOfMemory> {
        let step = |piece: u32| self.piece_steps[piece as usize];
        let workers = self.dealt.worker_pieces.windows(2).map(|ends| [step(ends[0]), step(ends[1])]);
        try_collect(workers, "workers")
    }

    /// How the windows were cut and dealt out.
    pub(crate) fn dealt(&self) -> &DealtSteps {
        &self.dealt
    }

    /// First step of each piece in the stream, and the number of steps.
    pub(crate) fn piece_steps(&self) -> &[u32] {
        &self.piece_steps
    }

    /// All pieces of a cut window add to one slot: for sums in any order.
    pub(crate) fn share_slots(&mut self) -> Result<(), OutOfMemory> {
        self.dealt.share_slots()
    }

    pub(crate) fn windows(&self) -> usize {
        self.window_tiles.len() - 1
    }

    pub(crate) fn tiles(&self) -> usize {
        self.window_tiles.last().map_or(0, |&tiles| tiles as usize)
    }

    pub(crate) fn steps(&self) -> usize {
        self.piece_steps.last().map_or(0, |&steps| steps as usize)
    }

    /// Words of host memory.
    pub(super) fn host_words(&self) -> usize {
        5 * self.dealt.pieces.len()
            + self.dealt.worker_pieces.len()
            + 3 * self.dealt.split_windows.len()
            + self.piece_steps.len()
            + self.window_tiles.len()
    }
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
    let steps = |ends: &[u32]| u64::from((ends[1] - ends[0]).div_ceil(narrow(STEP_TILES)).max(1));
    window_tiles.windows(2).map(steps).sum::<u64>() + empty.div_ceil(WINDOW_ROWS) as u64
}

//! Whole windows of tiles dealt out to the warps of a [tile stream](crate::spmm::tile_stream), where the host would
//! deal them out alike: `windrow_preprocess::balance::WholeDealing` says how, and why so.
//!
//! ```text
//! window_vectors --CountWindows-->    counts of each class of lengths, totals   a block: some bands of windows
//! counts         --OrderWindows-->    list: the windows in their order          the same blocks
//! list           --ScheduleWindows--> placed: worker and place of each window   one block: a thread for each team
//! placed         --PlacePieces-->     pieces and their first steps              a thread: a window
//! ```
//!
//! The order of the windows is a stable sort by one digit, their class, of the large ones as a whole and of the others
//! band by band; counts of all blocks say where each begins. One block deals the windows out by list scheduling, as
//! many at a time as go to different teams: about one round of all teams after the other, each of a few microseconds.
//! No block waits for another, and every place follows from counts: the arrays are the host's, byte for byte.

mod order;
mod schedule;

pub use order::{CountWindows, OrderWindows};
pub use schedule::{PlacePieces, ScheduleWindows};

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

/// Windows of a band at most; others have a half or a quarter of it.
pub const BAND: u32 = 4096;
/// Teams at most: a thread for each.
pub const MOST_TEAMS: u32 = 1024;
/// Classes of windows by their length.
pub const CLASSES: u32 = 512;
/// Blocks of [`CountWindows`] and [`OrderWindows`] at most: each adds up the counts of all.
pub const MOST_BLOCKS: u32 = 128;
/// Windows of a block of [`PlacePieces`].
pub const PLACE_BLOCK: u32 = 256;
/// What a team of [`ScheduleWindows`] may have, in steps and ends of windows, stays below this.
pub const MOST_LOAD: u32 = 1 << 22;

/// Arguments of all kernels here.
///
/// # Obligations
/// - `window_vectors` has `windows + 1` ascending elements below 2³¹, `windows > 0`; a window has a step for each
///   sixteen of its columns or fewer, and one if it has none;
/// - blocks of `block_windows` windows, a multiple of [`BAND`] and not 0, cover the windows; the fewest such `blocks`
///   are the grid of [`CountWindows`] and [`OrderWindows`]; `counts` has [`CLASSES`] elements for each and `records`
///   one; for [`OrderWindows`] they are what [`CountWindows`] stored, and `band` is [`BAND`], a half or a quarter
///   of it;
/// - `0 < teams ≤` [`MOST_TEAMS`], and one block is the grid of [`ScheduleWindows`]; `list` and `placed` have an
///   element for each window, and `worker_begins` one for each of the [`TEAM`](crate::spmm::tile_stream::TEAM) workers
///   of each team; for [`ScheduleWindows`] the list is what [`OrderWindows`] stored, for [`PlacePieces`] all is what
///   [`ScheduleWindows`] did;
/// - the fewest blocks of [`PLACE_BLOCK`] windows that cover the windows are the grid of [`PlacePieces`];
/// - no team comes to have [`MOST_LOAD`] steps and ends of windows or more;
/// - `pieces` has an element for each window, `piece_steps` one more, `out_workers` one for each worker, or for each
///   window where these are fewer.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct DealParams {
    /// Columns of the windows before each, and of all.
    pub window_vectors: GlobalPtr<u32>,
    /// Windows of each block by their class, the greatest first.
    pub counts: GlobalPtr<u32>,
    /// `[steps, tiles, steps of the longest window, columns of all windows or 0]` of each block.
    pub records: GlobalPtr<[u32; 4]>,
    /// `[window, steps]` of the windows in their order.
    pub list: GlobalPtr<[u32; 2]>,
    /// `[window, worker, windows that the worker has before, steps of these]` of the same windows.
    pub placed: GlobalPtr<[u32; 4]>,
    /// `[piece, step]` with which each worker begins.
    pub worker_begins: GlobalPtr<[u32; 2]>,
    /// `[window, 0, piece word, 0]` of each piece.
    pub pieces: GlobalPtr<[u32; 4]>,
    /// First step of each piece in the stream, and the number of steps.
    pub piece_steps: GlobalPtr<u32>,
    /// `[begin, end]` of each worker's steps.
    pub out_workers: GlobalPtr<[u32; 2]>,
    /// Number of windows in all.
    pub windows: u32,
    /// Windows of a band, but for the last.
    pub band: u32,
    /// Successive windows of a block of the first two kernels.
    pub block_windows: u32,
    /// Number of blocks in the grid of the first two kernels.
    pub blocks: u32,
    /// Number of teams, blocks of the stream.
    pub teams: u32,
    /// The greatest class of a window that is not large.
    pub small_class: u32,
}

impl DealParams {
    /// Steps of a window, which there is, and its tiles.
    ///
    /// # Safety
    /// The obligations of the params.
    #[inline(always)]
    unsafe fn steps_and_tiles<S: Simt>(&self, s: &S, window: u32) -> [u32; 2] {
        // SAFETY: the caller's promise: there is an element behind that of the last window.
        let vectors = unsafe {
            let first = s.load_readonly(self.window_vectors.at(window));
            s.load_readonly(self.window_vectors.at(window + 1)) - first
        };
        let steps = vectors.div_ceil(crate::spmm::tile_stream::STEP_COLUMNS);
        [if steps == 0 { 1 } else { steps }, vectors.div_ceil(8)]
    }
}

/// The class of a window by its length; see `WholeDealing::class`.
#[inline(always)]
pub fn length_class(steps: u32) -> u32 {
    if steps < 64 {
        return steps;
    }
    let octave = 31 - steps.leading_zeros() - 6;
    let class = 64 + 32 * octave + (steps >> (octave + 1)) % 32;
    if class < CLASSES { class } else { CLASSES - 1 }
}

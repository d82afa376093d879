//! Whole windows of tiles dealt out to the warps of a [tile stream](crate::spmm::tile_stream), where the host would
//! deal them out alike: `windrow_preprocess::balance::WholeDealing` says how, and why so.
//!
//! ```text
//! window_vectors --CountWindows-->    counts of each class of lengths, totals   a block: some bands of windows
//! counts         --OrderWindows-->    list: the windows of each group           the same blocks
//! list           --ScheduleWindows--> placed: worker and place of each window   a warp: a group of workers
//! placed         --PlacePieces-->     pieces, their first steps, workers        a block: a group of workers
//! ```
//!
//! The order of the windows is a stable sort by one digit, their class, of the large ones as a whole and of the others
//! band by band; counts of all blocks say where each begins. A warp deals the windows of its group out by list
//! scheduling, as many at a time as go to different workers. No block waits for another, and every place follows from
//! counts: the arrays are the host's, byte for byte.

mod order;
mod schedule;

pub use order::{CountWindows, OrderWindows};
pub use schedule::{PlacePieces, ScheduleWindows};

use core::num::NonZeroU32;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

/// Successive windows of a band at most.
pub const BAND: u32 = 4096;
/// Workers of a group at most: a lane for each.
pub const GROUP: u32 = WARP;
/// Classes of windows by their length.
pub const CLASSES: u32 = 512;
/// Blocks of [`CountWindows`] and [`OrderWindows`] at most: each adds up the counts of all.
pub const MOST_BLOCKS: u32 = 128;
/// What a worker of [`ScheduleWindows`] may have, in steps and ends of windows, stays below this.
pub const MOST_LOAD: u32 = 1 << 26;

/// Arguments of all kernels here.
///
/// # Obligations
/// - `window_vectors` has `windows + 1` ascending elements below 2³¹, `windows > 0`; a window has a step for each sixteen
///   of its columns or fewer, and one if it has none;
/// - bands of `band ≤` [`BAND`] windows, not 0, cover the windows; `blocks` of `block_bands` bands each, not 0, cover the
///   bands, and are the grid of [`CountWindows`] and [`OrderWindows`]; `counts` has [`CLASSES`] elements for each and
///   `records` one; for [`OrderWindows`] they are what [`CountWindows`] stored;
/// - `0 < workers`, and `groups = ⌈workers / `[`GROUP`]`⌉` is the grid of [`ScheduleWindows`] and [`PlacePieces`];
///   `group_room` is the rows of a round, `⌈workers / groups⌉`, for each round, `⌊windows / workers⌋ + 1`; `list` and
///   `placed` have so many elements for each group, `group_totals` one and `worker_totals` [`GROUP`]; for
///   [`ScheduleWindows`] the list is what [`OrderWindows`] stored, for [`PlacePieces`] all is what
///   [`ScheduleWindows`] did;
/// - no worker comes to have [`MOST_LOAD`] steps and ends of windows or more;
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
    /// `[window, steps]` of the windows of each group in their order.
    pub list: GlobalPtr<[u32; 2]>,
    /// For each of these `[worker of the group + 32 · windows that it has before, steps of these]`.
    pub placed: GlobalPtr<[u32; 2]>,
    /// `[windows, steps]` of each group.
    pub group_totals: GlobalPtr<[u32; 2]>,
    /// The same of each worker, 32 for each group.
    pub worker_totals: GlobalPtr<[u32; 2]>,
    /// `[window, 0, piece word, 0]` of each piece.
    pub pieces: GlobalPtr<[u32; 4]>,
    /// First step of each piece in the stream, and the number of steps.
    pub piece_steps: GlobalPtr<u32>,
    /// `[begin, end]` of each worker's steps.
    pub out_workers: GlobalPtr<[u32; 2]>,
    /// Number of windows.
    pub windows: u32,
    /// Windows of a band.
    pub band: u32,
    /// Bands of a block.
    pub block_bands: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of workers.
    pub workers: u32,
    /// Number of groups of workers.
    pub groups: u32,
    /// Elements of the list for each group.
    pub group_room: u32,
    /// The greatest class of a window that is not large.
    pub small_class: u32,
}

impl DealParams {
    #[inline(always)]
    fn divisor(of: u32) -> NonZeroU32 {
        NonZeroU32::new(of).unwrap_or(NonZeroU32::MIN) // it is not 0
    }

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

    /// Rows of a round in which all groups take part, and groups that have a worker more than that.
    #[inline(always)]
    fn whole_rows(&self) -> (u32, u32) {
        let groups = Self::divisor(self.groups);
        (self.workers / groups, self.workers % groups)
    }

    /// Workers of a group.
    #[inline(always)]
    fn group_workers(&self, group: u32) -> u32 {
        let (rows, more) = self.whole_rows();
        rows + (group < more) as u32
    }

    /// The group with which the rows of a round begin.
    #[inline(always)]
    fn turn(&self, round: u32) -> u32 {
        (round.wrapping_mul(0x9e37_79b9) as u64 * self.groups as u64 >> 32) as u32
    }

    /// Whose the window in this place of the order is: the group, and the number of the window in it.
    #[inline(always)]
    fn owner(&self, place: u32) -> (u32, u32) {
        let (workers, groups) = (Self::divisor(self.workers), Self::divisor(self.groups));
        let (round, left) = (place / workers, place % workers);
        let (row, in_row) = (left / groups, left % groups);
        let (rows, more) = self.whole_rows();
        let group = if row == rows {
            in_row
        } else {
            let turned = self.turn(round) + if row % 2 == 0 { in_row } else { self.groups - 1 - in_row };
            if turned >= self.groups { turned - self.groups } else { turned }
        };
        (group, round * (rows + (group < more) as u32) + row)
    }

    /// How many windows a group has.
    #[inline(always)]
    fn group_windows(&self, group: u32) -> u32 {
        let (workers, groups) = (Self::divisor(self.workers), Self::divisor(self.groups));
        let (round, left) = (self.windows / workers, self.windows % workers);
        let (row, places) = (left / groups, left % groups);
        let place = if row == self.whole_rows().0 {
            group
        } else {
            let turned = group + self.groups - self.turn(round);
            let place = if turned >= self.groups { turned - self.groups } else { turned };
            if row % 2 == 0 { place } else { self.groups - 1 - place }
        };
        round * self.group_workers(group) + row + (place < places) as u32
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

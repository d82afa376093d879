//! Windows dealt out to the warps of a tile stream: on the device where all stay whole, else by the host.

use bytemuck::Zeroable;
use windrow_formats::memory::try_with_room;
use windrow_kernels::Variant;
use windrow_kernels::deal::{BAND, CLASSES, DealParams, MOST_BLOCKS, MOST_LOAD, MOST_TEAMS, PLACE_BLOCK};
use windrow_kernels::tile_stream::TEAM;
use windrow_preprocess::balance::WholeDealing;
use windrow_simt::GlobalPtr;

use super::condense::{Condensed, Stream};
use super::scratch::Scratch;
use crate::device::DeviceBuffer;
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::spmm::tiles::{Dealing, DealtWindows, TILE_COLUMNS, step_count};

const _: () = assert!(
    BAND == WholeDealing::BAND && CLASSES == WholeDealing::CLASSES,
    "host and device deal windows out alike"
);

/// Of so many windows the columns are read themselves, 32 KiB: that takes no launch before it.
const READ_WINDOWS: usize = 1 << 13;
/// So few windows the host deals out: four launches save little then. Not fitted to anything measured.
const FEW_WINDOWS: usize = 1 << 8;

/// What the host must know of windows before they are dealt out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WindowTotals {
    pub(crate) windows: usize,
    /// Distinct columns of each, summed.
    pub(crate) vectors: usize,
    pub(crate) tiles: usize,
    pub(crate) steps: u64,
    /// Steps of the longest.
    longest: u32,
}

impl WindowTotals {
    /// Of so many windows of which nothing else is known yet.
    pub(super) fn unknown(windows: usize) -> Self {
        Self { windows, ..Self::default() }
    }

    /// Of windows before each of which there are so many columns.
    pub(super) fn of(window_vectors: &[u32]) -> Self {
        let mut totals = Self {
            windows: window_vectors.len() - 1,
            vectors: window_vectors.last().map_or(0, |&all| all as usize),
            ..Self::default()
        };
        for tiles in tiles_of(window_vectors) {
            totals.tiles += tiles as usize;
            totals.steps += u64::from(step_count(tiles));
            totals.longest = totals.longest.max(step_count(tiles));
        }
        totals
    }

    /// How the device would deal the windows out: if there are more than a few and all stay whole.
    fn whole(&self, workers: u32) -> Option<WholeDealing> {
        let whole = WholeDealing::of(narrow(self.windows), self.steps, self.longest, workers, TEAM)?;
        // No team has more than all there is; nor, as the one that has least before, more than the mean of teams and
        // the windows that it is given at a time.
        let all = self.steps + wide(self.windows);
        let teams = whole.workers / whole.team;
        let most = all.min(all / u64::from(teams) + u64::from(TEAM) * (u64::from(self.longest) + 1));
        let fits = whole.team == TEAM && teams <= MOST_TEAMS && most < u64::from(MOST_LOAD);
        (fits && self.windows > FEW_WINDOWS).then_some(whole)
    }
}

/// Tiles of each window.
fn tiles_of(window_vectors: &[u32]) -> impl Iterator<Item = u32> {
    window_vectors.windows(2).map(|ends| (ends[1] - ends[0]).div_ceil(narrow(TILE_COLUMNS)))
}

/// Windows in blocks, with room for their counts.
pub(super) fn divided_windows(
    scratch: &Scratch,
    window_vectors: GlobalPtr<u32>,
    windows: usize,
) -> Result<DealParams, DeviceError> {
    let windows = narrow(windows);
    let block_windows = BAND * windows.div_ceil(BAND).div_ceil(MOST_BLOCKS);
    let blocks = windows.div_ceil(block_windows);
    Ok(DealParams {
        window_vectors,
        counts: scratch.array((CLASSES * blocks) as usize, "windows by length")?,
        records: scratch.array(blocks as usize, "sums of windows")?,
        windows,
        block_windows,
        blocks,
        ..DealParams::zeroed()
    })
}

impl Condensed {
    /// Waits for what must be known of the windows: all of them, where these are few.
    pub(in crate::spmm) fn counted(mut self) -> Result<Self, DeviceError> {
        if self.totals.windows <= READ_WINDOWS {
            return self.read();
        }
        let params = self.count_windows()?;
        // SAFETY: a record for each block, which the launch writes.
        let records = unsafe { self.scratch.read(params.records, params.blocks as usize)? };
        for [steps, tiles, longest, vectors] in records {
            self.totals.steps += u64::from(steps);
            self.totals.tiles += tiles as usize;
            self.totals.longest = self.totals.longest.max(longest);
            self.totals.vectors += vectors as usize;
        }
        self.counts = Some(params);
        Ok(self)
    }

    /// Waits for the columns of all windows.
    pub(in crate::spmm) fn read(mut self) -> Result<Self, DeviceError> {
        self.read_vectors()?;
        self.totals = WindowTotals::of(&self.vectors);
        Ok(self)
    }

    fn read_vectors(&mut self) -> Result<(), DeviceError> {
        if self.vectors.is_empty() {
            // SAFETY: an element for each window and one more, which the launches before write.
            self.vectors = unsafe { self.scratch.read(self.window_vectors, self.totals.windows + 1)? };
        }
        Ok(())
    }

    fn count_windows(&self) -> Result<DealParams, DeviceError> {
        let params = divided_windows(&self.scratch, self.window_vectors, self.totals.windows)?;
        // SAFETY: the launches before write the columns of the windows; the blocks are those of the windows.
        unsafe { self.scratch.launch(Variant::CountWindows, u64::from(params.blocks), &params)? };
        Ok(params)
    }

    /// Decides how the windows, which were [counted](Self::counted), are dealt out. On the device that is done with
    /// their steps.
    pub(crate) fn dealt(&mut self, dealing: Dealing) -> Result<DealtWindows, DeviceError> {
        let totals = self.totals;
        if let Dealing::Evenly(workers) = dealing
            && let Some(whole) = totals.whole(workers)
        {
            return Ok(DealtWindows::on_device(whole, totals.tiles, index(totals.steps)));
        }
        self.read_vectors()?;
        let mut window_steps = try_with_room(totals.windows, "steps of windows")?;
        window_steps.extend(tiles_of(&self.vectors).map(step_count));
        Ok(DealtWindows::new(&window_steps, totals.tiles, dealing)?)
    }

    /// Whole windows dealt out by the device.
    pub(super) fn deal_out(&self, whole: WholeDealing) -> Result<Stream, DeviceError> {
        let params = match self.counts {
            Some(params) => params,
            None => self.count_windows()?,
        };
        deal_whole(&self.scratch, params, whole)
    }
}

/// Deals windows that were counted out.
fn deal_whole(scratch: &Scratch, counted: DealParams, whole: WholeDealing) -> Result<Stream, DeviceError> {
    let WholeDealing { windows, workers, team, small_class, .. } = whole;
    let list = DeviceBuffer::<[u32; 2]>::alloc(scratch.device(), whole.busy_workers() as usize, "workers")?;
    let params = DealParams {
        list: scratch.array(windows as usize, "windows in order")?,
        placed: scratch.array(windows as usize, "places of windows")?,
        worker_begins: scratch.array(workers as usize, "pieces of workers")?,
        pieces: scratch.array(windows as usize, "pieces")?,
        piece_steps: scratch.array(windows as usize + 1, "piece_steps")?,
        out_workers: list.pointer(),
        band: whole.band(),
        teams: workers / team,
        small_class,
        ..counted
    };
    let place_blocks = windows.div_ceil(PLACE_BLOCK);
    // SAFETY: the windows were counted by the same blocks; arrays have the lengths that the kernels ask for, and each
    // is read by a launch behind the one that writes it; `WindowTotals::whole` says that teams are not too many, nor
    // their loads too great.
    unsafe {
        scratch.launch(Variant::OrderWindows, u64::from(params.blocks), &params)?;
        scratch.launch(Variant::ScheduleWindows, 1, &params)?;
        scratch.launch(Variant::PlacePieces, u64::from(place_blocks), &params)?;
    }
    let DealParams { pieces, piece_steps, .. } = params;
    Ok(Stream { pieces, piece_steps, piece_count: windows, workers: list })
}

#[cfg(all(test, feature = "emulator"))]
mod tests;

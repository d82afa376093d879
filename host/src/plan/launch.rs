//! The way from a kernel's params to a launch.

use bytemuck::Pod;
use windrow_kernels::Entry;

use super::geometry::grid;
use crate::device::{Prepared, Queue};
use crate::error::DeviceError;

/// Indices that kernels compute stay below 2³² with this much to spare for the last round of a loop.
pub(crate) const MAX_INDEX: u64 = u32::MAX as u64 - 1024;
/// Columns of one launch if nothing is cut: far from the limits of a grid, and a multiple of every slice.
pub(crate) const MAX_BLOCK_COLUMNS: u32 = 1 << 20;

/// Which of a queue's launches one is ordered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// With all launches but those beside.
    Main,
    /// Those before a fork and after a join.
    Beside,
}

/// The blocks of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    /// How many, along both axes.
    pub(crate) grid: [u64; 2],
    /// Threads of each block.
    pub(crate) threads: u32,
}

/// Where launches are queued.
#[derive(Clone, Copy)]
pub(crate) struct Launcher<'a> {
    pub(crate) queue: &'a dyn Queue,
    pub(crate) lane: Lane,
}

impl<'a> Launcher<'a> {
    /// The lane in which all launches of a queue are ordered.
    pub(crate) fn main(queue: &'a dyn Queue) -> Self {
        Self { queue, lane: Lane::Main }
    }

    /// Starts an entry over `units` units of work and `n` columns.
    ///
    /// # Safety
    /// As for [`Prepared::new`].
    pub(crate) unsafe fn start<P: Pod>(
        self,
        entry: &'static Entry,
        units: u64,
        n: u32,
        params: &P,
    ) -> Result<(), DeviceError> {
        let blocks = Blocks { grid: grid(entry, units, n), threads: entry.block_threads };
        // SAFETY: the caller's promise about the params; the grid is the entry's for this work.
        unsafe { self.start_grid(entry, blocks, params) }
    }

    /// Starts an entry over a grid of blocks of so many threads, no more than the entry's.
    ///
    /// # Safety
    /// As for [`Prepared::new`], with blocks of this size.
    pub(crate) unsafe fn start_grid<P: Pod>(
        self,
        entry: &'static Entry,
        Blocks { grid, threads }: Blocks,
        params: &P,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise about the params and the grid.
        let prepared = unsafe { Prepared::new(entry, grid, params) }?;
        let Some(prepared) = prepared else { return Ok(()) };
        let prepared = prepared.with_threads(threads);
        match self.lane {
            Lane::Main => self.queue.launch(&prepared),
            Lane::Beside => self.queue.launch_beside(&prepared),
        }
    }
}

/// Starts an entry over `units` units of work and `n` columns, in the order of the queue's launches.
///
/// # Safety
/// As for [`Prepared::new`].
pub(crate) unsafe fn start<P: Pod>(
    queue: &dyn Queue,
    entry: &'static Entry,
    units: u64,
    n: u32,
    params: &P,
) -> Result<(), DeviceError> {
    // SAFETY: the caller's promise about the params.
    unsafe { Launcher::main(queue).start(entry, units, n, params) }
}

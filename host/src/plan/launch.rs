//! The way from a kernel's params to a launch.

use bytemuck::Pod;
use windrow_kernels::Entry;

use super::geometry::grid;
use crate::device::{Machine, Prepared};
use crate::error::DeviceError;

/// Indices that kernels compute stay below 2³² with this much to spare for the last round of a loop.
pub(crate) const MAX_INDEX: u64 = u32::MAX as u64 - 1024;
/// Columns of one launch if nothing is cut: far from the limits of a grid, and a multiple of every slice.
pub(crate) const MAX_BLOCK_COLUMNS: u32 = 1 << 20;

/// Which of a machine's launches one is ordered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// With all launches but those beside.
    Main,
    /// Those before a fork and after a join.
    Beside,
}

/// Where launches are queued.
#[derive(Clone, Copy)]
pub(crate) struct Stream<'a> {
    pub(crate) machine: &'a dyn Machine,
    pub(crate) lane: Lane,
}

impl<'a> Stream<'a> {
    /// The one in which all launches of a machine are ordered.
    pub(crate) fn main(machine: &'a dyn Machine) -> Self {
        Self { machine, lane: Lane::Main }
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
        // SAFETY: the caller's promise about the params; the grid is the entry's for this work.
        unsafe { self.start_grid(entry, (grid(entry, units, n), entry.block_threads), params) }
    }

    /// Starts an entry over a grid of blocks of so many threads, no more than the entry's.
    ///
    /// # Safety
    /// As for [`Prepared::new`], with blocks of this size.
    pub(crate) unsafe fn start_grid<P: Pod>(
        self,
        entry: &'static Entry,
        (blocks, block_threads): ([u64; 2], u32),
        params: &P,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise about the params and the grid.
        let prepared = unsafe { Prepared::new(entry, blocks, params) }?;
        let Some(prepared) = prepared else { return Ok(()) };
        let prepared = prepared.with_threads(block_threads);
        match self.lane {
            Lane::Main => self.machine.launch(&prepared),
            Lane::Beside => self.machine.launch_beside(&prepared),
        }
    }
}

/// Starts an entry over `units` units of work and `n` columns, in the order of the machine's launches.
///
/// # Safety
/// As for [`Prepared::new`].
pub(crate) unsafe fn start<P: Pod>(
    machine: &dyn Machine,
    entry: &'static Entry,
    units: u64,
    n: u32,
    params: &P,
) -> Result<(), DeviceError> {
    // SAFETY: the caller's promise about the params.
    unsafe { Stream::main(machine).start(entry, units, n, params) }
}

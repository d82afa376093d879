//! Launches: their shape, and the blocks of a grid spread over the OS threads.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::WARP;
use crate::emulator::block::{Grid, MAX_THREADS};
use crate::emulator::global::GlobalView;
use crate::emulator::memory::Memory;
use crate::emulator::schedule::Schedule;
use crate::emulator::scheduler::{BlockStats, Worker, run_block};
use crate::emulator::thread::Thread;
use crate::emulator::violation::Violation;

/// The largest `gridDim.y` of every NVIDIA GPU.
const MAX_GRID_Y: u32 = 65_535;
/// The most dynamic shared memory of a block, reached on `sm_90`: 227 KiB.
const MAX_SHARED_BYTES: u32 = 227 << 10;
/// Stacks alive at a time, so that large blocks on large machines stay below the operating system's
/// limit on mappings (two a stack, 65 530 by default on Linux).
const MAX_STACKS: u32 = 16_384;

/// The shape of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks along x and y. Both at least 1, y at most 65 535.
    pub grid: [u32; 2],
    /// Threads per block: a multiple of 32 from 32 to 1024.
    pub block_threads: u32,
    /// Dynamic shared memory per block, at most 227 KiB.
    pub shared_bytes: u32,
    /// Which block and which thread runs next.
    pub schedule: Schedule,
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Blocks that ran to their end.
    pub blocks: u64,
    /// Calls of [`Simt`](crate::Simt) methods that touch memory or wait.
    pub calls: u64,
    /// Times that a thread got the processor.
    pub switches: u64,
    /// Collectives performed, each by one warp or one block.
    pub collectives: u64,
}

impl Launch {
    fn check(&self) -> Result<u32, Violation> {
        let Self { grid: [x, y], block_threads, shared_bytes, .. } = *self;
        let blocks = x.checked_mul(y).filter(|_| y <= MAX_GRID_Y);
        let reason = match blocks {
            None | Some(0) => {
                format!(
                    "the grid is {x} x {y} blocks: both at least 1, the second at most {MAX_GRID_Y}, fewer than 2^32 in all"
                )
            }
            _ if block_threads == 0 || block_threads > MAX_THREADS || !block_threads.is_multiple_of(WARP) => {
                format!(
                    "{block_threads} threads per block: a multiple of {WARP}, at most {MAX_THREADS}, is needed"
                )
            }
            _ if shared_bytes > MAX_SHARED_BYTES => {
                format!(
                    "{shared_bytes} bytes of shared memory per block: at most {MAX_SHARED_BYTES} are allowed"
                )
            }
            Some(blocks) => return Ok(blocks),
        };
        Err(Violation::InvalidLaunch { reason })
    }
}

/// Workers between launches. Their stacks and shared memories are worth keeping.
static IDLE: Mutex<Vec<Worker>> = Mutex::new(Vec::new());
/// Numbers the blocks of all launches, from 1.
static SERIAL: AtomicU64 = AtomicU64::new(1);

impl Memory {
    /// Runs `kernel` once for every thread of the grid, and waits for all of them.
    ///
    /// Of several blocks with a violation it reports the one that the schedule starts first; of
    /// several violations in a block, the first that happens. After a violation, memory is as the
    /// threads left it.
    ///
    /// # Errors
    /// The [`Violation`], if the launch is invalid or a thread did what it may not.
    pub fn launch<F: Fn(&Thread<'_>) + Sync>(&self, launch: &Launch, kernel: F) -> Result<Stats, Violation> {
        let blocks = launch.check()?;
        let global = GlobalView::new(self, launch.grid[0]);
        let grid = Grid { launch, global, step_limit: self.step_limit() };
        let order = launch.schedule.blocks(blocks);
        let run = Run { next: AtomicU32::new(0), failed: Mutex::new(None), end: AtomicU32::new(blocks) };
        let at_once = u32::try_from(rayon::current_num_threads()).unwrap_or(u32::MAX);
        let workers = at_once.min(blocks).min(MAX_STACKS / launch.block_threads).max(1);
        let work = |_| run.work(&grid, &order, &kernel);
        let stats = if workers == 1 {
            work(0)
        } else {
            (0..workers).into_par_iter().map(work).reduce(BlockStats::default, BlockStats::add)
        };
        match run.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, violation)) => Err(*violation),
            None => {
                let BlockStats { calls, switches, collectives } = stats;
                Ok(Stats { blocks: u64::from(blocks), calls, switches, collectives })
            }
        }
    }
}

impl BlockStats {
    fn add(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            switches: self.switches + other.switches,
            collectives: self.collectives + other.collectives,
        }
    }
}

/// The progress of one launch. Positions are places in the order of the schedule.
struct Run {
    next: AtomicU32,
    /// The failure at the lowest position.
    failed: Mutex<Option<(u32, Box<Violation>)>>,
    /// Positions from here on need not run: an earlier one has failed.
    end: AtomicU32,
}

impl Run {
    /// Runs blocks as long as there are any.
    fn work<F: Fn(&Thread<'_>) + Sync>(&self, grid: &Grid<'_>, order: &[u32], kernel: &F) -> BlockStats {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut worker = idle.unwrap_or_default();
        let mut stats = BlockStats::default();
        loop {
            let position = self.next.fetch_add(1, Ordering::Relaxed);
            if position >= self.end.load(Ordering::Relaxed) {
                break;
            }
            let Launch { shared_bytes, grid: [grid_x, _], .. } = *grid.launch;
            let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
            worker.shared.get_mut().begin_block(shared_bytes, grid_x, serial);
            match run_block(grid, order[position as usize], &mut worker, kernel) {
                Ok(block) => stats = stats.add(block),
                Err(violation) => self.fail(position, violation),
            }
        }
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
        stats
    }

    fn fail(&self, position: u32, violation: Box<Violation>) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.as_ref().is_none_or(|(earlier, _)| position < *earlier) {
            *failed = Some((position, violation));
            self.end.store(position, Ordering::Relaxed);
        }
    }
}

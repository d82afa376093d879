//! Runs the threads of one block as coroutines.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};

use crate::WARP;
use crate::emulator::block::{Block, Grid, MAX_WARPS};
use crate::emulator::schedule::Picker;
use crate::emulator::shared::SharedMemory;
use crate::emulator::spot::Operation;
use crate::emulator::thread::{Abandon, Thread};
use crate::emulator::violation::{Checked, Group, Stuck, Violation, Waiting};
use crate::warpgroup::WARPGROUP;

/// Stack of one emulated thread, in bytes.
const STACK_BYTES: usize = 64 << 10;
const ALL_LANES: u32 = u32::MAX;
const WARPS_OF_GROUP: u32 = WARPGROUP / WARP;

/// How a coroutine ended.
type Exit = Result<(), Box<dyn Any + Send>>;
type Fiber = Coroutine<(), (), Exit, DefaultStack>;

/// What one OS thread keeps from block to block.
#[derive(Default)]
pub(super) struct Worker {
    pub(super) stacks: Vec<DefaultStack>,
    pub(super) shared: RefCell<SharedMemory>,
}

/// What a block did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockStats {
    pub(super) calls: u64,
    pub(super) switches: u64,
    pub(super) collectives: u64,
}

/// One bit a lane.
#[derive(Clone, Copy, Default)]
struct Warp {
    ready: u32,
    at_warp: u32,
    at_group: u32,
    at_block: u32,
}

impl Warp {
    const READY: Self = Self { ready: ALL_LANES, at_warp: 0, at_group: 0, at_block: 0 };

    /// The lanes that wait.
    fn waiting(self) -> u32 {
        self.at_warp | self.at_group | self.at_block
    }
}

/// The threads of a block while they run. Its fibers borrow the block and the kernel: it must be
/// dropped before them, and is, as a local of [`run_block`].
struct Fibers<'w> {
    /// Fibers that have begun and not ended.
    running: Vec<Option<Fiber>>,
    stacks: &'w mut Vec<DefaultStack>,
}

impl Drop for Fibers<'_> {
    fn drop(&mut self) {
        for mut fiber in self.running.drain(..).flatten() {
            // Runs the destructors of a kernel that was given up in the middle.
            fiber.force_unwind();
            self.stacks.push(fiber.into_stack());
        }
    }
}

/// Runs block `number` to its end, or to its first violation.
pub(super) fn run_block<F: Fn(&Thread<'_>) + Sync>(
    grid: &Grid<'_>,
    number: u32,
    worker: &mut Worker,
    kernel: &F,
) -> Checked<BlockStats> {
    let threads = grid.launch.block_threads;
    let block = Block::new(grid, number, &worker.shared);
    let running = (0..threads).map(|_| None).collect();
    let mut fibers = Fibers { running, stacks: &mut worker.stacks };
    let mut picker = grid.launch.schedule.picker(number);
    let mut stats = BlockStats::default();
    let mut warps = [Warp::default(); MAX_WARPS];
    let mut ready_warps = 0;
    for warp in 0..threads / WARP {
        warps[warp as usize].ready = ALL_LANES;
        ready_warps |= 1 << warp;
    }
    let (mut at_block, mut exited) = (0, 0);
    while ready_warps != 0 {
        let (warp, lane) = pick(&mut picker, ready_warps, &warps);
        let thread = warp * WARP + lane;
        let fiber = match &mut fibers.running[thread as usize] {
            Some(fiber) => fiber,
            slot @ None => {
                let stack = match fibers.stacks.pop() {
                    Some(stack) => stack,
                    None => new_stack()?,
                };
                slot.insert(start(&block, thread, stack, kernel))
            }
        };
        stats.switches += 1;
        let exit = match fiber.resume(()) {
            CoroutineResult::Yield(()) => None,
            CoroutineResult::Return(exit) => Some(exit),
        };
        let state = &mut warps[warp as usize];
        state.ready &= !(1 << lane);
        if let Some(exit) = exit {
            let fiber = fibers.running[thread as usize].take();
            fibers.stacks.extend(fiber.map(Fiber::into_stack));
            finish(&block, thread, exit)?;
            exited += 1;
        } else if block.request(thread).operation == Operation::SyncBlock {
            state.at_block |= 1 << lane;
            at_block += 1;
            if at_block == threads && block.perform_block() {
                at_block = 0;
                stats.collectives += 1;
                for warp in 0..threads / WARP {
                    warps[warp as usize] = Warp::READY;
                    ready_warps |= 1 << warp;
                }
                continue;
            }
        } else if block.request(thread).operation.waits_for_warpgroup() {
            state.at_group |= 1 << lane;
            let group = thread / WARPGROUP;
            let first = (group * WARPS_OF_GROUP) as usize;
            let of_group = first..first + WARPS_OF_GROUP as usize;
            let all = warps[of_group.clone()].iter().all(|warp| warp.at_group == ALL_LANES);
            if all && block.perform_warpgroup(group)? {
                stats.collectives += 1;
                warps[of_group].fill(Warp::READY);
                ready_warps |= ((1 << WARPS_OF_GROUP) - 1) << first;
                continue;
            }
        } else {
            state.at_warp |= 1 << lane;
            if state.at_warp == ALL_LANES && block.perform_warp(warp)? {
                stats.collectives += 1;
                *state = Warp::READY;
            }
        }
        if warps[warp as usize].ready == 0 {
            ready_warps &= !(1 << warp);
        }
    }
    if exited == threads {
        if let Some(counter) = block.counters().incomplete() {
            return Err(Box::new(Violation::RoundNeverComplete {
                block: block.position(),
                counter: counter.offset,
                committed: counter.committed,
                threads: counter.threads,
            }));
        }
        stats.calls = block.calls();
        return Ok(stats);
    }
    Err(stuck(&block, &warps))
}

fn pick(picker: &mut Picker, ready_warps: u32, warps: &[Warp; MAX_WARPS]) -> (u32, u32) {
    let warp = picker.pick(ready_warps);
    (warp, picker.pick(warps[warp as usize].ready))
}

fn new_stack() -> Checked<DefaultStack> {
    DefaultStack::new(STACK_BYTES).map_err(|error| Box::new(Violation::NoStack { reason: error.to_string() }))
}

fn start<F: Fn(&Thread<'_>) + Sync>(
    block: &Block<'_>,
    thread: u32,
    stack: DefaultStack,
    kernel: &F,
) -> Fiber {
    let index = u16::try_from(thread).unwrap_or(u16::MAX);
    // SAFETY: the closure borrows `block` and `kernel`. Both outlive the fiber: `run_block` keeps it in
    // a `Fibers`, which is declared after both and is dropped, with every fiber in it unwound, first.
    unsafe {
        Coroutine::with_stack_unchecked(stack, move |yielder, ()| {
            panic::catch_unwind(AssertUnwindSafe(|| {
                let thread = Thread::new(block, yielder, index);
                kernel(&thread);
                thread.exit();
            }))
        })
    }
}

/// Turns the end of a thread into the violation it ended with, if it did.
fn finish(block: &Block<'_>, thread: u32, exit: Exit) -> Checked<()> {
    if let Some(violation) = block.violation() {
        return Err(violation);
    }
    let Err(payload) = exit else { return Ok(()) };
    debug_assert!(!payload.is::<Abandon>(), "a thread leaves a violation before it abandons the kernel");
    let message = match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => payload
            .downcast_ref::<&str>()
            .map_or_else(|| "a payload that is not text".to_owned(), |message| (*message).to_owned()),
    };
    Err(Box::new(Violation::Panicked { block: block.position(), thread, message }))
}

/// Why no thread can go on: the first warp that waits for lanes which cannot come, else the block.
fn stuck(block: &Block<'_>, warps: &[Warp; MAX_WARPS]) -> Box<Violation> {
    let threads = block.threads();
    let waits = |thread: &u32| warps[(thread / WARP) as usize].waiting() >> (thread % WARP) & 1 == 1;
    let first =
        |waits: fn(&Warp) -> bool| (0..).zip(warps).find(|(_, warp)| waits(warp)).map(|(warp, _)| warp);
    let warp = first(|warp| warp.at_warp != 0);
    let warpgroup = first(|warp| warp.at_group != 0).map(|warp| warp / WARPS_OF_GROUP);
    let (group, members) = match (warp, warpgroup) {
        (Some(warp), _) => (Group::Warp(warp), warp * WARP..(warp + 1) * WARP),
        (None, Some(group)) => {
            (Group::Warpgroup(group), group * WARPGROUP..((group + 1) * WARPGROUP).min(threads))
        }
        (None, None) => (Group::Block, 0..threads),
    };
    let threads = members.end - members.start;
    let mut waiting: Vec<Waiting> = Vec::new();
    let mut exited = threads;
    for request in members.filter(waits).map(|thread| block.request(thread)) {
        exited -= 1;
        let same = |w: &&mut Waiting| w.operation == request.operation && w.location == request.location;
        match waiting.iter_mut().find(same) {
            Some(waiting) => waiting.threads += 1,
            None => {
                waiting.push(Waiting { operation: request.operation, location: request.location, threads: 1 })
            }
        }
    }
    let divergent = waiting.len() > 1;
    let stuck = Box::new(Stuck { block: block.position(), group, threads, waiting, exited });
    Box::new(if divergent {
        Violation::DivergentCollective(stuck)
    } else {
        Violation::IncompleteCollective(stuck)
    })
}

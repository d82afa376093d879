//! Orders of work on the emulator, and what may be seen of work that nothing orders.
//!
//! As long as a machine has its own queue only, work is done when it is asked for. Where there are others, the work of
//! some waits until something asks for it: under half of the schedules that of the own queue, under the rest that of
//! all others. What waits for a fence has all done that the fence stands behind; nothing else hurries it. So work that
//! relies on an order for which nobody waits finds unwritten or old numbers under some schedule.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

use windrow_simt::GlobalPtr;
use windrow_simt::emulator::{Launch, Memory, Schedule, Violation};

use super::{host_access, unordered};
#[cfg(test)]
use crate::device::dense_library::DenseProduct;
use crate::device::event::Event;
use crate::device::fence::Fence;
use crate::device::machine::Prepared;
use crate::device::queue::{self, CopyWay, Queue, RowCopy};
use crate::error::DeviceError;
use crate::num::{index, wide};

/// What the queues of one machine share.
pub(super) struct Core {
    pub(super) memory: Memory,
    pub(super) schedule: Schedule,
    /// Queues beside the own one.
    others: AtomicUsize,
}

impl Core {
    pub(super) fn new(schedule: Schedule) -> Self {
        Self { memory: Memory::new(), schedule, others: AtomicUsize::new(0) }
    }
}

pub(super) struct EmulatorQueue {
    core: Arc<Core>,
    key: u64,
    is_own: bool,
    asked: Mutex<Asked>,
    /// Held while work that was put off is done: who waits for it goes on after it.
    turn: Mutex<()>,
    /// Of each thread that has forked and not joined yet.
    forks: Mutex<HashMap<ThreadId, Fork>>,
    fence: Fence,
}

/// What a queue was asked for.
#[derive(Default)]
struct Asked {
    /// How often, graphs left out.
    count: u64,
    /// Whether there was anything since somebody waited for all of it.
    since_waited: bool,
    /// What waits, with its number and who asked for it.
    waiting: VecDeque<(u64, ThreadId, Work)>,
    /// What is recorded instead of done.
    graph: Option<Vec<Work>>,
}

#[derive(Clone)]
enum Work {
    Zero {
        address: u64,
        bytes: u64,
    },
    Launch(Prepared),
    Fork,
    Beside(Prepared),
    Join,
    Rows(CopyWay, RowCopy),
    #[cfg(feature = "dist")]
    Copy(queue::Copies),
    #[cfg(test)]
    Dense(DenseProduct),
}

/// Two streams. Where nothing orders them, one of them waits for the join, which one the schedule decides: a launch
/// that relies on another order finds unwritten or old numbers under some schedule.
#[derive(Default)]
struct Fork {
    /// Forks without their joins.
    depth: u32,
    /// What was asked for of the stream that waits.
    waiting: Vec<Prepared>,
}

/// How much a queue was asked for when its mark was set.
pub(crate) struct EmulatorFence {
    queue: Weak<EmulatorQueue>,
    at: AtomicU64,
}

impl EmulatorFence {
    /// Has all done that it stands behind.
    fn reach(&self) -> Result<(), DeviceError> {
        match self.queue.upgrade() {
            Some(queue) => queue.flush(self.at.load(Ordering::SeqCst)),
            None => Ok(()), // a queue has its work done before it is gone
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EmulatorQueue {
    pub(super) fn new(core: &Arc<Core>, is_own: bool) -> Arc<Self> {
        if !is_own {
            core.others.fetch_add(1, Ordering::SeqCst);
        }
        Arc::new_cyclic(|this| Self {
            core: Arc::clone(core),
            key: queue::next_key(),
            is_own,
            asked: Mutex::default(),
            turn: Mutex::default(),
            forks: Mutex::default(),
            fence: Fence::Emulator(EmulatorFence { queue: Weak::clone(this), at: AtomicU64::new(0) }),
        })
    }

    fn ask(&self, work: Work) -> Result<(), DeviceError> {
        let thread = thread::current().id();
        {
            let mut asked = locked(&self.asked);
            if let Some(graph) = &mut asked.graph {
                graph.push(work);
                return Ok(());
            }
            (asked.count, asked.since_waited) = (asked.count + 1, true);
            if self.core.others.load(Ordering::SeqCst) > 0 && self.is_own == self.main_waits() {
                let number = asked.count;
                asked.waiting.push_back((number, thread, work));
                return Ok(());
            }
        }
        self.flush_all()?;
        self.perform(thread, work)
    }

    /// Does all work that waits.
    pub(super) fn flush_all(&self) -> Result<(), DeviceError> {
        self.flush(u64::MAX)
    }

    /// Does the work that waits up to a number, all of it even if some fails.
    fn flush(&self, last: u64) -> Result<(), DeviceError> {
        if self.core.others.load(Ordering::SeqCst) == 0 && locked(&self.asked).waiting.is_empty() {
            return Ok(());
        }
        let _turn = locked(&self.turn);
        let mut outcome = Ok(());
        loop {
            let next = {
                let mut asked = locked(&self.asked);
                match asked.waiting.front() {
                    Some((number, ..)) if *number <= last => asked.waiting.pop_front(),
                    _ => None,
                }
            };
            let Some((_, thread, work)) = next else { return outcome };
            outcome = outcome.and(self.perform(thread, work));
        }
    }

    /// Does the work that its [fence](EmulatorFence) stands behind.
    pub(super) fn flush_marked(&self) -> Result<(), DeviceError> {
        match &self.fence {
            Fence::Emulator(fence) => fence.reach(),
            #[cfg(feature = "cuda")]
            Fence::Cuda(_) => Ok(()),
        }
    }

    /// Does what was asked for by a thread now.
    fn perform(&self, thread: ThreadId, work: Work) -> Result<(), DeviceError> {
        match work {
            Work::Zero { address, bytes } => {
                self.catch_up(thread)?;
                let zeroed = self.core.memory.zero(GlobalPtr::<u8>::from_address(address), index(bytes));
                zeroed.map_err(|error| host_access(&error))
            }
            Work::Rows(way, rows) => {
                self.catch_up(thread)?;
                copy_rows(&self.core.memory, way, rows)
            }
            #[cfg(feature = "dist")]
            Work::Copy(copies) => {
                self.catch_up(thread)?;
                copies(&self.core.memory)
            }
            #[cfg(test)]
            Work::Dense(product) => {
                self.catch_up(thread)?;
                super::dense_library::multiply(&self.core.memory, &product)
                    .map_err(|error| host_access(&error))
            }
            Work::Launch(prepared) => match self.main_waits() && self.put_off(thread, &prepared) {
                true => Ok(()),
                false => self.run(&prepared),
            },
            Work::Fork => {
                self.catch_up(thread)?;
                self.forked(|forks| forks.entry(thread).or_default().depth += 1);
                Ok(())
            }
            Work::Beside(prepared) => {
                if !self.forked(|forks| forks.contains_key(&thread)) {
                    return Err(unordered(prepared.entry().name, "launched beside without a fork before it"));
                }
                match !self.main_waits() && self.put_off(thread, &prepared) {
                    true => Ok(()),
                    false => self.run(&prepared),
                }
            }
            Work::Join => {
                let finished = self.finish(thread);
                self.forked(|forks| {
                    let fork = forks
                        .get_mut(&thread)
                        .ok_or_else(|| unordered("a join", "without a fork before it"))?;
                    fork.depth -= 1;
                    if fork.depth == 0 {
                        forks.remove(&thread);
                    }
                    Ok::<(), DeviceError>(())
                })?;
                finished
            }
        }
    }

    /// Works on what threads have forked.
    fn forked<R>(&self, work: impl FnOnce(&mut HashMap<ThreadId, Fork>) -> R) -> R {
        work(&mut locked(&self.forks))
    }

    /// Whether the main stream waits for the join; else what is beside it does.
    fn main_waits(&self) -> bool {
        self.core.schedule.runs_beside_first()
    }

    /// Puts a launch off if the thread has forked; returns whether it has.
    fn put_off(&self, thread: ThreadId, prepared: &Prepared) -> bool {
        self.forked(|forks| match forks.get_mut(&thread) {
            Some(fork) => {
                fork.waiting.push(prepared.clone());
                true
            }
            None => false,
        })
    }

    /// Does the work that the thread has put off between its fork and its join.
    fn finish(&self, thread: ThreadId) -> Result<(), DeviceError> {
        let take = |fork: &mut Fork| std::mem::take(&mut fork.waiting);
        // Not under the lock: whoever runs a kernel may meanwhile be given another thread's work.
        let waiting = self.forked(|forks| forks.get_mut(&thread).map(take).unwrap_or_default());
        waiting.iter().try_for_each(|prepared| self.run(prepared))
    }

    /// [`finish`](Self::finish) of this thread.
    pub(super) fn finish_here(&self) -> Result<(), DeviceError> {
        self.finish(thread::current().id())
    }

    /// Does what waits in the main stream of the thread: what is asked for next comes after it.
    fn catch_up(&self, thread: ThreadId) -> Result<(), DeviceError> {
        if self.main_waits() { self.finish(thread) } else { Ok(()) }
    }

    /// Does all that comes before a copy, or whatever else this thread asks for and waits for.
    pub(super) fn settle(&self) -> Result<(), DeviceError> {
        if locked(&self.asked).graph.is_some() {
            return Err(unordered("a wait", "for a stream that is captured"));
        }
        locked(&self.asked).since_waited = false;
        self.flush_all()?;
        self.catch_up(thread::current().id())
    }

    /// Runs a kernel now.
    fn run(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        let entry = prepared.entry();
        if windrow_kernels::emulated(entry.name).is_none() {
            return Err(DeviceError::MissingEntry { name: entry.name });
        }
        let launch = Launch {
            grid: prepared.grid(),
            block_threads: prepared.block_threads(),
            shared_bytes: entry.shared_bytes,
            schedule: self.core.schedule,
        };
        let params = prepared.params();
        let outcome = self.core.memory.launch(&launch, |thread| {
            if let Some(body) = windrow_kernels::emulated(entry.name) {
                // SAFETY: `Prepared::new` was promised that these params keep the entry's obligations; what
                // breaks them is reported by the emulator, not undefined.
                unsafe { body(thread, params) }
            }
        });
        let violation =
            |error: Violation| DeviceError::Emulator { kernel: entry.name, report: error.to_string() };
        outcome.map(|_| ()).map_err(violation)
    }

    /// A mark or a wait for one, unless it would tie a graph to work outside of it.
    fn outside_of_graphs(&self) -> Result<(), DeviceError> {
        match locked(&self.asked).graph {
            Some(_) => Err(unordered("a mark", "ties a captured stream to work outside of its graph")),
            None => Ok(()),
        }
    }
}

impl Queue for EmulatorQueue {
    #[cfg(test)]
    fn multiply_densely(&self, product: &DenseProduct) -> Result<(), DeviceError> {
        self.ask(Work::Dense(*product))
    }

    #[cfg(feature = "dist")]
    fn copy_by(&self, copies: queue::Copies) -> Result<(), DeviceError> {
        self.ask(Work::Copy(copies))
    }

    unsafe fn zero(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.ask(Work::Zero { address, bytes })
    }

    unsafe fn copy_rows(&self, way: CopyWay, rows: RowCopy) -> Result<(), DeviceError> {
        self.ask(Work::Rows(way, rows))
    }

    fn launch(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        self.ask(Work::Launch(prepared.clone()))
    }

    fn fork(&self) -> Result<(), DeviceError> {
        self.ask(Work::Fork)
    }

    fn launch_beside(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        self.ask(Work::Beside(prepared.clone()))
    }

    fn join(&self) -> Result<(), DeviceError> {
        self.ask(Work::Join)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.settle()?;
        if self.is_own {
            return Ok(());
        }
        // Whoever waits on the host after a failure between a fork and its join has waited for both streams.
        let thread = thread::current().id();
        let finished = self.finish(thread);
        self.forked(|forks| forks.remove(&thread));
        finished
    }

    fn is_idle(&self) -> Result<bool, DeviceError> {
        Ok(!locked(&self.asked).since_waited)
    }

    fn record(&self) -> Result<Event, DeviceError> {
        Ok(Event::now())
    }

    fn key(&self) -> u64 {
        self.key
    }

    fn raw(&self) -> Option<usize> {
        None
    }

    fn mark(&self) -> Result<(), DeviceError> {
        self.outside_of_graphs()?;
        match &self.fence {
            Fence::Emulator(fence) => fence.at.store(locked(&self.asked).count, Ordering::SeqCst),
            #[cfg(feature = "cuda")]
            Fence::Cuda(_) => {}
        }
        Ok(())
    }

    fn fence(&self) -> &Fence {
        &self.fence
    }

    fn wait_for(&self, fence: &Fence) -> Result<(), DeviceError> {
        self.outside_of_graphs()?;
        locked(&self.asked).since_waited = true;
        match fence {
            Fence::Emulator(fence) => fence.reach(),
            #[cfg(feature = "cuda")]
            Fence::Cuda(_) => Ok(()),
        }
    }

    fn is_captured(&self) -> Result<bool, DeviceError> {
        Ok(locked(&self.asked).graph.is_some())
    }

    #[cfg(test)]
    fn begin_capture(&self) {
        locked(&self.asked).graph = Some(Vec::new());
    }

    #[cfg(test)]
    fn end_capture(&self) -> Box<dyn Fn() -> Result<(), DeviceError> + '_> {
        let graph = locked(&self.asked).graph.take().unwrap_or_default();
        Box::new(move || graph.iter().try_for_each(|work| self.ask(work.clone())))
    }
}

/// Copies rows now, whose host memory whoever asked for it has promised to be there.
fn copy_rows(memory: &Memory, way: CopyWay, rows: RowCopy) -> Result<(), DeviceError> {
    let RowCopy { host, host_pitch, device, device_pitch, rows, row_bytes } = rows.joined();
    for row in 0..rows {
        let at = GlobalPtr::<u8>::from_address(device + wide(row * device_pitch));
        // SAFETY: the promise to `Queue::copy_rows`: the row lies in one allocation, which nobody else uses so that it
        // would matter before the copy is done.
        let outcome = unsafe {
            let host = host.0.add(row * host_pitch);
            match way {
                CopyWay::ToDevice => memory.write(at, std::slice::from_raw_parts(host, row_bytes)),
                CopyWay::ToHost => memory.read_to(at, std::slice::from_raw_parts_mut(host, row_bytes)),
            }
        };
        outcome.map_err(|error| host_access(&error))?;
    }
    Ok(())
}

impl Drop for EmulatorQueue {
    fn drop(&mut self) {
        // Errors have nobody to go to.
        let _ = self.flush_all();
        if !self.is_own {
            self.core.others.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

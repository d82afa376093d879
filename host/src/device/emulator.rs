//! The GPU emulator as a device: the same kernels, the same launches, on the CPU with every access checked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use windrow_formats::OutOfMemory;
use windrow_kernels::Entry;
use windrow_simt::GlobalPtr;
use windrow_simt::emulator::{Launch, Memory, MemoryError, Schedule, Thread, Violation};

use super::DeviceKind;
use super::event::Event;
use super::machine::{Description, Machine, Prepared};
use crate::error::DeviceError;
use crate::num::index;

/// Few, so that small matrices already give every worker little and windows are cut.
const MULTIPROCESSORS: u32 = 2;
const RESIDENT_BLOCKS: u32 = 2;
/// Memory that the emulated GPU has, unless a test asks for another.
const MEMORY_TOTAL: u64 = 1 << 30;

struct EmulatorMachine {
    memory_total: u64,
    memory: Memory,
    schedule: Schedule,
    /// Bytes of each live allocation.
    allocated: Mutex<HashMap<u64, u64>>,
    /// Of each thread that has forked and not joined yet.
    forks: Mutex<HashMap<ThreadId, Fork>>,
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

pub(super) fn open(schedule: Schedule) -> (Description, Box<dyn Machine>) {
    open_with(schedule, MEMORY_TOTAL)
}

/// With so many bytes of memory; arrays of more than 1 GiB take only what is touched of them.
pub(super) fn open_with(schedule: Schedule, memory_total: u64) -> (Description, Box<dyn Machine>) {
    let description = Description {
        kind: DeviceKind::Emulator,
        name: format!("GPU emulator, {schedule:?}"),
        selector: "emulator".to_owned(),
        compute_capability: Some((8, 0)),
        multiprocessors: MULTIPROCESSORS,
        clock_hz: None,
        memory_rate: None,
        l2_bytes: None,
        memory_total: Some(memory_total),
        driver_version: None,
    };
    let machine = EmulatorMachine {
        memory_total,
        memory: Memory::new(),
        schedule,
        allocated: Mutex::default(),
        forks: Mutex::default(),
    };
    (description, Box::new(machine))
}

fn host_access(error: &MemoryError) -> DeviceError {
    DeviceError::Emulator { kernel: "a copy", report: error.to_string() }
}

fn unordered(kernel: &'static str, report: &str) -> DeviceError {
    DeviceError::Emulator { kernel, report: report.to_owned() }
}

impl EmulatorMachine {
    /// Works on what this thread has forked, if it has.
    fn forked<R>(&self, work: impl FnOnce(&mut HashMap<ThreadId, Fork>, ThreadId) -> R) -> R {
        work(&mut self.forks.lock().unwrap_or_else(PoisonError::into_inner), thread::current().id())
    }

    /// Whether the main stream waits for the join; else what is beside it does.
    fn main_waits(&self) -> bool {
        self.schedule.runs_beside_first()
    }

    /// Puts a launch off if this thread has forked; returns whether it has.
    fn put_off(&self, prepared: &Prepared) -> bool {
        self.forked(|forks, thread| match forks.get_mut(&thread) {
            Some(fork) => {
                fork.waiting.push(prepared.clone());
                true
            }
            None => false,
        })
    }

    /// Does the work that this thread has put off.
    fn finish(&self) -> Result<(), DeviceError> {
        let take = |fork: &mut Fork| std::mem::take(&mut fork.waiting);
        // Not under the lock: whoever runs a kernel may meanwhile be given another thread's work.
        let waiting = self.forked(|forks, thread| forks.get_mut(&thread).map(take).unwrap_or_default());
        waiting.iter().try_for_each(|prepared| self.run(prepared))
    }

    /// Does what waits in the main stream: what is asked for next comes after it.
    fn catch_up(&self) -> Result<(), DeviceError> {
        if self.main_waits() { self.finish() } else { Ok(()) }
    }

    /// Runs a kernel now.
    fn run(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        let entry = prepared.entry();
        if windrow_kernels::body::<Thread<'_>>(entry.name).is_none() {
            return Err(DeviceError::MissingEntry { name: entry.name });
        }
        let launch = Launch {
            grid: prepared.grid(),
            block_threads: prepared.block_threads(),
            shared_bytes: entry.shared_bytes,
            schedule: self.schedule,
        };
        let params = prepared.params();
        let outcome = self.memory.launch(&launch, |thread| {
            if let Some(body) = windrow_kernels::body::<Thread<'_>>(entry.name) {
                // SAFETY: `Prepared::new` was promised that these params keep the entry's obligations; what
                // breaks them is reported by the emulator, not undefined.
                unsafe { body(thread, params) }
            }
        });
        let violation =
            |error: Violation| DeviceError::Emulator { kernel: entry.name, report: error.to_string() };
        outcome.map(|_| ()).map_err(violation)
    }

    fn used(&self) -> u64 {
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

impl Machine for EmulatorMachine {
    fn alloc(&self, bytes: u64, what: &'static str) -> Result<u64, DeviceError> {
        let free = self.memory_total.saturating_sub(self.used());
        if bytes > free {
            let device = "the GPU emulator".to_owned();
            return Err(DeviceError::OutOfMemory {
                what,
                asked: bytes,
                free,
                total: self.memory_total,
                device,
            });
        }
        // Its memory is that of this machine.
        let pointer = self.memory.try_alloc_uninit::<u8>(index(bytes));
        let pointer = pointer.map_err(|_| OutOfMemory { what, bytes })?;
        self.memory.label(pointer, what).map_err(|error| host_access(&error))?;
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner).insert(pointer.address(), bytes);
        Ok(pointer.address())
    }

    unsafe fn free(&self, address: u64) {
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        // Work of either stream that was never joined, for a call between failed, may use the memory, too: a GPU's
        // driver waits for both. Errors have nobody to go to.
        let _ = self.finish();
        let freed = self.memory.free(GlobalPtr::<u8>::from_address(address));
        debug_assert_eq!(freed, Ok(()), "buffers free what they allocated, once");
    }

    unsafe fn zero(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.catch_up()?;
        self.memory
            .zero(GlobalPtr::<u8>::from_address(address), index(bytes))
            .map_err(|error| host_access(&error))
    }

    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.catch_up()?;
        self.memory.write(GlobalPtr::from_address(to), from).map_err(|error| host_access(&error))
    }

    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        self.catch_up()?;
        self.memory.read_to(GlobalPtr::from_address(from), to).map_err(|error| host_access(&error))
    }

    fn launch(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        match self.main_waits() && self.put_off(prepared) {
            true => Ok(()),
            false => self.run(prepared),
        }
    }

    fn fork(&self) -> Result<(), DeviceError> {
        self.catch_up()?;
        self.forked(|forks, thread| forks.entry(thread).or_default().depth += 1);
        Ok(())
    }

    fn launch_beside(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        if !self.forked(|forks, thread| forks.contains_key(&thread)) {
            return Err(unordered(prepared.entry().name, "launched beside without a fork before it"));
        }
        match !self.main_waits() && self.put_off(prepared) {
            true => Ok(()),
            false => self.run(prepared),
        }
    }

    fn join(&self) -> Result<(), DeviceError> {
        let finished = self.finish();
        self.forked(|forks, thread| {
            let fork =
                forks.get_mut(&thread).ok_or_else(|| unordered("a join", "without a fork before it"))?;
            fork.depth -= 1;
            if fork.depth == 0 {
                forks.remove(&thread);
            }
            Ok::<(), DeviceError>(())
        })?;
        finished
    }

    fn resident_blocks(&self, _entry: &'static Entry) -> Result<u32, DeviceError> {
        Ok(RESIDENT_BLOCKS)
    }

    fn multiprocessors(&self) -> u32 {
        MULTIPROCESSORS
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.catch_up()
    }

    fn record(&self) -> Result<Event, DeviceError> {
        Ok(Event::now())
    }

    fn memory_free(&self) -> Result<Option<u64>, DeviceError> {
        Ok(Some(self.memory_total.saturating_sub(self.used())))
    }

    fn raw_cuda(&self) -> Result<Option<(usize, usize)>, DeviceError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use windrow_kernels::combine::CombineParams;

    use super::*;

    /// A launch that touches nothing.
    fn idle() -> Prepared {
        let entry = windrow_kernels::entry(windrow_kernels::Variant::Combine { sum_bytes: 4 }).unwrap();
        let params: CombineParams = bytemuck::Zeroable::zeroed();
        // SAFETY: no rows, so no memory.
        unsafe { Prepared::new(entry, [1, 1], &params) }.unwrap().unwrap()
    }

    #[test]
    fn streams_that_nothing_orders_are_reported() {
        for schedule in Schedule::STANDARD {
            let (_, machine) = open(schedule);
            let error = machine.launch_beside(&idle()).unwrap_err();
            assert!(error.to_string().contains("without a fork"), "{error}");
            assert!(machine.join().unwrap_err().to_string().contains("without a fork"));
            for _ in 0..2 {
                machine.fork().unwrap();
                machine.launch_beside(&idle()).unwrap();
                machine.launch(&idle()).unwrap();
                machine.join().unwrap();
                machine.launch_beside(&idle()).unwrap_err();
            }
        }
    }
}

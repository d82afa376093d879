//! The GPU emulator as a device: the same kernels, the same launches, on the CPU with every access checked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

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
/// Memory that the emulated GPU has.
const MEMORY_TOTAL: u64 = 1 << 30;

struct EmulatorMachine {
    memory: Memory,
    schedule: Schedule,
    /// Bytes of each live allocation.
    allocated: Mutex<HashMap<u64, u64>>,
}

pub(super) fn open(schedule: Schedule) -> (Description, Box<dyn Machine>) {
    let description = Description {
        kind: DeviceKind::Emulator,
        name: format!("GPU emulator, {schedule:?}"),
        selector: "emulator".to_owned(),
        compute_capability: Some((8, 0)),
        multiprocessors: MULTIPROCESSORS,
        clock_hz: None,
        memory_rate: None,
        l2_bytes: None,
        memory_total: Some(MEMORY_TOTAL),
        driver_version: None,
    };
    (description, Box::new(EmulatorMachine { memory: Memory::new(), schedule, allocated: Mutex::default() }))
}

fn host_access(error: &MemoryError) -> DeviceError {
    DeviceError::Emulator { kernel: "a copy", report: error.to_string() }
}

impl EmulatorMachine {
    fn used(&self) -> u64 {
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

impl Machine for EmulatorMachine {
    fn alloc(&self, bytes: u64, what: &'static str) -> Result<u64, DeviceError> {
        let free = MEMORY_TOTAL.saturating_sub(self.used());
        if bytes > free {
            let device = "the GPU emulator".to_owned();
            return Err(DeviceError::OutOfMemory { what, asked: bytes, free, total: MEMORY_TOTAL, device });
        }
        let pointer = self.memory.alloc_uninit::<u8>(index(bytes));
        self.memory.label(pointer, what).map_err(|error| host_access(&error))?;
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner).insert(pointer.address(), bytes);
        Ok(pointer.address())
    }

    unsafe fn free(&self, address: u64) {
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        let freed = self.memory.free(GlobalPtr::<u8>::from_address(address));
        debug_assert_eq!(freed, Ok(()), "buffers free what they allocated, once");
    }

    unsafe fn zero(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let zeros = vec![0u8; index(bytes)];
        self.memory.write(GlobalPtr::from_address(address), &zeros).map_err(|error| host_access(&error))
    }

    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.memory.write(GlobalPtr::from_address(to), from).map_err(|error| host_access(&error))
    }

    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        let bytes = self.memory.read::<u8>(GlobalPtr::from_address(from), to.len());
        to.copy_from_slice(&bytes.map_err(|error| host_access(&error))?);
        Ok(())
    }

    fn launch(&self, prepared: &Prepared) -> Result<(), DeviceError> {
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

    fn fork(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn launch_beside(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        self.launch(prepared)
    }

    fn join(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn resident_blocks(&self, _entry: &'static Entry) -> Result<u32, DeviceError> {
        Ok(RESIDENT_BLOCKS)
    }

    fn multiprocessors(&self) -> u32 {
        MULTIPROCESSORS
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn record(&self) -> Result<Event, DeviceError> {
        Ok(Event::now())
    }

    fn memory_free(&self) -> Result<Option<u64>, DeviceError> {
        Ok(Some(MEMORY_TOTAL.saturating_sub(self.used())))
    }

    fn raw_cuda(&self) -> Result<Option<(usize, usize)>, DeviceError> {
        Ok(None)
    }
}

//! The GPU emulator as a device: the same kernels, the same launches, on the CPU with every access checked.

#[cfg(test)]
mod dense_library;
#[cfg(feature = "dist")]
mod link;
mod queue;

use std::alloc::Layout;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use windrow_formats::OutOfMemory;
use windrow_kernels::Entry;
use windrow_simt::emulator::{MemoryError, Schedule};
use windrow_simt::{BoxedMatrix, GlobalPtr, TensorMap};

use super::DeviceKind;
#[cfg(test)]
use super::dense_library::DenseLibrary;
#[cfg(feature = "dist")]
use super::link::{Link, LinkId};
use super::machine::{Description, Lies, Machine};
use super::queue::{Queue, Urgency};
use crate::error::DeviceError;
use crate::num::{index, wide};
pub(super) use queue::EmulatorFence;
use queue::{Core, EmulatorQueue};

/// Few, so that small matrices already give every worker little and windows are cut.
const MULTIPROCESSORS: u32 = 2;
const RESIDENT_BLOCKS: u32 = 2;
/// Memory that the emulated GPU has, unless a test asks for another.
const MEMORY_TOTAL: u64 = 1 << 30;

struct EmulatorMachine {
    core: Arc<Core>,
    memory_total: u64,
    /// Bytes of each live allocation.
    allocated: Mutex<HashMap<u64, u64>>,
    /// Bytes of each live allocation that stands for page-locked memory of the host.
    pinned: Mutex<HashMap<usize, usize>>,
    lane: Arc<EmulatorQueue>,
    /// The same, as others see it.
    own: Arc<dyn Queue>,
    /// All others, those that are gone included.
    others: Mutex<Vec<Weak<EmulatorQueue>>>,
    /// What stands for a library for dense products, if a test asks for one.
    #[cfg(test)]
    library: Option<Arc<dyn DenseLibrary>>,
}

pub(super) fn open(schedule: Schedule) -> (Description, Box<dyn Machine>) {
    open_with(schedule, MEMORY_TOTAL)
}

/// With so many bytes of memory; arrays of more than 1 GiB take only what is touched of them.
pub(super) fn open_with(schedule: Schedule, memory_total: u64) -> (Description, Box<dyn Machine>) {
    let (description, machine) = make(schedule, memory_total);
    (description, Box::new(machine))
}

/// With what stands for a library for dense products.
#[cfg(test)]
pub(super) fn open_with_library(schedule: Schedule) -> (Description, Box<dyn Machine>) {
    let (description, machine) = make(schedule, MEMORY_TOTAL);
    let library: Arc<dyn DenseLibrary> = Arc::new(dense_library::NaiveLibrary);
    (description, Box::new(EmulatorMachine { library: Some(library), ..machine }))
}

fn make(schedule: Schedule, memory_total: u64) -> (Description, EmulatorMachine) {
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
    let core = Arc::new(Core::new(schedule));
    let lane = EmulatorQueue::new(&core, true);
    let own: Arc<dyn Queue> = Arc::<EmulatorQueue>::clone(&lane);
    let machine = EmulatorMachine {
        core,
        memory_total,
        allocated: Mutex::default(),
        pinned: Mutex::default(),
        lane,
        own,
        others: Mutex::default(),
        #[cfg(test)]
        library: None,
    };
    (description, machine)
}

/// How memory that stands for page-locked memory is allocated.
fn pinned_layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, 64).ok()
}

fn host_access(error: &MemoryError) -> DeviceError {
    DeviceError::Emulator { kernel: "a copy", report: error.to_string() }
}

fn unordered(kernel: &'static str, report: &str) -> DeviceError {
    DeviceError::Emulator { kernel, report: report.to_owned() }
}

impl EmulatorMachine {
    /// All queues but the own one.
    fn others(&self) -> Vec<Arc<EmulatorQueue>> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.iter().filter_map(Weak::upgrade).collect()
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
        let pointer = self.core.memory.try_alloc_uninit::<u8>(index(bytes));
        let pointer = pointer.map_err(|_| OutOfMemory { what, bytes })?;
        self.core.memory.label(pointer, what).map_err(|error| host_access(&error))?;
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner).insert(pointer.address(), bytes);
        Ok(pointer.address())
    }

    unsafe fn free(&self, address: u64) {
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        // Work of either stream that was never joined, for a call between failed, may use the memory, too: a GPU's
        // driver waits for both. Errors have nobody to go to.
        let _ = self.lane.flush_all().and_then(|()| self.lane.finish_here());
        for other in &self.others() {
            let _ = other.flush_marked();
        }
        let freed = self.core.memory.free(GlobalPtr::<u8>::from_address(address));
        debug_assert_eq!(freed, Ok(()), "buffers free what they allocated, once");
    }

    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.lane.settle()?;
        self.core.memory.write(GlobalPtr::from_address(to), from).map_err(|error| host_access(&error))
    }

    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        self.lane.settle()?;
        self.core.memory.read_to(GlobalPtr::from_address(from), to).map_err(|error| host_access(&error))
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<NonNull<u8>, DeviceError> {
        let none = || DeviceError::from(OutOfMemory { what: "page-locked memory", bytes: wide(bytes) });
        let layout = pinned_layout(bytes).ok_or_else(none)?;
        // SAFETY: the layout has bytes, by the trait's promise.
        let memory = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(none)?;
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).insert(memory.as_ptr().addr(), bytes);
        Ok(memory)
    }

    unsafe fn free_pinned(&self, address: NonNull<u8>, bytes: usize) {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).remove(&address.as_ptr().addr());
        if let Some(layout) = pinned_layout(bytes) {
            // SAFETY: the caller's promise: allocated with this layout.
            unsafe { std::alloc::dealloc(address.as_ptr(), layout) };
        }
    }

    fn is_pinned(&self, address: *const u8) -> Result<bool, DeviceError> {
        let pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(pinned.iter().any(|(&first, &bytes)| (first..first + bytes).contains(&address.addr())))
    }

    fn own(&self) -> &Arc<dyn Queue> {
        &self.own
    }

    fn create(&self, _urgency: Urgency) -> Result<Arc<dyn Queue>, DeviceError> {
        let queue = EmulatorQueue::new(&self.core, false);
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.retain(|other| other.strong_count() > 0);
        others.push(Arc::downgrade(&queue));
        Ok(queue)
    }

    unsafe fn borrow(&self, _raw: usize) -> Result<Arc<dyn Queue>, DeviceError> {
        let (operation, remedy) = ("queue work in a CUDA stream", "a CUDA device, or `Stream::new`");
        Err(DeviceError::NotAvailable { device: "the GPU emulator".to_owned(), operation, remedy })
    }

    fn memory_at(&self, address: u64) -> Result<Lies, DeviceError> {
        let allocated = self.allocated.lock().unwrap_or_else(PoisonError::into_inner);
        let around = allocated.iter().find(|&(&first, &bytes)| (first..first + bytes).contains(&address));
        Ok(match around {
            Some((first, bytes)) => Lies::Here { end: first + bytes },
            None => Lies::Elsewhere("no memory of the emulator".to_owned()),
        })
    }

    fn has(&self, _entry: &'static Entry) -> bool {
        true
    }

    fn tensor_map(&self, matrix: &BoxedMatrix) -> Result<TensorMap, DeviceError> {
        Ok(TensorMap::emulated(matrix))
    }

    fn is_loaded(&self, _entry: &'static Entry) -> bool {
        true
    }

    fn load(&self, _entry: &'static Entry) -> Result<(), DeviceError> {
        Ok(())
    }

    fn resident_blocks(&self, _entry: &'static Entry) -> Result<u32, DeviceError> {
        Ok(RESIDENT_BLOCKS)
    }

    fn multiprocessors(&self) -> u32 {
        MULTIPROCESSORS
    }

    fn memory_free(&self) -> Result<Option<u64>, DeviceError> {
        Ok(Some(self.memory_total.saturating_sub(self.used())))
    }

    #[cfg(test)]
    fn dense_library(&self) -> Result<Arc<dyn DenseLibrary>, String> {
        self.library.clone().ok_or_else(|| "cuBLAS is for CUDA devices alone".to_owned())
    }

    #[cfg(feature = "dist")]
    fn link_name(&self) -> Result<String, String> {
        Ok("the emulator's link".to_owned())
    }

    #[cfg(feature = "dist")]
    fn new_link_id(&self) -> Result<LinkId, DeviceError> {
        Ok(link::new_id())
    }

    #[cfg(feature = "dist")]
    fn join(&self, id: LinkId, _ranks: usize, rank: usize) -> Result<Box<dyn Link>, DeviceError> {
        Ok(Box::new(link::EmulatedLink::join(id, rank)))
    }

    fn raw_cuda(&self) -> Result<Option<(usize, usize)>, DeviceError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use windrow_kernels::combine::CombineParams;

    use super::*;
    use crate::device::machine::Prepared;

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
            let machine = machine.own();
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

    /// Bytes of the machine, which one queue sets to zero after another has.
    #[test]
    fn work_of_queues_that_nothing_orders_is_put_off() {
        let mut put_off = 0;
        for schedule in Schedule::STANDARD {
            let (_, machine) = open(schedule);
            let [one, two] = [(); 2].map(|()| machine.create(Urgency::Usual).unwrap());
            let address = machine.alloc(4, "bytes").unwrap();
            let read = || {
                let mut bytes = [9; 4];
                // SAFETY: four bytes of one live allocation.
                unsafe { machine.download(address, &mut bytes).unwrap() };
                bytes
            };
            // SAFETY: as above.
            let (write, zero) = unsafe {
                (
                    || machine.upload(address, &[7; 4]).unwrap(),
                    |queue: &dyn Queue| queue.zero(address, 4).unwrap(),
                )
            };
            write();
            zero(&*one);
            put_off += u32::from(read() == [7; 4]);
            // Whoever waits for the mark has it done; what comes after the mark is not waited for.
            one.mark().unwrap();
            machine.own().wait_for(one.fence()).unwrap();
            assert_eq!(read(), [0; 4]);
            write();
            zero(&*one);
            two.wait_for(one.fence()).unwrap();
            let after_mark = read() == [7; 4];
            one.synchronize().unwrap();
            assert_eq!(read(), [0; 4]);
            put_off += u32::from(after_mark);
            assert_eq!(after_mark, !schedule.runs_beside_first());
            drop([one, two]); // with all their work
            // SAFETY: allocated above, not used any more.
            unsafe { machine.free(address) };
        }
        assert_eq!(put_off, 4, "others are put off under two of four schedules");
    }

    #[test]
    fn memory_is_freed_after_marks_only() {
        for schedule in Schedule::STANDARD {
            for marked in [true, false] {
                let (_, machine) = open(schedule);
                let queue = machine.create(Urgency::Usual).unwrap();
                let address = machine.alloc(4, "bytes").unwrap();
                // SAFETY: the bytes are live when it is asked for; that they are not later is what is tested, of an
                // emulator, which reports it.
                unsafe { queue.zero(address, 4).unwrap() };
                if marked {
                    queue.mark().unwrap();
                }
                // SAFETY: allocated above, freed once.
                unsafe { machine.free(address) };
                let late = !marked && !schedule.runs_beside_first();
                assert_eq!(queue.synchronize().is_err(), late, "{schedule:?}, marked {marked}");
            }
        }
    }
}

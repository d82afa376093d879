//! A device whose calls fail when they are told to: what becomes of plans, memory and results then can be tested.

use std::collections::HashMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windrow_kernels::Entry;
use windrow_simt::{BoxedMatrix, TensorMap};

use super::dense_library::DenseLibrary;
use super::event::Event;
use super::fence::Fence;
#[cfg(feature = "dist")]
use super::link::{Link, LinkId};
use super::machine::{Lies, Machine, Prepared};
use super::queue::{CopyWay, Queue, RowCopy, Urgency};
use crate::error::DeviceError;
use crate::num::wide;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does nothing and says so; allocations say that there is no memory.
    Refused,
    /// It does what it was asked for, and reports an error nevertheless: that of something earlier.
    Late,
    /// It does nothing, nor does any later call: the device is lost ([`DeviceError::Lost`]).
    Sticky,
}

/// The faults of one device, and what it has been asked for. Clones speak of the same device.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    calls: u64,
    planned: Option<(u64, Fault)>,
    /// The names of the calls that failed.
    failed: Vec<&'static str>,
    allocated: HashMap<u64, u64>,
}

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls so far that could have failed.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// The call after `after` further ones fails so.
    pub fn plan(&self, after: u64, fault: Fault) {
        let mut state = self.state();
        state.planned = Some((state.calls + after, fault));
        state.failed.clear();
    }

    /// From now on no call fails. Returns the names of those that did.
    pub fn clear(&self) -> Vec<&'static str> {
        let mut state = self.state();
        state.planned = None;
        std::mem::take(&mut state.failed)
    }

    /// Live allocations, page-locked memory of the host included, and their bytes.
    #[must_use]
    pub fn allocated(&self) -> (usize, u64) {
        let state = self.state();
        (state.allocated.len(), state.allocated.values().sum())
    }

    /// Counts a call; how it fails, if it does.
    fn next(&self, call: &'static str) -> Option<Fault> {
        let mut state = self.state();
        let number = state.calls;
        state.calls += 1;
        let fault = match state.planned {
            Some((at, Fault::Sticky)) if number >= at => Fault::Sticky,
            Some((at, fault)) if number == at => fault,
            _ => return None,
        };
        state.failed.push(call);
        Some(fault)
    }

    /// A call that fails if it was told to.
    fn call<T>(
        &self,
        name: &'static str,
        call: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        match self.next(name) {
            None => call(),
            Some(Fault::Late) => call().and_then(|_| Err(error(name, Fault::Late))),
            Some(fault @ (Fault::Refused | Fault::Sticky)) => Err(error(name, fault)),
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Faults").field("calls", &state.calls).field("planned", &state.planned).finish()
    }
}

/// What a call that fails reports.
fn error(call: &'static str, fault: Fault) -> DeviceError {
    let (name, message) = ("FAULT".to_owned(), "a fault that was asked for".to_owned());
    match fault {
        Fault::Sticky => DeviceError::Lost { call, name, message },
        Fault::Refused | Fault::Late => DeviceError::Driver { call, name, message },
    }
}

/// What page-locked memory is known by among allocations: no address that a device has.
fn pinned_key(memory: NonNull<u8>) -> u64 {
    !wide(memory.as_ptr().addr())
}

/// A machine with such faults in front of it.
pub(super) struct FaultyMachine {
    machine: Box<dyn Machine>,
    own: Arc<dyn Queue>,
    faults: Faults,
}

impl FaultyMachine {
    pub(super) fn new(machine: Box<dyn Machine>, faults: Faults) -> Self {
        let own = Arc::new(FaultyQueue { queue: Arc::clone(machine.own()), faults: faults.clone() });
        Self { machine, own, faults }
    }

    fn call<T>(
        &self,
        name: &'static str,
        call: impl FnOnce(&dyn Machine) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        self.faults.call(name, || call(&*self.machine))
    }
}

impl Machine for FaultyMachine {
    fn alloc(&self, bytes: u64, what: &'static str) -> Result<u64, DeviceError> {
        match self.faults.next("alloc") {
            Some(Fault::Sticky) => return Err(error("alloc", Fault::Sticky)),
            // Nobody could free what came with an error, so that no driver hands any out.
            Some(Fault::Refused | Fault::Late) => {
                let device = "a device with faults".to_owned();
                return Err(DeviceError::OutOfMemory { what, asked: bytes, free: 0, total: bytes, device });
            }
            None => {}
        }
        let address = self.machine.alloc(bytes, what)?;
        self.faults.state().allocated.insert(address, bytes);
        Ok(address)
    }

    unsafe fn free(&self, address: u64) {
        self.faults.state().allocated.remove(&address);
        // SAFETY: the caller's promise.
        unsafe { self.machine.free(address) }
    }

    unsafe fn queue_upload(&self, to: u64, from: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        self.call("upload", |machine| unsafe { machine.queue_upload(to, from) })
    }

    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        self.call("upload", |machine| unsafe { machine.upload(to, from) })
    }

    unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        self.call("download", |machine| unsafe { machine.download(from, to) })
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<NonNull<u8>, DeviceError> {
        match self.faults.next("alloc_pinned") {
            // As for memory of the device.
            Some(fault) => Err(error("alloc_pinned", fault)),
            None => {
                let memory = self.machine.alloc_pinned(bytes)?;
                self.faults.state().allocated.insert(pinned_key(memory), wide(bytes));
                Ok(memory)
            }
        }
    }

    unsafe fn free_pinned(&self, address: NonNull<u8>, bytes: usize) {
        self.faults.state().allocated.remove(&pinned_key(address));
        // SAFETY: the caller's promise.
        unsafe { self.machine.free_pinned(address, bytes) }
    }

    fn is_pinned(&self, address: *const u8) -> Result<bool, DeviceError> {
        self.call("is_pinned", |machine| machine.is_pinned(address))
    }

    fn own(&self) -> &Arc<dyn Queue> {
        &self.own
    }

    fn create(&self, urgency: Urgency) -> Result<Arc<dyn Queue>, DeviceError> {
        let queue = self.call("create", |machine| machine.create(urgency))?;
        Ok(Arc::new(FaultyQueue { queue, faults: self.faults.clone() }))
    }

    unsafe fn borrow(&self, raw: usize) -> Result<Arc<dyn Queue>, DeviceError> {
        // SAFETY: the caller's promise.
        let queue = self.call("borrow", |machine| unsafe { machine.borrow(raw) })?;
        Ok(Arc::new(FaultyQueue { queue, faults: self.faults.clone() }))
    }

    fn memory_at(&self, address: u64) -> Result<Lies, DeviceError> {
        self.call("memory_at", |machine| machine.memory_at(address))
    }

    fn dense_library(&self) -> Result<Arc<dyn DenseLibrary>, String> {
        self.machine.dense_library()
    }

    fn has(&self, entry: &'static Entry) -> bool {
        self.machine.has(entry)
    }

    fn tensor_map(&self, matrix: &BoxedMatrix) -> Result<TensorMap, DeviceError> {
        self.call("tensor_map", |machine| machine.tensor_map(matrix))
    }

    fn is_loaded(&self, entry: &'static Entry) -> bool {
        self.machine.is_loaded(entry)
    }

    fn load(&self, entry: &'static Entry) -> Result<(), DeviceError> {
        self.call("load", |machine| machine.load(entry))
    }

    fn resident_blocks(&self, entry: &'static Entry) -> Result<u32, DeviceError> {
        self.call("resident_blocks", |machine| machine.resident_blocks(entry))
    }

    fn multiprocessors(&self) -> u32 {
        self.machine.multiprocessors()
    }

    fn memory_free(&self) -> Result<Option<u64>, DeviceError> {
        self.call("memory_free", |machine| machine.memory_free())
    }

    #[cfg(feature = "dist")]
    fn uuid(&self) -> Option<String> {
        self.machine.uuid()
    }

    #[cfg(feature = "dist")]
    fn link_name(&self) -> Result<String, String> {
        self.machine.link_name()
    }

    #[cfg(feature = "dist")]
    fn new_link_id(&self) -> Result<LinkId, DeviceError> {
        self.call("new_link_id", |machine| machine.new_link_id())
    }

    #[cfg(feature = "dist")]
    fn join(&self, id: LinkId, ranks: usize, rank: usize) -> Result<Box<dyn Link>, DeviceError> {
        self.call("join", |machine| machine.join(id, ranks, rank))
    }

    fn raw_cuda(&self) -> Result<Option<(usize, usize)>, DeviceError> {
        self.machine.raw_cuda()
    }
}

/// A queue of such a machine.
struct FaultyQueue {
    queue: Arc<dyn Queue>,
    faults: Faults,
}

impl FaultyQueue {
    fn call<T>(
        &self,
        name: &'static str,
        call: impl FnOnce(&dyn Queue) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        self.faults.call(name, || call(&*self.queue))
    }
}

impl Queue for FaultyQueue {
    unsafe fn zero(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        self.call("zero", |queue| unsafe { queue.zero(address, bytes) })
    }

    unsafe fn copy_rows(&self, way: CopyWay, rows: RowCopy) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        self.call("copy_rows", |queue| unsafe { queue.copy_rows(way, rows) })
    }

    fn launch(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        self.call("launch", |queue| queue.launch(prepared))
    }

    fn fork(&self) -> Result<(), DeviceError> {
        self.call("fork", |queue| queue.fork())
    }

    fn launch_beside(&self, prepared: &Prepared) -> Result<(), DeviceError> {
        self.call("launch_beside", |queue| queue.launch_beside(prepared))
    }

    fn join(&self) -> Result<(), DeviceError> {
        self.call("join", |queue| queue.join())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.call("synchronize", |queue| queue.synchronize())
    }

    fn is_idle(&self) -> Result<bool, DeviceError> {
        self.call("is_idle", |queue| queue.is_idle())
    }

    fn record(&self) -> Result<Event, DeviceError> {
        self.call("record", |queue| queue.record())
    }

    fn key(&self) -> u64 {
        self.queue.key()
    }

    fn raw(&self) -> Option<usize> {
        self.queue.raw()
    }

    fn mark(&self) -> Result<(), DeviceError> {
        self.call("mark", |queue| queue.mark())
    }

    fn fence(&self) -> &Fence {
        self.queue.fence()
    }

    fn wait_for(&self, fence: &Fence) -> Result<(), DeviceError> {
        self.call("wait_for", |queue| queue.wait_for(fence))
    }

    #[cfg(feature = "dist")]
    fn copy_by(&self, copies: super::queue::Copies) -> Result<(), DeviceError> {
        self.call("copy_by", |queue| queue.copy_by(copies))
    }

    fn is_captured(&self) -> Result<bool, DeviceError> {
        self.call("is_captured", |queue| queue.is_captured())
    }
}

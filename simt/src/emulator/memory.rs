//! The emulated global memory: allocations at virtual addresses, and the host's side of them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytemuck::Pod;

use crate::GlobalPtr;
use crate::emulator::allocation::Allocation;
use crate::emulator::violation::{Outside, Region};

/// Every allocation starts at a multiple of this, so that an address cut to 32 bits is below all of
/// them.
pub(super) const SPACING: u64 = 1 << 32;
/// At least so many bytes lie between two allocations.
const GUARD: u64 = 1 << 20;
/// Calls of one thread after which a launch is given up.
const STEP_LIMIT: u64 = 1 << 26;

/// Why the host's access to emulated memory failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// Not inside one live allocation.
    OutOfBounds {
        /// Address of the first byte of the access.
        address: u64,
        /// Width of the access in bytes.
        bytes: u64,
        /// Where that is, as seen from the nearest allocation.
        place: Outside,
    },
    /// A read of bytes that neither host nor kernel ever wrote.
    Unwritten {
        /// Offset of the first of them in the allocation.
        offset: u64,
        /// The allocation that is read.
        region: Region,
    },
    /// `free` or `label` of an address where no live allocation starts.
    NotAnAllocation {
        /// The address that was given.
        address: u64,
    },
    /// The machine that emulates has no room for an allocation.
    NoRoom {
        /// Bytes that were asked for.
        bytes: u64,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { address, bytes, place } => {
                write!(f, "the host asked for {bytes} bytes at {address:#x}, which {place}")
            }
            Self::Unwritten { offset, region } => {
                write!(f, "the host read byte {offset} of {region}, which nothing ever wrote")
            }
            Self::NotAnAllocation { address } => write!(f, "no allocation starts at {address:#x}"),
            Self::NoRoom { bytes } => write!(f, "this machine has no room for {bytes} bytes"),
        }
    }
}

impl std::error::Error for MemoryError {}

/// The allocations of one memory, live and freed, and its next address.
struct Table {
    /// Sorted by base, because bases only grow.
    live: Vec<Arc<Allocation>>,
    /// Those that are remembered, so that who uses one is told: [`REMEMBERED`] at least.
    freed: Vec<Region>,
    next: u64,
}

/// Freed allocations that a memory never forgets: more are for programs that run for days.
const REMEMBERED: usize = 1 << 14;

/// Emulated global memory, and the launcher of kernels over it.
///
/// Allocations start at multiples of 256 bytes (of 4 GiB, in fact) with at least 1 MiB of guard
/// between them, and no address is ever used twice, so that a stray or stale pointer never hits
/// another allocation. Those of more than 1 GiB take memory only where something touches them. All
/// methods take `&self`; launches may run at the same time, like those of two streams, but races
/// between two launches are not looked for.
pub struct Memory {
    table: RwLock<Table>,
    step_limit: AtomicU64,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.allocations().iter().map(|a| a.region())).finish()
    }
}

impl Memory {
    /// A memory without allocations.
    #[must_use]
    pub fn new() -> Self {
        Self {
            table: RwLock::new(Table { live: Vec::new(), freed: Vec::new(), next: SPACING }),
            step_limit: AtomicU64::new(STEP_LIMIT),
        }
    }

    /// Sets after how many calls of [`Simt`](crate::Simt) methods by one thread a launch is given up
    /// as endless. At first 2²⁶.
    pub fn set_step_limit(&self, calls: u64) {
        self.step_limit.store(calls, Ordering::Relaxed);
    }

    pub(super) fn step_limit(&self) -> u64 {
        self.step_limit.load(Ordering::Relaxed)
    }

    /// The live allocations, by address.
    pub(super) fn allocations(&self) -> Vec<Arc<Allocation>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).live.clone()
    }

    /// Allocates `len` elements that hold nothing: reading one before something wrote it is an error
    /// of the host and a violation of a kernel.
    ///
    /// # Panics
    /// If there is no room for `len` elements.
    #[must_use]
    pub fn alloc_uninit<T: Pod>(&self, len: usize) -> GlobalPtr<T> {
        self.try_alloc_uninit(len).unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`alloc_uninit`](Self::alloc_uninit) where this machine may have too little memory.
    ///
    /// # Errors
    /// [`MemoryError::NoRoom`]. None for those of more than 1 GiB, whose memory is asked for when it is touched.
    pub fn try_alloc_uninit<T: Pod>(&self, len: usize) -> Result<GlobalPtr<T>, MemoryError> {
        self.allocate(len, false)
    }

    /// Allocates `len` elements of zero bytes.
    ///
    /// # Panics
    /// As for [`alloc_uninit`](Self::alloc_uninit).
    #[must_use]
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> GlobalPtr<T> {
        self.allocate(len, true).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Allocates a copy of `elements`.
    #[must_use]
    pub fn alloc_from<T: Pod>(&self, elements: &[T]) -> GlobalPtr<T> {
        let pointer = self.alloc_zeroed(elements.len());
        let copied = self.write(pointer, elements);
        debug_assert_eq!(copied, Ok(()), "a fresh allocation holds what it was made for");
        pointer
    }

    fn allocate<T: Pod>(&self, len: usize, zeros: bool) -> Result<GlobalPtr<T>, MemoryError> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let no_room = MemoryError::NoRoom { bytes };
        if i64::try_from(bytes).is_err() {
            return Err(no_room);
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let base = table.next;
        let Some(allocation) = Allocation::new(base, bytes, zeros) else { return Err(no_room) };
        table.next = (base + bytes + GUARD).next_multiple_of(SPACING);
        table.live.push(Arc::new(allocation));
        Ok(GlobalPtr::from_address(base))
    }

    fn position(table: &Table, base: u64) -> Result<usize, MemoryError> {
        let found = table.live.binary_search_by_key(&base, |allocation| allocation.base);
        found.map_err(|_| MemoryError::NotAnAllocation { address: base })
    }

    /// Names an allocation for reports.
    ///
    /// # Errors
    /// [`MemoryError::NotAnAllocation`] unless `pointer` is where a live allocation starts.
    pub fn label<T>(&self, pointer: GlobalPtr<T>, label: &str) -> Result<(), MemoryError> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let allocation = &table.live[Self::position(&table, pointer.address())?];
        *allocation.label.lock().unwrap_or_else(PoisonError::into_inner) = Some(label.into());
        Ok(())
    }

    /// Frees an allocation. Launches that began before go on with it.
    ///
    /// # Errors
    /// [`MemoryError::NotAnAllocation`] unless `pointer` is where a live allocation starts.
    pub fn free<T>(&self, pointer: GlobalPtr<T>) -> Result<(), MemoryError> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let position = Self::position(&table, pointer.address())?;
        let region = table.live.remove(position).region();
        let place = table.freed.partition_point(|freed| freed.base < region.base);
        table.freed.insert(place, region);
        if table.freed.len() > 2 * REMEMBERED {
            table.freed.drain(..REMEMBERED); // the oldest: bases only grow
        }
        Ok(())
    }

    /// Where an address lies that is in no live allocation for the whole of `bytes`.
    pub(super) fn outside(&self, address: u64) -> Outside {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let freed = table.freed.partition_point(|freed| freed.base <= address);
        let live = table.live.partition_point(|live| live.base <= address);
        let freed = freed.checked_sub(1).map(|last| table.freed[last].clone());
        let live = live.checked_sub(1).map(|last| table.live[last].region());
        match (live, freed) {
            (Some(region), _) if address - region.base < region.bytes => {
                Outside::Straddles { offset: address - region.base, region }
            }
            (_, Some(region)) if address - region.base < region.bytes => {
                Outside::Freed { offset: address - region.base, region }
            }
            (Some(region), _) => Outside::Past { distance: address - region.base - region.bytes, region },
            (None, _) => Outside::Below,
        }
    }

    fn locate<T>(
        &self,
        pointer: GlobalPtr<T>,
        len: usize,
    ) -> Result<(Arc<Allocation>, u64, usize), MemoryError> {
        let address = pointer.address();
        let bytes = len.saturating_mul(size_of::<T>());
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let after = table.live.partition_point(|live| live.base <= address);
        if let Some(allocation) = after.checked_sub(1).map(|last| &table.live[last]) {
            let offset = address - allocation.base;
            if offset.checked_add(bytes as u64).is_some_and(|end| end <= allocation.bytes) {
                return Ok((Arc::clone(allocation), offset, bytes));
            }
        }
        drop(table);
        Err(MemoryError::OutOfBounds { address, bytes: bytes as u64, place: self.outside(address) })
    }

    /// Copies `len` elements to the host. No launch may be writing them.
    ///
    /// # Errors
    /// - [`MemoryError::OutOfBounds`] unless they lie in one live allocation.
    /// - [`MemoryError::Unwritten`] if nothing ever wrote one of their bytes.
    pub fn read<T: Pod>(&self, pointer: GlobalPtr<T>, len: usize) -> Result<Vec<T>, MemoryError> {
        let (allocation, offset, _) = self.locate(pointer, len)?;
        let mut elements = vec![T::zeroed(); len];
        allocation.read_bytes(offset, bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }

    /// [`read`](Self::read) into memory that the caller has.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_to<T: Pod>(&self, pointer: GlobalPtr<T>, elements: &mut [T]) -> Result<(), MemoryError> {
        let (allocation, offset, _) = self.locate(pointer, elements.len())?;
        allocation.read_bytes(offset, bytemuck::cast_slice_mut(elements))
    }

    /// Copies elements from the host. No launch may be using their place.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] unless they fit into one live allocation.
    pub fn write<T: Pod>(&self, pointer: GlobalPtr<T>, elements: &[T]) -> Result<(), MemoryError> {
        let (allocation, offset, _) = self.locate(pointer, elements.len())?;
        allocation.write_bytes(offset, bytemuck::cast_slice(elements));
        Ok(())
    }

    /// Sets `len` elements to zero bytes. No launch may be using their place. What is more than 1 GiB should be zeroed
    /// whole: that takes no memory.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] unless they lie in one live allocation.
    pub fn zero<T: Pod>(&self, pointer: GlobalPtr<T>, len: usize) -> Result<(), MemoryError> {
        let (allocation, offset, bytes) = self.locate(pointer, len)?;
        allocation.write_zeros(offset, bytes as u64);
        Ok(())
    }
}

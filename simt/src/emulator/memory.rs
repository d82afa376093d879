//! The emulated global memory: allocations at virtual addresses, and the host's side of them.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use bytemuck::{Pod, try_zeroed_slice_box};

use crate::GlobalPtr;
use crate::emulator::violation::{Outside, Region};

/// Every allocation starts at a multiple of this, so that an address cut to 32 bits is below all of
/// them.
pub(super) const SPACING: u64 = 1 << 32;
/// At least so many bytes lie between two allocations.
const GUARD: u64 = 1 << 20;
/// Allocations of more bytes than this are made page by page, as they are touched: so matrices can be emulated whose
/// elements lie beyond 2³² and that no machine could hold. Where there is no room for a page, the process ends.
const LARGEST_WHOLE: u64 = 1 << 30;
/// Bits of an offset in a page, which an allocation that is made at once has one of.
const PAGE_BITS: u32 = 20;
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

/// A part of an allocation. Words are atomics only so that blocks which run at the same time may touch them; whether a
/// kernel may, the shadow decides.
struct Page {
    words: Box<[AtomicU32]>,
    /// One bit a byte; none if all bytes were written at birth.
    written: Option<Box<[AtomicU64]>>,
}

/// An allocation and what is known of its bytes.
pub(super) struct Allocation {
    pub(super) base: u64,
    pub(super) bytes: u64,
    label: Mutex<Option<Arc<str>>>,
    page_bits: u32,
    /// Those that something touched.
    pages: Box<[OnceLock<Page>]>,
    /// Whether pages that nothing touched hold zeros, instead of nothing at all.
    zeros: AtomicBool,
}

impl Allocation {
    /// None if this machine has no room for it.
    fn new(base: u64, bytes: u64, zeros: bool) -> Option<Self> {
        let page_bits = if bytes > LARGEST_WHOLE { PAGE_BITS } else { LARGEST_WHOLE.ilog2() + 1 };
        let count = index(bytes.div_ceil(1 << page_bits));
        let mut pages = Vec::new();
        pages.try_reserve_exact(count).ok()?;
        pages.extend((0..count).map(|_| OnceLock::new()));
        if count == 1 {
            pages[0] = OnceLock::from(Page::new(bytes, zeros)?);
        }
        let (label, zeros) = (Mutex::new(None), AtomicBool::new(zeros));
        Some(Self { base, bytes, label, page_bits, pages: pages.into_boxed_slice(), zeros })
    }

    pub(super) fn region(&self) -> Region {
        let label = self.label.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Region { label, base: self.base, bytes: self.bytes }
    }

    /// How many pages there are, touched or not.
    pub(super) fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// The number of the page with a byte, and the byte's offset in it.
    pub(super) fn page_of(&self, offset: u64) -> (usize, u64) {
        (index(offset >> self.page_bits), offset & ((1 << self.page_bits) - 1))
    }

    /// Bytes of a page: the last may be shorter.
    pub(super) fn page_bytes(&self, page: usize) -> u64 {
        (self.bytes - ((page as u64) << self.page_bits)).min(1 << self.page_bits)
    }

    /// The page with a byte, made if need be, and the byte's offset in it.
    fn page(&self, offset: u64) -> (&Page, u64) {
        let (number, offset) = self.page_of(offset);
        let make = || {
            let made = Page::new(self.page_bytes(number), self.zeros.load(Ordering::Relaxed));
            made.unwrap_or_else(|| handle_alloc_error(Layout::new::<[u8; 1 << PAGE_BITS]>()))
        };
        (self.pages[number].get_or_init(make), offset)
    }

    /// The pages of a range, made if need be: each with the offset in it, and the part of the range that it has.
    fn pages(&self, offset: u64, bytes: u64) -> impl Iterator<Item = (&Page, u64, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            (done < bytes).then(|| {
                let (page, at) = self.page(offset + done);
                let first = done;
                done += ((1 << self.page_bits) - at).min(bytes - done);
                (page, at, index(first)..index(done))
            })
        })
    }

    /// The first unwritten byte of a range of at most 16 bytes that crosses no multiple of 16.
    pub(super) fn first_unwritten(&self, offset: u64, bytes: u32) -> Option<u64> {
        let (page, at) = self.page(offset);
        let written = page.written.as_ref()?;
        let mask = ((1_u64 << bytes) - 1) << (at % 64);
        let missing = !written[index(at / 64)].load(Ordering::Relaxed) & mask;
        (missing != 0).then(|| offset / 64 * 64 + u64::from(missing.trailing_zeros()))
    }

    /// Marks a range like that of [`first_unwritten`](Self::first_unwritten) as written.
    pub(super) fn mark_written(&self, offset: u64, bytes: u32) {
        let (page, at) = self.page(offset);
        if let Some(written) = &page.written {
            let mask = ((1_u64 << bytes) - 1) << (at % 64);
            let word = &written[index(at / 64)];
            if word.load(Ordering::Relaxed) & mask != mask {
                word.fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    /// Up to 16 bytes that cross no multiple of 16 and start at an even one, as little-endian words.
    pub(super) fn fetch(&self, offset: u64, bytes: u32) -> [u32; 4] {
        let (Page { words, .. }, at) = self.page(offset);
        let word = index(at / 4);
        if bytes == 2 {
            return [words[word].load(Ordering::Relaxed) >> (at % 4 * 8) & 0xffff, 0, 0, 0];
        }
        let mut value = [0; 4];
        for (value, word) in value.iter_mut().zip(&words[word..]).take(bytes.div_ceil(4) as usize) {
            *value = word.load(Ordering::Relaxed);
        }
        value
    }

    /// Stores the low 2, 4, 8 or 16 bytes of `value`. The caller holds the lock of the line, so that
    /// no other thread changes the other half of a word in between.
    pub(super) fn deposit(&self, offset: u64, bytes: u32, value: [u32; 4]) {
        let (Page { words, .. }, at) = self.page(offset);
        let word = index(at / 4);
        if bytes == 2 {
            let shift = at % 4 * 8;
            let kept = words[word].load(Ordering::Relaxed) & !(0xffff << shift);
            words[word].store(kept | (value[0] & 0xffff) << shift, Ordering::Relaxed);
            return;
        }
        for (word, value) in words[word..].iter().zip(&value[..(bytes / 4) as usize]) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    /// Copies bytes to the host.
    fn read_bytes(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryError> {
        for (page, at, range) in self.pages(offset, to.len() as u64) {
            let missing = page.first_unwritten(at, range.len() as u64);
            if let Some(missing) = missing {
                let offset = offset + range.start as u64 + (missing - at);
                return Err(MemoryError::Unwritten { offset, region: self.region() });
            }
            page.read_bytes(at, &mut to[range]);
        }
        Ok(())
    }

    fn write_bytes(&self, offset: u64, from: &[u8]) {
        for (page, at, range) in self.pages(offset, from.len() as u64) {
            page.write_bytes(at, &from[range]);
        }
    }

    fn write_zeros(&self, offset: u64, bytes: u64) {
        if bytes < self.bytes {
            for (page, at, range) in self.pages(offset, bytes) {
                page.write_bytes(at, &vec![0; range.len()]);
            }
            return;
        }
        self.zeros.store(true, Ordering::Relaxed);
        for page in self.pages.iter().filter_map(OnceLock::get) {
            // Nothing is stored to pages of the machine that hold zeros: it need not supply them.
            let others = page.words.iter().filter(|word| word.load(Ordering::Relaxed) != 0);
            others.for_each(|word| word.store(0, Ordering::Relaxed));
            let written = page.written.iter().flatten();
            written.for_each(|bits| bits.store(u64::MAX, Ordering::Relaxed));
        }
    }
}

impl Page {
    /// So many bytes, all written as zeros or none written; none if this machine has no room for them.
    fn new(bytes: u64, zeros: bool) -> Option<Self> {
        // The system supplies large slices without anybody writing them.
        let words = try_zeroed_slice_box(index(bytes.div_ceil(4))).ok()?;
        let written = match zeros {
            true => None,
            false => Some(try_zeroed_slice_box(index(bytes.div_ceil(64))).ok()?),
        };
        Some(Self { words, written })
    }

    fn first_unwritten(&self, offset: u64, bytes: u64) -> Option<u64> {
        let written = self.written.as_ref()?;
        let is_written = |i: u64| written[index(i / 64)].load(Ordering::Relaxed) >> (i % 64) & 1 == 1;
        (offset..offset + bytes).find(|&i| !is_written(i))
    }

    fn read_bytes(&self, offset: u64, to: &mut [u8]) {
        let word = |i: u64| self.words[index(i / 4)].load(Ordering::Relaxed).to_le_bytes();
        if offset.is_multiple_of(4) {
            for (i, bytes) in (offset..).step_by(4).zip(to.chunks_mut(4)) {
                bytes.copy_from_slice(&word(i)[..bytes.len()]);
            }
        } else {
            for (i, byte) in (offset..).zip(to) {
                *byte = word(i)[index(i % 4)];
            }
        }
    }

    fn write_bytes(&self, offset: u64, from: &[u8]) {
        if let Some(written) = &self.written {
            for i in offset..offset + from.len() as u64 {
                written[index(i / 64)].fetch_or(1 << (i % 64), Ordering::Relaxed);
            }
        }
        let (words, rest) = if offset.is_multiple_of(4) { from.as_chunks::<4>() } else { (&[][..], from) };
        let first = index(offset / 4);
        for (word, bytes) in self.words[first..].iter().zip(words) {
            word.store(u32::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        for (i, byte) in (offset + 4 * words.len() as u64..).zip(rest) {
            let word = &self.words[index(i / 4)];
            let mut bytes = word.load(Ordering::Relaxed).to_le_bytes();
            bytes[index(i % 4)] = *byte;
            word.store(u32::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }
}

/// An offset inside an allocation as an index: the allocation is in this machine's memory.
#[expect(clippy::cast_possible_truncation, reason = "offsets are below a length that was a usize")]
pub(super) const fn index(offset: u64) -> usize {
    offset as usize
}

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

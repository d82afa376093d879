//! One allocation of emulated memory, and which of its bytes were written.

use std::alloc::{Layout, handle_alloc_error};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytemuck::try_zeroed_slice_box;

use crate::emulator::memory::MemoryError;
use crate::emulator::violation::Region;

/// Allocations of more bytes than this are made page by page, as they are touched: so matrices can be emulated whose
/// elements lie beyond 2³² and that no machine could hold. Where there is no room for a page, the process ends.
const LARGEST_WHOLE: u64 = 1 << 30;
/// Bits of an offset in a page, which an allocation that is made at once has one of.
const PAGE_BITS: u32 = 20;

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
    pub(super) label: Mutex<Option<Arc<str>>>,
    page_bits: u32,
    /// Those that something touched.
    pages: Box<[OnceLock<Page>]>,
    /// Whether pages that nothing touched hold zeros, instead of nothing at all.
    zeros: AtomicBool,
}

impl Allocation {
    /// None if this machine has no room for it.
    pub(super) fn new(base: u64, bytes: u64, zeros: bool) -> Option<Self> {
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
    pub(super) fn read_bytes(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryError> {
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

    pub(super) fn write_bytes(&self, offset: u64, from: &[u8]) {
        for (page, at, range) in self.pages(offset, from.len() as u64) {
            page.write_bytes(at, &from[range]);
        }
    }

    pub(super) fn write_zeros(&self, offset: u64, bytes: u64) {
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

//! A block's shared memory: its bytes, and for each granule who wrote and who read it.

use crate::emulator::access::{Access, GRANULE, Pair};
use crate::emulator::violation::{Checked, Conflict, Violation};

/// Bytes per [`Slot`]: the widest access, and the alignment of `cp.async`.
const SLOT: u32 = 16;
const GRANULES: usize = (SLOT / GRANULE) as usize;

/// What happened to one granule in this block.
#[derive(Clone, Copy)]
struct History {
    write: Option<Access>,
    reads: Pair,
}

impl History {
    const EMPTY: Self = Self { write: None, reads: Pair::EMPTY };
}

/// The histories of 16 bytes. As long as only 16-byte accesses touch them they share the first one;
/// a narrower access gives each granule its own copy; the next 16-byte write joins them again.
#[derive(Clone)]
struct Slot {
    /// The block that the histories are about. Another block's count as empty.
    serial: u64,
    joined: bool,
    histories: [History; GRANULES],
}

impl Slot {
    const EMPTY: Self = Self { serial: 0, joined: true, histories: [History::EMPTY; GRANULES] };

    /// The histories of the granules that `bytes` bytes at `within` touch.
    fn histories(&mut self, serial: u64, within: u32, bytes: u32) -> &mut [History] {
        if self.serial != serial {
            self.serial = serial;
            self.joined = true;
            self.histories[0] = History::EMPTY;
        }
        if bytes == SLOT {
            let distinct = if self.joined { 1 } else { GRANULES };
            return &mut self.histories[..distinct];
        }
        if self.joined {
            self.joined = false;
            self.histories = [self.histories[0]; GRANULES];
        }
        let first = (within / GRANULE) as usize;
        &mut self.histories[first..first + (bytes / GRANULE) as usize]
    }
}

/// The shared memory of the block that runs, reused from block to block.
#[derive(Default)]
pub(super) struct SharedMemory {
    bytes: u32,
    grid_x: u32,
    serial: u64,
    words: Vec<u32>,
    slots: Vec<Slot>,
    /// The copy under way to each slot.
    pending: Vec<Option<Access>>,
    /// For each slot the products of a warpgroup under way that read it: the last of them, and how many.
    lent: Vec<Option<(Access, u32)>>,
}

/// Fences between stores to shared memory and a product of a warpgroup.
pub(super) struct Fences<'a> {
    /// How often a thread has fenced its stores off.
    pub(super) of_thread: &'a dyn Fn(u16) -> u8,
    /// The phase of the block in or after which all threads of the warpgroup have fenced, if they have: what was stored
    /// in an earlier one is fenced off.
    pub(super) by_all: Option<u32>,
}

impl SharedMemory {
    /// Forgets the last block. `serial` is unlike that of any block before, and not 0.
    pub(super) fn begin_block(&mut self, bytes: u32, grid_x: u32, serial: u64) {
        let slots = bytes.div_ceil(SLOT) as usize;
        self.bytes = bytes;
        self.grid_x = grid_x;
        self.serial = serial;
        // What is left in `words` and `slots` cannot be seen: it counts as unwritten.
        self.words.resize(slots * 4, 0);
        self.slots.resize(slots, Slot::EMPTY);
        self.pending.clear();
        self.pending.resize(slots, None);
        self.lent.clear();
        self.lent.resize(slots, None);
    }

    fn check_place(&self, who: &Access, offset: u32, bytes: u32) -> Checked<()> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            let by = who.spot(self.grid_x);
            let shared_bytes = self.bytes;
            return Err(Box::new(Violation::SharedOutOfBounds { by, bytes, offset, shared_bytes }));
        }
        if !offset.is_multiple_of(bytes) {
            let by = who.spot(self.grid_x);
            return Err(Box::new(Violation::SharedMisaligned { by, alignment: bytes, offset }));
        }
        Ok(())
    }

    fn race(&self, earlier: &Access, later: &Access, offset: u32) -> Box<Violation> {
        let conflict = Conflict::between(earlier.spot(self.grid_x), later.spot(self.grid_x));
        Box::new(Violation::SharedRace { conflict: Box::new(conflict), offset })
    }

    /// Reads 2, 4, 8 or 16 bytes into the low bytes of the result.
    pub(super) fn read(&mut self, who: &Access, offset: u32, bytes: u32) -> Checked<[u32; 4]> {
        self.check_place(who, offset, bytes)?;
        let slot = (offset / SLOT) as usize;
        if let Some(copy) = self.pending[slot] {
            let [copy, by] = [&copy, who].map(|access| Box::new(access.spot(self.grid_x)));
            return Err(Box::new(Violation::CopyNotWaited { copy, by, offset }));
        }
        let mut failure = None;
        let histories = self.slots[slot].histories(self.serial, offset % SLOT, bytes);
        for (i, History { write, reads }) in (0..).zip(histories.iter_mut()) {
            if write.is_none_or(|write| who.is_unordered_with(&write)) {
                failure = Some((i, *write));
                break;
            }
            reads.remember(*who);
        }
        match failure {
            None => Ok(self.fetch(offset, bytes)),
            Some((i, None)) => {
                let by = who.spot(self.grid_x);
                Err(Box::new(Violation::SharedUnwritten { by, offset: offset + i * GRANULE }))
            }
            Some((i, Some(write))) => Err(self.race(&write, who, offset + i * GRANULE)),
        }
    }

    /// Reads 16 bytes of an operand of a warpgroup's product, through the copy engine's proxy.
    pub(super) fn read_operand(
        &mut self,
        who: &Access,
        offset: u32,
        fences: &Fences<'_>,
    ) -> Checked<[u32; 4]> {
        let value = self.read(who, offset, SLOT)?;
        let grid_x = self.grid_x;
        let histories = self.slots[(offset / SLOT) as usize].histories(self.serial, 0, SLOT);
        for (i, write) in (0..).zip(histories.iter_mut().map(|history| &mut history.write)) {
            let Some(write) = write.as_mut().filter(|write| write.operation.is_generic()) else { continue };
            // Threads of other warpgroups may not have, so the write is not marked.
            if fences.by_all.is_some_and(|phase| phase > write.block_phase) {
                continue;
            }
            if write.fences == (fences.of_thread)(write.thread) {
                let [write, by] = [&*write, who].map(|access| Box::new(access.spot(grid_x)));
                return Err(Box::new(Violation::NotFenced { write, by, offset: offset + i * GRANULE }));
            }
            write.fences = Access::FENCED;
        }
        Ok(value)
    }

    /// Notes that a product reads these 16 bytes each until they are [returned](Self::take_back).
    pub(super) fn lend(&mut self, places: &[u32], product: &Access) {
        for &offset in places {
            let lent = &mut self.lent[(offset / SLOT) as usize];
            *lent = Some((*product, lent.map_or(1, |(_, count)| count + 1)));
        }
    }

    /// Ends a product's reading: it may have gone on until now, in the phase of who has waited for it last.
    pub(super) fn take_back(&mut self, places: &[u32], now: &Access) {
        for &offset in places {
            let slot = (offset / SLOT) as usize;
            let Some((product, count)) = self.lent[slot] else { continue };
            self.lent[slot] = (count > 1).then(|| (product, count - 1));
            let read = Access { operation: product.operation, location: product.location, ..*now };
            for history in self.slots[slot].histories(self.serial, 0, SLOT) {
                history.reads.remember(read);
            }
        }
    }

    /// Writes the low 2, 4, 8 or 16 bytes of `value`.
    pub(super) fn write(&mut self, who: &Access, offset: u32, bytes: u32, value: [u32; 4]) -> Checked<()> {
        self.check_write(who, offset, bytes)?;
        self.record_write(who, offset, bytes);
        self.deposit(offset, bytes, value);
        Ok(())
    }

    /// Marks 16 bytes as the destination of a copy. The copy may write them at any time from here to
    /// its wait, so from here on it conflicts like a write.
    pub(super) fn begin_copy(&mut self, who: &Access, offset: u32) -> Checked<()> {
        self.check_write(who, offset, SLOT)?;
        self.pending[(offset / SLOT) as usize] = Some(*who);
        Ok(())
    }

    /// Delivers a copy: a write by the thread that waits, in the phase in which it waits.
    pub(super) fn finish_copy(&mut self, who: &Access, offset: u32, value: [u32; 4]) {
        self.pending[(offset / SLOT) as usize] = None;
        self.record_write(who, offset, SLOT);
        self.deposit(offset, SLOT, value);
    }

    fn check_write(&mut self, who: &Access, offset: u32, bytes: u32) -> Checked<()> {
        self.check_place(who, offset, bytes)?;
        let slot = (offset / SLOT) as usize;
        if let Some(copy) = self.pending[slot] {
            let [copy, by] = [&copy, who].map(|access| Box::new(access.spot(self.grid_x)));
            return Err(Box::new(Violation::CopyOverwritten { copy, by, offset }));
        }
        if let Some((product, _)) = self.lent[slot] {
            let [product, by] = [&product, who].map(|access| Box::new(access.spot(self.grid_x)));
            return Err(Box::new(Violation::OperandOverwritten { product, by, offset }));
        }
        let histories = self.slots[slot].histories(self.serial, offset % SLOT, bytes);
        let earlier = (0..).zip(histories.iter()).find_map(|(i, history)| {
            let write = history.write.as_ref().filter(|write| who.is_unordered_with(write));
            write.or_else(|| history.reads.unordered_with(who)).map(|earlier| (i, *earlier))
        });
        match earlier {
            None => Ok(()),
            Some((i, earlier)) => Err(self.race(&earlier, who, offset + i * GRANULE)),
        }
    }

    fn record_write(&mut self, who: &Access, offset: u32, bytes: u32) {
        let slot = &mut self.slots[(offset / SLOT) as usize];
        slot.joined |= bytes == SLOT;
        // What the write is ordered after need not be remembered: whatever is unordered with it is
        // unordered with the write.
        slot.histories(self.serial, offset % SLOT, bytes)
            .fill(History { write: Some(*who), reads: Pair::EMPTY });
    }

    fn fetch(&self, offset: u32, bytes: u32) -> [u32; 4] {
        let word = (offset / 4) as usize;
        if bytes == 2 {
            return [self.words[word] >> (offset % 4 * 8) & 0xffff, 0, 0, 0];
        }
        let mut value = [0; 4];
        for (value, word) in value[..(bytes / 4) as usize].iter_mut().zip(&self.words[word..]) {
            *value = *word;
        }
        value
    }

    fn deposit(&mut self, offset: u32, bytes: u32, value: [u32; 4]) {
        let word = (offset / 4) as usize;
        if bytes == 2 {
            let shift = offset % 4 * 8;
            self.words[word] = self.words[word] & !(0xffff << shift) | (value[0] & 0xffff) << shift;
            return;
        }
        for (word, value) in self.words[word..].iter_mut().zip(&value[..(bytes / 4) as usize]) {
            *word = *value;
        }
    }
}

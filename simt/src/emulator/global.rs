//! Global memory as one launch sees it: the live allocations, and for each granule that the launch
//! touched who wrote it, who read it and who updated it atomically.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::emulator::access::{Access, GRANULE, Pair};
use crate::emulator::allocation::{Allocation, index};
use crate::emulator::memory::{Memory, SPACING};
use crate::emulator::violation::{Checked, Conflict, Violation};

/// Bytes under one lock.
const LINE: u64 = 128;
/// Granules of a line: one bit each in a `u64`.
const GRANULES: usize = 64;

/// The accesses to one line. The planes appear when first needed: most lines of most launches are
/// only read through the read-only path, or only written once.
#[derive(Default)]
struct Planes {
    readonly: Option<Box<[Option<Access>; GRANULES]>>,
    writes: Option<Box<[Option<Access>; GRANULES]>>,
    reads: Option<Box<[Pair; GRANULES]>>,
    atomics: Option<Box<[Pair; GRANULES]>>,
}

/// An allocation and its shadow in this launch.
struct Shadowed {
    allocation: Arc<Allocation>,
    /// One for each page of the allocation.
    pages: OnceLock<Box<[Shadow]>>,
}

/// The accesses to a page, one element of each slice a line.
#[derive(Default)]
struct Shadow {
    lines: OnceLock<Box<[Mutex<Planes>]>>,
    /// The granules that `Planes::readonly` knows, to be asked without the lock: a write to one of
    /// them, before or after, is reported by whoever comes second.
    seen_readonly: OnceLock<Box<[AtomicU64]>>,
}

impl Shadowed {
    /// The shadow of a byte's page, the lines of that page, and the byte's line.
    fn line(&self, offset: u64) -> (&Shadow, usize, usize) {
        let make = || (0..self.allocation.page_count()).map(|_| Shadow::default()).collect();
        let (page, offset) = self.allocation.page_of(offset);
        let lines = index(self.allocation.page_bytes(page).div_ceil(LINE));
        (&self.pages.get_or_init(make)[page], lines, index(offset / LINE))
    }

    fn lock(&self, offset: u64) -> MutexGuard<'_, Planes> {
        let (shadow, lines, line) = self.line(offset);
        let lines = shadow.lines.get_or_init(|| (0..lines).map(|_| Mutex::default()).collect());
        lines[line].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen_readonly(&self, offset: u64) -> &AtomicU64 {
        let (shadow, lines, line) = self.line(offset);
        &shadow.seen_readonly.get_or_init(|| bytemuck::zeroed_slice_box(lines))[line]
    }
}

/// How an access takes part in races.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Readonly,
    Read,
    Write,
    Atomic,
}

/// Where the last accesses of a block went, so that most need no search. One entry for each of 16
/// neighbouring allocations.
pub(super) type Recent = [Cell<usize>; 16];

/// The global memory of one launch.
pub(super) struct GlobalView<'a> {
    memory: &'a Memory,
    grid_x: u32,
    /// Allocations whose accesses are watched, sorted by base.
    shadowed: Vec<Shadowed>,
}

/// An access that is inside an allocation and aligned.
struct Place<'a> {
    shadowed: &'a Shadowed,
    offset: u64,
    bytes: u32,
}

impl<'a> GlobalView<'a> {
    pub(super) fn new(memory: &'a Memory, grid_x: u32) -> Self {
        let shadowed = |allocation| Shadowed { allocation, pages: OnceLock::new() };
        Self { memory, grid_x, shadowed: memory.allocations().into_iter().map(shadowed).collect() }
    }

    fn place(
        &self,
        who: &Access,
        recent: &Recent,
        address: u64,
        (bytes, alignment): (u32, u32),
    ) -> Checked<Place<'_>> {
        let holds = |shadowed: &&Shadowed| {
            let Allocation { base, bytes: length, .. } = *shadowed.allocation;
            address >= base && address - base < length && length - (address - base) >= u64::from(bytes)
        };
        let guess = &recent[index(address / SPACING % recent.len() as u64)];
        let shadowed = self.shadowed.get(guess.get()).filter(holds).or_else(|| {
            let after = self.shadowed.partition_point(|shadowed| shadowed.allocation.base <= address);
            guess.set(after.checked_sub(1)?);
            self.shadowed.get(guess.get()).filter(holds)
        });
        let Some(shadowed) = shadowed else {
            let place = Box::new(self.memory.outside(address));
            let by = who.spot(self.grid_x);
            return Err(Box::new(Violation::GlobalOutOfBounds { by, bytes, address, place }));
        };
        if !address.is_multiple_of(u64::from(alignment)) {
            let by = who.spot(self.grid_x);
            let region = Box::new(shadowed.allocation.region());
            return Err(Box::new(Violation::GlobalMisaligned { by, alignment, address, region }));
        }
        Ok(Place { shadowed, offset: address - shadowed.allocation.base, bytes })
    }

    fn check_written(&self, who: &Access, place: &Place<'_>) -> Checked<()> {
        let allocation = &place.shadowed.allocation;
        match allocation.first_unwritten(place.offset, place.bytes) {
            None => Ok(()),
            Some(offset) => {
                let by = who.spot(self.grid_x);
                let region = Box::new(allocation.region());
                Err(Box::new(Violation::GlobalUnwritten { by, offset, region }))
            }
        }
    }

    fn check_race(&self, who: &Access, place: &Place<'_>, planes: &mut Planes, kind: Kind) -> Checked<()> {
        let first = index(place.offset % LINE / u64::from(GRANULE));
        let granules = first..first + place.bytes.div_ceil(GRANULE) as usize;
        for granule in granules.clone() {
            if let Some(earlier) = planes.conflict(who, granule, kind) {
                return Err(self.conflict(who, &earlier, place, (granule - first) as u64));
            }
        }
        for granule in granules {
            planes.remember(who, granule, kind);
        }
        Ok(())
    }

    #[cold]
    fn conflict(&self, who: &Access, earlier: &Earlier, place: &Place<'_>, granule: u64) -> Box<Violation> {
        let offset = place.offset + granule * u64::from(GRANULE);
        let region = Box::new(place.shadowed.allocation.region());
        let who = who.spot(self.grid_x);
        let spot = |access: &Access| access.spot(self.grid_x);
        Box::new(match earlier {
            Earlier::Unordered(access) => {
                let conflict = Box::new(Conflict::between(spot(access), who));
                Violation::GlobalRace { conflict, offset, region }
            }
            Earlier::ReadonlyRead(access) => {
                let (reader, writer) = (Box::new(spot(access)), Box::new(who));
                Violation::ReadonlyWritten { reader, writer, offset, region }
            }
            Earlier::Written(access) => {
                let (reader, writer) = (Box::new(who), Box::new(spot(access)));
                Violation::ReadonlyWritten { reader, writer, offset, region }
            }
        })
    }

    /// Loads 2, 4, 8 or 16 bytes that may have been written in this launch.
    pub(super) fn load(&self, who: &Access, recent: &Recent, address: u64, bytes: u32) -> Checked<[u32; 4]> {
        let place = self.place(who, recent, address, (bytes, bytes))?;
        self.check_written(who, &place)?;
        let mut planes = place.shadowed.lock(place.offset);
        self.check_race(who, &place, &mut planes, Kind::Read)?;
        Ok(place.shadowed.allocation.fetch(place.offset, bytes))
    }

    /// Loads up to 16 bytes that nothing writes in this launch. What the result has beyond `bytes` is
    /// not determined.
    pub(super) fn load_readonly(
        &self,
        who: &Access,
        recent: &Recent,
        address: u64,
        (bytes, alignment): (u32, u32),
    ) -> Checked<[u32; 4]> {
        let place = self.place(who, recent, address, (bytes, alignment))?;
        self.check_written(who, &place)?;
        let seen = place.shadowed.seen_readonly(place.offset);
        let first = place.offset % LINE / u64::from(GRANULE);
        let mask = ((1 << bytes.div_ceil(GRANULE)) - 1) << first;
        if seen.load(Ordering::Relaxed) & mask != mask {
            self.check_race(who, &place, &mut place.shadowed.lock(place.offset), Kind::Readonly)?;
            seen.fetch_or(mask, Ordering::Relaxed);
        }
        Ok(place.shadowed.allocation.fetch(place.offset, bytes))
    }

    /// Stores the low 2, 4, 8 or 16 bytes of `value`.
    pub(super) fn store(
        &self,
        who: &Access,
        recent: &Recent,
        address: u64,
        (bytes, value): (u32, [u32; 4]),
    ) -> Checked<()> {
        let place = self.place(who, recent, address, (bytes, bytes))?;
        let mut planes = place.shadowed.lock(place.offset);
        self.check_race(who, &place, &mut planes, Kind::Write)?;
        place.shadowed.allocation.deposit(place.offset, bytes, value);
        place.shadowed.allocation.mark_written(place.offset, bytes);
        Ok(())
    }

    /// Replaces 4 or 8 bytes by a function of them, and returns what they were. The line's lock makes
    /// it atomic.
    pub(super) fn update(
        &self,
        who: &Access,
        recent: &Recent,
        address: u64,
        (bytes, function): (u32, impl FnOnce([u32; 4]) -> [u32; 4]),
    ) -> Checked<[u32; 4]> {
        let place = self.place(who, recent, address, (bytes, bytes))?;
        self.check_written(who, &place)?;
        let mut planes = place.shadowed.lock(place.offset);
        self.check_race(who, &place, &mut planes, Kind::Atomic)?;
        let before = place.shadowed.allocation.fetch(place.offset, bytes);
        place.shadowed.allocation.deposit(place.offset, bytes, function(before));
        Ok(before)
    }
}

/// What an access conflicts with.
enum Earlier {
    Unordered(Access),
    ReadonlyRead(Access),
    Written(Access),
}

impl Planes {
    fn conflict(&self, who: &Access, granule: usize, kind: Kind) -> Option<Earlier> {
        let write = self.writes.as_ref().and_then(|plane| plane[granule]);
        let reads = self.reads.as_ref().map(|plane| &plane[granule]);
        let atomics = self.atomics.as_ref().map(|plane| &plane[granule]);
        if kind == Kind::Readonly {
            let update = || atomics.and_then(Pair::any).copied();
            return write.or_else(update).map(Earlier::Written);
        }
        if matches!(kind, Kind::Write | Kind::Atomic)
            && let Some(read) = self.readonly.as_ref().and_then(|plane| plane[granule])
        {
            return Some(Earlier::ReadonlyRead(read));
        }
        let unordered = |pair: Option<&Pair>| pair.and_then(|pair| pair.unordered_with(who)).copied();
        let write = write.filter(|write| who.is_unordered_with(write));
        let read = || if kind == Kind::Read { None } else { unordered(reads) };
        let update = || if kind == Kind::Atomic { None } else { unordered(atomics) };
        write.or_else(read).or_else(update).map(Earlier::Unordered)
    }

    fn remember(&mut self, who: &Access, granule: usize, kind: Kind) {
        match kind {
            Kind::Readonly => {
                self.readonly.get_or_insert_with(|| Box::new([None; GRANULES]))[granule].get_or_insert(*who);
            }
            Kind::Read => {
                self.reads.get_or_insert_with(|| Box::new([Pair::EMPTY; GRANULES]))[granule].remember(*who);
            }
            Kind::Atomic => {
                self.atomics.get_or_insert_with(|| Box::new([Pair::EMPTY; GRANULES]))[granule].remember(*who);
            }
            Kind::Write => {
                self.writes.get_or_insert_with(|| Box::new([None; GRANULES]))[granule] = Some(*who);
                // Everything before is ordered before this write, so the write stands for it.
                for plane in [&mut self.reads, &mut self.atomics].into_iter().flatten() {
                    plane[granule] = Pair::EMPTY;
                }
            }
        }
    }
}

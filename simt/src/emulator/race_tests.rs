//! The race detectors against one that keeps every access, on random programs.
//!
//! A program is a sequence of barriers and accesses, in the order in which they happen. The detectors
//! keep a constant number of accesses per granule; here it is shown that they miss nothing and invent
//! nothing, up to the first race, after which nothing is promised.

use std::panic::Location;

use crate::emulator::Memory;
use crate::emulator::access::Access;
use crate::emulator::global::{GlobalView, Recent};
use crate::emulator::schedule::SplitMix;
use crate::emulator::shared::SharedMemory;
use crate::emulator::spot::Operation;
use crate::emulator::violation::{Checked, Violation};

/// Bytes that programs work on.
const BYTES: u32 = 32;
/// Lanes of four warps, the last of a warpgroup of its own.
const THREADS: [u16; 9] = [0, 1, 2, 32, 33, 40, 95, 128, 130];

/// An access as the all-remembering detector keeps it.
#[derive(Clone, Copy)]
struct Kept {
    access: Access,
    bytes: (u32, u32),
}

fn is_read(operation: Operation) -> bool {
    matches!(operation, Operation::Load | Operation::LoadShared | Operation::LoadMatrixX4)
}

impl Kept {
    /// The definition of a race, in its plainest words.
    fn races_with(&self, later: &Self) -> bool {
        let (a, b) = (&self.access, &later.access);
        let overlap = self.bytes.0 < later.bytes.1 && later.bytes.0 < self.bytes.1;
        let harmless = is_read(a.operation) && is_read(b.operation)
            || a.operation == Operation::AtomicAddU32 && b.operation == Operation::AtomicAddU32;
        let same_block = a.block == b.block;
        let same_group = same_block && a.thread / 128 == b.thread / 128;
        let same_warp = same_block && a.thread / 32 == b.thread / 32;
        // A matrix load is by all lanes, so there is always one that is another thread.
        let warp_wide = [a, b].iter().any(|access| access.operation == Operation::LoadMatrixX4);
        let same_thread = same_block && a.thread == b.thread && !warp_wide;
        let block_barrier_between = same_block && a.block_phase < b.block_phase;
        let warp_barrier_between = same_warp && a.warp_phase < b.warp_phase;
        let group_of = |access: &Access| access.warp_phase / Access::OF_GROUP;
        let group_barrier_between = same_group && group_of(a) < group_of(b);
        let barrier_between = block_barrier_between || group_barrier_between || warp_barrier_between;
        overlap && !harmless && !same_thread && !barrier_between
    }
}

/// Runs random programs of `blocks` blocks and compares the verdicts on every access. `quiet` in 16
/// accesses are reads.
fn compare(
    blocks: u32,
    quiet: u32,
    operations: &[(Operation, u32)],
    mut detector: impl FnMut() -> Box<dyn FnMut(&Access, u32, u32) -> Checked<()>>,
) {
    let mut random = SplitMix::new(u64::from(blocks << 8 | quiet));
    let (mut races, mut longest) = (0, 0);
    for _ in 0..3000 {
        let mut detect = detector();
        let mut kept: Vec<Kept> = Vec::new();
        let mut block_phases = vec![1_u32; blocks as usize];
        let mut warp_phases = vec![[0_u32; 5]; blocks as usize];
        for _ in 0..80 {
            let block = random.below(blocks);
            let thread = THREADS[random.below(9) as usize];
            let (phase, warps) = (&mut block_phases[block as usize], &mut warp_phases[block as usize]);
            let of_group = if thread < 128 { 0..4 } else { 4..5 };
            match random.below(9) {
                0 | 1 => {
                    *phase += 1;
                    *warps = [0; 5];
                }
                2 | 3 => warps[usize::from(thread / 32)] += 1,
                4 => warps[of_group].iter_mut().for_each(|warp| *warp += Access::OF_GROUP),
                _ => {
                    let readers = operations.iter().filter(|(operation, _)| is_read(*operation));
                    let pick = random.below(16) < quiet;
                    let pool: Vec<_> = if pick { readers.collect() } else { operations.iter().collect() };
                    let (operation, width) = *pool[index(&mut random, pool.len())];
                    let offset = random.below(BYTES / width) * width;
                    let location = Location::caller();
                    let (block_phase, warp_phase) = (*phase, warps[usize::from(thread / 32)]);
                    let access =
                        Access { location, block, block_phase, warp_phase, thread, operation, fences: 0 };
                    let new = Kept { access, bytes: (offset, offset + width) };
                    let expected = kept.iter().any(|kept| kept.races_with(&new));
                    let verdict = detect(&access, offset, width);
                    let found = match verdict.map_err(|violation| *violation) {
                        Ok(()) => false,
                        Err(Violation::SharedRace { .. } | Violation::GlobalRace { .. }) => true,
                        Err(other) => panic!("{other}"),
                    };
                    assert_eq!(found, expected, "{access:?} at {offset} after {} accesses", kept.len());
                    longest = longest.max(kept.len());
                    if found {
                        races += 1;
                        break;
                    }
                    kept.push(new);
                }
            }
        }
    }
    assert!(races > 300, "{races} races");
    assert!(longest > 20, "no program went past {longest} accesses");
}

fn index(random: &mut SplitMix, len: usize) -> usize {
    random.below(u32::try_from(len).unwrap()) as usize
}

#[test]
fn shared_memory() {
    let operations = [
        (Operation::StoreShared, 2),
        (Operation::StoreShared, 4),
        (Operation::StoreShared, 16),
        (Operation::LoadShared, 2),
        (Operation::LoadShared, 8),
        (Operation::LoadShared, 16),
        (Operation::LoadMatrixX4, 16),
    ];
    for quiet in [0, 8, 13] {
        compare(1, quiet, &operations, || {
            let mut shared = SharedMemory::default();
            shared.begin_block(BYTES, 1, 1);
            let (location, operation) = (Location::caller(), Operation::StoreShared);
            let first =
                Access { location, block: 0, block_phase: 0, warp_phase: 0, thread: 0, operation, fences: 0 };
            for offset in [0, 16] {
                shared.write(&first, offset, 16, [0; 4]).unwrap();
            }
            Box::new(move |access, offset, width| {
                if is_read(access.operation) {
                    shared.read(access, offset, width).map(|_| ())
                } else {
                    shared.write(access, offset, width, [0; 4])
                }
            })
        });
    }
}

#[test]
fn global_memory() {
    let operations = [
        (Operation::Store, 2),
        (Operation::Store, 8),
        (Operation::AtomicAddU32, 4),
        (Operation::AtomicAddU32, 4),
        (Operation::AtomicAddU32, 4),
        (Operation::Load, 2),
        (Operation::Load, 4),
        (Operation::Load, 16),
    ];
    for (blocks, quiet) in [(1, 0), (1, 8), (1, 13), (2, 8), (3, 15)] {
        compare(blocks, quiet, &operations, || {
            let memory: &'static Memory = Box::leak(Box::default());
            let base = memory.alloc_zeroed::<u8>(BYTES as usize).address();
            let (view, recent) = (GlobalView::new(memory, 1), Recent::default());
            Box::new(move |access, offset, width| {
                let address = base + u64::from(offset);
                match access.operation {
                    Operation::Load => view.load(access, &recent, address, width).map(|_| ()),
                    Operation::Store => view.store(access, &recent, address, (width, [0; 4])),
                    _ => view.update(access, &recent, address, (width, |word| word)).map(|_| ()),
                }
            })
        });
    }
}

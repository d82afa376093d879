//! A tensor of three modes that is on the GPU already as a list of coordinates: checked, and its fibers laid out.
//!
//! ```text
//! coordinates --ReadCoo3-->                               the same in 32 bits, and in a record the first wrong one
//! entries sorted by root, fiber and leaf --MarkPaths-->   where roots, fibers and entries begin; how many there are
//! sums of the marks --ListLevels-->                       roots and fibers
//! values --SumEntries (csr)-->                            entries, those of one place added up
//! roots and fibers --SliceOffsets-->                      where each slice begins, those without entries too
//! ```
//!
//! The arrays are those of the host's way from `Coo3` to `Csf3`, byte for byte; what is counted is a sum or a maximum
//! of integers, so that nothing depends on the order in which threads run.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::kernel::Kernel;
use crate::variant::Variant;

/// Threads of a block of all kernels here.
const THREADS: u32 = 256;

/// What is wrong with a list of coordinates, and what it comes to. Made of zeros, and added to by every warp.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Coo3Record {
    /// 0, or `2⁶⁴ − 1 − (4·entry + mode)` of the first entry that has a coordinate out of range, and of its first mode
    /// that has.
    pub wrong: u64,
    /// Roots, fibers and entries of different places.
    pub levels: [u32; 3],
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl Coo3Record {
    /// The first entry that has a coordinate out of range, and its mode.
    #[must_use]
    pub const fn first_wrong(&self) -> Option<(u64, u64)> {
        let key = u64::MAX - self.wrong;
        if self.wrong == 0 { None } else { Some((key >> 2, key & 3)) }
    }
}

/// Arguments of [`ReadCoo3`].
///
/// # Obligations
/// - each of `coordinates` has `entries` elements, of 8 bytes where the bit of its mode in `wide` is set, of 4
///   otherwise; any content;
/// - each of `narrowed` has as many, or is null, and nothing overlaps it;
/// - `entries` is at most [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS); `record` was zeroed.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ReadCoo3Params {
    /// Coordinates of the entries in each mode.
    pub coordinates: [GlobalPtr<u32>; 3],
    /// The same in 32 bits; null where that is not wanted.
    pub narrowed: [GlobalPtr<u32>; 3],
    /// Where the first wrong entry is noted.
    pub record: GlobalPtr<Coo3Record>,
    /// What the coordinates of each mode are below.
    pub dims: [u32; 3],
    /// Which modes have coordinates of 8 bytes: bit `m` for mode `m`.
    pub wide: u32,
    /// Entries of the list.
    pub entries: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Checks every coordinate and brings it to 32 bits: a thread for each entry.
pub struct ReadCoo3;

impl Kernel for ReadCoo3 {
    type Params = ReadCoo3Params;
    const FILE: &'static str = "tensors";
    const VARIANT: Variant = Variant::ReadCoo3;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ReadCoo3Params) {
        let entry = s.block_idx() * THREADS + s.thread_idx();
        let mut wrong = 0;
        // SAFETY: the obligations of the params; each entry is one thread's, and all lanes of a warp come to the vote.
        unsafe {
            let mut mode = 3;
            while entry < p.entries && mode > 0 {
                mode -= 1;
                let from = p.coordinates[mode];
                let coordinate = match p.wide >> mode & 1 {
                    0 => u64::from(s.load_readonly(from.at(entry))),
                    _ => s.load_readonly(from.cast::<u64>().at(entry)),
                };
                if p.narrowed[mode] != GlobalPtr::NULL {
                    s.store(p.narrowed[mode].at(entry), coordinate as u32);
                }
                if coordinate >= u64::from(p.dims[mode]) {
                    wrong = u64::MAX - (u64::from(entry) << 2 | mode as u64);
                }
            }
            // Lanes have ascending entries, so that the first one speaks for its warp.
            let lanes = s.ballot(wrong != 0);
            if wrong != 0 && lanes & ((1 << s.lane()) - 1) == 0 {
                s.reduce_max_u64(p.record.cast(), wrong);
            }
        }
    }
}

/// Arguments of [`MarkPaths`] and [`ListLevels`].
///
/// # Obligations
/// - `order` has `entries` elements below their number, `roots` has `entries`, in that order; `fibers` and `leaves`
///   have `entries`, in the list's own;
/// - each of `marks` has `entries` elements and nothing overlaps it; for [`ListLevels`], those of roots and fibers are
///   the sums of what [`MarkPaths`] stored, before each place and behind the last, so that they have one element more;
/// - for [`ListLevels`], `root_indices` has an element for each root, `root_offsets` one more, `fiber_indices` has one
///   for each fiber, `fiber_begins` one more, and nothing overlaps them;
/// - `entries` is below [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS); `record` was zeroed by something before.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct LevelsParams {
    /// Which entry of the list comes at each place.
    pub order: GlobalPtr<u32>,
    /// Coordinate of each in the mode of the roots, in that order.
    pub roots: GlobalPtr<u32>,
    /// Coordinate of each entry in the mode of the fibers, in the list's own order.
    pub fibers: GlobalPtr<u32>,
    /// The same in the mode of the leaves.
    pub leaves: GlobalPtr<u32>,
    /// 1 where a root, a fiber and an entry of another place begin, else 0.
    pub marks: [GlobalPtr<u32>; 3],
    /// What the numbers of them are added to.
    pub record: GlobalPtr<Coo3Record>,
    /// Index of each root.
    pub root_indices: GlobalPtr<u32>,
    /// The first fiber of each root, and their number.
    pub root_offsets: GlobalPtr<u64>,
    /// Index of each fiber.
    pub fiber_indices: GlobalPtr<u32>,
    /// The place at which each fiber begins, and the number of places.
    pub fiber_begins: GlobalPtr<u32>,
    /// Entries of the list.
    pub entries: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Where [`Coo3Record::levels`] are in a record, in bytes.
const LEVELS_AT: u64 = 8;

/// Marks the places whose path differs from that of the place before, level by level: a thread for each.
pub struct MarkPaths;

impl Kernel for MarkPaths {
    type Params = LevelsParams;
    const FILE: &'static str = "tensors";
    const VARIANT: Variant = Variant::MarkPaths;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &LevelsParams) {
        let at = s.block_idx() * THREADS + s.thread_idx();
        // SAFETY: the obligations of the params; entries are read at `at` and before, all lanes of a warp come to the
        // votes, and the record is added to atomically.
        unsafe {
            let mut begins = [at < p.entries; 3];
            if at > 0 && at < p.entries {
                let (entry, before) = (s.load_readonly(p.order.at(at)), s.load_readonly(p.order.at(at - 1)));
                let differ = |of_level: GlobalPtr<u32>, entry, before| {
                    s.load_readonly(of_level.at(entry)) != s.load_readonly(of_level.at(before))
                };
                begins[0] = differ(p.roots, at, at - 1);
                begins[1] = begins[0] || differ(p.fibers, entry, before);
                begins[2] = begins[1] || differ(p.leaves, entry, before);
            }
            let counts = p.record.byte_add(LEVELS_AT).cast::<u32>();
            let mut level = 0;
            while level < 3 {
                if at < p.entries {
                    s.store(p.marks[level].at(at), u32::from(begins[level]));
                }
                let count = s.ballot(begins[level]).count_ones();
                if s.lane() == 0 && count > 0 {
                    s.atomic_add_u32(counts.at(level as u32), count);
                }
                level += 1;
            }
        }
    }
}

/// Writes roots and fibers, and where they begin: a thread for each place, and one for the end.
pub struct ListLevels;

impl Kernel for ListLevels {
    type Params = LevelsParams;
    const FILE: &'static str = "tensors";
    const VARIANT: Variant = Variant::ListLevels;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &LevelsParams) {
        let at = s.block_idx() * THREADS + s.thread_idx();
        if at > p.entries {
            return; // there is no collective
        }
        // SAFETY: the obligations of the params; sums are read up to `entries`, and each root and fiber is one
        // thread's.
        unsafe {
            let [roots, fibers, _] = p.marks;
            let (root, fiber) = (s.load_readonly(roots.at(at)), s.load_readonly(fibers.at(at)));
            let is_end = at == p.entries;
            let begins = |sums: GlobalPtr<u32>, before| is_end || s.load_readonly(sums.at(at + 1)) != before;
            if begins(fibers, fiber) {
                s.store(p.fiber_begins.at(fiber), at);
            }
            if begins(roots, root) {
                s.store(p.root_offsets.at(root), u64::from(fiber));
            }
            if !is_end && begins(fibers, fiber) {
                let entry = s.load_readonly(p.order.at(at));
                s.store(p.fiber_indices.at(fiber), s.load_readonly(p.fibers.at(entry)));
            }
            if !is_end && begins(roots, root) {
                s.store(p.root_indices.at(root), s.load_readonly(p.roots.at(at)));
            }
        }
    }
}

/// Arguments of [`SliceOffsets`].
///
/// # Obligations
/// - `root_indices` has `roots` elements, which ascend, `root_offsets` has one more, none above the number of fibers,
///   and `fiber_offsets` has one more than there are fibers;
/// - `out` has `slices + 1` elements, which nothing overlaps; `roots` and `slices` are below
///   [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS).
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SliceOffsetsParams {
    /// Index of each root.
    pub root_indices: GlobalPtr<u32>,
    /// The first fiber of each root, and the number of fibers.
    pub root_offsets: GlobalPtr<u64>,
    /// The first entry of each fiber, and the number of entries.
    pub fiber_offsets: GlobalPtr<u32>,
    /// The first entry of each slice, and the number of entries.
    pub out: GlobalPtr<u32>,
    /// How many slices have entries.
    pub roots: u32,
    /// Slices, those without entries too.
    pub slices: u32,
}

/// Where the entries of every slice begin: a thread for each, which looks for the first root from there on.
pub struct SliceOffsets;

impl Kernel for SliceOffsets {
    type Params = SliceOffsetsParams;
    const FILE: &'static str = "tensors";
    const VARIANT: Variant = Variant::SliceOffsets;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SliceOffsetsParams) {
        let slice = s.block_idx() * THREADS + s.thread_idx();
        if slice > p.slices {
            return; // there is no collective
        }
        let (mut low, mut high) = (0, p.roots);
        // SAFETY: the obligations of the params; `middle < roots`, `low ≤ roots`.
        unsafe {
            while low < high {
                let middle = low + (high - low) / 2;
                match s.load_readonly(p.root_indices.at(middle)) < slice {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            let fiber = s.load_readonly(p.root_offsets.at(low));
            s.store(p.out.at(slice), s.load_readonly(p.fiber_offsets.at_wide(fiber)));
        }
    }
}

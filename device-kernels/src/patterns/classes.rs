//! Rows by how long a softmax works on them: a stable sort by a few classes.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::THREADS;
use crate::kernel::Kernel;
use crate::row_softmax::{MOST_SHORT, SHORT_STEP};
use crate::variant::Variant;

/// Successive rows that a thread of a block takes, the block's threads side by side.
const EACH: u32 = 4;
/// Rows of a block.
pub const CLASS_ROWS: u32 = THREADS * EACH;
/// Classes of rows with entries: long ones, and then short ones by falling steps.
pub const CLASSES: u32 = 1 + MOST_SHORT / SHORT_STEP;
/// Of a row without entries, or none.
const NO_CLASS: u32 = CLASSES;
const WARPS: u32 = THREADS / WARP;

/// Arguments of [`CountClasses`] and [`PlaceClasses`].
///
/// # Obligations
/// - `row_offsets` has `rows + 1` ascending elements; `rows ≤` [`MOST_ITEMS`](crate::preprocess::MOST_ITEMS);
/// - with `b` blocks of [`CLASS_ROWS`] rows, `places` has `b·`[`CLASSES`] elements and one more; for [`PlaceClasses`]
///   they are the exclusive sums of what [`CountClasses`] wrote;
/// - `long_rows` has an element for each row of more than [`MOST_SHORT`] entries, of which there are `long_count`, and
///   `short_rows` for each other row that has entries.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ClassesParams {
    /// First entry of each row, and the end.
    pub row_offsets: GlobalPtr<u32>,
    /// Rows of each class and block, class after class; then those before.
    pub places: GlobalPtr<u32>,
    /// First entry and end of each long row, in the order of the matrix.
    pub long_rows: GlobalPtr<[u32; 2]>,
    /// First entry and end of each short row, by falling steps, else in the order of the matrix.
    pub short_rows: GlobalPtr<[u32; 2]>,
    /// Rows of the matrix.
    pub rows: u32,
    /// Long rows of the matrix.
    pub long_count: u32,
}

/// First entry, end and class of a row, which may be none.
#[inline(always)]
unsafe fn row_at<S: Simt>(s: &S, p: &ClassesParams, i: u32) -> ([u32; 2], u32) {
    let row = s.block_idx() * CLASS_ROWS + i * THREADS + s.thread_idx();
    if row >= p.rows {
        return ([0; 2], NO_CLASS);
    }
    // SAFETY: the caller has the obligations of the params; the row exists.
    let (begin, end) =
        unsafe { (s.load_readonly(p.row_offsets.at(row)), s.load_readonly(p.row_offsets.at(row + 1))) };
    let length = end - begin;
    let class = if length == 0 {
        NO_CLASS
    } else if length > MOST_SHORT {
        0
    } else {
        CLASSES - length.div_ceil(SHORT_STEP)
    };
    ([begin, end], class)
}

/// The lanes of the warp whose row is of the same class; and of lane `i <` [`CLASSES`] how many are of class `i`.
///
/// # Safety
/// The full warp.
#[inline(always)]
unsafe fn vote<S: Simt>(s: &S, class: u32) -> (u32, u32) {
    let (mut votes, mut of_lane) = (0, 0);
    let mut i = 0;
    while i < CLASSES {
        // SAFETY: the caller's promise.
        let of_class = unsafe { s.ballot(class == i) };
        votes = if class == i { of_class } else { votes };
        of_lane = if s.lane() == i { of_class.count_ones() } else { of_lane };
        i += 1;
    }
    (votes, of_lane)
}

/// Rows of each class in a block.
pub struct CountClasses;

impl Kernel for CountClasses {
    type Params = ClassesParams;
    const FILE: &'static str = "patterns";
    const VARIANT: Variant = Variant::CountClasses;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = 4 * WARPS * CLASSES;
    const UNITS_PER_BLOCK: u32 = CLASS_ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ClassesParams) {
        // SAFETY: the obligations of the params; all lanes come to the votes, all threads to the barrier, and each
        // number is written by one thread.
        unsafe {
            let mut of_lane = 0;
            let mut i = 0;
            while i < EACH {
                of_lane += vote(s, row_at(s, p, i).1).1;
                i += 1;
            }
            if s.lane() < CLASSES {
                s.store_shared(4 * (s.warp() * CLASSES + s.lane()), of_lane); // (WARPS, CLASSES)
            }
            s.sync_block(); // RAW: counts of warps written -> added
            if s.thread_idx() < CLASSES {
                let mut sum = 0;
                let mut warp = 0;
                while warp < WARPS {
                    sum += s.load_shared::<u32>(4 * (warp * CLASSES + s.thread_idx()));
                    warp += 1;
                }
                s.store(p.places.at(s.thread_idx() * p.rows.div_ceil(CLASS_ROWS) + s.block_idx()), sum);
            }
        }
    }
}

/// The rows of each class, in the order of the matrix.
pub struct PlaceClasses;

impl Kernel for PlaceClasses {
    type Params = ClassesParams;
    const FILE: &'static str = "patterns";
    const VARIANT: Variant = Variant::PlaceClasses;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = 4 * WARPS * CLASSES;
    const UNITS_PER_BLOCK: u32 = CLASS_ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ClassesParams) {
        let blocks = p.rows.div_ceil(CLASS_ROWS);
        // SAFETY: the obligations of the params; all lanes come to the votes, all threads to the barriers, and each row
        // has a place of its own.
        unsafe {
            // Of lane i: where the next row of class i goes.
            let mut next = if s.lane() < CLASSES {
                s.load_readonly(p.places.at(s.lane() * blocks + s.block_idx()))
            } else {
                0
            };
            let mut i = 0;
            while i < EACH {
                let (row, class) = row_at(s, p, i);
                let (votes, of_lane) = vote(s, class);
                s.sync_block(); // WAR: counts of an earlier round read -> written
                if s.lane() < CLASSES {
                    s.store_shared(4 * (s.warp() * CLASSES + s.lane()), of_lane); // (WARPS, CLASSES)
                }
                s.sync_block(); // RAW: counts of warps written -> added
                let (mut below, mut all) = (0, 0);
                let mut warp = 0;
                while warp < WARPS {
                    let lane = if s.lane() < CLASSES { s.lane() } else { 0 };
                    let of_warp: u32 = s.load_shared(4 * (warp * CLASSES + lane));
                    below += if warp < s.warp() { of_warp } else { 0 };
                    all += of_warp;
                    warp += 1;
                }
                let before = s.shuffle(next + below, class) + (votes & ((1 << s.lane()) - 1)).count_ones();
                if class == 0 {
                    s.store(p.long_rows.at(before), row);
                } else if class != NO_CLASS {
                    s.store(p.short_rows.at(before - p.long_count), row);
                }
                next += all;
                i += 1;
            }
        }
    }
}

//! The path of a matrix that is on the GPU already, cut into shares of blocks: what [`merge_path`] takes.
//!
//! A share is as many successive whole rows as have the steps of a block together, and where one ends the next begins:
//! which rows begin shares is known one after the other. So every row is asked where a share would end that began
//! there, a search in the offsets; rows are taken in chunks, in which the shares are followed from every row that one
//! may enter the chunk at; then a single thread goes from chunk to chunk.
//!
//! ```text
//! row_offsets --NextShares-->   next     the row behind a share from each row on
//!                               exits    where the shares leave a chunk, for each row that they enter it at
//! exits       --ChainShares-->  entered  where they do enter it
//! next        --MarkShares-->   marks    rows that begin shares; rows with more steps than a block
//! marks       --scan, ListShares-->      shares, and those rows, which the host cuts: they are few
//! shares      --FillSteps-->    steps    a word for each thread
//! ```

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt};

use crate::kernel::Kernel;
use crate::preprocess::item;
use crate::spmm::merge_path::{self, ENDS_BITS, ROWS_BITS};
use crate::variant::Variant;

/// Threads of a block of the kernels that have a thread for each row.
const THREADS: u32 = 256;
/// Rows of a chunk: no fewer than a share may have.
pub const CHUNK_ROWS: u32 = 1 << 13;
/// Marks, in shared memory, a row that begins a share.
const BEGINS: u32 = 1 << 31;

/// Arguments of all kernels here.
///
/// # Obligations
/// - `row_offsets` has `rows + 1` ascending elements, the last below 2³¹; `0 < rows < 2³¹`;
/// - `block_steps = steps_each ·` [`THREADS`](merge_path::THREADS)` ≤` [`CHUNK_ROWS`], `steps_each <` [`ENDS_BITS`];
/// - with `c` chunks of [`CHUNK_ROWS`] rows: `next` has `rows` elements, `exits` `c·block_steps`, `entered` `c`, and
///   `marks` `2·rows + 1`; each is what the kernel before it in the picture has written, `marks` for [`ListShares`] its
///   exclusive sums;
/// - for [`ListShares`], `long_rows` has room for the rows with more steps than a block, and `shares` for `long_count`
///   and those that begin; either may be null; for [`FillSteps`] `shares` has `share_count` of the latter behind
///   `long_count`, which that kernel wrote, `steps` has [`THREADS`](merge_path::THREADS) words for each, and the grid a
///   block.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct PathsParams {
    /// First entry of each row, and the end.
    pub row_offsets: GlobalPtr<u32>,
    /// The row behind a share that begins with each row.
    pub next: GlobalPtr<u32>,
    /// The first row behind a chunk that begins a share, for each of its first rows.
    pub exits: GlobalPtr<u32>,
    /// The first row of a chunk that begins a share.
    pub entered: GlobalPtr<u32>,
    /// Whether each row begins a share, and then whether it has more steps than a block.
    pub marks: GlobalPtr<u32>,
    /// `[row, first entry, end, 0]` of rows with more steps than a block.
    pub long_rows: GlobalPtr<[u32; 4]>,
    /// What [`MergePathParams`](merge_path::MergePathParams) have of the same name.
    pub shares: GlobalPtr<[u32; 4]>,
    /// What they have of this name.
    pub steps: GlobalPtr<u32>,
    /// Rows of the matrix.
    pub rows: u32,
    /// Steps of a thread.
    pub steps_each: u32,
    /// Steps of a block.
    pub block_steps: u32,
    /// Shares at the front that are of one row.
    pub long_count: u32,
    /// Shares of several rows.
    pub share_count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl PathsParams {
    /// Where a row begins on the path.
    ///
    /// # Safety
    /// The obligations of the params, and `row ≤ rows`.
    #[inline(always)]
    unsafe fn at<S: Simt>(&self, s: &S, row: u32) -> u32 {
        // SAFETY: the caller's promise; the sum is below 2³².
        unsafe { s.load_readonly(self.row_offsets.at(row)) + row }
    }

    /// The row behind a share that begins with a row: as many rows as have the steps of a block, or one that has more.
    ///
    /// # Safety
    /// The obligations of the params, and `row < rows`.
    #[inline(always)]
    unsafe fn end_of_share<S: Simt>(&self, s: &S, row: u32) -> u32 {
        // SAFETY: the caller's promise; rows up to the last are looked at.
        unsafe {
            let begin = self.at(s, row);
            let most = self.rows - row;
            // Every row has a step at least.
            let most = if most < self.block_steps { most } else { self.block_steps };
            let (mut low, mut high) = (1, most + 1); // rows of the share
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                match self.at(s, row + middle) - begin <= self.block_steps {
                    true => low = middle,
                    false => high = middle,
                }
            }
            row + low
        }
    }

    /// Whether a row has more steps than a block.
    ///
    /// # Safety
    /// The obligations of the params, and `row < rows`.
    #[inline(always)]
    unsafe fn is_long<S: Simt>(&self, s: &S, row: u32) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.at(s, row + 1) - self.at(s, row) > self.block_steps }
    }

    /// The first row of a block's chunk, and the row behind the last.
    #[inline(always)]
    fn chunk(&self, number: u32) -> (u32, u32) {
        let first = number * CHUNK_ROWS;
        let end = first + CHUNK_ROWS;
        (first, if end < self.rows { end } else { self.rows })
    }
}

/// Where shares end and leave chunks: a block for each chunk.
pub struct NextShares;

impl Kernel for NextShares {
    type Params = PathsParams;
    const FILE: &'static str = "paths";
    const VARIANT: Variant = Variant::NextShares;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = 4 * CHUNK_ROWS;
    const UNITS_PER_BLOCK: u32 = CHUNK_ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &PathsParams) {
        let (first, end) = p.chunk(s.block_idx());
        // SAFETY: the obligations of the params; rows are the chunk's where they are used, each one thread's, and all
        // threads come to the barrier.
        unsafe {
            let mut row = first + s.thread_idx();
            while row < end {
                let next = p.end_of_share(s, row);
                s.store(p.next.at(row), next);
                s.store_shared(4 * (row - first), next); // (CHUNK_ROWS)
                row += THREADS;
            }
            s.sync_block(); // RAW: next rows written -> followed
            let mut i = s.thread_idx();
            while i < p.block_steps {
                let mut row = first + i;
                while row < end {
                    row = s.load_shared(4 * (row - first));
                }
                s.store(p.exits.at(s.block_idx() * p.block_steps + i), row);
                i += THREADS;
            }
        }
    }
}

/// Where shares enter each chunk: one thread.
pub struct ChainShares;

impl Kernel for ChainShares {
    type Params = PathsParams;
    const FILE: &'static str = "paths";
    const VARIANT: Variant = Variant::ChainShares;
    const BLOCK_THREADS: u32 = 32;
    const UNITS_PER_BLOCK: u32 = 1;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &PathsParams) {
        if s.thread_idx() != 0 {
            return;
        }
        let chunks = p.rows.div_ceil(CHUNK_ROWS);
        let (mut chunk, mut row) = (0, 0);
        // SAFETY: the obligations of the params: a share that begins before a chunk ends before its row `block_steps`.
        unsafe {
            while chunk < chunks {
                s.store(p.entered.at(chunk), row);
                row = s.load_readonly(p.exits.at(chunk * p.block_steps + (row - chunk * CHUNK_ROWS)));
                chunk += 1;
            }
        }
    }
}

/// Which rows begin shares of several, and which have more steps than a block: a block for each chunk.
pub struct MarkShares;

impl Kernel for MarkShares {
    type Params = PathsParams;
    const FILE: &'static str = "paths";
    const VARIANT: Variant = Variant::MarkShares;
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = 4 * CHUNK_ROWS;
    const UNITS_PER_BLOCK: u32 = CHUNK_ROWS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &PathsParams) {
        let (first, end) = p.chunk(s.block_idx());
        // SAFETY: the obligations of the params; rows are the chunk's where they are used, each one thread's, and all
        // threads come to the barriers.
        unsafe {
            let mut row = first + s.thread_idx();
            while row < end {
                s.store_shared(4 * (row - first), s.load_readonly(p.next.at(row))); // (CHUNK_ROWS)
                row += THREADS;
            }
            s.sync_block(); // RAW: next rows written -> followed
            if s.thread_idx() == 0 {
                let mut row = s.load_readonly(p.entered.at(s.block_idx()));
                while row < end {
                    let at = 4 * (row - first);
                    let next: u32 = s.load_shared(at);
                    s.store_shared(at, next | BEGINS);
                    row = next;
                }
            }
            s.sync_block(); // RAW: marks written -> read
            let mut row = first + s.thread_idx();
            while row < end {
                let next: u32 = s.load_shared(4 * (row - first));
                let is_long = p.is_long(s, row);
                s.store(p.marks.at(row), u32::from(next & BEGINS != 0 && !is_long));
                s.store(p.marks.at(p.rows + row), u32::from(is_long));
                row += THREADS;
            }
        }
    }
}

/// The shares of several rows, or the rows with more steps than a block: a thread for each row.
pub struct ListShares;

impl Kernel for ListShares {
    type Params = PathsParams;
    const FILE: &'static str = "paths";
    const VARIANT: Variant = Variant::ListShares;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &PathsParams) {
        let row = item(s);
        // SAFETY: the obligations of the params: a sum rises where a share begins, or a long row is.
        unsafe {
            if row < p.rows {
                let begin = s.load_readonly(p.row_offsets.at(row));
                let share = s.load_readonly(p.marks.at(row));
                if p.shares != GlobalPtr::NULL && s.load_readonly(p.marks.at(row + 1)) > share {
                    let next = s.load_readonly(p.next.at(row));
                    let entries = s.load_readonly(p.row_offsets.at(next)) - begin;
                    let counts = (next - row) | entries << ROWS_BITS;
                    s.store(p.shares.at(p.long_count + share), [row, begin, counts, 0]);
                }
                let long = s.load_readonly(p.marks.at(p.rows + row));
                if p.long_rows != GlobalPtr::NULL && s.load_readonly(p.marks.at(p.rows + row + 1)) > long {
                    let before = s.load_readonly(p.marks.at(p.rows)); // shares
                    let end = s.load_readonly(p.row_offsets.at(row + 1));
                    s.store(p.long_rows.at(long - before), [row, begin, end, 0]);
                }
            }
        }
    }
}

/// The words of a share's threads: a block for each share, in which each thread finds its part of the path by a search.
pub struct FillSteps;

impl Kernel for FillSteps {
    type Params = PathsParams;
    const FILE: &'static str = "paths";
    const VARIANT: Variant = Variant::FillSteps;
    const BLOCK_THREADS: u32 = merge_path::THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &PathsParams) {
        // SAFETY: the obligations of the params; rows are those of the share, each word is one thread's.
        unsafe {
            let [row, begin, counts, _] = s.load_readonly(p.shares.at(p.long_count + s.block_idx()));
            let rows = counts & ((1 << ROWS_BITS) - 1);
            // The step that ends a row of the share.
            let step = |i: u32| s.load_readonly(p.row_offsets.at(row + i + 1)) - begin + i;
            let first = s.thread_idx() * p.steps_each;
            let (mut before, mut high) = (0, rows);
            while before < high {
                let middle = before + (high - before) / 2;
                match step(middle) < first {
                    true => before = middle + 1,
                    false => high = middle,
                }
            }
            let mut word = before << ENDS_BITS;
            let mut i = before;
            while i < rows {
                let of_thread = step(i) - first;
                if of_thread >= p.steps_each {
                    break;
                }
                word |= 1 << of_thread;
                i += 1;
            }
            s.store(p.steps.at(s.block_idx() * merge_path::THREADS + s.thread_idx()), word);
        }
    }
}

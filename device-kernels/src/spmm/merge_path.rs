//! `C[m×n] = α·A·B + β·C` on CUDA cores straight from CSR, a column of `B` at a time, rows merged by path: Merrill and
//! Garland, "Merge-Based Parallel Sparse Matrix-Vector Multiplication", SC 2016.
//!
//! The *path* is what merging two lists walks: the entries of `A`, and the ends of its rows. Each step takes an entry,
//! or ends a row that has all of its entries:
//!
//! ```text
//! row lengths  2, 0, 3
//! path         e e | | e e e |       8 steps: 5 entries, 3 ends
//! thread       0 0 0 1 1 1 2 2       with P = 3 steps each
//! ```
//!
//! Every thread takes `P` successive steps, so that long, short and empty rows cost alike; a block, [`THREADS`]` · P`:
//!
//! ```text
//! columns, values   16 bytes a lane, once     -> registers, times gathered elements of B
//! products          (entries) f32             -> shared
//! sums              P steps a thread          -> (rows) f32, shared: those of rows that end in the thread
//! carries           shuffles, then warps      -> added to the first of them
//! sums              rows side by side         -> C
//! ```
//!
//! Products go through shared memory because steps are not aligned to anything: entries are read in the order of
//! memory, all `P + 1` gathers of a thread under way before the first is used, and added up in that of the path. Since
//! a step is an entry or an end, products and sums have room in as many words as there are steps. `P` is odd, so that
//! threads inside one row read different banks. Sums go to `C` from shared memory, so that neighbouring rows are
//! written together, and the walk along the path has no branch: a step that ends no row stores to a spare word.
//!
//! Where this differs from the paper: the host cuts the path, so that no thread searches it and no offset is read (one
//! word tells a thread its ends, and how many are before them). Between blocks it is cut only where rows end: nothing
//! is carried from block to block, and one launch is all. A row with more steps than a block is summed by a block of
//! its own, before all others; only one so long that its block would outlast the rest is cut into pieces, whose sums
//! [`combine`](crate::spmm::combine) adds in order. The order of all sums is that of the path and of the threads: two
//! runs give the same bits.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::NO_SLOT;
use crate::element::Element;
use crate::kernel::Kernel;
use crate::reduce::{GroupShape, group_sum, segment_carry};
use crate::spmm::dense::Dense;
use crate::unroll::{each, each4};
use crate::variant::Variant;

/// Threads of a block.
pub const THREADS: u32 = 128;
/// In a thread's word, the bits below which lie its ends, and from which on the number of ends before.
pub const ENDS_BITS: u32 = 16;
/// In a share's counts, the bits below which lie its rows, and from which on its entries.
pub const ROWS_BITS: u32 = 16;

const WARPS: u32 = THREADS / WARP;
/// A warp as one group.
const WHOLE_WARP: GroupShape = GroupShape { size_log2: WARP.ilog2(), stride_log2: 0 };
/// Bytes of shared memory for what warps carry, `[sum, whether a row ends]` each, before products and sums.
const CARRY_BYTES: u32 = 8 * WARPS;

/// Arguments of [`MergePath`].
///
/// # Obligations
/// - `col_indices` and `values`: the entries of a CSR matrix, `nnz < 2³² − 1024`, readable up to a multiple of 4 and
///   16-byte aligned. Columns are below k, in the padding too.
/// - `shares`: one for each block along x. The first `long_count` are `[row, first entry, entries, slot]`, a row or a
///   piece of one, of fewer than 2³¹ entries. With [`NO_SLOT`] it is the whole row and goes to `C`, else to the
///   workspace; no two have a slot in common unless `dense.accumulate` is set.
/// - The others are `[first row, first entry, rows | entries << `[`ROWS_BITS`]`, 0]`, whole rows, `rows + entries` at
///   most [`STEPS`](MergePath::STEPS). Each row is in one share, or all its pieces are.
/// - `steps`: for each of these others, a word for each thread: bit `i` tells whether step `i` of the thread's `P`
///   ends a row, and the bits from [`ENDS_BITS`] on how many rows of the share end before the thread's first step.
/// - The grid's other axis counts the columns.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct MergePathParams {
    /// `B`, `C` and the workspace.
    pub dense: Dense,
    /// What each block does.
    pub shares: GlobalPtr<[u32; 4]>,
    /// The ends among each thread's steps, and before.
    pub steps: GlobalPtr<u32>,
    /// Column of each entry.
    pub col_indices: GlobalPtr<u32>,
    /// Value of each entry, in the element type's bits.
    pub values: GlobalPtr<u32>,
    /// Shares at the front that are of one row.
    pub long_count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// One instance: the element type, and the vectors of four entries that a thread has under way. It has one step less
/// than these have entries, so that those of a block hold its entries wherever the first lies in its vector.
pub struct MergePath<E, const V: usize>(PhantomData<E>);

impl<E: Element<Sum = f32>, const V: usize> MergePath<E, V> {
    const VALID: () = assert!(V >= 1 && Self::P < ENDS_BITS, "the ends of a thread have a bit each");
    /// Steps of a thread.
    pub const P: u32 = 4 * V as u32 - 1;
    /// Steps of a block.
    pub const STEPS: u32 = THREADS * Self::P;
    /// A word for each thread, behind products and sums: up to six words beside the entries in their vectors, `4 V`
    /// between, and a word for each entry or row. So products have room for all vectors of the threads, too.
    const SPARE: u32 = CARRY_BYTES + 4 * (Self::STEPS + 6 + 4 * V as u32).next_multiple_of(4);
}

impl<E: Element<Sum = f32>, const V: usize> Kernel for MergePath<E, V> {
    type Params = MergePathParams;
    const FILE: &'static str = "spmm/merge_path";
    const VARIANT: Variant = Variant::MergePath { dtype: E::DTYPE, steps: Self::P };
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = Self::SPARE + 4 * THREADS;
    // Left to itself, `ptxas` spills a few registers to fit one more block.
    const MIN_BLOCKS: u32 = match V {
        1 => 12,
        2 => 10,
        _ => 8,
    };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &MergePathParams) {
        const { Self::VALID }
        // SAFETY: the obligations of the params; all threads of a block have the same share, and go the same way.
        unsafe {
            let share = s.load_readonly(p.shares.at(s.block_idx()));
            if s.block_idx() < p.long_count {
                Self::sum_row(s, p, share);
            } else {
                Self::merge_rows(s, p, share);
            }
        }
    }
}

impl<E: Element<Sum = f32>, const V: usize> MergePath<E, V> {
    /// A share of whole rows.
    ///
    /// # Safety
    /// As for [`MergePathParams`]; all threads of the block.
    #[inline(always)]
    unsafe fn merge_rows<S: Simt>(s: &S, p: &MergePathParams, [first_row, first, counts, _]: [u32; 4]) {
        // 1. Locate.
        let (rows, entries) = (counts & ((1 << ROWS_BITS) - 1), counts >> ROWS_BITS);
        let (thread, column) = (s.thread_idx(), s.block_idx_y());
        let run = Run::<E>::locate(p, column, (first, entries));
        let products = CARRY_BYTES + 4 * run.before;
        let sums = CARRY_BYTES + 16 * (run.vectors + V as u32);
        // SAFETY: vectors are those of the run, rows those of the share; in shared memory carries, products and sums
        // have places of their own, each written by one thread, and barriers are between that and the reading.
        unsafe {
            if entries == 0 {
                let mut row = thread;
                while row < rows {
                    p.dense.finish(s, (first_row + row, false), column, [0.0_f32]);
                    row += THREADS;
                }
                return; // the whole block
            }
            let number = u64::from(s.block_idx() - p.long_count) * u64::from(THREADS) + u64::from(thread);
            let steps = s.load_readonly_once(p.steps.at_wide(number));
            // 2. Global -> registers -> shared.
            let fetched = run.products::<S, V>(s, thread); // (4 V) per thread
            each::<V>(|i| {
                s.store_shared(CARRY_BYTES + 16 * (thread + i as u32 * THREADS), fetched[i]);
            });
            s.sync_block(); // RAW: products written -> added; WAW: those beyond the last -> sums
            let steps = Steps::<V>::of(steps, thread);
            // 3. and 4. Along the path: sums of rows from where the thread begins, and what is left behind the last
            // end.
            let terms = steps.terms(s, products, entries); // (P) per thread
            let tail = steps.walk(s, (sums, Self::SPARE + 4 * thread), terms);
            let carry = segment_carry(s, WHOLE_WARP, [tail], steps.any());
            if s.lane() == WARP - 1 {
                let open = if steps.any() { tail } else { carry.sum[0] + tail };
                let ended = steps.any() || carry.started;
                s.store_shared(8 * s.warp(), [open.to_bits(), u32::from(ended)]); // (WARPS)
            }
            s.sync_block(); // RAW: carries of warps written -> added
            if steps.any() {
                let of_warps = if carry.started { 0.0 } else { carry_of_warps(s) };
                let first = sums + 4 * steps.before;
                let head: f32 = s.load_shared(first);
                s.store_shared(first, of_warps + carry.sum[0] + head);
            }
            s.sync_block(); // RAW: sums written -> stored
            // 5. Shared -> global.
            let mut row = thread;
            while row < rows {
                p.dense.finish(s, (first_row + row, false), column, [s.load_shared::<f32>(sums + 4 * row)]);
                row += THREADS;
            }
        }
    }

    /// A share of one row, or a piece of one.
    ///
    /// # Safety
    /// As for [`MergePathParams`]; all threads of the block.
    #[inline(always)]
    unsafe fn sum_row<S: Simt>(s: &S, p: &MergePathParams, [row, first, entries, slot]: [u32; 4]) {
        // 1. Locate.
        let column = s.block_idx_y();
        let run = Run::<E>::locate(p, column, (first, entries));
        // SAFETY: vectors are those of the run; the row or the slot is this block's. All threads reach the shuffles
        // and the barrier: they stand outside of the loop.
        unsafe {
            // 2. to 4. Gather and accumulate.
            let mut sums = [0.0; 4];
            let mut vector = s.thread_idx();
            while vector < run.vectors {
                let products = run.products::<S, V>(s, vector); // (4 V) per thread
                each::<V>(|i| {
                    let at = 4 * (vector + i as u32 * THREADS);
                    each4(|u| {
                        let inside = (at + u as u32).wrapping_sub(run.before) < entries;
                        sums[u] += if inside { products[i][u] } else { 0.0 };
                    });
                });
                vector += V as u32 * THREADS;
            }
            let [sum] = group_sum(s, WHOLE_WARP, [(sums[0] + sums[1]) + (sums[2] + sums[3])]);
            if s.lane() == 0 {
                s.store_shared(8 * s.warp(), sum); // (WARPS)
            }
            s.sync_block(); // RAW: sums of warps written -> added
            // 5. Registers -> global.
            if s.thread_idx() == 0 {
                let mut sum = 0.0;
                let mut warp = 0;
                while warp < WARPS {
                    sum += s.load_shared::<f32>(8 * warp);
                    warp += 1;
                }
                match slot {
                    NO_SLOT => p.dense.finish(s, (row, false), column, [sum]),
                    slot => p.dense.keep(s, slot, column, [sum]),
                }
            }
        }
    }
}

/// What the warps before this one add to its first row.
#[inline(always)]
unsafe fn carry_of_warps<S: Simt>(s: &S) -> f32 {
    let mut sum = 0.0;
    let mut warp = 0;
    while warp < WARPS {
        if warp < s.warp() {
            // SAFETY: each warp has written its carry before the barrier.
            let [open, ended]: [u32; 2] = unsafe { s.load_shared(8 * warp) };
            sum = f32::from_bits(open) + if ended != 0 { 0.0 } else { sum };
        }
        warp += 1;
    }
    sum
}

/// The steps of a thread, `4 V − 1` of them.
#[derive(Clone, Copy)]
struct Steps<const V: usize> {
    /// Bit `i` is set if step `i` ends a row.
    ends: u32,
    /// Rows, and entries, of the share before the first step.
    before: u32,
    entries_before: u32,
}

impl<const V: usize> Steps<V> {
    #[inline(always)]
    const fn of(word: u32, thread: u32) -> Self {
        let before = word >> ENDS_BITS;
        let steps_before = thread * (4 * V as u32 - 1);
        Self { ends: word & ((1 << ENDS_BITS) - 1), before, entries_before: steps_before - before }
    }

    /// Whether a row ends here.
    #[inline(always)]
    const fn any(self) -> bool {
        self.ends != 0
    }

    /// Calls `body` for each step, with whether it ends a row; unrolled.
    #[inline(always)]
    fn each(self, mut body: impl FnMut(usize, usize, bool)) {
        each::<V>(|i| {
            each4(|u| {
                let step = 4 * i + u;
                if step < 4 * V - 1 {
                    body(i, u, self.ends & 1 << step != 0);
                }
            });
        });
    }

    /// The product that each step would take: of an entry; of the next where a row ends; or any behind the last.
    ///
    /// # Safety
    /// `products` are those of the share's `entries`, in shared memory, and of `4 V` more.
    #[inline(always)]
    unsafe fn terms<S: Simt>(self, s: &S, products: u32, entries: u32) -> [[f32; 4]; V] {
        let mut terms = [[0.0; 4]; V];
        let mut from = products + 4 * self.entries_before.min(entries);
        self.each(|i, u, ends| {
            // SAFETY: the caller wrote the products of the share, and `4 V` more, before a barrier.
            terms[i][u] = unsafe { s.load_shared(from) };
            from += if ends { 0 } else { 4 };
        });
        terms
    }

    /// Stores the sums of rows that end here, of the first as far as it is here; returns what is left behind the last
    /// end, which is anything at all if that is the last of the path.
    ///
    /// Every step stores something: accesses that depend on a branch each have the base of shared memory worked out
    /// anew.
    ///
    /// # Safety
    /// `sums` are those of the share's rows, in shared memory, and `spare` a word there of this thread.
    #[inline(always)]
    unsafe fn walk<S: Simt>(self, s: &S, (sums, spare): (u32, u32), terms: [[f32; 4]; V]) -> f32 {
        let (mut tail, mut to) = (0.0, sums + 4 * self.before);
        self.each(|i, u, ends| {
            // SAFETY: the caller's promise; no other thread has this end.
            unsafe { s.store_shared(if ends { to } else { spare }, tail) };
            tail = if ends { 0.0 } else { tail + terms[i][u] };
            to += if ends { 4 } else { 0 };
        });
        tail
    }
}

/// Successive entries, as vectors of four from a multiple of 4 on, and the column of `B` that they are multiplied by.
struct Run<E: Element<Sum = f32>> {
    /// Of the first vector.
    col_indices: GlobalPtr<u32>,
    values: GlobalPtr<E::Bits>,
    b: GlobalPtr<E::Bits>,
    ldb: u32,
    /// Entries of the first vector that are not of the run.
    before: u32,
    vectors: u32,
}

impl<E: Element<Sum = f32>> Run<E> {
    #[inline(always)]
    fn locate(p: &MergePathParams, column: u32, (first, entries): (u32, u32)) -> Self {
        let before = first % 4;
        Self {
            col_indices: p.col_indices.at(first - before),
            values: p.values.cast::<E::Bits>().at(first - before),
            b: p.dense.b.cast::<E::Bits>().at(column),
            ldb: p.dense.ldb,
            before,
            vectors: (before + entries).div_ceil(4),
        }
    }

    /// The products of `V` vectors from `vector` on, [`THREADS`] from one to the next; beyond the last those of the
    /// last.
    ///
    /// # Safety
    /// As for [`MergePathParams`]; there is a vector.
    #[inline(always)]
    unsafe fn products<S: Simt, const V: usize>(&self, s: &S, vector: u32) -> [[f32; 4]; V] {
        // SAFETY: there is such a vector, so that its columns, which are rows of `B`, and its values are readable.
        unsafe {
            if self.ldb == 1 {
                self.products_of(s, vector, |col| self.b.at(col)) // one instruction an address
            } else {
                self.products_of(s, vector, |col| self.b.at_wide(u64::from(col) * u64::from(self.ldb)))
            }
        }
    }

    /// The same for elements of `B` that lie so. No load depends on a branch: the assembler would move those of
    /// values behind the gathers, and wait for memory once more.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn products_of<S: Simt, const V: usize>(
        &self,
        s: &S,
        vector: u32,
        element: impl Fn(u32) -> GlobalPtr<E::Bits>,
    ) -> [[f32; 4]; V] {
        let (mut cols, mut values) = ([[0; 4]; V], [[0; 4]; V]);
        let mut gathered = [[E::Bits::zeroed(); 4]; V];
        let mut products = [[0.0; 4]; V];
        // SAFETY: the caller's promise: vectors are readable as a whole, and name rows of `B`.
        unsafe {
            each::<V>(|i| {
                let at = 4 * (vector + i as u32 * THREADS).min(self.vectors - 1);
                cols[i] = s.load_readonly_once(self.col_indices.at(at).cast());
                values[i] = four::<S, E>(s, self.values.at(at));
            });
            each::<V>(|i| each4(|u| gathered[i][u] = s.load_readonly(element(cols[i][u]))));
        }
        each::<V>(|i| {
            let weights = E::widen_vector(s, values[i]);
            each4(|u| products[i][u] = weights[u] * E::widen(s, gathered[i][u]));
        });
        products
    }
}

/// The bits of four values, from a multiple of 4 on.
#[inline(always)]
unsafe fn four<S: Simt, E: Element<Sum = f32>>(s: &S, from: GlobalPtr<E::Bits>) -> [u32; 4] {
    // SAFETY: the caller has four values at `from`, which lie in one vector.
    unsafe {
        match E::DTYPE.bytes() {
            4 => s.load_readonly_once(from.cast()),
            _ => {
                let [low, high]: [u32; 2] = s.load_readonly_once(from.cast());
                [low, high, 0, 0]
            }
        }
    }
}

//! The shares of a block's groups.

use core::marker::PhantomData;

use windrow_simt::{Simt, WARP, Word};

use super::block::{Block, faults, find, tell_fault};
use super::{MOST_SPAN, MergeBasedParams, THREADS, WARPS, max, min};
use crate::NO_ROW;
use crate::csr::{ReadCsrParams, index, value_of};
use crate::element::{Element, Gather, Sum};
use crate::kernel::Kernel;
use crate::output::Output;
use crate::real::Real;
use crate::spmm::dense::Dense;
use crate::unroll::{each, each4};
use crate::variant::Variant;

/// Gathers that each lane has in flight.
const IN_FLIGHT: usize = 4;

/// One instance: how `B` is read, and lanes across the width.
pub struct MergeBased<G, const LANES: u32>(PhantomData<G>);

impl<G: Gather, const LANES: u32> MergeBased<G, LANES> {
    const VALID: () = assert!(LANES.is_power_of_two() && LANES <= WARP, "a group is inside one warp");
    /// Groups of a block.
    const GROUPS: u32 = THREADS / LANES;
    /// Columns per slice of the width: one value of the grid's slow axis.
    pub const SLICE: u32 = LANES * G::WIDTH;

    // Shared memory, in bytes: four words of the block, a word of each warp, where shares begin, columns and then
    // offsets of the items, values, and the sums of rows that began before a share.
    const FAULTS_AT: u32 = 16;
    const STARTS_AT: u32 = Self::FAULTS_AT + 4 * WARPS;
    const ITEMS_AT: u32 = (Self::STARTS_AT + 8 * (Self::GROUPS + 1)).next_multiple_of(16);
    const VALUES_AT: u32 = (Self::ITEMS_AT + 4 * (MOST_SPAN + 1)).next_multiple_of(16);
    const HEADS_AT: u32 = (Self::VALUES_AT + Sum::<G>::BYTES * MOST_SPAN).next_multiple_of(16);
    /// Sums of a lane in shared memory: a multiple of four.
    const HELD: u32 = if G::WIDTH > 4 { 8 } else { 4 };
    const HEADS_BYTES: u32 = THREADS * Self::HELD * Sum::<G>::BYTES;
}

impl<G: Gather, const LANES: u32> Kernel for MergeBased<G, LANES> {
    type Params = MergeBasedParams;
    const FILE: &'static str = "spmm/merge_based/shares";
    const VARIANT: Variant =
        Variant::MergeBased { dtype: G::Element::DTYPE, lanes: LANES, vectors: G::VECTORS };
    const BLOCK_THREADS: u32 = THREADS;
    const MIN_BLOCKS: u32 = if G::WIDTH > 4 { 4 } else { 5 };
    const SHARED_BYTES: u32 = Self::HEADS_AT + Self::HEADS_BYTES;
    const COLUMNS_PER_BLOCK: u32 = Self::SLICE;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &MergeBasedParams) {
        const { Self::VALID }
        let column = s.block_idx_y() * Self::SLICE + s.thread_idx() % LANES * G::WIDTH;
        // SAFETY: the obligations of the params; what is wrong with the matrix ends the whole block before anything is
        // done with it, so all threads reach the barriers.
        unsafe {
            // 1. Locate.
            let Some(block) = find::<S>(s, p) else {
                tell_fault(s, p);
                return;
            };
            // 2. Global -> shared.
            let wrong = Self::stage(s, p, block);
            let any = s.ballot(wrong);
            if s.lane() == 0 {
                s.store_shared(Self::FAULTS_AT + 4 * s.warp(), any);
            }
            s.sync_block(); // RAW: items and faults written -> read
            if faults::<S>(s, Self::FAULTS_AT) {
                tell_fault(s, p);
                return;
            }
            Self::divide(s, block);
            s.sync_block(); // RAW: shares written -> read
            // 3. to 5. Gather, accumulate, and finish rows that lie within a share.
            let open = Self::walk(s, p, block, column);
            s.sync_block(); // RAW: heads written -> added
            Self::join(s, p, block, column, open);
        }
    }
}

impl<G: Gather, const LANES: u32> MergeBased<G, LANES> {
    /// Brings the block's columns, values and offsets to shared memory. Whether this thread found one that is wrong.
    ///
    /// # Safety
    /// The obligations of the params; the block lies within the matrix.
    #[inline(always)]
    unsafe fn stage<S: Simt>(s: &S, p: &MergeBasedParams, block: Block) -> bool {
        let wide = p.read.wide_indices & ReadCsrParams::WIDE_COLUMNS != 0;
        let mut columns = [0_u64; 4];
        let mut values = [Sum::<G>::ZERO; 4];
        let mut wrong = false;
        // SAFETY: entries below those of the matrix, offsets up to that behind the last row; each word is one thread's.
        unsafe {
            each4(|i| {
                let at = s.thread_idx() + i as u32 * THREADS;
                if at < block.entries {
                    columns[i] = index(s, p.read.columns, block.first_entry + at, wide);
                    values[i] = value_of(s, &p.read, block.first_entry + at);
                }
            });
            let mut at = s.thread_idx();
            while at <= block.rows {
                wrong |= Self::stage_offset(s, p, block, at);
                at += THREADS;
            }
            each4(|i| {
                let at = s.thread_idx() + i as u32 * THREADS;
                if at < block.entries {
                    wrong |= columns[i] >= u64::from(p.read.cols);
                    s.store_shared(Self::ITEMS_AT + 4 * at, columns[i] as u32);
                    s.store_shared(Self::VALUES_AT + Sum::<G>::BYTES * at, values[i]);
                }
            });
        }
        wrong
    }

    /// Brings an offset of the block's rows, or that behind them, to shared memory, counted from the first entry of
    /// the block. Whether it is wrong: then what is stored lies among the entries all the same.
    ///
    /// # Safety
    /// As for [`stage`](Self::stage); `at` is at most the rows.
    #[inline(always)]
    unsafe fn stage_offset<S: Simt>(s: &S, p: &MergeBasedParams, block: Block, at: u32) -> bool {
        let (begin, end) = (u64::from(block.first_entry), u64::from(block.first_entry + block.entries));
        let row = block.first_row + at;
        // SAFETY: the caller's promise.
        unsafe {
            let offset = p.offset(s, row);
            let least = if at == 0 { 0 } else { max(begin, p.offset(s, row - 1)) };
            // Of the rows that began before, the first entry of the block comes behind the offset.
            let most = if at == 0 { begin } else { end };
            let is_last = row == p.read.rows;
            let inside = min(max(offset, begin), end) - begin;
            s.store_shared(Self::ITEMS_AT + 4 * (block.entries + at), inside as u32);
            offset < least || offset > most || is_last && offset != u64::from(p.read.entries)
        }
    }

    /// Where a row of the block begins, counted from the block's first entry.
    #[inline(always)]
    unsafe fn begin<S: Simt>(s: &S, block: Block, row: u32) -> u32 {
        // SAFETY: the caller's row is at most the block's rows, whose offsets were written before a barrier.
        unsafe { s.load_shared(Self::ITEMS_AT + 4 * (block.entries + row)) }
    }

    /// Row and entry of the block with which a group's share begins, or ends with that of the group before.
    #[inline(always)]
    unsafe fn start<S: Simt>(s: &S, group: u32) -> [u32; 2] {
        // SAFETY: the caller's group is at most their number; written before a barrier.
        unsafe { s.load_shared(Self::STARTS_AT + 8 * group) }
    }

    /// Finds where the groups' shares begin.
    ///
    /// # Safety
    /// The items are in shared memory; all threads of the block.
    #[inline(always)]
    unsafe fn divide<S: Simt>(s: &S, block: Block) {
        let items = block.rows + block.entries;
        let share = items.div_ceil(Self::GROUPS);
        let mut group = s.thread_idx();
        while group <= Self::GROUPS {
            let diagonal = min(group * share, items);
            let (mut low, mut high) = (0, block.rows);
            while low < high {
                let row = (low + high) / 2;
                // SAFETY: rows below the block's.
                match unsafe { Self::begin(s, block, row + 1) } + row < diagonal {
                    true => low = row + 1,
                    false => high = row,
                }
            }
            // SAFETY: each group's words are one thread's.
            unsafe { s.store_shared(Self::STARTS_AT + 8 * group, [low, diagonal - low]) };
            group += THREADS;
        }
    }

    /// Multiplies the share of this thread's group, and finishes the rows that begin and end in it. The row that
    /// begins in the share and does not end there, with its sums.
    ///
    /// # Safety
    /// The obligations of the params; items and shares are in shared memory.
    #[inline(always)]
    unsafe fn walk<S: Simt>(
        s: &S,
        p: &MergeBasedParams,
        block: Block,
        column: u32,
    ) -> Option<(u32, [Sum<G>; 8])> {
        let group = s.thread_idx() / LANES;
        // SAFETY: rows up to the block's, entries below the block's; rows that lie within a share are its group's.
        unsafe {
            let [mut row, mut entry] = Self::start(s, group);
            let [end_row, end_entry] = Self::start(s, group + 1);
            let mut began_before = Self::began_before(s, block, [row, entry]);
            loop {
                let ends = row < end_row;
                let stop = if ends { Self::begin(s, block, row + 1) } else { end_entry };
                let sum = Self::accumulate(s, &p.dense, column, entry, stop);
                if began_before {
                    began_before = false;
                    Self::hold(s, sum);
                    if !ends {
                        return None;
                    }
                } else if ends {
                    finish::<S, G>(s, &p.dense.out, block.first_row + row, column, sum);
                } else {
                    return (stop > Self::begin(s, block, row)).then_some((row, sum));
                }
                entry = stop;
                row += 1;
            }
        }
    }

    /// Whether the row with which a share begins has items before it.
    #[inline(always)]
    unsafe fn began_before<S: Simt>(s: &S, block: Block, [row, entry]: [u32; 2]) -> bool {
        // SAFETY: the caller's row is at most the block's rows.
        block.continued && row == 0 || entry > unsafe { Self::begin(s, block, row) }
    }

    /// Adds to the row that is open what the next groups have of it, and finishes it, or leaves it in the workspace;
    /// and so for the row that is open at the beginning of the block.
    ///
    /// # Safety
    /// The obligations of the params; heads are in shared memory, before a barrier.
    #[inline(always)]
    unsafe fn join<S: Simt>(
        s: &S,
        p: &MergeBasedParams,
        block: Block,
        column: u32,
        open: Option<(u32, [Sum<G>; 8])>,
    ) {
        let group = s.thread_idx() / LANES;
        // SAFETY: heads of groups in which the row goes on were written; rows of `C` and slots are one group's.
        unsafe {
            if let Some((row, mut sum)) = open {
                let mut next = group + 1;
                let mut ended = false;
                while next < Self::GROUPS && !ended {
                    sum = add8(sum, Self::held(s, next));
                    next += 1;
                    ended = Self::start(s, next)[0] > row;
                }
                match ended {
                    true => finish::<S, G>(s, &p.dense.out, block.first_row + row, column, sum),
                    false => keep::<S, G>(s, &p.dense, p.blocks + s.block_idx(), column, sum),
                }
            }
            if group == 0 && block.continued {
                let mut sum = Self::held(s, 0);
                let mut next = 1;
                while next < Self::GROUPS && Self::start(s, next)[0] == 0 {
                    sum = add8(sum, Self::held(s, next));
                    next += 1;
                }
                keep::<S, G>(s, &p.dense, s.block_idx(), column, sum);
            }
            if s.thread_idx() == 0 && s.block_idx_y() == 0 {
                s.store(p.carried.at(s.block_idx()), Self::carried(s, p, block));
            }
        }
    }

    /// The row that begins in the block and goes on in the next ones, and in how many.
    #[inline(always)]
    unsafe fn carried<S: Simt>(s: &S, p: &MergeBasedParams, block: Block) -> [u32; 2] {
        let began_before = block.continued && block.rows == 0;
        // SAFETY: a row with entries beyond the block is one of the matrix.
        unsafe {
            if began_before || block.entries <= Self::begin(s, block, block.rows) {
                return [NO_ROW, 0];
            }
            let row = block.first_row + block.rows;
            let end = min(p.offset(s, row + 1), u64::from(p.read.entries));
            let last = min(p.block_of(row + end as u32), p.blocks - 1);
            [row, last.saturating_sub(s.block_idx())]
        }
    }

    /// `Σ value · B[column of entry][column..]` over entries of the block.
    ///
    /// # Safety
    /// `begin..end` are entries of the block, which are in shared memory.
    #[inline(always)]
    unsafe fn accumulate<S: Simt>(s: &S, dense: &Dense, column: u32, begin: u32, end: u32) -> [Sum<G>; 8] {
        let mut sum = [Sum::<G>::ZERO; 8];
        let mut entry = begin;
        // Lanes beyond the width have nothing to read.
        let end = if column < dense.n() { end } else { begin };
        while entry < end {
            let mut weight = [Sum::<G>::ZERO; IN_FLIGHT];
            let mut raw = [G::ZERO; IN_FLIGHT];
            each::<IN_FLIGHT>(|i| {
                let at = entry + i as u32;
                if at < end {
                    // SAFETY: an entry of the block; its column was found to be one of the matrix.
                    unsafe {
                        let col: u32 = s.load_shared(Self::ITEMS_AT + 4 * at);
                        weight[i] = s.load_shared(Self::VALUES_AT + Sum::<G>::BYTES * at);
                        let from = u64::from(col) * u64::from(dense.ldb) + u64::from(column);
                        raw[i] = G::fetch(s, dense.b, from);
                    }
                }
            });
            each::<IN_FLIGHT>(|i| G::accumulate(s, weight[i], raw[i], &mut sum));
            entry += IN_FLIGHT as u32;
        }
        sum
    }

    /// Holds the sums of a row that began before the share.
    ///
    /// # Safety
    /// Once a thread.
    #[inline(always)]
    unsafe fn hold<S: Simt>(s: &S, [a, b, c, d, e, f, g, h]: [Sum<G>; 8]) {
        let to = Self::HEADS_AT + s.thread_idx() * Self::HELD * Sum::<G>::BYTES;
        // SAFETY: the bytes are this thread's.
        unsafe {
            Sum::<G>::store_shared(s, to, [a, b, c, d]);
            if G::WIDTH > 4 {
                Sum::<G>::store_shared(s, to + 4 * Sum::<G>::BYTES, [e, f, g, h]);
            }
        }
    }

    /// What this lane of another group holds.
    ///
    /// # Safety
    /// It was held before a barrier.
    #[inline(always)]
    unsafe fn held<S: Simt>(s: &S, group: u32) -> [Sum<G>; 8] {
        let thread = group * LANES + s.thread_idx() % LANES;
        let from = Self::HEADS_AT + thread * Self::HELD * Sum::<G>::BYTES;
        // SAFETY: the caller's promise.
        unsafe {
            let [a, b, c, d] = Sum::<G>::load_shared(s, from);
            let [e, f, g, h] = match G::WIDTH > 4 {
                true => Sum::<G>::load_shared(s, from + 4 * Sum::<G>::BYTES),
                false => [Sum::<G>::ZERO; 4],
            };
            [a, b, c, d, e, f, g, h]
        }
    }
}

/// Brings the sums of a row to `C`.
///
/// # Safety
/// No other thread touches these elements.
#[inline(always)]
unsafe fn finish<S: Simt, G: Gather>(s: &S, out: &Output, row: u32, column: u32, sum: [Sum<G>; 8]) {
    let [a, b, c, d, e, f, g, h] = sum;
    // SAFETY: the caller's promise; columns beyond `C` are masked.
    unsafe {
        match G::WIDTH {
            1 => out.store_scaled(s, row, column, [a]),
            2 => out.store_scaled(s, row, column, [a, b]),
            4 => out.store_scaled(s, row, column, [a, b, c, d]),
            _ => {
                out.store_scaled(s, row, column, [a, b, c, d]);
                out.store_scaled(s, row, column + 4, [e, f, g, h]);
            }
        }
    }
}

/// Leaves sums in a slot of the workspace, and zeros behind the last column, up to the four that are read at once.
///
/// # Safety
/// No other thread touches these columns of the slot.
#[inline(always)]
unsafe fn keep<S: Simt, G: Gather>(s: &S, dense: &Dense, slot: u32, column: u32, sum: [Sum<G>; 8]) {
    let [a, b, c, d, e, f, g, h] = sum;
    // SAFETY: the caller's promise; columns beyond `C` are masked, and rows of the workspace are multiples of four.
    unsafe {
        match G::WIDTH {
            1 => dense.keep(s, slot, column, [a]),
            2 => dense.keep(s, slot, column, [a, b]),
            4 => dense.keep(s, slot, column, [a, b, c, d]),
            _ => {
                dense.keep(s, slot, column, [a, b, c, d]);
                dense.keep(s, slot, column + 4, [e, f, g, h]);
            }
        }
        let mut behind = column + G::WIDTH;
        if column < dense.n() && behind >= dense.n() {
            while !behind.is_multiple_of(4) {
                let at = u64::from(slot) * u64::from(dense.ld_partial) + u64::from(behind);
                s.store(dense.partial.cast().at_wide(at), Sum::<G>::ZERO);
                behind += 1;
            }
        }
    }
}

#[inline(always)]
fn add8<T: Real>(mut a: [T; 8], b: [T; 8]) -> [T; 8] {
    each::<8>(|i| a[i] = a[i] + b[i]);
    a
}

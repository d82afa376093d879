//! Products with N:M weights of warpgroups, on Hopper's Tensor Cores.
//!
//! A block computes `Cᵀ = Wᵀ·Aᵀ`, because a sparse operand of the instruction is its left one. What its weights are is
//! one question, [`StageWeights`]:
//!
//! - [`TwoOfFour`]: two of four successive inner elements of a row of `Wᵀ` are kept, which is what the sparse
//!   instruction wants of every such pattern, however long its vectors are. Where one of four is kept, a zero takes the
//!   other place: there, what of `A` is not finite reaches `C` though it was dropped;
//! - [`Whole`]: every row of a stage is kept in all columns of a tile, which lie in one vector.
//!
//! How its activations come is the other, [`Activations`]:
//!
//! - [`RowMajor`]: rows of `A` as they lie, by the copy engine; nothing is gathered;
//! - [`Picked`]: columns of a k-major `A`, in an order that each tile of columns of `C` has for itself.
//!
//! ```text
//! A     global --64 inner × BM rows of C, mixed in 128 bytes-->            shared
//! W     global --bulk copy: values in core matrices, then metadata-->      shared
//! sums  registers of a warpgroup: 64 columns of C × BM rows, BLOCKS times
//!       --chunks of rows, as `store` tells-->  shared, transposed  -->  C
//! ```
//!
//! Two warpgroups share the rows of `A`, and have columns of their own; a third starts copies and waits for them, so
//! that they do nothing but multiply. Blocks stay, and take one tile after the other, or, where there are few tiles, a
//! part of the stages of one after the other; stages of the next are on their way while the last of this are multiplied
//! and its sums are stored.
//!
//! A *step* is multiplied while the one before it ends. One barrier serves both directions: before it, every thread
//! that multiplies has waited for the products of the step before, in whose place copies may come, and the third
//! warpgroup for the copies of the step that comes next. A step is a stage, or, where tiles are small, two: by the
//! costs that the host has, what a step takes beside its products is longer than those of one of their stages.

mod feed;
mod picked;
mod row_major;
mod store;
#[cfg(test)]
mod tests;
mod weights;
mod work;

use core::marker::PhantomData;

use windrow_simt::{SharedOperand, Simt, WARPGROUP, WarpgroupSums};

pub use feed::Activations;
use feed::Slot;
pub use picked::{NmPickedParams, Picked, picked_order_index};
pub use row_major::{NmSparseParams, RowMajor};
use weights::PRODUCT_BYTES;
pub use weights::{
    SPARSE_METADATA_BYTES, SPARSE_NEUTRAL, SPARSE_VALUE_BYTES, StageWeights, TwoOfFour, WHOLE_VALUE_BYTES,
    Whole, sparse_metadata_at, sparse_value_index, whole_value_index,
};
pub use work::WarpgroupWork;

use crate::arch::Arch;
use crate::element::Element;
use crate::kernel::Kernel;
use crate::variant::{NmRows, NmTile, Variant};

/// Inner elements of a stage, and rows of `W` in it.
pub const STAGE_SLOTS: u32 = 64;
/// Columns of `C` that a warpgroup multiplies at once, the rows of the instruction.
pub const RUN_COLUMNS: u32 = 64;
/// Warpgroups of a block that multiply.
const GROUPS: u32 = 2;
/// Threads of a block: a third warpgroup brings what they multiply.
const THREADS: u32 = (GROUPS + 1) * WARPGROUP;

/// One instance: each of two warpgroups has `BLOCKS`, 1 or 2, times 64 columns of `C`; a tile has `2·R` rows; shared
/// memory has `SLOTS` for steps.
pub struct Warpgroups<A, W, const BLOCKS: u32, const R: usize, const SLOTS: u32>(PhantomData<(A, W)>);

/// Row-major activations, two of each four rows of weights.
pub type NmSparse<E, const BLOCKS: u32, const R: usize, const SLOTS: u32> =
    Warpgroups<RowMajor, TwoOfFour<E>, BLOCKS, R, SLOTS>;

/// K-major activations, whose rows are picked in an order in which weights keep two of each four.
pub type NmPacked<E, const BLOCKS: u32, const R: usize, const SLOTS: u32> =
    Warpgroups<Picked, TwoOfFour<E>, BLOCKS, R, SLOTS>;

/// K-major activations, of which the rows are picked that all columns of a tile keep, each of them in one vector.
pub type NmKept<E, const BLOCKS: u32, const R: usize, const SLOTS: u32> =
    Warpgroups<Picked, Whole<E>, BLOCKS, R, SLOTS>;

impl<A: Activations, W: StageWeights, const BLOCKS: u32, const R: usize, const SLOTS: u32> Kernel
    for Warpgroups<A, W, BLOCKS, R, SLOTS>
{
    type Params = A::Params;
    const FILE: &'static str = "nm";
    const VARIANT: Variant =
        Variant::NmWarpgroups { dtype: W::Element::DTYPE, tile: Self::TILE, rows: Self::ROWS };
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = Self::COUNTERS + 8 * SLOTS;
    const MIN_BLOCKS: u32 = 1;
    const ARCH: Arch = Arch::Sm90a;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &A::Params) {
        const { Self::VALID }
        // SAFETY: the obligations of the params. Tiles and stages are the same for all threads of a block, so that they
        // meet in every barrier and product.
        unsafe {
            if s.thread_idx() / WARPGROUP == GROUPS {
                A::feed::<S, W, BLOCKS, R, SLOTS>(s, p);
            } else {
                s.warpgroup_take_registers::<232>();
                Self::multiply_tiles(s, A::work(p));
            }
        }
    }
}

/// Sums of a thread: of the first 64 columns of its warpgroup, and of the second.
type Sums<const R: usize> = (WarpgroupSums<R>, WarpgroupSums<R>);

impl<A: Activations, W: StageWeights, const BLOCKS: u32, const R: usize, const SLOTS: u32>
    Warpgroups<A, W, BLOCKS, R, SLOTS>
{
    /// Rows of `C` of a tile.
    pub const BM: u32 = 2 * R as u32;
    /// Columns of `C` of a tile.
    pub const BN: u32 = Self::RUNS * RUN_COLUMNS;
    const ROWS: NmRows = match (W::METADATA_BYTES, A::PICKS) {
        (0, _) => NmRows::Kept,
        (_, true) => NmRows::Ordered,
        (_, false) => NmRows::All,
    };
    const TILE: NmTile = NmTile {
        rows: Self::BM,
        columns: Self::BN,
        strip: if W::METADATA_BYTES > 0 { RUN_COLUMNS } else { Self::BN },
    };
    /// Runs of 64 columns of a tile.
    const RUNS: u32 = GROUPS * BLOCKS;
    /// In a stage: the values, behind the rows of `A`; the metadata, behind the values; and its size in bytes.
    const VALUES_AT: u32 = Self::BM * 2 * STAGE_SLOTS;
    const METADATA_AT: u32 = Self::VALUES_AT + Self::RUNS * W::VALUE_BYTES;
    const USED_BYTES: u32 = Self::METADATA_AT + Self::RUNS * W::METADATA_BYTES;
    const STAGE_BYTES: u32 = Self::USED_BYTES.next_multiple_of(1024);
    /// Stages of a step, 1 or 2.
    const AT_ONCE: u32 = Self::TILE.stages_at_once(Self::ROWS);
    /// Bytes of a slot, which has the stages of a step.
    const SLOT_BYTES: u32 = Self::AT_ONCE * Self::STAGE_BYTES;
    /// Bytes of the weights of a stage.
    const WEIGHT_BYTES: u32 = Self::USED_BYTES - Self::VALUES_AT;
    /// Rows of `C` that are transposed at once, and how often that is done.
    const CHUNK: usize = if R == 88 { 16 } else { 32 };
    const CHUNKS: usize = 2 * R / Self::CHUNK;
    /// Where sums are transposed, bytes for a warp there, where the orders of rows are, and where counters of bulk
    /// copies.
    const SUMS_AT: u32 = SLOTS * Self::SLOT_BYTES;
    const SUMS_BYTES: u32 = store::warp_bytes(Self::CHUNK as u32);
    const ROWS_AT: u32 = Self::SUMS_AT + GROUPS * store::WARPS * Self::SUMS_BYTES;
    const COUNTERS: u32 = Self::ROWS_AT + SLOTS * A::ORDER_BYTES;
    const VALID: () = {
        assert!(BLOCKS == 1 || BLOCKS == 2, "sums have registers for no more");
        assert!((2 * R).is_multiple_of(Self::CHUNK), "whole chunks");
        store::check_chunks(Self::CHUNK, Self::CHUNKS);
        assert!(SLOTS > 3, "one is multiplied, one has arrived, two are on their way");
        assert!(Self::AT_ONCE * BLOCKS <= 2, "registers for metadata are in pairs");
        assert!(W::PRODUCTS == 2 || W::PRODUCTS == 4, "products of a stage are written out");
    };

    /// The barrier at which those that multiply and the warpgroup that feeds them meet, from different places.
    #[inline(always)]
    unsafe fn meet<S: Simt>(s: &S) {
        // SAFETY: the caller's promise that all threads of the block come here equally often.
        unsafe { s.sync_roles::<THREADS>() }
    }

    /// The same for a warp of which one lane alone did something: a barrier is for warps that are together.
    #[inline(always)]
    unsafe fn meet_again<S: Simt>(s: &S) {
        // SAFETY: all lanes are here; the caller's promise.
        unsafe {
            s.sync_warp();
            Self::meet(s);
        }
    }

    /// Steps of so many stages.
    #[inline(always)]
    const fn steps(stages: u32) -> u32 {
        stages.div_ceil(Self::AT_ONCE)
    }

    /// The counter of the bulk copies of a slot.
    #[inline(always)]
    const fn counter(slot: u32) -> u32 {
        Self::COUNTERS + 8 * slot
    }

    /// Makes the counters of all slots, if this is the thread that does.
    #[inline(always)]
    unsafe fn make_counters<S: Simt>(s: &S, makes: bool) {
        let mut slot = 0;
        while makes && slot < SLOTS {
            // SAFETY: counters have 8 bytes each behind all else.
            unsafe { s.copy_bulk_begin(Self::counter(slot), 1) };
            slot += 1;
        }
    }

    /// Multiplies and stores all items of a block.
    #[inline(always)]
    unsafe fn multiply_tiles<S: Simt>(s: &S, work: &WarpgroupWork) {
        // 1. Locate. The grid has no block without an item.
        let mut item = s.block_idx();
        // SAFETY: the obligations of the params, and the barriers of [`feed`](Activations::feed).
        unsafe {
            let mut at = Slot::FIRST;
            Self::meet(s); // RAW: counters made -> used
            Self::meet(s); // RAW: step arrived -> read
            while item < work.items {
                let (_, stages) = work.stages_of(item);
                let mut sums = (WarpgroupSums::<R>::zeros(), WarpgroupSums::<R>::zeros());
                // Products read metadata as they go on: those of a step and of the one before are in registers of
                // their own, and two turns of the loop are written out so that nothing is copied among them.
                let (mut even, mut odd, mut last) = ([0; 2], [0; 2], [0; 2]);
                let (mut step, full) = (0, stages / Self::AT_ONCE);
                while Self::AT_ONCE == 1 || step < full {
                    at = Self::step::<S, true>(s, at, &mut sums, (&mut even, &mut odd));
                    step += 1;
                    if step == full {
                        break;
                    }
                    at = Self::step::<S, true>(s, at, &mut sums, (&mut odd, &mut even));
                    step += 1;
                    if step == full {
                        break;
                    }
                }
                if Self::AT_ONCE == 2 && !stages.is_multiple_of(2) {
                    at = Self::step::<S, false>(s, at, &mut sums, (&mut last, &mut even));
                    s.warpgroup_wait::<1, 2>(&mut odd); // the step before may have had either
                }
                let second = if BLOCKS == 2 { s.warpgroup_finish(sums.1) } else { [0.0; R] };
                let sums = [s.warpgroup_finish(sums.0), second];
                // All products have ended. This tells the compiler that their metadata were in registers until now.
                s.warpgroup_wait::<0, 2>(&mut even);
                s.warpgroup_wait::<0, 2>(&mut odd);
                if Self::AT_ONCE == 2 {
                    s.warpgroup_wait::<0, 2>(&mut last);
                }
                // 5. Registers -> shared -> global.
                Self::store(s, work, item, &sums);
                item += s.grid_dim();
            }
        }
    }

    /// The metadata of this warpgroup's columns, if weights have any: of two blocks of them, or of two stages.
    #[inline(always)]
    unsafe fn metadata<S: Simt, const WHOLE: bool>(s: &S, at: Slot) -> [u32; 2] {
        if W::METADATA_BYTES == 0 {
            return [0; 2];
        }
        let group = s.thread_idx() / WARPGROUP;
        let from = at.number * Self::SLOT_BYTES
            + Self::METADATA_AT
            + group * BLOCKS * W::METADATA_BYTES
            + s.thread_idx() % WARPGROUP * 4;
        // SAFETY: the stage has arrived.
        unsafe {
            let second = if BLOCKS == 2 {
                s.load_shared(from + W::METADATA_BYTES)
            } else if Self::AT_ONCE == 2 && WHOLE {
                s.load_shared(from + Self::STAGE_BYTES)
            } else {
                0
            };
            [s.load_shared(from), second]
        }
    }

    /// Adds a step's products to sums while those of the one before end. Returns the slot of the next step. Only the
    /// last of an item may be not `WHOLE`: have one stage in place of two.
    #[inline(always)]
    unsafe fn step<S: Simt, const WHOLE: bool>(
        s: &S,
        at: Slot,
        sums: &mut Sums<R>,
        (now, before): (&mut [u32; 2], &mut [u32; 2]),
    ) -> Slot {
        // SAFETY: the obligations of the params; all threads are here.
        unsafe {
            *now = Self::metadata::<S, WHOLE>(s, at);
            Self::multiply::<S, WHOLE>(s, sums, *now, at);
            s.warpgroup_wait::<1, 2>(before);
            Self::meet(s); // RAW: next step arrived -> read; WAR: step before read -> copies
        }
        at.next::<SLOTS>()
    }

    /// Starts the products of a step, and closes their group.
    #[inline(always)]
    unsafe fn multiply<S: Simt, const WHOLE: bool>(s: &S, sums: &mut Sums<R>, metadata: [u32; 2], at: Slot) {
        let slab = at.number * Self::SLOT_BYTES;
        // SAFETY: the step has arrived by bulk copies and a barrier followed, and it stays until all have waited.
        unsafe {
            A::before_products(s);
            s.warpgroup_fence();
            Self::products(s, sums, metadata, slab);
            if Self::AT_ONCE == 2 && WHOLE {
                Self::products(s, sums, [metadata[1]; 2], slab + Self::STAGE_BYTES);
            }
            s.warpgroup_commit();
        }
    }

    /// Starts the products of a stage.
    #[inline(always)]
    unsafe fn products<S: Simt>(s: &S, sums: &mut Sums<R>, metadata: [u32; 2], slab: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            Self::product::<S, 0>(s, sums, metadata, slab);
            Self::product::<S, 1>(s, sums, metadata, slab);
            if W::PRODUCTS == 4 {
                Self::product::<S, 2>(s, sums, metadata, slab);
                Self::product::<S, 3>(s, sums, metadata, slab);
            }
        }
    }

    /// Starts one of a stage's products with each of this warpgroup's runs of columns.
    #[inline(always)]
    unsafe fn product<S: Simt, const PRODUCT: u32>(
        s: &S,
        (first, second): &mut Sums<R>,
        metadata: [u32; 2],
        slab: u32,
    ) {
        let group = s.thread_idx() / WARPGROUP;
        let rows = A::operand(slab, PRODUCT * (STAGE_SLOTS / W::PRODUCTS), Self::BM);
        let values = |block: u32| SharedOperand {
            at: slab + Self::VALUES_AT + (group * BLOCKS + block) * W::VALUE_BYTES + PRODUCT * PRODUCT_BYTES,
            layout: weights::VALUES,
        };
        // SAFETY: the caller's promise.
        unsafe {
            A::multiply::<S, W, PRODUCT, R>(s, first, [values(0), rows], metadata[0]);
            if BLOCKS == 2 {
                A::multiply::<S, W, PRODUCT, R>(s, second, [values(1), rows], metadata[1]);
            }
        }
    }
}

//! N:M products on Tensor Cores.
//!
//! What a gathered row of activations costs is its address only: `ldmatrix` takes one from each lane. So a warp owns a
//! run of 32 columns and all rows of the block's tile, and
//!
//! ```text
//! A     global --cp.async-->  shared (SLOTS, BM)   the rows that the columns of the block need in a stage
//! A     shared --ldmatrix, transposed, or 16 bytes a lane-->  A operand: 16 rows of C × DEPTH picked slots
//! W     global --16 bytes a lane-->  B operand: DEPTH kept rows × 8 columns, in register order in memory
//! sums  registers  -->  C, up to eight successive columns a lane
//! ```
//!
//! Nobody else in the block needs a warp's weights, so that they go past shared memory, two steps ahead of their use.
//! What limits the kernel is how fast shared memory gives the operand from `A`, which serves 32 columns, or the 8 or 16
//! that share their picks; and what comes from the L2: `BM·k` elements of `A` for every block of columns, and `BN·w` of
//! `W` for every tile of rows. Tiles are therefore as large as registers allow.
//!
//! Eight lanes of a phase of `ldmatrix` read eight different slots, from different banks if their numbers differ modulo
//! 8: `windrow_preprocess::nm::Banked` gives rows such slots. Blocks stay, and take one tile after the other, so that
//! the stages of the next are on their way while the last of this are multiplied.

mod feed;

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use self::feed::{Feed, Item};
use super::operand::NmOperand;
use crate::kernel::Kernel;
use crate::output::Output;
use crate::unroll::{each, each4};
use crate::variant::{NmTile, Variant};

/// Steps of a stage: as many as there are buffers for weights, so that which is which is known at compile time.
pub const STEPS: u32 = 2;
/// Columns of a warp.
pub const WARP_COLUMNS: u32 = 32;

/// Arguments of [`NmTensorCores`].
///
/// # Obligations
/// - `a`: k-major, 16-byte aligned, of less than 2³² vectors; every row is readable up to `m` rounded up to 16 bytes.
/// - an *item* is a tile of rows, a part of the stages and a block of columns, the first running fastest; there are
///   `m_tiles · blocks << parts_log2` of them, `items`, and the grid has up to as many blocks; `step` is the grid's
///   size as (tiles of rows, the rest).
/// - `rows`, per block of columns and stage: `SLOTS` rows of `a`, or [`NO_ROW`](crate::NO_ROW); less than 2³² in all.
///   As many steps, which are those of all warps.
/// - `picks`, per block of columns, stage, warp and step: for each strip `DEPTH` slots, in the order of
///   [`NmOperand::place`]; slot `SLOTS` holds zeros. Less than 2³² vectors of 16 bytes.
/// - `weights`, per warp of all blocks and step: [`weight_index`] tells which is where.
/// - part `i` takes stages `i · stages_per_part..`, up to as many; all parts take all `stages`, none takes none. It
///   writes the output `i · part_elements` elements further on; with more than one, that is an f32.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct NmTensorCoresParams {
    /// The result, or the partial sums of part 0.
    pub output: Output,
    /// Elements of the output from one part to the next.
    pub part_elements: u64,
    /// The activations, in vectors of 16 bytes.
    pub a: GlobalPtr<[u32; 4]>,
    /// What is kept of the weights.
    pub weights: GlobalPtr<[u32; 4]>,
    /// Slots that kept rows pick, in vectors of 16 bytes.
    pub picks: GlobalPtr<[u32; 4]>,
    /// Rows that slots hold.
    pub rows: GlobalPtr<u32>,
    /// Vectors of 16 bytes from one row of `a` to the next.
    pub row_vectors: u32,
    /// Stages of the product.
    pub stages: u32,
    /// Stages of a part.
    pub stages_per_part: u32,
    /// Logarithm of the number of parts.
    pub parts_log2: u32,
    /// Tiles of rows, at least one.
    pub m_tiles: u32,
    /// Items of the whole grid.
    pub items: u32,
    /// Blocks of the grid: modulo the tiles of rows, and divided by them.
    pub step: [u32; 2],
}

/// Where the weight of kept row `kept < DEPTH` of a step and column `column < 32` of a warp is, in elements from the
/// step's first, for strips of `strip` columns: in the order of the B operand's registers, those of lane `l` in vectors
/// `l` and `32 + l` of 16 bytes.
#[must_use]
pub fn weight_index<E: NmOperand>(strip: u32, kept: u32, column: u32) -> u32 {
    let run = strip / 4; // successive columns of a lane
    let (within, of_lane) = (column % strip / run, column % run);
    let tile = column / strip * (strip / 8) + of_lane / 2;
    let (lane, word, element) = E::weight_at(kept, 2 * within + of_lane % 2);
    let word = 2 * (tile % 2) + word;
    (((tile / 2) * WARP + lane) * 4 + word) * E::PER_WORD + element
}

/// What a block is, but for the number of its rows.
pub trait BlockShape: 'static {
    /// Warps, of 32 columns each.
    const WARPS: u32;
    /// Columns that share their picks: 8, 16 or 32.
    const STRIP: u32;
    /// Slots of a stage.
    const SLOTS: u32;
    /// Stages in shared memory.
    const STAGES: u32;
}

/// A [`BlockShape`] of these numbers.
pub struct Block<const WARPS: u32, const STRIP: u32, const SLOTS: u32, const STAGES: u32>;

impl<const WARPS: u32, const STRIP: u32, const SLOTS: u32, const STAGES: u32> BlockShape
    for Block<WARPS, STRIP, SLOTS, STAGES>
{
    const WARPS: u32 = WARPS;
    const STRIP: u32 = STRIP;
    const SLOTS: u32 = SLOTS;
    const STAGES: u32 = STAGES;
}

/// One instance: `TILES` times 16 rows of `C` and the columns of `B` a block.
pub struct NmTensorCores<E, B, const TILES: usize>(PhantomData<(E, B)>);

/// Strips of a warp, at most.
const MAX_STRIPS: usize = 4;
/// Runs of eight rows of a tile, at most.
const MAX_HALVES: usize = 8;
/// Loads of a step, at most.
const MAX_LOADS: usize = 16;

/// Weights of a step that a lane holds.
type Weights = [[u32; 4]; 2];
/// Picks of a step that a lane has read, for each strip.
type Picks = [u32; MAX_STRIPS];

/// Sums of a warp, (BM, 32): `[tile][8 columns][register]`.
type Sums<const TILES: usize> = [[[f32; 4]; 4]; TILES];

impl<E: NmOperand, B: BlockShape, const TILES: usize> NmTensorCores<E, B, TILES> {
    /// Rows of `C` of a tile.
    pub const BM: u32 = 16 * TILES as u32;
    /// Columns of `C` of a block.
    pub const BN: u32 = WARP_COLUMNS * B::WARPS;
    /// Strips of a warp.
    const STRIPS: usize = (WARP_COLUMNS / B::STRIP) as usize;
    /// MMAs side by side in a strip.
    const ACROSS: usize = (B::STRIP / 8) as usize;
    const THREADS: u32 = B::WARPS * WARP;
    /// Bytes from one slot to the next.
    const PITCH: u32 = Self::BM * E::BYTES + E::SKEW;
    /// In a stage: the picks, behind the slots and the zero slot; and its size in bytes.
    const PICKS_AT: u32 = (B::SLOTS + 1) * Self::PITCH;
    const STAGE_BYTES: u32 = Self::PICKS_AT + 16 * Self::PICK_VECTORS;
    /// Bytes of a list, with its head, and of all shared memory: stages, then a list for each.
    const LIST_BYTES: u32 = B::SLOTS * 4 + 16;
    const SHARED: u32 = B::STAGES * (Self::STAGE_BYTES + Self::LIST_BYTES);
    /// Threads that copy one row, rows that all threads copy at once, and how often they do.
    const ROW_THREADS: u32 = Self::BM * E::BYTES / 16;
    const ROWS_AT_ONCE: u32 = Self::THREADS / Self::ROW_THREADS;
    const COPIES: usize = (B::SLOTS / Self::ROWS_AT_ONCE) as usize;
    /// Loads of the A operand in a step.
    const LOADS: usize = Self::STRIPS * TILES / E::SPAN;
    /// Successive columns that a lane stores at once, and how often it does in a row.
    const RUN: usize = if B::STRIP == 8 { 2 } else { 4 };
    const PIECES: usize = 8 / Self::RUN;
    /// Picks of a warp in a step, those of a stage in vectors of 16 bytes, and vectors of weights of a step.
    const STEP_PICKS: u32 = Self::STRIPS as u32 * E::DEPTH;
    const PICK_VECTORS: u32 = B::WARPS * STEPS * Self::STEP_PICKS * 2 / 16;
    const STEP_VECTORS: u32 = 2 * WARP;
    const VALID: () = {
        assert!(matches!(B::STRIP, 8 | 16 | 32), "whole MMAs, and a warp's columns at most");
        assert!(B::SLOTS.is_multiple_of(Self::ROWS_AT_ONCE), "whole rounds of copies");
        assert!(
            Self::STRIPS <= MAX_STRIPS && Self::LOADS <= MAX_LOADS && 2 * TILES <= MAX_HALVES,
            "arrays have room"
        );
        assert!(TILES.is_multiple_of(E::SPAN), "whole loads of the A operand");
        assert!(Self::PICK_VECTORS <= Self::THREADS, "a lane brings one vector of its warp's picks at most");
        assert!(B::STAGES >= 2 && B::STAGES <= 5, "one stage is read while others arrive");
    };
}

impl<E: NmOperand, B: BlockShape, const TILES: usize> Kernel for NmTensorCores<E, B, TILES> {
    type Params = NmTensorCoresParams;
    const FILE: &'static str = "nm";
    const VARIANT: Variant = Variant::NmTensorCores {
        dtype: E::DTYPE,
        tile: NmTile { rows: Self::BM, columns: Self::BN, strip: B::STRIP },
        slots: B::SLOTS,
    };
    const BLOCK_THREADS: u32 = Self::THREADS;
    const SHARED_BYTES: u32 = Self::SHARED;
    const MIN_BLOCKS: u32 = 1;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &NmTensorCoresParams) {
        const { Self::VALID }
        // 1. Locate. The grid has no block without an item.
        let mut item = Item::first(s, p);
        // SAFETY: the obligations of the params. Items, and with them the number of stages, are the same for all
        // threads of a block, so that they meet in every barrier; a slab is read after the wait and the barrier that
        // follow its copies, and overwritten after the barrier that follows its last read.
        unsafe {
            Self::clear_zero_slots(s);
            let mut feed = Feed::<S, E, B, TILES>::new(s, p, item);
            let mut i = 1;
            while i < B::STAGES {
                feed.announce();
                i += 1;
            }
            s.copy_async_commit();
            s.copy_async_wait::<0>();
            s.sync_block(); // RAW: lists arrived -> read
            let mut i = 1;
            while i < B::STAGES {
                feed.bring_stage();
                s.sync_block(); // WAR: list read -> the next that is announced takes its place
                i += 1;
            }
            let mut source = Self::source(s, p, item); // of the stage
            let (mut even, mut odd) = (Self::hold(s, source, 0), Self::hold(s, source, 1));
            let mut acc = [[[0.0f32; 4]; 4]; TILES];
            let mut stage = 0;
            let mut left = item.stages(p);
            loop {
                Self::await_stage(s);
                s.sync_block(); // RAW: slab arrived -> read; WAR: slab before read -> next copies
                left -= 1;
                // After the last stage of all, its weights are read again, and not used.
                if left > 0 {
                    source = source.at(STEPS * Self::STEP_VECTORS);
                } else if item.next(s, p).exists(p) {
                    source = Self::turn(s, p, source, (item, item.next(s, p)));
                }
                let picks = [Self::picks(s, stage, 0), Self::picks(s, stage, 1)];
                // 2. Global -> shared: into what the stage before has left.
                feed.bring_stage();
                // 3. Shared -> registers, and 4. multiply-accumulate; then what the next stage needs of weights.
                let slab = stage + E::lane_offset(s.lane());
                Self::step(s, slab, (&picks[0], &even), &mut acc);
                even = Self::hold(s, source, 0);
                Self::step(s, slab, (&picks[1], &odd), &mut acc);
                odd = Self::hold(s, source, 1);
                stage += Self::STAGE_BYTES;
                if stage == B::STAGES * Self::STAGE_BYTES {
                    stage = 0;
                }
                if left == 0 {
                    // 5. Registers -> global.
                    Self::finish(s, p, item, &acc);
                    item = item.next(s, p);
                    if !item.exists(p) {
                        break;
                    }
                    left = item.stages(p);
                    acc = [[[0.0; 4]; 4]; TILES];
                }
            }
        }
    }
}

impl<E: NmOperand, B: BlockShape, const TILES: usize> NmTensorCores<E, B, TILES> {
    /// Zeros in the zero slot of every stage.
    #[inline(always)]
    unsafe fn clear_zero_slots<S: Simt>(s: &S) {
        let mut at = s.thread_idx();
        // SAFETY: 16 bytes of a zero slot; the first barrier of the loop comes before anybody reads them.
        unsafe {
            while at < B::STAGES * Self::ROW_THREADS {
                let (stage, chunk) = (at / Self::ROW_THREADS, at % Self::ROW_THREADS);
                let slot = stage * Self::STAGE_BYTES + B::SLOTS * Self::PITCH;
                s.store_shared(slot + chunk * 16, [0u32; 4]);
                at += Self::THREADS;
            }
        }
    }

    /// Waits for this thread's copies of the oldest stage.
    #[inline(always)]
    unsafe fn await_stage<S: Simt>(s: &S) {
        // SAFETY: part of the protocol; a stage is a group.
        unsafe {
            match B::STAGES {
                2 => s.copy_async_wait::<0>(),
                3 => s.copy_async_wait::<1>(),
                4 => s.copy_async_wait::<2>(),
                _ => s.copy_async_wait::<3>(),
            }
        }
    }

    /// The number, of all steps of all warps, of this warp's first of an item.
    #[inline(always)]
    fn first_step<S: Simt>(s: &S, p: &NmTensorCoresParams, item: Item) -> u32 {
        let warp = item.block(p) * B::WARPS + s.warp();
        (warp * p.stages + item.first_stage(p)) * STEPS
    }

    /// Where this lane reads its warp's weights of an item.
    #[inline(always)]
    fn source<S: Simt>(s: &S, p: &NmTensorCoresParams, item: Item) -> GlobalPtr<[u32; 4]> {
        let step = u64::from(Self::first_step(s, p, item));
        p.weights.at_wide(step * u64::from(Self::STEP_VECTORS) + u64::from(s.lane()))
    }

    /// The source of the first stage of `next`, given that of the last of `item`: the array's start need not be kept.
    #[inline(always)]
    fn turn<S: Simt>(
        s: &S,
        p: &NmTensorCoresParams,
        source: GlobalPtr<[u32; 4]>,
        (item, next): (Item, Item),
    ) -> GlobalPtr<[u32; 4]> {
        let last = Self::first_step(s, p, item) + (item.stages(p) - 1) * STEPS;
        let steps = i64::from(Self::first_step(s, p, next)) - i64::from(last);
        source.byte_add((steps * i64::from(16 * Self::STEP_VECTORS)).cast_unsigned())
    }

    /// Reads the weights of step `step` from `source` on.
    #[inline(always)]
    unsafe fn hold<S: Simt>(s: &S, source: GlobalPtr<[u32; 4]>, step: u32) -> Weights {
        let from = source.at(step * Self::STEP_VECTORS);
        // SAFETY: the step is one of the params.
        unsafe { [s.load_readonly_once(from), s.load_readonly_once(from.at(WARP))] }
    }

    /// Reads the picks of a step of the stage that begins at `stage`.
    #[inline(always)]
    unsafe fn picks<S: Simt>(s: &S, stage: u32, step: u32) -> Picks {
        let of_warp = s.warp() * STEPS * Self::STEP_PICKS + E::lane_pick(s.lane());
        let mut picks = [0; MAX_STRIPS];
        each4(|strip| {
            if strip < Self::STRIPS {
                let of_strip = step * Self::STEP_PICKS + strip as u32 * E::DEPTH;
                // SAFETY: the stage has arrived.
                picks[strip] = unsafe { E::picks(s, stage + Self::PICKS_AT + 2 * (of_warp + of_strip)) };
            }
        });
        picks
    }

    /// `acc +=` the products of a step.
    #[inline(always)]
    unsafe fn step<S: Simt>(s: &S, slab: u32, (picks, weights): (&Picks, &Weights), acc: &mut Sums<TILES>) {
        each::<MAX_LOADS>(|i| {
            if i < Self::LOADS {
                let (load, strip) = (i / Self::STRIPS, i % Self::STRIPS);
                // SAFETY: the whole warp is here; the stage has arrived.
                unsafe {
                    let address = E::address(slab, picks[strip], Self::PITCH);
                    let rows = E::load(s, address, load as u32);
                    Self::multiply(s, &rows, weights, (load, strip), acc);
                }
            }
        });
    }

    /// `acc += rows · weights` for the rows of a load and the columns of a strip.
    #[inline(always)]
    unsafe fn multiply<S: Simt>(
        s: &S,
        rows: &E::Rows,
        weights: &Weights,
        (load, strip): (usize, usize),
        acc: &mut Sums<TILES>,
    ) {
        each::<2>(|i| {
            if i < E::SPAN {
                let a = E::operand(rows, i); // (16, DEPTH)
                let sums = &mut acc[load * E::SPAN + i];
                each4(|across| {
                    if across < Self::ACROSS {
                        let x = strip * Self::ACROSS + across;
                        let pair = weights[x / 2];
                        let b = [pair[x % 2 * 2], pair[x % 2 * 2 + 1]]; // (DEPTH, 8)
                        // SAFETY: the whole warp is here.
                        sums[x] = unsafe { E::mma(s, a, b, sums[x]) }; // (16, 8) += (16, DEPTH)·(DEPTH, 8)
                    }
                });
            }
        });
    }

    /// Writes the warp's part of an item.
    #[inline(always)]
    unsafe fn finish<S: Simt>(s: &S, p: &NmTensorCoresParams, item: Item, acc: &Sums<TILES>) {
        let mut output = p.output;
        // More than one part only for f32.
        output.c = output.c.at_wide(u64::from(item.part(p)) * p.part_elements);
        let lane = s.lane();
        let first_row = item.tile * Self::BM;
        let first_column = item.block(p) * Self::BN + s.warp() * WARP_COLUMNS + lane % 4 * (B::STRIP / 4);
        if B::STRIP > 8
            && output.is_plain()
            && first_column - lane % 4 * (B::STRIP / 4) + WARP_COLUMNS <= output.n
        {
            each::<MAX_HALVES>(|half| {
                each4(|strip| {
                    if half < 2 * TILES && strip < Self::STRIPS {
                        let row = first_row + E::row(lane, half as u32 / 2, half as u32 % 2);
                        let column = first_column + strip as u32 * B::STRIP;
                        let x = |i: usize| {
                            let of_row = acc[half / 2][(strip * Self::ACROSS + i / 2) % 4];
                            of_row[half % 2 * 2 + i % 2]
                        };
                        // SAFETY: as below; the columns are there.
                        unsafe {
                            let four = [x(0), x(1), x(2), x(3)];
                            if B::STRIP == 32 {
                                let [a, b, c, d] = four;
                                output.store_plain(s, row, column, [a, b, c, d, x(4), x(5), x(6), x(7)]);
                            } else {
                                output.store_plain(s, row, column, four);
                            }
                        }
                    }
                });
            });
            return;
        }
        // Pieces of up to four columns of a row. What stores one is long, so it is there once, in a loop over those
        // that have rows.
        let rows = (p.output.m - first_row).min(Self::BM);
        let row_pieces = Self::PIECES as u32;
        let pieces = if E::SPAN == 1 { rows.div_ceil(8) } else { Self::BM / 8 } * row_pieces;
        let mut piece = 0;
        while piece < pieces {
            let (half, of_row) = (piece / row_pieces, piece % row_pieces);
            // Register numbers must be known, so each candidate is compared.
            let mut sums = [0.0; 4];
            each::<MAX_HALVES>(|candidate| {
                each4(|run| {
                    let number = candidate * Self::PIECES + run;
                    if candidate < 2 * TILES && run < Self::PIECES && number as u32 == piece {
                        each4(|i| {
                            if i < Self::RUN {
                                let x = run * Self::RUN + i;
                                sums[i] = acc[candidate / 2][x / 2][candidate % 2 * 2 + x % 2];
                            }
                        });
                    }
                });
            });
            let row = first_row + E::row(lane, half / 2, half % 2);
            let (strip, run) = match B::STRIP {
                32 => (0, of_row),
                _ => (of_row, 0),
            };
            let column = first_column + strip * B::STRIP + run * 4;
            let [a, b, ..] = sums;
            // SAFETY: these elements are this lane's, and of this item.
            unsafe {
                match B::STRIP {
                    8 => output.store(s, row, column, [a, b]),
                    _ => output.store(s, row, column, sums),
                }
            }
            piece += 1;
        }
    }
}

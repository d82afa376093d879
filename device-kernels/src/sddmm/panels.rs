//! SDDMM on CUDA cores in f32, by [panels](crate::panels) of rows that share what they need of `Y` in shared memory.
//!
//! A warp has eight rows of `X` in registers, two bundles of four. Each row of `Y` that any row of the panel names
//! comes to shared memory once; a bundle reads it once for its four rows:
//!
//! ```text
//! X         global --16 bytes a lane-->            registers, (8, inner)
//! Y rows    global --cp.async-->                   shared, STAGES × (SLOTS, inner)
//! record    global --cp.async-->                   shared: slots and masks of vectors, where results go
//! Y         shared --16 bytes a lane-->            (1, inner)
//! ```
//!
//! `LANES` lanes lie along the inner dimension, 16 or 32 bytes of it each, and the warp's other lanes have other
//! vectors. A *batch* is eight vectors, and so 32 sums, one for each lane: lane `4v + r` gets the one of vector `v` and
//! row `r`. The lanes halve what each has of them by exchanging it, as [`SddmmEntries`](super::SddmmEntries) does; here
//! each takes rows and vectors in the order of its own number, so that it always keeps the first and gives the second
//! of two, and nothing is selected. Every sum is added in the same order whichever lane gets it: results are the same
//! in every run.
//!
//! Of all four rows a product is formed, and that of an absent entry is dropped; a mask says which are there. Where
//! its result goes follows from the masks, too: a row's entries are stored in the order of their columns, so that the
//! record has one position for each row and chunk.
//!
//! A block takes one *piece*, some chunks of a panel; no two write the same.

mod record;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::Sampled;
use crate::kernel::Kernel;
use crate::panels::{BUNDLE_ROWS, PANEL_ROWS, PANEL_WARPS, WARP_BUNDLES};
use crate::real::Real;
use crate::unroll::{each, each4};
use crate::variant::Variant;
use crate::{NO_COLUMN, NO_ROW};

pub use record::{
    BATCH_VECTORS, BATCH_WORDS, HEAD_WORDS, MAX_BATCHES, NAME_WORDS, SLOTS, batches_word, record_words,
};
use record::{COUNT_BITS, FIRSTS_AT, NAME_BYTES, RECORD_BYTES};

/// Threads of a block.
const THREADS: u32 = PANEL_WARPS * WARP;
/// Rounds in which a block brings the rows of a chunk, at most.
const ROUNDS: usize = 8;

/// Arguments of [`SddmmPanels`].
///
/// # Obligations
/// - `pieces[i] = [panel, begin, end, _]`: the chunks `begin..end`, of one panel, of no two pieces the same.
/// - `rows`: the rows of `X` of each panel, bundle by bundle, below m, or [`NO_ROW`] for one that no mask has.
/// - `names`, [`NAME_WORDS`] of each chunk: `SLOTS` columns, below n, or [`NO_COLUMN`] in slots that no vector has;
///   where its record begins, and how long it is, in vectors of 16 bytes; two words of padding.
/// - a record: a [`batches_word`] for each warp; a position for each row; from [`HEAD_WORDS`] on [`BATCH_WORDS`] for
///   each batch, the vectors of a bundle in the order of their columns, filled up to whole batches with slot 0 without
///   bits. As many positions follow a row's first as its bundle has bits for it, less one.
/// - instances for fewer than 256 columns: `inner` is at most [`SddmmPanels::SLICE`].
/// - `sampled.places` is null. At most 2³² − 1024 positions.
/// - instances that read vectors: `inner` is a multiple of 4.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SddmmPanelsParams {
    /// The dense operands and the result.
    pub sampled: Sampled,
    /// `[panel, begin, end, _]` of each piece, a block each.
    pub pieces: GlobalPtr<[u32; 4]>,
    /// Rows of each panel, four of a bundle.
    pub rows: GlobalPtr<u32>,
    /// Columns of each chunk, and where its record is.
    pub names: GlobalPtr<u32>,
    /// The records of all chunks.
    pub records: GlobalPtr<[u32; 4]>,
}

/// What a lane has of four rows of `X`: four columns of each, `QUADS` times.
type Bundle<const QUADS: usize> = [[[f32; 4]; QUADS]; BUNDLE_ROWS as usize];

/// One instance: lanes along the inner dimension, how often four columns each of them has, and whether rows are aligned
/// to 16 bytes.
pub struct SddmmPanels<const LANES: u32, const QUADS: usize, const VECTORS: bool>;

impl<const LANES: u32, const QUADS: usize, const VECTORS: bool> SddmmPanels<LANES, QUADS, VECTORS> {
    const VALID: () = assert!(
        (QUADS == 1 && LANES >= 4 && LANES.is_power_of_two()) || (QUADS == 2 && LANES == WARP),
        "half a cache line, one, two, four or eight"
    );
    /// Columns that the lanes have of one quad each.
    const QUAD_COLUMNS: u32 = 4 * LANES;
    /// Columns of the inner dimension at a time; the instance for 256 goes on with the next.
    pub const SLICE: u32 = QUADS as u32 * Self::QUAD_COLUMNS;
    const GOES_ON: bool = QUADS > 1;
    const ROW_BYTES: u32 = 4 * Self::SLICE;
    const ROWS_BYTES: u32 = SLOTS * Self::ROW_BYTES;
    /// Chunks in shared memory. Of the longest rows there is room for one in each of two blocks, which take turns.
    const STAGES: u32 = if Self::GOES_ON { 1 } else { 2 };
    /// Behind the rows of all stages: their records.
    const RECORDS_AT: u32 = Self::STAGES * Self::ROWS_BYTES;
    /// Behind these: names of the next chunk and of the one after that.
    const NAMES_AT: u32 = Self::RECORDS_AT + Self::STAGES * RECORD_BYTES;
    /// Behind these: sums of a chunk over the slices before.
    const KEPT_AT: u32 = Self::NAMES_AT + 2 * NAME_BYTES;
    const KEPT_BYTES: u32 = if Self::GOES_ON { 4 * WARP * MAX_BATCHES } else { 0 };
    /// Rows of `Y` that the block brings at a time.
    const ROUND_ROWS: u32 = THREADS / LANES;
}

impl<const LANES: u32, const QUADS: usize, const VECTORS: bool> Kernel
    for SddmmPanels<LANES, QUADS, VECTORS>
{
    type Params = SddmmPanelsParams;
    const FILE: &'static str = "sddmm/panels";
    const VARIANT: Variant = Variant::SddmmPanels { slice: Self::SLICE, vectors: VECTORS };
    const BLOCK_THREADS: u32 = THREADS;
    const SHARED_BYTES: u32 = Self::KEPT_AT + Self::KEPT_BYTES;
    // As many as registers allow without spilling; of 64 columns `ptxas` makes room for three when it is not told.
    const MIN_BLOCKS: u32 = match (QUADS, LANES) {
        (1, 16) => 0,
        (1, _) => 3,
        _ => 2,
    };

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SddmmPanelsParams) {
        const { Self::VALID }
        // 1. Locate.
        let block = Block::<S, LANES, QUADS, VECTORS>::locate(s, p);
        // SAFETY: the grid has a block for each piece; chunks, columns, rows and records are in range by the
        // obligations of the params. All threads of a block have the same piece, so that they meet at its barriers.
        unsafe {
            let [panel, begin, end, _] = s.load_readonly(p.pieces.at(s.block_idx()));
            let mut at = Place { chunk: begin, column: 0 };
            if begin < end {
                block.name(begin, begin);
                s.copy_async_commit();
                s.copy_async_wait::<0>();
                s.sync_block(); // RAW: names -> read
                if Self::STAGES == 2 {
                    block.stage(0, at, (begin, end));
                }
            }
            let mut x = [block.bundle(panel, 0, 0), block.bundle(panel, 1, 0)];
            let mut stage = 0;
            while at.chunk < end {
                // 2. Global -> shared: into the stage that all warps have left.
                if Self::STAGES == 1 {
                    s.sync_block(); // WAR: reads of the stage before -> this
                    block.stage(0, at, (begin, end));
                }
                s.copy_async_wait::<0>();
                s.sync_block(); // RAW: staged -> read; WAR: reads of the stage before -> next
                let next = block.behind(at);
                if Self::STAGES == 2 && next.chunk < end {
                    block.stage(stage ^ 1, next, (begin, end));
                }
                if Self::GOES_ON && p.sampled.inner > Self::SLICE {
                    // Read again: kept, it would take a register from the loop.
                    let [panel, ..] = s.load(p.pieces.at(s.block_idx()));
                    x = [block.bundle(panel, 0, at.column), block.bundle(panel, 1, at.column)];
                }
                // 3. to 5. Shared -> registers, multiply-accumulate, registers -> global.
                block.multiply(stage, at, &x);
                stage = (stage + 1) % Self::STAGES;
                at = next;
            }
        }
    }
}

/// Which chunk, and from which column of the inner dimension on.
#[derive(Clone, Copy)]
struct Place {
    chunk: u32,
    column: u32,
}

/// Where a lane is.
struct Block<'a, S, const LANES: u32, const QUADS: usize, const VECTORS: bool> {
    s: &'a S,
    p: &'a SddmmPanelsParams,
    warp: u32,
    lane: u32,
    /// First of the lane's columns of a slice.
    across: u32,
}

impl<'a, S: Simt, const LANES: u32, const QUADS: usize, const VECTORS: bool>
    Block<'a, S, LANES, QUADS, VECTORS>
{
    const SLICE: u32 = SddmmPanels::<LANES, QUADS, VECTORS>::SLICE;
    const GOES_ON: bool = SddmmPanels::<LANES, QUADS, VECTORS>::GOES_ON;
    const ROW_BYTES: u32 = SddmmPanels::<LANES, QUADS, VECTORS>::ROW_BYTES;
    const ROWS_BYTES: u32 = SddmmPanels::<LANES, QUADS, VECTORS>::ROWS_BYTES;
    const RECORDS_AT: u32 = SddmmPanels::<LANES, QUADS, VECTORS>::RECORDS_AT;
    const NAMES_AT: u32 = SddmmPanels::<LANES, QUADS, VECTORS>::NAMES_AT;
    const KEPT_AT: u32 = SddmmPanels::<LANES, QUADS, VECTORS>::KEPT_AT;
    const QUAD_COLUMNS: u32 = SddmmPanels::<LANES, QUADS, VECTORS>::QUAD_COLUMNS;
    const ROUND_ROWS: u32 = SddmmPanels::<LANES, QUADS, VECTORS>::ROUND_ROWS;

    #[inline(always)]
    fn locate(s: &'a S, p: &'a SddmmPanelsParams) -> Self {
        let lane = s.lane();
        Self { s, p, warp: s.warp(), lane, across: lane % LANES * 4 }
    }

    /// What comes behind a place: the next slice of the chunk, or the first of the next chunk.
    #[inline(always)]
    fn behind(&self, at: Place) -> Place {
        let column = at.column + Self::SLICE;
        if Self::GOES_ON && column < self.p.sampled.inner {
            Place { column, ..at }
        } else {
            Place { chunk: at.chunk + 1, column: 0 }
        }
    }

    /// Where the names of a chunk are, of a piece that begins with `begin`.
    #[inline(always)]
    fn names_of(chunk: u32, begin: u32) -> u32 {
        Self::NAMES_AT + (chunk - begin) % 2 * NAME_BYTES
    }

    /// Starts bringing the names of a chunk.
    ///
    /// # Safety
    /// A chunk of the params, of whose place nobody reads any more.
    #[inline(always)]
    unsafe fn name(&self, chunk: u32, begin: u32) {
        let thread = self.s.thread_idx();
        if thread < NAME_WORDS / 4 {
            let from = self.p.names.at_wide(u64::from(chunk) * u64::from(NAME_WORDS)).at(4 * thread);
            // SAFETY: every chunk has names.
            unsafe { self.s.copy_async_16(Self::names_of(chunk, begin) + 16 * thread, from, true) };
        }
    }

    /// Starts bringing a chunk's slice to a stage, and the names of the chunk behind it if that is of the piece: so
    /// nothing waits for a load into a register.
    ///
    /// # Safety
    /// Collective: the whole block. Nobody reads the stage any more; the chunk's names have arrived.
    #[inline(always)]
    unsafe fn stage(&self, stage: u32, at: Place, (begin, end): (u32, u32)) {
        let (s, thread) = (self.s, self.s.thread_idx());
        // SAFETY: names of chunks of the piece; columns are below n or NO_COLUMN, of which nothing is read; the record
        // fits in its place.
        unsafe {
            let names = Self::names_of(at.chunk, begin);
            let name = |word: u32| s.load_shared(names + 4 * word);
            let to = stage * Self::ROWS_BYTES + 4 * self.across;
            each::<ROUNDS>(|round| {
                if (round as u32) * Self::ROUND_ROWS < SLOTS {
                    let slot = round as u32 * Self::ROUND_ROWS + thread / LANES;
                    let row = name(slot);
                    each::<QUADS>(|quad| {
                        let across = quad as u32 * Self::QUAD_COLUMNS;
                        let to = to + slot * Self::ROW_BYTES + 4 * across;
                        self.stage_four(to, row, at.column + across + self.across);
                    });
                }
            });
            if at.chunk + 1 < end {
                self.name(at.chunk + 1, begin);
            }
            let (first, count) = (name(SLOTS), name(SLOTS + 1));
            if thread < count {
                let to = Self::RECORDS_AT + stage * RECORD_BYTES + 16 * thread;
                s.copy_async_16(to, self.p.records.at(first + thread).cast(), true);
            }
            s.copy_async_commit();
        }
    }

    /// Brings four elements of a row of `Y`, from a column on; zeros beyond the inner dimension, and for no row.
    ///
    /// # Safety
    /// The row is below n or [`NO_COLUMN`]; 16 bytes at `to` are of the stage.
    #[inline(always)]
    unsafe fn stage_four(&self, to: u32, row: u32, column: u32) {
        let sampled = &self.p.sampled;
        let from = sampled.y.at(column).at_wide(u64::from(row).wrapping_mul(u64::from(sampled.ldy)));
        // SAFETY: `inside` elements of the row are readable, with vectors four if any.
        unsafe {
            if VECTORS {
                self.s.copy_async_16(to, from, row != NO_COLUMN && column < sampled.inner);
            } else {
                let inside = if row == NO_COLUMN { 0 } else { sampled.inner.saturating_sub(column) };
                self.s.store_shared(to, self.four(from, inside));
            }
        }
    }

    /// Four elements, of which the first `inside` are read and the others are zero.
    ///
    /// # Safety
    /// So many are readable, with vectors a multiple of four.
    #[inline(always)]
    unsafe fn four(&self, from: GlobalPtr<u32>, inside: u32) -> [u32; 4] {
        let mut elements = [0; 4];
        // SAFETY: the caller's promise; with vectors, rows begin and columns lie at multiples of 16 bytes.
        unsafe {
            if VECTORS {
                if inside > 0 {
                    elements = self.s.load_readonly(from.cast());
                }
            } else {
                each4(|i| {
                    if (i as u32) < inside {
                        elements[i] = self.s.load_readonly(from.at(i as u32));
                    }
                });
            }
        }
        elements
    }

    /// The rows of `X` of a bundle of the warp, from a column on, in the lane's order: row `i ^ lane % 4` at `i`.
    ///
    /// # Safety
    /// A panel of the params.
    #[inline(always)]
    unsafe fn bundle(&self, panel: u32, bundle: u32, column: u32) -> Bundle<QUADS> {
        let first = panel * PANEL_ROWS + (self.warp * WARP_BUNDLES + bundle) * BUNDLE_ROWS;
        let sampled = &self.p.sampled;
        let mut x = [[[0.0; 4]; QUADS]; 4];
        // SAFETY: rows of the panel, of which nothing is read if there is none.
        unsafe {
            each4(|i| {
                let row = self.s.load_readonly(self.p.rows.at(first + (i as u32 ^ (self.lane % 4))));
                each::<QUADS>(|quad| {
                    let column = column + quad as u32 * Self::QUAD_COLUMNS + self.across;
                    let inside = if row == NO_ROW { 0 } else { sampled.inner.saturating_sub(column) };
                    let from =
                        sampled.x.at(column).at_wide(u64::from(row).wrapping_mul(u64::from(sampled.ldx)));
                    x[i][quad] = self.four(from, inside).map(f32::from_bits);
                });
            });
        }
        x
    }

    /// Does the warp's part of a chunk's slice.
    ///
    /// # Safety
    /// The stage has arrived, and nobody writes it; `x` are the warp's rows.
    #[inline(always)]
    unsafe fn multiply(&self, stage: u32, at: Place, x: &[Bundle<QUADS>; 2]) {
        // SAFETY: the head of the record, and the batches of the warp's bundles.
        unsafe {
            let record = Self::RECORDS_AT + stage * RECORD_BYTES;
            let word: u32 = self.s.load_shared(record + 4 * self.warp);
            let number = |i: u32| word >> (i * COUNT_BITS) & ((1 << COUNT_BITS) - 1);
            let [begin, first, second] = [number(0), number(1), number(2)];
            self.dot::<0>((stage, at), begin, first, &x[0]);
            self.dot::<1>((stage, at), begin + first.div_ceil(2), second, &x[1]);
        }
    }

    /// Forms the sums of a bundle's vectors from a batch on, so many halves of batches, and stores those of entries.
    ///
    /// # Safety
    /// As for [`multiply`](Self::multiply).
    #[inline(always)]
    unsafe fn dot<const BUNDLE: u32>(
        &self,
        (stage, at): (u32, Place),
        mut batch: u32,
        mut halves: u32,
        x: &Bundle<QUADS>,
    ) {
        let s = self.s;
        let record = Self::RECORDS_AT + stage * RECORD_BYTES;
        let row = self.lane % BUNDLE_ROWS;
        // Lanes of the same row, and those of them that have earlier vectors.
        let same_row = 0x1111_1111 << row;
        let earlier = same_row & ((1 << self.lane) - 1);
        // SAFETY: words of the record; all lanes of the warp have the same batches; a position is the lane's alone.
        unsafe {
            let of_row = (self.warp * WARP_BUNDLES + BUNDLE) * BUNDLE_ROWS + row;
            let mut position: u32 = s.load_shared(record + 4 * (FIRSTS_AT + of_row));
            while halves > 0 {
                let words = s.load_shared(record + 4 * (HEAD_WORDS + BATCH_WORDS * batch));
                let [low, high, entries, _]: [u32; 4] = words;
                let mut sum = self.batch(stage, [low, high], halves > 1, x);
                let is_last = !Self::GOES_ON || at.column + Self::SLICE >= self.p.sampled.inner;
                if Self::GOES_ON && (at.column > 0 || !is_last) {
                    let kept = Self::KEPT_AT + 4 * (batch * WARP + self.lane);
                    if at.column > 0 {
                        sum += f32::from_bits(s.load_shared(kept));
                    }
                    s.store_shared(kept, sum.to_bits());
                }
                if entries >> self.lane & 1 != 0 && is_last {
                    let place = position + s.population(u64::from(entries & earlier));
                    self.p.sampled.store(s, self.p.sampled.target_at(s, place), sum);
                }
                position += s.population(u64::from(entries & same_row));
                batch += 1;
                halves = halves.saturating_sub(2);
            }
        }
    }

    /// The lane's sum of a batch with these slots; with `whole`, also of its second half.
    ///
    /// # Safety
    /// Collective: the whole warp. The stage has arrived.
    #[inline(always)]
    unsafe fn batch(&self, stage: u32, [low, high]: [u32; 2], whole: bool, x: &Bundle<QUADS>) -> f32 {
        let s = self.s;
        // SAFETY: the caller's promise.
        unsafe {
            if LANES < WARP {
                // The slots of the lane's own vector and of those of lanes near it, in this order.
                let order = s.permute_bytes(low, high, (self.lane / 4 * 0x1111) ^ 0x3210);
                return self.tree::<LANES>(stage, order, x);
            }
            // Both halves have all lanes, and the second may be left out.
            let selector = (self.lane / 4 % 4 * 0x1111) ^ 0x3210;
            let first = self.tree::<16>(stage, s.permute_bytes(low, low, selector), x);
            let second = match whole {
                true => self.tree::<16>(stage, s.permute_bytes(high, high, selector), x),
                false => 0.0,
            };
            let is_second = self.lane & 16 != 0;
            let (keep, give) = if is_second { (second, first) } else { (first, second) };
            keep + f32::shuffle_xor(s, give, 16)
        }
    }

    /// The lane's sum over groups of `GROUP` lanes of the first of these slots, which are in its order.
    ///
    /// # Safety
    /// As for [`batch`](Self::batch).
    #[inline(always)]
    unsafe fn tree<const GROUP: u32>(&self, stage: u32, order: u32, x: &Bundle<QUADS>) -> f32 {
        // SAFETY: the caller's promise; lanes of a group exchange within it.
        unsafe {
            let vector = |step: u32| self.vector(stage, order >> (8 * step) & 0xff, x);
            let two = |step: u32| {
                let first = vector(step);
                if GROUP < 8 { first } else { first + f32::shuffle_xor(self.s, vector(step + 1), 4) }
            };
            let first = two(0);
            if GROUP < 16 { first } else { first + f32::shuffle_xor(self.s, two(2), 8) }
        }
    }

    /// The product of a slot's row of `Y` and the lane's row of `X`, summed over four lanes.
    ///
    /// # Safety
    /// As for [`batch`](Self::batch); a slot.
    #[inline(always)]
    unsafe fn vector(&self, stage: u32, slot: u32, x: &Bundle<QUADS>) -> f32 {
        let s = self.s;
        let at = stage * Self::ROWS_BYTES + 4 * self.across + slot * Self::ROW_BYTES;
        let mut sums = [0.0; 4];
        // SAFETY: the caller's promise.
        unsafe {
            each::<QUADS>(|quad| {
                let y = f32::load_shared(s, at + quad as u32 * 4 * Self::QUAD_COLUMNS);
                each4(|row| {
                    each4(|i| sums[row] = s.fma(x[row][quad][i], y[i], sums[row]));
                });
            });
            // The lane beside has the rows the other way round.
            let mine = sums[0] + f32::shuffle_xor(s, sums[1], 1);
            let others = sums[2] + f32::shuffle_xor(s, sums[3], 1);
            mine + f32::shuffle_xor(s, others, 2)
        }
    }
}

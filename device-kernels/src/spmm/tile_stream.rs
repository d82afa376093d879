//! `C = α·A·B + β·C` on Tensor Cores: a stream of 8 × 8 tiles, dealt out evenly.
//!
//! RSH-SpMM's Tensor Core path (sections 3 and 4), reworked. A *step* is two tiles of one window:
//! 8 rows × 16 condensed columns. All steps of the matrix form one stream; each warp takes a contiguous,
//! equally long range of it, so balance holds by construction and the pipeline is filled once per warp, not
//! once per window. `FEATURES` columns of `C` belong to a warp:
//!
//! ```text
//! global B rows    --cp.async-->           shared, STAGES × (16, FEATURES), 16-byte chunks XOR-swizzled
//! global record    --cp.async-->           shared: values, rows, slot; and the columns of a later step
//! shared B         --ldmatrix.trans-->     A operand: 16 features × 16 condensed columns
//! shared values    --8 or 16 bytes a lane--> B operand: 16 condensed columns × 8 window rows
//! accumulators     FEATURES × 8 rows of Cᵀ, f32
//! ```
//!
//! The sparse operand sits on the 8-wide side (`Cᵀ = Bᵀ·Aᵀ`), so sparsity is paid for in 8 × 1
//! column vectors. Its values are in register order: dense ([`Fragments`]), 256 bytes a step (512 in tf32) and
//! nothing to decode in the loop; or only those of entries ([`Packed`]), fewer bytes where tiles are sparse, found
//! by counting the bits of a mask. Whatever a step needs travels through shared memory with its rows of `B`:
//! a register that is loaded ahead would have to be moved to its place, and the move waits for the load.
//! For comparison, values can be in the order of RS-Tile's bitmaps ([`Bitmaps`]), and rows of `B` can come with two
//! stages, or without shared memory ([`RegisterStream`]).
//!
//! **Long windows.** The warps of a block are a *team*: where a window is longer than a warp's share, each of
//! them takes a part of its steps, and the parts are added in shared memory, in the order of the warps.
//! A window longer than a team's share is summed in pieces: each leaves its rows in a slot of the workspace and
//! [`combine`](crate::spmm::combine) adds them in a fixed order.
//!
//! **Not-a-number.** An MMA multiplies absent entries too: an infinity in a row of `B` would give
//! `0·∞ = NaN` in rows of the window that do not refer to it. Pad columns therefore read nothing, and
//! a piece with any non-finite sum is computed again, entry by entry, before it is
//! stored. Finite data never takes that path.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use crate::NO_COLUMN;
use crate::kernel::Kernel;
use crate::spmm::dense::Dense;
use crate::variant::Variant;

mod bitmap;
mod epilogue;
mod held;
mod operand;
mod registers;

pub use bitmap::Bitmaps;
use epilogue::Finished;
use held::Bring;
pub use held::{
    CHUNK_BYTES, Decode, Form, Fragments, Held, LANE_ELEMENTS, LINK_STEPS, MASK_WORDS, Masked, PACKED_COUNTS,
    PACKED_HEAD_WORDS, PACKED_LINK, Packed,
};
pub use operand::TileElement;
pub use registers::{RegisterStream, Registers};

/// Rows of a window.
pub const WINDOW_ROWS: u32 = 8;
/// Condensed columns of a step.
pub const STEP_COLUMNS: u32 = 16;
/// Marks, in place of its rows, a step that is not the last of its piece.
pub const MORE_STEPS: u32 = u32::MAX - 1;
/// Words of a record behind its rows: the [`piece_word`], and padding.
pub const RECORD_TAIL: usize = 4;
/// Workers of a team: the warps of a block.
pub const TEAM: u32 = 4;
/// The bit of a [`piece_word`] that is set if one worker has the piece alone. No slot is so large.
const ALONE: u32 = 1 << 30;

/// What a record says of the piece that ends with it: its slot, [`NO_SLOT`](crate::NO_SLOT) if it is a whole
/// window, and whether the team shares it.
#[must_use]
pub const fn piece_word(slot: u32, shared: bool) -> u32 {
    if shared { slot & !ALONE } else { slot | ALONE }
}

/// Arguments of [`TileStream`].
///
/// # Obligations
/// - `workers[i] = [begin, end]`, `begin < end`: the ranges are disjoint. A *piece* is all steps of a window
///   or some. It lies inside one range, or it is *shared*: each worker of a team, [`TEAM`] successive workers from
///   a multiple of it, has a part, at least one step. All its workers meet the shared pieces of a team in the same
///   order.
/// - fewer than 2²⁸ steps; columns below k, rows below m and below [`MORE_STEPS`]; `8·slot + 8` at most the rows of
///   the workspace; all arrays 16-byte aligned.
/// - per step: a record, 16 columns or [`NO_COLUMN`], and, unless records are packed, two bitmaps.
/// - a record of [`Fragments`]: the fragments of all lanes, [`TileElement::LANE_WORDS`] words each; then 8 words, in
///   the last step of a piece, or of a worker's part of it, the rows of `C`, or [`NO_ROW`](crate::NO_ROW), no row in
///   two windows, in the others [`MORE_STEPS`]; then the [`piece_word`]; then three words of padding. Pieces have the
///   same slot only if `dense.accumulate` is set. The last step of a range ends a piece.
/// - a bit is set exactly where there is an entry, none for a pad; elsewhere the fragment is +0.
/// - a [`Packed`] record: as its documentation and that of its [`Decode`] say, rows and slot as above. It has
///   `record_starts[step + 1] - record_starts[step]` chunks of 16 bytes, just enough for its values; its link
///   is right if it leads to a step.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct TileStreamParams {
    /// The dense operands. Workspace rows `8·slot .. 8·slot + 8` belong to a slot.
    pub dense: Dense,
    /// `[step_begin, step_end]` per warp.
    pub workers: GlobalPtr<[u32; 2]>,
    /// Columns of each step, four words of four: word `r` holds condensed columns `r`, `r + 4`,
    /// `r + 8`, `r + 12`, the ones that one quarter-warp stages.
    pub step_cols: GlobalPtr<[u32; 4]>,
    /// Record of each step, [`record_words`] words.
    pub records: GlobalPtr<[u32; 4]>,
    /// Bitmaps of each step. Bit `8·k + r` of word `t`: tile `t` of the step has an entry in condensed
    /// column `k`, row `r`.
    pub bitmaps: GlobalPtr<[u64; 2]>,
    /// First chunk of 16 bytes of each packed record, and the number of chunks: one more than there are steps.
    pub record_starts: GlobalPtr<u32>,
    /// Number of workers, one warp each.
    pub worker_count: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

/// Words of a step's record, for lanes with `lane_words` words of fragments: fragments, rows, slot and padding.
#[must_use]
pub const fn record_words(lane_words: usize) -> usize {
    WARP as usize * lane_words + WINDOW_ROWS as usize + RECORD_TAIL
}

/// How rows of `B` get to the Tensor Cores, and how many steps are under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipeline {
    /// Through shared memory, three steps: [`Bulk`]. Rows that are not aligned too, dense values two steps:
    /// [`ByElement`].
    ThreeStages,
    /// Through shared memory, two steps.
    TwoStages,
    /// To registers, two steps: [`Registers`].
    Registers,
}

/// How a step's rows of `B` get to the Tensor Cores.
pub trait Staging: 'static {
    /// Whether rows are 16-byte aligned.
    const VECTORS: bool;
    /// Whether they go through shared memory.
    const STAGED: bool = true;

    /// Which feature of a slice a sum is of that [`TileElement::each_sum`] says to be of `feature`.
    #[inline(always)]
    fn feature(feature: u32) -> u32 {
        feature
    }
}
/// `cp.async` of 16 bytes.
pub struct Bulk;
/// An element at a time through registers, for rows of any alignment.
pub struct ByElement;
impl Staging for Bulk {
    const VECTORS: bool = true;
}
impl Staging for ByElement {
    const VECTORS: bool = false;
}

/// One instance: `SLICES` slices of 128 bytes of `B`'s rows per warp, `STAGES` steps in shared memory, values
/// held as `V` says.
pub struct TileStream<E, G, const SLICES: usize, const STAGES: u32, V = Fragments>(PhantomData<(E, G, V)>);

/// Bytes of one row of a slice: one cache line.
const SLICE_BYTES: u32 = 128;
/// Bytes of one staged slice of a step.
const STAGE_SLICE_BYTES: u32 = STEP_COLUMNS * SLICE_BYTES;
/// Bytes of a step's columns.
const COLS_BYTES: u32 = STEP_COLUMNS * 4;

impl<E: TileElement, G: Staging, const SLICES: usize, const STAGES: u32, V: Held<E>>
    TileStream<E, G, SLICES, STAGES, V>
{
    const VALID: () = assert!(
        STAGES >= 2 && STAGES <= 4 && SLICES >= 1 && SLICES <= 2 && Self::WARPS == TEAM,
        "two to four stages, one or two slices, a team of the block's warps"
    );
    const LINKED: () = assert!(
        matches!(V::FORM, Form::Dense) || STAGES - 1 == LINK_STEPS || Self::KEEPS_LINK,
        "links lead to the step to be staged, or to the one behind it"
    );
    /// Whether links lead one step further than to the one to be staged, so that each is kept for a step.
    const KEEPS_LINK: bool = !matches!(V::FORM, Form::Dense) && STAGES == LINK_STEPS;
    const PIPELINE: Pipeline =
        if G::VECTORS && STAGES == 2 { Pipeline::TwoStages } else { Pipeline::ThreeStages };
    /// Columns of `C` per warp, and per value of the grid's slow axis.
    pub const FEATURES: u32 = SLICES as u32 * E::SLICE_FEATURES;
    /// Workers of a block, one warp each.
    pub const WARPS: u32 = Self::BLOCK_THREADS / WARP;
    /// A pipeline slot: the rows of `B`, the step's record, the columns of a later step. A multiple of
    /// 128 bytes, so that the swizzle can be applied to whole addresses.
    const STAGE_BYTES: u32 =
        (Self::STAGED_ROWS_BYTES + V::RECORD_BYTES + COLS_BYTES).next_multiple_of(SLICE_BYTES);
    const STAGED_ROWS_BYTES: u32 = if G::STAGED { SLICES as u32 * STAGE_SLICE_BYTES } else { 0 };
    /// In front of the slots, where these have no room for a piece's result: that.
    const RESULT_BYTES: u32 = if G::STAGED { 0 } else { SLICES as u32 * STAGE_SLICE_BYTES };
    /// Offset of the last pipeline slot.
    const LAST_STAGE: u32 = (STAGES - 1) * Self::STAGE_BYTES;
    const WARP_BYTES: u32 = Self::RESULT_BYTES + STAGES * Self::STAGE_BYTES;
    /// Where each warp tells its team which pipeline slot holds its part of a shared piece, a word a warp.
    const TEAM_AT: u32 = Self::WARPS * Self::WARP_BYTES;
}

impl<E: TileElement, G: Staging, const SLICES: usize, const STAGES: u32, V: Held<E>> Kernel
    for TileStream<E, G, SLICES, STAGES, V>
{
    type Params = TileStreamParams;
    const FILE: &'static str = "spmm/tile_stream";
    const VARIANT: Variant = Variant::TileStream {
        dtype: E::DTYPE,
        features: Self::FEATURES,
        vectors: G::VECTORS,
        form: V::FORM,
        pipeline: Self::PIPELINE,
    };
    const BLOCK_THREADS: u32 = 128;
    const SHARED_BYTES: u32 = Self::TEAM_AT + 4 * TEAM;
    // As many as shared memory has room for; left to itself, `ptxas` takes registers for fewer.
    // With two stages it has room for more than there are registers.
    const MIN_BLOCKS: u32 = match (Self::PIPELINE, G::VECTORS && SLICES == 1) {
        (Pipeline::TwoStages, true) if matches!(V::FORM, Form::Packed) => 7,
        (Pipeline::TwoStages, true) => 8,
        (Pipeline::TwoStages, false) => 5,
        (_, true) => 7,
        (_, false) => 4,
    };
    const UNITS_PER_BLOCK: u32 = Self::WARPS;
    const COLUMNS_PER_BLOCK: u32 = Self::FEATURES;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &TileStreamParams) {
        const { Self::VALID }
        const { Self::LINKED }
        const { assert!(G::STAGED, "rows in registers are multiplied by RegisterStream") }
        // 1. Locate. A whole warp leaves or stays: the collectives below see all its lanes. A team that shares a
        // piece is complete.
        let worker = s.block_idx() * Self::WARPS + s.warp();
        if worker >= p.worker_count {
            return;
        }
        let warp = Warp::<S, E, G, SLICES, STAGES, V>::locate(s, p);
        // SAFETY: `worker < worker_count`; everything indexed by a step, column or slot is in range by
        // the obligations of the params.
        unsafe {
            let [begin, end] = s.load_readonly(p.workers.at(worker));
            // Pipeline slots: the one to fill next, the one to multiply next. Slot of step `i` brings,
            // beside the step itself, the columns of step `i + STAGES - 1`: they are there when that
            // step's rows are asked for, and nothing in the loop waits for a load into a register.
            let mut fill = warp.base;
            let mut ahead = begin;
            while fill < warp.base + Self::LAST_STAGE {
                let cols = warp.columns(if ahead < end { ahead } else { begin });
                warp.stage(fill, ahead, end, cols); // (16, FEATURES)
                ahead += 1;
                fill += Self::STAGE_BYTES;
            }
            let mut kept = warp.kept_link(begin, end);
            let mut read = warp.base;
            let mut acc = [E::ZERO_SUMS; SLICES]; // (FEATURES, 8)
            let mut window_begin = begin;
            let mut step = begin;
            while step < end {
                // 2. Global -> shared: into the slot that the previous step has left.
                wait_for_oldest::<S, STAGES>(s);
                s.sync_warp(); // RAW: staged -> read; WAR: previous step's reads -> next stage
                let mut cols = warp.staged_columns(read);
                V::exchange(&mut kept, &mut cols.record); // with two stages a link is for the turn after this one
                warp.stage(fill, step + STAGES - 1, end, cols);
                // 3. and 4. Shared -> registers, multiply-accumulate.
                warp.multiply(read, &mut acc); // (FEATURES, 8) += (FEATURES, 16)·(16, 8)
                step += 1;
                // 5. Registers -> global, when the piece ends.
                if warp.staged_row(read, 0) != MORE_STEPS {
                    warp.flush(read, &Finished { begin: window_begin, end: step }, &acc);
                    acc = [E::ZERO_SUMS; SLICES];
                    window_begin = step;
                }
                fill = read;
                read =
                    if read == warp.base + Self::LAST_STAGE { warp.base } else { read + Self::STAGE_BYTES };
            }
        }
    }
}

/// Waits until the oldest of the `STAGES - 1` groups under way has arrived.
#[inline(always)]
unsafe fn wait_for_oldest<S: Simt, const STAGES: u32>(s: &S) {
    // SAFETY: part of the pipeline's protocol: `STAGES - 1` groups have been committed.
    unsafe {
        match STAGES {
            2 => s.copy_async_wait::<0>(),
            3 => s.copy_async_wait::<1>(),
            _ => s.copy_async_wait::<2>(),
        }
    }
}

/// Where one lane is, and what it derives from that once.
///
/// Pipeline slots are multiples of 128 bytes, so the swizzle of a row, an exclusive or inside its 128
/// bytes, can be applied to the whole address: constants of the loop below.
struct Warp<'a, S, E: TileElement, G, const SLICES: usize, const STAGES: u32, V> {
    s: &'a S,
    p: &'a TileStreamParams,
    lane: u32,
    /// First column of `C` of the warp.
    column: u32,
    /// This warp's shared memory.
    base: u32,
    /// In a slot: where this lane's chunk of its first row is staged.
    staged: u32,
    /// In a slot: where this lane's part of the operand begins.
    named: u32,
    /// First of this lane's elements of row 0 of `B`.
    b: GlobalPtr<E::Bits>,
    forms: PhantomData<(G, V)>,
}

/// What must be known of a step before it can be staged.
#[derive(Clone, Copy)]
struct Columns<P> {
    /// The condensed columns whose rows this lane helps to stage.
    of_lane: [u32; 4],
    /// Where the step's record lies.
    record: P,
}

impl<'a, S: Simt, E: TileElement, G: Staging, const SLICES: usize, const STAGES: u32, V: Held<E>>
    Warp<'a, S, E, G, SLICES, STAGES, V>
{
    const STAGE_BYTES: u32 = TileStream::<E, G, SLICES, STAGES, V>::STAGE_BYTES;
    /// In a slot, behind the rows of `B`: the step's record, its rows, and the columns of a later step.
    const BROUGHT: u32 = TileStream::<E, G, SLICES, STAGES, V>::STAGED_ROWS_BYTES;
    const RECORD: u32 = Self::BROUGHT + V::RECORD_AT;
    const ROWS_AT: u32 = Self::RECORD + V::ROWS_AT;
    const COLS_AT: u32 = Self::BROUGHT + V::COLS_AT;
    /// Chunks that bring the longest record and columns.
    const CHUNKS: u32 = (V::RECORD_BYTES + COLS_BYTES) / 16;

    #[inline(always)]
    fn locate(s: &'a S, p: &'a TileStreamParams) -> Self {
        let lane = s.lane();
        let column = s.block_idx_y() * TileStream::<E, G, SLICES, STAGES, V>::FEATURES;
        // Staging: eight lanes a row. In registers: eight lanes a row, each of which has others beside it.
        let (chunk, row) = if G::STAGED { (lane % 8, lane / 8) } else { (lane / 4, lane % 4) };
        Self {
            s,
            p,
            lane,
            column,
            base: s.warp() * TileStream::<E, G, SLICES, STAGES, V>::WARP_BYTES,
            staged: row * SLICE_BYTES + (chunk ^ E::swizzle(row)) * 16,
            named: E::named(lane),
            b: p.dense.b.cast::<E::Bits>().at(column + chunk * E::CHUNK),
            forms: PhantomData,
        }
    }

    /// Where the record of the second step lies, if it is to be kept until that step is staged.
    #[inline(always)]
    unsafe fn kept_link(&self, begin: u32, end: u32) -> V::Kept {
        if !TileStream::<E, G, SLICES, STAGES, V>::KEEPS_LINK {
            return V::Kept::default();
        }
        let second = if begin + 1 < end { begin + 1 } else { begin };
        // SAFETY: a step of the stream.
        unsafe { V::place(self.s, self.p, second) }.into()
    }

    /// The columns of a step, from global memory.
    #[inline(always)]
    unsafe fn columns(&self, step: u32) -> Columns<V::Place> {
        let at = u64::from(step) * 4 + u64::from(self.lane / 8);
        // SAFETY: `step` is a step of the stream.
        unsafe {
            Columns {
                of_lane: self.s.load_readonly_once(self.p.step_cols.at_wide(at)),
                record: V::place(self.s, self.p, step),
            }
        }
    }

    /// The same of a later step, from the slot that brought them.
    #[inline(always)]
    unsafe fn staged_columns(&self, slot: u32) -> Columns<V::Place> {
        // SAFETY: inside the slot, which has arrived.
        unsafe {
            Columns {
                of_lane: self.s.load_shared(slot + Self::COLS_AT + self.lane / 8 * 16),
                record: V::staged_place(self.s, slot + Self::RECORD),
            }
        }
    }

    /// Row `i` of the piece that ends with the step in `slot`, or [`MORE_STEPS`]; row 8 is the
    /// [`piece_word`].
    #[inline(always)]
    unsafe fn staged_row(&self, slot: u32, i: u32) -> u32 {
        // SAFETY: inside the slot, which has arrived.
        unsafe { self.s.load_shared(slot + Self::ROWS_AT + i * 4) }
    }

    /// Starts bringing a step into the pipeline slot at `slot`, if it is below `end`: its rows of `B`, its
    /// record, and the columns of the step that will be staged when this one is multiplied.
    #[inline(always)]
    unsafe fn stage(&self, slot: u32, step: u32, end: u32, cols: Columns<V::Place>) {
        let at = self.staged + slot;
        // Where the swizzle of row r + 4 differs from that of row r, it does so in one bit.
        let flipped = at ^ ((E::swizzle(4) ^ E::swizzle(0)) * 16);
        // SAFETY: columns are below k or NO_COLUMN; steps are below `end`.
        unsafe {
            if step < end {
                if G::STAGED {
                    self.stage_row(at, cols.of_lane[0]);
                    self.stage_row(flipped + 4 * SLICE_BYTES, cols.of_lane[1]);
                    self.stage_row(at + 8 * SLICE_BYTES, cols.of_lane[2]);
                    self.stage_row(flipped + 12 * SLICE_BYTES, cols.of_lane[3]);
                }
                let later = step + STAGES - 1;
                let later = if later < end { later } else { end - 1 };
                let bring = Bring { step, place: cols.record, later };
                self.stage_record(slot, self.lane, &bring);
                if Self::CHUNKS > WARP && V::chunks(cols.record) > WARP {
                    self.stage_record(slot, self.lane + WARP, &bring);
                }
            }
            self.s.copy_async_commit();
        }
    }

    /// Chunk `number` of the step's record and of a later step's columns, which are side by side in the slot.
    #[inline(always)]
    unsafe fn stage_record(&self, slot: u32, number: u32, bring: &Bring<V::Place>) {
        let from = V::chunk(self.p, bring, number);
        // SAFETY: both are steps of the stream; the chunk is inside the slot.
        unsafe {
            if number < V::chunks(bring.place) {
                self.s.copy_async_16(slot + Self::BROUGHT + number * 16, from.cast(), true);
            }
        }
    }

    /// First of this lane's elements of a row of `B`.
    #[inline(always)]
    fn row_of(&self, col: u32) -> GlobalPtr<E::Bits> {
        let bytes = size_of::<E::Bits>() as u64;
        self.b.byte_add(u64::from(col).wrapping_mul(u64::from(self.p.dense.ldb)).wrapping_mul(bytes))
    }

    /// This lane's chunk of one row, for each slice. Chunks beyond the width and pad columns become
    /// zeros without a read.
    #[inline(always)]
    unsafe fn stage_row(&self, to: u32, col: u32) {
        let row = self.row_of(col);
        let mut slice = 0;
        while slice < SLICES as u32 {
            let feature = self.column + slice * E::SLICE_FEATURES + self.lane % 8 * E::CHUNK;
            let inside = self.p.dense.n().saturating_sub(feature);
            let source = row.at(slice * E::SLICE_FEATURES);
            let to = to + slice * STAGE_SLICE_BYTES;
            // SAFETY: with vectors, a row is readable up to n rounded up to whole chunks; without,
            // `inside` elements are. `to` is in the pipeline slot.
            unsafe {
                if G::VECTORS {
                    let present = col != NO_COLUMN && inside > 0;
                    self.s.copy_async_16(to, source.cast(), present);
                } else {
                    let present = if col == NO_COLUMN { 0 } else { inside };
                    self.s.store_shared(to, E::read_chunk(self.s, source, present));
                }
            }
            slice += 1;
        }
    }

    /// `acc += staged (FEATURES, 16) · fragment (16, 8)`.
    #[inline(always)]
    unsafe fn multiply(&self, slot: u32, acc: &mut [E::Sums; SLICES]) {
        // SAFETY: inside this warp's slot, which has arrived; all lanes are here.
        unsafe {
            let fragment = V::fragment(self.s, slot + Self::RECORD, self.lane);
            let mut slice = 0;
            while slice < SLICES {
                let at = self.named + slot + slice as u32 * STAGE_SLICE_BYTES;
                E::multiply(self.s, at, fragment, &mut acc[slice]);
                slice += 1;
            }
        }
    }
}

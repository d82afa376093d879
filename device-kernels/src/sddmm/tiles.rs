//! SDDMM on Tensor Cores.
//!
//! A *tile* is 8 rows × 16 condensed columns of the pattern: the result of an MMA, transposed. Rows of `Y` are the
//! operand on the 16-wide side, rows of `X` the one on the 8-wide side:
//!
//! ```text
//! global Y rows of 16 columns  --16 bytes a lane-->  A operand: 16 columns × 4 lanes' elements
//! global X rows of a window    --16 bytes a lane-->  B operand: 4 lanes' elements × 8 rows
//! accumulators                 16 columns × 8 rows, f32
//! masks, popcount              accumulator -> position of the result
//! ```
//!
//! A dot product may take its elements in any order, as long as both operands take the same. Lane `(g, q)` brings 16
//! bytes of rows `g` and `g + 8` of `Y` and of row `g` of `X`, from the same element on, and what it brought are its
//! registers of two MMAs. Four lanes bring 64 successive bytes of a row. Long rows of `Y` come through shared memory by
//! `cp.async`, in two slots: those of the next tile while this one is multiplied. But each lane reads only what it
//! copied itself, so that nobody waits for anybody. Short rows go straight to registers: warps enough fit on a
//! multiprocessor to have as much in flight, and a tile has fewer instructions.
//!
//! Tiles do not depend on one another, so that balance is a matter of counting: each warp takes `tiles_per_warp`
//! successive ones. Rows of `X` stay in registers while a window lasts, if they fit.
//!
//! What MMAs compute for absent entries is not stored: elements that are not finite stay in the rows and columns
//! that have them.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::{Sampled, Target};
use crate::NO_COLUMN;
use crate::element::{Bf16, F16, Tf32, keep_first};
use crate::kernel::Kernel;
use crate::spmm::tile_stream::{STEP_COLUMNS, Staging, TileElement};
use crate::variant::Variant;

/// Words of a tile's record: one for each lane.
pub const TILE_RECORD_WORDS: u32 = WARP;
/// Words of a record before its masks: the columns.
const MASKS_AT: u32 = STEP_COLUMNS;
/// Words of a record before the positions of its rows.
const STARTS_AT: u32 = MASKS_AT + 4;
/// The word of a record that leads to its window.
const WINDOW_AT: u32 = STARTS_AT + 8;

/// Where in a record the masks are.
#[must_use]
pub const fn record_masks_at() -> usize {
    MASKS_AT as usize
}

/// Where in a record the positions of its rows are.
#[must_use]
pub const fn record_starts_at() -> usize {
    STARTS_AT as usize
}

/// Where in a record the place of its window is.
#[must_use]
pub const fn record_window_at() -> usize {
    WINDOW_AT as usize
}

/// Arguments of [`SddmmTiles`].
///
/// # Obligations
/// - per tile, [`TILE_RECORD_WORDS`] words: 16 columns below n, or [`NO_COLUMN`]; then the masks of rows 0 and 1, 2 and
///   3, 4 and 5, 6 and 7, 16 bits each, the even row's in the low half: bit `q` for an entry in condensed column `q`;
///   then for each row the position of its first entry in the tile, the others follow in the order of their columns;
///   then the window's first element of `window_rows`; then three words of padding.
/// - `window_rows`: 8 rows below m a window, [`NO_ROW`](crate::NO_ROW) where there are fewer; these, and pad columns,
///   have no bits.
/// - for an instance of 8 chunks, `inner` is a multiple of the elements in 16 bytes; for one of 1 or 2 chunks that
///   reads vectors, it is at most [`SddmmTiles::SPAN`].
/// - at most 2³² − 1024 positions, `tile_count · TILE_RECORD_WORDS` words and `tiles_per_warp ≥ 1`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SddmmTilesParams {
    /// The dense operands and the result.
    pub sampled: Sampled,
    /// Record of each tile.
    pub records: GlobalPtr<u32>,
    /// Rows of each window.
    pub window_rows: GlobalPtr<u32>,
    /// Number of records, one for each tile.
    pub tile_count: u32,
    /// Tiles that a warp takes.
    pub tiles_per_warp: u32,
}

/// An element type whose products are MMAs: one MMA for two words of each lane's 16 bytes.
pub trait DotElement: TileElement {
    /// What was read, as MMAs take it.
    fn prepare<S: Simt>(s: &S, read: [u32; 4]) -> [u32; 4];

    /// `acc + a·b`.
    ///
    /// # Safety
    /// A collective of the full warp.
    unsafe fn mma<S: Simt>(s: &S, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4];
}

macro_rules! dot_element {
    ($element:ty, $mma:ident, $prepare:expr) => {
        impl DotElement for $element {
            #[inline(always)]
            fn prepare<S: Simt>(s: &S, read: [u32; 4]) -> [u32; 4] {
                $prepare(s, read)
            }

            #[inline(always)]
            unsafe fn mma<S: Simt>(s: &S, a: [u32; 4], b: [u32; 2], acc: [f32; 4]) -> [f32; 4] {
                // SAFETY: the caller promises that the full warp is here.
                unsafe { s.$mma(a, b, acc) }
            }
        }
    };
}

dot_element!(F16, mma_m16n8k16_f16, |_, read| read);
dot_element!(Bf16, mma_m16n8k16_bf16, |_, read| read);
dot_element!(Tf32, mma_m16n8k8_tf32, |s: &S, read: [u32; 4]| read
    .map(|bits| s.f32_to_tf32(f32::from_bits(bits))));

/// How an entry's number among those of its row is found.
pub trait Rank: 'static {
    /// Whether the mask is scanned bit by bit.
    const SCANS: bool;

    /// Bits of `mask` below `column`.
    fn below<S: Simt>(s: &S, mask: u32, column: u32) -> u32;
}

/// By one population count of the bits below the column.
pub struct PopCount;
/// Bit by bit, for comparison.
pub struct Scan;

impl Rank for PopCount {
    const SCANS: bool = false;

    #[inline(always)]
    fn below<S: Simt>(s: &S, mask: u32, column: u32) -> u32 {
        s.population(u64::from(mask & ((1 << column) - 1)))
    }
}

impl Rank for Scan {
    const SCANS: bool = true;

    #[inline(always)]
    fn below<S: Simt>(_: &S, mask: u32, column: u32) -> u32 {
        let (mut rank, mut bit) = (0, 0);
        while bit < column {
            rank += mask >> bit & 1;
            bit += 1;
        }
        rank
    }
}

/// One instance: how rows are read, and `CHUNKS` times 64 bytes of each in a slot.
pub struct SddmmTiles<E, G, const CHUNKS: usize, R = PopCount>(PhantomData<(E, G, R)>);

/// Bytes of a vector of every lane.
const LANES_BYTES: u32 = WARP * 16;

impl<E: DotElement, G: Staging, const CHUNKS: usize, R: Rank> SddmmTiles<E, G, CHUNKS, R> {
    /// Elements of a row that a slot holds.
    pub const SPAN: u32 = CHUNKS as u32 * 4 * E::CHUNK;
    /// Warps of a block.
    pub const WARPS: u32 = Self::BLOCK_THREADS / WARP;
    /// Whether vectors may have elements beyond the inner dimension. The widest instance leaves such to the next: it
    /// has no registers for it.
    pub const RAGGED: bool = G::VECTORS && CHUNKS < 8;
    /// Whether rows of `Y` come through shared memory.
    const STAGED: bool = G::VECTORS && CHUNKS >= 4;
    /// Whether a row is never longer than what is brought of it at a time.
    pub const WHOLE_ROWS: bool = G::VECTORS && !Self::STAGED;
    /// Bytes of a slot: two rows a lane.
    const SLOT_BYTES: u32 = 2 * CHUNKS as u32 * LANES_BYTES;
}

impl<E: DotElement, G: Staging, const CHUNKS: usize, R: Rank> Kernel for SddmmTiles<E, G, CHUNKS, R> {
    type Params = SddmmTilesParams;
    const FILE: &'static str = "sddmm";
    const VARIANT: Variant =
        Variant::SddmmTiles { dtype: E::DTYPE, chunks: CHUNKS as u32, vectors: G::VECTORS, scans: R::SCANS };
    const BLOCK_THREADS: u32 = 128;
    const SHARED_BYTES: u32 = if Self::STAGED { 2 * Self::WARPS * Self::SLOT_BYTES } else { 0 };
    // As many as registers allow without spills, or shared memory of 227 KiB a multiprocessor.
    const MIN_BLOCKS: u32 = match CHUNKS {
        1 if G::VECTORS => 10,
        1 => 8,
        2 => 7,
        4 if R::SCANS => 4,
        4 => 5,
        _ => 3,
    };
    const UNITS_PER_BLOCK: u32 = Self::WARPS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &SddmmTilesParams) {
        // 1. Locate. A whole warp leaves or stays: the collectives below see all its lanes.
        let begin = (s.block_idx() * Self::WARPS + s.warp()).saturating_mul(p.tiles_per_warp);
        if begin >= p.tile_count {
            return;
        }
        let end = begin + p.tiles_per_warp.min(p.tile_count - begin);
        let (g, q) = (s.lane() / 4, s.lane() % 4);
        let rows = Rows::<S, E, G, CHUNKS> { s, p: &p.sampled, q, form: PhantomData };
        let record = |tile: u32| {
            let at = u64::from(tile.min(end - 1)) * u64::from(WARP);
            p.records.at_wide(at + u64::from(s.lane()))
        };
        let inner = p.sampled.inner;
        let resident = Self::WHOLE_ROWS || inner <= Self::SPAN;
        // SAFETY: `begin..end` are tiles; everything that their records name is in range by the obligations of the
        // params. Branches around loads only diverge, and no collective is inside one that does. A lane reads from
        // shared memory what it copied there, after the wait that covers the copy, in slots of its own.
        unsafe {
            let own = s.warp() * 2 * Self::SLOT_BYTES + s.lane() * 16;
            // Records of this tile, and of the next, whose rows are asked for early if they are staged.
            let mut words = s.load_readonly_once(record(begin));
            let mut next = if Self::STAGED { s.load_readonly_once(record(begin + 1)) } else { words };
            let mut columns = columns_of(s, words, g);
            if Self::STAGED {
                rows.stage(own, columns, 0);
                s.copy_async_commit();
            }
            let mut slot = 0;
            let mut window = u32::MAX; // none: windows begin at multiples of 8
            let mut row = None;
            let mut x = [[0u32; 4]; CHUNKS];
            let mut tile = begin;
            while tile < end {
                let after = s.load_readonly_once(record(tile + if Self::STAGED { 2 } else { 1 }));
                let mut y = [[[0; 4]; CHUNKS]; 2];
                let next_columns = match Self::STAGED {
                    true => columns_of(s, next, g),
                    false => {
                        y = rows.read_pair(columns, 0); // what does not wait for a row of `X` comes before what does
                        columns
                    }
                };
                let this_window = s.shuffle(words, WINDOW_AT);
                let masks = s.shuffle(words, MASKS_AT + q);
                let starts = [s.shuffle(words, STARTS_AT + 2 * q), s.shuffle(words, STARTS_AT + 2 * q + 1)];
                if this_window != window {
                    window = this_window;
                    let slot = s.load_readonly(p.window_rows.at(window + g));
                    row = (slot != crate::NO_ROW).then_some(slot);
                    if resident {
                        x = rows.read(p.sampled.x, row, p.sampled.ldx, 0);
                    }
                }
                // Factors are asked for before the products. With staged rows there is time for all of the targets.
                let mut targets = [Target::NONE; 4];
                if Self::STAGED || p.sampled.scale != GlobalPtr::NULL {
                    let mut i = 0;
                    while i < 4 {
                        if let Some(position) = position_of::<S, R>(s, (masks, starts), g, i) {
                            targets[i] = p.sampled.target(s, position);
                        }
                        i += 1;
                    }
                }
                let mut sums = [0.0f32; 4];
                let mut first = 0;
                loop {
                    let following = first + Self::SPAN;
                    let last = Self::WHOLE_ROWS || following >= inner;
                    if Self::STAGED {
                        // 2. Global -> shared: the next rows, into the slot that the last products have left.
                        s.sync_warp(); // WAR: those products' reads -> these copies
                        if !last || tile + 1 < end {
                            let other = own + (slot ^ 1) * Self::SLOT_BYTES;
                            let (columns, from) = if last { (next_columns, 0) } else { (columns, following) };
                            rows.stage(other, columns, from);
                        }
                        s.copy_async_commit(); // a group each time, so that the wait counts right
                        if !resident {
                            x = rows.read(p.sampled.x, row, p.sampled.ldx, first);
                        }
                        s.copy_async_wait::<1>();
                        let at = own + slot * Self::SLOT_BYTES;
                        if Self::RAGGED && p.sampled.is_ragged(first, Self::SPAN, E::CHUNK) {
                            rows.cut_off(at, first);
                        }
                    } else {
                        if first > 0 {
                            y = rows.read_pair(columns, first);
                        }
                        if !resident {
                            x = rows.read(p.sampled.x, row, p.sampled.ldx, first);
                        }
                    }
                    // 3. and 4. Multiply-accumulate: 16 columns × 8 rows.
                    let mut chunk = 0;
                    while chunk < CHUNKS {
                        let at = own + slot * Self::SLOT_BYTES + 2 * chunk as u32 * LANES_BYTES;
                        let pair = match Self::STAGED {
                            true => [s.load_shared(at), s.load_shared(at + LANES_BYTES)],
                            false => y.map(|row| row[chunk]),
                        };
                        let [low, high, x] = [pair[0], pair[1], x[chunk]].map(|read| E::prepare(s, read));
                        sums = E::mma(s, [low[0], high[0], low[1], high[1]], [x[0], x[1]], sums);
                        sums = E::mma(s, [low[2], high[2], low[3], high[3]], [x[2], x[3]], sums);
                        chunk += 1;
                    }
                    slot ^= 1;
                    first = following;
                    if last {
                        break;
                    }
                }
                // 5. Registers -> global.
                let mut i = 0;
                while i < 4 {
                    if Self::STAGED {
                        p.sampled.store(s, targets[i], sums[i]);
                    } else if let Some(position) = position_of::<S, R>(s, (masks, starts), g, i) {
                        let place = p.sampled.place(s, position);
                        p.sampled.store(s, Target { place, ..targets[i] }, sums[i]);
                    }
                    i += 1;
                }
                if Self::STAGED {
                    (words, next, columns) = (next, after, next_columns);
                } else {
                    words = after;
                    columns = columns_of(s, words, g);
                }
                tile += 1;
            }
        }
    }
}

/// Position of the entry that accumulator `i` of a lane belongs to, if there is one, from the masks and first positions
/// of the lane's two rows: `fragment::c_f32`, column `g + 8·(i / 2)`, row `2q + i % 2`.
#[inline(always)]
fn position_of<S: Simt, R: Rank>(s: &S, (masks, starts): (u32, [u32; 2]), g: u32, i: usize) -> Option<u32> {
    let (column, odd) = (g + 8 * (i as u32 / 2), i % 2);
    let mask = masks >> (16 * odd as u32) & 0xffff;
    (mask >> column & 1 == 1).then(|| starts[odd] + R::below(s, mask, column))
}

/// Columns `g` and `g + 8` of a tile, if they exist.
///
/// # Safety
/// A collective of the full warp.
#[inline(always)]
unsafe fn columns_of<S: Simt>(s: &S, words: u32, g: u32) -> [Option<u32>; 2] {
    // SAFETY: the caller promises that the full warp is here; lanes below 16 hold the columns.
    let columns = unsafe { [s.shuffle(words, g), s.shuffle(words, g + 8)] };
    columns.map(|column| (column != NO_COLUMN).then_some(column))
}

/// How one lane brings rows.
struct Rows<'a, S, E, G, const CHUNKS: usize> {
    s: &'a S,
    p: &'a Sampled,
    /// The lane's place among the four that bring a row.
    q: u32,
    form: PhantomData<(E, G)>,
}

impl<S: Simt, E: DotElement, G: Staging, const CHUNKS: usize> Rows<'_, S, E, G, CHUNKS> {
    const SPAN: u32 = SddmmTiles::<E, G, CHUNKS>::SPAN;

    /// First of the lane's elements in vector `chunk` of the span from element `first` on.
    #[inline(always)]
    const fn element(&self, first: u32, chunk: u32) -> u32 {
        first + (4 * chunk + self.q) * E::CHUNK
    }

    /// This lane's elements of `CHUNKS` times four vectors of `row`, from element `first` on: zero beyond the inner
    /// dimension, and without a row.
    ///
    /// # Safety
    /// The obligations of [`Sampled`]; `row` is one of `matrix`.
    #[inline(always)]
    unsafe fn read(
        &self,
        matrix: GlobalPtr<u32>,
        row: Option<u32>,
        ld: u32,
        first: u32,
    ) -> [[u32; 4]; CHUNKS] {
        let mut read = [[0; 4]; CHUNKS];
        let Some(row) = row else { return read };
        let from =
            matrix.cast::<E::Bits>().at_wide(u64::from(row) * u64::from(ld)).at(self.element(first, 0));
        let inner = self.p.inner;
        let mut chunk = 0;
        while chunk < CHUNKS {
            let k = self.element(first, chunk as u32);
            let from = from.at(4 * chunk as u32 * E::CHUNK);
            if k < inner {
                // SAFETY: the row exists; element k does, and its vector by the obligations.
                read[chunk] = unsafe {
                    match G::VECTORS {
                        true => self.s.load_readonly(from.cast::<[u32; 4]>()),
                        false => E::read_chunk(self.s, from, (inner - k).min(E::CHUNK)),
                    }
                };
            }
            chunk += 1;
        }
        if SddmmTiles::<E, G, CHUNKS>::RAGGED && self.p.is_ragged(first, Self::SPAN, E::CHUNK) {
            let mut chunk = 0;
            while chunk < CHUNKS {
                read[chunk] = self.inside(read[chunk], first, chunk as u32);
                chunk += 1;
            }
        }
        read
    }

    /// [`read`](Self::read) of rows `columns` of `Y`.
    ///
    /// # Safety
    /// The obligations of [`Sampled`]; `columns` are rows of `Y`.
    #[inline(always)]
    unsafe fn read_pair(&self, columns: [Option<u32>; 2], first: u32) -> [[[u32; 4]; CHUNKS]; 2] {
        // SAFETY: columns that are there are rows of `Y`, by the caller's promise.
        columns.map(|column| unsafe { self.read(self.p.y, column, self.p.ldy, first) })
    }

    /// Starts bringing rows `columns` of `Y` to this lane's part of a slot.
    ///
    /// # Safety
    /// The obligations of [`Sampled`]; `columns` are rows of `Y`; nothing reads the slot until a wait covers the group.
    #[inline(always)]
    unsafe fn stage(&self, slot: u32, columns: [Option<u32>; 2], first: u32) {
        let inner = self.p.inner;
        let mut half = 0;
        while half < 2 {
            let row = columns[half].unwrap_or(0);
            // One address; the vectors are at constant distances from it.
            let from = self.p.y.cast::<E::Bits>().at_wide(u64::from(row) * u64::from(self.p.ldy));
            let from = from.at(self.element(first, 0));
            let mut chunk = 0;
            while chunk < CHUNKS as u32 {
                let k = self.element(first, chunk);
                let from = from.at(4 * chunk * E::CHUNK);
                let present = columns[half].is_some() && k < inner;
                let to = slot + (2 * chunk + half as u32) * LANES_BYTES;
                // SAFETY: the row exists if the lane has one, element k does, and its vector by the obligations.
                unsafe { self.s.copy_async_16(to, from.cast(), present) };
                chunk += 1;
            }
            half += 1;
        }
    }

    /// Replaces, in this lane's part of a slot, the elements beyond the inner dimension by zero. Apart from the
    /// products: few inner dimensions need it.
    ///
    /// # Safety
    /// The slot was staged from element `first` on, and waited for.
    #[inline(always)]
    unsafe fn cut_off(&self, slot: u32, first: u32) {
        let mut number = 0;
        while number < 2 * CHUNKS as u32 {
            let at = slot + number * LANES_BYTES;
            // SAFETY: the caller waited for the slot, of which this lane changes only what it brought itself.
            unsafe { self.s.store_shared(at, self.inside(self.s.load_shared(at), first, number / 2)) };
            number += 1;
        }
    }

    /// `vector` with the elements beyond the inner dimension replaced by zero.
    #[inline(always)]
    const fn inside(&self, vector: [u32; 4], first: u32, chunk: u32) -> [u32; 4] {
        keep_first(vector, self.p.inner.saturating_sub(self.element(first, chunk)), E::DTYPE.bytes())
    }
}

//! SDDMM on Tensor Cores.
//!
//! A *tile* is 8 rows × 16 condensed columns of the pattern: the result of an MMA, transposed. Rows of `Y` are the
//! operand on the 16-wide side, rows of `X` the one on the 8-wide side:
//!
//! ```text
//! global Y rows of 16 columns  --16 bytes a lane--> A operand: 16 columns × 4 lanes' elements
//! global X rows of a window    --16 bytes a lane--> B operand: 4 lanes' elements × 8 rows
//! accumulators                 16 columns × 8 rows, f32
//! masks, popcount              accumulator -> position of the result
//! ```
//!
//! No shared memory: a dot product may take its elements in any order, as long as both operands take the same. Lane
//! `(g, q)` reads 16 bytes of rows `g` and `g + 8` of `Y` and of row `g` of `X`, from the same element on, and what it
//! read are its registers of two MMAs. Four lanes read 64 successive bytes of a row.
//!
//! Tiles do not depend on one another, so that balance is a matter of counting: each warp takes `tiles_per_warp`
//! successive ones. Rows of `X` stay in registers while a window lasts, if they fit.
//!
//! What MMAs compute for absent entries is not stored: elements that are not finite stay in the rows and columns
//! that have them.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::Sampled;
use crate::NO_COLUMN;
use crate::element::{Bf16, F16, Tf32, keep_first};
use crate::kernel::{Kernel, Variant};
use crate::tile_stream::{STEP_COLUMNS, Staging, TileElement};

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
/// - at most 2³² − 1024 positions, `tile_count · TILE_RECORD_WORDS` words and `tiles_per_warp ≥ 1`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct SddmmTilesParams {
    /// The operands.
    pub sampled: Sampled,
    /// Record of each tile.
    pub records: GlobalPtr<u32>,
    /// Rows of each window.
    pub window_rows: GlobalPtr<u32>,
    /// Number of tiles.
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
                // SAFETY: the caller's promise.
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
    /// Whether by scanning.
    const SCANS: bool;

    /// Bits of `mask` below `column`.
    fn below<S: Simt>(s: &S, mask: u32, column: u32) -> u32;
}

/// One population count.
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

/// One instance: how rows are read, and `CHUNKS` times 64 bytes of each in flight.
pub struct SddmmTiles<E, G, const CHUNKS: usize, R = PopCount>(PhantomData<(E, G, R)>);

impl<E: DotElement, G: Staging, const CHUNKS: usize, R: Rank> SddmmTiles<E, G, CHUNKS, R> {
    /// Elements of a row that are in flight at a time.
    pub const SPAN: u32 = CHUNKS as u32 * 4 * E::CHUNK;
    /// Warps of a block.
    pub const WARPS: u32 = Self::BLOCK_THREADS / WARP;
}

impl<E: DotElement, G: Staging, const CHUNKS: usize, R: Rank> Kernel for SddmmTiles<E, G, CHUNKS, R> {
    type Params = SddmmTilesParams;
    const FILE: &'static str = "sddmm";
    const VARIANT: Variant =
        Variant::SddmmTiles { dtype: E::DTYPE, chunks: CHUNKS as u32, vectors: G::VECTORS, scans: R::SCANS };
    const BLOCK_THREADS: u32 = 128;
    // Left to itself, `ptxas` spills a few registers to fit one more block.
    const MIN_BLOCKS: u32 = match CHUNKS {
        1 => 8,
        2 => 7,
        _ => 4,
    };

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
        let record = |tile: u32| p.records.at_wide(u64::from(tile) * u64::from(WARP) + u64::from(s.lane()));
        let resident = p.sampled.inner <= Self::SPAN;
        // SAFETY: `begin..end` are tiles; everything that their records name is in range by the obligations of the
        // params. Branches around loads only diverge, and no collective is inside one that does.
        unsafe {
            let mut next = s.load_readonly_once(record(begin));
            let mut window = u32::MAX; // none: windows begin at multiples of 8
            let mut row = None;
            let mut x = [[0u32; 4]; CHUNKS];
            let mut tile = begin;
            while tile < end {
                let words = next;
                tile += 1;
                if tile < end {
                    next = s.load_readonly_once(record(tile));
                }
                let this_window = s.shuffle(words, WINDOW_AT);
                let columns = [s.shuffle(words, g), s.shuffle(words, g + 8)];
                let masks = s.shuffle(words, MASKS_AT + q);
                let starts = [s.shuffle(words, STARTS_AT + 2 * q), s.shuffle(words, STARTS_AT + 2 * q + 1)];
                // 2. Global -> registers.
                let column = columns.map(|column| (column != NO_COLUMN).then_some(column));
                if this_window != window {
                    window = this_window;
                    let slot = s.load_readonly(p.window_rows.at(window + g));
                    row = (slot != crate::NO_ROW).then_some(slot);
                    if resident {
                        x = rows.read(p.sampled.x, row, p.sampled.ldx, 0);
                    }
                }
                let mut sums = [0.0f32; 4];
                let mut first = 0;
                loop {
                    let low = rows.read(p.sampled.y, column[0], p.sampled.ldy, first);
                    let high = rows.read(p.sampled.y, column[1], p.sampled.ldy, first);
                    if !resident {
                        x = rows.read(p.sampled.x, row, p.sampled.ldx, first);
                    }
                    // 3. and 4. Multiply-accumulate: 16 columns × 8 rows.
                    let mut chunk = 0;
                    while chunk < CHUNKS {
                        let [low, high, x] =
                            [low[chunk], high[chunk], x[chunk]].map(|read| E::prepare(s, read));
                        sums = E::mma(s, [low[0], high[0], low[1], high[1]], [x[0], x[1]], sums);
                        sums = E::mma(s, [low[2], high[2], low[3], high[3]], [x[2], x[3]], sums);
                        chunk += 1;
                    }
                    first += Self::SPAN;
                    if first >= p.sampled.inner {
                        break;
                    }
                }
                // 5. Registers -> global: `fragment::c_f32`, column g + 8·(i / 2), row 2q + i % 2.
                let mut i = 0;
                while i < 4 {
                    let (column, odd) = (g + 8 * (i as u32 / 2), i % 2);
                    let mask = masks >> (16 * odd as u32) & 0xffff;
                    if mask >> column & 1 == 1 {
                        p.sampled.finish(s, starts[odd] + R::below(s, mask, column), sums[i]);
                    }
                    i += 1;
                }
            }
        }
    }
}

/// How one lane reads rows.
struct Rows<'a, S, E, G, const CHUNKS: usize> {
    s: &'a S,
    p: &'a Sampled,
    /// The lane's place among the four that read a row.
    q: u32,
    form: PhantomData<(E, G)>,
}

impl<S: Simt, E: DotElement, G: Staging, const CHUNKS: usize> Rows<'_, S, E, G, CHUNKS> {
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
        let from = matrix.cast::<E::Bits>().at_wide(u64::from(row) * u64::from(ld));
        let inner = self.p.inner;
        let mut chunk = 0;
        while chunk < CHUNKS {
            let k = first + (4 * chunk as u32 + self.q) * E::CHUNK;
            if k < inner {
                // SAFETY: the row exists; element k does, and its vector by the obligations.
                read[chunk] = unsafe {
                    match G::VECTORS {
                        true => self.s.load_readonly(from.at(k).cast::<[u32; 4]>()),
                        false => E::read_chunk(self.s, from.at(k), (inner - k).min(E::CHUNK)),
                    }
                };
            }
            chunk += 1;
        }
        let span = SddmmTiles::<E, G, CHUNKS>::SPAN;
        if G::VECTORS && self.p.is_ragged(first, span, E::CHUNK) {
            let mut chunk = 0;
            while chunk < CHUNKS {
                let k = first + (4 * chunk as u32 + self.q) * E::CHUNK;
                read[chunk] = keep_first(read[chunk], inner.saturating_sub(k), E::DTYPE.bytes());
                chunk += 1;
            }
        }
        read
    }
}

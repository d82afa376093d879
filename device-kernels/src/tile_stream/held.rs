//! How the values of a step are held in memory, and how they become the MMA's second operand.
//!
//! | form | bytes a step | in the loop |
//! | --- | --- | --- |
//! | [`Fragments`]: dense, in register order | 256, or 512 in tf32 | a load |
//! | [`Packed`]: two bitmaps, and what they say is there | 16 + the entries, in whole chunks of 16 | a decode |

use windrow_simt::{Simt, WARP};

use super::operand::TileElement;
use super::{COLS_BYTES, RECORD_TAIL, TileStreamParams, WINDOW_ROWS, record_words};

/// A form of the records.
///
/// Beside its rows of `B`, a step brings a *block* into its pipeline slot: its values and its record, the
/// columns of a later step and, if need be, where that step's values are.
pub trait Held<E: TileElement>: 'static {
    /// Whether values are packed.
    const PACKED: bool;
    /// Bytes of a record.
    const RECORD_BYTES: u32;
    /// Bytes of a block.
    const BLOCK_BYTES: u32;
    /// In a block: the rows of `C`, and behind them the piece's slot.
    const ROWS_AT: u32;
    /// In a block: the columns of the later step.
    const COLS_AT: u32;
    /// What tells which values to stage.
    type Run: Copy;

    /// Which values `step` has, from global memory.
    ///
    /// # Safety
    /// A step of the stream that `p` describes.
    unsafe fn run<S: Simt>(s: &S, p: &TileStreamParams, step: u32) -> Self::Run;

    /// The same of the later step, from the block at `block`.
    ///
    /// # Safety
    /// As for [`Simt::load_shared`]: the block has arrived.
    unsafe fn staged_run<S: Simt>(s: &S, block: u32) -> Self::Run;

    /// This lane's copies of the block of `steps[0]`, which brings the columns of `steps[1]`.
    ///
    /// # Safety
    /// Both are steps of the stream, `run` is that of the first; the block is this warp's and not in use.
    unsafe fn stage<S: Simt>(s: &S, p: &TileStreamParams, block: u32, steps: [u32; 2], run: Self::Run);

    /// The lane's values of the step.
    ///
    /// # Safety
    /// As for [`Simt::load_shared`]: the block has arrived.
    unsafe fn fragment<S: Simt>(s: &S, block: u32) -> E::Fragment;

    /// The bitmaps of `step`.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn bitmaps<S: Simt>(s: &S, p: &TileStreamParams, step: u32) -> [u64; 2];

    /// The value of an entry, from global memory.
    ///
    /// # Safety
    /// An entry of the stream that `p` describes.
    unsafe fn value<S: Simt>(s: &S, p: &TileStreamParams, entry: Place) -> E::Bits;
}

/// Which entry of the stream.
#[derive(Clone, Copy)]
pub struct Place {
    pub(super) step: u32,
    /// 0 or 1.
    pub(super) tile: u32,
    pub(super) row: u32,
    /// Column in the tile.
    pub(super) k: u32,
    /// The step's bitmaps.
    pub(super) bitmaps: [u64; 2],
}

/// Dense values in the order of the MMA's registers.
///
/// A record is the fragments of all lanes, rows, slot and padding.
pub struct Fragments;

impl<E: TileElement> Held<E> for Fragments {
    const PACKED: bool = false;
    const RECORD_BYTES: u32 = 4 * record_words(E::LANE_WORDS as usize) as u32;
    const BLOCK_BYTES: u32 = <Self as Held<E>>::RECORD_BYTES + COLS_BYTES;
    const ROWS_AT: u32 = 4 * WARP * E::LANE_WORDS;
    const COLS_AT: u32 = <Self as Held<E>>::RECORD_BYTES;
    type Run = ();

    #[inline(always)]
    unsafe fn run<S: Simt>(_: &S, _: &TileStreamParams, _: u32) {}

    #[inline(always)]
    unsafe fn staged_run<S: Simt>(_: &S, _: u32) {}

    #[inline(always)]
    unsafe fn stage<S: Simt>(s: &S, p: &TileStreamParams, block: u32, steps: [u32; 2], (): ()) {
        // SAFETY: the caller's promise.
        unsafe {
            stage_chunk::<S, E>(s, p, block, s.lane(), steps);
            if <Self as Held<E>>::BLOCK_BYTES / 16 > WARP {
                stage_chunk::<S, E>(s, p, block, s.lane() + WARP, steps);
            }
        }
    }

    #[inline(always)]
    unsafe fn fragment<S: Simt>(s: &S, block: u32) -> E::Fragment {
        // SAFETY: the caller's promise.
        unsafe { E::fragment(s, block + s.lane() * (4 * E::LANE_WORDS)) }
    }

    #[inline(always)]
    unsafe fn bitmaps<S: Simt>(s: &S, p: &TileStreamParams, step: u32) -> [u64; 2] {
        // SAFETY: the caller's promise.
        unsafe { s.load_readonly(p.bitmaps.at(step)) }
    }

    #[inline(always)]
    unsafe fn value<S: Simt>(s: &S, p: &TileStreamParams, entry: Place) -> E::Bits {
        let Place { step, tile, row, k, .. } = entry;
        let per_record = u64::from(<Self as Held<E>>::RECORD_BYTES) / size_of::<E::Bits>() as u64;
        let at = u64::from(step) * per_record + u64::from(E::value_index(tile, row, k));
        // SAFETY: the caller's promise: the value is in the record.
        unsafe { s.load_readonly(p.records.cast::<E::Bits>().at_wide(at)) }
    }
}

/// Chunk `chunk` of the record of `steps[0]` and of the columns of `steps[1]` that follow it in the block.
#[inline(always)]
unsafe fn stage_chunk<S: Simt, E: TileElement>(
    s: &S,
    p: &TileStreamParams,
    block: u32,
    chunk: u32,
    [step, later]: [u32; 2],
) {
    let bytes_of_record = <Fragments as Held<E>>::RECORD_BYTES;
    let of_record = bytes_of_record / 16;
    let record = p.records.at(chunk);
    let cols = p.step_cols.at(chunk.wrapping_sub(of_record));
    let (from, index, bytes) =
        if chunk < of_record { (record, step, bytes_of_record) } else { (cols, later, COLS_BYTES) };
    // SAFETY: both are steps of the stream; the chunk is inside the block.
    unsafe {
        if chunk < <Fragments as Held<E>>::BLOCK_BYTES / 16 {
            let from = from.byte_add(u64::from(index) * u64::from(bytes));
            s.copy_async_16(block + chunk * 16, from.cast(), true);
        }
    }
}

/// 16-bit values behind two bitmaps, in the order of the bits: those of tile 0, then those of tile 1.
///
/// A record is the bitmaps, rows, slot, and three words for the decode: byte `i` of the first counts the
/// values before word `i` of the bitmaps; the second is the step's first chunk in the array of values, the
/// third the number of its chunks. That leaves the third's upper half zero: it is what absent entries read.
/// A block is chunks for all values that a step can have, the record, the columns of the later step, and the
/// last chunk of that step's record.
pub struct Packed;

impl Packed {
    /// Words of a record.
    pub const RECORD_WORDS: usize = 4 + WINDOW_ROWS as usize + RECORD_TAIL;
    /// Values in a chunk.
    pub const CHUNK_VALUES: u32 = 8;
    /// Chunks of a record.
    const RECORD_CHUNKS: u32 = Self::RECORD_WORDS as u32 / 4;
    /// Chunks of a step without absent entries.
    const MOST_CHUNKS: u32 = 128 / Self::CHUNK_VALUES;
    /// In a block.
    const RECORD_AT: u32 = 16 * Self::MOST_CHUNKS;
    /// In a block: the last chunk of the record.
    const TAIL_AT: u32 = Self::RECORD_AT + 16 * (Self::RECORD_CHUNKS - 1);
    /// In a block: the last chunk of the later step's record.
    const LATER_AT: u32 = Self::TAIL_AT + 16 + COLS_BYTES;
}

impl<E: TileElement<Bits = u16, Fragment = [u32; 2]>> Held<E> for Packed {
    const PACKED: bool = true;
    const RECORD_BYTES: u32 = 16 * Self::RECORD_CHUNKS;
    const BLOCK_BYTES: u32 = Self::LATER_AT + 16;
    const ROWS_AT: u32 = Self::RECORD_AT + 16;
    const COLS_AT: u32 = Self::TAIL_AT + 16;
    /// First chunk, and number of chunks.
    type Run = [u32; 2];

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &TileStreamParams, step: u32) -> [u32; 2] {
        let at = (u64::from(step) + 1) * (Self::RECORD_WORDS as u64 / 2) - 1;
        // SAFETY: the caller's promise: the last two words of the step's record.
        unsafe { s.load_readonly_once(p.records.cast().at_wide(at)) }
    }

    #[inline(always)]
    unsafe fn staged_run<S: Simt>(s: &S, block: u32) -> [u32; 2] {
        // SAFETY: the caller's promise.
        unsafe { s.load_shared(block + Self::LATER_AT + 8) }
    }

    /// A chunk a lane: values, record, columns, the later step's run.
    #[inline(always)]
    unsafe fn stage<S: Simt>(
        s: &S,
        p: &TileStreamParams,
        block: u32,
        [step, later]: [u32; 2],
        [first, count]: [u32; 2],
    ) {
        const RECORD: u32 = Packed::MOST_CHUNKS;
        const COLS: u32 = RECORD + Packed::RECORD_CHUNKS;
        const LATER: u32 = COLS + COLS_BYTES / 16;
        const { assert!(16 * LATER == Packed::LATER_AT && LATER < WARP, "a chunk a lane, in order") }
        let lane = s.lane();
        let (from, index) = if lane < RECORD {
            (p.values.at(lane), first)
        } else if lane < COLS {
            (p.records.at(lane - RECORD), step * Self::RECORD_CHUNKS)
        } else if lane < LATER {
            (p.step_cols.at(lane - COLS), later * (COLS_BYTES / 16))
        } else {
            (p.records.at(Self::RECORD_CHUNKS - 1), later * Self::RECORD_CHUNKS)
        };
        // SAFETY: the caller's promise; lane i fills chunk i of the block.
        unsafe {
            if lane < count || (lane >= RECORD && lane <= LATER) {
                s.copy_async_16(block + lane * 16, from.at(index).cast(), true);
            }
        }
    }

    /// The lane's columns, `2q` and `2q + 1`, lie in one word of each bitmap: its entries of them are bits
    /// `16·(q % 2) + g` and the eighth after that.
    #[inline(always)]
    unsafe fn fragment<S: Simt>(s: &S, block: u32) -> [u32; 2] {
        let (g, q) = (s.lane() / 4, s.lane() % 4);
        let bit = 16 * (q % 2) + g;
        // SAFETY: the caller's promise; an entry that is there has its value in the chunks that were brought.
        unsafe {
            let counts: u32 = s.load_shared(block + Self::TAIL_AT + 4);
            let zero = block + Self::TAIL_AT + 14;
            [0, 1].map(|tile| {
                let word = 2 * tile + q / 2;
                let bits: u32 = s.load_shared(block + Self::RECORD_AT + 4 * word);
                let before = counts >> (8 * word) & 0xff;
                let low = before + s.population(u64::from(bits & ((1 << bit) - 1)));
                let high = low + s.population(u64::from(bits & (0xff << bit)));
                let place = |bit: u32, index| if bits >> bit & 1 == 1 { block + 2 * index } else { zero };
                let [low, high] = [place(bit, low), place(bit + 8, high)].map(|at| s.load_shared::<u16>(at));
                u32::from(low) | u32::from(high) << 16
            })
        }
    }

    #[inline(always)]
    unsafe fn bitmaps<S: Simt>(s: &S, p: &TileStreamParams, step: u32) -> [u64; 2] {
        // SAFETY: the caller's promise: the first chunk of the step's record.
        unsafe { s.load_readonly(p.records.at(step * Self::RECORD_CHUNKS).cast()) }
    }

    #[inline(always)]
    unsafe fn value<S: Simt>(s: &S, p: &TileStreamParams, entry: Place) -> u16 {
        let Place { step, tile, row, k, bitmaps: [first, second] } = entry;
        let below = |bits: u64| s.population(bits & ((1 << (WINDOW_ROWS * k + row)) - 1));
        let index = if tile == 0 { below(first) } else { s.population(first) + below(second) };
        // SAFETY: the caller's promise: the value is in the step's run.
        unsafe {
            let [chunk, _] = <Self as Held<E>>::run(s, p, step);
            s.load_readonly(p.values.at(chunk).cast::<u16>().at(index))
        }
    }
}

//! The records of a tile stream, dense or packed, and new values for them.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP, Word};

use super::{THREADS, item, part_of};
use crate::kernel::Kernel;
use crate::spmm::tile_stream::{
    CHUNK_BYTES, LANE_ELEMENTS, LINK_STEPS, MASK_WORDS, MORE_STEPS, PACKED_COUNTS, PACKED_HEAD_WORDS,
    PACKED_LINK, RECORD_TAIL, TileElement, WINDOW_ROWS, record_words,
};
use crate::variant::Variant;

/// Arguments of [`TileRecords`].
///
/// # Obligations
/// - `steps ≤` 2²⁸; `bitmaps` and `step_entries`: those of [`TileSteps`](super::TileSteps); `sources`: those of
///   [`MergeColumns`](super::MergeColumns), positions of `values`;
/// - unless `pieces` is null, `piece_steps` and `pieces` are those of [`TileSteps`](super::TileSteps), and
///   `window_rows` has 8 rows for each window of theirs;
/// - `record_starts` is null, and `records` has [`record_words`] words for each step; or it has the first chunk of each
///   step, and the number of chunks, which `records` has.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct TileRecordsParams {
    /// `[window, first step of it, piece word, 0]` of each piece; null to write values alone.
    pub pieces: GlobalPtr<[u32; 4]>,
    /// First step of each piece in the stream, and the number of steps.
    pub piece_steps: GlobalPtr<u32>,
    /// Row in each slot, 8 slots to a window.
    pub window_rows: GlobalPtr<u32>,
    /// Bitmaps of each step.
    pub bitmaps: GlobalPtr<[u64; 2]>,
    /// First position of each step.
    pub step_entries: GlobalPtr<u32>,
    /// Entry of the matrix at each position.
    pub sources: GlobalPtr<u32>,
    /// Value of each entry of the matrix, as `rounding` says.
    pub values: GlobalPtr<u32>,
    /// First chunk of each packed record; null for dense ones.
    pub record_starts: GlobalPtr<u32>,
    /// The records that are written, step after step.
    pub records: GlobalPtr<u32>,
    /// Number of steps of all pieces.
    pub steps: u32,
    /// Number of pieces, in the order of their steps.
    pub piece_count: u32,
    /// [`ROUNDED`](Self::ROUNDED), [`TO_NEAREST`](Self::TO_NEAREST) or [`TO_BF16`](Self::TO_BF16).
    pub rounding: u32,
    /// Zero: `Pod` allows no padding.
    pub reserved: u32,
}

impl TileRecordsParams {
    /// Values are of the type of the records already.
    pub const ROUNDED: u32 = 0;
    /// Values are f32, none of them NaN; they are rounded to f16, ties to even, or to tf32, ties away from zero.
    pub const TO_NEAREST: u32 = 1;
    /// Values are f32, none of them NaN; they are rounded to bf16, ties to even.
    pub const TO_BF16: u32 = 2;
}

/// A value that a kernel reads from an array of rounded ones, or of f32 that it rounds.
///
/// # Safety
/// As for [`Simt::load_readonly`]; `rounding` is one of those of [`TileRecordsParams`].
#[inline(always)]
unsafe fn load_value<S: Simt, B: StoredValue>(s: &S, values: GlobalPtr<u32>, at: u32, rounding: u32) -> B {
    // SAFETY: the caller has a value at `at`, of the type that `rounding` says.
    unsafe {
        if rounding == TileRecordsParams::ROUNDED {
            s.load_readonly(values.cast::<B>().at(at))
        } else {
            let x = f32::from_bits(s.load_readonly(values.at(at)));
            B::nearest(s, x, rounding == TileRecordsParams::TO_BF16)
        }
    }
}

/// The bits of a value in a record.
pub trait StoredValue: Word {
    /// The value nearest to an f32 that is a number.
    fn nearest<S: Simt>(s: &S, x: f32, to_bf16: bool) -> Self;
}

impl StoredValue for u16 {
    #[inline(always)]
    fn nearest<S: Simt>(s: &S, x: f32, to_bf16: bool) -> Self {
        if to_bf16 { s.f32_to_bf16(x) } else { s.f32_to_f16(x) }
    }
}

impl StoredValue for u32 {
    /// Half of the last place of a tf32 is added to the magnitude, whose carry may run into the exponent.
    #[inline(always)]
    fn nearest<S: Simt>(_: &S, x: f32, _: bool) -> Self {
        x.to_bits().wrapping_add(0x1000) & !0x1fff
    }
}

/// Writes the record of each step, a warp for each: a lane has the four elements that it will have in the multiply.
/// `E` stands for every type whose values are as long as its own.
pub struct TileRecords<E>(PhantomData<E>);

impl<E: TileElement<Bits: StoredValue>> Kernel for TileRecords<E> {
    type Params = TileRecordsParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::TileRecords { value_bytes: E::DTYPE.bytes() };
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS / WARP;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &TileRecordsParams) {
        // 1. Locate. A whole warp leaves or stays.
        let step = s.block_idx() * (THREADS / WARP) + s.warp();
        if step >= p.steps {
            return;
        }
        // SAFETY: the obligations of the params: `step < steps`, a warp alone writes its record.
        unsafe {
            // 2. Global -> registers.
            let values = Elements::<E>::load(s, p, step);
            let end = if p.pieces == GlobalPtr::NULL { End::UNKNOWN } else { End::find(s, p, step) };
            // 5. Registers -> global.
            match p.record_starts == GlobalPtr::NULL {
                true => values.write_dense(s, p, step, end),
                false => values.write_packed(s, p, step, end),
            }
        }
    }
}

/// What a lane knows of the piece that a step belongs to.
#[derive(Clone, Copy)]
struct End {
    /// Of lane `r < 8`: what the record has in the place of row `r`.
    row: u32,
    /// The piece word; of all lanes.
    word: u32,
    /// Whether it is wanted.
    known: bool,
}

impl End {
    const UNKNOWN: Self = Self { row: 0, word: 0, known: false };

    /// # Safety
    /// The obligations of the params, and `step < steps`.
    #[inline(always)]
    unsafe fn find<S: Simt>(s: &S, p: &TileRecordsParams, step: u32) -> Self {
        // SAFETY: the step exists, so that the search finds the piece that it belongs to, and that its window.
        unsafe {
            let piece = part_of(s, p.piece_steps, p.piece_count, step);
            let [window, _, word, _] = s.load_readonly(p.pieces.at(piece));
            let last = step + 1 == s.load_readonly(p.piece_steps.at(piece + 1));
            let row = if last && s.lane() < WINDOW_ROWS {
                s.load_readonly(p.window_rows.at(window * WINDOW_ROWS + s.lane()))
            } else {
                MORE_STEPS
            };
            Self { row, word, known: true }
        }
    }
}

/// A lane's elements of a step.
struct Elements<E: TileElement<Bits: StoredValue>> {
    bits: [E::Bits; LANE_ELEMENTS as usize],
    /// Bit `i` is set if element `i` is an entry's.
    present: u32,
    /// Entries of the step.
    count: u32,
}

impl<E: TileElement<Bits: StoredValue>> Elements<E> {
    const PER_CHUNK: u32 = CHUNK_BYTES / E::DTYPE.bytes();

    /// # Safety
    /// The obligations of the params, and `step < steps`.
    #[inline(always)]
    unsafe fn load<S: Simt>(s: &S, p: &TileRecordsParams, step: u32) -> Self {
        let row = s.lane() / 4;
        let mut bits = [<E::Bits as Zeroable>::zeroed(); LANE_ELEMENTS as usize];
        let mut present = 0;
        // SAFETY: the caller's promise: a bit of rank `r` in the bitmaps is the `r`-th entry of the step.
        unsafe {
            let bitmaps = s.load_readonly(p.bitmaps.at(step));
            let first = s.load_readonly(p.step_entries.at(step));
            let of_first_tile = bitmaps[0].count_ones();
            let mut i = 0;
            while i < LANE_ELEMENTS {
                let (tile, k) = E::element_column(s.lane(), i);
                let bitmap = if tile == 0 { bitmaps[0] } else { bitmaps[1] };
                let bit = k * WINDOW_ROWS + row;
                if bitmap >> bit & 1 == 1 {
                    let before = if tile == 0 { 0 } else { of_first_tile };
                    let rank = before + (bitmap & ((1 << bit) - 1)).count_ones();
                    let source = s.load_readonly(p.sources.at(first + rank));
                    bits[i as usize] = load_value(s, p.values, source, p.rounding);
                    present |= 1 << i;
                }
                i += 1;
            }
            Self { bits, present, count: of_first_tile + bitmaps[1].count_ones() }
        }
    }

    /// # Safety
    /// As for [`load`](Self::load); the full warp.
    #[inline(always)]
    unsafe fn write_dense<S: Simt>(&self, s: &S, p: &TileRecordsParams, step: u32, end: End) {
        let words = const { record_words(E::LANE_WORDS as usize) as u32 };
        let record = p.records.at_wide(u64::from(step) * u64::from(words));
        let tail = record.at(WARP * E::LANE_WORDS);
        // SAFETY: the caller's promise; records are multiples of 16 bytes.
        unsafe {
            s.store(record.at(s.lane() * E::LANE_WORDS).cast(), E::of_elements(self.bits, u32::MAX));
            if end.known && s.lane() < WINDOW_ROWS + RECORD_TAIL as u32 {
                let word = if s.lane() == WINDOW_ROWS { end.word } else { 0 };
                s.store(tail.at(s.lane()), if s.lane() < WINDOW_ROWS { end.row } else { word });
            }
        }
    }

    /// # Safety
    /// As for [`load`](Self::load); the full warp.
    #[inline(always)]
    unsafe fn write_packed<S: Simt>(&self, s: &S, p: &TileRecordsParams, step: u32, end: End) {
        // SAFETY: the caller names a step that exists, and the full warp is here; `records` has its chunks.
        unsafe {
            let chunk = s.load_readonly(p.record_starts.at(step));
            let record = p.records.at_wide(u64::from(chunk) * u64::from(CHUNK_BYTES / 4));
            // Elements of the lanes below, and of those in front of each word of the mask.
            let votes = [0, 1, 2, 3].map(|i| s.ballot(self.present >> i & 1 == 1));
            let below = |lane: u32| {
                let lanes = (1 << lane) - 1;
                votes.map(|vote| (vote & lanes).count_ones()).iter().sum::<u32>()
            };
            let mut at = below(s.lane());
            let values = record.at(PACKED_HEAD_WORDS as u32).cast::<E::Bits>();
            let mut i = 0;
            while i < LANE_ELEMENTS {
                if self.present >> i & 1 == 1 {
                    s.store(values.at(at), self.bits[i as usize]);
                    at += 1;
                }
                i += 1;
            }
            let pad = self.count + s.lane();
            if pad < self.count.next_multiple_of(Self::PER_CHUNK) {
                s.store(values.at(pad), Zeroable::zeroed());
            }
            // Word w of the mask: the bits of lanes 8w to 8w + 7.
            let mut mask = self.present << (s.lane() % 8 * LANE_ELEMENTS);
            mask |= s.shuffle_xor(mask, 1);
            mask |= s.shuffle_xor(mask, 2);
            mask |= s.shuffle_xor(mask, 4);
            let mask = s.shuffle(mask, s.lane() % MASK_WORDS as u32 * 8);
            let row = s.shuffle(end.row, s.lane().wrapping_sub(MASK_WORDS as u32) % WARP);
            if end.known && s.lane() < PACKED_HEAD_WORDS as u32 {
                let (rows_end, counts) = (MASK_WORDS as u32 + WINDOW_ROWS, PACKED_COUNTS as u32);
                let lane = s.lane();
                let word = if lane < MASK_WORDS as u32 {
                    mask
                } else if lane < rows_end {
                    row
                } else if lane == rows_end {
                    end.word
                } else if lane == counts {
                    below(8) << 8 | below(16) << 16 | below(24) << 24
                } else {
                    link(s, p, step, lane - PACKED_LINK as u32)
                };
                s.store(record.at(lane), word);
            }
        }
    }
}

/// Word `i` of the link of a packed record: where the record [`LINK_STEPS`] further on lies, and its chunks; zeros
/// if there is none.
///
/// # Safety
/// The obligations of the params.
#[inline(always)]
unsafe fn link<S: Simt>(s: &S, p: &TileRecordsParams, step: u32, i: u32) -> u32 {
    let linked = step + LINK_STEPS;
    if linked >= p.steps {
        return 0;
    }
    // SAFETY: there is a start behind that of the last step.
    unsafe {
        let begin = s.load_readonly(p.record_starts.at(linked));
        if i == 0 { begin } else { s.load_readonly(p.record_starts.at(linked + 1)) - begin }
    }
}

/// Arguments of [`GatherValues`].
///
/// # Obligations
/// - `count ≤` [`MOST_ITEMS`](super::MOST_ITEMS); `sources` and `gathered` have `count` elements, `values` has each of
///   the sources; `rounding` is as in [`TileRecordsParams`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct GatherValuesParams {
    /// Entries of the matrix.
    pub sources: GlobalPtr<u32>,
    /// Value of each entry of the matrix.
    pub values: GlobalPtr<u32>,
    /// Value of each entry that `sources` names, rounded if need be.
    pub gathered: GlobalPtr<u32>,
    /// Number of entries that `sources` names.
    pub count: u32,
    /// What values are: a constant of [`TileRecordsParams`].
    pub rounding: u32,
}

/// `gathered[i] = values[sources[i]]`, rounded if need be, a thread for each. `E` stands for every type whose values
/// are as long as its own.
pub struct GatherValues<E>(PhantomData<E>);

impl<E: TileElement<Bits: StoredValue>> Kernel for GatherValues<E> {
    type Params = GatherValuesParams;
    const FILE: &'static str = "preprocess";
    const VARIANT: Variant = Variant::GatherValues { value_bytes: E::DTYPE.bytes() };
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = THREADS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &GatherValuesParams) {
        let i = item(s);
        // SAFETY: the obligations of the params.
        unsafe {
            if i < p.count {
                let source = s.load_readonly(p.sources.at(i));
                let value: E::Bits = load_value(s, p.values, source, p.rounding);
                s.store(p.gathered.cast::<E::Bits>().at(i), value);
            }
        }
    }
}

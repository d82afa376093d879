//! How a step's record holds the values of its two tiles: dense in the order of the MMA's registers, or only
//! those of entries, behind a mask or behind the tiles' bitmaps.
//!
//! Element `i` of a step is [`TileElement::value_index`]: lane `i / 4` holds it in the MMA. A record of
//! [`Packed`]`<`[`Masked`]`>` keeps that order, not the bitmaps' order by columns: then the four bits of a lane are
//! neighbours in one word of the mask, and one population count finds the first of its values instead of one for each,
//! as with [`Bitmaps`](super::Bitmaps).

use core::marker::PhantomData;

use windrow_simt::{GlobalPtr, Simt, WARP};

use super::{COLS_BYTES, RECORD_TAIL, TileElement, TileStreamParams, WINDOW_ROWS, record_words};

/// Elements of a step that each lane holds.
pub const LANE_ELEMENTS: u32 = 4;
/// Words of a packed record's mask: bit `i % 32` of word `i / 32` is set if element `i` is an entry. As many words hold
/// the bitmaps of two tiles.
pub const MASK_WORDS: usize = (WARP * LANE_ELEMENTS / 32) as usize;
/// Words of a packed record in front of its values: mask, rows, piece word, counts and link.
pub const PACKED_HEAD_WORDS: usize = MASK_WORDS + WINDOW_ROWS as usize + RECORD_TAIL;
/// The word of a packed record that holds, in byte `w`, the entries in the mask's words below `w`.
pub const PACKED_COUNTS: usize = MASK_WORDS + WINDOW_ROWS as usize + 1;
/// The first of the two words of a packed record that say where a later one lies: its first chunk and its chunks.
pub const PACKED_LINK: usize = PACKED_COUNTS + 1;
/// How many steps further on the record lies that a packed record says the place of.
pub const LINK_STEPS: u32 = 2;
/// Bytes in which the length of a packed record and its place are counted.
pub const CHUNK_BYTES: u32 = 16;

/// Bytes in front of the values of a packed record.
pub(super) const HEAD_BYTES: u32 = 4 * PACKED_HEAD_WORDS as u32;
const COLS_CHUNKS: u32 = COLS_BYTES / CHUNK_BYTES;

/// In which form records hold the values of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// All of them, zeros too: [`Fragments`].
    Dense,
    /// Those of entries, without the zeros between, in the order of the MMA's registers: [`Packed`]`<`[`Masked`]`>`.
    Packed,
    /// Those of entries in the order of the tiles' bitmaps, which are decoded in the multiply:
    /// [`Packed`]`<`[`Bitmaps`](super::Bitmaps)`>`.
    Bitmap,
}

/// What a pipeline slot is to bring, beside rows of `B`.
pub struct Bring<P> {
    /// The step whose record it brings.
    pub step: u32,
    /// Where that record lies.
    pub place: P,
    /// The step whose columns it brings.
    pub later: u32,
}

/// An element of a step.
pub struct Element {
    /// Number of the step in the stream.
    pub step: u32,
    /// 0 or 1: which of its tiles.
    pub tile: u32,
    /// Row of the window.
    pub row: u32,
    /// Column of the tile.
    pub k: u32,
}

/// A form of records.
///
/// # Safety
/// Of all unsafe functions: steps are steps of the stream, the params keep their obligations, `record` is a
/// record in shared memory that has arrived.
pub trait Held<E: TileElement>: 'static {
    /// Which form that is.
    const FORM: Form;
    /// Bytes of the longest record.
    const RECORD_BYTES: u32;
    /// Behind the rows of `B` in a pipeline slot: the record.
    const RECORD_AT: u32;
    /// And the columns of a later step: before it where its length differs, so that both come in one piece.
    const COLS_AT: u32;
    /// In a record: the rows of `C`, and the [`piece_word`](super::piece_word) behind them.
    const ROWS_AT: u32;
    /// What is to be known of a record before it can be asked for.
    type Place: Copy;
    /// Such a place that is kept while a step is multiplied: where links lead one step further than to the step that is
    /// staged then.
    type Kept: Copy + Default + From<Self::Place>;

    /// Where the record of a step lies, from global memory.
    ///
    /// # Safety
    /// See [`Held`].
    unsafe fn place<S: Simt>(s: &S, p: &TileStreamParams, step: u32) -> Self::Place;

    /// The same of the step [`LINK_STEPS`] further on than that of `record`.
    ///
    /// # Safety
    /// See [`Held`]; worth something if there is such a step.
    unsafe fn staged_place<S: Simt>(s: &S, record: u32) -> Self::Place;

    /// Takes the place that is kept, if one is, and keeps the other instead.
    fn exchange(kept: &mut Self::Kept, place: &mut Self::Place);

    /// Chunks to bring: those of the record and of columns.
    fn chunks(place: Self::Place) -> u32;

    /// Where chunk `number` of these is.
    fn chunk(p: &TileStreamParams, bring: &Bring<Self::Place>, number: u32) -> GlobalPtr<[u32; 4]>;

    /// The lane's values.
    ///
    /// # Safety
    /// See [`Held`].
    unsafe fn fragment<S: Simt>(s: &S, record: u32, lane: u32) -> E::Fragment;

    /// The bitmaps of a step's tiles, at least the bits of `row`: bit `8·k + row` for column `k` of the tile.
    ///
    /// # Safety
    /// See [`Held`].
    unsafe fn bitmaps<S: Simt>(s: &S, p: &TileStreamParams, step: u32, row: u32) -> [u64; 2];

    /// The value of an entry, from global memory.
    ///
    /// # Safety
    /// See [`Held`]; the bitmap has a bit for the element.
    unsafe fn value<S: Simt>(s: &S, p: &TileStreamParams, element: &Element) -> E::Bits;
}

/// Values dense, +0 where there is no entry: nothing to decode.
pub struct Fragments;

impl<E: TileElement> Held<E> for Fragments {
    const FORM: Form = Form::Dense;
    const RECORD_BYTES: u32 = 4 * record_words(E::LANE_WORDS as usize) as u32;
    const RECORD_AT: u32 = 0;
    const COLS_AT: u32 = <Self as Held<E>>::RECORD_BYTES;
    const ROWS_AT: u32 = 4 * WARP * E::LANE_WORDS;
    /// Records are of one length.
    type Place = ();
    type Kept = ();

    #[inline(always)]
    unsafe fn place<S: Simt>(_: &S, _: &TileStreamParams, _: u32) {}

    #[inline(always)]
    unsafe fn staged_place<S: Simt>(_: &S, _: u32) {}

    #[inline(always)]
    fn exchange((): &mut (), (): &mut ()) {}

    #[inline(always)]
    fn chunks((): ()) -> u32 {
        <Self as Held<E>>::RECORD_BYTES / CHUNK_BYTES + COLS_CHUNKS
    }

    #[inline(always)]
    fn chunk(p: &TileStreamParams, bring: &Bring<()>, number: u32) -> GlobalPtr<[u32; 4]> {
        let bytes = <Self as Held<E>>::RECORD_BYTES;
        let of_record = bytes / CHUNK_BYTES;
        let record = p.records.at(number);
        let cols = p.step_cols.at(number.wrapping_sub(of_record));
        let (from, index, bytes) =
            if number < of_record { (record, bring.step, bytes) } else { (cols, bring.later, COLS_BYTES) };
        from.byte_add(u64::from(index) * u64::from(bytes))
    }

    #[inline(always)]
    unsafe fn fragment<S: Simt>(s: &S, record: u32, lane: u32) -> E::Fragment {
        // SAFETY: the record has arrived in shared memory, and has words for every lane.
        unsafe { E::fragment(s, record + lane * (4 * E::LANE_WORDS)) }
    }

    #[inline(always)]
    unsafe fn bitmaps<S: Simt>(s: &S, p: &TileStreamParams, step: u32, _: u32) -> [u64; 2] {
        // SAFETY: the step is one of the stream, and `bitmaps` has an element for each.
        unsafe { s.load_readonly(p.bitmaps.at(step)) }
    }

    #[inline(always)]
    unsafe fn value<S: Simt>(s: &S, p: &TileStreamParams, element: &Element) -> E::Bits {
        let &Element { step, tile, row, k } = element;
        let per_record = u64::from(<Self as Held<E>>::RECORD_BYTES) / size_of::<E::Bits>() as u64;
        let at = u64::from(step) * per_record + u64::from(E::value_index(tile, row, k));
        // SAFETY: the element is one of a step of the stream, whose record has a place for it.
        unsafe { s.load_readonly(p.records.cast::<E::Bits>().at_wide(at)) }
    }
}

/// Values of entries only, one after the other, found as `D` says.
///
/// ```text
/// words 0..4      for D: where there are entries
/// words 4..12     rows of C, or MORE_STEPS
/// word  12        piece_word
/// word  13        for D
/// words 14..16    first chunk and number of chunks of the record LINK_STEPS further on
/// then            values, in the order of D; zeros up to a whole chunk
/// ```
pub struct Packed<D = Masked>(PhantomData<D>);

/// How the values of a packed record are found.
///
/// # Safety
/// Of all unsafe functions: as for [`Held`]; records in global memory are those of steps.
pub trait Decode<E: TileElement>: 'static {
    /// The form of such records.
    const FORM: Form;

    /// The lane's values, of a record in shared memory.
    ///
    /// # Safety
    /// See [`Held`].
    unsafe fn fragment<S: Simt>(s: &S, record: u32, lane: u32) -> E::Fragment;

    /// As [`Held::bitmaps`], of a record in global memory.
    ///
    /// # Safety
    /// See [`Decode`].
    unsafe fn bitmaps<S: Simt>(s: &S, record: GlobalPtr<u32>, row: u32) -> [u64; 2];

    /// How many of a record's values are in front of an element's.
    ///
    /// # Safety
    /// See [`Decode`].
    unsafe fn values_before<S: Simt>(s: &S, record: GlobalPtr<u32>, element: &Element) -> u32;
}

/// First word of the packed record of a step in global memory.
#[inline(always)]
unsafe fn packed_record<S: Simt>(s: &S, p: &TileStreamParams, step: u32) -> GlobalPtr<u32> {
    // SAFETY: the step is one of the stream, and `record_starts` has an element for each.
    let chunk = unsafe { s.load_readonly(p.record_starts.at(step)) };
    p.records.at(chunk).cast()
}

impl<E: TileElement, D: Decode<E>> Held<E> for Packed<D> {
    const FORM: Form = D::FORM;
    const RECORD_BYTES: u32 = HEAD_BYTES + WARP * LANE_ELEMENTS * size_of::<E::Bits>() as u32;
    const RECORD_AT: u32 = COLS_BYTES;
    const COLS_AT: u32 = 0;
    const ROWS_AT: u32 = 4 * MASK_WORDS as u32;
    /// First chunk, and number of chunks.
    type Place = [u32; 2];
    type Kept = Option<[u32; 2]>;

    #[inline(always)]
    unsafe fn place<S: Simt>(s: &S, p: &TileStreamParams, step: u32) -> [u32; 2] {
        // SAFETY: the caller's promise: there is a start behind that of the last step.
        unsafe {
            let begin = s.load_readonly(p.record_starts.at(step));
            [begin, s.load_readonly(p.record_starts.at(step + 1)) - begin]
        }
    }

    #[inline(always)]
    unsafe fn staged_place<S: Simt>(s: &S, record: u32) -> [u32; 2] {
        // SAFETY: the record has arrived in shared memory, with its link.
        unsafe { s.load_shared(record + 4 * PACKED_LINK as u32) }
    }

    #[inline(always)]
    fn exchange(kept: &mut Option<[u32; 2]>, place: &mut [u32; 2]) {
        if let Some(kept) = kept {
            core::mem::swap(kept, place);
        }
    }

    #[inline(always)]
    fn chunks(place: [u32; 2]) -> u32 {
        COLS_CHUNKS + place[1]
    }

    #[inline(always)]
    fn chunk(p: &TileStreamParams, bring: &Bring<[u32; 2]>, number: u32) -> GlobalPtr<[u32; 4]> {
        let (array, from) = if number < COLS_CHUNKS {
            (p.step_cols, bring.later * COLS_CHUNKS + number)
        } else {
            (p.records, bring.place[0] + (number - COLS_CHUNKS))
        };
        array.at(from)
    }

    #[inline(always)]
    unsafe fn fragment<S: Simt>(s: &S, record: u32, lane: u32) -> E::Fragment {
        // SAFETY: the caller's promise.
        unsafe { D::fragment(s, record, lane) }
    }

    #[inline(always)]
    unsafe fn bitmaps<S: Simt>(s: &S, p: &TileStreamParams, step: u32, row: u32) -> [u64; 2] {
        // SAFETY: the caller's promise; the record is the step's.
        unsafe { D::bitmaps(s, packed_record(s, p, step), row) }
    }

    #[inline(always)]
    unsafe fn value<S: Simt>(s: &S, p: &TileStreamParams, element: &Element) -> E::Bits {
        // SAFETY: the caller's promise: the value is in the record.
        unsafe {
            let record = packed_record(s, p, element.step);
            let before = D::values_before(s, record, element);
            s.load_readonly(record.at(PACKED_HEAD_WORDS as u32).cast::<E::Bits>().at(before))
        }
    }
}

/// Values in the order of the MMA's registers, found by counting the bits of a mask in that order.
///
/// ```text
/// words 0..4      mask: bit i % 32 of word i / 32 for element i
/// word  13        byte w: entries in the mask's words below w
/// ```
pub struct Masked;

impl<E: TileElement> Decode<E> for Masked {
    const FORM: Form = Form::Packed;

    /// An element without an entry is given the place of the last entry before it, or of the word in front of the
    /// values: words that have arrived. What is read there is masked out.
    #[inline(always)]
    unsafe fn fragment<S: Simt>(s: &S, record: u32, lane: u32) -> E::Fragment {
        let word = lane / 8;
        let shift = lane % 8 * LANE_ELEMENTS;
        let bytes = size_of::<E::Bits>() as u32;
        // SAFETY: the caller's promise; see above.
        unsafe {
            let mask: u32 = s.load_shared(record + word * 4);
            let counts: u32 = s.load_shared(record + 4 * PACKED_COUNTS as u32);
            let before = s.permute_bytes(counts, 0, 0x4440 | word) + (mask & ((1 << shift) - 1)).count_ones();
            let bits = mask >> shift;
            let mut at = record + HEAD_BYTES - bytes + before * bytes;
            let elements = [0, 1, 2, 3].map(|i| {
                at += (bits >> i & 1) * bytes;
                s.load_shared(at)
            });
            E::of_elements(elements, bits)
        }
    }

    #[inline(always)]
    unsafe fn bitmaps<S: Simt>(s: &S, record: GlobalPtr<u32>, row: u32) -> [u64; 2] {
        // SAFETY: the caller's promise; the elements of two rows share a word of the mask.
        let mask = unsafe { s.load_readonly(record.at(row / 2)) } >> (row % 2 * 16);
        [0, 1].map(|tile| {
            let (mut bits, mut k) = (0, 0);
            while k < 8 {
                bits |= u64::from(mask >> E::value_index(tile, 0, k) & 1) << (8 * k);
                k += 1;
            }
            bits << row
        })
    }

    #[inline(always)]
    unsafe fn values_before<S: Simt>(s: &S, record: GlobalPtr<u32>, element: &Element) -> u32 {
        let i = E::value_index(element.tile, element.row, element.k);
        // SAFETY: the caller's promise: a mask and its counts.
        unsafe {
            let mask = s.load_readonly(record.at(i / 32));
            let counts = s.load_readonly(record.at(PACKED_COUNTS as u32));
            (counts >> (8 * (i / 32)) & 0xff) + (mask & ((1 << (i % 32)) - 1)).count_ones()
        }
    }
}

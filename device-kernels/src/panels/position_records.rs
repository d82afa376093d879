//! The records of sampled products, on the device: how long each is, and what it holds.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::spans::{
    BLOCK_SPANS, SpansParams, THREADS, column_of, entry_from, sum_and_greatest, sum_upto, word_of,
};
use super::{BUNDLE_ROWS, PANEL_ROWS, PANEL_WARPS, UNIT, tail_word};
use crate::NO_ROW;
use crate::kernel::Kernel;
use crate::preprocess::part_of;
use crate::sddmm::panels::{
    BATCH_VECTORS, BATCH_WORDS, HEAD_WORDS, NAME_WORDS, SLOTS, batches_word, record_words,
};
use crate::unroll::each4;
use crate::variant::Variant;

const BUNDLES: u32 = PANEL_ROWS / BUNDLE_ROWS;
/// Vectors of half a batch, in which warps work.
const HALF: u32 = BATCH_VECTORS / 2;
/// Words of shared memory of a warp: one for each vector of a bundle.
const WARP_WORDS: u32 = SLOTS;

/// A chunk is two spans, the second of which the last of a panel may lack.
const _: () = assert!(SLOTS == 2 * WARP);
/// The words of the batches of a bundle are a lane each.
const _: () = assert!(SLOTS / BATCH_VECTORS * BATCH_WORDS == WARP && BATCH_WORDS == UNIT);

/// Arguments of [`MeasurePositions`] and [`WritePositions`].
///
/// # Obligations
/// - `spans`: those of [`MarkRows`](super::MarkRows), which wrote the words; the panels are those of all `rows` of a
///   matrix in their own order;
/// - `panel_chunks` has an element for each panel and one more, the sums of half the spans of each, rounded up; the
///   last is `chunks`;
/// - `panel_rows`: that of [`BundleRows`](super::BundleRows); `row_offsets` and `col_indices` are the matrix's;
/// - for [`MeasurePositions`]: `units` and `work` have an element for each chunk;
/// - for [`WritePositions`]: `units` are the exclusive sums of what [`MeasurePositions`] wrote, with one element more,
///   which four times fit 32 bits; `records` has four words for each of all, `names` [`NAME_WORDS`] for each chunk;
/// - nothing overlaps what is written.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct PositionRecordsParams {
    /// What panels have in columns.
    pub spans: SpansParams,
    /// Chunks of the panels before each, and of all.
    pub panel_chunks: GlobalPtr<u32>,
    /// Rows of each bundle, in the order in which warps have these.
    pub panel_rows: GlobalPtr<[u32; 4]>,
    /// Units of 16 bytes of each record, then of those before it.
    pub units: GlobalPtr<u32>,
    /// Entries of each chunk, and pairs of vectors of the warp that has most.
    pub work: GlobalPtr<[u32; 2]>,
    /// Offsets of all rows of the matrix.
    pub row_offsets: GlobalPtr<u32>,
    /// Column of each entry of the matrix.
    pub col_indices: GlobalPtr<u32>,
    /// The columns of each chunk, and where its record begins and how long it is, in units.
    pub names: GlobalPtr<u32>,
    /// The records of all chunks.
    pub records: GlobalPtr<u32>,
    /// Number of all chunks.
    pub chunks: u32,
    /// Rows of the matrix.
    pub rows: u32,
}

/// How long the record of each chunk is, and what it is to a block; a warp a chunk, a lane a bundle.
pub struct MeasurePositions;

impl Kernel for MeasurePositions {
    type Params = PositionRecordsParams;
    const FILE: &'static str = "panels";
    const VARIANT: Variant = Variant::MeasurePositions;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = BLOCK_SPANS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &PositionRecordsParams) {
        let chunk = s.block_idx() * BLOCK_SPANS + s.warp();
        if chunk >= p.chunks {
            return;
        }
        // SAFETY: the obligations of the params; the whole warp is here.
        unsafe {
            let of = Bundles::load(s, p, chunk);
            let mut entries = 0;
            each4(|i| entries += of.words[i][0].count_ones() + of.words[i][1].count_ones());
            // The two bundles of a warp are beside each other.
            let halves = of.halves() + s.shuffle_xor(of.halves(), 1);
            let [entries, most] = sum_and_greatest(s, entries, halves);
            if s.lane() == 0 {
                s.store(p.units.at(chunk), record_words(of.all) / UNIT);
                s.store(p.work.at(chunk), [entries, most * HALF / 2]);
            }
        }
    }
}

/// Writes names and record of each chunk, a warp a chunk.
///
/// Of one bundle after the other: lanes, which are columns, put its vectors in their order in shared memory; then they
/// are the words of its batches, and bring together what is in these.
pub struct WritePositions;

impl Kernel for WritePositions {
    type Params = PositionRecordsParams;
    const FILE: &'static str = "panels";
    const VARIANT: Variant = Variant::WritePositions;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = BLOCK_SPANS;
    const SHARED_BYTES: u32 = 4 * BLOCK_SPANS * WARP_WORDS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &PositionRecordsParams) {
        let chunk = s.block_idx() * BLOCK_SPANS + s.warp();
        if chunk >= p.chunks {
            return;
        }
        // SAFETY: the obligations of the params; the whole warp is here, a record and its names are its own, and so is
        // its part of shared memory.
        unsafe {
            let of = Bundles::load(s, p, chunk);
            let start = s.load_readonly(p.units.at(chunk));
            let record = p.records.at_wide(u64::from(UNIT) * u64::from(start));
            let first_column = of.write_names(s, p, chunk, start);
            of.write_head(s, p, record, first_column);
            let mut bundle = 0;
            while bundle < BUNDLES {
                of.write_batches(s, bundle, record);
                bundle += 1;
            }
        }
    }
}

/// The bundles of a panel in a chunk, one a lane of the first half of a warp; the others have none.
struct Bundles {
    panel: u32,
    rows: [u32; 4],
    /// Which columns of the chunk each row has.
    words: [[u32; 2]; 4],
    vectors: u32,
    /// Batches of the bundles before, and of all.
    first: u32,
    all: u32,
}

impl Bundles {
    /// # Safety
    /// The obligations of the params; the full warp, and the chunk is one of theirs.
    #[inline(always)]
    unsafe fn load<S: Simt>(s: &S, p: &PositionRecordsParams, chunk: u32) -> Self {
        // SAFETY: the caller's promise; a panel with chunks has the first span of each.
        unsafe {
            let panel = part_of(s, p.panel_chunks, p.spans.panels, chunk);
            let of_panel = chunk - s.load_readonly(p.panel_chunks.at(panel));
            let span = s.load_readonly(p.spans.panel_spans.at(panel)) + 2 * of_panel;
            let has_second = span + 1 < s.load_readonly(p.spans.panel_spans.at(panel + 1));
            let rows = match s.lane() < BUNDLES {
                true => s.load_readonly(p.panel_rows.at(panel * BUNDLES + s.lane())),
                false => [NO_ROW; 4],
            };
            let mut words = [[0; 2]; 4];
            each4(|i| {
                let second = if has_second { word_of(s, &p.spans, span + 1, rows[i]) } else { 0 };
                words[i] = [word_of(s, &p.spans, span, rows[i]), second];
            });
            let vectors = any(words, 0).count_ones() + any(words, 1).count_ones();
            let batches = vectors.div_ceil(BATCH_VECTORS);
            let upto = sum_upto(s, batches);
            Self { panel, rows, words, vectors, first: upto - batches, all: s.shuffle(upto, WARP - 1) }
        }
    }

    fn halves(&self) -> u32 {
        self.vectors.div_ceil(HALF)
    }

    /// Writes the names of a chunk whose record starts there. Its first column.
    ///
    /// # Safety
    /// The obligations of [`WritePositions`]; the full warp.
    #[inline(always)]
    unsafe fn write_names<S: Simt>(&self, s: &S, p: &PositionRecordsParams, chunk: u32, start: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            let names = p.names.at_wide(u64::from(chunk) * u64::from(NAME_WORDS));
            let number = (chunk - s.load_readonly(p.panel_chunks.at(self.panel))) * SLOTS + s.lane();
            let [column, _] = column_of(s, &p.spans, self.panel, number);
            let [second, _] = column_of(s, &p.spans, self.panel, number + WARP);
            s.store(names.at(s.lane()), column);
            s.store(names.at(WARP + s.lane()), second);
            if s.lane() < NAME_WORDS - SLOTS {
                let units = s.load_readonly(p.units.at(chunk + 1)) - start;
                s.store(names.at(SLOTS + s.lane()), tail_word(s.lane(), [start, units]));
            }
            s.shuffle(column, 0)
        }
    }

    /// Writes what a record says to each warp, and where the entries of each row go from this column on.
    ///
    /// # Safety
    /// The obligations of [`WritePositions`]; the full warp.
    #[inline(always)]
    unsafe fn write_head<S: Simt>(
        &self,
        s: &S,
        p: &PositionRecordsParams,
        record: GlobalPtr<u32>,
        column: u32,
    ) {
        // SAFETY: the caller's promise; a record begins at a multiple of 16 bytes, and so do these words of it.
        unsafe {
            let halves = [self.halves(), s.shuffle_down(self.halves(), 1)];
            if s.lane() >= BUNDLES {
                return;
            }
            if s.lane().is_multiple_of(2) {
                s.store(record.at(s.lane() / 2), batches_word(self.first, halves));
            }
            let mut firsts = [0; 4];
            each4(|i| {
                firsts[i] = match self.rows[i] {
                    NO_ROW => s.load_readonly(p.row_offsets.at(p.rows)),
                    row => entry_from(s, (p.row_offsets, p.col_indices), row, column),
                };
            });
            s.store(record.at(PANEL_WARPS + BUNDLE_ROWS * s.lane()).cast(), firsts);
        }
    }

    /// Writes the batches of a bundle.
    ///
    /// # Safety
    /// The obligations of [`WritePositions`]; the full warp, which has words of shared memory of its own.
    #[inline(always)]
    unsafe fn write_batches<S: Simt>(&self, s: &S, bundle: u32, record: GlobalPtr<u32>) {
        let own = 4 * s.warp() * WARP_WORDS;
        // SAFETY: the caller's promise: each vector has one place, and what a word brings together was written.
        unsafe {
            let mut words = [[0; 2]; 4];
            each4(|i| {
                words[i] = [s.shuffle(self.words[i][0], bundle), s.shuffle(self.words[i][1], bundle)];
            });
            let (vectors, first) = (s.shuffle(self.vectors, bundle), s.shuffle(self.first, bundle));
            let spans = [any(words, 0), any(words, 1)];
            let below = (1 << s.lane()) - 1;
            let places =
                [(spans[0] & below).count_ones(), spans[0].count_ones() + (spans[1] & below).count_ones()];
            s.sync_warp(); // WAR: vectors of the bundle before read -> written
            put(s, own + 4 * places[0], s.lane(), mask_of(s, words, 0));
            put(s, own + 4 * places[1], WARP + s.lane(), mask_of(s, words, 1));
            s.sync_warp(); // RAW: vectors written -> read
            let (batch, word) = (s.lane() / BATCH_WORDS, s.lane() % BATCH_WORDS);
            if batch < vectors.div_ceil(BATCH_VECTORS) {
                let of = |vector: u32| match vector < vectors {
                    true => s.load_shared(own + 4 * vector),
                    false => 0,
                };
                let first_vector = BATCH_VECTORS * batch;
                let mut bits = 0;
                match word {
                    2 => {
                        let mut at = 0;
                        while at < BATCH_VECTORS {
                            bits |= (of(first_vector + at) >> SLOT_BITS) << (BUNDLE_ROWS * at);
                            at += 1;
                        }
                    }
                    3 => {}
                    half => {
                        let mut at = 0;
                        while at < HALF {
                            let slot = of(first_vector + HALF * half + at) & ((1 << SLOT_BITS) - 1);
                            bits |= slot << (SLOT_BITS * at);
                            at += 1;
                        }
                    }
                }
                s.store(record.at(HEAD_WORDS + BATCH_WORDS * (first + batch) + word), bits);
            }
        }
    }
}

/// Bits of a slot in a batch, and in shared memory, where the mask is behind it.
const SLOT_BITS: u32 = 8;

/// Which columns of a span any of four rows has.
#[inline(always)]
const fn any(words: [[u32; 2]; 4], span: usize) -> u32 {
    words[0][span] | words[1][span] | words[2][span] | words[3][span]
}

/// Which of four rows have the lane's column of a span.
#[inline(always)]
fn mask_of<S: Simt>(s: &S, words: [[u32; 2]; 4], span: usize) -> u32 {
    let mut mask = 0;
    each4(|row| mask |= (words[row][span] >> s.lane() & 1) << row);
    mask
}

/// Puts a vector in shared memory, if it has entries.
///
/// # Safety
/// The word is the vector's alone.
#[inline(always)]
unsafe fn put<S: Simt>(s: &S, to: u32, slot: u32, mask: u32) {
    if mask != 0 {
        // SAFETY: the caller's promise.
        unsafe { s.store_shared(to, slot | mask << SLOT_BITS) };
    }
}

//! The records of products with a dense matrix, on the device: how long each is, and what it holds beside values.

use bytemuck::{Pod, Zeroable};
use windrow_simt::{GlobalPtr, Simt, WARP};

use super::spans::{
    BLOCK_SPANS, SpansParams, THREADS, column_of, entry_from, sum_and_greatest, sum_upto, word_of,
};
use super::{BUNDLE_ROWS, PANEL_ROWS, PANEL_WARPS, UNIT, tail_word};
use crate::NO_ROW;
use crate::kernel::Kernel;
use crate::preprocess::part_of;
use crate::spmm::row_panels::{
    HEAD_WORDS, NAME_WORDS, SLOTS, bounds_word, record_words, values_at, vector_word,
};
use crate::unroll::each4;
use crate::variant::Variant;

const BUNDLES: u32 = PANEL_ROWS / BUNDLE_ROWS;

/// A span is a chunk.
const _: () = assert!(SLOTS == WARP);

/// Arguments of [`MeasureRecords`] and [`WriteRecords`].
///
/// # Obligations
/// - `spans`: those of [`MarkRows`](super::MarkRows), which wrote the words; the panels are those of all rows of a
///   matrix in their own order;
/// - `panel_rows`: that of [`BundleRows`](super::BundleRows);
/// - for [`MeasureRecords`]: `units` and `work` have an element for each span;
/// - for [`WriteRecords`]: `units` are the exclusive sums of what [`MeasureRecords`] wrote, with one element more,
///   which four times fit 32 bits; `records` has four words for each of all, which are 0; `row_offsets` and
///   `col_indices` are the matrix's, `names` has [`NAME_WORDS`] elements for each span, and `places` one for each
///   entry;
/// - nothing overlaps what is written.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct ValueRecordsParams {
    /// What panels have in columns.
    pub spans: SpansParams,
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
    /// The word of the records that takes the value of each entry.
    pub places: GlobalPtr<u32>,
}

/// How long the record of each chunk is, and what it is to a block; a warp a chunk, a lane a bundle.
pub struct MeasureRecords;

impl Kernel for MeasureRecords {
    type Params = ValueRecordsParams;
    const FILE: &'static str = "panels";
    const VARIANT: Variant = Variant::MeasureRecords;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = BLOCK_SPANS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ValueRecordsParams) {
        let chunk = s.block_idx() * BLOCK_SPANS + s.warp();
        if chunk >= p.spans.spans {
            return;
        }
        // SAFETY: the obligations of the params; the whole warp is here.
        unsafe {
            let of = Bundles::load(s, p, chunk);
            let mut entries = 0;
            each4(|i| entries += of.words[i].count_ones());
            // The two bundles of a warp are beside each other.
            let of_warp = of.pairs + s.shuffle_xor(of.pairs, 1);
            let [entries, most] = sum_and_greatest(s, entries, of_warp);
            if s.lane() == 0 {
                s.store(p.units.at(chunk), record_words(of.all) / UNIT);
                s.store(p.work.at(chunk), [entries, most]);
            }
        }
    }
}

/// Writes the record of each chunk but for its values, where these belong, and what its names say of the record; a warp
/// a chunk, a lane a column of it.
pub struct WriteRecords;

impl Kernel for WriteRecords {
    type Params = ValueRecordsParams;
    const FILE: &'static str = "panels";
    const VARIANT: Variant = Variant::WriteRecords;
    const BLOCK_THREADS: u32 = THREADS;
    const UNITS_PER_BLOCK: u32 = BLOCK_SPANS;

    #[inline(always)]
    unsafe fn run<S: Simt>(s: &S, p: &ValueRecordsParams) {
        let chunk = s.block_idx() * BLOCK_SPANS + s.warp();
        if chunk >= p.spans.spans {
            return;
        }
        // SAFETY: the obligations of the params; the whole warp is here. A record and its names are one warp's, a word
        // of either one lane's, the place of an entry that of the one lane that has its column.
        unsafe {
            let of = Bundles::load(s, p, chunk);
            let names = p.names.at_wide(u64::from(chunk) * u64::from(NAME_WORDS));
            let of_panel = chunk - s.load_readonly(p.spans.panel_spans.at(of.panel));
            let [column, _] = column_of(s, &p.spans, of.panel, of_panel * SLOTS + s.lane());
            let first_entries = of.first_entries(s, p, s.shuffle(column, 0));
            let start = s.load_readonly(p.units.at(chunk));
            let units = s.load_readonly(p.units.at(chunk + 1)) - start;
            s.store(names.at(s.lane()), column);
            if s.lane() < NAME_WORDS - SLOTS {
                s.store(names.at(SLOTS + s.lane()), tail_word(s.lane(), [start, units]));
            }
            let bounds = [of.first, s.shuffle_down(of.first, 1), s.shuffle_down(of.first, 2)];
            let record = p.records.at_wide(u64::from(UNIT) * u64::from(start));
            if s.lane() < BUNDLES && s.lane().is_multiple_of(2) {
                s.store(record.at(s.lane() / 2), bounds_word(bounds));
            }
            let values = UNIT * start + values_at(of.all);
            let mut bundle = 0;
            while bundle < BUNDLES {
                let (mut words, mut entries) = ([0; 4], [0; 4]);
                each4(|row| {
                    words[row] = s.shuffle(of.words[row], bundle);
                    entries[row] = s.shuffle(first_entries[row], bundle);
                });
                let (bit, below) = (1 << s.lane(), (1 << s.lane()) - 1);
                let any = words[0] | words[1] | words[2] | words[3];
                let vector = 2 * s.shuffle(of.first, bundle) + (any & below).count_ones();
                let mut mask = 0;
                each4(|row| {
                    if words[row] & bit != 0 {
                        mask |= 1 << row;
                        let entry = entries[row] + (words[row] & below).count_ones();
                        s.store(p.places.at(entry), values + BUNDLE_ROWS * vector + row as u32);
                    }
                });
                if any & bit != 0 {
                    s.store(record.at(HEAD_WORDS + vector), vector_word(s.lane(), mask));
                }
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
    words: [u32; 4],
    /// Pairs of vectors, at least one.
    pairs: u32,
    /// Those of the bundles before; behind the last, all of them.
    first: u32,
    /// Those of all bundles.
    all: u32,
}

impl Bundles {
    /// # Safety
    /// The obligations of the params; the full warp, and the chunk is one of theirs.
    #[inline(always)]
    unsafe fn load<S: Simt>(s: &S, p: &ValueRecordsParams, chunk: u32) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let panel = part_of(s, p.spans.panel_spans, p.spans.panels, chunk);
            let has_bundle = s.lane() < BUNDLES;
            let rows = match has_bundle {
                true => s.load_readonly(p.panel_rows.at(panel * BUNDLES + s.lane())),
                false => [NO_ROW; 4],
            };
            let mut words = [0; 4];
            each4(|i| words[i] = word_of(s, &p.spans, chunk, rows[i]));
            let vectors = (words[0] | words[1] | words[2] | words[3]).count_ones();
            let pairs = match (has_bundle, vectors.div_ceil(2)) {
                (false, _) => 0,
                (true, 0) => 1,
                (true, pairs) => pairs,
            };
            let upto = sum_upto(s, pairs);
            Self { panel, rows, words, pairs, first: upto - pairs, all: s.shuffle(upto, WARP - 1) }
        }
    }

    /// First entry of each row in a chunk that begins with this column; any of a row that has none there.
    ///
    /// # Safety
    /// The obligations of the params.
    #[inline(always)]
    unsafe fn first_entries<S: Simt>(&self, s: &S, p: &ValueRecordsParams, column: u32) -> [u32; 4] {
        let mut firsts = [0; 4];
        each4(|i| {
            if self.words[i] != 0 {
                // SAFETY: a row that has entries is one of the matrix.
                firsts[i] = unsafe { entry_from(s, (p.row_offsets, p.col_indices), self.rows[i], column) };
            }
        });
        firsts
    }
}

const _: () = assert!(PANEL_WARPS == HEAD_WORDS && BUNDLES == 2 * PANEL_WARPS);

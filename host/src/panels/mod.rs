//! The device form of panels: their columns in chunks, and a record for each chunk. What these have in common is
//! [`windrow_kernels::panels`]; the records of products with a dense matrix hold [values], those of sampled ones
//! [positions]. On a GPU kernels make the former (`spmm::preprocess`), of which pieces are cut here.

mod bundles;
mod count;
pub(crate) mod pieces;
pub(crate) mod positions;
#[cfg(test)]
mod tests;
pub(crate) mod values;

use rayon::prelude::*;
use windrow_formats::memory::{make_room, try_collect, try_par_collect_ok, try_with_room};
use windrow_formats::{OutOfMemory, Pattern};
use windrow_kernels::panels::{BUNDLE_ROWS, PANEL_ROWS, PANEL_WARPS, WARP_BUNDLES, name_words};
use windrow_kernels::{NO_COLUMN, NO_ROW};

use crate::num::{index, narrow, wide};
use crate::predict::PanelCounts;

use bundles::Bundled;
pub(crate) use count::{Sample, may_share, panel_counts};

const ROWS: usize = PANEL_ROWS as usize;
const BUNDLE: usize = BUNDLE_ROWS as usize;
const BUNDLES: usize = ROWS / BUNDLE;
const WARPS: usize = PANEL_WARPS as usize;
/// Words in front of which a record may begin.
const UNIT: usize = 4;

/// Rows of each bundle of a panel, in the order in which warps have them.
type PanelRows = [[u32; BUNDLE]; BUNDLES];

/// A pattern in panels of successive rows.
#[derive(Debug, Default)]
pub(crate) struct Panels {
    /// Rows of the matrix, bundle by bundle.
    pub(crate) rows: Vec<[u32; BUNDLE]>,
    /// What is to be done for each chunk.
    pub(crate) work: Vec<ChunkWork>,
    /// First chunk of each panel, and the number of chunks.
    panel_chunks: Vec<u32>,
    /// Of each chunk, a column for each slot, and where its record begins and how long it is, in vectors of 16 bytes.
    pub(crate) names: Vec<u32>,
    /// The records of each panel.
    records: Vec<Vec<u32>>,
    /// First word of the records of each panel, and the number of words.
    panel_words: Vec<usize>,
    /// Distinct columns of each panel, summed, and what bundles have in them: vectors of one to four entries.
    pub(crate) counts: PanelCounts,
}

/// What a chunk is to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkWork {
    /// Entries of all rows.
    pub(crate) entries: u32,
    /// Pairs of vectors of the warp that has most of them, pads too.
    pub(crate) most_pairs: u32,
}

/// Why there are no panels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoPanels {
    /// Records of so many words, which numbers of 32 bits do not count.
    TooLarge(u64),
    OutOfMemory(OutOfMemory),
}

impl From<OutOfMemory> for NoPanels {
    fn from(error: OutOfMemory) -> Self {
        Self::OutOfMemory(error)
    }
}

/// What writes the records of a panel.
trait Recorder: Send {
    /// Slots of a chunk.
    const SLOTS: u32;

    /// Appends the record of a chunk, of a multiple of `UNIT` words: the pairs of vectors of the warp that has most.
    fn add(&mut self, chunk: &mut Chunk<'_>, records: &mut Vec<u32>) -> Result<u32, NoPanels>;
}

/// A chunk of a panel.
struct Chunk<'a> {
    /// Its entries, column by column.
    keys: &'a [Key],
    order: &'a Order,
    /// For each row of the panel the number of its first entry in the chunk, among those of the panel; a [`Recorder`]
    /// leaves those of the next chunk.
    next: &'a mut [usize; ROWS],
    /// Vectors of each bundle, in the order in which warps have these.
    vectors: [u32; BUNDLES],
}

impl Panels {
    /// The panels of a pattern, with the records that its own of these recorders makes for each.
    ///
    /// # Cost
    /// `nnz · log nnz` of a panel.
    fn of<R: Recorder>(a: &Pattern, recorders: Vec<R>) -> Result<Self, NoPanels> {
        let count = recorders.len();
        let panels = recorders.into_par_iter().enumerate();
        let mut made =
            try_par_collect_ok(panels.map(|(panel, recorder)| Panel::of(a, panel, recorder)), "panels")?;
        let words: u64 = made.iter().map(|panel| wide(panel.records.len())).sum();
        if words > u64::from(u32::MAX) {
            return Err(NoPanels::TooLarge(words));
        }
        let chunks: usize = made.iter().map(|panel| panel.work.len()).sum();
        let mut all = Self {
            rows: try_with_room(count * BUNDLES, "rows of panels")?,
            work: try_with_room(chunks, "chunks of panels")?,
            panel_chunks: try_with_room(count + 1, "chunks of panels")?,
            names: try_with_room(chunks * names_of::<R>(), "names")?,
            records: try_with_room(count, "records of panels")?,
            panel_words: try_with_room(count + 1, "records of panels")?,
            counts: PanelCounts {
                columns: made.iter().map(|panel| panel.counts.columns).sum(),
                vectors: made.iter().map(|panel| panel.counts.vectors).sum(),
            },
        };
        let mut first = 0;
        for panel in &mut made {
            all.panel_words.push(first);
            all.panel_chunks.push(narrow(all.work.len()));
            all.rows.extend_from_slice(&panel.rows);
            all.work.append(&mut panel.work);
            let begins = panel.names.chunks_exact_mut(names_of::<R>());
            begins.for_each(|names| names[R::SLOTS as usize] += narrow(first / UNIT));
            all.names.append(&mut panel.names);
            first += panel.records.len();
            all.records.push(std::mem::take(&mut panel.records));
        }
        all.panel_chunks.push(narrow(all.work.len()));
        all.panel_words.push(first);
        Ok(all)
    }

    /// What pieces are cut from, of panels whose names and records are elsewhere.
    pub(crate) fn elsewhere(
        rows: Vec<[u32; BUNDLE]>,
        work: Vec<ChunkWork>,
        panel_chunks: Vec<u32>,
        counts: PanelCounts,
    ) -> Self {
        Self { rows, work, panel_chunks, counts, ..Self::default() }
    }

    /// The number of panels.
    fn len(&self) -> usize {
        self.panel_chunks.len() - 1
    }

    /// Words of all records.
    pub(crate) fn record_words(&self) -> usize {
        self.panel_words.last().copied().unwrap_or_default()
    }
}

const fn names_of<R: Recorder>() -> usize {
    name_words(R::SLOTS) as usize
}

/// First entry of each panel, and the number of entries.
fn panel_entries(a: &Pattern) -> Result<Vec<usize>, OutOfMemory> {
    let entry = |panel: usize| index(a.row_offsets()[a.rows().min(panel * ROWS)]);
    try_collect((0..a.rows().div_ceil(ROWS) + 1).map(entry), "entries of panels")
}

/// One panel, its records from word 0 on.
struct Panel {
    rows: PanelRows,
    work: Vec<ChunkWork>,
    /// As those of all panels.
    names: Vec<u32>,
    records: Vec<u32>,
    counts: PanelCounts,
}

/// An entry of a panel: its column, then the number of its row in the panel.
type Key = u64;

/// Bits of a key that hold the row.
const ROW_BITS: u32 = PANEL_ROWS.ilog2();

fn column_of(key: Key) -> u32 {
    narrow(index(key >> ROW_BITS))
}

fn row_of(key: Key) -> usize {
    index(key % u64::from(PANEL_ROWS))
}

impl Panel {
    /// The panel of this number, with its rows in bundles.
    fn of<R: Recorder>(a: &Pattern, panel: usize, mut recorder: R) -> Result<Self, NoPanels> {
        let first_row = panel * ROWS;
        let rows = first_row..a.rows().min(first_row + ROWS);
        let Bundled { keys, columns, rows: numbered } = Bundled::of(a, rows.clone())?;
        let first_entry = a.row_offsets()[first_row];
        // Entry of the row that comes next: those of a row are in the order of their columns.
        let mut next =
            numbered.map(|row| index(a.row_offsets()[a.rows().min(first_row + row)] - first_entry));
        let order = Order::of(&keys, |number| match first_row + numbered[number] {
            row if rows.contains(&row) => narrow(row),
            _ => NO_ROW,
        });
        let chunks = columns.div_ceil(R::SLOTS as usize);
        let mut made = Self {
            rows: order.rows,
            work: try_with_room(chunks, "chunks of a panel")?,
            names: try_with_room(chunks * names_of::<R>(), "names of a panel")?,
            records: Vec::new(),
            counts: PanelCounts { columns: wide(columns), vectors: 0 },
        };
        let mut rest = &keys[..];
        while !rest.is_empty() {
            let (keys, behind) = rest.split_at(chunk_len(rest, R::SLOTS));
            let mut vectors = [0; BUNDLES];
            each_vector(keys, |bundle, _, _| vectors[order.position[bundle]] += 1);
            made.add(&mut recorder, Chunk { keys, order: &order, next: &mut next, vectors })?;
            rest = behind;
        }
        Ok(made)
    }

    fn add<R: Recorder>(&mut self, recorder: &mut R, mut chunk: Chunk<'_>) -> Result<(), NoPanels> {
        let start = self.records.len();
        let most_pairs = recorder.add(&mut chunk, &mut self.records)?;
        let words = self.records.len() - start;
        self.work.push(ChunkWork { entries: narrow(chunk.keys.len()), most_pairs });
        let first = self.names.len();
        self.names.extend(chunk.keys.chunk_by(same_column).map(|keys| column_of(keys[0])));
        self.names.resize(first + R::SLOTS as usize, NO_COLUMN);
        self.names.extend([narrow(start / UNIT), narrow(words / UNIT)]);
        self.names.resize(first + names_of::<R>(), 0);
        self.counts.vectors += u64::from(chunk.vectors.iter().sum::<u32>());
        Ok(())
    }
}

/// Appends so many words, which are 0, for a record.
fn append(records: &mut Vec<u32>, words: u32) -> Result<&mut [u32], NoPanels> {
    let start = records.len();
    let end = wide(start) + u64::from(words);
    if end > u64::from(u32::MAX) {
        return Err(NoPanels::TooLarge(end));
    }
    make_room(records, words as usize, "records")?;
    records.resize(index(end), 0);
    Ok(&mut records[start..])
}

fn same_column(a: &Key, b: &Key) -> bool {
    column_of(*a) == column_of(*b)
}

/// Entries of the first `slots` columns.
fn chunk_len(keys: &[Key], slots: u32) -> usize {
    keys.chunk_by(same_column).take(slots as usize).map(<[Key]>::len).sum()
}

/// Calls `visit(bundle, slot, entries)` for each vector of a chunk, those of a column one after the other.
fn each_vector(chunk: &[Key], mut visit: impl FnMut(usize, u32, &[Key])) {
    for (slot, column) in (0..).zip(chunk.chunk_by(same_column)) {
        for vector in column.chunk_by(|a, b| row_of(*a) / BUNDLE == row_of(*b) / BUNDLE) {
            visit(row_of(vector[0]) / BUNDLE, slot, vector);
        }
    }
}

/// The order in which warps have the bundles of a panel: each has one of those with more vectors and one of those with
/// fewer, so that all have about as many.
struct Order {
    rows: PanelRows,
    /// Where each bundle is.
    position: [usize; BUNDLES],
    /// The bundle at each place.
    bundle: [usize; BUNDLES],
}

impl Order {
    /// The order of these entries' bundles, whose rows `row` numbers.
    fn of(keys: &[Key], row: impl Fn(usize) -> u32) -> Self {
        let mut vectors = [0_usize; BUNDLES];
        each_vector(keys, |bundle, _, _| vectors[bundle] += 1);
        let mut bundles: [usize; BUNDLES] = std::array::from_fn(|bundle| bundle);
        bundles.sort_unstable_by_key(|&bundle| (std::cmp::Reverse(vectors[bundle]), bundle));
        let bundle: [usize; BUNDLES] = std::array::from_fn(|at| {
            let warp = at / WARP_BUNDLES as usize;
            bundles[if at.is_multiple_of(WARP_BUNDLES as usize) { warp } else { BUNDLES - 1 - warp }]
        });
        let mut position = [0; BUNDLES];
        bundle.iter().zip(0..).for_each(|(&bundle, at)| position[bundle] = at);
        let rows = bundle.map(|bundle| std::array::from_fn(|i| row(bundle * BUNDLE + i)));
        Self { rows, position, bundle }
    }
}

//! The device form of panels: their columns in chunks, and a record for each chunk. The kernel is
//! [`windrow_kernels::row_panels`].

mod bundles;
mod count;
pub(super) mod pieces;
#[cfg(test)]
mod tests;

use rayon::prelude::*;
use windrow_formats::memory::{
    make_room, try_collect, try_copy, try_par_collect_ok, try_with_room, try_zeroed,
};
use windrow_formats::{OutOfMemory, Pattern};
use windrow_kernels::row_panels::{
    BUNDLE_ROWS, HEAD_WORDS, NAME_WORDS, PANEL_ROWS, PANEL_WARPS, SLOTS, WARP_BUNDLES, bounds_word,
    record_words, values_at, vector_word,
};
use windrow_kernels::{NO_COLUMN, NO_ROW};

use crate::num::{index, narrow, wide};
use crate::plan::Bits;
use crate::predict::PanelCounts;

use bundles::Bundled;
pub(super) use count::panel_counts;

const ROWS: usize = PANEL_ROWS as usize;
const BUNDLE: usize = BUNDLE_ROWS as usize;
const BUNDLES: usize = ROWS / BUNDLE;
const WARPS: usize = PANEL_WARPS as usize;
const SLOTS_EACH: usize = SLOTS as usize;
const NAMES: usize = NAME_WORDS as usize;
/// Words in front of which a record may begin.
const UNIT: usize = 4;

/// Rows of `C` of each bundle of a panel, in the order in which warps have them.
type PanelRows = [[u32; BUNDLE]; BUNDLES];

/// A matrix in panels of successive rows, but for its values, which are 0 in the records.
#[derive(Debug)]
pub(super) struct Panels {
    /// Rows of the matrix, bundle by bundle.
    pub(super) rows: Vec<[u32; BUNDLE]>,
    /// What is to be done for each chunk.
    pub(super) work: Vec<ChunkWork>,
    /// First chunk of each panel, and the number of chunks.
    pub(super) panel_chunks: Vec<u32>,
    /// Of each chunk, `SLOTS` columns, and where its record begins and how long it is, in vectors of 16 bytes.
    pub(super) names: Vec<u32>,
    /// The records of each panel.
    records: Vec<Vec<u32>>,
    /// The word of its panel's records that holds the value of each entry.
    places: Vec<u32>,
    /// First entry of each panel, and the number of entries.
    panel_entries: Vec<usize>,
    /// First word of the records of each panel, and the number of words.
    panel_words: Vec<usize>,
    /// Distinct columns of each panel, summed, and what bundles have in them: vectors of one to four entries.
    pub(super) counts: PanelCounts,
}

/// What a chunk is to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkWork {
    /// Entries of all rows.
    pub(super) entries: u32,
    /// Pairs of vectors of the warp that has most of them.
    pub(super) most_pairs: u32,
}

/// Why there are no panels.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoPanels {
    /// Records of so many words, which numbers of 32 bits do not count.
    TooLarge(u64),
    OutOfMemory(OutOfMemory),
}

impl From<OutOfMemory> for NoPanels {
    fn from(error: OutOfMemory) -> Self {
        Self::OutOfMemory(error)
    }
}

impl Panels {
    /// The panels of a matrix.
    ///
    /// # Cost
    /// `nnz · log nnz` of a panel.
    pub(super) fn of(a: &Pattern) -> Result<Self, NoPanels> {
        let count = a.rows().div_ceil(ROWS);
        let offsets = a.row_offsets();
        let entry = |panel: usize| index(offsets[a.rows().min(panel * ROWS)]);
        let panel_entries = try_collect((0..count + 1).map(entry), "entries of panels")?;
        let mut places = try_zeroed::<u32>(a.nnz(), "value_places")?;
        let mut made = {
            let parts = split(&mut places, &panel_entries)?;
            try_par_collect_ok(
                parts.into_par_iter().enumerate().map(|(panel, places)| Panel::of(a, panel, places)),
                "panels",
            )?
        };
        let words: u64 = made.iter().map(|panel| wide(panel.records.len())).sum();
        if words > u64::from(u32::MAX) {
            return Err(NoPanels::TooLarge(words));
        }
        let chunks: usize = made.iter().map(|panel| panel.work.len()).sum();
        let mut all = Self {
            rows: try_with_room(count * BUNDLES, "rows of panels")?,
            work: try_with_room(chunks, "chunks of panels")?,
            panel_chunks: try_with_room(count + 1, "chunks of panels")?,
            names: try_with_room(chunks * NAMES, "names")?,
            records: try_with_room(count, "records of panels")?,
            places,
            panel_entries,
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
            panel.names.chunks_exact_mut(NAMES).for_each(|names| names[SLOTS_EACH] += narrow(first / UNIT));
            all.names.append(&mut panel.names);
            first += panel.records.len();
            all.records.push(std::mem::take(&mut panel.records));
        }
        all.panel_chunks.push(narrow(all.work.len()));
        all.panel_words.push(first);
        Ok(all)
    }

    /// What lays out new values: all but what is in device memory alone.
    pub(super) fn for_values(self) -> Self {
        let (rows, work, panel_chunks, names) = Default::default();
        Self { rows, work, panel_chunks, names, ..self }
    }

    /// The number of panels.
    pub(super) fn len(&self) -> usize {
        self.panel_chunks.len() - 1
    }

    /// Words of all records.
    pub(super) fn record_words(&self) -> usize {
        self.panel_words.last().copied().unwrap_or_default()
    }

    /// Bytes of what lays out new values.
    pub(super) fn host_bytes(&self) -> u64 {
        4 * wide(self.record_words() + self.places.len())
            + 8 * wide(self.panel_entries.len() + self.panel_words.len())
    }

    /// The word of all records that holds the value of each entry.
    pub(super) fn places(&self) -> Result<Vec<u32>, OutOfMemory> {
        let mut places = try_copy(&self.places, "value_places")?;
        let parts = split(&mut places, &self.panel_entries)?;
        parts.into_par_iter().zip(&self.panel_words).for_each(|(places, &first)| {
            places.iter_mut().for_each(|place| *place += narrow(first));
        });
        Ok(places)
    }

    /// The records with these values, in CSR order.
    pub(super) fn records_with(&self, values: &Bits) -> Result<Vec<u32>, OutOfMemory> {
        let mut records = try_zeroed(self.record_words(), "records")?;
        let parts = split(&mut records, &self.panel_words)?;
        parts.into_par_iter().zip(&self.records).enumerate().for_each(|(panel, (records, blank))| {
            records.copy_from_slice(blank);
            for entry in self.panel_entries[panel]..self.panel_entries[panel + 1] {
                records[self.places[entry] as usize] = values.word(entry);
            }
        });
        Ok(records)
    }
}

/// The parts of an array between these bounds, which ascend from 0.
fn split<'a, T>(mut array: &'a mut [T], bounds: &[usize]) -> Result<Vec<&'a mut [T]>, OutOfMemory> {
    let mut parts = try_with_room(bounds.len(), "parts of panels")?;
    for ends in bounds.windows(2) {
        let (mine, rest) = array.split_at_mut(ends[1] - ends[0]);
        parts.push(mine);
        array = rest;
    }
    Ok(parts)
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
    /// Panel number `panel`, of whose entries `places` gets the words of the values.
    fn of(a: &Pattern, panel: usize, places: &mut [u32]) -> Result<Self, NoPanels> {
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
        let chunks = columns.div_ceil(SLOTS_EACH);
        let mut made = Self {
            rows: order.rows,
            work: try_with_room(chunks, "chunks of a panel")?,
            names: try_with_room(chunks * NAMES, "names of a panel")?,
            records: Vec::new(),
            counts: PanelCounts { columns: wide(columns), vectors: 0 },
        };
        let mut rest = &keys[..];
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(chunk_len(rest));
            made.add_chunk(chunk, &order, &mut next, places)?;
            rest = behind;
        }
        Ok(made)
    }

    /// Adds the record of a chunk.
    fn add_chunk(
        &mut self,
        chunk: &[Key],
        order: &Order,
        next: &mut [usize; ROWS],
        places: &mut [u32],
    ) -> Result<(), NoPanels> {
        let mut vectors = [0_u32; BUNDLES];
        each_vector(chunk, |bundle, _, _| vectors[order.position[bundle]] += 1);
        let mut pairs = 0;
        let firsts = vectors.map(|vectors| {
            let first = pairs;
            pairs += vectors.div_ceil(2).max(1);
            first
        });
        let bound = |position: usize| firsts.get(position).copied().unwrap_or(pairs);
        let start = self.records.len();
        let words = record_words(pairs) as usize;
        if start + words > u32::MAX as usize {
            return Err(NoPanels::TooLarge(wide(start + words)));
        }
        make_room(&mut self.records, words, "records")?;
        self.records.resize(start + words, 0);
        let record = &mut self.records[start..];
        let mut most_pairs = 0;
        for (warp, word) in record[..WARPS].iter_mut().enumerate() {
            let first = WARP_BUNDLES as usize * warp;
            let bounds = [bound(first), bound(first + 1), bound(first + 2)];
            *word = bounds_word(bounds);
            most_pairs = most_pairs.max(bounds[2] - bounds[0]);
        }
        let values = values_at(pairs) as usize;
        let mut at = firsts.map(|first| 2 * first as usize);
        each_vector(chunk, |bundle, slot, keys| {
            let vector = &mut at[order.position[bundle]];
            let mut mask = 0;
            for row in keys.iter().map(|&key| row_of(key)) {
                mask |= 1 << (row % BUNDLE);
                places[next[row]] = narrow(start + values + BUNDLE * *vector + row % BUNDLE);
                next[row] += 1;
            }
            record[HEAD_WORDS as usize + *vector] = vector_word(slot, mask);
            *vector += 1;
        });
        self.work.push(ChunkWork { entries: narrow(chunk.len()), most_pairs });
        let first = self.names.len();
        self.names.extend(chunk.chunk_by(same_column).map(|keys| column_of(keys[0])));
        self.names.resize(first + SLOTS_EACH, NO_COLUMN);
        self.names.extend([narrow(start / UNIT), narrow(words / UNIT), 0, 0]);
        self.counts.vectors += u64::from(vectors.iter().sum::<u32>());
        Ok(())
    }
}

fn same_column(a: &Key, b: &Key) -> bool {
    column_of(*a) == column_of(*b)
}

/// Entries of the first `SLOTS` columns.
fn chunk_len(keys: &[Key]) -> usize {
    keys.chunk_by(same_column).take(SLOTS_EACH).map(<[Key]>::len).sum()
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
}

impl Order {
    /// The order of these entries' bundles, whose rows `row` numbers.
    fn of(keys: &[Key], row: impl Fn(usize) -> u32) -> Self {
        let mut vectors = [0_usize; BUNDLES];
        each_vector(keys, |bundle, _, _| vectors[bundle] += 1);
        let mut bundles: [usize; BUNDLES] = std::array::from_fn(|bundle| bundle);
        bundles.sort_unstable_by_key(|&bundle| (std::cmp::Reverse(vectors[bundle]), bundle));
        let (mut position, mut rows) = ([0; BUNDLES], [[NO_ROW; BUNDLE]; BUNDLES]);
        for warp in 0..WARPS {
            for (at, bundle) in [(2 * warp, bundles[warp]), (2 * warp + 1, bundles[BUNDLES - 1 - warp])] {
                position[bundle] = at;
                rows[at] = std::array::from_fn(|i| row(bundle * BUNDLE + i));
            }
        }
        Self { rows, position }
    }
}

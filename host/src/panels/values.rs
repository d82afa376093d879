//! Panels whose records hold values: for products with a dense matrix, by [`windrow_kernels::row_panels`].

use rayon::prelude::*;
use windrow_formats::memory::{try_copy, try_with_room, try_zeroed};
use windrow_formats::{OutOfMemory, Pattern};
use windrow_kernels::panels::WARP_BUNDLES;
use windrow_kernels::row_panels::{HEAD_WORDS, SLOTS, bounds_word, record_words, values_at, vector_word};

use super::{BUNDLE, Chunk, NoPanels, Panels, Recorder, WARPS, append, each_vector, panel_entries, row_of};
use crate::num::{narrow, wide};
use crate::plan::Bits;

/// A matrix in panels of successive rows, but for its values, which are 0 in the records.
#[derive(Debug)]
pub(crate) struct ValuePanels {
    pub(crate) panels: Panels,
    /// The word of its panel's records that holds the value of each entry.
    places: Vec<u32>,
    /// First entry of each panel, and the number of entries.
    panel_entries: Vec<usize>,
}

impl ValuePanels {
    /// The panels of a matrix.
    ///
    /// # Cost
    /// `nnz · log nnz` of a panel.
    pub(crate) fn of(a: &Pattern) -> Result<Self, NoPanels> {
        let panel_entries = panel_entries(a)?;
        let mut places = try_zeroed::<u32>(a.nnz(), "value_places")?;
        let parts = split(&mut places, &panel_entries)?;
        let panels = Panels::of(a, parts.into_iter().map(|places| Places { places }).collect())?;
        Ok(Self { panels, places, panel_entries })
    }

    /// What lays out new values: all but what is in device memory alone.
    pub(crate) fn for_values(self) -> Self {
        let Self { panels: Panels { records, panel_words, counts, .. }, places, panel_entries } = self;
        Self { panels: Panels { records, panel_words, counts, ..Panels::default() }, places, panel_entries }
    }

    /// Words of all records.
    pub(crate) fn record_words(&self) -> usize {
        self.panels.record_words()
    }

    /// Bytes of what lays out new values.
    pub(crate) fn host_bytes(&self) -> u64 {
        4 * wide(self.record_words() + self.places.len())
            + 8 * wide(self.panel_entries.len() + self.panels.panel_words.len())
    }

    /// The word of all records that holds the value of each entry.
    pub(crate) fn places(&self) -> Result<Vec<u32>, OutOfMemory> {
        let mut places = try_copy(&self.places, "value_places")?;
        let parts = split(&mut places, &self.panel_entries)?;
        parts.into_par_iter().zip(&self.panels.panel_words).for_each(|(places, &first)| {
            places.iter_mut().for_each(|place| *place += narrow(first));
        });
        Ok(places)
    }

    /// The records with these values, in CSR order.
    pub(crate) fn records_with(&self, values: &Bits) -> Result<Vec<u32>, OutOfMemory> {
        let mut records = try_zeroed(self.record_words(), "records")?;
        let parts = split(&mut records, &self.panels.panel_words)?;
        parts.into_par_iter().zip(&self.panels.records).enumerate().for_each(|(panel, (records, blank))| {
            records.copy_from_slice(blank);
            for entry in self.panel_entries[panel]..self.panel_entries[panel + 1] {
                records[self.places[entry] as usize] = values.word(entry);
            }
        });
        Ok(records)
    }
}

/// Writes records without values, and where these belong.
struct Places<'a> {
    /// Of each entry of the panel, the word of its value.
    places: &'a mut [u32],
}

impl Recorder for Places<'_> {
    const SLOTS: u32 = SLOTS;

    fn add(&mut self, chunk: &mut Chunk<'_>, records: &mut Vec<u32>) -> Result<u32, NoPanels> {
        let mut pairs = 0;
        let firsts = chunk.vectors.map(|vectors| {
            let first = pairs;
            pairs += vectors.div_ceil(2).max(1);
            first
        });
        let bound = |position: usize| firsts.get(position).copied().unwrap_or(pairs);
        let start = records.len();
        let record = append(records, record_words(pairs))?;
        let mut most_pairs = 0;
        for (warp, word) in record[..WARPS].iter_mut().enumerate() {
            let first = WARP_BUNDLES as usize * warp;
            let bounds = [bound(first), bound(first + 1), bound(first + 2)];
            *word = bounds_word(bounds);
            most_pairs = most_pairs.max(bounds[2] - bounds[0]);
        }
        let values = values_at(pairs) as usize;
        let mut at = firsts.map(|first| 2 * first as usize);
        each_vector(chunk.keys, |bundle, slot, keys| {
            let vector = &mut at[chunk.order.position[bundle]];
            let mut mask = 0;
            for row in keys.iter().map(|&key| row_of(key)) {
                mask |= 1 << (row % BUNDLE);
                self.places[chunk.next[row]] = narrow(start + values + BUNDLE * *vector + row % BUNDLE);
                chunk.next[row] += 1;
            }
            record[HEAD_WORDS as usize + *vector] = vector_word(slot, mask);
            *vector += 1;
        });
        Ok(most_pairs)
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

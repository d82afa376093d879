//! Panels whose records say where results go: for sampled products, by [`windrow_kernels::sddmm::SddmmPanels`].

use windrow_formats::memory::try_with_room;
use windrow_formats::{OutOfMemory, Pattern};
use windrow_kernels::panels::{BUNDLE_ROWS, WARP_BUNDLES};
use windrow_kernels::sddmm::panels::{
    BATCH_VECTORS, BATCH_WORDS, HEAD_WORDS, SLOTS, batches_word, record_words,
};

use super::{
    BUNDLE, Chunk, NoPanels, Panels, ROWS, Recorder, WARPS, append, each_vector, panel_entries, row_of,
};
use crate::num::narrow;

/// Vectors of half a batch.
const HALF: u32 = BATCH_VECTORS / 2;

/// The panels of a pattern, all records of which are [`records`].
///
/// # Cost
/// `nnz · log nnz` of a panel.
pub(crate) fn position_panels(a: &Pattern) -> Result<Panels, NoPanels> {
    let firsts = panel_entries(a)?;
    let panels = firsts.len() - 1;
    let mut recorders = try_with_room(panels, "panels")?;
    recorders.extend(firsts[..panels].iter().map(|&first| Positions { first }));
    Panels::of(a, recorders)
}

/// All records, one panel's after the other's.
pub(crate) fn records(panels: &Panels) -> Result<Vec<u32>, OutOfMemory> {
    let mut records = try_with_room(panels.record_words(), "records")?;
    panels.records.iter().for_each(|of_panel| records.extend_from_slice(of_panel));
    Ok(records)
}

/// Writes records with the positions of a panel's entries.
struct Positions {
    /// That of the panel's first entry.
    first: usize,
}

impl Recorder for Positions {
    const SLOTS: u32 = SLOTS;

    fn add(&mut self, chunk: &mut Chunk<'_>, records: &mut Vec<u32>) -> Result<u32, NoPanels> {
        let mut batches = 0;
        let firsts = chunk.vectors.map(|vectors| {
            let first = batches;
            batches += vectors.div_ceil(BATCH_VECTORS);
            first
        });
        let record = append(records, record_words(batches))?;
        let mut most_halves = 0;
        for (warp, word) in record[..WARPS].iter_mut().enumerate() {
            let first = WARP_BUNDLES as usize * warp;
            let halves = [0, 1].map(|bundle| chunk.vectors[first + bundle].div_ceil(HALF));
            *word = batches_word(firsts[first], halves);
            most_halves = most_halves.max(halves[0] + halves[1]);
        }
        let mut at = firsts.map(|first| BATCH_VECTORS * first);
        for (row, word) in record[WARPS..][..ROWS].iter_mut().enumerate() {
            let bundle = chunk.order.bundle[row / BUNDLE];
            *word = narrow(self.first + chunk.next[bundle * BUNDLE + row % BUNDLE]);
        }
        each_vector(chunk.keys, |bundle, slot, keys| {
            let mut mask = 0;
            for row in keys.iter().map(|&key| row_of(key)) {
                mask |= 1 << (row % BUNDLE);
                chunk.next[row] += 1;
            }
            let vector = &mut at[chunk.order.position[bundle]];
            let (batch, place) = (*vector / BATCH_VECTORS, *vector % BATCH_VECTORS);
            let words = &mut record[(HEAD_WORDS + BATCH_WORDS * batch) as usize..];
            words[(place / 4) as usize] |= slot << (8 * (place % 4));
            words[2] |= mask << (BUNDLE_ROWS * place);
            *vector += 1;
        });
        Ok(most_halves * HALF / 2)
    }
}

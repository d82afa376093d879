//! What the panels of a matrix will have, without making them: for predicted times.

use rayon::prelude::*;
use windrow_formats::{OutOfMemory, Pattern};

use super::bundles::Bundled;
use super::{ROWS, each_vector};
use crate::num::{real, wide};
use crate::predict::PanelCounts;

/// Entries of the panels that are looked at, about.
const ENOUGH_ENTRIES: usize = 100_000;
/// Panels that are looked at, at least and at most.
const LEAST_PANELS: usize = 16;
const MOST_PANELS: usize = 256;

/// Mean entries of a row from which on it is looked for what rows have in common: shorter ones seldom share what pays
/// for panels.
const LEAST_MEAN: u64 = 6;

/// Whether rows have entries enough for panels to be weighed.
pub(crate) fn may_share(rows: u64, nnz: u64) -> bool {
    nnz / LEAST_MEAN >= rows
}

/// The counts of all panels, or of a sample for all, every so many of them; none if the sample has no entries.
pub(crate) fn panel_counts(a: &Pattern) -> Result<Option<PanelCounts>, OutOfMemory> {
    let panels = a.rows().div_ceil(ROWS);
    let mean = a.nnz() / panels.max(1);
    let sample = (ENOUGH_ENTRIES / mean.max(1)).clamp(LEAST_PANELS, MOST_PANELS);
    let step = panels.div_ceil(sample).max(1);
    let seen = (0..panels.div_ceil(step)).into_par_iter().map(|sample| of_panel(a, sample * step));
    let sum = |a: [u64; 3], b: [u64; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
    let [entries, columns, vectors] = seen.try_reduce(|| [0; 3], |a, b| Ok(sum(a, b)))?;
    if entries == 0 {
        return Ok(None);
    }
    // By entries, which are known of all: panels of a sample may be longer or shorter than others.
    let each = real(wide(a.nnz())) / real(entries);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the entries")]
    let of_all = |of_seen: u64| (real(of_seen) * each) as u64;
    Ok(Some(PanelCounts { columns: of_all(columns), vectors: of_all(vectors) }))
}

/// Entries, distinct columns and vectors of a panel.
fn of_panel(a: &Pattern, panel: usize) -> Result<[u64; 3], OutOfMemory> {
    let rows = panel * ROWS..a.rows().min((panel + 1) * ROWS);
    let offsets = a.row_offsets();
    let entries = offsets[rows.end] - offsets[rows.start];
    let Bundled { keys, columns, .. } = Bundled::of(a, rows)?;
    let mut vectors = 0;
    each_vector(&keys, |_, _, _| vectors += 1);
    Ok([entries, wide(columns), vectors])
}

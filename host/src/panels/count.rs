//! What the panels of a matrix will have, without making them: for predicted times.

use std::ops::Range;

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

/// The panels that are looked at: all, or every so many of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    panels: usize,
    step: usize,
    nnz: usize,
}

impl Sample {
    /// Those of a matrix of so many rows and entries.
    pub(crate) fn of(rows: usize, nnz: usize) -> Self {
        let panels = rows.div_ceil(ROWS);
        let mean = nnz / panels.max(1);
        let wanted = (ENOUGH_ENTRIES / mean.max(1)).clamp(LEAST_PANELS, MOST_PANELS);
        Self { panels, step: panels.div_ceil(wanted).max(1), nnz }
    }

    /// The numbers of these panels.
    pub(crate) fn panels(self) -> std::iter::StepBy<Range<usize>> {
        (0..self.panels).step_by(self.step)
    }

    /// How many entries they have if they are like the others.
    pub(crate) fn about_entries(self) -> usize {
        self.nnz / self.step
    }

    /// The counts of all panels, where those that are looked at have so many entries, distinct columns and vectors;
    /// none where they have no entries.
    pub(crate) fn of_all(self, [entries, columns, vectors]: [u64; 3]) -> Option<PanelCounts> {
        if entries == 0 {
            return None;
        }
        // By entries, which are known of all: panels of a sample may be longer or shorter than others.
        let each = real(wide(self.nnz)) / real(entries);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the entries")]
        let of_all = |of_seen: u64| (real(of_seen) * each) as u64;
        Some(PanelCounts { columns: of_all(columns), vectors: of_all(vectors) })
    }
}

/// The counts of all panels, or of a sample for all; none if the sample has no entries.
pub(crate) fn panel_counts(a: &Pattern) -> Result<Option<PanelCounts>, OutOfMemory> {
    let sample = Sample::of(a.rows(), a.nnz());
    let panels: Vec<usize> = sample.panels().collect(); // a few hundred
    let sum = |a: [u64; 3], b: [u64; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
    let seen = panels.into_par_iter().map(|panel| of_panel(a, panel));
    Ok(sample.of_all(seen.try_reduce(|| [0; 3], |a, b| Ok(sum(a, b)))?))
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

//! Algorithm 1: windows are filled row by row, and rows leave them.

use std::ops::Range;

use rayon::prelude::*;
use windrow_formats::memory::{try_copy, try_par_collect, try_par_flat_map, try_with_room};
use windrow_formats::{Csr, OutOfMemory, WINDOW_ROWS};

use super::columns::ColumnCounts;
use super::vectors::Division;
use super::{PartitionRule, Thresholds};

/// Rows decided by one task. Fixed, because windows start afresh in every chunk.
const CHUNK_ROWS: usize = 1 << 13;
/// What the lists here are, where there is no memory for one.
const TILE_ROWS: &str = "rows in tiles";

/// The rows of `rows`, none of them empty, that `rule` leaves in tiles, in the same order.
pub(super) fn tile_rows<V: Sync>(
    csr: &Csr<V>,
    rows: &[u32],
    rule: PartitionRule,
) -> Result<Vec<u32>, OutOfMemory> {
    let which = |stays: &(dyn Fn(u32) -> bool + Sync)| {
        try_par_flat_map(rows.len(), 0, |at| Some(rows[at]).filter(|&row| stays(row)), TILE_ROWS)
    };
    let condition = match rule {
        PartitionRule::AllTile => return try_copy(rows, TILE_ROWS),
        PartitionRule::AllResidual => return Ok(Vec::new()),
        PartitionRule::ShortRows { max_entries } => {
            return which(&|row| csr.row_len(row as usize) > max_entries as usize);
        }
        PartitionRule::ColumnVectors { threshold } => {
            let division = Division::of(csr, rows, threshold)?;
            return which(&|row| division.is_in_tiles(csr, row));
        }
        PartitionRule::Overlap { thresholds } => Condition::Overlap(thresholds),
        PartitionRule::Printed { max_entries, max_increment } => {
            Condition::Printed { max_entries, max_increment }
        }
    };
    tile_rows_in_chunks(csr, rows, condition, CHUNK_ROWS)
}

/// When a row of a window leaves it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Condition {
    Overlap(Thresholds),
    Printed { max_entries: u32, max_increment: u32 },
}

impl Condition {
    /// Rows longer than this stay whatever they share.
    fn max_entries(self) -> usize {
        match self {
            Self::Overlap(Thresholds { max_entries, .. }) | Self::Printed { max_entries, .. } => {
                max_entries as usize
            }
        }
    }

    /// Whether a row of `len ≤ max_entries` entries leaves that alone brings `increment` columns.
    fn leaves(self, len: usize, increment: usize) -> bool {
        match self {
            // Where nothing but this row holds a column, its absence saves that column.
            Self::Overlap(Thresholds { max_shared_percent, .. }) => {
                let shared = 100 * (len - increment) as u64;
                increment > 0 && shared <= u64::from(max_shared_percent) * len as u64
            }
            Self::Printed { max_increment, .. } => increment < max_increment as usize,
        }
    }
}

/// [`tile_rows`] with windows that start afresh every `chunk_rows` rows.
pub(super) fn tile_rows_in_chunks<V: Sync>(
    csr: &Csr<V>,
    rows: &[u32],
    condition: Condition,
    chunk_rows: usize,
) -> Result<Vec<u32>, OutOfMemory> {
    let chunk_of = |chunk: usize| {
        let begin = chunk * chunk_rows;
        tile_rows_of_chunk(csr, rows, begin..rows.len().min(begin + chunk_rows), condition)
    };
    let chunks = (0..rows.len().div_ceil(chunk_rows)).into_par_iter().map(chunk_of);
    let chunks = try_par_collect(chunks, TILE_ROWS)?;
    let len = |chunk: &Result<Vec<u32>, OutOfMemory>| chunk.as_ref().map_or(0, Vec::len);
    let mut all = try_with_room(chunks.iter().map(len).sum(), TILE_ROWS)?;
    for chunk in chunks {
        all.extend_from_slice(&chunk?);
    }
    Ok(all)
}

/// The rows at positions `own` of `rows` that stay.
///
/// The last window is filled up from the rows after the chunk: they share it, but are decided elsewhere.
fn tile_rows_of_chunk<V>(
    csr: &Csr<V>,
    rows: &[u32],
    own: Range<usize>,
    condition: Condition,
) -> Result<Vec<u32>, OutOfMemory> {
    let mut staying = try_with_room(own.len(), TILE_ROWS)?;
    let mut window =
        Window { csr, slots: Vec::new(), counts: ColumnCounts::default(), counted: 0, settled: 0 };
    let mut next = own.start;
    while next < own.end || window.slots.iter().any(|slot| slot.own) {
        while window.slots.len() < WINDOW_ROWS && next < rows.len() {
            window.slots.push(Slot { row: rows[next], own: next < own.end, increment: 0 });
            next += 1;
        }
        if !window.evict(condition)? {
            staying.extend(window.slots.iter().filter(|slot| slot.own).map(|slot| slot.row));
            window.clear();
        }
    }
    Ok(staying)
}

/// A row in a window.
#[derive(Clone, Copy)]
struct Slot {
    row: u32,
    /// Whether it is decided in this chunk.
    own: bool,
    /// Columns that only it brings, once they are counted: kept up as rows come and go, so that a row which stays
    /// is not read again for each one that leaves.
    increment: usize,
}

/// The rows that would share a window if no more left.
struct Window<'a, V> {
    csr: &'a Csr<V>,
    /// The rows of the window, at most 8.
    slots: Vec<Slot>,
    /// Of the first `counted` slots.
    counts: ColumnCounts,
    counted: usize,
    /// The first slots, which stay whatever comes into the window.
    settled: usize,
}

impl<V> Window<'_, V> {
    /// Removes the rows of this chunk that `condition` sends away, all judged in the same window; whether there
    /// were any.
    fn evict(&mut self, condition: Condition) -> Result<bool, OutOfMemory> {
        let judged = match condition {
            Condition::Overlap(_) => self.settled..self.slots.len(),
            Condition::Printed { .. } => 0..self.slots.len().min(1),
        };
        let csr = self.csr;
        let len = |slot: &Slot| csr.row_len(slot.row as usize);
        let short = |slot: &Slot| slot.own && len(slot) <= condition.max_entries();
        if !self.slots[judged.clone()].iter().any(short) {
            return Ok(false);
        }
        self.count()?;
        let mut leaving = [false; WINDOW_ROWS];
        let mut shared = false;
        for at in judged.clone() {
            let slot = &self.slots[at];
            if short(slot) {
                leaving[at] = condition.leaves(len(slot), slot.increment);
                shared |= leaving[at] && slot.increment < len(slot);
            }
        }
        for at in judged.rev().filter(|&at| leaving[at]) {
            let Slot { row, .. } = self.slots.remove(at);
            let slots = &mut self.slots;
            self.counts.remove(row, csr.row(row as usize).0, |other| {
                slots.iter_mut().filter(|slot| slot.row == other).for_each(|slot| slot.increment += 1);
            });
            self.counted -= 1;
        }
        // Rows that come add to what the others share, so who stays now stays, unless it shared with a row
        // that leaves.
        self.settled = if shared { 0 } else { self.slots.len() };
        Ok(leaving.contains(&true))
    }

    /// Closes the window and opens the next.
    fn clear(&mut self) {
        self.slots.clear();
        (self.counted, self.settled) = (0, 0);
    }

    /// Counts the rows that are not counted yet.
    ///
    /// Columns of rows that left keep their places in the table. When these fill it, it is made afresh, twice
    /// as large as the window needs: at least as many columns have then left as are counted again.
    fn count(&mut self) -> Result<(), OutOfMemory> {
        let entries =
            |slots: &[Slot]| slots.iter().map(|slot| self.csr.row_len(slot.row as usize)).sum::<usize>();
        let (all, uncounted) = (entries(&self.slots), entries(&self.slots[self.counted..]));
        if self.counted == 0 || !self.counts.has_room(uncounted) {
            self.counts.reset(2 * all)?;
            self.counted = 0;
        }
        for at in self.counted..self.slots.len() {
            let row = self.slots[at].row;
            let counted = &mut self.slots[..at];
            let increment = self.counts.add(row, self.csr.row(row as usize).0, |other| {
                counted.iter_mut().filter(|slot| slot.row == other).for_each(|slot| slot.increment -= 1);
            });
            self.slots[at].increment = increment;
        }
        self.counted = self.slots.len();
        Ok(())
    }
}

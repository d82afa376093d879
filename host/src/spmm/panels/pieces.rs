//! Panels cut into pieces, so that blocks have about as much to do.

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_collect, try_with_room};
use windrow_kernels::row_panels::PANEL_ROWS;
use windrow_kernels::{NO_ROW, NO_SLOT};

use super::{BUNDLES, ChunkWork, Panels, ROWS};
use crate::num::{index, narrow, wide};

/// What a chunk costs a block beside its pairs of vectors, in as many of them: a barrier, and the wait for what it
/// brings.
const CHUNK_PAIRS: u64 = 4;

/// How panels are cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::spmm) enum Cut {
    /// For so many blocks at a time, each of which may have as much as all of them in the mean, and half as much again.
    Blocks(u64),
    /// Into pieces of at most so many entries, or of one chunk.
    Entries(u32),
}

/// Panels as pieces: `[panel, begin, end, slot]`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::spmm) struct Pieces {
    /// Those of panels that are cut, then whole panels.
    pub(in crate::spmm) pieces: Vec<[u32; 4]>,
    /// `[row, first_slot, count, stride]` of each row of a panel that is cut.
    pub(in crate::spmm) split_rows: Vec<[u32; 4]>,
    /// Rows of the workspace.
    pub(in crate::spmm) slots: u64,
    /// Panels that are cut.
    pub(in crate::spmm) split: u64,
}

impl Pieces {
    /// The pieces of panels. With `share`, all pieces of a panel have the same slots.
    pub(in crate::spmm) fn of(panels: &Panels, cut: Cut, share: bool) -> Result<Self, OutOfMemory> {
        let cost = |work: &ChunkWork| match cut {
            Cut::Blocks(_) => CHUNK_PAIRS + u64::from(work.most_pairs),
            Cut::Entries(_) => u64::from(work.entries),
        };
        let chunks_of =
            |panel: usize| panels.panel_chunks[panel] as usize..panels.panel_chunks[panel + 1] as usize;
        let costs =
            (0..panels.len()).map(|panel| panels.work[chunks_of(panel)].iter().map(cost).sum::<u64>());
        let costs = try_collect(costs, "costs of panels")?;
        let (whole, piece) = match cut {
            Cut::Blocks(blocks) => {
                let share = (costs.iter().sum::<u64>() / blocks.max(1)).max(1);
                (share + share / 2, share)
            }
            Cut::Entries(most) => (most.max(1).into(), most.max(1).into()),
        };
        let pieces_of = |panel: usize| match costs[panel] {
            cost if cost > whole => cost.div_ceil(piece).min(wide(chunks_of(panel).len())),
            _ => 1,
        };
        let counts = try_collect((0..panels.len()).map(pieces_of), "pieces")?;
        let total = index(counts.iter().sum());
        let mut made = Self { pieces: try_with_room(total, "pieces")?, ..Self::default() };
        let split = counts.iter().filter(|&&count| count > 1);
        made.split_rows = try_with_room(split.count() * ROWS, "split_rows")?;
        for (panel, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 1) {
            made.cut(panels, panel, count, share);
        }
        for panel in (0..panels.len()).filter(|&panel| counts[panel] == 1) {
            let chunks = chunks_of(panel);
            made.pieces.push([narrow(panel), narrow(chunks.start), narrow(chunks.end), NO_SLOT]);
        }
        Ok(made)
    }

    /// Cuts a panel into so many pieces of about as many chunks.
    fn cut(&mut self, panels: &Panels, panel: usize, count: u64, share: bool) {
        let (first, end) = (panels.panel_chunks[panel], panels.panel_chunks[panel + 1]);
        let chunks = u64::from(end - first);
        let bound = |piece: u64| first + narrow(index(chunks * piece / count));
        let slot =
            |piece: u64| narrow(index(self.slots + if share { 0 } else { piece * u64::from(PANEL_ROWS) }));
        self.pieces
            .extend((0..count).map(|piece| [narrow(panel), bound(piece), bound(piece + 1), slot(piece)]));
        let first_slot = slot(0);
        let rows = panels.rows[panel * BUNDLES..][..BUNDLES].iter().flatten().zip(first_slot..);
        let listed = rows.filter(|(row, _)| **row != NO_ROW);
        let sums = if share { 1 } else { narrow(index(count)) };
        self.split_rows.extend(listed.map(|(&row, slot)| [row, slot, sums, PANEL_ROWS]));
        self.slots += if share { 1 } else { count } * u64::from(PANEL_ROWS);
        self.split += 1;
    }
}

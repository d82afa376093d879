//! Panels cut into pieces, so that blocks have about as much to do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use windrow_formats::OutOfMemory;
use windrow_formats::memory::{try_collect, try_with_room};
use windrow_kernels::panels::PANEL_ROWS;
use windrow_kernels::{NO_ROW, NO_SLOT};

use super::{BUNDLES, ChunkWork, Panels, ROWS};
use crate::num::{index, narrow, wide};

/// What a chunk costs a block beside its pairs of vectors, in as many of them: a barrier, and the wait for what it
/// brings.
const CHUNK_PAIRS: u64 = 4;
/// What a piece costs beside its chunks, likewise: a block that starts and writes its rows of the result.
const PIECE_PAIRS: u64 = 8;
/// The same of a sampled product: a block that starts and reads its rows of the dense operand.
const SAMPLED_PIECE_PAIRS: u64 = 24;
/// What a piece of a cut panel costs where its sums are kept, to be added up.
const SUM_PAIRS: u64 = 48;
/// What the launch costs that adds them up.
const ADD_UP_PAIRS: u64 = 20;

/// Panels for each place from which on pieces of other sizes are not looked for.
const MANY: u64 = 8;

/// Blocks that a multiprocessor has room for, of kernels for up to 128 columns, by their registers; of wider ones, one
/// fewer.
const BLOCKS_PER_MULTIPROCESSOR: u64 = 3;

/// How panels are cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cut {
    /// So that these places are done soonest.
    Places(Places),
    /// Into pieces of at most so many entries, or of one chunk.
    Entries(u32),
}

/// What works on pieces, each place on the next when it has done one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Places {
    /// How many there are.
    pub(crate) count: u64,
    /// How often they have all pieces: for one slice of the width after the other.
    pub(crate) slices: u64,
}

impl Places {
    /// The blocks that so many multiprocessors have room for, of a kernel for so many columns at a time.
    pub(crate) fn of(multiprocessors: u32, columns: u32, slices: u64) -> Self {
        let blocks = BLOCKS_PER_MULTIPROCESSOR - u64::from(columns > 128);
        Self { count: blocks * u64::from(multiprocessors.max(1)), slices }
    }
}

/// Panels as pieces: `[panel, begin, end, slot]`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// Those of panels that are cut, then whole panels.
    pub(crate) pieces: Vec<[u32; 4]>,
    /// `[row, first_slot, count, stride]` of each row of a panel that is cut.
    pub(crate) split_rows: Vec<[u32; 4]>,
    /// Rows of the workspace.
    pub(crate) slots: u64,
    /// Panels that are cut.
    pub(crate) split: u64,
}

/// From which cost on a panel is cut, and about what a piece may cost.
fn around(piece: u64) -> [u64; 2] {
    let piece = piece.max(1);
    [piece + piece / 2, piece]
}

/// Costs of pieces to choose among, for so many places: one piece for each, or a few, and somewhat dearer ones, for the
/// last piece of each panel is in part too many.
fn piece_costs(sum: u64, places: u64) -> impl Iterator<Item = u64> {
    let share = move |rounds: u64| sum / (rounds * places);
    [1, 2, 3, 4, 6].into_iter().map(share).flat_map(|share| [share, share + share / 8])
}

/// When the last of the pieces is done, and their sums are added up, if they are; or that it is not before `limit`.
fn done_at(
    (costs, counts): (&[u64], &[u64]),
    places: Places,
    sums: bool,
    limit: u64,
) -> Result<u64, OutOfMemory> {
    let added_up = if sums && counts.iter().any(|&count| count > 1) { ADD_UP_PAIRS } else { 0 };
    let mut busy = BinaryHeap::from(try_with_room(index(places.count), "places of pieces")?);
    let mut last = 0;
    // Those of panels that are cut come first.
    for is_cut in (0..places.slices).flat_map(|_| [true, false]) {
        let beside = match (sums, is_cut) {
            (false, _) => SAMPLED_PIECE_PAIRS,
            (true, false) => PIECE_PAIRS,
            (true, true) => PIECE_PAIRS + SUM_PAIRS,
        };
        for (&cost, &count) in costs.iter().zip(counts).filter(|(_, count)| (**count > 1) == is_cut) {
            for _ in 0..count {
                let free = match wide(busy.len()) < places.count {
                    true => 0,
                    false => busy.pop().map_or(0, |Reverse(free)| free),
                };
                let done = free + beside + cost / count;
                busy.push(Reverse(done));
                last = last.max(done);
            }
            if last + added_up >= limit {
                return Ok(limit);
            }
        }
    }
    Ok(last + added_up)
}

/// How many pieces each panel is cut into, whose sums are kept if so.
fn piece_counts(panels: &Panels, cut: Cut, sums: bool) -> Result<Vec<u64>, OutOfMemory> {
    let costs = (0..panels.len()).map(|panel| {
        let [first, end] = chunks_of(panels, panel);
        panels.work[first as usize..end as usize].iter().map(|work| cut.cost(work)).sum::<u64>()
    });
    let costs = try_collect(costs, "costs of panels")?;
    let cut_to = |[whole, piece]: [u64; 2]| {
        let pieces = costs.iter().enumerate().map(|(panel, &cost)| {
            let [first, end] = chunks_of(panels, panel);
            if cost > whole { cost.div_ceil(piece).min(u64::from(end - first)) } else { 1 }
        });
        try_collect(pieces, "pieces")
    };
    let places = match cut {
        Cut::Entries(most) => return cut_to([u64::from(most.max(1)); 2]),
        Cut::Places(places) => places,
    };
    let (count, sum) = (places.count.max(1), places.slices * costs.iter().sum::<u64>());
    if places.slices * wide(panels.len()) > MANY * count {
        // So many fill the places whatever their order; only those of a multiple of the mean are cut.
        return cut_to(around(sum / (MANY * count)));
    }
    let mut best = (u64::MAX, Vec::new());
    for piece in piece_costs(sum, count) {
        let counts = cut_to(around(piece))?;
        let done = done_at((&costs, &counts), places, sums, best.0)?;
        if done < best.0 {
            best = (done, counts);
        }
    }
    Ok(best.1)
}

impl Cut {
    /// What a chunk costs.
    fn cost(self, work: &ChunkWork) -> u64 {
        match self {
            Self::Places(_) => CHUNK_PAIRS + u64::from(work.most_pairs),
            Self::Entries(_) => u64::from(work.entries),
        }
    }
}

/// First chunk of a panel, and of the one behind it.
fn chunks_of(panels: &Panels, panel: usize) -> [u32; 2] {
    [panels.panel_chunks[panel], panels.panel_chunks[panel + 1]]
}

/// The chunks of each of so many pieces of a panel, which cost about the same; no piece is without chunks where there
/// are so many.
fn bounds(panels: &Panels, panel: usize, count: u64, cut: Cut) -> impl Iterator<Item = [u32; 2]> {
    let [first, end] = chunks_of(panels, panel);
    let cost = move |chunk: u32| cut.cost(&panels.work[chunk as usize]);
    let sum: u64 = (first..end).map(cost).sum();
    let (mut begin, mut upto) = (first, 0);
    (1..=count).map(move |piece| {
        let share = sum * piece / count;
        let most = end.saturating_sub(narrow(index(count - piece))).max(begin);
        let mut at = begin;
        // A chunk of which more than half is within the share belongs to it.
        while at < most && (at == begin || piece == count || upto + cost(at) / 2 < share) {
            upto += cost(at);
            at += 1;
        }
        [std::mem::replace(&mut begin, at), at]
    })
}

/// The pieces of panels that have entries, where there are no sums to add up.
pub(crate) fn pieces_without_sums(panels: &Panels, cut: Cut) -> Result<Vec<[u32; 4]>, OutOfMemory> {
    let counts = piece_counts(panels, cut, false)?;
    let mut pieces = try_with_room(index(counts.iter().sum()), "pieces")?;
    // In the order in which `done_at` has them.
    for is_cut in [true, false] {
        for (panel, &count) in counts.iter().enumerate().filter(|(_, count)| (**count > 1) == is_cut) {
            let with_entries = bounds(panels, panel, count, cut).filter(|[begin, end]| begin < end);
            pieces.extend(with_entries.map(|[begin, end]| [narrow(panel), begin, end, NO_SLOT]));
        }
    }
    Ok(pieces)
}

impl Pieces {
    /// The pieces of panels. With `share`, all pieces of a panel have the same slots.
    pub(crate) fn of(panels: &Panels, cut: Cut, share: bool) -> Result<Self, OutOfMemory> {
        let counts = piece_counts(panels, cut, true)?;
        let total = index(counts.iter().sum());
        let mut made = Self { pieces: try_with_room(total, "pieces")?, ..Self::default() };
        let split = counts.iter().filter(|&&count| count > 1);
        made.split_rows = try_with_room(split.count() * ROWS, "split_rows")?;
        for (panel, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 1) {
            made.cut(panels, panel, (count, cut), share);
        }
        for panel in (0..panels.len()).filter(|&panel| counts[panel] == 1) {
            let [begin, end] = chunks_of(panels, panel);
            made.pieces.push([narrow(panel), begin, end, NO_SLOT]);
        }
        Ok(made)
    }

    /// Cuts a panel into so many pieces.
    fn cut(&mut self, panels: &Panels, panel: usize, (count, cut): (u64, Cut), share: bool) {
        let slot =
            |piece: u64| narrow(index(self.slots + if share { 0 } else { piece * u64::from(PANEL_ROWS) }));
        let bounds = bounds(panels, panel, count, cut).zip(0..);
        self.pieces.extend(bounds.map(|([begin, end], piece)| [narrow(panel), begin, end, slot(piece)]));
        let first_slot = slot(0);
        let rows = panels.rows[panel * BUNDLES..][..BUNDLES].iter().flatten().zip(first_slot..);
        let listed = rows.filter(|(row, _)| **row != NO_ROW);
        let sums = if share { 1 } else { narrow(index(count)) };
        self.split_rows.extend(listed.map(|(&row, slot)| [row, slot, sums, PANEL_ROWS]));
        self.slots += if share { 1 } else { count } * u64::from(PANEL_ROWS);
        self.split += 1;
    }
}

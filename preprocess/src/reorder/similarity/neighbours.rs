//! The most similar rows of each row.

use std::ops::Range;

use rayon::prelude::*;
use windrow_formats::OutOfMemory;
use windrow_formats::memory::{make_room, try_filled, try_with_room, try_zeroed};

use super::super::pattern::{chunks, narrow};
use super::super::watch::{Stopped, Watch, go_on};
use super::index::Index;
use super::proposals::Proposals;
use super::weights::jaccard;
use super::{Rows, SimilarityOptions};

/// Most rows that one representative column proposes to a row.
const PROPOSED: usize = 32;
/// Marks a slot without a neighbour; no row has this number.
const NONE: u32 = u32::MAX;
/// Columns looked at between two questions whether to go on.
const PART: u64 = 1 << 18;

/// Up to `k` neighbours of each row with their similarity, the most similar first.
pub(super) struct Neighbours {
    k: usize,
    /// `k` slots for each row, [`NONE`] behind the last neighbour.
    rows: Vec<u32>,
    similarities: Vec<f32>,
}

impl Neighbours {
    /// The neighbours of every row among the candidates that the index proposes.
    pub(super) fn find(
        rows: &Rows<'_>,
        index: &Index,
        options: &SimilarityOptions,
        watch: &dyn Watch,
    ) -> Result<Self, Stopped> {
        let k = options.neighbours;
        let cost = |d: usize| {
            let d = narrow(d);
            (PROPOSED * index.representatives(d).len() + options.candidates * rows.columns(d).len()) as u64
        };
        let ranges = chunks(rows.len(), cost)?;
        watch.begin("neighbours", ranges.len() as u64);
        let slots = k * rows.len();
        let mut neighbours = Self {
            k,
            rows: try_filled(slots, NONE, "neighbours")?,
            similarities: try_zeroed(slots, "similarities")?,
        };
        let mut tasks = Vec::with_capacity(ranges.len());
        let (mut found, mut similarities) =
            (neighbours.rows.as_mut_slice(), neighbours.similarities.as_mut_slice());
        for range in ranges {
            let (head, tail) = found.split_at_mut(k * range.len());
            let (head_similarities, tail_similarities) = similarities.split_at_mut(k * range.len());
            tasks.push((range, head, head_similarities));
            (found, similarities) = (tail, tail_similarities);
        }
        tasks.into_par_iter().try_for_each(|(range, found, similarities)| {
            let mut search = Search::new(rows, index, options, watch)?;
            let slots = found.chunks_exact_mut(k).zip(similarities.chunks_exact_mut(k));
            for (d, (found, similarities)) in range.zip(slots) {
                for (slot, &(similarity, row)) in search.nearest(narrow(d))?.iter().enumerate() {
                    (found[slot], similarities[slot]) = (row, similarity);
                }
            }
            watch.step(1);
            Ok::<_, Stopped>(())
        })?;
        Ok(neighbours)
    }

    /// The neighbours of row `d`, the most similar first.
    pub(super) fn of(&self, d: u32) -> impl Iterator<Item = u32> + '_ {
        let slots = self.k * d as usize..self.k * (d as usize + 1);
        self.rows[slots].iter().copied().take_while(|&row| row != NONE)
    }

    /// Number of slots, some of them without a neighbour.
    pub(super) fn slots(&self) -> usize {
        self.rows.len()
    }

    /// Those of the slots that hold a neighbour.
    pub(super) fn taken(&self, slots: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        slots.filter(|&slot| self.rows[slot] != NONE)
    }

    /// What a slot that is taken holds: a row, its neighbour, their similarity.
    pub(super) fn slot(&self, slot: usize) -> (u32, u32, f32) {
        (narrow(slot / self.k), self.rows[slot], self.similarities[slot])
    }
}

/// The search around one row after another.
struct Search<'a> {
    rows: &'a Rows<'a>,
    index: &'a Index,
    options: &'a SimilarityOptions,
    watch: &'a dyn Watch,
    proposals: Proposals,
    candidates: Vec<(u64, u32)>,
    nearest: Vec<(f32, u32)>,
    /// Columns looked at since the last question whether to go on.
    looked_at: u64,
}

impl<'a> Search<'a> {
    fn new(
        rows: &'a Rows<'a>,
        index: &'a Index,
        options: &'a SimilarityOptions,
        watch: &'a dyn Watch,
    ) -> Result<Self, OutOfMemory> {
        let (proposals, candidates) = (Proposals::default(), Vec::new());
        let nearest = try_with_room(options.neighbours, "neighbours")?;
        Ok(Self { rows, index, options, watch, proposals, candidates, nearest, looked_at: PART })
    }

    /// The rows most similar to `d` among those that share its representatives; ties go to the row that was
    /// nearer to `d`.
    fn nearest(&mut self, d: u32) -> Result<&[(f32, u32)], Stopped> {
        let known = self.propose(d)?;
        let k = self.options.neighbours;
        let apart = |u: u32| (u.abs_diff(d), u);
        let limit = self.options.candidates;
        if self.candidates.len() > limit {
            let most_shared = |&(shared, u): &(u64, u32)| (std::cmp::Reverse(shared), apart(u));
            self.candidates.select_nth_unstable_by_key(limit, most_shared);
            self.candidates.truncate(limit);
        }
        self.nearest.clear();
        let (columns, sum) = (self.rows.columns(d), self.rows.sum(d));
        for &(shared, u) in &self.candidates {
            let other = self.rows.sum(u);
            let shared = if known && self.index.is_complete(u) {
                shared
            } else {
                // Two rows share at most the lighter of them.
                let bound = jaccard(sum.min(other), sum, other);
                if self.nearest.len() == k && bound < self.nearest[k - 1].0 {
                    continue;
                }
                let row = self.rows.columns(u);
                self.looked_at += columns.len().min(row.len()) as u64 + 1;
                self.rows.weights.shared(columns, row)
            };
            let similarity = jaccard(shared, sum, other);
            let before = |&(found, row): &(f32, u32)| {
                found > similarity || (found == similarity && apart(row) < apart(u))
            };
            let at = self.nearest.partition_point(before);
            if at < k {
                self.nearest.truncate(k - 1);
                self.nearest.insert(at, (similarity, u));
            }
            ask(&mut self.looked_at, self.watch)?;
        }
        Ok(&self.nearest)
    }

    /// Makes candidates of the rows that share representatives with `d`, with the weight of those shared.
    ///
    /// Says whether that weight is all that `d` shares with a candidate whose representatives are complete.
    fn propose(&mut self, d: u32) -> Result<bool, Stopped> {
        let rank = self.index.rank(d);
        let mut known = self.index.is_complete(d);
        for &column in self.index.representatives(d) {
            let weight = u64::from(self.rows.weights.weight(column));
            let (around, all) = self.index.around(column, rank, PROPOSED);
            known &= all;
            self.proposals.make_room(around.len())?;
            around
                .iter()
                .filter(|&&other| other != rank)
                .for_each(|&other| self.proposals.add(other, weight));
            self.looked_at += around.len() as u64 + 1;
        }
        self.candidates.clear();
        make_room(&mut self.candidates, self.proposals.len(), "candidates")?;
        let candidates = self.proposals.drain().map(|(rank, shared)| (shared, self.index.at_rank(rank)));
        self.candidates.extend(candidates);
        ask(&mut self.looked_at, self.watch)?;
        Ok(known)
    }
}

/// Asks whether to go on if that is due.
fn ask(looked_at: &mut u64, watch: &dyn Watch) -> Result<(), Stopped> {
    if *looked_at >= PART {
        *looked_at = 0;
        go_on(watch)?;
    }
    Ok(())
}

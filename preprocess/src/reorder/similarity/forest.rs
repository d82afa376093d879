//! A spanning forest of the greatest total similarity, found in rounds after Borůvka.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use windrow_formats::memory::{
    try_collect, try_concat, try_copy, try_par_collect, try_par_collect_ok, try_with_room,
};

use super::super::pattern::narrow;
use super::super::watch::{Stopped, Watch, go_on, tick};
use super::neighbours::Neighbours;

/// Slots that one thread looks at between two questions whether to go on.
const PART: usize = 1 << 15;
/// Bits of an edge's rank that hold its slot; those above hold its similarity.
const SLOT_BITS: u32 = 40;

/// An edge of the forest: two rows and their similarity.
pub(super) type Edge = (u32, u32, f32);

/// The spanning forest of the graph of neighbours, of the greatest total similarity.
///
/// Every round joins each tree to another by its best edge. Edges are totally ordered, by similarity and
/// then by where they are stored, so no choice closes a cycle and the forest does not depend on threads.
pub(super) fn spanning_forest(
    rows: usize,
    neighbours: &Neighbours,
    watch: &dyn Watch,
) -> Result<Vec<Edge>, Stopped> {
    // Each round leaves at most half as many trees that can still be joined.
    watch.begin("spanning forest", u64::from(usize::BITS - rows.leading_zeros()));
    let mut tree = try_collect(0..narrow(rows), "trees of rows")?;
    let mut roots = try_copy(&tree, "roots")?;
    let best = try_collect((0..rows).map(|_| AtomicU64::new(0)), "best edges")?;
    let mut live: Vec<u64> = in_parts(neighbours.slots(), watch, |slots, ranks| {
        ranks.extend(neighbours.taken(slots).map(|slot| rank(neighbours, slot)));
    })?;
    // Each edge leaves a tree less.
    let mut edges = try_with_room(rows, "edges of a forest")?;
    loop {
        live.par_chunks(PART).try_for_each(|part| {
            for &rank in part {
                let (a, b, _) = neighbours.slot(slot(rank));
                for end in [a, b] {
                    best[tree[end as usize] as usize].fetch_max(rank, Ordering::Relaxed);
                }
            }
            go_on(watch)
        })?;
        let chosen = |root: u32| best[root as usize].load(Ordering::Relaxed);
        // Where a root is hung, and by which edge; of two that choose each other the first stays a root.
        let hang = |&root: &u32| {
            let rank = chosen(root);
            if rank == 0 {
                return (root, 0);
            }
            let (a, b, _) = neighbours.slot(slot(rank));
            let (a, b) = (tree[a as usize], tree[b as usize]);
            let other = if a == root { b } else { a };
            if chosen(other) == rank && root < other { (root, 0) } else { (other, rank) }
        };
        let hung = try_par_collect(roots.par_iter().map(hang), "edges of roots")?;
        tick(watch, 1)?;
        let joined = edges.len();
        // `tree` of a root is its parent for a moment.
        for (&root, &(parent, rank)) in roots.iter().zip(&hung) {
            tree[root as usize] = parent;
            if rank != 0 {
                let (a, b, similarity) = neighbours.slot(slot(rank));
                edges.push((a, b, similarity));
            }
            best[root as usize].store(0, Ordering::Relaxed);
        }
        if edges.len() == joined {
            return Ok(edges);
        }
        for (at, &root) in roots.iter().enumerate() {
            if at % PART == 0 {
                go_on(watch)?;
            }
            while tree[tree[root as usize] as usize] != tree[root as usize] {
                tree[root as usize] = tree[tree[root as usize] as usize];
            }
        }
        roots.retain(|&root| tree[root as usize] == root);
        let parents = tree;
        tree = in_parts(rows, watch, |range, roots| {
            roots.extend(range.map(|d| parents[parents[d] as usize]));
        })?;
        live = in_parts(live.len(), watch, |range, ranks| {
            let apart = |rank: &u64| {
                let (a, b, _) = neighbours.slot(slot(*rank));
                tree[a as usize] != tree[b as usize]
            };
            ranks.extend(live[range].iter().copied().filter(apart));
        })?;
    }
}

/// The lists that `f` fills for consecutive parts of `0..len`, one after another; none is longer than its part.
fn in_parts<T: Copy + Send + Sync>(
    len: usize,
    watch: &dyn Watch,
    f: impl Fn(Range<usize>, &mut Vec<T>) + Sync,
) -> Result<Vec<T>, Stopped> {
    let what = "parts of a forest";
    let starts = (0..len).into_par_iter().step_by(PART);
    let parts = starts.map(|start| {
        go_on(watch)?;
        let part = start..len.min(start + PART);
        let mut list = try_with_room(part.len(), what)?;
        f(part, &mut list);
        Ok::<_, Stopped>(list)
    });
    Ok(try_concat(&try_par_collect_ok(parts, what)?, what)?)
}

/// Orders edges: the more similar first, then the one in the earlier slot; never 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number in 0 ..= 2²³")]
fn rank(neighbours: &Neighbours, slot: usize) -> u64 {
    let similarity = (neighbours.slot(slot).2 * (1 << 23) as f32) as u64;
    (similarity << SLOT_BITS) | ((1 << SLOT_BITS) - 1 - slot as u64)
}

/// The slot of an edge of that rank.
#[expect(clippy::cast_possible_truncation, reason = "the index of a slot that exists")]
const fn slot(rank: u64) -> usize {
    ((1 << SLOT_BITS) - 1 - (rank & ((1 << SLOT_BITS) - 1))) as usize
}

//! From a list to the tree: sort, sum, cut into levels.

use rayon::prelude::*;

use super::Csf3;
use super::check::check_mode_order;
use crate::memory::{narrow, try_with_room, try_zeroed};
use crate::{Coo3, FormatError, Value};

/// Entries that make a piece worth a task of its own.
const PIECE_ENTRIES: usize = 1 << 14;

/// An index for each level, the value, and the place in the list.
type Entry<V> = ([u32; 3], V, u64);

/// The tensor of a list of coordinates.
pub(super) fn from_coo<V: Value>(coo: &Coo3<V>, mode_order: [usize; 3]) -> Result<Csf3<V>, FormatError> {
    check_mode_order(mode_order)?;
    let sorted = sorted(coo, mode_order)?;
    let [roots, fibers, nnz] = starts(&sorted);
    let mut csf = Csf3 {
        dims: coo.dims().map(narrow),
        mode_order,
        root_indices: try_with_room(roots, "root_indices")?,
        root_offsets: try_with_room(roots + 1, "root_offsets")?,
        fiber_indices: try_with_room(fibers, "fiber_indices")?,
        fiber_offsets: try_with_room(fibers + 1, "fiber_offsets")?,
        leaf_indices: try_with_room(nnz, "leaf_indices")?,
        values: try_with_room(nnz, "values")?,
        summed_duplicates: (sorted.len() - nnz) as u64,
    };
    let mut before = None;
    for (path, value, _) in sorted {
        csf.push(before.map_or(0, |before| first_difference(before, path)), path, value);
        before = Some(path);
    }
    csf.root_offsets.push(csf.fiber_indices.len() as u64);
    csf.fiber_offsets.push(csf.values.len() as u64);
    Ok(csf)
}

/// The entries in the order of the tree; those at the same place keep their order.
fn sorted<V: Value>(coo: &Coo3<V>, mode_order: [usize; 3]) -> Result<Vec<Entry<V>>, FormatError> {
    let mut entries: Vec<Entry<V>> = try_zeroed(coo.nnz(), "a copy of the entries")?;
    let levels = mode_order.map(|mode| coo.indices(mode));
    let places = entries.par_iter_mut().enumerate().with_min_len(PIECE_ENTRIES);
    places.for_each(|(at, entry)| {
        *entry = (levels.map(|indices| indices[at]), coo.values()[at], at as u64);
    });
    // One number is compared in fewer steps than an array; the places make a sort stable that needs no memory.
    let path = |[a, b, c]: [u32; 3]| u128::from(a) << 64 | u128::from(b) << 32 | u128::from(c);
    entries.par_sort_unstable_by_key(|&(indices, _, at)| (path(indices), at));
    Ok(entries)
}

/// The first level at which two paths differ, 3 if they are the same.
fn first_difference(a: [u32; 3], b: [u32; 3]) -> usize {
    (0..3).find(|&level| a[level] != b[level]).unwrap_or(3)
}

/// How many roots, fibers and different entries there are in a sorted list.
fn starts<V: Value>(sorted: &[Entry<V>]) -> [usize; 3] {
    if sorted.is_empty() {
        return [0; 3];
    }
    let pairs = sorted.par_windows(2).with_min_len(PIECE_ENTRIES);
    let count = |mut counts: [usize; 3], pair: &[Entry<V>]| {
        let level = first_difference(pair[0].0, pair[1].0);
        counts[level..].iter_mut().for_each(|count| *count += 1);
        counts
    };
    let add = |a: [usize; 3], b: [usize; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
    // The first entry begins a root, a fiber and a leaf.
    add(pairs.fold(|| [0; 3], count).reduce(|| [0; 3], add), [1; 3])
}

impl<V: Value> Csf3<V> {
    /// Adds an entry, which differs from the one before from level `level` on.
    fn push(&mut self, level: usize, [root, fiber, leaf]: [u32; 3], value: V) {
        if level == 0 {
            self.root_indices.push(root);
            self.root_offsets.push(self.fiber_indices.len() as u64);
        }
        if level <= 1 {
            self.fiber_indices.push(fiber);
            self.fiber_offsets.push(self.leaf_indices.len() as u64);
        }
        match self.values.last_mut() {
            Some(last) if level == 3 => *last = last.add(value),
            _ => {
                self.leaf_indices.push(leaf);
                self.values.push(value);
            }
        }
    }
}

//! The invariants of [`Csf3`](super::Csf3).

use rayon::prelude::*;

use super::Csf3Parts;
use crate::FormatError;
use crate::memory::index;

/// Runs of indices that make a piece worth a task of its own.
const PIECE_RUNS: usize = 1 << 12;

/// The error for a broken invariant.
fn broken(invariant: &'static str, detail: String) -> FormatError {
    FormatError::Csf3 { invariant, detail }
}

/// Checks every invariant. The order matters: each check may index by what the ones before established.
pub(super) fn check<V: Sync>(dims: [u32; 3], parts: &Csf3Parts<V>) -> Result<(), FormatError> {
    check_mode_order(parts.mode_order)?;
    let (roots, fibers, nnz) = (parts.root_indices.len(), parts.fiber_indices.len(), parts.values.len());
    lengths(parts)?;
    let level = |level: usize| {
        let mode = parts.mode_order[level];
        (mode, dims[mode])
    };
    let whole = [0, roots as u64];
    offsets(Level { label: "R1", node: "root", child: "fibers" }, &parts.root_offsets, fibers)?;
    indices(Runs { label: "R2", node: "root", ends: &whole }, &parts.root_indices, level(0))?;
    offsets(Level { label: "F1", node: "fiber", child: "entries" }, &parts.fiber_offsets, nnz)?;
    indices(Runs { label: "F2", node: "fiber", ends: &parts.root_offsets }, &parts.fiber_indices, level(1))?;
    indices(Runs { label: "E1", node: "entry", ends: &parts.fiber_offsets }, &parts.leaf_indices, level(2))
}

/// Whether an order of modes, for the levels of a [`Csf3`](crate::Csf3), holds each of the three once.
///
/// # Errors
/// [`FormatError::ModeOrder`].
pub fn check_mode_order(mode_order: [usize; 3]) -> Result<(), FormatError> {
    if (0..3).all(|mode| mode_order.contains(&mode)) {
        return Ok(());
    }
    Err(FormatError::ModeOrder { found: mode_order })
}

/// L1: how long the arrays are follows from the others.
fn lengths<V>(parts: &Csf3Parts<V>) -> Result<(), FormatError> {
    for (array, found, expected, of) in [
        ("root_offsets", parts.root_offsets.len(), parts.root_indices.len() + 1, "one more than roots"),
        ("fiber_offsets", parts.fiber_offsets.len(), parts.fiber_indices.len() + 1, "one more than fibers"),
        ("leaf_indices", parts.leaf_indices.len(), parts.values.len(), "one for each value"),
    ] {
        if found != expected {
            return Err(broken("L1", format!("{array} has {found} elements, not {expected}, {of}")));
        }
    }
    Ok(())
}

/// A level whose nodes have children.
struct Level {
    label: &'static str,
    node: &'static str,
    child: &'static str,
}

/// R1 and F1: no root and no fiber is empty, and together they have all children.
fn offsets(level: Level, offsets: &[u64], children: usize) -> Result<(), FormatError> {
    let Level { label, node, child } = level;
    if offsets[0] != 0 {
        return Err(broken(label, format!("{node}_offsets starts at {}, not at 0", offsets[0])));
    }
    let empty = offsets.par_windows(2).with_min_len(PIECE_RUNS).position_first(|ends| ends[0] >= ends[1]);
    if let Some(at) = empty {
        let (start, end) = (offsets[at], offsets[at + 1]);
        return Err(broken(label, format!("{node} {at} has no {child}: it goes from {start} to {end}")));
    }
    let last = offsets[offsets.len() - 1];
    if last != children as u64 {
        return Err(broken(label, format!("{node}_offsets ends at {last} but there are {children} {child}")));
    }
    Ok(())
}

/// Consecutive ranges of indices, each of which ascends.
struct Runs<'a> {
    label: &'static str,
    node: &'static str,
    ends: &'a [u64],
}

/// R2, F2, E1: `mode` is what the indices count, `bound` its dimension.
fn indices(runs: Runs<'_>, indices: &[u32], (mode, bound): (usize, u32)) -> Result<(), FormatError> {
    let Runs { label, node, ends } = runs;
    let wrong = ends.par_windows(2).with_min_len(PIECE_RUNS).find_map_first(|ends| {
        let (start, end) = (index(ends[0]), index(ends[1]));
        (start..end).find(|&at| indices[at] >= bound || (at > start && indices[at - 1] >= indices[at]))
    });
    let Some(at) = wrong else {
        return Ok(());
    };
    let found = indices[at];
    if found >= bound {
        return Err(broken(
            label,
            format!("{node} {at}: index {found} is not below the {bound} of mode {mode}"),
        ));
    }
    let before = indices[at - 1];
    Err(broken(label, format!("{node} {at}: index {found} follows {before}; indices must strictly ascend")))
}

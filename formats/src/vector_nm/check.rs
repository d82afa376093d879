//! The invariants of [`VectorNm`](super::VectorNm).

use rayon::prelude::*;

use super::{NmPattern, VectorNmParts};
use crate::FormatError;

/// Checks lengths and indices.
pub(super) fn check<T>(parts: &VectorNmParts<T>) -> Result<(), FormatError> {
    let (pattern, kept) = (parts.pattern, parts.pattern.kept_rows(parts.rows));
    values_len(parts.values.len(), kept, parts.cols)?;
    indices(&parts.indices, parts.rows, parts.cols, pattern)
}

/// Whether there are `w·n` values.
pub(super) fn values_len(found: usize, kept: usize, n: usize) -> Result<(), FormatError> {
    length("values", found, kept.checked_mul(n), "one for each kept row and column")
}

/// Whether an array is as long as it must be.
pub(super) fn length(
    array: &'static str,
    found: usize,
    expected: Option<usize>,
    why: &'static str,
) -> Result<(), FormatError> {
    let expected = expected.unwrap_or(usize::MAX);
    if found == expected { Ok(()) } else { Err(FormatError::LengthMismatch { array, found, expected, why }) }
}

/// Whether there are `w·q` indices, in range and ascending; names the first that is not.
pub(super) fn indices(indices: &[u8], k: usize, n: usize, pattern: NmPattern) -> Result<(), FormatError> {
    let q = pattern.vectors(n);
    let expected = pattern.kept_rows(k).checked_mul(q);
    length("indices", indices.len(), expected, "one for each kept row and vector")?;
    if indices.is_empty() {
        return Ok(());
    }
    let groups = indices.par_chunks(pattern.n().saturating_mul(q)).enumerate();
    let first = groups.find_map_first(|(group, indices)| {
        let rows = pattern.m().min(k - group * pattern.m());
        first_broken(indices, q, rows).map(|(row, vector, before)| {
            let (kept_row, found) = (group * pattern.n() + row, indices[row * q + vector]);
            match before {
                None => FormatError::NmIndexRange { kept_row, vector, group, found, rows },
                Some(before) => FormatError::NmIndexOrder { kept_row, vector, group, found, before },
            }
        })
    });
    first.map_or(Ok(()), Err)
}

/// The first index of a group that names none of its `rows`, or does not come after the one before it, which then
/// comes along: its place among the group's kept rows, and its vector.
fn first_broken(indices: &[u8], q: usize, rows: usize) -> Option<(usize, usize, Option<u8>)> {
    let mut before: Option<&[u8]> = None;
    for (row, indices) in indices.chunks(q).enumerate() {
        for (vector, &found) in indices.iter().enumerate() {
            if usize::from(found) >= rows {
                return Some((row, vector, None));
            }
            if let Some(before) = before.map(|before| before[vector]).filter(|&before| before >= found) {
                return Some((row, vector, Some(before)));
            }
        }
        before = Some(indices);
    }
    None
}

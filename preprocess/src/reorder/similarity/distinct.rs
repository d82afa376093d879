//! Rows with the same columns, taken as one.

use rayon::prelude::*;
use windrow_formats::OutOfMemory;
use windrow_formats::memory::{make_room, try_collect, try_concat, try_copy, try_with_room, try_zeroed};

use super::super::graph::starts;
use super::super::pace::Pace;
use super::super::pattern::{Pattern, chunks, index, map_chunks, narrow};
use super::super::watch::{Stopped, Watch, tick};

/// The distinct rows of a matrix, by number, in the order in which they come first; empty rows are left out.
///
/// Hundreds of rows alike would otherwise be each other's only neighbours and hide all others.
pub(super) struct DistinctRows {
    /// `members[offsets[d] .. offsets[d + 1]]` are the rows that look like distinct row `d`, ascending.
    offsets: Vec<u64>,
    members: Vec<u32>,
    /// Rows without entries, ascending.
    pub(super) empty: Vec<u32>,
}

impl DistinctRows {
    pub(super) fn of(pattern: &Pattern<'_>, watch: &dyn Watch) -> Result<Self, Stopped> {
        let ranges = chunks(pattern.rows() as usize, |r| pattern.row_len(narrow(r)) as u64)?;
        watch.begin("row hashes", ranges.len() as u64 + 1);
        let what = "hashes of rows";
        let hash_rows = |rows: std::ops::Range<usize>| -> Result<Vec<(u64, u32)>, OutOfMemory> {
            let mut hashed = try_with_room(rows.len(), what)?;
            let filled = rows.map(narrow).filter(|&r| pattern.row_len(r) > 0);
            hashed.extend(filled.map(|r| (hash(pattern.row(r)), r)));
            Ok(hashed)
        };
        let mut hashed = try_concat(&map_chunks(&ranges, watch, hash_rows)?, what)?;
        hashed.par_sort_unstable();
        tick(watch, 1)?;
        Self::from_hashes(pattern, &hashed, watch)
    }

    fn from_hashes(pattern: &Pattern<'_>, hashed: &[(u64, u32)], watch: &dyn Watch) -> Result<Self, Stopped> {
        let rows = pattern.rows();
        let mut pace = Pace::begin(watch, "identical rows", 2 * u64::from(rows));
        // Of each row the first that looks like it, then the number of that one.
        let mut numbers = try_collect(0..rows, "numbers of rows")?;
        let mut kinds: Vec<u32> = Vec::new();
        for same_hash in hashed.chunk_by(|a, b| a.0 == b.0) {
            // Almost always one kind of row; kinds that collide are told apart by looking.
            kinds.clear();
            for &(_, r) in same_hash {
                match kinds.iter().find(|&&kind| pattern.row(kind) == pattern.row(r)) {
                    Some(&kind) => numbers[r as usize] = kind,
                    None => {
                        make_room(&mut kinds, 1, "kinds of rows")?;
                        kinds.push(r);
                    }
                }
                pace.beside(pattern.row_len(r) as u64)?;
            }
        }
        let first = |&r: &u32| numbers[r as usize] == r && pattern.row_len(r) > 0;
        let mut counts = try_with_room((0..rows).filter(first).count(), "counts of rows alike")?;
        let mut empty = try_with_room(rows as usize - hashed.len(), "rows without entries")?;
        for r in 0..rows {
            let first = numbers[r as usize];
            if pattern.row_len(r) == 0 {
                empty.push(r);
            } else if first == r {
                numbers[r as usize] = narrow(counts.len());
                counts.push(1u64);
            } else {
                // The first row comes earlier, so it has its number already.
                numbers[r as usize] = numbers[first as usize];
                counts[numbers[r as usize] as usize] += 1;
            }
            pace.done(1)?;
        }
        let offsets = starts(counts.into_iter())?;
        let mut ends = try_copy(&offsets, "ends of lists")?;
        let mut members = try_zeroed(hashed.len(), "rows alike")?;
        for r in (0..rows).filter(|&r| pattern.row_len(r) > 0) {
            let end = &mut ends[numbers[r as usize] as usize];
            members[index(*end)] = r;
            *end += 1;
            pace.done(1)?;
        }
        pace.finish()?;
        Ok(Self { offsets, members, empty })
    }

    /// How many distinct rows there are.
    pub(super) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The rows that look like distinct row `d`, ascending.
    pub(super) fn members(&self, d: u32) -> &[u32] {
        &self.members[index(self.offsets[d as usize])..index(self.offsets[d as usize + 1])]
    }

    /// The first row that looks like distinct row `d`.
    pub(super) fn first(&self, d: u32) -> u32 {
        self.members[index(self.offsets[d as usize])]
    }
}

/// 64 bits of a row's columns.
fn hash(columns: &[u32]) -> u64 {
    columns.iter().fold(columns.len() as u64, |hash, &column| mix(hash ^ u64::from(column)))
}

/// A bijection of 64 bits whose results look random: the output function of `SplitMix64`.
pub(super) const fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_formats::Csr;

    #[test]
    fn rows_alike_are_one() {
        let offsets = vec![0, 2, 2, 3, 5, 6, 8, 8];
        let a = Csr::try_from_parts(7, 4, offsets, vec![0, 3, 1, 0, 3, 2, 0, 3], vec![1f32; 8]).unwrap();
        let distinct = DistinctRows::of(&Pattern::of(&a), &()).unwrap();
        let members: Vec<&[u32]> = (0..narrow(distinct.len())).map(|d| distinct.members(d)).collect();
        assert_eq!(members, [&[0, 3, 5][..], &[2], &[4]]);
        assert_eq!(distinct.empty, [1, 6]);
        assert_eq!(distinct.first(2), 4);
    }

    #[test]
    fn rows_whose_hashes_collide_are_told_apart() {
        let a = Csr::try_from_parts(4, 3, vec![0, 1, 2, 3, 4], vec![0, 1, 0, 1], vec![1f32; 4]).unwrap();
        let colliding = [(7, 0), (7, 1), (7, 2), (7, 3)];
        let distinct = DistinctRows::from_hashes(&Pattern::of(&a), &colliding, &()).unwrap();
        assert_eq!((distinct.members(0), distinct.members(1)), (&[0, 2][..], &[1, 3][..]));
    }
}

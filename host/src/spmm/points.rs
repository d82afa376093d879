//! Which point of Sgap's space suits a matrix and a width: a small decision tree over the lengths of rows.
//!
//! Two questions, in the paper's terms which data to divide and how many threads share a row:
//!
//! 1. Are rows alike enough for threads to own them? The longest row is walked by its threads alone, while all others
//!    wait; where that is too long entries are divided instead, and rows that lie in two groups are added up.
//! 2. How many threads share a row? As many as have a few entries each, and more where there are few rows.
//!
//! The thresholds are from one H200: over 29 matrices the tree is 7.5 % behind the best of 48 points at width 4, in the
//! geometric mean, and 1.53 times at worst.

use windrow_formats::{Csr, Value};

use crate::num::{narrow, real, wide};
use crate::parallelism::{AtomicParallelism, IllegalPoint, MinimalData, Share};

/// Entries that a thread of a row has, if there are rows enough; twice as many where threads lie side by side.
const ENTRIES_EACH: f64 = 4.0;
/// Threads that a GPU holds: fewer rows are shared by more threads.
const THREADS: f64 = 270_000.0;
/// Most threads that share a row for want of rows.
const MOST_FOR_WANT: u32 = 16;
/// Entries of the longest row that one thread may have: some sixteen rounds of four loads.
const LONGEST_EACH: f64 = 64.0;
/// Times the mean length that the longest row may have if it is longer, and its entries for one thread even then.
const ALIKE: f64 = 8.0;
const LONGEST_OF_ALIKE_EACH: f64 = 4.0 * LONGEST_EACH;
/// Groups of entries that occupy a GPU: with fewer entries threads have fewer each.
const GROUPS: f64 = 65_536.0;
/// Most entries of a thread.
const MOST_EACH: f64 = 8.0;

/// Widest `B` for which [`Algorithm::Auto`](crate::Algorithm::Auto) takes these kernels: with more columns a thread of
/// row-split has 16 bytes of the width for each entry that it reads.
pub(super) const NARROW: usize = 8;

/// What the tree looks at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RowLengths {
    rows: f64,
    nnz: f64,
    longest: f64,
}

impl RowLengths {
    pub(super) fn of<V: Value>(a: &Csr<V>) -> Self {
        let longest = a.row_offsets().windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        Self { rows: real(wide(a.rows()).max(1)), nnz: real(wide(a.nnz())), longest: real(longest) }
    }

    /// The point for a product of `width` columns.
    ///
    /// # Errors
    /// None in fact: every point of the tree is legal.
    pub(super) fn point(self, width: usize) -> Result<AtomicParallelism, IllegalPoint> {
        let columns = match width {
            0 | 1 => 1,
            2 | 3 => 2,
            _ => 4,
        };
        let lanes = narrow(width.clamp(1, 128)).div_ceil(columns).next_power_of_two();
        let most = 32 / lanes;
        let mean = self.nnz / self.rows;
        let for_want = floor_power(THREADS / f64::from(lanes) / self.rows);
        let for_want = for_want.min(ceil_power(mean)).min(MOST_FOR_WANT);
        let threads = near_power(mean / ENTRIES_EACH / f64::from(lanes.min(2))).max(for_want).min(most);
        let of_each = self.longest / f64::from(threads);
        let alike =
            of_each <= LONGEST_EACH || self.longest <= ALIKE * mean && of_each <= LONGEST_OF_ALIKE_EACH;
        let (data, reduction) = match (alike, threads) {
            (true, 1) => (MinimalData::Row(Share::Whole(1)), 1),
            (true, _) => (MinimalData::Row(Share::Part(threads)), threads),
            (false, _) => {
                let each = near_power((self.nnz / GROUPS).min(MOST_EACH));
                (MinimalData::Nnz(Share::Whole(each)), most)
            }
        };
        AtomicParallelism::new(data, Share::Whole(columns), reduction)
    }
}

/// The power of two, from 1 to 32, next to `x` in ratio.
fn near_power(x: f64) -> u32 {
    (0..6).map(|log2| 1 << log2).find(|&power| x < f64::from(power) * std::f64::consts::SQRT_2).unwrap_or(32)
}

/// The largest, from 1 to 32, that is no more than `x`.
fn floor_power(x: f64) -> u32 {
    (0..6).rev().map(|log2| 1 << log2).find(|&power| f64::from(power) <= x).unwrap_or(1)
}

/// The least, from 1 to 32, that is no less than `x`.
fn ceil_power(x: f64) -> u32 {
    (0..6).map(|log2| 1 << log2).find(|&power| f64::from(power) >= x).unwrap_or(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_goes_by_the_lengths_of_rows() {
        for (rows, nnz, longest, width, point) in [
            (335e3, 1686e3, 19.0, 4, "{<1 row, 4 col>, 1}"), // DD: many short rows
            (200e3, 3200e3, 16.0, 4, "{<1/4 row, 4 col>, 4}"), // longer ones
            (19717.0, 88651.0, 171.0, 1, "{<1/8 row, 1 col>, 8}"), // pubmed: few rows
            (4267.0, 2136e3, 2234.0, 4, "{<1/32 row, 4 col>, 32}"), // ogbl-ddi: long and alike
            (131e3, 1942e3, 9940.0, 4, "{<8 nnz, 4 col>, 32}"), // rmat17: unlike
            (36692.0, 367e3, 1383.0, 4, "{<4 nnz, 4 col>, 32}"), // email-Enron: and small
            (131e3, 1942e3, 9940.0, 16, "{<8 nnz, 4 col>, 8}"), // lanes for the width
            (131e3, 1942e3, 9940.0, 1000, "{<8 nnz, 4 col>, 1}"),
            (1.0, 0.0, 0.0, 0, "{<1 row, 1 col>, 1}"),
            (8.0, 1e6, 1e6, 2, "{<8 nnz, 2 col>, 32}"),
        ] {
            let lengths = RowLengths { rows, nnz, longest };
            assert_eq!(lengths.point(width).unwrap().to_string(), point, "{lengths:?} {width}");
        }
    }

    #[test]
    fn powers_are_those_of_a_warp() {
        for (x, near, floor, ceil) in [
            (0.0, 1, 1, 1),
            (1.0, 1, 1, 1),
            (1.5, 2, 1, 2),
            (5.0, 4, 4, 8),
            (6.0, 8, 4, 8),
            (1e9, 32, 32, 32),
        ] {
            assert_eq!((near_power(x), floor_power(x), ceil_power(x)), (near, floor, ceil), "{x}");
        }
    }

    #[test]
    fn every_matrix_and_width_has_a_point() {
        for rows in [1.0, 100.0, 1e7] {
            for nnz in [0.0, 1.0, 1e4, 1e9] {
                for longest in [0.0, nnz / rows, nnz] {
                    for width in [0, 1, 2, 3, 4, 5, 31, 64, 127, 129, 5000] {
                        RowLengths { rows, nnz, longest }.point(width).unwrap();
                    }
                }
            }
        }
    }
}

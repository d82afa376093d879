//! Which point of Sgap's space suits a matrix and a width: a small decision tree over the lengths of rows.
//!
//! Two questions, in the paper's terms which data to divide and how many threads share a row:
//!
//! 1. Are rows alike enough for threads to own them? The longest row is walked by its threads alone, while all others
//!    wait; where that is too long entries are divided instead, and rows that lie in two groups are added up.
//! 2. How many threads share a row? As many as have a few entries each, and more where there are few rows.
//!
//! Two more follow from the width: with more columns a thread of row-split has 16 bytes of it for each entry that it
//! reads, and takes over, sooner where rows would be cut; and a launch of few threads has small blocks.
//!
//! The thresholds ([`GroupThresholds::FITTED`]) are what `windrow-bench tuned --fit` finds for measured times: the
//! geometric mean, over matrices and widths, of the time of the tree's choice over that of the best is least.

use windrow_formats::{Csr, Value};

use crate::costs::GroupThresholds;
use crate::num::{narrow, real, wide};
use crate::parallelism::{AtomicParallelism, GroupLaunch, MinimalData, Share};

/// Widest `B` for which a product in f16, which has Tensor Cores besides, is divided by a point.
pub(super) const NARROW: usize = 8;

/// Most entries of a thread that a division of the tree has, whatever the thresholds.
pub const MOST_EACH: u32 = 16;

#[cfg(test)]
impl GroupThresholds {
    /// Round numbers, for tests of what they do.
    const UNFITTED: Self = Self {
        entries_each: 4.0,
        threads: 270_000.0,
        most_for_want: 16.0,
        longest_each: 64.0,
        alike: 8.0,
        longest_of_alike_each: 256.0,
        groups: 65_536.0,
        most_each: 8.0,
        most_lanes: 32.0,
        small_blocks: 0.0,
        large_blocks: f64::INFINITY,
        widest_rows: 8.0,
        widest_nonzeros: 8.0,
    };
}

/// What the tree looks at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowLengths {
    /// Rows, at least 1.
    pub rows: f64,
    /// Entries of the matrix.
    pub nnz: f64,
    /// Entries of the longest row.
    pub longest: f64,
}

/// How segment groups divide the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Division {
    /// What a thread takes, and how many threads add up their sums.
    pub point: AtomicParallelism,
    /// How the threads are put into blocks and the blocks into a grid.
    pub launch: GroupLaunch,
    /// Whether row-split is expected to be quicker.
    pub row_split: bool,
}

impl RowLengths {
    /// The lengths of the rows of `a`.
    #[must_use]
    pub fn of<V: Value>(a: &Csr<V>) -> Self {
        let longest = a.row_offsets().windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        Self { rows: real(wide(a.rows()).max(1)), nnz: real(wide(a.nnz())), longest: real(longest) }
    }

    /// What the threads of its division for `width` columns have to do.
    pub(crate) fn work(self, width: usize, thresholds: &GroupThresholds) -> GroupWork {
        let (columns, lanes) = side_by_side(width, floor_power(thresholds.most_lanes));
        let point = self.division(width, thresholds).point;
        let lanes_f = f64::from(lanes);
        let (units, longest) = match (point.nonzeros_per_thread(), point.threads_per_row()) {
            (Some(each), _) => (self.nnz / f64::from(each), f64::from(each)),
            (None, threads) => {
                let threads = f64::from(threads.unwrap_or(1));
                (self.rows * threads, self.longest / threads)
            }
        };
        GroupWork {
            lanes: lanes_f,
            passes: (real(wide(width)) / f64::from(columns * lanes)).ceil(),
            threads: units * lanes_f,
            longest,
            divides_entries: point.is_nonzero_split(),
        }
    }

    /// The division for a product of `width` columns.
    #[must_use]
    pub fn division(self, width: usize, thresholds: &GroupThresholds) -> Division {
        let t = thresholds;
        let (columns, lanes) = side_by_side(width, floor_power(t.most_lanes));
        let most = 32 / lanes;
        let mean = self.nnz / self.rows;
        let for_want = floor_power(t.threads / f64::from(lanes) / self.rows);
        let for_want = for_want.min(ceil_power(mean)).min(floor_power(t.most_for_want));
        let threads = near_power(mean / t.entries_each / f64::from(lanes.min(2))).max(for_want).min(most);
        let of_each = self.longest / f64::from(threads);
        let alike =
            of_each <= t.longest_each || self.longest <= t.alike * mean && of_each <= t.longest_of_alike_each;
        let (data, reduction, units, widest) = match alike {
            true => {
                let share = if threads == 1 { Share::Whole(1) } else { Share::Part(threads) };
                (MinimalData::Row(share), threads, self.rows * f64::from(threads), t.widest_rows)
            }
            false => {
                let each = near_power((self.nnz / t.groups).min(t.most_each)).min(MOST_EACH);
                let units = self.nnz / f64::from(each);
                (MinimalData::Nnz(Share::Whole(each)), most, units, t.widest_nonzeros)
            }
        };
        let launched = units * f64::from(lanes);
        let block_threads = match launched {
            few if few < t.small_blocks => 64,
            many if many >= t.large_blocks => 256,
            _ => 128,
        };
        let launch =
            GroupLaunch { block_threads, tile_columns: tile(width, columns * lanes), workers_log2: 0 };
        // Powers of two within a warp: what `AtomicParallelism::new` checks holds for all of them.
        let point = AtomicParallelism::of_powers(data, Share::Whole(columns), reduction);
        Division { point, launch, row_split: real(wide(width)) > widest }
    }
}

/// What the threads of a division have to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GroupWork {
    /// Threads side by side along the columns of `B`.
    pub(crate) lanes: f64,
    /// Times that they go through the matrix for all columns.
    pub(crate) passes: f64,
    /// Threads of a pass.
    pub(crate) threads: f64,
    /// Entries that one thread takes, one after the other, at most.
    pub(crate) longest: f64,
    pub(crate) divides_entries: bool,
}

/// Columns of a thread, and threads side by side, for a width.
fn side_by_side(width: usize, most_lanes: u32) -> (u32, u32) {
    let columns = match width {
        0 | 1 => 1,
        2 | 3 => 2,
        _ => 4,
    };
    let lanes = narrow(width.clamp(1, 128)).div_ceil(columns).next_power_of_two();
    (columns, lanes.min(most_lanes))
}

/// The tile of a launch, if it is narrower than the width.
fn tile(width: usize, columns: u32) -> Option<u32> {
    (width > columns as usize && columns < 128).then_some(columns)
}

/// Every division that the tree may answer for a width, whatever the thresholds: what has to be measured for a fit.
#[must_use]
pub fn divisions(width: usize) -> Vec<(AtomicParallelism, GroupLaunch)> {
    let powers = || (0..6).map(|log2| 1_u32 << log2);
    let mut found = Vec::new();
    for most_lanes in powers() {
        let (columns, lanes) = side_by_side(width, most_lanes);
        if lanes < most_lanes {
            break;
        }
        let most = 32 / lanes;
        let cols = Share::Whole(columns);
        let rows = powers().filter(|&threads| threads <= most).map(|threads| {
            let share = if threads == 1 { Share::Whole(1) } else { Share::Part(threads) };
            AtomicParallelism::of_powers(MinimalData::Row(share), cols, threads)
        });
        let nonzeros = powers()
            .filter(|&each| each <= MOST_EACH)
            .map(|each| AtomicParallelism::of_powers(MinimalData::Nnz(Share::Whole(each)), cols, most));
        for point in rows.chain(nonzeros) {
            for block_threads in [64, 128, 256] {
                let tile_columns = tile(width, columns * lanes);
                found.push((point, GroupLaunch { block_threads, tile_columns, workers_log2: 0 }));
            }
        }
    }
    found
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
        let before = GroupThresholds::UNFITTED;
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
            let division = lengths.division(width, &before);
            assert_eq!(division.point.to_string(), point, "{lengths:?} {width}");
            assert_eq!((division.launch, division.row_split), (GroupLaunch::default(), width > 8));
        }
    }

    #[test]
    fn blocks_lanes_and_row_split_follow_the_thresholds() {
        let thresholds = GroupThresholds {
            small_blocks: 1e5,
            large_blocks: 1e6,
            most_lanes: 2.0,
            widest_rows: 16.0,
            widest_nonzeros: 4.0,
            ..GroupThresholds::UNFITTED
        };
        let division = |rows: f64, longest: f64, width| {
            RowLengths { rows, nnz: 4.0 * rows, longest }.division(width, &thresholds)
        };
        let shown = |division: Division| format!("{}, <{}>", division.point, division.launch);
        assert_eq!(shown(division(270e3, 4.0, 1)), "{<1 row, 1 col>, 1}, <128, -, 1>");
        assert_eq!(shown(division(2.7e6, 4.0, 1)), "{<1 row, 1 col>, 1}, <256, -, 1>");
        assert_eq!(shown(division(1e3, 4.0, 1)), "{<1/4 row, 1 col>, 4}, <64, -, 1>");
        assert_eq!(shown(division(1e6, 1e6, 32)), "{<8 nnz, 4 col>, 16}, <256, 8, 1>");
        assert!(!division(1e3, 4.0, 16).row_split && division(1e3, 4.0, 17).row_split);
        assert!(!division(1e3, 1e6, 4).row_split && division(1e3, 1e6, 5).row_split);
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
    fn every_division_is_legal_and_among_those_that_are_listed() {
        for most_lanes in [1.0, 4.0, 32.0] {
            let blocks = [(0.0, f64::INFINITY), (f64::INFINITY, f64::INFINITY), (0.0, 0.0)];
            for (small_blocks, large_blocks) in blocks {
                let thresholds = GroupThresholds {
                    most_lanes,
                    small_blocks,
                    large_blocks,
                    most_each: 32.0,
                    ..GroupThresholds::FITTED
                };
                for width in [0, 1, 2, 3, 4, 5, 31, 64, 127, 129, 5000] {
                    let all = divisions(width);
                    for rows in [1.0, 100.0, 1e7] {
                        for nnz in [0.0, 1.0, 1e4, 1e9] {
                            for longest in [0.0, nnz / rows, nnz] {
                                let lengths = RowLengths { rows, nnz, longest };
                                let Division { point, launch, .. } = lengths.division(width, &thresholds);
                                assert_eq!(point.to_string().parse(), Ok(point));
                                launch.check(point).unwrap();
                                assert!(all.contains(&(point, launch)), "{point} {launch} at {width}");
                            }
                        }
                    }
                }
            }
        }
    }
}

//! The candidates of a matrix and a width: algorithms, points of Sgap's space, launches; and who is next to whom.

use std::fmt;

use windrow::tree::{Division, RowLengths, Thresholds};
use windrow::{
    Algorithm, AtomicParallelism, CpuTasks, Csr, DeviceKind, Family, GroupLaunch, MinimalData, RowDivision,
    Share, SpmmOptions, TileValues, Value,
};

use crate::measure::path::SweepPath;

/// Threads of a block that are tried.
const BLOCKS: [u32; 4] = [64, 128, 256, 512];
/// Ranges of rows for each thread of a CPU that are tried at most, and columns of its tiles at least.
const MOST_RANGES: u32 = 128;
const LEAST_TILE: usize = 16;
/// Entries of pieces of rows that are tried, and columns of slices.
const PIECES: [u32; 7] = [u32::MAX, 1024, 512, 256, 128, 64, 32];
const SLICES: [u32; 4] = [256, 128, 64, 32];
/// Least share of workers that is tried, as a logarithm.
const FEWEST_WORKERS_LOG2: i32 = -4;

/// What paths are compared within: an algorithm, of segment groups the kind of point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathFamily {
    algorithm: Algorithm,
    of_points: Option<Family>,
}

impl PathFamily {
    /// The family of a path.
    #[must_use]
    pub fn of(path: &SweepPath) -> Self {
        let SpmmOptions { algorithm, parallelism, .. } = path.options;
        Self { algorithm, of_points: parallelism.map(AtomicParallelism::family) }
    }
}

impl fmt::Display for PathFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of_points {
            Some(family) => f.pad(&format!("{} {family}", self.algorithm)),
            None => f.pad(&self.algorithm.to_string()),
        }
    }
}

/// What is tried first: one of every family, and what the tree weighs against each other.
pub(crate) fn seeds<V: Value>(
    base: SweepPath,
    csr: &Csr<V>,
    width: usize,
    kind: DeviceKind,
) -> Vec<SweepPath> {
    if kind == DeviceKind::Cpu {
        return Vec::new(); // the default's neighbours are all that there is
    }
    let precision = base.options.precision;
    let by = |algorithm| SpmmOptions { algorithm, ..base.options };
    let of_rows = by(Algorithm::RowSplit);
    let whole = RowDivision { piece_entries: Some(u32::MAX), ..RowDivision::default() };
    let mut seeds = vec![of_rows.into(), SpmmOptions { row_division: whole, ..of_rows }.into()];
    if Algorithm::SegmentGroup.supports(precision) {
        seeds.extend(group_seeds(by(Algorithm::SegmentGroup), csr, width));
    }
    let others = Algorithm::ALL.into_iter().filter(|algorithm| {
        !matches!(algorithm, Algorithm::Auto | Algorithm::RowSplit | Algorithm::SegmentGroup)
            && algorithm.supports(precision)
    });
    seeds.extend(others.map(|algorithm| SweepPath::from(by(algorithm))));
    seeds
}

/// The tree's division, its likes with the other data, and a serial one.
fn group_seeds<V: Value>(base: SpmmOptions, csr: &Csr<V>, width: usize) -> Vec<SweepPath> {
    let lengths = RowLengths::of(csr);
    let rows_always = Thresholds { longest_each: f64::INFINITY, ..Thresholds::FITTED };
    let never = Thresholds { longest_each: -1.0, longest_of_alike_each: -1.0, ..Thresholds::FITTED };
    let one_lane = |thresholds: Thresholds| Thresholds { most_lanes: 1.0, ..thresholds };
    let all = [Thresholds::FITTED, rows_always, never, one_lane(rows_always), one_lane(never)];
    let mut divisions: Vec<_> = all
        .map(|thresholds| {
            let Division { point, launch, .. } = lengths.division(width, &thresholds);
            (point, launch)
        })
        .to_vec();
    let [_, (of_rows, launch), (of_nonzeros, other_launch), ..] = divisions[..] else { return Vec::new() };
    let whole = AtomicParallelism::new(MinimalData::Row(Share::Whole(1)), of_rows.cols(), 1);
    let serial = AtomicParallelism::new(of_nonzeros.data(), of_nonzeros.cols(), 1);
    let shared = AtomicParallelism::new(MinimalData::Row(Share::Part(4)), of_rows.cols(), 4);
    divisions.extend(whole.into_iter().chain(shared).map(|point| (point, launch)));
    divisions.extend(serial.ok().map(|point| (point, other_launch)));
    divisions.into_iter().map(|division| divided(base, division)).collect()
}

/// Segment groups that are told how to divide the work.
fn divided(base: SpmmOptions, (point, launch): (AtomicParallelism, GroupLaunch)) -> SweepPath {
    SpmmOptions { parallelism: Some(point), group_launch: Some(launch), ..base }.into()
}

/// Paths that differ from `path` in one step of one parameter.
pub(crate) fn neighbours(path: SweepPath, width: usize) -> Vec<SweepPath> {
    let options = path.options;
    if let Some(tasks) = options.cpu_tasks {
        let near = tasks_near(tasks, width).into_iter();
        return near.map(|tasks| SpmmOptions { cpu_tasks: Some(tasks), ..options }.into()).collect();
    }
    match (options.algorithm, options.parallelism) {
        (Algorithm::SegmentGroup, Some(point)) => {
            let launch = options.group_launch.unwrap_or_default();
            let points = points_near(point).into_iter().map(|point| (point, launch));
            let launches = launches_near(launch, point, width).into_iter().map(|launch| (point, launch));
            let all = points.chain(launches).filter(|&near| fits(near, width));
            all.map(|near| divided(options, near)).collect()
        }
        (Algorithm::RowSplit, _) => {
            let near = rows_near(options.row_division, width).into_iter();
            near.map(|row_division| SpmmOptions { row_division, ..options }.into()).collect()
        }
        (Algorithm::TileStream | Algorithm::Hybrid, _) if options.tile_values == TileValues::Auto => {
            let forms = [TileValues::Dense, TileValues::Packed];
            forms.map(|tile_values| SpmmOptions { tile_values, ..options }.into()).to_vec()
        }
        _ => Vec::new(),
    }
}

/// Whether the tile of a launch is one for the point and narrower than the width, and its columns are no more than
/// there are.
fn fits((point, launch): (AtomicParallelism, GroupLaunch), width: usize) -> bool {
    let columns = point.columns_per_thread();
    columns as usize <= width.next_power_of_two() && launch.tile_columns.is_none_or(|tile| tile >= columns)
}

/// Divisions of row-split that differ in one number: from none given to any, else to the next.
fn rows_near(rows: RowDivision, width: usize) -> Vec<RowDivision> {
    let RowDivision { piece_entries, slice_columns, several_ways } = rows;
    let next_to = |given: Option<u32>, all: &[u32]| -> Vec<Option<u32>> {
        match given.and_then(|given| all.iter().position(|&value| value == given)) {
            None => all.iter().copied().map(Some).collect(),
            Some(at) => {
                let beside = [at.checked_sub(1), Some(at + 1)];
                beside.into_iter().flatten().filter_map(|at| all.get(at)).copied().map(Some).collect()
            }
        }
    };
    let slices: Vec<u32> = SLICES.into_iter().filter(|&columns| (columns as usize) < width).collect();
    let pieces = next_to(piece_entries, &PIECES).into_iter();
    let mut near: Vec<_> = pieces.map(|piece_entries| RowDivision { piece_entries, ..rows }).collect();
    let slices = next_to(slice_columns, &slices).into_iter();
    near.extend(slices.map(|slice_columns| RowDivision { slice_columns, ..rows }));
    let ways = [Some(false), Some(true)].into_iter().filter(|&ways| ways != several_ways);
    near.extend(ways.map(|several_ways| RowDivision { several_ways, ..rows }));
    near
}

/// Twice and half of a share; beyond 1 it turns from parts to wholes.
fn shares_near(share: Share) -> Vec<Share> {
    match share {
        Share::Part(2) => vec![Share::Part(4), Share::Whole(1)],
        Share::Part(n) => vec![Share::Part(2 * n), Share::Part(n / 2)],
        Share::Whole(1) => vec![Share::Part(2), Share::Whole(2)],
        Share::Whole(n) => vec![Share::Whole(2 * n), Share::Whole(n / 2)],
    }
}

/// Legal points one step away. A reduction by all threads of a row stays one.
fn points_near(point: AtomicParallelism) -> Vec<AtomicParallelism> {
    let (data, cols, reduction) = (point.data(), point.cols(), point.reduction());
    let all_reduce = point.threads_per_row() == Some(reduction);
    let mut near = Vec::new();
    let mut add = |data, cols, reduction| near.extend(AtomicParallelism::new(data, cols, reduction).ok());
    for share in shares_near(data.share()) {
        let data = match data {
            MinimalData::Nnz(_) => MinimalData::Nnz(share),
            MinimalData::Row(_) => MinimalData::Row(share),
        };
        let shared = matches!(data, MinimalData::Row(_)) && matches!(cols, Share::Whole(_));
        add(data, cols, if all_reduce && shared { share.threads() } else { reduction });
    }
    for reduction in [2 * reduction, reduction / 2] {
        add(data, cols, reduction);
    }
    for share in shares_near(cols) {
        add(data, share, reduction);
    }
    near
}

/// Launches one step away.
fn launches_near(launch: GroupLaunch, point: AtomicParallelism, width: usize) -> Vec<GroupLaunch> {
    let blocks = [2 * launch.block_threads, launch.block_threads / 2];
    let blocks = blocks.into_iter().filter(|threads| BLOCKS.contains(threads));
    let mut near: Vec<_> = blocks.map(|block_threads| GroupLaunch { block_threads, ..launch }).collect();
    let narrower = |tile: u32| tile >= point.columns_per_thread() && (tile as usize) < width;
    let tiles = match launch.tile_columns {
        // As many columns as lanes of a warp allow.
        None => vec![Some(launched_columns(point, width) / 2)],
        Some(tile) if (2 * tile as usize) < width => vec![Some(2 * tile), Some(tile / 2)],
        Some(tile) => vec![None, Some(tile / 2)],
    };
    let tiles = tiles.into_iter().filter(|tile| tile.is_none_or(narrower));
    near.extend(tiles.map(|tile_columns| GroupLaunch { tile_columns, ..launch }));
    let workers = [launch.workers_log2 - 1, launch.workers_log2 + 1].into_iter();
    let workers = workers.filter(|log2| (FEWEST_WORKERS_LOG2..=0).contains(log2));
    near.extend(workers.map(|workers_log2| GroupLaunch { workers_log2, ..launch }));
    near
}

/// Ways to deal a product out to the CPU's threads that are one step away.
fn tasks_near(tasks: CpuTasks, width: usize) -> Vec<CpuTasks> {
    let CpuTasks { ranges_per_thread, tile_columns } = tasks;
    let ranges = [2 * ranges_per_thread, ranges_per_thread / 2];
    let ranges = ranges.into_iter().filter(|ranges| (1..=MOST_RANGES).contains(ranges));
    let mut near: Vec<_> = ranges.map(|ranges_per_thread| CpuTasks { ranges_per_thread, ..tasks }).collect();
    let tiles = match tile_columns {
        None => vec![Some((width / 2).next_power_of_two())],
        Some(tile) if 2 * tile < width => vec![Some(2 * tile), Some(tile / 2)],
        Some(tile) => vec![None, Some(tile / 2)],
    };
    let tiles = tiles.into_iter().filter(|tile| tile.is_none_or(|tile| tile >= LEAST_TILE && tile < width));
    near.extend(tiles.map(|tile_columns| CpuTasks { tile_columns, ..tasks }));
    near
}

/// Columns that threads of a group side by side have, unless told.
fn launched_columns(point: AtomicParallelism, width: usize) -> u32 {
    let threads = point.threads_per_row().unwrap_or(1).max(point.reduction());
    let columns = point.columns_per_thread();
    let wanted = u32::try_from(width.clamp(1, 128)).unwrap_or(128).div_ceil(columns).next_power_of_two();
    columns * wanted.min(32 / threads)
}

/// Every path that has to be measured for a fit of the tree: row-split, and all divisions of the tree.
pub(crate) fn grid(base: SweepPath, width: usize) -> Vec<SweepPath> {
    let by = |algorithm| SpmmOptions { algorithm, ..base.options };
    let divisions = windrow::tree::divisions(width).into_iter();
    let groups = divisions.map(|division| divided(by(Algorithm::SegmentGroup), division));
    std::iter::once(by(Algorithm::RowSplit).into()).chain(groups).collect()
}

#[cfg(test)]
mod tests {
    use windrow::Precision;

    use super::*;

    fn near(text: &str, width: usize) -> Vec<String> {
        let path: SweepPath = text.parse().unwrap();
        let near = neighbours(path, width);
        assert!(near.iter().all(|neighbour| *neighbour != path), "{text} is beside itself");
        near.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_step_changes_one_number_of_a_point_or_its_launch() {
        let all = near("segment-group-f32+point:1/4row:4col:4+launch:128:-:1", 8);
        let expected = [
            "1/8row:4col:8+launch:128:-:1",
            "1/2row:4col:2+launch:128:-:1",
            "1/4row:4col:2+launch:128:-:1",
            "1/4row:2col:4+launch:128:-:1",
            "1/4row:4col:4+launch:256:-:1",
            "1/4row:4col:4+launch:64:-:1",
            "1/4row:4col:4+launch:128:4:1",
            "1/4row:4col:4+launch:128:-:1/2",
        ];
        assert_eq!(all, expected.map(|text| format!("segment-group-f32+point:{text}")));
        let all = near("segment-group-f16+fast+point:8nnz:1col:1+launch:512:-:1/16", 1);
        let expected = [
            "16nnz:1col:1+launch:512:-:1/16",
            "4nnz:1col:1+launch:512:-:1/16",
            "8nnz:1col:2+launch:512:-:1/16",
            "8nnz:1col:1+launch:256:-:1/16",
            "8nnz:1col:1+launch:512:-:1/8",
        ];
        assert_eq!(all, expected.map(|text| format!("segment-group-f16+fast+point:{text}")));
    }

    #[test]
    fn rows_tasks_and_tiles_have_neighbours_too() {
        assert_eq!(near("row-split-f32", 64).len(), PIECES.len() + 1 + 2);
        let all = near("row-split-f32+rows:256:32:1", 128);
        let expected = ["512:32:1", "128:32:1", "256:64:1", "256:32:0"];
        assert_eq!(all, expected.map(|text| format!("row-split-f32+rows:{text}")));
        let all = near("row-split-f32+tasks:8:-", 64);
        assert_eq!(all, ["16:-", "4:-", "8:32"].map(|text| format!("row-split-f32+tasks:{text}")));
        assert_eq!(near("row-split-f32+tasks:1:-", 8), ["row-split-f32+tasks:2:-"]);
        assert_eq!(near("tile-stream-f16", 64), ["tile-stream-f16+dense", "tile-stream-f16+packed"]);
        assert!(near("short-rows-f32", 64).is_empty());
    }

    #[test]
    fn seeds_have_every_algorithm_and_every_sort_of_point() {
        let csr = Csr::<f32>::identity(100).unwrap();
        for precision in Precision::ALL {
            let base = SweepPath::new(Algorithm::Auto, precision);
            let seeds = seeds(base, &csr, 4, DeviceKind::Cuda);
            for algorithm in Algorithm::ALL {
                let expected = algorithm != Algorithm::Auto && algorithm.supports(precision);
                let found = seeds.iter().any(|path| path.options.algorithm == algorithm);
                assert_eq!(found, expected, "{algorithm}");
            }
            let groups = || seeds.iter().filter(|path| path.options.algorithm == Algorithm::SegmentGroup);
            let is_told =
                |path: &SweepPath| path.options.parallelism.and(path.options.group_launch).is_some();
            assert!(groups().all(is_told));
            let sorts: std::collections::HashSet<_> = groups().map(PathFamily::of).collect();
            let expected = if Algorithm::SegmentGroup.supports(precision) { Family::ALL.len() } else { 0 };
            assert_eq!(sorts.len(), expected, "{sorts:?}");
            assert!(super::seeds(base, &csr, 4, DeviceKind::Cpu).is_empty());
        }
    }
}

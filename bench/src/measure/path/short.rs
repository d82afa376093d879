//! Options that have a short name in a path: `+rcm`, `+point:1/8row:4col:8`.

use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::reorder::{self, Method};
use windrow::{
    Algorithm, AtomicParallelism, CpuTasks, Determinism, GroupLaunch, RowDivision, SpmmOptions, TilePipeline,
    TileValues,
};

use super::NAMED_SCHEDULES;

/// Short names for an option.
pub(super) struct Short {
    /// Whether the option means something to an algorithm, and what is said where it does not.
    pub(super) suits: fn(Algorithm) -> bool,
    pub(super) suits_only: &'static str,
    /// What is said of a second one.
    pub(super) twice: &'static str,
    /// The options with that of the name; `None` of another option's name, else an error that says what is expected.
    pub(super) read: fn(&str, SpmmOptions) -> Option<Result<SpmmOptions, &'static str>>,
    /// The name, if there is one for what the options say; [`read`](Self::read) takes it back to just that.
    pub(super) write: fn(&SpmmOptions) -> Option<String>,
}

/// The names, to be told to those who use another.
pub(super) const NAMES: &str = "reorder, minhash, rcm, community, degree, fast, window-each, dense, packed, bitmap, two-stages, \
                                registers, sequential, multi-stream, thresholds, vectors, point, launch, rows, tasks, autotune, runs and column-major";

/// The orders that a path may name.
pub(super) const ORDERS: [(Method, &str); 5] = [
    (Method::Similarity, "reorder"),
    (Method::MinHash, "minhash"),
    (Method::ReverseCuthillMckee, "rcm"),
    (Method::Community, "community"),
    (Method::Degree, "degree"),
];
/// The forms of tile values that a path may name.
pub(super) const FORMS: [(TileValues, &str); 3] =
    [(TileValues::Dense, "dense"), (TileValues::Packed, "packed"), (TileValues::Bitmap, "bitmap")];
/// The pipelines of tiles that a path may name.
pub(super) const PIPELINES: [TilePipeline; 2] = [TilePipeline::TwoStages, TilePipeline::Registers];
const FAST: &str = "fast";
const WINDOW_EACH: &str = "window-each";
const VECTORS: &str = "vectors";
const POINT: &str = "point:";
const LAUNCH: &str = "launch:";
const ROWS: &str = "rows:";
const TASKS: &str = "tasks:";
const RUNS: &str = "runs:";
const AUTOTUNE: &str = "autotune";

const TWICE: &str = "an option is given twice";

/// All of them, in the order in which a path is written.
pub(super) const SHORTS: [Short; 13] = [
    Short {
        suits: |_| true,
        suits_only: "",
        twice: "rows have one order",
        read: |name, options| {
            let (method, _) = ORDERS.into_iter().find(|(_, known)| *known == name)?;
            Some(Ok(SpmmOptions { reorder: Some(ordered(method)), ..options }))
        },
        write: |options| {
            let mut orders = ORDERS.into_iter();
            let (_, name) = orders.find(|(method, _)| options.reorder == Some(ordered(*method)))?;
            Some(name.to_owned())
        },
    },
    Short {
        suits: |_| true,
        suits_only: "",
        twice: TWICE,
        read: |name, options| {
            (name == FAST).then_some(Ok(SpmmOptions { determinism: Determinism::Fast, ..options }))
        },
        write: |options| (options.determinism == Determinism::Fast).then(|| FAST.to_owned()),
    },
    Short {
        suits: |algorithm| matches!(algorithm, Algorithm::TileStream | Algorithm::Hybrid),
        suits_only: "only tile-stream and hybrid always have windows",
        twice: TWICE,
        read: |name, options| {
            (name == WINDOW_EACH).then_some(Ok(SpmmOptions { window_each: true, ..options }))
        },
        write: |options| options.window_each.then(|| WINDOW_EACH.to_owned()),
    },
    Short {
        suits: |algorithm| !matches!(algorithm, Algorithm::RowSplit | Algorithm::ShortRows),
        suits_only: "there are no tiles",
        twice: "values have one form",
        read: |name, options| {
            let (tile_values, _) = FORMS.into_iter().find(|(_, known)| *known == name)?;
            Some(Ok(SpmmOptions { tile_values, ..options }))
        },
        write: |options| {
            let (_, name) = FORMS.into_iter().find(|(form, _)| *form == options.tile_values)?;
            Some(name.to_owned())
        },
    },
    Short {
        suits: |algorithm| !matches!(algorithm, Algorithm::RowSplit | Algorithm::ShortRows),
        suits_only: "there are no tiles",
        twice: "tiles have one pipeline",
        read: |name, options| {
            let tile_pipeline = PIPELINES.into_iter().find(|pipeline| pipeline.to_string() == name)?;
            Some(Ok(SpmmOptions { tile_pipeline, ..options }))
        },
        write: |options| {
            PIPELINES.contains(&options.tile_pipeline).then(|| options.tile_pipeline.to_string())
        },
    },
    Short {
        suits: |algorithm| algorithm == Algorithm::Hybrid,
        suits_only: "only hybrid has two parts",
        twice: "parts have one schedule",
        read: |name, options| {
            let schedule = NAMED_SCHEDULES.into_iter().find(|schedule| schedule.to_string() == name)?;
            Some(Ok(SpmmOptions { schedule, ..options }))
        },
        write: |options| NAMED_SCHEDULES.contains(&options.schedule).then(|| options.schedule.to_string()),
    },
    Short {
        suits: |algorithm| algorithm == Algorithm::Hybrid,
        suits_only: "only hybrid is divided",
        twice: TWICE,
        read: |name, options| {
            let threshold = match name.strip_prefix(VECTORS)?.strip_prefix(':') {
                None if name == VECTORS => Ok(VectorThreshold::LIBRA),
                None => return None,
                Some(threshold) => threshold.parse().map_err(|_| "thresholds are 1/8 to 8/8"),
            };
            let rule = |threshold| PartitionRule::ColumnVectors { threshold };
            Some(threshold.map(|threshold| SpmmOptions { partition: Some(rule(threshold)), ..options }))
        },
        write: |options| match options.partition {
            Some(PartitionRule::ColumnVectors { threshold: VectorThreshold::LIBRA }) => {
                Some(VECTORS.to_owned())
            }
            Some(PartitionRule::ColumnVectors { threshold }) => Some(format!("{VECTORS}:{threshold}")),
            _ => None,
        },
    },
    Short {
        suits: |algorithm| algorithm == Algorithm::SegmentGroup,
        suits_only: "only segment-group has points",
        twice: TWICE,
        read: |name, options| {
            let point = parse_point(name.strip_prefix(POINT)?);
            let told = |point| SpmmOptions { parallelism: Some(point), ..options };
            Some(point.map(told).ok_or("points are as 1/8row:4col:8, and legal"))
        },
        write: |options| {
            let shown = options.parallelism?.to_string();
            let plain = shown.trim_start_matches("{<").trim_end_matches('}').replace('>', "");
            Some(format!("{POINT}{}", with_colons(&plain)))
        },
    },
    Short {
        suits: |algorithm| algorithm == Algorithm::SegmentGroup,
        suits_only: "only segment-group has such launches",
        twice: TWICE,
        read: |name, options| {
            let launch = parse_launch(name.strip_prefix(LAUNCH)?);
            let told = |launch| SpmmOptions { group_launch: Some(launch), ..options };
            Some(launch.map(told).ok_or("launches are as 256:8:1/2 or 256:-:1"))
        },
        write: |options| Some(format!("{LAUNCH}{}", with_colons(&options.group_launch?.to_string()))),
    },
    Short {
        suits: |algorithm| algorithm == Algorithm::RowSplit,
        suits_only: "only row-split divides rows so",
        twice: TWICE,
        read: |name, options| {
            let division = parse_rows(name.strip_prefix(ROWS)?);
            let told = |row_division| SpmmOptions { row_division, ..options };
            Some(division.map(told).ok_or("divisions of rows are as 64:32:1 or whole:-:-"))
        },
        write: |options| {
            let division = options.row_division;
            let given = division != RowDivision::default();
            given.then(|| format!("{ROWS}{}", with_colons(&division.to_string())))
        },
    },
    Short {
        suits: |_| true,
        suits_only: "",
        twice: TWICE,
        read: |name, options| {
            let tasks = parse_tasks(name.strip_prefix(TASKS)?);
            let told = |tasks| SpmmOptions { cpu_tasks: Some(tasks), ..options };
            Some(tasks.map(told).ok_or("tasks are as 8:64 or 8:-"))
        },
        write: |options| Some(format!("{TASKS}{}", with_colons(&options.cpu_tasks?.to_string()))),
    },
    Short {
        suits: |algorithm| algorithm == Algorithm::Auto,
        suits_only: "only auto chooses",
        twice: TWICE,
        read: |name, options| (name == AUTOTUNE).then_some(Ok(SpmmOptions { autotune: true, ..options })),
        write: |options| options.autotune.then(|| AUTOTUNE.to_owned()),
    },
    Short {
        suits: |algorithm| algorithm == Algorithm::Auto,
        suits_only: "only auto chooses",
        twice: TWICE,
        read: |name, options| {
            let runs = name.strip_prefix(RUNS)?.parse();
            let told = |runs| SpmmOptions { expected_runs: Some(runs), ..options };
            Some(runs.map(told).map_err(|_| "expected products are a number"))
        },
        write: |options| options.expected_runs.map(|runs| format!("{RUNS}{runs}")),
    },
];

fn ordered(method: Method) -> reorder::Options {
    reorder::Options { method, ..reorder::Options::default() }
}

/// What is shown as `256, 8, 1/2`, without commas and spaces: commas separate paths.
fn with_colons(shown: &str) -> String {
    shown.replace(',', ":").replace(' ', "")
}

/// A point as paths write it: `1/8row:4col:8`.
fn parse_point(text: &str) -> Option<AtomicParallelism> {
    let mut pieces = text.split(':');
    let (data, cols, reduction) = (pieces.next()?, pieces.next()?, pieces.next()?);
    let spaced = |piece: &str| {
        let unit = piece.find(|c: char| c.is_ascii_alphabetic())?;
        Some(format!("{} {}", &piece[..unit], &piece[unit..]))
    };
    let point = format!("{{<{}, {}>, {reduction}}}", spaced(data)?, spaced(cols)?);
    point.parse().ok().filter(|_| pieces.next().is_none())
}

/// A launch as paths write it: `256:8:1/2`, `256:-:1`.
fn parse_launch(text: &str) -> Option<GroupLaunch> {
    let mut pieces = text.split(':');
    let block_threads = pieces.next()?.parse().ok()?;
    let tile_columns = match pieces.next()? {
        "-" => None,
        columns => Some(columns.parse().ok()?),
    };
    let workers = pieces.next()?;
    let share: u64 = workers.strip_prefix("1/").unwrap_or(workers).parse().ok()?;
    let workers_log2 = -i32::try_from(share.checked_ilog2()?).ok()?;
    let launch = GroupLaunch { block_threads, tile_columns, workers_log2 };
    (share.is_power_of_two() && pieces.next().is_none()).then_some(launch)
}

/// A division of rows as paths write it: `64:32:1`, `whole:-:-`.
fn parse_rows(text: &str) -> Option<RowDivision> {
    let given = |text: &str| match text {
        "-" => Some(None),
        text => text.parse().ok().map(Some),
    };
    let mut pieces = text.split(':');
    let piece_entries = match pieces.next()? {
        "whole" => Some(u32::MAX),
        text => given(text)?,
    };
    let slice_columns = given(pieces.next()?)?;
    let several_ways = given(pieces.next()?)?.map(|ways: u32| ways != 0);
    pieces.next().is_none().then_some(RowDivision { piece_entries, slice_columns, several_ways })
}

/// Tasks as paths write them: `8:64`, `8:-`.
fn parse_tasks(text: &str) -> Option<CpuTasks> {
    let (ranges, columns) = text.split_once(':')?;
    let tile_columns = match columns {
        "-" => None,
        columns => Some(columns.parse().ok()?),
    };
    Some(CpuTasks { ranges_per_thread: ranges.parse().ok()?, tile_columns })
}

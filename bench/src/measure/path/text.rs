//! Paths as text: `hybrid-f16+rcm+fast`.

use std::fmt;
use std::str::FromStr;

use windrow::partition::VectorThreshold;
use windrow::reorder::Method;
use windrow::{
    Algorithm, AtomicParallelism, CpuTasks, Determinism, GroupLaunch, RowDivision, Schedule, TileValues,
};

use super::{SCHEDULES, SweepPath};
use crate::measure::error::BenchError;

/// The orders that a path may name, each with its option.
pub(super) const ORDERS: [(Method, &str); 4] = [
    (Method::Similarity, "reorder"),
    (Method::ReverseCuthillMckee, "rcm"),
    (Method::Community, "community"),
    (Method::Degree, "degree"),
];
const FAST: &str = "fast";
const WINDOW_EACH: &str = "window-each";
const VECTORS: &str = "vectors";
const POINT: &str = "point:";
const LAUNCH: &str = "launch:";
const COLUMN_MAJOR: &str = "column-major";
const TASKS: &str = "tasks:";
const ROWS: &str = "rows:";
const OPTIONS: &str = "options are reorder, rcm, community, degree, fast, window-each, dense, packed, sequential, multi-stream, vectors, point, launch, rows, tasks and column-major";
/// The forms of tile values that a path may name.
pub(super) const FORMS: [(TileValues, &str); 2] =
    [(TileValues::Dense, "dense"), (TileValues::Packed, "packed")];

impl SweepPath {
    /// With one more option.
    fn with(mut self, option: &str) -> Result<Self, &'static str> {
        if let Some(&(method, _)) = ORDERS.iter().find(|(_, name)| *name == option) {
            return match self.order.replace(method) {
                None => Ok(self),
                Some(_) => Err("rows have one order"),
            };
        }
        if let Some(&(form, _)) = FORMS.iter().find(|(_, name)| *name == option) {
            return match (self.tile_values, self.algorithm) {
                (_, Algorithm::RowSplit | Algorithm::ShortRows) => Err("there are no tiles"),
                (TileValues::Auto, _) => Ok(Self { tile_values: form, ..self }),
                _ => Err("values have one form"),
            };
        }
        if let Some(schedule) = SCHEDULES.into_iter().find(|schedule| schedule.to_string() == option) {
            return match (self.algorithm, self.schedule) {
                (Algorithm::Hybrid, Schedule::Auto) => Ok(Self { schedule, ..self }),
                (Algorithm::Hybrid, _) => Err("parts have one schedule"),
                _ => Err("only hybrid has two parts"),
            };
        }
        if let Some(point) = option.strip_prefix(POINT) {
            return match (self.algorithm, self.point, parse_point(point)) {
                (Algorithm::SegmentGroup, None, Some(point)) => Ok(Self { point: Some(point), ..self }),
                (Algorithm::SegmentGroup, Some(_), _) => Err("an option is given twice"),
                (Algorithm::SegmentGroup, None, None) => Err("points are as 1/8row:4col:8, and legal"),
                _ => Err("only segment-group has points"),
            };
        }
        if let Some(launch) = option.strip_prefix(LAUNCH) {
            return match (self.algorithm, self.launch, parse_launch(launch)) {
                (Algorithm::SegmentGroup, None, Some(launch)) => Ok(Self { launch: Some(launch), ..self }),
                (Algorithm::SegmentGroup, Some(_), _) => Err("an option is given twice"),
                (Algorithm::SegmentGroup, None, None) => Err("launches are as 256:8:1/2 or 256:-:1"),
                _ => Err("only segment-group has such launches"),
            };
        }
        if let Some(rows) = option.strip_prefix(ROWS) {
            return match (self.algorithm, parse_rows(rows)) {
                (Algorithm::RowSplit, Some(rows)) if self.rows == RowDivision::default() => {
                    Ok(Self { rows, ..self })
                }
                (Algorithm::RowSplit, Some(_)) => Err("an option is given twice"),
                (Algorithm::RowSplit, None) => Err("divisions of rows are as 64:32:1 or whole:-:-"),
                _ => Err("only row-split divides rows so"),
            };
        }
        if let Some(tasks) = option.strip_prefix(TASKS) {
            return match (self.tasks, parse_tasks(tasks)) {
                (None, Some(tasks)) => Ok(Self { tasks: Some(tasks), ..self }),
                (Some(_), _) => Err("an option is given twice"),
                (None, None) => Err("tasks are as 8:64 or 8:-"),
            };
        }
        if let Some(threshold) = option.strip_prefix(VECTORS) {
            let threshold = match threshold.strip_prefix(':') {
                None if threshold.is_empty() => Ok(VectorThreshold::LIBRA),
                None => return Err(OPTIONS),
                Some(threshold) => threshold.parse(),
            };
            return match (threshold, self.algorithm, self.vectors) {
                (Err(_), ..) => Err("thresholds are 1/8 to 8/8"),
                (_, _, Some(_)) => Err("an option is given twice"),
                (Ok(threshold), Algorithm::Hybrid, None) => Ok(Self { vectors: Some(threshold), ..self }),
                _ => Err("only hybrid is divided"),
            };
        }
        match option {
            FAST if self.determinism == Determinism::Fast => Err("an option is given twice"),
            FAST => Ok(Self { determinism: Determinism::Fast, ..self }),
            WINDOW_EACH if self.window_each => Err("an option is given twice"),
            WINDOW_EACH if !matches!(self.algorithm, Algorithm::TileStream | Algorithm::Hybrid) => {
                Err("only tile-stream and hybrid always have windows")
            }
            WINDOW_EACH => Ok(Self { window_each: true, ..self }),
            COLUMN_MAJOR if self.algorithm != Algorithm::MatricizedRows => {
                Err("only matricized-rows takes a column-major B")
            }
            COLUMN_MAJOR if self.column_major => Err("an option is given twice"),
            COLUMN_MAJOR => Ok(Self { column_major: true, ..self }),
            _ => Err(OPTIONS),
        }
    }
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

impl fmt::Display for SweepPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{}-{}", self.algorithm, self.precision);
        let mut option = |name: &str| {
            text.push('+');
            text.push_str(name);
        };
        if let Some((_, name)) = ORDERS.iter().find(|(method, _)| Some(*method) == self.order) {
            option(name);
        }
        if self.determinism == Determinism::Fast {
            option(FAST);
        }
        if self.window_each {
            option(WINDOW_EACH);
        }
        if let Some((_, name)) = FORMS.iter().find(|(form, _)| *form == self.tile_values) {
            option(name);
        }
        if self.schedule != Schedule::Auto {
            option(&self.schedule.to_string());
        }
        match self.vectors {
            Some(VectorThreshold::LIBRA) => option(VECTORS),
            Some(threshold) => option(&format!("{VECTORS}:{threshold}")),
            None => {}
        }
        let name = |shown: String, separator: &str| shown.replace(separator, ":").replace(' ', "");
        if let Some(point) = self.point {
            let shown = point.to_string();
            let plain = shown.trim_start_matches("{<").trim_end_matches('}').replace('>', "");
            option(&format!("{POINT}{}", name(plain, ",")));
        }
        if let Some(launch) = self.launch {
            option(&format!("{LAUNCH}{}", name(launch.to_string(), ",")));
        }
        if self.rows != RowDivision::default() {
            option(&format!("{ROWS}{}", name(self.rows.to_string(), ",")));
        }
        if let Some(tasks) = self.tasks {
            option(&format!("{TASKS}{}", name(tasks.to_string(), ",")));
        }
        if self.column_major {
            option(COLUMN_MAJOR);
        }
        f.pad(&text)
    }
}

impl FromStr for SweepPath {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let mut pieces = text.split('+');
        let name = pieces.next().unwrap_or_default();
        let plain = Self::all().find(|path| path.to_string() == name).ok_or_else(|| {
            let known = Self::all().map(|path| path.to_string()).collect::<Vec<_>>().join(", ");
            BenchError::UnknownPath { text: text.to_owned(), known }
        })?;
        pieces.try_fold(plain, |path, option| {
            path.with(option).map_err(|why| BenchError::PathOption {
                text: text.to_owned(),
                option: option.to_owned(),
                why,
            })
        })
    }
}

//! The ways to a product that a sweep compares.

use std::fmt;
use std::str::FromStr;

use windrow::partition::{PartitionRule, VectorThreshold};
use windrow::reorder::{self, Method};
use windrow::{
    Algorithm, AtomicParallelism, Choice, CpuTasks, Csr, Determinism, GroupLaunch, Permutation, Precision,
    RowDivision, Schedule, Spmm, SpmmBuilder, TileValues,
};

use crate::error::BenchError;

/// An algorithm in a precision, and how a plan for it is made; written `row-split-f32`, with options behind it:
/// `hybrid-f16+rcm+fast`.
///
/// | option | meaning |
/// | --- | --- |
/// | `+reorder` | rows in the similarity order |
/// | `+rcm`, `+community`, `+degree` | rows in the order of that [`Method`] |
/// | `+fast` | [`Determinism::Fast`] |
/// | `+window-each` | a warp for each window instead of windows dealt out evenly |
/// | `+dense`, `+packed` | the values of tiles in that form ([`TileValues`]) instead of the plan's choice |
/// | `+sequential`, `+multi-stream` | the parts of a hybrid in that [`Schedule`] instead of the plan's choice |
/// | `+vectors`, `+vectors:2/8` | a hybrid divided by column vectors as Libra's are, with its threshold or that one |
/// | `+point:1/8row:4col:8` | segment groups divided as the point `{<1/8 row, 4 col>, 8}` says |
/// | `+launch:256:8:1/2` | their launch: threads of a block, columns of a tile or `-`, share of the workers |
/// | `+column-major` | a column-major `B` |
/// | `+rows:64:32:1` | how row-split divides the work: entries of a piece or `whole`, columns of a slice, whether several ways; `-` for what it prefers |
/// | `+tasks:8:64` | how the CPU deals the product out: ranges of rows a thread, columns of a tile or `-` |
///
/// # Examples
/// ```
/// use windrow_bench::SweepPath;
///
/// let path: SweepPath = "auto-f16+fast+reorder".parse()?;
/// assert_eq!(path.to_string(), "auto-f16+reorder+fast");
/// # Ok::<(), windrow_bench::BenchError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SweepPath {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The type of the values and of `B`.
    pub precision: Precision,
    /// The order of the rows, if not the matrix's own.
    pub order: Option<Method>,
    /// Whether two runs give the same bits.
    pub determinism: Determinism,
    /// Whether each window has a warp of its own.
    pub window_each: bool,
    /// How the values of tiles are held.
    pub tile_values: TileValues,
    /// The threshold of a hybrid that is divided by column vectors.
    pub vectors: Option<VectorThreshold>,
    /// How the parts of a hybrid follow each other.
    pub schedule: Schedule,
    /// How segment groups divide the work, and their launch.
    pub point: Option<AtomicParallelism>,
    /// See [`point`](Self::point).
    pub launch: Option<GroupLaunch>,
    /// How row-split divides the work.
    pub rows: RowDivision,
    /// How the CPU deals the product out.
    pub tasks: Option<CpuTasks>,
    /// Whether `B` is column-major.
    pub column_major: bool,
}

/// The orders that a path may name, each with its option.
const ORDERS: [(Method, &str); 4] = [
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
const FORMS: [(TileValues, &str); 2] = [(TileValues::Dense, "dense"), (TileValues::Packed, "packed")];

/// The schedules that a path may name.
pub(crate) const SCHEDULES: [Schedule; 2] = [Schedule::Sequential, Schedule::MultiStream];

impl SweepPath {
    /// What is measured unless told otherwise.
    pub const DEFAULT: [Self; 5] = [
        Self::new(Algorithm::RowSplit, Precision::F32),
        Self::new(Algorithm::RowSplit, Precision::F16),
        Self::new(Algorithm::TileStream, Precision::F16),
        Self::new(Algorithm::Hybrid, Precision::F16),
        Self::new(Algorithm::Auto, Precision::F16),
    ];

    /// An algorithm without options.
    #[must_use]
    pub const fn new(algorithm: Algorithm, precision: Precision) -> Self {
        Self {
            algorithm,
            precision,
            order: None,
            determinism: Determinism::RunToRun,
            window_each: false,
            tile_values: TileValues::Auto,
            vectors: None,
            schedule: Schedule::Auto,
            point: None,
            launch: None,
            column_major: false,
            rows: RowDivision { piece_entries: None, slice_columns: None, several_ways: None },
            tasks: None,
        }
    }

    /// Every path that has kernels, without options.
    pub fn all() -> impl Iterator<Item = Self> {
        Algorithm::ALL.into_iter().flat_map(|algorithm| {
            Precision::ALL
                .into_iter()
                .filter(move |&precision| algorithm.supports(precision))
                .map(move |precision| Self::new(algorithm, precision))
        })
    }

    /// What [`reorder()`](reorder::reorder) is asked for, if the rows are reordered.
    #[must_use]
    pub fn reordering(&self) -> Option<reorder::Options> {
        self.order.map(|method| reorder::Options { method, ..reorder::Options::default() })
    }

    /// The builder of a plan for it; `order` is the one that [`order`](Self::order) names.
    #[must_use]
    pub fn builder<'a>(
        &self,
        csr: &'a Csr<f32>,
        width: usize,
        order: Option<&'a Permutation>,
    ) -> SpmmBuilder<'a, f32> {
        let builder = Spmm::builder(csr).width(width).precision(self.precision).algorithm(self.algorithm);
        let builder =
            builder.determinism(self.determinism).tile_values(self.tile_values).schedule(self.schedule);
        let builder = builder.row_division(self.rows);
        let builder = match self.tasks {
            Some(tasks) => builder.cpu_tasks(tasks),
            None => builder,
        };
        let builder = match self.launch {
            Some(launch) => builder.group_launch(launch),
            None => builder,
        };
        let builder = match self.point {
            Some(point) => builder.parallelism(point),
            None => builder,
        };
        let builder = if self.window_each { builder.window_each() } else { builder };
        let builder = match self.vectors {
            Some(threshold) => builder.partition(PartitionRule::ColumnVectors { threshold }),
            None => builder,
        };
        match order {
            Some(order) => builder.order(order),
            None => builder,
        }
    }

    /// The way of this path that plans can remember.
    #[must_use]
    pub fn choice(&self) -> Choice {
        Choice {
            order: self.order,
            parallelism: self.point,
            group_launch: self.launch,
            row_division: self.rows,
            tile_values: self.tile_values,
            cpu_tasks: self.tasks,
            ..Choice::of(self.algorithm)
        }
    }

    /// The path of a way that was remembered.
    #[must_use]
    pub fn of_choice(choice: &Choice, precision: Precision, determinism: Determinism) -> Self {
        Self {
            determinism,
            order: choice.order,
            point: choice.parallelism,
            launch: choice.group_launch,
            rows: choice.row_division,
            tile_values: choice.tile_values,
            tasks: choice.cpu_tasks,
            ..Self::new(choice.algorithm, precision)
        }
    }

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

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;

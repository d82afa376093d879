//! Fits the thresholds of the decision tree of segment groups to measured times.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use rayon::prelude::*;
use serde::Deserialize;
use windrow::tree::{Division, RowLengths, Thresholds};
use windrow::{Algorithm, AtomicParallelism, Determinism, GroupLaunch, Precision};

use crate::summary::geometric_mean;
use crate::sweep::{MatrixFacts, SweepPath};
use crate::tuner::TriedFacts;

/// What the tree answers: row-split, or a point and its launch.
type Answer = Option<(AtomicParallelism, GroupLaunch)>;

/// The measured times of one matrix and width.
#[derive(Debug, Clone, PartialEq)]
pub struct FitCase {
    /// The matrix.
    pub matrix: String,
    /// Columns of `B`.
    pub width: usize,
    lengths: RowLengths,
    times: HashMap<Answer, f64>,
    best: f64,
    worst: f64,
}

impl FitCase {
    /// The time of the tree's answer over the best; of one that was not measured, the worst over the best.
    fn loss(&self, thresholds: &Thresholds) -> f64 {
        self.times.get(&self.answer(thresholds)).unwrap_or(&self.worst) / self.best
    }

    fn answer(&self, thresholds: &Thresholds) -> Answer {
        let Division { point, launch, row_split } = self.lengths.division(self.width, thresholds);
        (!row_split).then_some((point, launch))
    }
}

/// Times from the lines of sweeps: [`TuningRecord`](crate::TuningRecord) of `windrow-tuned`, [`Record`](crate::Record)
/// of `windrow-sweep`.
#[derive(Debug, Default)]
pub struct FitData {
    matrices: HashMap<String, (String, RowLengths)>,
    times: BTreeMap<(String, usize), HashMap<Answer, f64>>,
}

impl FitData {
    /// Adds a line of either sort; of products of a precision, with the same bits in every run.
    ///
    /// # Errors
    /// If it is neither.
    pub fn add(&mut self, line: &str, precision: Precision) -> Result<(), serde_json::Error> {
        let Line { matrix, width, result } = serde_json::from_str(line)?;
        let of = (&matrix, width);
        match result {
            LineResult::Tuned { tried } => {
                for TriedFacts { path, median_us, .. } in &tried {
                    self.add_time(of, precision, (path, *median_us));
                }
            }
            LineResult::Swept { path, time } => {
                self.add_time(of, precision, (&path, time.map(|time| time.median_us)));
            }
        }
        Ok(())
    }

    fn add_time(
        &mut self,
        (matrix, width): (&MatrixFacts, usize),
        precision: Precision,
        (path, us): (&str, Option<f64>),
    ) {
        let Some(checksum) = &matrix.checksum else { return };
        if let (Some(rows), Some(nnz), Some(longest)) = (matrix.rows, matrix.nnz, matrix.longest_row) {
            let lengths = RowLengths { rows: rows.max(1) as f64, nnz: nnz as f64, longest: longest as f64 };
            self.matrices.entry(checksum.clone()).or_insert_with(|| (matrix.name.clone(), lengths));
        }
        let (Ok(path), Some(us)) = (path.parse::<SweepPath>(), us) else { return };
        if path.precision != precision || path.determinism != Determinism::RunToRun || path.order.is_some() {
            return;
        }
        let answer = match (path.algorithm, path.point) {
            (Algorithm::RowSplit, _) => None,
            (Algorithm::SegmentGroup, Some(point)) => Some((point, path.launch.unwrap_or_default())),
            _ => return,
        };
        let times = self.times.entry((checksum.clone(), width)).or_default();
        let known = times.entry(answer).or_insert(us);
        *known = known.min(us);
    }

    /// Cases of matrices whose lengths of rows some line has.
    #[must_use]
    pub fn cases(&self) -> Vec<FitCase> {
        let case = |((checksum, width), times): (&(String, usize), &HashMap<Answer, f64>)| {
            let (matrix, lengths) = self.matrices.get(checksum)?.clone();
            let best = times.values().copied().fold(f64::INFINITY, f64::min);
            let worst = times.values().copied().fold(0.0, f64::max);
            Some(FitCase { matrix, width: *width, lengths, times: times.clone(), best, worst })
        };
        self.times.iter().filter_map(case).collect()
    }
}

/// What is read of a line: files in the repository leave out what nobody reads.
#[derive(Deserialize)]
struct Line {
    matrix: MatrixFacts,
    width: usize,
    #[serde(flatten)]
    result: LineResult,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LineResult {
    Tuned { tried: Vec<TriedFacts> },
    Swept { path: String, time: Option<Median> },
}

#[derive(Deserialize)]
struct Median {
    median_us: f64,
}

/// One threshold: its name, where it is, and the values that are tried.
struct Axis {
    name: &'static str,
    place: fn(&mut Thresholds) -> &mut f64,
    values: &'static [f64],
}

macro_rules! axes {
    ($($name:ident: $values:expr),+ $(,)?) => {
        const AXES: &[Axis] = &[$(Axis {
            name: stringify!($name),
            place: |thresholds| &mut thresholds.$name,
            values: &$values,
        }),+];
    };
}

const ALWAYS: f64 = f64::INFINITY;

axes! {
    entries_each: [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0],
    threads: [16e3, 32e3, 64e3, 96e3, 135e3, 190e3, 270e3, 400e3, 540e3, 1080e3],
    most_for_want: [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
    longest_each: [8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0, 512.0],
    alike: [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0],
    longest_of_alike_each: [64.0, 128.0, 192.0, 256.0, 384.0, 512.0, 1024.0],
    groups: [8192.0, 16384.0, 32768.0, 65536.0, 131072.0, 262144.0, 524288.0],
    most_each: [1.0, 2.0, 4.0, 8.0, 16.0],
    most_lanes: [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
    small_blocks: [0.0, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3, 1e6, 2e6, ALWAYS],
    large_blocks: [0.0, 64e3, 128e3, 256e3, 512e3, 1e6, 2e6, 4e6, ALWAYS],
    widest_rows: [4.0, 8.0, 16.0, 32.0],
    widest_nonzeros: [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
}

/// What is better by less than this is not better.
const BETTER: f64 = 1e-5;

/// The mean of `ln x + 2·ln² x` of the losses `x`: one case that is far behind weighs more than many that are a little.
fn objective(cases: &[&FitCase], thresholds: &Thresholds) -> f64 {
    let of_case = |case: &&FitCase| {
        let ln = case.loss(thresholds).ln();
        ln + 2.0 * ln * ln
    };
    cases.iter().map(of_case).sum::<f64>() / cases.len().max(1) as f64
}

/// The thresholds that lose least: from `start`, and from there with every number of lanes, which goes with most of the
/// others, two thresholds at a time to any of their values, as long as that is better.
fn fit_cases(cases: &[&FitCase], start: &Thresholds) -> Thresholds {
    let lanes = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0].map(|most_lanes| Thresholds { most_lanes, ..*start });
    let fits: Vec<_> = lanes.par_iter().chain([start]).map(|&from| descend(cases, from)).collect();
    let best = fits.into_iter().reduce(|best, next| if next.1 < best.1 - BETTER { next } else { best });
    best.map_or(*start, |(thresholds, _)| thresholds)
}

/// The thresholds at the end of the descent from some, and their objective.
fn descend(cases: &[&FitCase], from: Thresholds) -> (Thresholds, f64) {
    let mut best = (from, objective(cases, &from));
    loop {
        let before = best.1;
        for (at, first) in AXES.iter().enumerate() {
            for second in &AXES[at + 1..] {
                for &a in first.values {
                    for &b in second.values {
                        let mut next = best.0;
                        *(first.place)(&mut next) = a;
                        *(second.place)(&mut next) = b;
                        let loss = objective(cases, &next);
                        if loss < best.1 - BETTER {
                            best = (next, loss);
                        }
                    }
                }
            }
        }
        if best.1 >= before {
            return best;
        }
    }
}

/// Losses of a tree over cases.
#[derive(Debug, Clone, PartialEq)]
pub struct Losses {
    /// The geometric mean of the time over the best.
    pub mean: f64,
    /// The largest, its matrix and width.
    pub worst: (f64, String, usize),
}

impl Losses {
    fn of<'a>(losses: impl Iterator<Item = (&'a FitCase, f64)>) -> Self {
        let losses: Vec<_> = losses.collect();
        let mean = geometric_mean(&losses.iter().map(|(_, loss)| *loss).collect::<Vec<_>>()).unwrap_or(1.0);
        let worst = losses.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let worst =
            worst.map_or((1.0, String::new(), 0), |(case, loss)| (*loss, case.matrix.clone(), case.width));
        Self { mean, worst }
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worst, matrix, width) = &self.worst;
        write!(f, "{:.4} (at worst {worst:.2}: {matrix} at {width})", self.mean)
    }
}

/// What a fit found. `Display` prints it, with the thresholds as they stand in the source.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The thresholds.
    pub thresholds: Thresholds,
    /// Matrices, and cases: matrices with widths.
    pub matrices: usize,
    /// See [`matrices`](Self::matrices).
    pub cases: usize,
    /// Cases in which the fitted tree's answer was not measured.
    pub unmeasured: usize,
    /// Over all cases: the tree of the library, the fitted one, and, for each matrix, the one fitted to all others.
    pub overall: [Losses; 3],
    /// The same for each width.
    pub by_width: Vec<(usize, [Losses; 3])>,
}

/// Fits the thresholds to cases, and to all matrices but one for each matrix; from those of the library.
#[must_use]
pub fn fit(cases: &[FitCase]) -> Fit {
    fit_from(cases, &Thresholds::FITTED)
}

/// [`fit`] from other thresholds, which are then those that it is compared with.
fn fit_from(cases: &[FitCase], start: &Thresholds) -> Fit {
    let all: Vec<&FitCase> = cases.iter().collect();
    let thresholds = fit_cases(&all, start);
    let mut matrices: Vec<&str> = cases.iter().map(|case| case.matrix.as_str()).collect();
    matrices.sort_unstable();
    matrices.dedup();
    let without = |matrix: &&str| {
        let others: Vec<&FitCase> = all.iter().filter(|case| case.matrix != *matrix).copied().collect();
        ((*matrix).to_owned(), fit_cases(&others, start))
    };
    let held_out: HashMap<String, Thresholds> = matrices.par_iter().map(without).collect();
    let losses = |width: Option<usize>| {
        let of = |choose: &dyn Fn(&FitCase) -> Thresholds| {
            let chosen = cases.iter().filter(|case| width.is_none_or(|width| case.width == width));
            Losses::of(chosen.map(|case| (case, case.loss(&choose(case)))))
        };
        let others = |case: &FitCase| held_out.get(&case.matrix).copied().unwrap_or(*start);
        [of(&|_| *start), of(&|_| thresholds), of(&others)]
    };
    let mut widths: Vec<usize> = cases.iter().map(|case| case.width).collect();
    widths.sort_unstable();
    widths.dedup();
    let unmeasured = |case: &&FitCase| !case.times.contains_key(&case.answer(&thresholds));
    Fit {
        thresholds,
        matrices: matrices.len(),
        cases: cases.len(),
        unmeasured: cases.iter().filter(unmeasured).count(),
        overall: losses(None),
        by_width: widths.into_iter().map(|width| (width, losses(Some(width)))).collect(),
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { matrices, cases, unmeasured, .. } = self;
        writeln!(f, "{cases} cases of {matrices} matrices; time over the best that was measured:\n")?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, [now, fitted, held_out]: &[Losses; 3]| {
            writeln!(f, "{name}")?;
            writeln!(f, "  the library's tree    {now}")?;
            writeln!(f, "  fitted                {fitted}")?;
            writeln!(f, "  fitted to the others  {held_out}")
        };
        row(f, "all widths", &self.overall)?;
        for (width, losses) in &self.by_width {
            row(f, &format!("width {width}"), losses)?;
        }
        if *unmeasured > 0 {
            writeln!(
                f,
                "\n{unmeasured} answers of the fitted tree were not measured, and count as the worst"
            )?;
        }
        writeln!(f, "\nfor host/src/spmm/points.rs:\n\n    pub const FITTED: Self = Self {{")?;
        for axis in AXES {
            let mut thresholds = self.thresholds;
            writeln!(f, "        {}: {},", axis.name, grouped(*(axis.place)(&mut thresholds)))?;
        }
        write!(f, "    }};")
    }
}

/// A number as the source has it: `65_536.0`.
fn grouped(value: f64) -> String {
    if value.is_infinite() {
        return "f64::INFINITY".to_owned();
    }
    let text = format!("{value:?}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    if whole.len() < 5 {
        return text;
    }
    let digits: Vec<char> = whole.chars().collect();
    let groups: Vec<String> = digits.rchunks(3).rev().map(|group| group.iter().collect()).collect();
    format!("{}.{fraction}", groups.join("_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round numbers to start from, whatever the library's are.
    const START: Thresholds = Thresholds {
        entries_each: 4.0,
        threads: 270e3,
        most_for_want: 16.0,
        longest_each: 64.0,
        alike: 8.0,
        longest_of_alike_each: 256.0,
        groups: 65536.0,
        most_each: 8.0,
        most_lanes: 32.0,
        small_blocks: 0.0,
        large_blocks: ALWAYS,
        widest_rows: 8.0,
        widest_nonzeros: 8.0,
    };

    /// Times of every answer for made-up matrices: the tree with `truth` is right, all else takes longer.
    fn cases(truth: &Thresholds) -> Vec<FitCase> {
        let mut cases = Vec::new();
        for (name, rows, nnz, longest) in [
            ("short", 3e5, 9e5, 12.0),
            ("even", 1e5, 16e5, 16.0),
            ("long", 4e3, 4e5, 300.0),
            ("uneven", 1e5, 2e6, 9e3),
            ("small", 2e3, 2e4, 700.0),
        ] {
            for width in [1, 4, 8, 16] {
                let lengths = RowLengths { rows, nnz, longest };
                let mut times: HashMap<Answer, f64> =
                    windrow::tree::divisions(width).into_iter().map(|answer| (Some(answer), 2.0)).collect();
                times.insert(None, 2.0);
                let mut case =
                    FitCase { matrix: name.to_owned(), width, lengths, times, best: 1.0, worst: 2.0 };
                case.times.insert(case.answer(truth), 1.0);
                cases.push(case);
            }
        }
        cases
    }

    #[test]
    fn a_fit_finds_the_tree_that_the_times_come_from() {
        let truth = Thresholds {
            entries_each: 2.0,
            longest_each: 24.0,
            most_each: 16.0,
            large_blocks: 512e3,
            widest_rows: 16.0,
            widest_nonzeros: 4.0,
            ..START
        };
        let cases = cases(&truth);
        let fit = fit_from(&cases, &START);
        assert_eq!((fit.matrices, fit.cases, fit.unmeasured), (5, 20, 0));
        assert!(fit.overall[0].mean > 1.2, "{}", fit.overall[0]);
        assert_eq!((fit.overall[1].mean, fit.overall[1].worst.0), (1.0, 1.0), "{fit}");
        assert!(fit.overall[2].mean < fit.overall[0].mean, "{fit}");
        assert_eq!(fit.by_width.iter().map(|(width, _)| *width).collect::<Vec<_>>(), [1, 4, 8, 16]);
    }

    #[test]
    fn what_was_not_measured_counts_as_the_worst() {
        let truth = START;
        let mut case = cases(&truth).remove(0);
        case.times.remove(&case.answer(&truth));
        assert_eq!(case.loss(&truth), 2.0);
    }

    #[test]
    fn lines_of_both_sorts_are_read_and_joined_by_the_matrix() {
        let old = r#"{"schema":1,"revision":"r","device":{"name":"g","kind":"cuda","driver":null,"multiprocessors":1},"matrix":{"name":"m","checksum":"c","rows":2,"cols":2,"nnz":3},"width":4,"path":"PATH","plan":null,"check":null,"time":{"median_us":3.0,"min_us":3.0,"max_us":3.0,"noise":0.0,"batches":1,"calls":1,"gathered_gbps":null,"roofline_us":null,"roofline_fraction":null},"cusparse":[],"cublas":[],"error":null}"#;
        let tuned = r#"{"schema":1,"revision":"r","device":{"name":"g","kind":"cuda","driver":null,"multiprocessors":1},"matrix":{"name":"m","checksum":"c","rows":2,"cols":2,"nnz":3,"longest_row":2},"values":"file","width":4,"precision":"f32","determinism":"run-to-run","default":null,"default_us":null,"winner":null,"winner_us":null,"families":[],"tried":[{"path":"segment-group-f32+point:1row:4col:1+launch:128:-:1","median_us":2.0},{"path":"segment-group-f32+point:1row:4col:1+launch:64:-:1"}],"ended":null,"seconds":0.0,"cusparse":null,"error":null}"#;
        let mut data = FitData::default();
        for path in ["row-split-f32", "row-split-f16", "segment-group-f32+point:1row:4col:1", "auto-f32"] {
            data.add(&old.replace("PATH", path), Precision::F32).unwrap();
        }
        assert!(data.cases().is_empty(), "nobody knows the longest row");
        data.add(tuned, Precision::F32).unwrap();
        let [case] = &data.cases()[..] else { panic!("one case") };
        assert_eq!(
            (case.matrix.as_str(), case.width, case.times.len(), case.best, case.worst),
            ("m", 4, 2, 2.0, 3.0)
        );
        assert!(data.add("{}", Precision::F32).is_err());
    }

    #[test]
    fn thresholds_are_printed_as_the_source_has_them() {
        assert_eq!(["4.0", "1.5", "65_536.0", "1_000_000.0"], [4.0, 1.5, 65536.0, 1e6].map(grouped));
        let text = fit_from(&cases(&START), &START).to_string();
        for line in ["entries_each: ", "large_blocks: ", "widest_nonzeros: ", "pub const FITTED"] {
            assert!(text.contains(line), "{text}");
        }
    }
}

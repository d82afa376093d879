//! The measured times that a fit starts from.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use windrow::internal::{Division, GroupThresholds, RowLengths};
use windrow::{Algorithm, AtomicParallelism, Determinism, GroupLaunch, Precision, SpmmOptions};

use crate::measure::l2::L2Facts;
use crate::measure::{L2, SweepPath};
use crate::suites::facts::MatrixFacts;
use crate::suites::tuned::facts::TriedFacts;

/// What the tree answers: row-split, or a point and its launch.
pub(super) type Answer = Option<(AtomicParallelism, GroupLaunch)>;

/// The measured times of one matrix and width.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FitCase {
    pub(crate) matrix: String,
    pub(crate) width: usize,
    pub(super) lengths: RowLengths,
    pub(super) times: HashMap<Answer, f64>,
    pub(super) best: f64,
    pub(super) worst: f64,
}

impl FitCase {
    /// The time of the tree's answer over the best; of one that was not measured, the worst over the best.
    pub(super) fn loss(&self, thresholds: &GroupThresholds) -> f64 {
        self.times.get(&self.answer(thresholds)).unwrap_or(&self.worst) / self.best
    }

    pub(super) fn answer(&self, thresholds: &GroupThresholds) -> Answer {
        let Division { point, launch, row_split } = self.lengths.division(self.width, thresholds);
        (!row_split).then_some((point, launch))
    }
}

/// Times from lines of the suites `tuned` and `spmm`.
#[derive(Debug, Default)]
pub(crate) struct FitData {
    matrices: HashMap<String, (String, RowLengths)>,
    times: BTreeMap<(String, usize), HashMap<Answer, f64>>,
}

impl FitData {
    /// Adds a line of either sort; of products of a precision, with the same bits in every run. One of a cold L2 cache
    /// says nothing.
    ///
    /// # Errors
    /// If it is neither.
    pub(crate) fn add(&mut self, line: &str, precision: Precision) -> Result<(), serde_json::Error> {
        let Line { matrix, width, l2, result } = serde_json::from_str(line)?;
        if l2.state() == L2::Cold {
            return Ok(());
        }
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
        let SpmmOptions { determinism, reorder, algorithm, parallelism, group_launch, .. } = path.options;
        let of_tree = determinism == Determinism::RunToRun && reorder.is_none();
        if path.options.precision != precision || !of_tree {
            return;
        }
        let answer = match (algorithm, parallelism) {
            (Algorithm::RowSplit, _) => None,
            (Algorithm::SegmentGroup, Some(point)) => Some((point, group_launch.unwrap_or_default())),
            _ => return,
        };
        let times = self.times.entry((checksum.clone(), width)).or_default();
        let known = times.entry(answer).or_insert(us);
        *known = known.min(us);
    }

    /// Cases of matrices whose lengths of rows some line has.
    pub(crate) fn cases(&self) -> Vec<FitCase> {
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
    #[serde(default)]
    l2: L2Facts,
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let cold = r#""l2":{"cold":{"flushed_bytes":8,"cache":"told"}},"width":4"#;
        let cold = old.replace("PATH", "row-split-f32").replace("\"width\":4", cold);
        data.add(&cold.replace("3.0", "0.5"), Precision::F32).unwrap();
        assert_eq!(data.cases()[0].best, 2.0, "a cold time is no time of the tree");
        assert!(data.add("{}", Precision::F32).is_err());
    }
}

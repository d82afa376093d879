//! Fits the thresholds of the decision tree of segment groups to measured times.

mod data;
mod descent;
pub(crate) mod paths;

use std::collections::HashMap;
use std::fmt;

use rayon::prelude::*;
use windrow::internal::GroupThresholds;

use crate::suites::markdown::geometric_mean;
pub(super) use data::{FitCase, FitData};
use descent::{AXES, fit_cases};

/// Losses of a tree over cases.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Losses {
    /// The geometric mean of the time over the best.
    pub(crate) mean: f64,
    /// The largest, its matrix and width.
    pub(crate) worst: (f64, String, usize),
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
pub(crate) struct Fit {
    pub(crate) thresholds: GroupThresholds,
    /// Matrices, and cases: matrices with widths.
    pub(crate) matrices: usize,
    /// Matrices with widths that the fit was made from.
    pub(crate) cases: usize,
    /// Cases in which the fitted tree's answer was not measured.
    pub(crate) unmeasured: usize,
    /// Over all cases: the tree of the library, the fitted one, and, for each matrix, the one fitted to all others.
    pub(crate) overall: [Losses; 3],
    /// The same for each width.
    pub(crate) by_width: Vec<(usize, [Losses; 3])>,
}

/// Fits the thresholds to cases, and to all matrices but one for each matrix; from those of the library.
pub(crate) fn fit(cases: &[FitCase]) -> Fit {
    fit_from(cases, &GroupThresholds::FITTED)
}

/// [`fit`] from other thresholds, which are then those that it is compared with.
fn fit_from(cases: &[FitCase], start: &GroupThresholds) -> Fit {
    let all: Vec<&FitCase> = cases.iter().collect();
    let thresholds = fit_cases(&all, start);
    let mut matrices: Vec<&str> = cases.iter().map(|case| case.matrix.as_str()).collect();
    matrices.sort_unstable();
    matrices.dedup();
    let without = |matrix: &&str| {
        let others: Vec<&FitCase> = all.iter().filter(|case| case.matrix != *matrix).copied().collect();
        ((*matrix).to_owned(), fit_cases(&others, start))
    };
    let held_out: HashMap<String, GroupThresholds> = matrices.par_iter().map(without).collect();
    let losses = |width: Option<usize>| {
        let of = |choose: &dyn Fn(&FitCase) -> GroupThresholds| {
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
    use windrow::internal::RowLengths;

    use super::data::Answer;
    use super::descent::ALWAYS;
    use super::*;

    /// Round numbers to start from, whatever the library's are.
    const START: GroupThresholds = GroupThresholds {
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
    fn cases(truth: &GroupThresholds) -> Vec<FitCase> {
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
                let mut times: HashMap<Answer, f64> = windrow::internal::divisions(width)
                    .into_iter()
                    .map(|answer| (Some(answer), 2.0))
                    .collect();
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
        let truth = GroupThresholds {
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
    fn thresholds_are_printed_as_the_source_has_them() {
        assert_eq!(["4.0", "1.5", "65_536.0", "1_000_000.0"], [4.0, 1.5, 65536.0, 1e6].map(grouped));
        let text = fit_from(&cases(&START), &START).to_string();
        for line in ["entries_each: ", "large_blocks: ", "widest_nonzeros: ", "pub const FITTED"] {
            assert!(text.contains(line), "{text}");
        }
    }
}

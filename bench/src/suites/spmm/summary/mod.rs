//! What the records of sweeps say together, as Markdown.

mod published;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write;

use super::SpmmRecord as Record;
use crate::measure::Statistics;
use crate::suites::markdown::{Grid, geometric_mean, number};
use crate::suites::schedules;
pub(super) use published::Published;

/// The records of one matrix and width, by path.
struct Case<'a> {
    matrix: &'a str,
    width: usize,
    by_path: Vec<Option<&'a Record>>,
}

/// Something that paths are compared with.
struct Reference<'a> {
    name: &'static str,
    /// Time in microseconds and what took it.
    time: Box<TimeOf<'a>>,
}

type TimeOf<'a> = dyn Fn(&Case<'_>) -> Option<(f64, String)> + 'a;

/// A summary of `records` in Markdown: geometric means, times, speeds over cuSPARSE and over `published` times, shares
/// of the roofline, losing cases, failed cases, orders. Of several records of one matrix, width and path the last
/// counts. Ratios are times of the reference over ours: above 1 is quicker.
pub(super) fn summarise(records: &[Record], published: Option<&Published>) -> String {
    let paths = in_order(
        records.iter().filter(|record| record.facts.width > 0).map(|record| record.facts.path.as_str()),
    );
    let cases = cases(records, &paths);
    let references: Vec<Reference<'_>> = references(published)
        .into_iter()
        .filter(|reference| cases.iter().any(|case| (reference.time)(case).is_some()))
        .collect();
    let mut text = head(records);
    let mut section = |title: &str, body: String| {
        if !body.is_empty() {
            let _ = write!(text, "\n## {title}\n\n{body}"); // a String takes all
        }
    };
    section("Geometric means", means(&cases, &paths, &references));
    section("Losing cases", losses(&cases, &paths, &references));
    section("Failed cases", failures(records));
    section("Times in microseconds", times(&cases, &paths, &references));
    for reference in &references {
        let cell = |case: &Case<'_>, path| number(ratio(case, path, reference), 2);
        section(&format!("Speed over {}", reference.name), per_case(&cases, &paths, cell));
    }
    if cases.iter().flat_map(|case| &case.by_path).any(|record| record.and_then(roofline).is_some()) {
        let cell = |case: &Case<'_>, path: usize| number(case.by_path[path].and_then(roofline), 2);
        section("Share of the gather roofline", per_case(&cases, &paths, cell));
        let cell = |case: &Case<'_>, path: usize| number(case.by_path[path].and_then(over_once), 2);
        section("Time over moving every byte once", per_case(&cases, &paths, cell));
    }
    section("Schedules", schedules(records));
    section("Orders", orders(records));
    text
}

fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut met = Vec::new();
    names.for_each(|name| {
        if !met.contains(&name) {
            met.push(name);
        }
    });
    met
}

fn cases<'a>(records: &'a [Record], paths: &[&str]) -> Vec<Case<'a>> {
    let mut cases: Vec<Case<'a>> = Vec::new();
    for record in records.iter().filter(|record| record.facts.width > 0) {
        let (matrix, width) = (record.facts.matrix.name.as_str(), record.facts.width);
        let at = cases.iter().position(|case| (case.matrix, case.width) == (matrix, width));
        let at = at.unwrap_or_else(|| {
            cases.push(Case { matrix, width, by_path: vec![None; paths.len()] });
            cases.len() - 1
        });
        if let Some(path) = paths.iter().position(|path| *path == record.facts.path) {
            cases[at].by_path[path] = Some(record);
        }
    }
    cases
}

/// cuSPARSE in each of its precisions, from the records, and the published times.
fn references<'a>(published: Option<&'a Published>) -> Vec<Reference<'a>> {
    let cusparse = |case: &Case<'_>, math: &str| {
        let facts = case.by_path.iter().flatten().flat_map(|record| &record.facts.cusparse);
        let mut facts = facts.filter(|facts| facts.math == math);
        facts.find_map(|facts| Some((facts.median_us?, facts.algorithm.clone()?)))
    };
    let mut references = vec![
        Reference { name: "cuSPARSE f32", time: Box::new(move |case| cusparse(case, "f32")) },
        Reference { name: "cuSPARSE f16", time: Box::new(move |case| cusparse(case, "f16")) },
        Reference { name: "cuSPARSE f64", time: Box::new(move |case| cusparse(case, "f64")) },
    ];
    references.extend(published.map(|times| Reference {
        name: "the fastest published",
        time: Box::new(|case| times.get(case.matrix, case.width).map(|(us, name)| (us, name.to_owned()))),
    }));
    references
}

fn median_us(record: &Record) -> Option<f64> {
    record.us().filter(|us| *us > 0.0)
}

fn roofline(record: &Record) -> Option<f64> {
    record.time.as_ref()?.bounds.roofline_fraction
}

fn over_once(record: &Record) -> Option<f64> {
    Some(median_us(record)? / record.time.as_ref()?.bounds.once_us?)
}

fn ratio(case: &Case<'_>, path: usize, reference: &Reference<'_>) -> Option<f64> {
    Some((reference.time)(case)?.0 / median_us(case.by_path[path]?)?)
}

/// What records say of hybrids in both schedules.
fn schedules(records: &[Record]) -> String {
    schedules::section(records.iter().map(|record| {
        let facts = &record.facts;
        let scheduling = facts.plan.as_ref().and_then(|plan| plan.scheduling.as_ref());
        (format!("{} at {}", facts.matrix.name, facts.width), facts.path.as_str(), scheduling, record.us())
    }))
}

/// What was measured, where.
fn head(records: &[Record]) -> String {
    let list = |name: &dyn Fn(&Record) -> String| {
        records.iter().map(name).filter(|name| !name.is_empty()).collect::<BTreeSet<_>>()
    };
    let join = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
    let wrong = records.iter().filter(|record| record.check.as_ref().is_some_and(|check| check.failures > 0));
    let devices = join(list(&|record| record.device.name.clone()));
    let revisions = join(list(&|record| record.revision.clone()));
    let values = join(list(&|record| record.facts.values.clone()));
    format!(
        "# Sweep\n\n{} records, {} with a wrong result, {} failed in all. Device: {devices}. Revision: {revisions}. \
         Values: {values}.\n",
        records.len(),
        wrong.count(),
        records.iter().filter(|record| record.error.is_some()).count(),
    )
}

/// For each path the geometric mean over each reference, by width and in all, and the median share of the roofline.
fn means(cases: &[Case<'_>], paths: &[&str], references: &[Reference<'_>]) -> String {
    let widths: BTreeSet<usize> = cases.iter().map(|case| case.width).collect();
    let names = references.iter().map(|reference| format!("over {}", reference.name));
    let titles = ["path", "n", "cases"].map(str::to_owned).into_iter().chain(names);
    let mut grid = Grid::new(titles.chain(["roofline, median".to_owned()]));
    for (path, name) in paths.iter().enumerate() {
        for width in widths.iter().copied().map(Some).chain([None]) {
            let chosen: Vec<&Case<'_>> =
                cases.iter().filter(|case| width.is_none_or(|width| case.width == width)).collect();
            let timed = chosen.iter().filter_map(|case| median_us(case.by_path[path]?)).count();
            let shares: Vec<f64> =
                chosen.iter().filter_map(|case| case.by_path[path].and_then(roofline)).collect();
            let mut row = vec![
                (*name).to_owned(),
                width.map_or("all".to_owned(), |width| width.to_string()),
                timed.to_string(),
            ];
            row.extend(references.iter().map(|reference| {
                let ratios: Vec<f64> =
                    chosen.iter().filter_map(|case| ratio(case, path, reference)).collect();
                let losing = ratios.iter().filter(|ratio| **ratio < 1.0).count();
                match geometric_mean(&ratios) {
                    Some(mean) => format!("{mean:.2} ({losing} of {} lose)", ratios.len()),
                    None => number(None, 2),
                }
            }));
            row.push(number(Statistics::of(&shares).map(|shares| shares.median), 2));
            grid.row(row);
        }
    }
    if cases.is_empty() { String::new() } else { grid.to_string() }
}

/// Each case in which a path is slower than a reference.
fn losses(cases: &[Case<'_>], paths: &[&str], references: &[Reference<'_>]) -> String {
    let mut text = String::new();
    for reference in references {
        for (path, name) in paths.iter().enumerate() {
            let losing: Vec<String> = cases
                .iter()
                .filter_map(|case| Some((case, ratio(case, path, reference)?)))
                .filter(|(_, ratio)| *ratio < 1.0)
                .map(|(case, ratio)| format!("{} at {} ({ratio:.2})", case.matrix, case.width))
                .collect();
            if !losing.is_empty() {
                let _ = writeln!(text, "- {name} against {}: {}", reference.name, losing.join(", "));
            }
        }
    }
    text
}

fn failures(records: &[Record]) -> String {
    let mut text = String::new();
    for record in records {
        if let Some(error) = &record.error {
            let _ = writeln!(
                text,
                "- {} at {}, {}: {error}",
                record.facts.matrix.name, record.facts.width, record.facts.path
            );
        }
    }
    text
}

fn times(cases: &[Case<'_>], paths: &[&str], references: &[Reference<'_>]) -> String {
    let names = paths.iter().copied().chain(references.iter().map(|reference| reference.name));
    let mut grid = Grid::new(["matrix", "n"].into_iter().chain(names));
    for case in cases {
        let own = case.by_path.iter().map(|record| number(record.and_then(median_us), 1));
        let others = references.iter().map(|reference| match (reference.time)(case) {
            Some((us, name)) => format!("{us:.1} ({})", name.trim_start_matches("CSR_")),
            None => number(None, 1),
        });
        grid.row([case.matrix.to_owned(), case.width.to_string()].into_iter().chain(own).chain(others));
    }
    if cases.is_empty() { String::new() } else { grid.to_string() }
}

/// A table with a cell for each case and path.
fn per_case(cases: &[Case<'_>], paths: &[&str], cell: impl Fn(&Case<'_>, usize) -> String) -> String {
    let mut grid = Grid::new(["matrix", "n"].into_iter().chain(paths.iter().copied()));
    for case in cases {
        let cells = (0..paths.len()).map(|path| cell(case, path));
        grid.row([case.matrix.to_owned(), case.width.to_string()].into_iter().chain(cells));
    }
    grid.to_string()
}

/// A line for each matrix and order, however many widths and paths were measured with it.
fn orders(records: &[Record]) -> String {
    let titles = ["matrix", "order", "ms", "threads", "entries a vector, before", "after", "kept its own"];
    let mut grid = Grid::new(titles);
    let mut met = BTreeSet::new();
    for record in records {
        let Some(order) = &record.facts.order else { continue };
        if met.insert((record.facts.matrix.name.as_str(), order.method.as_str())) {
            grid.row([
                record.facts.matrix.name.clone(),
                order.method.clone(),
                number(Some(order.reorder_ms), 1),
                order.threads.to_string(),
                number(Some(order.entries_per_vector_before), 3),
                number(Some(order.entries_per_vector_after), 3),
                if order.kept_original { "yes" } else { "no" }.to_owned(),
            ]);
        }
    }
    if met.is_empty() { String::new() } else { grid.to_string() }
}

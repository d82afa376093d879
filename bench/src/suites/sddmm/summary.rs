//! Records of sampled products as Markdown.

use std::fmt::Write;

use windrow::Precision;

use super::SampledRecord;
use crate::measure::sampled::SampledPath;
use crate::suites::markdown::geometric_mean;
use crate::suites::schedules;

/// The precision of cuSPARSE's that a path is compared with, of those that lose.
fn of(path: &str) -> &'static str {
    match path.parse() {
        Ok(SampledPath { precision: Precision::F64, .. }) => "f64",
        _ => "f32",
    }
}

/// Summarises records: geometric means over cuSPARSE for each path and inner dimension, losing cases, and every time.
pub(super) fn summarise(records: &[SampledRecord]) -> String {
    let (mut paths, mut inners) = (Vec::new(), Vec::new());
    for record in records.iter().filter(|record| !record.facts.path.is_empty()) {
        if !paths.contains(&record.facts.path) {
            paths.push(record.facts.path.clone());
        }
        if !inners.contains(&record.facts.inner) {
            inners.push(record.facts.inner);
        }
    }
    let failed = records.iter().filter(|record| record.time.is_none()).count();
    let mut text =
        format!("# Sampled products\n\n{} records, {failed} without a right result.\n", records.len());
    // f64 is told of only where it was asked for.
    let doubles = records.iter().any(|record| record.facts.cusparse_us("f64").is_some());
    let maths: &[&str] = if doubles { &["f32", "f16", "f64"] } else { &["f32", "f16"] };
    text += "\n## Geometric means\n\n| path | inner | cases |";
    for math in maths {
        let _ = write!(text, " over cuSPARSE {math} |");
    }
    text += " roofline, median |\n| --- | --- | --- |";
    text += &" --- |".repeat(maths.len() + 1);
    text.push('\n');
    let mut losing = String::new();
    for path in &paths {
        for inner in inners.iter().map(|&inner| Some(inner)).chain([None]) {
            let of_case = |record: &&SampledRecord| {
                &record.facts.path == path && inner.is_none_or(|d| d == record.facts.inner)
            };
            let timed: Vec<_> = records.iter().filter(of_case).filter_map(|r| Some((r, r.us()?))).collect();
            let over = |math: &&str| {
                let ratios: Vec<f64> =
                    timed.iter().filter_map(|(r, us)| Some(r.facts.cusparse_us(math)? / us)).collect();
                let slower = ratios.iter().filter(|&&ratio| ratio < 1.0).count();
                geometric_mean(&ratios)
                    .map_or_else(|| "–".to_owned(), |m| format!("{m:.2} ({slower} of {} lose)", ratios.len()))
            };
            let mut shares: Vec<f64> =
                timed.iter().filter_map(|(r, us)| Some(r.facts.roofline_us? / us)).collect();
            shares.sort_by(f64::total_cmp);
            let share =
                shares.get(shares.len() / 2).map_or_else(|| "–".to_owned(), |share| format!("{share:.2}"));
            let name = inner.map_or_else(|| "all".to_owned(), |inner| inner.to_string());
            let ratios = maths.iter().map(over).collect::<Vec<_>>().join(" | ");
            let _ = writeln!(text, "| {path} | {name} | {} | {ratios} | {share} |", timed.len());
            if inner.is_some() {
                for (record, us) in &timed {
                    if let Some(peer) = record.facts.cusparse_us(of(path)).filter(|peer| peer < us) {
                        let (matrix, inner) = (&record.facts.matrix.name, record.facts.inner);
                        let _ = writeln!(losing, "- {path}, {matrix} at {inner}: {us:.1} against {peer:.1}");
                    }
                }
            }
        }
    }
    let title = if doubles { ", paths of f64 than cuSPARSE f64" } else { "" };
    let _ = write!(text, "\n## Slower than cuSPARSE f32{title}\n\n");
    text += if losing.is_empty() { "none\n" } else { &losing };
    let schedules = schedules::section(records.iter().map(|record| {
        let facts = &record.facts;
        let scheduling = facts.plan.as_ref().and_then(|plan| plan.scheduling.as_ref());
        (format!("{} at {}", facts.matrix.name, facts.inner), facts.path.as_str(), scheduling, record.us())
    }));
    if !schedules.is_empty() {
        let _ = write!(text, "\n## Schedules\n\n{schedules}");
    }
    text += "\n## Times in microseconds\n\n| pattern | inner |";
    for path in &paths {
        let _ = write!(text, " {path} |");
    }
    for math in maths {
        let _ = write!(text, " cuSPARSE {math} |");
    }
    text += " entries in tiles, % | places taken, % |\n| --- | --- |";
    text += &" --- |".repeat(paths.len() + maths.len() + 2);
    text.push('\n');
    let mut seen = Vec::new();
    for first in records.iter().filter(|record| !record.facts.path.is_empty()) {
        let case = (&first.facts.matrix.name, first.facts.inner);
        if seen.contains(&case) {
            continue;
        }
        seen.push(case);
        let same = || records.iter().filter(|record| (&record.facts.matrix.name, record.facts.inner) == case);
        let _ = write!(text, "| {} | {} |", case.0, case.1);
        let number = |us: Option<f64>| us.map_or_else(|| "–".to_owned(), |us| format!("{us:.1}"));
        for path in &paths {
            let us = same().find(|record| &record.facts.path == path).and_then(|record| record.us());
            let _ = write!(text, " {} |", number(us));
        }
        let plan = same()
            .filter_map(|record| record.facts.plan.as_ref())
            .max_by(|a, b| a.tile_share.total_cmp(&b.tile_share));
        let percent = |share: Option<f64>| number(share.map(|share| 100.0 * share));
        for math in maths {
            let _ = write!(text, " {} |", number(first.facts.cusparse_us(math)));
        }
        let _ = writeln!(
            text,
            " {} | {} |",
            percent(plan.map(|plan| plan.tile_share)),
            percent(plan.map(|plan| plan.utilisation))
        );
    }
    text
}

//! A comparison as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Comparison, Origin, Pair, Verdict};
use crate::suites::markdown::{Grid, cell, geometric_mean, number};

/// Names that are listed unless all are asked for.
const NAMES: usize = 20;

pub(super) fn markdown(comparison: &Comparison, all: bool) -> String {
    let Comparison {
        old, new, mean, counts, pairs, only_old, only_new, broken, untimed, brief, gate, ..
    } = comparison;
    let mut out = format!("# {} → {}\n\n{}{}", old.file, new.file, origin("Old", old), origin("New", new));
    let count = |verdict: &Verdict| counts.get(verdict).copied().unwrap_or(0);
    let told = Verdict::ALL.map(|verdict| format!("{} {verdict}", count(&verdict))).join(", ");
    let _ = writeln!(
        out,
        "\n{} cases in both: {told}. New time over old, geometric mean: {}.",
        pairs.len(),
        number(*mean, 3)
    );
    if let Some(gate) = gate {
        let (percent, slower) = (100.0 * gate.beyond.0, gate.slower.len());
        let says = if gate.passed { "passed" } else { "NOT passed" };
        let _ = writeln!(
            out,
            "\nGate of {percent} %: {says}; {slower} slower beyond it and beyond noise, {} with an error now.",
            broken.len()
        );
    }
    if pairs.iter().any(|pair| pair.judgement.assumed) {
        out.push_str("\n`*`: a record holds no noise; 5 % is assumed.\n");
    }
    for verdict in [Verdict::Slow, Verdict::Fast, Verdict::Undecided, Verdict::Same] {
        if verdict == Verdict::Same && !all {
            continue;
        }
        let of: Vec<_> = pairs.iter().filter(|pair| pair.judgement.verdict == verdict).collect();
        // The largest difference first.
        let of: Vec<_> = if verdict == Verdict::Fast { of.into_iter().rev().collect() } else { of };
        if !of.is_empty() {
            let _ = write!(out, "\n## {verdict}: {}\n\n{}", of.len(), cases(&of));
        }
    }
    if !pairs.is_empty() {
        let _ = write!(out, "\n## By path\n\n{}", by_path(pairs));
    }
    let broken: Vec<_> = broken.iter().map(|broken| format!("{}: {}", broken.case, broken.error)).collect();
    for (title, names) in
        [("An error now", &broken), ("In the old file only", only_old), ("In the new file only", only_new)]
    {
        list(&mut out, title, names, all);
    }
    if *brief > 0 {
        let _ = writeln!(out, "\n{brief} cases take less than --above in both files, and were left out.");
    }
    if *untimed > 0 {
        let _ = writeln!(out, "\n{untimed} cases had no time in the old file.");
    }
    out
}

fn origin(which: &str, of: &Origin) -> String {
    format!("- {which}: {}, revision {}, on {}\n", of.file, of.revisions.join(", "), of.devices.join(", "))
}

fn cases(pairs: &[&Pair]) -> String {
    let mut grid =
        Grid::new(["suite", "matrix", "width", "path", "old µs", "new µs", "new over old", "interval"]);
    for pair in pairs {
        let judgement = &pair.judgement;
        let [low, high] = judgement.interval;
        grid.row([
            pair.case.suite.to_owned(),
            cell(&pair.case.matrix),
            pair.case.width.map_or_else(|| "–".to_owned(), |width| width.to_string()),
            cell(&pair.case.way()),
            number(Some(pair.old.us), 2),
            number(Some(pair.new.us), 2),
            format!("{:.3}{}", judgement.ratio, if judgement.assumed { "*" } else { "" }),
            format!("{low:.3} to {high:.3}"),
        ]);
    }
    grid.to_string()
}

fn by_path(pairs: &[Pair]) -> String {
    let mut paths: BTreeMap<String, Vec<&Pair>> = BTreeMap::new();
    for pair in pairs {
        paths.entry(pair.case.way()).or_default().push(pair);
    }
    let mut grid =
        Grid::new(["path", "cases", "FAST", "SLOW", "SAME", "undecided", "new over old", "least", "most"]);
    for (path, pairs) in paths {
        let ratios: Vec<_> = pairs.iter().map(|pair| pair.judgement.ratio).collect();
        let count =
            |verdict| pairs.iter().filter(|pair| pair.judgement.verdict == verdict).count().to_string();
        let counts = Verdict::ALL.map(count);
        let least = ratios.iter().copied().reduce(f64::min);
        let most = ratios.iter().copied().reduce(f64::max);
        let numbers = [geometric_mean(&ratios), least, most].map(|x| number(x, 3));
        grid.row([cell(&path), pairs.len().to_string()].into_iter().chain(counts).chain(numbers));
    }
    grid.to_string()
}

fn list(out: &mut String, title: &str, names: &[String], all: bool) {
    if names.is_empty() {
        return;
    }
    let shown = if all { names.len() } else { NAMES.min(names.len()) };
    let _ = writeln!(out, "\n## {title}: {}\n", names.len());
    names[..shown].iter().for_each(|name| out.push_str(&format!("- {name}\n")));
    if shown < names.len() {
        let _ = writeln!(out, "- and {} more; --all lists them", names.len() - shown);
    }
}

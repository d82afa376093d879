//! What the records of ablations say together, as Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::AblationRecord;
use super::facts::{AblationFacts, Measurement, PrintedFacts};
use crate::suites::markdown::{Grid, geometric_mean, mean_of, number};
use crate::suites::preprocess;

/// A summary of `records` in Markdown: a table for each part, geometric means below it.
pub(crate) fn summarise(records: &[AblationRecord]) -> String {
    let failed = records.iter().filter(|record| record.error.is_some()).count();
    let mut text = format!("# Ablation\n\n{} lines, {failed} of them errors.\n", records.len());
    for record in records {
        if let Some(error) = &record.error {
            let _ = writeln!(text, "- {} at {}: {error}", record.facts.matrix.name, record.facts.width);
        }
    }
    for part in [thresholds, vectors, stream, printed, reorder, bytes, hybrid, determinism, preprocess] {
        text.push_str(&part(records));
    }
    text
}

/// A table of the records that have a row, under a title; nothing if there are none.
fn table(
    title: &str,
    columns: &[&str],
    records: &[AblationRecord],
    row: impl Fn(&AblationFacts) -> Option<Vec<String>>,
) -> String {
    let mut grid = Grid::new(["matrix", "n"].iter().chain(columns));
    let mut rows = 0;
    for record in records {
        if let Some(cells) = record.facts.facts.as_ref().and_then(&row) {
            rows += 1;
            grid.row(
                [record.facts.matrix.name.clone(), record.facts.width.to_string()].into_iter().chain(cells),
            );
        }
    }
    if rows == 0 { String::new() } else { format!("\n## {title}\n\n{grid}") }
}

fn us(measurement: Option<&Measurement>) -> String {
    match measurement {
        Some(Measurement { error: Some(_), .. }) => "failed".to_owned(),
        found => number(found.and_then(Measurement::us), 1),
    }
}

/// A line with the geometric mean of some numbers of the records.
fn mean(name: &str, records: &[AblationRecord], pick: impl Fn(&AblationFacts) -> Option<f64>) -> String {
    let numbers: Vec<f64> = records.iter().filter_map(|record| pick(record.facts.facts.as_ref()?)).collect();
    mean_of(name, &numbers)
}

fn thresholds(records: &[AblationRecord]) -> String {
    let columns =
        ["rule", "threshold", "nnz a tile", "nnz a window", "residual %", "predicted µs", "hybrid µs"];
    table("Thresholds", &columns, records, |facts| match facts {
        AblationFacts::Threshold(facts) => Some(vec![
            facts.rule.clone(),
            facts.max_entries.to_string(),
            number(Some(facts.mean_nnz_per_tile), 2),
            number(Some(facts.mean_nnz_per_window), 1),
            number(Some(100.0 * facts.residual_share), 2),
            number(Some(facts.predicted_us), 1),
            us(facts.hybrid.as_ref()),
        ]),
        _ => None,
    })
}

fn vectors(records: &[AblationRecord]) -> String {
    let columns =
        ["threshold", "tiles %", "nnz a tile", "steps", "rows in both", "predicted µs", "hybrid µs"];
    let rows = table("Column vectors", &columns, records, |facts| match facts {
        AblationFacts::Vectors(facts) => Some(vec![
            facts.threshold.clone(),
            number(Some(100.0 * facts.tile_share), 1),
            number(Some(facts.mean_nnz_per_tile), 2),
            facts.steps.to_string(),
            facts.rows_in_both.to_string(),
            number(Some(facts.predicted_us), 1),
            us(facts.hybrid.as_ref()),
        ]),
        _ => None,
    });
    rows + &losses_of_thresholds(records)
}

/// For each threshold of column vectors, how far it is behind the best one of each matrix and width.
fn losses_of_thresholds(records: &[AblationRecord]) -> String {
    let timed = records.iter().filter_map(|record| match record.facts.facts.as_ref()? {
        AblationFacts::Vectors(facts) => {
            let us = facts.hybrid.as_ref()?.us()?;
            Some(((record.facts.matrix.name.as_str(), record.facts.width), facts.threshold.as_str(), us))
        }
        _ => None,
    });
    let timed: Vec<_> = timed.collect();
    let mut best = BTreeMap::new();
    for &(case, _, us) in &timed {
        let least: &mut f64 = best.entry(case).or_insert(us);
        *least = least.min(us);
    }
    let mut losses = BTreeMap::<&str, Vec<f64>>::new();
    for (case, threshold, us) in timed {
        losses.entry(threshold).or_default().push(us / best[&case]);
    }
    let mut text = String::new();
    for (threshold, mut losses) in losses {
        losses.sort_by(f64::total_cmp);
        let best = losses.iter().filter(|loss| **loss == 1.0).count();
        let _ = writeln!(
            text,
            "\nThreshold {threshold}: median {:.1} % behind the best of each case, geometric mean {:.1} %, best in {best} \
             of {}.",
            100.0 * (losses[losses.len() / 2] - 1.0),
            100.0 * (geometric_mean(&losses).unwrap_or(1.0) - 1.0),
            losses.len()
        );
    }
    text
}

fn stream(records: &[AblationRecord]) -> String {
    let columns = ["tile stream µs", "a warp each window µs", "speed-up"];
    let rows = table("Tile stream", &columns, records, |facts| match facts {
        AblationFacts::Stream { tile_stream, window_each, speed_up } => {
            Some(vec![us(tile_stream.as_ref()), us(window_each.as_ref()), number(*speed_up, 2)])
        }
        _ => None,
    });
    let pick = |facts: &AblationFacts| match facts {
        AblationFacts::Stream { speed_up, .. } => *speed_up,
        _ => None,
    };
    rows + &mean("tile stream over a warp for each window", records, pick)
}

fn printed(records: &[AblationRecord]) -> String {
    let found = |record: &AblationRecord| match &record.facts.facts {
        Some(AblationFacts::Printed(facts)) => Some(facts.clone()),
        _ => None,
    };
    let all: Vec<PrintedFacts> = records.iter().filter_map(found).collect();
    let paths: BTreeSet<&str> = all.iter().flat_map(|f| &f.others).map(|other| other.path.as_str()).collect();
    let of_path =
        |facts: &PrintedFacts, path: &str| facts.others.iter().find(|other| other.path == path).cloned();
    let mut columns = vec!["as built µs"];
    columns.extend(&paths);
    let mut text = table("As printed", &columns, records, |facts| match facts {
        AblationFacts::Printed(facts) => {
            let product = |path: &&str| us(of_path(facts, path).and_then(|other| other.product).as_ref());
            Some([us(facts.built.as_ref())].into_iter().chain(paths.iter().map(product)).collect())
        }
        _ => None,
    });
    for path in &paths {
        text.push_str(&mean(&format!("time of {path} over that as built"), records, |facts| match facts {
            AblationFacts::Printed(facts) => of_path(facts, path)?.slow_down,
            _ => None,
        }));
    }
    text
}

fn reorder(records: &[AblationRecord]) -> String {
    let columns =
        ["order", "s", "threads", "entries a vector", "own order", "product µs", "speed-up", "break-even"];
    let mut text = table("Orders", &columns, records, |facts| match facts {
        AblationFacts::Reorder(facts) => Some(vec![
            if facts.kept_original { format!("{} (kept its own)", facts.order) } else { facts.order.clone() },
            number(Some(facts.seconds), 3),
            facts.threads.to_string(),
            number(Some(facts.entries_per_vector_after), 3),
            number(Some(facts.entries_per_vector_before), 3),
            us(facts.product.as_ref()),
            number(facts.speed_up, 2),
            number(facts.break_even, 0),
        ]),
        _ => None,
    });
    let mut names: Vec<&str> = Vec::new();
    for record in records {
        if let Some(AblationFacts::Reorder(facts)) = &record.facts.facts
            && !names.contains(&facts.order.as_str())
        {
            names.push(&facts.order);
        }
    }
    for name in names {
        text.push_str(&mean(&format!("{name} over the own order"), records, |facts| match facts {
            AblationFacts::Reorder(facts) if facts.order == name => facts.speed_up,
            _ => None,
        }));
    }
    text
}

fn bytes(records: &[AblationRecord]) -> String {
    let columns = ["partition", "format", "metadata bytes", "value bytes", "over CSR"];
    let mut grid = Grid::new(["matrix"].iter().chain(&columns));
    let mut rows = 0;
    for record in records {
        let Some(AblationFacts::Bytes { partition, formats }) = &record.facts.facts else { continue };
        for format in formats {
            rows += 1;
            grid.row([
                record.facts.matrix.name.clone(),
                partition.clone(),
                format.format.clone(),
                format.metadata_bytes.to_string(),
                format.value_bytes.to_string(),
                number(Some(format.over_csr), 3),
            ]);
        }
    }
    if rows == 0 { String::new() } else { format!("\n## Bytes\n\n{grid}") }
}

fn hybrid(records: &[AblationRecord]) -> String {
    let columns = ["hybrid µs", "all tiles µs", "row-split µs", "short-rows µs", "loss %"];
    table("Hybrid", &columns, records, |facts| match facts {
        AblationFacts::Hybrid(facts) => Some(vec![
            us(facts.hybrid.as_ref()),
            us(facts.tile_stream.as_ref()),
            us(facts.row_split.as_ref()),
            us(facts.short_rows.as_ref()),
            number(facts.loss_percent, 1),
        ]),
        _ => None,
    })
}

fn determinism(records: &[AblationRecord]) -> String {
    let columns = ["path", "runs", "differing", "products beside", "run-to-run µs", "any order µs", "cost"];
    let rows = table("Determinism", &columns, records, |facts| match facts {
        AblationFacts::Determinism(facts) => Some(vec![
            facts.path.clone(),
            facts.runs.to_string(),
            facts.differing.to_string(),
            facts.load_products.to_string(),
            us(facts.run_to_run.as_ref()),
            us(facts.any_order.as_ref()),
            number(facts.cost, 3),
        ]),
        _ => None,
    });
    let pick = |facts: &AblationFacts| match facts {
        AblationFacts::Determinism(facts) => facts.cost,
        _ => None,
    };
    rows + &mean("time of run-to-run over any order", records, pick)
}

fn preprocess(records: &[AblationRecord]) -> String {
    preprocess::table(records.iter().filter_map(|record| match &record.facts.facts {
        Some(AblationFacts::Preprocess(facts)) => Some((&record.facts.matrix, record.facts.width, facts)),
        _ => None,
    }))
}

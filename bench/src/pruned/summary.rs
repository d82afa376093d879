//! Records as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::NmRecord;
use crate::summary::{Grid, geometric_mean};

/// A table for each precision and layout: shape, pattern, time, 10¹² kept operations a second, and how many times as fast as
/// cuBLAS's dense product; then geometric means over the shapes.
#[must_use]
pub fn summarise_nm(records: &[NmRecord]) -> String {
    let mut tables: BTreeMap<(String, String, String), Vec<&NmRecord>> = BTreeMap::new();
    for record in records {
        let key = (record.precision.clone(), record.layout.clone(), record.packing.clone());
        tables.entry(key).or_default().push(record);
    }
    let number = |x: Option<f64>, digits: usize| x.map_or("-".to_owned(), |x| format!("{x:.digits$}"));
    let mut out = String::new();
    for ((precision, layout, packing), records) in tables {
        let titles = ["m x n x k", "N:M, L", "kernel", "µs", "TFLOP/s", "cuBLAS µs", "times as fast"];
        let mut times = Grid::new(titles);
        let mut ratios: BTreeMap<[usize; 3], (f64, Vec<f64>)> = BTreeMap::new();
        for record in records {
            let [n, m, l] = record.pattern;
            times.row([
                record.shape.to_string(),
                format!("{n}:{m}, {l}"),
                record.plan.as_ref().map_or(String::new(), |plan| plan.entries.join(", ")),
                number(record.time.map(|time| time.median_us), 1),
                number(record.tflops, 1),
                number(record.dense_us, 1),
                number(ratio(record), 2),
            ]);
            let of_pattern = ratios.entry(record.pattern).or_insert_with(|| (record.sparsity(), Vec::new()));
            of_pattern.1.extend(ratio(record));
        }
        let titles = ["N:M, L", "sparsity", "geometric mean over cuBLAS", "least", "shapes"];
        let mut means = Grid::new(titles);
        for ([n, m, l], (sparsity, ratios)) in ratios {
            let Some(mean) = geometric_mean(&ratios) else { continue };
            means.row([
                format!("{n}:{m}, {l}"),
                format!("{:.1} %", 100.0 * sparsity),
                number(Some(mean), 2),
                number(ratios.iter().copied().reduce(f64::min), 2),
                ratios.len().to_string(),
            ]);
        }
        let _ = writeln!(out, "## {precision}, {layout}, packing {packing}\n\n{times}\n{means}");
    }
    out
}

fn ratio(record: &NmRecord) -> Option<f64> {
    Some(record.dense_us? / record.time?.median_us)
}

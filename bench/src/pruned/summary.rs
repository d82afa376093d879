//! Records as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::NmRecord;
use crate::summary::geometric_mean;

/// A table for each precision and layout: shape, pattern, time, 10¹² kept operations a second, and how many times as fast as
/// cuBLAS's dense product; then geometric means over the shapes.
#[must_use]
pub fn summarise_nm(records: &[NmRecord]) -> String {
    let mut tables: BTreeMap<(String, String, String), Vec<&NmRecord>> = BTreeMap::new();
    for record in records {
        let key = (record.precision.clone(), record.layout.clone(), record.packing.clone());
        tables.entry(key).or_default().push(record);
    }
    let mut out = String::new();
    for ((precision, layout, packing), records) in tables {
        let _ = writeln!(out, "## {precision}, {layout}, packing {packing}\n");
        let _ = writeln!(out, "| m x n x k | N:M, L | kernel | µs | TFLOP/s | cuBLAS µs | times as fast |");
        let _ = writeln!(out, "| --- | --- | --- | --- | --- | --- | --- |");
        for record in &records {
            let [n, m, l] = record.pattern;
            let kernel = record.plan.as_ref().map_or(String::new(), |plan| plan.entries.join(", "));
            let number =
                |x: Option<f64>, digits: usize| x.map_or("-".to_owned(), |x| format!("{x:.digits$}"));
            let _ = writeln!(
                out,
                "| {} | {n}:{m}, {l} | {kernel} | {} | {} | {} | {} |",
                record.shape,
                number(record.time.map(|time| time.median_us), 1),
                number(record.tflops, 1),
                number(record.dense_us, 1),
                number(ratio(record), 2),
            );
        }
        let mut means: BTreeMap<[usize; 3], Vec<f64>> = BTreeMap::new();
        for record in &records {
            means.entry(record.pattern).or_default().extend(ratio(record));
        }
        let _ = writeln!(out, "\n| N:M, L | sparsity | geometric mean over cuBLAS | least | shapes |");
        let _ = writeln!(out, "| --- | --- | --- | --- | --- |");
        for ([n, m, l], ratios) in means {
            let Some(mean) = geometric_mean(&ratios) else { continue };
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let kept =
                u32::try_from(n).map_or(f64::NAN, f64::from) / u32::try_from(m).map_or(f64::NAN, f64::from);
            let sparsity = 100.0 * (1.0 - kept);
            let count = ratios.len();
            let _ = writeln!(out, "| {n}:{m}, {l} | {sparsity:.1} % | {mean:.2} | {least:.2} | {count} |");
        }
        out.push('\n');
    }
    out
}

fn ratio(record: &NmRecord) -> Option<f64> {
    Some(record.dense_us? / record.time?.median_us)
}

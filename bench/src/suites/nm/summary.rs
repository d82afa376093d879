//! Records of N:M products as tables in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{NmRecord, NmShape};
use crate::suites::markdown::{Grid, geometric_mean};

/// A table for each precision and layout: shape, pattern, time, 10¹² kept operations a second, operations for each
/// element that a stage moves, and how many times as fast as cuBLAS's dense product; then geometric means over the
/// shapes. Of several records of one shape and pattern in a table all are listed and the last counts in the mean.
pub(super) fn summarise(records: &[NmRecord]) -> String {
    let mut tables: BTreeMap<(String, String, String), Vec<&NmRecord>> = BTreeMap::new();
    for record in records {
        let key = (record.facts.precision.clone(), record.facts.layout.clone(), record.facts.packing.clone());
        tables.entry(key).or_default().push(record);
    }
    let number = |x: Option<f64>, digits: usize| x.map_or("-".to_owned(), |x| format!("{x:.digits$}"));
    let mut out = String::new();
    for ((precision, layout, packing), records) in tables {
        let titles = [
            "m x n x k",
            "N:M, L",
            "kernel",
            "µs",
            "TFLOP/s",
            "operations an element",
            "cuBLAS µs",
            "times as fast",
        ];
        let mut times = Grid::new(titles);
        let mut last: BTreeMap<[usize; 3], BTreeMap<[usize; 3], &NmRecord>> = BTreeMap::new();
        for record in records {
            let [n, m, l] = record.facts.pattern;
            times.row([
                record.facts.shape.to_string(),
                format!("{n}:{m}, {l}"),
                record.facts.plan.as_ref().map_or(String::new(), |plan| plan.entries.join(", ")),
                number(record.us(), 1),
                number(record.facts.tflops, 1),
                number(record.facts.intensity(), 1),
                number(record.facts.dense_us, 1),
                number(ratio(record), 2),
            ]);
            let NmShape { m, n, k } = record.facts.shape;
            last.entry(record.facts.pattern).or_default().insert([m, n, k], record);
        }
        let titles = ["N:M, L", "sparsity", "geometric mean over cuBLAS", "least", "shapes"];
        let mut means = Grid::new(titles);
        for ([n, m, l], records) in last {
            let ratios: Vec<f64> = records.values().filter_map(|&record| ratio(record)).collect();
            let (Some(mean), Some(any)) = (geometric_mean(&ratios), records.values().next()) else {
                continue;
            };
            means.row([
                format!("{n}:{m}, {l}"),
                format!("{:.1} %", 100.0 * any.facts.sparsity()),
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
    Some(record.facts.dense_us? / record.us()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of m rows and the pattern 8:32, a product that cuBLAS takes `dense_us` for and we one.
    fn record(m: usize, dense_us: f64) -> NmRecord {
        let text = format!(
            r#"{{"schema":1,"revision":"","device":{{"name":"","kind":"cpu","driver":null,"multiprocessors":0}},
            "shape":{{"m":{m},"n":2,"k":3}},"pattern":[8,32,32],"precision":"f16","layout":"k-major","packing":"auto",
            "plan":null,"check":null,"tflops":null,"dense_us":{dense_us},"error":null,
            "time":{{"median_us":1.0,"min_us":1.0,"max_us":1.0,"noise":0.0,"batches":1,"calls":1}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_shape_that_is_measured_twice_counts_once() {
        let text = summarise(&[record(1, 9.0), record(2, 8.0), record(1, 2.0)]);
        assert!(text.contains("| 8:32, 32 | 75.0 % | 4.00 | 2.00 | 2 |"), "{text}");
        assert_eq!(text.matches("| 1x2x3 |").count(), 2, "{text}");
        let mut planned = record(1, 2.0);
        let plan = r#"{"algorithm":"","entries":[],"packing":"packed","tile":"64 × 128, 16 kept rows a stage, strips of 32",
            "tuned":[],"device_bytes":0,"preprocess_ms":0.0}"#;
        planned.facts.plan = Some(serde_json::from_str(plan).unwrap());
        // Of 8:32 a stage of 16 kept rows is of 64 rows: 262,144 operations for 22,528 elements.
        assert_eq!(planned.facts.intensity(), Some(262_144.0 / 22_528.0));
        assert!(summarise(&[planned]).contains("| 11.6 |"));
        let failed = NmRecord { time: None, ..record(1, 2.0) };
        let text = summarise(&[record(1, 9.0), record(2, 8.0), failed]);
        assert!(text.contains("| 8:32, 32 | 75.0 % | 8.00 | 8.00 | 1 |"), "{text}");
    }
}

//! Records of tensor products as tables in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use windrow::Determinism;

use super::{TensorOperation, TensorRecord};
use crate::suites::markdown::{Grid, geometric_mean, number};

/// The records of each tensor and width.
type Cases<'a> = BTreeMap<(&'a str, usize), Vec<&'a TensorRecord>>;

/// A table for each product and mode: what the library chooses, the best point of segment reduction in a fixed order
/// and in any, and atomic additions, with and without setting the result to zero; then geometric means of the ratios.
pub(super) fn summarise(records: &[TensorRecord]) -> String {
    let mut tables: BTreeMap<(TensorOperation, usize), Cases<'_>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.facts.width > 0) {
        let table = tables.entry((record.facts.operation, record.facts.mode)).or_default();
        table.entry((&record.facts.tensor, record.facts.width)).or_default().push(record);
    }
    let mut out = String::new();
    for ((operation, mode), cases) in tables {
        let mut grid = Grid::new([
            "tensor",
            "width",
            "default µs",
            "best point",
            "µs",
            "best point, any order",
            "µs",
            "atomic µs",
            "without zeroing",
            "default, times as fast",
            "best, times as fast",
        ]);
        let (mut of_default, mut of_best) = (Vec::new(), Vec::new());
        for ((tensor, width), paths) in cases {
            let fixed = Determinism::RunToRun.to_string();
            let named = |name: &str| {
                paths.iter().rev().find(|record| record.facts.path == name && record.time.is_some())
            };
            let time = TensorRecord::us;
            let default = paths
                .iter()
                .find(|record| record.facts.path == "default" && record.facts.determinism == fixed);
            let default = default.and_then(|record| time(record));
            let best = |in_order: bool| {
                let points = paths.iter().filter(|record| {
                    record.facts.path.starts_with('{') && (record.facts.determinism == fixed) == in_order
                });
                let times = points.filter_map(|record| Some((time(record)?, record.facts.path.as_str())));
                times.min_by(|a, b| a.0.total_cmp(&b.0))
            };
            let atomic = named("atomic");
            let atomic_us = atomic.and_then(|record| time(record));
            let kernel_us = atomic.and_then(|record| record.facts.kernel_time).map(|time| time.median_us);
            let over = |us: Option<f64>| Some(atomic_us? / us?);
            let (in_order, in_any) = (best(true), best(false));
            let ratios = [over(default), over(in_order.map(|(us, _)| us))];
            of_default.extend(ratios[0]);
            of_best.extend(ratios[1]);
            let name = |best: Option<(f64, &str)>| best.map_or_else(String::new, |(_, path)| path.to_owned());
            grid.row([
                tensor.to_owned(),
                width.to_string(),
                number(default, 1),
                name(in_order),
                number(in_order.map(|(us, _)| us), 1),
                name(in_any),
                number(in_any.map(|(us, _)| us), 1),
                number(atomic_us, 1),
                number(kernel_us, 1),
                number(ratios[0], 2),
                number(ratios[1], 2),
            ]);
        }
        let means = [of_default, of_best].map(|ratios| number(geometric_mean(&ratios), 2));
        let _ = writeln!(
            out,
            "## {operation}, mode {mode}\n\n{grid}\nOver atomic additions, geometric mean: default {}, best point in a fixed order {}.\n",
            means[0], means[1]
        );
    }
    out
}

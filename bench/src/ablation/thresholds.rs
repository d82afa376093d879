//! Partitions with thresholds 0 to 8.

use windrow::partition::{PartitionRule, Thresholds, assign, density};
use windrow::{Algorithm, Precision, RowAssignment};

use super::record::{AblationFacts, ThresholdFacts};
use super::{Bench, Measurement};
use crate::error::BenchError;
use crate::sweep::SweepPath;

/// The largest threshold, that of Figure 14 of RSH-SpMM.
const LARGEST: u32 = 8;

pub(super) fn facts(bench: &mut Bench<'_>) -> Result<Vec<AblationFacts>, BenchError> {
    let overlap = |t| PartitionRule::Overlap { thresholds: Thresholds::new(t) };
    let printed = |t| PartitionRule::Printed { max_entries: t, max_increment: t };
    let mut facts = of_rule(bench, "overlap", &overlap)?;
    facts.extend(of_rule(bench, "printed", &printed)?);
    Ok(facts)
}

fn of_rule(
    bench: &mut Bench<'_>,
    name: &str,
    rule: &dyn Fn(u32) -> PartitionRule,
) -> Result<Vec<AblationFacts>, BenchError> {
    let path = SweepPath::new(Algorithm::Hybrid, Precision::F16);
    let mut facts = Vec::new();
    let mut last: Option<(u32, RowAssignment, Option<Measurement>)> = None;
    for max_entries in 0..=LARGEST {
        let found = density(bench.csr, None, rule(max_entries))?;
        let rows = assign(bench.csr, rule(max_entries));
        let same = last.take().filter(|(_, before, _)| before.paths() == rows.paths());
        let (same_as, hybrid) = match same {
            Some((first, _, hybrid)) => (Some(first), hybrid),
            None => (None, bench.measure(path, None, Some(rule(max_entries)))),
        };
        last = Some((same_as.unwrap_or(max_entries), rows, hybrid.clone()));
        let entries = found.entries_in_tiles + found.residual_entries;
        let share = |part: u64| if entries == 0 { 0.0 } else { part as f64 / entries as f64 };
        facts.push(AblationFacts::Threshold(ThresholdFacts {
            rule: name.to_owned(),
            max_entries,
            tiles: found.tiles,
            windows: found.windows,
            mean_nnz_per_tile: found.mean_nnz_per_tile,
            mean_nnz_per_window: found.mean_nnz_per_window,
            residual_rows: found.residual_rows,
            residual_share: share(found.residual_entries),
            predicted_us: bench.predicted_us(&found, path),
            same_as,
            hybrid,
        }));
    }
    Ok(facts)
}

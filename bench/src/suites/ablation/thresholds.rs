//! Partitions with thresholds 0 to 8.

use windrow::partition::{PartitionRule, Thresholds, assign, density};
use windrow::{Algorithm, Precision};

use super::bench::Bench;
use super::facts::{AblationFacts, ThresholdFacts};
use crate::measure::{BenchError, SweepPath};

/// The largest threshold, that of Figure 14 of RSH-SpMM.
pub(super) const LARGEST: u32 = 8;

/// A rule with one threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// By the columns that rows share.
    Overlap,
    /// Algorithm 1 of the paper to the letter, with both of its thresholds the same.
    Printed,
}

impl Rule {
    pub(super) const ALL: [Self; 2] = [Self::Overlap, Self::Printed];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Overlap => "overlap",
            Self::Printed => "printed",
        }
    }

    fn with(self, max_entries: u32) -> PartitionRule {
        match self {
            Self::Overlap => PartitionRule::Overlap { thresholds: Thresholds::new(max_entries) },
            Self::Printed => PartitionRule::Printed { max_entries, max_increment: max_entries },
        }
    }
}

pub(super) fn facts(
    bench: &mut Bench<'_>,
    rule: Rule,
    max_entries: u32,
) -> Result<AblationFacts, BenchError> {
    let path = SweepPath::new(Algorithm::Hybrid, Precision::F16);
    let found = density(bench.csr, None, rule.with(max_entries))?;
    let rows = assign(bench.csr, rule.with(max_entries)).map_err(windrow::FormatError::from)?;
    // A rule begins with threshold 0: what another rule left is none of its.
    let last = bench.shared.last_threshold.take().filter(|_| max_entries > 0);
    let same = last.filter(|(_, before, _)| before.paths() == rows.paths());
    let (same_as, hybrid) = match same {
        Some((first, _, hybrid)) => (Some(first), hybrid),
        None => (None, bench.measure(path, None, Some(rule.with(max_entries)))),
    };
    bench.shared.last_threshold = Some((same_as.unwrap_or(max_entries), rows, hybrid.clone()));
    let entries = found.entries_in_tiles + found.residual_entries;
    let share = |part: u64| if entries == 0 { 0.0 } else { part as f64 / entries as f64 };
    Ok(AblationFacts::Threshold(ThresholdFacts {
        rule: rule.name().to_owned(),
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
    }))
}

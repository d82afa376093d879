//! Divisions by column vectors with thresholds 1/8 to 8/8.

use windrow::partition::{PartitionRule, VectorThreshold, split_vectors};
use windrow::{Algorithm, Precision, SpmmOptions};

use super::bench::Bench;
use super::facts::{AblationFacts, VectorFacts};
use crate::measure::{BenchError, SweepPath};

pub(super) fn facts(bench: &mut Bench<'_>, threshold: VectorThreshold) -> Result<AblationFacts, BenchError> {
    let path = SweepPath::new(Algorithm::Hybrid, Precision::F16);
    let partition = Some(PartitionRule::ColumnVectors { threshold });
    let divided = SpmmOptions { partition, ..path.options };
    let split = split_vectors(bench.csr, None, threshold)?;
    let found = split.density;
    let rows_in_both = split.rows_in_both() as u64;
    let same = bench.shared.last_vectors.take().filter(|(_, before, _)| *before == split.tiles.sources);
    let (same_as, hybrid) = match same {
        Some((first, _, hybrid)) => (Some(first), hybrid),
        None => (None, bench.measure(divided.into(), None, None)),
    };
    bench.shared.last_vectors = Some((same_as.unwrap_or(threshold), split.tiles.sources, hybrid.clone()));
    let entries = found.entries_in_tiles + found.residual_entries;
    let share = |part: u64| if entries == 0 { 0.0 } else { part as f64 / entries as f64 };
    Ok(AblationFacts::Vectors(VectorFacts {
        threshold: threshold.to_string(),
        steps: found.steps,
        columns: found.columns,
        mean_nnz_per_tile: found.mean_nnz_per_tile,
        tile_share: share(found.entries_in_tiles),
        rows_in_both,
        predicted_us: bench.predicted_us(&found, path),
        same_as: same_as.map(|threshold| threshold.to_string()),
        hybrid,
    }))
}

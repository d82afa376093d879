//! Divisions by column vectors with thresholds 1/8 to 8/8.

use windrow::partition::{VectorThreshold, split_vectors};
use windrow::{Algorithm, Precision};

use super::record::{AblationFacts, VectorFacts};
use super::{Bench, Measurement};
use crate::error::BenchError;
use crate::sweep::SweepPath;

pub(super) fn facts(bench: &mut Bench<'_>) -> Result<Vec<AblationFacts>, BenchError> {
    let path = SweepPath::new(Algorithm::Hybrid, Precision::F16);
    let mut facts = Vec::new();
    let mut last: Option<(VectorThreshold, Vec<u64>, Option<Measurement>)> = None;
    for threshold in VectorThreshold::ALL {
        let split = split_vectors(bench.csr, None, threshold)?;
        let found = split.density;
        let same = last.take().filter(|(_, before, _)| *before == split.tiles.sources);
        let (same_as, hybrid) = match same {
            Some((first, _, hybrid)) => (Some(first), hybrid),
            None => (None, bench.measure(SweepPath { vectors: Some(threshold), ..path }, None, None)),
        };
        let entries = found.entries_in_tiles + found.residual_entries;
        let share = |part: u64| if entries == 0 { 0.0 } else { part as f64 / entries as f64 };
        facts.push(AblationFacts::Vectors(VectorFacts {
            threshold: threshold.to_string(),
            steps: found.steps,
            columns: found.columns,
            mean_nnz_per_tile: found.mean_nnz_per_tile,
            tile_share: share(found.entries_in_tiles),
            rows_in_both: split.rows_in_both() as u64,
            predicted_us: bench.predicted_us(&found, path),
            same_as: same_as.map(|threshold| threshold.to_string()),
            hybrid: hybrid.clone(),
        }));
        last = Some((same_as.unwrap_or(threshold), split.tiles.sources, hybrid));
    }
    Ok(facts)
}

//! Bytes of formats.

use windrow::RsTile;
use windrow::partition::{CostModel, PartitionRule, assign, estimate, footprint};

use super::Bench;
use super::record::{AblationFacts, FormatFacts};
use crate::error::BenchError;

/// Bytes of an element of `B` for which the partition is estimated: f16.
const ELEMENT_BYTES: usize = 2;

/// With all rows in tiles, and with the partition that the cost model prefers.
pub(super) fn facts(bench: &Bench<'_>) -> Result<Vec<AblationFacts>, BenchError> {
    let model = CostModel::h200();
    let estimated = estimate(bench.csr, None, bench.width, ELEMENT_BYTES, &model)?.best.rule;
    let rules = [("all in tiles", PartitionRule::AllTile), ("estimated", estimated)];
    rules.into_iter().map(|(name, rule)| of_rule(bench, name, rule)).collect()
}

fn of_rule(bench: &Bench<'_>, name: &str, rule: PartitionRule) -> Result<AblationFacts, BenchError> {
    let sizes = footprint(bench.csr, &RsTile::from_csr(bench.csr, &assign(bench.csr, rule))?);
    let csr_bytes =
        sizes.iter().find(|size| size.format == "CSR").map_or(1, |size| size.total_bytes().max(1));
    let formats = sizes.iter().map(|size| FormatFacts {
        format: size.format.to_owned(),
        metadata_bytes: size.metadata_bytes,
        value_bytes: size.value_bytes,
        over_csr: size.total_bytes() as f64 / csr_bytes as f64,
    });
    Ok(AblationFacts::Bytes { partition: name.to_owned(), formats: formats.collect() })
}

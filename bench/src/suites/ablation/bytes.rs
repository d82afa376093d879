//! Part `bytes`: what a matrix takes in each format, indices and values apart.

use windrow::RsTile;
use windrow::partition::{CostModel, PartitionRule, assign, estimate, footprint};

use super::bench::Bench;
use super::facts::{AblationFacts, FormatFacts};
use crate::measure::BenchError;

/// Bytes of an element of `B` for which the partition is estimated: f16.
const ELEMENT_BYTES: usize = 2;

/// With all rows in tiles, or with the partition that the cost model prefers.
pub(super) fn facts(bench: &Bench<'_>, estimated: bool) -> Result<AblationFacts, BenchError> {
    if !estimated {
        return of_rule(bench, "all in tiles", PartitionRule::AllTile);
    }
    let found = estimate(bench.csr, None, bench.width, ELEMENT_BYTES, &CostModel::h200())?;
    of_rule(bench, "estimated", found.best.rule)
}

fn of_rule(bench: &Bench<'_>, name: &str, rule: PartitionRule) -> Result<AblationFacts, BenchError> {
    let sizes = footprint(
        bench.csr,
        &RsTile::from_csr(bench.csr, &assign(bench.csr, rule).map_err(windrow::FormatError::from)?)?,
    );
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

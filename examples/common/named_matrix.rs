//! A matrix by its name: a file, a made-up one, or one with so many entries in each row.

use windrow::Csr;
use windrow::synthetic::{SplitMix64, Synthetic};

/// The matrix of that name: a file, the name of a made-up one such as `fem100k`, or `random:ROWS:ENTRIES`.
///
/// # Errors
/// Those of reading it, and numbers that are none.
pub(crate) fn matrix(name: &str) -> Result<Csr<f32>, Box<dyn std::error::Error + Send + Sync>> {
    if let Some((rows, entries)) = name.strip_prefix("random:").and_then(|shape| shape.split_once(':')) {
        let (rows, entries): (u32, u32) = (rows.parse()?, entries.parse()?);
        let entries = entries.min(rows);
        // As many columns apart as there are entries in a row, each anywhere in its part.
        let part = rows / entries.max(1);
        let mut rng = SplitMix64::new(3);
        let columns: Vec<u32> = (0..rows)
            .flat_map(|_| (0..entries).map(|i| i * part + rng.below(part)).collect::<Vec<_>>())
            .collect();
        let offsets = (0..=rows).map(|row| u64::from(row) * u64::from(entries)).collect();
        let (rows, values) = (rows as usize, vec![0.5; columns.len()]);
        return Ok(Csr::try_from_parts(rows, rows, offsets, columns, values)?);
    }
    match name.parse::<Synthetic>() {
        Ok(made_up) => Ok(made_up.generate(1)?),
        Err(_) => Ok(windrow::io::read_csr(name)?),
    }
}

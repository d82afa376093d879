//! The made-up matrices of the grid.

use windrow::Csr;
use windrow::synthetic::SplitMix64;

use super::SEED;
use crate::measure::error::BenchError;

/// Windows of 8 rows that share `shared` columns; each row has `own` more, anywhere.
pub(super) fn mixed(rows: u32, (shared, own): (u32, u32)) -> Result<Csr<f32>, BenchError> {
    from_windows(rows, |random, columns| {
        let of_window: Vec<u32> = (0..shared).map(|_| random.below(rows)).collect();
        for row in columns {
            row.extend(&of_window);
            row.extend((0..own).map(|_| random.below(rows)));
        }
    })
}

/// Windows of 8 rows with 16 columns, each of which as many rows hold as chance has it: 1 to 8.
pub(super) fn graded(rows: u32) -> Result<Csr<f32>, BenchError> {
    from_windows(rows, |random, columns| {
        for _ in 0..16 {
            let (column, holders) = (random.below(rows), 1 + random.below(8));
            let first = random.below(8);
            for holder in first..first + holders {
                columns[holder as usize % 8].push(column);
            }
        }
    })
}

/// A square matrix from what `fill` puts into the 8 rows of each window; a column that is drawn twice counts once.
fn from_windows(
    rows: u32,
    mut fill: impl FnMut(&mut SplitMix64, &mut [Vec<u32>; 8]),
) -> Result<Csr<f32>, BenchError> {
    let mut random = SplitMix64::new(SEED);
    let (mut row_offsets, mut col_indices) = (vec![0u64], Vec::new());
    for _ in 0..rows / 8 {
        let mut columns: [Vec<u32>; 8] = Default::default();
        fill(&mut random, &mut columns);
        for mut row in columns {
            row.sort_unstable();
            row.dedup();
            col_indices.extend(row);
            row_offsets.push(col_indices.len() as u64);
        }
    }
    let values = windrow::synthetic::seeded_values(col_indices.len(), SEED)?;
    Ok(Csr::try_from_parts(rows as usize, rows as usize, row_offsets, col_indices, values)?)
}

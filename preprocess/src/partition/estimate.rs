//! The partition that takes least time.

use windrow_formats::memory::try_copy;
use windrow_formats::{Csr, FormatError, Permutation};

use super::density::density_of;
use super::windows::tile_rows;
use super::{CostModel, Density, PartitionRule, ProductShape, Thresholds, rows_with_entries};

/// The largest threshold that is tried: RSH-SpMM finds nothing left to gain above 6.
const LARGEST_THRESHOLD: u32 = 8;

/// The partition with the least predicted time, and those that it was chosen from.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// The prediction with the least time: of equals, the one that comes first in `predictions`.
    pub best: Prediction,
    /// All rows in tiles, all in the residual, then [`PartitionRule::Overlap`] with `max_entries` from 0 to 8.
    pub predictions: Vec<Prediction>,
}

/// What is to be expected of a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// How rows are divided.
    pub rule: PartitionRule,
    /// What the tiles then hold.
    pub density: Density,
    /// Time of one product.
    pub seconds: f64,
}

impl Estimate {
    /// The thresholds of the best partition, if it is a hybrid of tiles and residual.
    pub fn thresholds(&self) -> Option<Thresholds> {
        match self.best.rule {
            PartitionRule::Overlap { thresholds } => Some(thresholds),
            _ => None,
        }
    }
}

/// Chooses the partition of `csr` for a product of `width` columns, `element_bytes` each, by predicting the time of
/// every candidate with `model`. Rows are visited in `order` or, without one, as they come.
///
/// A hybrid is two launches, each of its parts alone is one. So it is
/// chosen only where it saves more over the better of the two than its extra launch costs; otherwise the best
/// partition is [`PartitionRule::AllTile`] or [`PartitionRule::AllResidual`].
///
/// # Cost
/// At most nine times that of [`density`](super::density); thresholds at which no row leaves are not counted
/// again. Linear in rows and entries, parallel; needs 12 bytes for each row.
///
/// # Errors
/// [`FormatError::LengthMismatch`] unless `order` is as long as there are rows; [`FormatError::OutOfMemory`].
///
/// # Examples
/// ```
/// use windrow_formats::Csr;
/// use windrow_preprocess::partition::{CostModel, PartitionRule, estimate};
///
/// // 8 × 8 blocks: tiles gather an eighth of what their entries would.
/// let blocks = Csr::from_dense(8, 8, &[1.0f32; 64])?;
/// let estimate = estimate(&blocks, None, 128, 2, &CostModel::h200())?;
/// assert_eq!(estimate.best.rule, PartitionRule::AllTile);
/// assert_eq!(estimate.predictions.len(), 11);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn estimate<V: Sync>(
    csr: &Csr<V>,
    order: Option<&Permutation>,
    width: usize,
    element_bytes: usize,
    model: &CostModel,
) -> Result<Estimate, FormatError> {
    let rows = rows_with_entries(csr, order)?;
    let shape = ProductShape { rows: csr.rows(), cols: csr.cols(), width, element_bytes };
    let predict = |rule, density| Prediction { rule, density, seconds: model.seconds(&density, shape) };

    let all_tile = density_of(csr, rows.len(), &rows)?;
    let mut predictions = vec![
        predict(PartitionRule::AllTile, all_tile),
        predict(PartitionRule::AllResidual, density_of(csr, rows.len(), &[])?),
    ];
    let mut of_length = [false; LARGEST_THRESHOLD as usize + 1];
    for &row in &rows {
        if let Some(occurs) = of_length.get_mut(csr.row_len(row as usize)) {
            *occurs = true;
        }
    }
    // What the threshold before gave.
    let (mut in_tiles, mut density) = (try_copy(&rows, "rows in tiles")?, all_tile);
    for (max_entries, occurs) in (0..=LARGEST_THRESHOLD).zip(of_length) {
        let rule = PartitionRule::Overlap { thresholds: Thresholds::new(max_entries) };
        if occurs {
            let staying = tile_rows(csr, &rows, rule)?;
            if staying != in_tiles {
                density = density_of(csr, rows.len(), &staying)?;
                in_tiles = staying;
            }
        }
        predictions.push(predict(rule, density));
    }
    let best = predictions[1..]
        .iter()
        .fold(predictions[0], |best, next| if next.seconds < best.seconds { *next } else { best });
    Ok(Estimate { best, predictions })
}

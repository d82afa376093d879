//! Weights with a vector-wise N:M pattern.

use super::{SplitMix64, seeded_values};
use crate::memory::{dimension, narrow, try_zeroed};
use crate::{FormatError, NmPattern, Value, VectorNm, VectorNmParts};

/// Weights of `k × n` of which a random choice of vectors is kept: in every group, for the columns of every vector,
/// each choice of `N` rows is as likely as any other. A ragged group that has fewer rows keeps them all.
///
/// The values are [`seeded_values`] of `seed`. The positions come from the stream of `!seed`, so that they do not
/// depend on the values.
///
/// # Cost
/// A number is drawn for each row and vector, one after the other.
///
/// # Errors
/// [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
///
/// # Examples
/// ```
/// use windrow_formats::NmPattern;
/// use windrow_formats::synthetic::seeded_weights;
///
/// let weights = seeded_weights::<f32>((64, 100), NmPattern::new(2, 8, 32)?, 1)?;
/// assert_eq!((weights.kept_rows(), weights.vectors()), (16, 4));
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn seeded_weights<V: Value>(
    (k, n): (usize, usize),
    pattern: NmPattern,
    seed: u64,
) -> Result<VectorNm<V>, FormatError> {
    dimension(k, "rows")?;
    dimension(n, "columns")?;
    let (w, q) = (pattern.kept_rows(k), pattern.vectors(n));
    let mut indices = try_zeroed::<u8>(w.saturating_mul(q), "indices")?;
    let mut random = SplitMix64::new(!seed);
    // Without columns there are no vectors, and no chunks either.
    let of_group = pattern.n().saturating_mul(q).max(1);
    for (group, positions) in indices.chunks_mut(of_group).enumerate() {
        let rows = narrow(pattern.m().min(k - group * pattern.m()));
        for vector in 0..q {
            let mut wanted = narrow(positions.len() / q);
            let mut at = vector;
            // Selection sampling (Knuth, Seminumerical Algorithms, section 3.4.2, algorithm S): row after row, with the
            // odds that are left.
            for (row, left) in (0..=u8::MAX).zip((1..=rows).rev()) {
                if random.below(left) < wanted {
                    positions[at] = row;
                    at += q;
                    wanted -= 1;
                }
            }
        }
    }
    let values = seeded_values(w.saturating_mul(n), seed)?;
    VectorNm::try_from_parts(VectorNmParts { rows: k, cols: n, pattern, values, indices })
}

//! Pruning by magnitude: which rows of each group are kept.

use rayon::prelude::*;
use windrow_formats::memory::{make_room, try_zeroed};
use windrow_formats::{FormatError, NmPattern, OutOfMemory, Value, VectorNm};

/// `dense`, `k × n` row-major without padding, pruned to `pattern`: of the vectors that a group has in the same
/// columns, the `N` of largest L2 norm are kept.
///
/// Of equal norms, the one in the lower row is kept. A vector with a NaN counts as larger than any other, and so
/// reaches the products, where it is seen. Norms are compared by their squares, summed in f64 in the order of the
/// columns, so f64 elements are told apart only where their squares are: those beyond 1.3·10¹⁵⁴ count as equal, those
/// below 10⁻¹⁶² as zero.
///
/// The result depends on nothing but the arguments, whatever the number of threads.
///
/// # Cost
/// Linear in the elements, parallel over groups.
///
/// # Errors
/// - [`FormatError::LengthMismatch`] unless `dense` has `k·n` elements;
/// - [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
///
/// # Examples
/// ```
/// use windrow_formats::NmPattern;
/// use windrow_preprocess::nm::prune_magnitude;
///
/// let dense = [
///     1.0f32, -5.0, //
///     2.0, 0.5, //
///     -3.0, 1.0, //
///     0.0, 1.0,
/// ];
/// let weights = prune_magnitude(&dense, 4, 2, NmPattern::new(2, 4, 1)?)?;
/// assert_eq!(weights.to_dense()?, [0.0, -5.0, 2.0, 0.0, -3.0, 1.0, 0.0, 0.0]);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
pub fn prune_magnitude<T: Value>(
    dense: &[T],
    k: usize,
    n: usize,
    pattern: NmPattern,
) -> Result<VectorNm<T>, FormatError> {
    let expected = k.saturating_mul(n);
    if dense.len() != expected {
        let (array, why) = ("the dense matrix", "one for each row and column");
        return Err(FormatError::LengthMismatch { array, found: dense.len(), expected, why });
    }
    let q = pattern.vectors(n);
    let mut indices = try_zeroed::<u8>(pattern.kept_rows(k).saturating_mul(q), "indices")?;
    if !indices.is_empty() {
        let groups = dense.par_chunks(pattern.m().saturating_mul(n));
        groups
            .zip(indices.par_chunks_mut(pattern.n().saturating_mul(q)))
            .try_for_each_init(Vec::new, |norms, (group, indices)| {
                keep_largest(group, n, pattern.l(), norms, indices)
            })?;
    }
    VectorNm::from_dense_at(dense, (k, n), pattern, indices)
}

/// Puts the positions of the vectors of largest norm, ascending, into `indices`: `kept × q`, of one group. `norms` is
/// room for the norms of all vectors.
fn keep_largest<T: Value>(
    group: &[T],
    n: usize,
    l: usize,
    norms: &mut Vec<f64>,
    indices: &mut [u8],
) -> Result<(), OutOfMemory> {
    let (rows, q) = (group.len() / n, n.div_ceil(l));
    let kept = indices.len() / q;
    // Row by row through memory, not down the columns.
    norms.clear();
    make_room(norms, rows * q, "norms of a group")?;
    norms.extend(group.chunks(n).flat_map(|row| row.chunks(l)).map(squared_norm));
    let mut order: Vec<usize> = Vec::with_capacity(rows);
    for vector in 0..q {
        order.clear();
        order.extend(0..rows);
        if kept < rows {
            let norm = |row: usize| norms[row * q + vector];
            order.select_nth_unstable_by(kept, |&a, &b| norm(b).total_cmp(&norm(a)).then(a.cmp(&b)));
            order.truncate(kept);
            order.sort_unstable();
        }
        for (u, &position) in order.iter().enumerate() {
            indices[u * q + vector] = u8::try_from(position).unwrap_or(u8::MAX);
        }
    }
    Ok(())
}

/// `Σ x²`; what is no number comes after infinity in the total order.
fn squared_norm<T: Value>(vector: &[T]) -> f64 {
    let sum: f64 = vector.iter().map(|x| x.to_f64() * x.to_f64()).sum();
    if sum.is_nan() { f64::NAN.abs() } else { sum }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn pattern(n: usize, m: usize, l: usize) -> NmPattern {
        NmPattern::new(n, m, l).unwrap()
    }

    #[test]
    fn ties_go_to_the_lower_row_and_nan_is_largest() {
        let kept = |dense: &[f32], n: usize, m: usize| {
            prune_magnitude(dense, dense.len(), 1, pattern(n, m, 1)).unwrap().indices().to_vec()
        };
        assert_eq!(kept(&[1.0, -1.0, 1.0, 1.0], 2, 4), [0, 1]);
        assert_eq!(kept(&[0.0; 6], 2, 4), [0, 1, 0, 1]);
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        assert_eq!(kept(&[infinity, 1.0, -nan, -infinity], 1, 4), [2]);
        assert_eq!(kept(&[infinity, 1.0, nan, -infinity], 2, 4), [0, 2]);
    }

    #[test]
    fn squares_that_f64_does_not_hold_are_equal_or_zero() {
        let kept = |dense: &[f64]| prune_magnitude(dense, 2, 1, pattern(1, 2, 1)).unwrap().indices()[0];
        assert_eq!([kept(&[1e155, 1e156]), kept(&[1e153, 1e154])], [0, 1]);
        assert_eq!([kept(&[0.0, 9e-163]), kept(&[0.0, 2e-162])], [0, 1]);
    }

    #[test]
    fn a_ragged_group_keeps_what_it_has() {
        let weights = prune_magnitude(&[1.0f32, 2.0, 3.0, 4.0, 5.0], 5, 1, pattern(2, 4, 7)).unwrap();
        assert_eq!((weights.indices(), weights.values()), (&[2, 3, 0][..], &[3.0, 4.0, 5.0][..]));
    }

    #[test]
    fn norms_are_those_of_whole_vectors() {
        // (3, 0) against (2, 2.5): the second is longer, though its largest element is smaller.
        let weights = prune_magnitude(&[3.0f32, 0.0, 2.0, 2.5], 2, 2, pattern(1, 2, 2)).unwrap();
        assert_eq!(weights.indices(), [1]);
    }

    #[test]
    fn a_matrix_of_another_size_is_refused() {
        let error = prune_magnitude(&[0.0f32; 5], 2, 3, pattern(1, 2, 2)).unwrap_err().to_string();
        assert_eq!(error, "the dense matrix has 5 elements but 6 are needed, one for each row and column");
        assert!(prune_magnitude::<f32>(&[], usize::MAX, 2, pattern(1, 2, 2)).is_err());
        for (k, n) in [(0, 0), (0, 5), (7, 0)] {
            let empty = prune_magnitude::<f32>(&[], k, n, pattern(1, 2, 2)).unwrap();
            assert!(empty.values().is_empty() && empty.indices().is_empty());
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_is_no_shorter_than_what_is_dropped(
            (k, n, l) in (0..20usize, 0..9usize, 1..6usize),
            (kept, m) in (1..=9usize).prop_flat_map(|m| (1..=m, Just(m))),
            elements in vec(-3..=3i8, 200),
        ) {
            let dense: Vec<f32> = elements.iter().take(k * n).map(|&x| f32::from(x)).collect();
            let weights = prune_magnitude(&dense, k, n, pattern(kept, m, l)).unwrap();
            for (group, v) in (0..weights.groups()).flat_map(|g| (0..weights.vectors()).map(move |v| (g, v))) {
                let norm = |row: usize| -> f32 {
                    weights.vector_columns(v).map(|j| dense[row * n + j] * dense[row * n + j]).sum()
                };
                let rows: Vec<usize> =
                    weights.kept_of_group(group).map(|u| weights.source_row(u, v)).collect();
                let mut want: Vec<usize> = weights.group_rows(group).collect();
                want.sort_by(|&a, &b| norm(b).total_cmp(&norm(a)).then(a.cmp(&b)));
                want.truncate(kept);
                want.sort_unstable();
                prop_assert_eq!(rows, want);
            }
            // What has the pattern stays as it is, and pruning takes it from there unchanged.
            let pruned = weights.to_dense().unwrap();
            let again = prune_magnitude(&pruned, k, n, weights.pattern()).unwrap();
            prop_assert_eq!(again.to_dense().unwrap(), pruned);
        }
    }
}

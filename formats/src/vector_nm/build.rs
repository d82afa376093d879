//! From a dense matrix: the vectors that hold entries, or those that a caller chose.

use half::f16;
use rayon::prelude::*;

use super::check::{self, length};
use super::{NmPattern, VectorNm};
use crate::memory::{dimension, try_par_collect, try_with_room, try_zeroed};
use crate::{FormatError, OutOfMemory, Value};

impl<T: Value> VectorNm<T> {
    /// `dense`, `k × n` row-major without padding, which has the pattern already.
    ///
    /// Where a group has fewer than `N` vectors with entries, the lowest of its other positions are kept too, with
    /// their zeros (a `−0.0` keeps its sign only in a vector that is kept). A NaN is an entry.
    ///
    /// # Cost
    /// Linear in the elements, parallel over groups.
    ///
    /// # Errors
    /// - [`FormatError::NmGroup`] for the first group, and in it the first columns of a vector, with entries in more
    ///   than `N` rows;
    /// - [`FormatError::LengthMismatch`] unless `dense` has `k·n` elements;
    /// - [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::{NmPattern, VectorNm};
    ///
    /// let pattern = NmPattern::new(1, 2, 1)?;
    /// assert_eq!(VectorNm::from_dense(&[0.0f32, 7.0], 2, 1, pattern)?.indices(), [1]);
    /// let error = VectorNm::from_dense(&[5.0f32, 7.0], 2, 1, pattern).unwrap_err().to_string();
    /// assert!(error.starts_with("group 0 (rows 0..2) has 2 rows with entries in columns 0..1 (vector 0)"));
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn from_dense(dense: &[T], k: usize, n: usize, pattern: NmPattern) -> Result<Self, FormatError> {
        check_dense(dense, k, n)?;
        let q = pattern.vectors(n);
        let mut indices = try_zeroed::<u8>(pattern.kept_rows(k) * q, "indices")?;
        if !indices.is_empty() {
            let groups = indices.par_chunks_mut(pattern.n().saturating_mul(q)).enumerate();
            let broken = groups.find_map_first(|(group, indices)| {
                let rows = pattern.m().min(k - group * pattern.m());
                let elements = &dense[group * pattern.m() * n..][..rows * n];
                choose(elements, n, pattern, indices).err().map(|wrong| match wrong {
                    Wrong::TooMany { vector, found } => {
                        let (first_row, first_column) = (group * pattern.m(), vector * pattern.l());
                        FormatError::NmGroup {
                            group,
                            vector,
                            rows: (first_row, first_row + rows),
                            columns: (first_column, n.min(first_column + pattern.l())),
                            found,
                            limit: pattern.n(),
                        }
                    }
                    Wrong::Memory(error) => error.into(),
                })
            });
            if let Some(error) = broken {
                return Err(error);
            }
        }
        gather(dense, k, n, pattern, indices)
    }

    /// `dense`, `k × n` row-major without padding, where `mask` keeps it: what is masked out is zero, whatever it
    /// holds.
    ///
    /// Which vectors are kept is read off the mask as [`from_dense`](Self::from_dense) reads it off entries, so a
    /// weight that the mask keeps has its place even if it is zero.
    ///
    /// # Cost
    /// Linear in the elements; 3 bytes of memory beside `dense` and the result for each.
    ///
    /// # Errors
    /// - [`FormatError::NmGroup`] for the first group of which the mask keeps more than `N` rows in a vector;
    /// - [`FormatError::LengthMismatch`] unless `dense` and `mask` have `k·n` elements;
    /// - [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
    ///
    /// # Examples
    /// ```
    /// use windrow_formats::{NmPattern, VectorNm};
    ///
    /// let pattern = NmPattern::new(1, 2, 1)?;
    /// let weights = VectorNm::from_mask(&[5.0f32, 7.0, 0.0, 9.0], &[true, false, true, false], (4, 1), pattern)?;
    /// assert_eq!((weights.values(), weights.indices()), (&[5.0, 0.0][..], &[0, 0][..]));
    /// assert!(VectorNm::from_mask(&[5.0f32, 7.0], &[true, true], (2, 1), pattern).is_err());
    /// # Ok::<(), windrow_formats::FormatError>(())
    /// ```
    pub fn from_mask(
        dense: &[T],
        mask: &[bool],
        (k, n): (usize, usize),
        pattern: NmPattern,
    ) -> Result<Self, FormatError> {
        check_dense(dense, k, n)?;
        length("the mask", mask.len(), Some(dense.len()), "one for each row and column")?;
        let ones = try_par_collect(
            mask.par_iter().map(|&kept| if kept { f16::ONE } else { f16::ZERO }),
            "the mask",
        )?;
        let places = VectorNm::<f16>::from_dense(&ones, k, n, pattern)?;
        // A vector is kept whole; what the mask drops in it is zero.
        let mut weights = gather(dense, k, n, pattern, places.indices)?;
        let dropped =
            weights.values.par_iter_mut().zip(&places.values).filter(|(_, kept)| **kept == f16::ZERO);
        dropped.for_each(|(value, _)| *value = T::ZERO);
        Ok(weights)
    }

    /// The vectors of `dense`, `k × n` row-major without padding, that `indices` name; all others are dropped,
    /// whatever they hold.
    ///
    /// For whoever decides what is kept: `windrow_preprocess::nm::prune_magnitude` by magnitude.
    ///
    /// # Errors
    /// - [`FormatError::LengthMismatch`] unless there are `k·n` elements and `w·q` indices;
    /// - [`FormatError::NmIndexRange`], [`FormatError::NmIndexOrder`] as for [`try_from_parts`](Self::try_from_parts);
    /// - [`FormatError::DimensionTooLarge`], [`FormatError::OutOfMemory`].
    pub fn from_dense_at(
        dense: &[T],
        (k, n): (usize, usize),
        pattern: NmPattern,
        indices: Vec<u8>,
    ) -> Result<Self, FormatError> {
        check_dense(dense, k, n)?;
        check::indices(&indices, k, n, pattern)?;
        gather(dense, k, n, pattern, indices)
    }
}

fn check_dense<T>(dense: &[T], k: usize, n: usize) -> Result<(), FormatError> {
    dimension(k, "rows")?;
    dimension(n, "columns")?;
    length("the dense matrix", dense.len(), k.checked_mul(n), "one for each row and column")
}

/// Why no positions of a group were chosen.
enum Wrong {
    /// The first vector with more rows that have entries than are kept.
    TooMany {
        vector: usize,
        found: usize,
    },
    Memory(OutOfMemory),
}

/// Puts the positions of the vectors with entries, and of as many others as are missing, into `indices`: those of one
/// group.
fn choose<T: Value>(elements: &[T], n: usize, pattern: NmPattern, indices: &mut [u8]) -> Result<(), Wrong> {
    let q = pattern.vectors(n);
    let (rows, kept) = (elements.len() / n, indices.len() / q);
    // Row by row through memory, not down the columns.
    let mut holds = try_with_room(rows * q, "vectors with entries").map_err(Wrong::Memory)?;
    for row in elements.chunks(n) {
        holds.extend(row.chunks(pattern.l()).map(|vector| vector.iter().any(|&x| x != T::ZERO)));
    }
    for vector in 0..q {
        let with_entries = (0..rows).filter(|&row| holds[row * q + vector]).count();
        let Some(mut spare) = kept.checked_sub(with_entries) else {
            return Err(Wrong::TooMany { vector, found: with_entries });
        };
        let mut u = 0;
        for position in 0..rows {
            if !holds[position * q + vector] {
                if spare == 0 {
                    continue;
                }
                spare -= 1;
            }
            indices[u * q + vector] = u8::try_from(position).unwrap_or(u8::MAX);
            u += 1;
        }
    }
    Ok(())
}

/// Takes the vectors that checked indices name.
fn gather<T: Value>(
    dense: &[T],
    k: usize,
    n: usize,
    pattern: NmPattern,
    indices: Vec<u8>,
) -> Result<VectorNm<T>, FormatError> {
    let (q, l) = (pattern.vectors(n), pattern.l());
    let mut values = try_zeroed::<T>(pattern.kept_rows(k) * n, "values")?;
    if n > 0 {
        values.par_chunks_mut(n).zip(indices.par_chunks(q)).enumerate().for_each(|(u, (kept, indices))| {
            let first_row = u / pattern.n() * pattern.m();
            for ((kept, &position), column) in kept.chunks_mut(l).zip(indices).zip((0..n).step_by(l)) {
                let from = (first_row + usize::from(position)) * n + column;
                kept.copy_from_slice(&dense[from..][..kept.len()]);
            }
        });
    }
    let (k, n) = (dimension(k, "rows")?, dimension(n, "columns")?);
    Ok(VectorNm { k, n, pattern, values, indices })
}

//! Weights with vector-wise N:M sparsity: the vectors that are kept, and where they were.

mod build;
mod check;
mod packed;
mod parts;
mod pattern;

pub(crate) use packed::packed_len;
pub use parts::VectorNmParts;
pub use pattern::NmPattern;

use std::ops::Range;

use crate::memory::{ByteSizes, bytes_of, try_copy, try_zeroed};
use crate::{FormatError, Value};

/// A matrix `W[k×n]` with vector-wise N:M sparsity along `k`, after NM-SpMM (section II-A).
///
/// Rows are taken in *groups* of `M`, the last of which may be ragged, and columns in *vectors* of `L`, the last of
/// which may be ragged too. Of the vectors that one group has in the same columns, `N` are kept, or all if a ragged
/// group has fewer rows. What was kept of a group lies closely packed, in ascending order of rows, so that `w` rows
/// remain of `k`:
///
/// ```text
/// w = ⌊k / M⌋·N + min(N, k mod M),   q = ⌈n / L⌉
/// W[source_row(u, v)][j] = values[u·n + j]      for j in v·L .. min((v + 1)·L, n), u < w, v < q
/// source_row(u, v) = ⌊u / N⌋·M + indices[u·q + v]
/// ```
///
/// and every other element of `W` is zero.
///
/// Invariants, with `r(g) = min(M, k − g·M)` rows in group `g`:
///
/// - `k` and `n` are below 2³², `|values| = w·n`, `|indices| = w·q`;
/// - `indices[u·q + v] < r(⌊u / N⌋)`;
/// - in a group, the indices of one vector strictly ascend.
///
/// # Examples
/// ```
/// use windrow_formats::{NmPattern, VectorNm};
///
/// // 4 × 3, of every two rows one is kept, in vectors of two columns (and one of a single column):
/// let dense = [
///     1.0f32, 2.0, 0.0, //
///     0.0, 0.0, 3.0, //
///     0.0, 0.0, 4.0, //
///     5.0, 6.0, 0.0,
/// ];
/// let weights = VectorNm::from_dense(&dense, 4, 3, NmPattern::new(1, 2, 2)?)?;
/// assert_eq!(weights.values(), [1.0, 2.0, 3.0, 5.0, 6.0, 4.0]); // 2 × 3
/// assert_eq!(weights.indices(), [0, 1, 1, 0]); // 2 × 2
/// assert_eq!(weights.source_row(1, 0), 3);
/// assert_eq!(weights.to_dense()?, dense);
/// # Ok::<(), windrow_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct VectorNm<T> {
    k: u32,
    n: u32,
    pattern: NmPattern,
    values: Vec<T>,
    indices: Vec<u8>,
}

impl<T> VectorNm<T> {
    /// `k`: rows of the matrix.
    pub fn rows(&self) -> usize {
        self.k as usize
    }

    /// `n`: columns of the matrix.
    pub fn cols(&self) -> usize {
        self.n as usize
    }

    /// `N`, `M` and `L`.
    pub fn pattern(&self) -> NmPattern {
        self.pattern
    }

    /// `w`: rows that are left.
    pub fn kept_rows(&self) -> usize {
        self.pattern.kept_rows(self.rows())
    }

    /// `q`: vectors of a row.
    pub fn vectors(&self) -> usize {
        self.pattern.vectors(self.cols())
    }

    /// Groups of rows, a ragged one included.
    pub fn groups(&self) -> usize {
        self.pattern.groups(self.rows())
    }

    /// What is kept, `w × n`, row-major.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Position in its group of each vector that is kept, `w × q`, row-major.
    pub fn indices(&self) -> &[u8] {
        &self.indices
    }

    /// The group of kept row `u`: `⌊u / N⌋`.
    pub fn group_of(&self, u: usize) -> usize {
        u / self.pattern.n()
    }

    /// Rows of the matrix that group `g` has; empty beyond the last.
    pub fn group_rows(&self, g: usize) -> Range<usize> {
        span(g, self.pattern.m(), self.rows())
    }

    /// Kept rows of group `g`; empty beyond the last.
    pub fn kept_of_group(&self, g: usize) -> Range<usize> {
        span(g, self.pattern.n(), self.kept_rows())
    }

    /// Columns of vector `v`; empty beyond the last.
    pub fn vector_columns(&self, v: usize) -> Range<usize> {
        span(v, self.pattern.l(), self.cols())
    }

    /// The row of the matrix that vector `v` of kept row `u` is from.
    ///
    /// # Panics
    /// If `u` is not below [`kept_rows`](Self::kept_rows) or `v` not below [`vectors`](Self::vectors), like an index
    /// into a slice.
    pub fn source_row(&self, u: usize, v: usize) -> usize {
        let q = self.vectors();
        assert!(v < q, "vector {v} of rows with {q} vectors");
        self.group_of(u) * self.pattern.m() + usize::from(self.indices[u * q + v])
    }

    /// Elements that are kept: `w·n`, zeros among them included.
    pub fn kept(&self) -> usize {
        self.values.len()
    }

    /// Size of each array in bytes, an index to the byte.
    pub fn bytes(&self) -> ByteSizes {
        ByteSizes::new(vec![("values", bytes_of(&self.values)), ("indices", bytes_of(&self.indices))])
    }

    /// Size of each array in bytes with [packed](Self::packed_indices) indices.
    pub fn packed_bytes(&self) -> ByteSizes {
        let indices = packed_len(self.indices.len(), self.pattern.index_bits()) as u64;
        ByteSizes::new(vec![("values", bytes_of(&self.values)), ("indices", indices)])
    }

    /// Another matrix with the same pattern: `values` in the places of the old.
    ///
    /// # Errors
    /// [`FormatError::LengthMismatch`] unless there are `w·n`; [`FormatError::OutOfMemory`].
    pub fn with_values<U>(&self, values: Vec<U>) -> Result<VectorNm<U>, FormatError> {
        let (k, n, pattern) = (self.k, self.n, self.pattern);
        check::values_len(values.len(), self.kept_rows(), self.cols())?;
        Ok(VectorNm { k, n, pattern, values, indices: try_copy(&self.indices, "indices")? })
    }
}

impl<T: Value> VectorNm<T> {
    /// The matrix, `k × n`, row-major; zeros where nothing was kept.
    ///
    /// # Errors
    /// [`FormatError::OutOfMemory`].
    pub fn to_dense(&self) -> Result<Vec<T>, FormatError> {
        let (n, q) = (self.cols(), self.vectors());
        let len = self.rows().saturating_mul(n);
        let mut dense = try_zeroed(len, "the dense matrix")?;
        for u in 0..if q == 0 { 0 } else { self.kept_rows() } {
            let kept = self.values[u * n..][..n].chunks(self.pattern.l());
            for (v, kept) in kept.enumerate() {
                let to = self.source_row(u, v) * n + v * self.pattern.l();
                dense[to..][..kept.len()].copy_from_slice(kept);
            }
        }
        Ok(dense)
    }
}

/// Elements of part `i`, of `len` in parts of `part`.
fn span(i: usize, part: usize, len: usize) -> Range<usize> {
    let start = i.saturating_mul(part).min(len);
    start..start.saturating_add(part).min(len)
}

//! Rows for scalar cores, ordered by length, without row offsets.

use crate::memory::index;

/// Rows of one length in a [`Residual`].
///
/// Row `i < rows` of the bucket is `residual.rows()[first_row + i]`; its entries are
/// `first_entry + i·len .. first_entry + (i + 1)·len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Entries of each row, at least 1.
    pub len: u32,
    /// Position of the bucket's first row.
    pub first_row: u32,
    /// Number of rows, at least 1.
    pub rows: u32,
    /// Position of the bucket's first entry.
    pub first_entry: u64,
}

/// The rows of an [`RsTile`](crate::RsTile) that are in no window, sorted by length, then by row.
///
/// Rows of equal length form a [`Bucket`], in which the place of a row's entries is arithmetic: there is
/// no array of row offsets. Rows without entries do not occur.
#[derive(Debug, Clone, PartialEq)]
pub struct Residual<V> {
    pub(super) buckets: Vec<Bucket>,
    pub(super) rows: Vec<u32>,
    pub(super) col_indices: Vec<u32>,
    pub(super) values: Vec<V>,
}

impl<V> Residual<V> {
    /// The buckets, by ascending length.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Rows of the matrix, bucket after bucket.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Column of each entry, row after row.
    pub fn col_indices(&self) -> &[u32] {
        &self.col_indices
    }

    /// Value of each entry.
    pub fn values(&self) -> &[V] {
        &self.values
    }

    /// Number of entries in all rows.
    pub fn nnz(&self) -> usize {
        self.values.len()
    }

    /// Row, columns and values of every row of the residual.
    pub fn rows_iter(&self) -> impl Iterator<Item = (u32, &[u32], &[V])> {
        self.row_ranges()
            .map(|(row, entries)| (row, &self.col_indices[entries.clone()], &self.values[entries]))
    }

    /// Every row of the residual and the positions of its entries.
    pub fn row_ranges(&self) -> impl Iterator<Item = (u32, std::ops::Range<usize>)> {
        self.buckets.iter().flat_map(|bucket| {
            let rows = &self.rows[bucket.first_row as usize..][..bucket.rows as usize];
            let len = bucket.len as usize;
            rows.iter().enumerate().map(move |(i, &row)| {
                let start = index(bucket.first_entry) + i * len;
                (row, start..start + len)
            })
        })
    }
}

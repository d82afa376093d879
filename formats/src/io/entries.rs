//! From entries in blocks to compressed rows.

use rayon::prelude::*;

use super::{ReadError, ReadOptions, Stage};
use crate::memory::{index, narrow, try_zeroed};
use crate::{Csr, Value};

/// Entries of one bucket that its core's cache holds.
const BUCKET_ENTRIES: u64 = 1 << 15;
/// Most buckets, so that the places where a block's entries go stay in the cache too.
const MAX_BUCKETS: u32 = 256;

/// Entries in the order of the file.
///
/// `values` is empty where the file has none; each entry is 1 then.
#[derive(Debug, Clone)]
pub(super) struct Entries<V> {
    pub(super) rows: Vec<u32>,
    pub(super) cols: Vec<u32>,
    pub(super) values: Vec<V>,
}

impl<V> Default for Entries<V> {
    fn default() -> Self {
        Self { rows: Vec::new(), cols: Vec::new(), values: Vec::new() }
    }
}

/// Ranges of `2^shift` consecutive rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buckets {
    rows: u32,
    shift: u32,
    count: u32,
}

impl Buckets {
    /// Buckets for a matrix of `rows` rows that has about `nnz` entries.
    pub(super) fn new(rows: u32, nnz: u64) -> Self {
        let wanted = u64::from(MAX_BUCKETS).min(nnz / BUCKET_ENTRIES).max(1);
        let last = rows.saturating_sub(1);
        let shift = (0..32).find(|&shift| u64::from(last >> shift) < wanted).unwrap_or(31);
        Self { rows, shift, count: (last >> shift) + 1 }
    }

    fn of(self, row: u32) -> usize {
        (row >> self.shift) as usize
    }
}

impl<V: Value> Entries<V> {
    /// Forgets the entries but keeps their memory.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.cols.clear();
        self.values.clear();
    }

    /// The entries sorted by bucket; entries of one bucket keep their order.
    pub(super) fn grouped(&self, buckets: Buckets) -> Grouped<V> {
        let mut places = vec![0u32; buckets.count as usize];
        for &row in &self.rows {
            places[buckets.of(row)] += 1;
        }
        let mut start = 0;
        for place in &mut places {
            start += std::mem::replace(place, start);
        }
        let mut entries = Self {
            rows: vec![0; self.rows.len()],
            cols: vec![0; self.cols.len()],
            values: vec![V::ZERO; self.values.len()],
        };
        let mut place = |row: u32| {
            let place = &mut places[buckets.of(row)];
            *place += 1;
            *place as usize - 1
        };
        let coordinates = self.rows.iter().zip(&self.cols);
        if self.values.is_empty() {
            for (&row, &col) in coordinates {
                let at = place(row);
                (entries.rows[at], entries.cols[at]) = (row, col);
            }
        } else {
            for ((&row, &col), &value) in coordinates.zip(&self.values) {
                let at = place(row);
                (entries.rows[at], entries.cols[at], entries.values[at]) = (row, col, value);
            }
        }
        // The next free place of each bucket has become its end.
        Grouped { entries, ends: places }
    }
}

/// Entries sorted by bucket.
#[derive(Debug)]
pub(super) struct Grouped<V> {
    entries: Entries<V>,
    /// Where each bucket ends.
    ends: Vec<u32>,
}

impl<V> Default for Grouped<V> {
    fn default() -> Self {
        Self { entries: Entries::default(), ends: Vec::new() }
    }
}

impl<V> Grouped<V> {
    pub(super) fn len(&self) -> usize {
        self.entries.rows.len()
    }

    /// Where the entries of bucket `bucket` are.
    fn bucket(&self, bucket: usize) -> std::ops::Range<usize> {
        let start = if bucket == 0 { 0 } else { self.ends[bucket - 1] };
        start as usize..self.ends[bucket] as usize
    }
}

/// The part of the result that holds one bucket.
struct Target<'a, V> {
    bucket: usize,
    first_row: u32,
    base: u64,
    /// `row_offsets[r + 1]` for each row of the bucket.
    ends: &'a mut [u64],
    cols: &'a mut [u32],
    values: &'a mut [V],
}

/// The matrix of all entries of `blocks`, which were grouped by `buckets`.
///
/// Rows are in order by two counting sorts, by bucket in [`Entries::grouped`] and by row here; the constructor
/// of [`Csr`] sorts inside of rows and sums duplicates, in the order of the file.
pub(super) fn assemble<V: Value>(
    buckets: Buckets,
    cols: u32,
    blocks: Vec<Grouped<V>>,
    options: &ReadOptions<'_>,
) -> Result<Csr<V>, ReadError> {
    let nnz: usize = blocks.iter().map(Grouped::len).sum();
    let bytes = nnz as u64 * (4 + size_of::<V>() as u64);
    options.tell(Stage::Assembling, 0, Some(bytes));
    let mut row_offsets: Vec<u64> = try_zeroed(buckets.rows as usize + 1, "row_offsets")?;
    let mut col_indices: Vec<u32> = try_zeroed(nnz, "col_indices")?;
    let mut values: Vec<V> = try_zeroed(nnz, "values")?;

    let mut targets = Vec::with_capacity(buckets.count as usize);
    let mut rest = (&mut row_offsets[1..], &mut col_indices[..], &mut values[..]);
    let mut base = 0u64;
    for bucket in 0..buckets.count as usize {
        let first_row = bucket << buckets.shift;
        let rows = (buckets.rows as usize - first_row).min(1 << buckets.shift);
        let entries: usize = blocks.iter().map(|block| block.bucket(bucket).len()).sum();
        let (ends, ends_rest) = rest.0.split_at_mut(rows);
        let (cols, cols_rest) = rest.1.split_at_mut(entries);
        let (values, values_rest) = rest.2.split_at_mut(entries);
        rest = (ends_rest, cols_rest, values_rest);
        targets.push(Target { bucket, first_row: narrow(first_row), base, ends, cols, values });
        base += entries as u64;
    }
    targets.into_par_iter().for_each(|target| target.fill(&blocks));
    drop(blocks);

    let csr = Csr::try_from_parts(buckets.rows as usize, cols as usize, row_offsets, col_indices, values)?;
    options.tell(Stage::Assembling, bytes, Some(bytes));
    Ok(csr)
}

impl<V: Value> Target<'_, V> {
    /// Counting sort by row of the bucket's entries in all blocks.
    fn fill(self, blocks: &[Grouped<V>]) {
        // `ends` holds counts, then the next free place of each row, which is its end when all are placed.
        for block in blocks {
            for &row in &block.entries.rows[block.bucket(self.bucket)] {
                self.ends[(row - self.first_row) as usize] += 1;
            }
        }
        let mut start = 0;
        for end in &mut *self.ends {
            start += std::mem::replace(end, start);
        }
        for block in blocks {
            let range = block.bucket(self.bucket);
            let Entries { rows, cols, values } = &block.entries;
            let mut place = |row: u32| {
                let end = &mut self.ends[(row - self.first_row) as usize];
                *end += 1;
                index(*end - 1)
            };
            let coordinates = rows[range.clone()].iter().zip(&cols[range.clone()]);
            if values.is_empty() {
                for (&row, &col) in coordinates {
                    let at = place(row);
                    (self.cols[at], self.values[at]) = (col, V::ONE);
                }
            } else {
                for ((&row, &col), &value) in coordinates.zip(&values[range]) {
                    let at = place(row);
                    (self.cols[at], self.values[at]) = (col, value);
                }
            }
        }
        self.ends.iter_mut().for_each(|end| *end += self.base);
    }
}

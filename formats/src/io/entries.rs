//! From entries in blocks to compressed rows.

use rayon::prelude::*;

use super::{ReadError, ReadOptions, Stage};
use crate::memory::{index, narrow, try_zeroed};
use crate::{Csr, OutOfMemory, Value};

/// Entries of one bucket that its core's cache holds.
const BUCKET_ENTRIES: u64 = 1 << 15;
/// Most buckets, so that the places where a block's entries go stay in the cache too.
const MAX_BUCKETS: u32 = 256;

/// An entry as a reader keeps it: `(row, col, value)`, or `(row, col)` in files without values.
pub(super) trait Entry<V>: Copy + bytemuck::Zeroable + Send + Sync {
    /// The entry; `value` is rounded to `V`, or not kept.
    fn new(row: u32, col: u32, value: f64) -> Self;
    fn row(self) -> u32;
    fn col(self) -> u32;
    /// The value, 1 if there is none.
    fn value(self) -> V;
}

impl<V: Value> Entry<V> for (u32, u32, V) {
    #[inline]
    fn new(row: u32, col: u32, value: f64) -> Self {
        (row, col, V::from_f64(value))
    }
    fn row(self) -> u32 {
        self.0
    }
    fn col(self) -> u32 {
        self.1
    }
    fn value(self) -> V {
        self.2
    }
}

impl<V: Value> Entry<V> for (u32, u32) {
    #[inline]
    fn new(row: u32, col: u32, _value: f64) -> Self {
        (row, col)
    }
    fn row(self) -> u32 {
        self.0
    }
    fn col(self) -> u32 {
        self.1
    }
    fn value(self) -> V {
        V::ONE
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

/// Entries of a block sorted by bucket.
#[derive(Debug)]
pub(super) struct Grouped<E> {
    entries: Vec<E>,
    /// Where each bucket ends.
    ends: Vec<u32>,
}

impl<E> Default for Grouped<E> {
    fn default() -> Self {
        Self { entries: Vec::new(), ends: Vec::new() }
    }
}

impl<E> Grouped<E> {
    /// The entries sorted by bucket; entries of one bucket keep their order.
    pub(super) fn new<V>(entries: &[E], buckets: Buckets) -> Result<Self, OutOfMemory>
    where
        E: Entry<V>,
    {
        let mut places = try_zeroed::<u32>(buckets.count as usize, "entries")?;
        entries.iter().for_each(|entry| places[buckets.of(entry.row())] += 1);
        let mut start = 0;
        for place in &mut places {
            start += std::mem::replace(place, start);
        }
        let mut sorted = try_zeroed(entries.len(), "entries")?;
        for &entry in entries {
            let place = &mut places[buckets.of(entry.row())];
            sorted[*place as usize] = entry;
            *place += 1;
        }
        // The next free place of each bucket has become its end.
        Ok(Self { entries: sorted, ends: places })
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries of bucket `bucket`.
    fn bucket(&self, bucket: usize) -> &[E] {
        let start = if bucket == 0 { 0 } else { self.ends[bucket - 1] };
        &self.entries[start as usize..self.ends[bucket] as usize]
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
/// Rows are in order by two counting sorts, by bucket in [`Grouped::new`] and by row here; the constructor
/// of [`Csr`] sorts inside of rows and sums duplicates, in the order of the file.
pub(super) fn assemble<V: Value, E: Entry<V>>(
    buckets: Buckets,
    cols: u32,
    blocks: Vec<Grouped<E>>,
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
    fn fill<E: Entry<V>>(self, blocks: &[Grouped<E>]) {
        let entries = || blocks.iter().flat_map(|block| block.bucket(self.bucket)).copied();
        // `ends` holds counts, then the next free place of each row, which is its end when all are placed.
        entries().for_each(|entry| self.ends[(entry.row() - self.first_row) as usize] += 1);
        let mut start = 0;
        for end in &mut *self.ends {
            start += std::mem::replace(end, start);
        }
        entries().for_each(|entry| {
            let end = &mut self.ends[(entry.row() - self.first_row) as usize];
            let at = index(*end);
            *end += 1;
            (self.cols[at], self.values[at]) = (entry.col(), entry.value());
        });
        self.ends.iter_mut().for_each(|end| *end += self.base);
    }
}

//! The parts of a plan, first as arrays on the host, whose sizes are known, then on the device.

use windrow_formats::{Bucket, Csr, NO_ROW, Residual, Value};
use windrow_kernels::Dtype;
use windrow_kernels::combine::Combine;
use windrow_preprocess::balance::{RowSegments, short_row_blocks};

use super::report::ArraySize;
use super::tiles::{Form, StepArrays, TilePattern};
use super::values::Bits;
use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{index, narrow, real, wide};

/// Rows of `A` as segments of CSR, before upload.
pub(super) struct RowSplitHost<'a> {
    pub(super) cut: RowSegments,
    pub(super) col_indices: &'a [u32],
    pub(super) value_bytes: u64,
}

/// Rows of `A` as segments of CSR.
pub(super) struct RowSplitPart {
    pub(super) segments: DeviceBuffer<[u32; 4]>,
    pub(super) col_indices: DeviceBuffer<u32>,
    pub(super) values: DeviceBuffer<u8>,
    /// Mean entries of a segment.
    pub(super) mean_len: f64,
}

impl RowSplitHost<'_> {
    pub(super) fn sizes(&self, sizes: &mut Vec<ArraySize>) {
        push(sizes, "segments", 16 * wide(self.cut.segments.len()));
        push(sizes, "col_indices", 4 * wide(self.col_indices.len()));
        push(sizes, "values", self.value_bytes);
    }

    pub(super) fn upload(&self, device: &Device, values: &Bits) -> Result<RowSplitPart, DeviceError> {
        let segments = wide(self.cut.segments.len());
        Ok(RowSplitPart {
            segments: DeviceBuffer::named(device, &self.cut.segments, "segments")?,
            col_indices: DeviceBuffer::named(device, self.col_indices, "col_indices")?,
            values: DeviceBuffer::named(device, values.bytes(), "values")?,
            mean_len: real(wide(self.col_indices.len())) / real(segments.max(1)),
        })
    }
}

/// Rows of equal length, and the rows without entries, before upload.
pub(super) struct ShortRowsHost {
    pub(super) blocks: Vec<[u32; 4]>,
    pub(super) rows: Vec<u32>,
    pub(super) col_indices: Vec<u32>,
    pub(super) value_bytes: u64,
    /// CSR entry of each value.
    pub(super) sources: Vec<u32>,
}

/// Rows of equal length, and the rows without entries.
pub(super) struct ShortRowsPart {
    pub(super) blocks: DeviceBuffer<[u32; 4]>,
    pub(super) rows: DeviceBuffer<u32>,
    pub(super) col_indices: DeviceBuffer<u32>,
    pub(super) values: DeviceBuffer<u8>,
    pub(super) sources: Vec<u32>,
}

impl ShortRowsHost {
    /// The rows `empty`, as a bucket of length 0, before those of `residual`; in blocks of at most
    /// `rows_per_block`.
    pub(super) fn new<V: Value>(
        empty: Vec<u32>,
        residual: &Residual<V>,
        sources: &[u64],
        value_size: u32,
        rows_per_block: u32,
    ) -> Self {
        let first = narrow(empty.len());
        let mut buckets = vec![Bucket { len: 0, first_row: 0, rows: first, first_entry: 0 }];
        let shifted = |bucket: &Bucket| Bucket { first_row: bucket.first_row + first, ..*bucket };
        buckets.extend(residual.buckets().iter().map(shifted));
        let mut rows = empty;
        rows.extend_from_slice(residual.rows());
        let mut blocks = short_row_blocks(&buckets, rows_per_block);
        // Blocks of different lengths that lie close together in the matrix read the same rows of `B`: side by
        // side, these are read from memory once.
        blocks.sort_by_key(|block| rows[block[0] as usize]);
        Self {
            blocks,
            rows,
            col_indices: residual.col_indices().to_vec(),
            value_bytes: wide(sources.len()) * u64::from(value_size),
            sources: sources.iter().map(|&entry| narrow(index(entry))).collect(),
        }
    }

    pub(super) fn sizes(&self, sizes: &mut Vec<ArraySize>) {
        push(sizes, "short_row_blocks", 16 * wide(self.blocks.len()));
        push(sizes, "short_rows", 4 * wide(self.rows.len()));
        push(sizes, "short_row_cols", 4 * wide(self.col_indices.len()));
        push(sizes, "short_row_values", self.value_bytes);
    }

    pub(super) fn upload(self, device: &Device, values: &Bits) -> Result<ShortRowsPart, DeviceError> {
        let values = values.gather(&self.sources);
        Ok(ShortRowsPart {
            blocks: DeviceBuffer::named(device, &self.blocks, "short_row_blocks")?,
            rows: DeviceBuffer::named(device, &self.rows, "short_rows")?,
            col_indices: DeviceBuffer::named(device, &self.col_indices, "short_row_cols")?,
            values: DeviceBuffer::named(device, values.bytes(), "short_row_values")?,
            sources: self.sources,
        })
    }
}

/// A stream of tiles, before upload.
pub(super) struct TilesHost {
    pub(super) pattern: TilePattern,
    pub(super) dtype: Dtype,
    pub(super) form: Form,
}

/// A stream of tiles.
pub(super) struct TilesPart {
    pub(super) workers: DeviceBuffer<[u32; 2]>,
    pub(super) step_cols: DeviceBuffer<[u32; 4]>,
    pub(super) records: DeviceBuffer<u32>,
    pub(super) lookup: Lookup,
    pub(super) pattern: TilePattern,
}

/// What the kernel reads beside the records, when a product is not finite or its records are packed.
pub(super) enum Lookup {
    /// Of dense records: the bitmaps of each step.
    Bitmaps(DeviceBuffer<[u64; 2]>),
    /// Of packed records: the first chunk of each, and the number of chunks.
    RecordStarts(DeviceBuffer<u32>),
}

impl Lookup {
    pub(super) fn form(&self) -> Form {
        match self {
            Self::Bitmaps(_) => Form::Dense,
            Self::RecordStarts(_) => Form::Packed,
        }
    }
}

impl TilesHost {
    pub(super) fn sizes(&self, sizes: &mut Vec<ArraySize>) {
        let steps = wide(self.pattern.steps());
        push(sizes, "workers", 8 * wide(self.pattern.dealt().workers()));
        push(sizes, "step_cols", 64 * steps);
        push(sizes, "records", self.pattern.record_bytes(self.form, self.dtype));
        match self.form {
            Form::Dense => push(sizes, "bitmaps", 16 * steps),
            Form::Packed => push(sizes, "record_starts", 4 * (steps + 1)),
        }
    }

    /// `values` in CSR order.
    pub(super) fn upload(self, device: &Device, values: &Bits) -> Result<TilesPart, DeviceError> {
        let StepArrays { step_cols, bitmaps } = self.pattern.step_arrays();
        let lookup = match self.form {
            Form::Dense => Lookup::Bitmaps(DeviceBuffer::named(device, &bitmaps, "bitmaps")?),
            Form::Packed => {
                let starts = self.pattern.record_starts(self.dtype);
                Lookup::RecordStarts(DeviceBuffer::named(device, &starts, "record_starts")?)
            }
        };
        Ok(TilesPart {
            workers: DeviceBuffer::named(device, &self.pattern.workers(), "workers")?,
            step_cols: DeviceBuffer::named(device, &step_cols, "step_cols")?,
            records: DeviceBuffer::named(device, &self.pattern.records(self.form, values), "records")?,
            lookup,
            pattern: self.pattern,
        })
    }
}

impl TilesPart {
    /// Lays out new values and uploads them.
    pub(super) fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        self.records.copy_from_slice(&self.pattern.records(self.lookup.form(), values))
    }
}

impl SplitPart {
    /// Zeroes the workspace, after the work queued before.
    pub(super) fn clear(&self) -> Result<(), DeviceError> {
        self.partial.clear()
    }
}

/// The cut rows whose partial sums are added, and the workspace that holds them.
pub(super) struct SplitPart {
    /// `[row, first_slot, count, stride]`, the rows with many partials first.
    pub(super) rows: DeviceBuffer<[u32; 4]>,
    /// How many of them have more than [`Combine::NARROW`].
    pub(super) wide_rows: u32,
    /// Rows of `capacity` f32.
    pub(super) partial: DeviceBuffer<f32>,
}

// Crates that do not know each other mark pads by the same words; this is where they meet.
const _: () = assert!(
    windrow_formats::NO_COLUMN == windrow_kernels::NO_COLUMN
        && NO_ROW == windrow_kernels::NO_ROW
        && windrow_preprocess::balance::NO_SLOT == windrow_kernels::NO_SLOT
);

/// Whether a split row has so many partials that a block adds them.
fn is_wide(row: &[u32; 4]) -> bool {
    row[2] > Combine::NARROW
}

/// The rows to combine, those with many partials in front.
pub(super) fn wide_first(mut rows: Vec<[u32; 4]>) -> Vec<[u32; 4]> {
    rows.sort_by_key(|row| !is_wide(row));
    rows
}

/// How many of the rows to combine, ordered by [`wide_first`], have many partials.
pub(super) fn wide_rows(rows: &[[u32; 4]]) -> u32 {
    narrow(rows.partition_point(is_wide))
}

pub(super) fn push(sizes: &mut Vec<ArraySize>, name: &'static str, bytes: u64) {
    if bytes > 0 {
        sizes.push(ArraySize { name, bytes });
    }
}

/// The entries of a CSR as segments; see [`windrow_preprocess::balance::row_segments`].
pub(super) fn row_split_host<'a, V: Value>(
    a: &'a Csr<V>,
    cut: RowSegments,
    value_size: u32,
) -> RowSplitHost<'a> {
    RowSplitHost { cut, col_indices: a.col_indices(), value_bytes: wide(a.nnz()) * u64::from(value_size) }
}

//! The parts of a plan, first as arrays on the host, whose sizes are known, then on the device.

use std::borrow::Cow;

use windrow_formats::{Bucket, NO_ROW, Residual, Value};
use windrow_kernels::Dtype;
use windrow_preprocess::balance::short_row_blocks;
use windrow_simt::GlobalPtr;

use super::preprocess::{DeviceSteps, RestEntries, RestSources, ValueSources};
use super::report::ArraySize;
use super::tiles::{DealtWindows, Form, StepArrays, TilePattern};
use super::values::{Bits, Values};
use crate::device::{Device, DeviceBuffer};
use crate::error::DeviceError;
use crate::num::{index, narrow, real, wide};

/// Rows of `A` as segments of CSR, before upload; see [`windrow_preprocess::balance::row_segments`].
pub(super) struct RowSplitHost<'a> {
    pub(super) segments: Vec<[u32; 4]>,
    pub(super) entries: SegmentEntries<'a>,
    pub(super) value_bytes: u64,
    /// Widest slice of `B`, in columns.
    pub(super) widest_slice: u32,
    /// Whether several ways are taken, if not as the mean length of segments says.
    pub(super) several_ways: Option<bool>,
}

/// What segments refer to.
pub(super) enum SegmentEntries<'a> {
    /// Column of each entry, and which of CSR it is, unless they are all entries.
    OnHost(Cow<'a, [u32]>, Option<Vec<u32>>),
    /// Divided from others in device memory.
    OnDevice(RestEntries),
}

impl SegmentEntries<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::OnHost(col_indices, _) => col_indices.len(),
            Self::OnDevice(rest) => rest.len(),
        }
    }

    /// What stays on the host for new values.
    pub(super) fn host_bytes(&self) -> u64 {
        match self {
            Self::OnHost(_, Some(sources)) => 4 * wide(sources.len()),
            Self::OnHost(_, None) | Self::OnDevice(_) => 0,
        }
    }
}

/// Rows of `A` as segments of CSR.
pub(super) struct RowSplitPart {
    pub(super) segments: DeviceBuffer<[u32; 4]>,
    pub(super) col_indices: DeviceBuffer<u32>,
    pub(super) values: DeviceBuffer<u8>,
    sources: SegmentSources,
    /// Mean entries of a segment, or what has the ways that were asked for.
    pub(super) mean_len: f64,
    pub(super) widest_slice: u32,
}

/// CSR entry of each value.
enum SegmentSources {
    /// They are all entries.
    Identity,
    OnHost(Vec<u32>),
    OnDevice(RestSources),
}

impl RowSplitPart {
    /// Whether values are placed by what is in device memory alone.
    pub(super) fn is_on_device(&self) -> bool {
        matches!(self.sources, SegmentSources::OnDevice(_))
    }

    /// CSR entry of each value, unless they are all entries, or that is in device memory alone.
    pub(super) fn sources(&self) -> Option<&[u32]> {
        match &self.sources {
            SegmentSources::OnHost(sources) => Some(sources),
            SegmentSources::Identity | SegmentSources::OnDevice(_) => None,
        }
    }

    /// Puts values that are on the device in their places, if those are.
    ///
    /// # Safety
    /// As for [`RestSources::replace_from`].
    pub(super) unsafe fn replace_from(&self, values: (GlobalPtr<u32>, Dtype)) -> Result<(), DeviceError> {
        match &self.sources {
            // SAFETY: the caller's promise.
            SegmentSources::OnDevice(sources) => unsafe { sources.replace_from(values, &self.values) },
            SegmentSources::OnHost(_) | SegmentSources::Identity => Ok(()),
        }
    }

    /// Uploads new values.
    pub(super) fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        match &self.sources {
            SegmentSources::Identity => self.values.copy_from_slice(values.bytes()),
            SegmentSources::OnHost(sources) => self.values.copy_from_slice(values.gather(sources).bytes()),
            SegmentSources::OnDevice(sources) => sources.replace(values.unplaced(), &self.values),
        }
    }
}

impl RowSplitHost<'_> {
    pub(super) fn sizes(&self, sizes: &mut Vec<ArraySize>) {
        push(sizes, "segments", 16 * wide(self.segments.len()));
        push(sizes, "col_indices", 4 * wide(self.entries.len()));
        push(sizes, "values", self.value_bytes);
        if let SegmentEntries::OnDevice(rest) = &self.entries {
            push(sizes, "segment_sources", rest.kept_bytes());
        }
    }

    /// `values` in CSR order.
    pub(super) fn upload<V: Value>(
        self,
        device: &Device,
        values: &Values<'_, V>,
    ) -> Result<RowSplitPart, DeviceError> {
        let segments = wide(self.segments.len());
        let mean_len = match self.several_ways {
            Some(true) => f64::INFINITY,
            Some(false) => 0.0,
            None => real(wide(self.entries.len())) / real(segments.max(1)),
        };
        let (col_indices, values, sources) = match self.entries {
            SegmentEntries::OnDevice(rest) => {
                let (col_indices, values, sources) = rest.with_values(values.unplaced())?;
                (col_indices, values, SegmentSources::OnDevice(sources))
            }
            SegmentEntries::OnHost(col_indices, sources) => {
                let gathered = sources.as_ref().map(|sources| values.bits().gather(sources));
                let values = gathered.as_ref().unwrap_or_else(|| values.bits());
                (
                    DeviceBuffer::named(device, &col_indices, "col_indices")?,
                    DeviceBuffer::named(device, values.bytes(), "values")?,
                    sources.map_or(SegmentSources::Identity, SegmentSources::OnHost),
                )
            }
        };
        let segments = DeviceBuffer::named(device, &self.segments, "segments")?;
        let widest_slice = self.widest_slice;
        Ok(RowSplitPart { segments, col_indices, values, sources, mean_len, widest_slice })
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
    layout: TilesLayout,
    dtype: Dtype,
    form: Form,
}

/// Where the layout is.
enum TilesLayout {
    /// On the host.
    Host(TilePattern),
    /// In device memory, but for how it was dealt out.
    Device(Box<DeviceSteps>, DealtWindows),
}

/// A stream of tiles.
pub(super) struct TilesPart {
    pub(super) workers: DeviceBuffer<[u32; 2]>,
    pub(super) step_cols: DeviceBuffer<[u32; 4]>,
    pub(super) records: DeviceBuffer<u32>,
    pub(super) lookup: Lookup,
    places: ValuePlaces,
}

/// What says where each value goes.
enum ValuePlaces {
    Host(TilePattern),
    Device(ValueSources),
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
    /// Laid out on the host.
    pub(super) fn new(pattern: TilePattern, (dtype, form): (Dtype, Form)) -> Self {
        Self { layout: TilesLayout::Host(pattern), dtype, form }
    }

    /// Laid out on the device.
    pub(super) fn on_device(steps: DeviceSteps, stream: DealtWindows, (dtype, form): (Dtype, Form)) -> Self {
        Self { layout: TilesLayout::Device(Box::new(steps), stream), dtype, form }
    }

    /// In which form records hold values.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Whether the layout is in device memory.
    pub(super) fn is_on_device(&self) -> bool {
        matches!(self.layout, TilesLayout::Device(..))
    }

    /// How windows were dealt out.
    pub(super) fn stream(&self) -> &DealtWindows {
        match &self.layout {
            TilesLayout::Host(pattern) => pattern.stream(),
            TilesLayout::Device(_, stream) => stream,
        }
    }

    pub(super) fn sizes(&self, sizes: &mut Vec<ArraySize>) {
        let steps = wide(self.stream().steps());
        push(sizes, "workers", 8 * wide(self.stream().dealt().workers()));
        push(sizes, "step_cols", 64 * steps);
        push(
            sizes,
            "records",
            match &self.layout {
                TilesLayout::Host(pattern) => pattern.record_bytes(self.form, self.dtype),
                TilesLayout::Device(made, _) => made.record_bytes(self.dtype),
            },
        );
        match self.form {
            Form::Dense => push(sizes, "bitmaps", 16 * steps),
            Form::Packed => push(sizes, "record_starts", 4 * (steps + 1)),
        }
        if let TilesLayout::Device(made, _) = &self.layout {
            made.kept_sizes(sizes);
        }
    }

    /// What stays on the host for new values.
    pub(super) fn host_bytes(&self) -> u64 {
        match &self.layout {
            TilesLayout::Host(pattern) => pattern.host_bytes(),
            TilesLayout::Device(..) => 0,
        }
    }

    /// `values` in CSR order.
    pub(super) fn upload<V: Value>(
        self,
        device: &Device,
        values: &Values<'_, V>,
    ) -> Result<TilesPart, DeviceError> {
        let workers = DeviceBuffer::named(device, &self.stream().workers(), "workers")?;
        let pattern = match self.layout {
            TilesLayout::Host(pattern) => pattern,
            TilesLayout::Device(steps, _) => return steps.with_values(workers, values.unplaced()),
        };
        let StepArrays { step_cols, bitmaps } = pattern.step_arrays();
        let lookup = match self.form {
            Form::Dense => Lookup::Bitmaps(DeviceBuffer::named(device, &bitmaps, "bitmaps")?),
            Form::Packed => {
                let starts = pattern.record_starts(self.dtype);
                Lookup::RecordStarts(DeviceBuffer::named(device, &starts, "record_starts")?)
            }
        };
        Ok(TilesPart {
            workers,
            step_cols: DeviceBuffer::named(device, &step_cols, "step_cols")?,
            records: DeviceBuffer::named(device, &pattern.records(self.form, values.bits()), "records")?,
            lookup,
            places: ValuePlaces::Host(pattern),
        })
    }
}

impl TilesPart {
    /// A stream that was laid out on the device.
    pub(super) fn on_device(
        workers: DeviceBuffer<[u32; 2]>,
        (step_cols, records): (DeviceBuffer<[u32; 4]>, DeviceBuffer<u32>),
        lookup: Lookup,
        sources: ValueSources,
    ) -> Self {
        Self { workers, step_cols, records, lookup, places: ValuePlaces::Device(sources) }
    }

    /// The layout, if it is on the host.
    pub(super) fn pattern(&self) -> Option<&TilePattern> {
        match &self.places {
            ValuePlaces::Host(pattern) => Some(pattern),
            ValuePlaces::Device(_) => None,
        }
    }

    /// Puts values that are on the device in their places, if the layout is.
    ///
    /// # Safety
    /// As for [`ValueSources::replace_from`].
    pub(super) unsafe fn replace_from(&self, values: (GlobalPtr<u32>, Dtype)) -> Result<(), DeviceError> {
        match &self.places {
            // SAFETY: the caller's promise.
            ValuePlaces::Device(sources) => unsafe {
                sources.replace_from(values, &self.lookup, &self.records)
            },
            ValuePlaces::Host(_) => Ok(()),
        }
    }

    /// Lays out new values: on the host, to upload them, or on the device.
    pub(super) fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        match &self.places {
            ValuePlaces::Host(pattern) => {
                self.records.copy_from_slice(&pattern.records(self.lookup.form(), values))
            }
            ValuePlaces::Device(sources) => sources.replace(values.unplaced(), &self.lookup, &self.records),
        }
    }
}

// Crates that do not know each other mark pads by the same words; this is where they meet.
const _: () = assert!(
    windrow_formats::NO_COLUMN == windrow_kernels::NO_COLUMN
        && NO_ROW == windrow_kernels::NO_ROW
        && windrow_preprocess::balance::NO_SLOT == windrow_kernels::NO_SLOT
        && windrow_preprocess::balance::ADD_TO_C == windrow_kernels::ADD_TO_C
        && windrow_preprocess::balance::ADDS == windrow_kernels::combine::ADDS
);

pub(crate) fn push(sizes: &mut Vec<ArraySize>, name: &'static str, bytes: u64) {
    if bytes > 0 {
        sizes.push(ArraySize { name, bytes });
    }
}

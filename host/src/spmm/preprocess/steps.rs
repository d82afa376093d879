//! The steps of a tile stream that a GPU laid out, their records, and new values for them.

use std::rc::Rc;
use std::sync::Arc;

use windrow_kernels::preprocess::TileRecordsParams;
use windrow_kernels::tile_stream::CHUNK_BYTES;
use windrow_kernels::{Dtype, Variant};
use windrow_simt::GlobalPtr;

use super::scratch::Scratch;
use crate::device::{DeviceBuffer, Queue};
use crate::error::DeviceError;
use crate::num::{index, narrow, wide};
use crate::plan::{ArraySize, RoundedValues, Unplaced, push};
use crate::spmm::tiles::words_per_record;

/// The arrays of a tile stream in device memory, but for how its steps are dealt out.
pub(crate) struct DeviceTiles {
    pub(crate) step_cols: DeviceBuffer<[u32; 4]>,
    pub(crate) records: DeviceBuffer<u32>,
    pub(crate) lookup: Lookup,
}

/// What the kernel reads beside the records, when a product is not finite or its records are packed.
pub(crate) enum Lookup {
    /// Of dense records: the bitmaps of each step.
    Bitmaps(DeviceBuffer<[u64; 2]>),
    /// Of packed records: the first chunk of each, and the number of chunks.
    RecordStarts(DeviceBuffer<u32>),
}

/// The steps of a tile stream in device memory, but for their records.
pub(crate) struct DeviceSteps {
    /// `[begin, end]` of each worker's steps.
    pub(super) workers: DeviceBuffer<[u32; 2]>,
    pub(super) step_cols: DeviceBuffer<[u32; 4]>,
    pub(super) bitmaps: DeviceBuffer<[u64; 2]>,
    /// First chunk of each packed record.
    pub(super) record_starts: Option<DeviceBuffer<u32>>,
    /// Chunks of packed records.
    pub(super) chunks: u64,
    /// First position of each step.
    pub(super) step_entries: DeviceBuffer<u32>,
    /// Entry of the matrix at each position.
    pub(super) sources: DeviceBuffer<u32>,
    pub(super) ends: Ends,
    /// Holds what [`Ends`] points to.
    pub(super) scratch: Rc<Scratch>,
}

/// The pieces, and the rows of their windows.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) pieces: GlobalPtr<[u32; 4]>,
    pub(super) piece_steps: GlobalPtr<u32>,
    pub(super) piece_count: u32,
    pub(super) window_rows: GlobalPtr<u32>,
}

impl Ends {
    /// Not wanted: records have them.
    const NONE: Self = Self {
        pieces: GlobalPtr::NULL,
        piece_steps: GlobalPtr::NULL,
        piece_count: 0,
        window_rows: GlobalPtr::NULL,
    };
}

/// What is written to records.
struct Written<'a> {
    values: Unplaced<'a>,
    ends: Ends,
}

/// What says where each value goes. Kept, for new values.
pub(crate) struct ValueSources {
    /// Bitmaps of each step, where the products do not need them.
    bitmaps: Option<DeviceBuffer<[u64; 2]>>,
    step_entries: DeviceBuffer<u32>,
    sources: DeviceBuffer<u32>,
}

impl DeviceSteps {
    /// Words of all records.
    fn words(&self, dtype: Dtype) -> usize {
        match self.record_starts {
            None => words_per_record(dtype) * self.bitmaps.len(),
            Some(_) => index(self.chunks) * (CHUNK_BYTES / 4) as usize,
        }
    }

    /// Bytes of all records.
    pub(crate) fn record_bytes(&self, dtype: Dtype) -> u64 {
        4 * wide(self.words(dtype))
    }

    /// What is kept beside the arrays that products need.
    pub(crate) fn kept_sizes(&self, sizes: &mut Vec<ArraySize>) {
        push(sizes, "value_sources", self.sources.bytes());
        push(sizes, "step_entries", self.step_entries.bytes());
        if self.record_starts.is_some() {
            push(sizes, "step_bitmaps", self.bitmaps.bytes());
        }
    }

    /// Writes the records with values in CSR order. Beside them, the workers.
    pub(crate) fn with_values(
        self,
        values: Unplaced<'_>,
    ) -> Result<(DeviceBuffer<[u32; 2]>, DeviceTiles, ValueSources), DeviceError> {
        let records = DeviceBuffer::alloc(self.scratch.device(), self.words(values.dtype), "records")?;
        let Self { workers, step_cols, bitmaps, record_starts, step_entries, sources, ends, scratch, .. } =
            self;
        let (lookup, bitmaps) = match record_starts {
            None => (Lookup::Bitmaps(bitmaps), None),
            Some(starts) => (Lookup::RecordStarts(starts), Some(bitmaps)),
        };
        let sources = ValueSources { bitmaps, step_entries, sources };
        sources.write(&scratch, Written { values, ends }, &lookup, &records)?;
        Ok((workers, DeviceTiles { step_cols, records, lookup }, sources))
    }
}

impl ValueSources {
    /// Replaces the values in `records`.
    pub(crate) fn replace(
        &self,
        values: Unplaced<'_>,
        lookup: &Lookup,
        records: &DeviceBuffer<u32>,
    ) -> Result<(), DeviceError> {
        let scratch = Scratch::new(records.device(), wide(values.bytes.len()))?;
        self.write(&scratch, Written { values, ends: Ends::NONE }, lookup, records)
    }

    /// [`replace`](Self::replace) by values that are on the device, one for each entry.
    ///
    /// # Safety
    /// They are live memory until the work is done, which nothing writes meanwhile.
    pub(crate) unsafe fn replace_from(
        &self,
        queue: &Arc<dyn Queue>,
        values: RoundedValues,
        lookup: &Lookup,
        records: &DeviceBuffer<u32>,
    ) -> Result<(), DeviceError> {
        let scratch = Scratch::holding(records.device(), queue, values.first)?;
        let new = Written { values: Unplaced::on_device(values.dtype), ends: Ends::NONE };
        self.write(&scratch, new, lookup, records)
    }

    fn write(
        &self,
        scratch: &Scratch,
        Written { values, ends }: Written<'_>,
        lookup: &Lookup,
        records: &DeviceBuffer<u32>,
    ) -> Result<(), DeviceError> {
        let kept = self.bitmaps.as_ref().map_or(GlobalPtr::NULL, DeviceBuffer::pointer);
        let (bitmaps, record_starts) = match lookup {
            Lookup::Bitmaps(bitmaps) => (bitmaps.pointer(), GlobalPtr::NULL),
            Lookup::RecordStarts(starts) => (kept, starts.pointer()),
        };
        let steps = self.step_entries.len();
        let params = TileRecordsParams {
            pieces: ends.pieces,
            piece_steps: ends.piece_steps,
            window_rows: ends.window_rows,
            bitmaps,
            step_entries: self.step_entries.pointer(),
            sources: self.sources.pointer(),
            values: scratch.values(values)?,
            record_starts,
            records: records.pointer(),
            steps: narrow(steps),
            piece_count: ends.piece_count,
            rounding: values.rounding(),
            reserved: 0,
        };
        let variant = Variant::TileRecords { value_bytes: values.dtype.bytes() };
        // SAFETY: the arrays are those of `Condensed`, there is a value for each entry, and the records have the words
        // that their starts or their number ask for. The scratch memory is freed after the launch.
        unsafe { scratch.launch(variant, wide(steps), &params) }
    }
}

//! A stream of tiles as a part of a plan.

use std::sync::Arc;

use windrow_kernels::tile_stream::TileStreamParams;
use windrow_kernels::{Dtype, Entry, Variant};
use windrow_simt::GlobalPtr;

use super::super::read_array;
use super::choose::{self, StreamChoice, StreamShape};
use crate::device::{ArrayMemory, DeviceBuffer, Queue};
use crate::error::{DeviceError, SpmmError};
use crate::num::{narrow, real, wide};
use crate::options::TileValues;
use crate::plan::{ArraySize, Bits, GivenValues, Launcher, RoundedValues, Scheduling, occupancy, push};
use crate::spmm::layout::{Context, Matrix};
use crate::spmm::part::{DenseOperands, Layout, LayoutFacts, Operation, Part, Placement, ValueSlots};
use crate::spmm::preprocess::{DeviceSteps, DeviceTiles, Lookup, ValueSources};
use crate::spmm::select::Demand;
use crate::spmm::tiles::{DealtWindows, Form, STEP_COLUMNS, StepArrays, TilePattern};

/// What the tiles of a stream hold.
pub(super) struct Held {
    pub(super) column_vectors: u64,
    pub(super) entries: u64,
}

/// The numbers of a stream.
pub(super) fn facts_of<A: Matrix>(
    context: &Context<'_, A>,
    stream: &DealtWindows,
    Held { column_vectors, entries }: Held,
    StreamChoice { shape, why, .. }: StreamChoice,
) -> LayoutFacts {
    let form = match shape.form {
        Form::Dense => TileValues::Dense,
        Form::Packed => TileValues::Packed,
        Form::Bitmap => TileValues::Bitmap,
    };
    let steps = wide(stream.steps());
    LayoutFacts {
        windows: wide(stream.windows()),
        tiles: wide(stream.tiles()),
        steps,
        column_vectors,
        gather_places: steps * wide(STEP_COLUMNS),
        tile_share: real(entries) / real(wide(context.a.nnz()).max(1)),
        workers: wide(stream.workers()),
        split: wide(stream.dealt().split_windows.len()),
        tile_values: (steps > 0).then_some((form, why)),
        ..LayoutFacts::default()
    }
}

/// The launch of a part on CUDA cores.
pub(super) struct ScalarLaunch {
    pub(super) entry: &'static Entry,
    /// Segments or blocks of rows.
    pub(super) units: u64,
}

/// How the launch of a part on CUDA cores follows that of the tiles.
pub(super) fn scheduling<A: Matrix>(
    context: &Context<'_, A>,
    tiles: &TilesLayout,
    scalar: &ScalarLaunch,
) -> Result<Option<Scheduling>, SpmmError> {
    let (demand, profile) = (context.demand(), &context.profile);
    let Some(entry) = choose::select(demand, tiles.shape) else { return Ok(None) };
    let ratios = [
        occupancy(context.machine, scalar.entry, scalar.units, demand.n)?,
        occupancy(context.machine, entry, wide(tiles.stream().workers()), demand.n)?,
    ];
    Ok(Some(Scheduling::choose(context.options.schedule, ratios, profile.spmm, profile.thresholds)))
}

/// A stream of tiles, before upload.
pub(super) struct TilesLayout {
    pub(super) made: Made,
    pub(super) dtype: Dtype,
    pub(super) shape: StreamShape,
}

/// Where the layout is.
pub(super) enum Made {
    OnHost(TilePattern),
    /// In device memory, but for how it was dealt out.
    OnDevice(Box<DeviceSteps>, DealtWindows),
}

impl TilesLayout {
    /// How windows were dealt out.
    fn stream(&self) -> &DealtWindows {
        match &self.made {
            Made::OnHost(pattern) => pattern.stream(),
            Made::OnDevice(_, stream) => stream,
        }
    }
}

impl Layout for TilesLayout {
    fn arrays(&self, sizes: &mut Vec<ArraySize>) {
        let steps = wide(self.stream().steps());
        let form = self.shape.form;
        push(sizes, "workers", 8 * wide(self.stream().workers()));
        push(sizes, "step_cols", 64 * steps);
        let record_bytes = match &self.made {
            Made::OnHost(pattern) => pattern.record_bytes(form, self.dtype),
            Made::OnDevice(made, _) => made.record_bytes(self.dtype),
        };
        push(sizes, "records", record_bytes);
        match form {
            Form::Dense => push(sizes, "bitmaps", 16 * steps),
            Form::Packed | Form::Bitmap => push(sizes, "record_starts", 4 * (steps + 1)),
        }
        if let Made::OnDevice(made, _) = &self.made {
            made.kept_sizes(sizes);
        }
    }

    fn host_bytes(&self) -> u64 {
        match &self.made {
            Made::OnHost(pattern) => pattern.host_bytes(),
            Made::OnDevice(..) => 0,
        }
    }

    fn placement(&self) -> Placement {
        match &self.made {
            Made::OnHost(_) => Placement::Scattered,
            Made::OnDevice(..) => Placement::OnDevice,
        }
    }

    fn upload(
        self: Box<Self>,
        memory: ArrayMemory<'_>,
        values: &dyn GivenValues,
    ) -> Result<Box<dyn Part>, DeviceError> {
        let Self { made, dtype, shape } = *self;
        let (workers, tiles, places) = match made {
            Made::OnDevice(steps, _) => {
                let (workers, tiles, sources) = steps.with_values(values.unplaced()?)?;
                (workers, tiles, ValuePlaces::OnDevice(sources))
            }
            Made::OnHost(pattern) => {
                let workers = memory.array(&pattern.workers()?, "workers")?;
                let StepArrays { step_cols, bitmaps } = pattern.step_arrays()?;
                let lookup = match shape.form {
                    Form::Dense => Lookup::Bitmaps(memory.array(&bitmaps, "bitmaps")?),
                    Form::Packed | Form::Bitmap => {
                        let starts = pattern.record_starts(dtype)?;
                        Lookup::RecordStarts(memory.array(&starts, "record_starts")?)
                    }
                };
                let step_cols = memory.array(&step_cols, "step_cols")?;
                let records = pattern.records(shape.form, values.bits()?)?;
                let records = memory.array(&records, "records")?;
                (workers, DeviceTiles { step_cols, records, lookup }, ValuePlaces::OnHost(Box::new(pattern)))
            }
        };
        Ok(Box::new(TilesPart { workers, tiles, places, dtype, shape }))
    }
}

/// A stream of tiles in device memory.
struct TilesPart {
    workers: DeviceBuffer<[u32; 2]>,
    tiles: DeviceTiles,
    places: ValuePlaces,
    dtype: Dtype,
    shape: StreamShape,
}

/// What says where each value goes.
enum ValuePlaces {
    OnHost(Box<TilePattern>),
    OnDevice(ValueSources),
}

impl Part for TilesPart {
    fn name(&self) -> &'static str {
        "tile-stream"
    }

    fn entry(&self, operation: Operation) -> Option<&'static Entry> {
        choose::select(Demand::of(self.dtype, operation), self.shape)
    }

    fn on_tensor_cores(&self) -> bool {
        true
    }

    unsafe fn launch(
        &self,
        stream: Launcher<'_>,
        entry: &'static Entry,
        operands: &DenseOperands,
    ) -> Result<(), DeviceError> {
        let DeviceTiles { step_cols, records, lookup } = &self.tiles;
        let (bitmaps, record_starts) = match lookup {
            Lookup::Bitmaps(bitmaps) => (bitmaps.pointer(), GlobalPtr::NULL),
            Lookup::RecordStarts(starts) => (GlobalPtr::NULL, starts.pointer()),
        };
        let params = TileStreamParams {
            dense: operands.dense,
            workers: self.workers.pointer(),
            step_cols: step_cols.pointer(),
            records: records.pointer().cast(),
            bitmaps,
            record_starts,
            worker_count: narrow(self.workers.len()),
            reserved: 0,
        };
        // SAFETY: the steps were made of a valid RS-Tile, and dealt out by `deal_steps`; the arrays belong to the plan,
        // which frees them after the machine's work; the dense operands and the workspace are the caller's promise.
        unsafe { stream.start(entry, wide(self.workers.len()), params.dense.n(), &params) }
    }

    fn replace_values(&mut self, values: &Bits) -> Result<(), DeviceError> {
        let DeviceTiles { records, lookup, .. } = &mut self.tiles;
        match &self.places {
            ValuePlaces::OnHost(pattern) => {
                records.copy_from_slice(&pattern.records(self.shape.form, values)?)
            }
            ValuePlaces::OnDevice(sources) => sources.replace(values.unplaced(), lookup, records),
        }
    }

    fn value_slots(&self) -> ValueSlots<'_> {
        let records = &self.tiles.records;
        match &self.places {
            ValuePlaces::OnHost(pattern) => ValueSlots::Scattered {
                out: records.pointer(),
                elements: records.bytes() / u64::from(self.dtype.bytes()),
                places: Box::new(|nnz, nowhere| pattern.places(self.shape.form, self.dtype, nnz, nowhere)),
            },
            ValuePlaces::OnDevice(_) => ValueSlots::OnDevice,
        }
    }

    unsafe fn replace_from(&self, queue: &Arc<dyn Queue>, values: RoundedValues) -> Result<(), DeviceError> {
        let DeviceTiles { records, lookup, .. } = &self.tiles;
        match &self.places {
            // SAFETY: the caller's promise: values of all entries, live until the work is done.
            ValuePlaces::OnDevice(sources) => unsafe { sources.replace_from(queue, values, lookup, records) },
            ValuePlaces::OnHost(_) => Ok(()),
        }
    }

    fn replacing(&self, dtype: Dtype) -> Option<&'static Entry> {
        let own = matches!(self.places, ValuePlaces::OnDevice(_));
        own.then(|| windrow_kernels::entry(Variant::TileRecords { value_bytes: dtype.bytes() })).flatten()
    }

    fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        let DeviceTiles { step_cols, records, lookup } = &self.tiles;
        Ok(vec![
            read_array("workers", &self.workers)?,
            read_array("step_cols", step_cols)?,
            read_array("records", records)?,
            match lookup {
                Lookup::Bitmaps(bitmaps) => read_array("bitmaps", bitmaps)?,
                Lookup::RecordStarts(starts) => read_array("record_starts", starts)?,
            },
        ])
    }
}

//! A plan of sampled products on a machine that runs kernels.

use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

use windrow_formats::SampledTile;
use windrow_kernels::sddmm::{
    Sampled, SddmmEntriesParams, SddmmGroupsParams, SddmmTilesParams, TILE_RECORD_WORDS, record_masks_at,
    record_starts_at, record_window_at,
};
use windrow_kernels::{Entry, Factor, Variant};
use windrow_simt::GlobalPtr;

use super::options::SddmmGroup;
use super::row_panels::PanelsPart;
use crate::device::{Device, DeviceBuffer, Machine, Queue};
use crate::element::Real;
use crate::error::{DeviceError, PlanError};
use crate::num::{narrow, wide};
use crate::options::Precision;
use crate::plan::{
    ArraySize, Index, Lane, Launcher, OfStream, On, PREPARE, PerStream, Rounding, Target, WorkspaceMemory,
    copy_on_device, occupancy, placing_entry, start,
};
use crate::spmm::read_array;

/// Bytes of a row that the lanes of a warp read at a time, for one chunk.
const CHUNK_BYTES: u32 = 64;
/// Bytes that a lane reads at a time.
const VECTOR_BYTES: u64 = 16;
/// Chunks of the entries for aligned operands. The last takes whole vectors only.
const CHUNKS: [u32; 4] = [1, 2, 4, 8];
/// Chunks of the entry that scans masks.
const SCAN_CHUNKS: u32 = 4;
/// Tiles that a warp takes one after the other, at most: a row of `X` is then read once for several tiles of its
/// window, and the record of the next tile is read meanwhile.
const TILES_PER_WARP: u32 = 8;
/// Warps of a multiprocessor that there should be tiles for, several times over.
const WARPS_WANTED: u32 = 64;

// Crates that do not know each other lay out a tile's record in the same way; this is where they meet.
const _: () = {
    assert!(
        size_of::<SampledTile>() / 4 == TILE_RECORD_WORDS as usize
            && offset_of!(SampledTile, masks) / 4 == record_masks_at()
            && offset_of!(SampledTile, starts) / 4 == record_starts_at()
            && offset_of!(SampledTile, window) / 4 == record_window_at()
    );
};

/// The parts of a plan in device memory.
pub(super) struct GpuSddmm {
    pub(super) precision: Precision,
    pub(super) multiprocessors: u32,
    pub(super) tiles: Option<TilesPart>,
    pub(super) entries: Option<EntriesPart>,
    pub(super) groups: Option<GroupsPart>,
    pub(super) panels: Option<PanelsPart>,
    /// Positions that belong to tiles; those of entries follow.
    pub(super) tile_entries: u32,
    pub(super) places: Option<DeviceBuffer<u32>>,
    /// In the type of the sums.
    pub(super) scale: Option<DeviceBuffer<u8>>,
    /// Whether the entries are computed beside the tiles: no two write the same place.
    pub(super) beside: bool,
    pub(super) device: Device,
    pub(super) nnz: usize,
    /// Where sums wait to be rounded, made by the first run whose result is of 16 bits.
    pub(super) stages: PerStream<Option<WorkspaceMemory>>,
    /// Bytes of all stages.
    pub(super) staged: AtomicU64,
    /// Bytes that the plan may have.
    pub(super) memory_limit: Option<u64>,
}

/// Tiles, for Tensor Cores.
pub(super) struct TilesPart {
    pub(super) records: DeviceBuffer<SampledTile>,
    pub(super) window_rows: DeviceBuffer<u32>,
    pub(super) kernels: TileEntries,
}

/// The entries for tiles in one precision, found once: that takes the CPU longer than preparing a launch.
pub(super) struct TileEntries {
    /// One for each of [`CHUNKS`].
    vectors: [&'static Entry; 4],
    /// For operands of any alignment.
    elements: &'static Entry,
}

impl TileEntries {
    /// Those of `precision`; of the same number of chunks, the one that scans masks if there is one and `scan`.
    pub(super) fn of(precision: Precision, scan: bool) -> Result<Self, DeviceError> {
        let dtype = precision.dtype();
        let entry = |chunks, vectors, scans| {
            let variant = Variant::SddmmTiles { dtype, chunks, vectors, scans };
            windrow_kernels::entry(variant).ok_or(DeviceError::MissingEntry { name: "sddmm_tiles" })
        };
        let elements = entry(1, false, false)?;
        let mut vectors = [elements; 4];
        for (place, chunks) in vectors.iter_mut().zip(CHUNKS) {
            let scans = scan && precision == Precision::F16 && chunks == SCAN_CHUNKS;
            *place = entry(chunks, true, scans)?;
        }
        Ok(Self { vectors, elements })
    }

    /// The one for rows of `bytes` bytes: as many chunks as they have, or the most.
    fn for_rows(&self, bytes: u64, vectors: bool) -> &'static Entry {
        if !vectors {
            return self.elements;
        }
        let wide_enough = |&chunks: &u32| bytes <= u64::from(chunks * CHUNK_BYTES);
        let last = if bytes.is_multiple_of(VECTOR_BYTES) { 3 } else { 2 };
        self.vectors[CHUNKS.iter().position(wide_enough).unwrap_or(last).min(last)]
    }
}

/// Batches of entries, for CUDA cores.
pub(super) struct EntriesPart {
    pub(super) rows: DeviceBuffer<u32>,
    pub(super) begins: DeviceBuffer<u32>,
    pub(super) col_indices: DeviceBuffer<u32>,
    /// For operands of any alignment, and for aligned ones.
    pub(super) kernels: [&'static Entry; 2],
}

impl EntriesPart {
    /// The entries of `precision`.
    pub(super) fn kernels(precision: Precision) -> Result<[&'static Entry; 2], DeviceError> {
        let entry = |vectors| {
            let variant = Variant::SddmmEntries { dtype: precision.dtype(), vectors };
            windrow_kernels::entry(variant).ok_or(DeviceError::MissingEntry { name: "sddmm_entries" })
        };
        Ok([entry(false)?, entry(true)?])
    }
}

/// Entries shared by groups of threads, for CUDA cores.
pub(super) struct GroupsPart {
    pub(super) rows: DeviceBuffer<u32>,
    pub(super) col_indices: DeviceBuffer<u32>,
    pub(super) group: SddmmGroup,
    /// For operands of any alignment, and for aligned ones.
    pub(super) kernels: [&'static Entry; 2],
}

impl GroupsPart {
    /// The entries of `precision`.
    pub(super) fn kernels(precision: Precision) -> Result<[&'static Entry; 2], DeviceError> {
        let entry = |vectors| {
            let variant = Variant::SddmmGroups { dtype: precision.dtype(), vectors };
            windrow_kernels::entry(variant).ok_or(DeviceError::MissingEntry { name: "sddmm_groups" })
        };
        Ok([entry(false)?, entry(true)?])
    }
}

/// The dense operands of a run: addresses, and leading dimensions in elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operands {
    pub(super) x: u64,
    pub(super) ldx: u32,
    pub(super) y: u64,
    pub(super) ldy: u32,
    /// Whether rows of both may be read to the end of the 16 bytes that their last element is in.
    pub(super) reads_vectors: bool,
    pub(super) out: u64,
    pub(super) inner: u32,
    /// What sums are rounded to, if the result is of 16 bits.
    pub(super) narrow: Option<Precision>,
    pub(super) alpha: Factor,
}

impl GpuSddmm {
    /// Queues `out ← α·(X·Yᵀ) ⊙ A`; `arrays` are those that were made with the plan.
    ///
    /// # Errors
    /// [`PlanError::MemoryLimit`] if there is no room for a stage; [`DeviceError::Captured`] for what cannot be part of
    /// a graph; those of the device.
    ///
    /// # Safety
    /// `operands` are live memory of the plan's device until the work is done: `x` is m × inner and `y` n × inner, of
    /// the plan's element type, with all rows readable up to 16 bytes beyond their end if they say so, `out` has an
    /// element of its type for each entry; nothing else touches `out` meanwhile, nothing writes `x` or `y`. Where one
    /// of them is windrow's memory, `on` says that it shares memory.
    pub(super) unsafe fn run(
        &self,
        on: &On<'_>,
        operands: Operands,
        arrays: &[ArraySize],
    ) -> Result<(), PlanError> {
        let complete = |state: &mut OfStream<Option<WorkspaceMemory>>, captured: bool| {
            let missing = operands.narrow.is_some() && state.held.is_none();
            match (captured, missing) {
                (true, true) => {
                    return Err(
                        DeviceError::Captured { what: "the making of a stage", remedy: PREPARE }.into()
                    );
                }
                (true, false) => on.check_loaded(self.entries(&operands))?,
                (false, true) => self.make_stage(state, arrays)?,
                (false, false) => {}
            }
            Ok(())
        };
        // SAFETY: the caller's promise; the stage is lent for this run.
        let queue = |queue: &dyn Queue, stage: &mut Option<WorkspaceMemory>| unsafe {
            self.queue_run(queue, operands, stage.as_ref())
        };
        self.stages.run(on, |left| Ok(self.no_stage(left)), complete, queue)
    }

    /// Whether the kernels that read vectors take the operands.
    fn vectors(&self, operands: &Operands) -> bool {
        let bytes = u64::from(self.precision.bytes());
        let aligned =
            |address: u64, ld: u32| address.is_multiple_of(16) && (u64::from(ld) * bytes).is_multiple_of(16);
        operands.reads_vectors && aligned(operands.x, operands.ldx) && aligned(operands.y, operands.ldy)
    }

    /// The kernels of a run.
    pub(super) fn entries(&self, operands: &Operands) -> impl Iterator<Item = &'static Entry> {
        let vectors = self.vectors(operands);
        let bytes = u64::from(operands.inner) * u64::from(self.precision.bytes());
        let tiles = self.tiles.as_ref().map(|part| part.kernels.for_rows(bytes, vectors));
        let entries = self.entries.as_ref().map(|part| part.kernels[usize::from(vectors)]);
        let groups = self.groups.as_ref().map(|part| part.kernels[usize::from(vectors)]);
        let panels = self.panels.as_ref().map(|part| part.kernel(u64::from(operands.inner), vectors));
        let value_bytes = operands.narrow.map(|precision| precision.dtype().sum_bytes());
        let rounding =
            value_bytes.and_then(|value_bytes| windrow_kernels::entry(Variant::PlaceValues { value_bytes }));
        [tiles, entries, groups, panels, rounding].into_iter().flatten()
    }

    /// Queues all launches of a run.
    ///
    /// # Safety
    /// As for [`run`](Self::run); no other run uses the stage until all of this one is queued.
    unsafe fn queue_run(
        &self,
        queue: &dyn Queue,
        operands: Operands,
        stage: Option<&WorkspaceMemory>,
    ) -> Result<(), DeviceError> {
        let vectors = self.vectors(&operands);
        let place =
            |first: u32| self.places.as_ref().map_or(GlobalPtr::NULL, |places| places.pointer().at(first));
        let stage = stage.filter(|_| operands.narrow.is_some());
        let sampled = Sampled {
            x: GlobalPtr::from_address(operands.x),
            y: GlobalPtr::from_address(operands.y),
            out: match &stage {
                Some(stage) => stage.pointer(),
                None => GlobalPtr::from_address(operands.out),
            },
            scale: self.scale.as_ref().map_or(GlobalPtr::NULL, |scale| scale.pointer().cast()),
            places: place(0),
            inner: operands.inner,
            ldx: operands.ldx,
            ldy: operands.ldy,
            reserved: 0,
            alpha: operands.alpha,
        };
        if self.beside {
            queue.fork()?;
        }
        // SAFETY: the caller's promise; alignment was looked at above, and rows are readable up to their leading
        // dimension, a multiple of 16 bytes where vectors are read.
        let launched = unsafe {
            let of_entries = Sampled { places: place(self.tile_entries), ..sampled };
            let lane = if self.beside { Lane::Beside } else { Lane::Main };
            self.launch_entries(queue, lane, of_entries, vectors)
                .and_then(|()| self.launch_groups(queue, of_entries, vectors))
                .and_then(|()| match &self.panels {
                    Some(part) => part.launch(queue, of_entries, vectors),
                    None => Ok(()),
                })
                .and_then(|()| self.launch_tiles(queue, sampled, vectors))
        };
        if self.beside {
            queue.join()?;
        }
        launched?;
        match (stage, operands.narrow) {
            (Some(stage), Some(precision)) => {
                let (values, out) = (stage.pointer(), GlobalPtr::from_address(operands.out));
                let rounding = Rounding { precision, overflowed: GlobalPtr::NULL };
                // SAFETY: the stage has a sum for each entry, which nobody else has while it is locked, and is freed
                // after the work queued before; `out` has an element of the precision for each, by the caller's
                // promise.
                unsafe { Index::InOrder.place(queue, rounding, values, Target { out, count: self.nnz }) }
            }
            _ => Ok(()),
        }
    }

    /// Launches the tiles.
    ///
    /// # Safety
    /// As for [`run`](Self::run), of the operands that `sampled` names; they are aligned to vectors if `vectors`.
    unsafe fn launch_tiles(
        &self,
        queue: &dyn Queue,
        sampled: Sampled,
        vectors: bool,
    ) -> Result<(), DeviceError> {
        let Some(part) = &self.tiles else { return Ok(()) };
        let bytes = u64::from(sampled.inner) * u64::from(self.precision.bytes());
        let entry = part.kernels.for_rows(bytes, vectors);
        let tiles_per_warp = self.tiles_per_warp(part);
        let params = SddmmTilesParams {
            sampled,
            records: part.records.pointer().cast(),
            window_rows: part.window_rows.pointer(),
            tile_count: narrow(part.records.len()),
            tiles_per_warp,
        };
        // SAFETY: the records were made of a valid CSR by `SampledTiles`, which keeps the obligations, and belong to
        // the plan, which frees them after the machine's work; the dense operands are the caller's promise, and the
        // entry is the one for rows of their length.
        unsafe { start(queue, entry, u64::from(params.tile_count.div_ceil(tiles_per_warp)), 1, &params) }
    }

    /// Tiles that a warp takes.
    fn tiles_per_warp(&self, part: &TilesPart) -> u32 {
        let warps = self.multiprocessors.saturating_mul(WARPS_WANTED);
        (narrow(part.records.len()) / warps.max(1)).clamp(1, TILES_PER_WARP)
    }

    /// Launches the batches of entries.
    ///
    /// # Safety
    /// As for [`launch_tiles`](Self::launch_tiles).
    unsafe fn launch_entries(
        &self,
        queue: &dyn Queue,
        lane: Lane,
        sampled: Sampled,
        vectors: bool,
    ) -> Result<(), DeviceError> {
        let Some(part) = &self.entries else { return Ok(()) };
        let params = SddmmEntriesParams {
            sampled,
            rows: part.rows.pointer(),
            begins: part.begins.pointer(),
            col_indices: part.col_indices.pointer(),
            batch_count: narrow(part.rows.len()),
            reserved: 0,
        };
        let entry = part.kernels[usize::from(vectors)];
        // SAFETY: as above; the batches were made by `entry_batches`. No entry is in both parts.
        unsafe { Launcher { queue, lane }.start(entry, wide(part.rows.len()), 1, &params) }
    }

    /// Launches the groups of threads.
    ///
    /// # Safety
    /// As for [`launch_tiles`](Self::launch_tiles).
    unsafe fn launch_groups(
        &self,
        queue: &dyn Queue,
        sampled: Sampled,
        vectors: bool,
    ) -> Result<(), DeviceError> {
        let Some(part) = &self.groups else { return Ok(()) };
        let (positions, SddmmGroup { threads, entries }) = (narrow(part.rows.len()), part.group);
        let params = SddmmGroupsParams {
            sampled,
            rows: part.rows.pointer(),
            col_indices: part.col_indices.pointer(),
            positions,
            groups: positions.div_ceil(entries),
            entries_each: entries,
            reduction_log2: threads.ilog2(),
        };
        let entry = part.kernels[usize::from(vectors)];
        // SAFETY: as above; rows and columns are those of a valid CSR, whose positions and threads were counted when
        // the plan was made.
        unsafe { start(queue, entry, u64::from(params.groups) * u64::from(threads), 1, &params) }
    }

    /// Occupancy ratios of the two parts, CUDA cores and Tensor Cores, for aligned operands of inner dimension `inner`;
    /// none unless there are both.
    pub(super) fn occupancy(
        &self,
        machine: &dyn Machine,
        inner: u64,
    ) -> Result<Option<[f64; 2]>, DeviceError> {
        let (Some(tiles), Some(entries)) = (&self.tiles, &self.entries) else { return Ok(None) };
        let bytes = inner.saturating_mul(u64::from(self.precision.bytes()));
        let warps = wide(tiles.records.len()).div_ceil(u64::from(self.tiles_per_warp(tiles)));
        Ok(Some([
            occupancy(machine, entries.kernels[1], wide(entries.rows.len()), 1)?,
            occupancy(machine, tiles.kernels.for_rows(bytes, true), warps, 1)?,
        ]))
    }

    /// The entries for aligned operands of inner dimension `inner`.
    pub(super) fn names(&self, inner: u64) -> Vec<&'static str> {
        let bytes = inner.saturating_mul(u64::from(self.precision.bytes()));
        let tiles = self.tiles.as_ref().map(|part| part.kernels.for_rows(bytes, true));
        let entries = self.entries.as_ref().map(|part| part.kernels[1]);
        let groups = self.groups.as_ref().map(|part| part.kernels[1]);
        let panels = self.panels.as_ref().map(|part| part.kernel(inner, true));
        [tiles, entries, groups, panels].into_iter().flatten().map(|entry| entry.name).collect()
    }

    /// Whether Tensor Cores take part, whose rounding is not that of a fused multiply-add.
    pub(super) fn uses_tiles(&self) -> bool {
        self.tiles.is_some()
    }

    /// Name and content of each array, read back.
    pub(super) fn read_arrays(&self) -> Result<Vec<(&'static str, Vec<u8>)>, DeviceError> {
        let mut arrays = Vec::new();
        if let Some(part) = &self.tiles {
            arrays.push(read_array("tiles", &part.records)?);
            arrays.push(read_array("window_rows", &part.window_rows)?);
        }
        if let Some(part) = &self.entries {
            arrays.push(read_array("batch_rows", &part.rows)?);
            arrays.push(read_array("batch_begins", &part.begins)?);
            arrays.push(read_array("col_indices", &part.col_indices)?);
        }
        if let Some(part) = &self.groups {
            arrays.push(read_array("entry_rows", &part.rows)?);
            arrays.push(read_array("col_indices", &part.col_indices)?);
        }
        if let Some(part) = &self.panels {
            arrays.extend(part.read_arrays()?);
        }
        if let Some(places) = &self.places {
            arrays.push(read_array("places", places)?);
        }
        if let Some(scale) = &self.scale {
            arrays.push(read_array("values", scale)?);
        }
        Ok(arrays)
    }

    /// New values to scale with, in CSR order and in the type of the sums.
    pub(super) fn replace_values(&mut self, values: &[u8]) -> Result<(), DeviceError> {
        let (Some(scale), Some(machine)) = (&mut self.scale, self.device.machine()) else { return Ok(()) };
        self.stages.before_writing(&**machine.own())?;
        scale.copy_from_slice(values)
    }

    /// The same with values that are on the device, one of the sums' type for each entry, on a stream.
    ///
    /// # Errors
    /// Those of [`PerStream::write`].
    ///
    /// # Safety
    /// The values are live memory until the work is done, which nothing writes meanwhile.
    pub(super) unsafe fn replace_by<S: Real>(
        &mut self,
        on: &On<'_>,
        values: GlobalPtr<S>,
    ) -> Result<(), DeviceError> {
        let Self { scale: Some(scale), stages, nnz, .. } = self else { return Ok(()) };
        let entry = placing_entry(S::PRECISION)?;
        // SAFETY: the caller's promise; the values are scaled by one for each entry.
        stages.write(on, [entry], || unsafe { copy_on_device(on.queue, (values, *nnz), scale) })
    }
}

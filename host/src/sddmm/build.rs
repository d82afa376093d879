//! From a pattern and options to a plan.

use std::sync::atomic::AtomicU64;

use windrow_formats::memory::try_with_room;
use windrow_formats::{Csr, SAMPLED_COLS, SampledTiles, Value, WINDOW_ROWS};
use windrow_kernels::sddmm::BATCH;
use windrow_preprocess::balance::{EntryBatches, entry_batches};

use super::builder::SddmmBuilder;
use super::choose::counts_of_host;
use super::gpu::{EntriesPart, GpuSddmm, GroupsPart, TileEntries, TilesPart};
use super::host::{HostSddmm, scale_of};
use super::options::{SddmmAlgorithm, SddmmForm, SddmmOptions};
use super::plan::{Body, SddmmPlan};
use super::report::SddmmReport;
use super::row_panels::{LaidOutPanels, PanelArrays, PanelsPart};
use crate::device::{Device, DeviceBuffer, Machine};
use crate::element::{BySum, Element};
use crate::error::{DeviceError, SddmmError};
use crate::num::{narrow, real, wide};
use crate::options::Preprocessing;
use crate::plan::{ArraySize, PerStream, Scheduling, StageClock, check_memory, push};
use crate::predict::weigh::OfHost;
use crate::profile::Profile;
use crate::with_element;

/// What to do about a plan that needs more memory than it may take.
const MEMORY_REMEDY: &str = "raise the limit, or choose algorithm entries";

/// The parts of a plan on the host, before upload.
struct Parts<'a> {
    pattern: SampledTiles,
    batches: EntryBatches,
    /// Row of each entry, where groups of threads share entries.
    entry_rows: Vec<u32>,
    panels: LaidOutPanels,
    /// The matrix's own, where all entries are in batches; else those of the pattern's rest.
    col_indices: Option<&'a [u32]>,
}

impl Parts<'_> {
    /// Column of each entry of the batches.
    fn col_indices(&self) -> &[u32] {
        self.col_indices.unwrap_or_else(|| self.pattern.rest_cols())
    }

    fn counts(&self) -> Counts {
        let tiles = self.pattern.tiles();
        Counts {
            tiles: tiles.len(),
            column_vectors: self.pattern.gathered_columns(),
            windows: tiles.chunk_by(|a, b| a.window == b.window).count(),
            window_rows: self.pattern.window_rows().len(),
            tile_entries: self.pattern.tile_entries(),
            places: self.pattern.places().len(),
            batches: self.batches.rows.len(),
            entry_rows: self.entry_rows.len(),
            columns: self.col_indices().len(),
            panels: self.panels.counts(),
        }
    }
}

/// What a plan has, before there is memory for it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) tiles: usize,
    /// Columns of the tiles.
    pub(super) column_vectors: u64,
    /// Windows that have tiles.
    pub(super) windows: usize,
    /// Slots of all windows together.
    pub(super) window_rows: usize,
    /// Entries that are in tiles.
    pub(super) tile_entries: usize,
    /// Entries that are not in their order.
    pub(super) places: usize,
    pub(super) batches: usize,
    /// Entries that groups of threads share.
    pub(super) entry_rows: usize,
    /// Entries that are in no tile.
    pub(super) columns: usize,
    pub(super) panels: PanelArrays,
}

/// The arrays of a plan in device memory.
#[derive(Default)]
pub(super) struct Uploaded {
    pub(super) tiles: Option<TilesPart>,
    pub(super) entries: Option<EntriesPart>,
    pub(super) groups: Option<GroupsPart>,
    pub(super) panels: Option<PanelsPart>,
    pub(super) places: Option<DeviceBuffer<u32>>,
    /// In the type of the sums.
    pub(super) scale: Option<DeviceBuffer<u8>>,
}

impl<V: Value> SddmmBuilder<'_, Csr<V>> {
    /// Makes the plan: checks, chooses, lays out and uploads.
    ///
    /// # Cost
    /// Linear in rows and entries; the report has the time of each stage.
    ///
    /// # Errors
    /// - [`SddmmError::Unsupported`] for an algorithm without kernels for the precision;
    /// - [`SddmmError::IllegalPoint`] for groups that there are not;
    /// - `TooLarge` of [`PlanError`](crate::PlanError) for a GPU plan with about 2³² entries, or threads of groups;
    ///   `MemoryLimit` if the plan needs more than the limit; `Device` if the device refuses, `Format` if tiles cannot
    ///   be built.
    pub fn build(&self, device: &Device) -> Result<SddmmPlan, SddmmError> {
        self.check_options()?;
        let a = self.a;
        let mut report = self.blank_report(device, (a.rows(), a.cols(), a.nnz()));
        let mut clock = StageClock::start();
        let Some(machine) = device.machine() else {
            report.algorithm = SddmmAlgorithm::Entries;
            report.reason = "the CPU has one algorithm, rows in parallel".to_owned();
            report.reason += &self.trial(&[]).obstacle().unwrap_or_default();
            report.preprocessing_reason = "the plan runs there".to_owned();
            let SddmmOptions { precision, form, .. } = self.options;
            let body = with_element!(precision, E => {
                type Sum<E> = <E as Element>::Sum;
                self.account(&mut report, HostSddmm::<Sum<E>>::sizes(a, form))?;
                BySum::new(HostSddmm::<Sum<E>>::new(a, precision, form)?)
            });
            clock.end("copy");
            return Ok(self.plan(device, Body::Cpu(body), report, clock));
        };
        let profile = self.profile_of(device);
        let precision = self.decide(counts_of_host(a), &profile, &mut report, &mut OfHost(a))?;
        let build = |options| self.clone().options(options).build(device);
        if let Some(plan) = self.tried(device, &mut report, build)? {
            return Ok(plan);
        }
        if precision != self.options.precision {
            return Ok(self.serving(self.served_by(&report, precision).build(device)?, report));
        }
        let parts = self.lay_out(device, &report)?;
        let counts = parts.counts();
        self.note(counts, &mut report)?;
        clock.end("layout");
        let uploaded = self.upload(device, &parts)?;
        self.finish((device, machine), (counts, uploaded), report, clock)
    }

    /// Divides the entries between the paths.
    fn lay_out(&self, device: &Device, report: &SddmmReport) -> Result<Parts<'_>, SddmmError> {
        let a = self.a;
        let pattern = match report.algorithm {
            SddmmAlgorithm::Entries | SddmmAlgorithm::Groups | SddmmAlgorithm::RowPanels => {
                SampledTiles::default()
            }
            SddmmAlgorithm::Hybrid => SampledTiles::with_dense_tiles(a, self.threshold(device))?,
            SddmmAlgorithm::Tiles | SddmmAlgorithm::Auto => SampledTiles::from_csr(a)?,
        };
        let col_indices = Some(a.col_indices());
        let mut parts = Parts {
            pattern,
            batches: EntryBatches::default(),
            entry_rows: Vec::new(),
            panels: LaidOutPanels::default(),
            col_indices,
        };
        match report.algorithm {
            SddmmAlgorithm::Groups => {
                parts.entry_rows = try_with_room(a.nnz(), "entry_rows")?;
                for row in 0..a.rows() {
                    parts.entry_rows.resize(a.row_range(row).end, narrow(row));
                }
            }
            SddmmAlgorithm::Entries => {
                let rows = (0..a.rows()).map(|row| (narrow(row), narrow(a.row_len(row))));
                parts.batches = entry_batches(rows, BATCH)?;
            }
            SddmmAlgorithm::RowPanels => {
                parts.panels = LaidOutPanels::of(a.pattern(), device, self.options.inner)?
            }
            SddmmAlgorithm::Tiles | SddmmAlgorithm::Hybrid | SddmmAlgorithm::Auto => {
                let pattern = &parts.pattern;
                let lengths = pattern.rest_offsets().windows(2).map(|ends| ends[1] - ends[0]);
                parts.batches = entry_batches(pattern.rest_rows().iter().copied().zip(lengths), BATCH)?;
                parts.col_indices = None;
            }
        }
        Ok(parts)
    }

    fn upload(&self, device: &Device, parts: &Parts<'_>) -> Result<Uploaded, SddmmError> {
        let pattern = &parts.pattern;
        let tiles = match pattern.tiles() {
            [] => None,
            tiles => Some(TilesPart {
                records: DeviceBuffer::named(device, tiles, "tiles")?,
                window_rows: DeviceBuffer::named(device, pattern.window_rows(), "window_rows")?,
                kernels: self.tile_entries()?,
            }),
        };
        let entries = match parts.batches.rows.as_slice() {
            [] => None,
            rows => Some(EntriesPart {
                rows: DeviceBuffer::named(device, rows, "batch_rows")?,
                begins: DeviceBuffer::named(device, &parts.batches.begins, "batch_begins")?,
                col_indices: DeviceBuffer::named(device, parts.col_indices(), "col_indices")?,
                kernels: EntriesPart::kernels(self.options.precision)?,
            }),
        };
        let groups = match parts.entry_rows.as_slice() {
            [] => None,
            rows => Some(GroupsPart {
                rows: DeviceBuffer::named(device, rows, "entry_rows")?,
                col_indices: DeviceBuffer::named(device, parts.col_indices(), "col_indices")?,
                group: self.group(),
                kernels: GroupsPart::kernels(self.options.precision)?,
            }),
        };
        let places = match pattern.places() {
            [] => None,
            places => Some(DeviceBuffer::named(device, places, "places")?),
        };
        let scale = match self.options.form {
            SddmmForm::Mask => None,
            SddmmForm::Scale => with_element!(self.options.precision, E => {
                let scale = scale_of::<V, <E as Element>::Sum>(self.a.values())?;
                Some(DeviceBuffer::named(device, bytemuck::cast_slice(&scale), "values")?)
            }),
        };
        Ok(Uploaded { tiles, entries, groups, panels: parts.panels.upload(device)?, places, scale })
    }
}

impl<A> SddmmBuilder<'_, A> {
    /// Whether there are kernels for what is asked for.
    pub(super) fn check_options(&self) -> Result<(), SddmmError> {
        if !self.options.algorithm.supports(self.options.precision) {
            let (algorithm, precision) = (self.options.algorithm, self.options.precision);
            return Err(SddmmError::Unsupported { algorithm, precision });
        }
        Ok(self.group().check()?)
    }

    /// Entries that a tile of a hybrid has at least.
    pub(super) fn threshold(&self, device: &Device) -> u32 {
        self.options.tile_threshold.unwrap_or_else(|| self.profile_of(device).tile_entries)
    }

    /// The kernels of tiles.
    pub(super) fn tile_entries(&self) -> Result<TileEntries, DeviceError> {
        TileEntries::of(self.options.precision, self.options.scan)
    }

    /// Notes what the plan has, and refuses what is beyond the limit.
    pub(super) fn note(&self, counts: Counts, report: &mut SddmmReport) -> Result<(), SddmmError> {
        let in_tiles = real(wide(counts.tile_entries));
        report.tiles = wide(counts.tiles);
        report.column_vectors = counts.column_vectors;
        report.window_rows = wide(WINDOW_ROWS * counts.windows);
        report.batches = wide(counts.batches);
        report.panel_columns = counts.panels.counts.columns;
        report.panel_vectors = counts.panels.counts.vectors;
        report.tile_share = in_tiles / real(wide(report.nnz.max(1)));
        report.utilisation = in_tiles / real(wide(counts.tiles * WINDOW_ROWS * SAMPLED_COLS).max(1));
        self.account(report, self.sizes(counts, report.nnz))
    }

    fn sizes(&self, counts: Counts, nnz: usize) -> Vec<ArraySize> {
        let mut sizes = Vec::new();
        push(&mut sizes, "tiles", wide(size_of::<windrow_formats::SampledTile>()) * wide(counts.tiles));
        if counts.tiles > 0 {
            push(&mut sizes, "window_rows", 4 * wide(counts.window_rows));
        }
        push(&mut sizes, "places", 4 * wide(counts.places));
        if counts.batches > 0 {
            push(&mut sizes, "batch_rows", 4 * wide(counts.batches));
            push(&mut sizes, "batch_begins", 4 * wide(counts.batches + 1));
            push(&mut sizes, "col_indices", 4 * wide(counts.columns));
        }
        if counts.entry_rows > 0 {
            push(&mut sizes, "entry_rows", 4 * wide(counts.entry_rows));
            push(&mut sizes, "col_indices", 4 * wide(counts.columns));
        }
        counts.panels.push_sizes(&mut sizes);
        if self.options.form == SddmmForm::Scale {
            push(&mut sizes, "values", u64::from(self.options.precision.dtype().sum_bytes()) * wide(nnz));
        }
        sizes
    }

    /// The plan of arrays that are on the device.
    pub(super) fn finish(
        &self,
        (device, machine): (&Device, &dyn Machine),
        (counts, Uploaded { tiles, entries, groups, panels, places, scale }): (Counts, Uploaded),
        mut report: SddmmReport,
        mut clock: StageClock,
    ) -> Result<SddmmPlan, SddmmError> {
        let mut plan = GpuSddmm {
            device: device.clone(),
            nnz: report.nnz,
            stages: PerStream::new(None),
            staged: AtomicU64::new(0),
            memory_limit: self.options.memory_limit,
            precision: self.options.precision,
            multiprocessors: machine.multiprocessors(),
            tiles,
            entries,
            groups,
            panels,
            tile_entries: narrow(counts.tile_entries),
            places,
            scale,
            beside: false,
        };
        if let Some(ratios) = plan.occupancy(machine, wide(self.options.inner))? {
            let Profile { sddmm, thresholds, .. } = self.profile_of(device);
            let scheduling = Scheduling::choose(self.options.schedule, ratios, sddmm, thresholds);
            plan.beside = scheduling.is_beside();
            report.scheduling = Some(scheduling);
        }
        report.entries = plan.names(wide(self.options.inner));
        clock.end("upload");
        Ok(self.plan(device, Body::Gpu(Box::new(plan)), report, clock))
    }

    fn plan(&self, device: &Device, body: Body, mut report: SddmmReport, clock: StageClock) -> SddmmPlan {
        report.stages = clock.stages;
        let SddmmReport { rows, cols, nnz, precision, form, .. } = report;
        SddmmPlan { rows, cols, nnz, precision, form, device: device.clone(), body, report }
    }

    /// Notes what the plan will allocate, and refuses to go beyond the limit.
    fn account(&self, report: &mut SddmmReport, sizes: Vec<ArraySize>) -> Result<(), SddmmError> {
        report.device_bytes = check_memory(&sizes, self.options.memory_limit, MEMORY_REMEDY)?;
        report.arrays = sizes;
        Ok(())
    }

    pub(super) fn blank_report(
        &self,
        device: &Device,
        (rows, cols, nnz): (usize, usize, usize),
    ) -> SddmmReport {
        SddmmReport {
            rows,
            cols,
            nnz,
            inner: self.options.inner,
            precision: self.options.precision,
            requested_precision: self.options.precision,
            form: self.options.form,
            device: device.to_string(),
            device_kind: device.kind(),
            requested: self.options.algorithm,
            algorithm: self.options.algorithm,
            weighed: Vec::new(),
            reason: "as asked".to_owned(),
            preprocessing: Preprocessing::Cpu,
            preprocessing_reason: "the pattern is in host memory".to_owned(),
            scheduling: None,
            entries: Vec::new(),
            tiles: 0,
            column_vectors: 0,
            window_rows: 0,
            batches: 0,
            panel_columns: 0,
            panel_vectors: 0,
            group: None,
            tile_share: 0.0,
            utilisation: 0.0,
            arrays: Vec::new(),
            device_bytes: 0,
            stages: Vec::new(),
        }
    }
}

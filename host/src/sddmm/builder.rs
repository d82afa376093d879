//! From a pattern and options to a plan.

use std::sync::atomic::AtomicU64;

use windrow_formats::memory::try_with_room;
use windrow_formats::{Csr, SAMPLED_COLS, SampledTiles, Value, WINDOW_ROWS};
use windrow_kernels::sddmm::BATCH;
use windrow_preprocess::balance::{EntryBatches, entry_batches};

use super::gpu::{EntriesPart, GpuSddmm, GroupsPart, TileEntries, TilesPart};
use super::host::{HostSddmm, scale_of};
use super::options::{SddmmAlgorithm, SddmmForm, SddmmGroup, SddmmOptions};
use super::plan::{Body, SddmmPlan};
use super::report::SddmmReport;
use crate::device::{Device, DeviceBuffer};
use crate::element::{BySum, Element};
use crate::error::{PlanError, SddmmError};
use crate::num::{narrow, real, wide};
use crate::options::Precision;
use crate::plan::{ArraySize, MAX_INDEX, Schedule, Scheduling, StageClock, check_memory, push};
use crate::profile::Profile;
use crate::with_element;

/// What to do about a plan that needs more memory than it may take.
const MEMORY_REMEDY: &str = "raise the limit, or choose algorithm entries";

/// Options of a plan; made by [`Sddmm::builder`](super::Sddmm::builder).
#[derive(Debug, Clone)]
pub struct SddmmBuilder<'a, V> {
    a: &'a Csr<V>,
    options: SddmmOptions,
    profile: Option<Profile>,
}

/// The parts of a plan on the host, before upload.
struct Parts<'a> {
    pattern: SampledTiles,
    batches: EntryBatches,
    /// Row of each entry, where groups of threads share entries.
    entry_rows: Vec<u32>,
    /// The matrix's own, where all entries are in batches; else those of the pattern's rest.
    col_indices: Option<&'a [u32]>,
}

impl Parts<'_> {
    /// Column of each entry of the batches.
    fn col_indices(&self) -> &[u32] {
        self.col_indices.unwrap_or_else(|| self.pattern.rest_cols())
    }
}

impl<'a, V: Value> SddmmBuilder<'a, V> {
    pub(super) fn new(a: &'a Csr<V>) -> Self {
        Self { a, options: SddmmOptions::default(), profile: None }
    }

    /// All options at once, instead of those set before.
    #[must_use]
    pub fn options(mut self, options: SddmmOptions) -> Self {
        self.options = options;
        self
    }

    /// The inner dimension that most products will have, 128 unless told. A hint: products of any can be run.
    #[must_use]
    pub fn inner(mut self, d: usize) -> Self {
        self.options.inner = d;
        self
    }

    /// The type that `X` and `Y` are rounded to, [`Precision::F32`] unless told.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.options.precision = precision;
        self
    }

    /// What the values of the pattern are for, [`SddmmForm::Mask`] unless told.
    #[must_use]
    pub fn form(mut self, form: SddmmForm) -> Self {
        self.options.form = form;
        self
    }

    /// The algorithm, [`SddmmAlgorithm::Auto`] unless told.
    #[must_use]
    pub fn algorithm(mut self, algorithm: SddmmAlgorithm) -> Self {
        self.options.algorithm = algorithm;
        self
    }

    /// How [`SddmmAlgorithm::Groups`] divides the work, instead of what suits the inner dimension. Other algorithms
    /// disregard it.
    ///
    /// # Examples
    /// ```
    /// use windrow::{Csr, Device, Sddmm, SddmmAlgorithm, SddmmGroup};
    ///
    /// let a = Csr::<f32>::identity(2)?;
    /// let builder = Sddmm::builder(&a).inner(2).algorithm(SddmmAlgorithm::Groups);
    /// let plan = builder.groups(SddmmGroup { threads: 2, entries: 1 }).build(&Device::best()?)?;
    /// assert_eq!(plan.run(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0])?, [17.0, 53.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn groups(mut self, group: SddmmGroup) -> Self {
        self.options.group = Some(group);
        self
    }

    /// Entries that a tile of 8 × 16 must have to be computed on Tensor Cores by [`SddmmAlgorithm::Hybrid`], instead of
    /// what the [profile](Self::profile) has. Other algorithms disregard it.
    #[must_use]
    pub fn tile_threshold(mut self, entries: u32) -> Self {
        self.options.tile_threshold = Some(entries);
        self
    }

    /// Whether the two parts of a hybrid run one after the other or beside each other: [`Schedule::Auto`] unless told.
    /// The report says what is done, and the occupancy ratios that decide.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.options.schedule = schedule;
        self
    }

    /// What was measured on the device: the threshold of tiles, and what [`Schedule::Auto`] goes by.
    /// [`Profile::built_in`] unless told.
    #[must_use]
    pub fn profile(mut self, profile: &Profile) -> Self {
        self.profile = Some(profile.clone());
        self
    }

    /// Device memory that the plan may take, in bytes; `X`, `Y` and the result are the caller's. No limit unless told.
    /// The need is computed before anything is allocated. On a GPU the first result of 16 bits on each stream takes
    /// four bytes an entry beyond it, and is refused where the limit leaves no room for them.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    /// Finds the position of an entry of a tile by scanning its row's mask instead of counting bits: for comparison.
    #[must_use]
    pub fn scan_masks(mut self) -> Self {
        self.options.scan = true;
        self
    }

    /// Makes the plan: checks, chooses, lays out and uploads.
    ///
    /// # Cost
    /// Linear in rows and entries; the report has the time of each stage.
    ///
    /// # Errors
    /// - [`SddmmError::Unsupported`] for an algorithm without kernels for the precision;
    /// - [`SddmmError::IllegalPoint`] for groups that there are not;
    /// - [`PlanError::TooLarge`] for a GPU plan with about 2³² entries, or threads of groups;
    /// - [`PlanError::MemoryLimit`] if the plan needs more than the limit;
    /// - [`PlanError::Device`] if the device refuses, [`PlanError::Format`] if tiles cannot be built.
    pub fn build(&self, device: &Device) -> Result<SddmmPlan, SddmmError> {
        if !self.options.algorithm.supports(self.options.precision) {
            let (algorithm, precision) = (self.options.algorithm, self.options.precision);
            return Err(SddmmError::Unsupported { algorithm, precision });
        }
        let group = self.group();
        group.check()?;
        let mut report = self.blank_report(device);
        let mut clock = StageClock::start();
        let body = match device.machine() {
            None => {
                report.algorithm = SddmmAlgorithm::Entries;
                report.reason = "the CPU has one algorithm, rows in parallel".to_owned();
                let SddmmOptions { precision, form, .. } = self.options;
                let body = with_element!(precision, E => {
                    type Sum<E> = <E as Element>::Sum;
                    self.account(&mut report, HostSddmm::<Sum<E>>::sizes(self.a, form))?;
                    BySum::new(HostSddmm::<Sum<E>>::new(self.a, precision, form)?)
                });
                clock.end("copy");
                Body::Cpu(body)
            }
            Some(machine) => {
                let profile = Profile::given_or_built_in(self.profile.as_ref(), device);
                let threshold = self.options.tile_threshold.unwrap_or(profile.tile_entries);
                let parts = self.lay_out(threshold, &mut report)?;
                clock.end("layout");
                self.account(&mut report, self.sizes(&parts))?;
                let mut plan = self.upload(device, machine.multiprocessors(), &parts)?;
                if let Some(ratios) = plan.occupancy(machine, wide(self.options.inner))? {
                    let scheduling = Scheduling::choose(self.options.schedule, ratios, profile.sddmm);
                    plan.beside = scheduling.is_beside();
                    report.scheduling = Some(scheduling);
                }
                report.entries = plan.names(wide(self.options.inner));
                clock.end("upload");
                Body::Gpu(Box::new(plan))
            }
        };
        report.stages = clock.stages;
        Ok(SddmmPlan {
            rows: self.a.rows(),
            cols: self.a.cols(),
            nnz: self.a.nnz(),
            precision: self.options.precision,
            form: self.options.form,
            device: device.clone(),
            body,
            report,
        })
    }

    /// The groups of the algorithm that has them.
    fn group(&self) -> SddmmGroup {
        let bytes = self.options.inner.saturating_mul(self.options.precision.bytes() as usize);
        self.options.group.unwrap_or_else(|| SddmmGroup::for_rows(bytes))
    }

    /// Divides the entries between the paths. Notes the algorithm and why.
    fn lay_out(&self, threshold: u32, report: &mut SddmmReport) -> Result<Parts<'a>, SddmmError> {
        let entries = wide(self.a.nnz());
        if entries > MAX_INDEX {
            let remedy = "split the pattern by rows, or use the CPU";
            return Err(
                PlanError::TooLarge { what: "entries", found: entries, limit: MAX_INDEX, remedy }.into()
            );
        }
        if self.options.algorithm == SddmmAlgorithm::Auto {
            (report.algorithm, report.reason) = if self.options.precision.has_tile_kernels() {
                (SddmmAlgorithm::Tiles, "a row of Y is gathered once for the rows of a window".to_owned())
            } else {
                (SddmmAlgorithm::Entries, format!("{} is multiplied on CUDA cores", self.options.precision))
            };
        }
        let pattern = match report.algorithm {
            SddmmAlgorithm::Entries | SddmmAlgorithm::Groups => SampledTiles::default(),
            SddmmAlgorithm::Hybrid => SampledTiles::with_dense_tiles(self.a, threshold)?,
            SddmmAlgorithm::Tiles | SddmmAlgorithm::Auto => SampledTiles::from_csr(self.a)?,
        };
        let col_indices = Some(self.a.col_indices());
        let parts = if report.algorithm == SddmmAlgorithm::Groups {
            report.group = Some(self.group());
            let threads = entries.div_ceil(u64::from(self.group().entries)) * u64::from(self.group().threads);
            if threads > MAX_INDEX {
                let remedy = "let a group have more entries or fewer threads";
                return Err(PlanError::TooLarge {
                    what: "threads",
                    found: threads,
                    limit: MAX_INDEX,
                    remedy,
                }
                .into());
            }
            let mut entry_rows = try_with_room(self.a.nnz(), "entry_rows")?;
            for row in 0..self.a.rows() {
                entry_rows.resize(self.a.row_range(row).end, narrow(row));
            }
            Parts { batches: EntryBatches::default(), entry_rows, col_indices, pattern }
        } else if report.algorithm == SddmmAlgorithm::Entries {
            let rows = (0..self.a.rows()).map(|row| (narrow(row), narrow(self.a.row_len(row))));
            Parts { batches: entry_batches(rows, BATCH)?, entry_rows: Vec::new(), col_indices, pattern }
        } else {
            let lengths = pattern.rest_offsets().windows(2).map(|ends| ends[1] - ends[0]);
            let batches = entry_batches(pattern.rest_rows().iter().copied().zip(lengths), BATCH)?;
            Parts { batches, entry_rows: Vec::new(), col_indices: None, pattern }
        };
        let tiles = parts.pattern.tiles();
        let in_tiles = wide(self.a.nnz() - parts.col_indices().len());
        report.tiles = wide(tiles.len());
        report.column_vectors = parts.pattern.gathered_columns();
        let windows = tiles.chunk_by(|a, b| a.window == b.window).count();
        report.window_rows = wide(WINDOW_ROWS * windows);
        report.batches = wide(parts.batches.rows.len());
        report.tile_share = real(in_tiles) / real(entries.max(1));
        report.utilisation = real(in_tiles) / real(wide(tiles.len() * WINDOW_ROWS * SAMPLED_COLS).max(1));
        Ok(parts)
    }

    fn sizes(&self, parts: &Parts<'_>) -> Vec<ArraySize> {
        let mut sizes = Vec::new();
        push(&mut sizes, "tiles", wide(size_of_val(parts.pattern.tiles())));
        if !parts.pattern.tiles().is_empty() {
            push(&mut sizes, "window_rows", 4 * wide(parts.pattern.window_rows().len()));
        }
        push(&mut sizes, "places", 4 * wide(parts.pattern.places().len()));
        if !parts.batches.rows.is_empty() {
            push(&mut sizes, "batch_rows", 4 * wide(parts.batches.rows.len()));
            push(&mut sizes, "batch_begins", 4 * wide(parts.batches.begins.len()));
            push(&mut sizes, "col_indices", 4 * wide(parts.col_indices().len()));
        }
        if !parts.entry_rows.is_empty() {
            push(&mut sizes, "entry_rows", 4 * wide(parts.entry_rows.len()));
            push(&mut sizes, "col_indices", 4 * wide(parts.col_indices().len()));
        }
        if self.options.form == SddmmForm::Scale {
            push(
                &mut sizes,
                "values",
                u64::from(self.options.precision.dtype().sum_bytes()) * wide(self.a.nnz()),
            );
        }
        sizes
    }

    fn upload(
        &self,
        device: &Device,
        multiprocessors: u32,
        parts: &Parts<'_>,
    ) -> Result<GpuSddmm, SddmmError> {
        let pattern = &parts.pattern;
        let tiles = match pattern.tiles() {
            [] => None,
            tiles => Some(TilesPart {
                records: DeviceBuffer::named(device, tiles, "tiles")?,
                window_rows: DeviceBuffer::named(device, pattern.window_rows(), "window_rows")?,
                kernels: TileEntries::of(self.options.precision, self.options.scan)?,
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
        Ok(GpuSddmm {
            device: device.clone(),
            nnz: self.a.nnz(),
            stages: crate::plan::PerStream::new(None),
            staged: AtomicU64::new(0),
            memory_limit: self.options.memory_limit,
            precision: self.options.precision,
            multiprocessors,
            tiles,
            entries,
            groups,
            tile_entries: narrow(pattern.tile_entries()),
            places,
            scale,
            beside: false,
        })
    }

    /// Notes what the plan will allocate, and refuses to go beyond the limit.
    fn account(&self, report: &mut SddmmReport, sizes: Vec<ArraySize>) -> Result<(), SddmmError> {
        report.device_bytes = check_memory(&sizes, self.options.memory_limit, MEMORY_REMEDY)?;
        report.arrays = sizes;
        Ok(())
    }

    fn blank_report(&self, device: &Device) -> SddmmReport {
        SddmmReport {
            rows: self.a.rows(),
            cols: self.a.cols(),
            nnz: self.a.nnz(),
            inner: self.options.inner,
            precision: self.options.precision,
            form: self.options.form,
            device: device.to_string(),
            device_kind: device.kind(),
            requested: self.options.algorithm,
            algorithm: self.options.algorithm,
            reason: "as asked".to_owned(),
            scheduling: None,
            entries: Vec::new(),
            tiles: 0,
            column_vectors: 0,
            window_rows: 0,
            batches: 0,
            group: None,
            tile_share: 0.0,
            utilisation: 0.0,
            arrays: Vec::new(),
            device_bytes: 0,
            stages: Vec::new(),
        }
    }
}

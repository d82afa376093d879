//! From a matrix and options to a plan.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Mutex;

use rayon::prelude::*;
use windrow_formats::{FormatError, Permutation, Value};
use windrow_preprocess::partition::{Density, PartitionRule, Prediction, ProductShape, estimate};
use windrow_preprocess::reorder::reorder;

use super::builder::{Order, SpmmBuilder};
use super::gpu::{GpuPlan, Operation};
use super::layout::{Context, HostParts, SHORTEST_PIECE};
use super::parts::push;
use super::places::Places;
use super::plan::{Body, MEMORY_REMEDY, SpmmPlan};
use super::points::{Division, NARROW, RowLengths, Thresholds};
use super::report::{ArraySize, SpmmReport, StageClock};
use super::select;
use super::sums::{SplitPart, WideC};
use super::tiles::WINDOW_ROWS;
use super::values::Values;
use crate::checks::check_memory;
use crate::cpu::CpuCsr;
use crate::device::{Device, Machine};
use crate::error::SpmmError;
use crate::num::{index, narrow, wide};
use crate::options::{Algorithm, Preprocessing};
use crate::parallelism::GroupLaunch;
use crate::schedule::Scheduling;
use crate::tuned::TunedProduct;

/// Columns of a workspace, at least and at most; wider products run in blocks of columns.
const CAPACITY: (usize, usize) = (64, 4096);
/// Columns of an f16 `C` that are summed in f32 at a time, where that takes more than one launch: a line of an f16 `B`.
const WIDE_C_COLUMNS: u32 = 64;
const _: () = assert!(WIDE_C_COLUMNS as usize <= CAPACITY.0, "a workspace has room for them");
/// Indices that kernels compute stay below 2³² with this much to spare for the last round of a loop.
pub(crate) const MAX_INDEX: u64 = u32::MAX as u64 - 1024;
/// Steps of a tile stream: sixteen columns each, counted in 32 bits.
pub(super) const MAX_STEPS: u64 = (1 << 28) - 1;

/// What is noted while a plan is made.
pub(super) struct Draft {
    pub(super) report: SpmmReport,
    pub(super) clock: StageClock,
    /// How segment groups divide the work, if it is theirs.
    pub(super) division: Option<Division>,
}

impl<'a, V: Value> SpmmBuilder<'a, V> {
    /// Makes the plan: checks, chooses, lays out and uploads.
    ///
    /// # Cost
    /// Linear in rows and entries; the report has the time of each stage.
    ///
    /// # Errors
    /// - [`SpmmError::Unsupported`] for an algorithm without kernels for the precision;
    /// - [`SpmmError::TooLarge`] for a GPU plan with 2³² entries or about as many segments;
    /// - [`SpmmError::MemoryLimit`] if the plan needs more than the limit;
    /// - [`SpmmError::Device`] if the device refuses, [`SpmmError::Format`] if tiles cannot be built.
    pub fn build(&self, device: &Device) -> Result<SpmmPlan, SpmmError> {
        let Some(TunedProduct { choice, us, default_us, .. }) = self.remembered(device) else {
            return self.build_chosen(device);
        };
        let mut plan = match self.taking(choice).build_chosen(device) {
            // What was quickest may be larger than the default.
            Err(SpmmError::MemoryLimit { .. }) => return self.build_chosen(device),
            built => built?,
        };
        plan.report.requested = self.algorithm;
        plan.report.tuned = true;
        plan.report.reason = format!("tuned: {us:.1} µs where the default took {default_us:.1}");
        Ok(plan)
    }

    /// [`build`](Self::build) without what was tuned.
    fn build_chosen(&self, device: &Device) -> Result<SpmmPlan, SpmmError> {
        if !self.algorithm.supports(self.precision) {
            return Err(SpmmError::Unsupported {
                algorithm: self.algorithm,
                precision: self.precision,
                remedy: match self.algorithm {
                    Algorithm::SegmentGroup => "use precision f32 or f16, or algorithm row-split",
                    Algorithm::MatricizedRows => "use precision f16, or algorithm row-split",
                    _ => "use precision tf32, bf16 or f16, or algorithm row-split",
                },
            });
        }
        if let Order::Given(order) = &self.order
            && order.len() != self.a.rows()
        {
            let (found, expected, why) = (order.len(), self.a.rows(), "one for each row");
            return Err(
                FormatError::LengthMismatch { array: "the order of rows", found, expected, why }.into()
            );
        }
        if let Some(order) = self.value_order
            && order.len() != self.a.nnz()
        {
            let (found, expected, why) = (order.len(), self.a.nnz(), "one for each entry");
            return Err(
                FormatError::LengthMismatch { array: "the order of values", found, expected, why }.into()
            );
        }
        let (clock, report) = (StageClock::start(), self.blank_report(device));
        let mut draft = Draft { clock, report, division: None };
        let values = Values::new(self.precision, self.a.values());
        draft.report.overflowed_values = values.exceptions.overflowed;
        draft.clock.end("values");
        let body = match device.machine() {
            None => self.build_cpu(&values, &mut draft)?,
            Some(machine) => self.build_gpu(device, machine, &values, &mut draft)?,
        };
        let report = SpmmReport { stages: draft.clock.stages, ..draft.report };
        Ok(SpmmPlan {
            rows: self.a.rows(),
            cols: self.a.cols(),
            nnz: self.a.nnz(),
            width: self.width,
            precision: self.precision,
            device: device.clone(),
            body,
            value_order: self.value_order.map(|order| order.new_to_old().to_vec()),
            memory_limit: self.memory_limit,
            overflow_on_device: false,
            report,
        })
    }

    fn build_cpu(&self, values: &Values<'_, V>, draft: &mut Draft) -> Result<Body, SpmmError> {
        let report = &mut draft.report;
        report.algorithm = Algorithm::RowSplit;
        report.reason = "the CPU has one algorithm, rows in parallel".to_owned();
        report.preprocessing_reason = "the plan runs there".to_owned();
        report.segments = wide(self.a.rows());
        report.cpu_tasks = Some(self.cpu_tasks.unwrap_or_default());
        let mut sizes = Vec::new();
        push(&mut sizes, "row_offsets", 8 * wide(self.a.rows() + 1));
        push(&mut sizes, "col_indices", 4 * wide(self.a.nnz()));
        push(&mut sizes, "values", 4 * wide(self.a.nnz()));
        self.account(report, sizes, 0)?;
        let matrix = CpuCsr::new(self.a.with_values(values.bits().to_f32())?, self.precision);
        let matrix = matrix.with_tasks(self.cpu_tasks.unwrap_or_default());
        debug_assert_eq!(matrix.matrix().byte_sizes().total(), report.device_bytes, "what was accounted for");
        draft.clock.end("copy");
        Ok(Body::Cpu(matrix))
    }

    fn build_gpu(
        &self,
        device: &Device,
        machine: &dyn Machine,
        values: &Values<'_, V>,
        draft: &mut Draft,
    ) -> Result<Body, SpmmError> {
        let too_large = |what, found, limit| {
            let remedy = "split the matrix by rows and multiply the pieces, or use the CPU";
            Err(SpmmError::TooLarge { what, found, limit, remedy })
        };
        if wide(self.a.nnz()) > MAX_INDEX {
            return too_large("entries", wide(self.a.nnz()), MAX_INDEX);
        }
        let segments = wide(self.a.rows()) + wide(self.a.nnz()) / u64::from(SHORTEST_PIECE);
        if segments > MAX_INDEX {
            return too_large("rows and pieces of rows", segments, MAX_INDEX);
        }
        draft.division = self.division();
        let groups = draft.division.is_some();
        let matricized = self.algorithm == Algorithm::MatricizedRows;
        let order = if groups || matricized { None } else { self.find_order(draft)? };
        let context = Context { device, machine, order: order.as_deref(), columns_in_use: OnceCell::new() };
        let non_finite = values.exceptions.non_finite;
        let rule = self.choose(non_finite, &context, draft)?;
        let mut host = match (rule, draft.division) {
            (Some(rule), _) => self.lay_out_tiles(&context, rule, draft)?,
            (None, Some(division)) => self.lay_out_groups(division, draft)?,
            (None, None) if matricized => self.lay_out_matricized(draft),
            (None, None) => self.lay_out_rows(&context, draft),
        };
        self.predict(&host, draft);
        let report = &mut draft.report;
        if report.steps > MAX_STEPS {
            return too_large("steps of two tiles", report.steps, MAX_STEPS);
        }

        let beside = host.scheduling.as_ref().is_some_and(Scheduling::is_beside);
        report.scheduling = host.scheduling.take();
        let capacity = self.capacity(groups);
        let workspace = 4 * host.slot_rows * u64::from(capacity);
        let mut sizes = host.sizes();
        push(&mut sizes, "workspace", workspace);
        let adds = report.rows_in_both > 0;
        let [wide_c, wide_c_rows] = if adds { WideC::bytes(self.a.rows(), WIDE_C_COLUMNS) } else { [0; 2] };
        push(&mut sizes, "wide_c", wide_c);
        push(&mut sizes, "wide_c_rows", wide_c_rows);
        if self.values_from_device {
            let ArraySize { name, bytes } =
                host.place_counts(self.a.nnz(), self.precision.bytes(), self.value_order.is_some()).size();
            push(&mut sizes, name, bytes);
        }
        self.account(report, sizes, workspace + wide_c + wide_c_rows)?;
        report.host_bytes = host.host_bytes() + self.value_order.map_or(0, |order| 4 * wide(order.len()));

        let (windows, rows) = (&host.split_windows, &host.split_rows);
        let split = match windows.is_empty() && rows.is_empty() {
            true => None,
            false => Some(SplitPart::upload(device, windows, rows, index(workspace / 4))?),
        };
        let wide_c = adds.then(|| WideC::alloc(device, self.a.rows(), WIDE_C_COLUMNS)).transpose()?;
        let mut plan = GpuPlan {
            precision: self.precision,
            determinism: self.determinism,
            widest_slice: host.widest_slice,
            row_split: host.row_split.take().map(|part| part.upload(device, values)).transpose()?,
            short_rows: host.short_rows.take().map(|part| part.upload(device, values.bits())).transpose()?,
            groups: host.groups.take().map(|part| part.upload(device, values)).transpose()?,
            matricized: host.matricized.take().map(|part| part.upload(device, values)).transpose()?,
            tiles: host.tiles.take().map(|part| part.upload(device, values)).transpose()?,
            split,
            wide_c,
            beside,
            places: None,
            capacity,
            queue: Mutex::default(),
        };
        if self.values_from_device {
            let order = self.value_order.map(Permutation::new_to_old);
            plan.places = Some(Places::new(&plan, device, self.a.nnz(), order)?);
        }
        let operation = Operation { n: self.demand().n, vectors: true, column_major: false };
        report.entries = plan.choose(operation).names();
        draft.clock.end("upload");
        Ok(Body::Gpu(Box::new(plan)))
    }

    /// The point of Sgap's space that divides the work, because that was asked for or `B` is narrow.
    fn division(&self) -> Option<Division> {
        let of_tree = || RowLengths::of(self.a).division(self.width, &Thresholds::FITTED);
        match self.algorithm {
            Algorithm::SegmentGroup => {
                let Division { point, launch, row_split } = match self.point {
                    Some(point) => Division { point, launch: GroupLaunch::default(), row_split: false },
                    None => of_tree(),
                };
                Some(Division { point, launch: self.group_launch.unwrap_or(launch), row_split })
            }
            Algorithm::Auto if matches!(self.order, Order::AsGiven) => {
                let supported = Algorithm::SegmentGroup.supports(self.precision)
                    && (self.width <= NARROW || !self.precision.has_tile_kernels());
                supported.then(of_tree).filter(|division| !division.row_split)
            }
            _ => None,
        }
    }

    /// The order of the rows, if it is not the matrix's own.
    fn find_order(&self, draft: &mut Draft) -> Result<Option<Cow<'a, Permutation>>, SpmmError> {
        let order = match &self.order {
            Order::AsGiven => return Ok(None),
            Order::Given(order) => {
                draft.report.order = "given".to_owned();
                Cow::Borrowed(*order)
            }
            Order::Found(options) => {
                // Nobody watches, so nobody cancels.
                let Ok(found) = reorder(self.a, options, &()) else { return Ok(None) };
                draft.report.order = match found.kept_original {
                    true => format!("its own: the one of {} gathers more", options.method),
                    false => options.method.to_string(),
                };
                Cow::Owned(found.permutation)
            }
        };
        draft.clock.end("reorder");
        Ok(Some(order).filter(|order| !order.is_identity()))
    }

    /// The partition for tiles, or none for row-split. Notes the algorithm and why.
    fn choose(
        &self,
        non_finite: u64,
        context: &Context<'_>,
        draft: &mut Draft,
    ) -> Result<Option<PartitionRule>, SpmmError> {
        let Draft { report, division, .. } = draft;
        if self.algorithm == Algorithm::Auto {
            (report.algorithm, report.reason) = if division.is_some() {
                let why = format!("{} columns are few: balance decides, not bytes", self.width);
                (Algorithm::SegmentGroup, why)
            } else if self.precision.has_tile_kernels() {
                select::algorithm(wide(self.a.nnz()), non_finite)
            } else {
                (Algorithm::RowSplit, format!("{} is multiplied on CUDA cores", self.precision))
            };
        }
        let rule = match report.algorithm {
            Algorithm::RowSplit | Algorithm::SegmentGroup | Algorithm::MatricizedRows | Algorithm::Auto => {
                None
            }
            Algorithm::ShortRows => Some(PartitionRule::AllResidual),
            Algorithm::TileStream => Some(PartitionRule::AllTile),
            Algorithm::Hybrid => match self.partition {
                Some(rule) => Some(rule),
                None => self.estimate(non_finite, context, report)?,
            },
        };
        draft.clock.end("choose");
        Ok(rule)
    }

    /// The division of the rows that the cost model prefers; where it prefers one path for all rows, the path that the
    /// matrix's structure does.
    fn estimate(
        &self,
        non_finite: u64,
        context: &Context<'_>,
        report: &mut SpmmReport,
    ) -> Result<Option<PartitionRule>, SpmmError> {
        let (algorithm, why) = select::algorithm(wide(self.a.nnz()), non_finite);
        if algorithm == Algorithm::RowSplit {
            report.reason = format!("all rows on CUDA cores: {why}");
            return Ok(None);
        }
        let bytes = self.precision.bytes() as usize;
        let found = estimate(self.a, context.order, self.width, bytes, &self.cost_model)?;
        // Measured, the tile stream is not behind row-split where the model says so; see `select::algorithm`.
        let least =
            |best: Prediction, next: &Prediction| if next.seconds < best.seconds { *next } else { best };
        let with_tiles = |p: &&Prediction| p.rule != PartitionRule::AllResidual;
        let best = found.predictions.iter().filter(with_tiles).fold(found.predictions[0], least);
        report.reason = match best.rule {
            PartitionRule::Overlap { thresholds } => {
                format!(
                    "rows of at most {} entries that share few columns on CUDA cores",
                    thresholds.max_entries
                )
            }
            _ => format!("all rows in tiles: no hybrid is predicted to be faster; {why}"),
        };
        Ok(Some(best.rule))
    }

    /// The time that the cost model predicts for each path.
    fn predict(&self, host: &HostParts<'_>, draft: &mut Draft) {
        let report = &mut draft.report;
        let shape = ProductShape {
            rows: self.a.rows(),
            cols: self.a.cols(),
            width: self.width,
            element_bytes: self.precision.bytes() as usize,
        };
        let from_csr = host.row_split.is_some() || host.groups.is_some() || host.matricized.is_some();
        let scalar = from_csr && host.tiles.is_none();
        // The model adds the windows of empty rows itself.
        let empty_windows = report.empty_rows.div_ceil(wide(WINDOW_ROWS));
        let mut parts = Density::default();
        parts.columns = report.column_vectors;
        parts.steps = report.steps.saturating_sub(empty_windows);
        parts.windows = report.windows.saturating_sub(empty_windows);
        parts.residual_rows = if scalar { wide(self.a.rows()) } else { report.residual_rows };
        parts.rows_in_both = report.rows_in_both;
        let segments = host.row_split.as_ref().map_or(0, |part| part.entries.len());
        let short_rows = host.short_rows.as_ref().map_or(0, |part| part.sources.len());
        let whole = host.groups.is_some() || host.matricized.is_some();
        let groups = if whole { self.a.nnz() } else { 0 };
        parts.residual_entries = wide(segments + short_rows + groups);
        report.predicted_us = self.cost_model.path_seconds(&parts, shape).map(|seconds| seconds * 1e6);
    }

    /// Columns of the workspace: a multiple of 8, so that a block of columns of an aligned `B` is aligned.
    fn capacity(&self, groups: bool) -> u32 {
        let (low, high) = CAPACITY;
        // Groups may cut more rows than others, of a narrower product.
        let low = if groups { 8 } else { low };
        narrow(self.width.clamp(low, high).next_multiple_of(8))
    }

    /// Notes what the plan will allocate, and refuses to go beyond the limit.
    fn account(
        &self,
        report: &mut SpmmReport,
        sizes: Vec<ArraySize>,
        workspace: u64,
    ) -> Result<(), SpmmError> {
        report.device_bytes = check_memory(&sizes, self.memory_limit, MEMORY_REMEDY)?;
        report.workspace_bytes = workspace;
        report.arrays = sizes;
        Ok(())
    }

    fn blank_report(&self, device: &Device) -> SpmmReport {
        let canonicalised = self.a.canonicalised();
        SpmmReport {
            rows: self.a.rows(),
            cols: self.a.cols(),
            nnz: self.a.nnz(),
            sorted_rows: canonicalised.sorted_rows,
            summed_duplicates: canonicalised.summed_duplicates,
            overflowed_values: 0,
            width: self.width,
            precision: self.precision,
            device: device.to_string(),
            device_kind: device.kind(),
            requested: self.algorithm,
            algorithm: self.algorithm,
            reason: "as asked".to_owned(),
            determinism: self.determinism,
            tile_values: self.tile_values,
            tile_values_reason: String::new(),
            preprocessing: Preprocessing::Cpu,
            preprocessing_reason: "only rows in tiles are laid out on a GPU".to_owned(),
            scheduling: None,
            parallelism: None,
            mma_count: 0,
            cpu_tasks: None,
            tuned: false,
            order: "its own".to_owned(),
            predicted_us: [0.0; 2],
            entries: Vec::new(),
            arrays: Vec::new(),
            device_bytes: 0,
            workspace_bytes: 0,
            host_bytes: 0,
            stages: Vec::new(),
            segments: 0,
            split: 0,
            split_rows: 0,
            windows: 0,
            tiles: 0,
            steps: 0,
            workers: 0,
            column_vectors: 0,
            gather_places: 0,
            empty_rows: wide(self.a.row_offsets().par_windows(2).filter(|ends| ends[0] == ends[1]).count()),
            residual_rows: 0,
            rows_in_both: 0,
            tile_share: 0.0,
        }
    }
}
